"""What a plan takes and changes, as far as that is known without asking the cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config.plan import Bucket, Phase, Plan
from cbt_plugins.config.units import about_size, format_duration, format_percent

_MINUTE = 60.0


@dataclass(frozen=True)
class Forecast:
    """Time and data of one run; `unknown_*` name what only the cluster can tell."""

    seconds: float  # sum of the phases whose duration is given
    unknown_time: Tuple[str, ...]
    objects: Optional[int]  # written by the fills; None when no fill counts objects
    bytes: Optional[float]  # the same, before replication or erasure coding; the mean, when sizes are mixed
    unknown_data: Tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """Something that a run changes, and how that is undone."""

    what: str
    undo: str


def forecast(plan: Plan) -> Forecast:
    """Return what the plan takes."""
    objects, size, counted = 0, 0.0, False
    unknown_time: List[str] = []
    unknown_data: List[str] = []
    for phase in plan.phases:
        if phase.kind == "fill" and phase.goal and phase.goal.objects:
            counted = True
            objects += phase.goal.objects * len(plan.buckets)
            size += sum(phase.goal.objects * _mean(bucket) for bucket in plan.buckets)
        if phase.kind == "fill" and not (phase.goal and phase.goal.duration):
            unknown_time.append(f"{phase.name}: until {goal_text(phase)}")
        if phase.kind == "wait" and phase.wait_clean:
            unknown_time.append(f"{phase.name}: {goal_text(phase)}")
        unknown_data += _unknown_data(plan, phase)
    seconds = sum(_seconds(phase) for phase in plan.phases)
    return Forecast(
        seconds,
        tuple(unknown_time),
        objects if counted else None,
        size if counted else None,
        tuple(unknown_data),
    )


def goal_text(phase: Phase) -> str:
    """Return what ends the phase: "20s", "2000 objects per bucket", "all PGs are active+clean"."""
    if phase.goal is not None:
        goal = phase.goal
        if goal.objects is not None:
            return f"{goal.objects} objects per bucket"
        if goal.max_avail is not None:
            return f"{format_percent(goal.max_avail)} of MAX AVAIL"
        if goal.raw is not None:
            return f"{format_percent(goal.raw)} of the raw capacity is used"
        return format_duration(goal.duration or 0.0)
    if phase.wait_clean:
        limit = f", at most {format_duration(phase.at_most)}" if phase.at_most else ""
        return f"all PGs are active+clean{limit}"
    return format_duration(phase.duration or 0.0)


def changes(plan: Plan, cluster: Mapping[str, object]) -> Tuple[Change, ...]:
    """Return everything that the run changes on the cluster and its nodes, with the undo of each."""
    return tuple(_changes(plan, cluster))


def advice(plan: Plan, clients: Sequence[str]) -> Tuple[str, ...]:
    """Return what is no fault and still worth knowing before hours are spent."""
    return tuple(dict.fromkeys(_advice(plan, clients)))


def _seconds(phase: Phase) -> float:
    return (phase.goal.duration if phase.goal else phase.duration) or 0.0


def _loops(mix: Mapping[str, float]) -> int:
    """Return how many closed loops a mix needs: one per operation, and one for the PUTs that DELETEs take."""
    return len(mix) + (0 < mix.get("DELETE", 0) < mix.get("PUT", 0))


def _mean(bucket: Bucket) -> float:
    return sum((low + high) / 2 * share for low, high, share in bucket.sizes)


def _unknown_data(plan: Plan, phase: Phase) -> Iterator[str]:
    if phase.kind == "fill" and phase.goal and phase.goal.objects is None:
        yield (
            f"{phase.name} writes until {goal_text(phase)}"
            if not phase.goal.duration
            else (f"{phase.name} writes for {goal_text(phase)}")
        )
    elif phase.kind == "hybrid" and phase.mix:
        growth = phase.mix.get("PUT", 0) - phase.mix.get("DELETE", 0)
        if growth:
            yield f"{phase.name} adds {growth:g} objects per 100 requests"
    elif phase.kind == "warp" and phase.warp:
        number = f"{phase.warp.objects * len(plan.drivers)}" if phase.warp.objects else "its own number of"
        yield (
            f"{phase.name}: warp uploads {number} objects of its own first"
            if phase.warp.op != "put"
            else (f"{phase.name} writes for {goal_text(phase)}")
        )


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
    content = "rows" if plan.warp_path else "warp and rows"
    yield Change(f"nodes {nodes}: scratch directory under {where} ({content})", "removed at the end")


def _advice(plan: Plan, clients: Sequence[str]) -> Iterator[str]:
    for phase in plan.phases:
        if phase.role == "measure" and _seconds(phase) < _MINUTE:
            yield f"{phase.name} measures for {goal_text(phase)}: too short to be repeatable"
        loops = _loops(phase.mix or {})
        few = min((driver.workers for driver in plan.drivers), default=loops)
        if phase.kind == "hybrid" and phase.workers is None and few < loops:
            yield f"{phase.name}: {few} workers per driver; this mix takes {loops} at least, and gets them"
    filled = sum((phase.goal.objects or 0) for phase in plan.phases if phase.goal)
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
    if plan.keep_data:
        yield "keep_data: the buckets of every run stay, and fill the cluster run by run"


def data_text(plan: Plan) -> Tuple[str, ...]:
    """Return what the run stores, one line each."""
    known = forecast(plan)
    lines = []
    if known.objects is not None and known.bytes is not None:
        mixed = any(len(bucket.sizes) > 1 or bucket.sizes[0][0] < bucket.sizes[0][1] for bucket in plan.buckets)
        lines.append(
            f"{known.objects} objects, {'about ' if mixed else ''}{about_size(known.bytes)} by the fill "
            "(on the disks: x replicas or (k+m)/k, and at least an allocation unit each)"
        )
    return (*lines, *known.unknown_data)
