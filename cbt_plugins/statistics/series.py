"""One run's series, a number for every second (or bin): its mean, and how much is known of that.

Neighbouring seconds are alike, so n of them say less than n independent numbers would. Two errors of the mean are made,
and the larger one counts:

- by lag-1 autocorrelation r: the effective number of samples is n (1 - r) / (1 + r), as of an AR(1) process, with r
  corrected for its bias in short series, (1 + 4 r) / n (after Kendall, 1954);
- by the scatter of the means of `BLOCKS` blocks, which sees slower changes too.

Gaps (nan) are left out; what stands on both sides of one is not taken for neighbours.
"""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Tuple

import numpy as np
from scipy import special

from cbt_plugins.statistics.values import Caution, Comparison, Estimate

BLOCKS = 10
#: effective samples below which nothing is said
FEWEST = 6.0
#: a drift is spoken of from this part of the mean on, over the whole window
DRIFT = 0.01
#: chance of a false word about drift or unsteadiness
_CHANCE = 0.01


class _Level(NamedTuple):
    mean: float
    error: float  # standard error of the mean
    freedom: float
    size: float  # effective number of samples
    slow: float  # variance of the blocks' means over what the seconds' scatter explains
    drift: float  # from the window's begin to its end, by a straight line
    drift_error: float


def effective_size(values: np.ndarray) -> float:
    """How many independent samples would say as much about the mean, between 1 and the number of samples.

    ValueError of less than two samples.
    """
    return _level(np.asarray(values, dtype=float)).size


def estimate_series(values: np.ndarray, confidence: float = 0.95) -> Estimate:
    """The mean of a series (nan: a gap), in its unit; `n` is the effective number of samples.

    It speaks for this run alone: what differs from run to run is not in the interval. ValueError without any value.
    """
    series = np.asarray(values, dtype=float)
    known = series[np.isfinite(series)]
    if not len(known):
        raise ValueError("the series has no value")
    if len(known) < 2:
        return Estimate(float(known[0]), None, None, 1.0, confidence, (_short(1.0, 1),))
    level = _level(series)
    if level.size < FEWEST:
        return Estimate(level.mean, None, None, level.size, confidence, (_short(level.size, len(known)),))
    reach = float(special.stdtrit(level.freedom, (1 + confidence) / 2)) * level.error
    return Estimate(level.mean, level.mean - reach, level.mean + reach, level.size, confidence, _doubts(series, level))


def steady(values: np.ndarray) -> Tuple[Caution, ...]:
    """What speaks against taking the mean for the level: short-series, autocorrelation, drift, not-steady, gaps."""
    return estimate_series(values).cautions


def compare_series(base: np.ndarray, new: np.ndarray, confidence: float = 0.95, scatter: float = 0.0) -> Comparison:
    """What changed from one run to another one, by their series, relative to the base's mean.

    `scatter`: relative standard deviation from run to run, where it is known: without it the verdict is about these two
    runs alone. Where the two drift differently, the interval holds the change at every time of the window.
    ValueError when a side has no value.
    """
    one, other = estimate_series(base, confidence), estimate_series(new, confidence)
    cautions = list(dict.fromkeys((*one.cautions, *other.cautions)))
    if not scatter:
        cautions.insert(0, Caution("one-run", "one run each: what differs from run to run is not in the interval"))
    if one.value <= 0 or other.value <= 0:
        cautions.append(Caution("no-base", "a mean is not above 0: there is no relative change"))
        return Comparison(one, other, None, None, None, None, "none", None, tuple(cautions))
    change = other.value / one.value - 1
    if one.low is None or other.low is None:
        return Comparison(one, other, change, None, None, None, "none", None, tuple(cautions))
    first, second = (_level(np.asarray(values, dtype=float)) for values in (base, new))
    parts = (first.error / first.mean) ** 2, (second.error / second.mean) ** 2
    total = sum(parts) + 2 * scatter**2
    error, method = math.sqrt(total), "series"
    if not error:
        same = change == 0
        cautions.append(Caution("no-scatter", "the series never change: nothing is known of the noise"))
        end = 0.0 if same else None
        return Comparison(
            one, other, change, end, end, 1.0 if same else None, method, None, tuple(cautions), within=end
        )
    weights = sum(part**2 / level.freedom for part, level in zip(parts, (first, second)))
    freedom = total**2 / weights if weights else 1e9
    shift, slack = math.log1p(change), _slack(first, second)
    p = 2 * float(special.stdtr(freedom, -max(0.0, abs(shift) - slack) / error))
    alpha = 1 - confidence
    wide, narrow = (float(special.stdtrit(freedom, 1 - part)) * error + slack for part in (alpha / 2, alpha))
    within = max(abs(math.expm1(shift - narrow)), abs(math.expm1(shift + narrow)))
    low, high = math.expm1(shift - wide), math.expm1(shift + wide)
    return Comparison(one, other, change, low, high, min(1.0, p), method, None, tuple(cautions), within=within)


