"""Blast radius: which nodes and daemons a fault takes away. The kind of the fault computes it from the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from cbt_plugins.faults.cluster_facts import DaemonName


@dataclass(frozen=True)
class BlastRadius:
    """Nodes and daemons that a fault takes away, and how."""

    daemons: Tuple[DaemonName, ...] = ()  # down or, of OSDs, out
    nodes: Tuple[str, ...] = ()  # nodes that are lost with everything on them
    disturbed: Tuple[str, ...] = ()  # nodes that serve on, slower or with lost packets
    out: bool = False  # the OSDs stay up, and their data moves to other OSDs
    destroyed: bool = False  # the data of the OSDs is lost
    shared: Tuple[DaemonName, ...] = ()  # of `daemons`: gateways of which others of the same name serve on

    @property
    def osds(self) -> Tuple[int, ...]:
        """Return the OSDs among the daemons."""
        return tuple(int(name.id) for name in self.daemons if name.type == "osd")

    @property
    def stops(self) -> bool:
        """Tell whether OSDs stop serving, so that `ceph osd ok-to-stop` must be asked."""
        return bool(self.osds) and (self.destroyed or not self.out)
