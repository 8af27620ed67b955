"""hsbench's CSV (-o), JSON (-j) and printed lines: one for each interval of each mode, and one for its total.

What is in them, and is not, by its source and by recorded runs: `MB/s` is MiB/s; `Slowdowns` are failed requests, and a
thread ends after its third; an incomplete last interval, and those after the first thread has ended, are only
in the total; a GET's latency ends with the headers of the answer, before the body; the "MB/s" of DELETE and BCLR is
object size times requests, which nobody moved; percentiles are at index round(0.99 n) - 1. There is no clock in the
files: a mode begins when those before it have ended. The files are not truncated: what a longer run left may follow.
What it prints has one digit of times and latencies and none of rates; before 19 August 2019 a total was called ALL.
"""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from cbt_plugins.results.importers.client_parts import Parsed, Part, Steps
from cbt_plugins.results.importers.importer import ClientFile, ClientImporter, ResultFiles
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import ResultWarning, RunRecord

_TOTAL = "TOTAL"
#: a thread ends after so many failed requests
FAILURES = 3
_OPS = {"PUT": "PUT", "GET": "GET", "DEL": "DELETE", "LIST": "LIST"}
_MOVES = ("PUT", "GET")
_PREPARES = ("BINIT", "BCLR", "BDEL")
#: column of the CSV (the misspelling is hsbench's) -> key of the JSON
COLUMNS = {
    "Loop": "Loop",
    "Inteval": "IntervalName",
    "Duration(s)": "Seconds",
    "Mode": "Mode",
    "Ops": "Ops",
    "MB/s": "Mbps",
    "IO/s": "Iops",
    "Min Latency (ms)": "MinLat",
    "Avg Latency(ms)": "AvgLat",
    "99% Latency(ms)": "NinetyNineLat",
    "Max Latency(ms)": "MaxLat",
    "Slowdowns": "Slowdowns",
}

_PRINTED = re.compile(
    r"Loop: (?P<Loop>\d+), Int: (?P<IntervalName>\w+), Dur\(s\): (?P<Seconds>[\d.]+), Mode: (?P<Mode>\w+), "
    r"Ops: (?P<Ops>\d+), MB/s: (?P<Mbps>[\d.]+), IO/s: (?P<Iops>\d+), "
    r"Lat\(ms\): \[ min: (?P<MinLat>[\d.]+), avg: (?P<AvgLat>[\d.]+), "
    r"99%: (?P<NinetyNineLat>[\d.]+), max: (?P<MaxLat>[\d.]+) \], Slowdowns: (?P<Slowdowns>\d+)$",
    re.MULTILINE,
)
_OPTION = re.compile(r"^\S+ \S+ (threads|size)=(\d+)([KMG]?)\s*$", re.MULTILINE)

Line = Mapping[str, Any]


class Hsbench(ClientImporter):
    """hsbench, alone or run by CBT."""

    kind = "hsbench"
    has_clock = False

    def claims(self, head: str) -> bool:
        table = head.startswith("Loop,Inteval,") or (head.startswith("[{") and '"IntervalName"' in head)
        return table or "Hotsauce S3 Benchmark Version" in head[:1000]

    def read(self, results: ResultFiles) -> List[RunRecord]:
        """Return the records; what was printed counts only where no file was written."""
        written = tuple(path for path in results.files if re.search(r"\.(csv|json)(\.|$)", path.name))
        return super().read(replace(results, files=written or results.files))

    def parse(self, file: ClientFile) -> Parsed:
        threads = file.config.get("load.threads")
        return parse(file.text, file.client, threads if isinstance(threads, int) else None)


