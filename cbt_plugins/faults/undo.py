"""Undo of steps, the last lot first; each undo is repeated until the cluster is as before.

An undo continues after any failure: of a command, a node, or the disk of the journal.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.cluster.fan_out import Pending, ask_at_once
from cbt_plugins.cluster_conditions import OVERWRITTEN, PG_NUM, RECOVERY, SETTINGS
from cbt_plugins.faults.command_runner import Runner, SwitchFired
from cbt_plugins.faults.scene import UPMAPS, ClusterLimits
from cbt_plugins.faults.step import Check, UndoRecord, lots
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.journal import tell
from cbt_plugins.polling import Clock, wait_until

log = logging.getLogger(__name__)

Event = Callable[..., None]

#: seconds for all questions before an undo whether its faults are still in force; they delay the undo by no more
_LOOKS = 2.0


def questions_before_undo(record: UndoRecord) -> Sequence[Check]:
    """Return the questions whose replies tell what others have set since."""
    return record.step.took if record.kind in (SETTINGS, RECOVERY) else ()


@dataclass(frozen=True)
class StillOpen:
    """A step whose undo failed or was not seen. `commands`: for an undo by hand."""

    label: str
    change: str
    why: str
    commands: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.label}: {self.change}: {self.why}"


class Undoer:
    """Undoes steps of one journal."""

    def __init__(self, journal: UndoJournal, runner: Runner, event: Event, limits: ClusterLimits, clock: Clock) -> None:
        self._journal, self._runner, self._event = journal, runner, event
        self._limits, self._clock = limits, clock
        self._earlier = {record.id for record in journal.still_open()}  # of another process

    def undo(self, records: Sequence[UndoRecord]) -> List[StillOpen]:
        """Undo steps, the last lot first, and wait until each undo is seen; return the steps that are still open."""
        left: List[StillOpen] = []
        self._tell_ended(records)
        waiting = {record.label: sum(r.label == record.label for r in records) for record in records}
        begun = set()
        for lot in map(self._spare_held, _lots(records)):
            label, kind = lot[0].label, lot[0].kind
            if label not in begun:
                begun.add(label)
                self._tell("fault-undo-begin", label=label, kind=kind, osds=list(lot[0].step.osds))
            for record, why in zip(lot, self._undo_lot(lot)):
                if why is None:
                    waiting[label] -= 1
                    if not waiting[label]:
                        self._tell("fault-undone", label=label, kind=kind, osds=list(record.step.osds))
                        self._tell_lost_upmaps([record for record in records if record.label == label])
                    continue
                commands = tuple(map(str, (*record.step.undo, *record.step.checks)))
                left.append(StillOpen(label, record.step.what, why, commands))
                self._tell("fault-failed", label=label, kind=kind, why=why)
                log.error("not undone: %s: %s: %s", label, record.step.what, why)
        return left

    def _spare_held(self, lot: List[UndoRecord]) -> List[UndoRecord]:
        """Return the steps with undos that leave out the values of OSDs which the undo of another open fault restores.

        A fault of links that is light enough leaves its OSDs to other faults, but its undo starts OSDs that have ended.
        """
        shared = {value for record in lot for command in record.step.undo for value, _ in command.parts}
        if not shared:
            return lot
        open_records = [record for record in self._journal.still_open() if record.label != lot[0].label]
        held = {value: record.label for record in open_records for value in record.step.restored}
        for osd, name in sorted(shared & set(held)):
            text = "%s: the undo leaves out `%s` of osd.%d, which the undo of %s restores"
            log.info(text, lot[0].label, name, osd, held[osd, name])
        return [replace(record, step=record.step.without(held)) for record in lot]

    def _tell_ended(self, records: Sequence[UndoRecord]) -> None:
        """Write the event `fault-ended` for each step that is no longer in force although nobody has undone it.

        The nodes are asked before the first undo command, because an undo may start the daemons of another step. They
        are not asked about a step that this process has not seen in effect, that somebody has tried to undo, or whose
        dead man's switch may have fired.
        """
        events = {(line["event"], line.get("id")) for line in self._journal.records}
        looks: List[Tuple[UndoRecord, Pending[bool]]] = []
        for record in records:
            tried = record.id in self._earlier or ("undo", record.id) in events
            if tried or ("confirmed", record.id) not in events or record.switch_is_near(time.time() + 2 * _LOOKS):
                continue
            looks += [(record, Pending(partial(self._runner.holds, look, _LOOKS))) for look in record.step.ended_early]
        # one at a node that does not answer ends later, and is not waited for
        wait_until(lambda: all(look.is_done for _, look in looks), _LOOKS, 0.02)
        ended: Dict[str, UndoRecord] = {}
        for record, look in looks:
            try:
                if look.is_done and look.get():
                    ended[record.id] = record
            except Exception:  # a bug; the undo must begin
                log.exception("before the undo of %s", record.step.what)
        for record in ended.values():
            log.warning("%s: no longer in force before the undo: %s", record.label, record.step.what)
            self._tell("fault-ended", label=record.label, kind=record.kind, what=record.step.what)

    def _tell(self, name: str, **facts: Any) -> None:
        tell(self._event, name, **facts)

    def _note(self, event: str, record: UndoRecord, **facts: Any) -> Optional[str]:
        """Write a line of the journal; return None, or the error."""
        try:
            self._journal.note(event, record, **facts)
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def _undo_lot(self, lot: Sequence[UndoRecord]) -> List[Optional[str]]:
        """Undo steps at the same time; return for each None when the cluster is as before, else the difference.

        Each step has a thread: a node that does not answer delays no other. After an interrupt these threads end.
        """
        aborted = threading.Event()
        try:
            undo = partial(self._undo_step, aborted=aborted)
            return ask_at_once(*(partial(_safely, record, partial(undo, record)) for record in lot))
        finally:
            aborted.set()

    def _undo_step(self, record: UndoRecord, aborted: threading.Event) -> Optional[str]:
        attempt = self._begin(record)
        wait_until(lambda: aborted.is_set() or attempt.is_over(), math.inf, self._limits.pause, clock=self._clock)
        return "aborted" if aborted.is_set() else self._close(record, attempt)

    def _begin(self, record: UndoRecord) -> _Attempt:
        self._note("undo", record)
        if record.step.undo:  # a command of the user may have no undo
            log.info("undo: %s", record.step.what)
        if questions_before_undo(record):
            self._tell_overwritten(record)
        attempt = _Attempt(record, self._runner, self._limits, self._clock, self._tell_switch_fired)
        attempt.begin()
        return attempt

    def _close(self, record: UndoRecord, attempt: _Attempt) -> Optional[str]:
        if attempt.why is not None:
            return attempt.why
        for name in self._runner.missing_entries(record):
            log.warning("%s no longer exists, so its former values cannot be restored (%s)", name, record.step.what)
        failed = self._note("undone", record)
        return f"undone, but the journal could not be written: {failed}" if failed else None

    def _tell_overwritten(self, record: UndoRecord) -> None:
        for setting, was, back in self._runner.overwritten(record):
            self._note("overwritten", record, what=setting, was=was, back=back)
            self._tell(OVERWRITTEN, label=record.label, kind=record.kind, what=setting, was=was, back=back)
            by = "the autoscaler" if setting.endswith(PG_NUM) else "somebody else"
            log.warning("%s was set to %s by %s during the run; restoring %s", setting, was, by, back)

    def _tell_lost_upmaps(self, records: Sequence[UndoRecord]) -> None:
        """Write an event: upmap entries are gone. The monitors remove them when an OSD of an entry is marked out."""
        former = {pg: pairs for record in records for pg, pairs in record.step.former.get(UPMAPS, {}).items()}
        lost = self._runner.lost_upmaps(former) if former else []
        if lost:
            self._tell("upmaps-lost", label=records[0].label, kind=records[0].kind, pgs=len(lost), before=len(former))
            text = "%s: upmap entries of %d of %d PGs are gone: these PGs may have other OSDs than before the fault"
            log.warning(text, records[0].label, len(lost), len(former))

    def _tell_switch_fired(self, record: UndoRecord, at: float) -> None:
        """Write an event: the dead man's switch had fired before the undo disarmed it, at a time in epoch seconds."""
        at = round(at, 3)
        self._note("recovered", record, at=at)
        self._tell("fault-recovered", label=record.label, kind=record.kind, osds=list(record.step.osds), at=at)


