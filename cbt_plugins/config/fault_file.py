"""A file of faults, for any benchmark: `events:` with times from its start, and `settings:`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Sequence, Tuple, Union

from pydantic import Field, field_validator, model_validator

from cbt_plugins.config import plan
from cbt_plugins.config.events import Events, EventSection, Force
from cbt_plugins.config.faults import ConfigError
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
        if problems:
            raise Problems(problems)
        return self


def is_fault_file(source: Source) -> bool:
    """Tell a file of faults from a CBT file."""
    return isinstance(source.data, dict) and "events" in source.data and "benchmarks" not in source.data


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
    data: Any = source.data
    model, problems = validate(FaultFileSection, data, {"osds": osds})
    faults = [*source.duplicates, *(source.fault(path, text, of_key) for path, text, of_key in problems)]
    if faults or model is None:
        raise ConfigError(faults)
    return Force().to_plan(model.events), model.settings.to_plan()
