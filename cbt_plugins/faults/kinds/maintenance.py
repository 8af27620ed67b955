"""Maintenance of hosts by cephadm's orchestrator, as an operator does before work on the hardware."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, List, Sequence, Tuple

from cbt_plugins.faults import daemon_effects, service_managers
from cbt_plugins.faults.cluster_facts import DaemonName, names
from cbt_plugins.faults.kind import Kind
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Command, FaultError, Step
from cbt_plugins.inventory import find_host
from cbt_plugins.plan import DAEMON_TYPES

#: the status of a host in `ceph orch host ls`
_STATUS = "maintenance"
#: flag that the orchestrator sets for the OSDs of a host in maintenance
_FLAG = "noout"
#: Reef prints the reason of a refusal, "ALERT: Cannot stop ...", and ends with status 0
_ENTER = """\
answer=$({ceph} orch host maintenance enter {host} --force 2>&1) || {{ printf '%s\\n' "$answer" >&2; exit 1; }}
case $answer in *ALERT:*) printf '%s\\n' "$answer" >&2; exit 1;; esac"""
_UNIT = re.compile(r"(ceph-[0-9a-f-]{36})@")


class Maintenance(Kind):
    """Puts hosts of cephadm into maintenance: all daemons of a host stop, and no OSD is marked out.

    A host with the active mgr, or with `noout` set, is refused.
    """

    takes = "node"
    daemon_types = DAEMON_TYPES
    changes_in_kubernetes = None

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        return [self._step(scene, node) for node in targets.nodes]

    def _step(self, scene: Scene, node: str) -> Step:
        daemons = scene.daemons_on(node)
        hosts = {host for type in DAEMON_TYPES for host in scene.facts.daemons(type).values()}
        host = next((name for name in sorted(hosts) if find_host(name, scene.nodes) == node), None)
        if host is None:
            raise FaultError(f"{node} has no daemon of the cluster")
        _refuse(scene, host, daemons)
        services_of_node = service_managers.find_services(scene, daemons, on_node=True)[node]
        target = _target(node, services_of_node)
        osds, limits, ceph = scene.on_node(node), scene.limits, scene.ceph.command
        status: Tuple[Any, ...] = ({"hostname": host}, "status")
        bucket = _crush_bucket(host)
        flags: Tuple[Any, ...] = ("crush_node_flags", bucket)
        enter = Command(scene.head, _ENTER.format(ceph=ceph, host=shlex.quote(host)), limits.slow)
        pattern = shlex.quote(rf"^{re.escape(host)} .*{_STATUS}")
        leave = f"! {ceph} orch host ls | grep -Eqi {pattern} || {ceph} orch host maintenance exit {shlex.quote(host)}"
        return Step(
            what=f"put {host} into maintenance: {len(daemons)} daemons stop",
            node=node,
            inject=(enter,),
            undo=(
                Command(scene.head, leave, limits.slow),
                # after an interrupted order the orchestrator does not end the maintenance by itself
                Command(node, f"systemctl --quiet enable {target}; systemctl start {target}", limits.slow, root=True),
                # the orchestrator sets the flag only for a host that is in the CRUSH tree
                *([scene.unset(f"osd unset-group {_FLAG} {shlex.quote(bucket)}")] if osds else ()),
            ),
            checks=(
                scene.says("orch host ls", [(status, "")], limits.quick),
                scene.says("osd dump", [(flags, None)], limits.quick),
                *daemon_effects.checks_back(scene, services_of_node),
            ),
            took=(
                scene.says("orch host ls", [(status, _STATUS)], limits.quick),
                *daemon_effects.checks_down(scene, services_of_node),
            ),
            former={**scene.former(osds), "host": host, "units": [service.unit for service in services_of_node]},
            daemons=tuple(map(str, daemons)),
        )


def _crush_bucket(host: str) -> str:
    """Return the CRUSH bucket for which the orchestrator sets the flag of a host: the name without its domain."""
    return host.partition(".")[0]


def _refuse(scene: Scene, host: str, daemons: Sequence[DaemonName]) -> None:
    """Raise FaultError if the orchestrator would refuse the order, or if the undo would change more than the fault."""
    rows = json.loads(scene.ask(scene.head, f"{scene.ceph.command} orch host ls -f json"))
    status = next((row["status"] for row in rows if row["hostname"] == host), None)
    if status is None:
        raise FaultError(f"{host} is not a host of the orchestrator: see `ceph orch host ls`")
    if status:
        raise FaultError(f"{host} has the status {status} already")
    if _FLAG in scene.facts.answers["osd dump"].get("crush_node_flags", {}).get(_crush_bucket(host), ()):
        raise FaultError(f"{_FLAG} is set for {host} already: the end of the maintenance would remove the flag")
    active = DaemonName("mgr", str(scene.facts.answers["mgr stat"].get("active_name")))
    if active in daemons:
        raise FaultError(f"{active} on {host} is the active manager: make another manager active with `ceph mgr fail`")


def _target(node: str, services_of_node: Sequence[Service]) -> str:
    """Return the unit of all daemons of a cluster of cephadm on a node. Raises FaultError for other daemons."""
    matches = {service.name: _UNIT.match(service.unit) for service in services_of_node}
    others = [name for name, match in matches.items() if match is None]
    if others:
        text = "these daemons are not run by cephadm; only hosts of cephadm have a maintenance mode"
        raise FaultError(f"{node}: {names(others)}: {text}")
    return f"{next(match[1] for match in matches.values() if match)}.target"
