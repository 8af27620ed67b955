"""What a run came to: a line for each measurement."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.report import numbers
from cbt_plugins.results.loader import measured


def headline(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """[{"phase", "seconds", "obj_per_s", "read", "write" (MiB/s or null), "ops": {"GET": latency_ms, "PUT": ...},
    "errors", "limit": what it was limited by or null, "evidence": [text]}]
    """
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    lines = []
    for phase in measured(summary):
        ops = phase["ops"]
        limit = (resources.get(phase["name"]) or {}).get("bottleneck") or {}
        lines.append(
            {
                "phase": phase["name"],
                "seconds": phase["window"]["seconds"],
                "obj_per_s": phase["total"]["obj_per_s"],
                "read": _mib(ops, "GET"),
                "write": _mib(ops, "PUT", "MULTIPART"),
                "ops": {op: ops[op]["latency_ms"] for op in ("GET", "PUT") if op in ops and ops[op]["latency_ms"]},
                "errors": phase["total"]["errors"],
                "limit": limit.get("what"),
                "evidence": list(limit.get("evidence") or ()),
            }
        )
    return lines


def _mib(ops: Mapping[str, Any], *names: str) -> Optional[float]:
    values = [ops[name]["mib_per_s"] for name in names if name in ops and ops[name]["mib_per_s"] is not None]
    return sum(values) if values else None


def sentences(summary: Mapping[str, Any]) -> Iterator[str]:
    """What the aging and the failures of the run came to, in words."""
    aging = summary["new_vs_aged"] or {"lines": []}
    for line in aging["lines"]:
        if line["op"] == "total" and line["metric"] == "obj_per_s" and line["change"] is not None:
            yield f"{aging['aged']} against {aging['new']}: {numbers.percent(line['change'])} objects/s"
    for episode in ((summary["failure"] or {}).get("milestones") or {}).get("episodes") or ():
        text = f"{episode['kind']} of {', '.join(episode['labels'])}: {episode['outcome']}"
        clean = next((m["seconds"] for m in episode["milestones"] if m.get("name") == "clean"), None)
        yield text + (f", all PGs active+clean after {numbers.seconds(clean)}" if clean is not None else "")
