"""One bucket for each object size, each with drivers of its own: what the cycles of the Reef study have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Iterator, List, Literal, Mapping, Optional, Sequence, Set, Tuple

from pydantic import (
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cbt_plugins import plan
from cbt_plugins.benchmarks.common_keys import BenchmarkSection
from cbt_plugins.benchmarks.drivers import drivers_on
from cbt_plugins.config.fill_keys import FillSection, check_raw_goal
from cbt_plugins.config.generator_classes import engine_with, generator
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one, file_default, only_one
from cbt_plugins.config.mix import (
    DEFAULT_MIX_TEXT,
    MixSection,
)
from cbt_plugins.config.section_values import (
    ENGINE,
    MANY,
    Engine,
    scaled_duration,
)
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.units import Duration, Size, format_size, parse_duration
from cbt_plugins.load.warp import MIXED, MixedDuration, mixed_duration, mixed_phase

#: the published object sets
SETS = {
    "small": tuple(kib << 10 for kib in (1, 4, 8, 64, 256)),
    "generic": tuple(mib << 20 for mib in (1, 4, 8, 64, 256)),
}
#: seconds after page caches were dropped, where nobody asks for more
_DROPPED = 1.0


class ObjectsSection(Strict):
    """Which object sizes: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra=exactly_one(("set", "sizes")))

    set: Optional[Literal["small", "generic"]] = Field(
        None, description="`small` is 1, 4, 8, 64, 256 KiB; `generic` is 1, 4, 8, 64, 256 MiB."
    )
    sizes: Optional[Annotated[List[Size], Field(min_length=1)]] = Field(
        None, description="Instead of `set`: a list of sizes; one bucket for each size."
    )

    @field_validator("sizes")
    @classmethod
    def _usable(cls, sizes: Optional[List[int]]) -> Optional[List[int]]:
        errors = [
            FieldError(
                (i,), "objects need at least 1B" if size < 1 else f"{format_size(size)} is in the list twice"
            )
            for i, size in enumerate(sizes or ())
            if size < 1 or size in (sizes or ())[:i]
        ]
        if errors:
            raise FieldErrors(errors)
        return sizes

    @model_validator(mode="after")
    def _check_section(self) -> ObjectsSection:
        only_one(self, ("set", "sizes"))
        return self

    def resolve(self) -> Tuple[int, ...]:
        """Return the sizes in bytes."""
        return tuple(self.sizes) if self.sizes else SETS[self.set or "small"]


class TimedSection(Strict):
    """A phase that ends after its time."""

    duration: Duration = Field(description="How long it runs.")


class BetweenSection(Strict):
    """Steps between two phases with load, in this order; only while no fault is in force."""

    gc: Optional[Duration] = Field(
        None, description="RGW's garbage is collected; give up after this long (never scaled)."
    )
    drop_caches: Optional[Literal[True]] = Field(None, description="Drop page caches of OSD nodes.")
    settle: Optional[Duration] = Field(None, description="Pause after the other steps.")

    @model_validator(mode="after")
    def _check_section(self) -> BetweenSection:
        if not (self.gc or self.drop_caches or self.settle):
            raise ValueError("needs gc, drop_caches or settle")
        return self

    def after(self, name: str, scale: float) -> Iterator[plan.Phase]:
        """Yield the waits after a phase."""
        if self.gc:
            yield plan.Phase(f"{name}-gc", "wait", wait_gc=True, at_most=self.gc)
        if self.drop_caches or self.settle:
            seconds, drops = scaled_duration(self.settle or _DROPPED, scale), bool(self.drop_caches)
            yield plan.Phase(f"{name}-settle", "wait", duration=seconds, drop_caches=drops)


class WaitCleanSection(Strict):
    """How long the cluster may take until all PGs are active+clean; neither is scaled."""

    at_most: Duration = file_default(parse_duration, "100h", description="Give up after this time.")
    stalled: Duration = file_default(parse_duration, "2h", description="Give up after this time without progress.")

    @field_validator("stalled")
    @classmethod
    def _within(cls, stalled: float, info: ValidationInfo) -> float:
        if stalled > info.data.get("at_most", stalled):
            raise ValueError("is longer than at_most, which ends the wait before")
        return stalled

    def to_plan(self, name: str) -> plan.Phase:
        """Return the plan's phase of this name."""
        return plan.Phase(name, "wait", wait_clean=True, at_most=self.at_most, stalled=self.stalled)


