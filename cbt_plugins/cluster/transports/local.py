"""This machine, as the user that we are already: no connection is needed."""

from __future__ import annotations

import socket
from typing import Any, List, Mapping

from cbt_plugins.cluster.transports.ssh import Ssh
from cbt_plugins.inventory import own_user, short_name


class Local(Ssh):
    """A shell of this machine, instead of an ssh to it."""

    preference = 3
    same_clock = True

    def __init__(self, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(cluster, common)
        name = socket.gethostname()
        self._own_names = {"localhost", name, short_name(name)}

    def reaches(self, node: str) -> bool:
        return node in self._own_names and self.user(node) in (None, own_user())

    def command(self, node: str, shell: str, silence: float) -> List[str]:
        return ["/bin/sh", "-c", shell]

    def login(self, node: str) -> str:
        return ""

    def lost(self, status: int, messages: str) -> bool:
        return False  # each status is that of the command
