"""Samples of the monitor `perf_counters`: the counters of OSDs and gateways at the start and the end of windows.

Each process reads the files of one node. Files that have a daemon or a machine in common are read together: an OSD may
move to another node.
"""

from __future__ import annotations

import contextlib
import math
from array import array
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import (
    AbstractSet,
    Any,
    Dict,
    Hashable,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

import numpy as np

from cbt_plugins.results.clock_steps import SampleTimes
from cbt_plugins.results.numbered_lines import each_line_and_loss
from cbt_plugins.results.worker_processes import groups_of, mapping_of

#: names of numbers that are a state, and no counter, beside all that end with "_bytes"
_STATES = ("fragmentation_micros", "allocator_score", "queue", "active", "compact_queue", "rados_ops_active")
#: seconds between samples where a file does not say; then COARSER times that after FINE, as the agent does
INTERVAL, FINE, COARSER = 10.0, 360, 10
#: seconds between samples of what is asked less often
SELDOM = {"allocator_score": 1800.0}
#: intervals without a sample that make a gap
GAP_INTERVALS = 2.5
#: share by which the rise in a window may be wrong, because samples are beside its ends
MOST_WRONG = 0.1
#: standard deviations, and events, by which a number of events differs by chance
_CHANCE = 4.0
Window = Tuple[float, float]


def is_state(name: str) -> bool:
    return name.endswith("_bytes") or name in _STATES


class CounterSeries:
    """One number of a daemon, in order of time; of a latency, values are (number, seconds).

    A counter that begins anew goes on from what it had, at most one interval before the sample that shows it.
    """

    def __init__(self, times: np.ndarray, intervals: np.ndarray, values: np.ndarray, is_state: bool) -> None:
        self._times, self._intervals = times, intervals
        self._edges, self._levels, self._is_state = times, values, is_state
        if is_state:
            return
        rises = np.diff(values, axis=0)
        fresh = (rises < 0).any(axis=1)
        rises[fresh] = values[1:][fresh]
        levels = np.vstack((values[:1], values[0] + np.cumsum(rises, axis=0)))
        (late,) = np.nonzero(fresh & (np.diff(times) > intervals[1:]))
        self._levels = np.insert(levels, late + 1, levels[late], axis=0)
        self._edges = np.insert(times, late + 1, (times - intervals)[late + 1])

    @property
    def lasts(self) -> bool:
        """Whether it was seen more than once, as what a program of a moment has is not."""
        return len(self._times) > 1

    def meets(self, window: Window) -> bool:
        """Return whether a part of a window is between the first sample and the last one."""
        return bool(window[1] > self._times[0] and window[0] < self._times[-1])

    def at(self, window: Window) -> Optional[np.ndarray]:
        """Return the values at the start and the end of a window: (2, columns); None without samples near both.

        None also where a counter's rise may be wrong by more than a tenth, unless the rate between the first sample and
        the last one inside is that of the window: what rises faster near its ends is then of a busier load beside it.
        """
        if not self.is_watched_in(window):
            return None
        levels = self._at(window)
        if self._is_state:
            return levels
        low_and_rate = self._rate_inside(window)
        if low_and_rate is None:
            is_wrong = self._is_wrong_in(window) or self._may_be_of_neighbours(window, levels)
            return None if is_wrong else levels
        low, per_s = low_and_rate
        even = np.vstack((low, low + per_s * (window[1] - window[0])))
        if not _exceeds(levels[1] - levels[0] - (even[1] - even[0]), levels[1] - levels[0]):
            return even if self._is_wrong_in(window) else levels
        ends = list(self._ends(window, per_s))
        # what is beside counts by time; more than that is wrong if daemons go on there as further away
        none = np.zeros(levels.shape[1])
        too_much = sum((np.clip(end.most_beside - (end.rise - end.inside), 0.0, end.inside) for end in ends), none)
        if not _exceeds(too_much, levels[1] - levels[0]):
            return None if self._is_wrong_in(window) else levels
        faster = ((end.rise - per_s * end.seconds_inside, end.least_beside) for end in ends)
        unexplained = sum((np.maximum(rise - beside, 0.0) for rise, beside in faster), none)
        return None if _exceeds(unexplained, even[1] - even[0]) else even

    def rare_events_in(self, window: Window) -> Optional[RareEvents]:
        """Return the values by time where no more rises near the ends of a window than rare events do by chance."""
        low_and_rate = self._rate_inside(window)
        if low_and_rate is None:
            return None
        _, per_s = low_and_rate
        ends = list(self._ends(window, per_s))
        near_ends, seconds = sum((end.rise for end in ends), np.zeros(len(per_s))), sum(end.seconds for end in ends)
        if near_ends[0] > most_by_chance(per_s[0] * seconds):
            return None
        return RareEvents(self._at(window), near_ends, seconds)

    def is_watched_in(self, window: Window) -> bool:
        """Return whether there are samples near both ends of a window."""
        return self.meets(window) and all(_near(end, self._times, self._intervals) for end in window)

    def _rate_inside(self, window: Window) -> Optional[Tuple[np.ndarray, np.ndarray]]:
        """Return the values of the first sample in a window, and the rate until the last one; None without two."""
        first, end = np.searchsorted(self._times, window[0]), np.searchsorted(self._times, window[1], "right")
        if end - first < 2 or self._times[first] == self._times[end - 1]:
            return None
        inside = float(self._times[first]), float(self._times[end - 1])
        low, high = self._at(inside)
        return low, (high - low) / (inside[1] - inside[0])

    def _at(self, times: Sequence[float]) -> np.ndarray:
        columns = range(self._levels.shape[1])
        return np.column_stack([np.interp(times, self._edges, self._levels[:, i]) for i in columns])

    def _is_wrong_in(self, window: Window) -> bool:
        """Return whether a counter's rise in a window may be wrong, if the counter rises as fast beside the window.

        Between two samples a counter seems to rise evenly. If it does so at `t` only on one side, its value there is
        wrong by what it rises in (t - before) * (after - t) / (after - before) seconds.
        """
        wrong: Dict[int, float] = {}  # number of the sample after an end of the window -> seconds
        for t, after in zip(window, np.searchsorted(self._edges, window).tolist()):
            if 0 < after < len(self._edges):
                low, high = float(self._edges[after - 1]), float(self._edges[after])
                wrong[after] = wrong.get(after, 0.0) + (t - low) * (high - t) / max(high - low, 1e-9)
        most = MOST_WRONG * (window[1] - window[0])
        if sum(wrong.values()) > most:
            wrong = {n: seconds for n, seconds in wrong.items() if (self._levels[n] != self._levels[n - 1]).any()}
        return sum(wrong.values()) > most

    def _may_be_of_neighbours(self, window: Window, levels: np.ndarray) -> bool:
        """Return whether too much of the rise may be from beside a window, where it is as fast as further away."""
        parts = (np.minimum(end.least_beside, end.inside) for end in self._ends(window))
        return _exceeds(sum(parts, np.zeros(levels.shape[1])), levels[1] - levels[0])

    def _ends(self, window: Window, per_s: Union[np.ndarray, float] = 0.0) -> Iterator[_WindowEnd]:
        """Yield the start and the end of a window, without one that has no sample beside it.

        `per_s`: the rate in the window. Beside an end with one sample, all that rises faster may be, or none of it.
        """
        edges, levels = self._edges, self._levels
        after, before = np.searchsorted(edges, window[0]), np.searchsorted(edges, window[1], "right") - 1
        for t, near, step in ((window[0], after - 1, -1), (window[1], before + 1, 1)):
            further, inner = near + step, near - step
            if not 0 <= near < len(edges):
                continue
            rise, seconds_inside = abs(levels[inner] - levels[near]), abs(edges[inner] - t)
            seconds = float(abs(edges[inner] - edges[near]))
            inside = rise * seconds_inside / seconds
            least, most = per_s * abs(t - edges[near]), np.maximum(rise - per_s * seconds_inside, 0.0)
            if 0 <= further < len(edges):
                beside_per_s = (levels[further] - levels[near]) / max(abs(edges[further] - edges[near]), 1e-9) * step
                least = most = beside_per_s * abs(t - edges[near])
            yield _WindowEnd(rise, inside, least, most, float(seconds_inside), seconds)


class _WindowEnd(NamedTuple):
    """What a counter does between the samples before and after an end of a window."""

    rise: np.ndarray
    inside: np.ndarray  # part of the rise in the window, by time
    least_beside: np.ndarray  # rise beside the window; as fast as further away, where samples show that
    most_beside: np.ndarray  # the same number there
    seconds_inside: float
    seconds: float  # between the two samples


class RareEvents(NamedTuple):
    """The values of a counter in a window by time, and what rises near the ends, which may be of beside the window."""

    values: np.ndarray  # at the start and the end of the window
    near_ends: np.ndarray  # rise between the samples before and after each end
    seconds: float  # between these samples


def most_by_chance(expected: float) -> float:
    """Return the most events that come by chance where so many are expected."""
    return expected + _CHANCE * (1 + math.sqrt(expected))


def _exceeds(wrong: np.ndarray, rise: np.ndarray) -> bool:
    """Return whether too much of a rise is wrong, in any column."""
    return any(part > MOST_WRONG * of_all + 1e-9 for part, of_all in zip(wrong.tolist(), rise.tolist()))


class DaemonCounters:
    """The samples of one daemon, in compact arrays: those of a day are many."""

    def __init__(self) -> None:
        self.agent_ended = False  # with the last sample: nobody knows how long the daemon lived
        self._times, self._intervals = array("d"), array("d")  # of each sample
        # name -> (columns, numbers of the samples that have it, its values)
        self._samples: Dict[str, Tuple[int, array[int], array[float]]] = {}

    def add(self, t: float, values: Mapping[str, Any], interval: float = INTERVAL) -> None:
        """Add a sample; `interval` is the seconds from one to the next at that time."""
        number = len(self._times)
        self._times.append(t)
        self._intervals.append(interval)
        for name, value in values.items():
            row = value if isinstance(value, list) else (value,)
            named = self._samples.get(name) or (len(row), array("I"), array("d"))
            columns, numbers, cells = named
            if len(row) == columns and isinstance(value, list) == (columns == 2):
                with contextlib.suppress(TypeError, OverflowError):
                    cells.extend(array("d", row))
                    numbers.append(number)
                    self._samples[name] = named

    @property
    def span(self) -> Window:
        """The times of the first and the last sample."""
        return min(self._times), max(self._times)

    def missing_in(self, times: np.ndarray, intervals: np.ndarray) -> List[int]:
        """Return the numbers of the samples that lie in gaps between others, whose times rise, or beside all others."""
        own = np.array(self._times)
        place = np.searchsorted(times, own)
        before, after = np.append(-np.inf, times)[place], np.append(times, np.inf)[place]
        interval = np.append(intervals[:1], intervals)[place]
        # each agent has its own delay: samples side by side would look as if counters fell
        apart = (own - before > interval / 2) & (after - own > interval / 2)
        (numbers,) = np.nonzero(apart & (after - before > GAP_INTERVALS * interval))
        return list(map(int, numbers))

    def fill_gaps(self, counters: DaemonCounters) -> None:
        """Add the samples that another agent has of the daemon, where there are none."""
        for part in (self, counters):  # a clock that was set back does not change the order of the samples
            part._times = array("d", np.maximum.accumulate(np.array(part._times)))
        taken = counters.missing_in(np.array(self._times), np.array(self._intervals))
        if not taken:
            return
        samples = [(t, i, self, n) for n, (t, i) in enumerate(zip(self._times, self._intervals))]
        samples += [(counters._times[n], counters._intervals[n], counters, n) for n in taken]
        samples.sort(key=lambda sample: sample[0])
        numbers_of = {(id(owner), n): number for number, (_, _, owner, n) in enumerate(samples)}
        if counters._times[taken[-1]] >= max(self._times):
            self.agent_ended = counters.agent_ended
        rows_of_name: Dict[str, Tuple[int, List[Tuple[int, Sequence[float]]]]] = {}
        for owner in (self, counters):
            for name, (columns, numbers, cells) in owner._samples.items():
                first_columns, rows = rows_of_name.setdefault(name, (columns, []))
                for place, n in enumerate(numbers if first_columns == columns else ()):
                    if (id(owner), n) in numbers_of:
                        rows.append((numbers_of[id(owner), n], cells[place * columns : (place + 1) * columns]))
        self._times = array("d", (t for t, _, _, _ in samples))
        self._intervals = array("d", (interval for _, interval, _, _ in samples))
        self._samples = {}
        for name, (columns, rows) in rows_of_name.items():
            rows.sort(key=lambda row: row[0])
            values = array("d", chain.from_iterable(row for _, row in rows))
            self._samples[name] = (columns, array("I", (number for number, _ in rows)), values)

    @property
    def names(self) -> List[str]:
        return list(self._samples)

    def is_lost_in(self, window: Window) -> bool:
        """Return whether the agent that watched the daemon ended before a window."""
        return self.agent_ended and window[0] >= max(self._times)

    def series(self, name: str) -> CounterSeries:
        """Return a number at all times; it is not kept."""
        columns, numbers, cells = self._samples[name]
        times, intervals = (np.array(column)[np.array(numbers)] for column in (self._times, self._intervals))
        intervals = np.maximum(intervals, SELDOM.get(name, 0.0))
        values = np.array(cells).reshape(-1, columns)
        # a clock that was set back does not change the order of the samples
        return CounterSeries(np.maximum.accumulate(times), intervals, values, is_state(name))


def _near(t: float, times: np.ndarray, intervals: np.ndarray) -> bool:
    """Return whether there are samples around a time, or one at most an interval from it."""
    after = int(np.searchsorted(times, t))
    if any(abs(times[n] - t) <= intervals[n] for n in range(max(0, after - 1), min(after + 1, len(times)))):
        return True
    return 0 < after < len(times) and bool(times[after] - times[after - 1] <= GAP_INTERVALS * intervals[after - 1])


class CountersFile(NamedTuple):
    """The samples of the agent of a node."""

    number: int  # among all files
    node: str
    path: Path
    offset: float  # seconds: the node's clock minus the run's


class DaemonInWindows(NamedTuple):
    """The counters of a daemon at the start and the end of windows, which have numbers."""

    name: str
    #: name of a counter -> the windows in which it is known, and its values there: (windows, 2, columns)
    values: Dict[str, Tuple[Tuple[int, ...], np.ndarray]]
    #: windows without a value, because the daemon was down near an end of it, or nobody watched the daemon
    left_out: AbstractSet[int]
    unwatched: AbstractSet[int]
    #: name of a counter -> windows for which its samples are too far apart -> rare events, if it can be these
    coarse: Dict[str, Dict[int, Optional[RareEvents]]]


class _PlacedDaemon(NamedTuple):
    """A daemon of some files, and its place among the daemons of all files."""

    place: Tuple[Window, int, int, int]
    daemon: DaemonInWindows


class _FileFacts(NamedTuple):
    """What is known of a file besides its samples."""

    keys: Set[Hashable]  # files that have one of them are read together
    notes: List[str]  # what was wrong with its lines
    clock_steps: List[float]  # seconds by which the clock of its node was set


@dataclass(frozen=True)
class CountersReader:
    """Reads the counters of daemons in windows."""

    windows: Sequence[Window]

    def read(
        self, files: Sequence[CountersFile], notes: Dict[str, None], clocks: Dict[str, List[float]]
    ) -> List[DaemonInWindows]:
        """Return the daemons; of gateways of one name on several machines: "client.rgw.a on NODE".

        Says in `notes` what was wrong with lines; `clocks` gets the steps of each node's clock that was set.
        """
        # a node has a file of each invocation of the run
        groups = groups_of([{file.node} for file in files])
        facts, placed = self._read_groups(files, groups)
        needed = groups_of([fact.keys for fact in facts])
        if needed != groups:
            del placed
            facts, placed = self._read_groups(files, needed)
        notes.update(dict.fromkeys(note for fact in facts for note in fact.notes))
        for file, fact in zip(files, facts):
            if fact.clock_steps:
                clocks.setdefault(file.node, []).extend(fact.clock_steps)
        return [daemon for _, daemon in sorted(placed, key=lambda daemon: daemon.place)]

    def _read_groups(
        self, files: Sequence[CountersFile], groups: Sequence[Sequence[int]]
    ) -> Tuple[List[_FileFacts], List[_PlacedDaemon]]:
        facts: Dict[int, _FileFacts] = {}
        placed: List[_PlacedDaemon] = []
        with mapping_of((file.path for file in files), len(groups)) as map_groups:
            results = map_groups(self.of_group, [[files[number] for number in group] for group in groups])
            for group, (facts_of_group, placed_of_group) in zip(groups, results):
                facts.update(zip(group, facts_of_group))
                placed += placed_of_group
        return [facts[number] for number in range(len(files))], placed

    def of_group(self, files: Sequence[CountersFile]) -> Tuple[List[_FileFacts], List[_PlacedDaemon]]:
        """Return the facts of files, and the daemons that are in no other file."""
        samples = _GroupSamples()
        facts = [samples.add(file) for file in files]
        placed = [
            _PlacedDaemon(place, self._in_windows(name, counters)) for place, name, counters in samples.daemons()
        ]
        return facts, placed

    def _in_windows(self, name: str, counters: DaemonCounters) -> DaemonInWindows:
        daemon = DaemonInWindows(name, {}, set(), set(), {})
        lost = {number for number, window in enumerate(self.windows) if counters.is_lost_in(window)}
        left_out: Set[int] = set()
        unwatched: Set[int] = set()
        for counter in counters.names:
            series = counters.series(counter)
            values = [series.at(window) for window in self.windows]
            with_values = tuple(number for number, at in enumerate(values) if at is not None)
            missing = set(range(len(values))).difference(with_values)
            watched = {n for n in missing if series.is_watched_in(self.windows[n])}
            if watched:
                daemon.coarse[counter] = {n: series.rare_events_in(self.windows[n]) for n in watched}
            unwatched |= missing & lost - watched
            left_out |= {n for n in missing - lost - watched if series.lasts and series.meets(self.windows[n])}
            if with_values:
                daemon.values[counter] = (with_values, np.array([values[n] for n in with_values]))
        return daemon._replace(left_out=left_out, unwatched=unwatched)


class _GroupSamples:
    """The samples of all daemons of some files."""

    def __init__(self) -> None:
        # (name, "" or a gateway's node, the first one of its machine) -> number of the file -> samples
        self._by_file: Dict[Tuple[str, str], Dict[int, DaemonCounters]] = {}
        self._machines: Dict[str, str] = {}  # as agents name them -> the first node
        self._node_of_machine: Dict[str, str] = {}  # node -> the first node of its machine

    def add(self, file: CountersFile) -> _FileFacts:
        """Add the samples of a file; return its facts."""
        keys: Set[Hashable] = {file.node}
        notes: Dict[str, None] = {}
        configured_interval, samples = INTERVAL, 0
        last_daemons: Iterable[Tuple[str, str]] = ()
        times = SampleTimes(file.offset)
        for line, is_behind_loss in each_line_and_loss(file.path, notes):
            if is_behind_loss:
                times.lose()
            if "version" in line:  # also where the monitor was connected anew
                times.begin(line)
                configured_interval, samples = float(line.get("interval") or INTERVAL), 0
                machine = str(line.get("machine"))
                keys.add(("machine", machine))
                # of a node that was booted again, the first line counts; earlier agents do not name the machine
                self._node_of_machine.setdefault(file.node, self._machines.setdefault(machine, file.node))
            elif "d" in line:
                samples += 1
                t = times.of(line)
                interval = configured_interval * (COARSER if samples >= FINE else 1)
                first_node = self._node_of_machine.get(file.node, file.node)
                daemons = {name: (name, "" if name.startswith("osd.") else first_node) for name in line["d"] or ()}
                keys.update(("daemon", name) for name in daemons)
                for name, daemon in daemons.items():
                    of_files = self._by_file.setdefault(daemon, {})
                    of_files.setdefault(file.number, DaemonCounters()).add(t, line["d"][name], interval)
                last_daemons = daemons.values()
        for daemon in last_daemons:
            self._by_file[daemon][file.number].agent_ended = True
        return _FileFacts(keys, list(notes), times.steps)

    def daemons(self) -> Iterator[Tuple[Tuple[Window, int, int, int], str, DaemonCounters]]:
        """Yield the place, the name and the counters of each daemon: in the order of their first samples."""
        counters_of_name: Dict[str, List[Tuple[str, DaemonCounters]]] = {}
        place_of_name: Dict[str, Tuple[Window, int, int]] = {}
        chained = [
            ((counters.span, next(iter(of_files)), index), key, counters)
            for index, (key, of_files) in enumerate(self._by_file.items())
            for counters in [_chained(of_files.values())]
        ]
        for place, (name, node), counters in sorted(chained, key=lambda item: item[0]):
            place_of_name.setdefault(name, place)
            of_name = counters_of_name.setdefault(name, [])
            if of_name and of_name[-1][1].span[1] - counters.span[0] <= INTERVAL:  # it moved
                of_name[-1][1].fill_gaps(counters)
            else:
                of_name.append((node, counters))
        for name, of_name in counters_of_name.items():
            for index, (node, counters) in enumerate(of_name):
                yield (*place_of_name[name], index), f"{name} on {node}" if len(of_name) > 1 else name, counters


def _chained(parts: Iterable[DaemonCounters]) -> DaemonCounters:
    """Return the samples of several agents of one daemon: those of the first one, and of others in its gaps."""
    first, *others = sorted(parts, key=lambda part: part.span)
    for part in others:
        first.fill_gaps(part)
    return first
