"""New against aged: the first and the last measurement of a cycle, side by side."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.metrics import METRICS, TOTAL, number_at
from cbt_plugins.plan import is_measurement

_METRICS = tuple(METRICS[key] for key in ("obj_per_s", "mib_per_s", "mean_ms", "p99_ms"))


def new_vs_aged(phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Change of each op, and of all together, from the first to the last phase with the role "measure".

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
        for metric in _METRICS:
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
