"""Archives -> records: the summary of each run, made anew where there is none that says all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Mapping, Optional

from cbt_plugins.compare.configuration import configuration
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.loader import summary_of
from cbt_plugins.results.measurements import measurements, warnings
from cbt_plugins.results.record import Record
from cbt_plugins.results.schema import FILE
from cbt_plugins.results.source import Unreadable


def read(path: Path) -> List[Record]:
    """What record.records_of promises."""
    if path.is_file():
        return [_of_summary(summary_of(path), path, _beside(path))] if _is_summary(path) else _foreign(path)
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
    return [_of_summary(summary_of(run), run, run)]


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
        warnings=tuple(warnings(summary)),
        label=summary["environment"]["versions"].get("ceph"),
        started=summary["phases"][0]["window"]["start"] if summary["phases"] else None,
    )


def _foreign(path: Path) -> List[Record]:
    from cbt_plugins.results import importers as foreign  # it makes records, too

    return foreign.read(path)
