"""Sides of a comparison, and the runs of both that belong together: an archive may hold a sweep of configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.compare.differences import Difference, Incomparable, Scale, conflicts, differing, is_essential, text
from cbt_plugins.results.record import RunRecord

Runs = Tuple[RunRecord, ...]


@dataclass(frozen=True)
class Side:
    """One thing that is compared: runs of one or more archives, in the order in which they were given."""

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
    """The cases of both sides, and sentences on those that only one has. Raises Incomparable when there are none."""
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
    """Runs that can be compared with each other, in the order of the first of each group."""
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
    told = ", ".join(f"{its.key} {its.base}, there {its.new}" for its in reasons[:3])
    return f"{_names(group)} ({told})"


def _incomparable(base: Side, new: Side, scale: Optional[Scale]) -> Incomparable:
    reasons = min(
        (conflicts(a[0], b[0], scale) for a in groups(base.runs) for b in groups(new.runs)),
        key=len,
        default=[],
    )
    return Incomparable(f"{base.name} and {new.name} cannot be compared", reasons)


def _names(runs: Runs) -> str:
    return ", ".join(run.name for run in runs)


def titles(found: Sequence[Runs]) -> Iterator[str]:
    """What differs between the cases of one side: the fewest essential keys that tell all of them apart."""
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
