"""What a plan changes on the cluster and its nodes, and what is worth knowing before it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterator, Mapping, Sequence, Tuple

from cbt_plugins.config.plan import Plan
from cbt_plugins.config.units import format_duration

_MINUTE = 60.0


@dataclass(frozen=True)
class Change:
    """Something that a run changes, and how that is undone."""

    what: str
    undo: str


def changes(plan: Plan, cluster: Mapping[str, object]) -> Tuple[Change, ...]:
    """Return everything that the run changes on the cluster and its nodes, with the undo of each."""
    return tuple(_changes(plan, cluster))


def advice(plan: Plan, clients: Sequence[str]) -> Tuple[str, ...]:
    """Return what is no fault and still worth knowing before hours are spent."""
    return tuple(dict.fromkeys(_advice(plan, clients)))


def _loops(mix: Mapping[str, float]) -> int:
    """Return how many closed loops a mix needs: one per operation, and one for the PUTs that DELETEs take."""
    return len(mix) + (0 < mix.get("DELETE", 0) < mix.get("PUT", 0))


def _changes(plan: Plan, cluster: Mapping[str, object]) -> Iterator[Change]:
    nodes = ", ".join(dict.fromkeys(driver.node for driver in plan.drivers))
    for bucket in plan.buckets:
        name = bucket.key if bucket.foreign else f"cbtp-<run id>-{bucket.key.lower()}"
        if bucket.foreign and plan.keep_data:
            what = f"existing bucket {name}: objects under the prefix cbtp-<run id>/, all others stay as they are"
            yield Change(what, "kept (keep_data); yours to remove")
        elif not bucket.foreign:
            command = f"radosgw-admin bucket rm --bucket={name} --purge-objects"
            undo = (
                f"kept (keep_data); yours to remove: {command}" if plan.keep_data else f"{command} at the end"
            )
            yield Change(f"bucket {name}: created and filled", undo)
    where = cluster.get("tmp_dir") or "/tmp/cbt.<pid>"
    engines = {phase.engine for phase in plan.phases if phase.kind != "wait"}
    content = [
        *(["warp"] if "warp" in engines and not plan.warp_path else []),
        *(["cbt-hybrid"] if "hybrid" in engines else []),
        "cbt-rows",
        "figures",
        *(["rows"] if plan.keep_rows else []),
    ]
    yield Change(f"nodes {nodes}: scratch directory under {where} ({', '.join(content)})", "removed at the end")


def _advice(plan: Plan, clients: Sequence[str]) -> Iterator[str]:
    for phase in plan.phases:
        measured = phase.goal.duration if phase.goal else phase.duration
        if phase.role == "measure" and measured is not None and measured < _MINUTE:
            yield f"{phase.name} measures for {format_duration(measured)}: too short to be repeatable"
        loops = _loops(phase.mix or {})
        few = min((driver.workers for driver in plan.drivers), default=loops)
        if phase.kind == "hybrid" and phase.engine == "warp" and phase.workers is None and few < loops:
            yield f"{phase.name}: {few} workers per driver; this mix takes {loops} at least, and gets them"
    # cbt-hybrid knows its own objects and lists those of warp.
    filled = sum(phase.goal.objects or 0 for phase in plan.phases if phase.goal and phase.engine == "warp")
    if filled > plan.read_objects and any(phase.kind == "hybrid" for phase in plan.phases):
        yield (
            f"a bucket gets {filled} objects and read_objects is {plan.read_objects}: "
            "get and stat will know only some of them"
        )
    drivers = Counter(driver.node for driver in plan.drivers)
    idle = [node for node in clients if not drivers[node]]
    if idle:
        yield f"{', '.join(idle)}: no driver runs there ({len(plan.drivers)} for {len(clients)} nodes)"
    elif len(set(drivers.values())) > 1:
        counts = ", ".join(f"{node} {number}" for node, number in drivers.items())
        yield f"the client nodes have unequal loads (drivers: {counts})"
    if plan.keep_rows:
        yield "keep_rows: a row of every request stays on the nodes until a phase ends, and in the archive"
    if plan.keep_data:
        yield "keep_data: the buckets of every run stay, and fill the cluster run by run"
