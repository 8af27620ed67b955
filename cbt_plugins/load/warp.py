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

import math
import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from cbt_plugins.config.events import PhaseEvents
from cbt_plugins.config.fill_keys import MOST_OBJECTS
from cbt_plugins.config.generator_classes import engine_with
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict
from cbt_plugins.config.mix import DEFAULT_MIX, MixSection
from cbt_plugins.config.plan_preview import goal_text
from cbt_plugins.config.section_values import Engine, scaled_duration, scaled_objects
from cbt_plugins.config.shell_values import AbsolutePath, check_option_name, check_option_value
from cbt_plugins.config.units import DURATION_PATTERN, Duration
from cbt_plugins.formatting import several
from cbt_plugins.load.generator import FOREVER, WARP, Generator, LoadJob, LoadStart, MixedLoad, generator_of
from cbt_plugins.load.worker_groups import WorkerGroup, groups_of
from cbt_plugins.plan import Bucket, Driver, Mix, Phase, Plan, Sizes, WarpOp

#: seconds from the start of a warp to its first request, listing apart
LEAD = 3.0
#: seconds that requests under way have after the end of the phase; what then hangs is cut off
GRACE = 10.0
#: "ceph version 20.2.4 (7f79...) tentacle (stable)"
_RELEASE = re.compile(r"ceph version (\d+)\.")
#: the first release whose RGW wants every header signed; warp does not sign the Content-Type of its PUTs
_STRICT = 20
#: objects that `warp mixed` uploads first by itself, and at most for each second that it then runs
_MIXED_FIRST, _MIXED_PER_SECOND = 2500, 20
#: plain commands that a server is enough for which keeps nothing
_WITHOUT_S3 = ("get", "put", "stat", "delete", "mixed")
#: keys of benchmarks, with their types
WarpPath = Optional[AbsolutePath]
WARP_PATH = Field(
    None, description="Path of warp on client nodes. Default: the warp of `cbt-tools build` is copied there."
)
_DURATION = {"type": "string", "pattern": DURATION_PATTERN, "title": "duration"}
_NONE_IF_FALSE = BeforeValidator(lambda value: None if value is False else value)
MixedDuration = Annotated[Optional[Duration], _NONE_IF_FALSE, WithJsonSchema({"anyOf": [_DURATION, {"const": False}]})]
MIXED = Field(None, description="After the first measurement, `warp mixed` with the same mix, as phase `warp-mixed`.")


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


#: warp options that the plan or the runner sets
_OWN_OPTIONS = frozenset(
    [
        "access-key",
        "secret-key",
        "session-token",
        "host",
        "host-select",
        "tls",
        "insecure",
        "region",
        "lookup",
        "bucket",
        "prefix",
        "noprefix",
        "concurrent",
        "duration",
        "objects",
        "obj.size",
        "obj.randsize",
        "noclear",
        "keep-data",
        "list-existing",
        "full",
        "stress",
        "stdout",
        "json",
        "benchdata",
        "warp-client",
        "syncstart",
        "serve",
        "autoterm",
        "influxdb",
        "get-distrib",
        "put-distrib",
        "stat-distrib",
        "delete-distrib",
        "disable-sha256-payload",
    ]
)


