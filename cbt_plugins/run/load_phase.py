"""Phases with load: starts the generators, watches them, the cluster and the clock, and stops what must stop."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins import signals
from cbt_plugins.cluster.clock import Offset, offsets
from cbt_plugins.cluster.remote import Pending, RemoteError
from cbt_plugins.cluster.sampler import StatusFeed
from cbt_plugins.conditions import NO_FAULTS, found_in, of_own_faults
from cbt_plugins.journal import LineWriter, insist_on_room
from cbt_plugins.load import worker_groups
from cbt_plugins.load.generator import Counts, JobEnd, LoadJob, LoadStart, environment, generator_of
from cbt_plugins.load.session import Agents, Beat, LoadError, LoadOrders, LoadSession
from cbt_plugins.plan import Phase
from cbt_plugins.run.buckets import FAULTY_STATS_TIMEOUT, STATS_TIMEOUT, Buckets, ObjectCount, account, settled
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.events import EventSchedule
from cbt_plugins.run.fill_goal import reaching
from cbt_plugins.run.outcome import PhaseOutcome, block_of, window_of
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.progress import Now, Progress, RateMeter, Remainder

log = logging.getLogger(__name__)

#: seconds before the deadline within which a generator may end
LATE = 45.0
#: seconds after the go within which every generator should have begun
LATEST_START = 15.0
#: seconds without a finished request after which a generator counts as stalled
STALL = 15.0
#: seconds without a word of a client after which it is away
AWAY = 30.0
#: seconds for one that is back to say how its load went
BACK = 10.0
#: seconds without a sample of the cluster after which nobody knows how full it is
UNGUARDED = 120.0
#: a fill has failed when a job of it had so many failed requests in so many seconds, and no other ones
REFUSED_REQUESTS, REFUSED_SECONDS = 10, 5.0


#: objects by bucket name before and after a phase
_Counts = Tuple[Dict[str, int], Dict[str, int]]
_Ends = Mapping[str, JobEnd]


@dataclass
class LoadPhase:
    """Runs phases with load, each in a folder of its own."""

    context: RunContext
    ready: Ready
    buckets: Buckets
    agents: Agents

    def run(self, index: int, phase: Phase, start: LoadStart, schedule: EventSchedule, scratch: str) -> PhaseOutcome:
        """Run one phase into its .running folder; `scratch` is a folder on the nodes that no attempt has used.

        Raises LoadError when it cannot be started or a node is lost.
        """
        self.ready = replace(self.ready, offsets=self._offsets())
        jobs = self._jobs(phase, start)
        folder = self.context.archive.running(index, phase.name)
        folder.mkdir(parents=True)
        outcome = PhaseOutcome(index, phase, rate=start.rate, workers=start.workers)
        # counted while the generators start: they write nothing before the go
        kept_counts = self.buckets.kept()
        before = Pending(self._counts if kept_counts is None else lambda: kept_counts)
        session = self._session(phase, jobs, scratch)
        self._make_load(session, outcome, schedule, folder, before)
        capacity = Pending(partial(outcome.note_capacity, self.context.watch, folder))
        after, clocks = Pending(self._counts_after), Pending(self._offsets)
        insist_on_room(folder, partial(session.collect, folder))
        ends = session.ends()
        outcome.add_jobs(jobs, ends, self.ready.offsets, self.ready.programs, self.context.plan.keep_rows)
        outcome.window = window_of(phase, outcome.jobs, session.go_at)
        outcome.note_dry()
        if not (phase.warp and phase.warp.op in ("versioned", "multipart")):
            self._account(outcome, (before.get(), after.get()), jobs, ends)
        if phase.is_calibration:
            outcome.extra["latency"] = _latencies(jobs, ends)
        capacity.get()
        outcome.note_clocks(self.ready.offsets, clocks.get())
        return outcome

    def _offsets(self) -> Mapping[str, Offset]:
        """Return the offsets of now: clocks that nobody synchronizes drift by seconds in a day."""
        run = self.context
        others = [node for node in run.clients if not run.remote.transport.is_local(node)]
        try:
            return {**self.ready.offsets, **offsets(run.remote, others)}
        except RemoteError as error:  # the load itself will say what is wrong with the node
            log.warning("offsets of clocks are those of before: %s", error)
            return self.ready.offsets

    def _jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return the generator processes of a phase."""
        plan = self.context.plan
        payload = self.ready.manifest["payload"][phase.engine]
        plan = replace(plan, s3=replace(plan.s3, payload=payload))
        generator = generator_of(phase.engine)(plan, self.buckets.names, self.context.run_id)
        return generator.jobs(phase, start)

    def _session(self, phase: Phase, jobs: Sequence[LoadJob], scratch: str) -> LoadSession:
        orders = LoadOrders(
            tuple(jobs),
            self.ready.programs,
            environment(
                self.ready.keys.all,
                self.ready.authority,
                self.context.plan.s3.sse,
                [keys.all for keys in self.ready.others],
            ),
            self.ready.offsets,
            duration=lasting(phase),
            phase=phase.name,
            block=block_of(phase),
            keep_rows=self.context.plan.keep_rows,
        )
        return LoadSession(self.agents, scratch, orders)

    def _make_load(
        self,
        session: LoadSession,
        outcome: PhaseOutcome,
        schedule: EventSchedule,
        folder: Path,
        before: Pending[Dict[str, int]],
    ) -> None:
        """Start the load when the objects are counted, and follow it to its end."""
        run = self.context
        with contextlib.ExitStack() as stack:
            feed = stack.enter_context(run.watch.feed())
            observer = stack.enter_context(
                contextlib.closing(_Observer(self, outcome, session, feed, schedule, folder, before))
            )
            stack.enter_context(run.host.monitors(folder / "monitors", acting=True))
            try:
                session.start()
                observer.until_over()
                schedule.close()
            except BaseException:
                self._break_off(session, schedule, folder)
                raise
            schedule.note(outcome)

    def _break_off(self, session: LoadSession, schedule: EventSchedule, folder: Path) -> None:
        """End the load, then the faults, and only then bring the rows in: a second signal may skip that."""
        try:
            with signals.interruptible():
                session.break_off()
        finally:
            with signals.deferred():
                schedule.abandon()
                self.context.injector.undo_all()
        with signals.interruptible():
            session.break_off()
            try:
                session.collect(folder)
            except Exception as error:  # nothing may hide why the phase was lost
                log.error("could not collect the rows of %s: %s", folder.name, error)

    def _account(self, outcome: PhaseOutcome, counts: _Counts, jobs: Sequence[LoadJob], ends: _Ends) -> None:
        """Compare the objects that are there with those that the jobs have written and removed."""
        before, after = counts

        def judge(now: Mapping[str, int]) -> List[ObjectCount]:
            counts_before = {b: n for b, n in before.items() if b in now}
            return account(counts_before, now, jobs, ends, self.buckets.versioned)

        after = settled(self._counts_after, after, judge)
        outcome.add_accounting(judge(after))
        self.buckets.keep(after)
        if not (before and after) and self.context.plan.admin:
            outcome.warn("no-accounting", f"objects were not counted: {self.buckets.untold}")

    def _counts(self) -> Dict[str, int]:
        """Count before the load; raises CephError, but while a fault is in force."""
        return self._counts_after() if self.faulty else self.buckets.counts()

    def _counts_after(self) -> Dict[str, int]:
        """Count, or {}: no answer costs the accounting, and not the phase."""
        return self.buckets.counts_if_told(FAULTY_STATS_TIMEOUT if self.faulty else STATS_TIMEOUT)

    @property
    def faulty(self) -> bool:
        """Whether a fault is in force."""
        return any(record.kind not in NO_FAULTS for record in self.context.injector.open)


