"""Tables of the aggregates at their full resolution: seconds, counts, histograms, errors (docs/AGGREGATES.md)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates import Frame, frames, joined, places
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase, read_run
from cbt_plugins.results.histogram import lows
from cbt_plugins.results.job_files import NotBuilt, frames_of_rows
from cbt_plugins.results.source import Unreadable
from cbt_plugins.results.sql.table import Columns, Names, Table, TableRun, columns_of

_WHERE = """
phase VARCHAR name
driver VARCHAR its name
job VARCHAR process of the load generator
node VARCHAR where it ran
op VARCHAR GET, PUT, STAT, DELETE, LIST
"""
_SECONDS = columns_of(
    _WHERE
    + """second TIMESTAMP in which the requests ended, run's clock (UTC)
in_window BOOLEAN the second is in the phase's window
n BIGINT successful requests
failed BIGINT failed ones
objects BIGINT of the successes
bytes BIGINT of the successes
total_ns BIGINT sum of their durations
max_ns BIGINT longest of them
busy_ns BIGINT time in flight within this second, of all requests
crossing BIGINT requests in flight when it began
"""
)
_GROUP = """
endpoint VARCHAR gateway
block TIMESTAMP begin of the block in which the requests ended (UTC)
in_window BOOLEAN the block is in the phase's window
size_low BIGINT smallest number of bytes of this class of sizes
size_high BIGINT largest
"""
_COUNTS = columns_of(
    _WHERE
    + _GROUP.strip()
    + """
n BIGINT successful requests
failed BIGINT failed ones
objects BIGINT of the successes
bytes BIGINT of the successes
total_ns BIGINT sum of their durations
min_ns BIGINT shortest, 0 when there are none
max_ns BIGINT longest
failed_total_ns BIGINT sum of the durations of the failed ones
failed_max_ns BIGINT longest of them
ttfb_n BIGINT successes with a first byte
ttfb_total_ns BIGINT sum of start to first byte
ttfb_max_ns BIGINT longest
"""
)
_HISTOGRAMS = columns_of(
    _WHERE
    + _GROUP.strip()
    + """
what VARCHAR latency, ttfb (both of successes) or failed
low BIGINT ns: low <= duration < high
high BIGINT ns
count BIGINT requests
"""
)
_ERRORS = columns_of(
    _WHERE
    + """endpoint VARCHAR gateway
block TIMESTAMP begin of the block in which the requests ended (UTC)
in_window BOOLEAN the block is in the phase's window
error VARCHAR message without addresses and object names
count BIGINT requests
"""
)


@lru_cache(maxsize=8)
def phases(path: Path) -> Sequence[ArchivedPhase]:
    """Return the finished phases of a run."""
    return tuple(read_run(path).phases)


def _frames(run: TableRun) -> Iterator[Tuple[ArchivedPhase, ArchivedJob, Frame]]:
    """Of all jobs: their aggregates, or their rows where there are none; what cannot be read is in the warnings."""
    for phase in phases(run.path) if run.ours else ():
        for job in phase.jobs:
            try:
                for frame in _frames_of(job, phase.block):
                    if frame is not None:
                        yield phase, job, frame
            except NotBuilt:
                raise
            except Unreadable:
                continue


def _frames_of(job: ArchivedJob, block: int) -> Iterable[Any]:
    if job.aggregates is not None and job.aggregates.exists():
        return joined(frames(job.aggregates, places(job.aggregates)[0]))
    if job.rows is not None and job.rows.exists():
        return frames_of_rows(job.rows, job.clock_offset, block)
    return ()


def _where(phase: ArchivedPhase, job: ArchivedJob, frame: Frame, op: np.ndarray) -> Columns:
    n = len(op)
    about = {"phase": phase.name, "driver": job.driver, "job": job.id, "node": job.node}
    made: Dict[str, Any] = {name: Names.same(text, n) for name, text in about.items()}
    made["op"] = Names(op, frame.ops)
    return made


def _inside(phase: ArchivedPhase, at: np.ndarray, width: int) -> np.ndarray:
    """Return which bins the summary counts: complete ones of the window, or all of a phase that ends by itself."""
    low, high = phase.window
    if phase.takes_all:
        return np.full(len(at), high > low)
    return (at >= np.ceil(low)) & (at + width <= np.floor(high))


def _seconds(run: TableRun) -> Iterator[Columns]:
    for phase, job, frame in _frames(run):
        table = frame.table("seconds")
        if not len(table["second"]):
            continue
        made = _where(phase, job, frame, table["op"])
        made.update(second=table["second"].astype(float), in_window=_inside(phase, table["second"], 1))
        made.update({name: table[name].astype(np.int64) for name in ("n", "failed", "objects", "bytes", "crossing")})
        made.update({f"{name}_ns": table[name] for name in ("total", "max", "busy")})
        yield made


def _group(phase: ArchivedPhase, job: ArchivedJob, frame: Frame, its: np.ndarray) -> Columns:
    """The keys of some groups."""
    counts = frame.table("counts")
    made = _where(phase, job, frame, counts["op"][its])
    block, size = counts["block"][its].astype(np.int64), counts["size"][its].astype(np.int64)
    made["endpoint"] = Names(counts["endpoint"][its], frame.endpoints)
    made.update(block=block.astype(float), in_window=_inside(phase, block, frame.block))
    made["size_low"] = np.where(size > 0, np.int64(1) << np.maximum(size - 1, 0), 0)
    made["size_high"] = (np.int64(1) << size) - 1
    return made


def _counts(run: TableRun) -> Iterator[Columns]:
    plain = ("n", "failed", "objects", "bytes", "ttfb_n")
    times = ("total", "min", "max", "failed_total", "failed_max", "ttfb_total", "ttfb_max")
    for phase, job, frame in _frames(run):
        counts = frame.table("counts")
        if len(counts["n"]):
            made = _group(phase, job, frame, np.arange(len(counts["n"])))
            made.update({name: counts[name].astype(np.int64) for name in plain})
            made.update({f"{name}_ns": counts[name].astype(np.int64) for name in times})
            yield made


def _histograms(run: TableRun) -> Iterator[Columns]:
    for phase, job, frame in _frames(run):
        for what in ("latency", "ttfb", "failed"):
            table = frame.table(what)
            if len(table["group"]):
                made = _group(phase, job, frame, table["group"].astype(np.int64))
                bucket = table["bucket"].astype(np.int64)
                made.update(what=Names.same(what, len(bucket)), low=lows(bucket), high=lows(bucket + 1))
                made["count"] = table["count"].astype(np.int64)
                yield made


def _errors(run: TableRun) -> Iterator[Columns]:
    for phase, job, frame in _frames(run):
        table = frame.table("errors")
        if len(table["block"]):
            made = _where(phase, job, frame, table["op"])
            made["endpoint"] = Names(table["endpoint"], frame.endpoints)
            made.update(block=table["block"].astype(float), in_window=_inside(phase, table["block"], frame.block))
            made.update(error=Names(table["error"], frame.errors), count=table["count"].astype(np.int64))
            yield made


TABLES: List[Table] = [
    Table("seconds", "what ended in each second, per job and operation", _SECONDS, _seconds),
    Table("counts", "counts and sums per block, job, operation, gateway and class of sizes", _COUNTS, _counts),
    Table("histograms", "the buckets of the latencies of these groups", _HISTOGRAMS, _histograms, "count"),
    Table("errors", "messages of failed requests per block", _ERRORS, _errors),
]
