"""The command lines that reach a node: pdsh, ssh or a local shell, as the `common:` section asks."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

#: a silent network is noticed after 60 s, a host that does not answer after 10 s; nothing ever asks for a password
SSH_OPTIONS = (
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=4",
)


def _own_names() -> FrozenSet[str]:
    name = socket.gethostname()
    return frozenset({"localhost", name, name.split(".")[0]})


@dataclass(frozen=True)
class Transport:
    """How nodes are reached. `pdsh` is None where it is missing: then every node gets its own ssh."""

    user: Optional[str]
    pdsh: Optional[str]
    ssh_args: Tuple[str, ...]
    own_names: FrozenSet[str]

    @classmethod
    def from_host(cls, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Transport:
        """Read CBT's keys cluster.user, common.pdsh_cmd, common.pdsh_ssh_args, and PDSH_SSH_ARGS_APPEND."""
        asked = str(common.get("pdsh_cmd") or "pdsh")
        ssh_args = shlex.split(str(common.get("pdsh_ssh_args") or ""))
        return cls(
            user=cluster.get("user") or None,
            pdsh=shutil.which(asked),
            # %u and %h are pdsh's placeholders for what plain ssh is given as its destination
            ssh_args=tuple(a for a in ssh_args if a not in ("-l%u", "%h"))
            + tuple(shlex.split(os.environ.get("PDSH_SSH_ARGS_APPEND", ""))),
            own_names=_own_names(),
        )

    def is_local(self, node: str) -> bool:
        """True when no connection is needed: this machine, and the user that we are already."""
        return node in self.own_names and self.user in (None, getpass.getuser())

    def ssh(self, node: str, command: str) -> List[str]:
        """Command line for one node."""
        if self.is_local(node):
            return ["/bin/sh", "-c", command]
        destination = f"{self.user}@{node}" if self.user else node
        return ["ssh", *SSH_OPTIONS, *self.ssh_args, destination, command]

    def pdsh_line(self, nodes: Sequence[str], command: str) -> Tuple[List[str], Dict[str, str]]:
        """Command line and environment for many nodes. pdsh itself expands %h %u %n %%, so every % is doubled."""
        assert self.pdsh is not None
        targets = ",".join(f"{self.user}@{n}" if self.user else n for n in nodes)
        environment = dict(os.environ, LC_ALL="C")
        append = " ".join([*SSH_OPTIONS, *self.ssh_args])
        environment["PDSH_SSH_ARGS_APPEND"] = append
        line = [self.pdsh, "-R", "ssh", "-f", str(max(len(nodes), 1)), "-w", targets, command.replace("%", "%%")]
        return line, environment
