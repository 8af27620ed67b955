"""One run as a page: what it came to first, then its warnings, then its phases, its environment and its plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.report import ceilings as network
from cbt_plugins.report.document import document
from cbt_plugins.report.drawing import drawing
from cbt_plugins.report.headline import headline, sentences
from cbt_plugins.results.archive import texts

#: characters of a recorded file that go into the page; the archive has the rest
_LONGEST = 100_000
#: recorded files that say what was to be done
_PLAN = ("config.yaml", "benchmark_config.yaml", "plan.json")


def page(summary: Mapping[str, Any], run: Path, ceilings: Optional[Mapping[str, Any]] = None) -> str:
    """The page of one run; `run` is its directory, `ceilings` are those of analysis.ceilings, if they are known.

    The same input gives the same bytes.
    """
    drawn = drawing(summary)
    charts = drawn["phases"]
    files = [{"name": name, "text": text[:_LONGEST], "cut": len(text) > _LONGEST} for name, text in texts(run).items()]
    return document(
        "page.html.j2",
        ["page.js"],
        drawn,
        s=summary,
        verdict=verdict(summary),
        headline=headline(summary),
        sentences=list(sentences(summary)),
        aging=by_op((summary["new_vs_aged"] or {"lines": []})["lines"]),
        engines=[{**entry, "table": by_op(entry["lines"])} for entry in summary["engines"]],
        pools=pools(run),
        broken=[chart["failure"] is not None for chart in charts],
        tails=[its["op"] for its in drawn["tails"]],
        resources=(summary.get("resources") or {"phases": {}})["phases"],
        cores=[chart["cores"] is not None for chart in charts],
        ceilings=ceilings,
        network=network.rows(ceilings) if ceilings and ceilings["phases"] else [],
        planned=_json(run / "plan.json").get("phases") or [],
        plan=[file for file in files if file["name"] in _PLAN],
        files=[file for file in files if file["name"] not in _PLAN],
    )


def _json(path: Path) -> Dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def verdict(summary: Mapping[str, Any]) -> Dict[str, str]:
    """{"kind": good | warning | bad, "text"}"""
    n = len(summary["warnings"])
    if not summary["usable"]:
        return {"kind": "bad", "text": "Partial: these are not the numbers of a whole run"}
    if n:
        return {"kind": "warning", "text": f"Whole run, {n} warning{'s' if n > 1 else ''}"}
    return {"kind": "good", "text": "Whole run, no warnings"}


def by_op(lines: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Of a comparison, one entry per op: {"op", and per metric ("obj_per_s", "mean_ms", ...) its line}."""
    table: Dict[str, Dict[str, Any]] = {}
    for line in lines:
        table.setdefault(line["op"], {"op": line["op"]})[line["metric"]] = line
    return list(table.values())


def pools(run: Path) -> List[Dict[str, Any]]:
    """The pools before the run, from `ceph osd pool ls detail`; [] when they were not recorded so."""
    try:
        data = json.loads((run / "cluster" / "before" / "pools.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    found = []
    for pool in data if isinstance(data, list) else []:
        if isinstance(pool, dict) and "pool_name" in pool:
            profile = pool.get("erasure_code_profile")
            found.append(
                {
                    "name": pool["pool_name"],
                    "kind": f"erasure coded, {profile}" if profile else f"replicated, {pool.get('size', '?')} copies",
                    "pg_num": pool.get("pg_num"),
                    "application": ", ".join(pool.get("application_metadata") or {}),
                }
            )
    return found
