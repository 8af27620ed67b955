"""Warnings about the runs of --history, which only show by how much repeated runs differ."""

from __future__ import annotations

from typing import Collection, Iterator, Sequence

from cbt_plugins.compare.comparable_runs import Runs, comparable_runs
from cbt_plugins.compare.sides import Case, ComparisonWarning, runs_by_configuration
from cbt_plugins.compare.statistics.assumption import FEWEST
from cbt_plugins.formatting import several
from cbt_plugins.results.run_record import RunRecord


def unused_runs(history: Sequence[RunRecord]) -> str:
    """Return a sentence that names the runs of --history that are not used; "" where all are."""
    names = dict.fromkeys(run.source for run in history if not run.usable)
    text = f"{several(len(names), 'run')} of --history not used, because incomplete, unusable or unreadable: "
    return text + ", ".join(names) if names else ""


def history_warnings(
    case: Case, repeated: Sequence[Runs], history: Sequence[RunRecord]
) -> Iterator[ComparisonWarning]:
    """Yield the warnings of a comparison; `repeated`: the groups of runs that show the scatter, of sides and history.
    """
    unused = unused_runs(history)
    if unused:
        yield ComparisonWarning("not-usable", "--history", unused)
    if history and min(len(case.base), len(case.new)) < FEWEST and _are_too_few(repeated):
        by_configuration = runs_by_configuration(case, [(*case.base, *case.new), history])
        most = max((len(runs) for (side, _), runs in by_configuration.items() if side), default=0)
        text = f"--history has {several(most, 'usable run')} of this configuration, with equal options and versions, "
        yield ComparisonWarning("too-few-runs", "--history", f"{text}beside the runs of the sides; {FEWEST} are needed")


def plan_warnings(history: Sequence[RunRecord], expectations: Collection[object]) -> Iterator[str]:
    """Yield the warnings of a plan; `expectations`: what the history lets expect of key rows."""
    unused = unused_runs(history)
    if unused:
        yield unused
    if history and not expectations:
        groups = comparable_runs([run for run in history if run.usable])
        most = max(map(len, groups), default=0)
        few = f"--history has {several(most, 'usable run')} of one configuration; {FEWEST} are needed"
        yield few if _are_too_few(groups) else "the runs of --history show no scatter of a key row"


def _are_too_few(groups: Sequence[Runs]) -> bool:
    """Return whether groups of repeated runs are too few for a scatter (see `pooled_scatter`)."""
    return sum(len(group) - 1 for group in groups) < FEWEST - 1
