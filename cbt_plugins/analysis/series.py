"""What happened when: counts per second of a window, and the gaps between successes."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from cbt_plugins.analysis.histogram import quantile_of

#: a series has one bin a second up to this length of a window, and wider bins beyond
FINE = 7200
#: bits of a latency bucket that a bin of the series drops: 7 of 11 remain, off by less than 0.8 %
_COARSE = 4
_COUNT_BITS = 40
#: entries of a bin's packed histogram before equal buckets are put together
_LOOSE = 4096


@dataclass(frozen=True)
class Grid:
    """The whole clock seconds that a window touches (head's clock), in bins of `step` seconds.

    Rows go to bins by the whole second in which they end on their node, moved by the whole seconds of the
    node's clock offset: on a node whose clock is 0.4 s off, a bin is 0.4 s off too. Counts and rates of the
    window are exact.
    """

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def first(self) -> int:
        return math.floor(self.start)

    @property
    def seconds(self) -> int:
        return math.ceil(self.end) - self.first if self.end > self.start else 0

    @property
    def step(self) -> int:
        return max(1, math.ceil(self.seconds / FINE))

    @property
    def bins(self) -> int:
        return math.ceil(self.seconds / self.step)

    def bin(self, second: int) -> int:
        """The bin of a second; one that the rounding of an offset pushed out goes to the border."""
        return min(max((second - self.first) // self.step, 0), self.bins - 1)

    def span(self, index: int) -> float:
        """Seconds of the window in this bin: less than `step` in the first and the last one."""
        low = self.first + index * self.step
        return min(low + self.step, self.end) - max(low, self.start)


class Series:
    """One op: per bin successes, objects, bytes, latency as sum, maximum and histogram, and failures."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        zeros = [0] * grid.bins
        self.n = array("q", zeros)
        self.objects = array("q", zeros)
        self.bytes = array("q", zeros)
        self.total = array("q", zeros)
        self.max = array("q", zeros)
        self.failed = array("q", zeros)
        # bucket << 40 | count, packed: a dict per bin would take a hundred bytes an entry
        self._packed: Dict[int, array[int]] = {}

    def add(self, second: int, counts: Mapping[int, int], objects: int, size: int, total: int, high: int) -> None:
        """Add successful requests of one second: latency bucket -> count, and their sums; times in ns."""
        i = self.grid.bin(second)
        self.n[i] += sum(counts.values())
        self.objects[i] += objects
        self.bytes[i] += size
        self.total[i] += total
        self.max[i] = max(self.max[i], high)
        self._pack(i, ((bucket >> _COARSE) << _COUNT_BITS | n for bucket, n in counts.items()))

    def fail(self, second: int, n: int) -> None:
        self.failed[self.grid.bin(second)] += n

    def merge(self, other: Series) -> None:
        for name in ("n", "objects", "bytes", "total", "failed"):
            mine = getattr(self, name)
            for i, value in enumerate(getattr(other, name)):
                mine[i] += value
        for i, value in enumerate(other.max):
            self.max[i] = max(self.max[i], value)
        for i, entries in other._packed.items():
            self._pack(i, entries)

    def quantile(self, index: int, q: float) -> Optional[float]:
        """Latency quantile of a bin in ns, off by less than 0.8 %; None when nothing succeeded in it."""
        if not self.n[index]:
            return None
        counts = {_fine(bucket): n for bucket, n in self._counts(index).items()}
        return quantile_of(counts, self.n[index], q, 0, self.max[index])

    def _counts(self, index: int) -> Dict[int, int]:
        mask = (1 << _COUNT_BITS) - 1
        counts: Dict[int, int] = {}
        for entry in self._packed.get(index, ()):
            bucket = entry >> _COUNT_BITS
            counts[bucket] = counts.get(bucket, 0) + (entry & mask)
        return counts

    def _pack(self, index: int, entries: Iterable[int]) -> None:
        packed = self._packed.setdefault(index, array("Q"))
        packed.extend(entries)
        if len(packed) > _LOOSE:
            self._packed[index] = array("Q", (b << _COUNT_BITS | n for b, n in self._counts(index).items()))


def _fine(coarse: int) -> int:
    """The bucket of full resolution in the middle of a coarse one."""
    return (coarse << _COARSE) + (1 << (_COARSE - 1))


class Gaps:
    """First and last success of each second, so the time without any.

    A gap within one second is not seen: a longest gap below 1 s is a lower bound, and one above is exact.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._first = array("d", [math.inf]) * grid.seconds
        self._last = array("d", [-math.inf]) * grid.seconds

    def add(self, second: int, first: float, last: float) -> None:
        i = min(max(second - self.grid.first, 0), self.grid.seconds - 1)
        self._first[i] = min(self._first[i], first)
        self._last[i] = max(self._last[i], last)

    def merge(self, other: Gaps) -> None:
        for i, value in enumerate(other._first):
            if value < self._first[i]:
                self._first[i] = value
        for i, value in enumerate(other._last):
            if value > self._last[i]:
                self._last[i] = value

    def longest(self) -> Tuple[float, float]:
        """(seconds, its begin in head time) of the longest stretch of the window without a success."""
        best, at = 0.0, self.grid.start
        before = self.grid.start
        for first, last in [*zip(self._first, self._last), (self.grid.end, self.grid.end)]:
            if first == math.inf:
                continue
            if first - before > best:
                best, at = first - before, before
            before = max(before, last)
        return best, at

    def silent(self) -> List[int]:
        """Whole seconds of the window (head's clock) in which nothing succeeded."""
        first = self.grid.first
        inner = range(math.ceil(self.grid.start) - first, math.floor(self.grid.end) - first)
        return [first + i for i in inner if self._first[i] == math.inf]
