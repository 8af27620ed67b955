"""Independent runs, one number each: the estimate of their level, the comparison of two groups, exact tests.

Changes are relative, so everything is done on logarithms; where a value is not above 0, on the values themselves,
relative to the base's level. An exact test decides where its smallest p is at most half of what is asked for (at 95 %:
from 5 and 5 runs on, or 7 pairs). With fewer runs, but 3 at least, it is Student's t, which assumes that the logarithms
are normal, and says so.

The exact tests assume that runs are independent: rank sum of two samples (Wilcoxon, Mann and Whitney) and signed ranks
of pairs (Wilcoxon), both with ties. The rank sum assumes too that both sides scatter alike, which matters little with
about as many runs of both; otherwise (`UNEQUAL`) a t test that allows for another scatter must agree. Probabilities are
counted over all ways to deal out the ranks, or their signs. The estimates are those of Hodges and Lehmann (1963), the
intervals are the tests' inverse. Beyond `COUNTED` values the counts are replaced by the normal approximation with its
correction for ties."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from scipy import special, stats

from cbt_plugins.compare.statistics.order import ALPHA as RESEMBLING
from cbt_plugins.compare.statistics.order import (
    SEEN,
    Block,
    aligned,
    blocks,
    blocks_floor,
    convolved,
    in_groups,
    line,
    of_blocks,
    one_after_other,
    resembling_p,
    within_blocks,
)
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, Scatter, StatisticsWarning

Numbers = Union[Sequence[float], np.ndarray]
Times = Tuple[Sequence[float], Sequence[float]]
#: fewer runs (or pairs) give no Student's t
FEWEST = 3
#: a smaller standard error, as a part of the values, is rounding
_DIGITS = 1e-12
#: values up to which probabilities are counted
COUNTED = 100
#: one side has at least so many times the runs of the other: ranks may take another scatter for a change
UNEQUAL = 1.5
#: the method of runs too few to show their scatter, where it is known otherwise
KNOWN_SCATTER = "t with a known scatter"
Interval = Optional[Tuple[float, float]]


class _Shift(NamedTuple):
    """A shift on the scale of the test, its intervals at 1 - alpha and 1 - 2 alpha, and the p of "there is none"."""

    value: float
    interval: Interval
    narrower: Interval
    p: Optional[float]
    method: str
    second: Optional[float] = None
    floor: float = 0.0
    exact: Optional[float] = None  # the exact test's own p, where the other test had to agree


def estimate(values: Numbers, confidence: float = 0.95) -> Estimate:
    """The median of independent runs, in their unit.

    The interval is that of order statistics (of 6 runs at least, at 95 %), which holds for every distribution; of 3 to
    5 runs it is Student's t on logarithms. Values that are not finite are left out. ValueError without any value.
    """
    runs, warnings = _finite(values)
    if not len(runs):
        raise ValueError("no run has a value")
    n, ordered = len(runs), np.sort(runs)
    interval: Interval = None
    outside = int(np.searchsorted(special.bdtr(np.arange(n), n, 0.5), (1 - confidence) / 2 * (1 + 1e-9), side="right"))
    if outside:
        interval = float(ordered[outside - 1]), float(ordered[-outside])
    elif n >= FEWEST:
        interval = _student_level(runs, confidence)
        warnings.append(_normal(n))
    else:
        warnings.append(StatisticsWarning("too-few-runs", f"fewer than {FEWEST} runs: no interval"))
    low, high = interval or (None, None)
    return Estimate(float(np.median(runs)), low, high, n, confidence, tuple(warnings))


def pooled_scatter(groups: Iterable[Numbers]) -> Optional[Scatter]:
    """Return the scatter from run to run, learnt from groups of repeated runs; each group may have a level of its own.

    The pooled variance of the logarithms: the sums of squares in the groups / their degrees of freedom (Student's two
    sample test has it for two groups). None where they are less than `FEWEST` - 1, a value is not above 0, or nothing
    differs.
    """
    squares, freedom = 0.0, 0
    for group in groups:
        values = np.asarray(group, dtype=float)
        values = values[np.isfinite(values)]
        if len(values) and values.min() <= 0:
            return None
        if len(values) > 1:
            squares += float(np.log(values).var()) * len(values)
            freedom += len(values) - 1
    if freedom < FEWEST - 1 or squares / freedom <= _DIGITS**2:
        return None
    return Scatter(math.sqrt(squares / freedom), freedom)


def compare_runs(
    base: Numbers,
    new: Numbers,
    paired: bool = False,
    confidence: float = 0.95,
    scatter: Optional[Scatter] = None,
    times: Optional[Times] = None,
) -> Comparison:
    """Compare the new runs with the base's, both in the order in which they were made.

    `paired`: base[i] and new[i] were measured one after the other (interleaved), so that what drifts slowly hits both
    alike. `scatter`: that from run to run, for a side with so few runs that they do not show it. `times`: when the runs
    of both sides were made, nan where it is not known; runs that were interleaved are compared in blocks (see `order`),
    those that were not are looked at for drift. ValueError when a side has no value at all, or pairs are not of one
    length.
    """
    if paired and len(base) != len(new):
        raise ValueError(f"pairs of {len(base)} and {len(new)} runs")
    base_estimate, new_estimate = estimate(base, confidence), estimate(new, confidence)
    warnings = list(
        {
            warning.code: warning
            for warning in (*base_estimate.warnings, *new_estimate.warnings)
            if warning.code == "missing"
        }.values()
    )
    first, second, when = _finite_runs(base, new, paired, times)
    logarithms = bool(np.all(first > 0) and np.all(second > 0))
    level = abs(float(np.median(first)))
    scale = level or float(np.abs(second).max()) or 1.0
    x, y = (np.log(first), np.log(second)) if logarithms else (first / scale, second / scale)
    if not logarithms:
        text = "some values are not above 0: differences are compared, relative to the base"
        warnings.append(StatisticsWarning("not-positive", text))
        if not level:
            warnings.append(StatisticsWarning("no-base", "the base is 0: no relative change"))
    alpha = 1 - confidence
    run_blocks = blocks(*when) if when and not paired and np.isfinite(np.concatenate(when)).all() else []
    enough = min(len(x), len(y)) >= FEWEST and len(x) + len(y) <= COUNTED
    in_blocks = len(run_blocks) > 1 and enough and blocks_floor(run_blocks) <= alpha / 2
    if paired:
        shift = _pairs(y - x, alpha)
    elif in_blocks:
        shift = _blocks(x, y, run_blocks, alpha)
    else:
        shift = _samples(x, y, alpha, scatter if logarithms else None)
    warnings += _warnings(shift, len(first), len(second), paired, confidence)
    if not paired and not in_blocks:
        warnings += [warning for warning in (_trend(first, "base"), _trend(second, "new")) if warning]
    if when:
        warnings += _in_order(x, y, when, alpha, run_blocks if in_blocks else [])

    def relative(value: float) -> Optional[float]:
        return math.expm1(value) if logarithms else value if level else None

    low, high = map(relative, shift.interval) if shift.interval else (None, None)
    inner_low, inner_high = map(relative, shift.narrower) if shift.narrower else (None, None)
    return Comparison(
        *(base_estimate, new_estimate, relative(shift.value), low, high, shift.p, shift.method, None, tuple(warnings)),
        second=shift.second,
        floor=shift.floor,
        inner_low=inner_low,
        inner_high=inner_high,
        blocks=len(run_blocks) if in_blocks else len(x) if paired else 0,
    )


def _finite_runs(
    base: Numbers, new: Numbers, paired: bool, times: Optional[Times]
) -> Tuple[np.ndarray, np.ndarray, Optional[Tuple[np.ndarray, np.ndarray]]]:
    """Return both sides without what is not finite (of pairs: both), and their times."""
    first, second = np.asarray(base, dtype=float), np.asarray(new, dtype=float)
    keep = np.isfinite(first), np.isfinite(second)
    if paired:
        keep = (keep[0] & keep[1],) * 2
        if not keep[0].any():
            raise ValueError("no pair has both values")
    when = tuple(np.asarray(side_times, dtype=float)[kept] for side_times, kept in zip(times, keep)) if times else ()
    return first[keep[0]], second[keep[1]], (when[0], when[1]) if when else None


def _in_order(
    x: np.ndarray, y: np.ndarray, when: Tuple[np.ndarray, np.ndarray], alpha: float, run_blocks: List[Block]
) -> Iterator[StatisticsWarning]:
    """Yield warnings against a change by the order of the runs, where they were not made in turns."""
    seen = [np.isfinite(at) for at in when]
    lost = sum(int((~has_time).sum()) for has_time in seen)
    if lost:
        text = f"{lost} of {len(x) + len(y)} runs have no start time: only the order of the others was looked at"
        yield StatisticsWarning("order-unknown", text)
        x, y, when = x[seen[0]], y[seen[1]], (when[0][seen[0]], when[1][seen[1]])
    if not len(x) or not len(y) or not (in_groups(*when) or one_after_other(*when)):
        return
    fitted = line(x, y, when) if one_after_other(*when, run_blocks) else None
    p = resembling_p(*(values[np.argsort(at, kind="stable")] for values, at in zip((x, y), when)))
    if fitted and fitted.p < SEEN and fitted.change_p >= alpha:
        text = f"the runs drift by about {math.expm1(fitted.drift):+.1%} in all, and the change may be that drift"
        yield StatisticsWarning("drift-of-runs", f"{text} (with it taken out p is {fitted.change_p:.2g}): interleave")
    if p is not None and p < RESEMBLING:
        text = "runs resemble those before and after them, so their scatter does not say how far sides differ by chance"
        yield StatisticsWarning("correlated-runs", f"{text} (p = {p:.2g}): interleave")


def _finite(values: Numbers) -> Tuple[np.ndarray, List[StatisticsWarning]]:
    runs = np.asarray(values, dtype=float)
    kept = runs[np.isfinite(runs)]
    lost = len(runs) - len(kept)
    return kept, [StatisticsWarning("missing", f"{lost} of {len(runs)} runs have no value")] if lost else []


def _normal(*runs: int) -> StatisticsWarning:
    sizes = " and ".join(map(str, runs))
    return StatisticsWarning(
        "assumes-normal", f"{sizes} runs: valid only if the logarithms of runs are about normally distributed"
    )


def _student_level(runs: np.ndarray, confidence: float) -> Tuple[float, float]:
    logarithms = bool(np.all(runs > 0))
    x = np.log(runs) if logarithms else runs
    reach = float(special.stdtrit(len(x) - 1, (1 + confidence) / 2)) * float(x.std(ddof=1)) / math.sqrt(len(x))
    ends = (float(x.mean()) - reach, float(x.mean()) + reach)
    low, high = map(math.exp, ends) if logarithms else ends
    middle = float(np.median(runs))
    return min(low, middle), max(high, middle)


def _samples(x: np.ndarray, y: np.ndarray, alpha: float, scatter: Optional[Scatter] = None) -> _Shift:
    n, m = len(x), len(y)
    if min(n, m) < FEWEST and scatter:
        reach = scatter.value * math.sqrt(1 / n + 1 / m)
        return _student(float(y.mean() - x.mean()), reach, scatter.freedom, alpha, KNOWN_SCATTER)
    value, error, freedom = float(y.mean() - x.mean()), 0.0, 0.0
    if min(n, m) >= FEWEST:
        parts = float(x.var(ddof=1)) / n, float(y.var(ddof=1)) / m
        error = math.sqrt(sum(parts))
        if error > _DIGITS:
            freedom = sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1))
    t = _student(value, error, freedom, alpha, "Welch's t")
    if min(n, m) < FEWEST:  # many runs of the other side do not tell how this one scatters
        return _Shift(value, None, None, None, "none")
    floor = rank_sum_floor(n, m)
    if floor > alpha / 2:
        return t
    value, interval = shift_of_samples(x, y, alpha)
    _, narrower = shift_of_samples(x, y, 2 * alpha)
    exact = _Shift(value, interval, narrower, rank_sum_p(x, y), "exact rank sum", t.p, floor)
    return _both(exact, t) if _unequal(n, m) else exact


def _unequal(n: int, m: int) -> bool:
    return max(n, m) >= UNEQUAL * min(n, m)


def _both(exact: _Shift, t: _Shift) -> _Shift:
    """Return the shift that both tests support: the larger p, and intervals that hold both."""
    if t.p is None or exact.p is None:
        return exact

    def hull(first: Interval, second: Interval) -> Interval:
        return (min(first[0], second[0]), max(first[1], second[1])) if first and second else None

    wide, narrow = hull(exact.interval, t.interval), hull(exact.narrower, t.narrower)
    names = f"{exact.method} and {t.method}"
    return exact._replace(interval=wide, narrower=narrow, method=names, p=max(exact.p, t.p), exact=exact.p)


def _blocks(x: np.ndarray, y: np.ndarray, run_blocks: List[Block], alpha: float) -> _Shift:
    """Compare within blocks: signed ranks where each block is a pair, otherwise aligned ranks."""
    if all(len(a) == len(b) == 1 for a, b in run_blocks):
        return _pairs(np.asarray([y[b[0]] - x[a[0]] for a, b in run_blocks]), alpha)
    unequal = _unequal(len(x), len(y))
    t = _student(*(of_blocks if unequal else within_blocks)(x, y, run_blocks), alpha, "t of blocks")
    ranks, sizes = aligned(x, y, run_blocks)
    ways = convolved([_rank_sums(size, tuple(sorted(block_ranks))) for block_ranks, size in zip(ranks, sizes)])
    p = _two_sided(ways, sum(int(block_ranks[:size].sum()) for block_ranks, size in zip(ranks, sizes)))
    exact = t._replace(p=p, method="exact aligned ranks", second=t.p, floor=blocks_floor(run_blocks))
    return _both(exact, t) if unequal else exact


def _pairs(differences: np.ndarray, alpha: float) -> _Shift:
    n = len(differences)
    value = float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(n) if n >= FEWEST else 0.0
    t = _student(value, error, n - 1, alpha, "paired t")
    floor = signed_rank_floor(n)
    if floor > alpha / 2:
        return t if n >= FEWEST else _Shift(value, None, None, None, "none")
    value, interval = shift_of_pairs(differences, alpha)
    _, narrower = shift_of_pairs(differences, 2 * alpha)
    return _Shift(value, interval, narrower, signed_rank_p(differences), "exact signed ranks", t.p, floor)


def _student(value: float, error: float, freedom: float, alpha: float, method: str) -> _Shift:
    """Return the shift by Student's t; without any scatter equal values have p = 1, and others no p."""
    if error <= _DIGITS:
        equal = abs(value) <= _DIGITS
        return _Shift(value, (0.0, 0.0), (0.0, 0.0), 1.0, method) if equal else _Shift(value, None, None, None, method)
    p = 2 * float(special.stdtr(freedom, -abs(value) / error))
    wide, narrow = (float(special.stdtrit(freedom, 1 - part)) * error for part in (alpha / 2, alpha))
    return _Shift(value, (value - wide, value + wide), (value - narrow, value + narrow), p, method)