@dataclass
class _Observer:
    """Follows one session from its start to its end."""

    load: LoadPhase
    outcome: PhaseOutcome
    session: LoadSession
    watch: StatusFeed
    schedule: EventSchedule
    folder: Path
    before: Pending[Dict[str, int]]  # the objects at the begin: nothing is written until they are counted
    _counts: Dict[str, Mapping[str, Counts]] = field(default_factory=dict)
    _meter: RateMeter = field(default_factory=RateMeter)
    _stalled: Dict[str, bool] = field(default_factory=dict)
    _first_rows: Dict[str, float] = field(default_factory=dict)  # run's clock
    _stopping: Optional[float] = None
    _written: Dict[str, float] = field(default_factory=dict)
    _reported: Dict[str, str] = field(default_factory=dict)  # conditions of the cluster
    _unguarded: bool = False
    _silent: Mapping[str, float] = field(default_factory=dict)  # client -> seconds without a word
    _away_at: float = -math.inf  # when a client was away last: it does not hear an order, nor tell its end

    def __post_init__(self) -> None:
        self.duration = _length(self.outcome.phase)
        self._beats = LineWriter(self.folder / "heartbeat.jsonl")
        self._progress = Progress(self.duration)
        # a day of seconds would be a hundred megabytes
        self._every = 1.0 if block_of(self.outcome.phase) < 60 else 10.0

    def close(self) -> None:
        self._progress.close()
        with contextlib.suppress(OSError):  # a full disk, of which is told
            self._beats.close()

    def until_over(self) -> None:
        """Follow the load until all generators have ended; stop them when something ends the phase."""
        goal = self.outcome.phase.goal
        reached = reaching(self.load.context, goal, self.outcome.extra) if goal else None
        while not self.session.over:
            self._look()
            self._begin_what_is_due()
            self._show()
            if self._stopping is None:
                self._stop_if_needed(reached)
            elif time.monotonic() > max(self._stopping, self._away_at) + 60.0:
                raise LoadError("the generators did not end when they were asked to")

    def _look(self) -> None:
        for beat in self.session.beats(1.0):
            self._take(beat)
        self._note_silence(self.session.silent(AWAY) if self.session.go_at else {})
        for at, status in self.watch.poll():
            self._note_conditions(status.sample(at))
        for job, end in self.session.ends().items():  # an agent whose last generator has died says no more than that
            if end.died:
                self._died(job, f"signal {end.signal}" if end.signal else f"exit status {end.exit}")

    def _begin_what_is_due(self) -> None:
        """Give the word to load when all generators are ready, and start the clock of the events with the load."""
        session = self.session
        if session.go_at is None and session.all_ready and self.before.is_done:
            self.before.get()  # raises its error before there is any load
            self.schedule.prepare()
            session.go()
            self.load.context.events.write("load-go", phase=self.outcome.phase.name, at=session.go_at)
        if not self.schedule.begun and (begun := self._load_begun()) is not None:
            self.schedule.begin(begun)

    def _stop_if_needed(self, reached: Optional[Callable[[StatusFeed], bool]]) -> None:
        deadline = self.session.deadline
        self._guard()
        if self.schedule.failure is not None:
            self._abort("fault-failed", self.schedule.failure, "failed")
        elif reached is not None and reached(self.watch):
            self.load.context.events.write("goal-reached", phase=self.outcome.phase.name)
            self._stop()
        elif deadline is not None and time.time() > deadline and time.monotonic() > self._away_at + BACK:
            self.outcome.warn("late", "the generators did not end in time and were stopped")
            self.outcome.degrade("degraded")
            self._stop()

    def _past_end(self) -> bool:
        """True when the generators only finish the requests that they have begun."""
        begun = self.session.go_at
        return bool(begun and self.duration and time.time() > begun + self._lead() + self.duration)

    def _lead(self) -> float:
        """Return the seconds from the start of a generator to its first request."""
        return max(job.lead for job in self.session.jobs)

    def _load_begun(self) -> Optional[float]:
        """Return when the load began, from which events are timed: at `go`, or with the first rows."""
        at = self.session.go_at
        if at is None or time.time() < at:
            return None
        waited = [j.id for j in self.session.jobs if j.start == "go"]
        if not waited:
            return at
        rows = [self._first_rows.get(job) for job in waited]
        first = [row for row in rows if row is not None]
        if len(first) == len(waited) or time.time() > at + LATEST_START:
            return max(first, default=time.time())
        return None

    def _stop(self) -> None:
        self._stopping = time.monotonic()
        self.session.stop()

    def _abort(self, code: str, text: str, status: str) -> None:
        log.error("%s: %s", self.outcome.phase.name, text)
        self.outcome.warn(code, text)
        self.outcome.degrade(status)
        self._stop()

    def _take(self, beat: Beat) -> None:
        offset = self.load.ready.offsets[beat.node].seconds
        for job, counts in beat.counts.items():
            self._counts[job] = counts
            self._meter.take(job, beat.counted_at[job], sum(counts.values(), Counts()))
            seen = [c.first for c in counts.values() if c.first is not None]
            if seen:
                self._first_rows.setdefault(job, min(seen) - offset)
            self._note_stall(beat, job, offset)
            self._note_refusal(beat, job)
            self._note_loss(beat, job)
            code = beat.exits[job]
            if beat.states[job] == "done" and code not in (0, None):
                self._died(job, f"exit status {code}" if code > 0 else f"signal {-code}")
        if beat.at - self._written.get(beat.node, 0.0) > self._every - 0.5:
            self._written[beat.node] = beat.at
            jobs = {job: _heartbeat(beat, job) for job in beat.counts}
            self._write({"t": beat.at - offset, "node": beat.node, "jobs": jobs})

    def _write(self, line: Mapping[str, Any]) -> None:
        """Write a heartbeat. One for which the archive's disk has no room is lost; the load goes on."""
        try:
            self._beats.write(line)
        except OSError as error:
            text = f"heartbeat.jsonl lacks lines: {error.strerror}"
            if "resources-gap" not in (warning["code"] for warning in self.outcome.warnings):
                log.error("%s: %s: free some of the archive's disk", self.outcome.phase.name, text)
            self.outcome.warn("resources-gap", text)

    def _note_stall(self, beat: Beat, job: str, offset: float) -> None:
        """Warn of a generator that finishes nothing; `offset` is its node's clock minus the run's."""
        since = max(beat.last_row[job], (self.session.go_at or beat.at) + offset)
        stalled = beat.states[job] == "running" and beat.at - since > STALL and not self._past_end()
        if stalled and not self._stalled.get(job):
            text = f"{job}: no request was finished for {STALL:.0f} s"
            log.warning("%s: %s", self.outcome.phase.name, text)
            self.outcome.warn("stall", text, job=job)
        self._stalled[job] = stalled

    def _note_silence(self, silent: Mapping[str, float]) -> None:
        """Tell of clients that say nothing, or say something again. Their load goes on, and is in their rows."""
        for node in silent.keys() - self._silent.keys():
            log.warning("%s: no word from %s for %.0f s: its load goes on unseen", self.outcome.phase.name, node, AWAY)
        for node in self._silent.keys() - silent.keys():
            text = f"{node} said nothing for {self._silent[node]:.0f} s: its load went on unseen"
            self.outcome.warn("client-silent", text)
        self._silent = silent
        if silent:
            self._away_at = time.monotonic()

    def _note_refusal(self, beat: Beat, job: str) -> None:
        """Stop a fill that the cluster refuses: the phases after it would have nothing to work on."""
        text = refusal(beat, job)
        if text and self.outcome.phase.kind == "fill" and self._stopping is None and not self.load.faulty:
            self.outcome.cause = text
            self._abort("refused", text, "failed")

    def _note_loss(self, beat: Beat, job: str) -> None:
        """Stop a phase whose numbers would be missing from now on: its node's disk is full, mostly."""
        if job in beat.lost and self._stopping is None:
            self.outcome.cause = f"{beat.node}: {job}: {beat.lost[job]}: make room on the node"
            self._abort("aggregates", self.outcome.cause, "failed")

    def _note_conditions(self, sample: Mapping[str, Any]) -> None:
        """Log each condition of the cluster once; the archive has all of them, and results the warnings."""
        new = {name: text for name, text in found_in(sample).items() if name not in self._reported}
        if new and self.session.go_at is not None and not of_own_faults(self.load.context.events.records):
            self._reported.update(new)
            for name, text in new.items():
                log.warning("%s: %s: %s", self.outcome.phase.name, name, text)

    def _died(self, job: str, how: str) -> None:
        """Stop the phase: without this generator the load is not what was asked for."""
        deadline = self.session.deadline
        if self._stopping is None and not (deadline is not None and time.time() > deadline - LATE):
            self._abort("generator-died", f"{job} ended early with {how}", "failed")

    def _guard(self) -> None:
        status = self.watch.latest
        if status is None:
            return
        silent = time.monotonic() - self.watch.latest_at
        if silent > UNGUARDED and not self._unguarded:
            text = f"no sample of the cluster for {silent:.0f} s: full_guard does not know how full it is"
            log.warning("%s: %s", self.outcome.phase.name, text)
            self.outcome.warn("unguarded", text)
        self._unguarded = silent > UNGUARDED
        limit = self.load.context.plan.full_guard
        if status.raw_used is not None and status.raw_used >= limit:
            self._abort(
                "full",
                f"{100 * status.raw_used:.1f} % of the raw capacity is used; full_guard is {100 * limit:g} %",
                "aborted",
            )
        full = [c for c in status.checks if c in ("OSD_FULL", "POOL_FULL", "OSD_BACKFILLFULL")]
        if full:
            self._abort("full", f"the cluster is full: {', '.join(full)}", "aborted")

    def _show(self) -> None:
        total = sum((c for counts in self._counts.values() for c in counts.values()), Counts())
        begun = self.session.go_at
        elapsed = max(0.0, time.time() - begun) if begun else 0.0
        left = None
        if begun and self.duration:
            left = max(0.0, begun + self._lead() + self.duration - time.time())
        fresh = self.watch.latest is not None and time.monotonic() - self.watch.latest_at < 30.0
        notes = {"stalled": [job for job, late in self._stalled.items() if late], "no word from": self._silent}
        self._progress.show(
            Now(
                phase=self.outcome.phase.name,
                state="starting" if begun is None else "stopping" if self._stopping else "running",
                elapsed=elapsed,
                left=left,
                rate=self._meter.rate(),
                errors=total.failed,
                not_clean=self.watch.latest.not_clean if fresh and self.watch.latest else None,
                note="; ".join(f"{condition} {', '.join(whom)}" for condition, whom in notes.items() if whom),
                after=Remainder.of(self.load.context.plan.phases[self.outcome.index :]),
            )
        )


