"""`fault:` -- a fault to inject: its kind, its targets, and the safety rules that it may break."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from pydantic import ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.config import registry
from cbt_plugins.config.cluster import Node
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.patterns import Daemon
from cbt_plugins.config.validate import (
    FieldError,
    FieldErrors,
    Strict,
    errors_of_words,
    exactly_one,
    not_text,
    only_one,
    validate,
)
from cbt_plugins.inventory import find_host, host_of, nodes_of

#: more nodes or OSDs at once than this are a typing error
_MANY = 1000
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
#: of undo:, and of what a run writes down under these labels itself
_RESERVED = ("all", "settings", "recovery")
_TARGETS = ("nodes", "osds", "daemons", "osd_nodes", "osd_number", "daemon_number")

Nodes = Annotated[List[Node], Field(min_length=1)]
Osds = Annotated[List[Annotated[int, Field(ge=0, le=1_000_000)]], Field(min_length=1)]
Daemons = Annotated[List[Daemon], Field(min_length=1)]
Number = Annotated[int, Field(ge=1, le=_MANY)]
#: an option of this name, in seconds, is when a node recovers by itself
DEADLINE = "deadline"
#: key of the context in which durations are seconds
PLANNED = "planned"


def kind_class(name: str) -> Any:
    """Return a subclass of `faults.kind.Kind`. Raises ValueError for a name that is not known or cannot be imported."""
    reference, kinds = registry.references(registry.FAULTS).get(name), registry.names(registry.FAULTS)
    if reference is None:
        raise ValueError(f"unknown kind of fault {name!r}; known are {', '.join(kinds)}{did_you_mean(name, kinds)}")
    try:
        return registry.load(registry.FAULTS, name)
    except Exception as error:
        raise ValueError(f"fault kind {name!r} of {reference}: {type(error).__name__}: {error}") from error


def make_kind(
    name: str, given: Mapping[Any, Any], planned: bool = False
) -> Tuple[Optional[Any], Dict[str, Any], Tuple[FieldError, ...]]:
    """Return the kind with these options, the options that are given as a plan has them, and what is wrong with them.

    The paths of errors begin with the name of an option. `planned`: the options are those of a plan. Raises ValueError.
    """
    cls = kind_class(name)
    errors = [FieldError((key,), not_text(key), of_key=True) for key in given if not isinstance(key, str)]
    if errors:
        return None, {}, tuple(errors)
    options, option_errors = validate(cls.Options, dict(given), {PLANNED: planned})
    if options is None:
        return None, {}, option_errors
    return cls(options), options.model_dump(exclude_unset=True), ()


def without_defaults(kind: str, given: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the options of a plan's fault without those that have their default; of a kind that is not known, all."""
    try:
        fields = kind_class(kind).Options.model_fields
    except ValueError:
        return dict(given)
    usual = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return {name: value for name, value in given.items() if name not in usual or value != usual[name]}


def deadline_of(kind: str, given: Mapping[str, Any]) -> Optional[float]:
    """Return the seconds after which a fault of a plan recovers by itself; None when it does not."""
    fault_kind, _, _ = make_kind(kind, given, planned=True)
    return getattr(fault_kind.options, DEADLINE, None) if fault_kind else None


def warnings_of(kind: str, given: Mapping[str, Any]) -> List[str]:
    """Return the warnings to print before a fault of a plan is injected."""
    fault_kind, _, _ = make_kind(kind, given, planned=True)
    return list(fault_kind.warnings()) if fault_kind else []


class AnyFaultSection(Strict):
    """The keys that every fault has."""

    kind: str = Field(
        min_length=1,
        description="`stop`, `crash`, `out`, `replace`, `mark`, `network`, `reboot`, `power`, or a third party's.",
    )
    seed: Optional[Annotated[int, Field(ge=0, lt=1 << 63)]] = Field(
        None, description="Same seed, same choice of targets. Default: 1."
    )
    options: Annotated[Dict[Any, Any], WithJsonSchema({"type": "object"})] = Field(
        {}, description="Options of the kind.", validate_default=True
    )
    accept: List[str] = Field([], description="Safety rules that it may break.")

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        kind_class(kind)
        return kind

    @field_validator("options")
    @classmethod
    def _of_its_kind(cls, options: Dict[Any, Any], info: ValidationInfo) -> Dict[Any, Any]:
        if "kind" not in info.data:
            return options
        _, plan_options, errors = make_kind(info.data["kind"], options)
        if errors:
            raise FieldErrors(errors)
        return plan_options

    @field_validator("accept")
    @classmethod
    def _known_rules(cls, accept: List[str]) -> List[str]:
        errors = errors_of_words(accept, plan.SAFETY_RULES, "unknown safety rule")
        if errors:
            raise FieldErrors(errors)
        return accept

    def to_plan(
        self, label: str, targets: Sequence[str], choose: int, of: str, accept: Sequence[str] = ()
    ) -> plan.Fault:
        """Return the plan's fault; `of` is what is chosen, "node" or a type of daemons."""
        return plan.Fault(
            label,
            self.kind,
            targets=tuple(targets),
            choose=0 if targets else choose,
            choose_of="" if targets else of,
            seed=1 if self.seed is None else self.seed,
            options=dict(self.options),
            accept=tuple(dict.fromkeys([*self.accept, *accept])),
        )


def usable_label(label: str) -> str:
    """Return the label of a fault or a command; raises ValueError."""
    if label in _RESERVED:
        raise ValueError(f"{label!r} is reserved; so are {', '.join(_RESERVED)}")
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r}: a label is made of a-z, A-Z, 0-9, and . _ - in between")
    return label


