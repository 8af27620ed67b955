"""`warp:` -- any sequence of phases on one object size or a mix of exact sizes."""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from cbt_plugins.config import plan
from cbt_plugins.config.models import (
    MANY,
    BenchmarkSection,
    check_raw_goal,
    scaled_objects,
)
from cbt_plugins.config.phases import CycleSection
from cbt_plugins.config.units import (
    PERCENT_PATTERN,
    SIZE_PATTERN,
    format_percent,
    format_size,
    parse_percent,
    parse_size,
)
from cbt_plugins.config.validate import Problem, Problems, Strict

_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")


def _sizes(value: Any) -> plan.Sizes:
    """One size, or exact sizes with their shares of the objects."""
    if not isinstance(value, dict):
        size = parse_size(value)
        if size < 1:
            raise ValueError("objects need at least 1B")
        return ((size, size, 1.0),)
    problems: List[Problem] = []
    shares: Dict[int, float] = {}
    for key, share in value.items():
        try:
            size = parse_size(key)
            if size < 1:
                raise ValueError("objects need at least 1B")
            if size in shares:
                raise ValueError(f"{format_size(size)} is here twice")
            shares[size] = 0.0
        except ValueError as error:
            problems.append(Problem((key,), str(error), of_key=True))
            continue
        try:
            shares[size] = parse_percent(share)
            if not shares[size]:
                raise ValueError("a share of 0% is no share; leave the size out")
        except ValueError as error:
            problems.append(Problem((key,), str(error)))
    total = sum(shares.values())
    if not problems and abs(total - 1) > 1e-9:
        problems.append(Problem((), f"the sum of the shares is {format_percent(round(total, 9))}, not 100%"))
    if problems:
        raise Problems(problems)
    return tuple((size, size, share) for size, share in shares.items())


_Sizes = Annotated[
    Tuple[Tuple[int, int, float], ...],
    BeforeValidator(_sizes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": SIZE_PATTERN},
                {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"pattern": SIZE_PATTERN},
                    "additionalProperties": {"type": "string", "pattern": PERCENT_PATTERN},
                },
            ],
            "examples": ["4KiB", {"4KiB": "50%", "1MiB": "50%"}],
        }
    ),
]


def _said_explicitly(schema: Dict[str, Any]) -> None:
    schema.pop("default")
    schema["const"] = True


class ForeignBuckets(Strict):
    """Buckets that somebody else filled."""

    model_config = ConfigDict(json_schema_extra={"required": ["names", "existing"]})

    names: Annotated[List[str], Field(min_length=1)] = Field(description="Their names.")
    existing: bool = Field(
        False,
        description="Must be true: their objects are read; objects are written under a prefix of ours only.",
        json_schema_extra=_said_explicitly,
    )

    @field_validator("names")
    @classmethod
    def _usable(cls, names: List[str]) -> List[str]:
        problems = []
        for index, name in enumerate(names):
            if not _BUCKET_NAME.fullmatch(name):
                problems.append(Problem((index,), f"{name!r} is no bucket name"))
            elif name in names[:index]:
                problems.append(Problem((index,), f"{name} is in the list twice"))
        if problems:
            raise Problems(problems)
        return names

    @model_validator(mode="after")
    def _whole(self) -> ForeignBuckets:
        if not self.existing:
            raise ValueError(
                "names are for buckets that exist already: say existing: true, "
                "or give a number of buckets, which the run makes and names itself"
            )
        return self


_Buckets = Annotated[
    Union[
        Annotated[int, Field(ge=1, le=MANY), Tag("<number>")],
        Annotated[ForeignBuckets, Tag("<mapping>")],
    ],
    Discriminator(lambda value: "<mapping>" if isinstance(value, (dict, ForeignBuckets)) else "<number>"),
]


