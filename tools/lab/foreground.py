"""A program in the foreground that undoes what it did when it is interrupted: its end is waited for.

`nsenter` stands between us and a program in a node, and the first signal ends it alone: the program becomes our child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, List, Mapping, Sequence

from .process import default_signals

_PR_SET_CHILD_SUBREAPER = 36


def attend(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program and wait for its end; returns its exit status, or 128 + the signal that ended it.

    Ctrl-C is for the program. It also gets the first SIGTERM, or SIGHUP of a lost terminal, that comes to us alone.
    """
    prctl = ctypes.CDLL(None).prctl
    program = Foreground()
    former = {number: signal.getsignal(number) for number in program.handlers}
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        for number, how in former.items():
            if how is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, program.handlers[number])
        return program.run(argv, environment)
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for number, how in former.items():
            signal.signal(number, how)


class Foreground:
    """The program, by way of the process that we started for it."""

    def __init__(self) -> None:
        self._pid = self._signal = 0
        self._others = set(_children(os.getpid()))
        # A second copy would count as a second signal: a terminal tells all of its processes of Ctrl-C, and only the
        # leader of their session of its own end; shells tell the whole job.
        leads = os.getsid(0) == os.getpid()
        self.handlers: Mapping[int, Any] = {
            signal.SIGINT: signal.SIG_IGN,
            signal.SIGQUIT: signal.SIG_IGN,
            signal.SIGTERM: self._take,
            signal.SIGHUP: self._take if leads else signal.SIG_IGN,
        }

    def run(self, argv: Sequence[str], environment: Mapping[str, str]) -> int:
        process = subprocess.Popen(argv, env=environment, preexec_fn=default_signals)
        self._pid = process.pid
        self._tell()
        status = process.wait()
        for pid in self._adopted():
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status if status >= 0 else 128 - status

    def _take(self, number: int, _: object) -> None:
        if not self._signal:
            self._signal = number
            self._tell()

    def _tell(self) -> None:
        if not self._signal or not self._pid:
            return
        for pid in _children(self._pid) or self._adopted() or [self._pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, self._signal)

    def _adopted(self) -> List[int]:
        return [pid for pid in _children(os.getpid()) if pid != self._pid and pid not in self._others]


def _children(parent: int) -> List[int]:
    """Return the pids of a process's children, also of those that have ended."""
    pids = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == parent:
                pids.append(int(entry))
    return pids
