"""Buckets of a run: made with names of its own, counted before and after each phase, removed if the run made them."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shlex
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from cbt_plugins.cluster.ceph import BucketStats, Ceph, CephError, CephTimeout
from cbt_plugins.cluster.ceph_programs import readable
from cbt_plugins.cluster.fan_out import ask_at_once
from cbt_plugins.cluster.stream import NodeProgram
from cbt_plugins.formatting import several
from cbt_plugins.journal import Journal
from cbt_plugins.load.generator import JobEnd, LoadJob
from cbt_plugins.plan import Plan
from cbt_plugins.polling import Clock, insist, wait_until
from cbt_plugins.run.context import LOAD_BEGUN, RunContext
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.s3_key_sources import renewed_keys

log = logging.getLogger(__name__)

#: events of the journal: the removal of a bucket was seen; before its removal, that radosgw-admin shows the bucket
REMOVED, SHOWN = "bucket-removed", "bucket-shown"
#: objects per second that even the slowest cluster removes
REMOVE_RATE = 20.0
#: seconds for the statistics of a bucket, and for those while a fault is in force: then they may never come
STATS_TIMEOUT, FAULTY_STATS_TIMEOUT = 120.0, 15.0
#: buckets that are asked for one by one, side by side: sshd drops connections above ten that begin at once
FEW = 4
#: counts that are taken until they balance, and seconds between them; of a difference that requests which were in
#: flight when the load ended would explain, more are taken
SETTLES, LATE_SETTLES, SETTLE = 10, 60, 1.0
#: counts without an answer after which no more are taken: each may take as long as its timeout
UNANSWERED = 3
#: removes buckets through S3, from a client
AGENT = Path(__file__).with_name("bucket_agent.py")
#: warning about a bucket that the run's load has used
NOT_SHOWN = (
    "bucket %s of this run was not removed: radosgw-admin does not show it, so it may be in another realm or zone "
    "(radosgw-admin_cmd: in cluster:); if it exists, remove it with an S3 client"
)
#: error about an existing bucket
_MISSING = "bucket {!r} does not exist: create it, or remove `existing: true`"
#: seconds without a message after which the removal is given up: it repeats a request for some minutes
REMOVAL_SILENCE = 900.0
#: removed objects of a bucket from which on the log says how many there are: then at twice as many, and so on
FIRST_LOGGED = 10_000
#: seconds by which the rows that it prints may be late, at most
UNPRINTED = 1.0


@dataclass(frozen=True)
class ObjectCount:
    """Object accounting of one bucket over one phase: before + PUT - DELETE + prepared = after.

    cbt-load knows which of its PUTs made an object and which of its DELETEs removed one; only these count here, but
    where versions are kept each PUT and no DELETE.
    """

    bucket: str
    before: int
    put: int
    delete: int
    prepared: int  # objects that `warp mixed` writes before its first row
    after: int
    expected: int
    in_flight: int  # requests of unknown effect: cut off, or failed after they were sent
    ok: bool
    at_end: int = 0  # requests that were in flight when the load ended, at most: the workers that write

    @property
    def excess(self) -> int:
        """Return the objects that are there beyond the expected ones; negative: that are missing."""
        return self.after - self.expected

    @property
    def is_late(self) -> bool:
        """Tell whether requests that were in flight when the load ended explain the difference."""
        return not self.ok and abs(self.excess) <= self.at_end

    @property
    def difference(self) -> str:
        """Return the difference in words, with all that was counted."""
        surplus = f"{several(abs(self.excess), 'object')} {'more' if self.excess > 0 else 'fewer'} than counted"
        sums = f"{self.before} + {self.put} PUT - {self.delete} DELETE + {self.prepared} prepared = {self.expected}"
        text = f"{surplus}: {sums} objects expected, found {self.after}"
        text += f"; {several(self.in_flight, 'request')} without a known effect" if self.in_flight else ""
        flying = f"at most {several(self.at_end, 'request')} in flight when the load ended"
        return f"{text}; {flying}" if self.at_end else text

    def record(self) -> Dict[str, object]:
        """Return the numbers of the bucket for the archive."""
        return asdict(self)


def removed_buckets(records: Iterable[Mapping[str, Any]]) -> List[str]:
    """Return the buckets of a run that were removed and not made again, by its journal."""
    events = ("bucket", REMOVED)
    newest = {str(record.get("bucket")): record["event"] for record in records if record["event"] in events}
    return [name for name, event in newest.items() if event == REMOVED]


def is_gone(records: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a bucket that radosgw-admin does not show is removed, or was never made, by a run's journal.

    If clients made load and radosgw-admin has shown no bucket of the run, it may work on another zone than the run.
    """
    events = {record["event"] for record in records}
    return SHOWN in events or LOAD_BEGUN not in events


