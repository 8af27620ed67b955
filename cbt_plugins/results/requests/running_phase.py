"""The requests of a phase that runs: the same numbers as of a finished one, up to a second that all jobs have passed.

What was read is not read again: a look costs what came since the last one.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

from cbt_plugins.results.aggregates_file import Frame, frames, joined, places, request_spans, split
from cbt_plugins.results.archive import APART, ArchivedJob, ArchivedPhase
from cbt_plugins.results.requests.job_aggregates import JobAccumulator, JobAggregates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates, op_order
from cbt_plugins.results.requests.time_series import FINE, Blocks, TimeGrid, Timeline

#: seconds by which a job may be behind the first one: cbt-rows writes every 10 s, and what comes later counts later
BEHIND = 25
#: seconds within which requests that cbt-rows has written are in the archive
_COPIED = 2.0
#: bytes of a job's file that are read at once
_AT_ONCE = 1 << 24
#: seconds of the first timeline of a phase that says no length
_FIRST = 600
#: seconds that percentiles of this moment are of
RECENT = 10


@dataclass
class _JobFile:
    """What was read of the aggregates of a job."""

    job: ArchivedJob
    at: int = 0  # bytes
    since: Optional[int] = None  # the first second with requests
    until: int = 0  # the last one: it may not be whole
    waiting: List[Frame] = field(default_factory=list)  # parts later than the border


class RunningPhase:
    """A phase under way. `start` is when its window begins; None: with the first whole second of all jobs."""

    def __init__(self, phase: ArchivedPhase, start: Optional[float]) -> None:
        self.phase = phase
        self.is_new = False  # whether the last look has read requests
        self._start = start
        planned = (phase.duration or _FIRST) + phase.block
        self.begin_again(min(float(planned), float(FINE * phase.block)))

    def begin_again(self, seconds: float) -> None:
        """Read from the begin, for a window of up to so many seconds."""
        self._seconds = seconds
        self._files = [_JobFile(job) for job in self.phase.jobs]
        self._jobs: Dict[str, JobAggregates] = {}
        self._timeline: Optional[Timeline] = None
        self._latest: Optional[PhaseAggregates] = None

    def look(self) -> Optional[PhaseAggregates]:
        """Read what is new; return the requests until now, None before the first second. Raises Unreadable."""
        if not self.phase.jobs:
            return self._without_load()
        self.is_new = self._read()
        if self.is_new:
            self._latest = self._until_now()
        return self._latest

    def _until_now(self) -> Optional[PhaseAggregates]:
        if not any(file.since is not None for file in self._files):
            return None
        border = self._border()
        start = self._window_start()
        if start is None or border <= start:
            return None
        if border - start > self._seconds:
            longer = 2 * self._seconds
            # bins of percentiles get wider then: from now on everything is read at each look
            self.begin_again(longer if longer <= FINE * self.phase.block else border - start)
            self._read()
            return self._until_now()
        if self._timeline is None:
            self._timeline = Timeline(TimeGrid.of(start, start + self._seconds, self.phase.block))
        self._take(self._timeline, border)
        # behind its window a phase only ends
        end = min(border, start + self.phase.duration) if self.phase.duration else border
        grid = TimeGrid.of(start, end, self.phase.block)
        if not grid.seconds:
            return None
        phase = replace(self.phase, window=(grid.start, grid.end))
        return PhaseAggregates(phase, grid, dict(self._jobs), self._timeline.until(grid))

    def _without_load(self) -> Optional[PhaseAggregates]:
        if self._start is None or time.time() <= self._start:
            return None
        grid = TimeGrid.of(self._start, time.time(), self.phase.block, self.phase.takes_all)
        return PhaseAggregates(replace(self.phase, window=(grid.start, grid.end)), grid, {}, Timeline(grid))

    def _read(self) -> bool:
        """Read the frames that came since; tell whether there are any."""
        new = False
        for file in self._files:
            path = file.job.aggregates
            if path is None or not path.exists():
                continue
            where, _ = places(path, file.at, _AT_ONCE)
            for frame in joined(frames(path, where)):
                if frame is None or frame.ends:
                    continue
                end = int(time.time() + APART)
                if (frame.table("seconds")["second"] >= end).any():  # damage
                    frame, _ = split(frame, end)
                for seconds in request_spans([frame], APART)[-1:]:
                    file.until = max(file.until, int(seconds[-1]))
                    file.since = int(seconds[0]) if file.since is None else file.since
                file.waiting.append(frame)
            if where:
                file.at, new = sum(where[-1]), True
        return new

    @property
    def _behind(self) -> int:
        """Seconds by which a job may be behind; one that is farther behind is silent."""
        return max(BEHIND, 2 * self.phase.block)

    def reach(self) -> float:
        """Return the time before which a look may know all requests of all jobs, but of those that are silent.

        Epoch seconds. No file is read: the time at which a file was written says until when requests may be in it.
        """
        now = time.time()
        silent = now - self._behind
        files = [job.aggregates for job in self.phase.jobs if job.aggregates]
        try:
            written = min((file.stat().st_mtime - _COPIED for file in files), default=now)
        except OSError:  # not all jobs have begun
            written = silent
        return min(now, max(written, silent))

    def gives_up(self, t: float) -> bool:
        """Tell whether the requests of a time (epoch seconds) are waited for no longer: all jobs are silent since."""
        silent = time.time() - self._behind
        return t <= silent and all(file.until <= silent for file in self._files)

    def _border(self) -> int:
        """Return the second before which all is known of all jobs, but of those that are silent."""
        latest = max(file.until for file in self._files)
        block = self.phase.block
        return min(file.until for file in self._files if file.until > latest - self._behind) // block * block

    def _window_start(self) -> Optional[float]:
        if self._start is not None:
            return math.ceil(self._start / self.phase.block) * float(self.phase.block)
        # as of a finished phase: a generator that prepares begins to work with its first row
        firsts = [file.since for file in self._files if file.since is not None]
        if len(firsts) < len(self._files) and max(file.until for file in self._files) < min(firsts) + BEHIND:
            return None
        self._start = float(max(firsts) + 1)
        return self._window_start()

    def _take(self, timeline: Timeline, border: int) -> None:
        """Add what lies before the border; the others wait."""
        for file in self._files:
            if not file.waiting:
                continue
            accumulator = JobAccumulator(timeline)
            waiting = [frame for frame in joined(file.waiting) if frame is not None]
            parts = [split(frame, border) for frame in waiting]
            for before, _ in parts:
                accumulator.add(before)
            file.waiting = [after for _, after in parts if len(after.table("counts")["block"])]
            self._jobs.setdefault(file.job.id, JobAggregates()).merge(accumulator.finish())


def recent(aggregates: PhaseAggregates, seconds: int = RECENT) -> Dict[str, Dict[str, Any]]:
    """Return each operation over the last seconds of a phase.

    {op: {"obj_per_s", "mib_per_s", "errors_per_s", "mean_ms", "p50_ms", "p99_ms"}}; a latency of nothing is null.
    """
    grid = aggregates.grid
    last = min(grid.seconds, max(seconds, grid.block_step))
    bins = max(1, last // grid.block_step)
    return {
        op: {
            **_rates(aggregates, op, last),
            **dict(zip(("p50_ms", "p99_ms"), _percentiles(aggregates.timeline.blocks.get(op), bins))),
        }
        for op in sorted(aggregates.timeline.seconds, key=op_order)
    }


def _rates(aggregates: PhaseAggregates, op: str, last: int) -> Dict[str, Any]:
    sums = {name: int(column[-last:].sum()) for name, column in aggregates.timeline.seconds[op].sums.items()}
    return {
        "obj_per_s": round(sums["objects"] / last, 2),
        "mib_per_s": round(sums["bytes"] / last / 2**20, 3),
        "errors_per_s": round(sums["failed"] / last, 2),
        "mean_ms": round(sums["total"] / sums["n"] / 1e6, 3) if sums["n"] else None,
    }


def _percentiles(blocks: Optional[Blocks], bins: int) -> Tuple[Optional[float], ...]:
    if blocks is None:
        return None, None
    latest = Blocks(TimeGrid(0.0, 1.0))
    latest.add(0, blocks.low, blocks.rows(slice(-bins, None)).sum(axis=0, keepdims=True))
    latest.max[0] = blocks.max[-bins:].max(initial=-1)
    return tuple(None if ns is None else round(ns / 1e6, 3) for (ns,) in latest.quantiles(0.5, 0.99))