def usable_nodes(nodes: Optional[Sequence[str]], info: ValidationInfo) -> Optional[List[str]]:
    """Return the names without users; raises FieldErrors for what is no OSD node, or in the list twice.

    A kind that takes no OSDs may name any node.
    """
    kind = kind_class(info.data["kind"]) if "kind" in info.data else None
    osd_nodes = () if kind and "osd" not in kind.daemon_types else nodes_of(info.context or {}, "osds")
    bare = [find_host(node, osd_nodes) or host_of(node) for node in nodes or ()]
    errors = []
    for index, node in enumerate(bare):
        if osd_nodes and node not in osd_nodes:
            hint = did_you_mean(node, osd_nodes) or f"; there are {', '.join(osd_nodes)}"
            errors.append(FieldError((index,), f"{node} is not among the cluster's osds{hint}"))
        elif node in bare[:index]:
            errors.append(FieldError((index,), f"{node} is in the list twice"))
    if errors:
        raise FieldErrors(errors)
    return bare or None


class FaultSection(AnyFaultSection):
    """A fault that is injected and undone; exactly one key says what it hits."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_TARGETS))

    label: str = Field(description="For `undo:` and report; unique.")
    nodes: Optional[Nodes] = Field(None, description="These, or all their daemons that the kind takes.")
    osds: Optional[Osds] = Field(None, description="These.")
    daemons: Optional[Daemons] = Field(None, description="These: `[osd.3, rgw.a]`.")
    osd_nodes: Optional[Number] = Field(None, description="So many healthy ones, chosen by the seed.")
    osd_number: Optional[Number] = Field(None, description="So many healthy ones, chosen by the seed.")
    daemon_number: Optional[Number] = Field(
        None, description="So many healthy ones that the kind takes, likewise."
    )

    @field_validator("label")
    @classmethod
    def _usable_label(cls, label: str) -> str:
        return usable_label(label)

    @field_validator("nodes")
    @classmethod
    def _known_nodes(cls, nodes: Optional[List[str]], info: ValidationInfo) -> Optional[List[str]]:
        return usable_nodes(nodes, info)

    @field_validator("osds", "daemons")
    @classmethod
    def _each_once(cls, names: Optional[List[Any]]) -> Optional[List[Any]]:
        repeated = [(i, name) for i, name in enumerate(names or ()) if name in (names or ())[:i]]
        if repeated:
            raise FieldErrors([FieldError((i,), f"{name} is in the list twice") for i, name in repeated])
        return names

    @model_validator(mode="after")
    def _check_section(self, info: ValidationInfo) -> FaultSection:
        given = only_one(self, _TARGETS)
        raise_for_targets(self, given, self.targets)
        raise_for_number(self.osd_nodes, "osd_nodes", info)
        return self

    @property
    def targets(self) -> List[str]:
        """Return the names of nodes or daemons; empty when they are chosen."""
        return self.nodes or self.daemons or [f"osd.{osd}" for osd in self.osds or ()]

    @property
    def named(self) -> str:
        """Return the key that names the targets."""
        return next((key for key in ("nodes", "daemons") if getattr(self, key)), "osds")

    def planned(self) -> plan.Fault:
        """Return the plan's fault."""
        of = "node" if self.osd_nodes else "osd"
        if self.daemon_number:
            of = kind_class(self.kind).daemon_types[0]
        number = self.osd_nodes or self.osd_number or self.daemon_number or 0
        return self.to_plan(self.label, self.targets, number, of)


def raise_for_number(number: Optional[int], key: str, info: ValidationInfo) -> None:
    """Raise FieldErrors for more nodes than the file has; `key` says how many."""
    osd_nodes = nodes_of(info.context or {}, "osds")
    if number and osd_nodes and number > len(osd_nodes):
        raise FieldErrors([FieldError((key,), f"{number} nodes, and the cluster has {len(osd_nodes)} with OSDs")])


def raise_for_targets(section: AnyFaultSection, given: str, targets: Sequence[str]) -> None:
    """Raise FieldErrors for targets that the kind does not take.

    `given` is the key that names or chooses them; `targets` are those that are named: nodes, or daemons such as osd.3.
    """
    kind, fault_kind = section.kind, make_kind(section.kind, section.options, planned=True)[0]
    cls: Any = kind_class(kind)
    errors: List[FieldError] = []
    nodes, names = given in ("nodes", "osd_nodes"), not given.endswith(("_nodes", "_number"))
    takes = {"node": "whole nodes", "daemon": f"{' or '.join(cls.daemon_types)} daemons"}
    types = {text.split(".")[0] for text in targets if not nodes} or {"osd" if given == "osd_number" else ""}
    if cls.takes in takes and nodes != (cls.takes == "node"):
        keys = "nodes or osd_nodes" if not nodes else "osds or osd_number"
        if nodes and "osd" not in cls.daemon_types:
            keys = "daemons or daemon_number"
        if given in section.model_fields_set:
            errors.append(FieldError((given,), f"{kind} takes {takes[cls.takes]}: use {keys}", of_key=True))
        else:
            errors.append(FieldError(("kind",), f"{kind} takes {takes[cls.takes]}, not {'nodes' if nodes else 'OSDs'}"))
    elif not nodes and not types <= {*cls.daemon_types, ""}:
        errors.append(FieldError((given,), f"{kind} takes {takes['daemon']}", of_key=True))
    if section.seed is not None and names and targets:
        errors.append(FieldError(("seed",), f"chooses, and {given} names already: keep one", of_key=True))
    for key, text in fault_kind.errors(targets) if fault_kind and not errors else ():
        errors.append(FieldError((given if key == "targets" else key,), text, of_key=key == "targets"))
    if errors:
        raise FieldErrors(errors)
