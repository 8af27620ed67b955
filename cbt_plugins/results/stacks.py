"""Call stacks that the monitor `stacks` sampled: CPU time per request of each stack in one phase."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.results.archive import find_runs, read_run
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.nodes.thread_groups import group_of
from cbt_plugins.results.numbered_lines import each_numbered_line
from cbt_plugins.results.result_file import NotThere, Unreadable, reading
from cbt_plugins.results.run_state import why_unusable
from cbt_plugins.results.summary_file import loads, measured, summary_of

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
    left_out: Tuple[str, ...]  # unusable runs, and why

    @property
    def total(self) -> float:
        return sum(self.cpu_ms.values())


def profile_of(paths: Sequence[Path], phase: Optional[str] = None) -> Profile:
    """Return the stacks of a phase in all usable runs of some archives.

    By default it is the first measurement that has any. Only looks that lie wholly in the phase's window count. Raises
    Unreadable where there are none.
    """
    counts_of_phase: Dict[str, List[_Counts]] = defaultdict(list)
    notes: Dict[str, None] = {}
    left_out: List[str] = []
    names: Dict[str, None] = {}
    for run in _runs(paths, left_out):
        try:
            with reading(run):
                summary = summary_of(run)
                unusable = why_unusable(run, summary)
        except Unreadable as e:
            left_out.append(str(e))
            continue
        if unusable:
            left_out.append(f"{run}: left out: {unusable}")
            continue
        counts = {line["name"]: _Counts(line) for line in [*measured(summary), *loads(summary)]}
        names.update(dict.fromkeys(counts))
        chosen = [phase_counts for name, phase_counts in counts.items() if name == (phase or name)]
        for look in _looks(run, notes):
            for phase_counts in chosen:
                phase_counts.add(look)
        for phase_counts in chosen:
            counts_of_phase[phase_counts.name] += [phase_counts] if phase_counts.samples else []
    if phase and names and phase not in names:
        raise Unreadable(f"no phase {phase}: there is {', '.join(names)}")
    name = next((name for name in names if counts_of_phase[name]), None)
    if name is None:
        nothing = "the runs have no monitor `stacks`, or no look of it lies within the phase"
        why = "; ".join([*left_out, *notes]) or nothing
        raise Unreadable(f"{', '.join(map(str, paths))}: no call stacks: {why}")
    parts = counts_of_phase[name]
    mean: Dict[Stack, float] = defaultdict(float)
    variance: Dict[Stack, float] = defaultdict(float)
    for part in parts:
        for stack, value, stack_variance in part.stacks():
            mean[stack] += value / len(parts)
            variance[stack] += stack_variance / len(parts) ** 2
    samples = sum(part.samples for part in parts)
    return Profile(name, len(parts), samples, dict(mean), dict(variance), tuple(notes), tuple(left_out))


def _runs(paths: Sequence[Path], left_out: List[str]) -> Iterator[Path]:
    """Yield the runs of archives; `left_out` gets a sentence about each unreadable archive. Raises NotThere."""
    for path in paths:
        try:
            yield from find_runs(path)
        except NotThere:
            raise
        except Unreadable as e:
            left_out.append(str(e))


@dataclass(frozen=True)
class _Look:
    node: str
    begin: float
    seconds: float
    hz: float
    stacks: Mapping[str, int]


def _looks(run: Path, notes: Dict[str, None]) -> Iterator[_Look]:
    clocks = Clocks.of(read_run(run))
    first_names: Dict[Tuple[Path, str], str] = {}  # of the machines of an invocation
    for path in sorted(run.glob("monitors/[0-9][0-9]*/stacks.*/[!.]*.jsonl")):
        hz = 0.0
        for line in each_numbered_line(path, notes):
            if "hz" in line:
                hz = float(line["hz"])
                machine = str(line.get("machine") or path)  # earlier agents do not name it
                first_name = first_names.setdefault((path.parent.parent, machine), path.stem)
                if first_name != path.stem:
                    notes[f"{path.stem}: the same machine as {first_name}: its stacks count once"] = None
                    hz = 0.0
            elif "error" in line or "limit" in line:
                notes[f"{path.stem}: {line.get('error') or line['limit']}"] = None
            elif "stacks" in line and hz and line["s"] > 0:
                if sum(line["stacks"].values()) < line.get("n", 0):
                    notes[f"{path.stem}: the monitor left out rare stacks: CPU times are too low"] = None
                begin = float(line["t"]) - clocks.nodes.get(path.stem, 0.0)
                yield _Look(path.stem, begin, float(line["s"]), hz, line["stacks"])


class _Counts:
    """The stacks of one phase of one run, added up."""

    def __init__(self, phase: Mapping[str, Any]) -> None:
        self.name, self.samples = str(phase["name"]), 0
        self._begin, self._end = phase["window"]["start"], phase["window"]["end"]
        self._rate = float(phase["total"]["obj_per_s"] or 0.0)
        self._seconds: Dict[str, float] = defaultdict(float)  # of a node
        self._counts: Dict[Tuple[str, float, str], int] = defaultdict(int)  # (node, hz, text)

    def add(self, look: _Look) -> None:
        """Count a look that lies wholly in the phase."""
        if self._rate and self._begin <= look.begin and look.begin + look.seconds <= self._end:
            self._seconds[look.node] += look.seconds
            for text, n in look.stacks.items():
                self._counts[look.node, look.hz, text] += n
                self.samples += n

    def stacks(self) -> Iterator[Tuple[Stack, float, float]]:
        """Yield (stack, CPU milliseconds per request, their variance); a stack may come again, of another node."""
        for (node, hz, text), n in self._counts.items():
            # processors in use by a sample / requests a second
            ms_per_sample = 1000 / hz / self._seconds[node] / self._rate
            kind, thread, *frames = text.split(";")
            yield (kind, group_of(kind, thread), thread, *frames), n * ms_per_sample, n * ms_per_sample**2
