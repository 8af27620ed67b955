"""Scene and targets of a fault: the present cluster, and the nodes and daemons that the fault hits."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.ceph_programs import readable
from cbt_plugins.faults.cluster_facts import DaemonName, Facts, names, osd_names
from cbt_plugins.faults.node_shell import sudo
from cbt_plugins.faults.step import Check, Command, FaultError
from cbt_plugins.inventory import HostTable
from cbt_plugins.plan import CRUSH, DAEMON_TYPES, Fault


@dataclass(frozen=True)
class ClusterLimits:
    """Time limits for the cluster, in seconds."""

    quick: float = 30.0  # for a question, or for a change of the cluster's maps
    slow: float = 180.0  # for stopping or starting daemons
    down: float = 60.0  # until the cluster has seen that daemons are gone
    back: float = 300.0  # until it has seen that they are up again
    boot: float = 900.0  # until a node has booted
    pause: float = 1.0  # between two looks
    transient: float = 15.0  # for which a fault waits for PGs in a transient state, before it is refused
    again: float = 20.0  # after which an undo without effect is repeated
    lag: float = 45.0  # for which all must look undone if a command failed: maps lag by osd_heartbeat_grace


@dataclass(frozen=True)
class Targets:
    """Targets of a fault: nodes by their names in the YAML, and all daemons that the fault hits."""

    nodes: Tuple[str, ...]
    daemons: Tuple[DaemonName, ...]
    named: Tuple[str, ...]  # names in the file, or the names that were chosen

    @property
    def osds(self) -> Tuple[int, ...]:
        """Return the OSDs among the daemons."""
        return tuple(int(name.id) for name in self.daemons if name.type == "osd")


@dataclass(frozen=True)
class Scene:
    """The cluster right before a fault, with further questions to it; no method changes anything."""

    ceph: Ceph
    facts: Facts
    nodes: Tuple[str, ...]  # all nodes of the YAML
    name: str  # name of this fault in this run: the prefix of its files on nodes
    limits: ClusterLimits = ClusterLimits()

    @property
    def head(self) -> str:
        """Return the node on which Ceph's commands run."""
        return self.ceph.head

    def node(self, name: DaemonName) -> str:
        """Return the node of a daemon, by its name in the YAML. Raises FaultError."""
        host = self.facts.daemons(name.type).get(name)
        node = self._table.find(host) if host else None
        if node is None:
            raise FaultError(f"{name} is on host {host}, which is not a node of `cluster:`")
        return node

    def on_node(self, node: str) -> Tuple[int, ...]:
        """Return all OSDs of a node."""
        return tuple(self._osds_by_node.get(node, ()))

    def daemons_on(self, node: str) -> Tuple[DaemonName, ...]:
        """Return the daemons of all types on a node."""
        hosts = {name: host for type in DAEMON_TYPES for name, host in self.facts.daemons(type).items()}
        return tuple(name for name, host in hosts.items() if self._table.find(host) == node)

    @cached_property
    def _table(self) -> HostTable:
        return HostTable(self.nodes)

    @cached_property
    def _osds_by_node(self) -> Dict[Optional[str], List[int]]:
        osds_by_node: Dict[Optional[str], List[int]] = {}
        for host, osds in self.facts.hosts.items():
            osds_by_node.setdefault(self._table.find(host), []).extend(osds)
        return osds_by_node

    def set(self, *lines: str) -> Command:
        """Return one command of several lines of arguments for `ceph`; it ends at the first line that fails."""
        text = " && ".join(f"{self.ceph.command} {line}" for line in lines)
        return Command(self.head, text, len(lines) * self.limits.quick)

    def unset(self, *lines: str) -> Command:
        """Return one command of several lines for an undo: a line that fails does not stop the next ones."""
        text = "; ".join(f"{self.ceph.command} {line}" for line in lines)
        return Command(self.head, text, len(lines) * self.limits.quick)

    def says(self, question: str, want: Sequence[Tuple[Tuple[Any, ...], Any]], timeout: float) -> Check:
        """Return a check of the cluster's reply to a question."""
        return Check(self.head, f"{self.ceph.command} {question} -f json", tuple(want), timeout)

    def ask(self, node: str, text: str, root: bool = False) -> str:
        """Return the output of a command that changes nothing. Raises FaultError when it fails."""
        command = sudo(text) if root else text
        result = self.ceph.remote.run([node], command, timeout=self.limits.quick, check=False)[node]
        if result.status:
            why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
            raise FaultError(f"{node}: {readable(text).strip().splitlines()[0][:80]}: {why[0]}")
        return result.stdout

    def osds_down(self, osds: Sequence[int]) -> Check:
        """Return the check that the cluster has seen the OSDs go down."""
        want = [(("osds", {"osd": o}, "up"), 0) for o in osds]
        return self.says("osd dump", want, self.limits.down)

    def osds_went_down(self, osds: Sequence[int]) -> Check:
        """Return the check that the cluster has seen the OSDs go down, even if they are up again by now."""
        want: List[Tuple[Tuple[Any, ...], Any]] = []
        for osd in osds:
            entry = self.facts.osds[osd]
            since = entry.get("down_at")  # epoch in which the OSD went down last
            name, value = ("down_at", {"not": since}) if entry["up"] and since is not None else ("up", 0)
            want.append((("osds", {"osd": osd}, name), value))
        return self.says("osd dump", want, self.limits.down)

    def osds_back(self, osds: Sequence[int], timeout: Optional[float] = None) -> Check:
        """Return the check that the OSDs are up, and in with their present weights."""
        want: List[Tuple[Tuple[Any, ...], Any]] = []
        for osd in osds:
            entry = self.facts.osds[osd]
            places = (("up", 1), ("in", entry["in"]), ("weight", entry["weight"]))
            want += [(("osds", {"osd": osd}, name), value) for name, value in places]
        return self.says("osd dump", want, self.limits.back if timeout is None else timeout)

    def mark_in(self, osds: Sequence[int]) -> Tuple[Command, ...]:
        """Return the command that marks OSDs in again with their present weights, if they are marked out later."""
        entries = {o: self.facts.osds[o] for o in osds if self.facts.osds[o]["in"]}
        lines = ["osd in " + " ".join(map(str, entries))] if entries else []
        lines += [f"osd reweight {o} {e['weight']:g}" for o, e in entries.items() if e["weight"] != 1]
        return (self.unset(*lines),) if lines else ()

    def former(self, osds: Sequence[int]) -> Dict[str, Any]:
        """Return the state of OSDs, for the journal."""
        keys = ("up", "in", "weight", "uuid")
        return {f"osd.{o}": {k: self.facts.osds[o].get(k) for k in keys} for o in osds}


