"""`cycle:`: the phases, and what they need from each other and from the rest of the section."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Set, Tuple, Union

from pydantic import ConfigDict, Field, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.benchmarks.hybrid_keys import HybridSection, LadderSection, WorkSection
from cbt_plugins.config.errors import Path
from cbt_plugins.config.events import EventSection, FaultsInForce, PhaseEvents
from cbt_plugins.config.fill_keys import FillPhaseSection, check_raw_goal
from cbt_plugins.config.generator_classes import engine_with, generator
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one, only_one
from cbt_plugins.config.mix import errors_of_buckets
from cbt_plugins.config.section_values import Engine, scaled_duration
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.units import Duration
from cbt_plugins.load.warp import WarpPhaseSection
from cbt_plugins.plan import CALIBRATE

_KINDS = ("fill", "hybrid", "ladder", "warp", "verify", "delete", "wait")
_ROLES: Dict[str, Literal["fill", "measure", "none"]] = {"fill": "fill", "hybrid": "measure"}
#: more phases than this are a typing error
_MANY = 1000
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 100

class VerifySection(Strict):
    """Read every object of the run once; compare it with what a PUT of it wrote (cbt-load). Write `verify: {}`."""


class DeleteSection(Strict):
    """Delete every object of the run; write `delete: {}`."""


#: what ends a wait
_UNTIL = ("duration", "clean", "gc")


class WaitSection(Strict):
    """Wait for time to pass, or for the cluster."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_UNTIL))

    duration: Optional[Duration] = Field(None, description="How long.")
    clean: Optional[Literal[True]] = Field(None, description="Until all PGs are active+clean.")
    gc: Optional[Literal[True]] = Field(
        None, description="Until RGW has no garbage; garbage that is not due is collected too."
    )
    at_most: Optional[Duration] = Field(
        None, description="Give up `clean` or `gc` after this long; never scaled."
    )
    stalled: Optional[Duration] = Field(
        None, description="Give up too after this long without progress; never scaled."
    )
    drop_caches: Optional[Literal[True]] = Field(
        None, description="First drop page caches of OSD nodes."
    )
    events: Optional[PhaseEvents] = Field(None, description="In order of time.")

    @model_validator(mode="after")
    def _check_section(self) -> WaitSection:
        until = only_one(self, _UNTIL)
        if until != "duration" and self.at_most is None:
            raise ValueError(f"{until} needs at_most: without it the wait may never end")
        for name in ("at_most", "stalled"):
            if until == "duration" and getattr(self, name) is not None:
                raise FieldErrors([FieldError((name,), "goes with clean: true or gc: true only", of_key=True)])
        if self.stalled is not None and self.at_most is not None and self.stalled > self.at_most:
            raise FieldErrors([FieldError(("stalled",), "is longer than at_most, which ends the wait before")])
        return self


