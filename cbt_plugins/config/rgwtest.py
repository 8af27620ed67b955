"""`rgwtest:` -- fill, measure, age, measure again; one bucket and object size per driver (the Reef study)."""

from __future__ import annotations

from typing import Annotated, Any, List, Literal, Mapping, Optional, Sequence, Tuple

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from cbt_plugins.config import plan
from cbt_plugins.config.mix import DEFAULT_MIX, DEFAULT_MIX_TEXT, MixSection, faults_for_warp
from cbt_plugins.config.models import (
    MANY,
    BenchmarkSection,
    FillSection,
    check_raw_goal,
    scaled_duration,
    scaled_objects,
)
from cbt_plugins.config.units import Duration, Size, format_size
from cbt_plugins.config.validate import Problem, Problems, Strict, exactly_one, only_one

_HOUR = 3600.0
#: the published object sets and how long each was aged
SETS = {
    "small": tuple(kib << 10 for kib in (1, 4, 8, 64, 256)),
    "generic": tuple(mib << 20 for mib in (1, 4, 8, 64, 256)),
}
#: objects that warp mixed uploads first, unless it is told otherwise
_WARPS_OWN = 2500
_AGED = {"small": 24 * _HOUR, "generic": 12 * _HOUR}


class ObjectsSection(Strict):
    """Which object sizes: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra=exactly_one(("set", "sizes")))

    set: Optional[Literal["small", "generic"]] = Field(
        None, description="`small` is 1, 4, 8, 64, 256 KiB; `generic` is 1, 4, 8, 64, 256 MiB."
    )
    sizes: Optional[Annotated[List[Size], Field(min_length=1)]] = Field(
        None, description="Own sizes, one bucket each."
    )

    @field_validator("sizes")
    @classmethod
    def _usable(cls, sizes: Optional[List[int]]) -> Optional[List[int]]:
        problems = [
            Problem(
                (i,), "objects need at least 1B" if size < 1 else f"{format_size(size)} is in the list twice"
            )
            for i, size in enumerate(sizes or ())
            if size < 1 or size in (sizes or ())[:i]
        ]
        if problems:
            raise Problems(problems)
        return sizes

    @model_validator(mode="after")
    def _whole(self) -> ObjectsSection:
        only_one(self, ("set", "sizes"))
        return self

    def resolve(self) -> Tuple[int, ...]:
        """Return the sizes in bytes."""
        return tuple(self.sizes) if self.sizes else SETS[self.set or "small"]


class TimedSection(Strict):
    """A phase that ends after its time."""

    duration: Duration = Field(description="How long the phase runs.")


class RgwTestSection(BenchmarkSection):
    """The Reef study's cycle: fill, measure-new, age, measure-aged."""

    objects: ObjectsSection = Field(
        ObjectsSection.model_validate({"set": "small"}),
        description="Object sizes; one bucket each.",
        json_schema_extra={"default": {"set": "small"}},
    )
    drivers_per_size: int = Field(
        1, ge=1, le=MANY, description="Drivers per object size, spread over the client nodes."
    )
    mix: MixSection = Field(
        DEFAULT_MIX,
        description="Operations while measuring and ageing.",
        json_schema_extra={"default": DEFAULT_MIX_TEXT},
    )
    fill: FillSection = Field(
        FillSection.model_validate({"duration": "4h"}),
        description="How the buckets are filled.",
        json_schema_extra={"default": {"duration": "4h"}},
    )
    measure: TimedSection = Field(
        TimedSection.model_validate({"duration": "1h"}),
        description="Both measurements, before and after ageing.",
        json_schema_extra={"default": {"duration": "1h"}},
    )
    age: Optional[TimedSection] = Field(
        None, description="Ageing; without this key 24h for `set: small`, 12h otherwise."
    )

    warp_mixed: Optional[Duration] = Field(
        None,
        description="After measure-new, plain `warp mixed` with the same mix for this long, as phase `warp-mixed`: "
        "what another generator says of the same cluster.",
    )

    @field_validator("mix")
    @classmethod
    def _possible(cls, mix: MixSection, info: ValidationInfo) -> MixSection:
        problems = faults_for_warp(mix) if info.data.get("engine") == "warp" else []
        if problems:
            raise Problems(problems)
        return mix

    @field_validator("warp_mixed")
    @classmethod
    def _as_mixed(cls, duration: Optional[float], info: ValidationInfo) -> Optional[float]:
        mix = info.data.get("mix")
        problems = faults_for_warp(mix, "warp mixed") if duration and mix else []
        if problems:
            raise ValueError("; ".join(problem.text for problem in problems))
        return duration

    @field_validator("fill")
    @classmethod
    def _reachable(cls, fill: FillSection, info: ValidationInfo) -> FillSection:
        check_raw_goal(fill, info.data.get("full_guard"))
        return fill

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan; drivers go round the client nodes in turn."""
        sizes = self.objects.resolve()
        names = [format_size(size) for size in sizes for _ in range(self.drivers_per_size)]
        aged = self.age.duration if self.age else _AGED.get(self.objects.set or "", 12 * _HOUR)
        return plan.Plan(
            benchmark="rgwtest",
            s3=self.s3.to_plan(endpoints),
            buckets=tuple(plan.Bucket(key=format_size(size), sizes=((size, size, 1.0),)) for size in sizes),
            drivers=tuple(
                plan.Driver(f"{i + 1:02d}-{name}", clients[i % len(clients)], (name,), self.workers)
                for i, name in enumerate(names)
            ),
            phases=(
                plan.Phase("fill", "fill", "fill", goal=self.fill.to_plan(self.scale), engine=self.engine),
                self._hybrid("measure-new", "measure", self.measure.duration),
                *self._warp_mixed(),
                self._hybrid("age", "age", aged),
                self._hybrid("measure-aged", "measure", self.measure.duration),
            ),
            full_guard=self.full_guard,
            keep_data=self.keep_data,
            scale=self.scale,
            warp_path=self.warp_path,
            read_objects=self.read_objects,
            hybrid=self.hybrid.to_plan(),
            keep_rows=self.keep_rows,
        )

    def _hybrid(self, name: str, role: str, duration: float) -> plan.Phase:
        seconds = scaled_duration(duration, self.scale)
        return plan.Phase(name, "hybrid", role, duration=seconds, mix=self.mix.to_plan(), engine=self.engine)

    def _warp_mixed(self) -> Tuple[plan.Phase, ...]:
        if self.warp_mixed is None:
            return ()
        # warp needs more objects than workers, and stops for good when its DELETEs outrun its PUTs.
        objects = max(scaled_objects(_WARPS_OWN, self.scale) or 1, 10 * self.workers)
        return (
            plan.Phase(
                "warp-mixed",
                "warp",
                duration=scaled_duration(self.warp_mixed, self.scale),
                mix=self.mix.to_plan(),
                warp=plan.WarpOp("mixed", objects=objects),
            ),
        )
