"""Scene of a fault: the present cluster, its time limits, and the nodes and daemons that the fault hits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Dict, List, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.ceph_programs import readable
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.node_shell import sudo
from cbt_plugins.faults.step import Check, Command, FaultError, NoAnswer, run_all
from cbt_plugins.inventory import HostTable
from cbt_plugins.plan import DAEMON_TYPES

#: of `Step.former`: upmap entries
UPMAPS = "upmaps"


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

    def daemons_on(self, node: str, types: Sequence[str] = DAEMON_TYPES) -> Tuple[DaemonName, ...]:
        """Return the daemons of some types on a node; by default of all types."""
        hosts = {name: host for type in types for name, host in self.facts.daemons(type).items()}
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
        text = run_all([f"{self.ceph.command} {line}" for line in lines])
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
            raise NoAnswer(f"{node}: {readable(text).strip().splitlines()[0][:80]}: {why[0]}")
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
        """Return the check that the OSDs are up, and those that are in now also in with their present weights.

        Whether an OSD that is out now is in later is up to others: another fault's undo, or Ceph when the OSD starts.
        """
        want: List[Tuple[Tuple[Any, ...], Any]] = []
        for osd in osds:
            entry = self.facts.osds[osd]
            places = [("up", 1), *([("in", 1), ("weight", entry["weight"])] if entry["in"] else [])]
            want += [(("osds", {"osd": osd}, name), value) for name, value in places]
        return self.says("osd dump", want, self.limits.back if timeout is None else timeout)

    def mark_in(self, osds: Sequence[int]) -> Tuple[Command, ...]:
        """Return the command that marks OSDs in again with their present weights, if they are marked out later."""
        entries = {o: self.facts.osds[o] for o in osds if self.facts.osds[o]["in"]}
        lines = ["osd in " + " ".join(map(str, entries))] if entries else []
        lines += [f"osd reweight {o} {e['weight']:g}" for o, e in entries.items() if e["weight"] != 1]
        return (self.unset(*lines),) if lines else ()

    def former(self, osds: Sequence[int]) -> Dict[str, Any]:
        """Return the state of OSDs, and the upmap entries with them, for the journal."""
        keys = ("up", "in", "weight", "uuid")
        upmaps = self.facts.upmaps(set(osds))
        former: Dict[str, Any] = {f"osd.{o}": {k: self.facts.osds[o].get(k) for k in keys} for o in osds}
        return {**former, **({UPMAPS: upmaps} if upmaps else {})}
