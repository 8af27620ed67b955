"""The nodes that a run itself depends on: who leads it, who loads the cluster, and through whom."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Mapping, Tuple

from cbt_plugins.inventory import head_of, nodes_of


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
    # The name that Ceph's daemons here report as well. Not the fully qualified one: a name server that does not answer
    # would hold up an undo.
    return Roles(head_of(cluster), socket.gethostname(), nodes_of(cluster, "clients"), nodes_of(cluster, "rgws"))
