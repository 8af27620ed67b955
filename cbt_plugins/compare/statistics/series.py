"""One run's series, a number for every second (or bin): its mean, and how much is known of that.

Neighbouring seconds are alike, so n of them say less than n independent numbers would. A straight line is fitted; of
what is left two errors of the mean are made, and the larger one counts:

- by lag-1 autocorrelation r: the effective number of samples is n (1 - r) / (1 + r), as of an AR(1) process, with r
  corrected for its bias in short series, (2 + 4 r) / n;
- by the scatter of the means of `BLOCKS` blocks, which sees slower changes too.

A run that drifts has no level of its own: two runs differ only when they do so at the window's begin and at its end, by
the lines. A line's end is known half as well as the mean. That is what it costs not to be misled by drift.

Gaps (nan) are left out; what stands on both sides of one is not taken for neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.assumption import Assumption, assumption_of, first_summary
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, Scatter, StatisticsWarning
from cbt_plugins.formatting import percent

BLOCKS = 10
#: fewer effective samples give no interval: a line through them leaves less than one degree of freedom
FEWEST = 3.0
#: a smaller drift over the window, as a part of the mean, is not reported
DRIFT = 0.01
#: smaller noise, as a part of the mean, is rounding
_DIGITS = 1e-12
#: chance of a false warning about drift or not-steady
_CHANCE = 0.01


class _Level(NamedTuple):
    mean: float
    half: float  # what the line rises from the mean to the window's end
    error: float  # standard error of the mean; that of the line's ends is twice as large
    freedom: float
    size: float  # effective number of samples
    slow: float  # variance of the blocks' means over what the seconds' scatter explains


def effective_size(values: np.ndarray) -> float:
    """Return the number of independent samples that would give a mean as exact, between 1 and the number of samples.

    ValueError of less than two samples.
    """
    return _level(np.asarray(values, dtype=float)).size


def estimate_series(values: np.ndarray, confidence: float = 0.95) -> Estimate:
    """Estimate the mean of a series (nan: a gap), in its unit; `n` is the effective number of samples.

    It speaks for this run alone: what differs from run to run is not in the interval. ValueError without any value.
    """
    series = np.asarray(values, dtype=float)
    if not np.isfinite(series).any():
        raise ValueError("the series has no value")
    return first_summary(ASSUMPTIONS, series, confidence)


def series_warnings(values: np.ndarray) -> Tuple[StatisticsWarning, ...]:
    """Return the reason why the mean is not the level: short-series, autocorrelation, drift, not-steady, gaps."""
    return estimate_series(values).warnings


def compare_series(
    base: np.ndarray, new: np.ndarray, confidence: float = 0.95, scatter: Optional[Scatter] = None
) -> Comparison:
    """Compare one run with another one by their series, relative to the base's mean.

    The interval holds the change at the begin of the window and at its end, and what differs from run to run by
    `scatter`. Without a scatter it is about these two runs alone, and says nothing about what they are runs of: the
    warning `one-run` forbids a verdict. ValueError when a side has no value.
    """
    estimates = estimate_series(base, confidence), estimate_series(new, confidence)
    sides = TwoSeries(*estimates, np.asarray(base, dtype=float), np.asarray(new, dtype=float), scatter)
    return assumption_of(ASSUMPTIONS, sides).compare(sides)


@dataclass(frozen=True)
class TwoSeries:
    """The series of one run of each side, with gaps (nan)."""

    base: Estimate
    new: Estimate
    first: np.ndarray  # values of the base
    second: np.ndarray
    scatter: Optional[Scatter]  # from run to run; None: not known

    @property
    def change(self) -> Optional[float]:
        """The relative change of the mean; None: a mean is not above 0, or a value is below 0."""
        is_positive = self.base.value > 0 and self.new.value > 0
        negative = any((series < 0).any() for series in (self.first, self.second))
        return self.new.value / self.base.value - 1 if is_positive and not negative else None

    @cached_property
    def levels(self) -> Tuple[_Level, _Level]:
        """The levels of both series."""
        return _level(self.first), _level(self.second)

    @cached_property
    def variances(self) -> Tuple[float, float, float]:
        """The variances, relative, of the end of the base's line, of the new one's, and from run to run."""
        first, second = self.levels
        between = 2 * self.scatter.value**2 if self.scatter else 0.0
        return (2 * first.error / first.mean) ** 2, (2 * second.error / second.mean) ** 2, between

    @property
    def ends(self) -> Tuple[float, float]:
        """The logarithms of the change at the begin and at the end of the window, the smaller one first."""
        first, second = self.levels
        middle, apart = math.log(self.new.value / self.base.value), second.half / second.mean - first.half / first.mean
        return min(middle - apart, middle + apart), max(middle - apart, middle + apart)

    def comparison(self, shift: SeriesShift, *warnings: StatisticsWarning) -> Comparison:
        """Return the comparison with the warnings of both series and these."""
        one_run = "one run each, and how much runs differ is not known: repeat them, or give --scatter or --history"
        of_both = [] if self.scatter else [StatisticsWarning("one-run", one_run)]
        of_both += dict.fromkeys((*self.base.warnings, *self.new.warnings))
        return Comparison(
            *(self.base, self.new, self.change, *shift.interval, shift.p, shift.method, None, (*of_both, *warnings)),
            inner_low=shift.narrower[0],
            inner_high=shift.narrower[1],
        )


class SeriesShift(NamedTuple):
    """The relative change of two series, with intervals at 1 - alpha and 1 - 2 alpha, and the p of "there is none"."""

    interval: Tuple[Optional[float], Optional[float]] = (None, None)
    narrower: Tuple[Optional[float], Optional[float]] = (None, None)
    p: Optional[float] = None
    method: str = "none"


class NoRatio(Assumption[TwoSeries]):
    """A mean that is not above 0, or a value below 0: no relative change."""

    def applies(self, data: TwoSeries) -> bool:
        return data.change is None

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        return None

    def compare(self, data: TwoSeries) -> Comparison:
        warning = StatisticsWarning("no-base", "a mean is not above 0, or a value is negative: no relative change")
        return data.comparison(SeriesShift(), warning)


class ShortSeries(Assumption[TwoSeries]):
    """Samples that are worth fewer than `FEWEST` independent ones: a mean without an interval."""

    def applies(self, data: TwoSeries) -> bool:
        return data.base.low is None or data.new.low is None

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        samples = values[np.isfinite(values)]
        size = _level(values).size if len(samples) > 1 else 1.0
        if size >= FEWEST:
            return None
        return Estimate(float(samples.mean()), None, None, size, confidence, (_short(size, len(samples)),))

    def compare(self, data: TwoSeries) -> Comparison:
        return data.comparison(SeriesShift())


class ConstantSeries(Assumption[TwoSeries]):
    """Series without any noise: two of one level are equal, others have no p."""

    def applies(self, data: TwoSeries) -> bool:
        return not sum(data.variances)

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        return None  # a line is through all of its values

    def compare(self, data: TwoSeries) -> Comparison:
        warning = StatisticsWarning("no-scatter", "the series are constant: the noise is unknown")
        equal = SeriesShift((0.0, 0.0), (0.0, 0.0), 1.0, "series")
        return data.comparison(equal if data.ends == (0.0, 0.0) else SeriesShift(method="series"), warning)


class SeriesLines(Assumption[TwoSeries]):
    """Series about a straight line each: the t of the change at the line's ends.

    The three variances are added; the degrees of freedom of the sum are those of Welch (1947) and Satterthwaite (1946).
    """

    def applies(self, data: TwoSeries) -> bool:
        return True

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        level = _level(values)
        reach = float(special.stdtrit(level.freedom, (1 + confidence) / 2)) * level.error
        ends = level.mean - reach, level.mean + reach
        return Estimate(level.mean, *ends, level.size, confidence, _warnings_of_bins(values, level))

    def compare(self, data: TwoSeries) -> Comparison:
        freedoms = [level.freedom for level in data.levels] + ([data.scatter.freedom] if data.scatter else [])
        total = sum(data.variances)
        weights = sum(variance**2 / freedom for variance, freedom in zip(data.variances, freedoms))
        freedom, error = total**2 / weights if weights else 1e9, math.sqrt(total)
        low, high = data.ends
        nearest = 0.0 if low < 0 < high else min(abs(low), abs(high))
        alpha = 1 - data.base.confidence
        reaches = (float(special.stdtrit(freedom, 1 - part)) * error for part in (alpha / 2, alpha))
        wide, narrow = ((math.expm1(low - reach), math.expm1(high + reach)) for reach in reaches)
        p = 2 * float(special.stdtr(freedom, -nearest / error))
        return data.comparison(SeriesShift(wide, narrow, p, "series"))


#: in the order in which they are tried
ASSUMPTIONS: Sequence[Assumption[TwoSeries]] = (NoRatio(), ShortSeries(), ConstantSeries(), SeriesLines())


def _level(series: np.ndarray) -> _Level:
    finite = np.isfinite(series)
    n = int(finite.sum())
    if n < 2:
        raise ValueError("need two samples at least")
    mean = float(series[finite].mean())
    seconds = np.arange(len(series)) - np.flatnonzero(finite).mean()
    slope = float(seconds[finite] @ series[finite]) / float(seconds[finite] @ seconds[finite])
    half = slope * (len(series) - 1) / 2
    left = np.where(finite, series - mean - slope * seconds, 0.0)
    variance = float(left @ left) / n
    if variance <= (_DIGITS * mean) ** 2:
        return _Level(mean, half if abs(half) > _DIGITS * abs(mean) else 0.0, 0.0, n - 1.0, float(n), 0.0)
    size = _independent(left, finite)
    freedom = max(size - 2, 1e-3)
    by_lag, by_blocks = variance / freedom, 0.0
    blocks = _blocks(np.where(finite, left, np.nan))
    if len(blocks) == BLOCKS:
        by_blocks = float(blocks @ blocks) / (BLOCKS - 2) / BLOCKS
        freedom = min(freedom, BLOCKS - 2.0)
    larger = max(by_lag, by_blocks)
    effective = min(float(n), max(1.0, 2 + variance / larger))
    return _Level(mean, half, math.sqrt(larger), freedom, effective, by_blocks / by_lag)


def _independent(left: np.ndarray, finite: np.ndarray) -> float:
    """Return the effective number of samples by lag-1 autocorrelation, at most all; `left` is 0 in gaps."""
    n, pairs = int(finite.sum()), int((finite[1:] & finite[:-1]).sum())
    total = float(left @ left)
    if not pairs or not total:
        return float(n)
    raw = float(left[1:] @ left[:-1]) / pairs / (total / n)
    r = min(max(raw + (2 + 4 * raw) / n, 0.0), 0.999)
    return max(1.0, n * (1 - r) / (1 + r))


def _blocks(series: np.ndarray) -> np.ndarray:
    """Return the means of the blocks that have a value in half of their seconds at least."""
    parts = [part[np.isfinite(part)] for part in np.array_split(series, BLOCKS)]
    return np.asarray([part.mean() for part in parts if len(part) * 2 * BLOCKS >= len(series)])


def _short(size: float, samples: int) -> StatisticsWarning:
    text = f"{samples} samples are worth {size:.1f} independent ones, an interval needs {FEWEST:g}: measure longer"
    return StatisticsWarning("short-series", text)


def _warnings_of_bins(series: np.ndarray, level: _Level) -> Tuple[StatisticsWarning, ...]:
    warnings: List[StatisticsWarning] = []
    n = int(np.isfinite(series).sum())
    if n < len(series):
        warnings.append(StatisticsWarning("gaps", f"{len(series) - n} of {len(series)} bins have no value"))
    if level.size < n / 2:
        warnings.append(
            StatisticsWarning("autocorrelation", f"{n} samples are worth {level.size:.0f} independent ones")
        )
    drift = 2 * level.half / abs(level.mean) if level.mean else 0.0
    chance = 2 * special.stdtr(level.freedom, -abs(level.half) / (math.sqrt(3) * level.error)) if level.error else 0.0
    if abs(drift) >= DRIFT and chance < _CHANCE:
        way = "rises" if drift > 0 else "falls"
        warnings.append(
            StatisticsWarning("drift", f"the series {way} by {percent(abs(drift))} of its mean from start to end")
        )
    if special.chdtrc(BLOCKS - 2, level.slow * (BLOCKS - 2)) < _CHANCE:
        warnings.append(
            StatisticsWarning("not-steady", "the tenths of the window differ more than the noise of seconds explains")
        )
    return tuple(warnings)
