"""What the monitors `perf_counters` (OSDs and gateways of themselves) and `backlog` (of RGW) saw in each phase."""

from __future__ import annotations

import contextlib
import json
from array import array
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.archive_files import open_regular
from cbt_plugins.formatting import plain, several
from cbt_plugins.journal import lines_of
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.nodes.unwatched_osds import first_names, unwatched_osds, unwatched_text
from cbt_plugins.results.numbered_lines import numbered_lines

#: names of numbers that are a state, and no counter, beside all that end with "_bytes"
_STATES = ("fragmentation_micros", "allocator_score", "queue", "active", "compact_queue", "rados_ops_active")
#: what OSDs that use their slow device for RocksDB have more of, in bytes; entries of garbage that are many
SPILLED, GARBAGE = 1 << 20, 1000
#: seconds between samples where a file does not say; then COARSER times that after FINE, as the agent does
INTERVAL, FINE, COARSER = 10.0, 360, 10
#: seconds between samples of what is asked less often
SELDOM = {"allocator_score": 1800.0}
#: seconds between looks at the backlog where a file does not say; intervals from the end of a window to a look near it
LOOKS, NEAR = 60.0, 10.0
#: intervals without a sample that make a gap
GAP_INTERVALS = 2.5
#: what a warning names
_SHOWN = 5
#: bytes of a line within which its limit begins
_LIMIT_WITHIN = 60
Window = Tuple[float, float]


class CounterSeries:
    """One number of a daemon, in order of time; of a latency, values are (number, seconds).

    A counter that begins anew goes on from what it had, at most one interval before the sample that shows it.
    """

    def __init__(self, times: np.ndarray, intervals: np.ndarray, values: np.ndarray, is_state: bool) -> None:
        self._times, self._intervals = times, intervals
        self._edges, self._levels = times, values
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
        """Return the values at the start and the end of a window: (2, columns); None without samples near both."""
        if not self.meets(window) or not all(_near(end, self._times, self._intervals) for end in window):
            return None
        columns = range(self._levels.shape[1])
        return np.column_stack([np.interp(window, self._edges, self._levels[:, i]) for i in columns])


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
        return CounterSeries(np.maximum.accumulate(times), intervals, values, _is_state(name))


def _near(t: float, times: np.ndarray, intervals: np.ndarray) -> bool:
    """Return whether there are samples around a time, or one at most an interval from it."""
    after = int(np.searchsorted(times, t))
    around = slice(max(0, after - 1), after + 1)
    if (np.abs(times[around] - t) <= intervals[around]).any():
        return True
    return 0 < after < len(times) and bool(np.diff(times[around])[0] <= GAP_INTERVALS * intervals[after - 1])


def _is_state(name: str) -> bool:
    return name.endswith("_bytes") or name in _STATES


