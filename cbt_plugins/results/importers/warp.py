"""warp's results: its aggregated data (.json.zst, what it writes since 1.1 without --full), and request rows alone.

Aggregated data, by recorded runs of 1.3.1: `total_requests` and `total_objects` count failed requests, and so do the
seconds of a series and the windows of latencies; `total_bytes` does with some operations. The latencies are those of
windows of 10 s, whose percentiles cannot be merged. The first and the last 2 s are in no average and no series, whose
times are 2 s early. The average over several clients is too low by the seconds left out. Requests, errors, begin and
end are right.

Request rows (.csv.zst, the stream of --stdout, rows that cbt-rows kept) are reduced like those of an archive: exact
counts, merged histograms. Several clients, in one file or in several, are cut to the seconds in which all of them ran.
They have the requests that made the objects, too (seen with 0.0 of 2019 and 1.3.1; not of `mixed`): a phase by itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from cbt_plugins.formatting import several
from cbt_plugins.results.aggregates_file import Frame, request_spans, split
from cbt_plugins.results.archive import APART, ArchivedPhase
from cbt_plugins.results.importers.importer import Importer, ResultFiles
from cbt_plugins.results.requests import rates_and_latencies as of_phase
from cbt_plugins.results.requests.job_aggregates import JobAccumulator, JobAggregates
from cbt_plugins.results.requests.job_files import by_client
from cbt_plugins.results.requests.over_time import series
from cbt_plugins.results.requests.time_series import TimeGrid, Timeline
from cbt_plugins.results.result_file import Unreadable, read_unpacked
from cbt_plugins.results.run_record import Measurement, ResultWarning, RunRecord, measurements
from cbt_plugins.s3_operations import OPERATIONS

#: requests of a client, and a share of them, that may be left out for a wrong time; more of them are a pause
_WRONG_REQUESTS, _WRONG_SHARE = 10, 0.01
#: the phase of all operations of a run: warp's run side by side
PHASE = "warp"
_WINDOW = (("dur_median_millis", "p50_ms", 1), ("dur_90_millis", "p90_ms", 10), ("dur_99_millis", "p99_ms", 100))

#: what limits the trust in warp's own numbers: said of every such record
_WARNINGS = (
    ResultWarning(
        "warp-aggregated",
        "aggregated by warp: its percentiles are means of 10 s windows; they are taken only where there is one window",
    ),
    ResultWarning(
        "warp-trimmed",
        "aggregated by warp: series are without the first and the last seconds; rates here are of all of the run",
    ),
)

Op = Mapping[str, Any]


class WarpImporter(Importer):
    """warp's aggregated data: each file is a run; several files of one folder could be its clients."""

    kind = "warp"

    def claims(self, head: str) -> bool:
        return head.lstrip().startswith("{") and '"commandline"' in head and '"v"' in head

    def read(self, results: ResultFiles) -> List[RunRecord]:
        for folder, number in Counter(path.parent for path in results.files).items():
            if number > 1:
                text = f"{number} files of aggregated data of warp, which cannot be added up: for clients of one run,"
                text = f"{text} run warp with --full; for several runs, name each file, or put each into its own folder"
                raise Unreadable(f"{folder}: {text}")
        return [record for path in results.files for record in _aggregated(path)]


def _aggregated(path: Path) -> List[RunRecord]:
    """Return the record of one file. Raises Unreadable."""
    try:
        data = json.loads(read_unpacked(path))
        table: Mapping[str, Op] = data["by_op_type"]
    except (ValueError, KeyError, TypeError) as e:
        raise Unreadable(f"{path}: no data of warp: {e}") from e
    warnings: List[ResultWarning] = list(_WARNINGS)
    op_measurements: List[Measurement] = []
    for name, op in sorted((table or {}).items()):
        op_measurements += _op(name, op, warnings)
    if not op_measurements:
        raise Unreadable(f"{path}: warp counted no operation")
    final = bool(data.get("final", True)) or bool(data.get("total"))
    command = str(data.get("commandline") or "")
    config: Dict[str, Any] = {"benchmark": "warp", "engine": "warp", **dict(of_command(command))}
    workers = {int(op.get("concurrency") or 0) for op in table.values()}
    if len(workers) == 1:
        config["load.workers"] = workers.pop()
    started = min(_instant(op["start_time"]) for op in table.values() if op.get("start_time"))
    return [
        RunRecord(str(path), path.name, "warp", config, tuple(op_measurements), final, tuple(warnings), None, started)
    ]


