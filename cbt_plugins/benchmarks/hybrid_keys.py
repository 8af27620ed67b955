"""`hybrid:` and `ladder:` in a phase: operations at a fixed ratio, works, and ladders."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from cbt_plugins import plan
from cbt_plugins.config.acceptable import target_of
from cbt_plugins.config.events import PhaseEvents
from cbt_plugins.config.generator_classes import engine_with, generator
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one, file_default, only_one
from cbt_plugins.config.mix import (
    DEFAULT_MIX_TEXT,
    Buckets,
    KeysSection,
    MixSection,
    RolesSection,
    named,
)
from cbt_plugins.config.objective import Objective
from cbt_plugins.config.section_values import Engine, Workers, scaled_duration
from cbt_plugins.config.units import PERCENT_PATTERN, RATE_PATTERN, Duration, parse_percent, parse_rate
from cbt_plugins.metrics import ACCEPTABLE, TOTAL

#: keys of a hybrid phase that only some generators know
_FOR_HYBRID = ("rate", "arrivals", "ramp", "warmup", "keys", "roles", "works")
#: keys of a hybrid phase that each of its works has
_OF_WORKS = ("mix", "workers", "rate", "arrivals", "keys", "roles")
#: the aggregates of requests have room for 256 names of operations
_MOST_WORKS = 40
_WORK = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def _rate(value: Any) -> Tuple[Optional[float], Optional[float]]:
    """Return (requests/s, None), or (None, share of a closed loop's rate)."""
    if not (isinstance(value, str) and value.rstrip().endswith("%")):
        return parse_rate(value), None
    share = parse_percent(value)
    if not share:
        raise ValueError("must be more than 0%")
    return None, share


_RATES: List[Dict[str, Any]] = [
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "string", "pattern": RATE_PATTERN, "title": "rate"},
]
AnyRate = Annotated[
    Tuple[Optional[float], Optional[float]],
    BeforeValidator(_rate),
    WithJsonSchema(
        {
            "anyOf": [*_RATES, {"type": "string", "pattern": PERCENT_PATTERN}],
            "examples": ["500/s", "5M/day", "50%"],
        }
    ),
]


class HybridWorkers(Strict):
    """Workers of each operation, per driver."""

    get: Optional[Workers] = None
    put: Optional[Workers] = None
    stat: Optional[Workers] = None
    delete: Optional[Workers] = None


def _arrivals(arrivals: Optional[str], info: ValidationInfo) -> Optional[str]:
    if arrivals is not None and "rate" in info.data and info.data["rate"] is None:
        raise ValueError("is for an open loop, and without rate: the loop is closed: give rate: too")
    return arrivals


def _for_what_is_done(section: Optional[Strict], info: ValidationInfo) -> Optional[Strict]:
    mix = info.data.get("mix")
    if section is not None and mix is not None:
        given = {name for name, value in section if value is not None}
        errors = _not_in_mix(given, mix, "keys" if info.field_name == "keys" else "buckets")
        if errors:
            raise FieldErrors(errors)
    return section


PlainRate = Annotated[float, BeforeValidator(parse_rate), WithJsonSchema({"anyOf": _RATES})]


class WorkSection(Strict):
    """One work: a mix with workers, a loop and buckets of its own, at the same time as the other works of the phase."""

    workers: Workers = Field(description="Workers per driver.")
    mix: MixSection = Field(description="Mix of the work.")
    rate: Optional[PlainRate] = Field(
        None, description="Open loop: of all drivers. Default: closed loop."
    )
    arrivals: Optional[Literal["poisson", "even"]] = Field(
        None, description=f"Arrivals of an open loop. Default: `{plan.Work.arrivals}`."
    )
    buckets: Optional[Buckets] = Field(
        None, description="across_buckets. By number, name or group."
    )
    keys: Optional[KeysSection] = Field(None, description="As in hybrid.")
    roles: Optional[RolesSection] = Field(None, description="As in hybrid.")

    _open = field_validator("arrivals")(_arrivals)
    _done = field_validator("keys", "roles")(_for_what_is_done)

    def to_plan(self, name: str, buckets: Sequence[str]) -> plan.Work:
        """Return the plan's work; `buckets` are the names that `roles` may use."""
        mix = self.mix.to_plan()
        everywhere = tuple(each for bucket in self.buckets or () for each in named(bucket, buckets))
        roles = {op: everywhere for op in mix} if everywhere else {}
        return plan.Work(
            name,
            self.workers,
            mix,
            rate=self.rate,
            arrivals=self.arrivals or plan.Work.arrivals,
            keys=self.keys.to_plan() if self.keys else {},
            roles={**roles, **(self.roles.to_plan(buckets) if self.roles else {})},
        )


def _works(value: Any) -> Any:
    errors = [
        FieldError((key,), f"{key!r}: a name is made of a-z, 0-9 and -", of_key=True)
        for key in (value if isinstance(value, dict) else ())
        if isinstance(key, str) and not _WORK.fullmatch(key)
    ]
    if errors:
        raise FieldErrors(errors)
    return value


