"""`rgwtest:`, the Reef study's cycle: fill, measure, age, measure again; one bucket and object size per driver."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from pydantic import Field, ValidationInfo, field_validator

from cbt_plugins import plan
from cbt_plugins.benchmarks.by_size import BySizeSection, TimedSection
from cbt_plugins.benchmarks.cycle import CycleBenchmark
from cbt_plugins.config.benchmark import scaled_duration, scaled_objects
from cbt_plugins.config.operations import errors_for_warp
from cbt_plugins.config.units import Duration

_HOUR = 3600.0
#: how long each of the published object sets was aged
_AGED = {"small": 24 * _HOUR, "generic": 12 * _HOUR}
#: objects that warp mixed uploads first, unless it is told otherwise
_WARPS_OWN = 2500


class RgwTestSection(BySizeSection):
    """The Reef study's cycle: fill, measure-new, age, measure-aged."""

    measure: TimedSection = Field(
        TimedSection.model_validate({"duration": "1h"}),
        description="Both measurements, before and after aging.",
        json_schema_extra={"default": {"duration": "1h"}},
    )
    age: Optional[TimedSection] = Field(
        None, description="Aging; without this key 24h for `set: small`, 12h otherwise."
    )
    warp_mixed: Optional[Duration] = Field(
        None,
        description="After measure-new, plain `warp mixed` with the same mix for this long, as phase `warp-mixed`: "
        "what another generator says of the same cluster.",
    )

    @field_validator("warp_mixed")
    @classmethod
    def _as_mixed(cls, duration: Optional[float], info: ValidationInfo) -> Optional[float]:
        mix = info.data.get("mix")
        errors = errors_for_warp(mix, "warp mixed") if duration and mix else []
        if errors:
            raise ValueError("; ".join(error.text for error in errors))
        return duration

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan."""
        aged = self.age.duration if self.age else _AGED.get(self.objects.set or "", 12 * _HOUR)
        phases = (
            self.fill_phase(),
            self.hybrid_phase("measure-new", "measure", self.measure.duration),
            *self._warp_mixed(),
            self.hybrid_phase("age", "age", aged),
            self.hybrid_phase("measure-aged", "measure", self.measure.duration),
        )
        return self.plan_of("rgwtest", phases, self.settings.to_plan(), clients, endpoints)

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


class RgwTest(CycleBenchmark):
    """The benchmark `rgwtest`."""

    Section = RgwTestSection
