"""One phase -> its numbers: the figures of its jobs merged in every way that a reader asks for."""

from __future__ import annotations

import concurrent.futures
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from cbt_plugins.analysis.archive import Job, Phase
from cbt_plugins.analysis.histogram import Histogram
from cbt_plugins.analysis.reduce import JobFigures, OpFigures, reduce_rows
from cbt_plugins.analysis.series import Gaps, Grid, Series
from cbt_plugins.analysis.source import Unreadable

#: operations that move no data: a bandwidth would be a made-up number
WITHOUT_BYTES = ("STAT", "DELETE", "LIST")
_ORDER = ("GET", "PUT", "STAT", "DELETE", "LIST")
#: bytes of rows from which on other processes are worth their start
_MANY = 32 << 20


@dataclass
class PhaseFigures:
    """A phase with all rows read."""

    phase: Phase
    grid: Grid
    jobs: Dict[str, JobFigures]  # by job id; a job without readable rows has none
    unreadable: Dict[str, str] = field(default_factory=dict)  # job id -> why

    def __post_init__(self) -> None:
        self.ops: Dict[str, OpFigures] = {}
        self.series: Dict[str, Series] = {}
        self.gaps: Dict[str, Gaps] = {}
        self.all_gaps = Gaps(self.grid)
        for figures in self.jobs.values():
            for op, its in figures.ops.items():
                self.ops.setdefault(op, OpFigures()).merge(its)
            for op, series in figures.series.items():
                self.series.setdefault(op, Series(self.grid)).merge(series)
            for op, gaps in figures.gaps.items():
                self.gaps.setdefault(op, Gaps(self.grid)).merge(gaps)
                self.all_gaps.merge(gaps)
        self.ops = {op: self.ops[op] for op in sorted(self.ops, key=rank)}

    @property
    def length(self) -> float:
        """Seconds of the window."""
        return self.grid.length


def rank(op: str) -> Tuple[int, str]:
    """Sort key: the usual operations in their usual order, then the others by name."""
    return (_ORDER.index(op) if op in _ORDER else len(_ORDER), op)


def total(ops: Iterable[OpFigures]) -> OpFigures:
    """All operations together."""
    everything = OpFigures()
    for figures in ops:
        everything.merge(figures)
    return everything


def read_phase(phase: Phase) -> PhaseFigures:
    """Read the rows of all jobs, with all processors when there is much to read."""
    grid = Grid(*phase.window)
    named = [(job, job.rows) for job in phase.jobs if job.rows is not None]
    tasks = [(path, grid, job.clock_offset) for job, path in named]
    weight = sum(path.stat().st_size for _, path in named if path.exists())
    workers = min(len(tasks), os.cpu_count() or 1)
    results: List[object]
    if weight > _MANY and workers > 1:
        with concurrent.futures.ProcessPoolExecutor(workers) as pool:
            results = list(pool.map(_try_reduce, tasks))
    else:
        results = [_try_reduce(task) for task in tasks]
    jobs: Dict[str, JobFigures] = {}
    unreadable = {job.id: "no rows file" for job in phase.jobs if job.rows is None}
    for (job, _), result in zip(named, results):
        if isinstance(result, JobFigures):
            jobs[job.id] = result
        else:
            unreadable[job.id] = str(result)
    return PhaseFigures(phase, grid, jobs, unreadable)


def _try_reduce(task: Tuple[Path, Grid, float]) -> object:
    """JobFigures, or the text that says why not: an exception of a worker process would end all of them."""
    try:
        return reduce_rows(*task)
    except Unreadable as e:
        return str(e).replace(f"{task[0]}: ", "")


def latency(histogram: Histogram) -> Optional[Dict[str, Any]]:
    """Milliseconds: {"n", "mean", "p50", "p90", "p99", "p999", "max"}.

    A percentile is null below the samples that it needs: 10, 100 and 1000 for p90, p99 and p999.
    """
    if not histogram.n:
        return None
    ms: Dict[str, Any] = {"n": histogram.n, "mean": _ms(histogram.mean)}
    for name, q, needed in (("p50", 0.5, 1), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p999", 0.999, 1000)):
        ms[name] = _ms(histogram.quantile(q)) if histogram.n >= needed else None
    ms["max"] = _ms(histogram.max)
    return ms


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)


