"""The order in which the runs of both sides were made, and what it does to their comparison.

Runs are independent only if nothing changes while they are made. Where one side was made after the other, a drift of
the cluster looks like a change, and so does a slow wandering (correlated runs). Where sides were interleaved, both hit
either side alike.

`exact.ExactBlocks` compares within blocks; `order_warnings` looks at other runs for drift; `compare.sides` warns of
sides that were not interleaved.

- **Interleaved**: the sequence is cut into blocks that have both sides in the same proportion as the whole, or nearly
  so where runs are missing. Runs are compared within their block (a randomized block design; Fisher, The Design of
  Experiments, 1935). Blocks of one pair are Wilcoxon's signed ranks; others are the aligned rank test of Hodges and
  Lehmann (1962): the mean of its block is taken from each run, and the rank sum of all is compared with that of every
  way to deal out the sides within blocks.
- **One after the other**: lines of one slope are fitted to both sides (analysis of covariance; Fisher 1932), and the
  ratio of von Neumann (1941) of what is left of each side's mean says whether neighbours resemble each other.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.verdicts import StatisticsWarning

#: fewer runs of a side, or of both, show no drift
FEWEST, FEWEST_OF_BOTH = 3, 8
#: a drift with a p below this counts as seen: few runs show little, and a change can be asked to hold without it
SEEN = 0.35
#: chance of a false "correlated"
ALPHA = 0.05
#: random orders for the ratio of von Neumann
_ORDERS = 1999

#: a larger share of pairs (a base run, a new one) in one order: one side was made after the other
ONE_SIDE_FIRST = 0.75
#: runs of one side, of as many as the other has, without one of the other between them: ABBA has two
IN_TURN = 2

Times = Union[Sequence[float], np.ndarray]
Block = Tuple[np.ndarray, np.ndarray]  # indices of the base's runs and of the new ones


class Line(NamedTuple):
    """Two lines of one slope through both sides, one made after the other."""

    drift: float  # from the first run to the last
    p: float  # of "there is no drift"
    change: float  # new - base, with the drift taken out
    change_p: float
    error: float  # standard error of the change
    freedom: float

    def interval(self, alpha: float) -> Tuple[float, float]:
        """Return the interval of the change at the confidence 1 - alpha."""
        reach = float(special.stdtrit(self.freedom, 1 - alpha / 2)) * self.error
        return self.change - reach, self.change + reach


def blocks(base: Times, new: Times) -> List[Block]:
    """Return the blocks of interleaved runs by their times; one block: they are not interleaved.

    Where runs are missing, no cut leaves the proportion of the whole: a cut may be off by one run then.
    """
    exact = _cut(base, new, 0)
    return exact if len(exact) > 1 or one_after_other(base, new) else _cut(base, new, max(len(base), len(new)))


def _cut(base: Times, new: Times, most: int) -> List[Block]:
    """Return the blocks, cut where the imbalance (base runs / all of them - the same of new ones) * n * m is at most
    `most`."""
    n, m = len(base), len(new)
    block_places: List[List[int]] = [[]]
    balance = 0
    for place in np.argsort(np.concatenate([base, new]), kind="stable"):
        if _both(block_places[-1], n) and abs(balance) <= most:
            block_places.append([])
        block_places[-1].append(int(place))
        balance += m if place < n else -n
    if len(block_places) > 1 and not _both(block_places[-1], n):
        block_places[-2:] = [block_places[-2] + block_places[-1]]
    parts = [np.asarray(places) for places in block_places]
    return [(places[places < n], places[places >= n] - n) for places in parts]


def _both(block: Sequence[int], n: int) -> bool:
    """Return whether a block has runs of both sides."""
    return any(place < n for place in block) and any(place >= n for place in block)


def one_after_other(base: Times, new: Times, within: Sequence[Block] = ()) -> bool:
    """Return whether nearly all runs of one side were made before those of the other, by the pairs of both sides.

    `within`: within these blocks.
    """
    base, new = np.asarray(base), np.asarray(new)
    earlier = [base[a][:, None] < new[b] for a, b in within or [(np.arange(len(base)), np.arange(len(new)))]]
    before = sum(int(pairs.sum()) for pairs in earlier) / sum(pairs.size for pairs in earlier)
    return max(before, 1 - before) > ONE_SIDE_FIRST


def in_groups(base: Times, new: Times) -> bool:
    """Return whether more runs of one side than IN_TURN were made without one of the other between them.

    Of a side that has several times as many runs, as many times more.
    """
    counts = np.asarray([len(base), len(new)])
    sides = (np.argsort(np.concatenate([base, new]), kind="stable") >= len(base)).astype(int)
    begins = np.asarray([0, *(np.flatnonzero(np.diff(sides)) + 1)])
    most = IN_TURN * np.maximum(1, np.rint(counts / counts[::-1]))
    return bool((np.diff([*begins, len(sides)]) > most[sides[begins]]).any())


def blocks_floor(run_blocks: Sequence[Block]) -> float:
    """Return the smallest two-sided p that a test within the blocks can give."""
    return min(1.0, 2 / math.prod(math.comb(len(a) + len(b), len(a)) for a, b in run_blocks))


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values from 1 on; equal values have the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def aligned(x: np.ndarray, y: np.ndarray, run_blocks: Sequence[Block]) -> Tuple[List[np.ndarray], List[int]]:
    """Return the doubled ranks of all runs of each block less its mean, the base's first, and how many those are."""
    parts = [np.concatenate([x[a], y[b]]) for a, b in run_blocks]
    ranks = np.rint(2 * ranks_of(np.concatenate([part - part.mean() for part in parts]))).astype(int)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(ranks, ends), [len(a) for a, _ in run_blocks]


