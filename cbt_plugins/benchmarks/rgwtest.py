"""`rgwtest:`, the Reef study's cycle: fill, measure, age, measure again; one bucket and object size per driver."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from pydantic import Field

from cbt_plugins import plan
from cbt_plugins.benchmarks.by_size import BySizeSection, TimedSection
from cbt_plugins.benchmarks.cycle_benchmark import CycleBenchmark
from cbt_plugins.config.key_errors import file_default
from cbt_plugins.config.units import format_duration

_HOUR = 3600.0
#: how long each of the published object sets was aged
_AGED = {"small": 24 * _HOUR, "generic": 12 * _HOUR}


class RgwTestSection(BySizeSection):
    """The Reef study's cycle: fill, measure-new, age, measure-aged."""

    measure: TimedSection = file_default(
        TimedSection.model_validate,
        {"duration": "1h"},
        description="Length of each of the two measurements.",
    )
    age: Optional[TimedSection] = Field(
        None, description=f"Length of the aging. Default: {format_duration(_AGED['small'])} for `set: small`, "
        f"else {format_duration(_AGED['generic'])}."
    )

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan."""
        aged = self.age.duration if self.age else _AGED[self.objects.set or "generic"]
        phases = (
            self.fill_phase(),
            self.hybrid_phase("measure-new", "measure", self.measure.duration),
            *self.warp_mixed_phases(),
            self.hybrid_phase("age", "age", aged),
            self.hybrid_phase("measure-aged", "measure", self.measure.duration),
        )
        return self.plan_of("rgwtest", phases, self.settings.to_plan(), clients, endpoints)


class RgwTest(CycleBenchmark):
    """The benchmark `rgwtest`."""

    Section = RgwTestSection
