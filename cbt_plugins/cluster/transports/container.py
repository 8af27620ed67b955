"""Nodes that are containers: a program that runs a command in one, such as `podman exec`."""

from __future__ import annotations

import re
import shlex
from typing import ClassVar, List, Optional, Tuple

from cbt_plugins.cluster.transports.transport import Transport

#: the shell that runs a command, and says on its standard error how that ended
_MARKED = 'sh -c "$0"; s=$?; echo "cbt-plugins: exit status $s" >&2; exit $s'
_MARK = re.compile(r"cbt-plugins: exit status (\d+)$", re.MULTILINE)


class ExecTransport(Transport):
    """A program whose own exit statuses, and that of a lost connection, are also those of commands.

    So the node itself says the status on the last line of its errors. Without this line, or with another status in it,
    the end of the command was not seen. A subclass has `words`.
    """

    keeps_files: ClassVar[bool] = False  # a container that is made anew has none of its former one
    #: exit statuses of the program, for who does not read the errors
    own_statuses: ClassVar[Tuple[int, ...]] = ()

    def words(self, node: str) -> List[str]:
        """Return the command line without the command."""
        raise NotImplementedError

    def command(self, node: str, shell: str, silence: float) -> List[str]:
        return [*self.words(node), "sh", "-c", _MARKED, shell]

    def login(self, node: str) -> str:
        return shlex.join(self.words(node))

    def lost(self, status: int, messages: str) -> bool:
        return str(status) not in _MARK.findall(messages)[-1:]

    def lost_statuses(self) -> List[int]:
        return list(self.own_statuses)

    def message_of(self, line: str) -> Optional[str]:
        text = _MARK.sub("", line)  # what the command wrote before may have no end of line
        return text if text or not line else None


class Container(ExecTransport):
    """A container of this machine that has the name of the node; the user of the section, as for ssh."""

    program: ClassVar[str]
    own_statuses: ClassVar[Tuple[int, ...]] = (125, 137, 255)  # no container, a killed one, a stopped one

    def words(self, node: str) -> List[str]:
        user = self.user(node)
        return [self.program, "exec", "-i", *(["--user", user] if user else []), node]


class Docker(Container):
    """`docker exec`; DOCKER_HOST and the like count."""

    program = "docker"
    own_statuses = (1, *Container.own_statuses)  # 1: no such container, or one that is stopped


class Podman(Container):
    """`podman exec`."""

    program = "podman"