class TargetResolver:
    """Resolves the targets of faults: given names, or a number of targets that a seed chooses.

    `held`: daemons that open faults have taken. `eligible`: daemons that the kind may hit; None: all.
    """

    def __init__(
        self,
        facts: Facts,
        nodes: Sequence[str],
        held: Collection[DaemonName] = (),
        eligible: Optional[Collection[DaemonName]] = None,
    ) -> None:
        self._facts, self._table, self._held, self._eligible = facts, HostTable(nodes), set(held), eligible

    def resolve(self, fault: Fault, takes: str, types: Sequence[str]) -> Targets:
        """Return the targets. `takes` and `types`: of the fault's kind. Raises FaultError.

        A node stands for its daemons of the type `choose_of` of the fault, by default of the first type.
        """
        of = fault.choose_of if fault.choose_of in types else types[0]
        host_by_daemon = {name: host for type in types for name, host in self._facts.daemons(type).items()}
        by_node: Dict[str, List[DaemonName]] = {}
        for name, host in host_by_daemon.items():
            node = self._table.find(host)
            if node and name.type == of:
                by_node.setdefault(node, []).append(name)
        named = list(fault.targets)
        if not named:
            if fault.choose < 1:
                raise FaultError(f"{fault.label}: no targets: name them, or give the number to choose")
            named = self._choose_targets(fault, takes, types, by_node)
        nodes: List[str] = []
        hit: List[DaemonName] = []
        for text in named:
            if text.startswith(CRUSH):
                members, whole_nodes = self._of_bucket(fault, text[len(CRUSH) :], takes, types)
                hit += members
                nodes += whole_nodes
                continue
            daemon = DaemonName.parse(text)
            # osd.3 is not another spelling of a node named osd
            its_form = daemon.type in types and bool(daemon.id)
            node = self._table.find(text)
            if its_form and (node != text or (daemon in host_by_daemon and takes != "node")):
                if takes == "node":
                    raise FaultError(f"{fault.label}: {fault.kind} hits whole nodes, but {text} is not a node")
                if daemon not in host_by_daemon:
                    raise FaultError(f"{fault.label}: there is no {text}")
                hit.append(daemon)
                continue
            if takes == "daemon":
                raise FaultError(f"{fault.label}: {fault.kind} hits {_of(types)} daemons, but {text} is not one")
            if node is None or node not in by_node:
                candidates = ", ".join(sorted(by_node)) or "none"
                problem = f"{text} is not a node of `cluster:` with {of} daemons"
                raise FaultError(f"{fault.label}: {problem}; nodes with such daemons: {candidates}")
            nodes.append(node)
            hit += by_node[node]
        daemons = tuple(dict.fromkeys(hit))
        wrong = [d for d in daemons if self._eligible is not None and d not in self._eligible]
        self._refuse(fault, wrong, f"{fault.kind} can hit only {names(sorted(self._eligible or ()))} now")
        self._refuse(fault, [d for d in daemons if d in self._held], "already hit by another open fault")
        self._refuse(fault, [d for d in daemons if not self._facts.is_up(d)], "down already, and not by this run")
        return Targets(tuple(dict.fromkeys(nodes)), daemons, tuple(named))

    def _of_bucket(
        self, fault: Fault, bucket: str, takes: str, types: Sequence[str]
    ) -> Tuple[List[DaemonName], List[str]]:
        """Return the OSDs of a CRUSH bucket, and its nodes for a kind that takes whole nodes. Raises FaultError."""
        facts = self._facts
        items = {str(node["name"]): id for id, node in facts.tree.items() if id < 0}
        if bucket not in items:
            raise FaultError(f"{fault.label}: no CRUSH bucket {bucket}; the cluster has {', '.join(sorted(items))}")
        osds = {osd for osd in facts.below(items[bucket]) if osd in facts.osds}
        if "osd" not in types or not osds:
            problem = "it has no OSDs" if "osd" in types else f"{fault.kind} hits {_of(types)} daemons"
            raise FaultError(f"{fault.label}: CRUSH bucket {bucket} stands for its OSDs: {problem}")
        hosts = {host: set(members) for host, members in facts.hosts.items() if osds.intersection(members)}
        if takes != "node":
            return [*osd_names(sorted(osds))], []
        for host, members in hosts.items():
            if not members <= osds:
                outside = names(osd_names(sorted(members - osds)))
                problem = f"{host} also has {outside}, outside {bucket}"
                raise FaultError(f"{fault.label}: {fault.kind} hits whole nodes; {problem}")
        unknown = [host for host in hosts if self._table.find(host) is None]
        if unknown:
            raise FaultError(f"{fault.label}: {', '.join(unknown)} of {bucket} is not a node of `cluster:`")
        return [*osd_names(sorted(osds))], [str(self._table.find(host)) for host in hosts]

    @staticmethod
    def _refuse(fault: Fault, daemons: Sequence[DaemonName], why: str) -> None:
        if daemons:
            raise FaultError(f"{fault.label}: {names(daemons)}: {why}")

    def _choose_targets(
        self, fault: Fault, takes: str, types: Sequence[str], by_node: Mapping[str, Sequence[DaemonName]]
    ) -> List[str]:
        of = fault.choose_of or (types[0] if takes == "daemon" else "node")
        if of.startswith(CRUSH):
            return [self._choose_bucket(fault, of[len(CRUSH) :])]
        if (of == "node" and takes == "daemon") or (of != "node" and (takes == "node" or of not in types)):
            accepted = "whole nodes" if takes == "node" else f"{_of(types)} daemons"
            raise FaultError(f"{fault.label}: {fault.kind} hits {accepted}, not {of}")
        usable = {d for daemons in by_node.values() for d in daemons if self._healthy(d)}
        if of == "node":
            free = [node for node in sorted(by_node) if by_node[node] and usable.issuperset(by_node[node])]
        else:
            free = [str(d) for node in sorted(by_node) for d in by_node[node] if d in usable and d.type == of]
        if len(free) < fault.choose:
            noun = "nodes" if of == "node" else f"{of} daemons"
            available = f"{len(free)}: {', '.join(free)}" if free else "none"
            raise FaultError(f"{fault.label}: need {fault.choose} healthy {noun}, found {available}")
        return sorted(random.Random(fault.seed).sample(free, fault.choose))

    def _choose_bucket(self, fault: Fault, bucket_type: str) -> str:
        """Return a CRUSH bucket of a type, with healthy OSDs only. Raises FaultError."""
        facts = self._facts
        members = {
            (str(node["name"]), str(node["type"])): [*osd_names(osd for osd in facts.below(id) if osd in facts.osds)]
            for id, node in facts.tree.items()
            if id < 0
        }
        of_type = {name: osds for (name, type), osds in members.items() if type == bucket_type and osds}
        if not of_type:
            types = ", ".join(sorted({type for (_, type), osds in members.items() if osds})) or "none"
            raise FaultError(f"{fault.label}: the CRUSH tree has no {bucket_type} with OSDs; its types are {types}")
        free = [name for name in sorted(of_type) if all(map(self._healthy, of_type[name]))]
        if not free:
            raise FaultError(f"{fault.label}: no {bucket_type} of {', '.join(sorted(of_type))} has only healthy OSDs")
        return CRUSH + random.Random(fault.seed).choice(free)

    def _healthy(self, daemon: DaemonName) -> bool:
        inside = daemon.type != "osd" or self._facts.osds[int(daemon.id)]["in"]
        taken = daemon in self._held or (self._eligible is not None and daemon not in self._eligible)
        return bool(self._facts.is_up(daemon) and inside and not taken)


def _of(types: Sequence[str]) -> str:
    return "/".join(types)