def _options(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    errors, texts = [], {}
    for key, option in value.items():
        name = str(key).lstrip("-")
        if name in _OWN_OPTIONS or name.startswith("analyze."):
            errors.append(
                FieldError((key,), f"warp's --{name} is set by the plan and cannot be given here", of_key=True)
            )
        elif option is False:
            errors.append(FieldError((key,), "leave the option out: a flag that is absent is false"))
        elif not isinstance(option, (str, int, float)):
            errors.append(FieldError((key,), "must be text, a number, or true for a flag"))
        elif name == "rps-limit" and (isinstance(option, (str, bool)) or not 0 < option < math.inf):
            errors.append(FieldError((key,), "must be a number of requests a second"))
        else:
            try:
                texts[check_option_name(name)] = "" if option is True else check_option_value(str(option))
            except ValueError as error:
                errors.append(FieldError((key,), str(error), of_key="name of an option" in str(error)))
    if errors:
        raise FieldErrors(errors)
    return texts


class WarpPhaseSection(Strict):
    """One plain warp command, on objects that warp uploads itself."""

    op: Literal["mixed", "get", "put", "stat", "delete", "list", "multipart", "versioned"] = Field(
        description="warp's command."
    )
    duration: Duration = Field(description="Length of the measurement, without the upload before it.")
    mix: Optional[MixSection] = Field(
        None, description="Only for `mixed`. Default: as in hybrid."
    )
    objects: Optional[int] = Field(
        None,
        ge=1,
        le=MOST_OBJECTS,
        description="Number of objects that are uploaded first (--objects).",
    )
    args: Annotated[Dict[str, str], BeforeValidator(_options)] = Field(
        {}, description="More options, without dashes: `{disable-multipart: true}`."
    )
    events: Optional[PhaseEvents] = Field(None, description="In order of time.")

    @field_validator("mix")
    @classmethod
    def _only_mixed(cls, mix: Optional[MixSection], info: ValidationInfo) -> Optional[MixSection]:
        if mix is not None and info.data.get("op", "mixed") != "mixed":
            raise ValueError(f"warp {info.data['op']} has one operation only; a mix is for op: mixed")
        errors = errors_of_mixed(mix) if mix else []
        if errors:
            raise FieldErrors(errors)
        return mix

    @field_validator("objects")
    @classmethod
    def _has_objects(cls, objects: Optional[int], info: ValidationInfo) -> Optional[int]:
        if objects is not None and info.data.get("op") == "put":
            raise ValueError("warp put writes until its time is over and has no number of objects")
        return objects

    def errors(self, workers: Optional[int], scale: float) -> Iterator[FieldError]:
        """Yield the contradictions to the workers of a driver."""
        if self.op == "mixed" and self.objects and workers:
            objects = scaled_objects(self.objects, scale) or 1
            if objects <= workers:
                text = f"{objects} objects for {workers} workers: warp mixed needs more objects than workers"
                yield FieldError(("objects",), text)

    def to_plan(self, name: str, role: str, scale: float, engine: Engine) -> Phase:
        """Return the plan's phase of this name."""
        return Phase(
            name,
            "warp",
            role,
            engine=engine,
            duration=scaled_duration(self.duration, scale),
            mix=(self.mix or DEFAULT_MIX).to_plan() if self.op == "mixed" else None,
            warp=WarpOp(self.op, scaled_objects(self.objects, scale), dict(self.args)),
        )


def errors_of_mixed(mix: MixSection) -> List[FieldError]:
    """Return an error for each part of a mix that `warp mixed` cannot do; paths are the mix's."""
    return WarpJobs.errors_of_mix(mix, "warp mixed")


def mixed_duration(duration: Optional[float], mix: Optional[MixSection]) -> Optional[float]:
    """Return the duration of the phase `warp-mixed`. Raises ValueError for a mix that `warp mixed` cannot do."""
    errors = errors_of_mixed(mix) if duration and mix else []
    if errors:
        raise ValueError("; ".join(error.text for error in errors))
    return duration


def mixed_phase(duration: float, mix: MixSection, scale: float, workers: int) -> Phase:
    """Return the phase `warp-mixed`; `duration` is not scaled yet."""
    # warp needs more objects than workers, and stops for good when its DELETEs outrun its PUTs.
    seconds = scaled_duration(duration, scale) or 0.0
    first = min(scaled_objects(_MIXED_FIRST, scale) or 1, round(_MIXED_PER_SECOND * seconds))
    warp = WarpOp("mixed", max(first, 10 * workers))
    return Phase("warp-mixed", "warp", duration=seconds, mix=mix.to_plan(), warp=warp)


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
    remedy = f"{Generator.remedy}, or set warp_path: to its path on the clients"
    overlap = 2.0
    kinds = ("fill", "hybrid", "warp")
    ops = ("get", "put", "stat", "delete")
    worker_groups = True
    lists = True
    listed = True

    @classmethod
    def own_phase_text(cls, phase: Phase) -> str:
        return f"warp {phase.warp.op}" if phase.warp else ""

    @classmethod
    def payload(cls, plan: Plan, versions: Mapping[str, Any]) -> str:
        """Return "unsigned" for RGWs of Ceph 20 and newer, now or after an upgrade: they refuse signed payloads."""
        rgws = versions.get("rgw") or versions.get("overall") or {}
        releases = [int(match.group(1)) for match in map(_RELEASE.match, rgws) if match]
        releases += [int(upgrade.to.partition(".")[0]) for upgrade in plan.upgrades]
        return "unsigned" if max(releases, default=0) >= _STRICT else plan.s3.payload

    @classmethod
    def path_on_clients(cls, plan: Plan) -> Optional[str]:
        return plan.warp_path

    @classmethod
    def errors_of_mix(cls, mix: MixSection, program: str = "") -> List[FieldError]:
        errors = [
            FieldError((op,), f"{program or 'warp'} cannot mix {op} with other operations: use engine: {other_engine}")
            for op, share in mix
            if share and op not in cls.ops and (other_engine := engine_with("ops", op))
        ]
        if mix.delete > mix.put:
            text = f"delete ({mix.delete:g}) is more than put ({mix.put:g}): objects run out (warp refuses it)"
            errors.append(FieldError(("delete",), text))
        return errors

    @classmethod
    def errors_without_fill(cls, load: MixedLoad, fills: Sequence[str], existing: bool) -> Iterator[FieldError]:
        if fills and not existing and (load.mix.get or load.mix.stat or load.mix.delete):
            text = "nothing to read: warp finds only objects that warp wrote; fill with engine: warp, or use engine:"
            yield FieldError((), f"{text} {fills[0]} here", of_key=True)

    @classmethod
    def data_of(cls, plan: Plan, phase: Phase) -> Iterator[str]:
        if phase.warp and phase.warp.op == "put":
            yield f"{phase.name} writes for {goal_text(phase)}"
        elif phase.warp:
            number = f"{phase.warp.objects * len(plan.drivers)}" if phase.warp.objects else "its own number of"
            yield f"{phase.name}: warp uploads {number} objects of its own first"

    @classmethod
    def warnings(cls, plan: Plan) -> Iterator[str]:
        phases = [phase for phase in plan.phases if generator_of(phase.engine) is cls]
        calibrated = [phase for phase in phases if phase.kind == "hybrid" and phase.workers is None]
        for phase in calibrated:
            loops = len(groups_of(phase.mix or {}))
            few = min((driver.workers for driver in plan.drivers), default=loops)
            if few < loops:
                has = f"{several(few, 'worker')} per driver"
                yield f"{phase.name}: {has}; this mix needs at least {loops}, so {loops} are used"
        paced = [phase.name for phase in calibrated if not phase.is_calibration]
        paced += [phase.name for phase in phases if phase.warp and "rps-limit" in phase.warp.args]
        if paced:
            yield (
                f"{', '.join(paced)}: LIMITED: the calibration or rps-limit limits the rates of warp; "
                "a limited phase is never better nor equivalent in a comparison: use engine: "
                f"{engine_with('exact_mix')}"
            )

    @classmethod
    def has_ceiling(cls, phase: Phase) -> bool:
        return phase.kind in ("fill", "hybrid") or (phase.warp is not None and phase.warp.op in _WITHOUT_S3)

    @classmethod
    def objects_written(cls, plan: Plan, bucket: str, objects: int) -> int:
        parts = [part for driver in plan.drivers_by_bucket[bucket] for part in _fill_parts(plan, driver)]
        return sum(part.objects(objects) for part in parts)

    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        if phase.kind == "fill":
            return self._fill(phase)
        return self._hybrid(phase, start.worker_groups) if phase.kind == "hybrid" else self._plain(phase)

    def _fill(self, phase: Phase) -> List[LoadJob]:
        """Return jobs that write: for a time, for a number of objects, or until they are stopped."""
        assert phase.goal is not None
        goal = phase.goal
        jobs = []
        for driver in self._plan.drivers:
            bucket = self._buckets[driver.bucket]
            for part in _fill_parts(self._plan, driver):
                extra = ["--obj.size", object_size(bucket.sizes)]
                if goal.objects is not None:
                    # the preparation of `stat` writes a number of objects; `put` knows only a time
                    command, duration = "stat", "1s"
                    extra += ["--objects", str(part.objects(goal.objects))]
                elif goal.duration is not None:
                    command, duration = "put", "{duration}"
                else:
                    command, duration = "put", f"{round(FOREVER)}s"
                prefix = self._prefix(bucket, part.kind, driver, phase.name)
                warp_command = _Command("PUT", "fill", command, part.workers, prefix, extra, duration)
                jobs.append(self._job(part.kind, driver, warp_command))
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


@dataclass(frozen=True)
class _FillPart:
    """A process of warp in a fill: a part of the objects of its driver, which later phases may delete or not."""

    kind: str  # keep | drop
    workers: int
    share: float  # of the objects of a bucket

    def objects(self, objects: int) -> int:
        """Return how many of the objects of a bucket it writes: warp writes at least one for each worker."""
        return max(self.workers, round(objects * self.share))


def _fill_parts(plan: Plan, driver: Driver) -> List[_FillPart]:
    """Return the parts of the fill of a driver, which shares its bucket with other drivers."""
    siblings, share = len(plan.drivers_by_bucket[driver.bucket]), drop_share(plan)
    drop_workers = max(1, round(driver.workers * share)) if share else 0
    parts = [
        _FillPart("keep", max(1, driver.workers - drop_workers), (1.0 - share) / siblings),
        _FillPart("drop", drop_workers, share / siblings),
    ]
    return [part for part in parts if part.workers]


def drop_share(plan: Plan) -> float:
    """Return the share of a fill (0..0.5) that later phases by warp may delete.

    d / (p + d) of the mix that deletes most; more when the fill is short beside a phase, whose DELETEs would run dry:
    a hybrid load makes up to three times the requests of a fill. Long phases list again what they have written
    themselves, so ten minutes of a phase are enough.
    """
    filled = max((p.goal.duration or 0.0 for p in plan.phases if p.goal), default=0.0)
    shares = [0.0]
    for phase in plan.phases:
        deletes = phase.kind == "hybrid" and generator_of(phase.engine) is WarpJobs
        delete = (phase.mix or {}).get("DELETE", 0.0) if deletes else 0.0
        if phase.mix and delete:
            shares.append(delete / (phase.mix.get("PUT", 0.0) + delete))
            if filled:
                shares.append(3.0 * delete / 100.0 * min(phase.duration or 0.0, 600.0) / filled)
    return min(0.5, max(shares))