def counters_of_phases(run: ArchivedRun, phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return {"phases": {name: {"lines", "backlog"}}, "unwatched": OSDs} of a run; None without these monitors."""
    offsets = Clocks.of(run).nodes
    daemons, backlog = _daemons(run, offsets), list(_backlog(run, offsets))
    windows = {line["name"]: (line["window"]["start"], line["window"]["end"]) for line in phases}
    windows = {name: window for name, window in windows.items() if window[1] > window[0]}
    numbers_of_phase: Dict[str, Any] = {}
    for name, values in zip(windows, _values_at(daemons, list(windows.values()))):
        numbers: Dict[str, Any] = {"lines": list(_lines(values)), "backlog": _backlog_in(backlog, values.window)}
        for reason, daemons_without in (("left_out", values.left_out), ("unwatched", values.unwatched)):
            if numbers["lines"] and daemons_without:
                numbers[reason] = list(daemons_without)
        if numbers["lines"] or numbers["backlog"]:
            numbers_of_phase[name] = numbers
    unwatched = unwatched_osds(run.path, daemons)
    named = {"unwatched": unwatched} if unwatched else {}
    return {"phases": numbers_of_phase, **named} if numbers_of_phase else None


def _files(run: Path, monitor: str) -> Iterator[Tuple[str, Path]]:
    """Yield (node, its file); others' files are there too where nodes share a directory."""
    for folder in sorted(run.glob(f"monitors/[0-9][0-9]*/{monitor}.*")):
        node = folder.name[len(monitor) + 1 :]
        yield from ((node, folder / f"{name}.jsonl") for name in (node, monitor) if (folder / f"{name}.jsonl").exists())


def _daemons(run: ArchivedRun, offsets: Mapping[str, float]) -> Dict[str, DaemonCounters]:
    """Return daemon -> counters; of gateways of one name on several machines: "client.rgw.a on NODE"."""
    # (name, "" or a gateway's node, the first one of its machine) -> file -> samples
    by_file: Dict[Tuple[str, str], Dict[Path, DaemonCounters]] = {}
    last_daemons: Dict[Path, Iterable[Tuple[str, str]]] = {}  # file -> daemons of its last sample
    machines: Dict[str, str] = {}  # as agents name them -> the first node
    node_of_machine: Dict[str, str] = {}  # node -> the first node of its machine
    for node, path in _files(run.path, "perf_counters"):
        configured_interval, samples = INTERVAL, 0
        for line in numbered_lines(path, run.damage):
            if "version" in line:  # also where the monitor was connected anew
                configured_interval, samples = float(line.get("interval") or INTERVAL), 0
                # of a node that was booted again, the first line counts; earlier agents do not name the machine
                node_of_machine.setdefault(node, machines.setdefault(str(line.get("machine")), node))
            elif "d" in line:
                samples += 1
                t = float(line["t"]) - offsets.get(node, 0.0)
                interval = configured_interval * (COARSER if samples >= FINE else 1)
                first_node = node_of_machine.get(node, node)
                keys = {name: (name, "" if name.startswith("osd.") else first_node) for name in line["d"] or ()}
                for name, key in keys.items():
                    of_files = by_file.setdefault(key, {})
                    of_files.setdefault(path, DaemonCounters()).add(t, line["d"][name], interval)
                last_daemons[path] = keys.values()
    for path, keys_of_last in last_daemons.items():
        for key in keys_of_last:
            by_file[key][path].agent_ended = True
    daemons = {key: _chained(of_files.values()) for key, of_files in by_file.items()}
    counters_by_name: Dict[str, List[Tuple[str, DaemonCounters]]] = {}
    for (name, node), counters in sorted(daemons.items(), key=lambda item: item[1].span):
        of_name = counters_by_name.setdefault(name, [])
        if of_name and of_name[-1][1].span[1] - counters.span[0] <= INTERVAL:  # it moved
            of_name[-1][1].fill_gaps(counters)
        else:
            of_name.append((node, counters))
    return {
        f"{name} on {node}" if len(of_name) > 1 else name: counters
        for name, of_name in counters_by_name.items()
        for node, counters in of_name
    }


def _chained(parts: Iterable[DaemonCounters]) -> DaemonCounters:
    """Return the samples of several agents of one daemon: those of the first one, and of others in its gaps."""
    first, *others = sorted(parts, key=lambda part: part.span)
    for part in others:
        first.fill_gaps(part)
    return first


class _WindowValues:
    """The values of all daemons at the start and the end of a window."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.by_name: Dict[Tuple[str, str], Dict[str, np.ndarray]] = {}  # (class of daemons, name) -> daemon -> values
        # daemons without values, which sums lack: they were down near an end of the window, or nobody watched them
        self.left_out: Dict[str, None] = {}
        self.unwatched: Dict[str, None] = {}


def _values_at(daemons: Mapping[str, DaemonCounters], windows: Sequence[Window]) -> List[_WindowValues]:
    """Return the values of all daemons, for each window."""
    values_of_windows = [_WindowValues(window) for window in windows]
    for daemon, counters in daemons.items():
        daemon_class = "osd" if daemon.startswith("osd.") else "rgw"
        for name in counters.names:
            series = counters.series(name)
            for values in values_of_windows:
                at = series.at(values.window)
                if at is not None:
                    values.by_name.setdefault((daemon_class, name), {})[daemon] = at
                elif counters.is_lost_in(values.window):
                    values.unwatched[daemon] = None
                elif series.lasts and series.meets(values.window):
                    values.left_out[daemon] = None
    return values_of_windows


def _lines(values: _WindowValues) -> Iterator[Dict[str, Any]]:
    """Yield a line for each number of a class of daemons: of all together, and of the one that has most."""
    for (kind, name), values_of_daemon in values.by_name.items():
        every = np.array(list(values_of_daemon.values()))  # (daemons, 2, columns)
        rises = every[:, 1] - every[:, 0]
        start: Optional[float] = None
        end: Optional[float] = None
        value: Optional[float] = None
        if _is_state(name):
            combine = np.sum if name.endswith("_bytes") else np.mean
            start, end = (float(combine(every[:, i, 0])) for i in (0, 1))
            unit, value, each = ("bytes" if name.endswith("_bytes") else ""), end, every[:, 1, 0]
        elif rises.shape[1] == 2:
            n, seconds = rises.sum(axis=0)
            unit, value = "ms", 1000 * float(seconds / n) if n else None
            # between two samples a daemon may have done a part of one
            each = np.divide(1000 * rises[:, 1], rises[:, 0], out=np.zeros(len(rises)), where=rises[:, 0] > 0)
        else:
            each = rises[:, 0] / (values.window[1] - values.window[0])
            unit, value = "1/s", float(each.sum())
        most = int(each.argmax())
        line = {"class": kind, "name": name, "unit": unit, "start": start, "end": end, "value": value}
        line.update(highest=float(each[most]), of=list(values_of_daemon)[most])
        yield {key: _rounded(value) for key, value in line.items()}


def _rounded(value: Any) -> Any:
    return float(f"{value:.10g}") if isinstance(value, float) else value


def _backlog(run: ArchivedRun, offsets: Mapping[str, float]) -> Iterator[Dict[str, Any]]:
    for node, path in _files(run.path, "backlog"):
        interval = LOOKS
        for line in numbered_lines(path, run.damage):
            if "version" in line:
                interval = float(line.get("interval") or LOOKS)
            elif "s" in line:
                yield {**line, "t": float(line["t"]) - offsets.get(node, 0.0), "interval": interval}


def _backlog_in(samples: Sequence[Mapping[str, Any]], window: Window) -> Optional[Dict[str, Any]]:
    """Return {"gc", "sync": [at the start, at the end], "reshard": buckets}; None where nobody looked near it.

    A number is None where the two looks next to that end of the window have none: what an earlier one had may be old.
    """
    before = [sample for sample in samples if sample["t"] <= window[0]]
    during = [sample for sample in samples if window[0] < sample["t"] <= window[1]]
    after = [sample for sample in samples if sample["t"] > window[1]]
    ends = [(before[-1:], window[0]), (after[:1], window[1])]
    first, last = ([look for look in looks if abs(look["t"] - t) <= NEAR * look["interval"]] for looks, t in ends)
    near = [*first, *during, *last]
    if not near:
        return None
    backlog: Dict[str, Any] = {"looks": len(during)}
    for name in ("gc", "sync"):
        values = [sample.get(name) for sample in near]
        both = (next((value for value in two if value is not None), None) for two in (values[:2], values[:-3:-1]))
        backlog[name] = list(both) if any(name in sample for sample in near) else None
    backlog["reshard"] = sorted({bucket for sample in during for bucket in sample.get("reshard") or ()})
    return backlog


def counter_warnings(counters_section: Optional[Mapping[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yield warnings: RocksDB on a slow device, garbage that grew, buckets resharded, shards behind another zone."""
    unwatched = (counters_section or {}).get("unwatched")
    if unwatched:
        text = unwatched_text("perf_counters", unwatched, "sums are of the others")
        yield {"code": "monitor-limited", "text": text}
    for phase, numbers in (counters_section or {"phases": {}})["phases"].items():
        lost = numbers.get("unwatched")
        if lost:
            text = f"perf_counters no longer watched {several(len(lost), 'daemon')}, so sums are of the others"
            yield {"code": "monitor-limited", "text": f"{text}: {first_names(lost)}", "phase": phase}
        left_out = numbers.get("left_out")
        if left_out:
            text = f"perf_counters has no sample of {several(len(left_out), 'daemon')} near the start or the end of"
            text = f"{text} the phase, so sums are of the others: {first_names(left_out)}"
            yield {"code": "counters-of-others", "text": text, "phase": phase}
        of = {line["name"]: line for line in numbers["lines"] if line["class"] == "osd"}
        slow = of.get("slow_used_bytes")
        if slow and slow["end"] - slow["start"] > SPILLED:
            text = f"RocksDB took {plain((slow['end'] - slow['start']) / 2**20)} MiB more of slow devices"
            yield {"code": "spillover", "text": f"{text}, most on {slow['of']}", "phase": phase}
        backlog = numbers["backlog"] or {}
        low, high = backlog.get("gc") or (0, 0)
        if low is None or high is None:
            yield {"code": "garbage-unknown", "text": _unknown_garbage(low, high), "phase": phase}
        elif high - low > GARBAGE:
            text = f"RGW's garbage grew from {low:,} to {high:,} entries: RGW collects it during the phases that follow"
            yield {"code": "garbage-grew", "text": text, "phase": phase}
        buckets = backlog.get("reshard") or []
        if buckets:
            text = f"{several(len(buckets), 'bucket')} had to be resharded: {', '.join(buckets[:_SHOWN])}"
            yield {"code": "resharded", "text": text, "phase": phase}
        low, high = backlog.get("sync") or (0, 0)
        if high:
            begin = "unknown" if low is None else low
            text = f"{several(high, 'shard')} of this zone behind another zone at the end, {begin} at the start"
            yield {"code": "sync-behind", "text": text, "phase": phase}


def _unknown_garbage(low: Optional[int], high: Optional[int]) -> str:
    text = "RGW's garbage could not be counted"
    if low is None and high is None:
        return text
    if high is None:
        return f"RGW's garbage was {low:,} entries at the start, and could not be counted at the end"
    return f"{text} at the start, and was {high:,} entries at the end"


def limits(run: Path) -> Iterator[Dict[str, Any]]:
    """Yield a warning for each monitor that could not watch all of its targets on some nodes."""
    for monitor in ("perf_counters", "stacks"):
        limit_of_node: Dict[str, str] = {}  # node -> the first thing that it says
        for node, path in _files(run, monitor):
            limit = next(_limits_in(path), None)
            if limit:
                limit_of_node.setdefault(node, limit)
        if limit_of_node:
            limits_text = "; ".join(f"{node}: {text}" for node, text in list(limit_of_node.items())[:_SHOWN])
            nodes = several(len(limit_of_node), "node")
            text = f"{monitor} could not watch all of its targets on {nodes}: {limits_text}"
            yield {"code": "monitor-limited", "text": text}


def _limits_in(path: Path) -> Iterator[str]:
    """Yield the limits of a file, of which only the lines that may have one are parsed: those of stacks are long."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        for text in lines_of(file):
            if b'"limit":' in text[:_LIMIT_WITHIN]:
                with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
                    yield str(json.loads(text)["limit"])


#: cells of numbers that say nothing
_NOTHING = {"-", "0", "0 → 0", "- → -"}


def counter_rows(counters_section: Optional[Mapping[str, Any]]) -> List[List[str]]:
    """Return a table of all phases: a head, then a line for each number; of states "begin -> end"."""
    phases = (counters_section or {"phases": {}})["phases"]
    cells: Dict[Tuple[str, str], Dict[str, str]] = {}
    for phase, numbers in phases.items():
        for line in numbers["lines"]:
            unit, scale = ("MiB", 2**20) if line["unit"] == "bytes" else (line["unit"], 1)
            name = line["name"][: -len("_bytes")] if line["unit"] == "bytes" else line["name"]
            shown = [None if value is None else value / scale for value in (line["start"], line["end"], line["value"])]
            text = plain(shown[2]) if shown[0] is None else f"{_plain(shown[0])} → {_plain(shown[1])}"
            cells.setdefault((f"{line['class']} {name.replace('_', ' ')}", unit), {})[phase] = text
        for name, values in (numbers["backlog"] or {}).items():
            if name in ("gc", "sync") and values:
                key = ({"gc": "garbage entries", "sync": "shards behind"}[name], "")
                begin, end = ("-" if value is None else f"{value:,}" for value in values)
                cells.setdefault(key, {})[phase] = f"{begin} → {end}"
    shown_cells = {key: texts for key, texts in cells.items() if set(texts.values()) - _NOTHING}
    rows = [[name, unit, *(texts.get(phase, "-") for phase in phases)] for (name, unit), texts in shown_cells.items()]
    return [["", "unit", *phases], *rows] if rows else []


def _plain(value: Optional[float]) -> str:
    return f"{value:.3g}" if value is not None and 0 < value < 0.01 else plain(value)
