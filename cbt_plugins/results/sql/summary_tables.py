"""Tables of what a summary says: runs, phases, operations, drivers, resources; and of any program's run: its
measurements.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.metrics import METRICS, TOTAL
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.recovery.episodes import rows_of
from cbt_plugins.results.run_record import RunRecord
from cbt_plugins.results.sql.table import Columns, Table, TableRun, columns_of, from_rows
from cbt_plugins.results.summary_file import summary_of
from cbt_plugins.warning_kinds import severity_of

Row = Dict[str, Any]

_RUNS = columns_of("""
name VARCHAR a run; of hsbench's loops each is one
kind VARCHAR what wrote it: cbt-plugins, hsbench, fio, radosbench, cosbench, warp
benchmark VARCHAR key of the YAML file
run_id VARCHAR of a run of this project
complete BOOLEAN it came to its end
usable BOOLEAN its numbers are those of a complete run
started TIMESTAMP begin of the first phase (UTC)
label VARCHAR release of Ceph
warnings BIGINT warnings: view warnings has them
path VARCHAR of the directory
""")

_PHASES = columns_of("""
index BIGINT their order
phase VARCHAR name
kind VARCHAR fill, hybrid, ...
role VARCHAR fill, measure, age, none
engine VARCHAR warp or cbt-load
status VARCHAR ok, or what it was
started TIMESTAMP begin of the window, run's clock (UTC)
ended TIMESTAMP its end
seconds DOUBLE its length
block BIGINT seconds of the resolution in time
asked_seconds DOUBLE what the file asked for
loop VARCHAR closed or open
workers BIGINT of all drivers
in_flight DOUBLE Little's law: throughput x latency
longest_gap_s DOUBLE without any success
sentence VARCHAR what happened, in words
""")

_LINE = """
op VARCHAR GET, PUT, STAT, DELETE, LIST, or total
requests BIGINT that ended well in the window
errors BIGINT that failed in it
cut BIGINT that the end of the run cut off
success_rate DOUBLE 0..1
objects BIGINT of the successes
bytes BIGINT of the successes
obj_per_s DOUBLE rate in the window
mib_per_s DOUBLE rate in the window; null where no data moves
mean_ms DOUBLE latency of the successes
p50_ms DOUBLE from merged histograms
p90_ms DOUBLE needs 10 requests
p99_ms DOUBLE needs 100
p999_ms DOUBLE needs 1000
max_ms DOUBLE exact
ttfb_p50_ms DOUBLE to the first byte
ttfb_p99_ms DOUBLE to the first byte
"""

_OPS = columns_of("phase VARCHAR name" + _LINE + "longest_gap_s DOUBLE without a success of this operation")
_DRIVERS = columns_of(
    "phase VARCHAR name\ndriver VARCHAR its name\nnode VARCHAR where it ran\nbucket VARCHAR its bucket\n"
    "workers BIGINT of this driver" + _LINE
)
_LOSSES = columns_of("""
name VARCHAR of the failure or return, as phase in measurements
kind VARCHAR failure or return
began TIMESTAMP begin of its commands (UTC)
seconds DOUBLE with load, until the next failure or return
op VARCHAR GET, PUT, STAT, DELETE, LIST, or total
requests BIGINT that ended well
bad_seconds BIGINT beyond the objective
objective_ms DOUBLE p99 from which on a second is bad
failed BIGINT requests
waited BIGINT that ended well and took over 1 s
longest_gap_s DOUBLE without a success
obj_per_s DOUBLE mean
throughput_share DOUBLE of that of the baseline
p50_ms DOUBLE from merged histograms
p99_ms DOUBLE needs 100
p999_ms DOUBLE needs 1000
p99_ratio DOUBLE to that of the baseline
gateway_gap_s DOUBLE of total: without a success of one gateway
unstarted BIGINT of total: due requests of an open loop that never started
back_s DOUBLE of total: until throughput was back for 30 s
""")
_SCORECARD = (
    *columns_of("""
