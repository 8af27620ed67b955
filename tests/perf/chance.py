"""How often verdicts are wrong: false alarms, power and equivalence on random numbers, seeded.

The real functions judge whole tables of 20 rows in which nothing changed, and single rows in which something did.
Prints the tables of docs/STATISTICS.md as Markdown; all of them take some minutes.
Usage: ./run bench chance [TABLE ...], of those that it names when one is unknown
"""

from __future__ import annotations

import math
import sys
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np
from inputs.chance import RUNS, TABLES, Noise, print_tables, series, share, show

from cbt_plugins.compare.gate import GateLimits, GateOutcome, gate, limit
from cbt_plugins.compare.sides import Side
from cbt_plugins.compare.statistics import (
    Campaign,
    Comparison,
    Scatter,
    Verdict,
    chances,
    compare_runs,
    compare_series,
    decide_verdicts,
    gate_false_alarms,
    minimum_runs,
    pooled_scatter,
    smallest_p,
)
from cbt_plugins.compare.statistics.verdicts import widened
from cbt_plugins.compare.table import Rules
from cbt_plugins.metrics import MARGIN, Direction
from cbt_plugins.results.run_record import Measurement, RunRecord

ROWS = 20
SINGLE = 200
ALARMS = (Verdict.BETTER, Verdict.WORSE)


def alarms(compared: Callable[[np.random.Generator], Comparison], tables: int = TABLES, rows: int = ROWS) -> float:
    """The part of tables with a verdict of better or worse."""
    found = 0
    for seed in range(tables):
        chance = np.random.default_rng(seed)
        judged = decide_verdicts(
            {row: compared(chance) for row in range(rows)}, dict.fromkeys(range(rows), Direction.HIGHER), 0.03
        )
        found += any(comparison.verdict in ALARMS for comparison in judged.values())
    return found / tables


def part(compared: Callable[[np.random.Generator], Comparison], verdicts: Sequence[Verdict], rounds: int) -> float:
    """The part of single comparisons, each a table of its own, with one of the verdicts; the margin is 3 %."""
    chance = np.random.default_rng(0)
    judged = (decide_verdicts({0: compared(chance)}, {0: Direction.HIGHER}, 0.03)[0].verdict for _ in range(rounds))
    return sum(verdict in verdicts for verdict in judged) / rounds


def smallest() -> None:
    """Smallest p."""
    sizes = (3, 4, 5, 6, 7, 8, 10)
    show(["runs on each side", *sizes], [["rank sum", *(f"{smallest_p(n, n):.2g}" for n in sizes)]])
    show(["pairs", *sizes], [["signed ranks", *(f"{smallest_p(n, n, True):.2g}" for n in sizes)]])


#: changes of the tables of verdicts, with the scatters that they are tried at
VERDICTS = ((0.0, 0.01), (-0.03, 0.01), (-0.05, 0.01), (0.0, 0.02), (-0.03, 0.02), (-0.05, 0.02), (-0.1, 0.05))


def single(rounds: int = 1000) -> None:
    """Verdicts on one row with a margin of 5 %, by change, scatter and runs of each side."""
    lines = []
    for change, scatter in VERDICTS:
        for runs in (3, 5, 10, 20):
            its = chances(runs, change, Campaign(scatter), rounds)
            parts = (its.found, its.small + its.equivalent, its.small, its.inconclusive)
            lines.append([f"{change:.0%}, {scatter:.0%}", runs, *map(share, parts)])
    show(["true change, scatter", "runs", "worse (or better)", "equivalent", "of these (worse)", "inconclusive"], lines)
    print(f"{rounds} comparisons a line: a share of .50 is known by ±{196 * math.sqrt(0.25 / rounds):.0f} points\n")


def long() -> None:
    """Power in a table of 20 rows: better or worse, also within the margin."""
    sizes = (3, 4, 5, 6, 8, 10, 15)
    cases = ((0.03, 0.01), (0.03, 0.02), (0.05, 0.02), (0.1, 0.05))
    lines = [[f"{c:.0%}, {s:.0%}", *(differs(n, c, Campaign(s, rows=ROWS)) for n in sizes)] for c, s in cases]
    show(["change, scatter", *sizes], lines)


