"""The window of a phase, in which its numbers are measured, and the blocks of its aggregates."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional, Sequence, Tuple

from cbt_plugins.load.generator import generator_of
from cbt_plugins.plan import Phase

#: seconds up to which a phase's aggregates are by the second
BY_SECOND = 7200.0
#: seconds after the go at which a driver begins too late
LATE_GO = 1.0


def block_seconds(phase: Phase) -> int:
    """Return the seconds of a block, the time resolution of a phase's aggregates.

    1 for up to two hours, 60 for longer ones, 10 for a phase whose length is not known.
    """
    if phase.kind == "hybrid" or phase.warp or (phase.goal and phase.goal.duration):
        lasts = phase.duration or (phase.goal.duration if phase.goal else None) or 0.0
        return 1 if lasts + phase.ramp + phase.warmup <= BY_SECOND else 60
    return 10


def heartbeat_seconds(phase: Phase) -> int:
    """Return the seconds between two heartbeats of a client: 10 where blocks are long, because a phase may take days.
    """
    return 1 if block_seconds(phase) < 60 else 10


def took_all(jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all jobs ended with their last object, each being taken once (`keys: r(1,N)`), and not by time."""
    return bool(jobs) and all((job.get("driver_end") or {}).get("reason") == "exhausted" for job in jobs)


def _asked_seconds(phase: Phase, jobs: Sequence[Mapping[str, Any]]) -> Optional[float]:
    """Return how long a phase was to last; None for one that ends by itself."""
    return None if took_all(jobs) else phase.goal.duration if phase.goal else phase.duration


def late_go(phase: Phase, jobs: Sequence[Mapping[str, Any]], go_at: Optional[float]) -> float:
    """Return the seconds after the go at which the last driver began, whose client got it late; 0.0 below LATE_GO, and
    where the window does not begin with the go.
    """
    if go_at is None or not _asked_seconds(phase, jobs) or not generator_of(phase.engine).begins_at_go:
        return 0.0
    ends = [(job, job.get("driver_end") or {}) for job in jobs]
    began = [float(end["began"]) - float(job.get("clock_offset") or 0) for job, end in ends if end.get("began")]
    late = max(began, default=go_at) - go_at
    return late if late > LATE_GO else 0.0


def window_of(phase: Phase, jobs: Sequence[Mapping[str, Any]], go_at: Optional[float]) -> Optional[Tuple[float, float]]:
    """Return the time in which every job of the phase was at work, from the job records; None when there is none.

    In whole blocks of the aggregates. cbt-load begins at `go_at` (run's clock), to the second. Of warp's jobs it
    is from the last of their first rows to the first of their last rows; jobs that ran dry (DELETE with nothing left)
    do not end it. A phase that ends by itself has no common end: its window is from the first request to the last.
    """
    working = [j for j in jobs if j["first_row"] is not None]
    duration = _asked_seconds(phase, jobs)
    at_go = generator_of(phase.engine).begins_at_go and go_at is not None
    is_fixed = at_go and duration  # also when nothing was finished
    if not (working or is_fixed):
        return None
    if not duration:
        start, end = min(j["first_row"] for j in working), max(j["last_row"] for j in working)
        return (start, end) if end > start else None
    block = block_seconds(phase)
    if at_go and go_at is not None:
        end = go_at + phase.ramp + phase.warmup + duration
        start = end - duration + late_go(phase, jobs, go_at)
        cut = [j["ended"] for j in jobs if j["cut"] and j["ended"] is not None]  # stopped by us, early
        end = min([end, *cut])
    else:
        start = math.ceil(max(j["first_row"] for j in working) / block) * float(block)
        lasting = [j for j in working if j["role"] != "delete"] or working
        end = min(min(j["last_row"] for j in lasting), start + duration)
    start, end = math.ceil(start / block) * float(block), math.floor(end / block) * float(block)
    return (start, end) if end > start else None
