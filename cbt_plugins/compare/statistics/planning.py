"""The power of a number of runs: the rules of this package, tried on random runs (seeded).

Runs are lognormal: `scatter` is the standard deviation of their logarithms, which for a few percent is their
coefficient of variation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

import numpy as np
from scipy import special, stats

from cbt_plugins.compare.statistics.runs import rank_sum_floor, rank_sum_p, signed_rank_floor, signed_rank_p

ROUNDS = 4000


def smallest_p(base: int, new: int, paired: bool = False) -> float:
    """Return the smallest two-sided p that an exact test of so many runs (or of `base` pairs) can give."""
    return signed_rank_floor(base) if paired else rank_sum_floor(base, new)


@dataclass(frozen=True)
class Campaign:
    """How runs scatter, how they are made, and how they are judged."""

    scatter: float
    #: one of base and one of new belong together
    paired: bool = False
    #: the level changes by this much, steadily, while all runs are made in turns (base, new, base, new, ...)
    drift: float = 0.0
    #: length of a table in which nothing else has changed
    rows: int = 1
    alpha: float = 0.05


def power(runs: int, change: float, campaign: Campaign, rounds: int = ROUNDS, seed: int = 0) -> float:
    """Return how often a relative change is found (as better or worse) with so many runs on each side.

    `change` 0: how often one is found that is not there.
    """
    chance = np.random.default_rng(seed)
    slope = np.linspace(0, math.log1p(campaign.drift), 2 * runs)
    base = chance.normal(0, campaign.scatter, (rounds, runs)) + slope[::2]
    new = chance.normal(math.log1p(change), campaign.scatter, (rounds, runs)) + slope[1::2]
    alpha, rows = campaign.alpha, campaign.rows
    found = _found_pairs(new - base, alpha, rows) if campaign.paired else _found(base, new, alpha, rows)
    return float(found.mean())


def minimum_runs(change: float, campaign: Campaign, wanted: float = 0.8, most: int = 50) -> Optional[int]:
    """Return the fewest runs on each side that find a change with at least the power `wanted`; None beyond `most`."""
    return next((runs for runs in range(3, most + 1) if power(runs, change, campaign) >= wanted), None)


def gate_false_alarms(limit: float, scatter: float) -> float:
    """Return how often a gate fails by chance that compares one run with one run and fails below (1 - limit) x base."""
    return float(special.ndtr(math.log1p(-limit) / (scatter * math.sqrt(2))))


def _found(base: np.ndarray, new: np.ndarray, alpha: float, rows: int) -> np.ndarray:
    n = base.shape[1]
    parts = base.var(axis=1, ddof=1) / n, new.var(axis=1, ddof=1) / n
    error = np.sqrt(parts[0] + parts[1])
    freedom = error**4 / ((parts[0] ** 2 + parts[1] ** 2) / (n - 1))
    t = 2 * special.stdtr(freedom, -np.abs(new.mean(axis=1) - base.mean(axis=1)) / error)
    floor = rank_sum_floor(n, n)
    if floor > alpha / 2:
        return np.asarray(t < alpha / rows)
    sums = stats.rankdata(np.concatenate([base, new], axis=1), axis=1)[:, :n].sum(axis=1)
    _, examples, which = np.unique(sums, return_index=True, return_inverse=True)
    p = np.asarray([rank_sum_p(base[i], new[i]) for i in examples])[which]
    return _by(p, t, floor, alpha, rows)


def _found_pairs(differences: np.ndarray, alpha: float, rows: int) -> np.ndarray:
    n = differences.shape[1]
    error = differences.std(axis=1, ddof=1) / math.sqrt(n)
    t = 2 * special.stdtr(n - 1, -np.abs(differences.mean(axis=1)) / error)
    floor = signed_rank_floor(n)
    if floor > alpha / 2:
        return np.asarray(t < alpha / rows)
    sums = (stats.rankdata(np.abs(differences), axis=1) * (differences > 0)).sum(axis=1)
    _, examples, which = np.unique(sums, return_index=True, return_inverse=True)
    p = np.asarray([signed_rank_p(differences[i]) for i in examples])[which]
    return _by(p, t, floor, alpha, rows)


def _by(p: np.ndarray, t: np.ndarray, floor: float, alpha: float, rows: int) -> np.ndarray:
    """The rule of a table (statistics.verdicts) for its only row with a change."""
    return np.asarray((p < alpha) & (t < alpha / rows) if floor * rows > alpha else p < alpha / rows)
