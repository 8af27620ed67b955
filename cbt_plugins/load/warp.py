"""warp 1.3: what to run for a fill, a hybrid load on existing data, or one plain warp operation.

Facts that shape the command lines (warp 1.1 to 1.6):
- `--full --stress --stdout` streams a row per finished request and holds none in memory; without it, memory grows with
  every request, or the numbers are unweighted means of 10-second windows.
- without `--noclear` warp empties the bucket before and after, and `stat --list-existing` empties it in any case.
- `mixed` reads and deletes only what it has uploaded itself; get, stat and delete can list what is there.
- two `delete --list-existing` on one prefix delete the same objects: each driver has its own.
- a failed request is retried ten times without a word: one that hangs outlasts any --duration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, List, Mapping, Sequence
from urllib.parse import urlsplit

from cbt_plugins.load.generator import FOREVER, WARP, Generator, LoadJob, LoadStart
from cbt_plugins.load.worker_groups import WorkerGroup
from cbt_plugins.plan import Bucket, Driver, Mix, Phase, Plan, Sizes

#: seconds from the start of a warp to its first request, listing apart
LEAD = 3.0
#: seconds that requests under way have after the end of the phase; what then hangs is cut off
GRACE = 10.0
#: "ceph version 20.2.4 (7f79...) tentacle (stable)"
_RELEASE = re.compile(r"ceph version (\d+)\.")
#: the first release whose RGW wants every header signed; warp does not sign the Content-Type of its PUTs (20.2.4's log:
#: "Signature rejected: 'content-type' supplied but not in CanonicalHeaders")
_STRICT = 20


def object_size(sizes: Sizes) -> str:
    """Return warp's --obj.size for exact sizes and ranges.

    A bucket "a:0,b:w" of warp's histogram gives sizes a..b-1 with weight w; a range of one byte is one exact size.
    """
    if len(sizes) == 1 and sizes[0][0] == sizes[0][1]:
        return str(sizes[0][0])
    weights: List[str] = []
    last = None
    for size, largest, share in sorted(sizes):
        if size != last:
            weights.append(f"{size}:0")
        weights.append(f"{largest + 1}:{max(1, round(share * 10000))}")
        last = largest + 1
    return ",".join(weights)


@dataclass(frozen=True)
class _Command:
    """One warp command of a driver, and how its job is started."""

    op: str
    role: str
    command: str
    workers: int
    prefix: str
    options: Sequence[str]
    duration: str = "{duration}"
    early: bool = False
    rate_limit: float = 0.0
    respawn: bool = False
    prepares: bool = False
    prepared: int = 0


class WarpJobs(Generator):
    """warp: one process per driver and worker group."""

    program = "warp"
    overlap = 2.0

    @classmethod
    def payload(cls, plan: Plan, versions: Mapping[str, Any]) -> str:
        """Return "unsigned" for RGWs of Ceph 20 and newer, which refuse the signature of a signed payload."""
        rgws = versions.get("rgw") or versions.get("overall") or {}
        releases = [int(match.group(1)) for match in map(_RELEASE.match, rgws) if match]
        return "unsigned" if max(releases, default=0) >= _STRICT else plan.s3.payload

    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        if phase.kind == "fill":
            return self._fill(phase)
        return self._hybrid(phase, start.worker_groups) if phase.kind == "hybrid" else self._plain(phase)

    def _fill(self, phase: Phase) -> List[LoadJob]:
        """Return jobs that write: for a time, for a number of objects, or until they are stopped."""
        assert phase.goal is not None
        goal, share = phase.goal, drop_share(self._plan)
        jobs = []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            siblings = sum(d.bucket == driver.bucket for d in self._plan.drivers)
            drop_workers = max(1, round(driver.workers * share)) if share else 0
            groups = [("keep", max(1, driver.workers - drop_workers), 1.0 - share), ("drop", drop_workers, share)]
            for kind, workers, part in groups:
                if not workers:
                    continue
                extra = ["--obj.size", object_size(bucket.sizes)]
                if goal.objects is not None:
                    # the preparation of `stat` writes a number of objects; `put` knows only a time
                    count = max(workers, round(goal.objects / siblings * part))
                    command, duration = "stat", "1s"
                    extra += ["--objects", str(count)]
                elif goal.duration is not None:
                    command, duration = "put", "{duration}"
                else:
                    command, duration = "put", f"{round(FOREVER)}s"
                prefix = self._prefix(bucket, kind, driver, phase.name)
                warp_command = _Command("PUT", "fill", command, workers, prefix, extra, duration)
                jobs.append(self._job(kind, driver, warp_command))
        return jobs

    def _hybrid(self, phase: Phase, groups: Mapping[str, Sequence[WorkerGroup]]) -> List[LoadJob]:
        """Return worker groups side by side on what is there; `groups` are those of each driver."""
        jobs = []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            for group in groups[driver.id]:
                keep = "" if bucket.existing else "keep"
                drop = self._prefix(bucket, "drop", driver, "")
                existing = ["--list-existing", "--objects", str(self._plan.read_objects)]
                writes = ["--obj.size", object_size(bucket.sizes)]
                command, prefix, options = {
                    "read": ("get", keep, existing),
                    "stat": ("stat", keep, existing),
                    "delete": ("delete", drop, [*existing, "--batch", "1"]),
                    "put-keep": ("put", self._prefix(bucket, "keep", driver, phase.name), writes),
                    "put-drop": ("put", self._prefix(bucket, "drop", driver, phase.name), writes),
                }[group.role]
                early = group.role in ("read", "stat")
                warp_command = _Command(
                    group.op,
                    group.role,
                    command,
                    group.workers,
                    prefix,
                    options,
                    f"{round(FOREVER)}s" if early else "{duration}",
                    early=early,
                    rate_limit=group.rate_limit,
                    respawn=group.role == "delete",
                )
                jobs.append(self._job(group.role, driver, warp_command))
        return jobs

    def _plain(self, phase: Phase) -> List[LoadJob]:
        """Return one warp operation under its own name, on objects that it makes itself."""
        assert phase.warp is not None
        op, jobs = phase.warp, []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            options, prepared = ["--obj.size", object_size(bucket.sizes)], 0
            if op.objects is not None:
                options += ["--objects", str(op.objects)]
            if op.op == "mixed":
                options += mix_options(phase.mix or {})
                objects = op.objects if op.objects is not None else 2500
                prepared = -(-objects // driver.workers) * driver.workers  # warp rounds up
            for name, value in op.args.items():
                options.append(f"--{name}={value}" if value != "" else f"--{name}")
            several = op.op in ("mixed", "versioned", "multipart")
            prefix = self._prefix(bucket, phase.name, driver, phase.name)
            limit = float(op.args.get("rps-limit") or 0.0)
            named = "MIXED" if several else op.op.upper()
            warp_command = _Command(named, "warp", op.op, driver.workers, prefix, options,
                                    prepares=op.op != "put", prepared=prepared)  # fmt: skip
            jobs.append(replace(self._job(op.op, driver, warp_command), rate_limit=limit))
        return jobs

    def _prefix(self, bucket: Bucket, kind: str, driver: Driver, label: str) -> str:
        parts = [f"cbtp-{self._run_id}"] if bucket.existing else []
        return "/".join([*parts, kind, driver.id, *([label] if label else [])])

    def _job(self, name: str, driver: Driver, warp_command: _Command) -> LoadJob:
        s3 = self._plan.s3
        bucket = self._names[driver.bucket]
        argv = [WARP, warp_command.command, "--no-color", "--full", "--stress", "--stdout", "--noclear"]
        urls = self.urls_of(driver)
        select = "weighed" if s3.host_select == "one" else s3.host_select
        argv += ["--host", ",".join(urlsplit(u).netloc for u in urls), "--host-select", select]
        argv += ["--lookup", "path" if s3.lookup == "path" else "host", "--region", s3.region]
        argv += ["--bucket", bucket, "--concurrent", str(warp_command.workers), "--duration", warp_command.duration]
        if warp_command.prefix:
            argv += ["--prefix", warp_command.prefix]
        if urlsplit(s3.urls[0]).scheme == "https":
            argv += ["--tls"] + ([] if s3.verify_tls else ["--insecure"])
        if s3.payload == "unsigned":
            argv += ["--disable-sha256-payload"]
        if warp_command.rate_limit:
            argv += ["--rps-limit", f"{warp_command.rate_limit:g}"]
        return LoadJob(
            id=f"{driver.id}-{name}",
            driver=driver.id,
            node=driver.node,
            op=warp_command.op,
            role=warp_command.role,
            bucket=bucket,
            prefix=warp_command.prefix,
            sizes=self._buckets[driver.bucket].sizes,
            workers=warp_command.workers,
            urls=urls,
            argv=(*argv, *warp_command.options),
            start="early" if warp_command.early else "go",
            lead=LEAD,
            grace=GRACE,
            rate_limit=warp_command.rate_limit,
            respawn=warp_command.respawn,
            prepares=warp_command.prepares,
            prepared=warp_command.prepared,
        )


def mix_options(mix: Mix) -> List[str]:
    """Return warp mixed's distribution options: all four, since warp's own defaults are another mix."""
    options: List[str] = []
    for op in ("GET", "PUT", "STAT", "DELETE"):
        options += [f"--{op.lower()}-distrib", f"{mix.get(op, 0.0):g}"]
    return options


def drop_share(plan: Plan) -> float:
    """Return the share of a fill (0..0.5) that later phases by warp may delete.

    d / (p + d) of the mix that deletes most; more when the fill is short beside a phase, whose DELETEs would run dry:
    a hybrid load makes up to three times the requests of a fill. Long phases list again what they have written
    themselves, so ten minutes of a phase are enough.
    """
    filled = max((p.goal.duration or 0.0 for p in plan.phases if p.goal), default=0.0)
    shares = [0.0]
    for phase in plan.phases:
        deletes = phase.kind == "hybrid" and phase.engine == "warp"
        delete = (phase.mix or {}).get("DELETE", 0.0) if deletes else 0.0
        if phase.mix and delete:
            shares.append(delete / (phase.mix.get("PUT", 0.0) + delete))
            if filled:
                shares.append(3.0 * delete / 100.0 * min(phase.duration or 0.0, 600.0) / filled)
    return min(0.5, max(shares))
