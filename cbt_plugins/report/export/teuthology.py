"""The JSON that teuthology collects: json_output.N.HOST, one for each phase with load.

Its consumer makes a table row of every file of the archive whose path has /json_output.<digits>, with the JSON in one
column, and adds the cycles of the perf_stat files next to it. One for each client would leave the merging of
percentiles to the reader. With a host at its end the name does not fit CBT's own formatters, which look for fio's
output.
"""

from __future__ import annotations

import errno
import os
import re
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, List, Mapping

from cbt_plugins.archive_files import folder_of
from cbt_plugins.journal import read_json, write_json
from cbt_plugins.results.run_state import why_unusable
from cbt_plugins.results.summary_file import loads

# History of the form: 1 (a development version) the first one
VERSION = 1
_HEAVY = ("histogram_ns", "error_kinds")


def write_collected(summary: Mapping[str, Any], run: Path) -> List[Path]:
    """Write the files that teuthology collects of a complete run; of an incomplete one there are none."""
    for former in run.glob("phases/*/json_output.*"):
        _remove(former)
    if why_unusable(run, summary):
        return []
    paths = []
    for phase in loads(summary):
        folder = run / "phases" / f"{phase['index']:02d}-{phase['name']}"
        path = folder / f"json_output.{phase['index']}.{_head(run)}"
        write_json(path, _phase_record(summary, phase))
        paths.append(path)
    return paths


def _remove(path: Path) -> None:
    """Remove a file of the archive; one that is reached through a link stays. Raises OSError."""
    try:
        with folder_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise


def _phase_record(summary: Mapping[str, Any], phase: Mapping[str, Any]) -> Dict[str, Any]:
    resources = (summary.get("resources") or {}).get("phases", {}).get(phase["name"]) or {}
    warnings = [warning for warning in summary["warnings"] if warning.get("phase") in (None, phase["name"])]
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
        "warnings": {warning["code"]: warning["severity"] for warning in sorted(warnings, key=itemgetter("code"))},
    }


def _head(run: Path) -> str:
    """Return the head node of the run by its manifest: the same wherever the file is made."""
    try:
        manifest = read_json(run / "manifest.json")
        head = manifest.get("head") or next(iter(manifest.get("nodes") or ()), "")
    except (OSError, ValueError, AttributeError):
        head = ""
    return re.sub(r"[^A-Za-z0-9.:_-]", "-", str(head)).strip(".") or "head"
