"""COSbench's archive: workloads.csv, run-history.csv, and the table of one workload (w13-NAME/w13-NAME.csv).

By its exporters: counts are of what ended well; times are ms; bandwidth is bytes/s; percentiles are the upper ends of
bins of 10 ms; "N/A" is a value that was 0, and 9223372036854775807 is none. workloads.csv has a line for each operation
of each stage of each workload; names, times and how it ended are in run-history.csv. A workload is a record, a stage is
a phase; all stages are kept.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.formatting import percent
from cbt_plugins.metrics import METRICS
from cbt_plugins.results.importers.importer import Importer, ResultFiles
from cbt_plugins.results.result_file import Unreadable, read_unpacked, unpacked_name
from cbt_plugins.results.run_record import Measurement, ResultWarning, RunRecord

MATRIX, HISTORY = "workloads.csv", "run-history.csv"
#: width of the bins of response times, ms
BIN = 10.0
#: two digits are written of rates, mean times and percents
ROUNDED = 0.01
#: percent of the responses that took at most so long
PERCENTILES = (60, 80, 90, 95, 99, 100)
_METRICS = {90: "p90_ms", 95: "p95_ms", 99: "p99_ms", 100: "max_ms"}
_ID = re.compile(r"(?P<workload>w\d+)-(?P<stage>.+)-\d+$")
_BOUNDS = ResultWarning(
    "upper-bounds", "COSbench counts in bins of 10 ms: its percentiles and its maximum are the upper ends of bins"
)
_NO_CLOCK = ResultWarning("no-series", "COSbench's tables have no series: drift within a run is unknown")


#: they make and remove buckets: COSbench counts nothing of them
_UNCOUNTED = ("init-write", "dispose-delete")
_NEVER = float(2**63 - 1)
#: units of the controller's page
_COUNT, _BYTES = ("ops", "kops", "mops", "gops"), ("B", "KB", "MB", "GB", "TB", "PB")
_RATE = ("B/S", "KB/S", "MB/S", "GB/S")


@dataclass(frozen=True)
class CosbenchLine:
    """One operation of one stage."""

    workload: str  # "w13"
    stage: str
    op: str
    count: int  # that ended well
    bytes: int
    res_ms: Optional[float]  # mean until the answer was complete
    proc_ms: Optional[float]  # mean without the transfer
    percentiles: Mapping[int, Optional[float]]  # ms, upper bounds
    throughput: float  # 1/s
    bandwidth: float  # bytes/s
    success: Optional[float]  # 0..1
    workers: Optional[int] = None
    config: str = ""
    status: str = ""


@dataclass(frozen=True)
class CosbenchWorkload:
    """A line of run-history.csv."""

    name: str
    started: Optional[datetime]
    stopped: Optional[datetime]
    state: str


class Cosbench(Importer):
    """COSbench's tables."""

    kind = "cosbench"

    def claims(self, head: str) -> bool:
        return head.startswith(("Id,Op-Name,Op-Count,", "Stage,Op-Name,Op-Type,", "Id,Name,Submitted-At,"))

    def read(self, results: ResultFiles) -> List[RunRecord]:
        all_workloads = [file for file in results.files if unpacked_name(file) == MATRIX]
        tables_of_one = [file for file in results.files if unpacked_name(file) != HISTORY]
        return [record for file in all_workloads or tables_of_one or results.files for record in read(file)]

    def extra_text(self, source: Path) -> str:
        """Return COSbench's own two tables of each workload, as its controller's page shows them."""
        workloads: Dict[str, List[CosbenchLine]] = {}
        for line in lines(source):
            workloads.setdefault(line.workload, []).append(line)
        return "\n".join(f"{name}\n{tables(workload_lines)}" for name, workload_lines in workloads.items())


