"""Faults that end daemons: an orderly stop, or SIGKILL."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from cbt_plugins.faults import daemon_effects, service_managers
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, names
from cbt_plugins.faults.kind import Kind, ServiceOptions
from cbt_plugins.faults.rook_gateways import one_of_each, shared_names
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Command, Step
from cbt_plugins.plan import DAEMON_TYPES


class Stop(Kind):
    """Stops daemons in an orderly way: all daemons of a node, or single daemons.

    A bare `process` is started again with its former command line. Daemons of `cephadm` are stopped and started by
    their systemd units. If the head is a pod, the service manager is `rook`; of several RGWs of one name, one stops.
    An RGW first refuses new connections, then waits for requests in flight, for up to `rgw_exit_timeout_secs` (120 s).
    podman and docker kill a container 10 s after its stop if the unit of cephadm gives no other time.
    """

    daemon_types = DAEMON_TYPES
    changes_in_kubernetes: Optional[str] = "deployment"
    Options = ServiceOptions
    options: ServiceOptions
    verb = "stop"
    _shared: Tuple[DaemonName, ...] = ()  # set by `steps`

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        services_by_node = service_managers.find_services(scene, targets.daemons, self.options.service_manager or "")
        self._shared = shared_names(services_by_node)
        return [
            self._step(scene, targets, f"{scene.name}-{i}", one_of_each(scene, node_services))
            for i, node_services in enumerate(services_by_node.values(), 1)
        ]

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        return replace(super().blast_radius(scene, targets), shared=self._shared)

    def _step(self, scene: Scene, targets: Targets, name: str, node_services: Sequence[Service]) -> Step:
        node, daemons = node_services[0].node, [service.name for service in node_services]
        osds = [int(daemon.id) for daemon in daemons if daemon.type == "osd"]
        how = {"service_manager": node_services[0].manager, "units": [service.unit for service in node_services]}
        watch = daemon_effects.effect_measurement(scene, node_services, targets.daemons, name)
        return Step(
            what=f"{self.verb} {names(daemons)} on {node}",
            node=node,
            inject=(*watch.begin, *self.end(scene, node_services)),
            undo=(
                *service_managers.start(scene, node_services),
                *scene.mark_in(osds),
                *watch.end,
                *service_managers.refresh(scene, node_services),
            ),
            checks=daemon_effects.checks_back(scene, node_services),
            took=(*daemon_effects.checks_down(scene, node_services), *watch.seen),
            ended_early=daemon_effects.serves_again(scene, node_services),
            former={**scene.former(osds), **how},
            daemons=tuple(map(str, daemons)),
            side_by_side=True,
        )

    def end(self, scene: Scene, node_services: Sequence[Service]) -> Tuple[Command, ...]:
        """Return the commands that stop or kill services of one node."""
        return service_managers.stop(scene, node_services)


class Crash(Stop):
    """Kills daemons by SIGKILL, by process ID and start time, and keeps systemd from starting them again."""

    verb = "kill"
    changes_in_kubernetes = None

    def end(self, scene: Scene, node_services: Sequence[Service]) -> Tuple[Command, ...]:
        return service_managers.kill(scene, node_services)
