"""`warp:`, the general benchmark: any sequence of phases, on one object size or a mix of sizes."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Annotated, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cbt_plugins import plan
from cbt_plugins.benchmarks.common_keys import BenchmarkSection
from cbt_plugins.benchmarks.cycle_benchmark import CycleBenchmark
from cbt_plugins.benchmarks.drivers import drivers_on, name_of_sizes
from cbt_plugins.benchmarks.phase_keys import CycleSection, errors_of_order
from cbt_plugins.config.events import FaultsInForce
from cbt_plugins.config.fill_keys import MOST_OBJECTS
from cbt_plugins.config.generator_classes import engine_with, generator
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, file_default
from cbt_plugins.config.rgw import PlacementSection
from cbt_plugins.config.section_values import (
    MANY,
    Engine,
    scaled_objects,
)
from cbt_plugins.config.shell_values import RgwUser
from cbt_plugins.config.units import Sizes, parse_sizes

_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")


def _said_explicitly(schema: Dict[str, Any]) -> None:
    schema.pop("default")
    schema["const"] = True


class ExistingBuckets(Strict):
    """Buckets that somebody else filled."""

    model_config = ConfigDict(json_schema_extra={"required": ["names", "existing"]})

    names: Annotated[List[str], Field(min_length=1)] = Field(description="Names of the existing buckets.")
    existing: bool = Field(
        False,
        description="Must be true; objects of the run get the prefix `cbtp-<run id>/`.",
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
    def _check_section(self) -> ExistingBuckets:
        if not self.existing:
            raise ValueError(
                "names are for buckets that exist already: say existing: true, "
                "or give a number of buckets, which the run makes and names itself"
            )
        return self


class BucketGroup(Strict):
    """Buckets of one kind; those of group `a` are a-1, a-2, ..., the only one is `a`."""

    number: int = Field(1, ge=1, le=MANY, description="How many buckets.")
    size: Optional[Sizes] = Field(None, description="Default: `size` of the section.")
    objects: Optional[Annotated[int, Field(ge=1, le=MOST_OBJECTS)]] = Field(
        None, description="Objects in each bucket, instead of `fill.objects`."
    )
    user: Optional[RgwUser] = Field(None, description="cbt-load. RGW user who owns the buckets. Default: `s3.user`.")
    placement: Optional[PlacementSection] = Field(
        None, description="Placement of the buckets of this user, as in `rgw.placement`."
    )


_GROUP = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: a bucket's name is cbtp-<run id>-<group>-<number>
_LONGEST_GROUP = 30


def _groups(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    errors = []
    keys: List[str] = []
    for name, group in value.items():
        if not isinstance(name, str) or not _GROUP.fullmatch(name) or len(name) > _LONGEST_GROUP:
            text = f"{name!r}: a name is made of up to {_LONGEST_GROUP} of a-z, 0-9 and -"
            errors.append(FieldError((name,), text, of_key=True))
            continue
        number = group.get("number", 1) if isinstance(group, dict) else 1
        own = _numbered(name, number if isinstance(number, int) and 1 <= number <= MANY else 1)
        if set(own) & set(keys):
            errors.append(FieldError((name,), f"{name!r} has the name of a bucket of another group", of_key=True))
        keys += own
    if errors:
        raise FieldErrors(errors)
    return value


def _kind(value: Any) -> str:
    if isinstance(value, dict) and any(isinstance(each, (dict, BucketGroup)) for each in value.values()):
        return "<groups>"
    return "<mapping>" if isinstance(value, (dict, ExistingBuckets)) else "<number>"


_Buckets = Annotated[
    Union[
        Annotated[int, Field(ge=1, le=MANY), Tag("<number>")],
        Annotated[ExistingBuckets, Tag("<mapping>")],
        Annotated[Dict[str, BucketGroup], BeforeValidator(_groups), Tag("<groups>")],
    ],
    Discriminator(_kind),
]


class WarpSection(BenchmarkSection):
    """Phases of your choice."""

    size: Sizes = file_default(
        parse_sizes,
        "4KiB",
        description="One object size, or shares of several sizes: `{4KiB: 50%, 64KiB-1MiB: 50%}`.",
    )
    buckets: _Buckets = Field(
        1, description="How many buckets the run makes; or groups of buckets, by name; or existing buckets."
    )
    across_buckets: bool = Field(
        False, description="cbt-load, hsbench. Each driver works on all buckets, not on one."
    )
    drivers: Optional[int] = Field(
        None,
        ge=1,
        le=MANY,
        description="Drivers in all. Default: one for each client node, or bucket if more (not with across_buckets).",
    )
    cycle: CycleSection = Field(description="The phases.")

    @field_validator("drivers")
    @classmethod
    def _every_bucket(cls, drivers: Optional[int], info: ValidationInfo) -> Optional[int]:
        buckets = info.data.get("buckets")
        number = buckets if isinstance(buckets, int) else len(_own_names(buckets)) if buckets else 1
        if drivers is not None and drivers < number and not info.data.get("across_buckets"):
            raise ValueError(f"{drivers} cannot serve {number} buckets: every bucket needs a driver of its own")
        return drivers

    @field_validator("cycle")
    @classmethod
    def _in_order(cls, cycle: CycleSection, info: ValidationInfo) -> CycleSection:
        data = info.data
        has_fields = "size" in data and "buckets" in data and "engine" in data
        names = _names(data["size"], data["buckets"], data["engine"]) if has_fields else None
        errors = errors_of_order(cycle, data, isinstance(data.get("buckets"), ExistingBuckets), names)
        if errors:
            raise FieldErrors(errors)
        return cycle

    @model_validator(mode="after")
    def _objects_are_written(self) -> WarpSection:
        groups = self.buckets if isinstance(self.buckets, dict) else {}
        fills = [p.engine(self.engine) or self.engine for p in self.cycle.phases if p.fill and p.fill.objects]
        given = [name for name, group in groups.items() if group.objects]
        if given and not any("objects" in generator(engine).features for engine in fills):
            engine = engine_with("features", "objects")
            text = f"needs a phase fill: {{objects: ...}} with engine: {engine}"
            raise FieldErrors([FieldError(("buckets", name, "objects"), text, of_key=True) for name in given])
        owned = [name for name, group in groups.items() if group.user]
        if owned and (self.s3.access_key is not None or self.s3.profile is not None):
            text = "goes with s3: user: radosgw-admin gives the keys of all users"
            raise FieldErrors([FieldError(("buckets", name, "user"), text, of_key=True) for name in owned])
        errors = [error for name, group in groups.items() for error in self._misplaced(name, group)]
        if errors:
            raise FieldErrors(errors)
        return self

    def _misplaced(self, name: str, group: BucketGroup) -> Iterator[FieldError]:
        """Yield the errors in the placement of a group."""
        if group.placement is None:
            return
        path = ("buckets", name, "placement")
        others = self.buckets.values() if isinstance(self.buckets, dict) else ()
        if group.user is None or not (self.rgw.make_user or self.rgw.placement):
            yield FieldError(path, "is of a user that the run makes: give user: here, and rgw: {make_user: true}")
        elif any(other_group.user == group.user and other_group.placement != group.placement for other_group in others):
            yield FieldError(path, f"all groups of user {group.user} must have the same placement", of_key=True)
        if self.keep_data:
            yield FieldError(path, "its pools are removed at the end: not with keep_data: true", of_key=True)
        if any(phase.fill and phase.fill.max_avail for phase in self.cycle.phases):
            yield FieldError(path, "not with fill: {max_avail: ...}, which is of one data pool", of_key=True)
        for error in group.placement.errors(self.pools):
            yield error._replace(path=(*path, *error.path))

    def _rgw_plan(self) -> plan.Gateways:
        groups = self.buckets.values() if isinstance(self.buckets, dict) else ()
        own = {group.user: group.placement.to_plan() for group in groups if group.user and group.placement}
        return replace(self.rgw.to_plan(), placements=own)

    def _bucket_plans(self) -> List[plan.Bucket]:
        if isinstance(self.buckets, dict):
            return [
                plan.Bucket(
                    key,
                    group.size or self.size,
                    objects=scaled_objects(group.objects, self.scale),
                    user=group.user or "",
                )
                for name, group in self.buckets.items()
                for key in _numbered(name, group.number)
            ]
        existing = isinstance(self.buckets, ExistingBuckets)
        return [plan.Bucket(key, self.size, existing=existing) for key in _names(self.size, self.buckets, self.engine)]

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan; drivers go round the buckets in turn."""
        own_buckets = self._bucket_plans()
        keys = [bucket.key for bucket in own_buckets]
        number = self.drivers or (len(clients) if self.across_buckets else max(len(clients), len(keys)))
        named: List[Tuple[str, Tuple[str, ...]]]
        if self.across_buckets:
            one_size = len({bucket.sizes for bucket in own_buckets}) == 1
            named = [(name_of_sizes(self.size) if one_size else "sizes", tuple(keys))] * number
        else:
            named = [(key, (key,)) for key in itertools.islice(itertools.cycle(keys), number)]
        force = FaultsInForce()
        return replace(
            self.shared_plan("warp", endpoints),
            buckets=tuple(own_buckets),
            drivers=drivers_on(clients, named, self.workers),
            phases=tuple(
                each
                for name, phase in self.cycle.named()
                for each in phase.to_plan(name, self.scale, self.engine, keys, force)
            ),
            rgw=self._rgw_plan(),
        )


def _names(
    sizes: plan.Sizes, buckets: Union[int, ExistingBuckets, Dict[str, BucketGroup]], engine: Engine
) -> List[str]:
    """Return the keys of the plan's buckets."""
    if not isinstance(buckets, int):
        return _own_names(buckets)
    keys: List[str] = generator(engine).bucket_keys(name_of_sizes(sizes), buckets)
    return keys


def _own_names(buckets: Union[ExistingBuckets, Dict[str, BucketGroup]]) -> List[str]:
    """Return the keys of existing buckets, or of groups."""
    if isinstance(buckets, ExistingBuckets):
        return list(buckets.names)
    return [key for name, group in buckets.items() for key in _numbered(name, group.number)]


def _numbered(stem: str, number: int) -> List[str]:
    return [stem] if number == 1 else [f"{stem}-{i + 1}" for i in range(number)]


class Warp(CycleBenchmark):
    """The benchmark `warp`."""

    Section = WarpSection