class WarpSection(BenchmarkSection):
    """The general benchmark: phases of your choice."""

    size: _Sizes = Field(
        ((4096, 4096, 1.0),),
        description="One exact object size, or exact sizes with their shares: `{4KiB: 50%, 1MiB: 50%}`.",
        json_schema_extra={"default": "4KiB"},
    )
    buckets: _Buckets = Field(1, description="Number of buckets that the run makes; or names of existing ones.")
    drivers: Optional[int] = Field(
        None,
        ge=1,
        le=MANY,
        description="Drivers in all, spread over nodes and buckets in turn; "
        "without it as many as there are client nodes, or buckets when they are more.",
    )
    cycle: CycleSection = Field(description="The phases.")

    @field_validator("drivers")
    @classmethod
    def _every_bucket(cls, drivers: Optional[int], info: ValidationInfo) -> Optional[int]:
        buckets = info.data.get("buckets")
        number = buckets if isinstance(buckets, int) else len(buckets.names) if buckets else 1
        if drivers is not None and drivers < number:
            raise ValueError(f"{drivers} cannot serve {number} buckets: every bucket needs a driver of its own")
        return drivers

    @field_validator("cycle")
    @classmethod
    def _in_order(cls, cycle: CycleSection, info: ValidationInfo) -> CycleSection:
        data = info.data
        problems: List[Problem] = []
        foreign = isinstance(data.get("buckets"), ForeignBuckets)
        filled, own = "buckets" not in data or foreign, False
        for index, phase in enumerate(cycle.phases):
            path = ("phases", index, phase.kind)
            filled, own = filled or phase.kind == "fill", own or phase.kind == "fill"
            if foreign and phase.writes and not data.get("keep_data"):
                text = "writes into a bucket that is not this run's, under a prefix that is not removed at the end: "
                problems.append(Problem(path, text + "accept that with keep_data: true", of_key=True))
            if foreign and not own and phase.hybrid and phase.hybrid.mix.delete:
                text = "nothing to delete: only objects of this run's own are; put a fill phase before it"
                problems.append(Problem(path, text, of_key=True))
            if phase.kind == "hybrid" and not filled:
                text = "no objects to work on: put a fill phase before it, or name existing buckets"
                problems.append(Problem(path, text, of_key=True))
            try:
                check_raw_goal(phase.fill, data.get("full_guard"))
            except Problems as error:
                problems += [problem._replace(path=path + problem.path) for problem in error.problems]
            workers = data.get("workers")
            if phase.warp and phase.warp.op == "mixed" and phase.warp.objects and workers:
                objects = scaled_objects(phase.warp.objects, data.get("scale") or 1.0) or 1
                if objects <= workers:
                    text = f"{objects} objects for {workers} workers: warp mixed needs more objects than workers"
                    problems.append(Problem((*path, "objects"), text))
        if problems:
            raise Problems(problems)
        return cycle

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan; drivers go round nodes and buckets in turn."""
        if isinstance(self.buckets, ForeignBuckets):
            keys = list(self.buckets.names)
        else:
            stem = format_size(self.size[0][0]) if len(self.size) == 1 else "sizes"
            keys = [stem] if self.buckets == 1 else [f"{stem}-{i + 1}" for i in range(self.buckets)]
        foreign = isinstance(self.buckets, ForeignBuckets)
        number = self.drivers or max(len(clients), len(keys))
        return plan.Plan(
            benchmark="warp",
            s3=self.s3.to_plan(endpoints),
            buckets=tuple(plan.Bucket(key, self.size, foreign) for key in keys),
            drivers=tuple(
                plan.Driver(f"{i + 1:02d}-{keys[i % len(keys)]}", node, (keys[i % len(keys)],), self.workers)
                for i, node in enumerate(itertools.islice(itertools.cycle(clients), number))
            ),
            phases=tuple(phase.to_plan(name, self.scale) for name, phase in self.cycle.named()),
            full_guard=self.full_guard,
            keep_data=self.keep_data,
            scale=self.scale,
            warp_path=self.warp_path,
            read_objects=self.read_objects,
        )
