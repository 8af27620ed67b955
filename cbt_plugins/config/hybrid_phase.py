"""`hybrid:` in a phase -- operations at a fixed ratio on the data that is there."""

from __future__ import annotations

from typing import Annotated, Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Union

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from cbt_plugins import plan
from cbt_plugins.config.engine import Engine
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.events import PhaseEvents
from cbt_plugins.config.keys import KeysSection
from cbt_plugins.config.mix import DEFAULT_MIX, DEFAULT_MIX_TEXT, MixSection, faults_for_warp
from cbt_plugins.config.models import Workers, scaled_duration
from cbt_plugins.config.units import PERCENT_PATTERN, RATE_PATTERN, Duration, parse_percent, parse_rate
from cbt_plugins.config.validate import Problem, Problems, Strict

#: keys of a hybrid phase that warp has no way to follow
_FOR_HYBRID = ("rate", "arrivals", "ramp", "warmup", "keys", "roles")


def _rate(value: Any) -> Tuple[Optional[float], Optional[float]]:
    """(requests/s, None), or (None, share of a closed loop's rate)."""
    if not (isinstance(value, str) and value.rstrip().endswith("%")):
        return parse_rate(value), None
    share = parse_percent(value)
    if not share:
        raise ValueError("must be more than 0%")
    return None, share


_Rate = Annotated[
    Tuple[Optional[float], Optional[float]],
    BeforeValidator(_rate),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": RATE_PATTERN, "title": "rate"},
                {"type": "string", "pattern": PERCENT_PATTERN},
            ],
            "examples": ["500/s", "5M/day", "50%"],
        }
    ),
]


def _bucket(value: Any) -> Union[int, str]:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be the number of a bucket, from 1, or its name")
    return value


_Buckets = Annotated[
    List[
        Annotated[
            Union[int, str],
            BeforeValidator(_bucket),
            WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}]}),
        ]
    ],
    Field(min_length=1, description="Its buckets."),
]


class RolesSection(Strict):
    """The buckets, by number from 1 or by name, that an operation works on; all without its key."""

    get: Optional[_Buckets] = None
    put: Optional[_Buckets] = None
    stat: Optional[_Buckets] = None
    delete: Optional[_Buckets] = None
    list: Optional[_Buckets] = None
    multipart: Optional[_Buckets] = None

    def faults(self, names: Sequence[str]) -> List[Problem]:
        """Return where it speaks of buckets that are not among `names`."""
        problems = []
        for op, chosen in self:
            taken: Dict[str, bool] = {}
            for index, bucket in enumerate(chosen or ()):
                try:
                    name = _name(bucket, names)
                    if name in taken:
                        raise ValueError(f"{bucket} is in the list twice")
                    taken[name] = True
                except ValueError as error:
                    problems.append(Problem((op, index), str(error)))
        return problems

    def to_plan(self, names: Sequence[str]) -> Dict[str, Tuple[str, ...]]:
        """Return names of buckets by upper-case operation."""
        return {op.upper(): tuple(_name(bucket, names) for bucket in chosen) for op, chosen in self if chosen}


def _name(bucket: Union[int, str], names: Sequence[str]) -> str:
    if isinstance(bucket, int):
        if not 1 <= bucket <= len(names):
            there = f"they are 1 to {len(names)}" if len(names) > 1 else "the only one is 1"
            raise ValueError(f"no bucket {bucket}; {there}")
        return names[bucket - 1]
    if bucket not in names:
        hint = did_you_mean(bucket, names) or f"; there are: {', '.join(names)}"
        raise ValueError(f"no bucket {bucket!r}{hint}")
    return bucket


class HybridWorkers(Strict):
    """Workers of each operation, per driver."""

    get: Optional[Workers] = None
    put: Optional[Workers] = None
    stat: Optional[Workers] = None
    delete: Optional[Workers] = None


