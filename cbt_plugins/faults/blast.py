"""What a fault would do to the cluster as it is now, and which rules of safety it would break.

Pure: recorded answers in, findings out. The rules' names are what `accept:` takes; docs/FAULTS.md says what each means.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..models.availability import inactive_share
from .cluster_facts import Facts

#: flags under which the cluster would not see the fault, or would not take the OSDs back
BLINDING = ("nodown", "noup", "noin", "pauserd", "pausewr")


@dataclass(frozen=True)
class Harm:
    """What a fault takes away."""

    osds: Tuple[int, ...] = ()  # down or out
    nodes: Tuple[str, ...] = ()  # as a whole, with everything that runs there
    out: bool = False  # the OSDs stay up and give their data away
    destroyed: bool = False  # their data is gone for good

    @property
    def stops(self) -> bool:
        """Whether OSDs are no longer there: what `ceph osd ok-to-stop` is about."""
        return bool(self.osds) and (self.destroyed or not self.out)


@dataclass(frozen=True)
class Finding:
    """A rule that the fault would break, in numbers."""

    rule: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> Dict[str, Any]:
        """For the journal."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Radius:
    """Findings, and the figures that are of use even where no rule is broken."""

    findings: Tuple[Finding, ...]
    figures: Mapping[str, Any]

    def refused(self, accept: Sequence[str]) -> Tuple[Finding, ...]:
        """The findings that nobody has accepted."""
        return tuple(f for f in self.findings if f.rule not in accept)


@dataclass(frozen=True)
class _Case:
    facts: Facts
    harm: Harm
    head: str
    held: Set[int]  # OSDs that open faults of this run have taken
    ok_to_stop: Optional[Mapping[str, Any]]
    safe_to_destroy: Optional[Mapping[str, Any]]
    figures: Dict[str, Any]

    @property
    def gone(self) -> Set[int]:
        """OSDs that will not serve: those of the fault, and those that do not now."""
        down = {n for n, o in self.facts.osds.items() if not o["up"]}
        return set(self.harm.osds) | down


def radius(
    facts: Facts,
    harm: Harm,
    head: str = "",
    held: Sequence[int] = (),
    ok_to_stop: Optional[Mapping[str, Any]] = None,
    safe_to_destroy: Optional[Mapping[str, Any]] = None,
) -> Radius:
    """Judge a fault. `held`: OSDs that this run's open faults have taken; `ok_to_stop`, `safe_to_destroy`: Ceph's own
    answers, if asked; what is destroyed must be known to be safe."""
    case = _Case(facts, harm, head, set(held), ok_to_stop, safe_to_destroy, {})
    findings = [finding for rule in RULES.values() for finding in rule(case)]
    return Radius(tuple(findings), case.figures)


def _steady(case: _Case) -> Iterator[Finding]:
    """Every PG is active+clean; while faults of this run are open: or quietly without what these have taken."""
    states: Dict[str, int] = {}
    for pg in case.facts.pgs:
        words = set(pg["state"].split("+")) - {"scrubbing", "deep", "snaptrim", "snaptrim_wait"}
        quiet = bool(case.held) and "active" in words and words <= {"active", "clean", "undersized", "degraded"}
        if words != {"active", "clean"} and not quiet:
            states[pg["state"]] = states.get(pg["state"], 0) + 1
    if states:
        many = ", ".join(f"{n} {s}" for s, n in sorted(states.items(), key=lambda i: (-i[1], i[0])))
        total = len(case.facts.pgs)
        yield Finding("steady", f"{sum(states.values())} of {total} PGs are not active+clean: {many}", {"pgs": states})


def _flags(case: _Case) -> Iterator[Finding]:
    """No flag hides the fault from the cluster or keeps its OSDs from coming back."""
    found = [flag for flag in case.facts.flags if flag in BLINDING]
    if found:
        yield Finding("flags", f"the OSD map has {', '.join(found)} set", {"flags": found})


def _inactive(case: _Case) -> Iterator[Finding]:
    """No PG has fewer than min_size members left."""
    gone = case.gone
    if case.harm.out and not case.harm.destroyed:
        return  # what is out serves on until its data is elsewhere
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
                f"{lost} of {len(left)} of pool {pool['pool_name']} ({100 * share:.1f} %; {_shape(case.facts, pool)}, "
                f"min_size {pool['min_size']})"
            )
    all_pgs = len(case.facts.pgs)
    case.figures["inactive_pgs"], case.figures["inactive_share"] = total, total / all_pgs if all_pgs else 0.0
    if texts:
        text = f"{total} of {all_pgs} PGs ({100 * total / all_pgs:.1f} %) would serve no client: {'; '.join(texts)}"
        yield Finding("inactive", text, {"inactive": total, "pgs": all_pgs, "pools": pools})


