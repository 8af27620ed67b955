"""The keys that every benchmark of ours has: where the load goes, the load generator, the guard, the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Mapping, Optional, Tuple

from pydantic import Field, ValidationInfo, field_validator

from cbt_plugins import plan
from cbt_plugins.config.key_errors import FieldErrors, Strict, file_default
from cbt_plugins.config.objective import DEFAULT_P99_FACTOR, DEFAULT_SUCCESS_RATE, SecondsObjective
from cbt_plugins.config.pools import PoolsSection
from cbt_plugins.config.rgw import RgwSection
from cbt_plugins.config.s3 import S3Section
from cbt_plugins.config.section_values import ENGINE, MANY, Engine, Workers, scaled_duration
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.units import Duration, Percent, format_percent
from cbt_plugins.load.cbt_load import CbtLoadSection
from cbt_plugins.load.warp import WARP_PATH, WarpPath


class BenchmarkSection(Strict):
    """Keys that every benchmark of ours has. A list at this level is a sweep: CBT runs each element."""

    #: `acceptable`, `cbt_load` and the like have our meaning in it
    has_our_keys: ClassVar[bool] = True

    s3: S3Section = Field(description="Where the load goes.")
    use_endpoints: Optional[Annotated[int, Field(ge=1, le=MANY)]] = Field(
        None, description="Number of endpoints of `s3` to use, from the first on; `[1, 2, 4]` shows how RGWs scale."
    )
    workers: Workers = 8
    scale: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, strict=False)] = Field(
        1.0,
        description="Multiplies durations and numbers of objects (at least 1).",
    )
    full_guard: Percent = Field(
        plan.Plan.full_guard,
        description="Share of raw capacity in use that stops any phase.",
    )
    keep_data: bool = Field(
        False, description="Leave the run's buckets on the cluster at the end."
    )
    warp_path: WarpPath = WARP_PATH
    read_objects: int = Field(
        plan.Plan.read_objects,
        ge=1,
        le=10**9,
        description="At most so many existing objects are listed for get and stat.",
    )
    engine: Engine = Field(plan.Phase.engine, description=ENGINE)
    cbt_load: CbtLoadSection = file_default(
        CbtLoadSection.model_validate,
        {},
        description="How cbt-load works.",
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
    settings: SettingsSection = file_default(
        SettingsSection.model_validate,
        {},
        description="Settings of the cluster during the run.",
    )
    pools: PoolsSection = Field(
        {}, description="Pools that the run makes and removes, by name: replicas, ec or existing."
    )
    objective: Optional[SecondsObjective] = Field(
        None,
        description="A second beside a failure is bad beyond these limits: `{GET/p99_ms: 50, success_rate: 99.9%}`. "
        f"Default: {DEFAULT_P99_FACTOR:g} times p99 of the baseline, {format_percent(DEFAULT_SUCCESS_RATE)}.",
    )
    rgw: RgwSection = file_default(
        RgwSection.model_validate,
        {},
        description="Options of RGW during the run; gateways restart one after the other.",
    )
    post_poll: Optional[Duration] = Field(
        None, description="How long monitors watch after the last phase."
    )

    @field_validator("use_endpoints")
    @classmethod
    def _there_are_so_many(cls, number: Optional[int], info: ValidationInfo) -> Optional[int]:
        s3: Optional[S3Section] = info.data.get("s3")
        url_count = len(s3.to_plan((info.context or {}).get("endpoints") or {}).urls) if s3 else None
        if number and url_count and number > url_count:
            raise ValueError(f"s3 has {url_count} URLs")
        return number

    def endpoints_plan(self, endpoints: Mapping[str, Any]) -> plan.S3:
        """Return the endpoints of the load."""
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

    def shared_plan(self, benchmark: str, endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan of the keys that all benchmarks share: without buckets, drivers and phases."""
        return plan.Plan(
            benchmark=benchmark,
            s3=self.endpoints_plan(endpoints),
            buckets=(),
            drivers=(),
            phases=(),
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
            objective=self.objective or {},
        )

    def pools_to_plan(self) -> Tuple[plan.RunPool, ...]:
        """Return the plan's pools."""
        return tuple(pool.to_plan(key) for key, pool in self.pools.items())
