"""fio's JSON and json+, alone or in the mixture with text that CBT leaves, and its logs.

By its manual, its source and recorded runs: `runtime` is that of a direction, in ms; an IO that failed ends the job
unless continue_on_error is set, and is in no `total_ios` of 3.33's percentiles; latencies are those of the completion
(clat), or in total (lat) with lat_percentiles; json+ has the histogram that the percentiles come from, a count for the
middle of each bin: bins of several jobs add up. Before fio 3, latencies are in us (`clat`) and `io_bytes` is in KiB;
2.1 has no `total_ios`, and `iops` is rounded down.
With --status-interval a document follows another, each of all that was done until then. unified_rw_reporting=mixed has
one section for all directions, =both has it beside theirs. A job with fsync or fdatasync counts each of them as a short
IO of the read direction.

A line of a log (write_iops_log, write_lat_log) is: ms since the job began (its end), value, direction, block size,
offset. Without log_avg_msec there is a line for each request: the value of an iops log is 1, that of a latency log its
latency in ns. With it there is a line for each window and direction: requests per second, the mean latency; the window
ends at its time, an incomplete last one is missing, and so is one in which no request ended. With log_max_value=1 its
latency is the longest of the window. With log_unix_epoch=1 times are ms since 1970; with log_alternate_epoch=1 they are
those of any clock, and the log is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.results.importers.client_parts import Bins, Parsed, Part, Steps
from cbt_plugins.results.importers.importer import ClientFile, ClientImporter
from cbt_plugins.results.result_file import PackedFile, Unreadable, reading, unpacked_name
from cbt_plugins.results.run_record import ResultWarning

DIRECTIONS = ("read", "write", "trim")
#: with unified_rw_reporting=mixed: the section of all directions together
MIXED = "mixed"
_NS, _US = 1e-6, 1e-3  # in ms
#: times of a log above it are of the calendar; by how much the end and the begin of a job may be wrong
_CALENDAR_MS, _LATE_MS = 10**11, 2000
_SYNCS = ("fsync", "fdatasync", "sync_file_range")
#: a log: PREFIX_iops.1.log, and .HOST behind it when CBT has collected it
_LOG = re.compile(r"(?P<prefix>.*)_(?P<kind>iops|clat|lat)\.(?P<job>\d+)\.log(?P<host>\..*)?$")
_PERCENTILES = {
    "50.000000": "p50_ms",
    "90.000000": "p90_ms",
    "95.000000": "p95_ms",
    "99.000000": "p99_ms",
    "99.900000": "p999_ms",
}
#: option of a job -> key of Record.config: what decides whether two results can be compared
_LOAD = {"rw": "load.mode", "ioengine": "load.ioengine", "direct": "load.direct", "rwmixread": "load.rwmixread"}
_LOAD.update(size="load.size", rate_iops="load.rate_iops", random_distribution="load.random_distribution")
_LOAD.update(rate="load.rate", bssplit="load.bssplit", buffered="load.buffered", thinktime="load.thinktime")
_LOAD.update(fsync="load.fsync", fdatasync="load.fdatasync")
#: the same for options that are 1 when nothing is said
_COUNTS = {"iodepth": "load.queue_depth", "numjobs": "load.numjobs"}

FioJob = Mapping[str, Any]


class Fio(ClientImporter):
    """fio, alone or run by CBT."""

    kind = "fio"
    folders_are_phases = True

    def claims(self, head: str) -> bool:
        return '"fio version"' in head

    def parse(self, file: ClientFile) -> Parsed:
        parsed = parse(file.text, file.client, logs_beside(file.path, file.text, file.host), by_name=not file.collected)
        if file.folder:  # CBT's workloads: a directory each
            parsed.loops = {
                loop: [replace(part, phase=file.folder) for part in parts] for loop, parts in parsed.loops.items()
            }
        return parsed


def parse(text: str, client: str, logs: Optional[Logs] = None, by_name: bool = True) -> Parsed:
    """Return one process's output; `by_name`: jobs with another name are another phase. Raises Unreadable."""
    data, torn = _document(text)
    jobs = _jobs(data)
    options = _options(data)
    parsed = Parsed("fio", config={"benchmark": "fio", "engine": "fio"})
    if torn:
        parsed.warnings.append(ResultWarning("torn-output", f"{client}: its last document has no end"))
    parsed.started = min((begin for begin in (_start(data, job) for job in jobs) if begin is not None), default=None)
    parsed.config.update(_config(options, jobs))
    if data.get("fio version"):
        parsed.config["version.fio"] = str(data["fio version"]).replace("fio-", "")
    names = {str(job.get("jobname")) for job in jobs}
    parts = parsed.loops.setdefault(0, [])
    for number, job in enumerate(jobs, 1):
        mode = str({**options, **(job.get("job options") or {})}.get("rw") or "read")
        phase = str(job.get("jobname")) if by_name and len(names) > 1 else mode
        who = f"{client}:{number}" if len(jobs) > 1 else client
        job_logs: Mapping[str, Log] = {}
        try:
            job_logs = logs.of(number, len(jobs), _sections(job), _start(data, job)) if logs else {}
        except Unreadable as e:
            parsed.warnings.append(ResultWarning("no-series", f"{phase}: no series of {who}: {e}"))
        process = client, number if len(jobs) > 1 else 0
        parts += _parts(job, phase, process, _start(data, job), job_logs)
        parsed.warnings += _warnings_of_job(options, job, phase, who)
    parsed.usable = not any(warning.code in _UNUSABLE for warning in parsed.warnings)
    return parsed


