"""Daemons that hang: stopped by SIGSTOP, and continued by SIGCONT."""

from __future__ import annotations

from typing import List, Sequence

from cbt_plugins.faults import daemon_effects, service_managers
from cbt_plugins.faults.cluster_facts import names
from cbt_plugins.faults.dead_man_switch import DeadlineOptions, DeadManSwitch
from cbt_plugins.faults.kind import Kind, ServiceOptions
from cbt_plugins.faults.node_shell import agent_text, in_folder
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Command, FaultError, Step
from cbt_plugins.plan import DAEMON_TYPES


class Pause(Kind):
    """Pauses daemons: their connections stay open, but get no replies. A dead man's switch on each node ends the pause.

    An OSD that is paused for longer than the heartbeat grace is marked down; the undo waits until it is up again.
    """

    daemon_types = DAEMON_TYPES
    changes_in_kubernetes = None

    class Options(DeadlineOptions, ServiceOptions):
        """The longest pause, and the service manager of the daemons."""

    options: Options

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        services_by_node = service_managers.find_services(
            scene, targets.daemons, self.options.service_manager or "", on_node=True
        )
        return [
            self._step(scene, f"{scene.name}-{i}", node, node_services)
            for i, (node, node_services) in enumerate(services_by_node.items(), 1)
        ]

    def _step(self, scene: Scene, name: str, node: str, node_services: Sequence[Service]) -> Step:
        hidden = [service.name for service in node_services if service.process is None]
        if hidden:
            raise FaultError(f"{node}: no process of {names(hidden)} found: nothing to pause")
        limits, daemons = scene.limits, [service.name for service in node_services]
        identities = " ".join(service.process.identity for service in node_services if service.process)
        osds = [int(daemon.id) for daemon in daemons if daemon.type == "osd"]

        def program(action: str, **values: str) -> str:
            return in_folder("pause", action=action, name=name, processes=identities, **values)

        deadline = self.options.deadline
        switch = DeadManSwitch(name, node, program("resume"), program("state"), deadline, limits.back, limits)
        inject = switch.unless_fired + program("pause", agent=agent_text())
        return Step(
            what=f"pause {names(daemons)} on {node}; the daemons continue by themselves after {deadline:g} s",
            node=node,
            inject=(Command(node, inject, limits.slow, root=True),),
            undo=(
                *switch.undo,
                *service_managers.start(scene, node_services),  # a process may have ended since
                *scene.mark_in(osds),
            ),
            checks=(*switch.checks, *daemon_effects.checks_back(scene, node_services)),
            took=(daemon_effects.reached(scene, node, name, "paused"),),
            ended_early=switch.checks[:1],
            former={**scene.former(osds), "processes": identities},
            daemons=tuple(map(str, daemons)),
            silent=True,
            arm=switch.arm,
            deadline=deadline,
            side_by_side=True,
        )
