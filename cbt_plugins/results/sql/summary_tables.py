"""Tables of the contents of a summary: runs, phases, operations, drivers, resources; measurements of any program."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.metrics import METRICS, TOTAL
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.recovery.episodes import rows_of
from cbt_plugins.results.run_record import RunRecord, measurements
from cbt_plugins.results.sql.table_type import Columns, Table, TableRun, columns_of, from_rows
from cbt_plugins.results.summary_file import summary_of
from cbt_plugins.warning_kinds import severity_of

Row = Dict[str, Any]

_RUNS = columns_of("""
name VARCHAR name of the run; each loop of hsbench is a run
kind VARCHAR program of the result: cbt-plugins, or the program of an imported result, such as fio
benchmark VARCHAR key in `benchmarks:` of the YAML file
run_id VARCHAR ID of a run of cbt-plugins
complete BOOLEAN the run came to its end
usable BOOLEAN the run is complete and no warning makes its numbers worthless
started TIMESTAMP beginning of the first phase (UTC)
label VARCHAR release of Ceph
warnings BIGINT number of warnings; see table `warnings`
path VARCHAR directory of the run
""")

_PHASES = columns_of("""
index BIGINT position of the phase in the run
phase VARCHAR name of the phase
kind VARCHAR fill, hybrid, ...
role VARCHAR fill, measure, age, none
engine VARCHAR program that makes the load, such as warp
status VARCHAR ok, degraded, failed or aborted
started TIMESTAMP beginning of the window, run's clock (UTC)
ended TIMESTAMP end of the window
seconds DOUBLE length of the window
block BIGINT time resolution of the aggregates, seconds
asked_seconds DOUBLE duration that the YAML file sets
loop VARCHAR closed or open
workers BIGINT workers of all drivers
in_flight DOUBLE mean requests in flight by Little's law, of all loops: throughput x latency
longest_gap_s DOUBLE longest time without any success
sentence VARCHAR the result in words
""")

_LINE = """
op VARCHAR GET, PUT, STAT, DELETE, LIST, or total
requests BIGINT successful requests that ended in the window
errors BIGINT failed requests that ended in the window
cut BIGINT requests that the end of the run cut off
success_rate DOUBLE successful share of the requests, 0..1
objects BIGINT objects of successful requests
bytes BIGINT bytes of successful requests
obj_per_s DOUBLE objects per second in the window
mib_per_s DOUBLE MiB/s in the window; null for operations without data
mean_ms DOUBLE mean latency of successful requests
p50_ms DOUBLE median latency, from merged histograms
p90_ms DOUBLE 90th percentile; null below 10 requests
p99_ms DOUBLE 99th percentile; null below 100 requests
p999_ms DOUBLE 99.9th percentile; null below 1000 requests
max_ms DOUBLE highest latency, exact
ttfb_p50_ms DOUBLE median time to the first byte
ttfb_p99_ms DOUBLE 99th percentile of the time to the first byte
"""

_OPS = columns_of(
    "phase VARCHAR name of the phase"
    + _LINE
    + "longest_gap_s DOUBLE longest time without a success of this operation"
)
_DRIVERS = columns_of(
    "phase VARCHAR name of the phase\ndriver VARCHAR name of the driver\nnode VARCHAR node of the driver\n"
    "bucket VARCHAR bucket of the driver\nworkers BIGINT workers of the driver" + _LINE
)
_LOSSES = columns_of("""
name VARCHAR name of the failure or return, like phase in measurements
kind VARCHAR failure or return
began TIMESTAMP beginning of the commands of the failure or return (UTC)
seconds DOUBLE time with load until the next failure or return
op VARCHAR GET, PUT, STAT, DELETE, LIST, or total
requests BIGINT successful requests
bad_seconds BIGINT seconds that missed the objective
objective_ms DOUBLE objective: a second with a higher p99 is bad
failed BIGINT failed requests
waited BIGINT successful requests that took longer than 1 s; null if long blocks hide some of these requests
longest_gap_s DOUBLE longest time without a success
obj_per_s DOUBLE mean objects per second
throughput_share DOUBLE throughput as a share of the throughput of the baseline
p50_ms DOUBLE median latency, from merged histograms
p99_ms DOUBLE 99th percentile; null below 100 requests
p999_ms DOUBLE 99.9th percentile; null below 1000 requests
p99_ratio DOUBLE p99 / p99 of the baseline
gateway_gap_s DOUBLE only op total: longest time without a success of one gateway
unstarted BIGINT only op total: due requests of an open loop that never started
back_s DOUBLE only op total: time until the throughput was back and stayed back for 30 s
first_failed_s DOUBLE only op total: time from the beginning to the start of the first second with a failed request
last_failed_s DOUBLE only op total: time from the beginning to the start of the last second with a failed request
availability DOUBLE successful requests / requests that were due
""")
_LOSS_ENDPOINTS = columns_of("""
name VARCHAR name of the failure or return, as in losses
kind VARCHAR failure or return
began TIMESTAMP beginning of the commands of the failure or return (UTC)
endpoint VARCHAR gateway
requests_per_s DOUBLE mean successful requests per second
share DOUBLE share of the successful requests of all endpoints, 0..1
base_requests_per_s DOUBLE requests_per_s in the baseline
base_share DOUBLE share in the baseline
longest_gap_s DOUBLE longest time without a success of this endpoint, in whole blocks
""")
#: columns of `losses` that `scorecard` lacks, or has in another place
_OF_LOSSES_ALONE = ("name", "kind", "first_failed_s", "last_failed_s", "availability")
_SCORECARD = (
    *columns_of("""
