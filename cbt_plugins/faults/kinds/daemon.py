"""Daemons that end: in good order, or at once."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

from cbt_plugins.faults import orchestrator
from cbt_plugins.faults.daemons import WAYS, Daemon, kill, start, stop
from cbt_plugins.faults.scene import Kind, Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step


def checked_way(options: Mapping[str, Any]) -> str:
    """The option `daemons`. Raises FaultError."""
    way = str(options.get("daemons") or "")
    if way and way not in WAYS:
        raise FaultError(f"daemons: {way}: one of {', '.join(WAYS)}, or nothing to find out")
    return way


def started(scene: Scene, node: str, daemons: Sequence[Daemon]) -> Tuple[Command, ...]:
    """The commands that start OSDs of one node again."""
    orchestrated = [d.osd for d in daemons if d.way == "cephadm"]
    if orchestrated:
        text = orchestrator.start(scene.ceph.command, scene.name, orchestrated)
        return (Command(scene.head, text, scene.limits.slow),)
    return (Command(node, start(daemons), scene.limits.slow, root=True),)


def stopped(scene: Scene, node: str, daemons: Sequence[Daemon]) -> Tuple[Command, ...]:
    """The commands that stop OSDs of one node."""
    orchestrated = [d.osd for d in daemons if d.way == "cephadm"]
    if orchestrated:
        text = orchestrator.stop(scene.ceph.command, scene.name, orchestrated)
        return (Command(scene.head, text, scene.limits.slow),)
    return (Command(node, stop(daemons), scene.limits.slow, root=True),)


def _settled(scene: Scene, daemons: Sequence[Daemon]) -> Tuple[Check, ...]:
    orchestrated = [d.osd for d in daemons if d.way == "cephadm"]
    if not orchestrated:
        return ()
    text = orchestrator.is_settled(scene.ceph.command, scene.name, orchestrated)
    return (Check(scene.head, text, (((), "settled"),), scene.limits.back),)


class Stop(Kind):
    """All OSDs of a node, or single ones, are stopped in good order."""

    options: Mapping[str, Any] = {"daemons": ""}

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        steps = []
        for node, daemons in scene.daemons(targets.osds, checked_way(options)).items():
            osds = tuple(d.osd for d in daemons)
            steps.append(
                Step(
                    what=f"{self._verb} {names(osds)} on {node}",
                    node=node,
                    inject=self._break(scene, node, daemons),
                    undo=(*started(scene, node, daemons), *scene.mark_in(osds)),
                    checks=(scene.back(osds), *_settled(scene, daemons)),
                    took=self._took(scene, osds),
                    former={**scene.former(osds), "daemons": daemons[0].way, "units": [d.unit for d in daemons]},
                    osds=osds,
                )
            )
        return steps

    _verb = "stop"

    def _break(self, scene: Scene, node: str, daemons: Sequence[Daemon]) -> Tuple[Command, ...]:
        return stopped(scene, node, daemons)

    def _took(self, scene: Scene, osds: Sequence[int]) -> Tuple[Any, ...]:
        return (scene.gone(osds),)


class Crash(Stop):
    """The same by SIGKILL, whatever would start it again."""

    _verb = "kill"

    def _break(self, scene: Scene, node: str, daemons: Sequence[Daemon]) -> Tuple[Command, ...]:
        return (Command(node, kill(daemons), scene.limits.slow, root=True),)


def names(osds: Sequence[int]) -> str:
    """osd.1, osd.2"""
    return ", ".join(f"osd.{o}" for o in osds)
