"""The summary as one HTML file that needs nothing else: no network, no server, no other file."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import jinja2
from markupsafe import Markup

from cbt_plugins.analysis.archive import texts
from cbt_plugins.report import numbers
from cbt_plugins.report.downsample import chart_data, failure_data

_HERE = Path(__file__).parent
#: characters of a recorded file that go into the page; the archive has the rest
_LONGEST = 100_000
_NOTHING_ELSE = "base-uri 'none'; form-action 'none'"


def page(summary: Mapping[str, Any], run: Path) -> str:
    """The page of one run; `run` is its directory. The same input gives the same bytes."""
    style = _asset("uplot.min.css") + _asset("page.css")
    script = _asset("uplot.min.js") + _asset("page.js")
    charts = [
        {
            "name": phase["name"],
            "role": phase["role"],
            "window": phase["window"],
            "under_way": phase["under_way"],
            "failure": failure_data((summary["failure"] or {"timelines": {}})["timelines"].get(phase["name"])),
            **chart_data(phase["series"]),
        }
        for phase in summary["phases"]
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(_HERE)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        plain=numbers.plain, count=numbers.count, change=numbers.percent, success=numbers.success,
        seconds=numbers.seconds, size=numbers.size, size_class=numbers.size_class, when=numbers.when,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        s=summary,
        verdict=verdict(summary),
        aging=by_op((summary["new_vs_aged"] or {"lines": []})["lines"]),
        engines=[{**entry, "table": by_op(entry["lines"])} for entry in summary["engines"]],
        pools=pools(run),
        broken=[chart["failure"] is not None for chart in charts],
        files=[
            {"name": name, "text": text[:_LONGEST], "cut": len(text) > _LONGEST}
            for name, text in texts(run).items()
        ],
        style=Markup(style),
        script=Markup(script),
        # "<" would let a text of the archive end the script element
        data=Markup(json.dumps(charts, separators=(",", ":")).replace("<", "\\u003c")),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; {_NOTHING_ELSE}",
    )


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy calls an inline block by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def verdict(summary: Mapping[str, Any]) -> Dict[str, str]:
    """{"kind": good | doubt | bad, "text"}"""
    n = len(summary["warnings"])
    if not summary["usable"]:
        return {"kind": "bad", "text": "Partial: these are not the numbers of a whole run"}
    if n:
        return {"kind": "doubt", "text": f"Whole run, {n} warning{'s' if n > 1 else ''}"}
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
                    "kind": f"erasure coded, {profile}"
                    if profile
                    else f"replicated, {pool.get('size', '?')} copies",
                    "pg_num": pool.get("pg_num"),
                    "application": ", ".join(pool.get("application_metadata") or {}),
                }
            )
    return found
