"""`warp:` in a phase: one plain warp command, on objects that it makes itself."""

from __future__ import annotations

import math
from typing import Annotated, Any, Dict, Literal, Optional

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from cbt_plugins import plan
from cbt_plugins.config.benchmark import scaled_duration, scaled_objects
from cbt_plugins.config.events import PhaseEvents
from cbt_plugins.config.fill_phase import MOST_OBJECTS
from cbt_plugins.config.operations import (
    DEFAULT_MIX,
    MixSection,
    errors_for_warp,
)
from cbt_plugins.config.patterns import check_option_name, check_option_value
from cbt_plugins.config.units import Duration
from cbt_plugins.config.validate import FieldError, FieldErrors, Strict

#: warp options that the plan or the runner sets
_OWN_OPTIONS = frozenset(
    [
        "access-key",
        "secret-key",
        "session-token",
        "host",
        "host-select",
        "tls",
        "insecure",
        "region",
        "lookup",
        "bucket",
        "prefix",
        "noprefix",
        "concurrent",
        "duration",
        "objects",
        "obj.size",
        "obj.randsize",
        "noclear",
        "keep-data",
        "list-existing",
        "full",
        "stress",
        "stdout",
        "json",
        "benchdata",
        "warp-client",
        "syncstart",
        "serve",
        "autoterm",
        "influxdb",
        "get-distrib",
        "put-distrib",
        "stat-distrib",
        "delete-distrib",
        "disable-sha256-payload",
    ]
)


def _options(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    errors, texts = [], {}
    for key, option in value.items():
        name = str(key).lstrip("-")
        if name in _OWN_OPTIONS or name.startswith("analyze."):
            errors.append(
                FieldError((key,), f"warp's --{name} is set by the plan and cannot be given here", of_key=True)
            )
        elif option is False:
            errors.append(FieldError((key,), "leave the option out: a flag that is absent is false"))
        elif not isinstance(option, (str, int, float)):
            errors.append(FieldError((key,), "must be text, a number, or true for a flag"))
        elif name == "rps-limit" and (isinstance(option, (str, bool)) or not 0 < option < math.inf):
            errors.append(FieldError((key,), "must be a number of requests a second"))
        else:
            try:
                texts[check_option_name(name)] = "" if option is True else check_option_value(str(option))
            except ValueError as error:
                errors.append(FieldError((key,), str(error), of_key="name of an option" in str(error)))
    if errors:
        raise FieldErrors(errors)
    return texts


class WarpPhaseSection(Strict):
    """One plain warp command, on objects that warp uploads itself."""

    op: Literal["mixed", "get", "put", "stat", "delete", "list", "multipart", "versioned"] = Field(
        description="warp's command."
    )
    duration: Duration = Field(description="Without its preparation.")
    mix: Optional[MixSection] = Field(
        None, description="Only for `mixed`. Default: as in hybrid."
    )
    objects: Optional[int] = Field(
        None,
        ge=1,
        le=MOST_OBJECTS,
        description="Uploaded first (--objects).",
    )
    args: Annotated[Dict[str, str], BeforeValidator(_options)] = Field(
        {}, description="More options, without dashes: `{disable-multipart: true}`."
    )
    events: Optional[PhaseEvents] = Field(None, description="In order of time.")

    @field_validator("mix")
    @classmethod
    def _only_mixed(cls, mix: Optional[MixSection], info: ValidationInfo) -> Optional[MixSection]:
        if mix is not None and info.data.get("op", "mixed") != "mixed":
            raise ValueError(f"warp {info.data['op']} has one operation only; a mix is for op: mixed")
        errors = errors_for_warp(mix, "warp mixed") if mix else []
        if errors:
            raise FieldErrors(errors)
        return mix

    @field_validator("objects")
    @classmethod
    def _has_objects(cls, objects: Optional[int], info: ValidationInfo) -> Optional[int]:
        if objects is not None and info.data.get("op") == "put":
            raise ValueError("warp put writes until its time is over and has no number of objects")
        return objects

    def to_plan(self, name: str, role: str, scale: float) -> plan.Phase:
        """Return the plan's phase of this name."""
        return plan.Phase(
            name,
            "warp",
            role,
            duration=scaled_duration(self.duration, scale),
            mix=(self.mix or DEFAULT_MIX).to_plan() if self.op == "mixed" else None,
            warp=plan.WarpOp(self.op, scaled_objects(self.objects, scale), dict(self.args)),
        )
