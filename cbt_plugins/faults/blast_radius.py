"""Blast radius: what faults take away, the one that is judged and those in force; and the nodes that a run needs."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Sequence, Tuple

from cbt_plugins.faults.facts import DaemonName, Facts
from cbt_plugins.inventory import head_of, nodes_of


@dataclass(frozen=True)
class BlastRadius:
    """What a fault takes away."""

    daemons: Tuple[DaemonName, ...] = ()  # down or, of OSDs, out
    nodes: Tuple[str, ...] = ()  # as a whole, with everything that runs there
    out: bool = False  # the OSDs stay up and give their data away
    destroyed: bool = False  # the data of the OSDs is gone for good

    @property
    def osds(self) -> Tuple[int, ...]:
        """Return the OSDs among the daemons."""
        return tuple(int(name.id) for name in self.daemons if name.type == "osd")

    @property
    def stops(self) -> bool:
        """Tell whether OSDs are no longer there: what `ceph osd ok-to-stop` is about."""
        return bool(self.osds) and (self.destroyed or not self.out)


@dataclass(frozen=True)
class Held:
    """What an open fault of this run has taken."""

    taken: BlastRadius
    seen: bool = False  # by the cluster: what is up now has come back by itself

    def missing(self, facts: Facts) -> Tuple[DaemonName, ...]:
        """Return the daemons that are gone, or will be as soon as the cluster sees it."""
        if self.taken.out:
            return ()
        return tuple(name for name in self.taken.daemons if not (self.seen and self._is_up(facts, name)))

    @staticmethod
    def _is_up(facts: Facts, name: DaemonName) -> bool:
        return name.type == "osd" and int(name.id) in facts.osds and facts.is_up(name)


def questions(taken: BlastRadius, held: Sequence[Held]) -> Dict[str, str]:
    """Return what to ask Ceph about a fault: question by the name that `safety.Replies` has for its reply.

    Whether the OSDs may be stopped is asked together with those that the cluster does not know to be gone yet.
    """
    asked = {}
    if taken.stops:
        unseen = {o for h in held if not (h.seen or h.taken.out) for o in h.taken.osds}
        asked["ok_to_stop"] = " ".join(["osd ok-to-stop", *map(str, sorted({*taken.osds, *unseen}))])
    if taken.destroyed:
        asked["safe_to_destroy"] = " ".join(["osd safe-to-destroy", *map(str, taken.osds)])
    return asked


@dataclass(frozen=True)
class Roles:
    """The nodes that a run depends on, as the `cluster:` section names them, without users."""

    head: str = ""  # where the cluster is asked and told
    own: str = ""  # this machine
    clients: Tuple[str, ...] = ()
    gateways: Tuple[str, ...] = ()


#: nothing but the cluster is known
NOBODY = Roles()


def roles_of(cluster: Mapping[str, Any]) -> Roles:
    """Return the roles of a `cluster:` section, and this machine's own name."""
    # The name that Ceph's daemons here report as well. Not the fully qualified one: a name server that does not answer
    # would hold up an undo.
    return Roles(head_of(cluster), socket.gethostname(), nodes_of(cluster, "clients"), nodes_of(cluster, "rgws"))
