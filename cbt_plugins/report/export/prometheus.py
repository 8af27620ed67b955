"""Prometheus' text format: the numbers of runs, for node_exporter's textfile collector or a push."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from cbt_plugins.metrics import METRICS, read
from cbt_plugins.results.loader import loads, ops_of

#: unit of a metric -> factor to Prometheus' base units
_BASE = {"MiB/s": 2.0**20, "MiB": 2.0**20, "ms": 1e-3}


def text(runs: Iterable[Tuple[Mapping[str, Any], bool]]) -> str:
    """The metrics of all runs (their summary, and whether they are whole), those of one name together."""
    helps: Dict[str, str] = {}
    lines: Dict[str, List[str]] = {}
    for summary, whole in runs:
        for name, about, labels, value in _samples(summary, whole):
            helps.setdefault(name, about)
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.setdefault(name, []).append(f"{name}{{{inner}}} {value!r}\n")
    return "".join(f"# HELP {name} {helps[name]}\n# TYPE {name} gauge\n" + "".join(its) for name, its in lines.items())


def _samples(summary: Mapping[str, Any], whole: bool) -> Iterator[Tuple[str, str, Dict[str, str], float]]:
    run = {"benchmark": str(summary["run"]["benchmark"] or ""), "run": str(summary["run"]["name"])}
    ceph = str(summary["environment"]["versions"].get("ceph") or "")
    yield "cbt_run_usable", "1: the numbers are those of a whole run.", {**run, "ceph": ceph}, float(whole)
    for phase in loads(summary) if whole else ():
        where = {**run, "phase": phase["name"], "role": phase["role"]}
        end = float(phase["window"]["end"])
        yield "cbt_phase_end_timestamp_seconds", "End of the measured window.", where, end
        for op in ops_of(phase):
            for metric in METRICS.values():
                value = read(metric, summary, phase, op) if metric.prometheus else None
                if value is not None:
                    more = {} if metric.quantile is None else {"quantile": f"{metric.quantile:g}"}
                    labels = {**where, "op": op, **more}
                    yield metric.prometheus, metric.text, labels, value * _BASE.get(metric.unit, 1.0)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
