"""Tables of what was seen around the load: events, heartbeats of the drivers, the cluster's state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

from cbt_plugins.cluster_space import Space
from cbt_plugins.conditions import is_clean
from cbt_plugins.journal import json_lines, read_json
from cbt_plugins.results.archive import read_run
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples, status_by_phase
from cbt_plugins.results.requests import in_flight
from cbt_plugins.results.sql.aggregate_tables import phases
from cbt_plugins.results.sql.table import Columns, Table, TableRun, columns_of, from_rows

_EVENTS = columns_of("""
time TIMESTAMP run's clock (UTC)
event VARCHAR what began or ended
phase VARCHAR in which, if it says so
label VARCHAR of a fault
data VARCHAR all of the line, as JSON
""")
_HEARTBEATS = columns_of("""
phase VARCHAR name
time TIMESTAMP run's clock (UTC)
node VARCHAR who said it
job VARCHAR process of the load generator
ops BIGINT requests so far
bytes BIGINT so far
errors BIGINT failed ones so far
state VARCHAR of the process
in_flight BIGINT requests under way
oldest_s DOUBLE age of the oldest of them
""")
_STATUS = columns_of("""
phase VARCHAR name; null: outside of all phases
time TIMESTAMP run's clock (UTC)
health VARCHAR of the cluster
pgs BIGINT placement groups
not_clean BIGINT of them not active+clean
degraded DOUBLE share of the object copies
misplaced DOUBLE share of the object copies
osds_up BIGINT OSDs
osds_in BIGINT OSDs
raw_used DOUBLE share of the cluster
""")
_CAPACITY = columns_of("""
phase VARCHAR at whose end; null: before the first one
time TIMESTAMP of the answer, run's clock (UTC)
pool VARCHAR name
objects BIGINT in it
stored BIGINT bytes that clients have written
used BIGINT the same with copies and coding chunks
max_avail BIGINT bytes that clients can still write
raw_used DOUBLE share of the cluster
""")
_RECOVERY = columns_of("""
time TIMESTAMP of the sample, run's clock (UTC)
epoch BIGINT of the OSD map
osds_up BIGINT OSDs
osds_in BIGINT OSDs
pgs BIGINT placement groups
not_clean BIGINT of them not active+clean
inactive BIGINT of them serving no request
degraded BIGINT object copies that are missing
misplaced BIGINT object copies in the wrong place
unfound BIGINT objects nobody has
clean BOOLEAN all PGs active+clean
moving BOOLEAN some PG recovers or is backfilled
settled BOOLEAN the statistics are newer than the last change of an OSD
recovered_objects BIGINT since the first sample
recovered_bytes BIGINT since the first sample
health VARCHAR of the cluster
""")


def _events(run: TableRun) -> Iterator[Columns]:
    lines = json_lines(run.path / "events.jsonl")
    rows = [{**line, "time": line.get("t"), "data": json.dumps(line)} for line in lines]
    return from_rows(_EVENTS, rows)


def _heartbeats(run: TableRun) -> Iterator[Columns]:
    for phase in phases(run.path) if run.ours else ():
        rows: List[Dict[str, Any]] = []
        for beat in json_lines(phase.path / in_flight.FILE):
            for job, job_beat in (beat.get("jobs") or {}).items():
                about = {"phase": phase.name, "time": beat.get("t"), "node": beat.get("node"), "job": job}
                rows.append({**job_beat, **about, "oldest_s": job_beat.get("oldest")})
        yield from from_rows(_HEARTBEATS, rows)


def _status(run: TableRun) -> Iterator[Columns]:
    for name, samples in status_by_phase(read_run(run.path)).items() if run.ours else ():
        rows = []
        for sample in samples:
            states = sample.get("pgs")
            about = {"phase": name, "time": sample.get("t"), "pgs": None}
            # files that older archives have for each phase have counts, and no total
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
    """Return the pools of a reply to `ceph df`, alone or with the time of the border; [] where it cannot be read."""
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
                "moving": sample.moving,
                "settled": sample.settled,
                "recovered_objects": recovered[0],
                "recovered_bytes": recovered[1],
                "health": sample.state.get("health"),
            }
        )
    return from_rows(_RECOVERY, rows)


TABLES = (
    Table("events", "events.jsonl: phases, faults, undos, marks", _EVENTS, _events),
    Table("heartbeats", "what the drivers said once a second", _HEARTBEATS, _heartbeats),
    Table("status", "the cluster's state while a phase ran", _STATUS, _status),
    Table("capacity", "how full the pools were at the borders of phases", _CAPACITY, _capacity),
    Table("recovery", "the samples of the recovery monitor", _RECOVERY, _recovery),
)
