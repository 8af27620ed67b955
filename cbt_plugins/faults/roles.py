"""The nodes that a run itself depends on: who leads it, who loads the cluster, and through whom."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Mapping, Tuple

from cbt_plugins.faults.access import nodes_of


@dataclass(frozen=True)
class Roles:
    """Names as the `cluster:` section has them, without users."""

    head: str = ""  # where the cluster is asked and told
    own: str = ""  # this machine
    clients: Tuple[str, ...] = ()
    gateways: Tuple[str, ...] = ()


#: nothing but the cluster is known
NOBODY = Roles()


def roles_of(cluster: Mapping[str, Any]) -> Roles:
    """Read the section; the rest is this machine's own name."""
    by_key = {key: nodes_of({key: cluster.get(key)}) for key in ("head", "clients", "rgws")}
    # The name that Ceph's daemons here report as well. Not the fully qualified one: a name server that does not answer
    # would hold up an undo.
    return Roles(next(iter(by_key["head"]), ""), socket.gethostname(), by_key["clients"], by_key["rgws"])


def same_host(one: str, other: str) -> bool:
    """Whether two names, each short or with a domain, are those of one host."""
    return one == other or one.split(".")[0] == other.split(".")[0]
