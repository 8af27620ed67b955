"""How often change points of a history are wrong: false alarms, and planted changes that are found, seeded.

Prints the tables of docs/STATISTICS.md and docs/HISTORY.md as Markdown.
Usage: ./run bench history [TABLE ...], of those that it names when one is unknown

`published` also scores Apache Otava and ruptures (PyPI, in an environment of their own) and a t test. TCPD=FOLDER names
a checkout of https://github.com/alan-turing-institute/TCPD, where `make` fetches the series that it may not contain;
without it, F1, covering and the second table are left out. EVERY=4 plants steps at one in four positions only, and
EVERY_OF_TCPD=40 at one in forty positions of the series of TCPD. Without them: at all positions, which takes days.
ORDERS=20: random orders of each series of the lab. ROUNDS=200, NIGHTS=365: histories of each noise, and their length.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
from inputs import detector_scores
from inputs.chance import RUNS, TABLES, Noise, print_tables, series, share_with_bounds, show
from inputs.change_points import e_divisive, pelt
from inputs.programs import answer, environment
from scipy.stats import chi2

from cbt_plugins.compare.statistics import alpha_of_budget, change_points
from cbt_plugins.compare.statistics.change_point_search import Settled, noise_of

#: trials on a lab, and the scatter from trial to trial that they are scaled to
SERIES, SCATTER = Path(__file__).parents[1] / "data" / "history" / "trials.json", 0.02
#: of the other programs
PACKAGES = ("apache-otava==0.8.0", "ruptures==1.1.10")


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
    """Histories of one row of noise, looked at after each night: those with any change point, and all new points.

    The rate is of these nights. Its bounds are too narrow, because points of the same history come together.
    """
    rounds, length = int(os.environ.get("ROUNDS") or TABLES), int(os.environ.get("NIGHTS") or 60)
    noises = {**RUNS, **{f"autocorrelation of runs {lag}": _alike(lag) for lag in (0.3, 0.6)}}
    noises["counts, 0.2 a night"] = lambda chance, length: chance.poisson(0.2, length).astype(float)
    looks = [("1 false alarm a year", alpha_of_budget(1, 365.25), name) for name in noises]
    looks.append(("1 of 20 rows a year", alpha_of_budget(1, 365.25) / 20, "counts, 0.2 a night"))
    lines: List[List[object]] = []
    for look, alpha, name in [*looks, ("alpha 0.05 a look", 0.05, "normal, 2 %")]:
        histories = (noises[name](np.random.default_rng(seed), length) for seed in range(rounds))
        new = [_new_points(values, alpha) for values in histories]
        rate = _rate(sum(new), rounds * length / 365.25)
        lines.append([f"{look}; {name}", share_with_bounds(sum(map(bool, new)), rounds), rate])
    show(["looked at with; noise", f"any in {length} nights", "new points a year"], lines)


def _new_points(values: np.ndarray, alpha: float) -> int:
    """Return how many change points the nights have that the night before did not have."""
    settled: Settled = {}
    number = 0
    earlier: List[int] = []
    for night in range(detector_scores.FIRST, len(values) + 1):
        cuts = [point.index for point in change_points(values[:night], alpha, settled=settled)]
        number += sum(all(abs(cut - point) > detector_scores.MARGIN for point in earlier) for cut in cuts)
        earlier = cuts
    return number


def _rate(count: int, years: float) -> str:
    """Return "0.41 (20 in 49 years; 0.25 to 0.63)": a rate a year with its exact bounds of 95 % (Garwood)."""
    low, high = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0, chi2.ppf(0.975, 2 * count + 2) / 2
    return f"{count / years:.2f} ({count} in {years:.3g} years; {low / years:.2f} to {high / years:.2f})"


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


def published() -> None:
    """Ours (1 alarm a year) beside Otava, PELT and a t test: TCPD; steps in real series; alarms in a year of looks."""
    planted = [_scaled(values) for values in json.loads(SERIES.read_text())["series"].values()]
    folder = os.environ.get("TCPD")
    of_tcpd = [_scaled(values) for values, _ in (detector_scores.tcpd(folder).values() if folder else ())]
    chance, orders = np.random.default_rng(0), int(os.environ.get("ORDERS") or 100)
    question = {
        "tcpd": folder,
        "planted": planted,
        "planted_in_tcpd": of_tcpd,
        "shuffled": [list(chance.permutation(values)) for _ in range(orders) for values in planted],
        "every": int(os.environ.get("EVERY") or 1),
        "every_of_tcpd": int(os.environ.get("EVERY_OF_TCPD") or 1),
    }
    alpha = alpha_of_budget(1, 365.25)

    def ours(values: Sequence[float]) -> List[int]:
        return [point.index for point in change_points(values, alpha)]

    script = Path(__file__).with_name("inputs") / "other_detectors.py"
    with ThreadPoolExecutor(1) as beside:
        others = beside.submit(answer, environment("detectors", *PACKAGES), script, question)
        found = {
            "ours": detector_scores.scores(ours, question),
            "t test": detector_scores.scores(detector_scores.t_test, question),
            **others.result(),
        }
    planted_head = [f"found {step:.0%}" for step in detector_scores.STEPS]
    planted_head += [f"delay {step:.0%}" for step in detector_scores.STEPS]
    show(["method", "F1", "covering", *planted_head, "alarms a year", "shuffled"],
         [_row(name, its) for name, its in found.items()])  # fmt: skip
    number = found["ours"]["tcpd"] and found["ours"]["tcpd"]["series"]
    print(f"TCPD: {number} series; {_planted_in(planted, found['ours']['planted'])}\n")
    if of_tcpd:
        show(["method", *planted_head], [[name, *_planted(its["planted_in_tcpd"])] for name, its in found.items()])
        print(f"TCPD: {_planted_in(of_tcpd, found['ours']['planted_in_tcpd'])}\n")


def _planted_in(series: Sequence[Sequence[float]], delays: Dict[str, Any]) -> str:
    lengths = [len(values) - detector_scores.FIRST - detector_scores.PATIENCE + 1 for values in series]
    positions = [length for length in lengths if length > 0]
    number = len(next(iter(delays.values())))
    return f"steps of each size at {number} of {sum(positions)} positions of {len(positions)} series"


def _scaled(values: Sequence[float]) -> List[float]:
    """Return a series of level 100 with the same ups and downs, whose logarithms scatter by SCATTER; without nan."""
    logs = np.log([value for value in values if not math.isnan(value)])
    return [float(value) for value in 100 * np.exp((logs - np.median(logs)) * SCATTER / noise_of(logs))]


def _row(name: str, its: Dict[str, Any]) -> List[object]:
    cells: List[object] = [name, *((its["tcpd"]["f1"], its["tcpd"]["covering"]) if its["tcpd"] else ("-", "-"))]
    rates = (_rate(new, looks / 365.25) for new, looks in (its["alarms"], its["shuffled"]))
    return [*cells, *_planted(its["planted"]), *rates]


def _planted(delays: Dict[str, Any]) -> List[object]:
    """Return the share of the steps of each size that were found, then median and 90 % of the delay of each size."""
    cells: List[object] = []
    cells += [statistics.fmean(delay is not None for delay in delays[str(step)]) for step in detector_scores.STEPS]
    for step in detector_scores.STEPS:
        runs = sorted(math.inf if delay is None else delay for delay in delays[str(step)])
        both = (statistics.median_low(runs), runs[math.ceil(0.9 * len(runs)) - 1])
        cells.append(", ".join("> 30" if math.isinf(delay) else f"{delay:.0f}" for delay in both))
    return cells


if __name__ == "__main__":
    sys.exit(print_tables((changes, nights, dips, published), sys.argv[1:]))
