"""`fault:` -- a fault to inject: its kind, its targets, and the safety rules that it may break."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, Optional, Sequence

from pydantic import ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.config.cluster import Node
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.kinds import consent, known_rules, missing, options_of, unit_of
from cbt_plugins.config.validate import FieldError, FieldErrors, Strict, exactly_one, only_one
from cbt_plugins.inventory import host_of, nodes_of

#: more nodes or OSDs at once than this are a typing error
_MANY = 1000
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
#: of undo:, and of what a run writes down under these labels itself
_RESERVED = ("all", "settings", "recovery")
_TARGETS = ("nodes", "osds", "osd_nodes", "osd_number")

Nodes = Annotated[List[Node], Field(min_length=1)]
Osds = Annotated[List[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Number = Annotated[int, Field(ge=1, le=_MANY)]


class AnyFaultSection(Strict):
    """The keys that every fault has."""

    kind: str = Field(
        min_length=1,
        description="`stop`, `crash`, `out`, `replace`, `mark`, `network`, `reboot`, `power`, or what another "
        "distribution brings.",
    )
    seed: Optional[Annotated[int, Field(ge=0, lt=1 << 63)]] = Field(
        None, description="Same seed, same choice; without it 1. Only where the targets are chosen."
    )
    options: Annotated[Dict[Any, Any], WithJsonSchema({"type": "object"})] = Field({}, description="Of the kind.")
    accept: List[str] = Field([], description="Safety rules that it may break; one that breaks another is refused.")

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        unit_of(kind)
        return kind

    @field_validator("options")
    @classmethod
    def _of_its_kind(cls, options: Dict[Any, Any], info: ValidationInfo) -> Dict[Any, Any]:
        if "kind" not in info.data:
            return options
        made, errors = options_of(info.data["kind"], options)
        if errors:
            raise FieldErrors(errors)
        return made

    @field_validator("accept")
    @classmethod
    def _known_rules(cls, accept: List[str]) -> List[str]:
        errors = known_rules(accept)
        if errors:
            raise FieldErrors(errors)
        return accept

    @model_validator(mode="after")
    def _complete(self) -> AnyFaultSection:
        errors = [error._replace(path=("options", *error.path)) for error in missing(self.kind, self.options)]
        if errors:
            raise FieldErrors(errors)
        return self

    def to_plan(
        self, label: str, targets: Sequence[str], choose: int, of: str, accept: Sequence[str] = ()
    ) -> plan.Fault:
        """Return the plan's fault; `of` is what is chosen, "node" or "osd"."""
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


def usable_nodes(nodes: Optional[Sequence[str]], info: ValidationInfo) -> Optional[List[str]]:
    """Return the names without users; raises FieldErrors for what is no OSD node, or here twice."""
    bare = [host_of(node) for node in nodes or ()]
    known = nodes_of(info.context or {}, "osds")
    errors = []
    for index, node in enumerate(bare):
        if known and node not in known:
            hint = did_you_mean(node, known) or f"; there are {', '.join(known)}"
            errors.append(FieldError((index,), f"{node} is not among the cluster's osds{hint}"))
        elif node in bare[:index]:
            errors.append(FieldError((index,), f"{node} is in the list twice"))
    if errors:
        raise FieldErrors(errors)
    return bare or None


class FaultSection(AnyFaultSection):
    """A fault that is injected and undone; exactly one of nodes, osds, osd_nodes, osd_number says where."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_TARGETS))

    label: str = Field(description="What undo: and the report call it; unique in the cycle.")
    nodes: Optional[Nodes] = Field(None, description="All OSDs of these nodes, or the nodes themselves.")
    osds: Optional[Osds] = Field(None, description="These OSDs, by number.")
    osd_nodes: Optional[Number] = Field(
        None, description="So many healthy nodes, chosen from `ceph osd tree` by the seed."
    )
    osd_number: Optional[Number] = Field(None, description="So many OSDs, chosen likewise.")

    @field_validator("label")
    @classmethod
    def _usable_label(cls, label: str) -> str:
        if label in _RESERVED:
            raise ValueError(f"{label!r} means something else already; the run itself has {', '.join(_RESERVED)}")
        if not _LABEL.fullmatch(label):
            raise ValueError("a label is made of letters, digits and . _ -")
        return label

    @field_validator("nodes")
    @classmethod
    def _known_nodes(cls, nodes: Optional[List[str]], info: ValidationInfo) -> Optional[List[str]]:
        return usable_nodes(nodes, info)

    @field_validator("osds")
    @classmethod
    def _each_once(cls, osds: Optional[List[int]]) -> Optional[List[int]]:
        known = [(i, osd) for i, osd in enumerate(osds or ()) if osd in (osds or ())[:i]]
        if known:
            raise FieldErrors([FieldError((i,), f"{osd} is in the list twice") for i, osd in known])
        return osds

    @model_validator(mode="after")
    def _whole(self) -> FaultSection:
        given = only_one(self, _TARGETS)
        raise_for_targets(self, given, self.osds)
        return self

    @property
    def targets(self) -> List[str]:
        """Names of nodes, or osd.3; empty when they are chosen."""
        return self.nodes or [f"osd.{osd}" for osd in self.osds or ()]

    def planned(self) -> plan.Fault:
        """Return the plan's fault."""
        of = "node" if self.osd_nodes else "osd"
        return self.to_plan(self.label, self.targets, self.osd_nodes or self.osd_number or 0, of)


def raise_for_targets(section: AnyFaultSection, given: str, osds: Optional[Sequence[int]]) -> None:
    """Raise FieldErrors for targets that the kind does not take; `given` is the key that names or chooses them."""
    kind, unit, errors = section.kind, unit_of(section.kind), []
    wanted = "node" if given in ("nodes", "osd_nodes") else "osd"
    hits = {"node": "whole nodes", "osd": "single OSDs"}
    if unit in hits and unit != wanted and given in section.model_fields_set:
        keys = "nodes or osd_nodes" if unit == "node" else "osds or osd_number"
        errors.append(FieldError((given,), f"{kind} hits {hits[unit]}: say {keys}", of_key=True))
    elif unit in hits and unit != wanted:
        errors.append(FieldError(("kind",), f"{kind} hits {hits[unit]}, and here {hits[wanted]} fail"))
    if section.seed is not None and given in ("nodes", "osds"):
        errors.append(FieldError(("seed",), f"chooses, and {given} names already: keep one", of_key=True))
    if kind == "replace" and not errors:
        if osds is None:
            errors.append(FieldError((given,), "replace destroys data: name the OSDs with osds: [3]", of_key=True))
        elif section.options.get("consent") != consent(osds):
            text = f"replace destroys data: it needs consent: {consent(osds)!r}, word for word"
            errors.append(FieldError(("options",), text))
    if errors:
        raise FieldErrors(errors)
