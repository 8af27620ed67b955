"""Runs that can be compared with each other: those whose configurations do not conflict."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from cbt_plugins.compare.configuration_differences import conflicts
from cbt_plugins.results.run_record import RunRecord

Runs = Tuple[RunRecord, ...]


def comparable_runs(runs: Sequence[RunRecord]) -> List[Runs]:
    """Return the runs in groups that can be compared with each other, in the order of the first of each group."""
    run_groups: List[List[RunRecord]] = []
    for run in runs:
        index = first_comparable([group[0] for group in run_groups], run)
        if index is None:
            run_groups.append([run])
        else:
            run_groups[index].append(run)
    return [tuple(group) for group in run_groups]


def first_comparable(runs: Sequence[RunRecord], run: RunRecord) -> Optional[int]:
    """Return the place of the first of these runs that can be compared with a run."""
    return next((i for i, candidate in enumerate(runs) if not conflicts(candidate, run)), None)
