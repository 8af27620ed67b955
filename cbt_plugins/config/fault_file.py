"""A file of faults, for any benchmark: `events:` with times from its start, and `settings:`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Sequence, Tuple, Union

from pydantic import Field, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import Events, EventSection, Force
from cbt_plugins.config.order import unseen
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.source import Source, read
from cbt_plugins.config.validate import Problem, Problems, Strict, validate


class FaultFileSection(Strict):
    """Faults beside a benchmark that knows nothing of them; what is still in force at its end is undone then."""

    settings: SettingsSection = Field(
        SettingsSection.model_validate({}),
        description="Set on the cluster for the length of the benchmark, and put back.",
        json_schema_extra={"default": {}},
    )
    events: Events = Field(description="What happens, in order of time.")

    @field_validator("events")
    @classmethod
    def _in_order(cls, events: Sequence[EventSection]) -> Sequence[EventSection]:
        problems = Force().faults(events, None)
        if problems:
            raise Problems(problems)
        return events

    @model_validator(mode="after")
    def _seen(self) -> FaultFileSection:
        problems = [
            Problem(("events", index, "fault"), text, of_key=True)
            for index, event in enumerate(self.events)
            for text in (unseen(self.settings, event.fault.accept) if event.fault else ())
        ]
        if self.settings.deep_scrub:
            problems.append(Problem(("settings", "scrub"), "deep-after follows a run of a benchmark of ours: say off"))
        if problems:
            raise Problems(problems)
        return self


def is_fault_file(source: Source) -> bool:
    """Tell a file of faults from a CBT file."""
    return isinstance(source.data, dict) and "events" in source.data and "benchmarks" not in source.data


def events_of(path: str, osds: Optional[Sequence[str]] = None) -> Sequence[EventSection]:
    """Return the events of a file for a phase of a cycle; raises ValueError with every fault.

    Its settings would be those of a phase, and a run has one set for its whole length: they may not be there.
    """
    try:
        model = _model(read(Path(path)), osds)
    except ConfigError as error:
        raise ValueError("; ".join(map(str, error.faults))) from None
    if model.settings.to_plan() != plan.Settings():
        raise ValueError(f"{path} has settings:, which are set for a whole run: move them beside the cycle")
    return model.events


def load(
    path: Union[str, Path], osds: Optional[Sequence[str]] = None
) -> Tuple[Tuple[plan.Event, ...], plan.Settings]:
    """Return the events, in seconds after the start, and the settings; raises ConfigError with every fault.

    `osds` are the nodes that the file may name, as `cluster: {osds: [...]}` has them; without them it may name any.
    """
    return load_source(read(Path(path)), osds)


def load_source(
    source: Source, osds: Optional[Sequence[str]] = None
) -> Tuple[Tuple[plan.Event, ...], plan.Settings]:
    """Return the same of a file that has been read."""
    model = _model(source, osds)
    return Force().to_plan(model.events), model.settings.to_plan()


def _model(source: Source, osds: Optional[Sequence[str]]) -> FaultFileSection:
    data: Any = source.data
    model, problems = validate(FaultFileSection, data, {"osds": osds})
    faults = [*source.duplicates, *(source.fault(path, text, of_key) for path, text, of_key in problems)]
    if faults or model is None:
        raise ConfigError(faults)
    return model
