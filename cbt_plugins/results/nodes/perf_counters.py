"""What the monitors `perf_counters` (OSDs and gateways of themselves) and `backlog` (of RGW) saw in each phase."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.archive_files import open_regular
from cbt_plugins.formatting import plain, several
from cbt_plugins.journal import lines_of
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.clock_steps import clock_text
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.nodes.daemon_counters import (
    MOST_WRONG,
    CountersFile,
    CountersReader,
    DaemonInWindows,
    RareEvents,
    Window,
    is_state,
    most_by_chance,
)
from cbt_plugins.results.nodes.unwatched_osds import first_names, unwatched_osds, unwatched_text
from cbt_plugins.results.numbered_lines import numbered_lines

#: what OSDs that use their slow device for RocksDB have more of, in bytes; entries of garbage that are many
SPILLED, GARBAGE = 1 << 20, 1000
#: seconds between looks at the backlog where a file does not say; intervals from the end of a window to a look near it
LOOKS, NEAR = 60.0, 10.0
#: what a warning names
_SHOWN = 5
#: bytes of a line within which its limit begins
_LIMIT_WITHIN = 60


def counters_of_phases(run: ArchivedRun, phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return {"phases": {name: {"lines", "backlog"}}, "unwatched": OSDs} of a run; None without these monitors."""
    offsets = Clocks.of(run).nodes
    windows = {line["name"]: (line["window"]["start"], line["window"]["end"]) for line in phases}
    windows = {name: window for name, window in windows.items() if window[1] > window[0]}
    files = [
        CountersFile(number, node, path, offsets.get(node, 0.0))
        for number, (node, path) in enumerate(_files(run.path, "perf_counters"))
    ]
    clocks: Dict[str, List[float]] = {}
    daemons = CountersReader(list(windows.values())).read(files, run.damage, clocks)
    backlog = list(_backlog(run, offsets))
    numbers_of_phase: Dict[str, Any] = {}
    for number, (name, window) in enumerate(windows.items()):
        values = _WindowValues(daemons, number, window[1] - window[0])
        numbers: Dict[str, Any] = {"lines": list(_lines(values, window)), "backlog": _backlog_in(backlog, window)}
        for reason, daemons_without in (("left_out", values.left_out), ("unwatched", values.unwatched)):
            if numbers["lines"] and daemons_without:
                numbers[reason] = daemons_without
        if values.coarse:
            numbers["coarse"] = True
        if numbers["lines"] or numbers["backlog"] or values.coarse:
            numbers_of_phase[name] = numbers
    unwatched = unwatched_osds(run.path, {daemon.name for daemon in daemons})
    named: Dict[str, Any] = {"unwatched": unwatched} if unwatched else {}
    if clocks:
        named["clocks"] = {node: clock_text(steps) for node, steps in clocks.items()}
    return {"phases": numbers_of_phase, **named} if numbers_of_phase else None


def _files(run: Path, monitor: str) -> Iterator[Tuple[str, Path]]:
    """Yield (node, its file); others' files are there too where nodes share a directory."""
    for folder in sorted(run.glob(f"monitors/[0-9][0-9]*/{monitor}.*")):
        node = folder.name[len(monitor) + 1 :]
        yield from ((node, folder / f"{name}.jsonl") for name in (node, monitor) if (folder / f"{name}.jsonl").exists())


class _WindowValues:
    """The values of all daemons at the start and the end of a window, which has a number and so many seconds."""

    def __init__(self, daemons: Iterable[DaemonInWindows], number: int, seconds: float) -> None:
        self.by_name: Dict[Tuple[str, str], Dict[str, np.ndarray]] = {}  # (class of daemons, name) -> daemon -> values
        coarse: Dict[Tuple[str, str], Dict[str, Optional[RareEvents]]] = {}
        for daemon in daemons:
            daemon_class = "osd" if daemon.name.startswith("osd.") else "rgw"
            for name, rare_events in daemon.coarse.items():
                if number in rare_events:
                    coarse.setdefault((daemon_class, name), {})[daemon.name] = rare_events[number]
            for name, (windows, values) in daemon.values.items():
                if number in windows:
                    of_daemons = self.by_name.setdefault((daemon_class, name), {})
                    of_daemons[daemon.name] = values[windows.index(number)]
        # daemons without values, which sums lack: they were down near an end of the window, or nobody watched them
        self.left_out = [daemon.name for daemon in daemons if number in daemon.left_out]
        self.unwatched = [daemon.name for daemon in daemons if number in daemon.unwatched]
        # idle daemons have a value at any distance of the samples: a sum of them alone would be no sum of the class
        self.coarse = False
        for key, events_of_daemons in coarse.items():
            of_daemons = self.by_name.pop(key, {})
            events = {daemon: events for daemon, events in events_of_daemons.items() if events is not None}
            of_daemons.update((daemon, rare.values) for daemon, rare in events.items())
            if len(events) == len(events_of_daemons) and _are_rare(list(events.values()), of_daemons, seconds):
                self.by_name[key] = of_daemons
            else:
                self.coarse = True