def parse(text: str, client: str, threads: Optional[int] = None) -> Parsed:
    """Return one process's file; `threads` (-t) if it is known. Raises Unreadable."""
    printed = not text.startswith(("Loop,", "[{"))
    lines, stale = _csv(text) if text.startswith("Loop,") else _printed(text) if printed else _json(text)
    if printed:
        threads = threads or next((int(option[2]) for option in _OPTION.finditer(text) if option[1] == "threads"), None)
    parsed = Parsed("hsbench", config={"benchmark": "hsbench", "engine": "hsbench"})
    if threads:
        parsed.config["load.threads"] = threads
    if stale:
        why = f"{client}: the end of the file is that of an earlier, longer run"
        parsed.warnings.append(ResultWarning("stale-tail", why))
    sizes = set()
    for loop, number, start, intervals, total in _modes(lines):
        part = _part(client, number, start, intervals, total)
        if text.startswith("Loop,"):
            # two digits of everything
            off = 0.01 * part.seconds / total["Iops"] if total["Iops"] else 0.01
            part = replace(part, rounded_ms=0.01, rounded_s=off)
        elif printed:
            part = replace(part, rounded_ms=0.1, rounded_s=min(0.1, part.seconds / max(total["Iops"], 1)))
        parsed.loops.setdefault(loop, []).append(part)
        if total["Mode"] in _MOVES and total["Ops"] and total["Seconds"]:
            sizes.add(_size(total))
        parsed.warnings += _warnings_of_part(client, part, intervals, total, threads)
    if lines and lines[-1]["IntervalName"] != _TOTAL:
        text = f"{client}: its last mode, {lines[-1]['Mode']}, has no total: it was broken off"
        parsed.warnings.append(ResultWarning("torn-output", text))
    parsed.usable = not any(warning.code in ("threads-lost", "torn-output") for warning in parsed.warnings)
    if len(sizes) == 1:
        parsed.config["load.op_size"] = sizes.pop()
    if not parsed.loops:
        raise Unreadable("no mode of hsbench has ended in it")
    return parsed


def _csv(text: str) -> Tuple[List[Line], bool]:
    lines: List[Line] = []
    stale = False
    for row in csv.DictReader(text.splitlines()):
        try:
            line: Dict[str, Any] = {key: float(row[column]) for column, key in COLUMNS.items() if key not in _TEXT}
            line.update((key, row[column]) for column, key in COLUMNS.items() if key in _TEXT)
            if not line["Mode"] or None in row:
                raise ValueError("no row")
        except (KeyError, TypeError, ValueError):
            stale = True
            break
        lines.append(line)
    return lines, stale


_TEXT = ("IntervalName", "Mode")


def _printed(text: str) -> Tuple[List[Line], bool]:
    sizes = {
        int(option[2]) << 10 * " KMG".index(option[3] or " ")
        for option in _OPTION.finditer(text)
        if option[1] == "size"
    }
    lines: List[Line] = []
    for match in _PRINTED.finditer(text):
        line: Dict[str, Any] = {
            key: value if key in _TEXT else float(value) for key, value in match.groupdict().items()
        }
        if line["IntervalName"] == "ALL":
            line["IntervalName"] = _TOTAL
        if len(sizes) == 1:
            line["Size"] = next(iter(sizes))
        lines.append(line)
    return lines, False


def _json(text: str) -> Tuple[List[Line], bool]:
    try:
        lines, end = json.JSONDecoder().raw_decode(text)
    except ValueError as e:
        raise Unreadable(f"no JSON of hsbench: {e}") from e
    good = isinstance(lines, list) and all(
        isinstance(line, dict) and set(COLUMNS.values()) <= set(line) for line in lines
    )
    if not good:
        raise Unreadable("no JSON of hsbench: keys are missing")
    return lines, bool(text[end:].strip())


def _modes(lines: List[Line]) -> Iterator[Tuple[int, int, float, List[Line], Line]]:
    """Yield (loop, how often the mode has come before in it, its begin, its intervals, its total)."""
    seen: Dict[Tuple[int, str], int] = {}
    start, intervals = 0.0, []
    for line in lines:
        if line["IntervalName"] != _TOTAL:
            intervals.append(line)
            continue
        key = (int(line["Loop"]), str(line["Mode"]))
        yield key[0], seen.get(key, 0), start, intervals, line
        seen[key] = seen.get(key, 0) + 1
        start, intervals = start + line["Seconds"], []


