"""`shape: classic` of `osdfailure:` -- a phase for each kind of failure, in three parts, beside one without any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.config.fault import BreakSection, Nodes, Number, Osds, raise_for_targets, usable_nodes
from cbt_plugins.config.kinds import DEADLINE, deadline_of
from cbt_plugins.config.models import scaled_duration
from cbt_plugins.config.sizes import size_texts
from cbt_plugins.config.units import Duration
from cbt_plugins.config.validate import Problem, Problems, Strict

_MINUTE = 60.0
#: the phase without a failure
CONTROL = "control"
#: buckets that all phases read (workload hybrid)
_READ = ("read-1", "read-2")
#: a node must not heal itself before it is told to
_LATER = 5 * _MINUTE
_MIXES: Dict[str, Dict[str, float]] = {
    "delete-write": {"PUT": 60.0, "DELETE": 40.0},
    "hybrid": {"GET": 60.0, "PUT": 20.0, "DELETE": 10.0, "LIST": 10.0},
}
_KEYS = {"GET": plan.Keys("u(1,N)"), "PUT": plan.Keys("s(N+1,10N)"), "DELETE": plan.Keys("s(1,10N)")}


class ClassicParts(Strict):
    """The parts of every phase, one after the other; the control phase has them too, without a failure."""

    start: Duration = Field(
        10 * _MINUTE, description="Before the failure.", json_schema_extra={"default": "10m"}
    )
    failure: Duration = Field(10 * _MINUTE, description="While it lasts.", json_schema_extra={"default": "10m"})
    recovery: Duration = Field(60 * _MINUTE, description="After it.", json_schema_extra={"default": "60m"})


class DeviceFaultSection(BreakSection):
    """A failing OSD."""

    kind: str = Field("stop", min_length=1, description="`stop`, `crash`, `out`, `replace` or `mark`.")
    osds: Optional[Osds] = Field(None, description="These OSDs, by number.")
    osd_number: Optional[Number] = Field(None, description="So many, chosen; 1 without this key and osds.")

    @model_validator(mode="after")
    def _whole(self) -> DeviceFaultSection:
        _either(self.osds, self.osd_number, "osd_number", "osds")
        raise_for_targets(self, "osds" if self.osds else "osd_number", self.osds)
        return self

    def planned(self, label: str) -> plan.Fault:
        """Return the plan's fault."""
        return self.to_plan(label, [f"osd.{osd}" for osd in self.osds or ()], self.osd_number or 1, "osd")


class NetworkFaultSection(BreakSection):
    """A failing node."""

    kind: str = Field("network", min_length=1, description="`network`, `stop`, `crash`, `power`, ...")
    nodes: Optional[Nodes] = Field(None, description="These nodes.")
    osd_nodes: Optional[Number] = Field(None, description="So many, chosen; 1 without this key and nodes.")

    @field_validator("nodes")
    @classmethod
    def _known_nodes(cls, nodes: Optional[List[str]], info: ValidationInfo) -> Optional[List[str]]:
        return usable_nodes(nodes, info)

    @model_validator(mode="after")
    def _whole(self) -> NetworkFaultSection:
        _either(self.nodes, self.osd_nodes, "osd_nodes", "nodes")
        raise_for_targets(self, "nodes" if self.nodes else "osd_nodes", None)
        return self

    def planned(self, label: str) -> plan.Fault:
        """Return the plan's fault."""
        return self.to_plan(label, self.nodes or (), self.osd_nodes or 1, "node")


class RebootFaultSection(NetworkFaultSection):
    """A node that starts anew."""

    kind: str = Field("reboot", min_length=1, description="`reboot`, or another kind.")


def _either(names: Optional[Sequence[object]], number: Optional[int], key: str, other: str) -> None:
    if names and number:
        raise Problems([Problem((key,), f"either {key} or {other}, not both", of_key=True)])


