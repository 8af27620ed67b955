"""The reader of run records: of our archives by their summaries, of other programs' results by the importers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Mapping, Optional

from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.importers import reader as imported
from cbt_plugins.results.loader import summary_of
from cbt_plugins.results.record import RunRecord, measurements, warnings_of
from cbt_plugins.results.schema import FILE
from cbt_plugins.results.source import Unreadable


def records_of(path: Path) -> List[RunRecord]:
    """Return every run of an archive, of a run's directory, of a summary.json, or of a result of another program.

    In the order of their names. A run without a summary, or with an old one, is read anew; nothing is written.
    Raises Unreadable where there is nothing to read.
    """
    if path.is_file():
        if not _is_summary(path):
            return imported.read(path)
        run = path.parent if path.name == FILE and (path.parent / "plan.json").exists() else None
        return [_record(summary_of(path), path, run)]
    try:
        runs = find_runs(path)
    except Unreadable as e:
        try:
            return imported.read(path)
        except Unreadable:
            raise e from None
    return [record for run in runs for record in _of_run(run)]


def _of_run(run: Path) -> List[RunRecord]:
    """A run by another program lies in CBT's archive in the same way; its own results say what it was."""
    if not any((run / name).exists() for name in ("plan.json", "phases", FILE)):
        try:
            return imported.read(run)
        except Unreadable:
            pass
    return [_record(summary_of(run), run, run)]


def _is_summary(path: Path) -> bool:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"version", "run", "phases", "usable"} <= set(data)


def _record(summary: Mapping[str, Any], source: Path, run: Optional[Path]) -> RunRecord:
    return RunRecord(
        source=str(source),
        name=summary["run"]["name"],
        kind="cbt-plugins",
        config=configuration(summary, run),
        measurements=tuple(measurements(summary)),
        usable=summary["usable"],
        warnings=tuple(warnings_of(summary)),
        label=summary["environment"]["versions"].get("ceph"),
        started=summary["phases"][0]["window"]["start"] if summary["phases"] else None,
    )