def of_command(command: str) -> Iterator[Tuple[str, Any]]:
    """Yield the options of the load on warp's command line, as keys of RunRecord.config."""
    words = command.split()
    if len(words) > 1:
        yield "load.mode", words[1]
    wanted = {"obj.size": "objects.sizes", "concurrent": "load.concurrent", "host-select": "load.host_select"}
    wanted.update({f"{op}-distrib": f"load.{op}" for op in ("get", "put", "stat", "delete")})
    wanted.update({"rps-limit": "load.rate", "duration": "load.duration", "objects": "objects.count"})
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if equals and word.startswith("-") and name in wanted:
            yield wanted[name], value


def _instant(text: str) -> float:
    """Read RFC 3339 as epoch seconds."""
    plain, _, fraction = text.replace("Z", "+00:00").partition(".")
    digits = "".join(c for c in fraction.split("+")[0].split("-")[0])
    zone = fraction[len(digits) :] if fraction else ""
    return datetime.fromisoformat(plain + zone).timestamp() + (float("0." + digits) if digits else 0.0)


def _op(name: str, op: Op, warnings: List[ResultWarning]) -> Iterator[Measurement]:
    try:
        errors, requests = int(op.get("total_errors") or 0), int(op["total_requests"])
        seconds = _instant(op["end_time"]) - _instant(op["start_time"])
    except (KeyError, ValueError, TypeError) as e:
        warnings.append(ResultWarning("no-samples", f"{name}: no rate: {e}"))
        return
    good = requests - errors
    if seconds <= 0:
        return
    # a DELETE may remove many: its failures can be told only when each removes one
    objects = int(op.get("total_objects") or 0) if not errors else good
    if errors and op.get("total_objects") != requests:
        objects = 0
    line = dict(phase=PHASE, op=name, n=good)
    if objects:
        series = _series(op, "obj_per_sec", 1.0) if not errors else None
        yield Measurement(metric="obj_per_s", value=objects / seconds, series=series, **line)  # type: ignore[arg-type]
    if name in OPERATIONS and OPERATIONS[name].moves_data and not errors:
        series = _series(op, "bytes_per_sec", 2.0**20)
        value = int(op.get("total_bytes") or 0) / seconds / 2**20
        yield Measurement(metric="mib_per_s", value=value, series=series, **line)  # type: ignore[arg-type]
    yield Measurement(PHASE, name, "success_rate", good / requests if requests else None, n=requests)
    if errors:
        text = f"{name}: {errors} of {requests} requests failed; warp counts them in its bytes, series and latencies"
        warnings.append(ResultWarning("errors", text))
        return
    for metric, value in _latencies(op, requests):
        yield Measurement(metric=metric, value=value, **line)  # type: ignore[arg-type]


def _series(op: Op, key: str, unit: float) -> Optional[Tuple[float, ...]]:
    segmented = (op.get("throughput") or {}).get("segmented") or {}
    if segmented.get("segment_duration_millis") != 1000:
        return None
    segments = sorted(segmented.get("segments") or (), key=lambda segment: str(segment["start"]))
    return tuple(float(segment.get(key) or 0) / unit for segment in segments) or None


def _latencies(op: Op, requests: int) -> Iterator[Tuple[str, float]]:
    """Yield the mean of all windows, each as often as it has requests; percentiles only of a single window."""
    windows = [window for client in (op.get("requests_by_client") or {}).values() for window in client or ()]
    single = [window["single_sized_requests"] for window in windows if window.get("single_sized_requests")]
    sized = [size for window in windows for size in (window.get("multi_sized_requests") or {}).get("by_size") or ()]
    counted = [(line["requests"], line["dur_avg_millis"]) for line in single if not line.get("skipped")]
    counted += [(line["requests"], line["avg_duration_millis"]) for line in sized]
    if counted and sum(n for n, _ in counted) == requests:
        yield "mean_ms", sum(n * mean for n, mean in counted) / requests
    if len(windows) == 1 and len(single) == 1 and single[0].get("requests") == requests:
        for key, metric, needed in _WINDOW:
            if key in single[0] and requests >= needed and int(single[0].get("merged_entries") or 1) == 1:
                yield metric, float(single[0][key])
    if len(single) == len(windows) and single:
        yield "max_ms", max(float(window["slowest_millis"]) for window in single)


