"""Runner of commands and checks: on nodes through the connections of the run, or on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import TIMED_OUT, Ceph
from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.cluster.transports.transport import UNREACHABLE, Result
from cbt_plugins.faults import node_shell
from cbt_plugins.faults.cluster_facts import upmaps_in
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, FaultError, UndoRecord


class Way(NamedTuple):
    """The way to the cluster: the node and the commands for Ceph's programs."""

    head: str
    ceph: str
    admin: str  # radosgw-admin

    @classmethod
    def of(cls, ceph: Ceph) -> Way:
        """Return the way of a connection."""
        return cls(ceph.head, ceph.command, ceph.admin)

    def forms(self) -> Iterator[str]:
        """Yield each command as it stands in recorded commands: inside a word of a shell, as a word, and alone."""
        for command in (self.ceph, self.admin):
            inside = shlex.quote(f"{command} ")[1:-2]  # text without a space might get no quotes
            yield from (inside, shlex.quote(command), command)


#: checks that the head answers at the same time: the undo of many nodes should not disturb the load
_FEW = 4
#: exit statuses of commands that may not have begun: no connection, or cut short
_LOST = (TIMED_OUT, 137, UNREACHABLE)


class Refused(FaultError):
    """A command that ended with an error."""


@dataclass(frozen=True)
class Failure:
    """The failure of an undo command. `lost`: it may not have begun, and the fault's command may still run."""

    why: str
    lost: bool


SwitchFired = Callable[[UndoRecord, float], None]