class ClassicFaultsSection(Strict):
    """A phase for each of these keys, in this order."""

    device: Optional[DeviceFaultSection] = Field(None, description="An OSD; `{}` stops one that is chosen.")
    network: Optional[NetworkFaultSection] = Field(
        None, description="A node's network; `{options: {method: nft}}` cuts that of a node that is chosen."
    )
    reboot: Optional[RebootFaultSection] = Field(None, description="A node starts anew; `{}` takes one that is chosen.")

    @model_validator(mode="after")
    def _any(self) -> ClassicFaultsSection:
        if not any(fault for _, fault in self):
            raise ValueError("needs device, network or reboot")
        return self

    def planned(self) -> List[plan.Fault]:
        """Return the plan's faults; each has its phase's name for a label."""
        return [fault.planned(name) for name, fault in self if fault]


def usual_faults() -> ClassicFaultsSection:
    """Return what the older tool did, on nodes of any names."""
    return ClassicFaultsSection.model_validate({"device": {}, "network": {"options": {"method": "nft"}}})


@dataclass(frozen=True)
class Classic:
    """The phases, and the buckets that they need: each phase writes into its own, so that all do the same."""

    faults: Sequence[plan.Fault]
    parts: ClassicParts
    settle: float
    workload: str
    clean: plan.Phase  # the wait until all PGs are active+clean
    scale: float

    def buckets(self, sizes: plan.Sizes) -> Tuple[plan.Bucket, ...]:
        """Return a bucket for each phase, and those that are read."""
        read = _READ if self.workload == "hybrid" else ()
        return tuple(plan.Bucket(name, sizes) for name in (CONTROL, *(fault.label for fault in self.faults), *read))

    def drivers(
        self, sizes: plan.Sizes, number: int, workers: int, clients: Sequence[str]
    ) -> Tuple[plan.Driver, ...]:
        """Return drivers that work on all buckets."""
        stem = size_texts(sizes)[0] if len(sizes) == 1 else "sizes"
        buckets = tuple(bucket.key for bucket in self.buckets(sizes))
        return tuple(
            plan.Driver(f"{i + 1:02d}-{stem}", clients[i % len(clients)], buckets, workers) for i in range(number)
        )

    def phases(self) -> Iterator[plan.Phase]:
        """Yield all phases but the fill."""
        for name, fault in [(CONTROL, None), *((fault.label, fault) for fault in self.faults)]:
            yield self._loaded(name, fault)
            settled = scaled_duration(self.settle, self.scale)
            yield plan.Phase(f"{name}-settle", "wait", duration=settled)
            yield replace(self.clean, name=f"{name}-clean")

    def _loaded(self, name: str, fault: Optional[plan.Fault]) -> plan.Phase:
        parts, mix = self.parts, _MIXES[self.workload]
        failure, recovery = parts.start * self.scale, (parts.start + parts.failure) * self.scale
        events = [plan.Event(0.0, mark="start"), plan.Event(failure, mark="failure")]
        events += [plan.Event(failure, inject=self._lasting(fault))] if fault else []
        events += [plan.Event(recovery, mark="recovery")]
        events += [plan.Event(recovery, undo=(fault.label,))] if fault else []
        return plan.Phase(
            name,
            "hybrid",
            "measure",
            duration=scaled_duration(parts.start + parts.failure + parts.recovery, self.scale),
            mix=mix,
            engine="cbt-load",
            keys={op: _KEYS[op] for op in mix if op in _KEYS},
            roles={op: _READ if op in ("GET", "LIST") else (name,) for op in mix},
            events=tuple(events),
        )

    def _lasting(self, fault: plan.Fault) -> plan.Fault:
        """Return it with a dead man's switch that does not fire before the failure part is over."""
        if deadline_of(fault.kind, fault.options) is None or DEADLINE in fault.options:
            return fault
        deadline = self.parts.failure * self.scale + _LATER
        return replace(fault, options={**fault.options, DEADLINE: deadline})
