"""Waiting without load: as a phase, before a fault is injected again, and after the last phase."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from cbt_plugins.cluster.ceph import Ceph, CephError, Status
from cbt_plugins.cluster.cluster_watch import StatusFeed
from cbt_plugins.cluster.remote import OpenInput
from cbt_plugins.cluster_conditions import CLEAN, is_clean
from cbt_plugins.faults import node_shell
from cbt_plugins.faults.cluster_facts import unclean_states
from cbt_plugins.formatting.progress_line import NOTHING_AFTER, Now, Remainder
from cbt_plugins.inventory import nodes_of
from cbt_plugins.plan import Phase, Plan
from cbt_plugins.polling import Clock, insist, wait_until
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.live_files import WatchedPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.progress import Progress, remainder_of

log = logging.getLogger(__name__)

#: PG statistics lag the OSD map by two periods of the mgr (5 s each): clean counts when it has lasted so long. A report
#: knows how new the statistics of a sample are, so it needs less: results.recovery.milestone_titles.STABLE_IN_SAMPLES
STABLE_IN_WAIT = 13.0
#: without a sample for LONG times the usual interval (the median of the last INTERVALS), it must last anew; SILENCE is
#: the shortest such time, in seconds, for the longest interval of a file: a process per question can take longer
LONG, INTERVALS, SILENCE = 2.5, 5, 12.5
#: seconds, the defaults of `osdfailure:`; for a plan that waits for active+clean nowhere
AT_MOST, STALLED = 360000.0, 7200.0
#: seconds between two looks at a deep scrub's progress
SCRUB_EVERY = 10.0
#: seconds without another PG done after which a deep scrub is given up: those of a dead OSD cannot be scrubbed
SCRUB_STALLED = 1800.0
#: seconds between two counts of garbage, at least; and times as long as a count takes
COUNT_EVERY, SPARED = 60.0, 10.0
#: seconds for the end of a collection that is given up, at most
END_LIMIT = 10.0


def wait(run: RunContext, index: int, phase: Phase, schedule: EventSchedule) -> PhaseOutcome:
    """Wait as the phase says. A cluster that is not clean in time is a result, with its data."""
    folder = run.archive.running(index, phase.name)
    folder.mkdir(parents=True)
    outcome = PhaseOutcome(index, phase)
    waiting, garbage = _waiting_of(run, index, phase)
    schedule.prepare()
    if phase.drop_caches:
        drop_caches(run)
    try:
        with run.cbt_run.monitors(folder / "monitors", acting=True), run.watch.feed() as watch:
            begun = time.time()  # the monitors run before anything happens
            WatchedPhase(folder).begin(outcome.running_record((), {}, begun))
            schedule.begin(begun)
            if garbage is not None:
                waiting.of_garbage(garbage)
                garbage.start()
            given_up = waiting.follow(watch, lambda: schedule.failure is not None, lambda: schedule.left > 0)
            schedule.close()
            schedule.undo_left()
    except BaseException:
        schedule.abandon()
        raise
    finally:
        if garbage is not None:
            garbage.give_up()
    if given_up:
        outcome.warn(given_up_code(phase), given_up)
        outcome.degrade("degraded")
    schedule.note(outcome)
    outcome.window = (begun, time.time())
    if waiting.clean_since is not None and phase.wait_clean:
        outcome.extra["clean_at"] = waiting.clean_since
        run.events.write(CLEAN, phase=phase.name, since=waiting.clean_since)
    return outcome


def _waiting_of(run: RunContext, index: int, phase: Phase) -> Tuple[Waiting, Optional[Garbage]]:
    waiting = Waiting(phase.name, lambda status: status.not_clean)
    waiting.after = remainder_of(run.plan.phases[index:])
    if phase.wait_clean or phase.wait_gc:
        waiting.at_most, waiting.stalled = phase.at_most, phase.stalled
    else:
        waiting.duration = phase.duration
    return waiting, Garbage(run.ceph, phase.at_most or AT_MOST) if phase.wait_gc else None


def given_up_code(phase: Phase) -> str:
    """Return the code of the warning that a wait was given up."""
    return "garbage-left" if phase.wait_gc else "not-clean"


def wait_again(run: RunContext, index: int, phase: Phase) -> Optional[str]:
    """Wait as a phase that has ended says, without its events; return the reason why it was given up, None if not."""
    waiting, garbage = _waiting_of(run, index, phase)
    if phase.drop_caches:
        drop_caches(run)
    try:
        with run.watch.feed() as watch:
            if garbage is not None:
                waiting.of_garbage(garbage)
                garbage.start()
            return waiting.follow(watch, lambda: False)
    finally:
        if garbage is not None:
            garbage.give_up()


def wait_for_clean(run: RunContext, index: int, phase: Phase, beside_faults: bool) -> Optional[str]:
    """Wait until the safety rule `clean` allows a fault; None, or why the wait was given up.

    `beside_faults`: the run has faults in force. The limits are those of the plan's wait for active+clean.
    """
    waiting = Waiting(phase.name, lambda status: sum(unclean_states(status.pgs, beside_faults).values()))
    waiting.at_most, waiting.stalled = wait_limits(run.plan, index)
    waiting.note = "until the PGs are active+clean"
    with run.watch.feed() as watch:
        return waiting.follow(watch, lambda: False)


def wait_limits(plan: Plan, index: int) -> Tuple[Optional[float], Optional[float]]:
    """Return `at_most` and `stalled` of the next wait for active+clean from a phase on (from 1), else of the last."""
    waits = [(i, phase) for i, phase in enumerate(plan.phases, 1) if phase.wait_clean]
    wait = next((phase for i, phase in waits if i >= index), waits[-1][1] if waits else None)
    return (wait.at_most, wait.stalled) if wait else (AT_MOST, STALLED)


def drop_caches(run: RunContext) -> None:
    """Write back and drop the page caches of the OSD nodes. Raises RemoteError."""
    nodes = nodes_of(run.cbt_run.cluster, "osds")
    log.info("dropping the page caches of %s", ", ".join(nodes))
    run.remote.run(nodes, node_shell.sudo("sync && echo 3 > /proc/sys/vm/drop_caches"), timeout=600.0)
    run.events.write("caches-dropped", nodes=list(nodes))


class Garbage:
    """Has RGW's garbage collected until there is none; `left` is how much there is, None until that is known.

    Counted while it is collected, too: one collection can take hours. It ends with the wait, and with this process.
    """

    def __init__(self, ceph: Ceph, limit: float) -> None:
        self._ceph, self._until = ceph, time.monotonic() + limit
        self.left: Optional[int] = None
        self.error: Optional[str] = None
        self._counting: Optional[threading.Thread] = None
        self._collecting: Optional[threading.Thread] = None
        self._given_up = threading.Event()
        self._open_input = OpenInput()

    @property
    def collecting(self) -> bool:
        """True while `radosgw-admin gc process` runs."""
        return self._collecting is not None and self._collecting.is_alive()

    def start(self) -> None:
        """Count and collect in threads of their own."""
        self._counting = threading.Thread(target=self.count, name="garbage", daemon=True)
        self._counting.start()

    def give_up(self) -> None:
        """End the count and the collection, and begin nothing more: the next phase may be measured."""
        self._given_up.set()
        self._open_input.close()
        until = time.monotonic() + END_LIMIT
        if self._counting is not None:
            self._counting.join(END_LIMIT)  # the last that begins a collection
        if self._collecting is not None:
            self._collecting.join(max(0.0, until - time.monotonic()))
        if self.collecting or (self._counting is not None and self._counting.is_alive()):
            text = "radosgw-admin gc has not ended within %g s on %s: it may load the cluster beside the next phase"
            log.warning(text, END_LIMIT, self._ceph.head)

    def count(self) -> None:
        """Count until there is none, the time is over or the wait was given up; collect beside that."""
        took = 0.0  # seconds, of the last count

        def count_once(seconds: float) -> None:
            self.left = self._ceph.garbage(seconds, self._open_input)

        def is_over() -> bool:
            nonlocal took
            begun = time.monotonic()
            if not (self.error or self._given_up.is_set()):
                try:
                    self._insist(count_once)
                except CephError as error:
                    self.error = str(error)
            took = time.monotonic() - begun
            return not self.left or self.error is not None or self._given_up.is_set()

        def collect(seconds: float) -> None:
            if not self.collecting:
                self._collecting = threading.Thread(target=self._collect, name="gc", daemon=True)
                self._collecting.start()
            assert self._collecting is not None
            self._collecting.join(max(seconds, SPARED * took))

        wait_until(is_over, self._until - time.monotonic(), COUNT_EVERY, clock=Clock(sleep=collect))

    def _collect(self) -> None:
        try:
            self._insist(lambda seconds: self._ceph.collect_garbage(seconds, self._open_input))
        except CephError as error:
            self.error = str(error)

    def _insist(self, action: Callable[[float], None]) -> None:
        """Act within the seconds that are left; again after an error, a few times: hours lose connections.

        After the wait was given up, an error is none.
        """

        def act() -> None:
            try:
                action(self._seconds)
            except CephError:
                if not self._given_up.is_set():
                    raise

        def is_over_after(seconds: float) -> bool:
            return self._given_up.wait(seconds) or time.monotonic() >= self._until

        insist(act, CephError, pause=is_over_after)

    @property
    def _seconds(self) -> float:
        return max(1.0, self._until - time.monotonic())


#: PG states that are named when a wait is given up
_MOST_STATES = 3


@dataclass
class Waiting:
    """One wait: for `duration`, or until no PG counts any more and it has stayed so."""

    phase: str
    count: Callable[[Status], int]  # PGs that are waited for
    duration: Optional[float] = None  # seconds; None: until no PG counts
    at_most: Optional[float] = None  # seconds after which the wait is given up
    stalled: Optional[float] = None  # seconds without progress after which it is given up
    note: str = ""
    after: Remainder = NOTHING_AFTER
    condition: str = "PGs are not active+clean"
    garbage: Optional[Garbage] = None
    not_clean: Optional[int] = None
    clean_since: Optional[float] = None  # our clock
    _begun: float = 0.0
    _seen: float = 0.0  # when the newest sample was taken, on our clock: silence is no sign of a clean cluster
    _intervals: Deque[float] = field(default_factory=lambda: deque(maxlen=INTERVALS))  # seconds, of the last samples
    _stale: bool = False  # that sample's PG states are older than the last change of an OSD
    _progress_at: float = 0.0  # when less was to be done than ever before
    _least: Optional[Tuple[int, int]] = None  # PGs and objects that are left, since the recovery has begun
    _most: int = 0  # PGs
    _was_clean: bool = False  # a recovery has begun after active+clean
    _status: Optional[Status] = None  # the newest sample, unless garbage is waited for

    def of_garbage(self, garbage: Garbage) -> None:
        """Wait for the end of garbage, which is what is counted instead of PGs."""
        self.garbage, self.condition = garbage, "entries of RGW's garbage are left"

    def follow(
        self, watch: StatusFeed, stop: Callable[[], bool], busy: Callable[[], bool] = lambda: False
    ) -> Optional[str]:
        """Watch until the wait is over or `stop` says so; None, or why it was given up.

        While something is to come that changes the cluster (`busy`), it does not count as clean, nor as stalled.
        """
        self._begun = self._progress_at = time.monotonic()  # a clock that is set ends no wait
        limit = self.at_most if self.duration is None else self.duration
        given_up: Optional[str] = None
        with contextlib.closing(Progress(limit)) as progress:

            def is_over() -> bool:
                nonlocal given_up
                if stop():
                    return True
                self._look(watch)
                now = time.monotonic()
                elapsed = now - self._begun
                left = None if limit is None else max(0.0, limit - elapsed)
                shown: Dict[str, Any] = {"not_clean": self.not_clean, "note": self.note, "after": self.after}
                if self.garbage is not None:
                    shown["counted"] = "entries of garbage"
                progress.show(Now(self.phase, "waiting", elapsed, left, **shown))
                if self.duration is not None:
                    return elapsed >= self.duration
                if busy():
                    self.clean_since, self._progress_at, self._least, self._was_clean = None, now, None, False
                elif self._stays_clean():
                    return True
                given_up = self._given_up(now)
                return given_up is not None

            wait_until(is_over, math.inf, 0.0)  # the pause is the wait for the next samples
        return given_up

    def _look(self, watch: StatusFeed) -> None:
        for at, status in watch.poll(1.0):
            if self.garbage is None:
                self._status = status
                self._take(at, self.count(status), status.degraded + status.misplaced, status.settled is False)
        if self.garbage is not None and self.garbage.left is not None:
            self._take(time.time(), self.garbage.left, 0, stale=False)

    def _stays_clean(self) -> bool:
        lasting = 0.0 if self.garbage else STABLE_IN_WAIT
        return self.clean_since is not None and self._seen - self.clean_since >= lasting

    def _take(self, at: float, left: int, objects_left: int, stale: bool) -> None:
        if self._seen:
            if at - self._seen > max(SILENCE, LONG * median_low(self._intervals or [0.0])):
                self.clean_since = None
            self._intervals.append(at - self._seen)
        self.not_clean, self._seen, self._stale = left, at, stale
        self.clean_since = (self.clean_since or at) if self.not_clean == 0 and not stale else None
        # degraded may rise while PGs move: either getting less is progress
        todo = (self.not_clean, objects_left)
        if self._least is None or self._has_begun(todo[0]):
            self._least, self._progress_at = todo, time.monotonic()
        elif todo[0] < self._least[0] or todo[1] < self._least[1]:
            self._least = (min(todo[0], self._least[0]), min(todo[1], self._least[1]))
            self._progress_at = time.monotonic()
        self._most = max(self._most, todo[0])

    def _has_begun(self, left: int) -> bool:
        """Tell whether a recovery has begun since the last look: after active+clean, or with more PGs than ever.

        After active+clean it begins once: an OSD that flaps makes no progress.
        """
        if self.garbage is not None:  # it has no highest number
            return False
        if left > 0 and self._least is not None and self._least[0] == 0 and not self._was_clean:
            self._was_clean = True
            return True
        return left > self._most

    def _given_up(self, now: float) -> Optional[str]:
        """Return the reason why the wait is given up; None while it goes on."""
        many = f"{self.not_clean} {self.condition}"
        if self.garbage is not None and self.garbage.error is not None:
            return self.garbage.error
        if self.garbage is not None and self.garbage.collecting:
            many += " (it is still collected: radosgw-admin gc process)"
        if self._stale:
            many += ", by PG statistics older than the last change of an OSD,"
        if self.not_clean is None:
            many = "ceph status has not answered" if self.garbage is None else "the amount of RGW's garbage is unknown"
        if self.at_most is not None and now - self._begun >= self.at_most:
            return f"{many} after {now - self._begun:.0f} s{self._states()}"
        if self.stalled is not None and now - self._progress_at >= self.stalled:
            return f"{many}, without progress for {self.stalled:.0f} s{self._states()}"
        return None

    def _states(self) -> str:
        """Return the PG states that are waited for, and the flags of the cluster, which may hold recovery back."""
        if self._status is None or not self.not_clean:
            return ""
        counts = [(n, state) for state, n in self._status.pgs.items() if n and not is_clean(state)]
        states = [f"{n} {state}" for n, state in sorted(counts, reverse=True)[:_MOST_STATES]]
        return ": " + ", ".join([*states, *filter(None, [self._status.says.get("OSDMAP_FLAGS")])])


def after_phases(run: RunContext) -> None:
    """Deep-scrub and watch the cluster as the plan says, when all is undone.

    Done again from the start after a kill. A scrub that fails is an event, no failed run.
    """
    plan, note = run.plan, run.events.write
    if plan.settings.deep_scrub:
        try:
            _deep_scrub(run)
        except CephError as error:
            log.warning("no deep scrub: %s", error)
            note("deep-scrub-failed", why=str(error))
    if plan.post_poll:
        log.info("all changes are undone; watching the cluster for another %.0f s", plan.post_poll)
        note("post-poll-begin", seconds=plan.post_poll)
        time.sleep(plan.post_poll)
        note("post-poll-end")


def _deep_scrub(run: RunContext) -> None:
    """Scrub until every PG has another time of its last deep scrub than before."""
    ceph, note = run.ceph, run.events.write
    pools = ceph.log_and_index_pools()
    before = ceph.deep_scrubs(pools)
    left: Set[str] = set(before)
    log.info("deep scrub of %s: %d PGs", ", ".join(pools), len(left))
    note("deep-scrub-begin", pools=pools, pgs=len(left))
    ceph.deep_scrub(pools)

    progress_at = time.monotonic()

    def is_over() -> bool:
        nonlocal progress_at
        try:
            now = ceph.deep_scrubs(pools)
            # a PG that is no longer there was merged into another
            done = {pg for pg in left if now.get(pg) != before[pg]}
        except CephError as error:  # one of thousands of questions: the next one may be answered
            log.info("the progress of the deep scrub is unknown: %s", error)
            done = set()
        left.difference_update(done)
        progress_at = time.monotonic() if done else progress_at
        return not left or time.monotonic() - progress_at >= SCRUB_STALLED

    wait_until(is_over, math.inf, SCRUB_EVERY)
    unscrubbed: List[str] = sorted(left)
    note("deep-scrub-end", pgs=len(before) - len(unscrubbed), left=unscrubbed)
    if unscrubbed:
        log.warning(
            "deep scrub: %d of %d PGs were not scrubbed: %s", len(unscrubbed), len(before), ", ".join(unscrubbed[:10])
        )
