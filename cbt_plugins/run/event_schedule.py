"""Events of a phase at their times, beside its load: injection and undo of faults, and marks."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from cbt_plugins import signals
from cbt_plugins.faults import FaultError, Injector, NoAnswer, Prepared
from cbt_plugins.journal import tell
from cbt_plugins.plan import Event, Fault, Upgrade
from cbt_plugins.polling import Clock, wait_until
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.warning_kinds import LATE_EVENT

log = logging.getLogger(__name__)

#: seconds before a fault at which its blast radius is computed, because the queries take time
AHEAD = 20.0
#: seconds before a fault at which the safety rules are checked again, on the cluster of now; more where checks are slow
AGAIN = 3.0
#: seconds after which a fault that the rules refuse is asked for once more
ONCE_MORE = 5.0
#: a look at a cluster that is not clean is followed by a pause of at least so many times the seconds of the look: the
#: requests to a busy mgr then take a quarter of the time at most
PAUSE_PER_LOOK = 3.0
#: seconds without an answer after which a wait without a limit fails
NO_ANSWER = 600.0
#: seconds after an undo for which PG statistics may be older than the undo: two periods of the mgr (5 s each) and more
STALE = 13.0
#: the second check of a fault may take so many times as long as the first one did
_SLOWER = 1.5
#: share of its planned time by which a fault may last longer or shorter
_OFF = 0.1


class EventSchedule:
    """The events of one phase, in a thread of their own: a fault takes time, and the load must be watched meanwhile.

    `prepare` before the load begins; `begin` starts the clock; `close` waits for what is under way and ends the thread.
    `failure` says why the phase cannot continue as planned.
    """

    def __init__(
        self,
        events: Sequence[Event],
        injector: Injector,
        note: Callable[..., None],
        phase: str,
        upgrade: Optional[Callable[[Upgrade], None]] = None,
    ) -> None:
        self._events = sorted(events, key=lambda event: event.at)
        self._injector = injector
        self._write = note
        self._phase = phase
        self._upgrade = upgrade
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self.prepared: Optional[Prepared] = None  # the next fault, when it was checked
        self.longest_check = 0.0  # seconds
        self._undone = -math.inf  # when the last undo of this schedule ended
        self._waited = 0.0  # seconds, for a clean cluster, or for a late fault that lasts as long as planned
        self._keeps_length = False  # a fault that begins late is undone as much later
        self._skipped: Set[str] = set()  # labels of faults that were refused, and that may be
        self._late: Dict[str, Tuple[float, float]] = {}  # label -> planned time, seconds after it
        self._worst = ("", 0.0)  # what began latest, and how late
        self._changed: List[str] = []
        self._not_undone = ""
        self._wall = 0.0  # this machine's clock minus time.monotonic(), at the begin
        self.failure: Optional[str] = None
        self.done = 0

    @property
    def left(self) -> int:
        """Number of events that have not happened yet."""
        return len(self._events) - self.done

    @property
    def unmade(self) -> List[str]:
        """Labels of the faults whose time has not come yet."""
        return [event.inject.label for event in self._events[self.done :] if event.inject is not None]

    @property
    def begun(self) -> bool:
        """True when its clock runs, or there is nothing to do."""
        return self._thread is not None or not self._events

    def prepare(self) -> None:
        """Check the first fault, if it comes soon. Raises FaultError when it is refused."""
        first = next((event for event in self._events if not event.mark), None)
        if first is None or first.at >= AHEAD or first.after_clean or first.optional:
            return
        if first.inject is not None:
            self.prepared = self._checked(first.inject)

    def refusal(self) -> str:
        """Return the reason why the first fault would be refused now, and note it; "" if it would not be refused.

        One that comes too soon for another check is checked then, and once more right before it.
        """
        event = next((event for event in self._events if event.inject is not None), None)
        if event is None or event.inject is None:
            return ""
        try:
            ready = self._checked(event.inject)
        except FaultError as error:
            return self._skip(event.inject, error)
        self.prepared = ready if event.at < self._ahead else None
        return ""

    def postpone(self) -> float:
        """Move all events to as late as the second check of the first fault needs; return by how many seconds.

        To be called after `refusal`; the load must last longer by as much. What a failure costs depends on its length:
        a fault that is late all the same is undone as much later.
        """
        self._keeps_length = True
        first = next((event for event in self._events if event.inject is not None), None)
        if first is None or first.at <= AGAIN:  # one that is due at once is not checked again
            return 0.0
        delay = max(0.0, math.ceil(_SLOWER * self.longest_check - first.at))
        self._events = [replace(event, at=event.at + delay) for event in self._events]
        return delay

    @property
    def _ahead(self) -> float:
        """Seconds before a fault at which its first check begins."""
        return max(AHEAD, 2 * _SLOWER * self.longest_check)

    def _skip(self, fault: Fault, error: FaultError) -> str:
        self._skipped.add(fault.label)
        log.info("%s: skipping %s: %s", self._phase, fault.label, error)
        self._write("fault-skipped", label=fault.label, kind=fault.kind, why=str(error))
        return str(error)

    def begin(self, at: float) -> None:
        """Start the clock at `at` (epoch seconds on this machine)."""
        if not self.begun:
            self._wall = time.time() - time.monotonic()
            with signals.deferred():  # nobody can wait for the end of a thread that has not quite started
                self._thread = threading.Thread(target=self._run, args=(at,), name="timeline")
                self._thread.start()

    def close(self) -> None:
        """Start no more events; return when the one under way has ended."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def undo_left(self) -> None:
        """Undo the faults whose undo has not come before the load ended: later phases must not find them in force."""
        labels = [label for event in self._events[self.done :] for label in event.undo]
        if not labels or self.failure is not None:
            return
        in_force = {step.label for step in self._injector.open_changes}
        late_labels = [label for label in labels if label in in_force]
        if late_labels:
            log.info("%s: undoing %s after the load", self._phase, ", ".join(late_labels))
            steps = self._injector.undo(late_labels)
            self._not_undone = "; ".join(map(str, steps))

    def note(self, outcome: PhaseOutcome) -> None:
        """Add warnings to the phase's outcome: why it stopped, late events, and events that did not happen."""
        worst_event, late = self._worst
        if late > LATE_EVENT:
            outcome.warn("faults-late", f"{worst_event} began {late:.1f} s late")
        for text in self._changed:
            outcome.warn("fault-time", text)
        if self.failure is not None:
            outcome.warn("fault-failed", self.failure)
            outcome.degrade("failed")
        elif self._not_undone:
            outcome.not_undone = self._not_undone
            outcome.warn("fault-failed", f"not undone: {self._not_undone}")
            outcome.degrade("degraded")
        elif self.left:
            outcome.warn("events-left", f"{self.left} of the phase's events did not happen before its end")
            outcome.degrade("degraded")

    def abandon(self) -> None:
        """Stop for good, also within a fault that is under way; return when the thread has ended."""
        self._injector.shut()
        self.close()

    def _run(self, begun: float) -> None:
        for event in self._events:
            at = begun + event.at + self._waited
            try:
                if event.inject is not None and event.after_clean:
                    if not self._await_clean(event.inject, at, event.at_most):
                        return
                    at = begun + event.at + self._waited
                if event.inject is not None and not self._look(event.inject, at, event.optional):
                    return
                if not self._until(at):
                    return
                if not self._skipped.intersection([event.inject.label] if event.inject else event.undo):
                    self._do(event, at)
            except Exception as error:
                if not isinstance(error, FaultError):
                    log.exception("an event of %s", self._phase)
                self.failure = str(error) or type(error).__name__
                return
            self.done += 1

    def _await_clean(self, fault: Fault, at: float, at_most: Optional[float]) -> bool:
        """Wait until the rule `clean` does not refuse the fault, and check it; False when the schedule is closed.

        Raises FaultError after `at_most` seconds, or without this limit after NO_ANSWER seconds in which each look
        failed. With the limit, PG statistics that are older than the last undo do not count.
        """
        if not self._until(at):
            return False
        reasons: List[str] = []
        answered = began = self._now()
        took = 0.0  # seconds of the latest look

        def is_over() -> bool:
            nonlocal answered, took
            begun = self._now()
            try:
                refused = self._injector.prepare(fault).refused
                reasons[:] = [str(finding) for finding in refused if finding.rule == "clean"]
                answered = self._now()
            except NoAnswer as error:  # a busy or restarting mgr: the next look may succeed
                reasons[:] = [str(error)]
                if at_most is None and self._now() >= answered + NO_ANSWER:
                    raise
            took = self._now() - begun
            is_stale = at_most is not None and begun < self._undone + STALE
            return self._ended.is_set() or not (reasons or is_stale)

        def too_late(_: bool) -> FaultError:
            return FaultError(f"{fault.label}: waited {at_most:g} s for active+clean PGs. {'; '.join(reasons)}")

        limit = math.inf if at_most is None else at_most

        def pause(seconds: float) -> None:
            left = max(0.0, began + limit - self._now())
            self._ended.wait(min(max(seconds, PAUSE_PER_LOOK * took), max(seconds, left)))

        wait_until(is_over, limit, ONCE_MORE, too_late, clock=Clock(sleep=pause))
        if self._ended.is_set():
            return False
        self.prepared = self._checked(fault)
        self._waited += max(0.0, self._now() - at)
        return True

    def _look(self, fault: Fault, at: float, optional: bool) -> bool:
        """Check the fault in good time and again right before it; False when the schedule has been closed.

        One that is `optional` is skipped when it is refused.
        """
        try:
            return self._checks(fault, at)
        except FaultError as error:
            if not optional:
                raise
            self.prepared = None
            self._skip(fault, error)
            return True

    def _checks(self, fault: Fault, at: float) -> bool:
        if self.prepared is None:
            if not self._until(at - self._ahead):
                return False
            self.prepared = self._checked(fault)
        # a fault that is due at once was checked before the load began
        again = at - max(AGAIN, _SLOWER * self.longest_check)
        if self._now() < at - AGAIN:
            if not self._until(again):
                return False
            self.prepared = self._injector.ready(self.prepared)
        return True

    def _checked(self, fault: Fault) -> Prepared:
        """Check a fault; once more after a refusal: PGs that the balancer moves peer for a moment."""
        began = time.monotonic()
        try:
            ready = self._injector.ready(fault)
            self.longest_check = max(self.longest_check, time.monotonic() - began)
            return ready
        except FaultError as error:
            log.info("%s: %s; asking once more in %g s", self._phase, error, ONCE_MORE)
            if self._ended.wait(ONCE_MORE):
                raise
            return self._injector.ready(fault)

    def _now(self) -> float:
        """Return the time by this machine's clock as it was at the begin: a clock that is set moves no event."""
        return self._wall + time.monotonic()

    def _until(self, at: float) -> bool:
        """Wait; False when the schedule has been closed."""
        return not self._ended.wait(max(0.0, at - self._now()))

    def _do(self, event: Event, planned: float) -> None:
        late = round(self._now() - planned, 3)
        self._remember(event, planned, late)
        if event.mark:
            tell(self._write, "mark", name=event.mark, phase=self._phase, late=late)
        if event.inject is not None and self.prepared is not None:
            log.info("%s: injecting %s", self._phase, event.inject.label)
            self._write("event", phase=self._phase, inject=event.inject.label, late=late)
            ready, self.prepared = self.prepared, None
            self._injector.inject_ready(ready)
        if event.run is not None:
            log.info("%s: running %s", self._phase, event.run.label)
            self._write("event", phase=self._phase, run=event.run.label, late=late)
            self._injector.run(event.run)
        if event.upgrade is not None and self._upgrade is not None:
            self._write("event", phase=self._phase, upgrade=event.upgrade.label, late=late)
            self._upgrade(event.upgrade)
        if event.undo:
            log.info("%s: undoing %s", self._phase, ", ".join(event.undo))
            self._write("event", phase=self._phase, undo=list(event.undo), late=late)
            left = self._injector.undo(event.undo)
            self._undone = self._now()
            if left:
                raise FaultError("; ".join(map(str, left)))

    def _remember(self, event: Event, planned: float, late: float) -> None:
        """Note what is late, and which fault is in force for another time than planned."""
        if event.inject is not None:
            delay = max(0.0, late) if self._keeps_length else 0.0
            self._late[event.inject.label] = planned + delay, late - delay
            self._waited += delay
        labels = [event.inject.label] if event.inject is not None else list(event.undo)
        if labels and late > self._worst[1]:
            self._worst = f"{'undo of ' if event.undo else ''}{', '.join(labels)}", late
        for label in event.undo:
            begun, late_inject = self._late.pop(label, (planned, late))
            lasts = planned - begun
            if abs(late - late_inject) > max(LATE_EVENT, _OFF * lasts):
                self._changed.append(
                    f"{label} was in force for {lasts + late - late_inject:.1f} s instead of {lasts:.1f} s"
                )
