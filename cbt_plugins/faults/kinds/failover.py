"""Failovers on command: of the active ceph-mgr, and of the ceph-mon that leads the quorum."""

from __future__ import annotations

import shlex
from typing import FrozenSet, List

from cbt_plugins.faults import daemon_effects, service_managers
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.kind import Kind
from cbt_plugins.faults.node_shell import agent
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import Command, FaultError, Step

#: exit status of `tell` when the process has ended: a new process joins the quorum by itself
_ENDED = 3


class Failover(Kind):
    """Makes a standby the active ceph-mgr, or takes the leading ceph-mon out of the quorum, so that another mon leads.

    The former active ceph-mgr becomes a standby. The undo lets the ceph-mon join the quorum again.
    """

    takes = "daemon"
    daemon_types = ("mgr", "mon")

    def eligible(self, facts: Facts) -> FrozenSet[DaemonName]:
        leader, active = facts.answers["quorum_status"]["quorum_leader_name"], facts.answers["mgr stat"]["active_name"]
        return frozenset({DaemonName("mon", str(leader)), DaemonName("mgr", str(active))})

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        make = {"mgr": self._mgr, "mon": self._mon}
        return [make[name.type](scene, name) for name in targets.daemons]

    @staticmethod
    def _mgr(scene: Scene, name: DaemonName) -> Step:
        return Step(
            what=f"fail {name} over to a standby",
            node=scene.head,
            inject=(scene.set(f"mgr fail {shlex.quote(name.id)}"),),
            undo=(),
            checks=(daemon_effects.listed(scene, "mgr metadata", [name]),),
            took=(daemon_effects.another_active(scene, [name.id]),),
            former={"active": name.id},
            daemons=(str(name),),
        )

    @staticmethod
    def _mon(scene: Scene, name: DaemonName) -> Step:
        ((node, mons),) = service_managers.find_services(scene, [name], on_node=True).items()
        process = mons[0].process
        if process is None:
            raise FaultError(f"{node}: no process of {name} found: the fault needs the admin socket of the process")
        watch = daemon_effects.effect_measurement(scene, mons, [name], scene.name)
        status, quick = scene.facts.answers["quorum_status"], scene.limits.quick
        enter = f"{agent('tell', process.identity, 'quorum enter')} || [ $? = {_ENDED} ]"
        return Step(
            what=f"take {name}, the leader, out of the quorum",
            node=node,
            inject=(*watch.begin, Command(node, agent("tell", process.identity, "quorum exit"), quick, root=True)),
            undo=(Command(node, enter, quick, root=True), *watch.end),
            checks=daemon_effects.checks_back(scene, mons),
            took=(*daemon_effects.seen_gone(scene, mons), *watch.seen),
            former={"leader": name.id, "election_epoch": status["election_epoch"]},
            daemons=(str(name),),
            silent=True,
        )
