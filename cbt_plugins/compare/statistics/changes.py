"""Change points: where the level of many runs in a row changed, one number per run.

E-divisive (Matteson and James, 2014): the sequence is cut where the energy distance of the two parts is largest. The
cut counts when hardly any random order of the same runs has one as large, and then both parts are looked at likewise.
Two changes to it: distances are those of ranks, so that single runs that went wrong weigh little; and in the end each
change point must hold in an exact rank sum test of the runs between its neighbours (as in Hunter's second step).

Runs must be independent. The seconds of a run are not: they would be full of change points.
"""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple, Union

import numpy as np
from scipy import stats

from cbt_plugins.compare.statistics.runs import rank_sum_p
from cbt_plugins.compare.statistics.verdicts import ChangePoint

#: runs that a level has at least
SHORTEST = 3
#: random orders, as multiples of 1 / alpha
_ORDERS = 5


def change_points(values: Union[Sequence[float], np.ndarray], alpha: float = 0.01, seed: int = 0) -> List[ChangePoint]:
    """The change points of a sequence of runs, in order. Values that are not finite are passed over.

    `alpha` is the chance of finding any in a sequence that has none. Time and memory grow with the square of the number
    of runs. ValueError when alpha is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha}")
    runs = np.asarray(values, dtype=float)
    places = np.flatnonzero(np.isfinite(runs))
    known = runs[places]
    chance = np.random.default_rng(seed)
    found = sorted(_cuts(known, 0, len(known), alpha, chance))
    while found:
        edges = [0, *(cut for cut, _ in found), len(known)]
        weak = [
            rank_sum_p(known[edges[i] : edges[i + 1]], known[edges[i + 1] : edges[i + 2]]) for i in range(len(found))
        ]
        worst = int(np.argmax(weak))
        if weak[worst] < alpha:
            break
        del found[worst]
    edges = [0, *(cut for cut, _ in found), len(known)]
    levels = [float(np.median(known[start:end])) for start, end in zip(edges, edges[1:]) if end > start]
    return [ChangePoint(int(places[cut]), p, levels[i], levels[i + 1]) for i, (cut, p) in enumerate(found)]


def _cuts(
    known: np.ndarray, start: int, end: int, alpha: float, chance: np.random.Generator
) -> List[Tuple[int, float]]:
    if end - start < 2 * SHORTEST:
        return []
    ranks = stats.rankdata(known[start:end])
    distances = np.abs(np.subtract.outer(ranks, ranks))
    at, seen = _largest(distances)
    orders = math.ceil(_ORDERS / alpha) - 1
    beyond, allowed = 0, alpha * (orders + 1) - 1
    for _ in range(orders):
        order = chance.permutation(end - start)
        beyond += _largest(distances[np.ix_(order, order)])[1] >= seen * (1 - 1e-9)
        if beyond > allowed:
            return []
    cut = _placed(known, start, start + at, end)
    return [
        (cut, (beyond + 1) / (orders + 1)),
        *_cuts(known, start, cut, alpha, chance),
        *_cuts(known, cut, end, alpha, chance),
    ]


def _placed(known: np.ndarray, start: int, cut: int, end: int) -> int:
    """The cut, or one near it where values are nearest to both medians: ranks do not see how wide a gap is."""

    def misfit(place: int) -> float:
        return sum(float(np.abs(part - np.median(part)).sum()) for part in (known[start:place], known[place:end]))

    near = range(max(start + SHORTEST, cut - SHORTEST), min(end - SHORTEST, cut + SHORTEST) + 1)
    return min(near, key=misfit)


def _largest(distances: np.ndarray) -> Tuple[int, float]:
    """The cut with the largest energy distance of what is before and after it, weighted by their sizes, and that."""
    n = len(distances)
    sizes = np.arange(SHORTEST, n - SHORTEST + 1)
    rows = np.tril(distances).sum(axis=1)
    before = np.cumsum(rows)[sizes - 1]
    after = np.cumsum(np.triu(distances).sum(axis=1)[::-1])[n - sizes - 1]
    between = rows.sum() - before - after
    left, right = sizes, n - sizes
    energy = 2 * between / (left * right) - 2 * before / (left * (left - 1)) - 2 * after / (right * (right - 1))
    weighted = energy * left * right / n
    best = int(np.argmax(weighted))
    return int(sizes[best]), float(weighted[best])
