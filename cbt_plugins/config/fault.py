"""`fault:` -- a fault to inject: its kind, its targets, and the safety rules that it may break."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple

from pydantic import ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.cluster_conditions import RECOVERY, SETTINGS
from cbt_plugins.config import plugins
from cbt_plugins.config.cluster import Node
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.key_errors import (
    FieldError,
    FieldErrors,
    Strict,
    errors_of_words,
    exactly_one,
    not_text,
    only_one,
    validate,
)
from cbt_plugins.config.shell_values import CrushName, Daemon
from cbt_plugins.inventory import HostTable, host_of, nodes_of

#: more nodes or OSDs at once than this are a typing error
_MANY = 1000
#: characters of a label: a node has files and units with this name, and `_` and `.` become four characters there
LONGEST_LABEL = 50
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
#: of undo:, and of what a run writes down under these labels itself
_RESERVED = ("all", SETTINGS, RECOVERY)
TARGETS = ("nodes", "osds", "daemons", "crush", "crush_type", "osd_nodes", "osd_number", "daemon_number")
#: targets that are chosen on the cluster: by their number, or by a type of CRUSH bucket
_CHOSEN = ("crush_type", "osd_nodes", "osd_number", "daemon_number")

Nodes = Annotated[List[Node], Field(min_length=1)]
Osds = Annotated[List[Annotated[int, Field(ge=0, le=1_000_000)]], Field(min_length=1)]
Daemons = Annotated[List[Daemon], Field(min_length=1)]
Number = Annotated[int, Field(ge=1, le=_MANY)]
#: those of setup.cfg, for the description
_KINDS = ", ".join(f"`{name}`" for name in plugins.built_in(plugins.FAULTS))
#: an option of this name, in seconds, is when a node recovers by itself
DEADLINE = "deadline"
#: seconds; a node must not recover by itself before it is told to
_LATER = 300.0
#: seconds: the latest deadline of a dead man's switch
LONGEST_DEADLINE = 7 * 86400.0
#: keys of the context of options: whether durations are seconds, and the nodes of `cluster:`, where they are known
PLANNED, NODES = "planned", "nodes"


def kind_class(name: str) -> Any:
    """Return a subclass of `faults.kind.Kind`. Raises ValueError for a name that is not known or cannot be imported."""
    reference, kinds = plugins.references(plugins.FAULTS).get(name), plugins.names(plugins.FAULTS)
    if reference is None:
        raise ValueError(f"unknown kind of fault {name!r}; known are {', '.join(kinds)}{did_you_mean(name, kinds)}")
    try:
        return plugins.load(plugins.FAULTS, name)
    except Exception as error:
        raise ValueError(f"fault kind {name!r} of {reference}: {type(error).__name__}: {error}") from error


def changes_in_kubernetes(fault: plan.Fault, in_pods: bool) -> Optional[str]:
    """Return the objects of Kubernetes that a fault changes, as `Kind.changes_in_kubernetes` names them; "": none.

    `in_pods`: whether daemons are in pods, if the fault does not name its service manager.
    """
    changed: Optional[str] = kind_class(fault.kind).changes_in_kubernetes
    manager = fault.options.get("service_manager") or ("rook" if in_pods else "")
    return changed if manager == "rook" or changed in ("pod", "node") else ""


def stops_gateways(fault: plan.Fault) -> bool:
    """Tell whether a fault may stop gateways of Rook by their deployments."""
    kind = kind_class(fault.kind)
    of_nodes = fault.choose_of if fault.choose_of in kind.daemon_types else kind.daemon_types[0]
    of_gateways = of_nodes == "rgw" or any(target.startswith("rgw.") for target in fault.targets)
    return of_gateways and kind.changes_in_kubernetes == "deployment"


def make_kind(
    name: str, given: Mapping[Any, Any], planned: bool = False, nodes: Sequence[str] = ()
) -> Tuple[Optional[Any], Dict[str, Any], Tuple[FieldError, ...]]:
    """Return the kind with these options, the options that are given as a plan has them, and what is wrong with them.

    The paths of errors begin with the name of an option. `planned`: the options are those of a plan. `nodes`: those of
    `cluster:`; without any, an option may name any node. Raises ValueError.
    """
    cls = kind_class(name)
    errors = [FieldError((key,), not_text(key), of_key=True) for key in given if not isinstance(key, str)]
    if errors:
        return None, {}, tuple(errors)
    options, option_errors = validate(cls.Options, dict(given), {PLANNED: planned, NODES: nodes})
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


def lasting(fault: plan.Fault, seconds: float) -> plan.Fault:
    """Return the fault with a dead man's switch that does not fire within these seconds and 5 minutes.

    A fault without a switch, or with a deadline of the file, is as it was.
    """
    if deadline_of(fault.kind, fault.options) is None or DEADLINE in fault.options:
        return fault
    return replace(fault, options={**fault.options, DEADLINE: min(seconds + _LATER, LONGEST_DEADLINE)})


def fault_warnings(kind: str, given: Mapping[str, Any]) -> List[str]:
    """Return the warnings to print before a fault of a plan is injected."""
    fault_kind, _, _ = make_kind(kind, given, planned=True)
    return list(fault_kind.warnings()) if fault_kind else []


class AnyFaultSection(Strict):
    """The keys that every fault has."""

    kind: str = Field(min_length=1, description=f"{_KINDS}, or a kind of another distribution.")
    seed: Optional[Annotated[int, Field(ge=0, lt=1 << 63)]] = Field(
        None, description=f"The same seed chooses the same targets. Default: {plan.Fault.seed}."
    )
    options: Annotated[Dict[Any, Any], WithJsonSchema({"type": "object"})] = Field(
        {}, description="Options of the kind.", validate_default=True
    )
    accept: List[str] = Field([], description="Safety rules that the fault may break.")

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
        nodes = (info.context or {}).get(NODES) or ()
        _, plan_options, errors = make_kind(info.data["kind"], options, nodes=nodes)
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
            seed=plan.Fault.seed if self.seed is None else self.seed,
            options=dict(self.options),
            accept=tuple(dict.fromkeys([*self.accept, *accept])),
        )


def usable_label(label: str) -> str:
    """Return the label of a fault or a command; raises ValueError."""
    if label in _RESERVED:
        raise ValueError(f"{label!r} is reserved; so are {', '.join(_RESERVED)}")
    if len(label) > LONGEST_LABEL:
        raise ValueError(f"has {len(label)} characters, and {LONGEST_LABEL} are the limit of a label")
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r}: a label is made of a-z, A-Z, 0-9, and . _ - in between")
    return label


def usable_nodes(nodes: Optional[Sequence[str]], info: ValidationInfo) -> Optional[List[str]]:
    """Return the names without users; raises FieldErrors for what is no OSD node, or in the list twice.

    A fault on other daemons may name any node.
    """
    kind = kind_class(info.data["kind"]) if "kind" in info.data else None
    of = info.data.get("daemon_type") or (kind.daemon_types[0] if kind else "osd")
    osd_nodes = nodes_of(info.context or {}, "osds") if of == "osd" else ()
    table = HostTable(osd_nodes)
    bare = [table.find(node) or host_of(node) for node in nodes or ()]
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


class TargetedFaultSection(AnyFaultSection):
    """A fault without a label; exactly one key says what it hits."""

    model_config = ConfigDict(json_schema_extra=exactly_one(TARGETS))

    daemon_type: Optional[Literal["osd", "mon", "mgr", "mds", "rgw"]] = Field(
        None,
        description="Type of the daemons of `nodes` or `daemon_number`; of a kind that hits whole nodes, a type of "
        "daemons that the nodes have. Default: the kind's first.",
    )
    nodes: Optional[Nodes] = Field(None, description="These nodes, or the daemons on them (`daemon_type`).")
    osds: Optional[Osds] = Field(None, description="These OSDs: `[3, 4]`.")
    daemons: Optional[Daemons] = Field(None, description="These daemons: `[osd.3, rgw.a]`.")
    crush: Optional[CrushName] = Field(None, description="The OSDs, or the nodes, of this CRUSH bucket: `rack1`.")
    crush_type: Optional[CrushName] = Field(
        None, description="One CRUSH bucket of this type, of healthy OSDs, chosen by the seed: `rack`."
    )
    osd_nodes: Optional[Number] = Field(None, description="Number of healthy nodes, chosen by the seed.")
    osd_number: Optional[Number] = Field(None, description="Number of healthy OSDs, chosen by the seed.")
    daemon_number: Optional[Number] = Field(
        None, description="Number of healthy daemons (`daemon_type`), chosen by the seed."
    )

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
    def _check_section(self, info: ValidationInfo) -> TargetedFaultSection:
        given = only_one(self, TARGETS)
        raise_for_targets(self, given, self.targets)
        self._check_type(given)
        raise_for_number(self.osd_nodes, "osd_nodes", info)
        return self

    def _check_type(self, given: str) -> None:
        cls = kind_class(self.kind)
        if self.daemon_type is None:
            return
        if given not in ("nodes", "daemon_number") or (cls.takes == "node" and len(cls.daemon_types) == 1):
            text = "is for daemon_number, and for nodes of a kind that hits daemons of this type"
            raise FieldErrors([FieldError(("daemon_type",), text, of_key=True)])
        if self.daemon_type not in cls.daemon_types:
            text = f"{self.kind} hits {' or '.join(cls.daemon_types)} daemons"
            raise FieldErrors([FieldError(("daemon_type",), text)])

    @property
    def targets(self) -> List[str]:
        """Return the names of nodes, of daemons, or of a CRUSH bucket; empty when they are chosen."""
        bucket = [f"{plan.CRUSH}{self.crush}"] if self.crush else []
        return self.nodes or self.daemons or bucket or [f"osd.{osd}" for osd in self.osds or ()]

    @property
    def named(self) -> str:
        """Return the key that names the targets."""
        return next((key for key in ("nodes", "daemons", "crush") if getattr(self, key)), "osds")

    def labelled(self, label: str) -> plan.Fault:
        """Return the plan's fault with this label."""
        of = "node" if self.osd_nodes else "osd"
        if self.daemon_number:
            of = self.daemon_type or kind_class(self.kind).daemon_types[0]
        elif self.crush_type:
            of = f"{plan.CRUSH}{self.crush_type}"
        number = self.osd_nodes or self.osd_number or self.daemon_number or (1 if self.crush_type else 0)
        fault = self.to_plan(label, self.targets, number, of)
        return replace(fault, choose_of=self.daemon_type) if self.daemon_type else fault


