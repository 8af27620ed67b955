"""Sides of a comparison and their cases: runs of both sides that have one configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.compare.differences import Difference, Incomparable, Scale, conflicts, differing, is_essential, text
from cbt_plugins.results.record import RunRecord
from cbt_plugins.results.records import records_of

Runs = Tuple[RunRecord, ...]


@dataclass(frozen=True)
class Side:
    """One side of a comparison: runs of one or more archives, in the order in which they were given."""

    name: str
    runs: Runs
    given: Tuple[str, ...] = ()  # the paths


@dataclass(frozen=True)
class Case:
    """Runs of both sides with one configuration."""

    title: str  # "" where there is only one; otherwise what sets it apart: "phase.measure.workers=16"
    base: Runs
    new: Runs
    differences: Tuple[Difference, ...]


def cases(base: Side, new: Side, scale: Optional[Scale] = None) -> Tuple[List[Case], List[str]]:
    """Return the cases of both sides, and sentences on those of one side only. Raises Incomparable if none match."""
    ours, theirs = groups(base.runs), groups(new.runs)
    pairs: List[Tuple[Runs, Runs]] = []
    alone = []
    for group in ours:
        match = next((other for other in theirs if not conflicts(group[0], other[0], scale)), None)
        if match is None:
            alone.append(f"only in {base.name}: {_nearest(group, theirs, scale)}")
        else:
            theirs.remove(match)
            pairs.append((group, match))
    if not pairs:
        raise _incomparable(base, new, scale)
    alone += [f"only in {new.name}: {_names(other)}" for other in theirs]
    names = titles([ours for ours, _ in pairs])
    return [Case(title, a, b, tuple(differing(a, b))) for title, (a, b) in zip(names, pairs)], alone


def groups(runs: Sequence[RunRecord]) -> List[Runs]:
    """Return the runs in groups that can be compared with each other, in the order of the first of each group."""
    found: List[List[RunRecord]] = []
    for run in runs:
        group = next((its for its in found if not conflicts(its[0], run)), None)
        if group is None:
            found.append([run])
        else:
            group.append(run)
    return [tuple(group) for group in found]


def _nearest(group: Runs, others: Sequence[Runs], scale: Optional[Scale]) -> str:
    if not others:
        return _names(group)
    reasons = min((conflicts(group[0], other[0], scale) for other in others), key=len)
    told = ", ".join(f"{its.key} is {its.base}, in the other {its.new}" for its in reasons[:3])
    return f"{_names(group)} ({told})"


def _incomparable(base: Side, new: Side, scale: Optional[Scale]) -> Incomparable:
    reasons = min(
        (conflicts(a[0], b[0], scale) for a in groups(base.runs) for b in groups(new.runs)),
        key=len,
        default=[],
    )
    return Incomparable(f"cannot compare {base.name} with {new.name}", reasons)


def _names(runs: Runs) -> str:
    return ", ".join(run.name for run in runs)


def titles(found: Sequence[Runs]) -> Iterator[str]:
    """Yield a title for each case: the fewest essential keys that tell all cases of a side apart."""
    if len(found) == 1:
        yield ""
        return
    configs = [runs[0].config for runs in found]
    keys = [
        key
        for key in sorted({key for config in configs for key in config})
        if is_essential(key) and len({text(config.get(key)) for config in configs}) > 1
    ]
    chosen: List[str] = []
    for key in sorted(keys, key=lambda key: (-len({text(config.get(key)) for config in configs}), key)):
        if len({tuple(text(c.get(k)) for k in chosen) for c in configs}) == len(configs):
            break
        chosen.append(key)
    for config in configs:
        yield ", ".join(f"{key}={text(config.get(key))}" for key in chosen)


def sides(paths: Sequence[Sequence[Path]]) -> List[Side]:
    """Return one side for each list of paths. Raises Unreadable, and ValueError when a run comes twice."""
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