class PhaseSection(Strict):
    """One phase: exactly one of fill, hybrid, ladder, warp, verify, delete, wait; and its name."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_KINDS))

    fill: Optional[FillPhaseSection] = Field(None, description="Write until one goal is reached.")
    hybrid: Optional[HybridSection] = Field(None, description="Mixed operations on existing objects.")
    ladder: Optional[LadderSection] = Field(None, description="Find the highest load that meets an objective.")
    warp: Optional[WarpPhaseSection] = Field(None, description="A plain warp command.")
    verify: Optional[VerifySection] = Field(None, description="Read and compare everything, once.")
    delete: Optional[DeleteSection] = Field(None, description="Delete everything.")
    wait: Optional[WaitSection] = Field(None, description="A pause.")
    name: Optional[str] = Field(
        None, description="Unique, of a-z, 0-9, -. Default: the kind: `hybrid`, `hybrid-2`, ..."
    )
    role: Optional[Literal["fill", "measure", "age", "none"]] = Field(
        None,
        description="For reports. Default: `fill` for fill, `measure` for hybrid, else `none`.",
    )

    @field_validator("name")
    @classmethod
    def _plain(cls, name: Optional[str]) -> Optional[str]:
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(f"{name!r}: a name is made of a-z, 0-9 and - (it becomes a directory)")
        if name is not None and len(name) > _LONGEST_NAME:
            raise ValueError(f"{len(name)} characters: a name has at most {_LONGEST_NAME} (it becomes a directory)")
        if name == CALIBRATE:
            raise ValueError(f"reserved name: {name!r} is the calibration phase")
        return name

    @model_validator(mode="after")
    def _check_section(self) -> PhaseSection:
        only_one(self, _KINDS)
        return self

    @property
    def kind(self) -> str:
        """Which of the seven it is."""
        return only_one(self, _KINDS)

    @property
    def writes(self) -> bool:
        """Whether it makes objects."""
        loads = self.mixed.loads.values() if self.mixed else ()
        return bool(self.fill or self.warp or any(load.mix.writes for load in loads))

    @property
    def mixed(self) -> Optional[HybridSection]:
        """Its mix of operations: a hybrid phase, or a step of a ladder."""
        return self.ladder.hybrid if self.ladder else self.hybrid

    def engine(self, usual: Optional[Engine]) -> Optional[Engine]:
        """Return the engine that makes its load when the benchmark's engine is `usual`; None for a wait."""
        if self.fill or self.hybrid:
            own = self.fill.engine if self.fill else self.hybrid.engine if self.hybrid else None
            return own or usual
        if self.wait:
            return None
        return usual if usual and self.kind in generator(usual).kinds else engine_with("kinds", self.kind)

    @property
    def events(self) -> Sequence[EventSection]:
        """What happens beside its load."""
        for section in (self.fill, self.hybrid, self.warp, self.wait):
            if section is not None:
                return section.events or ()
        return ()

    def ends(self, scale: float) -> Optional[float]:
        """Return the seconds after which it is over at the latest; None when that is not known."""
        if self.mixed:
            parts = (self.mixed.ramp, self.mixed.warmup, self.mixed.duration)
            return sum(scaled_duration(part, scale) or 0.0 for part in parts)
        if self.wait and self.wait.at_most is not None:
            return self.wait.at_most
        timed = self.fill or self.warp or self.wait
        return scaled_duration(timed.duration, scale) if timed else None

    def to_plan(
        self, name: str, scale: float, usual: Engine, buckets: Sequence[str], force: FaultsInForce
    ) -> Tuple[plan.Phase, ...]:
        """Return the plan's phase of this name, or those of a ladder.

        `usual` is the benchmark's engine, `buckets` its buckets, `force` the faults of the phases before.
        """
        if self.ladder:
            return self.ladder.to_plan(name, self.role or "none", scale, self.engine(usual) or usual, buckets)
        return (self._with_events(name, scale, usual, buckets, force),)

    def _with_events(
        self, name: str, scale: float, usual: Engine, buckets: Sequence[str], force: FaultsInForce
    ) -> plan.Phase:
        return replace(self._quiet(name, scale, usual, buckets), events=force.to_plan(self.events, scale))

    def _quiet(self, name: str, scale: float, usual: Engine, buckets: Sequence[str]) -> plan.Phase:
        """Return the phase without its events."""
        role, engine = self.role or _ROLES.get(self.kind, "none"), self.engine(usual) or usual
        if self.fill:
            return plan.Phase(name, "fill", role, goal=self.fill.to_plan(scale), engine=engine)
        if self.hybrid:
            return self.hybrid.to_plan(name, role, scale, engine, buckets)
        if self.warp:
            return self.warp.to_plan(name, role, scale, engine)
        if self.wait is None:
            return plan.Phase(name, self.kind, role, engine=engine)
        return plan.Phase(
            name,
            "wait",
            role,
            duration=scaled_duration(self.wait.duration, scale),
            wait_clean=bool(self.wait.clean),
            at_most=self.wait.at_most,
            stalled=self.wait.stalled,
            wait_gc=bool(self.wait.gc),
            drop_caches=bool(self.wait.drop_caches),
        )


class CycleSection(Strict):
    """What happens, in order."""

    phases: Annotated[List[PhaseSection], Field(min_length=1, max_length=_MANY)] = Field(
        description="Phases, one after the other."
    )

    @field_validator("phases")
    @classmethod
    def _names_once(cls, phases: List[PhaseSection]) -> List[PhaseSection]:
        steps = {each for phase in phases if phase.ladder for each in phase.ladder.names(phase.name or "ladder")}
        for i, phase in enumerate(phases):
            if phase.name in steps:
                raise FieldErrors([FieldError((i, "name"), f"{phase.name!r} is the name of a step of a ladder")])
        names = [phase.name for phase in phases]
        twice = [
            FieldError((i, "name"), f"{name!r} is the name of an earlier phase already")
            for i, name in enumerate(names)
            if name and name in names[:i]
        ]
        if twice:
            raise FieldErrors(twice)
        return phases

    def named(self) -> List[Tuple[str, PhaseSection]]:
        """Return the phases with a unique name each."""
        taken: Set[str] = {phase.name for phase in self.phases if phase.name}
        named = []
        for phase in self.phases:
            kind, number = phase.kind, 1
            name = phase.name or kind
            while phase.name is None and name in taken:
                number += 1
                name = f"{kind}-{number}"
            taken.add(name)
            named.append((name, phase))
        return named


@dataclass
class _Before:
    """What the phases before this one have done."""

    existing: bool  # the buckets hold somebody else's objects
    anything: bool  # there are objects to read, or it is not known
    own: bool = False  # a fill has written objects of this run's own
    by: Set[Optional[Engine]] = field(default_factory=set)  # engines whose fill is there
    closed_loop: bool = False
    force: FaultsInForce = field(default_factory=FaultsInForce)