class HybridSection(Strict):
    """Operations at a fixed ratio on existing objects."""

    duration: Duration = Field(description="How long it measures.")
    mix: MixSection = file_default(
        MixSection.model_validate,
        DEFAULT_MIX_TEXT,
        description="Operations and their ratio.",
    )
    engine: Optional[Engine] = Field(None, description="Default: the benchmark's.")
    workers: Optional[HybridWorkers] = Field(
        None,
        description="warp. Per operation and driver. Default: calibrated once per run.",
    )
    rate: Optional[AnyRate] = Field(
        None,
        description="cbt-load. Open loop: of all drivers, or `50%` of the last closed loop. Default: closed loop.",
    )
    arrivals: Optional[Literal["poisson", "even"]] = Field(
        None, description=f"cbt-load. Arrivals of an open loop. Default: `{plan.Work.arrivals}`."
    )
    ramp: Optional[Duration] = Field(
        None, description="cbt-load. Time before `duration` in which the load grows."
    )
    warmup: Optional[Duration] = Field(
        None,
        description="cbt-load. Full load after the ramp, not measured. A phase that ends with its last object "
        "(`r(1,N)`) is measured with its ramp and warmup.",
    )
    keys: Optional[KeysSection] = Field(None, description="cbt-load, hsbench. Which objects an operation takes.")
    roles: Optional[RolesSection] = Field(
        None, description="cbt-load, across_buckets. Buckets of an operation, by number from 1 or name."
    )
    works: Optional[
        Annotated[Dict[str, WorkSection], BeforeValidator(_works), Field(min_length=1, max_length=_MOST_WORKS)]
    ] = Field(None, description="cbt-load. Several mixes at once, by name; results are named NAME:GET.")
    events: Optional[PhaseEvents] = Field(None, description="In order of time.")

    @field_validator("workers")
    @classmethod
    def _as_in_mix(cls, workers: Optional[HybridWorkers], info: ValidationInfo) -> Optional[HybridWorkers]:
        mix = info.data.get("mix")
        if workers is None or mix is None:
            return workers
        given = {name for name, value in workers if value is not None}
        wanted = {name for name, _ in workers if getattr(mix, name)}
        errors = [
            FieldError((), f"{name} is in the mix ({getattr(mix, name):g}) and has no workers")
            for name in sorted(wanted - given)
        ]
        errors += _not_in_mix(given, mix, "workers")
        if errors:
            raise FieldErrors(errors)
        return workers

    _open = field_validator("arrivals")(_arrivals)
    _done = field_validator("keys", "roles")(_for_what_is_done)

    @model_validator(mode="after")
    def _check_section(self) -> HybridSection:
        given = [name for name in _OF_WORKS if self.works and name in self.model_fields_set]
        if given:
            text = "belongs into each of the works"
            raise FieldErrors([FieldError((name,), text, of_key=True) for name in given])
        return self

    @property
    def loads(self) -> Dict[Tuple[str, ...], Union[HybridSection, WorkSection]]:
        """Return the sections with a mix of their own, by their paths from here: the works, or the phase itself."""
        return {("works", name): work for name, work in (self.works or {}).items()} or {(): self}

    def errors(self, engine: Engine) -> List[FieldError]:
        """Return an error for each key that this engine cannot follow."""
        load_generator = generator(engine)
        given = [key for key in _FOR_HYBRID if getattr(self, key) is not None]
        lacking = [key for key in given if key not in load_generator.known_keys]
        errors = [
            FieldError(
                (key,),
                f"goes with engine: {engine_with('known_keys', key)}, and the engine of this phase is {engine}",
                of_key=True,
            )
            for key in lacking
        ]
        if "mix" in self.model_fields_set and not load_generator.ops:
            errors.append(FieldError(("mix",), f"{engine} takes no mix: leave it out", of_key=True))
        if self.workers and not load_generator.worker_groups:
            does = "keeps the mix with" if load_generator.ops else "has"
            text = f"is for engine: {engine_with('worker_groups')}; {engine} {does} the driver's workers"
            errors.append(FieldError(("workers",), f"{text}: leave it out", of_key=True))
        for path, load in self.loads.items() if "works" not in lacking else ():
            errors += [e._replace(path=(*path, "mix", *e.path)) for e in load_generator.errors_of_mix(load.mix)]
        return errors

    def to_plan(self, name: str, role: str, scale: float, engine: Engine, buckets: Sequence[str]) -> plan.Phase:
        """Return the plan's phase of this name; `buckets` are the names that `roles` may use."""
        workers: Optional[Mapping[str, int]] = None
        if self.workers:
            workers = {op.upper(): number for op, number in self.workers if number is not None}
        rate, share = self.rate or (None, None)
        return plan.Phase(
            name,
            "hybrid",
            role,
            duration=scaled_duration(self.duration, scale),
            mix=None if self.works else self.mix.to_plan(),
            workers=workers,
            engine=engine,
            rate=rate,
            rate_share=share,
            arrivals=self.arrivals or plan.Work.arrivals,
            ramp=scaled_duration(self.ramp, scale) or 0.0,
            warmup=scaled_duration(self.warmup, scale) or 0.0,
            keys=self.keys.to_plan() if self.keys else {},
            roles=self.roles.to_plan(buckets) if self.roles else {},
            works=tuple(work.to_plan(each, buckets) for each, work in (self.works or {}).items()),
        )


