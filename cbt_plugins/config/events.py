"""`events:` of a phase or of a fault file: what happens beside the load, and when; which faults are in force."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, Literal, Optional, Sequence, Set, Tuple, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from cbt_plugins import plan
from cbt_plugins.config.cluster import Node
from cbt_plugins.config.errors import ConfigError, did_you_mean
from cbt_plugins.config.fault import FaultSection, usable_label
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one, file_default, only_one, validate
from cbt_plugins.config.rolling import OVER, SCHEMA, Rolling, RollingSection, errors_over_nodes, with_nodes
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.shell_values import check_no_password
from cbt_plugins.config.thrash import ThrashSection
from cbt_plugins.config.units import DURATION_PATTERN, Duration, format_duration, parse_duration
from cbt_plugins.config.yaml_source import YamlSource, read
from cbt_plugins.inventory import find_host, host_of

_EVENT_KEYS = ("fault", "thrash", "run", "upgrade", "undo", "mark")
#: faults of a series; more are a typing error
_MANY = 10000
#: undo: everything that is in force
_ALL = "all"
#: seconds of one command
_LONGEST = 86400.0
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _shell_text(text: str) -> str:
    if not text.strip() or len(text) > 4000 or _CONTROL.search(text):
        raise ValueError("must be shell text of at most 4000 characters, without control characters")
    return check_no_password(text)


_Command = Annotated[str, AfterValidator(_shell_text)]

#: seconds, 0 included
Moment = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["0s", "10m"], "title": "duration"}),
]


def _labels(value: Any) -> List[str]:
    labels = [value] if isinstance(value, str) else value
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) and label for label in labels):
        raise ValueError("must be the label of a fault, a list of labels, or all")
    if _ALL in labels and len(labels) > 1:
        raise ValueError("all takes no other label beside it")
    return labels


_TEXT = {"type": "string", "minLength": 1}
Undo = Annotated[
    List[str],
    BeforeValidator(_labels),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]}),
]


class RunSection(Strict):
    """A command on a node, and its undo, which runs at `undo:` with its label, or at the end of the run."""

    label: Annotated[str, AfterValidator(usable_label)] = Field(description="Name for `undo:`; unique.")
    command: _Command = Field(description="Shell text. Status 0, or the phase fails.")
    node: Optional[Node] = Field(None, description="Default: the head.")
    undo: Optional[_Command] = Field(
        None, description="Shell text; repeated until its status is 0."
    )
    timeout: Duration = Field(
        60.0, description="Time limit of the command and of the undo; never scaled."
    )
    root: bool = Field(False, description="As root, by sudo.")

    @field_validator("node")
    @classmethod
    def _check_node(cls, node: Optional[str], info: ValidationInfo) -> Optional[str]:
        hosts = [host_of(name) for name in (info.context or {}).get("nodes") or ()]
        host = find_host(node, hosts) if node else None
        if node and hosts and host is None:
            hint = did_you_mean(node, hosts) or f"; there are {', '.join(hosts)}"
            raise ValueError(f"{node} is not a node of cluster:{hint}")
        return host or (host_of(node) if node else node)

    @field_validator("timeout")
    @classmethod
    def _bounded(cls, seconds: float) -> float:
        if seconds > _LONGEST:
            raise ValueError(f"is more than {format_duration(_LONGEST)}")
        return seconds

    def to_plan(self) -> plan.NodeCommand:
        """Return the plan's command."""
        return plan.NodeCommand(self.label, self.command, self.node or "", self.undo or "", self.timeout, self.root)


