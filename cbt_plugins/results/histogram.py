"""Histograms of latencies, in buckets of 0.1 %; and which quantiles show the tail of a distribution."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Sequence, Union

import numpy as np

from cbt_plugins.results.shared_values import shared

#: significant bits of a bucket: it is at most 1/1024 of its value wide, its middle off by less than 0.05 %
BITS = 11
_LINEAR = 1 << BITS
_HALF = BITS - 1
#: number of buckets: that of the largest int64 is the last one
WIDTH = ((63 - BITS) << _HALF) + _LINEAR


def buckets(values: np.ndarray) -> np.ndarray:
    """Return the bucket of each value (ns, >= 0): the value itself below 2048, then 1024 buckets per power of two."""
    # the bits that are left after this shift fit a float, so that its exponent is the exact bit length
    exponent = np.frexp((values >> _HALF).astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(exponent + _HALF - BITS, 0)
    return (shift << _HALF) + (values >> shift)


def lows(numbers: np.ndarray) -> np.ndarray:
    """Return the smallest value of each bucket."""
    shift = np.maximum((numbers >> _HALF) - 1, 0)
    return (numbers - (shift << _HALF)) << shift


def middles(numbers: np.ndarray, span: int = 1) -> np.ndarray:
    """Return the value that stands for each bucket: its exact value below 2048, else the middle of its integers.

    With `span`, for as many buckets as that, from each on, as if they were one.
    """
    least, last = lows(numbers), numbers + (span - 1)
    width = np.int64(1) << np.maximum((last >> _HALF) - 1, 0)
    return least + (lows(last) - least + (width - 1)) / 2


class Histogram:
    """Durations in nanoseconds.

    Count, sum (so the mean), minimum and maximum are exact; a quantile is exact to its bucket. Merging
    histograms gives the histogram of all samples, bucket by bucket, in any order.
    """

    __slots__ = ("counts", "max", "min", "n", "numbers", "total")

    def __init__(self) -> None:
        self.numbers = np.zeros(0, np.int64)  # buckets that have values, rising
        self.counts = np.zeros(0, np.int64)  # of each
        self.n = 0
        self.total = 0
        self.min = 0
        self.max = 0

    def record(self, values: Union[Sequence[int], np.ndarray]) -> None:
        """Add values; ValueError when one is negative."""
        durations = np.asarray(values, np.int64)
        if len(durations):
            if durations.min() < 0:
                raise ValueError(f"a duration of {durations.min()} ns")
            numbers, counts = np.unique(buckets(durations), return_counts=True)
            self.add(numbers, counts, len(durations), int(durations.sum()), int(durations.min()), int(durations.max()))

    def add(self, numbers: np.ndarray, counts: np.ndarray, n: int, total: int, low: int, high: int) -> None:
        """Add values that are counted already: rising buckets and their counts, number, sum, minimum and maximum."""
        if n == 0:
            return
        if self.n == 0:
            # not copied: nothing below changes an array that was given
            self.numbers, self.counts = (array.astype(np.int64, copy=False) for array in (numbers, counts))
            self.min = low
        else:
            # both are rising: merging them is quicker than sorting
            places = np.searchsorted(self.numbers, numbers)
            is_new = places == len(self.numbers)
            is_new[~is_new] = self.numbers[places[~is_new]] != numbers[~is_new]
            self.numbers = np.insert(self.numbers, places[is_new], numbers[is_new])
            self.counts = np.insert(self.counts, places[is_new], 0)
            self.counts[places + np.cumsum(is_new) - is_new] += counts.astype(np.int64)
            self.min = min(self.min, low)
        self.max = max(self.max, high)
        self.n += n
        self.total += total

    def merge(self, histogram: Histogram) -> None:
        """Add all that another histogram holds."""
        self.add(histogram.numbers, histogram.counts, histogram.n, histogram.total, histogram.min, histogram.max)

    def drop_buckets(self) -> None:
        """Keep count, sum and extremes only."""
        self.numbers = self.counts = np.zeros(0, np.int64)

    @property
    def has_buckets(self) -> bool:
        """Whether its values are in buckets; without them only count, sum and extremes are known, and no quantile."""
        return int(self.counts.sum()) == self.n

    @property
    def mean(self) -> float:
        """Exact mean in ns; ValueError when empty."""
        if self.n == 0:
            raise ValueError("no values")
        return self.total / self.n

    def quantile(self, q: float) -> float:
        """Return the value at rank ceil(q * n) of the sorted sample, in ns, off by less than 0.05 %.

        Raises ValueError when empty.
        """
        if self.n == 0 or not self.has_buckets:
            raise ValueError("no values" if self.n == 0 else "values without buckets")
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is 0..1, not {q}")
        wanted = rank(q, self.n)
        if wanted >= self.n:
            return float(self.max)
        at = int(np.searchsorted(np.cumsum(self.counts), wanted))
        if at >= len(self.numbers):
            return float(self.max)
        # no value outside of the sample's exact extremes
        return min(max(float(middles(self.numbers[at : at + 1])[0]), float(self.min)), float(self.max))

    def to_json(self) -> Dict[str, Any]:
        """Return {"bits", "n", "total", "min", "max", "buckets": [number, count, number, count, ...]}, rising."""
        return {
            "bits": BITS,
            "n": self.n,
            "total": self.total,
            "min": self.min,
            "max": self.max,
            "buckets": list(map(shared, np.column_stack((self.numbers, self.counts)).ravel().tolist())),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """Return the histogram that `to_json` wrote; ValueError for another resolution, or a contradiction in it."""
        if data["bits"] != BITS:
            raise ValueError(f"a histogram of {data['bits']} significant bits; this version reads {BITS}")
        flat = np.asarray(data["buckets"], np.int64)
        histogram = cls()
        histogram.add(flat[::2], flat[1::2], data["n"], data["total"], data["min"], data["max"])
        if len(flat) and not histogram.has_buckets:
            raise ValueError("a histogram whose buckets do not sum to its count")
        return histogram

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"<Histogram of {self.n} values>"


def rank(q: float, n: int) -> int:
    """Return the nearest rank of a quantile in a sample of n, 1..n."""
    # 0.07 * 100 is 7.000000000000001 for a float: the rank must not become 8
    return max(1, math.ceil(q * n - 1e-9 * n))


def ranks(q: Union[float, np.ndarray], n: np.ndarray) -> np.ndarray:
    """Return the nearest ranks of a quantile, or of a column of them, in samples of n, as `rank` does."""
    return np.maximum(1, np.ceil(q * n - 1e-9 * n)).astype(np.int64)


#: points for each nine: 90 % is the 10th, 99 % the 20th, 99.9 % the 30th
PER_NINE = 10
NINES = 7


def tail_quantiles(n: int) -> List[float]:
    """Return quantiles from 0 (the minimum) up to 1 - 1/n: of n samples at least one is at or above each.

    The k-th is 1 - 10 ** (-k / PER_NINE), so that curves of different lengths have their points at the same places.
    """
    if n < 1:
        return []
    last = min(NINES * PER_NINE, math.floor(PER_NINE * math.log10(n) + 1e-9))
    return [1 - 10 ** (-k / PER_NINE) for k in range(last + 1)]
