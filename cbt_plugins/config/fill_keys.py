"""`fill:` -- when a fill is done, of every benchmark and as a phase of `cycle:`."""

from __future__ import annotations

from typing import Optional

from pydantic import ConfigDict, Field, model_validator

from cbt_plugins import plan
from cbt_plugins.config.events import PhaseEvents
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one, only_one
from cbt_plugins.config.section_values import Engine, scaled_duration, scaled_objects
from cbt_plugins.config.units import Duration, Percent, format_percent

#: objects of a bucket: keys of cbt-load with more than ten digits are not in the order of their numbers
MOST_OBJECTS = 10**10 - 1
_GOALS = ("duration", "objects", "max_avail", "raw")


class FillSection(Strict):
    """When a fill is done: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_GOALS))

    duration: Optional[Duration] = Field(None, description="How long.")
    objects: Optional[int] = Field(
        None,
        ge=1,
        le=MOST_OBJECTS,
        description="Number of objects in each bucket; `plan --live` and the run warn if even empty data pools cannot "
        "hold them.",
    )
    max_avail: Optional[Percent] = Field(
        None,
        description="This share of MAX AVAIL at its start, of the first bucket's data pool. `ceph df` lags by some "
        "seconds of writing: a fast small cluster gets more.",
    )
    raw: Optional[Percent] = Field(
        None,
        description="Until this share of raw capacity is used, by any data; an error where it is used already. "
        "Overshoots like max_avail.",
    )

    @model_validator(mode="after")
    def _check_section(self) -> FillSection:
        only_one(self, _GOALS)
        return self

    def to_plan(self, scale: float) -> plan.Goal:
        """Return the goal; percentages are absolute, so `scale` leaves them alone."""
        return plan.Goal(
            duration=scaled_duration(self.duration, scale),
            objects=scaled_objects(self.objects, scale),
            max_avail=self.max_avail,
            raw=self.raw,
        )


class FillPhaseSection(FillSection):
    """Write objects: exactly one of duration, objects, max_avail, raw says until when."""

    engine: Optional[Engine] = Field(None, description="Default: the benchmark's.")
    events: Optional[PhaseEvents] = Field(None, description="In order of time.")


def check_raw_goal(goal: Optional[FillSection], full_guard: Optional[float]) -> None:
    """Raise ValueError for a fill that the full guard stops before it is done."""
    if goal and goal.raw and full_guard and goal.raw >= full_guard:
        text = f"must be below full_guard ({format_percent(full_guard)}), which stops every phase"
        raise FieldErrors([FieldError(("raw",), text)])
