"""Long phases that a process of low priority reads while their run goes on, so that its report need not read them.

What it has read stays among this user's files (cache_dir), and counts for the same phase with the same files only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Iterator, Optional, Tuple

import numpy as np

from cbt_plugins.archive_files import PRIVATE, open_regular
from cbt_plugins.checksums import sum_of
from cbt_plugins.journal import HEARTBEATS, write_whole
from cbt_plugins.programs import NoHome, cache_dir, program_sum
from cbt_plugins.results.archive import ArchivedPhase, read_run
from cbt_plugins.results.requests.job_files import MANY, Read, read_here, weight_of
from cbt_plugins.results.requests.time_series import TimeGrid
from cbt_plugins.results.result_file import Unreadable

#: bytes that are kept, of which a phase of two hours has some 8 MB: the oldest files are removed
MOST = 1 << 30
#: bytes of a phase's file, at most
_LARGE = 1 << 40
#: nice(2)
_LOWEST = 19


def place_of(phase: ArchivedPhase, grid: TimeGrid) -> Optional[Path]:
    """Return the file of what was read of a phase during its run; None where nothing was, or a file has changed."""
    try:
        facts = folder().lstat()
    except (NoHome, OSError):
        return None
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022 or weight_of(phase) <= MANY:
        return None
    path = _path(phase, grid)
    return path if path is not None and path.exists() else None


def load(path: Path) -> Optional[Read]:
    """Return the aggregates of a phase that such a file has; None for a damaged file."""
    try:
        with open_regular(path, MOST, own=True) as file:
            read = pickle.load(file)  # this user has written it: nobody else can write in its folder
    except Exception:  # a damaged file can raise anything
        return None
    return read if isinstance(read, Read) else None


def read_early(run: Path, least: int) -> None:
    """Read the phases of a run that have ended and more than `least` bytes of aggregates, as far as nobody has.

    Raises Unreadable; OSError; NoHome.
    """
    parent = os.getppid()
    folder().mkdir(0o700, parents=True, exist_ok=True)
    for phase in read_run(run, going_on=True).phases:
        grid = phase_grid(phase)
        path = _path(phase, grid) if weight_of(phase) > least else None
        if path is None or path.exists():
            continue
        read = read_here(phase, grid)
        if not read.unreadable and not read.from_rows:
            write_whole(path, [pickle.dumps(read, pickle.HIGHEST_PROTOCOL)], PRIVATE)
            _drop_oldest()
        if os.getppid() != parent:
            return  # the run was killed


def phase_grid(phase: ArchivedPhase) -> TimeGrid:
    return TimeGrid.of(*phase.window, phase.block, phase.takes_all)


def folder() -> Path:
    """Return the folder of all phases that were read early. Raises NoHome."""
    return cache_dir() / "reads"


def _path(phase: ArchivedPhase, grid: TimeGrid) -> Optional[Path]:
    """Return the path of a phase, which no other content of its files has; None for one without all aggregates."""
    run = phase.path.parents[1]

    def file_sum(path: Path) -> str:
        return sum_of(run, os.path.relpath(path, run), _LARGE)

    jobs = [(job.id, job.driver, file_sum(job.aggregates)) for job in phase.jobs if job.aggregates is not None]
    if len(jobs) < len(phase.jobs):
        return None
    programs = (program_sum(), sys.version, np.__version__)
    window = (grid.start, grid.end, grid.block, grid.snapped)
    content = json.dumps((programs, window, jobs, file_sum(phase.path / HEARTBEATS)))
    return folder() / hashlib.sha256(content.encode()).hexdigest()


def _drop_oldest() -> None:
    size = 0
    for facts, path in sorted(_files(), key=lambda file: -file[0].st_mtime_ns):
        size += facts.st_size
        if size > MOST:
            path.unlink(missing_ok=True)


def _files() -> Iterator[Tuple[os.stat_result, Path]]:
    for path in folder().iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield path.lstat(), path


if __name__ == "__main__":
    os.nice(_LOWEST)
    with contextlib.suppress(Unreadable, OSError, NoHome, KeyboardInterrupt):
        read_early(Path(sys.argv[1]), int(sys.argv[2]))
