"""Results as Prometheus' text, for the textfile collector of node_exporter or a push."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterable, Iterator, Mapping, Tuple

from cbt_plugins.formatting.screen import printable
from cbt_plugins.metrics import METRICS, read
from cbt_plugins.results.summary_file import loads, ops_of
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
