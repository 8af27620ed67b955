"""The arithmetic of ranks: sums of two samples (Wilcoxon, Mann and Whitney), signs of pairs (Wilcoxon), both with ties.

Probabilities are counted over all ways to deal out the ranks, or their signs. The estimates are those of Hodges and
Lehmann (1963), the intervals are the tests' inverse. Beyond `COUNTED` values the counts are replaced by the normal
approximation with its correction for ties.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Optional, Sequence, Tuple

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.run_order import Block, aligned, convolved, ranks_of

Interval = Optional[Tuple[float, float]]
#: values up to which probabilities are counted
COUNTED = 100


def rank_sum_floor(first: int, second: int) -> float:
    """Return the smallest two-sided p that samples of these sizes can give."""
    return min(1.0, 2 / math.comb(first + second, first)) if first and second else 1.0


def signed_rank_floor(pairs: int) -> float:
    """Return the smallest two-sided p that so many pairs can give."""
    return min(1.0, 2.0 ** (1 - pairs))


def rank_sum_p(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of "both samples are of one distribution"."""
    ranks = ranks_of(np.concatenate([first, second]))
    if len(ranks) > COUNTED:
        variance = len(first) * len(second) / (len(ranks) - 1) * float(np.var(ranks))
        return _two_sided_normal(float(ranks[: len(first)].sum()), len(first) * float(ranks.mean()), variance)
    doubled = np.rint(2 * ranks).astype(int)
    return _two_sided(_rank_sums(len(first), tuple(sorted(doubled))), int(doubled[: len(first)].sum()))


def signed_rank_p(differences: np.ndarray) -> float:
    """Return the two-sided p of "the differences are symmetric about 0"; differences of 0 are left out."""
    left = differences[differences != 0]
    if not len(left):
        return 1.0
    ranks = ranks_of(np.abs(left))
    if len(left) > COUNTED:
        return _two_sided_normal(float(ranks[left > 0].sum()), float(ranks.sum()) / 2, float(ranks @ ranks) / 4)
    doubled = np.rint(2 * ranks).astype(int)
    return _two_sided(_signed_ranks(tuple(sorted(doubled))), int(doubled[left > 0].sum()))


def aligned_rank_p(x: np.ndarray, y: np.ndarray, run_blocks: Sequence[Block]) -> float:
    """Return the two-sided p of "both sides are of one distribution in each block", by aligned ranks."""
    ranks, sizes = aligned(x, y, run_blocks)
    ways = convolved([_rank_sums(size, tuple(sorted(block_ranks))) for block_ranks, size in zip(ranks, sizes)])
    return _two_sided(ways, sum(int(block_ranks[:size].sum()) for block_ranks, size in zip(ranks, sizes)))


def shift_of_samples(first: np.ndarray, second: np.ndarray, alpha: float) -> Tuple[float, Interval]:
    """Return the median of all differences second - first, and the interval that holds the true shift at 1 - alpha."""
    differences = np.sort(np.subtract.outer(second, first), axis=None)
    n, m = len(first), len(second)
    if n + m <= COUNTED:
        ranks = tuple(range(2, 2 * (n + m) + 1, 2))
        ways = _rank_sums(n, ranks)[n * (n + 1) :: 2]  # by Mann and Whitney's U: rank sum less its minimum
        return float(np.median(differences)), _between(differences, _outside(ways, alpha))
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return float(np.median(differences)), _between(differences, _outside_normal(n * m / 2, spread, alpha))


def shift_of_pairs(differences: np.ndarray, alpha: float) -> Tuple[float, Interval]:
    """Return the median of the means of all two differences (Walsh averages), and its interval at 1 - alpha."""
    n = len(differences)
    averages = np.sort(np.add.outer(differences, differences)[np.triu_indices(n)] / 2)
    if n <= COUNTED:
        ways = _signed_ranks(tuple(range(2, 2 * n + 1, 2)))[::2]
        return float(np.median(averages)), _between(averages, _outside(ways, alpha))
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return float(np.median(averages)), _between(averages, _outside_normal(n * (n + 1) / 4, spread, alpha))


@lru_cache(maxsize=256)
def _rank_sums(size: int, doubled: Tuple[int, ...]) -> np.ndarray:
    """Return the probability of each sum of doubled ranks, when `size` of the ranks are drawn."""
    ways = np.zeros((size + 1, sum(doubled) + 1))
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, :-rank]
    return np.asarray(ways[size] / math.comb(len(doubled), size))


@lru_cache(maxsize=256)
def _signed_ranks(doubled: Tuple[int, ...]) -> np.ndarray:
    """Return the probability of each sum of the doubled ranks whose sign is plus, when a coin gives the signs."""
    ways = np.zeros(sum(doubled) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] += ways[:-rank]
        ways /= 2
    return ways


def _two_sided(probabilities: np.ndarray, seen: int) -> float:
    """Return the probability of a sum at least as far from the mean as `seen`."""
    sums = np.arange(len(probabilities))
    mean = float(sums @ probabilities)
    # sums are whole numbers, their mean is not counted to the last digit
    return min(1.0, float(probabilities[np.abs(sums - mean) >= abs(seen - mean) - 1e-6].sum()))


def _two_sided_normal(seen: float, mean: float, variance: float) -> float:
    """Return `_two_sided` of a sum of ranks by the normal distribution, with the correction for whole numbers.

    Not by scipy.stats, which takes a second to import. The variance of the ranks themselves corrects for ties.
    """
    far = max(0.0, abs(seen - mean) - 0.5)
    return 2 * float(special.ndtr(-far / math.sqrt(variance))) if variance else 1.0


def _outside(probabilities: np.ndarray, alpha: float) -> int:
    """Return the number of sorted differences below the interval; 0 when no interval has the confidence."""
    return int(np.searchsorted(np.cumsum(probabilities), alpha / 2 * (1 + 1e-9), side="right"))


def _outside_normal(mean: float, spread: float, alpha: float) -> int:
    return max(0, math.floor(mean + spread * float(special.ndtri(alpha / 2))))


def _between(ordered: np.ndarray, outside: int) -> Interval:
    return (float(ordered[outside - 1]), float(ordered[-outside])) if outside else None
