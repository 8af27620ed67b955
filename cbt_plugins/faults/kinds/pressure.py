"""Nodes whose processors or memory are used by other programs than Ceph's daemons."""

from __future__ import annotations

import json
from typing import Annotated, Any, Dict, Iterator, List, Mapping, Optional

from pydantic import Field

from cbt_plugins import formatting
from cbt_plugins.faults import service_managers
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.dead_man_switch import DeadlineOptions, DeadManSwitch
from cbt_plugins.faults.kind import Bytes, Kind
from cbt_plugins.faults.node_shell import in_folder
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step
from cbt_plugins.plan import DAEMON_TYPES

_MIB = 1 << 20
#: smallest share of the available memory that must stay free
_LEFT = 0.1
#: above these values, a node counts as down. Busy processes per processor: a daemon's thread gets less than a fifth
_OUTAGE_CPUS = 4
#: share of the available memory: the caches of OSDs may grow into the last quarter
_OUTAGE_MEMORY = 0.75


class Pressure(Kind):
    """Starts processes on the nodes that use processor time or memory.

    Above four busy processes for each processor, or three quarters of the available memory, the safety rules count a
    node as down.
    """

    takes = "node"
    serves_on = True
    daemon_types = DAEMON_TYPES
    changes_in_kubernetes = None

    class Options(DeadlineOptions):
        """The number of busy processors, and the memory in use."""

        cpus: Optional[Annotated[int, Field(ge=0, le=4096)]] = Field(
            None, description="Number of busy processes. Default: one for each processor; 0 if `memory` is set."
        )
        memory: Optional[Annotated[Bytes, Field(ge=_MIB)]] = Field(
            None, description="Memory to use; at least 1MiB, at most 90 % of the available memory."
        )

    options: Options

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        # nodes, known when the steps are
        self._without_psi: List[str] = []
        self._down: List[str] = []

    def warnings(self) -> Iterator[str]:
        if self._without_psi:
            nodes = ", ".join(self._without_psi)
            checked = "the run only checks that the processes of the fault are busy"
            yield f"{nodes}: the kernel shows no pressure (PSI): {checked}"

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        """Return the target nodes: disturbed, or down. `steps`, which asks the nodes, finds the nodes that are down."""
        daemons = tuple(name for node in self._down for name in scene.daemons_on(node))
        return BlastRadius(daemons, tuple(self._down), tuple(node for node in targets.nodes if node not in self._down))

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        service_managers.find_services(scene, (), on_node=True)
        self._without_psi, self._down = [], []
        return [self._step(scene, f"{scene.name}-{i}", node) for i, node in enumerate(targets.nodes, 1)]

    def _step(self, scene: Scene, name: str, node: str) -> Step:
        options, quick = self.options, scene.limits.quick
        answer = scene.ask(node, in_folder("pressure", action="look", name=name), root=True)
        here: Dict[str, float] = {word: json.loads(value) for word, value in map(str.split, answer.splitlines())}
        cpus = options.cpus if options.cpus is not None else 0 if options.memory else int(here["cpus"])
        memory = int(options.memory or 0)
        if memory > (1 - _LEFT) * here["available"]:
            available = formatting.size(int(here["available"]))
            raise FaultError(f"{node}: memory: {formatting.size(memory)} is too much: only {available} are available")
        parts = [f"run {cpus} busy processes"] if cpus else []
        parts += [f"use {formatting.size(memory)} of memory"] if memory else []
        if not parts:
            raise FaultError("pressure needs cpus or memory above 0")
        # the processes also end by themselves, later than the dead man's switch
        values = {"name": name, "cpus": cpus, "bytes": memory, "seconds": f"{options.deadline + 60:.0f}"}
        start, stop, stopped, effect, ended = (
            in_folder("pressure", action=action, **values) for action in ("start", "stop", "stopped", "effect", "ended")
        )
        if cpus > _OUTAGE_CPUS * here["cpus"] or memory > _OUTAGE_MEMORY * here["available"]:
            self._down.append(node)
        took = [Check(node, effect, (((), "in effect"),), scene.limits.down, root=True)]
        took += self._pressure(scene, name, node, {"cpu": cpus, "memory": memory}, here)
        switch = DeadManSwitch(name, node, stop, stopped, options.deadline, scene.limits.back, scene.limits)
        return Step(
            what=f"{' and '.join(parts)} on {node}; {node} recovers by itself after {options.deadline:g} s",
            node=node,
            inject=(Command(node, switch.unless_fired + start, quick, root=True),),
            undo=switch.undo,
            checks=switch.checks,
            took=tuple(took),
            ended_early=(Check(node, ended, (((), "ended"),), quick, root=True),),
            former=here,
            silent=node in self._down,
            arm=switch.arm,
            deadline=options.deadline,
            side_by_side=True,
        )

    def _pressure(
        self, scene: Scene, name: str, node: str, wanted: Mapping[str, int], here: Mapping[str, float]
    ) -> Iterator[Check]:
        """Yield the check that reads the pressure on what is `wanted`: "cpu", "memory"."""
        before = {f"{kind}_before": here[f"{kind}_some"] for kind in wanted if wanted[kind] and f"{kind}_some" in here}
        if before:
            text = in_folder("pressure", action="reading", name=name, **before)
            yield Check(node, text, ((("psi",), {"not": ""}),), scene.limits.quick, root=True, reading="psi")
        else:
            self._without_psi.append(node)
