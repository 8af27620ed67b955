"""How often change points of a history are wrong: false alarms, and planted changes that are found, seeded.

Prints the tables of docs/STATISTICS.md as Markdown.
Usage: ./run bench history [TABLE ...], of those that it names when one is unknown
"""

from __future__ import annotations

import sys
from typing import Callable, Dict, List, Optional

import numpy as np
from inputs.chance import RUNS, TABLES, Noise, print_tables, series, show
from inputs.change_points import e_divisive, pelt

from cbt_plugins.compare.statistics import alpha_of_budget, change_points


def changes() -> None:
    """Change points: sequences of 40 runs with any, of those without change, and those that have the planted one."""
    noises = {**RUNS, **{f"autocorrelation of runs {lag}": _alike(lag) for lag in (0.3, 0.6)}}
    lines: List[List[object]] = [[f"none; {name}", _with_points(noise, 0, None)] for name, noise in noises.items()]
    noise = RUNS["normal, 2 %"]
    lines += [
        [f"{change:.0%} lower from run {at} on; normal, 2 %", _with_points(noise, change, at)]
        for change in (0.02, 0.04, 0.06)
        for at in (20, 35)
    ]
    show(["planted; noise", "found"], lines)


def _alike(lag: float) -> Noise:
    return lambda chance, n: series(chance, n, lag)


def _with_points(noise: Noise, change: float, at: Optional[int], rounds: int = TABLES) -> float:
    hits = 0
    for seed in range(rounds):
        values = noise(np.random.default_rng(seed), 40)
        if at is None:
            hits += bool(change_points(values, seed=seed))
        else:
            values[at:] *= 1 - change
            hits += any(abs(point.index - at) <= 2 for point in change_points(values, seed=seed))
    return hits / rounds


def nights() -> None:
    """Histories of noise, looked at after each of 60 nights: those with any change point, and alarms a year."""
    lines: List[List[object]] = []
    rounds = TABLES // 2
    for lag in (0.0, 0.3):
        for name, alpha in (("alpha 0.05 a look", 0.05), ("1 false alarm a year", alpha_of_budget(1, 365.25))):
            alarms = sum(_alarmed(series(np.random.default_rng(seed), 60, lag, 0.02), alpha) for seed in range(rounds))
            lines.append([f"{name}, autocorrelation of runs {lag}", alarms / rounds, alarms / rounds * 365 / 60])
    show(["looked at with", "any in 60 nights", "a year, at least"], lines)


def _alarmed(values: np.ndarray, alpha: float) -> bool:
    return any(change_points(values[:night], alpha) for night in range(6, len(values) + 1))


def dips() -> None:
    """Planted in 60 runs with 2 % scatter: both ends found, or any change point where there is none; three methods."""
    methods: Dict[str, Callable[[np.ndarray], List[int]]] = {
        "change_points": lambda values: [point.index for point in change_points(values)],
        "... 1 a year": lambda values: [point.index for point in change_points(values, alpha_of_budget(1, 365.25))],
        "PELT": pelt,
        "e-divisive": e_divisive,
    }
    lines: List[List[object]] = [
        [f"10 % lower for {runs} runs", *(_dip(method, runs) for method in methods.values())] for runs in (3, 4, 5)
    ]
    lines += [
        [f"{change:.0%} lower from run 30 on", *(_dip(method, 30, change) for method in methods.values())]
        for change in (0.02, 0.04)
    ]
    noises = {**RUNS, "autocorrelation of runs 0.3": _alike(0.3)}
    lines += [[f"none; {name}", *(_any(its, noise) for its in methods.values())] for name, noise in noises.items()]
    show(["planted", *methods], lines)


def _dip(method: Callable[[np.ndarray], List[int]], runs: int, change: float = 0.1) -> float:
    found, rounds = 0, TABLES // 2
    for seed in range(rounds):
        values = RUNS["normal, 2 %"](np.random.default_rng(seed), 60)
        values[30 : 30 + runs] *= 1 - change
        cuts = method(values)
        found += all(any(abs(cut - wanted) <= 2 for cut in cuts) for wanted in (30, 30 + runs) if wanted < 60)
    return found / rounds


def _any(method: Callable[[np.ndarray], List[int]], noise: Noise) -> float:
    return sum(bool(method(noise(np.random.default_rng(seed), 60))) for seed in range(TABLES // 2)) / (TABLES // 2)


if __name__ == "__main__":
    sys.exit(print_tables((changes, nights, dips), sys.argv[1:]))
