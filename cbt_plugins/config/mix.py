"""`mix:` -- operations and their ratio."""

from __future__ import annotations

from typing import Annotated, Any, Dict, List

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from cbt_plugins.config.validate import Problem, Strict


def _mix_part(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number: percent of the requests, without %")
    if not 0 <= value <= 100:
        raise ValueError("must be between 0 and 100 (percent of the requests)")
    return float(value)


_MixPart = Annotated[
    float, BeforeValidator(_mix_part), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 100})
]


class MixSection(Strict):
    """Percent of the requests by operation; the sum is 100."""

    get: _MixPart = Field(0, description="Whole objects read.")
    put: _MixPart = Field(0, description="Objects written.")
    stat: _MixPart = Field(0, description="HEAD requests.")
    delete: _MixPart = Field(0, description="Objects deleted; with warp never more than put.")
    list: _MixPart = Field(0, description="Lists of a bucket (engine: cbt-load).")
    multipart: _MixPart = Field(0, description="Objects written in parts (engine: cbt-load).")

    @model_validator(mode="after")
    def _whole(self) -> MixSection:
        total = sum(value for _, value in self)
        if abs(total - 100) > 1e-6:
            raise ValueError(f"the sum of the mix is {total:g}, not 100")
        return self

    @property
    def writes(self) -> bool:
        """Whether it makes objects."""
        return bool(self.put or self.multipart)

    def to_plan(self) -> Dict[str, float]:
        """Return percent by upper-case operation, without those that never happen."""
        return {name.upper(): value for name, value in self if value}


#: the mix of the Reef study
DEFAULT_MIX_TEXT: Dict[str, Any] = {"get": 45, "put": 35, "stat": 15, "delete": 5}
DEFAULT_MIX = MixSection.model_validate(DEFAULT_MIX_TEXT)


def faults_for_warp(mix: MixSection, what: str = "warp") -> List[Problem]:
    """Return why warp cannot do this mix; paths are relative to the mix."""
    problems = [
        Problem((name,), f"{what} has no {name} among other operations; engine: cbt-load has")
        for name in ("list", "multipart")
        if getattr(mix, name)
    ]
    if mix.delete > mix.put:
        text = f"delete ({mix.delete:g}) is more than put ({mix.put:g}): objects run out (warp refuses it)"
        problems.append(Problem(("delete",), text))
    return problems
