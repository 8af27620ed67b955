"""Case: a fault to judge, with the cluster, its blast radius, the open faults, and the nodes that must not be hit."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Collection, Dict, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.cluster.ceph import Reply
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, Facts, domain_members, domains
from cbt_plugins.faults.safety_capacity import Filling, fillings
from cbt_plugins.inventory import head_of, nodes_of, same_host


def one_of(host: str, nodes: Collection[str]) -> bool:
    """Tell whether a host is among the nodes, by any of its names."""
    return any(same_host(host, node) for node in nodes)


@dataclass(frozen=True)
class Finding:
    """A safety rule that the fault would break, with the numbers."""

    rule: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> Dict[str, Any]:
        """Return the finding as plain data, for the journal."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class OpenFault:
    """The blast radius of an open fault of this run."""

    taken: BlastRadius
    seen: bool = False  # the cluster has seen it: a daemon that is up now has come back by itself

    def missing(self, facts: Facts) -> Tuple[DaemonName, ...]:
        """Return the daemons that are down, or will be as soon as the cluster notices."""
        if self.taken.out:
            return ()
        lost = (name for name in self.taken.daemons if name not in self.taken.shared)
        return tuple(name for name in lost if not (self.seen and self._is_up(facts, name)))

    @staticmethod
    def _is_up(facts: Facts, name: DaemonName) -> bool:
        return name.type == "osd" and int(name.id) in facts.osds and facts.is_up(name)


@dataclass(frozen=True)
class Roles:
    """The nodes that a run depends on, by their names in the `cluster:` section, without user names."""

    head: str = ""  # where Ceph's commands run
    own: str = ""  # this machine
    clients: Tuple[str, ...] = ()
    gateways: Tuple[str, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)  # node -> the host name that the node reports
    mon_host: str = ""  # in the head's ceph.conf

    def is_on(self, name: str, node: str) -> bool:
        """Tell whether one of these nodes is this node, also by an address or an alias."""
        return bool(name) and one_of(node, (name, self.called.get(name, name)))


#: only the cluster is known
NOBODY = Roles()


def cluster_roles(cluster: Mapping[str, Any]) -> Roles:
    """Return the roles of a `cluster:` section, and this machine's own name."""
    # Ceph's daemons on this machine report the same name. The fully qualified name would need a name server, and a
    # name server that does not answer would delay an undo.
    return Roles(head_of(cluster), socket.gethostname(), nodes_of(cluster, "clients"), nodes_of(cluster, "rgws"))


@dataclass(frozen=True)
class Surroundings:
    """Facts besides the cluster by which a fault is judged."""

    roles: Roles = NOBODY
    held: Sequence[OpenFault] = ()  # blast radii of the open faults of this run
    flags: Collection[str] = ()  # flags that the run itself sets
    ok_to_stop: Optional[Reply] = None  # None: not asked
    safe_to_destroy: Optional[Reply] = None  # OSDs to be destroyed must be safe to destroy
    min_in: float = 0.0  # share of all OSDs that must stay in


@dataclass(frozen=True)
class FaultCase:
    """A fault on a cluster; the rules add to `numbers`."""

    facts: Facts
    taken: BlastRadius
    around: Surroundings
    numbers: Dict[str, Any]

    @cached_property
    def gone(self) -> Set[int]:
        """Return the OSDs that will not serve: OSDs of this fault and of open faults, and OSDs that are down now."""
        down = {n for n, o in self.facts.osds.items() if not o["up"]}
        return {*self.taken.osds, *down, *(int(name.id) for name in self.daemons_gone if name.type == "osd")}

    @cached_property
    def daemons_gone(self) -> Set[DaemonName]:
        """Return the daemons that open faults have taken and that are still down."""
        return {name for held in self.around.held for name in held.missing(self.facts)}

    @cached_property
    def out(self) -> Set[int]:
        """Return the OSDs that open faults have marked out."""
        return {osd for held in self.around.held if held.taken.out for osd in held.taken.osds}

    @property
    def moves_data_away(self) -> bool:
        """Tell whether the OSDs of the fault serve clients until their data has moved."""
        return self.taken.out and not self.taken.destroyed

    @cached_property
    def domains_in(self) -> Sequence[Tuple[Mapping[str, Any], str, int, int]]:
        """Return each pool with its type of failure domain, and the number of domains for its data before and after."""
        lacking = (self.gone | self.out) - set(self.taken.osds)
        domains = []
        for pool in self.facts.pools:
            kind, members = domain_members(self.facts, pool)
            weighted = [{o for o in osds if self.facts.weight(o) > 0} for osds in members.values()]
            before, after = (
                sum(bool(osds - empty) for osds in weighted) for empty in (lacking, lacking.union(self.taken.osds))
            )
            if before:
                domains.append((pool, kind, before, after))
        return domains

    @cached_property
    def domains(self) -> Sequence[Tuple[Mapping[str, Any], str, Dict[str, float]]]:
        """Return each pool with its type of failure domain, and the share of each domain that would be lost."""
        return tuple(domains(self.facts, self.gone, self.taken.osds, self.out))

    @cached_property
    def nodes_gone(self) -> Set[str]:
        """Return the nodes that open faults have taken and that are still down."""
        return {node for held in self.around.held if held.missing(self.facts) for node in held.taken.nodes}

    @cached_property
    def fullest(self) -> Optional[Filling]:
        """Return the part of the CRUSH tree that would be fullest after recovery."""
        parts = list(fillings(self.facts, self.taken.osds, self.gone | self.out))
        fullest = max(parts, key=lambda part: part.used, default=None)
        self.numbers.update({"full_after": fullest.used_share} if fullest else {})
        return max((part for part in parts if part.moves), key=lambda part: part.used, default=None)

    @property
    def ratios(self) -> Tuple[float, float]:
        """Return the full ratio and the backfillfull ratio of the cluster."""
        dump = self.facts.answers["osd dump"]
        return float(dump["full_ratio"]), float(dump["backfillfull_ratio"])