class Buckets:
    """Names, existence and counts of the buckets; the journal has a "bucket" record before each bucket is made."""

    def __init__(self, plan: Plan, run_id: str, ceph: Ceph, journal: Journal) -> None:
        self._ceph = ceph
        self._journal = journal
        self.names: Dict[str, str] = {bucket.key: bucket.name(run_id) for bucket in plan.buckets}
        self._foreign = {b.key for b in plan.buckets if b.existing}
        self._s3 = plan.s3
        self._users = {self.names[b.key]: b.user for b in plan.buckets}
        self._keep_versions = plan.versioned
        self._border_counts: Optional[Dict[str, int]] = None
        self.untold = ""  # why objects were not counted

    @property
    def versioned(self) -> List[str]:
        """Buckets that keep all versions."""
        return self.own if self._keep_versions else []

    @property
    def own(self) -> List[str]:
        """Buckets that this run was about to make, by the journal; names without the run's id are ignored."""
        noted = {record["bucket"] for record in self._journal.all("bucket")}
        return [name for key, name in self.names.items() if key not in self._foreign and name in noted]

    def _claimed(self) -> Set[str]:
        """Return our buckets that no later line of the journal removes."""
        return {*self.own} - {*removed_buckets(self._journal.records)}

    def claim(self) -> None:
        """Check before the first load: `existing` buckets must exist, the run's own must not. Raises CephError.

        warp makes a missing bucket. A bucket with our name that this run has not made is never touched.
        """
        claimed = self._claimed()
        for key, name in self.names.items():
            if key in self._foreign:
                if self._stats(name) is None:
                    raise CephError(_MISSING.format(name))
            elif name not in claimed:
                if self._stats(name) is not None:
                    raise CephError(f"bucket {name!r} exists, but this run did not make it: nothing was changed")
                admin_name = self._s3.admin_name(name, self._users[name])
                self._journal.write("bucket", bucket=name, admin_name=admin_name)

    def counts_if_told(self, timeout: float = STATS_TIMEOUT) -> Dict[str, int]:
        """Return `counts`; {} if they are unavailable, with the reason in `untold`."""
        try:
            return self.counts(timeout)
        except CephError as error:
            log.warning("objects are not counted: %s", error)
            self.untold = str(error)
            return {}

    def counts(self, timeout: float = STATS_TIMEOUT) -> Dict[str, int]:
        """Return bucket name -> objects. Temporary errors, such as a lost connection, are retried. Raises CephError."""
        return insist(partial(self._counts, timeout), CephError, clear=(CephTimeout,))

    def _counts(self, timeout: float) -> Dict[str, int]:
        """Ask for all buckets of a user at once, then one by one, a few at a time, for those without an answer."""
        counts: Dict[str, int] = {}
        by_user: Dict[str, List[str]] = {}
        for name, user in self._users.items():
            by_user.setdefault(user or self._s3.user or "", []).append(name)
        for user, names in by_user.items():
            if user and len(names) > FEW:
                user_buckets = self._buckets_of(user, timeout)
                counts.update((name, user_buckets[name].objects) for name in names if name in user_buckets)
        left = [name for name in self.names.values() if name not in counts]
        for first in range(0, len(left), FEW):
            lot = left[first : first + FEW]
            counts.update(zip(lot, ask_at_once(*(partial(self._objects, name, timeout) for name in lot))))
        return {name: counts[name] for name in self.names.values()}

    def _buckets_of(self, user: str, timeout: float) -> Dict[str, BucketStats]:
        try:
            return self._ceph.buckets_of(user, timeout)
        except CephTimeout:
            raise
        except CephError as error:  # another bucket of the user may be damaged: ask for each of ours
            log.info("%s", error)
            return {}

    def keep(self, counts: Mapping[str, int]) -> None:
        """Remember the counts at the end of a phase: the next one begins with them. Others write to existing buckets.
        """
        self._border_counts = None if self._foreign else dict(counts) or None

    def kept(self) -> Optional[Dict[str, int]]:
        """Return the counts at the border between two phases, once; None if they must be taken."""
        counts, self._border_counts = self._border_counts, None
        return counts

    def _objects(self, name: str, timeout: float) -> int:
        stats = self._stats(name, timeout)
        return stats.objects if stats else 0

    def _stats(self, name: str, timeout: float = STATS_TIMEOUT) -> Optional[BucketStats]:
        return self._ceph.bucket(self._s3.admin_name(name, self._users[name]), timeout)

    def empty(self, objects: Mapping[str, int]) -> None:
        """Remove our own buckets before a fill is repeated. `existing` buckets are not touched."""
        for key, name in self.names.items():
            if key not in self._foreign and objects.get(name, 0):
                self._remove(name, objects[name])

    def remove(self) -> None:
        """Remove the buckets that this run made, with their objects. Raises CephError.

        The journal records a removal only after it was seen.
        """
        for name in self.own:
            stats = self._stats(name)
            if stats is not None:
                self._remove(name, stats.objects)
            elif not is_gone(self._journal.records):
                log.warning(NOT_SHOWN, name)
                continue
            self._journal.write(REMOVED, bucket=name)

    def _remove(self, name: str, objects: int) -> None:
        assert name in self.own, name
        self._journal.write(SHOWN, bucket=name)
        remove_bucket(self._ceph, self._s3.admin_name(name, self._users[name]), objects)


