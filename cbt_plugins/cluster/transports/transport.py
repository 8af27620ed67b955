"""What a transport is: the class that each entry point of the group "cbt_plugins.transports" subclasses."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.inventory import names_of

#: exit status of a node that could not be reached or did not answer in time (ssh's own convention)
UNREACHABLE = 255
#: seconds after which a silent network is noticed
SILENT_NETWORK = 60.0
#: seconds that the output of a command line which was killed may take to end
LAST_OUTPUT = 5.0


@dataclass(frozen=True)
class Result:
    """Output and exit status of a command on one node."""

    stdout: str
    stderr: str
    status: int


class Transport:
    """How nodes are reached. One object serves all nodes of a cluster that have this transport.

    `cluster` and `common` are sections of the YAML. A subclass has `command`, `login` and `lost`; limits on the node,
    many nodes at once, streams and copies of files are made of `command` by `Remote`.
    """

    #: of the transports of this project that reach a node, the highest one is used where the section names none;
    #: 0: used only where the section names it
    preference: ClassVar[int] = 0
    #: whether nodes have the clock of this machine
    same_clock: ClassVar[bool] = False
    #: whether what a command has written is on a node until it is removed, also when the node ends in between
    keeps_files: ClassVar[bool] = True
    #: seconds that a node has, beyond the time of the command, to connect and to answer
    connect_limit: float = 20.0

    #: keys of `cluster:` without which it reaches no node
    needs: ClassVar[Tuple[str, ...]] = ()

    def __init__(self, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self.cluster, self.common = cluster, common
        self.named = {name.host: name for name in names_of(cluster) if name.user or name.port}

    def user(self, node: str) -> Optional[str]:
        """Return the login user: the node's own user as the section names it, as CBT does it, else that of all."""
        name = self.named.get(node)
        return name.user if name and name.user else self.cluster.get("user") or None

    def reaches(self, node: str) -> bool:
        """Return whether a node can be reached from here by it; asked where there is a `preference`."""
        return True

    def command(self, node: str, shell: str, silence: float) -> List[str]:
        """Return the command line that runs a shell command on a node: its input, output and errors are the node's.

        The network may be silent for `silence` seconds; then the command line must end.
        """
        raise NotImplementedError

    def login(self, node: str) -> str:
        """Return the words in front of a command by which a person runs it there, "" where there are none to try."""
        raise NotImplementedError

    def lost(self, status: int, messages: str) -> bool:
        """Return whether a command line that ended so may not have begun its command, or left it running.

        `messages` are its errors. The status may be 0.
        """
        raise NotImplementedError

    def lost_statuses(self) -> List[int]:
        """Return the exit statuses that are not those of the command, for who does not read its errors."""
        return [status for status in range(1, 256) if self.lost(status, "")]

    def message_of(self, line: str) -> Optional[str]:
        """Return the part of a line of the errors that is for users; None for a line of the transport alone."""
        return line

    def reason(self, node: str, messages: str) -> str:
        """Return the reason why a node was not reached, if it can be asked for; "" if `messages` say all that is known.

        `messages` are the errors of a command line that was `lost`.
        """
        return ""

    def port(self, node: str) -> int:
        """Return the TCP port of the node that must stay open for connections, and for people who log in."""
        return 22

    def run_many(self, nodes: Sequence[str], shell: str, limit: float) -> Dict[str, Result]:
        """Run a shell command by one program on as many of these nodes as it takes; each other has its own `command`.

        A node that is lost, or from which nothing came within `limit` seconds, has the status UNREACHABLE.
        """
        return {}


def kill_session(process: subprocess.Popen[bytes]) -> Tuple[bytes, bytes]:
    """Kill a command line with all processes of its session, and return the output and the errors that were not read.

    ssh with a ProxyJump has helper processes that hold its pipes. A pipe that another session holds is given up.
    """
    with contextlib.suppress(ProcessLookupError):  # it shares our session
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    try:
        out, err = process.communicate(timeout=LAST_OUTPUT)
    except subprocess.TimeoutExpired as late:
        out, err = late.output or b"", late.stderr or b""
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
    return out or b"", err or b""
