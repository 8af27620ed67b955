"""Whether the cluster is fit for a measurement before a run begins: its conditions, and how full it is."""

from __future__ import annotations

import logging
import time
from operator import not_
from typing import AbstractSet, Dict, Iterator, List, Mapping, Set

from cbt_plugins.cluster_conditions import CONDITIONS, found_in, of_own_faults
from cbt_plugins.formatting import percent
from cbt_plugins.plan import Settings
from cbt_plugins.polling import Clock, wait_until
from cbt_plugins.run.context import RunContext

log = logging.getLogger(__name__)

#: seconds for which the cluster may settle, and between two looks: PGs peer, a scrub ends
SETTLE, SETTLE_EVERY = 60.0, 2.0
CLOCK = Clock()
#: the condition that a fill itself may bring about
NEAR_FULL = "near-full"


def await_conditions(run: RunContext) -> List[str]:
    """Return the reasons why the cluster's state allows no measurement, after some time to settle. Raises CephError."""
    accepted = accepted_of(run.plan.settings)
    ours = of_own_faults(run.events.records)
    if ours and ours[-1][1] == float("inf"):  # of an invocation that was broken off
        accepted |= {condition.name for condition in CONDITIONS if condition.of_faults}
    if run.journal.all("phase-begun"):  # what is used may be the run's own; it is a warning of the phases
        accepted.add(NEAR_FULL)
    announced = False

    def violations() -> Dict[str, str]:
        nonlocal announced
        texts = {**found_in(run.ceph.status().sample(time.time())), **_near_full(run)}
        texts = {name: text for name, text in texts.items() if name not in accepted}
        if texts and not announced:
            log.info("waiting up to %.0f s for the cluster: %s", SETTLE, "; ".join(texts.values()))
            announced = True
        return texts

    return list(condition_errors(wait_until(violations, SETTLE, SETTLE_EVERY, met=not_, clock=CLOCK), accepted))


def accepted_of(settings: Settings) -> Set[str]:
    """Return the names of the conditions with which a run of these settings begins."""
    return {*settings.accept, *(("scrubbing",) if {"noscrub", "nodeep-scrub"} <= set(settings.flags) else ())}


def condition_errors(texts: Mapping[str, str], accepted: AbstractSet[str]) -> Iterator[str]:
    """Yield an error for each condition of the cluster, by name, that is not accepted."""
    for condition in CONDITIONS:
        if condition.name in texts and condition.name not in accepted:
            yield (
                f"the cluster is not fit for a measurement: {condition.name}: {texts[condition.name]}: "
                f"{condition.remedy}, or `settings: {{accept: [{condition.name}]}}`"
            )


def _near_full(run: RunContext) -> Dict[str, str]:
    """Return the OSDs and pools that are, or will be, above the thresholds of the OSD map. Raises CephError."""
    dump, df = run.ceph.json_all(("osd dump", "osd df"))
    ratio = float(dump["nearfull_ratio"])
    used = {n["id"]: n["kb_used"] / n["kb"] for n in df["nodes"] if n.get("kb")}
    fullest = max(used, key=lambda osd: used[osd], default=None)
    limit = f"nearfull_ratio is {percent(ratio, 'g')}"
    if fullest is not None and used[fullest] >= ratio:
        return {NEAR_FULL: f"osd.{fullest} is {percent(used[fullest])} full, {limit}"}
    for phase in run.plan.phases:
        if phase.goal and phase.goal.raw and phase.goal.raw > ratio:
            return {NEAR_FULL: f"{phase.name} fills {percent(phase.goal.raw, 'g')} of the raw capacity, {limit}"}
    return {}
