"""Runs beside a run: keeps one connection to each node of a monitor open, until its standard input closes.

A process of its own, standard library only: CBT's recovery test allows no threads. Its first line of input is
{"name", "program": text, "output": path on the nodes, "nodes": {node: {"command": command line, "lost": [exit statuses
of it that are not the program's]}}}. Each command gets the program on its standard input, which stays open; a
connection that is lost is made anew. A program that does not run on a node is told on standard error. At the end it
prints {"lost": {node: number of lost connections}, "failed": {node: why}}.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Dict, List, Optional

#: seconds until a lost connection is made anew, doubled up to the second one
PAUSE, LONGEST = 0.5, 30.0
#: seconds from one look to the next while one is lost; else the end of a process wakes this one
LOOK = 0.25
#: ends in short order after which a program is taken for one that does not run there
FAILURES = 3
#: seconds that all programs have for their last line
LAST_LINE = 8.0


class Connection:
    """A command that reaches one node."""

    def __init__(self, command: List[str], lost: List[int], program: bytes) -> None:
        self._command, self._lost_statuses, self._program = command, lost, program
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._again, self._pause = 0.0, PAUSE
        self._since = 0.0
        self.lost = 0
        self.failures, self.status = 0, 0  # one after the other; exit status of the last one

    def keep(self, now: float) -> None:
        """Open it if it is not open; after a short life only when a pause is over."""
        if self._process is not None and self._process.poll() is not None:
            self.status, short = self._process.returncode, now - self._since <= LONGEST
            self._drop()
            self.lost += 1
            # by a signal: somebody has replaced it
            by_itself = self.status > 0 and self.status not in self._lost_statuses
            self.failures = self.failures + 1 if short and by_itself else 0
            self._pause = min(2 * self._pause, LONGEST) if short else PAUSE
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

    @property
    def open(self) -> bool:
        return self._process is not None

    def close(self) -> None:
        """Close its standard input: that ends the program there."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def end(self, until: float) -> None:
        """Wait for the program's end, and kill the connection when the time is over."""
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
    wanted = json.loads(text)
    program = wanted["program"].encode()
    nodes = wanted["nodes"].items()
    connections = {node: Connection(about["command"], about["lost"], program) for node, about in nodes}
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    failed: Dict[str, str] = {}
    while True:
        for node, connection in connections.items():
            connection.keep(time.monotonic())
            if connection.failures == FAILURES and node not in failed:
                why = f"the agent ended {FAILURES} times at once, exit status {connection.status}"
                failed[node] = f"{why}; see {wanted['output']} there"
                _warn(f"{wanted['name']}: its agent does not run on {node}: {failed[node]}")
        every = None if all(connection.open for connection in connections.values()) else LOOK
        ready = select.select([0, wake], [], [], every)[0]
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready and not os.read(0, 4096):
            break
    for connection in connections.values():
        connection.close()
    until = time.monotonic() + LAST_LINE
    for connection in connections.values():
        connection.end(until)
    lost = {node: connection.lost for node, connection in connections.items()}
    print(json.dumps({"lost": lost, "failed": failed}), flush=True)


def _warn(text: str) -> None:
    """Write a line as the log has them: the log itself is another process's, which has no thread to wait for this."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%H:%M:%S')} - WARNING  - cbt_plugins.monitors - {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
