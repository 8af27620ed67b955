"""Prometheus' text format: the numbers of runs, for node_exporter's textfile collector or a push."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from cbt_plugins.report.export.numbers import loads, number, ops_of

#: metric of acceptable.METRICS -> name, factor to Prometheus' base units, labels, help
_NUMBERS: Tuple[Tuple[str, str, float, Dict[str, str], str], ...] = (
    ("obj_per_s", "cbt_objects_per_second", 1.0, {}, "Objects of successful requests."),
    ("mib_per_s", "cbt_bytes_per_second", 2.0**20, {}, "Bytes of successful requests."),
    ("success_rate", "cbt_success_ratio", 1.0, {}, "Successful requests / all requests."),
    ("mean_ms", "cbt_latency_mean_seconds", 1e-3, {}, "Mean latency of successful requests."),
    *(
        (f"p{name}_ms", "cbt_latency_seconds", 1e-3, {"quantile": q}, "Latency of successful requests.")
        for name, q in (("50", "0.5"), ("90", "0.9"), ("99", "0.99"), ("999", "0.999"))
    ),
    ("max_ms", "cbt_latency_max_seconds", 1e-3, {}, "Highest latency of a successful request."),
    ("longest_gap_s", "cbt_longest_gap_seconds", 1.0, {}, "Longest time without a success."),
)


def text(runs: Iterable[Tuple[Mapping[str, Any], bool]]) -> str:
    """The metrics of all runs (their summary, and whether they are whole), those of one name together."""
    helps: Dict[str, str] = {}
    lines: Dict[str, List[str]] = {}
    for summary, whole in runs:
        for name, about, labels, value in _samples(summary, whole):
            helps.setdefault(name, about)
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.setdefault(name, []).append(f"{name}{{{inner}}} {value!r}\n")
    return "".join(
        f"# HELP {name} {helps[name]}\n# TYPE {name} gauge\n" + "".join(its) for name, its in lines.items()
    )


def _samples(summary: Mapping[str, Any], whole: bool) -> Iterator[Tuple[str, str, Dict[str, str], float]]:
    run = {"benchmark": str(summary["run"]["benchmark"] or ""), "run": str(summary["run"]["name"])}
    ceph = str(summary["environment"]["versions"].get("ceph") or "")
    yield "cbt_run_usable", "1: the numbers are those of a whole run.", {**run, "ceph": ceph}, float(whole)
    for phase in loads(summary) if whole else ():
        where = {**run, "phase": phase["name"], "role": phase["role"]}
        end = float(phase["window"]["end"])
        yield "cbt_phase_end_timestamp_seconds", "End of the measured window.", where, end
        for op in ops_of(phase):
            for metric, name, factor, more, about in _NUMBERS:
                value = number(summary, phase, op, metric)
                if value is not None:
                    yield name, about, {**where, "op": op, **more}, value * factor


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