def _warnings(shift: _Shift, n: int, m: int, paired: bool, confidence: float) -> List[StatisticsWarning]:
    if shift.method == "none":
        counts = f"{n} pairs" if paired else f"{n} and {m} runs"
        return [
            StatisticsWarning(
                "too-few-runs", f"{counts} are too few to tell a change from noise; make at least {FEWEST} of each"
            )
        ]
    warnings = []
    if shift.p is None or (shift.interval == (0.0, 0.0) and shift.p == 1):
        warnings.append(StatisticsWarning("no-scatter", "all runs of a side have the same value: the noise is unknown"))
    elif not shift.floor:
        warnings.append(_normal(n) if paired else _normal(n, m))
    elif shift.second is not None:
        exact = shift.p if shift.exact is None else shift.exact
        if (exact < 1 - confidence) != (shift.second < 1 - confidence):
            text = f"the exact test gives p = {exact:.3g}, a t test on the same runs p = {shift.second:.3g}"
            warnings.append(StatisticsWarning("tests-disagree", f"{text}: check the single runs"))
    return warnings


def _trend(runs: np.ndarray, side: str) -> Optional[StatisticsWarning]:
    """Runs that rise or fall one by one. Of 5 runs by chance in one of 60 cases."""
    steps = np.diff(runs)
    if len(runs) < 5 or not (np.all(steps > 0) or np.all(steps < 0)):
        return None
    way = "rise" if steps[0] > 0 else "fall"
    return StatisticsWarning(
        "drift", f"the runs of {side} {way} one by one: interleave base and new, and compare pairs"
    )


