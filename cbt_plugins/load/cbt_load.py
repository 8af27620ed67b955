"""cbt-load: one process per driver and phase, on objects whose names are numbers (docs/CBT-LOAD.md).

Each driver has a set of objects of its own in every bucket it works on, and knows which of them exist: from the state
that it left after the phase before, or, when a phase was broken off or left no state, from listing them again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from cbt_plugins.config.fill_keys import MOST_OBJECTS
from cbt_plugins.config.key_errors import FieldError, Strict
from cbt_plugins.config.mix import MixSection, range_of
from cbt_plugins.config.units import PERCENT_PATTERN, Duration, Size, format_percent, parse_percent
from cbt_plugins.formatting import size_range
from cbt_plugins.load.generator import (
    CBT_LOAD,
    FOLDER,
    FOREVER,
    Generator,
    LoadJob,
    LoadStart,
    Memory,
    MixedLoad,
    generator_of,
)
from cbt_plugins.plan import Bucket, CbtLoad, Driver, Keys, Phase, Plan, Sizes, op_of_work
from cbt_plugins.s3_operations import LARGEST_PART, SMALLEST_PART, WRITES

#: seconds for the objects whose fate is not known to be looked at, and for the last words
LAST_WORDS = 15.0
#: what an operation takes when the plan does not say
_KEYS = {op: Keys("new") for op in WRITES}
#: every number that there can be, each once
_EACH = Keys(f"r(1,{MOST_OBJECTS})")
_READS = ("GET", "STAT", "LIST")
#: requests/s of an open loop, and sets of objects, that one process takes
_RATES, _MOST_SPACES = (1e-6, 1e7), 10_000
#: it keeps shares in a cycle of so many requests, or objects
_CYCLE = 1000


def is_lost(share: float) -> bool:
    """Return whether a cycle of requests cannot keep a share, 0..1, to 5 % of itself: 0.04 % is no request at all."""
    exact = share * _CYCLE
    return abs(round(exact) - exact) > 0.05 * exact + 1e-9


#: share 0..1, 0 included
_Compressible = Annotated[
    float, BeforeValidator(parse_percent), WithJsonSchema({"type": "string", "pattern": PERCENT_PATTERN})
]
_DEFAULT = CbtLoad()


class CbtLoadSection(Strict):
    """How cbt-load works, in every phase with `engine: cbt-load`."""

    deadline: Duration = Field(_DEFAULT.deadline, ge=0.001, description="Time limit of a request; never scaled.")
    retries: int = Field(_DEFAULT.retries, ge=0, le=100, description="Retries of each failed request.")
    list_keys: int = Field(_DEFAULT.list_keys, ge=1, le=1000, description="Most keys in the answer to a LIST.")
    part_size: Size = Field(_DEFAULT.part_size, description="Size of a part of a multipart PUT.")
    compressible: _Compressible = Field(
        _DEFAULT.compressible, description="Share of the bytes that compression saves, of every whole 4 KiB."
    )
    verify: bool = Field(
        _DEFAULT.verify,
        description="Every GET compares the content with what a PUT of this object wrote: the last or an earlier one.",
    )
    seed: int = Field(
        _DEFAULT.seed,
        ge=0,
        lt=1 << 63,
        description="Same seed: same sizes, same order of operations. Objects are drawn anew in each run.",
    )

    @field_validator("part_size")
    @classmethod
    def _taken_by_s3(cls, size: int) -> int:
        if not SMALLEST_PART <= size <= LARGEST_PART:
            limits = f"{size_range(SMALLEST_PART, LARGEST_PART)}"
            raise ValueError(f"S3 takes parts of {limits}")
        return size

    def to_plan(self) -> CbtLoad:
        """Return the plan's settings."""
        values: Any = dict(self)
        return CbtLoad(**values)


