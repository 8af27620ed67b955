"""Points of curves from the results of other programs that say how many requests they had under way."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from cbt_plugins.report.export.curve_point import CurvePoint
from cbt_plugins.results.record_reader import importers, read_imported
from cbt_plugins.results.result_file import NothingKnown, Unreadable
from cbt_plugins.results.run_record import Measurement, RunRecord

_OPS = ("read", "write")


class ImportedPoint(NamedTuple):
    """A point, and the workload that it is of."""

    workload: str
    benchmark: str
    point: CurvePoint


def imported_points(run: Path, left: List[str], broken: List[str]) -> Iterator[ImportedPoint]:
    """Yield the points of a run of CBT's own benchmarks; add what has no place to `left`, unusable runs to `broken`."""
    name = f"{run.parent.name}/{run.name}"
    try:
        records = read_imported(run)
    except NothingKnown:
        records = []
    except Unreadable as error:
        broken.append(str(error))
        return
    importer_of_kind = importers() if records else {}
    depths = [(record, importer_of_kind[record.kind].queue_depth(record)) for record in records]
    points = [(record, depth) for record, depth in depths if depth]
    if not points:
        left.append(f"{name}: it is a result of CBT's own benchmark")
    for record, depth in points:
        if not record.usable:
            broken.append(f"{run}: left out: {record.name}: {'; '.join(warning.text for warning in record.warnings)}")
            continue
        workload = str(record.config.get("load.workload") or record.kind)
        for phase in dict.fromkeys(line.phase for line in record.measurements):
            point = _point(record, phase, depth)
            if point is None:
                left.append(f"{record.name}: {phase}: the report programs know reads and writes only")
                continue
            left.append(f"{record.name}: {phase}: {_unknown(record, phase)}")
            yield ImportedPoint(workload, record.kind, point)


def _unknown(record: RunRecord, phase: str) -> str:
    if _value(record, phase, _OPS[0], "mean_ms") or _value(record, phase, _OPS[1], "mean_ms"):
        return "the deviation is unknown, and written as 0"
    return "no latency in the results: the mean is workers / rate, the deviation is unknown and written as 0"


def _line(record: RunRecord, phase: str, op: str, metric: str) -> Optional[Measurement]:
    lines = (m for m in record.measurements if m.key == (phase, op, metric))
    return next(lines, None)


def _value(record: RunRecord, phase: str, op: str, metric: str) -> Optional[float]:
    line = _line(record, phase, op, metric)
    return line.value if line else None


def _point(record: RunRecord, phase: str, depth: int) -> Optional[CurvePoint]:
    """Return the point of a phase; None where it neither reads nor writes."""
    rates: Dict[str, float] = {}
    requests: Dict[str, int] = {}
    flow, latency_ms = 0.0, 0.0
    for op in _OPS:
        line, moved = _line(record, phase, op, "obj_per_s"), _value(record, phase, op, "mib_per_s")
        if line and line.value and line.n and moved:
            rates[op], requests[op] = line.value, line.n
            flow += moved * 2**20
            latency_ms += (_value(record, phase, op, "mean_ms") or 0.0) * line.n
    if not rates:
        return None
    n, rate = sum(requests.values()), sum(rates.values())
    means = [_value(record, phase, op, "mean_ms") for op in rates]
    mean_ms = latency_ms / n if all(means) else 1000 * depth / rate  # Little's law: all workers wait for a request
    seconds = n / rate
    mixed = len(rates) > 1
    return CurvePoint(
        size=_size(record, flow / rate),
        op="randrw" if mixed else next(iter(rates)),
        shares=_shares(requests) if mixed else None,
        depth=depth,
        jobs=int(record.config.get("load.processes") or 1),
        seconds=seconds,
        requests=n,
        bytes=round(flow * seconds),
        latency_ns=mean_ms * 1e6,
        deviation_ns=0.0,
        cpu=None,
        start=record.started or 0.0,
    )


def _shares(requests: Dict[str, int]) -> Tuple[str, str]:
    read = round(100 * requests["read"] / sum(requests.values()))
    return str(read), str(100 - read)


def _size(record: RunRecord, measured: float) -> int:
    """Return the bytes of a request: the size that the command asked for and that is next to what was measured."""
    sizes = [record.config.get(f"load.{key}") for key in ("size", "op_size")]
    near = [size for size in sizes if isinstance(size, int) and abs(size - measured) < 0.1 * measured]
    return min(near, key=lambda size: abs(size - measured)) if near else round(measured)
