"""Paths as they were given -> the sides of a comparison, each with a name that tells it from the others."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence, Tuple

from cbt_plugins.compare.cases import Side
from cbt_plugins.results.record import RunRecord
from cbt_plugins.results.records import records_of


def sides(paths: Sequence[Sequence[Path]]) -> List[Side]:
    """One side for each list of paths. Raises Unreadable, and ValueError when a run comes twice."""
    found = [[record for path in its for record in records_of(path)] for its in paths]
    seen = set()
    for run in (run for runs in found for run in runs):
        if _identity(run) in seen:
            raise ValueError(f"{run.source} is given twice")
        seen.add(_identity(run))
    releases = [_release(runs) for runs in found]
    names = releases if all(releases) and len(set(releases)) == len(releases) else [_given(its) for its in paths]
    given = [tuple(str(path) for path in its) for its in paths]
    return [Side(name, tuple(runs), its) for name, runs, its in zip(_unique(names), found, given)]


def _identity(run: RunRecord) -> Tuple[str, str]:
    return str(Path(run.source).resolve()), run.name


def _release(runs: Sequence[RunRecord]) -> str:
    labels = {run.label for run in runs}
    return next(iter(labels)) or "" if len(labels) == 1 else ""


def _given(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"


def _unique(names: Sequence[str]) -> List[str]:
    found: List[str] = []
    for name in names:
        again = sum(other == name for other in names[: len(found)])
        found.append(f"{name} ({again + 1})" if again else name)
    return found
