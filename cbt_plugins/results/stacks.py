"""Call stacks that the monitor `stacks` sampled: CPU time per request of each stack in one phase."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import find_runs, read_run
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.source import Unreadable
from cbt_plugins.results.summary_file import loads, measured, summary_of
from cbt_plugins.results.thread_groups import group_of

#: class of daemons, thread group, name of the thread, frames from the root to the leaf
Stack = Tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """The stacks of one phase of some runs."""

    phase: str
    runs: int
    samples: int
    cpu_ms: Mapping[Stack, float]  # of a stack itself: CPU milliseconds per request, the mean of the runs
    variance: Mapping[Stack, float]  # of that, from the number of its samples (Poisson); not from run to run
    notes: Tuple[str, ...]  # nodes without stacks, and why

    @property
    def total(self) -> float:
        return sum(self.cpu_ms.values())


def profile_of(paths: Sequence[Path], phase: Optional[str] = None) -> Profile:
    """Return the stacks of a phase in all runs of some archives; by default of the first measurement that has any.

    Only looks that lie wholly in the phase's window count. Raises Unreadable where there are none.
    """
    runs = [run for path in paths for run in find_runs(path)]
    found: Dict[str, List[_Counted]] = defaultdict(list)
    notes: Dict[str, None] = {}
    names: Dict[str, None] = {}
    for run in runs:
        summary = summary_of(run)
        looks = list(_looks(run, notes))
        for name, line in {line["name"]: line for line in [*measured(summary), *loads(summary)]}.items():
            names[name] = None
            if name == (phase or name):
                its = _in_window(looks, (line["window"]["start"], line["window"]["end"]), line["total"])
                found[name] += [its] if its.samples else []
    if phase and phase not in names:
        raise Unreadable(f"no phase {phase}: there is {', '.join(names)}")
    chosen = next((name for name in names if found[name]), None)
    if chosen is None:
        why = "; ".join(notes) or "the runs have no monitor `stacks`, or no look of it lies within the phase"
        raise Unreadable(f"{', '.join(map(str, paths))}: no call stacks: {why}")
    parts = found[chosen]
    mean: Dict[Stack, float] = defaultdict(float)
    variance: Dict[Stack, float] = defaultdict(float)
    for part in parts:
        for stack, value in part.cpu_ms.items():
            mean[stack] += value / len(parts)
            variance[stack] += part.variance[stack] / len(parts) ** 2
    return Profile(chosen, len(parts), sum(part.samples for part in parts), dict(mean), dict(variance), tuple(notes))


@dataclass(frozen=True)
class _Look:
    node: str
    begin: float
    seconds: float
    hz: float
    stacks: Mapping[str, int]


def _looks(run: Path, notes: Dict[str, None]) -> Iterator[_Look]:
    clocks = Clocks.of(read_run(run))
    for path in sorted(run.glob("monitors/[0-9][0-9]*/stacks.*/*.jsonl")):
        hz = 0.0
        for line in json_lines(path):
            if "hz" in line:
                hz = float(line["hz"])
            elif "error" in line:
                notes[f"{path.stem}: {line['error']}"] = None
            elif "stacks" in line and hz and line["s"] > 0:
                begin = float(line["t"]) - clocks.nodes.get(path.stem, 0.0)
                yield _Look(path.stem, begin, float(line["s"]), hz, line["stacks"])


@dataclass(frozen=True)
class _Counted:
    cpu_ms: Mapping[Stack, float]
    variance: Mapping[Stack, float]
    samples: int


def _in_window(looks: Sequence[_Look], window: Tuple[float, float], total: Mapping[str, Any]) -> _Counted:
    inside = [its for its in looks if window[0] <= its.begin and its.begin + its.seconds <= window[1]]
    seconds: Dict[str, float] = defaultdict(float)
    for its in inside:
        seconds[its.node] += its.seconds
    rate = float(total["obj_per_s"] or 0.0)
    made: Dict[Stack, float] = defaultdict(float)
    variance: Dict[Stack, float] = defaultdict(float)
    for its in inside if rate else ():
        one = 1000 / its.hz / seconds[its.node] / rate  # processors in use by a sample / requests a second
        for text, n in its.stacks.items():
            kind, thread, *frames = text.split(";")
            stack = (kind, group_of(kind, thread), thread, *frames)
            made[stack] += n * one
            variance[stack] += n * one**2
    return _Counted(made, variance, sum(n for its in inside for n in its.stacks.values()) if rate else 0)
