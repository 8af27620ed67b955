"""Lock of a cluster, for one run at a time: keys in the monitors' store name the holder.

Each process that wants the cluster writes a key of its own, `cbt-plugins/run/NAME`, and then looks for keys of other
processes. If it finds one, it removes its own key. Of two simultaneous processes at least one finds the other's key:
never do both hold the cluster, but possibly neither does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import shlex
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import node_shell
from cbt_plugins.faults.step import FaultError
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.journal import JournalError

log = logging.getLogger(__name__)

#: our keys begin with this
KEY = "cbt-plugins/run"
#: its reply has every key with this beginning
QUESTION = f"config-key dump {KEY}"

#: event of the journal: no key of the run is left
UNLOCKED = "unlocked"
#: the content of a key: run, host, machine, pid, start of the process, boot, archive, folder, t; {} for foreign keys
Holder = Mapping[str, Any]
#: epoch seconds that no holder has: a time in the year 5138
_LATEST = 1e11
#: entries that keys of an earlier version do not have
_LATER = ("machine", "folder")


def started(pid: int) -> Optional[int]:
    """Return the start time of a process, in clock ticks since boot; None when there is no such process, or a zombie.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def boot() -> str:
    """Return the ID of this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def machine_hash() -> str:
    """Return a hash of this machine's ID, which tells it from machines of the same name. The ID itself is secret."""
    try:
        machine_id = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine_id = ""
    return hashlib.sha256(f"cbt-plugins {machine_id or socket.gethostname()}".encode()).hexdigest()[:16]


class Lock:
    """The lock of one run: `take` it before the first change, `check` it before each, `release` it at the end.

    Of a holder on this machine it is known whether its process lives. One that lives keeps the cluster, whatever became
    of its folder.
    """

    def __init__(self, ceph: Ceph, run_id: str, folder: Path, timeout: float = 30.0) -> None:
        self._ceph, self._timeout = ceph, timeout
        facts = folder.stat()
        self.identity: Dict[str, Any] = {
            "run": run_id,
            "host": socket.gethostname(),
            "machine": machine_hash(),
            "pid": os.getpid(),
            "started": started(os.getpid()),
            "boot": boot(),
            "archive": str(folder.resolve()),
            "folder": f"{facts.st_dev}:{facts.st_ino}",
        }
        # a run that starts this process beside its load holds the cluster for this process too
        self.parent = {"host": socket.gethostname(), "pid": os.getppid(), "started": started(os.getppid())}

    def fence(self, late: Sequence[str]) -> None:
        """Wait for running attempts of a killed process, and prevent later ones. Raises FaultError."""
        for name in late:
            command = node_shell.fenced_undo(name, "true", self._timeout, mark=True)
            self._run(command, "stopping an attempt of this run to lock the cluster")

    def take(self, name: str, before: Callable[[], None] = lambda: None) -> None:
        """Lock the cluster. Raises FaultError when another run holds it, or was killed and has left its key.

        `name`: of this attempt, unique among all runs. `before` is called before a key can be written.
        """
        claims = self._claims()
        self._refuse_others(claims)
        self._remove([key for key, holder in claims.items() if self._is_left(holder)])
        before()
        value = json.dumps({**self.identity, "t": round(time.time(), 3)})
        command = f"{self._ceph.command} config-key set {KEY}/{name} {shlex.quote(value)}"
        try:
            self._run(node_shell.fenced_inject(name, command, self._timeout), "ceph config-key set")
            self.check(alone=True)
        except (FaultError, KeyboardInterrupt):
            with contextlib.suppress(FaultError):
                back = f"{self._ceph.command} config-key rm {KEY}/{name}"
                self._run(node_shell.fenced_undo(name, back, self._timeout, mark=True), "ceph config-key rm")
            raise

    def check(self, dump: Any = None, alone: bool = False) -> None:
        """Raise FaultError when this run does not hold the cluster any more. `dump`: the reply to QUESTION, if known.

        With `alone`, any other holder is an error; without, a process that has just written its key will give up.
        """
        claims = self._claims() if dump is None else claims_in(dump)
        mine = any(self._is_mine(holder) for holder in claims.values())
        if alone or not mine:
            self._refuse_others(claims)
        if not mine:
            raise FaultError(f"the lock of this run ({KEY}/...) was removed from the cluster")

    def release(self, late: Sequence[str] = (), force: bool = False) -> None:
        """Remove the keys of this run. Raises FaultError when the removal is not confirmed.

        `late`: as for `fence`. `force`: also keys of processes on other machines, which the user knows to be dead.
        """
        self.fence(late)
        self._remove(
            key
            for key, holder in self._claims().items()
            if self._is_left(holder) or (force and self.is_ours(holder) and gone(holder) is None)
        )

    def others(self) -> List[Holder]:
        """Return the possible holders of the cluster but this process and dead ones of its run. Raises FaultError."""
        return [holder for holder in self._claims().values() if holder and not self._is_left(holder)]

    def living(self) -> Optional[Holder]:
        """Return the process of this run that holds the cluster and is not known to be dead.

        There is one when the folder of the run is a copy, or shared by machines. An undo would undo the changes of that
        process. Other runs, and a cluster that does not answer, do not keep a run from its undo: they are warnings.
        """
        try:
            holders = self.others()
        except FaultError as error:
            log.warning("it is unknown whether a run is using the cluster; undoing nevertheless: %s", error)
            return None
        for holder in holders:
            if self._is_parents(holder):
                continue
            if self.is_ours(holder):
                return holder
            log.warning("%s; undoing the changes of this run nevertheless", explain(holder))
        return None

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
        """Tell whether a holder is a dead process of this run, or this process."""
        return self.is_ours(holder) and (gone(holder) is True or self._is_mine(holder))

    def _refuse_others(self, claims: Mapping[str, Holder]) -> None:
        for key, holder in sorted(claims.items()):
            if not holder:
                raise FaultError(f"the key {key} of the cluster was not written by cbt-plugins")
            if not self._is_left(holder) and not self._is_parents(holder):
                raise FaultError(explain(holder))

    def _claims(self) -> Dict[str, Holder]:
        # `config-key get` of a missing key fails just as an unreachable cluster does; an empty dump is a clear answer
        text = self._ask(f"{QUESTION} -f json")
        try:
            return claims_in(json.loads(text))
        except ValueError:
            raise FaultError(f"ceph {QUESTION}: could not parse the reply: {text[:80]!r}") from None

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._ask(f"config-key rm {shlex.quote(key)}")  # whoever may write keys chose its name

    def _ask(self, words: str) -> str:
        return self._run(f"{self._ceph.command} {words}", f"ceph {words}")

    def _run(self, command: str, action: str) -> str:
        # twice the time: the command may have to wait for a running one
        limit = 2 * self._timeout
        result = self._ceph.run(command, limit)
        if result.status:
            why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
            raise FaultError(f"{action} on {self._ceph.head}: {why[0]}")
        return result.stdout


