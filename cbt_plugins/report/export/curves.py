"""The phases of archives as curves for CBT's report programs: throughput and latency at each queue depth."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.report.export.curve_point import CurvePoint
from cbt_plugins.report.export.imported_points import imported_points
from cbt_plugins.report.export.latency_seconds import latency_bins
from cbt_plugins.results.archive import ArchivedJob, ArchivedRun, find_runs, read_run
from cbt_plugins.results.histogram import Histogram, middles
from cbt_plugins.results.requests.job_aggregates import JobAggregates, OpAggregates
from cbt_plugins.results.requests.phase_reading import read_phase
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates, op_order
from cbt_plugins.results.result_file import Unreadable, reading
from cbt_plugins.results.run_state import why_unusable
from cbt_plugins.results.summary_file import is_ours, summary_of

#: our operations -> fio's, as far as there is one: complete objects, from their first byte to their last
_READ, _WRITE = "GET", "PUT"
#: what a curve or its file has a place for; runs that differ in anything else are no points of one curve
_PLACED = frozenset({"benchmark", "iteration", "workers", "size", "objects", "acceptable"})


@dataclass(frozen=True)
class Curves:
    """Curves that one report program may draw together."""

    name: str  # "ARCHIVE-PHASE"; of archives that vary more than a curve can: "-KEY-VALUE" too
    phase: str
    benchmark: str
    points: Tuple[CurvePoint, ...]


class ArchivedCurves(NamedTuple):
    """The curves of an archive or run."""

    curves: List[Curves]
    left: List[str]  # what has no place in them
    broken: List[str]  # unusable runs


def names_of(archives: Sequence[Path]) -> Dict[Path, str]:
    """Return the names of the archives' folders: each its own, after folders above it that tell them apart."""
    folders = {path.resolve().parts[1:]: path for path in archives}
    for depth in range(1, max(1, *map(len, folders)) + 1):
        names = {path: _clean("-".join(parts[-depth:])) for parts, path in folders.items()}
        if len(set(names.values())) == len(names):
            break
    return names


def curves_of(archive: Path, called: str, phase_name: Optional[str] = None) -> ArchivedCurves:
    """Return the curves of an archive or run, with names that begin with `called`; of one phase or of all of them.

    Raises Unreadable.
    """
    runs: List[Tuple[ArchivedRun, Mapping[str, Any]]] = []
    broken: List[str] = []
    left: List[str] = []
    points_of_curve: Dict[Tuple[str, str, str], List[CurvePoint]] = defaultdict(list)
    for path in find_runs(archive):
        if not is_ours(path):
            for workload, benchmark, point in imported_points(path, left, broken):
                if phase_name in (None, workload):
                    points_of_curve[_clean(f"{called}-{workload}"), workload, benchmark].append(point)
            continue
        try:
            with reading(path):
                summary = summary_of(path)
                why = why_unusable(path, summary)
                if why:
                    broken.append(f"{path}: left out: {why}")
                else:
                    runs.append((read_run(path), summary))
        except Unreadable as error:
            broken.append(str(error))
    suffixes = _suffixes([run for run, _ in runs])
    for (run, run_summary), suffix in zip(runs, suffixes):
        for phase in run.phases:
            if phase.calibrates or not phase.jobs or phase_name not in (None, phase.name):
                continue
            points, phase_left = _points(read_phase(phase), run_summary)
            left += phase_left
            name = _clean("-".join([called, phase.name, *suffix]))
            benchmark = str(run.config.get("benchmark") or run.plan.get("benchmark") or "")
            points_of_curve[name, phase.name, benchmark] += points
    curves = [Curves(*key, tuple(points)) for key, points in points_of_curve.items() if points]
    return ArchivedCurves(curves, list(dict.fromkeys(left)), broken)