def _lots(records: Sequence[UndoRecord]) -> Iterator[List[UndoRecord]]:
    """Yield the steps in lots, the last lot first; each is of one fault."""
    for _, of_label in groupby(reversed(records), key=lambda record: record.label):
        yield from lots(list(of_label), lambda record: record.step)


def _safely(record: UndoRecord, action: Callable[[], Optional[str]]) -> Optional[str]:
    """Return the result of an action, or the text of its error, which is a bug: the other steps must be undone."""
    try:
        return action()
    except Exception as error:
        log.exception("undo of %s", record.step.what)
        return f"{type(error).__name__}: {error}"


class _Attempt:
    """The undo of one step: its commands are sent until the cluster is as before, or its time is over.

    `why` is None when the step is undone, else the difference and the failed command.
    """

    def __init__(
        self, record: UndoRecord, runner: Runner, limits: ClusterLimits, clock: Clock, tell_switch_fired: SwitchFired
    ) -> None:
        self._record, self._runner, self._limits, self._clock = record, runner, limits, clock
        self._tell_switch_fired = tell_switch_fired
        now, step = clock.now(), record.step
        self._sent = now - record.age(time.time())
        timeout = max((check.timeout for check in step.checks), default=0.0)
        if step.deadline is not None:  # at the latest then the node has recovered by itself
            timeout = min(timeout, max(0.0, record.at + step.deadline - time.time()) + limits.back)
        self._until, self._again = now + timeout, now + limits.again
        self._undone_since: Optional[float] = None
        self._looks, self._todo, self._failure = 0, list(step.undo), ""
        self._lost = self._has_begun = False
        self.why: Optional[str] = None

    def begin(self) -> None:
        """Send the commands for the first time; the first `is_over` sends none."""
        self._send()
        self._has_begun = True

    def _send(self) -> None:
        send = partial(self._runner.undo, self._record, tell_switch_fired=self._tell_switch_fired)
        results = [(command, send(command)) for command in self._todo]
        self._todo = [command for command, result in results if result]
        failures = [result for _, result in results if result]
        self._failure = next((failure.why for failure in failures), self._failure if self._todo else "")
        # An undo that did not arrive cannot stop a command of the fault that is still running.
        self._lost = any(failure.lost for failure in failures)

    def is_over(self) -> bool:
        """Send the commands that have not succeeded yet, check the cluster; tell whether the undo has ended."""
        if self._has_begun:
            self._has_begun = False
        else:
            self._send()
        lost = self._lost
        counting = self._record.step.counting(self._clock.now() - self._sent, self._record.refused)
        different = self._runner.look(counting)
        now, self._looks = self._clock.now(), self._looks + 1
        self._undone_since = None if different else now if self._undone_since is None else self._undone_since
        since = self._undone_since
        # If all looks undone, a failed command does not matter; but the map of the cluster may lag behind.
        if since is not None and not lost and (not self._todo or now - since >= self._limits.lag):
            return True
        # A command that hangs may use up all of the time, so it is tried once more.
        if now >= self._until and self._looks > 1 and (since is None or lost):
            self.why = "; ".join(filter(None, (self._failure, different)))
            return True
        if now >= self._again:
            self._again, self._todo = now + self._limits.again, list(self._record.step.undo)
        return False