def _part(client: str, number: int, start: float, intervals: List[Line], total: Line) -> Part:
    mode, ops, seconds = str(total["Mode"]), int(total["Ops"]), float(total["Seconds"])
    if ops and total["Iops"]:
        # two digits of both are in the CSV, and more of them here; of what is printed only while times are long
        finer = ops / total["Iops"]
        seconds = finer if "Size" not in total else min(max(finer, seconds - 0.05), seconds + 0.05)
    moved = round(total["Mbps"] * seconds * 2**20) if mode in _MOVES else None
    return Part(
        phase=mode if not number else f"{mode} {number + 1}",
        op=_OPS.get(mode, mode),
        client=client,
        seconds=seconds,
        requests=ops,
        failed=int(total["Slowdowns"]),
        prepares=mode in _PREPARES,
        # the CSV has two digits: the number of bytes of an object is known better
        bytes=_size(total) * ops if moved and ops else moved,
        start=start,
        steps=_steps(intervals, total),
        mean_ms=total["AvgLat"] if ops else None,
        max_ms=total["MaxLat"] if ops else None,
        percentiles={"p99_ms": total["NinetyNineLat"]} if ops else {},
    )


def _size(total: Line) -> int:
    """Return the bytes of an object. `Mbps` of a CSV has two digits: of the sizes that fit, a round one is taken."""
    if "Size" in total:
        return int(total["Size"])
    size = total["Mbps"] * total["Seconds"] * 2**20 / total["Ops"]
    error = 0.006 * total["Seconds"] * 2**20 / total["Ops"] + 0.006 / max(total["Seconds"], 0.01) * size
    for unit in (2**20, 2**10, 1000, 100, 10):
        rounded = round(size / unit) * unit
        if rounded and abs(rounded - size) <= error:
            return rounded
    return round(size)


def _steps(intervals: List[Line], total: Line) -> Optional[Steps]:
    """Return the steps of the intervals, and of what the total has beyond them."""
    if not intervals:
        return None
    edges = np.concatenate(([0.0], np.cumsum([line["Seconds"] for line in intervals])))
    counts = np.array([float(line["Ops"]) for line in intervals])
    totals = counts * np.array([line["AvgLat"] * 1e6 for line in intervals])
    return Steps(edges, counts, totals).completed(total["Ops"], total["Seconds"], total["Ops"] * total["AvgLat"] * 1e6)


def _warnings_of_part(
    client: str, part: Part, intervals: List[Line], total: Line, threads: Optional[int]
) -> Iterator[ResultWarning]:
    failed, mode = part.failed or 0, part.phase
    if part.op == "GET" and part.requests:
        text = f"{mode}: hsbench measures a GET until the headers of the answer: latencies are without the body"
        yield ResultWarning("get-without-body", text)
    if failed:
        text = f"{mode}: {failed} requests of {client} failed (hsbench's slowdowns); rates lack these requests"
        yield ResultWarning("errors", text)
    if failed >= FAILURES and not _kept_all_threads(intervals, total, threads, failed):
        text = f"{mode}: up to {failed // FAILURES} threads of {client} ended early, each after {FAILURES} failures"
        yield ResultWarning("threads-lost", text)
    if intervals and _behind(intervals, total) > 2:
        late = _behind(intervals, total)
        text = f"{mode}: a thread of {client} ended {late:.0f} intervals before the other threads: no series"
        yield ResultWarning("no-intervals", text)


def _behind(intervals: List[Line], total: Line) -> float:
    """Return the number of intervals between the last one of all threads and the end."""
    length = intervals[-1]["Seconds"]
    return (total["Seconds"] - sum(line["Seconds"] for line in intervals)) / length if length else math.inf


def _kept_all_threads(intervals: List[Line], total: Line, threads: Optional[int], failed: int) -> bool:
    """Return whether no thread can have ended early: intervals are written when all threads are past them."""
    reached = bool(intervals) and _behind(intervals, total) < 1.05
    return reached and threads is not None and failed < FAILURES * threads
