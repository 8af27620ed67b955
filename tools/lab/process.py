"""Processes by pid and start time: a number that was given to somebody else is never taken for ours."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, TypeVar

from .errors import LabError

T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    """`start`: clock ticks after boot; `namespace`: the pid namespace, as the kernel names it."""

    pid: int
    start: int
    namespace: str

    @classmethod
    def of(cls, pid: int) -> Optional[Process]:
        """The live process of that number; None when there is none (or it is not ours to look at)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return None if stat[0] in "ZX" else cls(pid, int(stat[19]), os.readlink(f"/proc/{pid}/ns/pid"))
        except OSError:
            return None

    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal it, if it is still the same process."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def command(self) -> List[str]:
        """Its argument list, empty when it is gone."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
        except OSError:
            return []

    def memory(self) -> int:
        """Proportional set size in bytes: shared pages count once over all processes."""
        try:
            lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def processes() -> Iterator[Process]:
    """Every process that we may look at."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            found = Process.of(int(entry))
            if found:
                yield found


def by_namespace() -> Dict[str, List[Process]]:
    """One look at /proc: pid namespace -> its processes."""
    found: Dict[str, List[Process]] = {}
    for process in processes():
        found.setdefault(process.namespace, []).append(process)
    return found


def wait_until(condition: Callable[[], T], what: str, seconds: float, pause: float = 0.02) -> T:
    """The first true value of `condition`; LabError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {seconds:g} s")
        time.sleep(pause)