def _domain(case: _Case) -> Iterator[Finding]:
    """No pool loses more failure domains than it can lose without PGs becoming inactive."""
    if case.harm.out and not case.harm.destroyed:
        return
    alike: Dict[Tuple[Any, ...], List[str]] = {}
    for pool, kind, shares in _domains(case):
        estimate = inactive_share(list(shares.values()), pool["size"], pool["min_size"])
        case.figures.setdefault("expected_inactive", {})[pool["pool_name"]] = estimate
        failed = tuple(name for name, share in shares.items() if share > 0)
        spare = pool["size"] - pool["min_size"]
        if len(failed) > spare:
            shape = f"{_shape(case.facts, pool)}, min_size {pool['min_size']}"
            key = (estimate, shape, spare, kind, len(shares), failed)
            alike.setdefault(key, []).append(str(pool["pool_name"]))
    for (estimate, shape, spare, kind, total, failed), pools in sorted(alike.items(), reverse=True):
        yield Finding(
            "domain",
            f"{', '.join(pools)} ({shape}) can do without {spare} of {total} {kind}s, {len(failed)} would be gone "
            f"({', '.join(sorted(failed))}): {100 * estimate:.1f} % of the PGs are expected to be inactive",
            {"pools": pools, "domains": sorted(failed), "of": total, "spare": spare, "share": estimate},
        )


def _data(case: _Case) -> Iterator[Finding]:
    """No PG is without enough members to have its data at all: for good, when they are destroyed."""
    gone = case.gone
    pools = {p["pool"]: p for p in case.facts.pools}
    lost: Dict[str, int] = {}
    for pg in case.facts.pgs:
        pool = pools.get(int(pg["pgid"].split(".")[0]))
        if pool and sum(o in case.facts.osds and o not in gone for o in pg["acting"]) < _needed(case.facts, pool):
            lost[pool["pool_name"]] = lost.get(pool["pool_name"], 0) + 1
    if lost and not (case.harm.out and not case.harm.destroyed):
        many = ", ".join(f"{n} of pool {p}" for p, n in sorted(lost.items()))
        what = (
            "their data would be lost" if case.harm.destroyed else "too few copies or chunks of their data would be up"
        )
        yield Finding("data", f"{sum(lost.values())} PGs ({many}): {what}", {"pools": lost})


def _ok_to_stop(case: _Case) -> Iterator[Finding]:
    """`ceph osd ok-to-stop` agrees."""
    answer = case.ok_to_stop
    if answer is not None and not answer.get("ok_to_stop"):
        bad = answer.get("num_not_ok_pgs", "?")
        yield Finding("ok-to-stop", f"ceph osd ok-to-stop says no: {bad} PGs are or would become offline", dict(answer))


def _safe_to_destroy(case: _Case) -> Iterator[Finding]:
    """`ceph osd safe-to-destroy` agrees: all data of the OSDs is elsewhere, as often as it should be."""
    answer = case.safe_to_destroy or {}
    bad = sorted(set(case.harm.osds) - set(answer.get("safe_to_destroy", ()))) if case.harm.destroyed else []
    if bad:
        many = ", ".join(f"osd.{osd}" for osd in bad)
        yield Finding("safe-to-destroy", f"ceph osd safe-to-destroy does not say so of {many}", dict(answer))


def _quorum(case: _Case) -> Iterator[Finding]:
    """The monitors that are left have a majority."""
    hosts = {m["name"]: m.get("hostname", m["name"]) for m in case.facts.answers["mon metadata"]}
    quorum = case.facts.answers["quorum_status"]
    total, now = len(quorum["monmap"]["mons"]), list(quorum["quorum_names"])
    left = [name for name in now if not any(_same_host(hosts.get(name, name), n) for n in case.harm.nodes)]
    case.figures["monitors_left"] = len(left)
    if len(left) < len(now) and len(left) <= total // 2:
        text = f"{len(left)} of {total} monitors would be left, {total // 2 + 1} are needed for a quorum"
        yield Finding("quorum", text, {"left": len(left), "of": total})


def _head(case: _Case) -> Iterator[Finding]:
    """The node that leads the run stays."""
    if case.head and any(_same_host(case.head, node) for node in case.harm.nodes):
        yield Finding("head", f"{case.head} leads this run: nobody would be there to undo it", {"node": case.head})


