"""What a fault kind gets: the cluster as it is now, and ways to look closer. Nothing here changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults.cluster_facts import Facts
from cbt_plugins.faults.daemons import Daemon, by_node, parse, probe
from cbt_plugins.faults.fence import sudo
from cbt_plugins.faults.harm import Harm
from cbt_plugins.faults.step import Check, Command, FaultError, Step
from cbt_plugins.inventory import find_host


@dataclass(frozen=True)
class Limits:
    """Seconds."""

    quick: float = 30.0  # a question, or a change of the cluster's map
    slow: float = 180.0  # stopping and starting daemons
    down: float = 60.0  # until the cluster has seen that OSDs are gone
    back: float = 300.0  # until it has seen that they are there again
    boot: float = 900.0  # until a node is there again
    pause: float = 1.0  # between two looks
    settling: float = 15.0  # that PGs may be peering, say, before a fault is refused for it
    again: float = 20.0  # until an undo that has no effect yet is done once more
    doubt: float = 45.0  # that all must look well where an undo's command fails: maps lag by osd_heartbeat_grace


@dataclass(frozen=True)
class Targets:
    """What a fault hits, resolved: nodes as the YAML spells them, and all OSDs that it takes."""

    nodes: Tuple[str, ...]
    osds: Tuple[int, ...]
    named: Tuple[str, ...]  # as the file, or the choice, has them


@dataclass(frozen=True)
class Scene:
    """One moment, before a fault."""

    ceph: Ceph
    facts: Facts
    nodes: Tuple[str, ...]  # all that the YAML names
    name: str  # of this fault in this run: the prefix of what it leaves on nodes
    limits: Limits = Limits()

    @property
    def head(self) -> str:
        return self.ceph.head

    def node(self, osd: int) -> str:
        """The node of an OSD, as the YAML spells it. Raises FaultError."""
        host = next((h for h, osds in self.facts.hosts.items() if osd in osds), None)
        node = find_host(host, self.nodes) if host else None
        if node is None:
            raise FaultError(f"osd.{osd} is on host {host}, which is no node of `cluster:`")
        return node

    def on_node(self, node: str) -> Tuple[int, ...]:
        """All OSDs of a node."""
        return tuple(o for h, osds in self.facts.hosts.items() if find_host(h, self.nodes) == node for o in osds)

    def set(self, *lines: str) -> Command:
        """Tell the cluster something: each line is what follows `ceph`. The first that fails ends it."""
        return Command(self.head, " && ".join(f"{self.ceph.command} {line}" for line in lines), self.limits.quick)

    def set_back(self, *lines: str) -> Command:
        """The same for an undo: none that fails keeps the others from being tried."""
        return Command(self.head, "; ".join(f"{self.ceph.command} {line}" for line in lines), self.limits.quick)

    def says(self, question: str, want: Sequence[Tuple[Tuple[Any, ...], Any]], patience: float) -> Check:
        """A check of what the cluster answers."""
        return Check(self.head, f"{self.ceph.command} {question} -f json", tuple(want), patience)

    def ask(self, node: str, text: str, root: bool = False) -> str:
        """What a command prints that only looks. Raises FaultError when it fails."""
        command = sudo(text) if root else text
        result = self.ceph.remote.run([node], command, timeout=self.limits.quick, check=False)[node]
        if result.status:
            why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
            raise FaultError(f"{node}: {text.strip().splitlines()[0][:80]}: {why[0]}")
        return result.stdout

    def daemons(self, osds: Sequence[int], way: str = "") -> Dict[str, List[Daemon]]:
        """node -> its OSDs of these, with how they are run. Raises FaultError."""
        found: Dict[int, Daemon] = {}
        nodes: Dict[str, List[int]] = {}
        for osd in osds:
            nodes.setdefault(self.node(osd), []).append(osd)
        for node, here in nodes.items():
            found.update(parse(node, here, self.ask(node, probe(here), root=True), way))
        return by_node(found)

    def gone(self, osds: Sequence[int]) -> Check:
        """The cluster has seen that the OSDs are down."""
        want = [(("osds", {"osd": o}, "up"), 0) for o in osds]
        return self.says("osd dump", want, self.limits.down)

    def back(self, osds: Sequence[int], patience: Optional[float] = None) -> Check:
        """The OSDs are up, and in with the weight that they have now."""
        want: List[Tuple[Tuple[Any, ...], Any]] = []
        for osd in osds:
            entry = self.facts.osds[osd]
            places = (("up", 1), ("in", entry["in"]), ("weight", entry["weight"]))
            want += [(("osds", {"osd": osd}, name), value) for name, value in places]
        return self.says("osd dump", want, self.limits.back if patience is None else patience)

    def mark_in(self, osds: Sequence[int]) -> Tuple[Command, ...]:
        """Take back what the cluster has marked out since, with the weight that each has now."""
        entries = {o: self.facts.osds[o] for o in osds if self.facts.osds[o]["in"]}
        lines = ["osd in " + " ".join(map(str, entries))] if entries else []
        lines += [f"osd reweight {o} {e['weight']:g}" for o, e in entries.items() if e["weight"] != 1]
        return (self.set_back(*lines),) if lines else ()

    def former(self, osds: Sequence[int]) -> Dict[str, Any]:
        """For the record."""
        keys = ("up", "in", "weight", "uuid")
        return {f"osd.{o}": {k: self.facts.osds[o].get(k) for k in keys} for o in osds}


class Kind:
    """A way to break something. `cbt_plugins.faults` entry points name subclasses.

    `unit`: what `choose` picks and what targets may name: "node", "osd", or "either" (choose picks nodes).
    `options`: name -> value without one; None is "must be given" where the kind says so itself.
    """

    unit = "either"
    options: Mapping[str, Any] = {}

    def harm(self, targets: Targets, options: Mapping[str, Any]) -> Harm:
        """What it takes away, for the rules of safety."""
        return Harm(osds=targets.osds)

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        """What is done, and undone, in this order. May look at nodes; must change nothing. Raises FaultError."""
        raise NotImplementedError
