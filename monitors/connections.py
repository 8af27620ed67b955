"""Runs beside a run: one connection to each node, made anew when it is lost, until standard input closes.

A process of its own: CBT allows no threads. Its first line of input is {"program": text, "nodes": {node: command
line}}; each command is given the program on its standard input, which then stays open. At its end it prints {node:
number of times that the connection ended by itself}.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Dict, List, Optional

#: seconds until a connection is made again, doubled up to the second one
PAUSE, LONGEST = 0.5, 30.0
#: seconds that all agents have for their last line
LAST_LINE = 8.0


class Connection:
    """To one node."""

    def __init__(self, command: List[str], program: bytes) -> None:
        self._command, self._program = command, program
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._again, self._pause = 0.0, PAUSE
        self._since = 0.0
        self.lost = 0

    def keep(self, now: float) -> None:
        """Open it when it is not; a connection that has lasted may be made anew at once."""
        if self._process is not None and self._process.poll() is not None:
            self._drop()
            self.lost += 1
            self._pause = PAUSE if now - self._since > LONGEST else min(2 * self._pause, LONGEST)
            self._again = now + self._pause
        if self._process is None and now >= self._again:
            self._since = now
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the agent here must lead its group, as one behind sshd does
            )
            assert self._process.stdin is not None
            # less than a pipe holds: this does not wait for the node
            with contextlib.suppress(OSError):
                self._process.stdin.write(self._program)
                self._process.stdin.flush()

    def close(self) -> None:
        """Tell the other side."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def end(self, until: float) -> None:
        """Wait for the other side, and no longer than that."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _drop(self) -> None:
        self.close()
        self._process = None


def main() -> None:
    text = b""
    while not text.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return
        text += data
    order = json.loads(text)
    program = order["program"].encode()
    connections: Dict[str, Connection] = {n: Connection(c, program) for n, c in order["nodes"].items()}
    while True:
        for connection in connections.values():
            connection.keep(time.monotonic())
        if select.select([0], [], [], 0.25)[0] and not os.read(0, 4096):
            break
    for connection in connections.values():
        connection.close()
    until = time.monotonic() + LAST_LINE
    for connection in connections.values():
        connection.end(until)
    print(json.dumps({node: connection.lost for node, connection in connections.items()}), flush=True)


if __name__ == "__main__":
    main()
