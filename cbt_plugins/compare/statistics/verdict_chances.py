"""The verdicts that a number of runs gives: the rules of this package, tried on random runs (seeded).

Runs are lognormal: `scatter` is the standard deviation of their logarithms, which for a few percent is their
coefficient of variation. For campaigns and `pr`: `outlook` and `detectable` of sequential.py.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple, Optional, Tuple

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.ranks import rank_sum_floor, signed_rank_floor
from cbt_plugins.compare.statistics.runs import compare_runs
from cbt_plugins.compare.statistics.verdicts import Verdict, decide_verdicts
from cbt_plugins.metrics import ALPHA, MARGIN, Direction

ROUNDS = 1000


def smallest_p(base: int, new: int, paired: bool = False) -> float:
    """Return the smallest two-sided p that an exact test of so many runs (or of `base` pairs) can give."""
    return signed_rank_floor(base) if paired else rank_sum_floor(base, new)


@dataclass(frozen=True)
class Campaign:
    """How runs scatter, how they are made, and how they are judged."""

    scatter: float
    #: the smallest change that matters
    margin: float = MARGIN
    #: one of base and one of new belong together
    paired: bool = False
    #: the level changes by this much, steadily, while all runs are made in turns (base, new, base, new, ...)
    drift: float = 0.0
    #: length of a table in which nothing else has changed
    rows: int = 1
    alpha: float = ALPHA


class Chances(NamedTuple):
    """How often each verdict is given on a true change; together 1."""

    found: float  # better or worse
    small: float  # equivalent, and said to differ
    equivalent: float  # equivalent, and no more
    inconclusive: float

    def true(self, change: float, margin: float) -> float:
        """Return the probability of a true verdict: of less than the margin, but not 0, each of the first three is."""
        chance = self.found + self.small * (abs(change) < margin) if change else 0.0
        return chance + self.equivalent * (abs(change) < margin)


def chances(runs: int, change: float, campaign: Campaign, rounds: int = ROUNDS, seed: int = 0) -> Chances:
    """Return the probability of each verdict on a relative change with so many runs (or pairs) on each side.

    Random runs go through `compare_runs` and `decide_verdicts`.
    """
    chance = np.random.default_rng(seed)
    slope = np.linspace(0, math.log1p(campaign.drift), 2 * runs)
    base = np.exp(chance.normal(0, campaign.scatter, (rounds, runs)) + slope[::2])
    new = np.exp(chance.normal(math.log1p(change), campaign.scatter, (rounds, runs)) + slope[1::2])
    unchanged = compare_runs([1.0, 1.1, 0.9], [1.0, 1.1, 0.9], confidence=1 - campaign.alpha)
    counts: Counter[Tuple[Verdict, bool]] = Counter()
    for a, b in zip(base, new):
        table = dict.fromkeys(range(campaign.rows), unchanged)
        table[0] = compare_runs(a, b, campaign.paired, 1 - campaign.alpha)
        comparison = decide_verdicts(table, dict.fromkeys(table, Direction.HIGHER), campaign.margin, campaign.alpha)[0]
        counts[comparison.verdict or Verdict.INCONCLUSIVE, bool(comparison.differs)] += 1
    small, equivalent = (counts[Verdict.EQUIVALENT, differs] / rounds for differs in (True, False))
    decided = (counts[Verdict.BETTER, True] + counts[Verdict.WORSE, True]) / rounds
    return Chances(decided, small, equivalent, 1 - decided - small - equivalent)


def minimum_runs(
    change: float, campaign: Campaign, wanted: float = 0.8, most: int = 50, rounds: int = ROUNDS
) -> Optional[int]:
    """Return the fewest runs on each side that give a true verdict in the part `wanted`; None beyond `most`."""
    low, high = 3, most + 1
    while low < high:
        middle = (low + high) // 2
        enough = chances(middle, change, campaign, rounds).true(change, campaign.margin) >= wanted
        low, high = (low, middle) if enough else (middle + 1, high)
    return low if low <= most else None


def gate_false_alarms(limit: float, scatter: float) -> float:
    """Return the probability of a false alarm of a gate of one run on one run, which fails below (1 - limit) x base."""
    return float(special.ndtr(math.log1p(-limit) / (scatter * math.sqrt(2))))