def convolved(distributions: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distribution of the sum of independent whole numbers, each with its own."""
    return reduce(np.convolve, distributions)


def within_blocks(
    x: np.ndarray, y: np.ndarray, run_blocks: Sequence[Block], least: float = 0.0
) -> Tuple[float, float, float]:
    """Return new - base, its standard error and degrees of freedom: least squares with an effect of each block.

    Montgomery, Design and Analysis of Experiments, chapter 4. With blocks of one pair it is the paired t. `least`: the
    scatter of runs is taken as so much at least.
    """
    weights = np.asarray([len(a) * len(b) / (len(a) + len(b)) for a, b in run_blocks])
    apart = np.asarray([y[b].mean() - x[a].mean() for a, b in run_blocks])
    change = float(weights @ apart / weights.sum())
    total = sum(float(((np.concatenate([x[a], y[b]]) - _mean(x[a], y[b])) ** 2).sum()) for a, b in run_blocks)
    freedom = len(x) + len(y) - len(run_blocks) - 1
    left = max(least**2 * freedom, total - change**2 * float(weights.sum()))
    return change, math.sqrt(left / freedom / float(weights.sum())), float(freedom)


def of_blocks(
    x: np.ndarray, y: np.ndarray, run_blocks: Sequence[Block], least: float = 0.0
) -> Tuple[float, float, float]:
    """Return new - base, its standard error and degrees of freedom, by the differences of the blocks.

    It also holds if one side scatters more. `least`: as in `within_blocks`.
    """
    apart = np.asarray([y[b].mean() - x[a].mean() for a, b in run_blocks])
    variance = float(np.mean([1 / len(a) + 1 / len(b) for a, b in run_blocks])) * least**2
    scatter = math.sqrt(max(float(apart.var(ddof=1)), variance))
    return float(apart.mean()), scatter / math.sqrt(len(run_blocks)), len(run_blocks) - 1.0


def _mean(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.concatenate([first, second]).mean())


def line(x: np.ndarray, y: np.ndarray, times: Tuple[Times, Times]) -> Optional[Line]:
    """Return the lines of one slope through both sides in the order of time; None for too few runs."""
    n, m = len(x), len(y)
    if min(n, m) < FEWEST or n + m < FEWEST_OF_BOTH:
        return None
    places = np.argsort(np.argsort(np.concatenate(times), kind="stable"), kind="stable")
    apart = float(places[n:].mean() - places[:n].mean())
    first, second = places[:n] - places[:n].mean(), places[n:] - places[n:].mean()
    spread = float(first @ first + second @ second)
    slope = float(first @ x + second @ y) / spread
    left = float(((x - x.mean() - slope * first) ** 2).sum() + ((y - y.mean() - slope * second) ** 2).sum())
    freedom = n + m - 3
    variance = left / freedom
    change = float(y.mean() - x.mean()) - slope * apart
    if not variance:
        return None
    errors = [math.sqrt(variance * part) for part in (1 / spread, 1 / n + 1 / m + apart**2 / spread)]
    p, change_p = (
        2 * float(special.stdtr(freedom, -abs(value) / error)) for value, error in zip((slope, change), errors)
    )
    return Line(slope * (n + m - 1), p, change, change_p, errors[1], freedom)


def resembling_p(x: np.ndarray, y: np.ndarray) -> Optional[float]:
    """Return the p of "neighbours in time resemble each other no more than any two runs of a side"; None: too few runs.

    The squares of the steps from run to run, by random orders of each side.
    """
    if min(len(x), len(y)) < FEWEST or len(x) + len(y) < FEWEST_OF_BOTH:
        return None
    chance = np.random.default_rng(0)
    seen, random = 0.0, np.zeros(_ORDERS)
    for side in (x, y):
        seen += float((np.diff(side) ** 2).sum())
        random += (np.diff(chance.permuted(np.tile(side, (_ORDERS, 1)), axis=1), axis=1) ** 2).sum(axis=1)
    return (1 + int((random <= seen * (1 + 1e-9)).sum())) / (_ORDERS + 1)


def seen_drift(
    sides: Tuple[np.ndarray, np.ndarray], when: Tuple[np.ndarray, np.ndarray], run_blocks: Sequence[Block]
) -> Optional[Line]:
    """Return the lines through both sides if one was made after the other and they show a drift; else None."""
    (x, y), times = _with_times(sides, when)
    if not len(x) or not len(y) or not one_after_other(*times, run_blocks):
        return None
    fitted = line(x, y, times)
    return fitted if fitted and fitted.p < SEEN else None


def _with_times(
    sides: Tuple[np.ndarray, np.ndarray], when: Tuple[np.ndarray, np.ndarray]
) -> Tuple[Tuple[np.ndarray, np.ndarray], Tuple[np.ndarray, np.ndarray]]:
    """Return the runs of both sides whose times are known, and these times."""
    seen = [np.isfinite(at) for at in when]
    return (sides[0][seen[0]], sides[1][seen[1]]), (when[0][seen[0]], when[1][seen[1]])


def order_warnings(
    sides: Tuple[np.ndarray, np.ndarray],
    when: Tuple[np.ndarray, np.ndarray],
    alpha: float,
    run_blocks: List[Block],
    shown: Callable[[float], str],
) -> Iterator[StatisticsWarning]:
    """Yield warnings against a change by the order of the runs, where they were not made in turns.

    `shown` returns a shift on the scale of the sides as people read it.
    """
    drift, runs = seen_drift(sides, when, run_blocks), sum(map(len, sides))
    (x, y), when = _with_times(sides, when)
    lost = runs - len(x) - len(y)
    if lost:
        text = f"{lost} of {runs} runs have no start time: only the order of the other runs was checked"
        yield StatisticsWarning("order-unknown", text)
    if not len(x) or not len(y) or not (in_groups(*when) or one_after_other(*when)):
        return
    p = resembling_p(*(values[np.argsort(at, kind="stable")] for values, at in zip((x, y), when)))
    if drift:
        text = f"the runs drift by about {shown(drift.drift)} in all"
        if drift.change_p >= alpha:
            text += f", and the change may be that drift (with it taken out p is {drift.change_p:.2g}): interleave"
            yield StatisticsWarning("drift-of-runs", text)
        else:
            text += f": the interval includes the change without the drift ({shown(drift.change)}): interleave"
            yield StatisticsWarning("drift", text)
    if p is not None and p < ALPHA:
        text = "runs resemble those before and after them, so their scatter does not say how far sides differ by chance"
        yield StatisticsWarning("correlated-runs", f"{text} (p = {p:.2g}): interleave")


def trend_warnings(base: np.ndarray, new: np.ndarray) -> Iterator[StatisticsWarning]:
    """Yield warnings of sides whose runs rise or fall one by one: of 5 runs by chance in one of 60 cases."""
    for side, runs in (("base", base), ("new", new)):
        steps = np.diff(runs)
        if len(runs) >= 5 and (np.all(steps > 0) or np.all(steps < 0)):
            way = "rise" if steps[0] > 0 else "fall"
            text = f"the runs of {side} {way} one by one: interleave base and new, and compare pairs"
            yield StatisticsWarning("drift", text)
