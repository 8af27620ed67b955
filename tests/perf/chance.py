"""How often the statistics are wrong: false alarms, power, equivalence and change points on random numbers, seeded.

The real functions judge whole tables of 20 rows in which nothing changed, and single rows in which something did.
Prints the tables of docs/STATISTICS.md as Markdown; all of them take some minutes.
Usage: ./run bench chance   (or: python tests/perf/chance.py [TABLE ...], of those that it names when one is unknown)
"""

from __future__ import annotations

import math
import sys
from typing import Callable, Dict, List, Optional, Sequence

import numpy as np
from scipy.signal import lfilter

from cbt_plugins.compare.statistics import (
    Campaign,
    Comparison,
    Verdict,
    change_points,
    compare_runs,
    compare_series,
    gate_false_alarms,
    judge,
    minimum_runs,
    power,
    smallest_p,
)
from cbt_plugins.metrics import Direction

ROWS = 20
TABLES = 100
SINGLE = 200
ALARMS = (Verdict.BETTER, Verdict.WORSE)
Noise = Callable[[np.random.Generator, int], np.ndarray]

#: runs: what is random about a level of 100
RUNS: Dict[str, Noise] = {
    "normal, 2 %": lambda chance, n: 100 + 2 * chance.normal(size=n),
    "lognormal, 30 %": lambda chance, n: 100 * np.exp(0.3 * chance.normal(size=n)),
    "2 %, one run in ten 20 % lower": lambda chance, n: (
        (100 + 2 * chance.normal(size=n)) * np.where(chance.random(n) < 0.1, 0.8, 1)
    ),
    "two levels, 10 % apart": lambda chance, n: (
        (100 + 0.2 * chance.normal(size=n)) * np.where(chance.random(n) < 0.5, 0.9, 1)
    ),
}


def series(chance: np.random.Generator, n: int, lag: float, scatter: float = 0.05, drift: float = 0.0) -> np.ndarray:
    """A level of 100 with AR(1) noise; `drift` is the standard deviation of what it rises or falls until the end."""
    noise = lfilter([1], [1, -lag], chance.normal(size=n + 300))[300:] * math.sqrt(1 - lag**2)
    return np.asarray(100 * (1 + scatter * noise + drift * chance.normal() * np.arange(n) / n))


def alarms(compared: Callable[[np.random.Generator], Comparison], tables: int = TABLES, rows: int = ROWS) -> float:
    """The part of tables with a verdict of better or worse."""
    found = 0
    for seed in range(tables):
        chance = np.random.default_rng(seed)
        judged = judge(
            {row: compared(chance) for row in range(rows)}, dict.fromkeys(range(rows), Direction.HIGHER), 0.03
        )
        found += any(comparison.verdict in ALARMS for comparison in judged.values())
    return found / tables


def part(compared: Callable[[np.random.Generator], Comparison], verdicts: Sequence[Verdict], rounds: int) -> float:
    """The part of single comparisons, each a table of its own, with one of the verdicts; the margin is 3 %."""
    chance = np.random.default_rng(0)
    judged = (judge({0: compared(chance)}, {0: Direction.HIGHER}, 0.03)[0].verdict for _ in range(rounds))
    return sum(verdict in verdicts for verdict in judged) / rounds


def show(head: Sequence[object], lines: Sequence[Sequence[object]]) -> None:
    """A Markdown table."""
    print(f"| {' | '.join(map(str, head))} |")
    print(f"| {' | '.join('---' for _ in head)} |")
    for line in lines:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line)
        print(f"| {' | '.join(cells)} |", flush=True)
    print()


def smallest() -> None:
    """Smallest p."""
    sizes = (3, 4, 5, 6, 7, 8, 10)
    show(["runs on each side", *sizes], [["rank sum", *(f"{smallest_p(n, n):.2g}" for n in sizes)]])
    show(["pairs", *sizes], [["signed ranks", *(f"{smallest_p(n, n, True):.2g}" for n in sizes)]])


def single() -> None:
    """Power of one row, by change and scatter."""
    sizes = (3, 4, 5, 6, 8, 10, 15)
    cases = ((0.03, 0.01), (0.03, 0.02), (0.05, 0.02), (0.05, 0.05), (0.1, 0.05))
    lines = [[f"{c:.0%}, {s:.0%}", *(power(n, c, Campaign(s)) for n in sizes)] for c, s in cases]
    show(["change, scatter", *sizes], lines)


def long() -> None:
    """Power in a table of 20 rows."""
    sizes = (3, 4, 5, 6, 8, 10, 15)
    cases = ((0.03, 0.01), (0.03, 0.02), (0.05, 0.02), (0.1, 0.05))
    lines = [[f"{c:.0%}, {s:.0%}", *(power(n, c, Campaign(s, rows=ROWS)) for n in sizes)] for c, s in cases]
    show(["change, scatter", *sizes], lines)


def fewest() -> None:
    """Fewest runs on each side for a power of 0.8."""
    changes = (0.02, 0.03, 0.05, 0.1)
    lines = [
        [f"{scatter:.0%}, {_rows(rows)}", *(_most(minimum_runs(c, Campaign(scatter, rows=rows))) for c in changes)]
        for scatter in (0.01, 0.02, 0.05)
        for rows in (1, ROWS)
    ]
    show(["scatter, table", *(f"{change:.0%}" for change in changes)], lines)


