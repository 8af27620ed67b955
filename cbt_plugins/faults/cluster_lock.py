"""Lock of a cluster, for one run at a time: keys in the monitors' store say who holds it.

Each process that wants the cluster writes a key of its own, `cbt-plugins/run/NAME`, and looks for others only then. Of
two that do so at once at least one sees the other, and whoever sees another removes its own key: both never hold the
cluster, and it may be that neither does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shlex
import socket
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import node_shell
from cbt_plugins.faults.step import FaultError
from cbt_plugins.faults.undo_journal import UndoJournal

#: ours are below it
KEY = "cbt-plugins/run"
#: its reply has every key that begins so
QUESTION = f"config-key dump {KEY}"

#: what a key says: run, host, machine, pid, start of the process, boot, archive, folder, t; {} when it is not ours
Holder = Mapping[str, Any]
#: what keys of an earlier version do not say
_LATER = ("machine", "folder")


def started(pid: int) -> Optional[int]:
    """Return when a process began, in clock ticks since boot; None when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def boot() -> str:
    """Return the ID of this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def machine() -> str:
    """Return a mark that tells this machine from others of its name: a hash of its ID, which is secret."""
    try:
        machine_id = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine_id = ""
    return hashlib.sha256(f"cbt-plugins {machine_id or socket.gethostname()}".encode()).hexdigest()[:16]


class Lock:
    """The lock of one run: `take` it before the first change, `check` it before each, `release` it at the end.

    Who has one has the folder of the run for itself (its journal is locked), so another holder of the same folder on
    this machine is dead.
    """

    def __init__(self, ceph: Ceph, run_id: str, folder: Path, timeout: float = 30.0) -> None:
        self._ceph, self._timeout = ceph, timeout
        facts = folder.stat()
        self.identity: Dict[str, Any] = {
            "run": run_id,
            "host": socket.gethostname(),
            "machine": machine(),
            "pid": os.getpid(),
            "started": started(os.getpid()),
            "boot": boot(),
            "archive": str(folder.resolve()),
            "folder": f"{facts.st_dev}:{facts.st_ino}",
        }
        # a run that starts this process beside its load holds the cluster for it too
        self.parent = {"host": socket.gethostname(), "pid": os.getppid(), "started": started(os.getppid())}

    def fence(self, late: Sequence[str]) -> None:
        """Wait for attempts of a killed process that are under way, and let no other begin. Raises FaultError."""
        for name in late:
            self._run(node_shell.fenced_undo(name, "true", self._timeout, mark=True), "fencing off an earlier attempt")

    def take(self, name: str) -> None:
        """Take the cluster. Raises FaultError when another run has it, or was killed and has left its key.

        `name` of this attempt is unique, among all runs.
        """
        claims = self._claims()
        self._refuse_others(claims)
        self._remove([key for key, holder in claims.items() if self._is_left(holder)])
        value = json.dumps({**self.identity, "t": round(time.time(), 3)})
        command = f"{self._ceph.command} config-key set {KEY}/{name} {shlex.quote(value)}"
        try:
            self._run(node_shell.fenced_inject(name, command, self._timeout), "config-key set")
            self.check(alone=True)
        except (FaultError, KeyboardInterrupt):
            with contextlib.suppress(FaultError):
                back = f"{self._ceph.command} config-key rm {KEY}/{name}"
                self._run(node_shell.fenced_undo(name, back, self._timeout, mark=True), "config-key rm")
            raise

    def check(self, dump: Any = None, alone: bool = False) -> None:
        """Raise FaultError when the cluster is not ours any more. `dump`: the reply to QUESTION, if it is known.

        Others that have just come look as well and give up; with `alone`, they too raise the error.
        """
        claims = self._claims() if dump is None else claims_in(dump)
        mine = any(self._is_mine(holder) for holder in claims.values())
        if alone or not mine:
            self._refuse_others(claims)
        if not mine:
            raise FaultError(f"the lock of this run ({KEY}/...) was removed from the cluster")

    def release(self, late: Sequence[str] = (), force: bool = False) -> None:
        """Remove the keys of this run. Raises FaultError when it is not known whether they are.

        `late`: as for `fence`. `force`: also keys of other machines, whose processes the user knows to be dead.
        """
        self.fence(late)
        self._remove(
            key
            for key, holder in self._claims().items()
            if self._is_left(holder) or (force and self.is_ours(holder) and gone(holder) is None)
        )

    def others(self) -> List[Holder]:
        """Return who has the cluster, or may have, beside this process and dead ones of this run. Raises FaultError."""
        return [holder for holder in self._claims().values() if holder and not self._is_left(holder)]

    def _is_mine(self, holder: Holder) -> bool:
        return all(holder.get(key) == value for key, value in self.identity.items())

    def _is_parents(self, holder: Holder) -> bool:
        return all(holder.get(key) == value for key, value in self.parent.items())

    def is_ours(self, holder: Holder) -> bool:
        """Tell whether a holder is a process of this run, here or on another machine."""
        return holder.get("run") == self.identity["run"] or self._is_here(holder)

    def _is_here(self, holder: Holder) -> bool:
        return _agree(holder, self.identity, "host", "archive", "machine", "folder")

    def _is_left(self, holder: Holder) -> bool:
        """Tell whether a holder is ours, and dead."""
        return self.is_ours(holder) and (gone(holder) is True or self._is_here(holder))

    def _refuse_others(self, claims: Mapping[str, Holder]) -> None:
        for key, holder in sorted(claims.items()):
            if not holder:
                raise FaultError(f"the key {key} of the cluster was not written by cbt-plugins")
            if not self._is_left(holder) and not self._is_parents(holder):
                raise FaultError(explain(holder))

    def _claims(self) -> Dict[str, Holder]:
        # `config-key get` of a missing key fails as an unreachable cluster does; a dump of nothing is an answer
        text = self._ask(f"{QUESTION} -f json")
        try:
            return claims_in(json.loads(text))
        except ValueError:
            raise FaultError(f"ceph {QUESTION}: could not parse the reply: {text[:80]!r}") from None

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._ask(f"config-key rm {key}")

    def _ask(self, words: str) -> str:
        return self._run(f"{self._ceph.command} {words}", words)

    def _run(self, command: str, action: str) -> str:
        # twice the time: the command may have to wait for one that is under way
        limit = 2 * self._timeout
        result = self._ceph.run(command, limit)
        if result.status:
            why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
            raise FaultError(f"ceph {action} on {self._ceph.head}: {why[0]}")
        return result.stdout


class NoLock(Lock):
    """For a run without Ceph's commands: nobody can be asked, and it changes nothing of the cluster."""

    def _claims(self) -> Dict[str, Holder]:
        return {f"{KEY}/none": {**self.identity, "t": time.time()}}

    def _run(self, command: str, action: str) -> str:
        return ""