def differs(runs: int, change: float, campaign: Campaign, rounds: int = 1000) -> float:
    """The part of comparisons that is said to differ from 0, be that within the margin or not."""
    its = chances(runs, change, campaign, rounds)
    return its.found + its.small


def fewest(rounds: int = 500) -> None:
    """Fewest runs on each side for a true verdict in 80 %, by the margin, in percent of the margin."""
    changes = (0.0, 0.5, 1.0, 1.5, 2.0)
    lines = [
        [f"{scatter:.0%} of the margin, {_rows(rows)}", *(_most(_fewest(c, scatter, rows, rounds)) for c in changes)]
        for scatter in (0.2, 0.4, 0.6, 1.0)
        for rows in (1, ROWS)
    ]
    show(["scatter, table", *("no change" if not c else f"{c:g} margin{'s' * (c != 1)}" for c in changes)], lines)


def _fewest(change: float, scatter: float, rows: int, rounds: int) -> Optional[int]:
    campaign = Campaign(scatter * MARGIN, rows=rows)
    return minimum_runs(change * MARGIN, campaign, rounds=rounds)


def interleaved() -> None:
    """Power with 1 % scatter and 3 % drift over the campaign, for a change of 3 %."""
    sizes = (3, 4, 5, 6, 7, 8, 10)
    lines = [
        ["in turns, not as pairs", *(differs(n, 0.03, Campaign(0.01, drift=0.03)) for n in sizes)],
        ["in turns, as pairs", *(differs(n, 0.03, Campaign(0.01, paired=True, drift=0.03)) for n in sizes)],
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
        [
            f"{kind}, {_rows(rows)}",
            *(rows * differs(n, 0.0, Campaign(0.02, paired=paired, rows=rows), 5000) for n in sizes),
        ]
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
        base, new = (series(chance, n, lag, drift=drift) for _ in range(2))
        return compare_series(base, (1 + change) * new, scatter=Scatter(0.001))

    return compared


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _most(runs: Optional[int]) -> str:
    return "> 50" if runs is None else str(runs)


def single_runs() -> None:
    """Better or worse of two single runs that scatter by 2 % from run to run, by their length and autocorrelation."""
    sizes = (60, 300, 1800)
    known: Dict[str, Optional[Callable[[np.random.Generator], Scatter]]] = {
        "not known": None,
        "given": lambda _: Scatter(0.02),
        "learnt from 5 runs": lambda chance: _learnt(chance, 5),
    }
    lines = [
        [
            f"{what}, scatter {name}, AR {lag:g}",
            *(part(_single(n, scatter, change, lag), ALARMS, SINGLE) for n in sizes),
        ]
        for what, change in (("equal", 0.0), ("10 % lower", -0.1))
        for name, scatter in known.items()
        for lag in (0.0, 0.8)
    ]
    show(["two runs", *sizes], lines)


def _learnt(chance: np.random.Generator, runs: int) -> Scatter:
    known = pooled_scatter([np.exp(0.02 * chance.normal(size=runs))])
    assert known is not None
    return known


def _single(
    n: int, scatter: Optional[Callable[[np.random.Generator], Scatter]], change: float = 0.0, lag: float = 0.0
) -> Callable[[np.random.Generator], Comparison]:
    def compared(chance: np.random.Generator) -> Comparison:
        base, new = (series(chance, n, lag) * math.exp(0.02 * chance.normal()) for _ in range(2))
        return compare_series(base, (1 + change) * new, scatter=scatter(chance) if scatter else None)

    return compared


def unsteady() -> None:
    """Better or worse of two single runs of one level, of which one is not steady; the scatter is known."""
    sizes = (60, 300, 1800)
    lines = [
        [f"{name}, {lag}", *(part(_unsteady(n, lag, shape), ALARMS, SINGLE // 2) for n in sizes)]
        for name, shape in _SHAPES.items()
        for lag in (0.0, 0.6)
    ]
    show(["second run, autocorrelation", *sizes], lines)


_SHAPES: Dict[str, Noise] = {
    "steady": lambda chance, n: np.ones(n),
    "step of 10 %": lambda chance, n: 1 - 0.1 * (np.arange(n) > n * chance.uniform(0.3, 0.7)),
    "random walk of 5 %": lambda chance, n: 1 + 0.05 * np.cumsum(chance.normal(size=n)) / math.sqrt(n),
    "drift of 10 %": lambda chance, n: 1 + 0.1 * np.arange(n) / n,
}


def _unsteady(n: int, lag: float, shape: Noise) -> Callable[[np.random.Generator], Comparison]:
    def compared(chance: np.random.Generator) -> Comparison:
        base, new = series(chance, n, lag), series(chance, n, lag) * shape(chance, n)
        return compare_series(base, new, scatter=Scatter(0.005))

    return compared


def short() -> None:
    """Power of two series of few effective samples; the scatter is known to be small."""
    sizes = (60, 120, 300)
    lines = [
        [f"{change:.0%}, {lag}", *(part(_of_series(n, lag, change), ALARMS, SINGLE) for n in sizes)]
        for change in (0.0, -0.1, -0.2)
        for lag in (0.8, 0.9)
    ]
    show(["change, autocorrelation", *sizes], lines)


def order() -> None:
    """Better or worse of runs whose order is known: nothing changed, and a change of 3 %."""
    sizes = (3, 5, 8, 10, 20)
    lines = [
        [f"{name}; {what}", *(part(_ordered(make(n), lag, drift, scatter, change), ALARMS, SINGLE) for n in sizes)]
        for name, make in _ORDERS.items()
        for what, lag, drift, scatter, change in (
            ("autocorrelation of runs 0.5", 0.5, 0.0, 0.02, 0.0),
            ("drift of 3 %, scatter 1 %", 0.0, 0.03, 0.01, 0.0),
            ("3 % higher, scatter 1 %", 0.0, 0.0, 0.01, 0.03),
        )
    ]
    show(["order; runs on each side", *sizes], lines)


_ORDERS: Dict[str, Callable[[int], str]] = {
    "one after the other": lambda n: "B" * n + "N" * n,
    "two groups of each side": lambda n: "B" * (n // 2) + "N" * (n // 2) + "B" * (n - n // 2) + "N" * (n - n // 2),
    "one side around the other": lambda n: "B" * (n // 2) + "N" * n + "B" * (n - n // 2),
    "in turns": lambda n: "BN" * n,
}


def _ordered(
    pattern: str, lag: float, drift: float, scatter: float, change: float
) -> Callable[[np.random.Generator], Comparison]:
    base, new = ([i for i, its in enumerate(pattern) if its == side] for side in "BN")

    def compared(chance: np.random.Generator) -> Comparison:
        made = series(chance, len(pattern), lag, scatter) * np.linspace(1, 1 + drift, len(pattern))
        return compare_runs(made[base], (1 + change) * made[new], times=(base, new))

    return compared


def unequal() -> None:
    """Better or worse where one side has more runs: nothing changed, and a change of 5 %."""
    sizes = ((10, 3), (10, 5), (30, 5), (20, 10), (14, 10), (29, 20), (30, 30))
    lines = [
        [name, *(part(_unequal(each, both, change, wild), ALARMS, 5 * SINGLE) for each in sizes)]
        for name, both, change, wild in (
            ("equal, scatter 1 % and 5 %", (0.01, 0.05), 0.0, 0.0),
            ("equal, scatter 2 %", (0.02, 0.02), 0.0, 0.0),
            ("5 % lower, scatter 2 %", (0.02, 0.02), -0.05, 0.0),
            ("5 % lower, scatter 2 %, one run in ten 20 % lower", (0.02, 0.02), -0.05, 0.1),
        )
    ]
    show(["runs of the sides", *(f"{n}, {m}" for n, m in sizes)], lines)


def _unequal(
    sizes: Tuple[int, int], scatters: Tuple[float, float], change: float, wild: float
) -> Callable[[np.random.Generator], Comparison]:
    def compared(chance: np.random.Generator) -> Comparison:
        base, new = (
            np.exp(scatter * chance.normal(size=n)) * np.where(chance.random(n) < wild, 0.8, 1.0)
            for n, scatter in zip(sizes, scatters)
        )
        return compare_runs(base, (1 + change) * new)

    return compared


def keys() -> None:
    """Power of one row of 20 that changed: Holm over all, and as one of 2 key rows or of 18 others."""
    sizes = (3, 4, 5, 6, 8, 10)
    lines = [
        [f"{change:.0%}, {scatter:.0%}; {name}", *(_in_table(n, change, scatter, place, few) for n in sizes)]
        for change, scatter in ((0.03, 0.01), (0.05, 0.02))
        for name, place, few in (("one of 20", 0, None), ("one of 2 key rows", 0, {0, 1}), ("of 18 others", 2, {0, 1}))
    ]
    show(["change, scatter; row", *sizes], lines)


def _in_table(n: int, change: float, scatter: float, place: int, few: Optional[Set[int]]) -> float:
    chance, found = np.random.default_rng(0), 0
    for _ in range(TABLES):
        made = np.exp(scatter * chance.normal(size=(ROWS, 2, n)))
        made[place, 1] *= 1 + change
        table = {row: compare_runs(made[row, 0], made[row, 1]) for row in range(ROWS)}
        found += decide_verdicts(table, dict.fromkeys(table, Direction.HIGHER), 1e-4, keys=few)[place].verdict in ALARMS
    return found / TABLES


def limits() -> None:
    """Exit status 1 of a gate with a limit of 5 %, one row, by the true change."""
    sizes = (3, 5, 10, 20)
    lines = [
        [f"{change:.0%}, {scatter:.0%}", *(_gated(n, change, scatter, GateOutcome.REGRESSION) for n in sizes)]
        for change in (-0.05, -0.08)
        for scatter in (0.01, 0.02, 0.03)
    ]
    show(["true change, scatter", *sizes], lines)


def turns() -> None:
    """Exit status 0 of a gate with a limit of 5 %, nothing changed, by the order of the runs."""
    sizes = (3, 5, 10, 20)
    lines = [
        [f"{name}, {scatter:.0%}", *(_gated(n, 0.0, scatter, GateOutcome.OK, in_turns) for n in sizes)]
        for scatter in (0.01, 0.02)
        for name, in_turns in (("in turns", True), ("one side after the other", False))
    ]
    show(["order, scatter", *sizes], lines)
    print(f"{SINGLE} gates a cell: a share of .70 is known by ±{196 * math.sqrt(0.21 / SINGLE):.0f} points\n")


def _gated(n: int, change: float, scatter: float, outcome: GateOutcome, in_turns: bool = True) -> float:
    chance, row = np.random.default_rng(0), ("measure", "GET", "obj_per_s")
    only, found = GateLimits((limit("GET.obj_per_s", "5%"),)), 0
    step, later = (2, 1) if in_turns else (1, n)
    for _ in range(SINGLE):
        values = np.exp(scatter * chance.normal(size=(2, n))) * [[1], [1 + change]]
        one, other = (
            Side(name, tuple(_record(row, step * i + first, value) for i, value in enumerate(side)))
            for name, first, side in zip(("base", "new"), (0, later), values)
        )
        found += gate(one, [other], only, Rules()).outcome is outcome
    return found / SINGLE


def _record(row: Tuple[str, str, str], started: float, value: float) -> RunRecord:
    return RunRecord(f"{started}", "", "cbt-plugins", {}, (Measurement(*row, value),), True, (), None, started)


def bins() -> None:
    """Equivalent within 5 %: true p99 of 101.5 and 108.5 ms, told as the upper ends of bins of 10 ms."""
    chance, found = np.random.default_rng(0), [0, 0]
    for _ in range(SINGLE):
        true = np.exp(0.005 * chance.normal(size=(2, 6))) * [[101.5], [108.5]]
        made = compare_runs(*np.ceil(true / 10) * 10)
        for i, its in enumerate((made, widened(made, (5.0, 5.0), (5.0, 5.0)))):
            found[i] += decide_verdicts({0: its}, {0: Direction.LOWER}, 0.05)[0].verdict is Verdict.EQUIVALENT
    show(["as exact values", "with half a bin"], [[its / SINGLE for its in found]])


PARTS = (
    *(smallest, single, long, fewest, keys, interleaved, order, unequal, gates, limits, turns, level, runs),
    *(single_runs, unsteady, short, seconds, found, equivalence, bins),
)


if __name__ == "__main__":
    sys.exit(print_tables(PARTS, sys.argv[1:]))
