"""Tables of the aggregates at their full resolution: seconds, counts, histograms, errors (docs/AGGREGATES.md)."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Collection, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates_file import Frame, frames, grouped, joined, places
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase, read_run
from cbt_plugins.results.histogram import WIDTH, lows
from cbt_plugins.results.requests.cut_requests import failed_of_groups, failed_of_seconds
from cbt_plugins.results.requests.job_aggregates import HistogramGroups
from cbt_plugins.results.requests.job_files import MANY, NotBuilt, Task, frames_of_rows, tasks_of
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.sql.table_type import FLAG, TEXT, TIME, Column, Columns, Names, Table, TableRun, columns_of
from cbt_plugins.results.worker_processes import most_workers, worker_processes

_WHERE = """
phase VARCHAR name of the phase
driver VARCHAR name of the driver
job VARCHAR process of the load generator
node VARCHAR node of the job
op VARCHAR GET, PUT, STAT, DELETE, LIST
"""
_SECONDS = columns_of(
    _WHERE
    + """second TIMESTAMP second in which the requests ended, run's clock (UTC)
in_window BOOLEAN the second is in the phase's window
n BIGINT successful requests
failed BIGINT failed requests
objects BIGINT objects of successful requests
bytes BIGINT bytes of successful requests
total_ns BIGINT sum of latencies of successful requests
max_ns BIGINT highest latency of successful requests
busy_ns BIGINT time in flight within this second, summed over all requests
crossing BIGINT requests in flight at the beginning of the second
"""
)
_GROUP = """
endpoint VARCHAR gateway
block TIMESTAMP beginning of the block in which the requests ended (UTC)
in_window BOOLEAN the block is in the phase's window
size_low BIGINT smallest size in this class of object sizes, bytes
size_high BIGINT largest size in this class, bytes
"""
_COUNTS = columns_of(
    _WHERE
    + _GROUP.strip()
    + """
n BIGINT successful requests
failed BIGINT failed requests
objects BIGINT objects of successful requests
bytes BIGINT bytes of successful requests
total_ns BIGINT sum of latencies of successful requests
min_ns BIGINT lowest latency of successful requests; 0 without successful requests
max_ns BIGINT highest latency of successful requests
failed_total_ns BIGINT sum of durations of failed requests, and of those that the end of the run cut off
failed_max_ns BIGINT longest duration of one of these requests
ttfb_n BIGINT successful requests with a first byte
ttfb_total_ns BIGINT sum of times from start to first byte
ttfb_max_ns BIGINT longest time from start to first byte
"""
)
_HISTOGRAMS = columns_of(
    _WHERE
    + _GROUP.strip()
    + """
what VARCHAR `latency` or `ttfb`: of successful requests; `failed`: duration of failed and cut requests
low BIGINT lower border of the histogram's bucket, ns (inclusive)
high BIGINT upper border, ns (exclusive)
count BIGINT requests in this bucket
"""
)
_ERRORS = columns_of(
    _WHERE
    + """endpoint VARCHAR gateway
