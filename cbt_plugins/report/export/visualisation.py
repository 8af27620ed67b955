"""visualisation/*.json: the input of CBT's report generators, in both of its dialects.

One file for each operation and object size, with a point for each queue depth. All values are text. A reader takes the
first key of a file for a point, so keys are sorted, which puts digits first.

    head   <bytes>B_<op>.json, <bytes>B_<reads>_<writes>_<op>.json: the branch `master`, 2025
    main   <bytes>_<drivers>_<op>.json, <bytes>_<drivers>_<reads>_<writes>_<op>.json, and what it adds: 2026
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from cbt_plugins.report.export.points import Curves, Point

DIALECTS = ("head", "main")


#: file -> queue depths of its points
Files = Dict[Path, List[int]]


def write(directory: Path, curves: Curves, dialect: str, config: Optional[str]) -> Tuple[Files, List[str]]:
    """Write a directory that a generator takes for an archive.

    Returns the files, and points that have the place of another one. `config` is the text of
    cbt_config.yaml, which the generators print.
    """
    made, left = directory / "visualisation", []
    made.mkdir(parents=True, exist_ok=True)
    for old in made.iterdir():
        if old.suffix in (".json", ".png", ".svg"):  # a plot that is there is not drawn again
            old.unlink()
    files: Dict[str, Dict[int, Point]] = defaultdict(dict)
    for point in curves.points:
        name = _name(point, dialect)
        its = files[name]
        if point.depth in its:
            left.append(f"{curves.name}: a second run with {point.depth} workers: {name} has the first")
        else:
            its[point.depth] = point
    for name, points in files.items():
        content = _content(points, curves.benchmark, dialect)
        (made / name).write_text(json.dumps(content, indent=4, sort_keys=True) + "\n", encoding="utf-8")
    results = directory / "results"
    results.mkdir(exist_ok=True)
    (results / "cbt_config.yaml").write_text(config or "", encoding="utf-8")
    return {made / name: sorted(points) for name, points in sorted(files.items())}, left


def _name(point: Point, dialect: str) -> str:
    size = f"{point.size}B" if dialect == "head" else f"{point.size}_{point.jobs}"
    return "_".join([size, *(point.shares or ()), point.op]) + ".json"


def _content(points: Mapping[int, Point], benchmark: str, dialect: str) -> Dict[str, Any]:
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


def _values(point: Point, dialect: str) -> Dict[str, str]:
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
