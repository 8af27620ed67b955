"""The reader of run records: of our archives by their summaries, of other programs' results by the importers.

docs/IMPORT.md says what is taken from each format, and what is not because it would be wrong.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from cbt_plugins.archive_files import confine
from cbt_plugins.config import registry
from cbt_plugins.journal import read_json
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.importers import cbt
from cbt_plugins.results.importers.cbt import cluster_of
from cbt_plugins.results.importers.importer import Importer, ResultFiles
from cbt_plugins.results.node_samples import FOLDER
from cbt_plugins.results.record import UNREADABLE, ResultWarning, RunRecord, measurements, of_resources, warnings_of
from cbt_plugins.results.resources import of_record
from cbt_plugins.results.source import NotThere, PackedFile, Unreadable, reading
from cbt_plugins.results.summary_file import FILE, summary_of


def records_of(path: Path) -> List[RunRecord]:
    """Return every run of an archive, of a run's directory, of a summary.json, or of a result of another program.

    In the order of their names. A run without a summary, or with an old one, is read anew; nothing is written.
    Raises Unreadable where there is nothing to read.
    """
    if path.is_file():
        if not _is_summary(path):
            return read_imported(path)
        run = path.parent if path.name == FILE and (path.parent / "plan.json").exists() else None
        confine(path.parent)
        return [_record(summary_of(path), path, run)]
    try:
        runs = find_runs(path)
    except Unreadable as e:
        try:
            return read_imported(path)
        except Unreadable:
            raise e from None
    return [record for run in runs for record in _as_it_is(run, several=len(runs) > 1)]


def _as_it_is(run: Path, several: bool) -> List[RunRecord]:
    """Return the records of one run; of several runs one that cannot be read is a record without numbers."""
    try:
        with reading(run):
            return _of_run(run)
    except Unreadable as e:
        if not several:
            raise
        warning = ResultWarning(UNREADABLE, str(e))
        return [RunRecord(str(run), f"{run.parent.name}/{run.name}", "", {}, (), usable=False, warnings=(warning,))]


def _of_run(run: Path) -> List[RunRecord]:
    """Return the records of a directory: those of another program where its results are the only ones."""
    if not any((run / name).exists() for name in ("plan.json", "phases", FILE)):
        try:
            return read_imported(run)
        except Unreadable:
            pass
    return [_record(summary_of(run), run, run)]


def _is_summary(path: Path) -> bool:
    try:
        data = read_json(path)
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
        run_id=summary["run"]["run_id"],
    )


#: bytes from the begin of a file that say what it is
_HEAD = 1 << 14
#: files below a folder that is no archive: more are somebody's disk
_MOST_FILES = 10_000
#: other files of a run's directory, which may be large
_NOT = re.compile(
    r"_(bw|iops|lat|clat|slat|hist)(\.\d+)?\.log|^(collectl|perf|ceph-|historic|visualisation)|\.(png|svg|html|yaml|conf)$"
)


def read_imported(path: Path) -> List[RunRecord]:
    """Return the records of a file, of a directory with the files of several clients, or of an archive of CBT's own
    benchmarks.

    One record for each iteration and permutation. Raises Unreadable where there is nothing that is known.
    """
    if not path.exists():
        raise NotThere(f"{path}: no such file or directory")
    if not path.is_dir():
        importer_of_kind = importers()
        kind = _kind_of(path, importer_of_kind)
        if kind is None:
            raise Unreadable(f"{path}: not the result of a known program ({', '.join(importer_of_kind)})")
        with reading(path):
            return importer_of_kind[kind].read(ResultFiles(path, path.name, (path,)))
    try:
        runs = find_runs(path)
    except Unreadable:
        return _of_directory(path)
    records: List[RunRecord] = []
    errors: List[str] = []
    for run in runs:
        if (run / "plan.json").exists():
            continue  # a run of ours
        try:
            records += [
                _watched(run, record) for record in _of_directory(run, f"{run.resolve().parent.name}/{run.name}")
            ]
        except Unreadable as e:
            errors.append(str(e))
    if not records:
        raise Unreadable(errors[0] if errors else f"{path}: no run of another program in it")
    return records


def _watched(run: Path, record: RunRecord) -> RunRecord:
    """Return the record with what the monitor `resources` saw beside CBT's own benchmark."""
    if not any(run.glob(f"{FOLDER}*")):
        return record
    try:
        with reading(run):
            used = of_record(run, record, cluster_of(run))
    except Unreadable as e:
        return replace(record, warnings=(*record.warnings, ResultWarning("damaged-archive", str(e))))
    lines = [line for phase, usage in used.items() for line in of_resources(phase, usage)]
    return replace(record, used=used, measurements=(*record.measurements, *lines))


def importers() -> Dict[str, Importer]:
    """Return an importer of each kind: ours, and those of other distributions."""
    return {kind: load()() for kind, load in registry.loaders(registry.IMPORTERS).items()}


def _kind_of(path: Path, importer_of_kind: Dict[str, Importer]) -> Optional[str]:
    """Return the kind of the importer that claims a file."""
    try:
        chunk = next(iter(PackedFile(path).chunks()), b"")
    except Unreadable:
        return None
    head = chunk[:_HEAD].decode("utf-8", "replace")
    return next((kind for kind, importer in importer_of_kind.items() if importer.claims(head)), None)


def _of_directory(path: Path, name: Optional[str] = None) -> List[RunRecord]:
    """Return the records of a directory; its files of one program are those of one run. Raises Unreadable."""
    importer_of_kind = importers()
    claimed: Dict[str, List[Path]] = {kind: [] for kind in importer_of_kind}
    files = list(islice(path.rglob("*"), _MOST_FILES + 1))
    if len(files) > _MOST_FILES:
        raise Unreadable(f"{path}: more than {_MOST_FILES} files, and no run of an archive: name the folder of a run")
    for file in sorted(files):
        kind = _kind_of(file, importer_of_kind) if file.is_file() and not _NOT.search(file.name) else None
        if kind is not None:
            claimed[kind].append(file)
    about = (cbt.configuration(path), cbt.clients(path), cbt.faults_of(path))
    records: List[RunRecord] = []
    for kind, files in claimed.items():
        if files:
            with reading(path):
                records += importer_of_kind[kind].read(ResultFiles(path, name or path.name, tuple(files), *about))
    if not records:
        raise Unreadable(f"{path}: no result of a known program ({', '.join(importer_of_kind)})")
    return records
