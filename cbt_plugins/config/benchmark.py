"""The keys that every benchmark of ours has: the load generator, the fill, the guard, the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Mapping, Optional, Tuple

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from cbt_plugins import plan
from cbt_plugins.config import registry
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.patterns import AbsolutePath
from cbt_plugins.config.pools import PoolsSection
from cbt_plugins.config.rgw import RgwSection
from cbt_plugins.config.s3 import S3Section
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.units import (
    PERCENT_PATTERN,
    Duration,
    Percent,
    Size,
    format_size,
    parse_percent,
)
from cbt_plugins.config.validate import FieldErrors, Strict


def _generator(name: Any) -> Any:
    """Return the name of a load generator that is installed."""
    generators = list(registry.references(registry.GENERATORS))
    if name not in generators:
        raise ValueError(
            f"must be {' or '.join(generators)}{did_you_mean(name, generators) if isinstance(name, str) else ''}"
        )
    return name


#: the name of a load generator: warp, cbt-load, or another's
Engine = Annotated[
    str,
    BeforeValidator(_generator),
    # ours by name, for the editor's list; another distribution's may be installed where the file is used
    WithJsonSchema({"anyOf": [{"enum": registry.built_in(registry.GENERATORS)}, {"type": "string", "minLength": 1}]}),
]

ENGINE = "What makes the load of fill and hybrid phases."

#: S3's limits for the parts of a multipart upload
_SMALLEST_PART, _LARGEST_PART = 5 << 20, 5 << 30
#: share 0..1, 0 included
_Share = Annotated[
    float, BeforeValidator(parse_percent), WithJsonSchema({"type": "string", "pattern": PERCENT_PATTERN})
]
_DEFAULT = plan.CbtLoad()


class CbtLoadSection(Strict):
    """How cbt-load works, in every phase with `engine: cbt-load`."""

    deadline: Duration = Field(
        _DEFAULT.deadline,
        description="Longer requests have failed; never scaled.",
        json_schema_extra={"default": "30s"},
    )
    retries: int = Field(_DEFAULT.retries, ge=0, le=100, description="For each failed request.")
    list_keys: int = Field(_DEFAULT.list_keys, ge=1, le=1000, description="Most keys of a LIST.")
    part_size: Size = Field(
        _DEFAULT.part_size,
        description="Of a multipart PUT.",
        json_schema_extra={"default": "16MiB"},
    )
    compressible: _Share = Field(
        _DEFAULT.compressible,
        description="Share of bytes that compression takes away.",
        json_schema_extra={"default": "0%"},
    )
    verify: bool = Field(_DEFAULT.verify, description="Every GET compares content.")
    seed: int = Field(
        _DEFAULT.seed,
        ge=0,
        lt=1 << 63,
        description="Same seed: same sizes, contents, order.",
    )

    @field_validator("part_size")
    @classmethod
    def _taken_by_s3(cls, size: int) -> int:
        if not _SMALLEST_PART <= size <= _LARGEST_PART:
            limits = f"{format_size(_SMALLEST_PART)} to {format_size(_LARGEST_PART)}"
            raise ValueError(f"S3 takes parts of {limits}")
        return size

    def to_plan(self) -> plan.CbtLoad:
        """Return the plan's settings."""
        values: Any = dict(self)
        return plan.CbtLoad(**values)


#: more drivers, buckets or workers per driver than this are a typing error
MANY = 10_000
Workers = Annotated[
    int, Field(ge=1, le=MANY, description="Requests in flight per driver (closed loop).")
]


def scaled_duration(seconds: Optional[float], scale: float) -> Optional[float]:
    """Return the scaled duration, at least 1 s unless less was asked for."""
    return None if seconds is None else max(round(seconds * scale, 6), min(seconds, 1.0))


def scaled_objects(number: Optional[int], scale: float) -> Optional[int]:
    """Return the scaled number of objects, at least 1."""
    return None if number is None else max(round(number * scale), 1)


class BenchmarkSection(Strict):
    """Keys that every benchmark of ours has. A list at this level is a sweep: CBT runs each element."""

    s3: S3Section = Field(description="Where the load goes.")
    use_endpoints: Optional[Annotated[int, Field(ge=1, le=MANY)]] = Field(
        None, description="So many of the first endpoints of `s3`; `[1, 2, 4]` shows how RGWs scale."
    )
    workers: Workers = 8
    scale: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, strict=False)] = Field(
        1.0,
        description="Multiplies durations and numbers of objects (at least 1).",
    )
    full_guard: Percent = Field(
        0.8,
        description="Share of raw capacity in use that stops any phase.",
        json_schema_extra={"default": "80%"},
    )
    keep_data: bool = Field(
        False, description="Leave the run's buckets."
    )
    warp_path: Optional[AbsolutePath] = Field(
        None, description="On client nodes. Default: ours is copied there."
    )
    read_objects: int = Field(
        1_000_000,
        ge=1,
        le=10**9,
        description="Most existing objects listed for get and stat.",
    )
    engine: Engine = Field("warp", description=ENGINE)
    cbt_load: CbtLoadSection = Field(
        CbtLoadSection.model_validate({}), description="How cbt-load works.", json_schema_extra={"default": {}}
    )
    keep_rows: bool = Field(
        False, description="Keep a row of every request."
    )
    versioned: bool = Field(
        False, description="cbt-load. Buckets keep all versions of objects."
    )
    admin: Literal["ceph", "none"] = Field(
        "ceph", description="`none`: without `ceph` and `radosgw-admin`; the report says what is not known."
    )
    generator_ceiling: Optional[bool] = Field(
        None,
        description="First measure clients without a cluster. Default: where measurements last 5 minutes.",
    )
    settings: SettingsSection = Field(
        SettingsSection.model_validate({}),
        description="Set on the cluster during the run.",
        json_schema_extra={"default": {}},
    )
    pools: PoolsSection = Field(
        {}, description="Pools that the run makes and removes, by name: replicas, ec or existing."
    )
    rgw: RgwSection = Field(
        RgwSection.model_validate({}),
        description="Of RGW during the run; gateways restart in turn.",
        json_schema_extra={"default": {}},
    )
    post_poll: Optional[Duration] = Field(
        None, description="Watch so long after the last phase."
    )

    @field_validator("use_endpoints")
    @classmethod
    def _there_are_so_many(cls, number: Optional[int], info: ValidationInfo) -> Optional[int]:
        s3: Optional[S3Section] = info.data.get("s3")
        url_count = len(s3.to_plan((info.context or {}).get("endpoints") or {}).urls) if s3 else None
        if number and url_count and number > url_count:
            raise ValueError(f"s3 has {url_count}")
        return number

    def endpoints_plan(self, endpoints: Mapping[str, Any]) -> plan.S3:
        """Return where the load goes."""
        s3 = self.s3.to_plan(endpoints)
        return replace(s3, urls=s3.urls[: self.use_endpoints])

    @field_validator("scale", mode="before")
    @classmethod
    def _scale_is_a_number(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("must be a number such as 0.01")
        return value

    @field_validator("rgw")
    @classmethod
    def _on_pools(cls, rgw: RgwSection, info: ValidationInfo) -> RgwSection:
        errors = rgw.errors(info.data)
        if errors:
            raise FieldErrors(errors)
        return rgw

    def pools_to_plan(self) -> Tuple[plan.RunPool, ...]:
        """Return the plan's pools."""
        return tuple(pool.to_plan(key) for key, pool in self.pools.items())
