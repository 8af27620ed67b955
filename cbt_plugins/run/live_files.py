"""Files of a phase with load for whoever watches it: what it does, and its aggregates as they come."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Mapping, Set

from cbt_plugins.archive_files import open_to_append
from cbt_plugins.journal import RUNNING_PHASE, write_json

log = logging.getLogger(__name__)


class WatchedPhase:
    """The files of a phase under way; the files of its end replace them. No error of these files stops the load."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: Dict[str, BinaryIO] = {}
        self._failed = False

    def begin(self, record: Mapping[str, Any]) -> None:
        """Write what the phase does, in the form of phase.json."""
        self._attempt(lambda: write_json(self._folder / RUNNING_PHASE, record))

    def add(self, jobs: Set[str], aggregates: Mapping[str, bytes]) -> None:
        """Append what a client has sent for these jobs, and for no others: a client names no file of the archive."""
        for job in jobs & aggregates.keys():
            self._append(job, memoryview(aggregates[job]))

    def _append(self, job: str, data: memoryview) -> None:
        def append(data: memoryview = data) -> None:
            if job not in self._files:
                (self._folder / "aggregates").mkdir(exist_ok=True)
                self._files[job] = open_to_append(self._folder / "aggregates" / f"{job}.aggregates")
            while data:
                data = data[self._files[job].write(data) :]

        self._attempt(append)

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do it, unless an earlier one has failed: what follows a hole is of no use."""
        if self._failed:
            return
        try:
            action()
        except OSError as error:
            self._failed = True
            log.warning("%s cannot be watched any more: %s", self._folder.name, error.strerror or error)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
