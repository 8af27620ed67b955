"""Warnings of a comparison, as values: the same in the text, the tables and the JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Set, Tuple

import numpy as np

from cbt_plugins.compare.differences import is_essential, short, within
from cbt_plugins.compare.sides import Case, Runs
from cbt_plugins.compare.statistics import steady
from cbt_plugins.compare.statistics.verdicts import StatisticsWarning
from cbt_plugins.results.record import RunRecord

#: what is there whatever is compared with what, and is said elsewhere
_QUIET = ("few-samples",)
#: what matters only where seconds are compared, which says it by itself
_OF_SECONDS = ("autocorrelation", "short-series", "gaps")


@dataclass(frozen=True)
class ComparisonWarning:
    """One warning. `where` names the run, the phase and operation, or the row."""

    code: str
    where: str
    text: str
    key: Tuple[str, str, str] = ("", "", "")  # of a row that there would be: phase, operation, metric


def of_row(have: Tuple[int, int], runs: Tuple[int, int]) -> Tuple[StatisticsWarning, ...]:
    """Return the warning about values that some runs of a row lack."""
    if have == runs:
        return ()
    text = f"{have[0]} of {runs[0]} runs of the base and {have[1]} of {runs[1]} of the other side have a number"
    return (StatisticsWarning("missing-values", text),)


def of_case(case: Case, rows: Set[Tuple[str, str]]) -> Tuple[ComparisonWarning, ...]:
    """Return the warnings about the runs; those about steadiness only where `rows` has the phase and operation."""
    return tuple([*_mixed(case), *_order(case), *_runs("base", case.base, rows), *_runs("new", case.new, rows)])


def _mixed(case: Case) -> Iterator[ComparisonWarning]:
    for side, runs in (("base", case.base), ("new", case.new)):
        for key, values in within(runs).items():
            if not is_essential(key):
                yield ComparisonWarning(
                    "mixed-side", side, f"{key} differs between its runs: {short(' | '.join(values))}"
                )


def _order(case: Case) -> Iterator[ComparisonWarning]:
    """Runs of one side after all of the other's: a cluster that drifts looks like a change."""
    times = [[run.started for run in runs if run.started is not None] for runs in (case.base, case.new)]
    if min(len(its) for its in times) < 2:
        return
    first, second = times
    if max(first) < min(second) or max(second) < min(first):
        text = "all runs of one side were made before those of the other: the change includes any drift"
        yield ComparisonWarning("not-interleaved", "base, new", text)


def _runs(side: str, runs: Runs, rows: Set[Tuple[str, str]]) -> Iterator[ComparisonWarning]:
    for run in runs:
        where = f"{side} {run.name}" if len({its.source for its in runs}) == 1 else f"{side} {run.source}"
        if not run.usable:
            yield ComparisonWarning("not-usable", where, "the run is incomplete or lost data: do not use its numbers")
        for warning in run.warnings:
            if warning.code not in _QUIET:
                yield ComparisonWarning(warning.code, where, warning.text)
        yield from _unsteady(where, run, rows)


def _unsteady(where: str, run: RunRecord, rows: Set[Tuple[str, str]]) -> Iterator[ComparisonWarning]:
    for its in run.measurements:
        if its.metric == "obj_per_s" and its.series and (its.phase, its.op) in rows:
            for warning in steady(np.asarray(its.series, dtype=float)):
                if warning.code not in _OF_SECONDS:
                    yield ComparisonWarning(warning.code, f"{where} {its.phase} {its.op}", warning.text)