#: a header or a row; comments, messages and empty lines may stand before it
_ROW = re.compile(r"^(idx\tthread|\d+\t\d+\t[A-Z_]+)\t", re.MULTILINE)


class RequestRows(Importer):
    """Request rows: all files are those of the clients of one run."""

    kind = "rows"

    def claims(self, head: str) -> bool:
        return bool(_ROW.search(head))

    def read(self, results: ResultFiles) -> List[RunRecord]:
        return [read_rows(results.files)]


def read_rows(paths: Sequence[Path]) -> RunRecord:
    """Return one record of the files of all clients of one run. Raises Unreadable."""
    clients: Dict[str, List[Frame]] = {}
    warnings: List[ResultWarning] = []
    command = ""
    for number, path in enumerate(paths):
        reduced = by_client(path)
        command = command or reduced.command
        by_name = {client.name: _near(client.frames) for client in reduced.clients}
        clients.update({f"{number} {name}": client_frames for name, (client_frames, _) in by_name.items()})
        if reduced.torn:
            warnings.append(ResultWarning("torn-rows", f"{path.name}: its end is missing: {reduced.torn}"))
        far = sum(left_out for _, left_out in by_name.values())
        if far:
            text = f"more than an hour from most of its requests, and not counted: {several(far, 'request')}"
            warnings.append(ResultWarning("bad-rows", f"{path.name}: {text}"))
        if any(len(request_spans(client_frames, APART)) > 1 for client_frames, _ in by_name.values()):
            text = "no request for more than an hour; the rates of an operation are over all of its time"
            warnings.append(ResultWarning("stall", f"{path.name}: {text}"))
        if reduced.bad:
            warnings.append(ResultWarning("bad-rows", f"{path.name}: {reduced.bad} lines are not rows"))
    stages = _stages(clients)
    if not stages:
        raise Unreadable(f"{paths[0]}: the file has no request")
    *before, stage = stages
    lines = [
        line
        for number, earlier_stage in enumerate(before)
        for line in _phase(_before(number), clients, earlier_stage, [])
    ]
    lines += _phase(PHASE, clients, stage, warnings)
    usable = any(line["name"] == PHASE for line in lines)
    return RunRecord(
        source=str(paths[0]),
        name=paths[0].name,
        kind="warp",
        config={"benchmark": "warp", "engine": "warp", **dict(of_command(command))},
        measurements=tuple(measurements({"phases": lines, "failure": None})),
        usable=usable,
        warnings=tuple(warnings),
        started=float(stages[0].low),
    )


def _near(frames: List[Frame]) -> Tuple[List[Frame], int]:
    """Return the frames without few seconds that hours separate from most, and how many requests those have."""
    parts = request_spans(frames, APART)
    if len(parts) < 2:
        return frames, 0
    longest = max(parts, key=len)
    low, high = int(longest[0]), int(longest[-1]) + 1
    near = [split(split(frame, high)[0], low)[1] for frame in frames]
    every = _requests(frames)
    left_out = every - _requests(near)
    return (near, left_out) if left_out <= max(_WRONG_REQUESTS, _WRONG_SHARE * every) else (frames, 0)


def _requests(frames: Sequence[Frame]) -> int:
    tables = [frame.table("seconds") for frame in frames]
    return sum(int(table["n"].sum()) + int(table["failed"].sum()) for table in tables)


def _before(number: int) -> str:
    return f"prepare {number + 1}" if number else "prepare"


@dataclass
class _Stage:
    """Operations that ran side by side, and the seconds in which one of them was in flight."""

    ops: Set[str]
    low: int
    high: int