class UpgradeSection(Strict):
    """Every daemon gets another release, one after the other: mon, mgr, OSDs, RGWs."""

    model_config = ConfigDict(json_schema_extra=exactly_one(("command", "image")))

    label: Annotated[str, AfterValidator(usable_label)] = Field("upgrade", description="Name in results.")
    to: str = Field(pattern=r"^\d+(\.\d+){0,2}$", description='Version that each daemon reports in the end: "18.2".')
    command: Optional[_Command] = Field(
        None,
        description="Shell text, root on its node: restarts a daemon; {daemon}: osd.3, {type}: osd, {id}: 3.",
    )
    image: Optional[str] = Field(
        None,
        pattern=r"^[A-Za-z0-9][\w./:@-]*$",
        description="Instead of `command`: image for `ceph orch upgrade start`.",
    )
    timeout: Duration = Field(
        600.0,
        description="Limit until a daemon (with `image`: each) reports the version and all PGs are active+clean.",
    )
    irreversible: bool = Field(False, description="Must be true: there is no undo.")

    @model_validator(mode="after")
    def _check_section(self, info: ValidationInfo) -> UpgradeSection:
        only_one(self, ("command", "image"))
        if self.image and (info.context or {}).get("head_is_pod"):
            text = "the operator of Rook upgrades its cluster, `ceph orch upgrade` does not: remove this event, and"
            by_hand = "change `spec: cephVersion: image` of the CephCluster by hand"
            raise FieldErrors([FieldError(("image",), f"{text} {by_hand}")])
        if not self.irreversible:
            text = "a store that a newer release has opened cannot go back, and no undo is made: say irreversible: true"
            raise FieldErrors([FieldError(("irreversible",), text)])
        return self

    def to_plan(self) -> plan.Upgrade:
        """Return the plan's upgrade."""
        return plan.Upgrade(self.label, self.to, self.command or "", self.image or "", self.timeout)


class EventSection(Strict):
    """Something that happens at its time: exactly one of fault, thrash, run, upgrade, undo, mark."""

    model_config = ConfigDict(json_schema_extra={**exactly_one(_EVENT_KEYS), **SCHEMA})

    at: Moment = Field(description="After the load began, ramp and warm-up included; scaled.")
    fault: Optional[FaultSection] = Field(None, description="Inject a fault.")
    thrash: Optional[ThrashSection] = Field(None, description="Inject faults at random, for a while.")
    run: Optional[RunSection] = Field(None, description="Run a command on a node.")
    upgrade: Optional[UpgradeSection] = Field(None, description="Upgrade the cluster; no undo.")
    undo: Optional[Undo] = Field(None, description="A fault or command: its label, several, or `all`.")
    mark: Optional[str] = Field(None, min_length=1, description="Begin a part of the phase in the report.")
    every: Optional[Duration] = Field(
        None, description="With `fault`: time from one injection of it to the next; scaled."
    )
    times: Optional[Annotated[int, Field(ge=2, le=_MANY)]] = Field(
        None, description="With `every`: how often. The labels are `LABEL-1`, `LABEL-2` and so on."
    )
    lasts: Optional[Duration] = Field(
        None, description="With `every`: how long the fault is in force each time; scaled. Default: half of `every`."
    )
    rolling: Rolling = Field(
        False,
        description="`true`, with `every` instead of `times`: one of the named targets after the other. Mapping, with "
        "`lasts`: one OSD node after the other.",
    )
    wait: Optional[Literal["clean"]] = Field(
        None, description="With `every`: each time wait for the rule `clean`; all that follows is later by as much."
    )

    @field_validator("mark")
    @classmethod
    def _one_line(cls, mark: Optional[str]) -> Optional[str]:
        if mark and not mark.isprintable():
            raise ValueError("must be text of one line, without control characters")
        return mark

    @model_validator(mode="before")
    @classmethod
    def _name_nodes(cls, event: Any, info: ValidationInfo) -> Any:
        return with_nodes(event, info.context)

    @model_validator(mode="after")
    def _check_section(self) -> EventSection:
        only_one(self, _EVENT_KEYS)
        errors = list(self._series_errors())
        if errors:
            raise FieldErrors(errors)
        return self

    def _series_errors(self) -> Iterator[FieldError]:
        of_series = [key for key in ("every", "times", "lasts", "rolling", "wait") if key in self.model_fields_set]
        if isinstance(self.rolling, RollingSection) and self.fault:
            yield from errors_over_nodes(self.fault, {key: getattr(self, key) for key in of_series})
        elif of_series and (self.every is None or self.fault is None):
            yield FieldError((of_series[0],), "is for a series: it needs fault and every", of_key=True)
        elif self.every is not None and self.fault is not None:
            if self.rolling == (self.times is not None):
                yield FieldError(("every",), "needs how often: either times, or rolling: true", of_key=True)
            if self.rolling and len(self.fault.targets) < 2:
                yield FieldError(("rolling",), "needs two named targets: nodes, osds or daemons", of_key=True)
            if self.lasts is not None and self.lasts >= self.every:
                text = f"is not less than every ({format_duration(self.every)}): the fault would still be in force"
                yield FieldError(("lasts",), text)

    @property
    def accepted(self) -> List[Tuple[str, List[str]]]:
        """Keys of its faults, each with the safety rules that these may break."""
        faults = (("fault", self.fault), ("thrash", self.thrash))
        return [(key, section.accept) for key, section in faults if section is not None]

    @property
    def end(self) -> float:
        """Return the time of the event; of a series, of its last event."""
        return max(event.at for event in self.expanded())

    def too_late(self, ends: float) -> Tuple[Tuple[str, ...], str]:
        """Return the key that makes the event end after these seconds, and the beginning of its error."""
        if self.at >= ends:
            return ("at",), ""
        if self.thrash:
            return ("thrash", "for"), "the last undo is at "
        return ("times" if self.times else "lasts" if self.every is None else "every",), "the last undo is at "

    def expanded(self) -> Iterator[EventSection]:
        """Yield the single events of a series: each time the fault and its undo. Of another event, the event itself."""
        if self.thrash:
            for at, until, fault in self.thrash.drawn(self.at):
                yield EventSection.model_construct(at=at, fault=fault, thrash=self.thrash)
                yield EventSection.model_construct(at=until, undo=[fault.label])
            return
        every = self.lasts if isinstance(self.rolling, RollingSection) else self.every
        if every is None or self.fault is None:
            yield self
            return
        lasts, fault = self.lasts or every / 2, self.fault
        number = len(fault.targets) if self.rolling else self.times or 0
        for index in range(number):
            at, label = self.at + index * every, f"{fault.label}-{index + 1}"
            target = {fault.named: getattr(fault, fault.named)[index : index + 1]} if self.rolling else {}
            single = fault.model_copy(update={"label": label, **target})
            yield EventSection.model_construct(at=at, fault=single, wait=self.wait, rolling=self.rolling)
            until = self.at + (index + 1) * every if lasts == every else at + lasts  # not after the next fault's time
            yield EventSection.model_construct(at=until, undo=[label])