class BySizeSection(BenchmarkSection):
    """Fill, then one mix of operations in several phases."""

    engine: Engine = Field(engine_with("exact_mix"), description=ENGINE)
    objects: ObjectsSection = file_default(
        ObjectsSection.model_validate,
        {"set": "small"},
        description="Object sizes; one bucket for each size.",
    )
    drivers_per_size: int = Field(
        1, ge=1, le=MANY, description="Drivers per object size."
    )
    mix: MixSection = file_default(
        MixSection.model_validate,
        DEFAULT_MIX_TEXT,
        description="Shares of operations in measurements and aging.",
    )
    fill: FillSection = file_default(
        FillSection.model_validate,
        {"duration": "4h"},
        description="When the fill ends: give one key.",
    )
    warp_mixed: MixedDuration = MIXED

    between: Optional[BetweenSection] = Field(
        None, description="Between phases with load: `{gc: 1h, drop_caches: true, settle: 5m}`."
    )

    @field_validator("mix")
    @classmethod
    def _possible(cls, mix: MixSection, info: ValidationInfo) -> MixSection:
        engine = info.data.get("engine")
        errors = generator(engine).errors_of_mix(mix) if engine else []
        if errors:
            raise FieldErrors(errors)
        return mix

    @field_validator("fill")
    @classmethod
    def _reachable(cls, fill: FillSection, info: ValidationInfo) -> FillSection:
        check_raw_goal(fill, info.data.get("full_guard"))
        return fill

    @field_validator("warp_mixed")
    @classmethod
    def _as_mixed(cls, duration: Optional[float], info: ValidationInfo) -> Optional[float]:
        return mixed_duration(duration, info.data.get("mix"))

    def plan_of(
        self,
        benchmark: str,
        phases: Sequence[plan.Phase],
        settings: plan.Settings,
        clients: Sequence[str],
        endpoints: Mapping[str, Any],
    ) -> plan.Plan:
        """Return the plan of these phases."""
        sizes = self.objects.resolve()
        names = [format_size(size) for size in sizes for _ in range(self.drivers_per_size)]
        return replace(
            self.shared_plan(benchmark, endpoints),
            buckets=tuple(plan.Bucket(key=format_size(size), sizes=((size, size, 1.0),)) for size in sizes),
            drivers=drivers_on(clients, [(name, (name,)) for name in names], self.workers),
            phases=tuple(self.with_steps(phases)),
            settings=settings,
        )

    def with_steps(self, phases: Sequence[plan.Phase]) -> Iterator[plan.Phase]:
        """Yield the phases with those of `between` from one with load to the next one, while no fault is in force.

        Waits of the cycle itself come before them.
        """
        faults: Set[str] = set()
        before = ""
        for phase in phases:
            if self.between and before and phase.kind != "wait" and not faults:
                yield from self.between.after(before, self.scale)
            before = phase.name
            yield phase
            for event in phase.events:
                faults |= {event.inject.label} if event.inject else set()
                faults -= set(event.undo)

    def fill_phase(self) -> plan.Phase:
        """Return the first phase."""
        return plan.Phase("fill", "fill", "fill", goal=self.fill.to_plan(self.scale), engine=self.engine)

    def hybrid_phase(
        self, name: str, role: str, duration: float, events: Tuple[plan.Event, ...] = ()
    ) -> plan.Phase:
        """Return a phase with the mix; `duration` is not scaled yet."""
        seconds = scaled_duration(duration, self.scale)
        mix = self.mix.to_plan()
        return plan.Phase(name, "hybrid", role, duration=seconds, mix=mix, engine=self.engine, events=events)

    def warp_mixed_phases(self) -> Tuple[plan.Phase, ...]:
        """Return the phase `warp-mixed`, or none."""
        if self.warp_mixed is None:
            return ()
        return (mixed_phase(self.warp_mixed, self.mix, self.scale, self.workers),)


class FailuresSection(BySizeSection):
    """Failures of a cluster that does not scrub, each with a wait for active+clean after it."""

    settings: SettingsSection = file_default(
        SettingsSection.model_validate,
        {"scrub": "off"},
        description="As in `warp:`; the default of `scrub` is off.",
    )
    wait: WaitCleanSection = file_default(
        WaitCleanSection.model_validate,
        {},
        description="When a wait for active+clean is given up; never scaled.",
    )

    @property
    def settings_without_scrubs(self) -> plan.Settings:
        """The plan's settings; without a word on scrubs there are none."""
        return self.settings.to_plan(scrub=False)

    @staticmethod
    def check_rate(engine: Optional[str]) -> None:
        """Raise ValueError for an engine that has no open loop."""
        if engine and "rate" not in generator(engine).known_keys:
            raise ValueError(f"goes with engine: {engine_with('known_keys', 'rate')}, and the engine here is {engine}")
