"""Movement of a node's clock: what a run has measured at the ends of its phases, and lines of the node's agent tell."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from itertools import chain, compress, product
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.cluster_conditions import CLOCK
from cbt_plugins.results.clock_steps import NEVER_SET, STEP

#: seconds that a clock may drift in a second (NTP's limit, 500 ppm); one that moved faster was set
_FASTEST = 5e-4
#: seconds from a step to the line that tells of it, at most
_TOLD_AFTER = 60.0
#: steps forward between two measurements, of which some may be pauses; of more, all or none are
_MOST_FORWARD = 8


class ClockLine(NamedTuple):
    """A line of an agent that tells of its node's clock."""

    t: float  # by that clock
    step: float = 0.0  # seconds by which it was set, or the node was paused
    is_header: bool = False  # a new agent begins; a step is then what the clock was set back by since the last line


class _Shown(NamedTuple):
    """Such a line, and what the clock showed before the step, minus its first offset."""

    line: float
    before: float
    step: float
    is_header: bool


class _Measured(NamedTuple):
    t: float
    moved: float  # seconds since its first offset
    error: float


class _Jump(NamedTuple):
    line: float  # time of the line that is the first one behind it
    t: float
    seconds: float  # 0 for a pause


@dataclass(frozen=True)
class ClockDrift:
    """Seconds by which a clock has moved from its first offset, as measured; linear between, but for steps in lines.

    A stretch ends where the clock was set. Each has points: what the clock shows minus its first offset, and seconds.
    """

    stretches: Sequence[Sequence[Tuple[float, float]]] = ((),)
    #: time of the line that begins a stretch -> its number, and the seconds by which the clock was set
    begins: Mapping[float, Tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, events: Iterable[Mapping[str, Any]], node: str, offset: float, lines: Iterable[ClockLine] = ()
    ) -> ClockDrift:
        """Return how a clock has moved from `offset`, by events.jsonl and lines of the agents on its node, in order."""
        clocks = [event for event in events if event.get("event") == CLOCK and event.get("node") == node]
        measured = sorted(_Measured(float(e["t"]), float(e["seconds"]) - offset, float(e["error"])) for e in clocks)
        if not measured:
            return NO_DRIFT
        shown = [_Shown(line.t, line.t - line.step - offset, line.step, line.is_header) for line in lines]
        stretches: List[List[Tuple[float, float]]] = [[]]
        begins: Dict[float, Tuple[int, float]] = {}
        ends: List[Optional[_Measured]] = [None, *measured, None]
        for begin, end, steps in zip(ends, ends[1:], _by_interval(measured, [s for s in shown if s.step])):
            rise = 0.0
            if begin is not None and end is not None:
                jumps = list(_jumps(begin, end, steps, [s for s in shown if s.is_header]))
                drifted = end.moved - begin.moved - sum(jump.seconds for jump in jumps)
                rise = drifted / (end.t - begin.t) if end.t > begin.t else 0.0
            else:
                jumps = list(_jumps_unmeasured(measured[0].moved if begin is None else begin.moved, steps))
            moved = measured[0].moved - sum(jump.seconds for jump in jumps) if begin is None else begin.moved
            for jump in jumps:
                now = moved + (rise * (jump.t - begin.t) if begin is not None else 0.0)
                stretches[-1].append((jump.t + now, now))
                stretches.append([(jump.t + now + jump.seconds, now + jump.seconds)])
                begins[jump.line] = len(stretches) - 1, jump.seconds
                moved += jump.seconds
            if end is not None:
                stretches[-1].append((end.t + end.moved, end.moved))
        return cls([sorted(points) for points in stretches], begins)

    def at(self, shown: float, stretch: int = 0) -> float:
        """Return by how much the clock has moved when it shows this, minus its first offset, in one of the stretches.

        Before the first and after the last measurement by as much as then.
        """
        points = self.stretches[stretch]
        after = bisect.bisect(points, (shown,))
        around = points[max(0, after - 1) : after + 1]
        if len(around) < 2 or not after:
            return around[0][1] if around else 0.0
        (begin, low), (end, high) = around
        return low + (high - low) * (shown - begin) / (end - begin)


NO_DRIFT = ClockDrift()


def _by_interval(measured: Sequence[_Measured], steps: Iterable[_Shown]) -> List[List[_Shown]]:
    """Return the steps before the first measurement, between each two, and after the last one."""
    intervals: List[List[_Shown]] = [[] for _ in range(len(measured) + 1)]
    place, moved = 0, measured[0].moved  # of the clock before the step
    for step in steps:
        while place < len(measured):
            late = step.before - moved - measured[place].t
            has_it = place > 0 and _explains(step.step, measured[place].moved - moved)
            if late <= (_TOLD_AFTER if has_it else 0.0):
                moved += step.step if has_it or step.step < 0.0 else 0.0
                break
            moved = measured[place].moved
            place += 1
        intervals[place].append(step)
    return intervals


def _explains(step: float, moved: float) -> bool:
    return abs(moved - step) < abs(moved)


def _jumps(begin: _Measured, end: _Measured, steps: Sequence[_Shown], headers: Sequence[_Shown]) -> Iterator[_Jump]:
    """Yield the jumps between two measurements, which also tell a step from a pause.

    A move that is faster than drift, and that no line tells, was before the last agent began, if one did: a running
    agent tells of it. Of moves up to STEP it does not tell: their time is unknown, and they count as drift.
    """
    moved, t = begin.moved, begin.t
    seconds_of_steps = list(_real_seconds([shown.step for shown in steps], end.moved - begin.moved))
    set_back = [number for number, shown in enumerate(steps) if shown.is_header]
    for number in set_back[-1:]:  # the time from the last line to the header is unknown, unlike all other steps
        seconds_of_steps[number] += end.moved - begin.moved - sum(seconds_of_steps)
    for shown, seconds in zip(steps, seconds_of_steps):
        t = min(max(t, shown.before - moved), end.t)
        yield _Jump(shown.line, t, seconds)
        moved += seconds
    untold = end.moved - moved
    if abs(untold) > max(STEP, _FASTEST * (end.t - begin.t) + begin.error + end.error):
        began = [header for header in headers if not header.step and t <= header.before - end.moved <= end.t]
        for header in began[-1:]:
            yield _Jump(header.line, header.before - end.moved, untold)


def _real_seconds(steps: Sequence[float], moved: float) -> Sequence[float]:
    """Return the seconds by which steps have set a clock that has moved by so many: those forward may be pauses."""
    forward = [number for number, step in enumerate(steps) if step > 0.0]
    some = product((False, True), repeat=len(forward)) if len(forward) <= _MOST_FORWARD else ()
    pauses = chain([forward, []], (list(compress(forward, chosen)) for chosen in some))
    choices = ([0.0 if number in paused else step for number, step in enumerate(steps)] for paused in pauses)
    return min(choices, key=lambda choice: abs(moved - sum(choice)))


def _jumps_unmeasured(moved: float, steps: Sequence[_Shown]) -> Iterator[_Jump]:
    """Yield the jumps before the first or behind the last measurement: no time comes twice."""
    clock = NEVER_SET
    for shown in steps:
        before, clock = clock, clock.after(shown.step)
        yield _Jump(shown.line, shown.before - moved, clock.shift - before.shift)
        moved += clock.shift - before.shift
