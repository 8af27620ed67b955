"""`resilience:`, a list of failures one after the other on the same data: what each of them costs the clients."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.benchmarks.by_size import FailuresSection
from cbt_plugins.benchmarks.cycle_benchmark import CycleBenchmark
from cbt_plugins.benchmarks.hybrid_keys import AnyRate
from cbt_plugins.config.fault import TargetedFaultSection, lasting
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, file_default, validate
from cbt_plugins.config.mix import MixSection
from cbt_plugins.config.section_values import Workers
from cbt_plugins.config.units import Duration
from cbt_plugins.config.yaml_source import read

_MINUTE = 60.0
#: the failures of a file without `failures:`
CATALOGUE = Path(__file__).with_name("resilience_failures.yaml")
#: two words or more: limits of a gate tell a failure from an operation by the space
_NAME = re.compile(r"[a-z0-9]+( [a-z0-9]+)+")
#: characters of a name, which folders and files are named after
_LONGEST = 80
_MIX: Dict[str, Any] = {"get": 60, "put": 20, "delete": 20}
#: more repetitions than this are a typing error
_MANY = 100


class PartsSection(Strict):
    """The parts of each failure's phase, one after the other, under one load."""

    start: Duration = Field(1 * _MINUTE, description="Length of the part before the failure.")
    failure: Duration = Field(5 * _MINUTE, description="Length of the failure.")
    recovery: Duration = Field(10 * _MINUTE, description="Length of the part after the failure.")

    @property
    def length(self) -> float:
        """Seconds of all parts."""
        return self.start + self.failure + self.recovery


Failures = Mapping[str, TargetedFaultSection]


def catalogue(context: Mapping[str, Any]) -> Failures:
    """Return the failures of the catalogue, in order; `context` has the nodes of the file."""
    failures: Dict[str, TargetedFaultSection] = {}
    for name, fault in read(CATALOGUE).data.items():
        section, errors = validate(TargetedFaultSection, fault, context)
        if section is None:
            raise ValueError(f"{CATALOGUE}: {name}: {'; '.join(error.text for error in errors)}")
        failures[name] = section
    return failures


class ResilienceSection(FailuresSection):
    """Failures one after the other on the same data, each with its losses: a scorecard of the cluster."""

    workers: Workers = 64
    mix: MixSection = file_default(
        MixSection.model_validate,
        _MIX,
        description="Shares of operations in all phases but the fill; the default keeps the number of objects.",
    )
    age: Optional[Duration] = Field(None, description="Age the data first for so long, by a closed loop.")
    rate: AnyRate = Field(
        "50%",
        description="Of all drivers, in an open loop; or a percentage of what a closed loop on the same data does.",
        validate_default=True,
    )
    closed_loop: Duration = Field(
        2 * _MINUTE, description="Length of the closed loop that a percentage is of."
    )
    baseline: Duration = Field(10 * _MINUTE, description="Length of the phase without a failure, `no-failure`.")
    parts: PartsSection = file_default(
        PartsSection.model_validate,
        {},
        description="Parts of the phase of each failure.",
    )
    failures: Optional[Annotated[Dict[str, TargetedFaultSection], Field(min_length=1)]] = Field(
        None,
        description="By name: `node down: {kind: stop, osd_nodes: 1}`. Default: a catalogue, judged on the cluster.",
        validate_default=True,
    )
    repeat: int = Field(1, ge=1, le=_MANY, description="How often all failures are repeated.")

    @field_validator("rate")
    @classmethod
    def _possible_rate(
        cls, rate: Tuple[Optional[float], Optional[float]], info: ValidationInfo
    ) -> Tuple[Optional[float], Optional[float]]:
        cls.check_rate(info.data.get("engine"))
        return rate

    @field_validator("failures")
    @classmethod
    def _usable_names(cls, failures: Optional[Failures], info: ValidationInfo) -> Failures:
        if failures is None:
            return catalogue(info.context or {})
        errors = [
            FieldError((name,), f"{name!r}: a name is made of two or more words of a-z and 0-9: node down", of_key=True)
            for name in failures
            if not _NAME.fullmatch(name)
        ]
        errors += [
            FieldError((name,), f"has {len(name)} characters, and {_LONGEST} are the limit of a name", of_key=True)
            for name in failures
            if len(name) > _LONGEST
        ]
        if errors:
            raise FieldErrors(errors)
        return failures

    @model_validator(mode="after")
    def _check_section(self) -> ResilienceSection:
        failures: Failures = self.failures or {}
        errors = [
            FieldError(("failures", name), text, of_key=True)
            for name, fault in failures.items()
            for text in self.settings.hidden(fault.accept)
        ]
        names = Counter(phase.name for phase in self.with_steps(list(self._phases())))
        errors += [
            FieldError(("failures", phase.failure), f"{phase.name} is the name of another phase", of_key=True)
            for phase in self._phases()
            if phase.failure and (names[phase.name] > 1 or names[f"{phase.name}-clean"] > 1)
        ]
        if errors:
            raise FieldErrors(list(dict.fromkeys(errors)))
        return self

    def _phases(self) -> Iterator[plan.Phase]:
        share = self.rate[1]
        yield self.fill_phase()
        if self.age:
            yield self.hybrid_phase("age", "age", self.age)
        if share:
            yield self.hybrid_phase("closed-loop", "none", self.closed_loop)
        yield self._open_loop("no-failure", self.baseline)
        yield from self.warp_mixed_phases()
        for number in range(1, self.repeat + 1):
            for name, section in (self.failures or {}).items():
                label = name.replace(" ", "-") + (f"-{number}" if self.repeat > 1 else "")
                yield replace(
                    self._open_loop(label, self.parts.length), failure=name, events=self._events(section, label)
                )
                yield self.wait.to_plan(f"{label}-clean")

    def _open_loop(self, name: str, duration: float) -> plan.Phase:
        per_second, share = self.rate
        return replace(self.hybrid_phase(name, "measure", duration), rate=per_second, rate_share=share)

    def _events(self, section: TargetedFaultSection, label: str) -> Tuple[plan.Event, ...]:
        begin, end = (seconds * self.scale for seconds in (self.parts.start, self.parts.start + self.parts.failure))
        fault = lasting(section.labelled(label), end - begin)
        return plan.Event(begin, inject=fault, optional=True), plan.Event(end, undo=(label,))

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan."""
        settings = self.settings_without_scrubs
        return self.plan_of("resilience", list(self._phases()), settings, clients, endpoints)


class Resilience(CycleBenchmark):
    """The benchmark `resilience`."""

    Section = ResilienceSection
