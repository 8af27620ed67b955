"""`osdfailure:`, load while OSD nodes are down and while they come back, in the shape of either study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.benchmarks.by_size import FailuresSection, TimedSection
from cbt_plugins.benchmarks.cycle_benchmark import CycleBenchmark
from cbt_plugins.benchmarks.drivers import drivers_on, name_of_sizes
from cbt_plugins.benchmarks.hybrid_keys import PlainRate
from cbt_plugins.config.fault import (
    AnyFaultSection,
    Nodes,
    Number,
    Osds,
    kind_class,
    lasting,
    raise_for_number,
    raise_for_targets,
    usable_nodes,
)
from cbt_plugins.config.generator_classes import engine_with, generator
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, errors_of_words, file_default
from cbt_plugins.config.section_values import MANY, scaled_duration
from cbt_plugins.config.units import Duration, Sizes, parse_duration, parse_sizes

#: targets of a fault that names none
_NUMBER = 1
_MINUTE = 60.0
#: the phase without a failure
CONTROL = "control"
#: buckets that all phases read (workload hybrid)
_READ = ("read-1", "read-2")
_MIXES: Dict[str, Dict[str, float]] = {
    "delete-write": {"PUT": 60.0, "DELETE": 40.0},
    "hybrid": {"GET": 60.0, "PUT": 20.0, "DELETE": 10.0, "LIST": 10.0},
}
_KEYS = {"GET": plan.Keys("u(1,N)"), "PUT": plan.Keys("s(N+1,10N)"), "DELETE": plan.Keys("s(1,10N)")}


class ClassicParts(Strict):
    """The parts of every phase, one after the other; the control phase has them too, without a failure."""

    start: Duration = Field(
        10 * _MINUTE, description="Length of the part before the failure."
    )
    failure: Duration = Field(10 * _MINUTE, description="Length of the failure.")
    recovery: Duration = file_default(parse_duration, "60m", description="Length of the part after the failure.")


class DeviceFaultSection(AnyFaultSection):
    """A failing OSD."""

    kind: str = Field("stop", min_length=1, description="Kind of the fault; it takes OSDs.")
    osds: Optional[Osds] = Field(None, description="These targets.")
    osd_number: Optional[Number] = Field(None, description=f"So many, chosen by the seed. Default: {_NUMBER}.")

    @model_validator(mode="after")
    def _check_section(self) -> DeviceFaultSection:
        _either(self.osds, self.osd_number, "osd_number", "osds")
        raise_for_targets(self, "osds" if self.osds else "osd_number", [f"osd.{osd}" for osd in self.osds or ()])
        return self

    def planned(self, label: str) -> plan.Fault:
        """Return the plan's fault."""
        return self.to_plan(label, [f"osd.{osd}" for osd in self.osds or ()], self.osd_number or _NUMBER, "osd")


class NetworkFaultSection(AnyFaultSection):
    """A failing node."""

    kind: str = Field("network", min_length=1, description="Kind of the fault; it takes nodes.")
    nodes: Optional[Nodes] = Field(None, description="These targets.")
    osd_nodes: Optional[Number] = Field(None, description=f"So many, chosen by the seed. Default: {_NUMBER}.")

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
        return self.to_plan(label, self.nodes or (), self.osd_nodes or _NUMBER, "node")


class RebootFaultSection(NetworkFaultSection):
    """A node that starts anew."""

    kind: str = Field("reboot", min_length=1, description="Kind of the fault; it takes nodes.")


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


#: the faults of the older tool, on nodes of any names
_USUAL_FAULTS: Dict[str, Any] = {"device": {}, "network": {"options": {"method": "nft"}}}


@dataclass(frozen=True)
class Classic:
    """The phases, and the buckets that they need: each phase writes into its own, so that all do the same."""

    faults: Sequence[plan.Fault]
    parts: ClassicParts
    settle: float
    workload: str
    clean: plan.Phase  # the wait until all PGs are active+clean
    scale: float
    engine: str

    def buckets(self, sizes: plan.Sizes) -> Tuple[plan.Bucket, ...]:
        """Return a bucket for each phase, and those that are read."""
        read = _READ if self.workload == "hybrid" else ()
        return tuple(plan.Bucket(name, sizes) for name in (CONTROL, *(fault.label for fault in self.faults), *read))

    def drivers(
        self, sizes: plan.Sizes, number: int, workers: int, clients: Sequence[str]
    ) -> Tuple[plan.Driver, ...]:
        """Return drivers that work on all buckets."""
        buckets = tuple(bucket.key for bucket in self.buckets(sizes))
        return drivers_on(clients, [(name_of_sizes(sizes), buckets)] * number, workers)

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
        events += [plan.Event(failure, inject=lasting(fault, self.parts.failure * self.scale))] if fault else []
        events += [plan.Event(recovery, mark="recovery")]
        events += [plan.Event(recovery, undo=(fault.label,))] if fault else []
        return plan.Phase(
            name,
            "hybrid",
            "measure",
            duration=scaled_duration(parts.start + parts.failure + parts.recovery, self.scale),
            mix=mix,
            engine=self.engine,
            keys={op: _KEYS[op] for op in mix if op in _KEYS},
            roles={op: _READ if op in ("GET", "LIST") else (name,) for op in mix},
            events=tuple(events),
        )


#: keys that one shape has and the other has no use for
_REEF = ("objects", "drivers_per_size", "mix", "phase", "rate", "down_nodes", "fault", "warp_mixed")
_CLASSIC = ("size", "drivers", "workload", "parts", "faults", "settle")


