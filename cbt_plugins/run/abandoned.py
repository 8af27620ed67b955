"""Buckets of a run that nobody resumes: removed by what its archive alone says, as `cbt-tools undo --data` does."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import List

from cbt_plugins.archive_files import PRIVATE
from cbt_plugins.faults import ClusterAccess, FaultError, seal
from cbt_plugins.journal import Journal
from cbt_plugins.run.buckets import REMOVED, STATS_TIMEOUT, remove_bucket
from cbt_plugins.run.context import RunArchive


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
