"""json_output.N.HOST: what teuthology's cbt task collects, one file for each phase with load.

Its consumer makes a row of a table of every file below the archive whose path has /json_output.<digits>, with the
whole JSON in one column. A file for each client would leave the merging of percentiles to whoever reads that table,
and a file for the run would put all phases into one row: so there is one for each phase, with the phase's number and
the head's name, in the phase's directory, where the consumer adds the cycles of perf_stat files that lie there too.
With a host at its end the name does not fit CBT's own formatters, which look for fio's output.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping

from cbt_plugins.journal import write_json
from cbt_plugins.results.loader import loads, why_unusable

# History of the form: 1 (0.1.0) the first one
VERSION = 1
_HEAVY = ("histogram_ns", "error_kinds")


def write(summary: Mapping[str, Any], run: Path) -> List[Path]:
    """Write the files of a run, none of one that is not whole: whoever collects them looks no further."""
    for old in run.glob("phases/*/json_output.*"):
        old.unlink()
    if why_unusable(run, summary):
        return []
    made = []
    for phase in loads(summary):
        folder = run / "phases" / f"{phase['index']:02d}-{phase['name']}"
        path = folder / f"json_output.{phase['index']}.{_head(run)}"
        write_json(path, _record(summary, phase))
        made.append(path)
    return made


def _record(summary: Mapping[str, Any], phase: Mapping[str, Any]) -> Dict[str, Any]:
    resources = (summary.get("resources") or {}).get("phases", {}).get(phase["name"]) or {}
    warnings = [w["code"] for w in summary["warnings"] if w.get("phase") in (None, phase["name"])]
    return {
        "version": VERSION,
        "benchmark": summary["run"]["benchmark"],
        "run": summary["run"]["name"],
        "run_id": summary["run"]["run_id"],
        "versions": summary["environment"]["versions"],
        "phase": phase["name"],
        **{key: phase[key] for key in ("index", "role", "kind", "engine", "loop", "status")},
        "start": phase["window"]["start"],
        "seconds": phase["window"]["seconds"],
        "workers": sum(driver["workers"] for driver in phase["drivers"]),
        "total": phase["total"],
        "ops": {op: {k: v for k, v in line.items() if k not in _HEAVY} for op, line in phase["ops"].items()},
        "resources": {k: v for k, v in resources.items() if isinstance(v, (int, float))} or None,
        "warnings": sorted(set(warnings)),
    }


def _head(run: Path) -> str:
    """The node that led the run, as the run's manifest says it: the same wherever the file is made."""
    try:
        manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
        head = manifest.get("head") or next(iter(manifest.get("nodes") or ()), "")
    except (OSError, ValueError, AttributeError):
        head = ""
    return re.sub(r"[^A-Za-z0-9.:_-]", "-", str(head)).strip(".") or "head"
