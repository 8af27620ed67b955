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
from typing import List, NamedTuple, Optional, Tuple

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, Scatter, StatisticsWarning

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
    """Return how many independent samples would give a mean as exact, between 1 and the number of samples.

    ValueError of less than two samples.
    """
    return _level(np.asarray(values, dtype=float)).size


def estimate_series(values: np.ndarray, confidence: float = 0.95) -> Estimate:
    """The mean of a series (nan: a gap), in its unit; `n` is the effective number of samples.

    It speaks for this run alone: what differs from run to run is not in the interval. ValueError without any value.
    """
    series = np.asarray(values, dtype=float)
    finite_samples = series[np.isfinite(series)]
    if not len(finite_samples):
        raise ValueError("the series has no value")
    if len(finite_samples) < 2:
        return Estimate(float(finite_samples[0]), None, None, 1.0, confidence, (_short(1.0, 1),))
    level = _level(series)
    if level.size < FEWEST:
        return Estimate(level.mean, None, None, level.size, confidence, (_short(level.size, len(finite_samples)),))
    reach = float(special.stdtrit(level.freedom, (1 + confidence) / 2)) * level.error
    return Estimate(
        level.mean, level.mean - reach, level.mean + reach, level.size, confidence, _warnings(series, level)
    )


def series_warnings(values: np.ndarray) -> Tuple[StatisticsWarning, ...]:
    """Return why the mean is not the level: short-series, autocorrelation, drift, not-steady, gaps."""
    return estimate_series(values).warnings


def compare_series(
    base: np.ndarray, new: np.ndarray, confidence: float = 0.95, scatter: Optional[Scatter] = None
) -> Comparison:
    """Compare one run with another one by their series, relative to the base's mean.

    The interval holds the change at the begin of the window and at its end, and what differs from run to run by
    `scatter`. Without a scatter it is about these two runs alone, and says nothing about what they are runs of: the
    warning `one-run` forbids a verdict. ValueError when a side has no value.

    The three variances are added; the degrees of freedom of the sum are those of Welch (1947) and Satterthwaite (1946).
    """
    base_estimate, new_estimate = estimate_series(base, confidence), estimate_series(new, confidence)
    warnings = list(dict.fromkeys((*base_estimate.warnings, *new_estimate.warnings)))
    if scatter is None:
        text = "one run each, and how much runs differ is not known: repeat them, or give --scatter or --history"
        warnings.insert(0, StatisticsWarning("one-run", text))
    if base_estimate.value <= 0 or new_estimate.value <= 0:
        warnings.append(StatisticsWarning("no-base", "a mean is not above 0: no relative change"))
        return Comparison(base_estimate, new_estimate, None, None, None, None, "none", None, tuple(warnings))
    change = new_estimate.value / base_estimate.value - 1
    if base_estimate.low is None or new_estimate.low is None:
        return Comparison(base_estimate, new_estimate, change, None, None, None, "none", None, tuple(warnings))
    first, second = (_level(np.asarray(values, dtype=float)) for values in (base, new))
    parts = (2 * first.error / first.mean) ** 2, (2 * second.error / second.mean) ** 2
    between = 2 * scatter.value**2 if scatter else 0.0
    total = sum(parts) + between
    middle, apart = math.log1p(change), second.half / second.mean - first.half / first.mean
    if not total:
        same = not change and not apart
        warnings.append(StatisticsWarning("no-scatter", "the series are constant: the noise is unknown"))
        end = 0.0 if same else None
        p = 1.0 if same else None
        return Comparison(
            base_estimate,
            new_estimate,
            change,
            end,
            end,
            p,
            "series",
            None,
            tuple(warnings),
            inner_low=end,
            inner_high=end,
        )
    weights = sum(part**2 / level.freedom for part, level in zip(parts, (first, second)))
    weights += between**2 / scatter.freedom if scatter else 0.0
    freedom, error = total**2 / weights if weights else 1e9, math.sqrt(total)
    ends = sorted((middle - apart, middle + apart))
    nearest = 0.0 if ends[0] < 0 < ends[1] else min(abs(end) for end in ends)
    p = 2 * float(special.stdtr(freedom, -nearest / error))
    wide, narrow = (
        float(special.stdtrit(freedom, 1 - part)) * error for part in (0.5 - confidence / 2, 1 - confidence)
    )
    low, high, inner_low, inner_high = (
        math.expm1(end) for reach in (wide, narrow) for end in (ends[0] - reach, ends[1] + reach)
    )
    return Comparison(
        base_estimate,
        new_estimate,
        change,
        low,
        high,
        p,
        "series",
        None,
        tuple(warnings),
        inner_low=inner_low,
        inner_high=inner_high,
    )


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
    """Effective number of samples by lag-1 autocorrelation; left are 0 in gaps. Never more than there are."""
    n, pairs = int(finite.sum()), int((finite[1:] & finite[:-1]).sum())
    total = float(left @ left)
    if not pairs or not total:
        return float(n)
    raw = float(left[1:] @ left[:-1]) / pairs / (total / n)
    r = min(max(raw + (2 + 4 * raw) / n, 0.0), 0.999)
    return max(1.0, n * (1 - r) / (1 + r))


def _blocks(series: np.ndarray) -> np.ndarray:
    """Means of the blocks that have a value in half of their seconds at least."""
    parts = [part[np.isfinite(part)] for part in np.array_split(series, BLOCKS)]
    return np.asarray([part.mean() for part in parts if len(part) * 2 * BLOCKS >= len(series)])


def _short(size: float, samples: int) -> StatisticsWarning:
    text = f"{samples} samples are worth {size:.1f} independent ones, an interval needs {FEWEST:g}: measure longer"
    return StatisticsWarning("short-series", text)


def _warnings(series: np.ndarray, level: _Level) -> Tuple[StatisticsWarning, ...]:
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
            StatisticsWarning("drift", f"the series {way} by {abs(drift):.1%} of its mean from start to end")
        )
    if special.chdtrc(BLOCKS - 2, level.slow * (BLOCKS - 2)) < _CHANCE:
        warnings.append(
            StatisticsWarning("not-steady", "the tenths of the window differ more than the noise of seconds explains")
        )
    return tuple(warnings)
