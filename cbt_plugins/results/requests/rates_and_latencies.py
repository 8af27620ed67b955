"""One phase -> its numbers: the aggregates of its jobs merged in every way that a reader asks for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.metrics import METRICS
from cbt_plugins.plan import split_op
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.requests.job_aggregates import EndpointAggregates, JobAggregates, OpAggregates
from cbt_plugins.results.requests.time_series import Seconds, TimeGrid, Timeline
from cbt_plugins.s3_operations import OPERATIONS

_PERCENTILES = tuple(
    metric for metric in METRICS.values() if metric.path[:1] == ("latency_ms",) and metric.quantile
)
_ORDER = tuple(OPERATIONS)


@dataclass
class PhaseAggregates:
    """A phase with everything read."""

    phase: ArchivedPhase
    grid: TimeGrid
    jobs: Dict[str, JobAggregates]  # by job id; a job without anything readable has none
    timeline: Timeline
    unreadable: Dict[str, str] = field(default_factory=dict)  # job id -> why
    from_rows: Dict[str, str] = field(default_factory=dict)  # job id -> why its rows were taken and not its aggregates
    over_time: Optional[Mapping[str, Any]] = None  # see over_time.py; None: not made yet

    def __post_init__(self) -> None:
        self.ops = self._merge_jobs()
        self.all_ops: Seconds = self.timeline.all_ops()
        self.in_flight_at_end = self._in_flight_at_end()

    def _merge_jobs(self) -> Dict[str, OpAggregates]:
        """Return the aggregates of each operation, of the jobs of all clients together."""
        merged: Dict[str, OpAggregates] = {}
        for aggregates in self.jobs.values():
            for op, op_aggregates in aggregates.ops.items():
                merged.setdefault(op, OpAggregates()).merge(op_aggregates)
        return {op: merged[op] for op in sorted(merged, key=op_order)}

    def _in_flight_at_end(self) -> Dict[str, Any]:
        """Return requests of cut jobs that have no row, because the job was stopped before they ended.

        A closed loop starts a request when the last one has ended: its age at the stop is how long its thread
        has been silent. `oldest` is thus a lower bound of the longest latency. cbt-load gives every request a row.
        """
        ages: List[float] = []
        for job in self.phase.jobs:
            job_aggregates = self.jobs.get(job.id)
            if not job.cut or job_aggregates is None or job.rate_limit > 0 or job.cbt_load:
                continue
            border = job.ended if job.ended is not None else self.grid.end
            ages += [border - end / 1e9 for end in job_aggregates.last_end.values()]
        ages = [age for age in ages if age > 0]
        return {"requests": len(ages), "oldest_seconds": round(max(ages), 3) if ages else None}

    @property
    def length(self) -> float:
        """Seconds of the window."""
        return self.grid.length

    def drop_jobs(self) -> None:
        """Keep what failures and upgrades need: neither the jobs nor the latencies of the whole phase."""
        self.jobs.clear()  # those that have read them hold the same dict
        for of in self.ops.values():
            for histogram in (of.latency, of.ttfb, of.failed):
                histogram.drop_buckets()


def op_order(op: str) -> Tuple[str, int, str]:
    """Return a sort key: the usual operations in their usual order, then the others by name; works one after the other.
    """
    work, of_work = split_op(op)
    return (work, _ORDER.index(of_work) if of_work in _ORDER else len(_ORDER), op)


def total(ops: Iterable[OpAggregates]) -> OpAggregates:
    """Return the sum of all operations."""
    everything = OpAggregates()
    for aggregates in ops:
        everything.merge(aggregates)
    return everything


def latency_numbers(histogram: Histogram) -> Optional[Dict[str, Any]]:
    """Return milliseconds: {"n", "mean", "p50", "p90", "p99", "p999", "max"}.

    A percentile is null below the samples that it needs: 10, 100 and 1000 for p90, p99 and p999; and where the
    generator told only sums.
    """
    if not histogram.n or not (histogram.has_buckets or histogram.total):
        return None
    ms: Dict[str, Any] = {"n": histogram.n, "mean": _ms(histogram.mean)}
    for metric in _PERCENTILES:
        has_percentile = histogram.has_buckets and histogram.n >= metric.needs
        ms[metric.path[1]] = _ms(histogram.quantile(metric.quantile or 0)) if has_percentile else None
    ms["max"] = _ms(histogram.max)
    return ms


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)


def moves_data(op: Optional[str]) -> bool:
    """Return whether an operation, or None for several, has a bandwidth."""
    operation = OPERATIONS.get(split_op(op)[1]) if op else None
    return operation is None or operation.moves_data


def numbers(op: Optional[str], of: OpAggregates, length: float) -> Dict[str, Any]:
    """Return one line of a table. `op` None: several operations. Rates are null without a window."""
    moves = moves_data(op)
    return {
        "requests": of.latency.n,
        "errors": of.failures,
        "cut": of.cut + of.cut_outside,
        "success_rate": of.latency.n / of.finished if of.finished else None,  # 1 only if no request failed
        "objects": of.objects,
        "bytes": of.bytes,
        "obj_per_s": round(of.objects / length, 4) if length else None,
        "mib_per_s": round(of.bytes / length / 2**20, 4) if length and moves else None,
        "latency_ms": latency_numbers(of.latency),
        "ttfb_ms": latency_numbers(of.ttfb),
        "error_latency_ms": latency_numbers(of.failed),
        "outside": {"requests": of.ok_outside, "errors": of.failures_outside, "cut": of.cut_outside},
    }


def by_op(aggregates: PhaseAggregates) -> Dict[str, Any]:
    """Return, per operation, its line, its longest gap, its kinds of error and its histogram."""
    table = {}
    for op, of in aggregates.ops.items():
        line = numbers(op, of, aggregates.length)
        seconds = aggregates.timeline.seconds.get(op)
        gap = seconds.longest_gap() if seconds else (aggregates.length, aggregates.grid.start)
        line["longest_gap"] = {"seconds": round(gap[0], 6), "at": round(gap[1], 3)}
        line["error_kinds"] = [{"text": text, "count": n} for text, n in _most(of.messages)]
        line["histogram_ns"] = of.latency.to_json()
        table[op] = line
    return table


def _most(messages: Mapping[str, int]) -> List[Tuple[str, int]]:
    return sorted(messages.items(), key=lambda item: (-item[1], item[0]))[:5]


def by_driver(aggregates: PhaseAggregates) -> List[Dict[str, Any]]:
    """Return the lines of each driver and operation, in the order of the jobs."""
    merged: Dict[str, Dict[str, OpAggregates]] = {}
    sizes: Dict[str, Dict[Tuple[str, int], OpAggregates]] = {}
    about: Dict[str, ArchivedJob] = {}
    workers: Dict[str, int] = {}
    for job in aggregates.phase.jobs:
        about.setdefault(job.driver, job)
        workers[job.driver] = workers.get(job.driver, 0) + job.workers
        job_aggregates = aggregates.jobs.get(job.id, JobAggregates())
        for op, of in job_aggregates.ops.items():
            merged.setdefault(job.driver, {}).setdefault(op, OpAggregates()).merge(of)
        for key, of in job_aggregates.sizes.items():
            sizes.setdefault(job.driver, {}).setdefault(key, OpAggregates()).merge(of)
    return [
        {
            "driver": driver,
            "node": job.node,
            "bucket": job.bucket,
            "sizes": [list(size) for size in job.sizes],
            "workers": workers[driver],
            "ops": {
                op: numbers(op, of, aggregates.length)
                for op, of in sorted(merged.get(driver, {}).items(), key=lambda item: op_order(item[0]))
            },
            "size_classes": _size_classes(sizes.get(driver, {}), aggregates.length, job.sizes),
            "total": numbers(None, total(merged.get(driver, {}).values()), aggregates.length),
        }
        for driver, job in about.items()
    ]


def _size_classes(
    sizes: Mapping[Tuple[str, int], OpAggregates], length: float, planned: Sequence[Tuple[int, int, float]]
) -> List[Dict[str, Any]]:
    """Return a line per power of two of the object sizes, of the operations that move data; [] when there is only one.

    Where all of its objects have the one exact size that the plan gives, the line is of that size.
    """
    classes: Dict[int, Dict[str, OpAggregates]] = {}
    for (op, size), of in sizes.items():
        if of.latency.n and moves_data(op):
            classes.setdefault(size, {})[op] = of
    if len(classes) < 2:
        return []
    return [
        {
            **_bounds(size, ops, planned),
            "ops": {
                op: {
                    "requests": of.latency.n,
                    "obj_per_s": round(of.objects / length, 4),
                    "mib_per_s": round(of.bytes / length / 2**20, 4),
                    "latency_ms": latency_numbers(of.latency),
                    "ttfb_ms": latency_numbers(of.ttfb),
                }
                for op, of in sorted(ops.items(), key=lambda item: op_order(item[0]))
            },
        }
        for size, ops in sorted(classes.items())
    ]


def _bounds(size: int, ops: Mapping[str, OpAggregates], planned: Sequence[Tuple[int, int, float]]) -> Dict[str, int]:
    for low, high, _ in planned:
        if low == high and low.bit_length() == size and all(of.bytes == of.objects * low for of in ops.values()):
            return {"smallest": low, "largest": low}
    return {"smallest": 1 << size - 1 if size else 0, "largest": (1 << size) - 1}


def by_endpoint(aggregates: PhaseAggregates) -> List[Dict[str, Any]]:
    """Return the requests that ended in the window, per RGW address and operation."""
    merged: Dict[Tuple[str, str], EndpointAggregates] = {}
    for job_aggregates in aggregates.jobs.values():
        for key, of in job_aggregates.endpoints.items():
            merged.setdefault(key, EndpointAggregates()).merge(of)
    return [
        {
            "endpoint": endpoint,
            "op": op,
            "requests": of.n,
            "errors": max(0, of.failed - of.cut),
            "mean_ms": _ms(of.total / of.n) if of.n else None,
            "max_ms": _ms(of.max) if of.n else None,
        }
        for (endpoint, op), of in sorted(merged.items(), key=lambda item: (item[0][0], op_order(item[0][1])))
        if of.n + of.failed
    ]


def mix_numbers(aggregates: PhaseAggregates) -> Dict[str, Any]:
    """Return percent of the requests, as asked (null: no mix) and as measured on all that ended in the window.

    Of works it is percent of the requests of each work.
    """
    finished: Counter[str] = Counter()
    for op, of in aggregates.ops.items():
        finished[split_op(op)[0]] += of.finished
    measured = {
        op: round(100 * of.finished / finished[split_op(op)[0]], 3)
        for op, of in aggregates.ops.items()
        if finished[split_op(op)[0]]
    }
    asked_mix = {op: aggregates.phase.mix[op] for op in sorted(aggregates.phase.mix, key=op_order)} or None
    return {"asked": asked_mix, "measured": measured}