def refusal(beat: Beat, job: str) -> Optional[str]:
    """Return the error of a job that has had nothing but errors for a time; None for all others."""
    total = sum(beat.counts[job].values(), Counts())
    if total.good or total.failed < REFUSED_REQUESTS or total.first is None:
        return None
    if beat.at - total.first < REFUSED_SECONDS:
        return None
    return f"{job}: all of its first {total.failed} requests failed: {beat.errors.get(job, 'unknown error')}"


def _heartbeat(beat: Beat, job: str) -> Dict[str, Any]:
    """Return the record of a job in heartbeat.jsonl."""
    total, report = sum(beat.counts[job].values(), Counts()), beat.driver.get(job, {})
    line = {"ops": total.good, "bytes": total.size, "errors": total.failed, "state": beat.states[job]}
    line.update((key, report[key]) for key in ("in_flight", "oldest", "queued", "dry") if report.get(key))
    down = [url for url, host in report.get("hosts", {}).items() if not host["up"]]
    return {**line, "down": down} if down else line


def _length(phase: Phase) -> Optional[float]:
    """Seconds that a phase's load lasts, ramp and warm-up included; None when something else ends it."""
    duration = phase.goal.duration if phase.goal else phase.duration
    return duration + phase.ramp + phase.warmup if duration else duration


def lasting(phase: Phase) -> float:
    """Seconds for which the jobs run, so that all of them are at work for the phase's length; 0: until something else.
    """
    length = _length(phase) or 0.0
    overlap = generator_of(phase.engine).overlap
    # what a fill writes is asked for, not measured
    return length + overlap + block_of(phase) if length and overlap and phase.goal is None else length


def _latencies(jobs: Sequence[LoadJob], ends: Mapping[str, JobEnd]) -> Dict[str, Dict[str, float]]:
    """Mean latency in seconds per driver and operation."""
    counts_by_driver: Dict[str, Dict[str, Counts]] = {}
    for job in jobs:
        counts = ends[job.id].counts.get(job.op, Counts()) if job.id in ends else Counts()
        mine = counts_by_driver.setdefault(job.driver, {})
        mine[job.op] = mine.get(job.op, Counts()) + counts
    return {
        d: worker_groups.latencies({op: (c.good, c.busy_ns) for op, c in ops.items()})
        for d, ops in counts_by_driver.items()
    }
