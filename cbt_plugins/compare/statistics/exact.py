"""Exact tests by ranks: of two samples, of pairs, and within blocks of interleaved runs.

They assume that runs are independent. The rank sum assumes too that both sides scatter alike, which matters little with
about as many runs of both; otherwise (`UNEQUAL`) a t test that allows for another scatter must agree.
"""

from __future__ import annotations

from typing import List, Optional

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.assumption import FEWEST, RunAssumption, Shift, TwoSides, hull, no_scatter
from cbt_plugins.compare.statistics.ranks import (
    aligned_rank_p,
    rank_sum_floor,
    rank_sum_p,
    shift_of_pairs,
    shift_of_samples,
    signed_rank_floor,
    signed_rank_p,
)
from cbt_plugins.compare.statistics.run_order import blocks_floor, of_blocks, within_blocks
from cbt_plugins.compare.statistics.student import PairedT, WelchT, student_shift
from cbt_plugins.compare.statistics.verdicts import Estimate, StatisticsWarning

#: one side has at least so many times the runs of the other: ranks may take another scatter for a change
UNEQUAL = 1.5


class Ranks(RunAssumption):
    """Runs of any distribution: order statistics, and exact tests whose smallest p is half of alpha at most."""

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        n, ordered = len(values), np.sort(values)
        ways = special.bdtr(np.arange(n), n, 0.5)
        outside = int(np.searchsorted(ways, (1 - confidence) / 2 * (1 + 1e-9), side="right"))
        if not outside:
            return None
        ends = float(ordered[outside - 1]), float(ordered[-outside])
        return Estimate(float(np.median(values)), *ends, n, confidence)

    def warnings(self, shift: Shift, sides: TwoSides) -> List[StatisticsWarning]:
        unknown = no_scatter(shift, sides)
        if unknown or shift.second is None or shift.p is None:
            return unknown
        exact = shift.p if shift.exact is None else shift.exact
        alpha = 1 - sides.base.confidence
        if (exact < alpha) == (shift.second < alpha):
            return []
        text = f"the exact test gives p = {exact:.3g}, a t test on the same runs p = {shift.second:.3g}"
        return [StatisticsWarning("tests-disagree", f"{text}: check the single runs")]


class ExactPairs(Ranks):
    """Pairs: Wilcoxon's signed ranks."""

    def applies(self, data: TwoSides) -> bool:
        return data.pairs is not None and signed_rank_floor(len(data.pairs)) <= data.alpha / 2

    def shift(self, sides: TwoSides) -> Shift:
        pairs, t = sides.pairs, PairedT().shift(sides)
        assert pairs is not None
        value, interval = shift_of_pairs(pairs, sides.alpha)
        _, narrower = shift_of_pairs(pairs, 2 * sides.alpha)
        floor = signed_rank_floor(len(pairs))
        exact = Shift(value, interval, narrower, signed_rank_p(pairs), "exact signed ranks", t.p, floor)
        return _with_ties(exact, t) if _has_ties(pairs) else exact


class ExactBlocks(Ranks):
    """Blocks of interleaved runs: aligned ranks, with the interval of the t of blocks."""

    def applies(self, data: TwoSides) -> bool:
        return bool(data.run_blocks) and data.pairs is None

    def shift(self, sides: TwoSides) -> Shift:
        x, y, run_blocks = sides.x, sides.y, sides.run_blocks
        unequal = _unequal(sides)
        change = (of_blocks if unequal else within_blocks)(x, y, run_blocks, sides.least)
        t = student_shift(*change, sides.alpha, "t of blocks")
        p = aligned_rank_p(x, y, run_blocks)
        exact = t._replace(p=p, method="exact aligned ranks", second=t.p, floor=blocks_floor(run_blocks))
        return _both(exact, t) if unequal else exact


class ExactRanks(Ranks):
    """Runs of two sides: the rank sum of Wilcoxon, Mann and Whitney."""

    def applies(self, data: TwoSides) -> bool:
        floor = rank_sum_floor(len(data.first), len(data.second))
        return data.pairs is None and data.fewer >= FEWEST and floor <= data.alpha / 2

    def shift(self, sides: TwoSides) -> Shift:
        x, y, t = sides.x, sides.y, WelchT().shift(sides)
        value, interval = shift_of_samples(x, y, sides.alpha)
        _, narrower = shift_of_samples(x, y, 2 * sides.alpha)
        floor = rank_sum_floor(len(x), len(y))
        exact = Shift(value, interval, narrower, rank_sum_p(x, y), "exact rank sum", t.p, floor)
        if _unequal(sides):
            return _both(exact, t)
        return _with_ties(exact, t) if _has_ties(x, y) else exact


def _has_ties(*values: np.ndarray) -> bool:
    every = np.concatenate(values)
    return len(np.unique(every)) < len(every)


def _with_ties(exact: Shift, t: Shift) -> Shift:
    """Return the shift with intervals that both tests support.

    Ranks of runs that are equal do not tell how far apart the other runs are: if most runs of both sides are 0, the
    interval of ranks is (0, 0), however long the outages of some runs of one side were. But that 0 is outside of the
    interval is decided by the exact test: the end next to 0 stays.
    """
    wide = hull(exact.interval, t.interval)
    if wide and exact.interval:
        low, high = exact.interval
        wide = (low if low > 0 else wide[0], high if high < 0 else wide[1])
    narrower = hull(exact.narrower, t.narrower)
    return exact._replace(interval=wide or exact.interval, narrower=narrower or exact.narrower)


def _unequal(sides: TwoSides) -> bool:
    return max(len(sides.first), len(sides.second)) >= UNEQUAL * sides.fewer


def _both(exact: Shift, t: Shift) -> Shift:
    """Return the shift that both tests support: the larger p, and intervals that hold both."""
    if t.p is None or exact.p is None:
        return exact
    wide, narrow = hull(exact.interval, t.interval), hull(exact.narrower, t.narrower)
    names = f"{exact.method} and {t.method}"
    return exact._replace(interval=wide, narrower=narrow, method=names, p=max(exact.p, t.p), exact=exact.p)
