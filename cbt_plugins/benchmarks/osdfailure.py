"""`osdfailure:`, load while OSD nodes are down and while they come back, in the shape of either study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.benchmarks.by_size import BySizeSection, TimedSection
from cbt_plugins.benchmarks.cycle import CycleBenchmark
from cbt_plugins.config.benchmark import MANY, scaled_duration
from cbt_plugins.config.fault import (
    DEADLINE,
    AnyFaultSection,
    Nodes,
    Number,
    Osds,
    deadline_of,
    kind_class,
    raise_for_number,
    raise_for_targets,
    usable_nodes,
)
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.units import Duration, Sizes, size_texts
from cbt_plugins.config.validate import FieldError, FieldErrors, Strict, errors_of_words

_MINUTE = 60.0
#: the phase without a failure
CONTROL = "control"
#: buckets that all phases read (workload hybrid)
_READ = ("read-1", "read-2")
#: a node must not recover by itself before it is told to
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


class DeviceFaultSection(AnyFaultSection):
    """A failing OSD."""

    kind: str = Field("stop", min_length=1, description="Or `crash`, `out`, `replace`, `mark`.")
    osds: Optional[Osds] = Field(None, description="These.")
    osd_number: Optional[Number] = Field(None, description="So many, chosen. Default: 1.")

    @model_validator(mode="after")
    def _check_section(self) -> DeviceFaultSection:
        _either(self.osds, self.osd_number, "osd_number", "osds")
        raise_for_targets(self, "osds" if self.osds else "osd_number", [f"osd.{osd}" for osd in self.osds or ()])
        return self

    def planned(self, label: str) -> plan.Fault:
        """Return the plan's fault."""
        return self.to_plan(label, [f"osd.{osd}" for osd in self.osds or ()], self.osd_number or 1, "osd")


class NetworkFaultSection(AnyFaultSection):
    """A failing node."""

    kind: str = Field("network", min_length=1, description="Or `stop`, `crash`, `power`, ...")
    nodes: Optional[Nodes] = Field(None, description="These.")
    osd_nodes: Optional[Number] = Field(None, description="So many, chosen. Default: 1.")

    @field_validator("nodes")
    @classmethod
    def _known_nodes(cls, nodes: Optional[List[str]], info: ValidationInfo) -> Optional[List[str]]:
        return usable_nodes(nodes, info)

    @model_validator(mode="after")
    def _check_section(self, info: ValidationInfo) -> NetworkFaultSection:
        _either(self.nodes, self.osd_nodes, "osd_nodes", "nodes")
        raise_for_number(self.osd_nodes, "osd_nodes", info)
        raise_for_targets(self, "nodes" if self.nodes else "osd_nodes", self.nodes or ())
        return self

    def planned(self, label: str) -> plan.Fault:
        """Return the plan's fault."""
        return self.to_plan(label, self.nodes or (), self.osd_nodes or 1, "node")


class RebootFaultSection(NetworkFaultSection):
    """A node that starts anew."""

    kind: str = Field("reboot", min_length=1, description="Or another kind.")


def _either(names: Optional[Sequence[object]], number: Optional[int], key: str, other_key: str) -> None:
    if names and number:
        raise FieldErrors([FieldError((key,), f"either {key} or {other_key}, not both", of_key=True)])


class ClassicFaultsSection(Strict):
    """A phase for each of these keys, in this order."""

    device: Optional[DeviceFaultSection] = Field(None, description="An OSD; `{}` stops a chosen one.")
    network: Optional[NetworkFaultSection] = Field(
        None, description="A node's network; `{options: {method: nft}}` cuts that of a chosen node."
    )
    reboot: Optional[RebootFaultSection] = Field(None, description="A node; `{}` takes a chosen one.")

    @model_validator(mode="after")
    def _any(self) -> ClassicFaultsSection:
        if not any(fault for _, fault in self):
            raise ValueError("needs device, network or reboot")
        return self

    def planned(self) -> List[plan.Fault]:
        """Return the plan's faults; each has its phase's name for a label."""
        return [fault.planned(name) for name, fault in self if fault]


def usual_faults() -> ClassicFaultsSection:
    """Return the faults of the older tool, on nodes of any names."""
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


