"""One interactive `ceph` process for many commands: the command's start (0.2 s of CPU) is paid once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any, Dict, List

from .errors import LabError


class CephShell:
    """`ceph -f json`, fed through its standard input.

    It says nothing after a command without output: each one is followed by `fsid`, whose answer is known.
    """

    def __init__(self, enter: List[str], environment: Dict[str, str], fsid: str) -> None:
        self._end = json.dumps({"fsid": fsid}, separators=(",", ":"))
        self._unread = b""
        self._process = subprocess.Popen(
            [*enter, "ceph", "--connect-timeout", "60", "-f", "json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, "PYTHONUNBUFFERED": "1"},
        )

    def __enter__(self) -> CephShell:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        # End of input, not a signal: that would end nsenter and leave the command in the node.
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, command: str, seconds: float = 90) -> str:
        """Run one command; what it printed, or LabError with Ceph's own words."""
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{command}\nfsid\n".encode())
            self._process.stdin.flush()
        except OSError:
            raise LabError(f"ceph {command}: the ceph command ended") from None
        deadline = time.monotonic() + seconds
        said: List[str] = []
        while True:
            line = self._line(command, deadline)
            if line == self._end:
                break
            said.append(line)
        faults = [line for line in said if line.startswith(("Error E", "Invalid command"))]
        if faults:
            raise LabError(f"ceph {command}: {faults[0]}")
        return "\n".join(said).strip()

    def status(self) -> Dict[str, Any]:
        """`ceph status`"""
        answer = self.ask("status")
        return dict(json.loads(answer[answer.index("{") :]))

    def _line(self, command: str, deadline: float) -> str:
        assert self._process.stdout
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise LabError(f"ceph {command}: no answer in time")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise LabError(f"ceph {command}: {self._unread.decode().strip() or 'the ceph command ended'}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().strip()