class HybridSection(Strict):
    """Operations at a fixed ratio on the data that is there."""

    duration: Duration = Field(description="How long the phase measures.")
    mix: MixSection = Field(
        DEFAULT_MIX,
        description="Operations and their ratio.",
        json_schema_extra={"default": DEFAULT_MIX_TEXT},
    )
    engine: Optional[Engine] = Field(None, description="What makes the load; without it the benchmark's `engine`.")
    workers: Optional[HybridWorkers] = Field(
        None,
        description="engine: warp. Fixed workers per operation and driver; without it calibrated once per run.",
    )
    rate: Optional[_Rate] = Field(
        None,
        description="engine: cbt-load. Open loop: requests of all drivers together, as `500`, `500/s`, `30000/h`, "
        "`5M/day`, or `50%` of what the last closed loop before it made. Without it a closed loop.",
    )
    arrivals: Optional[Literal["poisson", "even"]] = Field(
        None, description="engine: cbt-load. How the requests of an open loop come; without this key `poisson`."
    )
    ramp: Optional[Duration] = Field(
        None, description="engine: cbt-load. Before that, the load grows to its full size for so long."
    )
    warmup: Optional[Duration] = Field(
        None, description="engine: cbt-load. After the ramp, the full load runs for so long before it is measured."
    )
    keys: Optional[KeysSection] = Field(None, description="engine: cbt-load. Which objects an operation takes.")
    roles: Optional[RolesSection] = Field(
        None, description="engine: cbt-load, across_buckets. Which buckets an operation works on."
    )
    events: Optional[PhaseEvents] = Field(None, description="Faults and marks beside the load, in order of time.")

    @field_validator("workers")
    @classmethod
    def _as_in_mix(cls, workers: Optional[HybridWorkers], info: ValidationInfo) -> Optional[HybridWorkers]:
        mix = info.data.get("mix")
        if workers is None or mix is None:
            return workers
        given = {name for name, value in workers if value is not None}
        wanted = {name for name, _ in workers if getattr(mix, name)}
        problems = [
            Problem((), f"{name} is in the mix ({getattr(mix, name):g}) and has no workers")
            for name in sorted(wanted - given)
        ]
        problems += _not_in_mix(given, mix, "workers")
        if problems:
            raise Problems(problems)
        return workers

    @field_validator("arrivals")
    @classmethod
    def _of_an_open_loop(cls, arrivals: Optional[str], info: ValidationInfo) -> Optional[str]:
        if arrivals is not None and "rate" in info.data and info.data["rate"] is None:
            raise ValueError("is for an open loop, and this is a closed one: say rate: as well")
        return arrivals

    @field_validator("keys", "roles")
    @classmethod
    def _for_what_is_done(cls, section: Optional[Strict], info: ValidationInfo) -> Optional[Strict]:
        mix = info.data.get("mix")
        if section is not None and mix is not None:
            given = {name for name, value in section if value is not None}
            problems = _not_in_mix(given, mix, "keys" if info.field_name == "keys" else "buckets")
            if problems:
                raise Problems(problems)
        return section

    def faults(self, engine: Engine) -> List[Problem]:
        """Return what this engine cannot do."""
        if engine == "cbt-load":
            text = "is for engine: warp; cbt-load keeps the mix with the driver's workers: leave it out"
            return [Problem(("workers",), text, of_key=True)] if self.workers else []
        problems = [
            Problem((name,), "goes with engine: cbt-load, and the engine of this phase is warp", of_key=True)
            for name in _FOR_HYBRID
            if getattr(self, name) is not None
        ]
        found = faults_for_warp(self.mix)
        return problems + [problem._replace(path=("mix", *problem.path)) for problem in found]

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
            mix=self.mix.to_plan(),
            workers=workers,
            engine=engine,
            rate=rate,
            rate_share=share,
            arrivals=self.arrivals or "poisson",
            ramp=scaled_duration(self.ramp, scale) or 0.0,
            warmup=scaled_duration(self.warmup, scale) or 0.0,
            keys=self.keys.to_plan() if self.keys else {},
            roles=self.roles.to_plan(buckets) if self.roles else {},
        )


def _not_in_mix(given: Any, mix: MixSection, what: str) -> List[Problem]:
    return [
        Problem((name,), f"{name} has {what} and no share of the mix", of_key=True)
        for name in sorted(given)
        if not getattr(mix, name)
    ]
