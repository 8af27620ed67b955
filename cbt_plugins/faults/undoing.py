"""Undoes steps and sees that they are undone, whatever fails on the way: a command, a node, the disk of the journal."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple

from cbt_plugins.faults.record import Record, UndoJournal
from cbt_plugins.faults.runner import Clock, Runner
from cbt_plugins.faults.scene import Limits

log = logging.getLogger(__name__)

SETTINGS, RECOVERY = "settings", "recovery"

Event = Callable[..., None]


@dataclass(frozen=True)
class StillOpen:
    """What could not be undone, or not be seen to be: `commands` are for a human."""

    label: str
    what: str
    why: str
    commands: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.label}: {self.what}: {self.why}"


class Undoing:
    """Of one run's journal."""

    def __init__(self, journal: UndoJournal, runner: Runner, event: Event, limits: Limits, clock: Clock) -> None:
        self._journal, self._runner, self._event = journal, runner, event
        self._limits, self._clock = limits, clock

    def undo(self, records: Sequence[Record]) -> List[StillOpen]:
        """The last one first, each until it is seen to be undone; returns what is not. A failure stops no other."""
        left: List[StillOpen] = []
        waiting = {record.label: sum(r.label == record.label for r in records) for record in records}
        begun = set()
        for record in reversed(records):
            label = record.label
            if label not in begun:
                begun.add(label)
                self._tell("fault-undo-begin", label=label, kind=record.kind, osds=list(record.step.osds))
            try:
                why = self._undo_one(record)
            except Exception as error:  # a bug: the others must be undone all the same
                log.exception("undo of %s", record.step.what)
                why = f"{type(error).__name__}: {error}"
            if why is None:
                waiting[label] -= 1
                if not waiting[label]:
                    self._tell("fault-undone", label=label, kind=record.kind, osds=list(record.step.osds))
                continue
            commands = tuple(map(str, (*record.step.undo, *record.step.checks)))
            left.append(StillOpen(label, record.step.what, why, commands))
            self._tell("fault-failed", label=label, kind=record.kind, why=why)
            log.error("not undone: %s: %s: %s", label, record.step.what, why)
        return left

    def _tell(self, name: str, **facts: Any) -> None:
        """An event, if it can be written: nothing of it is needed for an undo."""
        try:
            self._event(name, **facts)
        except (OSError, ValueError) as error:
            log.error("%s %s could not be written down: %s", name, facts.get("label"), error)

    def _note(self, event: str, record: Record, **facts: Any) -> Optional[str]:
        """None, or why it could not be written."""
        try:
            self._journal.note(event, record, **facts)
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def _undo_one(self, record: Record) -> Optional[str]:
        """None when the cluster is seen to be as before, else why not."""
        self._note("undo", record)
        log.info("undo: %s", record.step.what)
        if record.kind in (SETTINGS, RECOVERY):
            self._tell_foreign(record)
        now = self._clock.now()
        sent = now - record.age(time.time())
        patience = max((check.patience for check in record.step.checks), default=0.0)
        if record.step.deadline is not None:  # it heals itself at the latest then
            patience = min(patience, max(0.0, record.at + record.step.deadline - time.time()) + self._limits.back)
        until, again = now + patience, now + self._limits.again
        well_since: Optional[float] = None
        looks, todo, said = 0, list(record.step.undo), ""
        while True:
            results = [(command, self._runner.undo(record, command, self._healed)) for command in todo]
            todo = [command for command, result in results if result]
            said = next((result.why for _, result in results if result), said if todo else "")
            # One that never arrived may have left its fault's own command to come after it.
            lost = any(result.lost for _, result in results if result)
            different = self._runner.look(record.step.counting(self._clock.now() - sent, record.refused))
            now, looks = self._clock.now(), looks + 1
            well_since = None if different else now if well_since is None else well_since
            # One that failed is not needed where all is well, but the cluster's map may be behind for a while.
            if well_since is not None and not lost and (not todo or now - well_since >= self._limits.doubt):
                failed = self._note("undone", record)
                return f"it is undone, but that could not be written down: {failed}" if failed else None
            # A command that hangs may use up all of the time: it is tried once more.
            if now >= until and looks > 1 and (well_since is None or lost):
                return "; ".join(filter(None, (said, different)))
            if now >= again:
                again, todo = now + self._limits.again, list(record.step.undo)
            self._clock.sleep(self._limits.pause)

    def _tell_foreign(self, record: Record) -> None:
        for what, was, back in self._runner.foreign(record):
            self._note("overwritten", record, what=what, was=was, back=back)
            self._tell("setting-overwritten", label=record.label, kind=record.kind, what=what, was=was, back=back)
            log.warning("%s was set to %s by somebody else during the run; it goes back to %s", what, was, back)

    def _healed(self, record: Record, at: float) -> None:
        """A switch on a node had fired, at a time in epoch seconds, before it was disarmed."""
        at = round(at, 3)
        self._note("healed", record, at=at)
        self._tell("fault-healed", label=record.label, kind=record.kind, osds=list(record.step.osds), at=at)