name VARCHAR of the failure, as phase in measurements
phase VARCHAR the repetition
refused VARCHAR why the failure was not injected
recovery_s DOUBLE from the undo until all PGs are active+clean
moved_mib DOUBLE that recovery made
availability DOUBLE successful requests / all that were due
"""),
    *(column for column in _LOSSES if column.name not in ("name", "kind")),
)
_EPISODES = columns_of("""
name VARCHAR of the failure or return, as phase in measurements
kind VARCHAR failure or return
labels VARCHAR of its faults
began TIMESTAMP begin of its commands (UTC)
ended TIMESTAMP begin of the next failure or return, or end of the samples (UTC)
outcome VARCHAR recovered, or what was seen instead
milestone VARCHAR injected, first-down, clean, ...
seconds DOUBLE from the begin; null where it was not reached
reason VARCHAR why there is no time
""")
_MEASUREMENTS = columns_of("""
name VARCHAR as in runs
phase VARCHAR phase; hsbench's mode, fio's job, COSbench's stage
op VARCHAR operation, class of daemons, or total
metric VARCHAR key of `cbt-tools compare --list`: obj_per_s, p99_ms, recovery_s, cores ...
unit VARCHAR of the value
value DOUBLE null where it is unknown
n BIGINT requests behind it
""")
_CONFIG = columns_of("name VARCHAR as in runs\nkey VARCHAR dotted\nvalue VARCHAR as text")
_WARNINGS = columns_of("""
name VARCHAR as in runs
code VARCHAR kind
severity VARCHAR invalid, warning, info
text VARCHAR one sentence
""")
_DAEMONS = columns_of("""
phase VARCHAR name
node VARCHAR where it ran
class VARCHAR osd, rgw, mon, mgr, mds, generator
id VARCHAR of the daemon
pid BIGINT of its process
cores DOUBLE processors used, mean
peak DOUBLE processors used, highest
rss_mib DOUBLE memory, mean
rss_max_mib DOUBLE memory, highest
read_mib_s DOUBLE from disk
write_mib_s DOUBLE to disk
throttled DOUBLE share of its CPU limit's periods in which it was stopped
""")
_INTERNALS = columns_of("""
phase VARCHAR name
class VARCHAR osd, rgw
name VARCHAR of the number
unit VARCHAR ms, 1/s or bytes
at_start DOUBLE of a state: at the begin of the phase, of all daemons
at_end DOUBLE of a state: at its end
value DOUBLE mean latency, rate, or state at the end, of all daemons
highest DOUBLE of one daemon
daemon VARCHAR that one
""")
_NODES = columns_of("""
phase VARCHAR name
node VARCHAR name
cpus BIGINT processors
busy DOUBLE share of them
io_wait DOUBLE share of them
load DOUBLE of a minute, mean
available_mib DOUBLE memory that was left, lowest
swapped_mib DOUBLE in and out
watched DOUBLE share of the phase
""")
_DEVICES = columns_of("""
phase VARCHAR name
node VARCHAR where it is
device VARCHAR name of the disk
osd VARCHAR whose data it holds, if one OSD's
util DOUBLE share of the time it was busy
queue DOUBLE requests waiting, mean
read_mib_s DOUBLE read
write_mib_s DOUBLE written
read_ms DOUBLE mean of a read
write_ms DOUBLE mean of a write
""")
_INTERFACES = columns_of("""
phase VARCHAR name
node VARCHAR where it is
name VARCHAR of the interface
side VARCHAR client or cluster network
rx_mib_s DOUBLE received
tx_mib_s DOUBLE sent
speed_mbit DOUBLE of the link
util DOUBLE share of it
drops BIGINT packets
""")


_THREADS = columns_of("""
phase VARCHAR name
class VARCHAR osd, rgw, mon, mgr, mds
thread_group VARCHAR what they do (docs/RESOURCES.md); null: all of the class
cores DOUBLE processors used, mean
ms_per_op DOUBLE CPU time for each successful request
low DOUBLE its 95 % confidence interval
high DOUBLE its 95 % confidence interval
""")


@lru_cache(maxsize=64)
def summary(path: Path) -> Mapping[str, Any]:
    """Return `loader.summary_of`, once a run: several tables are made of it."""
    return summary_of(path)


@lru_cache(maxsize=64)
def records(path: Path) -> Tuple[RunRecord, ...]:
    """Return the records that `cbt-tools compare` reads of this run."""
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
        window, gap, law = phase["window"], phase["longest_gap"] or {}, phase["littles_law"] or {}
        same = ("index", "kind", "role", "engine", "status", "block", "asked_seconds", "loop", "sentence")
        yield {
            **{name: phase[name] for name in same},
            "phase": phase["name"],
            "started": window["start"],
            "ended": window["end"],
            "seconds": window["seconds"],
            "workers": sum(driver["workers"] for driver in phase["drivers"]) or None,
            "in_flight": law.get("in_flight"),
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
        for measurement in record.measurements:
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
        yield from _of_losses(line, {"name": line["name"], "kind": line["kind"]}, objective)


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
        }
        for milestone in episode["milestones"]:
            times = {"seconds": milestone["seconds"], "reason": milestone["reason"]}
            yield {**about, "milestone": milestone["name"], **times}


def _config(run: TableRun) -> Iterator[Row]:
    for record in records(run.path):
        for key, value in record.config.items():
            yield {"name": record.name, "key": key, "value": value}


def _warnings(run: TableRun) -> Iterator[Row]:
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


def _internals(run: TableRun) -> Iterator[Row]:
    numbers_of_phase = (summary(run.path).get("internals") or {}).get("phases") or {} if run.ours else {}
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
    _table("runs", "one line a run", _RUNS, _runs),
    _table("phases", "one line a phase", _PHASES, _phases),
    _table("ops", "the numbers of each operation of a phase, and of all operations", _OPS, _ops),
    _table("drivers", "the same of each driver", _DRIVERS, _drivers),
    _table("losses", "what clients lost during each failure and return", _LOSSES, _losses),
    _table("scorecard", "what each repetition of a failure cost", _SCORECARD, _scorecard),
    _table("episodes", "a line a milestone of each failure and return", _EPISODES, _episodes),
    _table("measurements", "what `cbt-tools compare` compares, of runs of any program", _MEASUREMENTS, _measurements),
    _table("config", "what the run was", _CONFIG, _config),
    _table("warnings", "the warnings about its numbers", _WARNINGS, _warnings),
    _table("daemons", "what each daemon used in a phase", _DAEMONS, lambda run: _resources(run, "daemons")),
    _table("nodes", "processors and memory of each node in a phase", _NODES, lambda run: _resources(run, "nodes")),
    _table("threads", "CPU time by what threads do", _THREADS, _threads),
    _table("internals", "what OSDs and gateways count themselves", _INTERNALS, _internals),
    _table("devices", "what each disk did in a phase", _DEVICES, lambda run: _resources(run, "devices")),
    _table("interfaces", "what each interface did in a phase", _INTERFACES, lambda run: _resources(run, "interfaces")),
)