#: warnings of a process whose numbers are not those of a complete run
_UNUSABLE = ("job-failed", "torn-output", "no-requests")


def _document(text: str) -> Tuple[Dict[str, Any], bool]:
    """Return the last complete JSON in it, and whether another begins behind that and does not end.

    There is text around it with --output-format=json,normal.
    """
    last: Optional[Dict[str, Any]] = None
    at = 0
    while True:
        begin = re.compile(r"^[ \t]*\{", re.MULTILINE).search(text, at)
        if begin is None:
            break
        try:
            data, at = json.JSONDecoder().raw_decode(text, begin.end() - 1)
        except ValueError as e:
            if last is None:
                raise Unreadable(f"no JSON of fio: {e}") from e
            return last, True
        if isinstance(data, dict) and "fio version" in data:
            if last is not None and not _goes_on(last, data):
                raise Unreadable("the output of several runs of fio: give each its own file")
            last = data
    if last is None:
        raise Unreadable("no JSON of fio")
    return last, False


def _goes_on(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a document is of the same run as the document before it, later."""
    named, done = zip(*(_progress(document) for document in (before, after)))
    return before.get("global options") == after.get("global options") and named[0] == named[1] and done[0] <= done[1]


def _progress(data: Mapping[str, Any]) -> Tuple[List[Any], int]:
    jobs = _jobs(data)
    done = sum(_requests(section)[0] for job in jobs for section in _sections(job).values())
    return [(job.get("jobname"), job.get("job_start")) for job in jobs], done


def _jobs(data: Mapping[str, Any]) -> List[FioJob]:
    """Return the jobs; of a run by client and server the jobs of each host, and not their sum."""
    jobs = data.get("jobs") or [
        client_job for client_job in data.get("client_stats") or () if client_job.get("jobname") != "All clients"
    ]
    if not jobs:
        raise Unreadable("fio ran no job")
    return list(jobs)


def _options(data: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the global options; of the lists of 3.43's clients and servers the options that all have in common."""
    global_options = data.get("global options") or {}
    several = global_options if isinstance(global_options, list) else [global_options]
    return {key: value for key, value in several[0].items() if all(options.get(key) == value for options in several)}


def _start(data: Mapping[str, Any], job: FioJob) -> Optional[float]:
    """Return the begin of a job, epoch seconds: newer versions have it, of older ones it is the end less the duration.

    Jobs of several groups ran one behind the other: only those of the last one ended at the end. `job_runtime` is no
    help: with group_reporting it is the sum of all processes (fio's stat.c: total_run_time).
    """
    if job.get("job_start"):
        return float(job["job_start"]) / 1000
    if job.get("groupid") != max((other_job.get("groupid") or 0 for other_job in _jobs(data)), default=0):
        return None
    ended = float(data.get("timestamp_ms") or 0) / 1000 or float(data.get("timestamp") or 0)
    took = max((float(section["runtime"]) for section in _sections(job).values()), default=0.0)
    return ended - took / 1000 if ended and took else None


def _config(options: Mapping[str, Any], jobs: Sequence[FioJob]) -> Iterator[Tuple[str, Any]]:
    """Return the options that all jobs have in common."""
    every = [{**options, **(job.get("job options") or {})} for job in jobs]
    same = {
        key: value
        for key, value in every[0].items()
        if all(options_of_job.get(key) == value for options_of_job in every)
    }
    for option, key in _LOAD.items():
        if option in same:
            yield key, same[option]
    if "bs" in same:
        yield "load.op_size", parse_block_size(str(same["bs"]))
    for option, key in _COUNTS.items():
        if option in same or not any(option in options_of_job for options_of_job in every):
            yield key, parse_block_size(str(same.get(option) or 1))
    most = [max(_sections(job).values(), key=_requests, default={}) for job in jobs]
    measured = {_latency(section)[0] for section in most}
    yield "load.latency", "+".join(sorted(measured))


def parse_block_size(text: str) -> Any:
    """Return the bytes of a block; a text that is no single size ("4k,64k") as it is."""
    match = re.fullmatch(r"(\d+)([kmgt]?)i?b?", text.strip().lower())
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ") if match else text


def _sections(job: FioJob) -> Dict[str, Mapping[str, Any]]:
    """Return the directions in which the job did something; "mixed" where fio gives no directions."""
    sections = {way: job.get(way) or {} for way in DIRECTIONS}
    some = {way: section for way, section in sections.items() if section.get("total_ios") or section.get("io_bytes")}
    return some or ({MIXED: job[MIXED]} if (job.get(MIXED) or {}).get("total_ios") else {})


def _requests(section: Mapping[str, Any]) -> Tuple[int, float]:
    """Return the number of requests of a section, and its possible error.

    Of version 2.1 it is the number that bytes and rate agree in for a size that is a power of two; else the middle of
    what the rate allows.
    """
    if "total_ios" in section:
        return int(section["total_ios"]), 0.0
    moved, seconds, rate = int(section["io_bytes"]) << 10, float(section["runtime"]) / 1000, int(section["iops"])
    agree = {moved >> power for power in range(9, 31) if rate * seconds <= (moved >> power) < (rate + 1) * seconds}
    return (agree.pop(), 0.0) if len(agree) == 1 else (round((rate + 0.5) * seconds), seconds)


def _latency(section: Mapping[str, Any]) -> Tuple[str, Mapping[str, Any], float]:
    """Return of a section which latency has percentiles (else clat), that latency, and its unit in ms."""
    unit, suffix = (_NS, "_ns") if "clat_ns" in section or "lat_ns" in section else (_US, "")
    lat = section.get(f"lat{suffix}") or {}
    clat = section.get(f"clat{suffix}") or {}
    if not clat or ("percentile" not in clat and "percentile" in lat):
        return "lat", lat, unit
    return "clat", clat, unit


#: of fio's histograms, which have 64 bins from each power of two to the next one
RESOLUTION = 1 / 64


def _parts(
    job: FioJob, phase: str, process: Tuple[str, int], start: Optional[float], logs: Mapping[str, Log]
) -> Iterator[Part]:
    for way, section in _sections(job).items():
        _, latency, unit = _latency(section)
        (ios, off), seconds = _requests(section), float(section["runtime"]) / 1000
        given = latency.get("percentile") or {}
        has_mean = "mean" in latency and bool(latency.get("N", ios))
        log = logs.get(way)
        yield Part(
            phase=phase,
            op=way,
            client=process[0],
            job=process[1],
            seconds=seconds,
            requests=ios,
            failed=_failed(job, way),
            bytes=int(section["io_bytes"]) * (1 if "io_kbytes" in section else 1024),
            start=start,
            steps=log.steps.completed(ios, seconds, ios * float(latency.get("mean") or 0)) if log else None,
            mean_ms=float(latency["mean"]) * unit if has_mean else None,
            max_ms=float(latency["max"]) * unit if has_mean else None,
            percentiles={key: float(given[q]) * unit for q, key in _PERCENTILES.items() if q in given},
            bins=_bins(latency) if unit == _NS else None,  # older versions number their bins in another way
            resolution=RESOLUTION,
            rounded_ms=unit if unit == _US else 0.0,
            rounded_s=seconds * off / max(ios, 1),
            single=log.single if log else None,
        )


def _failed(job: FioJob, way: str) -> Optional[int]:
    """Return the failures of a direction; None when it is unknown: fio counts failures for a whole job."""
    failed = int(job.get("total_err") or bool(job.get("error")))
    return None if failed and set(_sections(job)) - {way} else failed


def _bins(latency: Mapping[str, Any]) -> Optional[Bins]:
    counts = latency.get("bins")
    if not counts:
        return None
    pairs = sorted((int(value), int(count)) for value, count in counts.items())
    # the last bin may reach beyond the longest latency that there was
    values = np.minimum(np.array([value for value, _ in pairs]), int(latency["max"]))
    return Bins.merged([Bins(values, np.array([count for _, count in pairs]))])


def _warnings_of_job(options: Mapping[str, Any], job: FioJob, phase: str, client: str) -> Iterator[ResultWarning]:
    if job.get("error"):
        yield ResultWarning("job-failed", f"{phase}: {client} ended with error {job['error']}")
    if not _sections(job):
        yield ResultWarning("no-requests", f"{phase}: {client} did no I/O")
    if job.get("total_err"):
        text = f"{phase}: {job['total_err']} requests of {client} failed, the first with error {job.get('first_error')}"
        yield ResultWarning("errors", text)
    syncs = any({**options, **(job.get("job options") or {})}.get(key) for key in _SYNCS)
    for way, section in _sections(job).items():
        for key in ("short_ios", "drop_ios"):
            if section.get(key) and not (syncs and key == "short_ios"):
                yield ResultWarning("errors", f"{phase}: {client} had {section[key]} {key.replace('_', ' ')} ({way})")


@dataclass(frozen=True)
class Log:
    """One direction of one job."""

    steps: Steps
    single: Optional[Tuple[np.ndarray, np.ndarray]]  # see Part


class Logs:
    """The logs of one process: those with this prefix and host in one directory."""

    def __init__(
        self, directory: Path, prefix: str, host: str = "", latency: str = "clat", window: Optional[float] = None
    ) -> None:
        self._files: Dict[int, Dict[str, Path]] = {}
        for path in directory.glob(f"{prefix}_*.log{host}*"):
            match = _LOG.match(unpacked_name(path))
            if match and match["prefix"] == prefix and (match["host"] or "") == host and path.stat().st_size:
                self._files.setdefault(int(match["job"]), {})[match["kind"]] = path
        self._latency = latency
        self._window = window

    def of(
        self, number: int, jobs: int, sections: Mapping[str, Mapping[str, Any]], begin: Optional[float]
    ) -> Mapping[str, Log]:
        """Return the logs of a job by direction; nothing when jobs and logs are not in pairs. Raises Unreadable.

        `sections` and `begin` (epoch seconds) are those of the job.
        """
        files = self._files.get(number)
        if not files or "iops" not in files or len(self._files) != jobs:
            return {}
        # a job with verify writes first and then reads
        most = sum(int(section["runtime"]) for section in sections.values()) + _LATE_MS
        done = {way: _requests(section)[0] for way, section in sections.items()}
        with reading(files["iops"]):
            tables = {kind: _table(files[kind], begin, most) for kind in ("iops", self._latency) if kind in files}
            return dict(self._read(tables, done))

    def _read(self, tables: Mapping[str, np.ndarray], done: Mapping[str, int]) -> Iterator[Tuple[str, Log]]:
        requests, latencies = tables["iops"], tables.get(self._latency)
        for code, way in enumerate(DIRECTIONS):
            rows = requests[requests[:, 2] == code]
            if len(rows):
                taken = latencies[latencies[:, 2] == code] if latencies is not None else None
                single = (rows[:, 1] == 1).all() and self._window is None
                yield way, _single(rows, taken) if single else _windows(self._counted(rows, done.get(way, 0)), taken)

    def _counted(self, requests: np.ndarray, done: int) -> Steps:
        """Return the requests of each window. One without any is left out; in older versions the next one lasts longer
        instead: true is what adds up to all that were `done`.
        """
        edges = np.concatenate(([0.0], requests[:, 0] / 1000))
        widths, rates = np.diff(edges), requests[:, 1]
        window = self._window or float(widths[widths > 0].min())
        longer = np.nonzero(widths > 1.5 * window)[0]
        cut = widths.copy()
        cut[longer] = window
        if abs((rates * cut).sum() - done) >= abs((rates * widths).sum() - done):
            return Steps(edges, rates * widths)
        return Steps(np.insert(edges, longer + 1, edges[longer + 1] - window), np.insert(rates * cut, longer, 0.0))


def _table(path: Path, begin: Optional[float], most: int) -> np.ndarray:
    """Read time, value and direction: the first columns, which all versions have. Raises Unreadable.

    Times become ms since the job's `begin`; more than `most` are of another clock.
    """
    rows = []
    with reading(path):
        for line in PackedFile(path).lines():
            fields = line.split(",", 3)
            if len(fields) == 4:
                rows.append((int(fields[0]), int(fields[1]), int(fields[2])))
        table = np.array(rows, np.int64).reshape(-1, 3)
        if begin is not None and (table[:, 0] > _CALENDAR_MS).any():
            table[:, 0] -= round(begin * 1000)
        if ((table[:, 0] < -_LATE_MS) | (table[:, 0] > most)).any():
            raise Unreadable(f"{path}: its times are not within the run of the job: log without log_alternate_epoch")
    np.maximum(table[:, 0], 0, out=table[:, 0])
    return table


def _single(requests: np.ndarray, latencies: Optional[np.ndarray]) -> Log:
    """Return the log of lines that are a request each."""
    ended = requests[:, 0] / 1000
    edges = np.arange(int(ended.max()) + 2, dtype=float)
    counts, _ = np.histogram(ended, edges)
    if latencies is None or len(latencies) != len(requests):
        return Log(Steps(edges, counts.astype(float)), None)
    totals, _ = np.histogram(latencies[:, 0] / 1000, edges, weights=latencies[:, 1].astype(float))
    return Log(Steps(edges, counts.astype(float), totals), (latencies[:, 0] / 1000, latencies[:, 1]))


def _windows(steps: Steps, latencies: Optional[np.ndarray]) -> Log:
    """Return the log of lines that are a window each; the windows of the two logs need not be the same."""
    if latencies is None or not len(latencies):
        return Log(steps, None)
    others = np.concatenate(([0.0], latencies[:, 0] / 1000))
    latency_steps = Steps(others, steps.within(others) * latencies[:, 1])
    return Log(Steps(steps.edges, steps.counts, latency_steps.within(steps.edges)), None)


def logs_beside(file: Path, text: str, host: str) -> Optional[Logs]:
    """Return the logs of the process that wrote this output: in its folder, under the names that its options say."""
    names = set(re.findall(r'"write_iops_log" *: *"([^"]+)"', text))
    if len(names) != 1:
        return None
    clat = re.search(r'"clat_ns" *: *\{[^{}]*"percentile"', text)
    lat = re.search(r'"lat_ns" *: *\{[^{}]*"percentile"', text)
    how = re.search(r'"log_(?:max|window)_value" *: *"([^"]*)"', text)
    if how and how[1] == "both":  # mean and maximum: another form of line
        return None
    windows = {int(milliseconds) for milliseconds in re.findall(r'"log_avg_msec" *: *"(\d+)"', text)} - {0}
    window = max(windows) / 1000 if len(windows) == 1 else None
    latency = "lat" if lat and not clat else "clat"
    if windows and how and how[1] not in ("0", "avg"):
        latency = ""  # maxima of windows are no means
    return Logs(file.parent, Path(names.pop()).name, host, latency, window)
