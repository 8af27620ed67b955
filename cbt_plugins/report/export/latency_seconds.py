"""The latencies of a phase bin by bin, from the histograms of its aggregates at their full resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Collection, List, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates_file import Frame, grouped
from cbt_plugins.results.archive import ArchivedJob
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.requests.job_files import tasks_of
from cbt_plugins.results.requests.time_series import TimeGrid

#: bits of a key that hold the bucket of a histogram
_BUCKET_BITS = 16
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class LatencyBin:
    """The requests that ended well in one bin of the time, all operations together; latencies are nan without any."""

    start: float  # seconds since the begin of the window
    seconds: float  # of the window that are in the bin
    requests: int
    bytes: int
    mean_ns: float
    max_ns: float
    p50_ns: float  # nan too where the generator told sums only
    p95_ns: float
    p99_ns: float

    @classmethod
    def of(cls, start: float, seconds: float, moved: int, latency: Histogram) -> LatencyBin:
        """Return the numbers of a histogram."""
        has_buckets = latency.n and latency.has_buckets
        quantiles = (latency.quantile(q) if has_buckets else math.nan for q in (0.5, 0.95, 0.99))
        some = latency.n > 0
        mean, high = (latency.mean, float(latency.max)) if some else (math.nan, math.nan)
        return cls(start, seconds, latency.n, moved, mean, high, *quantiles)


def latency_bins(grid: TimeGrid, jobs: Sequence[ArchivedJob], ops: Collection[str]) -> List[LatencyBin]:
    """Return a bin for each block of a window, of these operations of these jobs.

    The jobs have been read before: damage was named then. Raises Unreadable.
    """
    bins = _Bins(grid, ops)
    for job in jobs:
        for task in tasks_of(job).tasks:
            for frame in task.frames(grid.block):
                if frame is not None:
                    bins.add(frame)
    return bins.finish()


class _Bins:
    """Adds up frames."""

    def __init__(self, grid: TimeGrid, ops: Collection[str]) -> None:
        self._grid = grid
        self._ops = ops
        self._sums = {name: np.zeros(grid.blocks, np.int64) for name in ("n", "total", "bytes", "max")}
        self._sums["min"] = np.full(grid.blocks, _NEVER)
        self._entries: List[Tuple[np.ndarray, np.ndarray]] = []

    def add(self, frame: Frame) -> None:
        counts, grid = frame.table("counts"), self._grid
        wanted = np.array([op in self._ops for op in frame.ops], bool)
        if not len(counts["block"]) or not wanted.any():
            return
        inside = grid.holds(counts["block"], frame.block) & wanted[counts["op"]] & (counts["n"] > 0)
        # a request that ended at the very border of a window that is not snapped belongs to it
        row = np.clip((counts["block"] - grid.first_block) // grid.block, 0, grid.blocks - 1)
        for name in ("n", "total", "bytes"):
            np.add.at(self._sums[name], row[inside], counts[name][inside].astype(np.int64))
        np.maximum.at(self._sums["max"], row[inside], counts["max"][inside])
        np.minimum.at(self._sums["min"], row[inside], counts["min"][inside])
        entries, bucket, count = frame.histograms("latency")
        rows = np.repeat(np.where(inside, row, -1), entries)
        keys = rows[rows >= 0] << _BUCKET_BITS | bucket[rows >= 0].astype(np.int64)
        keys, sums = grouped(keys, {"count": count[rows >= 0]})
        self._entries.append((keys, sums["count"]))

    def finish(self) -> List[LatencyBin]:
        grid = self._grid
        empty = np.zeros(0, np.int64)
        keys = np.concatenate([keys for keys, _ in self._entries] or [empty])
        keys, sums = grouped(keys, {"count": np.concatenate([counts for _, counts in self._entries] or [empty])})
        borders = np.searchsorted(keys >> _BUCKET_BITS, np.arange(grid.blocks + 1))
        bins = []
        for at in range(grid.blocks):
            begin = grid.first_block + at * grid.block
            low, high = max(begin, grid.start), min(begin + grid.block, grid.end)
            part = slice(borders[at], borders[at + 1])
            numbers = [int(self._sums[name][at]) for name in ("n", "total", "min", "max")]
            histogram = Histogram()
            histogram.add(keys[part] & ((1 << _BUCKET_BITS) - 1), sums["count"][part], *numbers)
            if high > low:
                moved = int(self._sums["bytes"][at])
                bins.append(LatencyBin.of(low - grid.start, high - low, moved, histogram))
        return bins
