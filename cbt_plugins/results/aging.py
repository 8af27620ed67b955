"""New against aged: the first and the last measurement of a cycle, side by side."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

#: (key, unit, path into an op's line, better); a relative change needs no unit, a reader does
METRICS = (
    ("obj_per_s", "obj/s", ("obj_per_s",), "higher"),
    ("mib_per_s", "MiB/s", ("mib_per_s",), "higher"),
    ("mean_ms", "ms", ("latency_ms", "mean"), "lower"),
    ("p99_ms", "ms", ("latency_ms", "p99"), "lower"),
)


def new_vs_aged(phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Change of each op, and of all together, from the first to the last phase with the role "measure".

    None when there are not two. One run against itself says nothing about chance: no significance is claimed.
    """
    measured = [phase for phase in phases if phase["role"] == "measure"]
    if len(measured) < 2:
        return None
    new, aged = measured[0], measured[-1]
    lines: List[Dict[str, Any]] = []
    for op in [*new["ops"], *(op for op in aged["ops"] if op not in new["ops"]), None]:
        before = new["total"] if op is None else new["ops"].get(op)
        after = aged["total"] if op is None else aged["ops"].get(op)
        for key, unit, path, better in METRICS:
            a, b = at(before, path), at(after, path)
            if a is None and b is None:
                continue
            change = round(b / a - 1, 6) if a and b is not None else None
            lines.append(
                {
                    "op": op or "total",
                    "metric": key,
                    "unit": unit,
                    "better": better,
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


def at(line: Optional[Mapping[str, Any]], path: Sequence[str]) -> Optional[float]:
    """What is there in a line of numbers; None when a part of the way is missing."""
    value: Any = line
    for key in path:
        value = value.get(key) if value else None
    return value
