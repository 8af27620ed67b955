"""Two phases of a run beside each other: new against aged, and cbt-load against warp on the same mix."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.metrics import METRICS, TOTAL, number_at
from cbt_plugins.plan import is_calibration, is_measurement

_AGING = tuple(METRICS[key] for key in ("obj_per_s", "mib_per_s", "mean_ms", "p99_ms"))


def new_vs_aged(phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the change of each op, and of all together, from the first to the last phase with the role "measure".

    None when there are not two. One run against itself says nothing about chance: no significance is claimed.
    """
    measured = [phase for phase in phases if is_measurement(phase["name"], phase["role"])]
    if len(measured) < 2:
        return None
    new, aged = measured[0], measured[-1]
    lines: List[Dict[str, Any]] = []
    for op in [*new["ops"], *(op for op in aged["ops"] if op not in new["ops"]), None]:
        before = new["total"] if op is None else new["ops"].get(op)
        after = aged["total"] if op is None else aged["ops"].get(op)
        for metric in _AGING:
            a, b = number_at(before, metric.path), number_at(after, metric.path)
            if a is None and b is None:
                continue
            change = round(b / a - 1, 6) if a and b is not None else None
            lines.append(
                {
                    "op": op or TOTAL,
                    "metric": metric.key,
                    "unit": metric.unit,
                    "better": metric.direction.value,
                    "new": a,
                    "aged": b,
                    "change": change,
                }
            )
    return {
        "new": new["name"],
        "aged": aged["name"],
        "note": "one measurement each: a difference may be chance, no significance is claimed",
        "lines": lines,
    }


_ENGINES = tuple(METRICS[key] for key in ("obj_per_s", "mib_per_s", "p50_ms", "p99_ms"))
_MIXED = (
    "warp mixed reads objects that it has just written itself and repeats failed requests unseen, in a closed loop "
    "without LIST; cbt-load reads what the cycle has filled, and a failed request is a failed one"
)
_JOBS = (
    "warp makes the mix of one process per operation, each held to its workers or its rate, and repeats failed "
    "requests unseen; cbt-load makes it in one process, exact over every 1000 requests, and a failed request is a "
    "failed one"
)


def engine_pairs(phases: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return one entry for each closed loop by cbt-load and the nearest phase by warp with the same mix.

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
        for metric in _ENGINES:
            a, b = (number_at(line, metric.path) for line in both)
            if a is not None or b is not None:
                about = {"op": op or TOTAL, "metric": metric.key, "unit": metric.unit}
                lines.append({**about, "cbt_load": a, "warp": b, "ratio": _ratio(a, b)})
    return {"cbt_load": ours["name"], "warp": theirs["name"], "note": note, "lines": lines}


def _ratio(a: Optional[float], b: Optional[float]) -> Optional[float]:
    return round(a / b, 6) if a is not None and b else None
