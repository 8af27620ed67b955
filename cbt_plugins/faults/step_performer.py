"""Performer of steps: write each step with its undo to disk, make it, see its effect; one fault at a time."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.cluster.fan_out import ask_at_once
from cbt_plugins.cluster_conditions import PREPARED
from cbt_plugins.faults.command_runner import Refused, Runner
from cbt_plugins.faults.step import FaultError, Step, UndoRecord, lots
from cbt_plugins.faults.undo import Event, StillOpen, Undoer
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.polling import Clock, wait_until
from cbt_plugins.signals import deferred

log = logging.getLogger(__name__)


class Performer:
    """Performs steps and undoes them. After `shut` no new step begins, but undo continues."""

    def __init__(self, journal: UndoJournal, runner: Runner, undoer: Undoer, event: Event, clock: Clock) -> None:
        self._journal, self._runner, self._undoer, self._event = journal, runner, undoer, event
        self._clock = clock
        self._shut = False
        #: one lot of steps or undo at a time: faults are injected by a thread beside the load
        self._turn = threading.RLock()
        #: clock of waits that end when the run is stopping
        self.clock = replace(clock, sleep=self._pause)

    @property
    def stopping(self) -> bool:
        """Whether no new step may begin."""
        return self._shut

    def shut(self) -> None:
        """Refuse every new step from now on with a FaultError, in all threads."""
        self._shut = True

    def perform(
        self,
        label: str,
        kind: str,
        steps: Sequence[Step],
        wait: bool = True,
        facts: Optional[Mapping[str, Any]] = None,
        in_force: Callable[[], None] = lambda: None,
    ) -> None:
        """Perform steps; `wait` until the cluster has seen each step, then until `in_force` returns.

        `facts` of a fault go into its events. Raises FaultError, also the one of `in_force`, after undoing all steps.
        """
        if not steps:
            return
        say = {"label": label, "kind": kind, **(facts or {})}
        self._event("fault-inject-begin", **say)
        try:
            done = [record for lot in lots(steps, lambda step: step) for record in self._begin(label, kind, lot)]
            self._event("fault-injected", **say)
            milestones: Dict[str, float] = {}
            for record in done if wait else ():
                self._await(record)
                for name, t in self._runner.milestones(record.step.took).items():
                    milestones[name] = max(t, milestones.get(name, t))
            in_force()
            if wait and facts is not None and all(any(not c.reading for c in step.took) for step in steps):
                self._event("fault-in-effect", label=label, kind=kind, milestones=milestones)
                readings = self._readings(label, done)
                if readings:
                    self._event("fault-readings", label=label, kind=kind, **readings)
        except FaultError as error:
            self._event("fault-failed", **say, why=str(error))
            left = self.undo([label])
            also = f"; still open: {'; '.join(map(str, left))}" if left else "; the steps so far are undone"
            raise FaultError(f"{label}: {error}{also}") from error

    def _readings(self, label: str, records: Sequence[UndoRecord]) -> Dict[str, Dict[str, Any]]:
        """Return name of a reading -> node -> its values; log and add the warnings."""
        readings: Dict[str, Dict[str, Any]] = {}
        for record in records:
            for name, node, reply in self._runner.readings(record.step.took):
                readings.setdefault(name, {})[node] = reply[name]
                for text in reply.get("warnings", ()):
                    log.warning("%s: %s: %s", label, node, text)
                    readings.setdefault("warnings", {}).setdefault(node, []).append(text)
        return readings

    def _begin(self, label: str, kind: str, lot: Sequence[Step]) -> List[UndoRecord]:
        """Make the steps of a lot at the same time; all of them are on disk before the first command."""
        with self._turn:
            self._still_wanted()
            records = []
            for step in lot:
                records.append(self._journal.write_step(label, kind, step))
                self._journal.note("begun", records[-1])
            ask_at_once(*(partial(self._take_step, record) for record in records))
            self._still_wanted()
            return records

    def _take_step(self, record: UndoRecord) -> None:
        step = record.step
        try:
            if step.arm:
                switch = self._runner.inject(record, step.arm).strip()
                if not switch.startswith("armed "):
                    raise FaultError(f"{step.node}: the dead man's switch is not armed: {switch or 'no reply'}")
                self._journal.note("armed", record, switch=switch, fires=round(time.time() + (step.deadline or 0), 3))
            for command in step.inject:
                self._runner.inject(record, command)
        except FaultError as error:
            self._journal.note("failed", record, why=str(error), refused=isinstance(error, Refused))
            raise
        self._journal.note("injected", record)

    def _await(self, record: UndoRecord) -> None:
        took = [check for check in record.step.took if not check.reading]
        wait_until(
            lambda: self._runner.look(took),
            max([check.timeout for check in took], default=0.0),
            self._runner.limits.pause,
            on_late=lambda why: FaultError(f"{record.step.what}: no effect: {why}"),
            met=lambda why: why is None,
            clock=self.clock,
        )
        self._journal.note("confirmed", record)

    def _pause(self, seconds: float) -> None:
        self._still_wanted()
        self._clock.sleep(seconds)

    def _still_wanted(self) -> None:
        if self._shut:
            raise FaultError("the run is stopping; no new faults are injected")

    def confirm(self, labels: Optional[Sequence[str]] = None) -> Dict[str, Optional[str]]:
        """Check once whether faults have taken effect; return label -> None, or the effect that is missing."""
        seen = {r["id"] for r in self._journal.records if r["event"] == "confirmed"}
        missing_by_label: Dict[str, Optional[str]] = {}
        for record in self._journal.still_open():
            if labels is not None and record.label not in labels:
                continue
            why = None if record.id in seen else self._runner.look(record.step.took)
            if why is None and record.id not in seen:
                self._journal.note("confirmed", record)
            missing_by_label[record.label] = missing_by_label.get(record.label) or why
        return missing_by_label

    def undo(self, labels: Sequence[str]) -> List[StillOpen]:
        """Undo the steps with these labels, the last one first; return the steps that are still open."""
        with self._turn:
            return self._undoer.undo([record for record in self._journal.still_open() if record.label in labels])

    def undo_all(self, prepared: bool = False) -> List[StillOpen]:
        """Undo all open steps, also the `prepared` ones if asked to; return the steps that are still open.

        Only the third signal stops this. A step that another thread is making is awaited and undone too.
        """
        with deferred(), self._turn:
            records = self._journal.still_open()
            return self._undoer.undo([record for record in records if prepared or record.kind != PREPARED])