class BucketsByS3(Buckets):
    """Buckets of a run without Ceph's commands: a client removes them through S3.

    Their objects are not counted: a listing of all objects would take as long as a phase.
    """

    def __init__(self, run: RunContext, ready: Ready) -> None:
        super().__init__(run.plan, run.run_id, run.ceph, run.journal)
        self._remote, self._node, self._ready = run.remote, run.clients[0], ready

    def claim(self) -> None:
        """Check that `existing` buckets exist; write our buckets into the journal. Raises CephError.

        No other run can have this run's random name.
        """
        existing = [name for key, name in self.names.items() if key in self._foreign]
        for message in self._order("existing buckets could not be looked for", look_for=existing):
            if "missing" in message:
                raise CephError(_MISSING.format(message["missing"]))
        claimed = self._claimed()
        for key, name in self.names.items():
            if key not in self._foreign and name not in claimed:
                self._journal.write("bucket", bucket=name)

    def counts(self, timeout: float = STATS_TIMEOUT) -> Dict[str, int]:
        """Return {}: nothing is counted."""
        return {}

    def empty(self, objects: Mapping[str, int]) -> None:
        """Remove our own buckets before a fill is repeated, whatever they hold."""
        self._purge(self.own)

    def remove(self) -> None:
        """Remove the buckets that this run made, with their objects. Raises CephError."""
        for name in self._purge(self.own):
            self._journal.write(REMOVED, bucket=name)

    def _purge(self, names: Sequence[str]) -> Sequence[str]:
        """Remove buckets and all that is in them; return their names. Raises CephError."""
        if names:
            log.info("removing %s through S3", ", ".join(names))
        self._order("some buckets of the run were not removed", remove=names)
        return names

    def _order(self, error: str, **names: Sequence[str]) -> List[Dict[str, Any]]:
        """Have a client do something with buckets; return its messages. Raises CephError, which begins with `error`."""
        if not any(names.values()):
            return []
        agent, s3 = NodeProgram(AGENT), self._s3
        order = {
            "url": s3.urls[0],
            "region": s3.region,
            "keys": list(renewed_keys(s3, self._ready.keys, self._ceph).all),
            "verify": s3.verify_tls,
            "lookup": s3.lookup,
            "authority": self._ready.authority,
            "look_for": [],
            "remove": [],
            **{kind: list(buckets) for kind, buckets in names.items()},
        }
        messages: List[Dict[str, Any]] = []
        failed, last, logged_from = [], "none", FIRST_LOGGED
        line = f"exec python3 {shlex.join(agent.words())}"
        with contextlib.closing(self._remote.stream([self._node], line)) as stream:
            stream.send(agent.text)
            stream.send(json.dumps(order) + "\n")
            for _, last in stream.lines_until_silent(REMOVAL_SILENCE):
                with contextlib.suppress(ValueError):
                    message = json.loads(last)
                    if not isinstance(message, dict):
                        continue  # a login that prints
                    failed += [message["failed"]] if "failed" in message else []
                    if "end" in message and not failed:
                        return messages
                    if "objects" not in message:
                        messages.append(message)
                        logged_from = FIRST_LOGGED
                    elif message["objects"] >= logged_from:
                        log.info("removed %s of a bucket so far", several(message["objects"], "object"))
                        logged_from = 2 * message["objects"]
            silence = f"no message for {REMOVAL_SILENCE:g} s" if stream.open else "the connection ended"
        why = "; ".join(failed) or " | ".join(stream.messages[-2:]) or f"{silence}; last message: {last}"
        raise CephError(f"{self._node}: {error}: {why}")


def remove_bucket(ceph: Ceph, admin_name: str, objects: int) -> None:
    """Remove a bucket ("tenant/name" with a tenant) with its objects. Raises CephError unless it is seen to be gone."""
    log.info("removing bucket %s (%d objects)", admin_name, objects)
    ceph.remove_bucket(admin_name, timeout=3600.0 + objects / REMOVE_RATE)
    if ceph.bucket(admin_name, STATS_TIMEOUT) is not None:
        command = f"{readable(ceph.admin)} bucket rm --bucket={admin_name} --purge-objects"
        raise CephError(f"bucket {admin_name} still exists after its removal: run {command}")


