"""One number of a summary by its name: the metrics of `acceptable:`, in their units."""

from __future__ import annotations

import math
from statistics import stdev
from typing import Any, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.config.acceptable import TOTAL
from cbt_plugins.config.calibration import CALIBRATE

#: what says what a latency is: (key of a line of the summary, key in that, factor)
_LATENCIES = {
    "latency_avg": ("latency_ms", "mean", 1e-3),
    "mean_ms": ("latency_ms", "mean", 1),
    "p50_ms": ("latency_ms", "p50", 1),
    "p90_ms": ("latency_ms", "p90", 1),
    "p99_ms": ("latency_ms", "p99", 1),
    "p999_ms": ("latency_ms", "p999", 1),
    "max_ms": ("latency_ms", "max", 1),
    "ttfb_p50_ms": ("ttfb_ms", "p50", 1),
    "ttfb_p99_ms": ("ttfb_ms", "p99", 1),
}
_RATES = {"bandwidth": "mib_per_s", "iops_avg": "obj_per_s"}


def loads(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The phases that made requests, without the calibration that a run puts in by itself."""
    return [
        phase
        for phase in summary["phases"]
        if phase["ops"] and not (phase["name"] == CALIBRATE and phase["role"] == "none")
    ]


def measurements(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The phases that measure; of a run that has none, all that made requests."""
    made = loads(summary)
    return [phase for phase in made if phase["role"] == "measure"] or made


def ops_of(phase: Mapping[str, Any]) -> Iterator[str]:
    """The operations of a phase, and "total" where there are several."""
    yield from phase["ops"]
    if len(phase["ops"]) > 1:
        yield TOTAL


def number(summary: Mapping[str, Any], phase: Mapping[str, Any], op: str, metric: str) -> Optional[float]:
    """One of acceptable.METRICS; None when the phase has no such number (no such operation, too few requests)."""
    if metric in ("ops_per_core", "cores_per_gb_s"):
        watched = (summary.get("resources") or {}).get("phases", {}).get(phase["name"]) or {}
        return _float(watched.get(metric))
    if op != TOTAL and op not in phase["ops"]:
        return None
    line = phase["total"] if op == TOTAL else phase["ops"][op]
    if metric == "iops_stddev":
        return _deviation(phase, op)
    if metric == "longest_gap_s":
        gap = phase["longest_gap"] if op == TOTAL else line["longest_gap"]
        return None if gap is None else _float(gap["seconds"])
    if metric in _LATENCIES:
        key, name, factor = _LATENCIES[metric]
        value = _float((line[key] or {}).get(name))
        return None if value is None else value * factor
    return _float(line[_RATES.get(metric, metric)])


def _deviation(phase: Mapping[str, Any], op: str) -> Optional[float]:
    """Sample standard deviation of the series' bins, which are seconds up to two hours."""
    series = [its["obj_per_s"] for name, its in phase["series"]["ops"].items() if op in (name, TOTAL)]
    bins = [math.fsum(at) for at in zip(*series)]
    return stdev(bins) if len(bins) > 1 else None


def _float(value: Any) -> Optional[float]:
    return None if value is None else float(value)
