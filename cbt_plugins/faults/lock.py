"""One run per cluster: a key in the monitors' store says who is at work."""

from __future__ import annotations

import json
import os
import shlex
import socket
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from ..ceph import Ceph
from . import fence
from .step import FaultError

KEY = "cbt-plugins/run"
QUESTION = f"config-key dump {KEY}"


def started(pid: int) -> Optional[int]:
    """When a process began, in clock ticks since boot; None when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def boot() -> str:
    """This boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Lock:
    """`take` before the first change, `check` before each, `release` at the end."""

    def __init__(self, ceph: Ceph, run_id: str, folder: Path, timeout: float = 30.0) -> None:
        self._ceph, self._timeout = ceph, timeout
        self._mine: Dict[str, Any] = {
            "run": run_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": started(os.getpid()),
            "boot": boot(),
            "archive": str(folder.resolve()),
        }
        # a run that starts us beside its load has the cluster for us too
        self._parent = {"host": socket.gethostname(), "pid": os.getppid(), "started": started(os.getppid())}

    def take(self, name: str, late: Sequence[str] = ()) -> None:
        """Say that we are at work. Raises FaultError when another run is, or was killed and has left its lock.

        `name` of this attempt is unique in the run; `late` are those of earlier ones that may be under way still.
        """
        self._fence(late)
        holder = self._holder()
        if holder and self._is_parents(holder):
            return
        if holder and not self._takeable(holder):
            raise FaultError(explain(holder))
        value = json.dumps({**self._mine, "t": round(time.time(), 3)})
        command = f"{self._ceph.command} config-key set {KEY} {shlex.quote(value)}"
        self._run(fence.inject(name, command, self._timeout), "config-key set")
        self.check()  # two that set it at once: the later one is the holder, for both

    def check(self, dump: Any = None) -> None:
        """Raises FaultError when the cluster is not ours any more. `dump`: the answer to QUESTION, if it is known."""
        holder = self._holder() if dump is None else _holder_in(dump)
        if holder is None:
            raise FaultError(f"somebody has removed this run's lock ({KEY}) from the cluster")
        if not self._is_mine(holder) and not self._is_parents(holder):
            raise FaultError(explain(holder))

    def release(self, late: Sequence[str] = ()) -> None:
        """Take the key away, if it is this run's. Raises FaultError when it cannot be told. `late`: as for `take`."""
        self._fence(late)
        holder = self._holder()
        if holder and holder.get("run") == self._mine["run"]:
            self._ask(f"config-key rm {KEY}")

    def _is_mine(self, holder: Mapping[str, Any]) -> bool:
        return all(holder.get(key) == self._mine[key] for key in ("run", "host", "pid", "started"))

    def _is_parents(self, holder: Mapping[str, Any]) -> bool:
        return all(holder.get(key) == value for key, value in self._parent.items())

    def _takeable(self, holder: Mapping[str, Any]) -> bool:
        """Our own, or left by an earlier process of this very run."""
        return self._is_mine(holder) or (holder.get("run") == self._mine["run"] and gone(holder) is True)

    def _holder(self) -> Optional[Mapping[str, Any]]:
        # `config-key get` of a missing key fails as an unreachable cluster does; a dump of nothing is an answer
        text = self._ask(f"{QUESTION} -f json")
        try:
            return _holder_in(json.loads(text))
        except ValueError:
            raise FaultError(f"ceph {QUESTION}: no answer to be understood: {text[:80]!r}") from None

    def _fence(self, late: Sequence[str]) -> None:
        """Attempts of a process that was killed: wait for one that is under way, and let none begin."""
        for name in late:
            self._run(fence.undo(name, "true", self._timeout, mark=True), "fencing off an earlier attempt")

    def _ask(self, words: str) -> str:
        return self._run(f"{self._ceph.command} {words}", words)

    def _run(self, command: str, what: str) -> str:
        # twice the time: it may have to wait for one that is under way
        limit = 2 * self._timeout
        result = self._ceph.remote.run([self._ceph.head], command, timeout=limit, check=False)[self._ceph.head]
        if result.status:
            why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
            raise FaultError(f"ceph {what} on {self._ceph.head}: {why[0]}")
        return result.stdout


def _holder_in(dump: Any) -> Optional[Mapping[str, Any]]:
    found = dump.get(KEY) if isinstance(dump, dict) else None
    try:
        holder = json.loads(found) if isinstance(found, str) else None
    except ValueError:
        raise FaultError(f"the cluster's key {KEY} holds something that is not ours: {found!r}") from None
    return holder if isinstance(holder, dict) else None


def gone(holder: Mapping[str, Any]) -> Optional[bool]:
    """True when the holder's process is known to be dead, None when it cannot be told from this machine."""
    if holder.get("host") != socket.gethostname():
        return None
    return holder.get("boot") != boot() or started(int(holder.get("pid", 0))) != holder.get("started")


def explain(holder: Mapping[str, Any]) -> str:
    """Who has the cluster, and what can be done."""
    who = f"run {holder.get('run')} (pid {holder.get('pid')} on {holder.get('host')}, archive {holder.get('archive')})"
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(holder.get("t", 0))))
    undo = f"`cbt-tools undo {holder.get('archive')}`"
    dead = gone(holder)
    if dead:
        return f"{who} held the cluster since {since} and is dead: {undo} puts back what it left and frees the cluster"
    if dead is None:
        return f"{who} holds the cluster since {since}; if it is dead, on that host: {undo}"
    return f"{who} is at work on this cluster since {since}"
