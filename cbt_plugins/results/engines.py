"""Two engines beside each other: cbt-load and warp on the same mix in one run."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.metrics import METRICS, TOTAL, number_at
from cbt_plugins.plan import is_calibration

_METRICS = tuple(METRICS[key] for key in ("obj_per_s", "mib_per_s", "p50_ms", "p99_ms"))
_MIXED = (
    "warp mixed reads objects that it has just written itself and repeats failed requests unseen, in a closed loop "
    "without LIST; cbt-load reads what the cycle has filled, and a failed request is a failed one"
)
_JOBS = (
    "warp makes the mix of one process per operation, each held to its workers or its rate, and repeats failed "
    "requests unseen; cbt-load makes it in one process, exact over every 1000 requests, and a failed request is a "
    "failed one"
)


def beside(phases: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """One entry for each closed loop by cbt-load and the nearest phase by warp with the same mix.

    {"cbt_load", "warp": names of the phases, "note", "lines": [{"op", "metric", "unit", "cbt_load", "warp", "ratio"}]}
    """
    made = [
        phase
        for phase in phases
        if phase["ops"] and phase["mix"]["asked"] and not is_calibration(phase["name"], phase["role"])
    ]
    theirs = [phase for phase in made if _by_warp(phase)]
    found = []
    for ours in made:
        same = [phase for phase in theirs if _same(phase["mix"]["asked"], ours["mix"]["asked"])]
        if same and ours["kind"] == "hybrid" and ours["engine"] == "cbt-load" and ours["loop"] == "closed":
            nearest = min(same, key=lambda phase: (phase["role"] != ours["role"], abs(phase["index"] - ours["index"])))
            found.append(_entry(ours, nearest))
    return found


def _by_warp(phase: Mapping[str, Any]) -> bool:
    mixed = phase["kind"] == "warp" and any(job["op"] == "MIXED" for job in phase["jobs"])
    return mixed or (phase["kind"] == "hybrid" and phase["engine"] == "warp")


def _same(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(abs(one.get(op, 0.0) - other.get(op, 0.0)) < 1e-6 for op in {*one, *other})


def _entry(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Dict[str, Any]:
    workers = [sum(job["workers"] for job in phase["jobs"]) for phase in (ours, theirs)]
    note = _MIXED if theirs["kind"] == "warp" else _JOBS
    if workers[0] != workers[1]:
        note += f"; cbt-load had {workers[0]} workers, warp {workers[1]}"
    lines: List[Dict[str, Any]] = []
    for op in [*ours["ops"], *(op for op in theirs["ops"] if op not in ours["ops"]), None]:
        both = [phase["total"] if op is None else phase["ops"].get(op) for phase in (ours, theirs)]
        for metric in _METRICS:
            a, b = (number_at(line, metric.path) for line in both)
            if a is not None or b is not None:
                about = {"op": op or TOTAL, "metric": metric.key, "unit": metric.unit}
                lines.append({**about, "cbt_load": a, "warp": b, "ratio": _ratio(a, b)})
    return {"cbt_load": ours["name"], "warp": theirs["name"], "note": note, "lines": lines}


def _ratio(a: Optional[float], b: Optional[float]) -> Optional[float]:
    return round(a / b, 6) if a is not None and b else None
