"""visualisation/*.json: the input of CBT's report generators, in both of its dialects.

One file for each operation and object size, with a point for each queue depth. All values are text. A reader takes the
first key of a file for a point, so keys are sorted, which puts digits first.

    head   <bytes>B_<op>.json, <bytes>B_<reads>_<writes>_<op>.json: the branch `master`, 2025
    main   <bytes>_<drivers>_<op>.json, <bytes>_<drivers>_<reads>_<writes>_<op>.json, and what it adds: 2026
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.results.archive import ArchivedJob, ArchivedRun, find_runs, read_run
from cbt_plugins.results.histogram import Histogram, middles
from cbt_plugins.results.job import JobAggregates, OpAggregates
from cbt_plugins.results.phase import PhaseAggregates, rank, read_phase
from cbt_plugins.results.source import Unreadable, reading
from cbt_plugins.results.summary_file import is_ours, summary_of, why_unusable

#: our operations -> fio's, as far as there is one: complete objects, from their first byte to their last
_READ, _WRITE = "GET", "PUT"
#: what a curve or its file has a place for; runs that differ in anything else are no points of one curve
_PLACED = frozenset({"benchmark", "iteration", "workers", "size", "objects", "acceptable"})


@dataclass(frozen=True)
class CurvePoint:
    """A point: the result of the drivers of one object size in one phase of one run."""

    size: int  # bytes of an object; the mean where there are several sizes
    op: str  # "read", "write" or "randrw", which are both
    shares: Optional[Tuple[str, str]]  # of randrw: percent of reads and of writes that were asked for
    depth: int  # workers, of all drivers
    jobs: int  # drivers
    seconds: float
    requests: int
    bytes: int
    latency_ns: float  # mean
    deviation_ns: float  # standard deviation of the latency of the requests
    cpu: Optional[float]  # percent of one core that the generators took; None: no monitor, or others ran too


@dataclass(frozen=True)
class Curves:
    """A directory of the generator's input."""

    name: str  # "ARCHIVE-PHASE"; of archives that vary more than a curve can: "-KEY-VALUE" too
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


def curves_of(archive: Path, called: str) -> ArchivedCurves:
    """Return the curves of an archive or run, in folders that begin with `called`. Raises Unreadable."""
    runs, broken, left = [], [], []
    for path in find_runs(archive):
        if not is_ours(path):
            left.append(f"{path.parent.name}/{path.name}: a benchmark of CBT's own")
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
    points_of_curve: Dict[Tuple[str, str], List[CurvePoint]] = defaultdict(list)
    for (run, summary), suffix in zip(runs, suffixes):
        for phase in run.phases:
            if phase.calibrates or not phase.jobs:
                continue
            points, phase_left = _points(read_phase(phase), summary)
            left += phase_left
            name = _clean("-".join([called, phase.name, *suffix]))
            points_of_curve[name, str(run.config.get("benchmark") or run.plan.get("benchmark") or "")] += points
    curves = [Curves(name, benchmark, tuple(points)) for (name, benchmark), points in points_of_curve.items() if points]
    return ArchivedCurves(curves, list(dict.fromkeys(left)), broken)


def _clean(name: str) -> str:
    """The generators put names into shell commands, and `_` into LaTeX."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-")


def _suffixes(runs: Sequence[ArchivedRun]) -> List[List[str]]:
    """For each run what tells its curves from those of the others."""
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
    """The points of a phase, and what has no place in them."""
    phase, left = aggregates.phase, []
    others = sorted((op for op, of in aggregates.ops.items() if of.latency.n and op not in (_READ, _WRITE)), key=rank)
    if others:
        left.append(f"{phase.name}: {', '.join(others)}: the generators know reads and writes only")
    if not aggregates.length or not any(aggregates.ops[op].latency.n for op in (_READ, _WRITE) if op in aggregates.ops):
        return [], left
    if any(job.open_loop for job in phase.jobs):
        return [], [*left, f"{phase.name}: an open loop, which has a rate and no queue depth"]
    if not all(of.latency.has_buckets for of in aggregates.ops.values()):
        left.append(f"{phase.name}: its generator tells sums only: the deviation 0 stands for one that is not known")
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
    )


def _mean(sizes: Sequence[Tuple[int, int, float]]) -> Optional[int]:
    """Mean size in bytes of what was asked for, so that it is the same in archives that are compared."""
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


DIALECTS = ("head", "main")


#: file -> queue depths of its points
Files = Dict[Path, List[int]]


def write(directory: Path, curves: Curves, dialect: str, config: Optional[str]) -> Tuple[Files, List[str]]:
    """Write a directory that a generator takes for an archive.

    Returns the files, and points that have the place of another one. `config` is the text of
    cbt_config.yaml, which the generators print.
    """
    folder, left = directory / "visualisation", []
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.suffix in (".json", ".png", ".svg"):  # a plot that is there is not drawn again
            old.unlink()
    files: Dict[str, Dict[int, CurvePoint]] = defaultdict(dict)
    for point in curves.points:
        name = _name(point, dialect)
        file_points = files[name]
        if point.depth in file_points:
            left.append(f"{curves.name}: a second run with {point.depth} workers: {name} has the first")
        else:
            file_points[point.depth] = point
    for name, points in files.items():
        content = _content(points, curves.benchmark, dialect)
        (folder / name).write_text(json.dumps(content, indent=4, sort_keys=True) + "\n", encoding="utf-8")
    results = directory / "results"
    results.mkdir(exist_ok=True)
    (results / "cbt_config.yaml").write_text(config or "", encoding="utf-8")
    return {folder / name: sorted(points) for name, points in sorted(files.items())}, left


def _name(point: CurvePoint, dialect: str) -> str:
    size = f"{point.size}B" if dialect == "head" else f"{point.size}_{point.jobs}"
    return "_".join([size, *(point.shares or ()), point.op]) + ".json"


def _content(points: Mapping[int, CurvePoint], benchmark: str, dialect: str) -> Dict[str, Any]:
    content: Dict[str, Any] = {str(depth): _values(point, dialect) for depth, point in points.items()}
    widest = max(points.values(), key=lambda point: point.bytes / point.seconds)
    fastest = max(points.values(), key=lambda point: point.requests / point.seconds)
    content.update(
        maximum_bandwidth=str(widest.bytes / widest.seconds),
        latency_at_max_bandwidth=str(widest.latency_ns / 1e6),
        maximum_iops=str(fastest.requests / fastest.seconds),
        latency_at_max_iops=str(fastest.latency_ns / 1e6),
    )
    if dialect == "main":
        content.update(benchmark=benchmark, number_of_jobs=str(fastest.jobs))
        cpu = [point.cpu for point in points.values() if point.cpu is not None]
        if cpu:
            content["maximum_cpu_usage"] = str(max(cpu))
    return content


def _values(point: CurvePoint, dialect: str) -> Dict[str, str]:
    values = {
        "bandwidth_bytes": str(point.bytes / point.seconds),
        "blocksize": str(point.size),
        "io_bytes": str(point.bytes),
        "iops": str(point.requests / point.seconds),
        "latency": str(point.latency_ns),
        "std_deviation": str(point.deviation_ns),
        "total_ios": str(point.requests),
        "runtime_seconds": str(round(point.seconds)),
        "number_of_jobs": str(point.jobs),
    }
    if point.shares:
        values["percentage_reads"], values["percentage_writes"] = point.shares
    if dialect == "main" and point.cpu is not None:
        values["cpu"] = str(point.cpu)
    return values