def interleaved() -> None:
    """Power with 1 % scatter and 3 % drift over the campaign, for a change of 3 %."""
    sizes = (3, 4, 5, 6, 7, 8, 10)
    lines = [
        ["in turns, not as pairs", *(power(n, 0.03, Campaign(0.01, drift=0.03)) for n in sizes)],
        ["in turns, as pairs", *(power(n, 0.03, Campaign(0.01, True, 0.03)) for n in sizes)],
    ]
    show(["runs on each side", *sizes], lines)
    lines = [["all of base, then all of new", *(_one_after_other(n) for n in sizes)]]
    show(["false alarms, nothing changed", *sizes], lines)


def gates() -> None:
    """False alarms of a gate of one run against one run."""
    scatters = (0.01, 0.02, 0.03, 0.05)
    lines = [[f"{limit:.0%}", *(gate_false_alarms(limit, s) for s in scatters)] for limit in (0.03, 0.05, 0.1)]
    show(["limit", *(f"scatter {s:.0%}" for s in scatters)], lines)


def level() -> None:
    """False alarms of one row without change, and 20 times those of one row of 20 (Holm's first step)."""
    sizes = (3, 4, 5, 6, 7, 8, 10)
    lines = [
        [f"{kind}, {_rows(rows)}", *(rows * power(n, 0.0, Campaign(0.02, paired, rows=rows), 20_000) for n in sizes)]
        for kind, paired in (("runs", False), ("pairs", True))
        for rows in (1, ROWS)
    ]
    show(["of normal noise", *sizes], lines)


def runs() -> None:
    """False alarms in a table of 20 rows without change, runs."""
    sizes = (3, 5, 8)
    lines: List[List[object]] = []
    for name, noise in RUNS.items():
        lines.append([name, *(alarms(_of_runs(noise, n)) for n in sizes)])
        lines.append([name + ", pairs", *(alarms(_of_runs(noise, n, paired=True)) for n in sizes)])
    show(["noise", *sizes], lines)


def seconds() -> None:
    """False alarms in a table of 20 rows without change, series."""
    sizes = (60, 300)
    lines = [
        [f"{lag}, drift {drift:.0%}", *(alarms(_of_series(n, lag, drift=drift)) for n in sizes)]
        for lag in (0.0, 0.6, 0.9)
        for drift in (0.0, 0.03)
    ]
    show(["autocorrelation, drift", *sizes], lines)


def found() -> None:
    """Power of two series, one row, scatter of seconds 5 %."""
    sizes = (60, 300, 1800)
    lines = [
        [f"{change:.0%}, {lag}", *(part(_of_series(n, lag, change), ALARMS, SINGLE // 2) for n in sizes)]
        for change in (0.02, 0.05, 0.1)
        for lag in (0.0, 0.6, 0.9)
    ]
    show(["change, autocorrelation", *sizes], lines)


def equivalence() -> None:
    """How often "equivalent" within 3 % is said."""
    sizes = (3, 5, 8)
    lines = [
        [
            f"{change:+.0%}, {scatter:.1%}",
            *(part(_shifted(scatter, n, change), [Verdict.EQUIVALENT], rounds) for n in sizes),
        ]
        for change, scatter, rounds in (
            *((0.0, scatter, SINGLE) for scatter in (0.005, 0.01, 0.02)),
            *((change, 0.01, 5 * SINGLE) for change in (0.03, -0.03)),
        )
    ]
    show(["true change, scatter", *sizes], lines)
    lengths = (60, 300)
    lines = [
        [f"{change:+.0%}, {lag}", *(part(_of_series(n, lag, change), [Verdict.EQUIVALENT], SINGLE) for n in lengths)]
        for change in (0.0, 0.03, -0.03)
        for lag in (0.0, 0.6)
    ]
    show(["true change, autocorrelation (series)", *lengths], lines)


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


def _one_after_other(n: int) -> float:
    level = 100 * np.linspace(1, 1.03, 2 * n)

    def compared(chance: np.random.Generator) -> Comparison:
        made = level + chance.normal(size=2 * n)
        return compare_runs(made[:n], made[n:])

    return part(compared, ALARMS, 500)


def _of_runs(noise: Noise, n: int, paired: bool = False) -> Callable[[np.random.Generator], Comparison]:
    return lambda chance: compare_runs(noise(chance, n), noise(chance, n), paired)


def _shifted(scatter: float, n: int, change: float) -> Callable[[np.random.Generator], Comparison]:
    def compared(chance: np.random.Generator) -> Comparison:
        base, new = np.exp(scatter * chance.normal(size=(2, n)))
        return compare_runs(base, (1 + change) * new)

    return compared


def _of_series(
    n: int, lag: float, change: float = 0.0, drift: float = 0.0
) -> Callable[[np.random.Generator], Comparison]:
    def compared(chance: np.random.Generator) -> Comparison:
        return compare_series(series(chance, n, lag, drift=drift), (1 + change) * series(chance, n, lag, drift=drift))

    return compared


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _most(runs: Optional[int]) -> str:
    return "> 50" if runs is None else str(runs)


PARTS = (smallest, single, long, fewest, interleaved, gates, level, runs, seconds, found, equivalence, changes)


def main() -> int:
    """Exit status 2 when a table is unknown."""
    known = {part.__name__: part for part in PARTS}
    wanted = sys.argv[1:] or list(known)
    if not set(wanted) <= set(known):
        print(f"tables: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(f"{name}: {known[name].__doc__}\n", flush=True)
        known[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
