"""Executes commands and checks: on a node through the project's own connections, or on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple

from cbt_plugins.cluster.remote import Remote, RemoteError, Result
from cbt_plugins.faults import deadman, fence
from cbt_plugins.faults.record import Record
from cbt_plugins.faults.scene import Limits
from cbt_plugins.faults.step import Check, Command, FaultError


@dataclass(frozen=True)
class Clock:
    """Injected into every wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


#: exit statuses of commands that may not have begun: no connection, or cut short
_LOST = (124, 137, 255)


class Refused(FaultError):
    """A command has come to its end, and says that it failed."""


@dataclass(frozen=True)
class Failure:
    """Why an undo's command failed. `lost`: it may not have begun, and its fault's command not have ended."""

    why: str
    lost: bool


Healed = Callable[[Record, float], None]


class Runner:
    """One command at a time. `run_id` keeps what it leaves on nodes apart from other runs'."""

    def __init__(self, remote: Remote, run_id: str, limits: Limits) -> None:
        self.remote, self.limits = remote, limits
        self._run_id = run_id

    def inject(self, record: Record, command: Command) -> str:
        """Do it, unless its undo has begun meanwhile; what it printed.

        Raises FaultError; it may have been done all the same then.
        """
        text = fence.inject(self._name(record), command.text, self.limits.quick)
        result = self._run(command, text)
        if result.status:
            kind = FaultError if result.status in _LOST else Refused
            raise kind(f"{command}: {_why(result)}")
        return result.stdout

    def undo(self, record: Record, command: Command, healed: Healed) -> Optional[Failure]:
        """Do it; None, or why it failed.

        `healed` is told when the node had healed itself before, in epoch seconds.
        """
        mark = record.begun and not record.ended
        wait = self.limits.slow if mark else self.limits.quick
        try:
            result = self._run(command, fence.undo(self._name(record), command.text, wait, mark), wait)
        except FaultError as error:
            return Failure(str(error), lost=True)
        ago = deadman.fired(result.stdout)
        if ago is not None:
            healed(record, time.time() - ago)
        if not result.status:
            return None
        return Failure(f"{command.node or 'here'}: {_why(result)}", mark and result.status in _LOST)

    def look(self, checks: Sequence[Check]) -> Optional[str]:
        """None when all are so, else what is otherwise."""
        for check in checks:
            try:
                result = self._run(Command(check.node, check.text, self.limits.quick, check.root), check.text)
            except FaultError as error:
                return str(error)
            different = check.differs(result.stdout)
            if different:
                return f"{check.node}: {different}" + (f" ({_why(result)})" if result.status else "")
        return None

    def foreign(self, record: Record) -> List[Tuple[str, Any, Any]]:
        """What others have set since the step: (what, its value, the one before the step). No answer is no news."""
        found: List[Tuple[str, Any, Any]] = []
        for check in record.step.took:
            with contextlib.suppress(FaultError):
                command = Command(check.node, check.text, self.limits.quick, check.root)
                found += record.step.foreign(check, self._run(command, check.text).stdout)
        return found

    def _name(self, record: Record) -> str:
        return f"{self._run_id}-{record.id}"

    def _run(self, command: Command, text: str, more: float = 0.0) -> Result:
        if command.root:
            text = fence.sudo(text)
        absent = [name for name in command.secrets if not os.environ.get(name)]
        if absent:
            raise FaultError(f"{command}: the environment has no {', '.join(absent)}")
        limit = command.timeout + more
        if command.node:
            try:
                return self.remote.run([command.node], text, timeout=limit, check=False)[command.node]
            except (RemoteError, OSError) as error:
                raise FaultError(f"{command}: {error}") from error
        return _hide(_here(text, limit), [os.environ[name] for name in command.secrets])


def _here(text: str, limit: float) -> Result:
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
    said = lines[-1] if lines else ""
    if result.status == fence.TOO_LATE:
        said = said or "its undo has begun"
    if result.status == 124:
        return f"not done in time{': ' + said if said else ''}"
    return f"exit status {result.status}{': ' + said if said else ''}"
