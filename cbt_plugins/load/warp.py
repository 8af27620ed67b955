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

from typing import Dict, List, Sequence
from urllib.parse import urlsplit

from cbt_plugins.load.jobs import WARP, Job
from cbt_plugins.load.split import Lane
from cbt_plugins.plan import Bucket, Driver, Mix, Phase, Plan, Sizes

#: seconds from the start of a warp to its first request, listing apart
LEAD = 3.0
#: seconds that requests under way have after the end of the phase; what then hangs is cut off
GRACE = 10.0
#: stands for "no end of its own": longer than any phase
FOREVER = 30 * 86400.0


def object_size(sizes: Sizes) -> str:
    """warp's --obj.size for exact sizes and ranges.

    A bucket "a:0,b:w" of warp's histogram gives sizes a..b-1 with weight w; a range of one byte is one exact size.
    """
    if len(sizes) == 1 and sizes[0][0] == sizes[0][1]:
        return str(sizes[0][0])
    cells: List[str] = []
    last = None
    for size, largest, share in sorted(sizes):
        if size != last:
            cells.append(f"{size}:0")
        cells.append(f"{largest + 1}:{max(1, round(share * 10000))}")
        last = largest + 1
    return ",".join(cells)


class WarpJobs:
    """Makes the jobs of a plan's phases. `names` maps Bucket.key to the name of the real bucket."""

    def __init__(self, plan: Plan, names: Dict[str, str], run_id: str) -> None:
        self._plan = plan
        self._names = names
        self._run_id = run_id
        self._buckets = {b.key: b for b in plan.buckets}

    def fill(self, phase: Phase, label: str) -> List[Job]:
        """Jobs that write: for a time, for a number of objects, or until they are stopped."""
        assert phase.goal is not None
        goal, share = phase.goal, drop_share(self._plan)
        jobs = []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            siblings = sum(d.bucket == driver.bucket for d in self._plan.drivers)
            drop_workers = max(1, round(driver.workers * share)) if share else 0
            lanes = [("keep", max(1, driver.workers - drop_workers), 1.0 - share), ("drop", drop_workers, share)]
            for kind, workers, part in lanes:
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
                prefix = self._prefix(bucket, kind, driver, label)
                jobs.append(
                    self._job(f"{driver.id}-{kind}", driver, "PUT", "fill", command, workers, prefix, extra, duration)
                )
        return jobs

    def hybrid(self, phase: Phase, lanes: Dict[str, Sequence[Lane]], label: str) -> List[Job]:
        """Side by side on what is there: `lanes` says per driver which loops there are."""
        jobs = []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            for lane in lanes[driver.id]:
                keep = "" if bucket.existing else "keep"
                drop = self._prefix(bucket, "drop", driver, "")
                existing = ["--list-existing", "--objects", str(self._plan.read_objects)]
                command, prefix, extra = {
                    "read": ("get", keep, existing),
                    "stat": ("stat", keep, existing),
                    "delete": ("delete", drop, [*existing, "--batch", "1"]),
                    "put-keep": ("put", self._prefix(bucket, "keep", driver, label), []),
                    "put-drop": ("put", self._prefix(bucket, "drop", driver, label), []),
                }[lane.role]
                early = lane.role in ("read", "stat")
                jobs.append(
                    self._job(
                        f"{driver.id}-{lane.role}",
                        driver,
                        lane.op,
                        lane.role,
                        command,
                        lane.workers,
                        prefix,
                        extra if extra else ["--obj.size", object_size(bucket.sizes)],
                        f"{round(FOREVER)}s" if early else "{duration}",
                        early=early,
                        rate_limit=lane.rate_limit,
                        respawn=lane.role == "delete",
                    )
                )
        return jobs

    def plain(self, phase: Phase, label: str) -> List[Job]:
        """One warp operation under its own name, on objects that it makes itself."""
        assert phase.warp is not None
        op, jobs = phase.warp, []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            extra, prepared = ["--obj.size", object_size(bucket.sizes)], 0
            if op.objects is not None:
                extra += ["--objects", str(op.objects)]
            if op.op == "mixed":
                extra += mix_options(phase.mix or {})
                objects = op.objects if op.objects is not None else 2500
                prepared = -(-objects // driver.workers) * driver.workers  # warp rounds up
            for name, value in op.args.items():
                extra += [f"--{name}", value] if value != "" else [f"--{name}"]
            jobs.append(
                self._job(
                    f"{driver.id}-{op.op}",
                    driver,
                    "MIXED" if op.op in ("mixed", "versioned", "multipart") else op.op.upper(),
                    "warp",
                    op.op,
                    driver.workers,
                    self._prefix(bucket, phase.name, driver, label),
                    extra,
                    "{duration}",
                    prepares=op.op != "put",
                    prepared=prepared,
                )
            )
        return jobs

    def _prefix(self, bucket: Bucket, kind: str, driver: Driver, label: str) -> str:
        parts = [f"cbtp-{self._run_id}"] if bucket.existing else []
        return "/".join([*parts, kind, driver.id, *([label] if label else [])])

    def _job(
        self,
        job_id: str,
        driver: Driver,
        op: str,
        role: str,
        command: str,
        workers: int,
        prefix: str,
        extra: Sequence[str],
        duration: str,
        early: bool = False,
        rate_limit: float = 0.0,
        respawn: bool = False,
        prepares: bool = False,
        prepared: int = 0,
    ) -> Job:
        s3 = self._plan.s3
        bucket = self._names[driver.bucket]
        argv = [WARP, command, "--no-color", "--full", "--stress", "--stdout", "--noclear"]
        argv += ["--host", ",".join(urlsplit(u).netloc for u in s3.urls), "--host-select", s3.host_select]
        argv += ["--lookup", "path" if s3.lookup == "path" else "host", "--region", s3.region]
        argv += ["--bucket", bucket, "--concurrent", str(workers), "--duration", duration]
        if prefix:
            argv += ["--prefix", prefix]
        if urlsplit(s3.urls[0]).scheme == "https":
            argv += ["--tls"] + ([] if s3.verify_tls else ["--insecure"])
        if s3.payload == "unsigned":
            argv += ["--disable-sha256-payload"]
        if rate_limit:
            argv += ["--rps-limit", f"{rate_limit:g}"]
        return Job(
            id=job_id,
            driver=driver.id,
            node=driver.node,
            op=op,
            role=role,
            bucket=bucket,
            prefix=prefix,
            sizes=self._buckets[driver.bucket].sizes,
            workers=workers,
            urls=s3.urls,
            argv=(*argv, *extra),
            start="early" if early else "go",
            lead=LEAD,
            grace=GRACE,
            rate_limit=rate_limit,
            respawn=respawn,
            prepares=prepares,
            prepared=prepared,
        )


def mix_options(mix: Mix) -> List[str]:
    """warp mixed's distribution options; all four, for warp's own defaults are another mix."""
    options: List[str] = []
    for op in ("GET", "PUT", "STAT", "DELETE"):
        options += [f"--{op.lower()}-distrib", f"{mix.get(op, 0.0):g}"]
    return options


def drop_share(plan: Plan) -> float:
    """Share of a fill (0..0.5) that later phases by warp may delete; cbt-load deletes only what it wrote itself.

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