name VARCHAR name of the failure, like phase in measurements
phase VARCHAR phase of this repetition
refused VARCHAR why the failure was not injected; null: the failure was injected
recovery_s DOUBLE time from the undo until all PGs are active+clean
moved_mib DOUBLE data that recovery copied, MiB
availability DOUBLE successful requests / requests that were due
"""),
    *(column for column in _LOSSES if column.name not in _OF_LOSSES_ALONE),
)
_EPISODES = columns_of("""
name VARCHAR name of the failure or return, like phase in measurements
kind VARCHAR failure or return
labels VARCHAR labels of the faults
began TIMESTAMP beginning of the commands of the failure or return (UTC)
ended TIMESTAMP beginning of the next failure or return, or end of the samples (UTC)
outcome VARCHAR recovered, or the state that was seen instead
milestone VARCHAR injected, first-down, clean, ...
seconds DOUBLE time from the beginning; null if the milestone was not reached
reason VARCHAR why the milestone has no time
aborted VARCHAR attempt at a phase that was broken off: such a failure or return is no result; null for others
again DOUBLE seconds for which a fault that was injected again on resume was in force: such a failure is no result
""")
_MEASUREMENTS = columns_of("""
name VARCHAR name of the run, as in runs
phase VARCHAR phase; mode of hsbench, job of fio, stage of COSBench
op VARCHAR operation, class of daemons, or total
metric VARCHAR name of the metric: obj_per_s, p99_ms, recovery_s, cores ...
unit VARCHAR unit of the value
value DOUBLE value; null if it is unknown
n BIGINT number of requests in the value
""")
_CONFIG = columns_of("name VARCHAR name of the run, as in runs\nkey VARCHAR dotted key\nvalue VARCHAR value as text")
_WARNINGS = columns_of("""
name VARCHAR name of the run, as in runs
code VARCHAR kind of warning
severity VARCHAR invalid, warning, info
text VARCHAR the warning
""")
_DAEMONS = columns_of("""
phase VARCHAR name of the phase
node VARCHAR node of the daemon
class VARCHAR osd, rgw, mon, mgr, mds, generator
id VARCHAR ID of the daemon
pid BIGINT pid of the daemon
cores DOUBLE mean CPU cores used
peak DOUBLE highest CPU cores used
rss_mib DOUBLE mean memory (RSS), MiB
rss_max_mib DOUBLE highest memory (RSS), MiB
read_mib_s DOUBLE MiB/s read from disk
write_mib_s DOUBLE MiB/s written to disk
throttled DOUBLE share of periods in which the CPU limit stopped the daemon
memory_limit_mib DOUBLE memory limit of its cgroup or of a cgroup above, MiB
memory_share DOUBLE highest share of this limit in use
oom_kills BIGINT OOM kills of the daemon or in its cgroup
""")
_PERF_COUNTERS = columns_of("""
phase VARCHAR name of the phase
class VARCHAR osd, rgw
name VARCHAR name of the counter
unit VARCHAR ms, 1/s or bytes
at_start DOUBLE states (such as bytes) only: all daemons at the start of the phase
at_end DOUBLE states only: all daemons at the end of the phase
value DOUBLE mean latency, rate, or state at the end, of all daemons
highest DOUBLE highest value of a single daemon
daemon VARCHAR daemon with the highest value
""")
_NODES = columns_of("""
phase VARCHAR name of the phase
node VARCHAR name of the node
cpus BIGINT number of processors
busy DOUBLE busy share of the processors' time
io_wait DOUBLE share of the processors' time waiting for I/O
load DOUBLE mean 1-minute load average
available_mib DOUBLE lowest available memory, MiB
swapped_mib DOUBLE MiB swapped in and out
watched DOUBLE share of the phase with samples
""")
_DEVICES = columns_of("""
phase VARCHAR name of the phase
node VARCHAR node of the disk
device VARCHAR name of the disk
osd VARCHAR OSD of the disk; null if the disk has several OSDs or no OSD
util DOUBLE share of the time in which the disk was busy
queue DOUBLE mean length of the request queue
read_mib_s DOUBLE MiB/s read
write_mib_s DOUBLE MiB/s written
read_ms DOUBLE mean time of a read
write_ms DOUBLE mean time of a write
""")
_INTERFACES = columns_of("""
phase VARCHAR name of the phase
node VARCHAR node of the interface
name VARCHAR name of the interface
side VARCHAR client or cluster network
rx_mib_s DOUBLE MiB/s received
tx_mib_s DOUBLE MiB/s sent
speed_mbit DOUBLE speed of the link, Mbit/s
util DOUBLE used share of the link's speed
drops BIGINT dropped packets
""")


_THREADS = columns_of("""
phase VARCHAR name of the phase
class VARCHAR osd, rgw, mon, mgr, mds
thread_group VARCHAR group of threads by purpose (docs/RESOURCES.md); null: all threads of the class
cores DOUBLE mean CPU cores used
ms_per_op DOUBLE CPU time per successful request, ms
low DOUBLE lower end of the 95 % confidence interval of ms_per_op
high DOUBLE upper end of the interval
""")


@lru_cache(maxsize=1)
def summary(path: Path) -> Mapping[str, Any]:
    """Return the summary of a run, and keep it for the next table of this run.

    Only one is kept: it takes some five times as much memory as its file has bytes, which may be 53 MB.
    """
    return summary_of(path)


@lru_cache(maxsize=1)
def records(path: Path) -> Tuple[RunRecord, ...]:
    """Return the records of a run that `cbt-tools compare` uses."""
    return tuple(records_of(path))


def _of(run: TableRun) -> List[Mapping[str, Any]]:
    return list(summary(run.path)["phases"]) if run.ours else []


def _runs(run: TableRun) -> Iterator[Row]:
    for record in records(run.path):
        about = summary(run.path)["run"] if run.ours else {}
        yield {
            "name": record.name,
            "kind": record.kind,
            "benchmark": record.config.get("benchmark"),
            "run_id": about.get("run_id"),
            "complete": about.get("complete", record.usable),
            "usable": record.usable,
            "started": record.started,
            "label": record.label,
            "warnings": len(record.warnings),
            "path": str(run.path),
        }


def _phases(run: TableRun) -> Iterator[Row]:
    for phase in _of(run):
        window, gap, loops = phase["window"], phase["longest_gap"] or {}, (phase["littles_law"] or {}).get("jobs")
        same = ("index", "kind", "role", "engine", "status", "block", "asked_seconds", "loop", "sentence")
        yield {
            **{name: phase[name] for name in same},
            "phase": phase["name"],
            "started": window["start"],
            "ended": window["end"],
            "seconds": window["seconds"],
            "workers": sum(driver["workers"] for driver in phase["drivers"]) or None,
            # the law itself is of closed loops only
            "in_flight": round(sum(loop["in_flight"] for loop in loops), 4) if loops else None,
            "longest_gap_s": gap.get("seconds"),
        }


def _line(line: Mapping[str, Any]) -> Row:
    latency, first = line["latency_ms"] or {}, line["ttfb_ms"] or {}
    return {
        **{name: value for name, value in line.items() if not isinstance(value, (dict, list))},
        **{f"{name}_ms": latency.get(name) for name in ("mean", "p50", "p90", "p99", "p999", "max")},
        "ttfb_p50_ms": first.get("p50"),
        "ttfb_p99_ms": first.get("p99"),
        "longest_gap_s": (line.get("longest_gap") or {}).get("seconds"),
    }


def _ops(run: TableRun) -> Iterator[Row]:
    for phase in _of(run):
        if phase["ops"]:
            for op, line in [*phase["ops"].items(), (TOTAL, phase["total"])]:
                yield {"phase": phase["name"], "op": op, **_line(line)}


def _drivers(run: TableRun) -> Iterator[Row]:
    for phase in _of(run):
        for driver in phase["drivers"]:
            about = {name: driver[name] for name in ("driver", "node", "bucket", "workers")}
            for op, line in [*driver["ops"].items(), (TOTAL, driver["total"])]:
                yield {"phase": phase["name"], **about, "op": op, **_line(line)}


def _measurements(run: TableRun) -> Iterator[Row]:
    for record in records(run.path):
        # a record lacks the steps of ladders
        for measurement in measurements(summary(run.path)) if run.ours else record.measurements:
            unit = METRICS[measurement.metric].unit if measurement.metric in METRICS else None
            row = {
                "name": record.name,
                "phase": measurement.phase,
                "op": measurement.op,
                "metric": measurement.metric,
                "unit": unit,
            }
            yield {**row, "value": measurement.value, "n": measurement.n}


def _losses(run: TableRun) -> Iterator[Row]:
    failure = summary(run.path)["failure"] if run.ours else None
    impact = failure["impact"] if failure else {}
    objective = impact.get("objective") or {}
    for line in impact.get("episodes") or ():
        span = line.get("failed_span") or {}  # archives before this key have none
        times = {f"{which}_failed_s": seconds for which, seconds in span.items()}
        for row in _of_losses(line, {"name": line["name"], "kind": line["kind"]}, objective):
            yield {**row, **times} if row["op"] == TOTAL else row


def _loss_endpoints(run: TableRun) -> Iterator[Row]:
    failure = summary(run.path)["failure"] if run.ours else None
    for line in (failure["impact"].get("episodes") or ()) if failure else ():
        loads = {load["endpoint"]: load for load in line.get("endpoints") or ()}  # archives before this key have none
        for gateway in line["gateways"]:
            load = loads.get(gateway["endpoint"], {})
            yield {
                "name": line["name"],
                "kind": line["kind"],
                "began": line["begin"],
                "endpoint": gateway["endpoint"],
                "requests_per_s": load.get("per_s"),
                "share": load.get("share"),
                "base_requests_per_s": load.get("base_per_s"),
                "base_share": load.get("base_share"),
                "longest_gap_s": gateway["longest_gap"],
            }


def _scorecard(run: TableRun) -> Iterator[Row]:
    document = summary(run.path) if run.ours else {}
    objective = (document.get("failure") or {"impact": {}})["impact"].get("objective") or {}
    for failure in (document.get("scorecard") or {"failures": ()})["failures"]:
        for score in failure["scores"]:
            about = {"name": failure["name"], "phase": score["phase"], **score["cluster"]}
            yield from _of_losses(score, about, objective)
        for refused in failure["refused"]:
            yield {"name": failure["name"], "phase": refused["phase"], "refused": refused["why"]}


def _of_losses(line: Mapping[str, Any], about: Row, objective: Mapping[str, Any]) -> Iterator[Row]:
    of_all = {"gateway_gap_s": line["gateway_gap"], "unstarted": line["unstarted"], "back_s": line["back"]["seconds"]}
    for op, numbers in [*line["ops"].items(), (TOTAL, line["total"])]:
        share = numbers["obj_per_s_percent"]
        yield {
            **about,
            "began": line["begin"],
            "seconds": line["seconds"],
            **(of_all if op == TOTAL else {}),
            **{name: value for name, value in numbers.items() if not isinstance(value, (dict, list))},
            "op": op,
            "objective_ms": (objective.get(op) or {}).get("p99_ms"),
            "failed": numbers["errors"],
            "longest_gap_s": numbers["longest_gap"],
            "throughput_share": None if share is None else share / 100,
        }


def _episodes(run: TableRun) -> Iterator[Row]:
    failure = summary(run.path)["failure"] if run.ours else None
    for episode in failure["milestones"]["episodes"] if failure else ():
        about = {
            "name": rows_of(episode),
            "kind": episode["kind"],
            "labels": " ".join(episode["labels"]),
            "began": episode["begin"],
            "ended": episode["end"],
            "outcome": episode["outcome"],
            "aborted": episode.get("aborted"),
            "again": episode.get("again"),
        }
        for milestone in episode["milestones"]:
            times = {"seconds": milestone["seconds"], "reason": milestone["reason"]}
            yield {**about, "milestone": milestone["name"], **times}


def _config(run: TableRun) -> Iterator[Row]:
    for record in records(run.path):
        for key, value in record.config.items():
            yield {"name": record.name, "key": key, "value": value}


def _rows_of_warnings(run: TableRun) -> Iterator[Row]:
    for record in records(run.path):
        for warning in record.warnings:
            severity = severity_of(warning.code).value
            yield {"name": record.name, "code": warning.code, "severity": severity, "text": warning.text}


def _resources(run: TableRun, key: str, within: Optional[str] = None) -> Iterator[Row]:
    used = (summary(run.path).get("resources") or {}).get("phases") or {} if run.ours else {}
    for phase, phase_usage in used.items():
        lines = phase_usage.get(key) or ()
        for line in lines[within] if within and lines else lines:
            yield {"phase": phase, **line}


def _perf_counters(run: TableRun) -> Iterator[Row]:
    numbers_of_phase = (summary(run.path).get("perf_counters") or {}).get("phases") or {} if run.ours else {}
    for phase, numbers in numbers_of_phase.items():
        for line in numbers["lines"]:
            yield {"phase": phase, **line, "at_start": line["start"], "at_end": line["end"], "daemon": line["of"]}


def _threads(run: TableRun) -> Iterator[Row]:
    for row in _resources(run, "threads", "lines"):
        yield {**row, "thread_group": row["group"]}


def _table(name: str, text: str, columns: Any, rows: Any) -> Table:
    def fill(run: TableRun) -> Iterable[Columns]:
        return from_rows(columns, rows(run))

    return Table(name, text, columns, fill)


TABLES = (
    _table("runs", "one line for each run", _RUNS, _runs),
    _table("phases", "one line for each phase", _PHASES, _phases),
    _table("ops", "results of each operation in a phase, and of all operations (total)", _OPS, _ops),
    _table("drivers", "results of each operation and driver in a phase", _DRIVERS, _drivers),
    _table("losses", "effect of each failure and return on clients", _LOSSES, _losses),
    _table("loss_endpoints", "share and longest gap of each endpoint", _LOSS_ENDPOINTS, _loss_endpoints),
    _table("scorecard", "cost of each repetition of a failure", _SCORECARD, _scorecard),
    _table("episodes", "one line for each milestone of each failure and return", _EPISODES, _episodes),
    _table("measurements", "metrics for `cbt-tools compare`, of runs of any program", _MEASUREMENTS, _measurements),
    _table("config", "configuration of each run", _CONFIG, _config),
    _table("warnings", "warnings about each run", _WARNINGS, _rows_of_warnings),
    _table("daemons", "CPU, memory and disk I/O of each daemon", _DAEMONS, lambda run: _resources(run, "daemons")),
    _table("nodes", "CPU and memory of each node in a phase", _NODES, lambda run: _resources(run, "nodes")),
    _table("threads", "CPU time by groups of threads in a phase", _THREADS, _threads),
    _table("perf_counters", "counters of OSDs and gateways (perf counters) in a phase", _PERF_COUNTERS, _perf_counters),
    _table("devices", "load of each disk in a phase", _DEVICES, lambda run: _resources(run, "devices")),
    _table("interfaces", "traffic of each network interface", _INTERFACES, lambda run: _resources(run, "interfaces")),
)