_HOUR = 3600.0
#: keys that one shape has and the other has no use for
_REEF = ("objects", "drivers_per_size", "mix", "phase", "down_nodes", "fault", "warp_mixed")
_CLASSIC = ("size", "drivers", "workload", "parts", "faults", "settle")


class NodesDownSection(AnyFaultSection):
    """What happens to the nodes, one after the other; without names they are chosen from `ceph osd tree`."""

    kind: str = Field("stop", min_length=1, description="How a node goes down, as in `events:`.")
    nodes: Optional[Nodes] = Field(None, description="First and second. Default: chosen.")
    accept_second: List[str] = Field(
        [], description="More rules that the second may break."
    )

    @field_validator("nodes")
    @classmethod
    def _known_nodes(cls, nodes: Optional[List[str]], info: ValidationInfo) -> Optional[List[str]]:
        return usable_nodes(nodes, info)

    @field_validator("accept_second")
    @classmethod
    def _known_rules_too(cls, accept: List[str]) -> List[str]:
        errors = errors_of_words(accept, plan.SAFETY_RULES, "unknown safety rule")
        if errors:
            raise FieldErrors(errors)
        return accept

    @model_validator(mode="after")
    def _check_section(self) -> NodesDownSection:
        raise_for_targets(self, "nodes" if self.nodes else "osd_nodes", self.nodes or ())
        if not kind_class(self.kind).lasts:
            text = f"{self.kind} ends by itself, and its phase would measure nodes that are up: use stop or crash"
            raise FieldErrors([FieldError(("kind",), text)])
        return self

    def planned(self, number: int) -> List[plan.Fault]:
        """Return so many faults, one for each node."""
        return [
            self.to_plan(label, (self.nodes or ())[i : i + 1], 1, "node", self.accept_second if i else ())
            for i, label in enumerate(("node-a", "node-b")[:number])
        ]


class WaitCleanSection(Strict):
    """How long the cluster may take until all PGs are active+clean; neither is scaled."""

    at_most: Duration = Field(
        100 * _HOUR, description="After this long.", json_schema_extra={"default": "100h"}
    )
    stalled: Duration = Field(
        2 * _HOUR,
        description="After this long without progress.",
        json_schema_extra={"default": "2h"},
    )

    @field_validator("stalled")
    @classmethod
    def _within(cls, stalled: float, info: ValidationInfo) -> float:
        if stalled > info.data.get("at_most", stalled):
            raise ValueError("is longer than at_most, which ends the wait before")
        return stalled

    def to_plan(self, name: str) -> plan.Phase:
        """Return the plan's phase of this name."""
        return plan.Phase(name, "wait", wait_clean=True, at_most=self.at_most, stalled=self.stalled)


