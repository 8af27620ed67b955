"""Effects of faults on daemons, for each type of daemon: checks of down and up, and the time of the failure."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any, Collection, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.node_shell import FOLDER, agent
from cbt_plugins.faults.scene import Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Check, Command, FaultError

_Want = Tuple[Tuple[Any, ...], Any]


class Watch(NamedTuple):
    """Measurement, on a node, of the time when an effect begins; started before the fault."""

    begin: Tuple[Command, ...] = ()  # before the fault
    seen: Tuple[Check, ...] = ()
    end: Tuple[Command, ...] = ()  # of the undo


class Effect:
    """The effect of a fault on daemons of one type, besides the counts of their service managers."""

    def checks_down(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        """Yield the checks that daemons of one node are down."""
        return iter(())

    def checks_back(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        """Yield the checks that daemons of one node are up again."""
        return iter(())

    def watch(self, scene: Scene, daemons: Sequence[Service], hit: Collection[DaemonName], name: str) -> Watch:
        """Return the measurement. `hit`: all daemons of the fault; `name` is unique on the nodes."""
        return Watch()


class MonEffect(Effect):
    """ceph-mons: the quorum. A remaining ceph-mon tells when the new quorum formed."""

    def checks_down(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        yield scene.says("quorum_status", _members(daemons, None), scene.limits.down)

    def checks_back(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        yield scene.says("quorum_status", _members(daemons, True), scene.limits.back)

    def watch(self, scene: Scene, daemons: Sequence[Service], hit: Collection[DaemonName], name: str) -> Watch:
        status = scene.facts.answers["quorum_status"]
        for id in status["quorum_names"]:
            witness = None if DaemonName("mon", id) in hit else _visible(scene, DaemonName("mon", id))
            if witness and witness.process:
                words = (witness.process.identity, str(status["election_epoch"]), *(s.name.id for s in daemons))
                return _watch(scene, witness.node, "quorum", name, words)
        return Watch()


class MgrEffect(Effect):
    """ceph-mgrs: the manager map."""

    def checks_down(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        want: List[_Want] = [(("available",), True)]
        for service in daemons:
            want += [(("active_name",), {"not": service.name.id}), (("standbys", {"name": service.name.id}), None)]
        yield scene.says("mgr dump", want, scene.limits.down)

    def watch(self, scene: Scene, daemons: Sequence[Service], hit: Collection[DaemonName], name: str) -> Watch:
        ids = [service.name.id for service in daemons]
        active = scene.facts.answers["mgr stat"]["active_name"] in ids
        return Watch(seen=(another_active(scene, ids),)) if active else Watch()

    def checks_back(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        yield listed(scene, "mgr metadata", [s.name for s in daemons])


class MdsEffect(Effect):
    """ceph-mdss: the file system map, in which a ceph-mds that the monitors do not hear of is absent or laggy."""

    def checks_down(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        yield self._check(scene, daemons, "none", scene.limits.down)

    def checks_back(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        yield self._check(scene, daemons, " ".join(service.name.id for service in daemons), scene.limits.back)

    @staticmethod
    def _check(scene: Scene, daemons: Sequence[Service], wanted: str, timeout: float) -> Check:
        text = f"{scene.ceph.command} fs dump -f json | {agent('servers', *(service.name.id for service in daemons))}"
        return Check(scene.head, text, (((), wanted),), timeout)


class RgwEffect(Effect):
    """Gateways: their ports, because the service map lists a gateway for a minute after its end."""

    def checks_back(self, scene: Scene, daemons: Sequence[Service]) -> Iterator[Check]:
        endpoints = [endpoint for service in daemons for endpoint in service.endpoints]
        if endpoints:
            node, text = daemons[0].node, agent("answers", *endpoints)
            yield Check(node, text, (((), "answers"),), scene.limits.back, root=True)

    def watch(self, scene: Scene, daemons: Sequence[Service], hit: Collection[DaemonName], name: str) -> Watch:
        endpoints = [endpoint for service in daemons for endpoint in service.endpoints]
        return _watch(scene, daemons[0].node, "refused", name, endpoints) if endpoints else Watch()


EFFECTS: Mapping[str, Effect] = {"mon": MonEffect(), "mgr": MgrEffect(), "mds": MdsEffect(), "rgw": RgwEffect()}


def checks_down(scene: Scene, daemons: Sequence[Service]) -> Tuple[Check, ...]:
    """Return the checks that daemons of one node are down."""
    return (*service_managers.down(scene, daemons), *seen_gone(scene, daemons))


def seen_gone(scene: Scene, daemons: Sequence[Service]) -> Tuple[Check, ...]:
    """Return the checks that the cluster sees daemons as down, although their processes may run."""
    return tuple(check for effect, group in _by_effect(daemons) for check in effect.checks_down(scene, group))


def checks_back(scene: Scene, daemons: Sequence[Service]) -> Tuple[Check, ...]:
    """Return the checks that daemons of one node are up again, and that no order to Rook is pending."""
    seen = [check for effect, group in _by_effect(daemons) for check in effect.checks_back(scene, group)]
    return (*service_managers.up(scene, daemons), *seen)


def serves_again(scene: Scene, daemons: Sequence[Service]) -> Tuple[Check, ...]:
    """Return a check for each mon, MDS and RGW of one node that it serves again; OSDs are seen in the OSD map.

    Nothing is sure to be true of a mgr only after its return: the monitors keep its metadata for a time.
    """
    again = [service for service in daemons if service.name.type in ("mon", "mds", "rgw")]
    return tuple(check for service in again for check in EFFECTS[service.name.type].checks_back(scene, [service]))


def effect_measurement(scene: Scene, daemons: Sequence[Service], hit: Collection[DaemonName], name: str) -> Watch:
    """Return the measurement of the time when a fault's effect on daemons of one node begins."""
    watches = [effect.watch(scene, group, hit, name) for effect, group in _by_effect(daemons)]
    return Watch(
        tuple(command for each in watches for command in each.begin),
        tuple(check for each in watches for check in each.seen),
        tuple(command for each in watches for command in each.end),
    )


