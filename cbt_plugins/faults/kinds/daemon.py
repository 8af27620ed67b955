"""Daemons that end: stopped in good order, or killed."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from cbt_plugins.faults import services
from cbt_plugins.faults.facts import names
from cbt_plugins.faults.kind import Kind, ServiceOptions
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.services import Service
from cbt_plugins.faults.step import Command, Step


class Stop(Kind):
    """Stops daemons (here OSDs: all of a node, or single ones) in good order; services.py knows those of every type."""

    Options = ServiceOptions
    options: ServiceOptions
    verb = "stop"

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        services_by_node = services.find(scene, targets.daemons, self.options.service_manager or "")
        return [self._step(scene, node, node_services) for node, node_services in services_by_node.items()]

    def _step(self, scene: Scene, node: str, node_services: Sequence[Service]) -> Step:
        daemons = [service.name for service in node_services]
        osds = [int(name.id) for name in daemons if name.type == "osd"]
        how = {"service_manager": node_services[0].manager, "units": [service.unit for service in node_services]}
        return Step(
            what=f"{self.verb} {names(daemons)} on {node}",
            node=node,
            inject=self.end(scene, node_services),
            undo=(*services.start(scene, node_services), *scene.mark_in(osds)),
            checks=services.up(scene, node_services),
            took=services.down(scene, node_services),
            former={**scene.former(osds), **how},
            daemons=tuple(map(str, daemons)),
        )

    def end(self, scene: Scene, node_services: Sequence[Service]) -> Tuple[Command, ...]:
        """Return the commands that end services of one node."""
        return services.stop(scene, node_services)


class Crash(Stop):
    """Kills them by SIGKILL, and keeps systemd from starting them again."""

    verb = "kill"

    def end(self, scene: Scene, node_services: Sequence[Service]) -> Tuple[Command, ...]:
        return services.kill(scene, node_services)
