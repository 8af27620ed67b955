"""Archives -> records: the summary of each run, made anew where there is none that says all."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from cbt_plugins.analysis.archive import find_runs
from cbt_plugins.analysis.source import Unreadable
from cbt_plugins.analysis.summary import FILE, read_summary, summarize

from .configuration import configuration
from .record import Record
from .summarized import cautions, measurements


def read(path: Path) -> List[Record]:
    """What record.records_of promises."""
    if path.is_file():
        return [_of_summary(read_summary(path), path, _beside(path))] if _is_summary(path) else _foreign(path)
    try:
        runs = find_runs(path)
    except Unreadable as e:
        try:
            return _foreign(path)
        except Unreadable:
            raise e from None
    return [_of_run(run) for run in runs]


def _beside(path: Path) -> Optional[Path]:
    """The run's directory, when the summary lies in it."""
    return path.parent if path.name == FILE and (path.parent / "plan.json").exists() else None


def _of_run(run: Path) -> Record:
    """A run by another program lies in the archive in the same way; its own results say what it was."""
    if not (run / "plan.json").exists() and not (run / "phases").exists() and not (run / FILE).exists():
        try:
            found = _foreign(run)
        except Unreadable:
            found = []
        if len(found) == 1:
            return found[0]
    return _of_summary(_summary(run), run, run)


def _summary(run: Path) -> Dict[str, Any]:
    try:
        made = read_summary(run / FILE)
        if not _is_old(made, run):
            return made
    except Unreadable:
        pass
    try:
        return summarize(run)
    except (OSError, ValueError, KeyError) as e:
        raise Unreadable(f"{run}: {e}") from e


def _is_old(summary: Mapping[str, Any], run: Path) -> bool:
    """It was made before the run went on, or by a version that did not look at everything."""
    finished = {path.parent.name for path in run.glob("phases/*/phase.json")}
    known = {f"{phase['index']:02d}-{phase['name']}" for phase in summary["phases"]}
    if "resources" not in summary or finished - known:
        return bool(finished)  # without its phases there is nothing to make another from
    return summary["run"]["complete"] != (run / "complete").exists()


def _is_summary(path: Path) -> bool:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"version", "run", "phases", "usable"} <= set(data)


def _of_summary(summary: Mapping[str, Any], source: Path, run: Optional[Path]) -> Record:
    return Record(
        source=str(source),
        name=summary["run"]["name"],
        kind="cbt-plugins",
        config=configuration(summary, run),
        measurements=tuple(measurements(summary)),
        usable=summary["usable"],
        cautions=tuple(cautions(summary)),
        label=summary["environment"]["versions"].get("ceph"),
        started=summary["phases"][0]["window"]["start"] if summary["phases"] else None,
    )


def _foreign(path: Path) -> List[Record]:
    if importlib.util.find_spec("cbt_plugins.foreign") is None:
        raise Unreadable(f"{path}: no run in it")
    foreign = importlib.import_module("cbt_plugins.foreign")
    found: List[Record] = foreign.read(path)
    return found
