"""Nodes through ssh, with one connection for each command."""

from __future__ import annotations

import math
import os
import re
import shlex
from typing import Any, List, Mapping, Optional, Tuple

from cbt_plugins.cluster.transports.transport import UNREACHABLE, Transport
from cbt_plugins.config.cluster import ssh_options
from cbt_plugins.inventory import nodes_of

#: seconds between two questions of ssh whether the other end is there
_ALIVE = 15
#: seconds in which a host answers
_CONNECT = 10
#: seconds that a host gets for each node: a connection takes 0.06 to 0.08 s of CPU time here (`./run bench scale
#: fanout`), and all nodes are reached at once, so that each waits for the others
_HANDSHAKE = 0.06


def _connect_timeout(nodes: int) -> int:
    """Return the seconds after which a host that does not answer is noticed, when so many nodes are reached at once."""
    return _CONNECT + int(nodes * _HANDSHAKE / len(os.sched_getaffinity(0)))


class Ssh(Transport):
    """CBT's keys: cluster.user, user and port in a node's name, common.pdsh_ssh_args; and PDSH_SSH_ARGS_APPEND."""

    preference = 1

    def __init__(self, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(cluster, common)
        own = ssh_options(str(common.get("pdsh_ssh_args") or ""))
        self.arguments = (*own, *shlex.split(os.environ.get("PDSH_SSH_ARGS_APPEND", "")))
        self._connect = _connect_timeout(len(nodes_of(cluster)))
        self.connect_limit = 2.0 * self._connect

    def options(self, silence: float) -> Tuple[str, ...]:
        """Return the options of every ssh; it ends when its network was silent for so many seconds."""
        own = (f"-oConnectTimeout={self._connect}", f"-oServerAliveInterval={_ALIVE}")
        # nothing ever asks for a password
        return ("-oBatchMode=yes", *own, f"-oServerAliveCountMax={math.ceil(silence / _ALIVE)}")

    def own_port(self, node: str) -> Optional[str]:
        """Return the port that the section gives to this node alone."""
        name = self.named.get(node)
        return name.port if name else None

    def destination(self, node: str) -> str:
        """Return `user@node`, or the node alone."""
        user = self.user(node)
        return f"{user}@{node}" if user else node

    def _arguments_for(self, node: str) -> Tuple[str, ...]:
        """Return the options of ssh for a node: its own port first, because ssh takes the first that it is given."""
        port = self.own_port(node)
        return ("-p", port, *self.arguments) if port else self.arguments

    def command(self, node: str, shell: str, silence: float) -> List[str]:
        return ["ssh", *self.options(silence), *self._arguments_for(node), "--", self.destination(node), shell]

    def login(self, node: str) -> str:
        return shlex.join(["ssh", *self._arguments_for(node), self.destination(node)])

    def lost(self, status: int, messages: str) -> bool:
        return status == UNREACHABLE  # a command that itself ends so cannot be told from a lost connection

    def port(self, node: str) -> int:
        """Return the port of ssh: the node's own as the section names it, else that of all."""
        of_all = re.search(r"(?:^| )(?:-p ?|-o ?Port[= ])(\d+)(?= |$)", " ".join(self.arguments))
        return int(self.own_port(node) or (of_all[1] if of_all else super().port(node)))
