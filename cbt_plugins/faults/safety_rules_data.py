"""Safety rules: they judge a fault on the present cluster, and forbid it or warn. This module has the rules on data.

Pure: recorded replies in, findings out. The names of the rules are the words of `accept:`; see docs/FAULTS.md.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import (
    Facts,
    down_otherwise,
    names,
    needed,
    osd_names,
    shape_of,
    transient,
    unclean_states,
)
from cbt_plugins.faults.safety_capacity import Filling
from cbt_plugins.faults.safety_case import FaultCase, Finding, OpenFault, Surroundings
from cbt_plugins.faults.safety_rules_daemons import (
    active_manager,
    client,
    fewer_gateways,
    head,
    mds,
    mgr,
    quorum,
    rgw,
    unknown_way,
)
from cbt_plugins.formatting import percent
from cbt_plugins.models.pools import inactive_share
from cbt_plugins.plan import BLINDING_FLAGS

#: flags with which the cluster sees the fault but reacts less: flag -> effect
QUIETING: Mapping[str, str] = {
    "noout": "no OSD is marked out, so recovery does not begin by itself",
    "norecover": "nothing is recovered",
    "nobackfill": "nothing is backfilled",
    "norebalance": "misplaced objects stay where they are",
}
#: the rule of `thrash: min_in`, which is no word of `accept:`
MIN_IN = "thrash min_in"
#: rules that use PG states of the manager
OF_STATES = ("clean", "inactive", "data", "ok-to-stop", "safe-to-destroy")
#: CRUSH types of a new cluster, for types without an item in the tree
_LEVELS: Mapping[str, int] = {
    **{"osd": 0, "host": 1, "chassis": 2, "rack": 3, "row": 4, "pdu": 5, "pod": 6},
    **{"room": 7, "datacenter": 8, "zone": 9, "region": 10, "root": 11},
}


def questions(taken: BlastRadius, held: Sequence[OpenFault]) -> Dict[str, str]:
    """Return name in `Replies` -> question to Ceph about a fault.

    ok-to-stop is asked for the OSDs of the fault together with OSDs whose loss the cluster has not noticed yet.
    """
    question_by_name = {}
    if taken.stops:
        unseen = {o for h in held if not (h.seen or h.taken.out) for o in h.taken.osds}
        question_by_name["ok_to_stop"] = " ".join(["osd ok-to-stop", *map(str, sorted({*taken.osds, *unseen}))])
    if taken.destroyed:
        question_by_name["safe_to_destroy"] = " ".join(["osd safe-to-destroy", *map(str, taken.osds)])
    return question_by_name


@dataclass(frozen=True)
class Assessment:
    """Findings of the safety rules on one fault, and numbers that are useful even if no rule is broken."""

    findings: Tuple[Finding, ...]
    numbers: Mapping[str, Any]
    warnings: Tuple[str, ...] = ()  # a warning does not refuse the fault
    transient: int = 0  # number of PGs in a short-lived state

    def refused(self, accept: Sequence[str]) -> Tuple[Finding, ...]:
        """Return the findings that are not accepted."""
        return tuple(f for f in self.findings if f.rule not in accept)

    def may_pass(self, accept: Sequence[str]) -> bool:
        """Tell whether the fault is refused only because of PG states, some of which are transient."""
        refused = self.refused(accept)
        return bool(refused and self.transient) and all(f.rule in OF_STATES for f in refused)


def assess(facts: Facts, taken: BlastRadius, around: Surroundings) -> Assessment:
    """Judge a fault by all safety rules."""
    case = FaultCase(facts, taken, around, {})
    findings = [finding for rule in (*RULES.values(), _too_few_in) for finding in rule(case)]
    warnings = [text for look in _WARNINGS for text in look(case)]
    return Assessment(tuple(findings), case.numbers, tuple(warnings), transient(_states(facts)))


def _states(facts: Facts) -> Mapping[str, int]:
    return Counter(pg["state"] for pg in facts.pgs)


def _clean(case: FaultCase) -> Iterator[Finding]:
    """Find PGs that are not active+clean. Beside open faults of this run, PGs may lack the OSDs of these faults."""
    states = unclean_states(_states(case.facts), bool(case.around.held))
    if states:
        many = ", ".join(f"{n} {s}" for s, n in sorted(states.items(), key=lambda i: (-i[1], i[0])))
        total = len(case.facts.pgs)
        text = f"{sum(states.values())} of {total} PGs are not active+clean: {many}"
        down = down_otherwise(case.facts, {osd for held in case.around.held for osd in held.taken.osds})
        if down:
            text += f"; these OSDs are down, but not by this run: {names(osd_names(down))}"
        yield Finding("clean", text, {"pgs": states, "down": down})


def _flags(case: FaultCase) -> Iterator[Finding]:
    """Find flags that hide the fault from the cluster, or prevent its OSDs from coming back."""
    blinding_flags = [flag for flag in case.facts.flags if flag in BLINDING_FLAGS]
    if blinding_flags:
        yield Finding("flags", f"the OSD map has {', '.join(blinding_flags)} set", {"flags": blinding_flags})


def _below_min_size(case: FaultCase) -> Iterator[Finding]:
    """Find PGs with fewer than min_size members left."""
    gone = case.gone
    if case.moves_data_away:
        return  # an OSD that is out serves clients until its data has moved
    by_pool: Dict[int, List[int]] = {}
    for pg in case.facts.pgs:
        by_pool.setdefault(int(pg["pgid"].split(".")[0]), []).append(
            sum(o in case.facts.osds and o not in gone for o in pg["acting"])
        )
    total, texts, pools = 0, [], {}
    for pool in case.facts.pools:
        left = by_pool.get(pool["pool"], [])
        lost = sum(1 for n in left if n < pool["min_size"])
        total += lost
        if lost:
            share = lost / len(left)
            pools[pool["pool_name"]] = {"inactive": lost, "pgs": len(left), "share": share}
            texts.append(
                f"{lost} of {len(left)} PGs of pool {pool['pool_name']} ({percent(share)}; "
                f"{shape_of(case.facts, pool)}, min_size {pool['min_size']})"
            )
    all_pgs = len(case.facts.pgs)
    case.numbers["inactive_pgs"], case.numbers["inactive_share"] = total, total / all_pgs if all_pgs else 0.0
    if texts:
        text = f"{total} of {all_pgs} PGs ({percent(total / all_pgs)}) would be inactive: {'; '.join(texts)}"
        yield Finding("inactive", text, {"inactive": total, "pgs": all_pgs, "pools": pools})


def _domain(case: FaultCase) -> Iterator[Finding]:
    """Find pools that lose more failure domains than they tolerate with all PGs active."""
    if case.moves_data_away:
        yield from _too_few_domains(case)
        return
    alike: Dict[Tuple[Any, ...], List[str]] = {}
    for pool, kind, shares in case.domains:
        estimate = inactive_share(list(shares.values()), pool["size"], pool["min_size"])
        case.numbers.setdefault("expected_inactive", {})[pool["pool_name"]] = estimate
        failed = tuple(name for name, share in shares.items() if share > 0)
        spare = pool["size"] - pool["min_size"]
        if len(failed) > spare:
            shape = f"{shape_of(case.facts, pool)}, min_size {pool['min_size']}"
            key = (estimate, shape, spare, kind, len(shares), failed)
            alike.setdefault(key, []).append(str(pool["pool_name"]))
    for (estimate, shape, spare, kind, total, failed), pools in sorted(alike.items(), reverse=True):
        yield Finding(
            "domain",
            f"{', '.join(pools)} ({shape}): {len(failed)} of {total} {kind}s would be lost "
            f"({', '.join(sorted(failed))}), only {spare} may be lost: {percent(estimate)} of the PGs are expected "
            "to be inactive",
            {"pools": pools, "domains": sorted(failed), "of": total, "spare": spare, "share": estimate},
        )


def _too_few_domains(case: FaultCase) -> Iterator[Finding]:
    """Yield the pools for whose data fewer than min_size failure domains would be left."""
    for few in _domains_left(case):
        if few.left < few.min_size:
            numbers = {"pools": few.pools, "left": few.left, "of": few.total}
            text = f"{few}, min_size {few.min_size}: the data of OSDs that are out could not move"
            yield Finding("domain", text, numbers)


class _DomainsLeft(NamedTuple):
    """Pools of the same layout, and the failure domains that are left for their data after an `out`."""

    left: int
    total: int
    kind: str
    shape: str
    size: int
    min_size: int
    pools: List[str]

    def __str__(self) -> str:
        domains = f"{self.left} of {self.total} {self.kind}s"
        return f"{domains} would be left for the data of {', '.join(self.pools)}, {self.shape}"


def _domains_left(case: FaultCase) -> Iterator[_DomainsLeft]:
    alike: Dict[Tuple[Any, ...], List[str]] = {}
    for pool, kind, before, after in case.domains_in if case.moves_data_away else ():
        if after < before:
            key = (after, before, kind, shape_of(case.facts, pool), int(pool["size"]), int(pool["min_size"]))
            alike.setdefault(key, []).append(str(pool["pool_name"]))
    for key, pools in sorted(alike.items()):
        yield _DomainsLeft(*key, pools)


def _data(case: FaultCase) -> Iterator[Finding]:
    """Find PGs with too few members left to read their data; if OSDs are destroyed, the data is lost."""
    gone = case.gone
    pools = {p["pool"]: p for p in case.facts.pools}
    lost: Dict[str, int] = {}
    for pg in case.facts.pgs:
        pool = pools.get(int(pg["pgid"].split(".")[0]))
        if pool and sum(o in case.facts.osds and o not in gone for o in pg["acting"]) < needed(case.facts, pool):
            lost[pool["pool_name"]] = lost.get(pool["pool_name"], 0) + 1
    if lost and not case.moves_data_away:
        many = ", ".join(f"{n} of pool {p}" for p, n in sorted(lost.items()))
        consequence = (
            "the data of these PGs would be lost"
            if case.taken.destroyed
            else "too few copies or chunks of the data would be up"
        )
        yield Finding("data", f"{sum(lost.values())} PGs ({many}): {consequence}", {"pools": lost})


def _ok_to_stop(case: FaultCase) -> Iterator[Finding]:
    """Read the reply of `ceph osd ok-to-stop`: JSON, or text and exit status in older releases."""
    reply = case.around.ok_to_stop
    if reply is None:
        return
    answer = reply.object or {}
    if "ok_to_stop" in answer:
        if not answer["ok_to_stop"]:
            bad = answer.get("num_not_ok_pgs", "?")
            text = f"ceph osd ok-to-stop says no: {bad} PGs are or would become offline"
            yield Finding("ok-to-stop", text, dict(answer))
    elif reply.status == errno.EBUSY:
        yield Finding("ok-to-stop", f"ceph osd ok-to-stop says no: {reply.last}", {"status": reply.status})
    elif reply.status != 0:
        yield Finding("ok-to-stop", f"ceph osd ok-to-stop: no usable reply: {reply.last}", {"status": reply.status})


def _safe_to_destroy(case: FaultCase) -> Iterator[Finding]:
    """Read the reply of `ceph osd safe-to-destroy`: whether other OSDs have all copies of the data."""
    reply = case.around.safe_to_destroy
    answer = (reply.object if reply else None) or {}
    bad = sorted(set(case.taken.osds) - set(answer.get("safe_to_destroy", ()))) if case.taken.destroyed else []
    if bad:
        text = f"ceph osd safe-to-destroy says no: {names(osd_names(bad))}"
        yield Finding("safe-to-destroy", text, dict(answer))


def _min_in(case: FaultCase) -> Iterator[Finding]:
    """Find OSDs that the mons would not mark out, so that their data would not be recovered."""
    if case.taken.out:
        return
    ratio = float(case.facts.answers["config get mon mon_osd_min_in_ratio"])
    osds = case.facts.osds
    inside = dict.fromkeys(n for n, o in osds.items() if o["in"] and n not in case.out)
    mine = dict.fromkeys(o for o in case.taken.osds if o in inside)
    # OSDs that went down before this fault are marked out first
    now, kept = len(inside), 0
    for osd in (*(o for o in inside if o in case.gone and o not in mine), *mine):
        if now / len(osds) >= ratio:
            now -= 1
        else:
            kept += osd in mine
    if kept:
        yield Finding(
            "min-in",
            f"{kept} of {len(case.taken.osds)} OSDs of the fault would never be marked out, so their data would not be "
            f"recovered: mons mark no OSD out when only {now} of all {len(osds)} OSDs are in "
            f"(mon_osd_min_in_ratio {ratio:g})",
            {"kept": kept, "in": now, "osds": len(osds), "ratio": ratio},
        )


def _too_few_in(case: FaultCase) -> Iterator[Finding]:
    """Find too few OSDs that would be in, by `min_in` of the fault. OSDs that are down count as out."""
    inside = {osd for osd, entry in case.facts.osds.items() if entry["in"]} - case.out
    left, total = len(inside - case.gone), len(case.facts.osds)
    if inside.intersection(case.taken.osds) and left < case.around.min_in * total - 1e-9:  # 0.55 * 100 is more than 55
        text = f"{left} of {total} OSDs ({percent(left / total)}) would be in and up"
        yield Finding(MIN_IN, f"{text}; min_in is {percent(case.around.min_in)}", {"in": left, "osds": total})


def _capacity(case: FaultCase) -> Iterator[Finding]:
    """Find parts of the CRUSH tree that would be fuller than the full ratio after recovery."""
    full, backfill = case.ratios
    worst = case.fullest
    if worst and worst.used >= full:
        yield Finding(
            "capacity",
            f"{_filled(worst)}; the full ratio is {percent(full, '.0f')} "
            f"(backfill stops at {percent(backfill, '.0f')})",
            {"used": worst.used_share, "full_ratio": full, "of": worst.name, "pools": list(worst.pools)},
        )


def _filled(part: Filling) -> str:
    if part.used_share is None:
        return f"no capacity would be left in {part.name} (pools: {', '.join(part.pools)})"
    return f"{part.name} (pools: {', '.join(part.pools)}) would be {percent(part.used)} full after recovery"


#: name -> rule, in the order of the messages; `plan.SAFETY_RULES` has the same names
RULES: Mapping[str, Callable[[FaultCase], Iterator[Finding]]] = {
    "clean": _clean,
    "flags": _flags,
    "inactive": _below_min_size,
    "domain": _domain,
    "data": _data,
    "ok-to-stop": _ok_to_stop,
    "safe-to-destroy": _safe_to_destroy,
    "quorum": quorum,
    "mgr": mgr,
    "mds": mds,
    "head": head,
    "client": client,
    "rgw": rgw,
    "min-in": _min_in,
    "capacity": _capacity,
}


def _quiet(case: FaultCase) -> Iterator[str]:
    """Warn of flags that this run has not set and that influence the measurement."""
    for flag, effect in QUIETING.items():
        if flag in case.facts.flags and flag not in case.around.flags and not (case.taken.out and flag == "noout"):
            yield f"{flag} is set, but not by this run: {effect}"


def _whole_subtrees(case: FaultCase) -> Iterator[str]:
    """Warn of CRUSH subtrees that would be down completely, and are too large for monitors to mark them out."""
    option = "mon_osd_down_out_subtree_limit"
    limit = case.facts.monitors_go_by(option, "rack")
    tree, gone = case.facts.tree, case.gone
    level = {**_LEVELS, **{n["type"]: int(n["type_id"]) for n in tree.values() if "type_id" in n}}
    if case.taken.out or not level.get(limit):
        return
    above = {child: item for item, node in tree.items() for child in node.get("children", [])}
    kept: Dict[str, int] = {}
    is_gone = cache(lambda item: gone.issuperset(case.facts.below(item)))
    for osd in case.taken.osds:
        item: Optional[int] = osd if osd in tree else None
        while item is not None and is_gone(item):
            if level.get(tree[item]["type"], 0) >= level[limit]:
                name = f"{tree[item]['type']} {tree[item]['name']}"
                kept[name] = kept.get(name, 0) + 1
                break
            item = above.get(item)
    for name, many in kept.items():
        yield (
            f"all OSDs of {name} would be down: because of {option} ({limit}), {many} OSDs of the fault are not marked "
            "out, so recovery does not begin by itself"
        )


def _no_backfill(case: FaultCase) -> Iterator[str]:
    """Warn of capacity that suffices for the data, but at which backfill stops."""
    full, backfill = case.ratios
    worst = case.fullest
    if worst and backfill <= worst.used < full:
        yield f"{_filled(worst)}: backfill stops at {percent(backfill, '.0f')}"


def _stays_where_it_is(case: FaultCase) -> Iterator[str]:
    """Warn of pools with fewer failure domains left than PG members: their recovery never ends."""
    for few in _domains_left(case):
        if few.min_size <= few.left < few.size:
            needs = f"recovery cannot end, since a PG needs {few.size} {few.kind}s"
            yield f"{few}: {needs}; some data stays on OSDs that are out"


#: reasons why a fault may have another effect than expected; they do not refuse the fault
_WARNINGS: Sequence[Callable[[FaultCase], Iterator[str]]] = (
    *(_quiet, _whole_subtrees, _no_backfill, _stays_where_it_is, fewer_gateways, active_manager, unknown_way),
)