def in_order(events: Sequence[EventSection]) -> List[Tuple[int, EventSection]]:
    """Return all events by time, those of series as single ones, each with its place in the file."""
    single = [(index, event) for index, section in enumerate(events) for event in section.expanded()]
    return sorted(single, key=lambda entry: entry[1].at)


Events = Annotated[List[EventSection], Field(min_length=1)]


def _of_file(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) != {"file"} or not isinstance(value["file"], str):
        raise ValueError("must be a list of events, or {file: PATH} of a fault file")
    context = info.context or {}
    return events_of(value["file"], context.get("osds"), reread=context.get(REREAD, True))


class _OrFile:
    """For the JSON Schema."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> Dict[str, Any]:
        file = {"type": "object", "required": ["file"], "additionalProperties": False}
        return {"anyOf": [handler(core), {**file, "properties": {"file": {"type": "string", "minLength": 1}}}]}


#: of a phase: `{file: PATH}` stands for the events of a fault file
PhaseEvents = Annotated[Events, BeforeValidator(_of_file), _OrFile()]


class FaultsInForce:
    """Faults over the phases of a cycle, which come one after the other."""

    def __init__(self) -> None:
        self._used_labels: Set[str] = set()
        #: label in force -> its targets with the type of daemons, where they are named
        self._held: Dict[str, Sequence[Tuple[str, Optional[str]]]] = {}

    def errors_of_events(
        self, events: Sequence[EventSection], ends: Optional[float], scale: float = 1.0
    ) -> List[FieldError]:
        """Take the events of a phase that ends after so many seconds; return their errors."""
        first_by_place: Dict[Any, FieldError] = {}  # each event of a series has the error of the first
        for error in self._each_error(events, ends, scale):
            first_by_place.setdefault(error[0], error)
        return list(first_by_place.values())

    def to_plan(self, events: Sequence[EventSection], scale: float = 1.0) -> Tuple[plan.Event, ...]:
        """Take the events of a phase, which have no error; return the plan's."""
        planned_events = []
        for _, event in in_order(events):
            at = event.at * scale
            if event.fault:
                self._inject(event.fault)
                min_in = (event.thrash.min_in if event.thrash else None) or 0.0
                rolling = event.rolling if isinstance(event.rolling, RollingSection) else None
                planned_events.append(
                    plan.Event(
                        at,
                        replace(event.fault.planned(), min_in=min_in),
                        after_clean=bool(event.wait or rolling),
                        at_most=rolling.at_most if rolling else None,
                        optional=event.thrash is not None,
                    )
                )
            elif event.run:
                self._inject(event.run)
                planned_events.append(plan.Event(at, run=event.run.to_plan()))
            elif event.upgrade:
                self._used_labels.add(event.upgrade.label)
                planned_events.append(plan.Event(at, upgrade=event.upgrade.to_plan()))
            elif event.undo:
                planned_events.append(plan.Event(at, undo=tuple(self._undo(event.undo))))
            else:
                planned_events.append(plan.Event(at, mark=event.mark or ""))
        return tuple(planned_events)

    def _each_error(self, events: Sequence[EventSection], ends: Optional[float], scale: float) -> Iterator[FieldError]:
        last, marks = 0.0, set()
        for index, section in enumerate(events):
            if section.at < last:
                text = f"{format_duration(section.at)} comes before {format_duration(last)}"
                yield FieldError((index, "at"), f"{text}: events are in order of time")
            last = max(last, section.at)
        late: Set[int] = set()
        for index, event in in_order(events):
            if ends is not None and event.at * scale >= ends and index not in late:
                late.add(index)
                key, text = events[index].too_late(ends / scale)
                over = f"the phase is over after {format_duration(ends)}"
                yield FieldError((index, *key), f"{text}{format_duration(events[index].end * scale)}: {over}")
            if event.fault:
                yield from self._clashes(index, event.fault)
                self._inject(event.fault)
            elif event.run:
                yield from self._label_errors(index, "run", event.run.label)
                self._inject(event.run)
            elif event.upgrade:
                yield from self._label_errors(index, "upgrade", event.upgrade.label)
                self._used_labels.add(event.upgrade.label)
            elif event.undo:
                yield from self._not_in_force(index, event.undo)
                self._undo(event.undo)
            elif event.mark in marks:
                yield FieldError((index, "mark"), f"{event.mark!r} is a part of this phase already")
            marks.add(event.mark)

    def _clashes(self, index: int, fault: FaultSection) -> Iterator[FieldError]:
        yield from self._label_errors(index, "fault", fault.label)
        for place, target in enumerate(fault.targets):
            hit = (target, fault.daemon_type)
            holder = next((label for label, held in self._held.items() if hit in held), None)
            if holder:
                text = f"{target} is hit by {holder!r} already, which is in force then"
                path = (index, "fault", fault.named)
                yield FieldError(path if fault.crush else (*path, place), text)

    def _label_errors(self, index: int, kind: str, label: str) -> Iterator[FieldError]:
        if label in self._used_labels:
            text = f"{label!r} is the label of an earlier {kind}; every {kind} has its own"
            yield FieldError((index, kind, "label"), text)

    def _not_in_force(self, index: int, labels: Sequence[str]) -> Iterator[FieldError]:
        if labels == [_ALL]:
            if not self._held:
                yield FieldError((index, "undo"), "no fault is in force then")
            return
        for place, label in enumerate(labels):
            if label not in self._held:
                hint = "; it has been undone" if label in self._used_labels else did_you_mean(label, self._held)
                in_force = f"; in force are {', '.join(self._held)}" if self._held else "; no fault is"
                path = (index, "undo", place) if len(labels) > 1 else (index, "undo")
                yield FieldError(path, f"no fault {label!r} is in force then{hint or in_force}")
            elif label in labels[:place]:
                yield FieldError((index, "undo", place), f"{label} is in the list twice")

    def _inject(self, section: Union[FaultSection, RunSection]) -> None:
        self._used_labels.add(section.label)
        if isinstance(section, FaultSection):
            self._held[section.label] = [(target, section.daemon_type) for target in section.targets]
        elif section.undo:
            self._held[section.label] = ()

    def _undo(self, labels: Sequence[str]) -> List[str]:
        undone = list(self._held) if labels == [_ALL] else list(labels)
        for label in undone:
            self._held.pop(label, None)
        return undone