def _level(series: np.ndarray) -> _Level:
    known = np.isfinite(series)
    n = int(known.sum())
    if n < 2:
        raise ValueError("two samples at least")
    mean = float(series[known].mean())
    deviations = np.where(known, series - mean, 0.0)
    variance = float(deviations @ deviations) / n
    if variance <= (1e-12 * mean) ** 2:
        return _Level(mean, 0.0, n - 1.0, float(n), 0.0, 0.0, 0.0)
    size = _independent(deviations, known)
    by_lag = variance / max(size - 1, 1e-9)  # the scatter about the mean is too small by a part 1 / size
    blocks = _blocks(series)
    by_blocks = float(np.var(blocks, ddof=1)) / len(blocks) if len(blocks) == BLOCKS else 0.0
    error = math.sqrt(max(by_lag, by_blocks))
    freedom = min(size - 1, BLOCKS - 1.0 if by_blocks else math.inf)
    seconds = np.arange(len(series)) - np.flatnonzero(known).mean()
    times = seconds[known]
    slope = float(times @ series[known]) / float(times @ times)
    straight = np.where(known, deviations - slope * seconds, 0.0)
    alike = n / _independent(straight, known)
    freedom_of_slope = max(n - 2 * alike, 1e-9)
    slope_error = math.sqrt(float(straight @ straight) / freedom_of_slope * alike / float(times @ times))
    length = len(series) - 1
    effective = min(float(n), max(1.0, 1 + variance / error**2))
    slow = by_blocks / by_lag
    return _Level(mean, error, max(freedom, 1e-3), effective, slow, slope * length, slope_error * length)


def _independent(deviations: np.ndarray, known: np.ndarray) -> float:
    """Effective number of samples by lag-1 autocorrelation; deviations are 0 in gaps. Never more than there are."""
    n, pairs = int(known.sum()), int((known[1:] & known[:-1]).sum())
    total = float(deviations @ deviations)
    if not pairs or not total:
        return float(n)
    raw = float(deviations[1:] @ deviations[:-1]) / pairs / (total / n)
    r = min(max(raw + (1 + 4 * raw) / n, 0.0), 0.999)
    return max(1.0, n * (1 - r) / (1 + r))


def _blocks(series: np.ndarray) -> np.ndarray:
    """Means of the blocks that have a value in half of their seconds at least."""
    parts = [part[np.isfinite(part)] for part in np.array_split(series, BLOCKS)]
    return np.asarray([part.mean() for part in parts if len(part) * 2 * BLOCKS >= len(series)])


def _slack(first: _Level, second: _Level) -> float:
    """Half of what two runs drift apart, where that is more than noise."""
    apart = second.drift / second.mean - first.drift / first.mean
    error = math.hypot(first.drift_error / first.mean, second.drift_error / second.mean)
    freedom = first.freedom + second.freedom
    return abs(apart) / 2 if error and 2 * special.stdtr(freedom, -abs(apart) / error) < _CHANCE else 0.0


def _short(size: float, samples: int) -> Caution:
    text = f"{samples} samples say as much as {size:.1f} independent ones: no interval below {FEWEST:g}; measure longer"
    return Caution("short-series", text)


def _doubts(series: np.ndarray, level: _Level) -> Tuple[Caution, ...]:
    found: List[Caution] = []
    n = int(np.isfinite(series).sum())
    if n < len(series):
        found.append(Caution("gaps", f"{len(series) - n} of {len(series)} bins have no value"))
    if level.size < n / 2:
        found.append(Caution("autocorrelation", f"{n} samples say as much as {level.size:.0f} independent ones"))
    drift: Optional[float] = level.drift / abs(level.mean) if level.mean else None
    significant = (
        level.drift_error and 2 * special.stdtr(level.freedom, -abs(level.drift) / level.drift_error) < _CHANCE
    )
    if significant and drift is not None and abs(drift) >= DRIFT:
        way = "rises" if drift > 0 else "falls"
        found.append(Caution("drift", f"the series {way} by {abs(drift):.1%} of its mean from begin to end"))
    elif special.chdtrc(BLOCKS - 1, level.slow * (BLOCKS - 1)) < _CHANCE:
        found.append(Caution("not-steady", "tenths of the window differ by more than the scatter of seconds explains"))
    return tuple(found)
