"""Watches generators, cluster and clock while a load runs, and stops the load when it has to end."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Set

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.cluster_watch import StatusFeed
from cbt_plugins.cluster.fan_out import Pending
from cbt_plugins.cluster_conditions import found_in, of_own_faults
from cbt_plugins.formatting.progress_line import Now, RateMeter
from cbt_plugins.journal import HEARTBEATS, LineWriter, tell
from cbt_plugins.load.client_agent import REDUCE_TIMEOUT
from cbt_plugins.load.generator import Counts
from cbt_plugins.load.generator_process import TERM_TIMEOUT
from cbt_plugins.load.load_session import Beat, LoadError, LoadSession
from cbt_plugins.plan import Phase
from cbt_plugins.run.context import LOAD_BEGUN, RunContext
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.fill_goal import reaching
from cbt_plugins.run.full_cluster_guard import FullClusterGuard
from cbt_plugins.run.live_files import WatchedPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_window import heartbeat_seconds
from cbt_plugins.run.progress import Progress, remainder_of

log = logging.getLogger(__name__)

#: seconds after the go within which every generator should have begun
LATEST_START = 15.0
#: seconds without a finished request after which a generator counts as stalled
STALL = 15.0
#: seconds without a word of a client after which it is away
AWAY = 30.0
#: seconds for one that is back to say how its load went
BACK = 10.0
#: seconds from the order to end to the last word of a client: of its generators, and of what counts their rows
LATEST_END = TERM_TIMEOUT + 2 * REDUCE_TIMEOUT
#: a fill has failed when a job of it had so many failed requests in so many seconds, and no other ones
REFUSED_REQUESTS, REFUSED_SECONDS = 10, 5.0


@dataclass
class LoadObserver:
    """Follows one session from its start to its end."""

    context: RunContext
    offsets: Mapping[str, Offset]  # of the clocks of clients
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
    _silent: Mapping[str, float] = field(default_factory=dict)  # client -> seconds without a word
    _away_at: float = -math.inf  # when a client was away last: it does not hear an order, nor tell its end

    def __post_init__(self) -> None:
        self.duration = length_of(self.outcome.phase)
        self._jobs_of_node: Dict[str, Set[str]] = {}
        for job in self.session.jobs:
            self._jobs_of_node.setdefault(job.node, set()).add(job.id)
        self._beats = LineWriter(self.folder / HEARTBEATS)
        self._watched = WatchedPhase(self.folder)
        self._progress = Progress(self.duration)
        self._guard = FullClusterGuard(self.watch)
        self._every = float(heartbeat_seconds(self.outcome.phase))

    def close(self) -> None:
        self._progress.close()
        self._watched.close()
        with contextlib.suppress(OSError):  # a full disk, of which is told
            self._beats.close()

    def until_over(self) -> None:
        """Follow the load until all generators have ended; stop them when something ends the phase."""
        goal = self.outcome.phase.goal
        reached = reaching(self.context, goal, self.outcome.extra) if goal else None
        while not self.session.over:
            self.look()
            self.begin_due()
            self.show()
            if self._stopping is None:
                self._stop_if_needed(reached)
            elif time.monotonic() > max(self._stopping, self._away_at) + LATEST_END:
                late = f"within {LATEST_END:.0f} s of the order to end"
                raise LoadError(f"the load generators of {', '.join(self.session.running)} did not end {late}")

    def look(self) -> None:
        """Take what the drivers and the cluster have sent since the last look."""
        for beat in self.session.beats(1.0):
            self.take(beat)
        self._note_silence(self.session.silent(AWAY) if self.session.go_at else {})
        for at, status in self.watch.poll():
            self._note_conditions(status.sample(at))
        for job, end in self.session.ends().items():  # an agent whose last generator has died says no more than that
            if end.died:
                self._died(job, f"signal {end.signal}" if end.signal else f"exit status {end.exit}")

    def begin_due(self) -> None:
        """Give the word to load when all generators are ready, and start the clock of the events with the load."""
        session = self.session
        if session.go_at is None and session.all_ready and self.before.is_done:
            self.before.get()  # raises its error before there is any load
            self.schedule.prepare()
            # before the go: a run that is killed in between has clients that may write
            self.context.journal.write(LOAD_BEGUN, phase=self.outcome.phase.name)
            session.go()
            self.context.events.write("load-go", phase=self.outcome.phase.name, at=session.go_at)
            self._watched.begin(self.outcome.running_record(session.jobs, self.offsets, session.go_at))
        if not self.schedule.begun and (begun := self._load_begun()) is not None:
            self.schedule.begin(begun)

    def _stop_if_needed(self, reached: Optional[Callable[[StatusFeed], bool]]) -> None:
        latest_end = self.session.latest_end
        self._abort_if_full()
        if self.schedule.failure is not None:
            self._abort("fault-failed", self.schedule.failure, "failed")
        elif reached is not None and reached(self.watch):
            self._stop()
            tell(self.context.events.write, "goal-reached", phase=self.outcome.phase.name)
        elif latest_end is not None and time.monotonic() > max(latest_end, self._away_at + BACK):
            self.outcome.warn("late", "the load generators did not end in time and were stopped")
            self.outcome.degrade("degraded")
            self._stop()

    def _past_end(self) -> bool:
        """Return whether the generators only finish the requests that they have begun."""
        begun = self.session.go_clock
        return bool(begun is not None and self.duration and time.monotonic() > begun + self._lead() + self.duration)

    def _lead(self) -> float:
        """Return the seconds from the start of a generator to its first request."""
        return max(job.lead for job in self.session.jobs)

    def _load_begun(self) -> Optional[float]:
        """Return the begin of the load, from which events are timed: at `go`, or with the first rows."""
        at, clock = self.session.go_at, self.session.go_clock
        if at is None or clock is None or time.monotonic() < clock:
            return None
        waited = [j.id for j in self.session.jobs if j.start == "go"]
        if not waited:
            return at
        rows = [self._first_rows.get(job) for job in waited]
        first = [row for row in rows if row is not None]
        if len(first) == len(waited) or time.monotonic() > clock + LATEST_START:
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

    def take(self, beat: Beat) -> None:
        """Take what a client says of its jobs."""
        offset = self.offsets[beat.node].seconds
        self._watched.add(self._jobs_of_node[beat.node], beat.aggregates)
        for job, counts in beat.counts.items():
            self._counts[job] = counts
            total = sum(counts.values(), Counts())
            self._meter.take(job, beat.counted_at[job], total.good, total.size)
            if beat.states[job] == "done":
                self._meter.end(job)
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
            text = f"{job}: no request has finished for {STALL:.0f} s"
            log.warning("%s: %s", self.outcome.phase.name, text)
            self.outcome.warn("stall", text, job=job)
        self._stalled[job] = stalled

    def _note_silence(self, silent: Mapping[str, float]) -> None:
        """Tell of clients that say nothing, or say something again. Their load goes on, and is in their rows."""
        for node in silent.keys() - self._silent.keys():
            text = "%s: no message from %s for %.0f s: its load continues unobserved"
            log.warning(text, self.outcome.phase.name, node, AWAY)
        for node in self._silent.keys() - silent.keys():
            text = f"{node} sent no message for {self._silent[node]:.0f} s: its load continued unobserved"
            self.outcome.warn("client-silent", text)
        self._silent = silent
        if silent:
            self._away_at = time.monotonic()

    def _note_refusal(self, beat: Beat, job: str) -> None:
        """Stop a fill that the cluster refuses: the phases after it would have nothing to work on."""
        text = refusal(beat, job)
        if text and self.outcome.phase.kind == "fill" and self._stopping is None and not self.context.faulty:
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
        if new and self.session.go_at is not None and not self._own_fault_lasts():
            self._reported.update(new)
            for name, text in new.items():
                log.warning("%s: %s: %s", self.outcome.phase.name, name, text)

    def _own_fault_lasts(self) -> bool:
        """Return whether a fault of the run explains the state of the cluster now."""
        return any(end == math.inf for _, end in of_own_faults(self.context.events.records))

    def _died(self, job: str, how: str) -> None:
        """Stop the phase: without this generator the load is not what was asked for."""
        if self._stopping is None:
            self._abort("generator-died", f"{job} ended early with {how}", "failed")

    def _abort_if_full(self) -> None:
        unguarded = self._guard.newly_unguarded(self.context.plan)
        if unguarded:
            log.warning("%s: %s", self.outcome.phase.name, unguarded)
            self.outcome.warn("unguarded", unguarded)
        for reason in self._guard.reasons_to_end(self.context.plan, self.context.injector):
            self._abort("full", reason, "aborted")

    def show(self) -> None:
        """Show the progress line of now."""
        total = sum((c for counts in self._counts.values() for c in counts.values()), Counts())
        begun, now = self.session.go_clock, time.monotonic()
        elapsed = 0.0 if begun is None else max(0.0, now - begun)
        left = None
        if begun is not None and self.duration:
            left = max(0.0, begun + self._lead() + self.duration - now)
        fresh = self.watch.latest is not None and time.monotonic() - self.watch.latest_at < 30.0
        notes = {"stalled": [job for job, late in self._stalled.items() if late], "no message from": self._silent}
        self._progress.show(
            Now(
                phase=self.outcome.phase.name,
                state="starting" if begun is None else "stopping" if self._stopping else "running",
                elapsed=elapsed,
                left=left,
                rate=None if self._silent else self._meter.rate(),
                errors=total.failed,
                not_clean=self.watch.latest.not_clean if fresh and self.watch.latest else None,
                note="; ".join(f"{condition} {', '.join(whom)}" for condition, whom in notes.items() if whom),
                after=remainder_of(self.context.plan.phases[self.outcome.index :]),
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


def length_of(phase: Phase) -> Optional[float]:
    """Return the seconds of a phase's load, ramp and warm-up included; None when something else ends it."""
    duration = phase.goal.duration if phase.goal else phase.duration
    return duration + phase.ramp + phase.warmup if duration else duration
