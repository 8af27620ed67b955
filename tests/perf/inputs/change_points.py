"""Two methods that find change points, as their papers have them: what ours is measured against in history.py."""

from __future__ import annotations

import math
from typing import List, Tuple

import numpy as np


def pelt(values: np.ndarray, least: int = 3) -> List[int]:
    """The cuts of PELT (Killick, 2012) with squares and the penalty 3 log n, by the dynamic program that it prunes."""
    noise = float(np.median(np.abs(np.diff(values)))) / 0.6745 / math.sqrt(2)
    scaled, n = (values - values.mean()) / noise, len(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(its)]) for its in (scaled, scaled**2))
    best, last = np.full(n + 1, math.inf), np.zeros(n + 1, dtype=int)
    best[0] = -3 * math.log(n)
    for end in range(least, n + 1):
        start = np.arange(0, end - least + 1)
        cost = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
        total = best[start] + cost + 3 * math.log(n)
        last[end] = int(np.argmin(total))
        best[end] = total[last[end]]
    cuts, at = [], n
    while last[at]:
        at = int(last[at])
        cuts.append(at)
    return cuts[::-1]


def e_divisive(values: np.ndarray, start: int = 0, seed: int = 0) -> List[int]:
    """The cuts of E-divisive as its authors have it (Matteson and James, 2014): energy distances, 199 random orders."""
    if len(values) < 6:
        return []
    chance = np.random.default_rng(seed)
    apart = np.abs(np.subtract.outer(values, values))
    at, seen = _energy(apart)
    orders = (chance.permutation(len(values)) for _ in range(199))
    if sum(_energy(apart[np.ix_(its, its)])[1] >= seen for its in orders) >= 2:
        return []
    return [*e_divisive(values[:at], start, seed), start + at, *e_divisive(values[at:], start + at, seed)]


def _energy(apart: np.ndarray) -> Tuple[int, float]:
    n = len(apart)
    left = np.arange(3, n - 2)
    rows = np.tril(apart).sum(axis=1)
    before, after = np.cumsum(rows)[left - 1], np.cumsum(np.triu(apart).sum(axis=1)[::-1])[n - left - 1]
    between, right = rows.sum() - before - after, n - left
    energy = 2 * between / (left * right) - 2 * before / (left * (left - 1)) - 2 * after / (right * (right - 1))
    best = int(np.argmax(energy * left * right / n))
    return int(left[best]), float((energy * left * right / n)[best])
