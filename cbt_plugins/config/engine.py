"""`engine:` -- what makes the load of fill and hybrid phases, and how cbt-load works."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from cbt_plugins import plan
from cbt_plugins.config.units import PERCENT_PATTERN, Duration, Size, format_size, parse_percent
from cbt_plugins.config.validate import Strict


def _renamed(name: Any) -> Any:
    if name == "hybrid":
        raise ValueError("hybrid is called cbt-load now; write engine: cbt-load")
    return name


#: warp, or cbt-load
Engine = Annotated[Literal["warp", "cbt-load"], BeforeValidator(_renamed)]

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
        description="A request that takes longer has failed; never scaled.",
        json_schema_extra={"default": "30s"},
    )
    retries: int = Field(_DEFAULT.retries, ge=0, le=100, description="So often a failed request is tried again.")
    list_keys: int = Field(_DEFAULT.list_keys, ge=1, le=1000, description="Most keys in the answer to a LIST.")
    part_size: Size = Field(
        _DEFAULT.part_size,
        description="Size of the parts of a multipart PUT.",
        json_schema_extra={"default": "16MiB"},
    )
    compressible: _Share = Field(
        _DEFAULT.compressible,
        description="Share of an object's bytes that compression takes away.",
        json_schema_extra={"default": "0%"},
    )
    verify: bool = Field(_DEFAULT.verify, description="Every GET compares what it reads with what was written.")
    seed: int = Field(
        _DEFAULT.seed,
        ge=0,
        lt=1 << 63,
        description="Same seed, same plan: same sizes, contents and order of operations.",
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
