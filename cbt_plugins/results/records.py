"""Archives -> records: the summary of each run, made anew where there is none that says all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from cbt_plugins.compare.configuration import configuration
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.measurements import cautions, measurements
from cbt_plugins.results.record import Record
from cbt_plugins.results.source import Unreadable
from cbt_plugins.results.summary import FILE, read_summary, summarize


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
    return [record for run in runs for record in _of_run(run)]


def _beside(path: Path) -> Optional[Path]:
    """The run's directory, when the summary lies in it."""
    return path.parent if path.name == FILE and (path.parent / "plan.json").exists() else None


def _of_run(run: Path) -> List[Record]:
    """A run by another program lies in CBT's archive in the same way; its own results say what it was."""
    if not any((run / name).exists() for name in ("plan.json", "phases", FILE)):
        try:
            return _foreign(run)
        except Unreadable:
            pass
    return [_of_summary(_summary(run), run, run)]


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
    from cbt_plugins.results import importers as foreign  # it makes records, too

    return foreign.read(path)
