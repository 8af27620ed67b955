"""Removal of the buckets of a run that will not be resumed: `cbt-tools undo --data`."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

from cbt_plugins.archive_files import PRIVATE
from cbt_plugins.cluster.ceph import CephError, CephTimeout
from cbt_plugins.faults import ClusterAccess, undo_seal
from cbt_plugins.journal import Journal, journal_lines
from cbt_plugins.plan import bucket_name
from cbt_plugins.run.buckets import NOT_SHOWN, REMOVED, SHOWN, STATS_TIMEOUT, is_gone, remove_bucket, removed_buckets
from cbt_plugins.run.run_archive import RunArchive

log = logging.getLogger(__name__)

#: of the buckets after one without a reply, for which a command waits minutes
_NOT_ASKED = "not asked for, as there was no reply about an earlier bucket: repeat the undo when all PGs are active"
_STAYS = "bucket %s of this run was not removed: if it exists, remove it with an S3 client"


class RunBucket(NamedTuple):
    """A bucket that a run made: the name in S3, and the name for Ceph's commands ("tenant/name" with a tenant)."""

    name: str
    admin_name: str


def buckets_in(lines: Sequence[Mapping[str, Any]], run_id: str) -> Iterator[RunBucket]:
    """Yield the buckets of a run that are not removed, by its journal.

    A bucket belongs to the run if its name contains the run's id. A bucket that the file names never belongs to the
    run.
    """
    gone = {*removed_buckets(lines)}
    own_names = f"{bucket_name(run_id, '')}-"
    for line in lines:
        if line["event"] != "bucket":
            continue
        name = str(line.get("bucket"))
        admin_name = str(line.get("admin_name") or name)  # a run without Ceph's commands, or of a version before 0.2
        if name not in gone and admin_name.rpartition("/")[2].startswith(own_names):
            gone.add(name)  # one that was made again has two lines
            yield RunBucket(name, admin_name)


def describe_buckets(folder: Path, access: ClusterAccess) -> Iterator[str]:
    """Yield the buckets that `remove_buckets` would remove, each with the number of objects; change nothing.

    Raises OSError.
    """
    lines, is_zone_of_run, not_asked = journal_lines(RunArchive(folder).journal), False, ""
    for bucket in buckets_in(lines, access.run_id):
        if not_asked:
            yield f"bucket {bucket.admin_name} (objects not counted: {not_asked})"
            continue
        if not access.admin:
            log.warning(_STAYS, bucket.name)
            continue
        try:
            stats = access.ceph.bucket(bucket.admin_name, STATS_TIMEOUT)
        except CephError as error:
            not_asked = _NOT_ASKED if isinstance(error, CephTimeout) else ""
            yield f"bucket {bucket.admin_name} (objects not counted: {error})"
            continue
        if stats is not None:
            is_zone_of_run = True
            yield f"bucket {bucket.admin_name} ({stats.objects} objects)"
        elif not (is_zone_of_run or is_gone(lines)):
            log.warning(NOT_SHOWN, bucket.name)


def remove_buckets(folder: Path, access: ClusterAccess) -> Iterator[Optional[str]]:
    """Remove the buckets that the run of a folder made, with their objects; yield None or an error for each bucket.

    Raises JournalError and OSError.
    """
    path = RunArchive(folder).journal
    if not path.exists():
        return
    with contextlib.closing(Journal(path, PRIVATE, anybodys=access.trusted)) as journal:
        journal.mark = partial(undo_seal.mark, run_id=access.run_id)
        not_asked = ""
        for name, admin_name in list(buckets_in(journal.records, access.run_id)):
            if not_asked:
                yield f"bucket {admin_name}: {not_asked}"
                continue
            if not access.admin:
                log.warning(_STAYS, name)
                continue
            try:
                stats = access.ceph.bucket(admin_name, STATS_TIMEOUT)
                if stats is not None:
                    journal.write(SHOWN, bucket=name)
                    remove_bucket(access.ceph, admin_name, stats.objects)
            except CephError as error:
                not_asked = _NOT_ASKED if isinstance(error, CephTimeout) else ""
                yield f"bucket {admin_name}: {error}"
                continue
            if stats is None and not is_gone(journal.records):
                log.warning(NOT_SHOWN, name)
                continue
            journal.write(REMOVED, bucket=name)
            if stats is not None:
                log.info("%s: removed bucket %s", folder, admin_name)
            yield None