def read(path: Path) -> List[RunRecord]:
    """Return the workloads of an archive directory, of its workloads.csv or run-history.csv, or of one table. Raises
    Unreadable.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_dir() or unpacked_name(path) == HISTORY:
        path = _in(folder, MATRIX) or folder / MATRIX
    workloads: Dict[str, List[CosbenchLine]] = {}
    for line in lines(path):
        workloads.setdefault(line.workload, []).append(line)
    if not workloads:
        raise Unreadable(f"{path}: the file has no operation")
    history_of_workload = history(folder)
    return [_record(path, id, workload_lines, history_of_workload.get(id)) for id, workload_lines in workloads.items()]


def _in(folder: Path, name: str) -> Optional[Path]:
    """Return a file of a folder, plain or compressed."""
    return next((path for path in sorted(folder.glob(f"{name}*")) if unpacked_name(path) == name), None)


def lines(path: Path) -> List[CosbenchLine]:
    """Return the lines of workloads.csv or of a workload's table. Raises Unreadable."""
    try:
        with io.StringIO(read_unpacked(path), newline="") as file:
            # what is behind the last column of a table is the history of its states
            rows = [row for row in csv.DictReader(file) if row.get("Op-Count") not in (None, "", "N/A")]
            return [_line(path, row) for row in rows]
    except (KeyError, ValueError, TypeError) as e:
        raise Unreadable(f"{path}: no table of COSbench: {e!r}") from e


def _line(path: Path, row: Mapping[str, str]) -> CosbenchLine:
    if "Id" in row:
        match = _ID.match(row["Id"])
        if not match:
            raise ValueError(f"no id of an operation: {row['Id']}")
        workload, stage = match["workload"], match["stage"]
    else:
        workload, stage = Path(unpacked_name(path)).stem, row["Stage"]
    if row["Succ-Ratio"] is None:
        raise ValueError("a line has no end")
    ratio = row["Succ-Ratio"]
    return CosbenchLine(
        workload=workload,
        stage=stage,
        op=row["Op-Name"],
        count=int(row["Op-Count"]),
        bytes=int(row["Byte-Count"]),
        res_ms=_number(row["Avg-ResTime"]),
        proc_ms=_number(row["Avg-ProcTime"]),
        percentiles={q: _number(row[f"{q}%-ResTime"]) for q in PERCENTILES},
        throughput=float(row["Throughput"]),
        bandwidth=float(row["Bandwidth"]),
        success=None if ratio == "N/A" else round(float(ratio.rstrip("%")) / 100, 6),
        workers=int(row["Worker-Count"]) if row.get("Worker-Count") else None,
        config=row.get("Config-Info") or "",
        status=row.get("Status") or "",
    )


def _number(text: str) -> Optional[float]:
    """Read a number; None for Java's largest integer, which stands for a value above all bins, or never counted."""
    return None if text == "N/A" or float(text) >= _NEVER else float(text)


def history(folder: Path) -> Dict[str, CosbenchWorkload]:
    """Return the workloads of a folder's run-history.csv by id; {} when there is none. Raises Unreadable."""
    path = _in(folder, HISTORY)
    if path is None:
        return {}
    with io.StringIO(read_unpacked(path), newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["Id"]: CosbenchWorkload(row["Name"], _time(row["Started-At"]), _time(row["Stopped-At"]), row["State"])
        for row in rows
        if row.get("Id") and row.get("State")
    }


def _time(text: str) -> Optional[datetime]:
    """Read a time in the controller's local time, whose zone is not known: as UTC, so that it is the same for all."""
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    except (TypeError, ValueError):
        return None


def _record(
    path: Path, id: str, workload_lines: Sequence[CosbenchLine], workload: Optional[CosbenchWorkload]
) -> RunRecord:
    warnings = [_BOUNDS, _NO_CLOCK]
    states = {line.status for line in workload_lines if line.status} | ({workload.state} if workload else set())
    bad = sorted(states - {"finished", "completed"})
    if bad:
        warnings.append(ResultWarning("not-finished", f"{id}: COSbench calls it {', '.join(bad)}"))
    measurements = [measurement for line in workload_lines for measurement in _measurements(line)]
    for line in workload_lines:
        if not line.count and line.op not in _UNCOUNTED:
            text = f"{line.stage}: no {line.op} succeeded: all requests failed, or there were no requests"
            warnings.append(ResultWarning("no-requests", text))
        if line.success is not None and line.success < 1:
            failed = f"{percent(1 - line.success, '.2f')} of {line.op} failed"
            text = f"{line.stage}: {failed}; rates and latencies lack these requests"
            warnings.append(ResultWarning("errors", text))
    return RunRecord(
        source=str(path),
        name=f"{id}-{workload.name}" if workload else id,
        kind="cosbench",
        config=dict(_config(workload_lines, workload)),
        measurements=tuple(measurements),
        usable=not bad and all(warning.code != "no-requests" for warning in warnings),
        warnings=tuple(warnings),
        started=workload.started.timestamp() if workload and workload.started else None,
    )