class FaultFileSection(Strict):
    """Faults beside any benchmark; undone at its end at the latest."""

    settings: SettingsSection = file_default(
        SettingsSection.model_validate,
        {},
        description="Settings of the cluster during the run, without `scrub: deep-after`.",
    )
    events: Events = Field(
        description="In order of time; each event is one of fault, thrash, run, undo, mark."
    )

    @field_validator("events")
    @classmethod
    def _in_order(cls, events: Sequence[EventSection]) -> Sequence[EventSection]:
        errors = FaultsInForce().errors_of_events(events, None)
        if errors:
            raise FieldErrors(errors)
        return events

    @model_validator(mode="after")
    def _seen(self) -> FaultFileSection:
        errors = [
            FieldError(("events", index, key), text, of_key=True)
            for index, event in enumerate(self.events)
            for key, accept in event.accepted
            for text in self.settings.hidden(accept)
        ]
        errors += [
            FieldError(("events", index, "upgrade"), "is for a phase, not for a fault file", of_key=True)
            for index, event in enumerate(self.events)
            if event.upgrade
        ]
        if self.settings.deep_scrub:
            errors.append(FieldError(("settings", "scrub"), "deep-after follows a run of a benchmark of ours: say off"))
        if errors:
            raise FieldErrors(errors)
        return self