def _by_effect(daemons: Sequence[Service]) -> List[Tuple[Effect, List[Service]]]:
    groups = {type: [service for service in daemons if service.name.type == type] for type in EFFECTS}
    return [(EFFECTS[type], group) for type, group in groups.items() if group]


def _members(daemons: Sequence[Service], wanted: Optional[bool]) -> List[_Want]:
    return [(("quorum_names", {"=": service.name.id}), wanted) for service in daemons]


def another_active(scene: Scene, ids: Sequence[str]) -> Check:
    """Return the check that none of these ceph-mgrs is active."""
    text = f"{scene.ceph.command} mgr dump -f json | {agent('active', *ids)}"
    return Check(scene.head, text, (((), {"not": ""}),), scene.limits.down, milestone="active")


def listed(scene: Scene, question: str, daemons: Sequence[DaemonName]) -> Check:
    """Return the check that daemons are in the metadata list of the monitors."""
    want = [(({"name": name.id}, "name"), name.id) for name in daemons]
    return scene.says(question, want, scene.limits.back)


def _visible(scene: Scene, name: DaemonName) -> Optional[Service]:
    """Return the service of a daemon; None if its host is not a node of the run, or the daemon is not seen."""
    with contextlib.suppress(FaultError):
        return next(service for group in service_managers.find_services(scene, [name]).values() for service in group)
    return None


def reached(scene: Scene, node: str, name: str, milestone: str) -> Check:
    """Return the check that the node's file NAME.MILESTONE has the time of a milestone."""
    path = f'"$d/{name}.{milestone}"'
    text = f'{FOLDER}; [ ! -e {path} ] || echo "$(cat {path}) $(date +%s.%N)"'
    return Check(node, text, (((), {"not": ""}),), scene.limits.down, root=True, milestone=milestone)


def _watch(scene: Scene, node: str, verb: str, name: str, words: Sequence[str]) -> Watch:
    path = f'"$d/{name}.{verb}"'
    program = f"{agent(verb)} {path} {scene.limits.slow:g} {shlex.join(words)}"
    begin = f"{FOLDER}; rm -f {path}; setsid {program} </dev/null >/dev/null 2>&1 &"
    quick = scene.limits.quick
    return Watch(
        (Command(node, begin, quick, root=True),),
        (reached(scene, node, name, verb),),
        (Command(node, f"{FOLDER}; rm -f {path}", quick, root=True),),
    )