class Hold:
    """The lock of one run with its attempts: one whose end no process has seen may still have its effect."""

    def __init__(self, journal: UndoJournal, lock: Lock, run_id: str) -> None:
        self._journal, self.lock, self._run_id = journal, lock, run_id

    def take(self) -> None:
        """Take the cluster. Raises FaultError when another run has it."""
        late = self.late()
        self.lock.fence(late)
        for name in late:
            self._journal.say("locked", name=name)
        name = f"{self._run_id}-lock-{secrets.token_hex(4)}"  # unique also in a copy of the folder
        self._journal.say("lock", name=name)
        self.lock.take(name)
        self._journal.say("locked", name=name)

    def release(self, force: bool = False) -> None:
        """Release the cluster. Raises FaultError. `force`: as for `Lock.release`."""
        self.lock.release(self.late(), force)

    def late(self) -> List[str]:
        """Return the names of the attempts whose end was not seen."""
        seen = {"", *(line.get("name") for line in self._journal.records if line["event"] == "locked")}
        attempts = [line for line in self._journal.records if line["event"] == "lock"]
        return [line["name"] for line in attempts if line.get("name", "") not in seen]


def claims_in(dump: Any) -> Dict[str, Holder]:
    """Return key -> holder of a reply to QUESTION."""
    entries = dump if isinstance(dump, dict) else {}
    return {key: _holder(text) for key, text in entries.items() if key.startswith(f"{KEY}/")}


def _holder(text: Any) -> Holder:
    try:
        holder = json.loads(text)
        return holder if isinstance(holder["pid"], int) and isinstance(holder["t"], (int, float)) else {}
    except (TypeError, ValueError, KeyError):
        return {}


def _agree(holder: Mapping[str, Any], mine: Mapping[str, Any], *names: str) -> bool:
    """Tell whether a holder says the same under these names; those of an earlier version lack `_LATER`."""
    return all(holder.get(name) == mine[name] or (name in _LATER and name not in holder) for name in names)


def gone(holder: Mapping[str, Any]) -> Optional[bool]:
    """Return True when the process of a holder is known to be dead, None when that is not known on this machine."""
    if not _agree(holder, {"host": socket.gethostname(), "machine": machine()}, "host", "machine"):
        return None
    return holder.get("boot") != boot() or started(holder["pid"]) != holder.get("started")


def explain(holder: Mapping[str, Any]) -> str:
    """Return who has the cluster, and what can be done."""
    who = f"run {holder.get('run')} (pid {holder.get('pid')} on {holder.get('host')}, archive {holder.get('archive')})"
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["t"]))
    undo = f"`cbt-tools undo {holder.get('archive')}`"
    dead = gone(holder)
    if dead:
        after = f"the command of that run resumes it; {undo} undoes its changes and removes its pools with all data"
        return f"{who} held the cluster since {since} and is dead: {after}"
    if dead is None:
        return f"{who} has held the cluster since {since}; if that run is dead, run on that host: {undo}"
    return f"{who} has been using this cluster since {since}"
