"""Tables of events, heartbeats of the drivers, and the cluster's state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

from cbt_plugins.ceph_df import Space
from cbt_plugins.cluster_conditions import is_clean
from cbt_plugins.journal import HEARTBEATS, each_json_line, json_lines, read_json
from cbt_plugins.results.archive import read_run
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples, status_by_phase
from cbt_plugins.results.sql.aggregate_tables import phases
from cbt_plugins.results.sql.table_type import Columns, Table, TableRun, columns_of, from_rows

_EVENTS = columns_of("""
time TIMESTAMP run's clock (UTC)
event VARCHAR kind of event, such as phase-begin
phase VARCHAR phase of the event; null: the event belongs to no phase
label VARCHAR label of the fault, for events of faults
data VARCHAR the complete line of events.jsonl, as JSON
""")
_HEARTBEATS = columns_of("""
phase VARCHAR name of the phase
time TIMESTAMP run's clock (UTC)
node VARCHAR node of the job
job VARCHAR process of the load generator
ops BIGINT requests so far
bytes BIGINT bytes so far
errors BIGINT failed requests so far
state VARCHAR state of the process
in_flight BIGINT requests in flight
oldest_s DOUBLE age of the oldest request in flight
""")
_STATUS = columns_of("""
phase VARCHAR name of the phase; null: outside of all phases
time TIMESTAMP run's clock (UTC)
health VARCHAR health of the cluster
pgs BIGINT placement groups
not_clean BIGINT PGs that are not active+clean
degraded DOUBLE degraded share of the object copies
misplaced DOUBLE misplaced share of the object copies
osds_up BIGINT OSDs that are up
osds_in BIGINT OSDs that are in
raw_used DOUBLE used share of the raw capacity
""")
_CAPACITY = columns_of("""
phase VARCHAR phase at whose end `ceph df` was asked; null: before the first phase
time TIMESTAMP time of `ceph df`, run's clock (UTC)
pool VARCHAR name of the pool
objects BIGINT objects in the pool
stored BIGINT bytes that clients have written
used BIGINT stored bytes with all copies and coding chunks
max_avail BIGINT bytes that clients can still write
raw_used DOUBLE used share of the cluster's raw capacity
""")
_RECOVERY = columns_of("""
time TIMESTAMP time of the sample, run's clock (UTC)
epoch BIGINT epoch of the OSD map
osds_up BIGINT OSDs that are up
osds_in BIGINT OSDs that are in
pgs BIGINT placement groups
not_clean BIGINT PGs that are not active+clean
inactive BIGINT inactive PGs, which serve no requests
degraded BIGINT degraded (missing) object copies
misplaced BIGINT misplaced object copies
unfound BIGINT unfound objects
clean BOOLEAN all PGs are active+clean
moving BOOLEAN some PGs recover or backfill
settled BOOLEAN the PG statistics are newer than the last change of an OSD
recovered_objects BIGINT the cluster's counter of recovered objects: it falls and rises when PGs get another primary OSD
recovered_bytes BIGINT the same counter of bytes
health VARCHAR health of the cluster
""")


def _events(run: TableRun) -> Iterator[Columns]:
    lines = json_lines(run.path / "events.jsonl")
    rows = [{**line, "time": line.get("t"), "data": json.dumps(line)} for line in lines]
    return from_rows(_EVENTS, rows)


def _heartbeats(run: TableRun) -> Iterator[Columns]:
    return from_rows(_HEARTBEATS, _reports(run))


def _reports(run: TableRun) -> Iterator[Dict[str, Any]]:
    for phase in phases(run.path) if run.ours else ():
        for beat in each_json_line(phase.path / HEARTBEATS):
            for job, job_beat in (beat.get("jobs") or {}).items():
                about = {"phase": phase.name, "time": beat.get("t"), "node": beat.get("node"), "job": job}
                yield {**job_beat, **about, "oldest_s": job_beat.get("oldest")}


def _status(run: TableRun) -> Iterator[Columns]:
    for name, samples in status_by_phase(read_run(run.path)).items() if run.ours else ():
        rows = []
        for sample in samples:
            states = sample.get("pgs")
            about = {"phase": name, "time": sample.get("t"), "pgs": None}
            # older archives have a file for each phase, with counts but no total
            about.update(
                (object_state, sample.get(f"{object_state}_share")) for object_state in ("degraded", "misplaced")
            )
            if isinstance(states, dict):
                about["pgs"] = sum(states.values())
                about["not_clean"] = sum(n for state, n in states.items() if not is_clean(state))
            rows.append({**sample, **about})
        yield from from_rows(_STATUS, rows)


def _capacity(run: TableRun) -> Iterator[Columns]:
    rows: List[Dict[str, Any]] = _pools(run.path / "cluster" / "before" / "df.json") if run.ours else []
    for phase in phases(run.path) if run.ours else ():
        rows += [{**pool, "phase": phase.name} for pool in _pools(phase.path / "capacity.json")]
    return from_rows(_CAPACITY, rows)


def _pools(path: Path) -> List[Dict[str, Any]]:
    """Return the pools of a reply to `ceph df`, which may have a time around it; [] if it is unreadable."""
    try:
        document = read_json(path)
        space = Space.parse(document.get("df", document))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    about = {"time": document.get("t"), "raw_used": space.used_share}
    keys = ("objects", "stored", "used", "max_avail")
    return [{**about, "pool": name, **{key: getattr(pool, key) for key in keys}} for name, pool in space.pools.items()]


def _recovery(run: TableRun) -> Iterator[Columns]:
    samples = read_samples(files_of(run.path), Clocks.of(read_run(run.path))).samples
    rows = []
    for sample in samples:
        recovered = sample.state.get("recovered") or (None, None)
        rows.append(
            {
                "time": sample.t,
                "epoch": sample.state.get("epoch"),
                "osds_up": sample.osds_up,
                "osds_in": sample.osds_in,
                "pgs": sum(sample.pgs.values()),
                "not_clean": sample.not_clean,
                "inactive": sample.inactive,
                **{object_state: sample.count(object_state) for object_state in ("degraded", "misplaced", "unfound")},
                "clean": sample.clean,
                "moving": sample.recovering_or_backfilling,
                "settled": sample.settled,
                "recovered_objects": recovered[0],
                "recovered_bytes": recovered[1],
                "health": sample.state.get("health"),
            }
        )
    return from_rows(_RECOVERY, rows)


TABLES = (
    Table("events", "events of the run: phases, faults, undos, marks (events.jsonl)", _EVENTS, _events),
    Table("heartbeats", "reports of the jobs, once a second", _HEARTBEATS, _heartbeats),
    Table("status", "state of the cluster during the phases", _STATUS, _status),
    Table("capacity", "used space of the pools before and after each phase", _CAPACITY, _capacity),
    Table("recovery", "samples of the recovery monitor", _RECOVERY, _recovery),
)