def _min_in(case: _Case) -> Iterator[Finding]:
    """The monitors will mark every OSD out that is gone, so that recovery begins."""
    if case.harm.out:
        return
    ratio = float(case.facts.answers["config get mon mon_osd_min_in_ratio"])
    osds = case.facts.osds
    now = sum(1 for o in osds.values() if o["in"])
    marked = 0
    for osd in case.harm.osds:
        if osds[osd]["in"] and (now - marked) / len(osds) >= ratio:
            marked += 1
    kept = sum(1 for o in case.harm.osds if osds[o]["in"]) - marked
    if kept:
        yield Finding(
            "min-in",
            f"{kept} of {len(case.harm.osds)} OSDs would never be marked out, so their data would not be made again: "
            f"{now - marked} of {len(osds)} OSDs in is below mon_osd_min_in_ratio {ratio:g}",
            {"kept": kept, "in": now - marked, "osds": len(osds), "ratio": ratio},
        )


def _capacity(case: _Case) -> Iterator[Finding]:
    """The OSDs that are left could hold the data below the full ratio."""
    dump = case.facts.answers["osd dump"]
    weights = {n: o["weight"] for n, o in case.facts.osds.items()}
    rows = [r for r in case.facts.answers["osd df"]["nodes"] if weights.get(r["id"])]
    used = sum(r["kb_used"] for r in rows)
    room = sum(r["kb"] for r in rows if r["id"] not in case.gone)
    after = used / room if room else float("inf")
    case.figures["full_after"] = after
    movable = any(sum(1 for s in shares.values() if s < 1) >= pool["size"] for pool, _, shares in _domains(case))
    full = float(dump["full_ratio"])
    if after >= full and (movable or not room):
        yield Finding(
            "capacity",
            f"{100 * after:.1f} % of what is left would be used, full is {100 * full:.0f} % "
            f"(backfill stops at {100 * float(dump['backfillfull_ratio']):.0f} %)",
            {"used": after, "full_ratio": full},
        )


#: name -> rule, in the order of the messages
RULES: Mapping[str, Callable[[_Case], Iterator[Finding]]] = {
    "steady": _steady,
    "flags": _flags,
    "inactive": _inactive,
    "domain": _domain,
    "data": _data,
    "ok-to-stop": _ok_to_stop,
    "safe-to-destroy": _safe_to_destroy,
    "quorum": _quorum,
    "head": _head,
    "min-in": _min_in,
    "capacity": _capacity,
}


def _domains(case: _Case) -> Iterator[Tuple[Mapping[str, Any], str, Dict[str, float]]]:
    """Each pool with its failure domain and the share of each such domain that is gone.

    Pools whose CRUSH rule makes more than one choice are left out: only their real PGs can tell.
    """
    osds, tree, gone = case.facts.osds, case.facts.tree, case.gone
    rules = {r["rule_id"]: r for r in case.facts.answers["osd crush rule dump"]}
    for pool in case.facts.pools:
        steps = rules.get(pool["crush_rule"], {}).get("steps", [])
        choices = [s for s in steps if s["op"].startswith("choose")]
        taken = [s for s in steps if s["op"] == "take"]
        if len(choices) != 1 or len(taken) != 1:
            continue
        name, _, device = str(taken[0]["item_name"]).partition("~")  # "default~ssd": one class of devices
        root = next((i for i, n in tree.items() if n["name"] == name), None)
        kind = choices[0]["type"]
        shares = {}
        for item in _of_type(case.facts, root, kind) if root is not None else []:
            # what is out already takes part in nothing, but for what this run has taken
            members = [
                o
                for o in case.facts.below(item)
                if o in osds
                and (osds[o]["weight"] > 0 or o in case.harm.osds)
                and (not device or tree[o].get("device_class") == device)
            ]
            if members:
                shares[str(tree[item]["name"])] = sum(o in gone for o in members) / len(members)
        if shares:
            yield pool, kind, shares


def _same_host(one: str, other: str) -> bool:
    return one == other or one.split(".")[0] == other.split(".")[0]


def _of_type(facts: Facts, item: int, kind: str) -> List[int]:
    node = facts.tree[item]
    if node["type"] == kind:
        return [item]
    return [found for child in node.get("children", []) for found in _of_type(facts, child, kind)]


def _needed(facts: Facts, pool: Mapping[str, Any]) -> int:
    """Members without which there is no data: one copy, or k chunks."""
    profiles = facts.answers["osd dump"].get("erasure_code_profiles", {})
    return int(profiles.get(pool.get("erasure_code_profile") or "", {}).get("k", 1)) if pool["type"] == 3 else 1


def _shape(facts: Facts, pool: Mapping[str, Any]) -> str:
    k = _needed(facts, pool)
    return f"EC {k}+{pool['size'] - k}" if pool["type"] == 3 else f"{pool['size']} copies"
