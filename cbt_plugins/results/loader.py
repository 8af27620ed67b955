"""The one loader of a run's summary: the stored one where it is current, else one that is made now.

Report, compare, CBT's compare.py, export and SQL read summaries here. Needs numpy only where one has to be made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.metrics import TOTAL
from cbt_plugins.plan import is_calibration, is_measurement
from cbt_plugins.results.schema import FILE, VERSION, check
from cbt_plugins.results.source import Unreadable


def read_summary(path: Path) -> Dict[str, Any]:
    """Read a summary.json of the version that this program knows. Raises Unreadable."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["version"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise Unreadable(f"{path}: no summary can be read: {e}") from e
    if version != VERSION:
        raise Unreadable(f"{path}: version {version!r} of the format; this program reads version {VERSION}")
    try:
        check(data)
    except ValueError as e:
        raise Unreadable(f"{path}: {e}") from e
    except ImportError as e:
        raise Unreadable(f"{path}: missing Python package {e.name}: pip install 'cbt-plugins[report]'") from e
    return data


def is_current(summary: Mapping[str, Any], run: Path) -> bool:
    """Return whether a stored summary says all that the run's directory has: no phase ended since, nor the run."""
    finished = {path.parent.name for path in run.glob("phases/*/phase.json")}
    if not finished:
        return True  # without its phases there is nothing to make another from
    known = {f"{phase['index']:02d}-{phase['name']}" for phase in summary["phases"]}
    ended: bool = summary["run"]["complete"] == (run / "complete").exists()
    return ended and finished <= known and "resources" in summary


def summary_of(path: Path) -> Dict[str, Any]:
    """Return the summary of a run directory, or of a summary.json itself; nothing is written.

    Raises Unreadable, also where one would have to be made and this Python has no numpy.
    """
    if path.is_file():
        return read_summary(path)
    try:
        stored = read_summary(path / FILE)
        if is_current(stored, path):
            return stored
        why = f"{path / FILE} was made before the run had ended"
    except Unreadable as e:
        why = str(e)
    try:
        from cbt_plugins.results.summary import summarize

        return summarize(path)
    except ImportError as e:
        hint = f"`cbt-tools report {path}` makes one, with pip install 'cbt-plugins[report]'"
        raise Unreadable(f"{why}; none can be made here without the Python package {e.name}: {hint}") from e
    except (OSError, ValueError, KeyError) as e:
        raise Unreadable(f"{path}: {e}") from e


def loads(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the phases that made requests, without the calibration."""
    return [phase for phase in summary["phases"] if phase["ops"] and not is_calibration(phase["name"], phase["role"])]


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
    """Return whether a run directory is one of these plug-ins; CBT's own benchmarks leave such directories, too."""
    return (run / "plan.json").exists() or (run / "phases").is_dir()


def why_unusable(run: Path, summary: Mapping[str, Any]) -> Optional[str]:
    """Return why the numbers of a run directory must not be passed on as a result; None when they may."""
    try:
        degraded = json.loads((run / "complete").read_text(encoding="utf-8")).get("degraded")
    except FileNotFoundError:
        return "the run was interrupted, or is still running"
    except (OSError, ValueError, AttributeError) as e:
        return f"its end marker cannot be read: {e}"
    if degraded:
        return f"not to be trusted: {', '.join(map(str, degraded))} (see the report)"
    if not summary["usable"]:
        return "; ".join(dict.fromkeys(warning["text"] for warning in summary["warnings"]))
    return None