class LadderRates(Strict):
    """From where to where an open loop's rate may go: requests of all drivers together."""

    lowest: PlainRate = Field(description="First step.")
    highest: PlainRate = Field(description="Fastest step.")


class LadderWorkers(Strict):
    """From where to where the workers of a closed loop may go, per driver."""

    lowest: Workers = Field(1, description="First step.")
    highest: Workers = Field(description="Largest step.")


class LadderSection(Strict):
    """The load rises step by step, then is narrowed down, to the highest one that meets an objective (cbt-load)."""

    model_config = ConfigDict(json_schema_extra=exactly_one(("rate", "workers")))

    rate: Optional[LadderRates] = Field(
        None, description="Open loop, of all drivers."
    )
    workers: Optional[LadderWorkers] = Field(None, description="Closed loop, per driver.")
    objective: Objective = Field(description="Limits by [OPERATION/]METRIC: `{GET/p99_ms: 50, success_rate: 99.9%}`.")
    steps: int = Field(10, ge=2, le=100, description="Number of steps. Steps that are left over repeat a load.")
    duration: Duration = Field(description="Length of each step.")
    warmup: Optional[Duration] = Field(None, description="Time before each step, not measured.")
    arrivals: Optional[Literal["poisson", "even"]] = Field(
        None, description=f"Arrivals of `rate`. Default: `{plan.Work.arrivals}`."
    )
    mix: MixSection = file_default(
        MixSection.model_validate,
        DEFAULT_MIX_TEXT,
        description="Operations and their ratio.",
    )
    keys: Optional[KeysSection] = Field(None, description="As in hybrid.")
    roles: Optional[RolesSection] = Field(None, description="across_buckets. As in hybrid.")

    @model_validator(mode="after")
    def _check_section(self) -> LadderSection:
        only_one(self, ("rate", "workers"))
        if self.arrivals and not self.rate:
            raise FieldErrors([FieldError(("arrivals",), "goes with rate: only", of_key=True)])
        lowest, highest = self._range
        if lowest >= highest:
            raise FieldErrors([FieldError((self.unit, "highest"), "must be more than lowest")])
        named = {op.upper() for op, share in self.mix if share}
        absent = [key for key in self.objective if "/" in key and key.split("/")[0] not in {*named, TOTAL}]
        errors = [FieldError(("objective", key), "this operation is not in the mix", of_key=True) for key in absent]
        errors += self._too_few()
        if errors:
            raise FieldErrors(errors)
        return self

    def _too_few(self) -> Iterator[FieldError]:
        """Yield the percentiles that the first step of an open loop cannot have, before `scale`."""
        for key in self.objective if self.rate else ():
            target = target_of(key)
            needs = ACCEPTABLE[target.metric].needs
            share = 100.0 if target.op == TOTAL else getattr(self.mix, target.op.lower())
            requests = self._range[0] * self.duration * share / 100
            if 0 < requests < 1.5 * needs > 2:
                text = f"needs {needs} requests, and the first step makes about {requests:.0f}"
                yield FieldError(("objective", key), f"{text}: make steps longer, or lowest higher", of_key=True)

    @property
    def unit(self) -> str:
        """What rises: "rate" or "workers"."""
        return only_one(self, ("rate", "workers"))

    @property
    def _range(self) -> Tuple[float, float]:
        if self.rate:
            return self.rate.lowest, self.rate.highest
        assert self.workers is not None
        return float(self.workers.lowest), float(self.workers.highest)

    @property
    def hybrid(self) -> HybridSection:
        """One step of it."""
        own = {name: getattr(self, name) for name in ("duration", "warmup", "arrivals", "mix", "keys", "roles")}
        return HybridSection.model_construct(**own)

    def to_plan(
        self, name: str, role: str, scale: float, engine: Engine, buckets: Sequence[str]
    ) -> Tuple[plan.Phase, ...]:
        """Return the plan's phases, `NAME-step-1` and so on."""
        lowest, highest = self._range
        ladder = plan.Ladder(name, self.unit, lowest, highest, self.steps, self.objective)
        phase = self.hybrid.to_plan(name, role, scale, engine, buckets)
        return tuple(replace(phase, name=each, ladder=ladder) for each in self.names(name))

    def names(self, name: str) -> List[str]:
        """Return the names of its phases."""
        return [f"{name}-step-{number}" for number in range(1, self.steps + 1)]


def _not_in_mix(given: Any, mix: MixSection, feature: str) -> List[FieldError]:
    return [
        FieldError((name,), f"{name} has {feature} and no share of the mix", of_key=True)
        for name in sorted(given)
        if not getattr(mix, name)
    ]
