"""A run that nobody resumes, by what its archive alone says: the events of its undo, the removal of its buckets."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import Any, Iterator, Optional

from cbt_plugins.archive_files import PRIVATE
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.conditions import UNDO_BY_USER
from cbt_plugins.faults import ClusterAccess, seal
from cbt_plugins.journal import Journal, JournalError
from cbt_plugins.run.buckets import REMOVED, STATS_TIMEOUT, bucket_name, remove_bucket
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
        except (JournalError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            log.warning("%s: reports will not tell of this undo: %s", self._archive.events, why)
            return None

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._journal is not None:
            self._journal.close()


def remove_buckets(folder: Path, access: ClusterAccess) -> Iterator[Optional[str]]:
    """Remove the buckets that the run of a folder made, with their objects; yield None for each, or why it stays.

    A bucket is the run's by its name, which has the run's id. One that the user named in the file is never removed.
    Raises JournalError and OSError.
    """
    path = RunArchive(folder).journal
    if not path.exists():
        return
    with contextlib.closing(Journal(path, PRIVATE, anybodys=access.trusted)) as journal:
        journal.mark = partial(seal.mark, run_id=access.run_id)
        gone = {record.get("bucket") for record in journal.all(REMOVED)}
        own_names = f"{bucket_name(access.run_id, '')}-"
        for record in journal.all("bucket"):
            bucket = str(record.get("bucket"))
            admin_name = str(record.get("admin_name") or bucket)  # of a run without Ceph's commands, or before 0.2
            if bucket in gone or not admin_name.rpartition("/")[2].startswith(own_names):
                continue
            if not access.admin:
                log.warning("bucket %s of this run stays if it is there: remove it with an S3 client", bucket)
                continue
            try:
                stats = access.ceph.bucket(admin_name, STATS_TIMEOUT)
                if stats is not None:
                    remove_bucket(access.ceph, admin_name, stats.objects)
            except CephError as error:
                yield f"bucket {admin_name}: {error}"
                continue
            journal.write(REMOVED, bucket=bucket)
            if stats is not None:
                log.info("%s: removed bucket %s", folder, admin_name)
            yield None
