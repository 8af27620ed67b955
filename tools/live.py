"""What the cluster says of a plan's faults and settings: read-only, with the commands that a run would execute."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from cbt_plugins.ceph import Ceph
from cbt_plugins.config.plan import Plan, Settings
from cbt_plugins.config.spans import Span, spans
from cbt_plugins.faults import FaultError, Injector, access, blast, registry, targets
from cbt_plugins.faults.cluster_facts import QUESTIONS, Facts, ask
from cbt_plugins.faults.scene import Limits
from cbt_plugins.faults.settings import SettingsMaker
from cbt_plugins.remote import Remote

#: stands for the run's id in the names of what a fault leaves on nodes
_RUN = "RUN-ID"


@dataclass(frozen=True)
class Live:
    """Answers for people, and why a run would not come to its end: empty when nothing speaks against it."""

    lines: Tuple[str, ...]
    refused: Tuple[str, ...]


def look(plans: Sequence[Plan], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Live:
    """Ask the cluster about each of the plans that differ in their faults or settings. Changes nothing."""
    remote = Remote.from_host(cluster, common)
    ceph = Ceph(remote, cluster)
    lines: List[str] = [f"The cluster now, asked on {ceph.head}"]
    refused: List[str] = []
    distinct = {repr((plan.settings, spans(plan))): plan for plan in plans}
    with tempfile.TemporaryDirectory() as folder:
        injector = Injector(Path(folder), remote, ceph, cluster, run_id=_RUN, common=common)
        with contextlib.closing(injector):
            for plan in distinct.values():
                lines += _settings(ceph, plan.settings, refused)
                lines += _faults(injector, ceph, cluster, plan, refused)
    if len(lines) == 1:
        lines.append("  nothing to ask: the file has no faults and no settings")
    elif not refused:
        lines.append("  nothing speaks against it")
    return Live(tuple(lines), tuple(dict.fromkeys(refused)))


def _settings(ceph: Ceph, settings: Settings, refused: List[str]) -> Iterator[str]:
    maker = SettingsMaker(ceph, Limits())
    try:
        steps = [*maker.steps(settings), *maker.recovery(settings.recovery)]
    except FaultError as error:
        refused.append(f"settings: {error}")
        return
    for step in steps:
        yield f"  settings: {step.what}"
        yield from (f"    do      {command}" for command in step.inject)
        yield from (f"    undo    {command}" for command in step.undo)


def _faults(
    injector: Injector, ceph: Ceph, cluster: Mapping[str, Any], plan: Plan, refused: List[str]
) -> Iterator[str]:
    """Judge each fault beside those that are in force then, as if nothing had recovered since these began."""
    known: Dict[str, blast.Harm] = {}
    for span in spans(plan):
        beside = [known[fault.label] for fault in span.beside if fault.label in known]
        try:
            yield from _fault(injector, ceph, cluster, span, beside, known, refused)
        except FaultError as error:
            text = str(error)
            refused.append(text if text.startswith(f"{span.fault.label}:") else f"{span.fault.label}: {text}")


def _fault(
    injector: Injector,
    ceph: Ceph,
    cluster: Mapping[str, Any],
    span: Span,
    beside: Sequence[blast.Harm],
    known: Dict[str, blast.Harm],
    refused: List[str],
) -> Iterator[str]:
    held = sorted({osd for harm in beside for osd in harm.osds})
    kind, options = registry.options(span.fault.kind, span.fault.options)
    facts = ask(ceph, QUESTIONS)
    hit = targets.resolve(span.fault, kind.unit, facts, access.nodes_of(cluster), held)
    prepared = injector.prepare(replace(span.fault, targets=hit.named, choose=0))
    harm = kind.harm(hit, options)
    known[span.fault.label] = harm
    question = "osd ok-to-stop " + " ".join(map(str, sorted({*held, *harm.osds})))
    asked = ask(ceph, QUESTIONS, alone=[question] if harm.osds and not harm.out else [])
    radius = blast.radius(_without(asked, beside), harm, ceph.head, held, asked.answers.get(question))
    judged = replace(prepared, radius=radius)
    first, *others = judged.lines()
    together = f", while {', '.join(fault.label for fault in span.beside)} is in force" if span.beside else ""
    yield f"  {first}{together}"
    yield f"    inactive PGs: {100 * radius.figures.get('inactive_share', 0.0):.1f}% of the cluster's"
    yield from (f"  {line}" for line in others)
    refused += [f"{span.fault.label}: refused by rule {finding}" for finding in judged.refused]


def _without(facts: Facts, gone: Sequence[blast.Harm]) -> Facts:
    """Return the cluster as it is when these faults are in force."""
    answers: Dict[str, Any] = {**facts.answers, "osd dump": copy.deepcopy(facts.answers["osd dump"])}
    hosts = {mon["name"]: mon.get("hostname", mon["name"]) for mon in answers["mon metadata"]}
    for harm in gone:
        for entry in answers["osd dump"]["osds"]:
            if entry["osd"] in harm.osds:
                entry.update({"in": 0} if harm.out else {"up": 0})
        quorum = answers["quorum_status"]
        left = [name for name in quorum["quorum_names"] if hosts.get(name, name) not in harm.nodes]
        answers["quorum_status"] = {**quorum, "quorum_names": left}
    return Facts(answers)