class NoLock(Lock):
    """The lock of a run without Ceph's commands, which cannot lock the cluster and does not change it."""

    def _claims(self) -> Dict[str, Holder]:
        return {f"{KEY}/none": {**self.identity, "t": time.time()}}

    def _run(self, command: str, action: str) -> str:
        return ""


class Hold:
    """The lock of one run with its attempts: an attempt whose end was not seen may still take effect."""

    def __init__(self, journal: UndoJournal, lock: Lock, run_id: str) -> None:
        self._journal, self.lock, self._run_id = journal, lock, run_id

    def take(self) -> None:
        """Lock the cluster. Raises FaultError when another run holds it."""
        late = self.late()
        self.lock.fence(late)
        for name in late:
            self._journal.say("locked", name=name)
        name = f"{self._run_id}-lock-{secrets.token_hex(4)}"  # unique also in a copy of the folder
        self.lock.take(name, lambda: self._journal.say("lock", name=name))
        self._journal.say("locked", name=name)

    def release(self, force: bool = False) -> None:
        """Unlock the cluster. Raises FaultError. `force`: as for `Lock.release`."""
        if not was_attempted(self._journal.records):
            return
        self.lock.release(self.late(), force)
        if may_be_locked(self._journal.records):
            with contextlib.suppress(JournalError, OSError):  # the cluster is free, also with a full disk
                self._journal.say(UNLOCKED)

    def late(self) -> List[str]:
        """Return the names of the attempts whose end was not seen."""
        seen = {"", *(line.get("name") for line in self._journal.records if line["event"] == "locked")}
        attempts = [line for line in self._journal.records if line["event"] == "lock"]
        return [line["name"] for line in attempts if line.get("name", "") not in seen]


def was_attempted(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a run may have locked the cluster: before its first change at the latest."""
    return any(line["event"] in ("lock", "open") for line in lines)


def may_be_locked(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether the journal of a run has an attempt to lock the cluster without a release since."""
    events = [line["event"] for line in lines if line["event"] in ("lock", UNLOCKED)]
    return events[-1:] == ["lock"]


def claims_in(dump: Any) -> Dict[str, Holder]:
    """Return key -> holder, from a reply to QUESTION."""
    entries = dump if isinstance(dump, dict) else {}
    return {key: _holder(text) for key, text in entries.items() if key.startswith(f"{KEY}/")}


def _holder(text: Any) -> Holder:
    try:
        holder = json.loads(text)
        is_whole = isinstance(holder["pid"], int) and isinstance(holder["t"], (int, float))
        return holder if is_whole and 0 <= holder["t"] < _LATEST else {}
    except (TypeError, ValueError, KeyError, RecursionError):
        return {}


def _agree(holder: Mapping[str, Any], mine: Mapping[str, Any], *names: str) -> bool:
    """Tell whether a holder has the same values for these names. Holders of an earlier version lack `_LATER`."""
    return all(holder.get(name) == mine[name] or (name in _LATER and name not in holder) for name in names)


def gone(holder: Mapping[str, Any]) -> Optional[bool]:
    """Return True if the process of a holder is dead, False if it lives, None if this machine cannot know."""
    if not _agree(holder, {"host": socket.gethostname(), "machine": machine_hash()}, "host", "machine"):
        return None
    return holder.get("boot") != boot() or started(holder["pid"]) != holder.get("started")


def explain(holder: Mapping[str, Any]) -> str:
    """Return a message: who holds the cluster, and what to do."""
    who = f"run {holder.get('run')} (pid {holder.get('pid')} on {holder.get('host')}, archive {holder.get('archive')})"
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(holder["t"]))
    undo = f"`cbt-tools undo {holder.get('archive')}`"
    dead = gone(holder)
    if dead:
        after = f"to undo its changes and remove its pools with all data: {undo}"
        ended = f"{who} has held the cluster since {since}, but its process has ended"
        return f"{ended}: to resume the run, start the command of the run again; {after}"
    if dead is None:
        return f"{who} has held the cluster since {since}; if its process has ended, on that host: {undo}"
    return f"{who} has been using this cluster since {since}"