def figures(op: Optional[str], of: OpFigures, length: float) -> Dict[str, Any]:
    """One line of a table. `op` None: several operations together. Rates are null without a window."""
    moves = op not in WITHOUT_BYTES
    return {
        "requests": of.latency.n,
        "errors": of.failed.n,
        "success_rate": round(of.latency.n / of.finished, 6) if of.finished else None,
        "objects": of.objects,
        "bytes": of.bytes,
        "obj_per_s": round(of.objects / length, 4) if length else None,
        "mib_per_s": round(of.bytes / length / 2**20, 4) if length and moves else None,
        "latency_ms": latency(of.latency),
        "ttfb_ms": latency(of.ttfb),
        "error_latency_ms": latency(of.failed),
        "outside": {"requests": of.ok_outside, "errors": of.failed_outside},
    }


def by_op(made: PhaseFigures) -> Dict[str, Any]:
    """Per operation: its line, and its longest gap, its kinds of error and its histogram."""
    table = {}
    for op, of in made.ops.items():
        line = figures(op, of, made.length)
        gap = made.gaps[op].longest() if op in made.gaps else (made.length, made.grid.start)
        line["longest_gap"] = {"seconds": round(gap[0], 6), "at": round(gap[1], 3)}
        line["error_kinds"] = [{"text": text, "count": n} for text, n in _most(of.messages)]
        line["histogram_ns"] = of.latency.to_json()
        table[op] = line
    return table


def _most(messages: Mapping[str, int]) -> List[Tuple[str, int]]:
    return sorted(messages.items(), key=lambda item: (-item[1], item[0]))[:5]


def by_driver(made: PhaseFigures) -> List[Dict[str, Any]]:
    """Per driver and operation, in the order of the jobs."""
    merged: Dict[str, Dict[str, OpFigures]] = {}
    about: Dict[str, Job] = {}
    workers: Dict[str, int] = {}
    for job in made.phase.jobs:
        about.setdefault(job.driver, job)
        workers[job.driver] = workers.get(job.driver, 0) + job.workers
        for op, of in made.jobs.get(job.id, JobFigures()).ops.items():
            merged.setdefault(job.driver, {}).setdefault(op, OpFigures()).merge(of)
    return [
        {
            "driver": driver,
            "node": job.node,
            "bucket": job.bucket,
            "sizes": [list(size) for size in job.sizes],
            "workers": workers[driver],
            "ops": {
                op: figures(op, of, made.length)
                for op, of in sorted(merged.get(driver, {}).items(), key=lambda item: rank(item[0]))
            },
            "total": figures(None, total(merged.get(driver, {}).values()), made.length),
        }
        for driver, job in about.items()
    ]


def by_endpoint(made: PhaseFigures) -> List[Dict[str, Any]]:
    """Per RGW address and operation: requests that ended in the window."""
    counts: Dict[Tuple[str, str], List[int]] = {}
    for job in made.jobs.values():
        for key, (ok, failed) in job.endpoints.items():
            mine = counts.setdefault(key, [0, 0])
            mine[0] += ok
            mine[1] += failed
    return [
        {"endpoint": endpoint, "op": op, "requests": ok, "errors": failed}
        for (endpoint, op), (ok, failed) in sorted(counts.items(), key=lambda item: (item[0][0], rank(item[0][1])))
    ]


def mix(made: PhaseFigures) -> Dict[str, Any]:
    """Percent of the requests, as asked (null: no mix was asked) and as measured on the successful ones."""
    everything = sum(of.latency.n for of in made.ops.values())
    measured = {op: round(100 * of.latency.n / everything, 3) for op, of in made.ops.items()} if everything else {}
    asked = {op: made.phase.mix[op] for op in sorted(made.phase.mix, key=rank)} or None
    return {"asked": asked, "measured": measured}


