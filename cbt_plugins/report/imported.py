"""Results of other programs in the terminal: the table of each run and the failure beside it; COSbench's own page."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.columns import side_by_side
from cbt_plugins.metrics import CLUSTER, COLUMNS
from cbt_plugins.results import recovery
from cbt_plugins.results.importers.cbt import FAULTS_KEY
from cbt_plugins.results.importers.reader import importers, read
from cbt_plugins.results.record import Measurement, RunRecord

_HEAD = ("", "", "requests", "obj/s", "MiB/s", "success", "mean ms", "p50", "p90", "p99", "p99.9", "max")


def render(path: Path) -> Tuple[str, bool]:
    """(the text, whether all runs are whole). Raises Unreadable."""
    records = read(path)
    parts = ["".join(_record(record)) for record in records]
    known = importers()
    for source, kind in sorted({(record.source, record.kind) for record in records}):
        more = known[kind].more(Path(source)) if kind in known else ""
        parts += [more] if more else []
    return "\n".join(parts), all(record.usable for record in records)


def _record(record: RunRecord) -> Iterator[str]:
    whole = "" if record.usable else "  NOT USABLE, see the warnings"
    yield f"{record.name}  {record.config.get('benchmark', record.kind)}{whole}\n"
    lines: List[List[str]] = [list(_HEAD)]
    for phase, op in dict.fromkeys((its.phase, its.op) for its in record.measurements if its.op != CLUSTER):
        its = [line for line in record.measurements if (line.phase, line.op) == (phase, op)]
        lines.append([phase, op, str(its[0].n or ""), *(_cell(its, metric.key) for metric in COLUMNS)])
    yield from (f"  {line}\n" for line in side_by_side(lines, left=2))
    if record.failure is not None:
        yield f"  beside it: {record.config[FAULTS_KEY]}\n"
        yield from (f"  {line}\n" for line in recovery.table(record.failure))
    for warning in record.warnings:
        yield f"  {warning.code}: {warning.text}\n"


def _cell(lines: Sequence[Measurement], metric: str) -> str:
    found: Optional[Measurement] = next((line for line in lines if line.metric == metric), None)
    if found is None or found.value is None:
        return "-"
    if metric == "success_rate":
        return f"{100 * found.value:.2f}%"
    return f"{found.value:.4g}" if found.value < 1000 else f"{found.value:.0f}"
