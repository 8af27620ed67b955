"""visualisation/*.json: the input of CBT's report programs, in its dialects.

One file for each operation and object size, with a point for each queue depth, and one of time series for each depth.
Values of curves are text. A reader takes the first key of a file for a point, so keys are sorted, which puts digits
first.

    head   <bytes>B_<op>.json, <bytes>B_<reads>_<writes>_<op>.json: the branch `master`, 2025
    main   <bytes>_<drivers>_<op>.json, <bytes>_<drivers>_<reads>_<writes>_<op>.json, and what it adds: 2026

Since June 2026 `main` refuses files in ARCHIVE/visualisation, and wants them four folders below the archive:

    ARCHIVE/results/common-format/NAME/load/visualisation/            curves
    ARCHIVE/results/common-format/NAME/load/iodepth-N/visualisation/  time series
    ARCHIVE/results/common-format/NAME/NAME -> load                   an archive for trees of May 2026

Its comparison draws what lies in folders of one name (`load`), with the name of the folder above as label. `results/`
holds these files outside of the folders of runs, because the programs write their plots beside them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections import defaultdict
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.journal import write_whole
from cbt_plugins.report.export.curve_point import CurvePoint
from cbt_plugins.report.export.curves import Curves
from cbt_plugins.report.export.latency_seconds import LatencyBin

DIALECTS = ("head", "main")
#: in results/, beside the iterations
FOLDER = "common-format"
_WORKLOAD = "load"
#: what an export writes, and the plots that the programs draw only where there are none
_SUFFIXES = (".json", ".png", ".svg")

#: file -> its content in a few words
Files = Dict[Path, str]


def write(directory: Path, curves: Curves, dialect: str, config: Optional[str]) -> Tuple[Files, List[str]]:
    """Write a directory that a report program takes for an archive.

    Returns the files, and points that have the place of another one. `config` is the text of
    cbt_config.yaml, which the programs print. Raises OSError.
    """
    results = directory / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "cbt_config.yaml").write_text(config or "", encoding="utf-8")
    top = directory / "visualisation"
    _clear(top)
    return _write_curves(top, curves, dialect) if dialect == "head" else write_into(results, curves)


def write_into(results: Path, curves: Curves) -> Tuple[Files, List[str]]:
    """Write curves and time series into the results/ of an archive, in place of earlier ones.

    Returns the same as `write`. Raises OSError.
    """
    _clear(results / FOLDER)
    folder = results / FOLDER / curves.name
    files, left = _write_curves(folder / _WORKLOAD / "visualisation", curves, "main")
    os.symlink(_WORKLOAD, folder / curves.name)
    for name, points in _by_file(curves, "main").items():
        for depth, point in points.items():
            if point.bins:
                path = folder / _WORKLOAD / f"iodepth-{depth}" / "visualisation" / f"{name}_{depth}_timeseries.json"
                _write(path, _time_series(point, curves.benchmark))
                files[path] = f"{len(point.bins)} times"
    return files, left


def _clear(folder: Path) -> None:
    """Remove what earlier exports and the report programs left in a folder. Raises OSError where a link leads away."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "is a link: remove it", str(folder))
    for top, folders, names in os.walk(folder, topdown=False):
        for path in (Path(top, name) for name in (*names, *folders)):
            if path.is_symlink() and path.name != path.parent.name:
                raise OSError(errno.ELOOP, "is a link: remove it", str(path))
            if path.is_symlink() or path.suffix in _SUFFIXES:
                path.unlink()
            elif path.is_dir():
                with contextlib.suppress(OSError):  # it holds a user's files
                    path.rmdir()


def _by_file(curves: Curves, dialect: str) -> Mapping[str, Mapping[int, CurvePoint]]:
    """Return name without suffix -> queue depth -> the first point there."""
    files: Dict[str, Dict[int, CurvePoint]] = defaultdict(dict)
    for point in curves.points:
        files[_name(point, dialect)].setdefault(point.depth, point)
    return files


def _write_curves(folder: Path, curves: Curves, dialect: str) -> Tuple[Files, List[str]]:
    files = {}
    by_file = _by_file(curves, dialect)
    for name, points in sorted(by_file.items()):
        path = folder / f"{name}.json"
        _write(path, _content(points, curves.benchmark, dialect))
        files[path] = f"queue depth {', '.join(map(str, sorted(points)))}"
    return files, list(_doubled(curves, by_file, dialect))


def _doubled(curves: Curves, by_file: Mapping[str, Mapping[int, CurvePoint]], dialect: str) -> Iterator[str]:
    for point in curves.points:
        name = _name(point, dialect)
        if by_file[name][point.depth] is not point:
            yield f"{curves.name}: a second run with {point.depth} workers: {name}.json has the first"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=4, sort_keys=True) + "\n")


def _name(point: CurvePoint, dialect: str) -> str:
    size = f"{point.size}B" if dialect == "head" else f"{point.size}_{point.jobs}"
    return "_".join([size, *(point.shares or ()), point.op])


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


def _time_series(point: CurvePoint, benchmark: str) -> Dict[str, Any]:
    """Return the file of a point's time series: points are numbers, all else is text."""
    step_ms = round(1000 * max(latency_bin.seconds for latency_bin in point.bins))
    seconds = [_second(latency_bin) for latency_bin in point.bins]
    content: Dict[str, Any] = {
        "benchmark": benchmark,
        "operation": point.op,
        "blocksize": str(point.size),
        "numjobs": str(point.jobs),
        "iodepth": str(point.depth),
        "metadata": {
            "start_time_epoch": point.start,
            "end_time_epoch": point.start + point.seconds,
            "duration_seconds": point.seconds,
            "num_volumes": point.jobs,
            "sampling_interval_ms": step_ms,
            "log_avg_msec": step_ms,
        },
        "timeseries": seconds,
    }
    busy = [second for second in seconds if second["num_samples"]]
    # a request that ends in a millisecond of the window is a rate of a thousand
    pairs = zip(point.bins, seconds)
    long = [second for part, second in pairs if second["num_samples"] and 2000 * part.seconds >= step_ms] or busy
    maxima = {"iops": "iops", "bandwidth": "bandwidth_bytes", "latency": "max_latency_ms"}
    for key, column in maxima.items():
        highest = max(busy if key == "latency" else long, key=itemgetter(column))
        content[f"maximum_{key}"] = str(highest[column])
        content[f"timestamp_at_max_{key}"] = str(highest["timestamp_sec"])
        if key != "latency":
            content[f"latency_at_max_{key}"] = str(highest["mean_latency_ms"])
    if point.cpu is not None:
        content["maximum_cpu_usage"] = str(point.cpu)
    return content


def _second(latency_bin: LatencyBin) -> Dict[str, float]:
    return {
        "timestamp_sec": latency_bin.start,
        "iops": latency_bin.requests / latency_bin.seconds,
        "bandwidth_bytes": latency_bin.bytes / latency_bin.seconds,
        "mean_latency_ms": latency_bin.mean_ns / 1e6,
        "max_latency_ms": latency_bin.max_ns / 1e6,
        "p50_latency_ms": latency_bin.p50_ns / 1e6,
        "p95_latency_ms": latency_bin.p95_ns / 1e6,
        "p99_latency_ms": latency_bin.p99_ns / 1e6,
        "num_samples": latency_bin.requests,
    }
