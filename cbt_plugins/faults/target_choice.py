"""Which nodes and daemons a fault hits: the targets of the file, or a number of targets that a seed chooses."""

from __future__ import annotations

import random
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.faults.cluster_facts import DaemonName, Facts, names, osd_names
from cbt_plugins.faults.scene import Targets
from cbt_plugins.faults.step import FaultError
from cbt_plugins.inventory import HostTable
from cbt_plugins.plan import CRUSH, Fault


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
                raise FaultError(f"{fault.label}: no targets: name targets, or give the number of targets to choose")
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
                    raise FaultError(f"{fault.label}: the cluster has no {text}")
                hit.append(daemon)
                continue
            if takes == "daemon":
                raise FaultError(f"{fault.label}: {fault.kind} hits {_of(types)} daemons, but {text} is no such daemon")
            if node is None or node not in by_node:
                candidates = ", ".join(sorted(by_node)) or "none"
                problem = f"{text} is not a node of `cluster:` with {of} daemons"
                raise FaultError(f"{fault.label}: {problem}; nodes with such daemons: {candidates}")
            nodes.append(node)
            hit += by_node[node]
        daemons = tuple(dict.fromkeys(hit))
        wrong = [d for d in daemons if self._eligible is not None and d not in self._eligible]
        on_nodes = [osd for node in nodes for osd in self._osds_on(node)] if takes == "node" else []
        affected = tuple(dict.fromkeys((*daemons, *on_nodes)))
        self._refuse(fault, wrong, f"{fault.kind} can hit only {names(sorted(self._eligible or ()))} now")
        self._refuse(fault, [d for d in affected if d in self._held], "already hit by another open fault")
        self._refuse(fault, [d for d in affected if not self._facts.is_up(d)], "already down, but not by this run")
        return Targets(tuple(dict.fromkeys(nodes)), daemons, tuple(named))

    def _of_bucket(
        self, fault: Fault, bucket: str, takes: str, types: Sequence[str]
    ) -> Tuple[List[DaemonName], List[str]]:
        """Return the OSDs of a CRUSH bucket, and its nodes for a kind that takes whole nodes. Raises FaultError."""
        facts = self._facts
        items = {str(node["name"]): id for id, node in facts.tree.items() if id < 0}
        if bucket not in items:
            buckets = f"buckets of the cluster: {', '.join(sorted(items))}"
            raise FaultError(f"{fault.label}: no CRUSH bucket {bucket}; {buckets}")
        osds = {osd for osd in facts.below(items[bucket]) if osd in facts.osds}
        if "osd" not in types or not osds:
            problem = "this bucket has no OSDs" if "osd" in types else f"{fault.kind} hits {_of(types)} daemons"
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
            raise FaultError(f"{fault.label}: hosts of {bucket} that are no nodes of `cluster:`: {', '.join(unknown)}")
        return [*osd_names(sorted(osds))], [str(self._table.find(host)) for host in hosts]

    def _osds_on(self, node: str) -> List[DaemonName]:
        hosts = self._facts.hosts
        return [osd for host in hosts if self._table.find(host) == node for osd in osd_names(hosts[host])]

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
            free = [node for node in free if takes != "node" or all(map(self._healthy, self._osds_on(node)))]
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
            raise FaultError(f"{fault.label}: the CRUSH tree has no {bucket_type} with OSDs; types with OSDs: {types}")
        free = [name for name in sorted(of_type) if all(map(self._healthy, of_type[name]))]
        if not free:
            raise FaultError(f"{fault.label}: no {bucket_type} has only healthy OSDs: {', '.join(sorted(of_type))}")
        return CRUSH + random.Random(fault.seed).choice(free)

    def _healthy(self, daemon: DaemonName) -> bool:
        inside = daemon.type != "osd" or self._facts.osds[int(daemon.id)]["in"]
        taken = daemon in self._held or (self._eligible is not None and daemon not in self._eligible)
        return bool(self._facts.is_up(daemon) and inside and not taken)


def _of(types: Sequence[str]) -> str:
    return "/".join(types)
