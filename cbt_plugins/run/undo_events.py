"""The event log of a run during `cbt-tools undo`."""

from __future__ import annotations

import logging
from typing import Any, Optional

from cbt_plugins.cluster_conditions import UNDO_BY_USER
from cbt_plugins.journal import Journal, JournalError
from cbt_plugins.run.run_archive import RunArchive

log = logging.getLogger(__name__)


class EventsOfUndo:
    """The event log of a run during `cbt-tools undo`, opened with the first event. No undo depends on it.

    Nothing is written if the run has no event log, if it is complete (the log is sealed), or if another process has the
    log open.
    """

    def __init__(self, archive: RunArchive, anybodys: bool) -> None:
        self._archive, self._anybodys = archive, anybodys
        self._journal: Optional[Journal] = None
        self._is_closed = False

    def write(self, event: str, **facts: Any) -> None:
        """Add an event, and before the first one that an undo begins."""
        if self._journal is None and not self._is_closed:
            self._journal = self._opened()
            self._is_closed = self._journal is None
        if self._journal is not None:
            self._journal.write(event, **facts)

    def _opened(self) -> Optional[Journal]:
        if self._archive.complete.exists() or not self._archive.events.exists():
            return None
        try:
            journal = Journal(self._archive.events, anybodys=self._anybodys)
            journal.write(UNDO_BY_USER)
            return journal
        except (JournalError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            log.warning("%s: this undo could not be logged, so reports will not show it: %s", self._archive.events, why)
            return None

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._journal is not None:
            self._journal.close()
