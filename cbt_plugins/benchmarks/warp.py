"""`warp:`, the general benchmark: any sequence of phases, on one object size or a mix of sizes."""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, Dict, List, Mapping, Optional, Sequence, Union

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cbt_plugins import plan
from cbt_plugins.benchmarks.cycle import CycleBenchmark
from cbt_plugins.config import registry
from cbt_plugins.config.benchmark import MANY, BenchmarkSection, Engine, scaled_duration
from cbt_plugins.config.cycle import CycleSection, errors_of_order
from cbt_plugins.config.events import FaultsInForce
from cbt_plugins.config.units import Sizes, size_texts
from cbt_plugins.config.validate import FieldError, FieldErrors, Strict

_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")


def _said_explicitly(schema: Dict[str, Any]) -> None:
    schema.pop("default")
    schema["const"] = True


class ExistingBuckets(Strict):
    """Buckets that somebody else filled."""

    model_config = ConfigDict(json_schema_extra={"required": ["names", "existing"]})

    names: Annotated[List[str], Field(min_length=1)] = Field(description="Their names.")
    existing: bool = Field(
        False,
        description="Must be true; objects get a prefix of ours.",
        json_schema_extra=_said_explicitly,
    )

    @field_validator("names")
    @classmethod
    def _usable(cls, names: List[str]) -> List[str]:
        errors = []
        for index, name in enumerate(names):
            if not _BUCKET_NAME.fullmatch(name):
                errors.append(FieldError((index,), f"not a bucket name: {name!r}"))
            elif name in names[:index]:
                errors.append(FieldError((index,), f"{name} is in the list twice"))
        if errors:
            raise FieldErrors(errors)
        return names

    @model_validator(mode="after")
    def _whole(self) -> ExistingBuckets:
        if not self.existing:
            raise ValueError(
                "names are for buckets that exist already: say existing: true, "
                "or give a number of buckets, which the run makes and names itself"
            )
        return self


_Buckets = Annotated[
    Union[
        Annotated[int, Field(ge=1, le=MANY), Tag("<number>")],
        Annotated[ExistingBuckets, Tag("<mapping>")],
    ],
    Discriminator(lambda value: "<mapping>" if isinstance(value, (dict, ExistingBuckets)) else "<number>"),
]


class WarpSection(BenchmarkSection):
    """The general benchmark: phases of your choice."""

    size: Sizes = Field(
        ((4096, 4096, 1.0),),
        description="One, or shares of several: `{4KiB: 50%, 64KiB-1MiB: 50%}`.",
        json_schema_extra={"default": "4KiB"},
    )
    buckets: _Buckets = Field(1, description="How many the run makes; or existing ones.")
    across_buckets: bool = Field(
        False, description="cbt-load, hsbench. Each driver works on all buckets, not on one."
    )
    drivers: Optional[int] = Field(
        None,
        ge=1,
        le=MANY,
        description="In all. Default: one for each client node, or bucket if these are more (and not across_buckets).",
    )
    cycle: CycleSection = Field(description="The phases.")

    @field_validator("drivers")
    @classmethod
    def _every_bucket(cls, drivers: Optional[int], info: ValidationInfo) -> Optional[int]:
        buckets = info.data.get("buckets")
        number = buckets if isinstance(buckets, int) else len(buckets.names) if buckets else 1
        if drivers is not None and drivers < number and not info.data.get("across_buckets"):
            raise ValueError(f"{drivers} cannot serve {number} buckets: every bucket needs a driver of its own")
        return drivers

    @field_validator("cycle")
    @classmethod
    def _in_order(cls, cycle: CycleSection, info: ValidationInfo) -> CycleSection:
        data = info.data
        known = "size" in data and "buckets" in data and "engine" in data
        names = _names(data["size"], data["buckets"], data["engine"]) if known else None
        errors = errors_of_order(cycle, data, isinstance(data.get("buckets"), ExistingBuckets), names)
        if errors:
            raise FieldErrors(errors)
        return cycle

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan; drivers go round nodes and buckets in turn."""
        keys = _names(self.size, self.buckets, self.engine)
        existing = isinstance(self.buckets, ExistingBuckets)
        number = self.drivers or (len(clients) if self.across_buckets else max(len(clients), len(keys)))
        drivers, all_buckets = [], tuple(keys)
        for i, node in enumerate(itertools.islice(itertools.cycle(clients), number)):
            own = keys[i % len(keys)]
            name = _stem(self.size) if self.across_buckets else own
            buckets = all_buckets if self.across_buckets else (own,)
            drivers.append(plan.Driver(f"{i + 1:02d}-{name}", node, buckets, self.workers))
        force = FaultsInForce()
        return plan.Plan(
            benchmark="warp",
            s3=self.endpoints_plan(endpoints),
            buckets=tuple(plan.Bucket(key, self.size, existing) for key in keys),
            drivers=tuple(drivers),
            phases=tuple(
                each
                for name, phase in self.cycle.named()
                for each in phase.to_plan(name, self.scale, self.engine, keys, force)
            ),
            full_guard=self.full_guard,
            keep_data=self.keep_data,
            scale=self.scale,
            warp_path=self.warp_path,
            read_objects=self.read_objects,
            cbt_load=self.cbt_load.to_plan(),
            keep_rows=self.keep_rows,
            generator_ceiling=self.generator_ceiling,
            admin=self.admin == "ceph",
            versioned=self.versioned,
            settings=self.settings.to_plan(),
            pools=self.pools_to_plan(),
            rgw=self.rgw.to_plan(),
            post_poll=scaled_duration(self.post_poll, self.scale),
        )


def _stem(sizes: plan.Sizes) -> str:
    return size_texts(sizes)[0] if len(sizes) == 1 else "sizes"


def _names(sizes: plan.Sizes, buckets: Union[int, ExistingBuckets], engine: Engine) -> List[str]:
    """Return the keys of the plan's buckets."""
    if isinstance(buckets, ExistingBuckets):
        return list(buckets.names)
    keys: List[str] = registry.load(registry.GENERATORS, engine).bucket_keys(_stem(sizes), buckets)
    return keys


class Warp(CycleBenchmark):
    """The benchmark `warp`."""

    Section = WarpSection
