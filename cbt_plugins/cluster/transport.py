"""How nodes are reached: which user, port and program, and the command lines of ssh and pdsh."""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
import shutil
import socket
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.inventory import NodeName, names_of, short_name

#: seconds after which a silent network is noticed
SILENT_NETWORK = 60.0
#: seconds between two questions of ssh whether the other end is there
_ALIVE = 15
#: a host that does not answer is noticed after 10 s; nothing ever asks for a password
SSH_OPTIONS = ("-oBatchMode=yes", "-oConnectTimeout=10", f"-oServerAliveInterval={_ALIVE}")


def _ssh_options(patience: float) -> Tuple[str, ...]:
    return (*SSH_OPTIONS, f"-oServerAliveCountMax={math.ceil(patience / _ALIVE)}")


def _own_names() -> FrozenSet[str]:
    name = socket.gethostname()
    return frozenset({"localhost", name, short_name(name)})


@dataclass(frozen=True)
class Transport:
    """How nodes are reached. `pdsh` is None where it is missing: then every node gets its own ssh."""

    user: Optional[str]
    pdsh: Optional[str]
    ssh_args: Tuple[str, ...]
    own_names: FrozenSet[str]
    named: Mapping[str, NodeName] = field(default_factory=dict)  # host -> its own user and port

    @classmethod
    def from_host(cls, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Transport:
        """Read CBT's keys cluster.user, common.pdsh_cmd, common.pdsh_ssh_args, and PDSH_SSH_ARGS_APPEND."""
        command = str(common.get("pdsh_cmd") or "pdsh")
        ssh_args = shlex.split(str(common.get("pdsh_ssh_args") or ""))
        return cls(
            user=cluster.get("user") or None,
            pdsh=shutil.which(command),
            # %u and %h are pdsh's placeholders for what plain ssh is given as its destination
            ssh_args=tuple(a for a in ssh_args if a not in ("-l%u", "%h"))
            + tuple(shlex.split(os.environ.get("PDSH_SSH_ARGS_APPEND", ""))),
            own_names=_own_names(),
            named={name.host: name for name in names_of(cluster) if name.user or name.port},
        )

    def is_local(self, node: str) -> bool:
        """True when no connection is needed: this machine, and the user that we are already."""
        return node in self.own_names and self._user(node) in (None, getpass.getuser())

    def by_pdsh(self, node: str) -> bool:
        """Return whether pdsh can reach it: it has one port for all nodes, and takes `fe80:` for a way to connect."""
        name = self.named.get(node)
        return self.pdsh is not None and not self.is_local(node) and not (name and name.port) and ":" not in node

    def _user(self, node: str) -> Optional[str]:
        """Who logs in: the node's own user as the section names it, as CBT does it, else that of all."""
        name = self.named.get(node)
        return name.user if name and name.user else self.user

    def _destination(self, node: str) -> str:
        user = self._user(node)
        return f"{user}@{node}" if user else node

    def _ssh_args(self, node: str) -> Tuple[str, ...]:
        """Return the options of ssh for a node: its own port first, because ssh takes the first that it is given."""
        name = self.named.get(node)
        return ("-p", name.port, *self.ssh_args) if name and name.port else self.ssh_args

    def login(self, node: str) -> str:
        """Return the command by which a person reaches the node."""
        return shlex.join(["ssh", *self._ssh_args(node), self._destination(node)])

    def port(self, node: str) -> int:
        """Return the port of ssh on a node: its own as the section names it, else that of all."""
        name = self.named.get(node)
        of_all = re.search(r"(?:^| )(?:-p ?|-o ?Port[= ])(\d+)(?= |$)", " ".join(self.ssh_args))
        return int(name.port if name and name.port else of_all[1] if of_all else 22)

    def ssh(self, node: str, command: str, patience: float = SILENT_NETWORK) -> List[str]:
        """Command line for one node; its network may be silent for `patience` seconds."""
        if self.is_local(node):
            return ["/bin/sh", "-c", command]
        return ["ssh", *_ssh_options(patience), *self._ssh_args(node), "--", self._destination(node), command]

    def pdsh_line(self, nodes: Sequence[str], command: str) -> Tuple[List[str], Dict[str, str]]:
        """Command line and environment for many nodes. pdsh itself expands %h %u %n %%, so every % is doubled."""
        assert self.pdsh is not None
        targets = ",".join(map(self._destination, nodes))
        environment = dict(os.environ, LC_ALL="C")
        append = " ".join([*_ssh_options(SILENT_NETWORK), *self.ssh_args])
        environment["PDSH_SSH_ARGS_APPEND"] = append
        line = [self.pdsh, "-R", "ssh", "-f", str(max(len(nodes), 1)), "-w", targets, command.replace("%", "%%")]
        return line, environment
