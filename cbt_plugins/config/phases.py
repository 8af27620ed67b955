"""The phases of a `cycle:`: what each may say, and the plan's phase of it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, Literal, Optional, Set, Tuple

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cbt_plugins.config import plan
from cbt_plugins.config.calibration import CALIBRATE
from cbt_plugins.config.models import (
    DEFAULT_MIX,
    DEFAULT_MIX_TEXT,
    FillSection,
    MixSection,
    Workers,
    exactly_one,
    only_one,
    scaled_duration,
    scaled_objects,
)
from cbt_plugins.config.units import Duration
from cbt_plugins.config.validate import Problem, Problems, Strict

_KINDS = ("fill", "hybrid", "warp", "wait")
_ROLES: Dict[str, Literal["fill", "measure", "none"]] = {"fill": "fill", "hybrid": "measure"}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

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


class HybridWorkers(Strict):
    """Workers of each operation, per driver."""

    get: Optional[Workers] = None
    put: Optional[Workers] = None
    stat: Optional[Workers] = None
    delete: Optional[Workers] = None


class HybridSection(Strict):
    """Operations at a fixed ratio on the data that is there."""

    duration: Duration = Field(description="How long the phase runs.")
    mix: MixSection = Field(
        DEFAULT_MIX,
        description="Operations and their ratio.",
        json_schema_extra={"default": DEFAULT_MIX_TEXT},
    )
    workers: Optional[HybridWorkers] = Field(
        None,
        description="Fixed workers per operation and driver; without it they are calibrated once per run.",
    )
    engine: Literal["warp"] = Field("warp", description="What makes the load.")

    @field_validator("workers")
    @classmethod
    def _as_in_mix(cls, workers: Optional[HybridWorkers], info: ValidationInfo) -> Optional[HybridWorkers]:
        mix = info.data.get("mix")
        if workers is None or mix is None:
            return workers
        given = {name for name, value in workers if value is not None}
        wanted = {name for name, value in mix if value}
        problems = [
            Problem((), f"{name} is in the mix ({getattr(mix, name):g}) and has no workers")
            for name in sorted(wanted - given)
        ]
        problems += [
            Problem((name,), f"{name} has workers and no share of the mix", of_key=True)
            for name in sorted(given - wanted)
        ]
        if problems:
            raise Problems(problems)
        return workers


def _options(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    problems, texts = [], {}
    for key, option in value.items():
        name = str(key).lstrip("-")
        if name in _OWN_OPTIONS or name.startswith("analyze."):
            problems.append(
                Problem((key,), f"warp's --{name} is set by the plan and cannot be given here", of_key=True)
            )
        elif option is False:
            problems.append(Problem((key,), "leave the option out: a flag that is absent is false"))
        elif not isinstance(option, (str, int, float)):
            problems.append(Problem((key,), "must be text, a number, or true for a flag"))
        else:
            texts[name] = "" if option is True else str(option)
    if problems:
        raise Problems(problems)
    return texts


class WarpPhaseSection(Strict):
    """One plain warp command, on objects that warp uploads itself."""

    op: Literal["mixed", "get", "put", "stat", "delete", "list", "multipart", "versioned"] = Field(
        description="warp's command."
    )
    duration: Duration = Field(description="How long it runs, without its preparation.")
    mix: Optional[MixSection] = Field(
        None, description="Only for `mixed`; without it 45 get, 35 put, 15 stat, 5 delete."
    )
    objects: Optional[int] = Field(
        None,
        ge=1,
        description="Objects that warp uploads first (its --objects); warp's own default without it.",
    )
    args: Annotated[Dict[str, str], BeforeValidator(_options)] = Field(
        {}, description="Further options of warp, without dashes: `{disable-multipart: true}`."
    )

    @field_validator("mix")
    @classmethod
    def _only_mixed(cls, mix: Optional[MixSection], info: ValidationInfo) -> Optional[MixSection]:
        if mix is not None and info.data.get("op", "mixed") != "mixed":
            raise ValueError(f"warp {info.data['op']} has one operation only; a mix is for op: mixed")
        return mix

    @field_validator("objects")
    @classmethod
    def _has_objects(cls, objects: Optional[int], info: ValidationInfo) -> Optional[int]:
        if objects is not None and info.data.get("op") == "put":
            raise ValueError("warp put writes until its time is over and has no number of objects")
        return objects


class WaitSection(Strict):
    """Wait for time to pass, or for the cluster."""

    model_config = ConfigDict(json_schema_extra=exactly_one(("duration", "clean")))

    duration: Optional[Duration] = Field(None, description="Wait for this long.")
    clean: Optional[Literal[True]] = Field(None, description="Wait until all PGs are active+clean.")
    at_most: Optional[Duration] = Field(None, description="Give up waiting for `clean` after this long; never scaled.")

    @model_validator(mode="after")
    def _whole(self) -> WaitSection:
        only_one(self, ("duration", "clean"))
        if self.clean and self.at_most is None:
            raise ValueError("clean needs at_most: a cluster that never gets clean would be waited for without end")
        if self.at_most is not None and not self.clean:
            raise Problems([Problem(("at_most",), "goes with clean: true only", of_key=True)])
        return self


class PhaseSection(Strict):
    """One phase: exactly one of fill, hybrid, warp, wait; and what to call it."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_KINDS))

    fill: Optional[FillSection] = Field(None, description="Write objects until a goal is reached.")
    hybrid: Optional[HybridSection] = Field(None, description="Mixed operations on the data that is there.")
    warp: Optional[WarpPhaseSection] = Field(None, description="A plain warp command.")
    wait: Optional[WaitSection] = Field(None, description="A pause.")
    name: Optional[str] = Field(
        None, description="Unique, of a-z, 0-9 and -; without it the kind: `hybrid`, `hybrid-2`, ..."
    )
    role: Optional[Literal["fill", "measure", "age", "none"]] = Field(
        None,
        description="What a report takes the phase for: fill is `fill`, hybrid `measure`, others `none`.",
    )

    @field_validator("name")
    @classmethod
    def _plain(cls, name: Optional[str]) -> Optional[str]:
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(f"{name!r}: a name is made of a-z, 0-9 and - (it becomes a directory)")
        if name == CALIBRATE:
            raise ValueError(f"{name!r} is the name of the phase that shares out the workers")
        return name

    @model_validator(mode="after")
    def _whole(self) -> PhaseSection:
        only_one(self, _KINDS)
        return self

    @property
    def kind(self) -> str:
        """fill, hybrid, warp or wait."""
        return only_one(self, _KINDS)

    @property
    def writes(self) -> bool:
        """Whether it makes objects."""
        return bool(self.fill or self.warp or (self.hybrid and self.hybrid.mix.put))

    def to_plan(self, name: str, scale: float) -> plan.Phase:
        """Return the plan's phase of this name."""
        role = self.role or _ROLES.get(self.kind, "none")
        if self.fill:
            return plan.Phase(name, "fill", role, goal=self.fill.to_plan(scale))
        if self.hybrid:
            workers = self.hybrid.workers
            return plan.Phase(
                name,
                "hybrid",
                role,
                duration=scaled_duration(self.hybrid.duration, scale),
                mix=self.hybrid.mix.to_plan(),
                workers={op.upper(): n for op, n in workers if n is not None} if workers else None,
                engine=self.hybrid.engine,
            )
        if self.warp:
            return plan.Phase(
                name,
                "warp",
                role,
                duration=scaled_duration(self.warp.duration, scale),
                mix=(self.warp.mix or DEFAULT_MIX).to_plan() if self.warp.op == "mixed" else None,
                warp=plan.WarpOp(self.warp.op, scaled_objects(self.warp.objects, scale), dict(self.warp.args)),
            )
        assert self.wait is not None
        return plan.Phase(
            name,
            "wait",
            role,
            duration=scaled_duration(self.wait.duration, scale),
            wait_clean=bool(self.wait.clean),
            at_most=self.wait.at_most,
        )


class CycleSection(Strict):
    """What happens, in order."""

    phases: Annotated[List[PhaseSection], Field(min_length=1)] = Field(description="One after the other.")

    @field_validator("phases")
    @classmethod
    def _names_once(cls, phases: List[PhaseSection]) -> List[PhaseSection]:
        names = [phase.name for phase in phases]
        twice = [
            Problem((i, "name"), f"{name!r} is the name of an earlier phase already")
            for i, name in enumerate(names)
            if name and name in names[:i]
        ]
        if twice:
            raise Problems(twice)
        return phases

    def named(self) -> List[Tuple[str, PhaseSection]]:
        """Return the phases with a unique name each."""
        taken: Set[str] = {phase.name for phase in self.phases if phase.name}
        named = []
        for phase in self.phases:
            name, number = phase.name or phase.kind, 1
            while phase.name is None and name in taken:
                number += 1
                name = f"{phase.kind}-{number}"
            taken.add(name)
            named.append((name, phase))
        return named