def _are_rare(events: Sequence[RareEvents], values: Mapping[str, np.ndarray], seconds: float) -> bool:
    """Return whether what rises near the ends of a window does so by chance in the sum of all daemons too.

    `values`: of all daemons of the class, with these, in the window of so many seconds.
    """
    rise = sum(of_daemon[1] - of_daemon[0] for of_daemon in values.values())
    near_ends = sum(rare.near_ends for rare in events)
    share = max(rare.seconds for rare in events) / seconds
    by_chance = most_by_chance(float(rise[0]) * share) / max(float(rise[0]), 1e-9)  # of a latency: requests of its mean
    return bool((near_ends <= rise * max(share + MOST_WRONG, by_chance)).all())


def _lines(values: _WindowValues, window: Window) -> Iterator[Dict[str, Any]]:
    """Yield a line for each number of a class of daemons: of all together, and of the one that has most."""
    for (kind, name), values_of_daemon in values.by_name.items():
        every = np.array(list(values_of_daemon.values()))  # (daemons, 2, columns)
        rises = every[:, 1] - every[:, 0]
        start: Optional[float] = None
        end: Optional[float] = None
        value: Optional[float] = None
        if is_state(name):
            combine = np.sum if name.endswith("_bytes") else np.mean
            start, end = (float(combine(every[:, i, 0])) for i in (0, 1))
            unit, value, each = ("bytes" if name.endswith("_bytes") else ""), end, every[:, 1, 0]
        elif rises.shape[1] == 2:
            n, seconds = rises.sum(axis=0)
            unit, value = "ms", 1000 * float(seconds / n) if n else None
            # between two samples a daemon may have done a part of one
            each = np.divide(1000 * rises[:, 1], rises[:, 0], out=np.zeros(len(rises)), where=rises[:, 0] > 0)
        else:
            each = rises[:, 0] / (window[1] - window[0])
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
    for node, text in ((counters_section or {}).get("clocks") or {}).items():
        yield {"code": "clock-offset", "text": f"perf_counters on {node}: {text}"}
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
        if numbers.get("coarse"):
            text = "samples of perf_counters are too far apart for the phase, so some counters have no values"
            yield {"code": "counters-coarse", "text": f"{text}: set a shorter `interval`", "phase": phase}
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
        limits_of_node: Dict[str, Dict[str, str]] = {}  # node -> limits, of those that differ in numbers the first
        for node, path in _files(run, monitor):
            for limit in _limits_in(path):
                limits_of_node.setdefault(node, {}).setdefault(re.sub("[0-9]+", "", limit), limit)
        if limits_of_node:
            shown = list(limits_of_node.items())[:_SHOWN]
            limits_text = "; ".join(f"{node}: {text}" for node, limits in shown for text in limits.values())
            nodes = several(len(limits_of_node), "node")
            text = f"{monitor} could not watch all of its targets on {nodes}: {limits_text}"
            yield {"code": "monitor-limited", "text": text}


def _limits_in(path: Path) -> Iterator[str]:
    """Yield the limits of a file, and the first error of a file without a look that worked.

    Only the lines that may have one are parsed: those of stacks are long.
    """
    error, has_looks = "", False
    with contextlib.suppress(OSError), open_regular(path) as file:
        for text in lines_of(file):
            start = text[:_LIMIT_WITHIN]
            has_looks = has_looks or b'"n":' in start
            with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
                if b'"limit":' in start:
                    yield str(json.loads(text)["limit"])
                elif not error and b'"error":' in start:
                    error = str(json.loads(text)["error"])
    if error and not has_looks:
        yield error


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