def is_fault_file(source: YamlSource) -> bool:
    """Return whether a file is a fault file, not a CBT file."""
    return isinstance(source.data, dict) and "events" in source.data and "benchmarks" not in source.data


#: key of the validation context: whether fault files are read again, which only the check of a file does
REREAD = "reread"
#: path -> the fault file as this process has read it last
FAULT_FILES: Dict[str, YamlSource] = {}


def events_of(path: str, osds: Optional[Sequence[str]] = None, reread: bool = True) -> Sequence[EventSection]:
    """Return the events of a file for a phase of a cycle; raises ValueError with every error.

    Its settings would be those of a phase, and a run has one set for its whole length: they may not be there.
    Without `reread` these are the events that this process has read last: all runs have the file that was checked.
    """
    try:
        if reread or path not in FAULT_FILES:
            FAULT_FILES[path] = read(Path(path))
        model = _model(FAULT_FILES[path], osds)
    except ConfigError as error:
        raise ValueError("; ".join(map(str, error.errors))) from None
    if model.settings.to_plan() != plan.Settings():
        raise ValueError(f"{path} has settings:, which are set for a whole run: move them beside the cycle")
    return model.events


def load_fault_file(
    file: Union[str, Path, YamlSource], osds: Optional[Sequence[str]] = None, over: Sequence[str] = ()
) -> Tuple[Tuple[plan.Event, ...], plan.Settings]:
    """Return the events, in seconds after the start, and the settings; raises ConfigError with every error.

    `osds` are the nodes that the file may name, as `cluster: {osds: [...]}` has them; without them it may name any.
    `over` are the nodes of `rolling: {over: osd_nodes}`, by default the `osds`.
    """
    model = _model(file if isinstance(file, YamlSource) else read(Path(file)), osds, over)
    return FaultsInForce().to_plan(model.events), model.settings.to_plan()


def _model(source: YamlSource, osds: Optional[Sequence[str]], over: Sequence[str] = ()) -> FaultFileSection:
    data: Any = source.data
    model, errors = validate(FaultFileSection, data, {"osds": osds, OVER: over})
    all_errors = [*source.duplicates, *(source.error_at(path, text, of_key) for path, text, of_key in errors)]
    if all_errors or model is None:
        raise ConfigError(all_errors)
    return model
