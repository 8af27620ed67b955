"""Failures and returns -> the state of the cluster at any time, as stretches of whole seconds."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

#: state -> what it means
STATES = {
    "no failure": "before the first fault",
    "failing": "from the fault's begin until all its OSDs are down",
    "degraded": "all its OSDs are down, no PG recovers yet",
    "recovering": "from the begin of recovery until all PGs are active+clean",
    "clean without them": "all PGs are active+clean on the other OSDs",
    "no effect": "after a fault that took no OSD down and made no PG unclean",
    "failed": "after a fault, while nobody watched the cluster",
    "returning": "from the undo's begin until all OSDs are up",
    "recovering back": "all OSDs are up, until all PGs are active+clean",
    "returned": "after an undo, while nobody watched the cluster",
    "clean again": "all OSDs are up and all PGs active+clean",
}


class Stretch(NamedTuple):
    """The state of the whole seconds start <= s < end."""

    state: str
    labels: Tuple[str, ...]  # of the faults
    start: float
    end: float


def stretches(recovery: Mapping[str, Any], start: float, end: float) -> List[Stretch]:
    """The states of a window (epoch seconds), from the result of `recovery.milestones`; nothing is left out."""
    borders: List[Tuple[str, Tuple[str, ...], float]] = [("no failure", (), -math.inf)]
    for episode in recovery.get("episodes") or ():
        for state, t, is_milestone in _borders(episode):
            # the second of an event belongs to what it begins, that of a milestone to what it ends
            whole = math.ceil(t) if is_milestone else math.floor(t)
            borders.append((state, tuple(episode["labels"]), max(float(whole), borders[-1][2])))
    made = []
    for (state, labels, low), after in zip(borders, [*borders[1:], None]):
        low, high = max(low, start), min(after[2] if after else end, end)
        if low < high:
            made.append(Stretch(state, labels, low, high))
    return made


def _borders(episode: Mapping[str, Any]) -> Iterator[Tuple[str, float, bool]]:
    """(state, its begin, whether a milestone begins it), by time."""
    times: Dict[str, Optional[float]] = {m["name"]: m["t"] for m in episode["milestones"]}
    falls = episode["kind"] == "failure"
    yield ("failing" if falls else "returning"), episode["begin"], False
    moved = times.get("all-down" if falls else "all-up") or times.get("first-down" if falls else "first-up")
    moved = moved or times.get("injected" if falls else "undone")
    if moved is None:
        return
    clean, starts = times.get("clean"), times.get("recovery-starts")
    if episode["effect"] is None:
        yield ("failed" if falls else "returned"), moved, True
        return
    if falls and not episode["effect"]:
        yield "no effect", moved, True
        return
    if falls:
        yield "degraded", moved, True
        if starts is not None and (clean is None or starts < clean):
            yield "recovering", max(starts, moved), True
    else:
        yield "recovering back", moved, True
    if clean is not None:
        yield ("clean without them" if falls else "clean again"), max(clean, moved), True