class OsdFailureSection(BySizeSection):
    """Load while nodes of OSDs go down and come back."""

    settings: SettingsSection = Field(
        SettingsSection.model_validate({}),
        description="As in `warp:`; without `scrub` it is off.",
        json_schema_extra={"default": {"scrub": "off"}},
    )
    shape: Literal["reef", "classic"] = Field(
        "reef",
        description="`reef`: fill, no-failure, one-down, two-down, recover, wait-clean. "
        "`classic`: control, device, network, in three parts each.",
    )
    phase: TimedSection = Field(
        TimedSection.model_validate({"duration": "2h"}),
        description="reef. Each phase between fill and wait-clean.",
        json_schema_extra={"default": {"duration": "2h"}},
    )
    down_nodes: Literal[1, 2] = Field(2, description="reef. Nodes that go down, one after the other.")
    fault: Optional[NodesDownSection] = Field(
        None,
        description="reef. Default: all OSDs of chosen nodes stop.",
        json_schema_extra={"default": {"kind": "stop"}},
    )
    size: Sizes = Field(
        ((4096, 4096, 1.0),),
        description="classic. As in `warp:`.",
        json_schema_extra={"default": "4KiB"},
    )
    drivers: Optional[int] = Field(
        None, ge=1, le=MANY, description="classic. In all. Default: one for each client node."
    )
    workload: Literal["delete-write", "hybrid"] = Field(
        "delete-write",
        description="classic. put 60, delete 40; or get 60, put 20, delete 10, list 10.",
    )
    parts: ClassicParts = Field(
        ClassicParts.model_validate({}),
        description="classic. Parts of every phase.",
        json_schema_extra={"default": {"start": "10m", "failure": "10m", "recovery": "60m"}},
    )
    faults: Optional[ClassicFaultsSection] = Field(
        None,
        description="classic. A phase for each key.",
        json_schema_extra={"default": {"device": {}, "network": {"options": {"method": "nft"}}}},
    )
    settle: Duration = Field(
        30.0,
        description="classic. Pause after every phase, before the wait for active+clean.",
        json_schema_extra={"default": "30s"},
    )
    wait: WaitCleanSection = Field(
        WaitCleanSection.model_validate({}),
        description="When waiting for active+clean is given up; never scaled.",
        json_schema_extra={"default": {"at_most": "100h", "stalled": "2h"}},
    )

    @field_validator("shape")
    @classmethod
    def _possible_shape(cls, shape: str, info: ValidationInfo) -> str:
        if shape == "classic" and info.data.get("engine") == "warp":
            raise ValueError("classic writes and deletes by ranges of keys, which warp does not: use engine: cbt-load")
        return shape

    @field_validator("fault")
    @classmethod
    def _enough_nodes(cls, fault: Optional[NodesDownSection], info: ValidationInfo) -> Optional[NodesDownSection]:
        wanted = info.data.get("down_nodes", 1)
        if fault and fault.nodes and len(fault.nodes) < wanted:
            raise FieldErrors([FieldError(("nodes",), f"{len(fault.nodes)} named, and down_nodes is {wanted}")])
        return fault

    @model_validator(mode="after")
    def _check_section(self, info: ValidationInfo) -> OsdFailureSection:
        other_shape, names = ("classic", _CLASSIC) if self.shape == "reef" else ("reef", _REEF)
        errors = [
            FieldError((name,), f"goes with shape: {other_shape}, and this is {self.shape}", of_key=True)
            for name in names
            if name in self.model_fields_set
        ]
        hidden = [text for fault in self._faults() for text in self.settings.hidden(fault.accept)]
        errors += [FieldError(("settings",), text) for text in dict.fromkeys(hidden)]
        if errors:
            raise FieldErrors(errors)
        if self.shape == "reef":
            raise_for_number(self.down_nodes, "down_nodes", info)
        return self

    def _faults(self) -> List[plan.Fault]:
        if self.shape == "classic":
            return (self.faults or usual_faults()).planned()
        return (self.fault or NodesDownSection.model_validate({})).planned(self.down_nodes)

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan."""
        settings = self.settings.to_plan(scrub=False)
        phases = self._reef() if self.shape == "reef" else ()
        base_plan = self.plan_of("osdfailure", phases, settings, clients, endpoints)
        return base_plan if self.shape == "reef" else self._classic(base_plan, clients)

    def _reef(self) -> List[plan.Phase]:
        faults = self._faults()
        names = ("one-down", "two-down")[: len(faults)]
        undo = plan.Event(0.0, undo=tuple(fault.label for fault in faults))
        duration = self.phase.duration
        return [
            self.fill_phase(),
            self.hybrid_phase("no-failure", "measure", duration),
            *self.warp_mixed_phases(),
            *(
                self.hybrid_phase(name, "measure", duration, (plan.Event(0.0, inject=fault),))
                for name, fault in zip(names, faults)
            ),
            self.hybrid_phase("recover", "measure", duration, (undo,)),
            self.wait.to_plan("wait-clean"),
        ]

    def _classic(self, base_plan: plan.Plan, clients: Sequence[str]) -> plan.Plan:
        classic = Classic(
            self._faults(), self.parts, self.settle, self.workload, self.wait.to_plan("clean"), self.scale
        )
        return replace(
            base_plan,
            buckets=classic.buckets(self.size),
            drivers=classic.drivers(self.size, self.drivers or len(clients), self.workers, clients),
            phases=tuple(self.with_steps([self.fill_phase(), *classic.phases()])),
        )


class OsdFailure(CycleBenchmark):
    """The benchmark `osdfailure`."""

    Section = OsdFailureSection
