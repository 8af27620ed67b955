"""One line for each run, one column for each number: CSV for Apache Otava (Hunter), a spreadsheet or pandas.

Otava's importer wants a column with the time, attributes, and metrics; the columns of all runs of a file are the same.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Sequence

from cbt_plugins.metrics import COLUMNS, read
from cbt_plugins.results.loader import loads, ops_of

_ATTRIBUTES = ("time", "benchmark", "run", "run_id", "ceph", "cbt_plugins")


def text(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The table of whole runs, oldest first. A number that a run does not have is empty."""
    rows = sorted((_row(summary) for summary in summaries if loads(summary)), key=lambda row: str(row["time"]))
    columns: List[str] = list(dict.fromkeys([*_ATTRIBUTES, *(name for row in rows for name in row)]))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(summary: Mapping[str, Any]) -> Dict[str, Any]:
    """Metrics are called PHASE.OP.METRIC; the time is when the run's first phase with load began."""
    versions = summary["environment"]["versions"]
    start = min(phase["window"]["start"] for phase in loads(summary))
    row: Dict[str, Any] = {
        "time": datetime.fromtimestamp(start, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "benchmark": summary["run"]["benchmark"],
        "run": summary["run"]["name"],
        "run_id": summary["run"]["run_id"],
        "ceph": versions.get("ceph"),
        "cbt_plugins": versions.get("cbt_plugins"),
    }
    for phase in loads(summary):
        for op in ops_of(phase):
            for metric in COLUMNS:
                value = read(metric, summary, phase, op)
                if value is not None:
                    row[f"{phase['name']}.{op}.{metric.key}"] = value
    return row