class FaultSection(TargetedFaultSection):
    """A fault that is injected and undone; exactly one key says what it hits."""

    model_config = ConfigDict(json_schema_extra={})  # an event may have its targets elsewhere: config.rolling

    label: str = Field(description=f"Name for `undo:` and the report; unique; at most {LONGEST_LABEL} characters.")

    @field_validator("label")
    @classmethod
    def _usable_label(cls, label: str) -> str:
        return usable_label(label)

    def planned(self) -> plan.Fault:
        """Return the plan's fault."""
        return self.labelled(self.label)


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
    nodes, bucket, names = given in ("nodes", "osd_nodes"), given in ("crush", "crush_type"), given not in _CHOSEN
    takes = {"node": "whole nodes", "daemon": f"{' or '.join(cls.daemon_types)} daemons"}
    types = {text.split(".")[0] for text in targets if not nodes} or {"osd" if given == "osd_number" else ""}
    if bucket:
        if "osd" not in cls.daemon_types:
            text = f"stands for OSDs; {kind} hits {' or '.join(cls.daemon_types)} daemons"
            errors.append(FieldError((given,), text, of_key=True))
    elif cls.takes in takes and nodes != (cls.takes == "node"):
        keys = "nodes or osd_nodes" if not nodes else "osds or osd_number"
        if nodes and "osd" not in cls.daemon_types:
            keys = "daemons or daemon_number"
        if given in section.model_fields_set:
            errors.append(FieldError((given,), f"{kind} hits {takes[cls.takes]}: use {keys}", of_key=True))
        else:
            errors.append(FieldError(("kind",), f"{kind} hits {takes[cls.takes]}, not {'nodes' if nodes else 'OSDs'}"))
    elif not nodes and not types <= {*cls.daemon_types, ""}:
        errors.append(FieldError((given,), f"{kind} hits {takes['daemon']}", of_key=True))
    if section.seed is not None and names and targets:
        text = f"chooses targets, and {given} names them already: keep one of the two keys"
        errors.append(FieldError(("seed",), text, of_key=True))
    for key, text in fault_kind.errors(targets) if fault_kind and not errors else ():
        errors.append(FieldError((given if key == "targets" else key,), text, of_key=key == "targets"))
    if errors:
        raise FieldErrors(errors)
