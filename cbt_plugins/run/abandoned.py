"""A run that nobody resumes, by what its archive alone says: the events of its undo, the removal of its buckets."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import Any, List, Optional

from cbt_plugins.archive_files import PRIVATE
from cbt_plugins.conditions import UNDO_BY_USER
from cbt_plugins.faults import ClusterAccess, FaultError, seal
from cbt_plugins.journal import Journal, JournalInUse
from cbt_plugins.run.buckets import REMOVED, STATS_TIMEOUT, remove_bucket
from cbt_plugins.run.context import RunArchive

log = logging.getLogger(__name__)


class EventsOfUndo:
    """The event log of a run that `cbt-tools undo` undoes, opened with the first event. No undo depends on it.

    Nothing is written where a run has none, is complete and has sealed it, or where another process has it open.
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
        except (JournalInUse, OSError) as error:
            why = getattr(error, "strerror", None) or error
            log.warning("%s: reports will not tell of this undo: %s", self._archive.events, why)
            return None

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._journal is not None:
            self._journal.close()


def remove_buckets(folder: Path, access: ClusterAccess) -> List[str]:
    """Remove the buckets that the run of a folder made, with their objects; return their names.

    A bucket that the user named in the file is never removed. Raises CephError, JournalInUse, OSError, and FaultError
    for a bucket that another user or another machine wrote down, and for one that only S3 can remove.
    """
    path = RunArchive(folder).journal
    if not path.exists():
        return []
    removed = []
    with contextlib.closing(Journal(path, PRIVATE, anybodys=access.trusted)) as journal:
        journal.mark = partial(seal.mark, run_id=access.run_id)
        gone = {record.get("bucket") for record in journal.all(REMOVED)}
        for record in journal.all("bucket"):
            bucket, admin_name = record.get("bucket"), record.get("admin_name")
            if bucket in gone:
                continue
            if not access.admin or not isinstance(admin_name, str):
                raise FaultError(f"bucket {bucket} of this run stays: remove it with an S3 client")
            if not access.trusted and not seal.is_marked(record, access.run_id):
                raise FaultError(seal.refusal(path))
            stats = access.ceph.bucket(admin_name, STATS_TIMEOUT)
            if stats is not None:
                remove_bucket(access.ceph, admin_name, stats.objects)
                removed.append(admin_name)
            journal.write(REMOVED, bucket=bucket)
    return removed