class CbtLoadJobs(Generator):
    """cbt-load: one process per driver, which mixes all operations."""

    program = "cbt-load"
    version = "version"
    begins_at_go = True
    kinds = ("fill", "hybrid", "ladder", "verify", "delete")
    ops = ("get", "put", "stat", "delete", "list", "multipart")
    exact_mix = True
    known_keys = ("rate", "arrivals", "ramp", "warmup", "keys", "roles", "works")
    features = ("sse", "versioned", "users", "objects")
    section_key = "cbt_load"
    across = True
    lists = True
    puts_whole = True

    @classmethod
    def refused(cls, plan: Plan) -> Iterator[FieldError]:
        lost = dict.fromkeys(size[2] for bucket in plan.buckets for size in bucket.sizes if is_lost(size[2]))
        for share in lost:
            yield FieldError(("size",), f"cbt-load keeps shares to 0.1 %: round {format_percent(share)}")
        listed = {bucket.key for bucket in plan.buckets if _is_listed(plan, bucket)}
        for driver in plan.drivers:
            spaces = len(driver.buckets) + len(listed.intersection(driver.buckets))
            if spaces > _MOST_SPACES:
                text = f"{len(driver.buckets)} buckets with {spaces} sets of objects for driver {driver.id}"
                yield FieldError(("buckets",), f"{text}: cbt-load takes {_MOST_SPACES}; give fewer buckets")
                break
        yield from _errors_of_rates(plan)

    @classmethod
    def errors_of_mix(cls, mix: MixSection, program: str = "") -> List[FieldError]:
        return [
            FieldError((op,), f"cbt-load keeps shares to 0.1 %: round {share:g}")
            for op, share in mix
            if is_lost(share / 100)
        ]

    @classmethod
    def errors_without_fill(cls, load: MixedLoad, fills: Sequence[str], existing: bool) -> Iterator[FieldError]:
        for op, keys in load.keys or ():
            if keys and range_of(keys.select):
                text = f"{keys.select} counts objects of a fill with engine: cbt-load; put such a fill before it"
                yield FieldError(("keys", op), text)
        if load.mix.delete:
            text = "nothing to delete: cbt-load deletes only objects that cbt-load wrote; fill with engine: cbt-load"
            yield FieldError((), text, of_key=True)

    @classmethod
    def objects_written(cls, plan: Plan, bucket: str, objects: int) -> int:
        return max(objects, len(plan.drivers_by_bucket[bucket]))

    @classmethod
    def has_ceiling(cls, phase: Phase) -> bool:
        return phase.kind in ("fill", "hybrid", "delete")

    @classmethod
    def beside_null_server(cls, job: LoadJob, url: str, size: int) -> LoadJob:
        # no answer of another length than the object's is taken
        spec = dict(job.spec or {})
        spaces = [{**space, "sizes": [[size, size, 1.0]]} for space in spec["spaces"]]
        return replace(job, spec={**spec, "hosts": [url], "spaces": spaces})

    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return a job per driver; with a rate an open loop, which the drivers share."""
        make = {"fill": self._fill, "hybrid": self._mix, "verify": self._verify, "delete": self._delete}[phase.kind]
        drivers = [replace(d, workers=start.workers or d.workers) for d in self._plan.drivers]
        workers = sum(d.workers for d in drivers)
        jobs = []
        for number, driver in enumerate(drivers):
            share = start.rate * driver.workers / workers if start.rate else 0.0
            spec = {**self._common(driver, start.memory), **make(phase, driver)}
            spec["seed"] = (self._plan.cbt_load.seed * 10_000 + number) % (1 << 63)
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
        if memory.stale:
            self._set_no_deletes(spec["spaces"], loads, driver.id in memory.outdated)
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
            grace=CbtLoad.grace + self._plan.cbt_load.deadline + LAST_WORDS,
            rate_limit=sum(load["rate"] for load in loads),
            spec=spec,
            state=state,
        )

    @staticmethod
    def _set_no_deletes(spaces: Sequence[Dict[str, Any]], loads: Sequence[Mapping[str, Any]], outdated: bool) -> None:
        """Mark the spaces of which nothing has deleted objects since the state: the broken-off attempt had these ops.
        """
        with_deletes = {name for load in loads for op in load["ops"] if op["op"] == "DELETE" for name in op["spaces"]}
        for space in spaces:
            if space["numbered"]:
                space["no_deletes"] = not outdated and space["name"] not in with_deletes

    def _common(self, driver: Driver, memory: Memory) -> Dict[str, Any]:
        s3, options = self._plan.s3, self._plan.cbt_load
        spaces: List[Dict[str, Any]] = []
        # the run has looked for existing buckets: one that is missing now is nothing to make in the user's account
        make = driver.id not in memory.states and not any(self._buckets[key].existing for key in driver.buckets)
        rebuild = memory.stale or driver.id in memory.outdated
        for key in driver.buckets:
            bucket = self._buckets[key]
            prefix = self._prefix(driver, bucket)
            own = {"name": key, "bucket": self._names[key], "prefix": prefix, "numbered": True}
            if bucket.user:  # the number of its keys in `environment`
                own["keys"] = str(2 + self._plan.users.index(bucket.user))
            own["objects"] = self._part(bucket.objects, driver, key) if bucket.objects else 0
            spaces.append({**own, "sizes": [list(size) for size in bucket.sizes], "rebuild": rebuild})
            if _is_listed(self._plan, bucket):
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
            "versioned": self._plan.versioned,
            "deadline": options.deadline,
            "retries": options.retries,
            "grace": CbtLoad.grace,
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
        """Return the number of a bucket's objects that a driver writes: at least one."""
        drivers = [d.id for d in self._plan.drivers_by_bucket[bucket]]
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
            keys = phase.keys.get(op) or _KEYS.get(op) or Keys("live")
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
            spaces += [f"{key}, listed" for key in buckets if _is_listed(self._plan, self._buckets[key])]
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

    def _prefix(self, driver: Driver, bucket: Bucket) -> str:
        return f"cbtp-{self._run_id}/cbt-load/{driver.id}/" if bucket.existing else f"cbt-load/{driver.id}/"


def _is_listed(plan: Plan, bucket: Bucket) -> bool:
    """Return whether a bucket has objects that no cbt-load has written."""
    return bucket.existing or any(p.kind == "fill" and generator_of(p.engine).listed for p in plan.phases)


def _errors_of_rates(plan: Plan) -> Iterator[FieldError]:
    """Yield the rates of which a driver would get less or more than cbt-load takes."""
    workers = sum(driver.workers for driver in plan.drivers)
    lowest, highest = _RATES
    for phase in plan.phases:
        shares: Dict[Tuple[str, ...], List[float]] = {
            ("works", work.name): [work.rate / len(plan.drivers)] for work in phase.works if work.rate
        }
        if phase.rate:
            shares[()] = [phase.rate * driver.workers / workers for driver in plan.drivers]
        for keys, rates in shares.items():
            wrong = next((rate for rate in rates if not lowest <= rate <= highest), None)
            if wrong:
                text = f"{wrong:g}/s for a driver: cbt-load takes {lowest:f}/s to {highest:.0f}/s; change the rate"
                yield FieldError(("phases", phase.name, *keys, "rate"), text)
