"""Processes by pid and start time, and one interactive `ceph` process for many commands.

A pid that was given to another process is never taken for ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, TypeVar

from cbt_plugins import polling

from .requirements import LabError

T = TypeVar("T")


@dataclass(frozen=True)
class LabProcess:
    """A process. `start`: clock ticks after boot; `namespace`: the pid namespace, as the kernel names it."""

    pid: int
    start: int
    namespace: str

    @classmethod
    def of(cls, pid: int) -> Optional[LabProcess]:
        """Return the live process of that number; None when there is none, or we may not look at it."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return None if stat[0] in "ZX" else cls(pid, int(stat[19]), os.readlink(f"/proc/{pid}/ns/pid"))
        except OSError:
            return None

    def alive(self) -> bool:
        return LabProcess.of(self.pid) == self

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal it, if it is still the same process."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def command(self) -> List[str]:
        """Return the arguments of the process; empty when the process is gone."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
        except OSError:
            return []

    def memory(self) -> int:
        """Return the proportional set size of the process in bytes: shared pages count once over all processes."""
        try:
            lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def processes() -> Iterator[LabProcess]:
    """Yield every process that we may look at."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            process = LabProcess.of(int(entry))
            if process:
                yield process


def by_namespace() -> Dict[str, List[LabProcess]]:
    """Return pid namespace -> its processes."""
    processes_by_space: Dict[str, List[LabProcess]] = {}
    for process in processes():
        processes_by_space.setdefault(process.namespace, []).append(process)
    return processes_by_space


def default_signals() -> None:
    """Stop ignoring what the caller ignores (nohup, a shell's background); for `preexec_fn`.

    What is ignored stays ignored across exec, and CBT ends programs of nodes with SIGINT.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def wait_for(
    condition: Callable[[], T], event: str, seconds: float, pause: float = 0.02, met: Callable[[T], Any] = bool
) -> T:
    """Return the first value of `condition` that is `met`; after `seconds` LabError with `event` and the last value."""

    def late(seen: T) -> LabError:
        return LabError(f"timeout of {seconds:g} s: waited for {event}; last seen: {seen}")

    return polling.wait_until(condition, seconds, pause, late, met)


def wait_for_end(processes: Sequence[LabProcess], event: str, seconds: float) -> None:
    """Wait until the processes have ended; after `seconds` LabError with `event` and the pids that are left."""
    wait_for(lambda: [process.pid for process in processes if process.alive()], event, seconds, met=not_)


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
            preexec_fn=default_signals,
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
        """Run one command and return what it printed; LabError with Ceph's own words."""
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{command}\nfsid\n".encode())
            self._process.stdin.flush()
        except OSError:
            raise LabError(f"ceph {command}: the ceph command ended") from None
        until = time.monotonic() + seconds
        lines: List[str] = []
        while True:
            line = self._line(command, until)
            if line == self._end:
                break
            lines.append(line)
        faults = [line for line in lines if line.startswith(("Error E", "Invalid command"))]
        if faults:
            raise LabError(f"ceph {command}: {faults[0]}")
        return "\n".join(lines).strip()

    def status(self) -> Dict[str, Any]:
        """Return the answer of `ceph status`."""
        answer = self.ask("status")
        return dict(json.loads(answer[answer.index("{") :]))

    def _line(self, command: str, until: float) -> str:
        assert self._process.stdout
        while b"\n" not in self._unread:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise LabError(f"ceph {command}: no reply within the timeout")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise LabError(f"ceph {command}: {self._unread.decode().strip() or 'the ceph command ended'}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().strip()
