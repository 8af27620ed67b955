"""Results as CSV for Apache Otava (Hunter), a spreadsheet or pandas: a line for each run, a column for each number.

Otava's importer wants a column with the time, attributes and metrics, the same in all lines of a file. An attribute
`config.KEY` is there for each key of the configuration that differs among the runs.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Sequence

from cbt_plugins.compare.configuration_differences import text
from cbt_plugins.formatting.formats.csv import csv_cell
from cbt_plugins.metrics import COLUMNS, read
from cbt_plugins.report.sweep import Run, differing_keys
from cbt_plugins.results.summary_file import loads, ops_of

_ATTRIBUTES = ("time", "benchmark", "run", "run_id", "ceph", "cbt_plugins", "warnings")


def otava_csv(runs: Sequence[Run]) -> str:
    """Return complete runs as CSV, oldest first; a number that a run does not have is empty."""
    runs = [run for run in runs if loads(run[1])]
    keys = [key for key in differing_keys([config for config, _ in runs]) if key not in _ATTRIBUTES]
    rows = sorted((_row(*run, keys) for run in runs), key=lambda row: str(row["time"]))
    attributes = [*_ATTRIBUTES, *map(_attribute, keys)]
    columns: List[str] = list(dict.fromkeys([*attributes, *(name for row in rows for name in row)]))
    out = io.StringIO()
    lines = [columns, *([row.get(name, "") for name in columns] for row in rows)]
    csv.writer(out, lineterminator="\n").writerows(map(csv_cell, line) for line in lines)
    return out.getvalue()


def _attribute(key: str) -> str:
    return f"config.{key}"


def _row(config: Mapping[str, Any], summary: Mapping[str, Any], keys: Sequence[str]) -> Dict[str, Any]:
    """Return PHASE.OP.METRIC -> value; the time is the begin of the first phase with load."""
    versions = summary["environment"]["versions"]
    start = min(phase["window"]["start"] for phase in loads(summary))
    row: Dict[str, Any] = {
        "time": datetime.fromtimestamp(start, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "benchmark": summary["run"]["benchmark"],
        "run": summary["run"]["name"],
        "run_id": summary["run"]["run_id"],
        "ceph": versions.get("ceph"),
        "cbt_plugins": versions.get("cbt_plugins"),
        "warnings": " ".join(dict.fromkeys(warning["code"] for warning in summary["warnings"])),
        **{_attribute(key): text(config[key]) for key in keys if key in config},
    }
    for phase in loads(summary):
        for op in ops_of(phase):
            for metric in COLUMNS:
                value = read(metric, summary, phase, op)
                if value is not None:
                    row[f"{phase['name']}.{op}.{metric.key}"] = value
    return row
