"""Results in three formats: Prometheus' text, CSV for Apache Otava, and the JSON that teuthology collects.

Prometheus    for node_exporter's textfile collector or a push
CSV           a line for each run and a column for each number, for Apache Otava (Hunter), a spreadsheet or pandas.
              Otava's importer wants a column with the time, attributes and metrics, the same in all lines of a file.
              An attribute `config.KEY` is there for each key of the configuration that differs among the runs.
teuthology    json_output.N.HOST, one for each phase with load. Its consumer makes a table row of every file of the
              archive whose path has /json_output.<digits>, with the JSON in one column, and adds the cycles of the
              perf_stat files next to it. One for each client would leave the merging of percentiles to the reader. With
              a host at its end the name does not fit CBT's own formatters, which look for fio's output.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from cbt_plugins.compare.configuration_differences import text
from cbt_plugins.formatting.data import csv_cell
from cbt_plugins.formatting.screen import printable
from cbt_plugins.journal import read_json, write_json
from cbt_plugins.metrics import COLUMNS, METRICS, read
from cbt_plugins.report.sweep import Run, differing_keys
from cbt_plugins.results.summary_file import loads, ops_of, why_unusable
from cbt_plugins.warning_kinds import Severity

#: unit of a metric -> factor to Prometheus' base units
_BASE = {"MiB/s": 2.0**20, "MiB": 2.0**20, "ms": 1e-3}


def prometheus(runs: Iterable[Tuple[Mapping[str, Any], bool]]) -> str:
    """Return the metrics of runs (summary, whether it is complete) as Prometheus' text, grouped by name.

    Labels tell runs apart by their run_id: of a run and its copy, the first counts.
    """
    helps: Dict[str, str] = {}
    series: Dict[str, Dict[str, float]] = {}
    for summary, complete in runs:
        for name, about, labels, value in _samples(summary, complete):
            helps.setdefault(name, about)
            inner = ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items())
            series.setdefault(name, {}).setdefault(inner, value)
    return "".join(
        f"# HELP {name} {about}\n# TYPE {name} gauge\n"
        + "".join(f"{name}{{{inner}}} {value!r}\n" for inner, value in series[name].items())
        for name, about in helps.items()
    )


def _samples(summary: Mapping[str, Any], complete: bool) -> Iterator[Tuple[str, str, Dict[str, str], float]]:
    about = summary["run"]
    run = {"benchmark": about["benchmark"], "run": about["name"], "run_id": about["run_id"]}
    run = {key: str(value or "") for key, value in run.items()}
    ceph = str(summary["environment"]["versions"].get("ceph") or "")
    yield "cbt_run_usable", "1: the run is complete, its numbers are usable.", {**run, "ceph": ceph}, float(complete)
    if complete:
        kinds = Counter(warning["severity"] for warning in summary["warnings"])
        for severity in Severity:
            labels = {**run, "severity": severity.value}
            yield "cbt_run_warnings", "Warnings of the run.", labels, float(kinds[severity.value])
    for phase in loads(summary) if complete else ():
        where = {**run, "phase": phase["name"], "role": phase["role"]}
        end = float(phase["window"]["end"])
        yield "cbt_phase_end_timestamp_seconds", "End of the measured window.", where, end
        for op in ops_of(phase):
            for metric in METRICS.values():
                value = read(metric, summary, phase, op) if metric.prometheus else None
                if value is not None:
                    quantile_label = {} if metric.quantile is None else {"quantile": f"{metric.quantile:g}"}
                    labels = {**where, "op": op, **quantile_label}
                    yield metric.prometheus, metric.text, labels, value * _BASE.get(metric.unit, 1.0)


def escaped(text: str) -> str:
    """Return the value of a label in quotes."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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


# History of the form: 1 (0.1.0) the first one
VERSION = 1
_HEAVY = ("histogram_ns", "error_kinds")


def write_collected(summary: Mapping[str, Any], run: Path) -> List[Path]:
    """Write the files that teuthology collects of a complete run; of an incomplete one there are none."""
    for old in run.glob("phases/*/json_output.*"):
        old.unlink()
    if why_unusable(run, summary):
        return []
    paths = []
    for phase in loads(summary):
        folder = run / "phases" / f"{phase['index']:02d}-{phase['name']}"
        path = folder / f"json_output.{phase['index']}.{_head(run)}"
        write_json(path, _phase_record(summary, phase))
        paths.append(path)
    return paths


def _phase_record(summary: Mapping[str, Any], phase: Mapping[str, Any]) -> Dict[str, Any]:
    resources = (summary.get("resources") or {}).get("phases", {}).get(phase["name"]) or {}
    warnings = [warning for warning in summary["warnings"] if warning.get("phase") in (None, phase["name"])]
    return {
        "version": VERSION,
        "benchmark": summary["run"]["benchmark"],
        "run": summary["run"]["name"],
        "run_id": summary["run"]["run_id"],
        "versions": summary["environment"]["versions"],
        "phase": phase["name"],
        **{key: phase[key] for key in ("index", "role", "kind", "engine", "loop", "status")},
        "start": phase["window"]["start"],
        "seconds": phase["window"]["seconds"],
        "workers": sum(driver["workers"] for driver in phase["drivers"]),
        "total": phase["total"],
        "ops": {op: {k: v for k, v in line.items() if k not in _HEAVY} for op, line in phase["ops"].items()},
        "resources": {k: v for k, v in resources.items() if isinstance(v, (int, float))} or None,
        "warnings": {warning["code"]: warning["severity"] for warning in sorted(warnings, key=itemgetter("code"))},
    }


def _head(run: Path) -> str:
    """Return the head node of the run by its manifest: the same wherever the file is made."""
    try:
        manifest = read_json(run / "manifest.json")
        head = manifest.get("head") or next(iter(manifest.get("nodes") or ()), "")
    except (OSError, ValueError, AttributeError):
        head = ""
    return re.sub(r"[^A-Za-z0-9.:_-]", "-", str(head)).strip(".") or "head"
