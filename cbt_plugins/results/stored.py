"""A summary.json that is there already: read with nothing but the standard library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.metrics import TOTAL
from cbt_plugins.plan import is_calibration, is_measurement
from cbt_plugins.results.conform import check
from cbt_plugins.results.source import Unreadable

# History of the format. A reader accepts every version up to its own.
#   1  (0.1.0) the first one: from figures or rows, phases by warp and cbt-load
VERSION = 1

FILE = "summary.json"


def read_summary(path: Path) -> Dict[str, Any]:
    """A summary.json of any version that this program knows. Raises Unreadable."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["version"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise Unreadable(f"{path}: no summary can be read: {e}") from e
    if version != VERSION:
        raise Unreadable(f"{path}: version {version!r} of the format; this program reads up to {VERSION}")
    try:
        check(data)
    except ValueError as e:
        raise Unreadable(f"{path}: {e}") from e
    return data


def summary_of(run: Path) -> Dict[str, Any]:
    """The summary of a run directory: the stored one, or one made now where that is missing or older than its end.

    Raises Unreadable, also where one would have to be made and this Python has no numpy.
    """
    try:
        stored = read_summary(run / FILE)
        if stored["run"]["complete"] == (run / "complete").exists():
            return stored
        why = f"{run / FILE} was made before the run had ended"
    except Unreadable as e:
        why = str(e)
    try:
        from cbt_plugins.results.summary import summarize
    except ImportError as e:
        hint = f"`cbt-tools report {run}` makes one, with pip install 'cbt-plugins[report]'"
        raise Unreadable(f"{why}; none can be made here without the Python package {e.name}: {hint}") from e
    return summarize(run)


def loads(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the phases that made requests, without the calibration."""
    return [
        phase for phase in summary["phases"] if phase["ops"] and not is_calibration(phase["name"], phase["role"])
    ]


def measured(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the phases that measure; of a run that has none, all that made requests."""
    made = loads(summary)
    return [phase for phase in made if is_measurement(phase["name"], phase["role"])] or made


def ops_of(phase: Mapping[str, Any]) -> Iterator[str]:
    """Yield the operations of a phase, and TOTAL where there are several."""
    yield from phase["ops"]
    if len(phase["ops"]) > 1:
        yield TOTAL


def is_ours(run: Path) -> bool:
    """Whether a run directory is one of these plug-ins: CBT's own benchmarks lie in the archive in the same way."""
    return (run / "plan.json").exists() or (run / "phases").is_dir()


def not_whole(run: Path, summary: Mapping[str, Any]) -> Optional[str]:
    """Why the numbers of a run directory must not be passed on as a result; None when they may."""
    try:
        degraded = json.loads((run / "complete").read_text(encoding="utf-8")).get("degraded")
    except FileNotFoundError:
        return "the run was interrupted, or is still going on"
    except (OSError, ValueError, AttributeError) as e:
        return f"its end marker cannot be read: {e}"
    if degraded:
        return f"not to be trusted: {', '.join(map(str, degraded))} (see the report)"
    if not summary["usable"]:
        return "; ".join(dict.fromkeys(warning["text"] for warning in summary["warnings"]))
    return None
