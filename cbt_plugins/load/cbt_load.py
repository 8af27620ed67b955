"""cbt-load: one process per driver and phase, on objects whose names are numbers (docs/CBT-LOAD.md).

Each driver has a set of objects of its own in every bucket it works on, and knows which of them exist: from the state
that it left after the phase before, or, when a phase was broken off, from listing them again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Tuple

from cbt_plugins.load.generator import CBT_LOAD, FOLDER, FOREVER, Generator, LoadJob, LoadStart, Memory
from cbt_plugins.plan import Bucket, Driver, Keys, Phase, Sizes, op_of_work

#: seconds that requests under way have after the end of the phase
GRACE = 5.0
#: seconds for the objects whose fate is not known to be looked at, and for the last words
LAST_WORDS = 15.0
#: what an operation takes when the plan does not say
_DEFAULT = {"PUT": Keys("new"), "MULTIPART": Keys("new")}
#: every number that there can be, each once
_EACH = Keys(f"r(1,{1 << 36})")
_READS = ("GET", "STAT", "LIST")


class CbtLoadJobs(Generator):
    """cbt-load: one process per driver, which mixes all operations."""

    program = "cbt-load"
    version = "version"
    begins_at_go = True
    deletes = True
    takes = ("rate", "arrivals", "ramp", "warmup", "keys", "roles", "works")

    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return a job per driver; with a rate an open loop, which the drivers share."""
        make = {"fill": self._fill, "hybrid": self._mix, "verify": self._verify, "delete": self._delete}[phase.kind]
        drivers = [replace(d, workers=start.workers or d.workers) for d in self._plan.drivers]
        workers = sum(d.workers for d in drivers)
        jobs = []
        for number, driver in enumerate(drivers):
            share = start.rate * driver.workers / workers if start.rate else 0.0
            spec = {**self._common(driver, start.memory), **make(phase, driver)}
            spec["seed"] = self._plan.cbt_load.seed * 10_000 + number
            spec["job"] = f"{driver.id}-{phase.kind}"
            if not phase.works:
                spec.update(workers=driver.workers, rate=share)
            jobs.append(self._job(phase, driver, spec, start.memory))
        return jobs

    def _job(self, phase: Phase, driver: Driver, spec: Dict[str, Any], memory: Memory) -> LoadJob:
        state = memory.states.get(driver.id)
        spec["state_in"] = f"{FOLDER}/spec/{spec['job']}.state" if state else ""
        loads = spec.get("works") or [spec]
        ops = [op_of_work(load.get("name", ""), op["op"]) for load in loads for op in load["ops"]]
        return LoadJob(
            id=spec["job"],
            driver=driver.id,
            node=driver.node,
            op=ops[0] if len(ops) == 1 else "MIXED",
            role="fill" if phase.kind == "fill" else "cbt-load",
            bucket=self._names[driver.bucket],
            prefix=self._prefix(driver, self._buckets[driver.bucket]),
            sizes=self._sizes(driver),
            workers=sum(load["workers"] for load in loads),
            urls=self.urls_of(driver),
            argv=(CBT_LOAD, "run", f"{FOLDER}/spec/{spec['job']}.json", "--go", f"{FOLDER}/go"),
            start="self",
            grace=GRACE + self._plan.cbt_load.deadline + LAST_WORDS,
            rate_limit=sum(load["rate"] for load in loads),
            spec=spec,
            state=state,
        )

    def _common(self, driver: Driver, memory: Memory) -> Dict[str, Any]:
        s3, options = self._plan.s3, self._plan.cbt_load
        spaces: List[Dict[str, Any]] = []
        make = driver.id not in memory.states
        for key in driver.buckets:
            bucket = self._buckets[key]
            prefix = self._prefix(driver, bucket)
            own = {"name": key, "bucket": self._names[key], "prefix": prefix, "numbered": True}
            if bucket.user:  # the number of its keys in `environment`
                own["keys"] = str(2 + self._plan.users.index(bucket.user))
            own["objects"] = self._part(bucket.objects, driver, key) if bucket.objects else 0
            spaces.append({**own, "sizes": [list(size) for size in bucket.sizes], "rebuild": memory.stale})
            if self._listed(bucket):
                old = {"name": f"{key}, listed", "bucket": self._names[key], "numbered": False}
                selection = {"prefix": "" if bucket.existing else "keep/", "exclude": f"cbtp-{self._run_id}/"}
                spaces.append({**old, **selection, "limit": self._plan.read_objects})
        return {
            "version": 1,
            "hosts": list(self.urls_of(driver)),
            "host_select": "weighed" if s3.host_select == "one" else s3.host_select,
            "region": s3.region,
            "lookup": "path" if s3.lookup == "path" else "host",
            "verify_tls": s3.verify_tls,
            "payload": s3.payload,
            "encryption": s3.sse.partition(":")[0],
            "kms_key": s3.sse.partition(":")[2],
            "versioned": self._plan.versioned and make,
            "deadline": options.deadline,
            "retries": options.retries,
            "grace": GRACE,
            "list_keys": options.list_keys,
            "part_size": options.part_size,
            "compressible": options.compressible,
            "verify": options.verify,
            # asked for once: while nodes are down nobody may be able to answer, and the load has to begin all the same
            "make_buckets": make,
            "state_out": f"{FOLDER}/state/{driver.id}.state",
            "spaces": spaces,
        }

    def _fill(self, phase: Phase, driver: Driver) -> Dict[str, Any]:
        assert phase.goal is not None
        goal = phase.goal
        if goal.objects is not None:
            end: Dict[str, Any] = {"objects": self._part(goal.objects, driver, driver.bucket)}
        else:  # the run stops a fill by share when the cluster is full enough
            end = {"duration": FOREVER if goal.duration is None else goal.duration}
        return {"sets_n": True, **end, "ops": [self._op("PUT", 100.0, Keys("new"), driver, driver.buckets)]}

    def _part(self, objects: int, driver: Driver, bucket: str) -> int:
        """Return how many of a bucket's objects a driver writes: at least one."""
        drivers = [d.id for d in self._plan.drivers if bucket in d.buckets]
        quotient, remainder = divmod(objects, len(drivers))
        return max(1, quotient + (drivers.index(driver.id) < remainder))

    def _mix(self, phase: Phase, driver: Driver) -> Dict[str, Any]:
        duration = phase.ramp + phase.warmup + (phase.duration or 0.0)
        loads = {"duration": duration, "ramp": phase.ramp}
        if not phase.works:
            return {**loads, "arrivals": phase.arrivals, "ops": self._ops(phase, driver)}
        drivers = len(self._plan.drivers)
        works = [
            {
                "name": work.name,
                "workers": work.workers,
                "rate": (work.rate or 0.0) / drivers,
                "arrivals": work.arrivals,
                "ops": self._ops(part, driver),
            }
            for work, part in zip(phase.works, phase.apart)
        ]
        return {**loads, "works": works}

    def _ops(self, phase: Phase, driver: Driver) -> List[Dict[str, Any]]:
        assert phase.mix is not None
        ops = []
        for op, share in phase.mix.items():
            keys = phase.keys.get(op) or _DEFAULT.get(op) or Keys("live")
            buckets = [b for b in phase.roles.get(op) or driver.buckets if b in driver.buckets]
            ops.append(self._op(op, share, keys, driver, buckets))
        return ops

    def _verify(self, phase: Phase, driver: Driver) -> Dict[str, Any]:
        return {"verify": True, "ops": [self._op("GET", 100.0, _EACH, driver, driver.buckets, listed=False)]}

    def _delete(self, phase: Phase, driver: Driver) -> Dict[str, Any]:
        return {"ops": [self._op("DELETE", 100.0, _EACH, driver, driver.buckets)]}

    def _op(
        self, op: str, share: float, keys: Keys, driver: Driver, buckets: Any, listed: bool = True
    ) -> Dict[str, Any]:
        spaces = list(buckets)
        if op in _READS and listed and keys.select == "live":
            spaces += [f"{key}, listed" for key in buckets if self._listed(self._buckets[key])]
        order = {"op": op, "share": share, "select": keys.select, "spaces": spaces}
        return {**order, "absent": True} if keys.absent else order

    def _sizes(self, driver: Driver) -> Sizes:
        """Return the sizes of a driver's buckets together, each bucket with the same part."""
        every = [self._buckets[key].sizes for key in driver.buckets]
        if len(set(every)) == 1:
            return every[0]
        shares: Dict[Tuple[int, int], float] = {}
        for low, high, share in (size for sizes in every for size in sizes):
            shares[low, high] = shares.get((low, high), 0.0) + share / len(every)
        return tuple((low, high, share) for (low, high), share in shares.items())

    def _listed(self, bucket: Bucket) -> bool:
        # warp's objects have names of its own making
        return bucket.existing or any(p.kind == "fill" and p.engine == "warp" for p in self._plan.phases)

    def _prefix(self, driver: Driver, bucket: Bucket) -> str:
        return f"cbtp-{self._run_id}/cbt-load/{driver.id}/" if bucket.existing else f"cbt-load/{driver.id}/"
