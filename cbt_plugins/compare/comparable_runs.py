"""Runs that can be compared with each other: those whose configurations do not conflict."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from cbt_plugins.compare.configuration_differences import conflicts
from cbt_plugins.results.run_record import RunRecord

Runs = Tuple[RunRecord, ...]


def comparable_runs(runs: Sequence[RunRecord]) -> List[Runs]:
    """Return the runs in groups that can be compared with each other, in the order of the first of each group."""
    run_groups: List[List[RunRecord]] = []
    merged: List[RunRecord] = []  # of each group
    for run in runs:
        index = first_comparable(merged, run)
        if index is None:
            run_groups.append([run])
            merged.append(run)
        else:
            run_groups[index].append(run)
            merged[index] = merged_run([merged[index], run])
    return [tuple(group) for group in run_groups]


def merged_run(group: Sequence[RunRecord]) -> RunRecord:
    """Return the first run of a group with what is known of any: the first run may lack a key that others have."""
    first = group[0]
    config = dict(first.config)
    for run in group[1:]:
        config.update((key, run.config[key]) for key in run.config.keys() - config.keys())
    return first if len(config) == len(first.config) else replace(first, config=config)


def first_comparable(runs: Sequence[RunRecord], run: RunRecord) -> Optional[int]:
    """Return the place of the first of these runs that can be compared with a run."""
    return next((i for i, candidate in enumerate(runs) if not conflicts(candidate, run)), None)
