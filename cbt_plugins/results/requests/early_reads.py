"""Long phases that a process of low priority reads while their run goes on, so that its report need not read them.

What it has read stays among this user's files (cache_dir), and counts for the same phase with the same files only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Collection, Optional

import numpy as np

from cbt_plugins.archive_files import PRIVATE, is_own, open_regular
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
#: bytes of the SHA-256 before the content of a file
_DIGEST = 32
#: seconds after which nobody writes a draft any more
_OLD = 86400.0
#: nice(2)
_LOWEST = 19


def place_of(phase: ArchivedPhase, grid: TimeGrid) -> Optional[Path]:
    """Return the file of what was read of a phase during its run; None where nothing was, or a file has changed."""
    try:
        if weight_of(phase) <= MANY or not _is_private(folder()) or not os.listdir(folder()):
            return None
        path = _path(phase, grid)
        return path if path is not None and path.exists() else None
    except (NoHome, OSError):
        return None


def load(path: Path) -> Optional[Read]:
    """Return the aggregates of a phase that such a file has; None for a damaged file, and without one."""
    try:
        with open_regular(path, MOST, own=True) as file:
            digest, content = file.read(_DIGEST), file.read()
        if hashlib.sha256(content).digest() != digest:
            return None
        read = pickle.loads(content)  # this user has written it: nobody else can write in its folder
    except Exception:  # of what another program has written, anything
        return None
    return read if isinstance(read, Read) else None


def read_early(run: Path, names: Collection[str]) -> None:
    """Read these phases of a run, which have ended, as far as nobody has. Raises Unreadable; OSError; NoHome."""
    parent = os.getppid()
    folder().mkdir(0o700, parents=True, exist_ok=True)
    if not _is_private(folder()):
        raise PermissionError(errno.EPERM, "is a link, or another user can write in it", str(folder()))
    for phase in read_run(run, going_on=True).phases:
        grid = phase_grid(phase)
        path = _path(phase, grid) if phase.name in names else None
        if path is None or load(path) is not None:
            continue
        read = read_here(phase, grid)
        if not read.unreadable and not read.from_rows:
            content = pickle.dumps(read, pickle.HIGHEST_PROTOCOL)
            write_whole(path, [hashlib.sha256(content).digest(), content], PRIVATE)
            _drop_oldest()
        if os.getppid() != parent:
            return  # the run was killed


def phase_grid(phase: ArchivedPhase) -> TimeGrid:
    return TimeGrid.of(*phase.window, phase.block, phase.takes_all)


def folder() -> Path:
    """Return the folder of all phases that were read early. Raises NoHome."""
    return cache_dir() / "reads"


def _is_private(path: Path) -> bool:
    """Tell whether only this user can write in a folder. Raises OSError."""
    facts = path.lstat()
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


def _path(phase: ArchivedPhase, grid: TimeGrid) -> Optional[Path]:
    """Return the path of a phase, which no other content of its files has.

    None where not all jobs have aggregates, and where a file cannot be read, or is not to be read.
    """
    run, beats = phase.path.parents[1], phase.path / HEARTBEATS
    aggregates = [job.aggregates for job in phase.jobs if job.aggregates is not None]
    files = [*aggregates, *([beats] if os.path.lexists(beats) else [])]
    if len(aggregates) < len(phase.jobs) or not all(map(is_own, files)):
        return None
    sums = [sum_of(run, os.path.relpath(path, run), _LARGE) for path in files]
    programs = (program_sum(), sys.version, np.__version__)
    window = (grid.start, grid.end, grid.block, grid.snapped)
    content = json.dumps((programs, window, [(job.id, job.driver) for job in phase.jobs], sums))
    return folder() / hashlib.sha256(content.encode()).hexdigest() if all(sums) else None


def _drop_oldest() -> None:
    size = 0
    with contextlib.suppress(OSError):  # another process does the same
        kept = [(path.lstat(), path) for path in folder().iterdir()]
        for facts, path in sorted(kept, key=lambda file: -file[0].st_mtime_ns):
            size += facts.st_size
            is_draft = path.name[0] == "." and time.time() - facts.st_mtime < _OLD
            if size > MOST and not is_draft:
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    os.nice(_LOWEST)
    try:
        read_early(Path(sys.argv[1]), sys.argv[2:])
    except OSError as e:
        sys.exit(f"{e.filename}: {e.strerror}" if e.filename else str(e))
    except (Unreadable, NoHome) as e:
        sys.exit(str(e))
