"""What a plan takes, as far as that is known without asking the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Tuple

from cbt_plugins.config.keys import range_of
from cbt_plugins.config.units import about_size, format_duration, format_percent
from cbt_plugins.models.capacity import growth, mean_size, steady_occupancy
from cbt_plugins.plan import Phase, Plan


@dataclass(frozen=True)
class Forecast:
    """Time and data of one run; `unknown_*` name what only the cluster can tell."""

    seconds: float  # sum of the phases whose duration is given
    unknown_time: Tuple[str, ...]
    objects: Optional[int]  # written by the fills; None when no fill counts objects
    bytes: Optional[float]  # the same, before replication or erasure coding; the mean, when sizes are mixed
    unknown_data: Tuple[str, ...]


def forecast(plan: Plan) -> Forecast:
    """Return what the plan takes."""
    objects, size, counted = 0, 0.0, False
    unknown_time: List[str] = []
    unknown_data: List[str] = []
    for phase in plan.phases:
        if phase.kind == "fill" and phase.goal and phase.goal.objects:
            counted = True
            objects += phase.goal.objects * len(plan.buckets)
            size += sum(phase.goal.objects * mean_size(bucket.sizes) for bucket in plan.buckets)
        if phase.kind == "fill" and not (phase.goal and phase.goal.duration):
            unknown_time.append(f"{phase.name}: until {goal_text(phase)}")
        if phase.kind in ("verify", "delete") or phase.wait_clean:
            unknown_time.append(f"{phase.name}: {goal_text(phase)}")
        unknown_data += _unknown_data(plan, phase)
    seconds = sum(_seconds(phase) for phase in plan.phases) + (plan.post_poll or 0.0)
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
    if phase.kind in ("verify", "delete"):
        return f"every object is {'read' if phase.kind == 'verify' else 'deleted'}"
    if phase.wait_clean:
        limit = f", at most {format_duration(phase.at_most)}" if phase.at_most else ""
        limit += f", or {format_duration(phase.stalled)} without progress" if phase.stalled else ""
        return f"all PGs are active+clean{limit}"
    parts = [(phase.ramp, " ramp"), (phase.warmup, " warm-up"), (phase.duration or 0.0, "")]
    text = " + ".join(f"{format_duration(seconds)}{what}" for seconds, what in parts if seconds or not what)
    once = bool(phase.keys) and all(op in phase.keys and phase.keys[op].select[:2] == "r(" for op in phase.mix or {})
    return f"every key once, at most {text}" if once else text


def _seconds(phase: Phase) -> float:
    duration = (phase.goal.duration if phase.goal else phase.duration) or 0.0
    return phase.ramp + phase.warmup + duration


def _unknown_data(plan: Plan, phase: Phase) -> Iterator[str]:
    if phase.kind == "fill" and phase.goal and phase.goal.objects is None:
        yield (
            f"{phase.name} writes until {goal_text(phase)}"
            if not phase.goal.duration
            else (f"{phase.name} writes for {goal_text(phase)}")
        )
    elif phase.kind == "hybrid":
        yield from _growth(phase)
    elif phase.kind == "delete":
        yield f"{phase.name} leaves nothing"
    elif phase.kind == "warp" and phase.warp:
        number = f"{phase.warp.objects * len(plan.drivers)}" if phase.warp.objects else "its own number of"
        yield (
            f"{phase.name}: warp uploads {number} objects of its own first"
            if phase.warp.op != "put"
            else (f"{phase.name} writes for {goal_text(phase)}")
        )


def _growth(phase: Phase) -> Iterator[str]:
    """Yield what becomes of the number of objects in a hybrid phase."""
    mix, keys = phase.mix or {}, phase.keys
    written = [op for op in ("PUT", "MULTIPART") if op in mix]
    bounded = [op for op in written if op in keys and range_of(keys[op].select)]
    for op in bounded:
        yield f"{phase.name}: {op} stays within {keys[op].select}{_occupancy(phase, op)}; N is what the fill wrote"
    if written and written == bounded:
        return
    absent = "DELETE" in keys and keys["DELETE"].absent
    left_out = (*bounded, *(["DELETE"] if absent else []))
    added = growth({op: percent for op, percent in mix.items() if op not in left_out})
    if added > 0:
        requests = (phase.rate or 0.0) * _seconds(phase)
        number = f"about {requests * added / 100:.0f} objects, " if requests else ""
        yield f"{phase.name} adds {number}{added:g} objects per 100 requests"
    elif added < 0:
        yield f"{phase.name} takes away {-added:g} objects per 100 requests, while there are any"


def _occupancy(phase: Phase, op: str) -> str:
    """How full a range gets in the long run whose numbers PUT and DELETE take without looking, as COSBench does."""
    mix, keys, roles = phase.mix or {}, phase.keys, phase.roles
    delete, select = keys.get("DELETE"), keys[op].select
    if not (delete and delete.absent and delete.select == select and roles.get("DELETE") == roles.get(op)):
        return ""
    written = sum(mix[each] for each in ("PUT", "MULTIPART") if each in keys and keys[each].select == select)
    return f", which tends to be {100 * steady_occupancy(written, mix['DELETE']):.1f}% full"


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
