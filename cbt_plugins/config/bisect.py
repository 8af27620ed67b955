"""`bisect:` -- a git repository, how a commit is built and deployed, and the metric that one of its commits changed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Dict, Iterator, Literal, Mapping, NamedTuple, Optional

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator

from cbt_plugins.config.built_cycle import BuiltCycleSection
from cbt_plugins.config.errors import ErrorAt, did_you_mean
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, file_default
from cbt_plugins.config.repeated_cycle import errors_of_section
from cbt_plugins.config.units import Duration, Percent, share_within
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.metrics import METRICS, Direction, MetricSource

#: of a commit that touches no file of `paths`
WEIGHT = 1.0
#: the section's name, which CBT does not read
KEY = "bisect"
_REVISION = r"[A-Za-z0-9_][A-Za-z0-9_./@{}^~+-]{0,200}"
_PLACE = re.compile(r"[A-Za-z0-9_*?\[\]!. +-]+")


def _revision(text: str) -> str:
    if not re.fullmatch(_REVISION, text) or ".." in text:
        raise ValueError("must be one commit: a hash, a tag or a branch")
    return text


Revision = Annotated[
    str, AfterValidator(_revision), WithJsonSchema({"type": "string", "pattern": f"^(?:{_REVISION})$"})
]


class MetricKey(NamedTuple):
    """[[PHASE.]OPERATION.]METRIC; phase and operation are patterns."""

    phase: Optional[str]  # None: all but states of a failure
    op: Optional[str]  # None: all operations together, or the cluster
    metric: str


def parse_metric_name(text: str) -> MetricKey:
    """Read "p99_ms", "GET.p99_ms" or "measure-aged.GET.p99_ms". Raises ValueError."""
    *place, metric = text.strip().split(".")
    if metric not in METRICS:
        hint = did_you_mean(metric, METRICS) or f"; known are {', '.join(METRICS)}"
        raise ValueError(f"unknown metric {metric!r}{hint}")
    if METRICS[metric].direction is Direction.NONE:
        raise ValueError(f"{metric} has no better direction")
    if METRICS[metric].additive and METRICS[metric].source is not MetricSource.OPERATION:  # gaps are rarely 0
        raise ValueError(f"{metric} may be 0, and commits are compared by ratios")
    if METRICS[metric].source is MetricSource.LADDER:
        raise ValueError(f"{metric} is known up to a step of its ladder: name a metric of a phase, as GET.p99_ms")
    if not all(_PLACE.fullmatch(part) for part in place):
        raise ValueError("must be METRIC, OPERATION.METRIC or PHASE.OPERATION.METRIC")
    op = place.pop() if place else None
    return MetricKey(".".join(place) or None, op, metric)


class BisectBudget(Strict):
    """Where the search ends without an answer. It can be raised later: the search resumes."""

    time: Optional[Duration] = Field(None, description="Time for the whole search.")
    measurements: int = Field(
        200, ge=3, le=10_000, description="Measurements; each takes two cycles."
    )


class BisectSection(BuiltCycleSection):
    """The search for the commit that made a metric worse. CBT ignores this section."""

    repo: str = Field(".", min_length=1, description="A git repository, relative to this file.")
    good: Revision = Field(description="Commit without the change, an ancestor of `bad`.")
    bad: Revision = Field(description="Commit with the change.")
    metric: str = Field(description="[[PHASE.]OPERATION.]METRIC, as `measure*.GET.p99_ms`; one number.")
    change: Literal["worse", "better"] = Field("worse", description="Direction in which the metric changed.")
    effect: Annotated[Percent, share_within(0.002, 0.5)] = Field(0.03, description="Smallest change that counts.")
    posterior: Annotated[Percent, share_within(0.5, 0.999)] = Field(0.95, description="How sure the answer must be.")
    paths: Dict[str, float] = Field(
        {}, description=f"Weights of commits that touch files: `src/rgw/*: 10`. Default: {WEIGHT:g}."
    )
    budget: BisectBudget = file_default(
        BisectBudget.model_validate,
        {},
        description="When the search ends.",
    )
    builds: Optional[str] = Field(
        None, min_length=1, description="Folder of the builds; several searches may share it."
    )

    @field_validator("metric")
    @classmethod
    def _check_metric(cls, text: str) -> str:
        parse_metric_name(text)
        return text

    @field_validator("paths")
    @classmethod
    def _weights(cls, paths: Mapping[str, float]) -> Mapping[str, float]:
        wrong = [
            FieldError((pattern,), "a weight is more than 0, and at most 1000")
            for pattern, weight in paths.items()
            if not 0 < weight <= 1000
        ]
        if wrong:
            raise FieldErrors(wrong)
        return paths

    def folder_of(self, file: Path) -> Path:
        """Return the repository that the file means."""
        return (file.resolve().parent / os.path.expanduser(self.repo)).resolve()


def errors_of_bisect(source: YamlSource) -> Iterator[ErrorAt]:
    """Return the errors in the section."""
    return errors_of_section(source, KEY, BisectSection)
