"""Drain of gateways: out of the load balancer, then stopped, as an operator does before maintenance."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Annotated, List, Sequence, Tuple

from pydantic import Field, model_validator

from cbt_plugins.config.cluster import Node
from cbt_plugins.config.shell_values import AbsolutePath
from cbt_plugins.faults import daemon_effects, service_managers
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, names
from cbt_plugins.faults.kind import LISTED, LISTED_SCHEMA, Kind, Seconds, ServiceOptions
from cbt_plugins.faults.node_shell import agent, script_text
from cbt_plugins.faults.rook_gateways import one_of_each, shared_names
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Check, Command, FaultError, Step

_AGENT = "haproxy_agent"


@dataclass(frozen=True)
class _Balanced:
    """The commands that take gateways of a node out of the load balancers and put them back."""

    leave: Tuple[Command, ...]
    enter: Tuple[Command, ...]
    left: Tuple[Check, ...]
    entered: Tuple[Check, ...]
    servers: Tuple[str, ...] = ()


class Drain(Kind):
    """Takes gateways out of the load balancer, waits until their requests have ended, and stops them.

    The admin socket of haproxy needs `level admin`. For other load balancers set the commands `off` and `on`, and
    quote these two keys in YAML.
    """

    daemon_types = ("rgw",)
    changes_in_kubernetes = "deployment"

    class Options(ServiceOptions):
        """The load balancer."""

        balancers: Annotated[List[Node], LISTED, LISTED_SCHEMA] = Field(
            [],
            description="Nodes with a haproxy. The run finds the servers of the gateways by their addresses.",
        )
        socket: AbsolutePath = Field("/run/haproxy/admin.sock", description="The admin socket of haproxy.")
        off: str = Field("", description="Command on the leading machine that takes `{daemon}` on `{node}` out.")
        on: str = Field("", description="Command that puts `{daemon}` back; the command may run more than once.")
        timeout: Seconds = Field(60.0, description="How long to wait for requests in flight before the stop.")

        @model_validator(mode="after")
        def _complete(self) -> Drain.Options:
            if bool(self.balancers) == bool(self.off) or bool(self.off) != bool(self.on):
                raise ValueError("drain needs either the option balancers: [nodes], or the commands off and on")
            return self

    options: Options
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

    def _step(self, scene: Scene, targets: Targets, name: str, gateways: Sequence[Service]) -> Step:
        node, daemons = gateways[0].node, [service.name for service in gateways]
        balanced = self._by_haproxy(scene, gateways) if self.options.balancers else self._by_command(scene, gateways)
        watch = daemon_effects.effect_measurement(scene, gateways, targets.daemons, name)
        return Step(
            what=f"drain and stop {names(daemons)} on {node}",
            node=node,
            inject=(*balanced.leave, *watch.begin, *service_managers.stop(scene, gateways)),
            undo=(*service_managers.start(scene, gateways), *balanced.enter, *watch.end),
            checks=(*daemon_effects.checks_back(scene, gateways), *balanced.entered),
            took=(*balanced.left, *daemon_effects.checks_down(scene, gateways), *watch.seen),
            former={"service_manager": gateways[0].manager, "servers": balanced.servers},
            daemons=tuple(map(str, daemons)),
        )

    def _by_command(self, scene: Scene, gateways: Sequence[Service]) -> _Balanced:
        def commands(text: str) -> Tuple[Command, ...]:
            texts = [
                text.replace("{daemon}", shlex.quote(str(s.name))).replace("{node}", shlex.quote(s.node))
                for s in gateways
            ]
            return tuple(Command("", each, self.options.timeout + scene.limits.quick) for each in texts)

        return _Balanced(commands(self.options.off), commands(self.options.on), (), ())

    def _by_haproxy(self, scene: Scene, gateways: Sequence[Service]) -> _Balanced:
        socket, timeout, limits = self.options.socket, self.options.timeout, scene.limits
        addresses = _addresses(scene, gateways)
        parts = [self._of_balancer(scene, balancer, addresses) for balancer in self.options.balancers]
        leave, enter, left, entered = [], [], [], []
        for balancer, servers in zip(self.options.balancers, parts):
            drain = agent("drain", socket, f"{timeout:g}", *servers, program=_AGENT)
            leave.append(Command(balancer, drain, timeout + limits.quick, root=True))
            enter.append(Command(balancer, agent("ready", socket, *servers, program=_AGENT), limits.quick, root=True))
            state = agent("state", socket, *servers, program=_AGENT)
            left.append(Check(balancer, state, (((), "drain"),), limits.down, root=True))
            entered.append(Check(balancer, state, (((), "ready"),), limits.back, root=True))
        all_servers = tuple(server for servers in parts for server in servers)
        return _Balanced(tuple(leave), tuple(enter), tuple(left), tuple(entered), all_servers)

    def _of_balancer(self, scene: Scene, balancer: str, addresses: Sequence[str]) -> List[str]:
        """Return the servers of a balancer for these gateways. Raises FaultError for no server, or an unused one."""
        answer = scene.ask(balancer, agent("find", self.options.socket, *addresses, program=_AGENT), root=True)
        states = dict(line.split() for line in answer.splitlines())
        if not states:
            where = f"the haproxy of {balancer} has no server with {' or '.join(addresses)}"
            raise FaultError(f"{where}: `show servers state` at {self.options.socket} lists all servers")
        unused = [f"{server} is {state}" for server, state in states.items() if state != "ready"]
        if unused:
            raise FaultError(f"{balancer}: {', '.join(unused)}: only servers with the state ready can be drained")
        return sorted(states)


def _addresses(scene: Scene, gateways: Sequence[Service]) -> List[str]:
    """Return all HOST:PORT by which other nodes reach the gateways of a node."""
    ports = dict.fromkeys(endpoint.rpartition(":")[2] for service in gateways for endpoint in service.endpoints)
    if not ports:
        raise FaultError(f"{gateways[0].node}: no port of {names(s.name for s in gateways)} found")
    hosts = scene.ask(gateways[0].node, script_text("addresses")).split()
    return [f"{host}:{port}" for host in hosts for port in ports]