block TIMESTAMP beginning of the block in which the requests ended (UTC)
in_window BOOLEAN the block is in the phase's window
error VARCHAR error message, without addresses and object names
count BIGINT requests with this message; `cut: ...`: cut off by the end of the run
"""
)


@lru_cache(maxsize=8)
def phases(path: Path) -> Sequence[ArchivedPhase]:
    """Return the finished phases of a run."""
    return tuple(read_run(path).phases)


def _frames(run: TableRun) -> Iterator[Tuple[ArchivedPhase, ArchivedJob, Frame]]:
    """Yield the aggregates of all jobs, or the rows of jobs without; unreadable files are in the warnings."""
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
    columns: Dict[str, Any] = {name: Names.same(text, n) for name, text in about.items()}
    columns["op"] = Names(op, frame.ops)
    return columns


def _inside(phase: ArchivedPhase, at: np.ndarray, width: int) -> np.ndarray:
    """Return a mask of the bins that the summary counts: complete bins of the window; all if a phase ends by itself."""
    low, high = phase.window
    if phase.takes_all:
        return np.full(len(at), high > low)
    return (at >= np.ceil(low)) & (at + width <= np.floor(high))


def _seconds(run: TableRun) -> Iterator[Columns]:
    for phase, job, frame in _frames(run):
        table = frame.table("seconds")
        if not len(table["second"]):
            continue
        columns = _where(phase, job, frame, table["op"])
        columns.update(second=table["second"].astype(float), in_window=_inside(phase, table["second"], 1))
        columns.update({name: table[name].astype(np.int64) for name in ("n", "objects", "bytes", "crossing")})
        columns.update(failed=failed_of_seconds(frame))
        columns.update({f"{name}_ns": table[name] for name in ("total", "max", "busy")})
        yield columns


def _group(phase: ArchivedPhase, job: ArchivedJob, frame: Frame, group_rows: np.ndarray) -> Columns:
    """Return the key columns of groups."""
    counts = frame.table("counts")
    columns = _where(phase, job, frame, counts["op"][group_rows])
    block, size = counts["block"][group_rows].astype(np.int64), counts["size"][group_rows].astype(np.int64)
    columns["endpoint"] = Names(counts["endpoint"][group_rows], frame.endpoints)
    columns.update(block=block.astype(float), in_window=_inside(phase, block, frame.block))
    columns["size_low"] = np.where(size > 0, np.int64(1) << np.maximum(size - 1, 0), 0)
    columns["size_high"] = (np.int64(1) << size) - 1
    return columns


def _counts(run: TableRun) -> Iterator[Columns]:
    plain = ("n", "objects", "bytes", "ttfb_n")
    times = ("total", "min", "max", "failed_total", "failed_max", "ttfb_total", "ttfb_max")
    for phase, job, frame in _frames(run):
        counts = frame.table("counts")
        if len(counts["n"]):
            columns = _group(phase, job, frame, np.arange(len(counts["n"])))
            columns.update({name: counts[name].astype(np.int64) for name in plain})
            columns.update({f"{name}_ns": counts[name].astype(np.int64) for name in times})
            columns.update(failed=failed_of_groups(frame))
            yield columns


_Work = Tuple[ArchivedJob, Task]
#: most bytes of files that are added up at once if few of their lines have the same group: some million lines
_AT_ONCE = 1 << 24
#: up to this number, histograms are added up as arrays, above it as lists
_FEW = 256
#: number of list lines from which on the lists are added up
_LONG = 1 << 22


def _histograms(run: TableRun, wanted: Collection[str]) -> Iterator[Columns]:
    for phase in phases(run.path) if run.ours else ():
        parts = [(phase, part, wanted) for part in _parts(phase, "block" in wanted)]
        workers = min(len(parts), most_workers())
        if workers <= 1 or sum(task.weight for _, part, _ in parts for _, task in part) <= MANY:
            yield from filter(None, map(_summed, parts))
            continue
        with worker_processes(workers, threads=True) as pool:
            yield from filter(None, pool.map(_summed, parts))


def _parts(phase: ArchivedPhase, by_block: bool) -> Iterator[Sequence[_Work]]:
    """Yield the work that is added up at once: stretches of time of all jobs, short ones where blocks are told apart.
    """
    jobs = []
    for job in phase.jobs:
        with contextlib.suppress(Unreadable):  # the run's warnings name the file
            jobs.append([(job, task) for task in tasks_of(job).tasks])
    works = [work for same_time in zip_longest(*jobs) for work in same_time if work]
    most = sum(task.weight for _, task in works) / most_workers()
    if by_block:
        most = min(most, _AT_ONCE)
    part: List[_Work] = []
    for work in works:
        part.append(work)
        if sum(task.weight for _, task in part) >= most:
            yield part
            part = []
    if part:
        yield part


def _summed(work: Tuple[ArchivedPhase, Sequence[_Work], Collection[str]]) -> Optional[Columns]:
    """Return the sums of a part, None if it is empty."""
    phase, part, wanted = work
    sums = _Sums(phase, [column for column in _HISTOGRAMS if column.name in wanted])
    for job, task in part:
        try:
            for frame in task.frames(phase.block):
                if frame is not None:
                    sums.add(job, frame)
        except NotBuilt:
            raise
        except Unreadable:
            continue
    return sums.columns()


class _Sums:
    """Sums of histograms, one for each combination of values in the wanted columns."""

    def __init__(self, phase: ArchivedPhase, wanted: Sequence[Column]) -> None:
        self._phase = phase
        self._wanted = [column for column in wanted if column.name not in ("low", "high", "count")]
        self._numbers: Dict[Tuple[Any, ...], int] = {}  # values of the wanted columns -> number of the histogram
        self._dense = HistogramGroups()
        self._sparse: List[Tuple[np.ndarray, np.ndarray]] = []  # number * WIDTH + bucket, and counts
        self._waiting = 0  # lines of them

    def add(self, job: ArchivedJob, frame: Frame) -> None:
        """Add a checked frame."""
        n = len(frame.table("counts")["n"])
        about = _group(self._phase, job, frame, np.arange(n))
        for name in ("latency", "ttfb", "failed"):
            if not len(frame.table(name)["group"]):
                continue
            numbers = self._numbers_of({**about, "what": Names.same(name, n)}, n)
            entries, bucket, count = frame.histograms(name)
            if len(self._numbers) <= _FEW:
                self._dense.add(numbers, entries, bucket, count)
            else:
                self._add_sparse(np.repeat(numbers * WIDTH, entries) + bucket, count)

    def _numbers_of(self, about: Columns, n: int) -> np.ndarray:
        """Return the number of the histogram of each group."""
        wanted = [about[column.name] for column in self._wanted]
        lines = np.array([c.numbers if isinstance(c, Names) else c for c in wanted], np.int64).reshape(len(wanted), n)
        different, where = np.unique(lines, axis=1, return_inverse=True)
        pairs = zip(wanted, different.tolist())
        values = [[c.texts[i] for i in line] if isinstance(c, Names) else line for c, line in pairs]
        keys = zip(*values) if values else [()] * different.shape[1]
        return np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)[where.ravel()]

    def _add_sparse(self, flat: np.ndarray, count: np.ndarray) -> None:
        self._sparse.append((flat, count))
        self._waiting += len(flat)
        if self._waiting > _LONG + 2 * len(self._sparse[0][0]):
            self._add_up()

    def _add_up(self) -> None:
        flat, count = (np.concatenate(arrays) for arrays in zip(*self._sparse))
        flat, sums = grouped(flat, {"count": count})
        self._sparse, self._waiting = [(flat, sums["count"])], 0

    def columns(self) -> Optional[Columns]:
        """Return the wanted columns, the columns of the buckets and the counts; None if there are no histograms."""
        for i, row in enumerate(self._dense.dense):
            buckets = np.flatnonzero(row)
            self._sparse.append((i * WIDTH + buckets, row[buckets]))
        if not self._sparse:
            return None
        self._add_up()
        ((flat, count),) = self._sparse
        number, bucket = np.divmod(flat, WIDTH)
        columns: Columns = {"low": lows(bucket), "high": lows(bucket + 1), "count": count}
        for column, values in zip(self._wanted, zip(*self._numbers)):
            if column.type == TEXT:
                indexes = {text: i for i, text in enumerate(dict.fromkeys(values))}
                columns[column.name] = Names(
                    np.array([indexes[text] for text in values], np.int64)[number], tuple(indexes)
                )
            else:
                kinds = {FLAG: np.bool_, TIME: np.float64}
                columns[column.name] = np.array(values, kinds.get(column.type, np.int64))[number]
        return columns


def _errors(run: TableRun) -> Iterator[Columns]:
    for phase, job, frame in _frames(run):
        table = frame.table("errors")
        if len(table["block"]):
            columns = _where(phase, job, frame, table["op"])
            columns["endpoint"] = Names(table["endpoint"], frame.endpoints)
            columns.update(block=table["block"].astype(float), in_window=_inside(phase, table["block"], frame.block))
            columns.update(error=Names(table["error"], frame.errors), count=table["count"].astype(np.int64))
            yield columns


TABLES: List[Table] = [
    Table("seconds", "requests that ended in each second, by job and operation", _SECONDS, _seconds),
    Table("counts", "counts and sums by block, job, operation, gateway and class of object sizes", _COUNTS, _counts),
    Table("histograms", "latency histograms of the groups in `counts`", _HISTOGRAMS, _histograms, sums=True),
    Table("errors", "messages of failed requests, by block", _ERRORS, _errors),
]