def _clean(name: str) -> str:
    """Return a name as shell commands and LaTeX take it: the generators put names into both."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-")


def _suffixes(runs: Sequence[ArchivedRun]) -> List[List[str]]:
    """Return for each run what distinguishes its curves from the curves of the other runs."""
    suffixes: List[List[str]] = []
    benchmarks = {run.config.get("benchmark") for run in runs}
    for run in runs:
        config = run.config
        alike = [other_run.config for other_run in runs if other_run.config.get("benchmark") == config.get("benchmark")]
        suffix = [str(config.get("benchmark"))] if len(benchmarks) > 1 else []
        for key in sorted({key for other_config in alike for key in other_config} - _PLACED):
            values = list(
                dict.fromkeys(json.dumps(other_config.get(key), sort_keys=True, default=str) for other_config in alike)
            )
            if len(values) > 1:
                value = config.get(key)
                number = values.index(json.dumps(value, sort_keys=True, default=str)) + 1
                suffix.append(f"{key}-{number if isinstance(value, (dict, list)) else value}")
        if len({other_config.get("iteration") for other_config in alike}) > 1:
            suffix.append(f"iteration-{config.get('iteration')}")
        suffixes.append(suffix)
    return suffixes


def _points(aggregates: PhaseAggregates, summary: Mapping[str, Any]) -> Tuple[List[CurvePoint], List[str]]:
    """Return the points of a phase, and what has no place in them."""
    phase, left = aggregates.phase, []
    with_latency = (op for op, of in aggregates.ops.items() if of.latency.n)
    others = sorted((op for op in with_latency if op not in (_READ, _WRITE)), key=op_order)
    if others:
        left.append(f"{phase.name}: {', '.join(others)}: the generators know reads and writes only")
    if not aggregates.length or not any(aggregates.ops[op].latency.n for op in (_READ, _WRITE) if op in aggregates.ops):
        return [], left
    if any(job.open_loop for job in phase.jobs):
        return [], [*left, f"{phase.name}: an open loop, which has a rate and no queue depth"]
    if not all(of.latency.has_buckets for of in aggregates.ops.values()):
        left.append(f"{phase.name}: its generator reports only sums: the deviation is not known, and written as 0")
    by_size: Dict[Tuple[Tuple[int, int, float], ...], List[ArchivedJob]] = defaultdict(list)
    for job in phase.jobs:
        by_size[job.sizes].append(job)
    points = []
    for sizes, jobs in by_size.items():
        cpu = _cpu(summary, phase.name) if len(by_size) == 1 else None
        point = _point(aggregates, sizes, jobs, cpu)
        if point:
            points.append(point)
            if len(sizes) > 1 or any(low != high for low, high, _ in sizes):
                left.append(f"{phase.name}: objects of several sizes are shown as their mean, {point.size} B")
    return points, left


def _point(
    aggregates: PhaseAggregates,
    sizes: Sequence[Tuple[int, int, float]],
    jobs: Sequence[ArchivedJob],
    cpu: Optional[float],
) -> Optional[CurvePoint]:
    by_op = {_READ: OpAggregates(), _WRITE: OpAggregates()}
    for job in jobs:
        for op, of in aggregates.jobs.get(job.id, JobAggregates()).ops.items():
            if op in by_op:
                by_op[op].merge(of)
    reads, writes = by_op[_READ], by_op[_WRITE]
    both = OpAggregates()
    both.merge(reads)
    both.merge(writes)
    if not both.latency.n:
        return None
    mixed = bool(reads.latency.n and writes.latency.n)
    return CurvePoint(
        size=_mean(sizes) or round(both.bytes / max(1, both.objects)),
        op="randrw" if mixed else "read" if reads.latency.n else "write",
        shares=_shares(aggregates.phase.mix, reads, writes) if mixed else None,
        depth=sum(job.workers for job in jobs),
        jobs=len({job.driver for job in jobs}),
        seconds=aggregates.length,
        requests=both.latency.n,
        bytes=both.bytes,
        latency_ns=both.latency.mean,
        deviation_ns=_deviation(both.latency),
        cpu=cpu,
        start=aggregates.grid.start,
        bins=tuple(
            latency_bins(aggregates.grid, [job for job in jobs if job.id not in aggregates.unreadable], by_op)
        ),
    )


def _mean(sizes: Sequence[Tuple[int, int, float]]) -> Optional[int]:
    """Return the mean size in bytes that the plan asks for: it is the same in archives that are compared."""
    shares = math.fsum(share for _, _, share in sizes)
    return round(math.fsum((low + high) / 2 * share for low, high, share in sizes) / shares) if shares else None


def _shares(mix: Mapping[str, float], reads: OpAggregates, writes: OpAggregates) -> Tuple[str, str]:
    if mix.get(_READ) and mix.get(_WRITE):
        return f"{mix[_READ]:g}", f"{mix[_WRITE]:g}"
    read = round(100 * reads.latency.n / (reads.latency.n + writes.latency.n))
    return str(read), str(100 - read)


def _deviation(latency: Histogram) -> float:
    """Sample standard deviation in ns, from the middles of the buckets."""
    if latency.n < 2:
        return 0.0
    squares = (middles(latency.numbers) - latency.mean) ** 2
    return math.sqrt(float(np.dot(squares, latency.counts)) / (latency.n - 1))


def _cpu(summary: Mapping[str, Any], phase: str) -> Optional[float]:
    watched: Mapping[str, Any] = (summary.get("resources") or {}).get("phases", {}).get(phase) or {}
    cores = (watched.get("classes") or {}).get("generator", {}).get("cores")
    return None if cores is None else 100.0 * float(cores)