def littles_law(made: PhaseFigures) -> Dict[str, Any]:
    """Per job: requests in flight by two ways, against its workers.

    in_flight   sum of the durations of all requests that ended in the window / length of the window
                = throughput x mean latency (failed requests keep a worker busy too)
    concurrency sum of the parts of all durations that lie in the window / length of the window
    """
    jobs: List[Dict[str, Any]] = []
    for job in made.phase.jobs:
        its = made.jobs.get(job.id)
        if its is None or not made.length:
            continue
        spent = sum(of.latency.total + of.failed.total for of in its.ops.values())
        in_flight = spent / 1e9 / made.length
        jobs.append(
            {
                "job": job.id,
                "op": job.op,
                "workers": job.workers,
                "paced": job.rate_limit > 0,
                "in_flight": round(in_flight, 4),
                "concurrency": round(sum(of.busy for of in its.ops.values()) / 1e9 / made.length, 4),
                "deviation": round(in_flight / job.workers - 1, 4) if job.workers else None,
            }
        )
    closed = [line for line in jobs if not line["paced"]]
    workers = sum(line["workers"] for line in closed)
    in_flight = sum(line["in_flight"] for line in closed)
    return {
        "workers": workers,
        "in_flight": round(in_flight, 4),
        "concurrency": round(sum(line["concurrency"] for line in closed), 4),
        "deviation": round(in_flight / workers - 1, 4) if workers else None,
        "jobs": jobs,
    }


def in_flight_at_end(made: PhaseFigures) -> Dict[str, Any]:
    """Requests of cut jobs that have no row, because the job was stopped before they ended.

    A closed loop starts a request when the last one has ended: its age at the stop is how long its thread
    has been silent. `oldest` is thus a lower bound of the longest latency.
    """
    ages = []
    for job in made.phase.jobs:
        its = made.jobs.get(job.id)
        if not job.cut or its is None or job.rate_limit > 0:
            continue
        border = job.ended if job.ended is not None else made.grid.end
        ages += [border - (end / 1e9 - job.clock_offset) for end in its.last_end.values()]
    ages = [age for age in ages if age > 0]
    return {"requests": len(ages), "oldest_seconds": round(max(ages), 3) if ages else None}


def series(made: PhaseFigures) -> Dict[str, Any]:
    """Per bin of `step` seconds from `start` on (the window may cut the first and the last), and the PGs.

    {"start", "step", "ops": {op: {"obj_per_s", "mib_per_s" or null, "mean_ms", "p50_ms", "p99_ms", "max_ms",
    "errors"}},
    "pgs": {"t": [seconds from start], "not_clean": [...], "total": [...]}}; a latency of nothing is null.
    """
    grid = made.grid
    spans = [grid.span(i) for i in range(grid.bins)]
    ops: Dict[str, Any] = {}
    for op in sorted(made.series, key=rank):
        its = made.series[op]
        ops[op] = {
            "obj_per_s": [round(n / span, 2) for n, span in zip(its.objects, spans)],
            "mib_per_s": None
            if op in WITHOUT_BYTES
            else [round(size / span / 2**20, 3) for size, span in zip(its.bytes, spans)],
            "mean_ms": [round(t / n / 1e6, 3) if n else None for t, n in zip(its.total, its.n)],
            "p50_ms": [_bin_ms(its, i, 0.5) for i in range(grid.bins)],
            "p99_ms": [_bin_ms(its, i, 0.99) for i in range(grid.bins)],
            "max_ms": [round(high / 1e6, 3) if n else None for high, n in zip(its.max, its.n)],
            "errors": list(its.failed),
        }
    return {"start": grid.first, "step": grid.step, "ops": ops, "pgs": _pgs(made)}


def _bin_ms(its: Series, index: int, q: float) -> Optional[float]:
    value = its.quantile(index, q)
    return None if value is None else round(value / 1e6, 3)


def _pgs(made: PhaseFigures) -> Dict[str, List[Any]]:
    found: Dict[str, List[Any]] = {"t": [], "not_clean": [], "total": []}
    for sample in made.phase.pgs:
        states = sample.get("pgs")
        if not isinstance(states, dict) or not isinstance(sample.get("t"), (int, float)):
            continue
        found["t"].append(round(sample["t"] - made.grid.first, 1))
        found["not_clean"].append(sum(n for state, n in states.items() if not is_clean(state)))
        found["total"].append(sum(states.values()))
    return found


def is_clean(state: str) -> bool:
    """Ceph's "active+clean", also while it is being scrubbed."""
    return {"active", "clean"} <= set(state.split("+"))