class Runner:
    """Runs commands, also for several threads at once.

    `run_id` marks its files on nodes, since other runs may have files there too.
    A recorded command that uses one of the `former` ways to the cluster is changed to use the present way.
    """

    def __init__(self, ceph: Ceph, run_id: str, limits: ClusterLimits, former: Sequence[Way] = ()) -> None:
        self._ceph, self.limits = ceph, limits
        self._run_id, self._former = run_id, former
        self._looks = threading.BoundedSemaphore(_FEW)

    def inject(self, record: UndoRecord, command: Command) -> str:
        """Run a command of a step, unless its undo has begun; return its output.

        Raises FaultError; a failed command may have taken effect nevertheless.
        """
        text = node_shell.fenced_inject(self._name(record), command.text, self.limits.quick)
        result = self._run(command, text, is_fenced=True)
        if result.status:
            kind = FaultError if result.status in _LOST else Refused
            raise kind(f"{command}: {_why(result)}")
        return result.stdout

    def undo(self, record: UndoRecord, command: Command, tell_switch_fired: SwitchFired) -> Optional[Failure]:
        """Run a command of an undo; return None, or its failure.

        `tell_switch_fired` gets the time, in epoch seconds, at which the node had recovered by itself.
        """
        command = self.for_present_head(command)
        mark = record.begun and not record.ended
        wait = self.limits.slow if mark else self.limits.quick
        text = node_shell.fenced_undo(self._name(record), command.text, wait, mark)
        try:
            result = self._run(command, text, wait, is_fenced=True)
        except FaultError as error:
            return Failure(str(error), lost=True)
        ago = node_shell.fired(result.stdout)
        if ago is not None:
            tell_switch_fired(record, time.time() - ago)
        if not result.status:
            return None
        return Failure(f"{command.node or 'here'}: {_why(result)}", mark and result.status in _LOST)

    def look(self, checks: Sequence[Check]) -> Optional[str]:
        """Return None when all checks hold, else the first difference."""
        for check in checks:
            try:
                result = self._ask(check)
            except FaultError as error:
                return str(error)
            different = check.differs(result.stdout)
            if different:
                return f"{check.node or 'here'}: {different}" + (f" ({_why(result)})" if result.status else "")
        return None

    def holds(self, check: Check, limit: float) -> bool:
        """Return whether a check holds; False also without a reply within so many seconds."""
        with contextlib.suppress(FaultError):
            return check.differs(self._ask(check, limit).stdout) is None
        return False

    def milestones(self, checks: Sequence[Check]) -> Dict[str, float]:
        """Return milestone -> when it was reached, in epoch seconds of this machine's clock."""
        milestones: Dict[str, float] = {}
        for check in checks:
            if check.milestone:
                with contextlib.suppress(FaultError, ValueError):
                    at, now = map(float, self._ask(check).stdout.split())
                    milestones[check.milestone] = round(time.time() - max(0.0, now - at), 3)
        return milestones

    def readings(self, checks: Sequence[Check]) -> Iterator[Tuple[str, str, Mapping[str, Any]]]:
        """Yield the name of each reading, its node, and the reply to its check; no reply without it."""
        for check in checks:
            if check.reading:
                with contextlib.suppress(FaultError, ValueError):
                    reply = json.loads(self._ask(check).stdout)
                    if isinstance(reply, dict) and check.reading in reply:
                        yield check.reading, check.node, reply

    def overwritten(self, record: UndoRecord) -> List[Tuple[str, Any, Any]]:
        """Return values that others have set since: (name, value, value before the step); () without a reply."""
        values: List[Tuple[str, Any, Any]] = []
        for check in record.step.took:
            with contextlib.suppress(FaultError):
                values += record.step.overwritten(check, self._ask(check).stdout)
        return values

    def missing_entries(self, record: UndoRecord) -> List[str]:
        """Return the pools (or other objects) that a step changed and that no longer exist; () without a reply."""
        names: List[str] = []
        for check in record.step.checks:
            if check.may_go:
                with contextlib.suppress(FaultError):
                    names += check.missing_entries(self._ask(check).stdout)
        return list(dict.fromkeys(names))

    def lost_upmaps(self, former: Mapping[str, Sequence[Sequence[int]]]) -> List[str]:
        """Return the PGs whose upmap entries have lost pairs that they had before; () without a reply."""
        with contextlib.suppress(FaultError, ValueError, LookupError, TypeError):
            question = Check(self._ceph.head, f"{self._ceph.command} osd dump -f json", ())
            present = upmaps_in(json.loads(self._ask(question).stdout))
            return [pg for pg, pairs in former.items() if any(list(pair) not in present.get(pg, []) for pair in pairs)]
        return []

    def for_present_head(self, command: Command) -> Command:
        """Return a command for the present head; a command that no former way to the cluster is part of stays as is."""
        now = Way.of(self._ceph)
        present_forms = {
            form: present
            for way in (*self._former, now)
            if way.head == command.node and not command.root
            for form, present in zip(way.forms(), now.forms())
        }
        # one command may be a part of another, such as `ceph` of `sudo ceph`
        pattern = "|".join(re.escape(form) for form in sorted(present_forms, key=len, reverse=True))
        if not pattern or not re.search(pattern, command.text):
            return command
        return replace(command, node=now.head, text=re.sub(pattern, lambda m: present_forms[m[0]], command.text))

    def _ask(self, check: Check, limit: Optional[float] = None) -> Result:
        command = self.for_present_head(Command(check.node, check.text, limit or self.limits.quick, check.root))
        if command.node != self._ceph.head:
            return self._run(command, command.text)
        with self._looks:
            return self._run(command, command.text)

    def _name(self, record: UndoRecord) -> str:
        return f"{self._run_id}-{record.id}"

    def _run(self, command: Command, text: str, extra_time: float = 0.0, is_fenced: bool = False) -> Result:
        if command.root:
            text = node_shell.sudo(text)
        absent = [name for name in command.secrets if not os.environ.get(name)]
        if absent:
            raise FaultError(f"{command}: not set in the environment: {', '.join(absent)}")
        limit = command.timeout + extra_time
        if command.node:
            try:
                if command.node == self._ceph.head and command.timeout < self.limits.slow:
                    return self._ceph.run(text, limit, may_wait=is_fenced)
                return self._ceph.remote.run([command.node], text, timeout=limit, check=False)[command.node]
            except (RemoteError, OSError) as error:
                raise FaultError(f"{command}: {error}") from error
        return _hide(run_here(text, limit), [os.environ[name] for name in command.secrets])


def run_here(text: str, limit: float) -> Result:
    """Run a shell command on this machine, for at most so many seconds."""
    line = ["timeout", "-k", "5", f"{limit:g}", "sh", "-c", text]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False)
    except OSError as error:
        return Result("", str(error), 127)
    return Result(done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), abs(done.returncode))


def _hide(result: Result, secrets: Sequence[str]) -> Result:
    out, err = result.stdout, result.stderr
    for secret in secrets:
        out, err = out.replace(secret, "***"), err.replace(secret, "***")
    return Result(out, err, result.status)


def _why(result: Result) -> str:
    lines: List[str] = [line for line in result.stderr.strip().splitlines() if line.strip()]
    reason = lines[-1] if lines else ""
    if result.status == node_shell.TOO_LATE:
        reason = reason or "the undo of the command ran before the command began"
    if result.status == TIMED_OUT:
        return f"timed out{': ' + reason if reason else ''}"
    return f"exit status {result.status}{': ' + reason if reason else ''}"
