"""The reader of other programs' results: it asks the registered importers whose each file is.

docs/IMPORT.md says what is taken from each format, and what is not because it would be wrong.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Optional

from cbt_plugins.config import registry
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.importers import cbt
from cbt_plugins.results.importers.importer import Importer, ResultFiles
from cbt_plugins.results.record import RunRecord
from cbt_plugins.results.source import PackedFile, Unreadable

#: bytes from the begin of a file that say what it is
_HEAD = 1 << 14
#: what else lies in a run's directory, and may be large
_NOT = re.compile(
    r"_(bw|iops|lat|clat|slat|hist)(\.\d+)?\.log|^(collectl|perf|ceph-|historic|visualisation)|\.(png|svg|html|yaml|conf)$"
)


def read(path: Path) -> List[RunRecord]:
    """Return the records of a file, of a directory with the files of several clients, or of an archive of CBT's own
    benchmarks.

    One record for each iteration and permutation. Raises Unreadable where there is nothing that is known.
    """
    if not path.is_dir():
        known = importers()
        kind = _kind_of(path, known)
        if kind is None:
            raise Unreadable(f"{path}: not the result of a known program ({', '.join(known)})")
        return known[kind].read(ResultFiles(path, path.name, (path,)))
    try:
        runs = find_runs(path)
    except Unreadable:
        return _of_directory(path)
    made: List[RunRecord] = []
    errors: List[str] = []
    for run in runs:
        if (run / "plan.json").exists():
            continue  # a run of ours
        try:
            made += _of_directory(run, f"{run.resolve().parent.name}/{run.name}")
        except Unreadable as e:
            errors.append(str(e))
    if not made:
        raise Unreadable(errors[0] if errors else f"{path}: no run of another program in it")
    return made


def importers() -> Dict[str, Importer]:
    """Return an importer of each kind: ours, and those of other distributions."""
    return {kind: load()() for kind, load in registry.loaders(registry.IMPORTERS).items()}


def _kind_of(path: Path, known: Dict[str, Importer]) -> Optional[str]:
    """The kind of the importer that claims a file."""
    try:
        chunk = next(iter(PackedFile(path).chunks()), b"")
    except Unreadable:
        return None
    head = chunk[:_HEAD].decode("utf-8", "replace")
    return next((kind for kind, importer in known.items() if importer.claims(head)), None)


def _of_directory(path: Path, name: Optional[str] = None) -> List[RunRecord]:
    """What a run left in a directory; its files of one program are those of one run. Raises Unreadable."""
    known = importers()
    claimed: Dict[str, List[Path]] = {kind: [] for kind in known}
    for file in sorted(path.rglob("*")):
        kind = _kind_of(file, known) if file.is_file() and not _NOT.search(file.name) else None
        if kind is not None:
            claimed[kind].append(file)
    about = (cbt.configuration(path), cbt.clients(path), cbt.faults_of(path))
    made: List[RunRecord] = []
    for kind, files in claimed.items():
        if files:
            made += known[kind].read(ResultFiles(path, name or path.name, tuple(files), *about))
    if not made:
        raise Unreadable(f"{path}: no result of a known program ({', '.join(known)})")
    return made