def _stages(clients: Mapping[str, Sequence[Frame]]) -> List[_Stage]:
    """Return the stages in the order of time: warp makes objects (PUT) before it reads, lists or deletes them."""
    spans: Dict[str, Tuple[int, int]] = {}
    for frame in (frame for frames in clients.values() for frame in frames):
        table = frame.table("seconds")
        for number, op in enumerate(frame.ops):
            op_seconds = table["second"][table["op"] == number]
            if len(op_seconds):
                low, high = spans.get(op, (int(op_seconds.min()), int(op_seconds.max())))
                spans[op] = (min(low, int(op_seconds.min())), max(high, int(op_seconds.max())))
    stages: List[_Stage] = []
    for op, (low, high) in sorted(spans.items(), key=lambda item: item[1]):
        if stages and low <= stages[-1].high:
            stages[-1].ops.add(op)
            stages[-1].high = max(stages[-1].high, high)
        else:
            stages.append(_Stage({op}, low, high))
    return stages


def _phase(
    name: str, clients: Mapping[str, Sequence[Frame]], stage: _Stage, warnings: List[ResultWarning]
) -> Iterator[Dict[str, Any]]:
    """Yield the numbers of one stage as a phase of a summary; nothing when no second of it is whole."""
    spans = [span for span in (_span(frames, stage) for frames in clients.values()) if span]
    start, end = max(low for low, _ in spans), min(high for _, high in spans)
    longest = max(high - low for low, high in spans)
    if len(spans) > 1 and end - start < 0.95 * longest:
        common = max(0, end - start)
        text = f"its {len(spans)} clients ran at the same time for {common} of up to {longest} s: only that time counts"
        warnings.append(ResultWarning("common-window", text))
    if end <= start:
        reason = "clients never ran at the same time" if len(spans) > 1 else "requests do not fill one second"
        warnings.append(ResultWarning("no-window", f"its {reason}: there are no rates"))
        return
    aggregates = _aggregates(clients, TimeGrid.of(start, end, 1), stage.ops)
    seconds = of_phase.by_op(aggregates)
    for op, numbers in seconds.items():
        if numbers["errors"]:
            kinds = ", ".join(f"{kind['count']} x {kind['text'][:60]}" for kind in numbers["error_kinds"])
            warnings.append(ResultWarning("errors", f"{op}: {numbers['errors']} requests failed: {kinds}"))
    yield {
        "name": name,
        "role": "none",
        "window": {"start": aggregates.grid.start, "end": aggregates.grid.end},
        "ops": seconds,
        "total": of_phase.numbers(None, of_phase.total(aggregates.ops.values()), aggregates.length),
        "series": series(aggregates.timeline),
    }


def _span(frames: Sequence[Frame], stage: _Stage) -> Optional[Tuple[int, int]]:
    """Return the first and the last whole second of a stage in which a client had requests in flight."""
    seconds = np.concatenate([frame.table("seconds")["second"] for frame in frames])
    seconds = seconds[(seconds >= stage.low) & (seconds <= stage.high)]
    return (int(seconds.min()) + 1, int(seconds.max())) if len(seconds) else None


def _aggregates(clients: Mapping[str, Sequence[Frame]], grid: TimeGrid, ops: Set[str]) -> of_phase.PhaseAggregates:
    timeline = Timeline(grid)
    jobs: Dict[str, JobAggregates] = {}
    for client, frames in clients.items():
        accumulator = JobAccumulator(timeline)
        for frame in frames:
            accumulator.add(frame)
        jobs[client] = accumulator.finish()
        jobs[client].ops = {op: op_aggregates for op, op_aggregates in jobs[client].ops.items() if op in ops}
    timeline.seconds = {op: op_seconds for op, op_seconds in timeline.seconds.items() if op in ops}
    phase = ArchivedPhase(
        path=Path(),
        index=0,
        name=PHASE,
        kind="",
        role="none",
        status="ok",
        window=(grid.start, grid.end),
        duration=grid.length,
        mix={},
        load={},
        engine="warp",
        block=1,
        jobs=(),
        accounting=(),
        warnings=(),
    )
    return of_phase.PhaseAggregates(phase, grid, jobs, timeline)