class NodesDownSection(AnyFaultSection):
    """What happens to the nodes, one after the other; without names they are chosen from `ceph osd tree`."""

    kind: str = Field("stop", min_length=1, description="How a node goes down, as in `events:`.")
    nodes: Optional[Nodes] = Field(None, description="First and second node. Default: chosen by the seed.")
    accept_second: List[str] = Field(
        [], description="More safety rules that the second fault may break."
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


class OsdFailureSection(FailuresSection):
    """Load while nodes of OSDs go down and come back."""

    shape: Literal["reef", "classic"] = Field(
        "reef",
        description="`reef`: fill, no-failure, one-down, two-down, recover, wait-clean. "
        "`classic`: control, device, network, in three parts each.",
    )
    phase: TimedSection = file_default(
        TimedSection.model_validate,
        {"duration": "2h"},
        description="reef. Length of each phase between fill and wait-clean.",
    )
    rate: Optional[PlainRate] = Field(
        None,
        description="reef, cbt-load. Open loop: of all drivers, in each measurement; then a stall hides no request. "
        "Default: closed loop, as published.",
    )
    down_nodes: Literal[1, 2] = Field(2, description="reef. Nodes that go down, one after the other.")
    fault: Optional[NodesDownSection] = Field(
        None,
        description="reef. Default: all OSDs of chosen nodes stop.",
        json_schema_extra={"default": {}},
    )
    size: Sizes = file_default(parse_sizes, "4KiB", description="classic. As in `warp:`.")
    drivers: Optional[int] = Field(
        None, ge=1, le=MANY, description="classic. Drivers in all. Default: one for each client node."
    )
    workload: Literal["delete-write", "hybrid"] = Field(
        "delete-write",
        description="classic. `delete-write`: put 60, delete 40; `hybrid`: get 60, put 20, delete 10, list 10.",
    )
    parts: ClassicParts = file_default(
        ClassicParts.model_validate,
        {},
        description="classic. Parts of every phase.",
    )
    faults: Optional[ClassicFaultsSection] = Field(
        None,
        description="classic. A phase for each key.",
        json_schema_extra={"default": _USUAL_FAULTS},
    )
    settle: Duration = Field(
        30.0,
        description="classic. Pause after every phase, before the wait for active+clean.",
    )

    @field_validator("shape")
    @classmethod
    def _possible_shape(cls, shape: str, info: ValidationInfo) -> str:
        engine = info.data.get("engine")
        if shape == "classic" and engine and "keys" not in generator(engine).known_keys:
            text = f"classic writes and deletes by ranges of keys, which {engine} does not: use engine:"
            raise ValueError(f"{text} {engine_with('known_keys', 'keys')}")
        return shape

    @field_validator("rate")
    @classmethod
    def _possible_rate(cls, rate: Optional[float], info: ValidationInfo) -> Optional[float]:
        if rate:
            cls.check_rate(info.data.get("engine"))
        return rate

    @field_validator("fault")
    @classmethod
    def _enough_nodes(cls, fault: Optional[NodesDownSection], info: ValidationInfo) -> Optional[NodesDownSection]:
        wanted = info.data.get("down_nodes", 1)
        if fault and fault.nodes and len(fault.nodes) < wanted:
            raise FieldErrors([FieldError(("nodes",), f"{len(fault.nodes)} named here, but down_nodes is {wanted}")])
        return fault

    @model_validator(mode="after")
    def _check_section(self, info: ValidationInfo) -> OsdFailureSection:
        other_shape, names = ("classic", _CLASSIC) if self.shape == "reef" else ("reef", _REEF)
        errors = [
            FieldError((name,), f"goes with shape: {other_shape}, but the shape here is {self.shape}", of_key=True)
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
            return (self.faults or ClassicFaultsSection.model_validate(_USUAL_FAULTS)).planned()
        return (self.fault or NodesDownSection.model_validate({})).planned(self.down_nodes)

    def to_plan(self, clients: Sequence[str], endpoints: Mapping[str, Any]) -> plan.Plan:
        """Return the plan."""
        settings = self.settings_without_scrubs
        phases = self._reef() if self.shape == "reef" else ()
        base_plan = self.plan_of("osdfailure", phases, settings, clients, endpoints)
        return base_plan if self.shape == "reef" else self._classic(base_plan, clients)

    def _reef(self) -> List[plan.Phase]:
        duration = self.phase.duration
        faults = self._faults()
        names = ("one-down", "two-down")[: len(faults)]
        # each is undone after the last of these phases
        length = scaled_duration(duration, self.scale) or 0.0
        faults = [lasting(fault, (len(faults) - i) * length) for i, fault in enumerate(faults)]
        undo = plan.Event(0.0, undo=tuple(fault.label for fault in faults))
        return [
            self.fill_phase(),
            self._measured("no-failure", duration),
            *self.warp_mixed_phases(),
            *(
                self._measured(name, duration, plan.Event(0.0, inject=fault))
                for name, fault in zip(names, faults)
            ),
            self._measured("recover", duration, undo),
            self.wait.to_plan("wait-clean"),
        ]

    def _measured(self, name: str, duration: float, *events: plan.Event) -> plan.Phase:
        return replace(self.hybrid_phase(name, "measure", duration, events), rate=self.rate)

    def _classic(self, base_plan: plan.Plan, clients: Sequence[str]) -> plan.Plan:
        classic = Classic(
            self._faults(), self.parts, self.settle, self.workload, self.wait.to_plan("clean"), self.scale, self.engine
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