def account(
    before: Mapping[str, int],
    after: Mapping[str, int],
    jobs: Sequence[LoadJob],
    ends: Mapping[str, JobEnd],
    versioned: Collection[str] = (),
) -> List[ObjectCount]:
    """Return the object accounting of each bucket over a phase, from the counts of its jobs.

    RGW counts every version of an object in the buckets `versioned`, and no delete marker.
    """
    accounting = []
    for bucket, was in before.items():
        put = delete = prepared = unseen = at_end = 0
        for job in jobs:
            end: Optional[JobEnd] = ends.get(job.id)
            if end is not None and end.driver_end is not None:
                spaces = [space for space in end.driver_end["spaces"] if space["bucket"] == bucket]
                at_end += job.workers if any(space["created"] or space["removed"] for space in spaces) else 0
                for space in spaces:
                    put += space["created"] + (space["overwritten"] if bucket in versioned else 0)
                    delete += 0 if bucket in versioned else space["removed"]
                    # seen at the object: may be missing in the index yet, or be a change of an earlier phase; or a
                    # failed try of a PUT, which may have made a version
                    unseen += space["unknown"] + space.get("seen", 0)
                continue
            if job.bucket != bucket:
                continue
            if end is None:
                unseen += job.workers
                continue
            for op, counts in end.counts.items():
                if op == "PUT":
                    put, unseen = put + counts.good, unseen + counts.failed
                elif op == "DELETE":
                    delete, unseen = delete + counts.good, unseen + counts.failed
            prepared += job.prepared if end.counts else 0
            if job.op not in ("GET", "STAT"):
                unseen += _without_row(job, end)
                at_end += job.workers
        expected = was + put - delete + prepared
        ok = abs(after[bucket] - expected) <= unseen
        numbers = (was, put, delete, prepared, after[bucket], expected, unseen)
        accounting.append(ObjectCount(bucket, *numbers, ok, at_end))
    return accounting


def _without_row(job: LoadJob, end: JobEnd) -> int:
    """Return how many of warp's requests may have no row.

    warp 1.3.1 may end before it has printed the last row of a worker: seen were one in about every second run of `put`,
    and two of four in `mixed` on a busy node. All workers of one pass are allowed, and one of each other pass: a job
    that is started again and again would else hide lost objects. A warp that is stopped leaves out its requests in
    flight, and finished requests that it has not printed yet; on a busy node these are some seconds' worth.
    """
    if not (end.cut or end.signal):
        return job.workers + end.passes - 1 if end.passes else 0
    if end.first_row is None or end.last_row is None or end.ended is None or end.last_row <= end.first_row:
        return job.workers
    rate = sum(counts.good for counts in end.counts.values()) / (end.last_row - end.first_row)
    return job.workers + math.ceil(rate * min(UNPRINTED, max(0.0, end.ended - end.last_row)))


def settled(
    take: Callable[[], Dict[str, int]],
    counts: Dict[str, int],
    accounting_of: Callable[[Mapping[str, int]], List[ObjectCount]],
) -> Dict[str, int]:
    """Return the counts once they are as expected; or close to it and twice the same; or after SETTLES counts.

    Requests that were cut off may still take effect, and RGW answers before the bucket index has the change: on a
    busy machine long before. So counts that requests in flight at the end of the load explain are taken LATE_SETTLES
    times. A count without an answer, {}, changes nothing that an earlier count has shown; UNANSWERED of them end it.
    """
    attempts: List[Dict[str, int]] = []
    looks: List[Dict[str, int]] = []

    def count() -> Dict[str, int]:
        attempts.append(take() if attempts else counts)
        if attempts[-1] or not looks:
            looks.append(attempts[-1])
        return looks[-1]

    def is_settled(now: Mapping[str, int]) -> bool:
        if attempts.count({}) >= UNANSWERED:
            return True
        accounting = accounting_of(now)
        if all(object_count.after == object_count.expected for object_count in accounting):
            return True
        wrong = [object_count for object_count in accounting if not object_count.ok]
        is_late = bool(wrong) and all(object_count.is_late for object_count in wrong)
        if len(attempts) > SETTLES and not is_late:
            return True
        return looks[-2:-1] == [now] and not wrong

    # counts, not seconds, are limited: a count of large buckets may take longer than all pauses
    return wait_until(count, LATE_SETTLES, SETTLE, met=is_settled, clock=Clock(lambda: max(0, len(attempts) - 1)))