def errors_of_order(
    cycle: CycleSection, data: Mapping[str, Any], existing: bool, names: Optional[Sequence[str]]
) -> List[FieldError]:
    """Return the errors that no phase has alone; paths are relative to the cycle.

    `data` are the section's keys without errors, `names` its buckets, None when they have one.
    """
    so_far = _Before(existing, anything=names is None or existing)
    errors: List[FieldError] = []
    for index, phase in enumerate(cycle.phases):
        path = ("phases", index, phase.kind)
        engine = phase.engine(data.get("engine"))
        phase_errors = [
            *_data(phase, engine, so_far, data),
            *_own(phase, engine, data, names),
            *_events(phase, so_far, data),
        ]
        errors += [error._replace(path=path + error.path) for error in phase_errors]
        _after(phase, engine, so_far)
    return errors


def _after(phase: PhaseSection, engine: Optional[Engine], so_far: _Before) -> None:
    if phase.fill:
        so_far.anything = so_far.own = True
        so_far.by.add(engine)
    elif phase.hybrid:
        so_far.closed_loop = so_far.closed_loop or all(load.rate is None for load in phase.hybrid.loads.values())
    elif phase.delete:
        so_far.by.discard(engine)
        so_far.own = bool(so_far.by)
        so_far.anything = so_far.own or so_far.existing


def _data(
    phase: PhaseSection, engine: Optional[Engine], so_far: _Before, data: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Yield an error for the data that the phase misses of those before it; one error for one cause."""
    if so_far.existing and phase.writes and not data.get("keep_data"):
        text = "writes into a bucket that is not this run's, under a prefix that is not removed at the end: "
        yield FieldError((), text + "accept that with keep_data: true", of_key=True)
    # None: an engine that is an error itself
    if (phase.verify is not None or phase.delete is not None) and not so_far.by & {engine, None}:
        done = "compares" if phase.verify else "deletes"
        yield FieldError((), f"{done} what a fill with engine: {engine} wrote: put such a fill before it", of_key=True)
    hybrid = phase.mixed
    if hybrid is None:
        return
    if hybrid.rate and hybrid.rate[1] and not so_far.closed_loop:
        text = "a percentage of a closed loop: put a hybrid phase without rate: before it"
        yield FieldError(("rate",), text)
    if not so_far.anything:
        yield FieldError((), "no objects to work on: put a fill phase before it, or name existing buckets", of_key=True)
        return
    for path, load in hybrid.loads.items():
        if so_far.existing and not so_far.own and load.mix.delete:
            text = "nothing to delete: a run deletes only objects that it wrote; put a fill phase before this phase"
            yield FieldError(path, text, of_key=True)
        elif engine and not so_far.by & {engine, None}:
            for error in generator(engine).errors_without_fill(load, sorted(filter(None, so_far.by)), so_far.existing):
                yield error._replace(path=path + error.path)


def _events(phase: PhaseSection, so_far: _Before, data: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors in the events beside the load."""
    scale = data.get("scale") or 1.0
    for error in so_far.force.errors_of_events(phase.events, phase.ends(scale), scale):
        yield error._replace(path=("events", *error.path))
    settings: Optional[SettingsSection] = data.get("settings")
    for index, event in enumerate(phase.events):
        for key, accept in event.accepted:
            for text in settings.hidden(accept) if settings else ():
                yield FieldError(("events", index, key), text, of_key=True)


def _placed(
    path: Path, load: Union[HybridSection, WorkSection], across: Any, names: Optional[Sequence[str]]
) -> Iterator[FieldError]:
    """Yield the errors in the buckets of a mix."""
    chosen = load.buckets if isinstance(load, WorkSection) else None
    if across is False:
        for key, given in (("roles", load.roles), ("buckets", chosen)):
            if given:
                text = f"every driver has one bucket: {key}{' of buckets' if key == 'roles' else ''} need"
                yield FieldError((*path, key), f"{text} across_buckets: true", of_key=True)
    elif names is not None:
        yield from errors_of_buckets((*path, "buckets"), chosen or (), names)
        for error in load.roles.errors(names) if load.roles else ():
            yield error._replace(path=(*path, "roles", *error.path))


def _own(
    phase: PhaseSection, engine: Optional[Engine], data: Mapping[str, Any], names: Optional[Sequence[str]]
) -> Iterator[FieldError]:
    """Yield the contradictions between the phase and the keys of the section."""
    across = data.get("across_buckets")
    if across and engine and not generator(engine).across:
        text = f"{engine} works on one bucket; across_buckets: true needs engine: {engine_with('across')}"
        yield FieldError((), text, of_key=True)
    if phase.hybrid and engine:
        yield from phase.hybrid.errors(engine)
    knows_roles = engine is None or "roles" in generator(engine).known_keys
    for path, load in phase.mixed.loads.items() if phase.mixed and knows_roles else ():
        yield from _placed(path, load, across, names)
    try:
        check_raw_goal(phase.fill, data.get("full_guard"))
    except FieldErrors as error:
        yield from error.errors
    if phase.warp:
        yield from phase.warp.errors(data.get("workers"), data.get("scale") or 1.0)
