"""What the numbers were measured on, as far as the run's manifest says it."""

from __future__ import annotations

from typing import Any
from typing import Dict
from typing import List
from typing import Mapping
from typing import Optional

from cbt_plugins.analysis.archive import Run

_VERSIONS = ("ceph", "warp", "cbt", "cbt_plugins", "python")


def environment(run: Run) -> Dict[str, Any]:
    """{"versions": {program: text}, "nodes": [{"node", "kernel", "clock_offset"}], "benchmark", "cycle", "endpoints"}.

    The manifest may hold versions at its top or under "versions", and a value may be a text or a mapping.
    """
    manifest = run.manifest
    versions = manifest.get("versions") if isinstance(manifest.get("versions"), dict) else {}
    kernels = _first(manifest, versions, "kernel", "kernels")
    offsets = _first(manifest, versions, "clock_offsets", "clock_offset")
    s3 = run.plan.get("s3")
    return {
        "versions": {
            name: _text(value) for name in _VERSIONS if (value := _first(versions, manifest, name)) is not None
        },
        "nodes": _nodes(run, kernels, offsets),
        "endpoints": list(s3.get("urls") or []) if isinstance(s3, dict) else [],
        "scale": run.plan.get("scale"),
        "seed": manifest.get("seed"),
    }


def _first(one: Mapping[str, Any], other: Mapping[str, Any], *names: str) -> Any:
    for place in (one, other):
        for name in names:
            if place.get(name) is not None:
                return place[name]
    return None


def _nodes(run: Run, kernels: Any, offsets: Any) -> List[Dict[str, Any]]:
    kernels = kernels if isinstance(kernels, dict) else {}
    offsets = dict(offsets) if isinstance(offsets, dict) else {}
    for phase in run.phases:
        for job in phase.jobs:
            offsets.setdefault(job.node, job.clock_offset)
    return [
        {"node": node, "kernel": _text(kernels.get(node)), "clock_offset": _number(offsets.get(node))}
        for node in sorted({*kernels, *offsets})
    ]


def _number(value: Any) -> Optional[float]:
    if isinstance(value, dict):
        value = value.get("offset")
    return float(value) if isinstance(value, (int, float)) else None


def _text(value: Any) -> Optional[str]:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in ("text", "version", "describe"):
            if isinstance(value.get(name), str):
                return str(value[name])
        return ", ".join(f"{key} {_text(its)}" for key, its in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