def rank_sum_floor(first: int, second: int) -> float:
    """The smallest two-sided p that samples of these sizes can give."""
    return min(1.0, 2 / math.comb(first + second, first)) if first and second else 1.0


def signed_rank_floor(pairs: int) -> float:
    """The smallest two-sided p that so many pairs can give."""
    return min(1.0, 2.0 ** (1 - pairs))


def rank_sum_p(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided p of "both samples are of one distribution"."""
    ranks = stats.rankdata(np.concatenate([first, second]))
    if len(ranks) > COUNTED:
        return float(stats.mannwhitneyu(first, second, alternative="two-sided", method="asymptotic").pvalue)
    doubled = np.rint(2 * ranks).astype(int)
    return _two_sided(_rank_sums(len(first), tuple(sorted(doubled))), int(doubled[: len(first)].sum()))


def signed_rank_p(differences: np.ndarray) -> float:
    """Two-sided p of "the differences are symmetric about 0". Those that are 0 say nothing and are left out."""
    left = differences[differences != 0]
    if not len(left):
        return 1.0
    ranks = stats.rankdata(np.abs(left))
    if len(left) > COUNTED:
        return float(stats.wilcoxon(left, correction=True).pvalue)
    doubled = np.rint(2 * ranks).astype(int)
    return _two_sided(_signed_ranks(tuple(sorted(doubled))), int(doubled[left > 0].sum()))


def shift_of_samples(first: np.ndarray, second: np.ndarray, alpha: float) -> Tuple[float, Interval]:
    """Median of all differences second - first, and the interval that holds the true shift at 1 - alpha."""
    differences = np.sort(np.subtract.outer(second, first), axis=None)
    n, m = len(first), len(second)
    if n + m <= COUNTED:
        ranks = tuple(range(2, 2 * (n + m) + 1, 2))
        ways = _rank_sums(n, ranks)[n * (n + 1) :: 2]  # by Mann and Whitney's U: rank sum less its minimum
        return float(np.median(differences)), _between(differences, _outside(ways, alpha))
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return float(np.median(differences)), _between(differences, _outside_normal(n * m / 2, spread, alpha))


def shift_of_pairs(differences: np.ndarray, alpha: float) -> Tuple[float, Interval]:
    """Median of the means of all two differences (Walsh averages), and its interval at 1 - alpha."""
    n = len(differences)
    averages = np.sort(np.add.outer(differences, differences)[np.triu_indices(n)] / 2)
    if n <= COUNTED:
        ways = _signed_ranks(tuple(range(2, 2 * n + 1, 2)))[::2]
        return float(np.median(averages)), _between(averages, _outside(ways, alpha))
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return float(np.median(averages)), _between(averages, _outside_normal(n * (n + 1) / 4, spread, alpha))


@lru_cache(maxsize=256)
def _rank_sums(size: int, doubled: Tuple[int, ...]) -> np.ndarray:
    """Probability of each sum of doubled ranks, when `size` of the ranks are drawn."""
    ways = np.zeros((size + 1, sum(doubled) + 1))
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, :-rank]
    return np.asarray(ways[size] / math.comb(len(doubled), size))


@lru_cache(maxsize=256)
def _signed_ranks(doubled: Tuple[int, ...]) -> np.ndarray:
    """Probability of each sum of the doubled ranks whose sign is plus, when a coin gives the signs."""
    ways = np.zeros(sum(doubled) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] += ways[:-rank]
        ways /= 2
    return ways


def _two_sided(probabilities: np.ndarray, seen: int) -> float:
    """Probability of a sum that is at least as far from the mean as the one that was seen."""
    sums = np.arange(len(probabilities))
    mean = float(sums @ probabilities)
    # sums are whole numbers, their mean is not counted to the last digit
    return min(1.0, float(probabilities[np.abs(sums - mean) >= abs(seen - mean) - 1e-6].sum()))


def _outside(probabilities: np.ndarray, alpha: float) -> int:
    """Return how many of the sorted differences are below the interval; 0 when no interval has the confidence."""
    return int(np.searchsorted(np.cumsum(probabilities), alpha / 2 * (1 + 1e-9), side="right"))


def _outside_normal(mean: float, spread: float, alpha: float) -> int:
    return max(0, math.floor(mean + spread * float(special.ndtri(alpha / 2))))


def _between(ordered: np.ndarray, outside: int) -> Interval:
    return (float(ordered[outside - 1]), float(ordered[-outside])) if outside else None
