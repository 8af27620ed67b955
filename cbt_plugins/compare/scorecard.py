"""Scorecards side by side: for each failure what clients and the cluster lost, of both sides, with verdicts."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.compare.output import value, verdict
from cbt_plugins.compare.sides import Side
from cbt_plugins.compare.statistics import estimate
from cbt_plugins.compare.statistics.verdicts import Estimate
from cbt_plugins.compare.table import Choice, Compared, Row, Section, compare
from cbt_plugins.formatting import NONE, success
from cbt_plugins.formatting.blocks import Block, Heading, TableGrid
from cbt_plugins.metrics import CLUSTER, METRICS, SURE_GAP, TOTAL
from cbt_plugins.results.run_record import Key, Measurement

#: operation and metric of each column
COLUMNS = (
    *((TOTAL, metric) for metric in ("availability", "bad_s", "p99_ratio", "longest_gap_s")),
    *((CLUSTER, metric) for metric in ("recovery_s", "moved_mib")),
)
HEADINGS = tuple(f"{METRICS[metric].title} {METRICS[metric].unit}".strip() for _, metric in COLUMNS)
HEAD = ("failure", "side", *HEADINGS)


def cells(measurements: Sequence[Measurement]) -> Tuple[str, ...]:
    """Return the cells of a failure under HEADINGS: the median of its repetitions, with an interval from three on."""
    repeats = {(measurement.op, measurement.metric): measurement.repeats or () for measurement in measurements}
    return tuple(_cell(column, estimate(repeats[column]) if repeats.get(column) else None) for column in COLUMNS)


def _cell(column: Tuple[str, str], level: Optional[Estimate]) -> str:
    """Return the value with its interval; of availability in percent with three decimals, the interval in points.

    A gap below 1 s is a lower bound.
    """
    if level is None:
        return NONE
    if column[1] == "longest_gap_s" and level.value < SURE_GAP:
        return f"< {SURE_GAP:g}"
    if column[1] != "availability":
        return value(level)
    if level.low is None or level.high is None:
        return success(level.value)
    return f"{success(level.value)} ±{100 * max(level.high - level.value, level.value - level.low):.3f}"


def takes(key: Key) -> bool:
    """Return whether a scorecard may need a number."""
    return key[1:] in COLUMNS


def failures_of(sides: Sequence[Side]) -> List[str]:
    """Return the names of the failures that any run has repetitions of, in order."""
    runs = (run for side in sides for run in side.runs)
    return list(dict.fromkeys(m.phase for run in runs for m in run.measurements if m.repeats is not None))


def of(compared: Compared) -> Optional[Compared]:
    """Return the same comparison of the scorecards, judged as a table of its own; None without a scorecard."""
    failures = failures_of((compared.base, *compared.contenders))
    if not failures:
        return None
    choice = Choice(phases=tuple(failures), ops=(TOTAL, CLUSTER), only=COLUMNS)
    return compare(compared.base, compared.contenders, choice, compared.rules)


def blocks(compared: Optional[Compared]) -> Iterator[Block]:
    """Yield a table for each contender and configuration: three lines a failure, the last one with the verdicts."""
    for section in compared.sections if compared else ():
        several = compared is not None and len(compared.contenders) > 1
        title = " ".join(filter(None, (section.contender if several else "", section.case)))
        if title:
            yield Heading(title)
        base = compared.base.name if compared else ""
        yield TableGrid(HEAD, tuple(_rows(section, base)), left=2, title="scorecard")


def _rows(section: Section, base: str) -> Iterator[Tuple[str, ...]]:
    rows: Dict[str, Dict[Tuple[str, str], Row]] = {}
    for row in section.rows:
        rows.setdefault(row.phase, {})[row.op, row.metric] = row
    for failure, row_of in rows.items():
        comparisons = {column: row_of[column].comparison for column in COLUMNS if column in row_of}
        base_levels = {column: comparison.base for column, comparison in comparisons.items()}
        new_levels = {column: comparison.new for column, comparison in comparisons.items()}
        yield (failure, base, *(_cell(column, base_levels.get(column)) for column in COLUMNS))
        yield ("", section.contender, *(_cell(column, new_levels.get(column)) for column in COLUMNS))
        verdicts = {column: verdict(comparison) for column, comparison in comparisons.items()}
        yield ("", "verdict", *(verdicts.get(column, NONE) for column in COLUMNS))