def _measurements(line: CosbenchLine) -> Iterator[Measurement]:
    """Yield the measurements of an operation; no bandwidth where it moved no bytes."""
    where, n = (line.stage, line.op), line.count
    yield Measurement(*where, "obj_per_s", line.throughput, n=n, bin=ROUNDED)
    if line.bytes:
        yield Measurement(*where, "mib_per_s", line.bandwidth / 2**20, n=n)
    if line.success is not None:
        yield Measurement(*where, "success_rate", line.success, n=n, bin=ROUNDED / 100)
    if line.res_ms is not None:
        yield Measurement(*where, "mean_ms", line.res_ms, n=n, bin=ROUNDED)
    for q, metric in _METRICS.items():
        if line.percentiles[q] is not None and n >= METRICS[metric].needs:
            yield Measurement(*where, metric, line.percentiles[q], n=n, bin=BIN, is_upper_end=True)


def _config(workload_lines: Sequence[CosbenchLine], workload: Optional[CosbenchWorkload]) -> Iterator[Tuple[str, Any]]:
    yield "benchmark", "cosbench"
    yield "engine", "cosbench"
    yield "phases", " ".join(dict.fromkeys(line.stage for line in workload_lines))
    for stage in dict.fromkeys(line.stage for line in workload_lines):
        of = [line for line in workload_lines if line.stage == stage]
        workers = {line.workers for line in of if line.workers}
        if workers:
            yield f"phase.{stage}.workers", max(workers)
        shares = {line.op: line.config.split("%")[0] for line in of if "%" in line.config}
        if shares:
            yield f"phase.{stage}.mix", " ".join(f"{op}:{share}" for op, share in sorted(shares.items()))
        for line in of:
            if line.config:
                yield f"phase.{stage}.keys.{line.op}", line.config.partition("% ")[2]
    if workload and workload.started and workload.stopped:
        yield "seconds", (workload.stopped - workload.started).total_seconds()


def tables(lines: Sequence[CosbenchLine]) -> str:
    """Return General Report and ResTime (RT) Details of one workload, tab separated, in COSbench's decimal units."""
    several = len({line.stage for line in lines}) > 1
    head = ["Op-Type", "Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "Throughput", "Bandwidth", "Succ-Ratio"]
    general: List[List[str]] = [head]
    times: List[List[str]] = [["Op-Type", *(f"{q}%-RT" for q in PERCENTILES)]]
    for line in lines:
        name = f"{line.stage}: {line.op}" if several else line.op
        general.append(
            [
                name,
                _scaled(line.count, _COUNT),
                _scaled(line.bytes, _BYTES),
                _ms(line.res_ms),
                _ms(line.proc_ms),
                f"{_plain(line.throughput)} op/s",
                _scaled(line.bandwidth, _RATE),
                "N/A" if line.success is None else f"{_plain(100 * line.success)}%",
            ]
        )
        times.append([name, *(_bound(line.percentiles[q]) for q in PERCENTILES)])
    return (
        "\n".join(["General Report", *map("\t".join, general), "ResTime (RT) Details", *map("\t".join, times)]) + "\n"
    )


def _scaled(value: float, units: Sequence[str]) -> str:
    step = 0
    while value >= 1000 and step + 1 < len(units):
        value, step = value / 1000, step + 1
    return f"{_plain(value)} {units[step]}"


def _plain(value: float) -> str:
    """Format a number with at most two digits behind the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _ms(value: Optional[float]) -> str:
    return "N/A" if value is None else f"{_plain(value)} ms"


def _bound(value: Optional[float]) -> str:
    return "N/A" if value is None else f"< {value:,.0f} ms"
