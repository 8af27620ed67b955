"""Results of other programs as records: hsbench, fio, rados bench, COSbench, warp, alone or as CBT's own benchmarks
left them.

docs/IMPORT.md says what is taken from each format, and what is not because it would be wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import List

from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.record import Record
from cbt_plugins.results.source import Unreadable


def read(path: Path) -> List[Record]:
    """The records of a file, of a directory with the files of several clients, or of an archive of CBT's own
    benchmarks.

    One record for each iteration and permutation. Raises Unreadable where there is nothing that is known.
    """
    from cbt_plugins.results.importers.directory import of_directory, of_file

    if not path.is_dir():
        return of_file(path)
    try:
        runs = find_runs(path)
    except Unreadable:
        return of_directory(path)
    made: List[Record] = []
    faults: List[str] = []
    for run in runs:
        if (run / "plan.json").exists():
            continue  # a run of ours
        try:
            made += of_directory(run, f"{run.resolve().parent.name}/{run.name}")
        except Unreadable as e:
            faults.append(str(e))
    if not made:
        raise Unreadable(faults[0] if faults else f"{path}: no run of another program in it")
    return made
