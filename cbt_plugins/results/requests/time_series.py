"""Time series of a window: counts per second, gaps between successes, and latencies per block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates_file import grouped
from cbt_plugins.results.histogram import WIDTH, buckets, lows, middles, ranks
from cbt_plugins.results.requests.packed_counts import PackedCounts

SECOND = 10**9
#: a series has one bin a second up to this length of a window, and wider bins beyond
FINE = 7200
#: bits of a latency bucket that a bin of the series drops: 7 of 11 remain, off by less than 0.8 %
_COARSE = 4
_COARSE_WIDTH = WIDTH >> _COARSE
#: columns of a bin's histogram to have on both sides of those in use
_SPARE = 64
#: bins whose quantiles are looked for at once: as many as stay in the processor's cache
_BINS_AT_ONCE = 256
#: endpoints whose answers are counted block by block: more are no gateways
MOST_ENDPOINTS = 256
_ADDED = ("n", "failed", "objects", "bytes", "total")
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class TimeGrid:
    """The window of a phase (run's clock) in seconds and in blocks, the time resolution of its aggregates.

    A window that is `snapped` begins and ends with a block: exactly the blocks in it count. One that is not is that of
    all requests, from the first to the last, and every block counts.
    """

    start: float
    end: float
    block: int = 1
    snapped: bool = True

    @classmethod
    def of(cls, start: float, end: float, block: int, everything: bool = False) -> TimeGrid:
        """Return the window from `start` to `end`, made smaller to whole blocks unless `everything` counts."""
        if everything and end > start and (start % block or end % block):
            return cls(start, end, block, False)
        low, high = math.ceil(start / block) * block, math.floor(end / block) * block
        return cls(float(low), float(max(low, high)), block) if end > start else cls(start, start, block)

    @property
    def length(self) -> float:
        return self.end - self.start

    @cached_property
    def first(self) -> int:
        return math.floor(self.start)

    @cached_property
    def seconds(self) -> int:
        return math.ceil(self.end) - self.first if self.end > self.start else 0

    @cached_property
    def step(self) -> int:
        """Seconds of a bin of rates."""
        return max(1, math.ceil(self.seconds / FINE))

    @cached_property
    def bins(self) -> int:
        return math.ceil(self.seconds / self.step)

    def seconds_of_bins(self) -> np.ndarray:
        """Return seconds of the window in each bin: less than `step` in the first and the last one."""
        low = self.first + np.arange(self.bins) * self.step
        return np.minimum(low + self.step, self.end) - np.maximum(low, self.start)

    @cached_property
    def first_block(self) -> int:
        """The begin of the first bin of percentiles, epoch seconds."""
        return self.first // self.block * self.block

    @cached_property
    def blocks(self) -> int:
        """Number of blocks that the window touches."""
        return math.ceil((self.first + self.seconds - self.first_block) / self.block)

    @cached_property
    def block_step(self) -> int:
        """Seconds of a bin of percentiles: one block, or several of a long window."""
        return self.block * max(1, math.ceil(self.seconds / self.block / FINE))

    @cached_property
    def block_bins(self) -> int:
        return math.ceil((self.first + self.seconds - self.first_block) / self.block_step)

    def holds(self, low: np.ndarray, width: int) -> np.ndarray:
        """Return a mask of the stretches of `width` seconds from `low` on that lie in the window."""
        if not self.snapped:
            return np.ones(len(low), bool)
        return (low >= self.start) & (low + width <= self.end)


class Seconds:
    """One operation: a row per second of the window, of successes, failures, sums and the first and last success."""

    def __init__(self, grid: TimeGrid) -> None:
        self.grid = grid
        self.sums = {name: np.zeros(grid.seconds, np.int64) for name in _ADDED}
        self.max = np.zeros(grid.seconds, np.int64)
        self.first = np.full(grid.seconds, _NEVER)  # ns
        self.last = np.zeros(grid.seconds, np.int64)

    def add(self, at: Any, sums: Mapping[str, np.ndarray], high: Any, first: Any, last: Any) -> None:
        """Add to the seconds `at` (a slice, or different numbers from the window's first second on)."""
        for name in _ADDED:
            self.sums[name][at] += sums[name]
        self.max[at] = np.maximum(self.max[at], high)
        self.first[at] = np.minimum(self.first[at], first)
        self.last[at] = np.maximum(self.last[at], last)

    def merge(self, seconds: Seconds) -> None:
        self.add(slice(None), seconds.sums, seconds.max, seconds.first, seconds.last)

    def until(self, grid: TimeGrid) -> Seconds:
        """See Timeline."""
        part = Seconds(grid)
        some = slice(grid.seconds)
        sums = {name: column[some] for name, column in self.sums.items()}
        part.add(slice(None), sums, self.max[some], self.first[some], self.last[some])
        return part

    def binned(self, name: str) -> np.ndarray:
        """Return sums per bin of `grid.step` seconds; of "max" the maxima."""
        grid = self.grid
        if not grid.bins:
            return np.zeros(0, np.int64)
        starts = np.arange(grid.bins) * grid.step
        return np.maximum.reduceat(self.max, starts) if name == "max" else np.add.reduceat(self.sums[name], starts)

    def longest_gap(self) -> Tuple[float, float]:
        """Return (seconds, its begin in head time) of the longest stretch of the window without a success.

        A gap within one second is not seen: a longest gap below 1 s is a lower bound, and one above is exact.
        """
        some = self.sums["n"] > 0
        begin, end = _ns(self.grid.start), _ns(self.grid.end)
        before = np.concatenate(([begin], np.maximum.accumulate(self.last[some])))
        gaps = np.concatenate((self.first[some], [end])) - before
        at = int(np.argmax(gaps))
        return max(0, int(gaps[at])) / SECOND, int(before[at]) / SECOND

    def last_gap(self) -> float:
        """Return the seconds from the last success to the end of the window."""
        last = int(self.last.max(initial=0)) or _ns(self.grid.start)
        return max(0, _ns(self.grid.end) - last) / SECOND

    def silent(self) -> List[int]:
        """Return the whole seconds of the window (run's clock) in which nothing succeeded."""
        first = self.grid.first
        inner = slice(math.ceil(self.grid.start) - first, math.floor(self.grid.end) - first)
        return (np.flatnonzero(self.sums["n"][inner] == 0) + first + (inner.start or 0)).tolist()

    def __getstate__(self) -> Tuple[Any, ...]:
        """Return only the seconds in which something happened, for another process."""
        some = np.flatnonzero((self.sums["n"] > 0) | (self.sums["failed"] > 0))
        at = slice(int(some[0]), int(some[-1]) + 1) if len(some) else slice(0, 0)
        sums = {name: column[at] for name, column in self.sums.items()}
        return self.grid, at, sums, self.max[at], self.first[at], self.last[at]

    def __setstate__(self, state: Tuple[Any, ...]) -> None:
        self.__init__(state[0])  # type: ignore[misc]
        self.add(*state[1:])


def coarse_bucket(ns: int) -> int:
    """Return the first coarse bucket of latencies that has none below `ns`; `lowest_of` is its smallest latency."""
    coarse = int(buckets(np.asarray([ns]))[0]) >> _COARSE
    return coarse if lowest_of(coarse) >= ns else coarse + 1


def lowest_of(coarse: int) -> int:
    """Return the smallest latency (ns) of a coarse bucket."""
    return int(lows(np.asarray([coarse << _COARSE]))[0])


class Blocks:
    """One operation: a latency histogram for every bin of percentiles, coarser than that of the window."""

    def __init__(self, grid: TimeGrid) -> None:
        self.grid = grid
        self.low = 0  # the coarse bucket of the first column: a service uses few of all that there are
        self.max = np.full(grid.block_bins, -1, np.int64)  # -1: nothing succeeded
        self._counts = np.zeros((grid.block_bins, 0), np.uint32)
        self.packed: Optional[PackedCounts] = None  # in place of the counts

    def add(self, first: int, low: int, counts: np.ndarray) -> None:
        """Add counts of the bins from `first` on (rows) and the coarse buckets from `low` on (columns)."""
        if counts.size:
            if self.packed is not None:
                self._counts, self.packed = self.rows().astype(np.uint32), None
            self._reach(low, low + counts.shape[1])
            at = low - self.low
            self._counts[first : first + len(counts), at : at + counts.shape[1]] += counts

    def _reach(self, low: int, high: int) -> None:
        """Have columns for these buckets, and some more when there must be new ones."""
        width = self._counts.shape[1]
        if width and self.low <= low and high <= self.low + width:
            return
        if width:
            low, high = min(low, self.low), max(high, self.low + width)
        new_low, new_high = max(0, low - _SPARE), min(_COARSE_WIDTH, high + _SPARE)
        wider = np.zeros((len(self._counts), new_high - new_low), np.uint32)
        wider[:, self.low - new_low : self.low - new_low + width] = self._counts
        self.low, self._counts = new_low, wider

    def merge(self, blocks: Blocks) -> None:
        for begin in range(0, self.grid.block_bins, _BINS_AT_ONCE):
            self.add(begin, blocks.low, blocks.rows(slice(begin, begin + _BINS_AT_ONCE)))
        np.maximum(self.max, blocks.max, out=self.max)

    def pack(self) -> None:
        """Keep the counts in fewer bytes, which take longer to read."""
        if self.packed is None:
            columns = np.flatnonzero(self._counts.any(axis=0))
            used = slice(int(columns[0]), int(columns[-1]) + 1) if len(columns) else slice(0, 0)
            self.low += used.start
            self.packed, self._counts = PackedCounts(self._counts[:, used]), np.zeros((0, 0), np.uint32)

    def until(self, grid: TimeGrid) -> Blocks:
        """See Timeline."""
        part = Blocks(grid)
        part.low = self.low
        part._counts = self.rows(slice(grid.block_bins)).astype(np.uint32)
        part.max = self.max[: grid.block_bins]
        return part

    def rows(self, bins: slice = slice(None)) -> np.ndarray:
        """Return the counts of some bins (rows), of the coarse buckets from `low` on (columns)."""
        return self._counts[bins] if self.packed is None else self.packed.rows(bins)

    def sum(self, bins: slice = slice(None)) -> np.ndarray:
        """Return the counts of some bins together, of the coarse buckets from `low` on."""
        return self._counts[bins].sum(axis=0, dtype=np.uint64) if self.packed is None else self.packed.sum(bins)

    @property
    def n(self) -> int:
        """How many latencies there are in all bins."""
        return int(self.sum().sum())

    def at_least(self, *wanted: int) -> np.ndarray:
        """Return a row for each of these coarse buckets: how many latencies each bin has in it or above; of 0 all."""
        counts = np.zeros((len(wanted), self.grid.block_bins), np.int64)
        for begin in range(0, self.grid.block_bins, _BINS_AT_ONCE):
            part = slice(begin, begin + _BINS_AT_ONCE)
            rows = self.rows(part)
            for line, bucket in zip(counts, wanted):
                line[part] = rows[:, max(0, bucket - self.low) :].sum(axis=1, dtype=np.int64)
        return counts

    def quantiles(self, *wanted: float) -> List[List[Optional[float]]]:
        """Return for each q the quantile of each bin in ns, off by less than 0.8 %; None when nothing succeeded."""
        return [[None if ns != ns else ns for ns in row] for row in self.quantile_rows(*wanted).tolist()]

    def quantile_rows(self, *wanted: float) -> np.ndarray:
        """Return a row of `quantiles` for each q; NaN in place of None."""
        quantiles = np.full((len(wanted), self.grid.block_bins), math.nan)
        width = self.rows(slice(0)).shape[1]
        if not width:
            return quantiles
        stands = middles(np.arange(self.low, self.low + width) << _COARSE, 1 << _COARSE)
        for begin in range(0, self.grid.block_bins, _BINS_AT_ONCE):
            part = slice(begin, begin + _BINS_AT_ONCE)
            # ten times as quick as a cumsum that converts, or goes through columns
            high, seen = self.max[part], np.cumsum(self.rows(part).astype(np.int64, order="C"), axis=1)
            n = seen[:, -1]
            wanted_ranks = ranks(np.array(wanted)[:, np.newaxis], n)
            places = np.empty_like(wanted_ranks)  # of each q and bin
            for number, line in enumerate(seen):
                places[:, number] = line.searchsorted(wanted_ranks[:, number])
            stand = stands[np.minimum(places, width - 1)]
            quantiles[:, part] = np.where(n > 0, np.where(wanted_ranks >= n, high, np.minimum(stand, high)), math.nan)
        return quantiles

    def __getstate__(self) -> Dict[str, Any]:
        """Return the packed counts, for another process."""
        self.pack()
        return vars(self)


class Timeline:
    """The time series of each operation; takes tables of aggregates."""

    def __init__(self, grid: TimeGrid) -> None:
        self.grid = grid
        self.seconds: Dict[str, Seconds] = {}
        self.blocks: Dict[str, Blocks] = {}
        self.endpoints: Dict[str, np.ndarray] = {}  # successful requests of each block of the window
        self._numbers: Dict[str, int] = {}  # operation -> its number here

    def number(self, op: str) -> int:
        """Return the number of the operation in `add_seconds` and `add_latencies`."""
        return self._numbers.setdefault(op, len(self._numbers))

    def add_seconds(self, second: np.ndarray, op: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Add rows of the table `seconds`; those outside of the window are left out."""
        grid = self.grid
        if not grid.seconds:
            return
        inside = grid.holds(second, 1)
        columns = {name: columns[name][inside] for name in (*_ADDED, "max", "first", "last")}
        # what ended at the very border of everything belongs to it
        at = np.clip(second[inside] - grid.first, 0, grid.seconds - 1)
        keys, grouped_columns = grouped(
            at << 8 | op[inside],
            {name: columns[name] for name in _ADDED},
            {"first": np.where(columns["first"] == 0, _NEVER, columns["first"])},
            {"max": columns["max"], "last": columns["last"]},
        )
        for number, rows in self._per_op(keys & 255):
            name = self._name(number)
            if name not in self.seconds:
                self.seconds[name] = Seconds(grid)
            sums = {name: grouped_columns[name][rows] for name in _ADDED}
            self.seconds[name].add(
                keys[rows] >> 8,
                sums,
                grouped_columns["max"][rows],
                grouped_columns["first"][rows],
                grouped_columns["last"][rows],
            )

    def add_latencies(
        self,
        block: np.ndarray,
        op: np.ndarray,
        inside: np.ndarray,
        entries: np.ndarray,
        bucket: np.ndarray,
        count: np.ndarray,
    ) -> None:
        """Add latency histograms of counts, as Frame has them; the other columns are those of the counts."""
        if not len(bucket) or not inside.any():
            return
        coarse = bucket >> _COARSE
        # neighbours in one coarse bucket first: that is what most entries are
        begins = np.cumsum(entries) - entries
        change = np.empty(len(coarse), bool)
        np.not_equal(coarse[1:], coarse[:-1], out=change[1:])
        change[begins[entries > 0]] = True
        starts = np.flatnonzero(change)
        # quicker than reduceat, as the runs are short
        sums = np.cumsum(count, dtype=np.int64)[np.append(starts[1:], len(count)) - 1]
        coarse, count = coarse[starts], np.diff(sums, prepend=0)
        runs = np.diff(np.append(np.searchsorted(starts, begins), len(starts)))
        bins, ops, low = self._bin(block), len(self._numbers), int(coarse.min())
        low_bin, width = int(bins[inside].min()), int(coarse.max()) - low + 1
        rows = int(bins[inside].max()) - low_bin + 1
        # what is outside of the window goes to a row of its own
        row = np.where(inside, (bins - low_bin) + op * rows, ops * rows)
        flat = np.repeat(row * width - low, runs)
        flat += coarse
        box = np.bincount(flat, weights=count, minlength=(ops * rows + 1) * width)
        box = box[: ops * rows * width].reshape(ops, rows, width)
        for number in np.unique(op[inside]):
            self._blocks(int(number)).add(low_bin, low, box[number].astype(np.uint32))

    def add_maxima(self, block: np.ndarray, op: np.ndarray, high: np.ndarray) -> None:
        """Add exact maxima of blocks in the window."""
        keys, grouped_columns = grouped(self._bin(block) << 8 | op, {}, highs={"max": high})
        for number, rows in self._per_op(keys & 255):
            blocks = self._blocks(number)
            at = keys[rows] >> 8
            blocks.max[at] = np.maximum(blocks.max[at], grouped_columns["max"][rows])

    def add_answers(self, block: np.ndarray, endpoint: np.ndarray, names: Sequence[str], n: np.ndarray) -> None:
        """Add successful requests of blocks in the window, by their endpoint, an index into `names`."""
        size = self.grid.blocks
        at = np.clip((block - self.grid.first_block) // self.grid.block, 0, max(0, size - 1))
        for number in np.unique(endpoint).tolist() if size else ():
            if names[number] in self.endpoints or len(self.endpoints) < MOST_ENDPOINTS:
                rows = endpoint == number
                sums = np.bincount(at[rows], weights=n[rows], minlength=size).astype(np.int64)
                self.endpoints[names[number]] = self.endpoints.get(names[number], 0) + sums

    def merge(self, timeline: Timeline) -> None:
        """Add another timeline of the same grid."""
        for endpoint, answers in timeline.endpoints.items():
            if endpoint in self.endpoints or len(self.endpoints) < MOST_ENDPOINTS:
                self.endpoints[endpoint] = self.endpoints.get(endpoint, 0) + answers
        for op, seconds in timeline.seconds.items():
            if op in self.seconds:
                self.seconds[op].merge(seconds)
            else:
                self.seconds[op] = seconds
        for op, blocks in timeline.blocks.items():
            if op in self.blocks:
                self.blocks[op].merge(blocks)
            else:
                self.blocks[op] = blocks

    def pack(self) -> None:
        """Keep the latencies in fewer bytes, which take longer to read."""
        for blocks in self.blocks.values():
            blocks.pack()

    def until(self, grid: TimeGrid) -> Timeline:
        """Return the first part of this timeline: that of a grid which begins with it and has bins of the same width.
        """
        part = Timeline(grid)
        part.seconds = {op: seconds.until(grid) for op, seconds in self.seconds.items()}
        part.blocks = {op: blocks.until(grid) for op, blocks in self.blocks.items()}
        part.endpoints = {endpoint: answers[: grid.blocks] for endpoint, answers in self.endpoints.items()}
        return part

    def all_ops(self) -> Seconds:
        """Return all operations in one."""
        everything = Seconds(self.grid)
        for seconds in self.seconds.values():
            everything.merge(seconds)
        return everything

    def _bin(self, block: np.ndarray) -> np.ndarray:
        grid = self.grid
        return np.clip((block - grid.first_block) // grid.block_step, 0, grid.block_bins - 1)

    def _per_op(self, numbers: np.ndarray) -> List[Tuple[int, np.ndarray]]:
        return [(int(number), numbers == number) for number in np.unique(numbers)]

    def _name(self, number: int) -> str:
        return list(self._numbers)[number]

    def _blocks(self, number: int) -> Blocks:
        name = self._name(number)
        if name not in self.blocks:
            self.blocks[name] = Blocks(self.grid)
        return self.blocks[name]


def _ns(seconds: float) -> int:
    """Convert seconds to ns; a float of today's epoch seconds times 10^9 would be off by up to 128."""
    full = math.floor(seconds)
    return full * SECOND + round((seconds - full) * SECOND)
