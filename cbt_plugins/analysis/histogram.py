"""Counts of durations in logarithmic buckets: what may be merged, where percentiles may not be averaged."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

#: significant bits of a bucket: it is at most 1/1024 of its value wide, its middle off by less than 0.05 %
BITS = 11
_LINEAR = 1 << BITS
_HALF = BITS - 1


def buckets(values: Iterable[int]) -> List[int]:
    """Bucket of each value (ns, >= 0): the value itself below 2048, then 1024 buckets per power of two."""
    return [
        v if v < _LINEAR else ((e := v.bit_length() - BITS) << _HALF) + (v >> e)
        for v in values
    ]  # fmt: skip


def bounds(bucket: int) -> Tuple[int, int]:
    """Smallest value of the bucket, and smallest value of the next one."""
    if bucket < _LINEAR:
        return bucket, bucket + 1
    e = (bucket >> _HALF) - 1
    low = (bucket - (e << _HALF)) << e
    return low, low + (1 << e)


def middle(bucket: int) -> float:
    """The value that stands for the bucket: its exact value below 2048, else the middle of its integers."""
    low, high = bounds(bucket)
    return (low + high - 1) / 2


class Histogram:
    """Durations in nanoseconds.

    Count, sum (so the mean), minimum and maximum are exact; a quantile is exact to its bucket. Merging
    histograms gives the histogram of all samples together, bucket by bucket, in any order.
    """

    __slots__ = ("counts", "max", "min", "n", "total")

    def __init__(self) -> None:
        self.counts: Dict[int, int] = {}
        self.n = 0
        self.total = 0
        self.min = 0
        self.max = 0

    def record(self, values: Sequence[int]) -> None:
        """Add values; ValueError when one is negative."""
        if values:
            self.add(Counter(buckets(values)), len(values), sum(values), min(values), max(values))

    def add(self, counts: Mapping[int, int], n: int, total: int, low: int, high: int) -> None:
        """Add values that are counted already: bucket -> count, their number, sum, minimum and maximum."""
        if n == 0:
            return
        if low < 0:
            raise ValueError(f"a duration of {low} ns")
        mine = self.counts
        for bucket, count in counts.items():
            mine[bucket] = mine.get(bucket, 0) + count
        self.min = low if self.n == 0 else min(self.min, low)
        self.max = max(self.max, high)
        self.n += n
        self.total += total

    def merge(self, other: Histogram) -> None:
        """Add all that `other` holds."""
        self.add(other.counts, other.n, other.total, other.min, other.max)

    @property
    def mean(self) -> float:
        """Exact mean in ns; ValueError when empty."""
        if self.n == 0:
            raise ValueError("no values")
        return self.total / self.n

    def quantile(self, q: float) -> float:
        """The value at rank ceil(q * n) of the sorted sample, in ns, off by less than 0.05 %.

        Raises ValueError when empty.
        """
        return quantile_of(self.counts, self.n, q, self.min, self.max)

    def to_json(self) -> Dict[str, Any]:
        """{"bits", "n", "total", "min", "max", "buckets": [number, count, number, count, ...]}, rising."""
        flat = [x for item in sorted(self.counts.items()) for x in item]
        return {
            "bits": BITS,
            "n": self.n,
            "total": self.total,
            "min": self.min,
            "max": self.max,
            "buckets": flat,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """What `to_json` wrote; ValueError when it has another resolution or contradicts itself."""
        if data["bits"] != BITS:
            raise ValueError(f"a histogram of {data['bits']} significant bits; this version reads {BITS}")
        flat = data["buckets"]
        made = cls()
        made.add(dict(zip(flat[::2], flat[1::2])), data["n"], data["total"], data["min"], data["max"])
        if sum(made.counts.values()) != made.n:
            raise ValueError("a histogram whose buckets do not sum to its count")
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"<Histogram of {self.n} values>"


def quantile_of(counts: Mapping[int, int], n: int, q: float, low: float, high: float) -> float:
    """Nearest-rank quantile of bucket counts; no value outside of low..high, the sample's exact extremes."""
    if n == 0:
        raise ValueError("no values")
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is 0..1, not {q}")
    # 0.07 * 100 is 7.000000000000001 for a float: the rank must not become 8
    rank = max(1, math.ceil(q * n - 1e-9 * n))
    if rank >= n:
        return float(high)
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return min(max(middle(bucket), float(low)), float(high))
    return float(high)
