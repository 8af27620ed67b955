"""Phases with load: starts the generators, has them watched, brings their rows in, and counts the objects."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from cbt_plugins import signals
from cbt_plugins.cluster.clock_offsets import Offset, offsets
from cbt_plugins.cluster.fan_out import Pending
from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.journal import insist_on_room
from cbt_plugins.load import worker_groups
from cbt_plugins.load.generator import Counts, JobEnd, LoadJob, LoadStart, generator_of
from cbt_plugins.load.load_session import Agents, LoadOrders, LoadSession
from cbt_plugins.plan import Phase
from cbt_plugins.polling import insist
from cbt_plugins.run.buckets import FAULTY_STATS_TIMEOUT, STATS_TIMEOUT, Buckets, ObjectCount, account, settled
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.load_observer import LoadObserver, length_of
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_window import block_seconds, late_go, window_of
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.s3_key_sources import renewed_keys

log = logging.getLogger(__name__)

#: seconds for which files are asked for that a client has after a phase, at most, and between two attempts
BROUGHT_LIMIT, BROUGHT_EVERY = 3600.0, 30.0
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
        keys = renewed_keys(self.context.plan.s3, self.ready.keys, self.context.ceph)
        self.ready = replace(self.ready, offsets=self._offsets(), keys=keys)
        jobs = self.jobs_of(phase, start)
        folder = self.context.archive.running(index, phase.name)
        folder.mkdir(parents=True)
        outcome = PhaseOutcome(index, phase, rate=start.rate, workers=start.workers)
        # counted while the generators start: they write nothing before the go
        kept_counts = self.buckets.kept()
        before = Pending(self.counts_before if kept_counts is None else lambda: kept_counts)
        session = self.session_of(phase, jobs, scratch)
        self.make_load(session, outcome, schedule, folder, before)
        capacity = Pending(partial(outcome.note_capacity, self.context.watch, folder))
        after, clocks = Pending(self.counts_after), Pending(self._offsets)
        took = 0.0 if session.go_clock is None else time.monotonic() - session.go_clock
        limit = min(took, BROUGHT_LIMIT)  # losing a phase costs as long as it took
        bring = partial(insist, partial(session.collect, folder), RemoteError, every=BROUGHT_EVERY, limit=limit)
        insist_on_room(folder, bring)
        ends = session.ends()
        outcome.add_jobs(jobs, ends, self.ready.offsets, self.ready.programs, self.context.plan.keep_rows)
        outcome.window = window_of(phase, outcome.jobs, session.go_at)
        late = late_go(phase, outcome.jobs, session.go_at)
        if late:
            outcome.warn("late-go", f"a client began its load {late:.1f} s late, and so does the window")
        outcome.note_dry()
        if phase.warp is None or phase.warp.is_accounted:
            self.account_objects(outcome, (before.get(), after.get()), jobs, ends)
        if phase.is_calibration:
            outcome.extra["latency"] = _latencies(jobs, ends)
        capacity.get()
        outcome.note_clocks(self.ready.offsets, clocks.get())
        return outcome

    def _offsets(self) -> Mapping[str, Offset]:
        """Return the offsets of now: clocks that nobody synchronizes drift by seconds in a day."""
        run = self.context
        others = [node for node in run.clients if run.remote.has_own_clock(node)]
        try:
            return {**self.ready.offsets, **offsets(run.remote, others)}
        except (RemoteError, OSError) as error:  # the load itself will say what is wrong with the node
            log.warning("clock offsets could not be measured again; the earlier offsets are used: %s", error)
            return self.ready.offsets

    def jobs_of(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return the generator processes of a phase."""
        plan = self.context.plan
        payload = self.ready.manifest["payload"][phase.engine]
        plan = replace(plan, s3=replace(plan.s3, payload=payload))
        generator = generator_of(phase.engine)(plan, self.buckets.names, self.context.run_id)
        return generator.jobs(phase, start)

    def session_of(self, phase: Phase, jobs: Sequence[LoadJob], scratch: str) -> LoadSession:
        """Return the session that runs the jobs of a phase; `scratch` is its folder on the nodes."""
        orders = LoadOrders(
            tuple(jobs),
            self.ready.programs,
            self.ready.keys.environment(self.ready.authority, self.context.plan.s3.sse, self.ready.others),
            self.ready.offsets,
            duration=lasting(phase),
            phase=phase.name,
            block=block_seconds(phase),
            keep_rows=self.context.plan.keep_rows,
        )
        return LoadSession(self.agents, scratch, orders)

    def make_load(
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
            observer = LoadObserver(run, self.ready.offsets, outcome, session, feed, schedule, folder, before)
            stack.enter_context(contextlib.closing(observer))
            stack.enter_context(run.cbt_run.monitors(folder / "monitors", acting=True))
            try:
                session.start()
                observer.until_over()
                schedule.close()
                schedule.undo_left()
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

    def account_objects(self, outcome: PhaseOutcome, counts: _Counts, jobs: Sequence[LoadJob], ends: _Ends) -> None:
        """Compare the objects that are there with those that the jobs have written and removed."""
        before, after = counts

        def accounting_of(now: Mapping[str, int]) -> List[ObjectCount]:
            counts_before = {b: n for b, n in before.items() if b in now}
            return account(counts_before, now, jobs, ends, self.buckets.versioned)

        after = settled(self.counts_after, after, accounting_of)
        outcome.add_accounting(accounting_of(after))
        self.buckets.keep(after)
        if not (before and after) and self.context.plan.admin:
            outcome.warn("no-accounting", f"objects were not counted: {self.buckets.untold}")

    def counts_before(self) -> Dict[str, int]:
        """Count before the load; raises CephError, but while a fault is in force."""
        return self.counts_after() if self.context.faulty else self.buckets.counts()

    def counts_after(self) -> Dict[str, int]:
        """Count, or {}: no answer costs the accounting, and not the phase."""
        return self.buckets.counts_if_told(FAULTY_STATS_TIMEOUT if self.context.faulty else STATS_TIMEOUT)


def lasting(phase: Phase) -> float:
    """Return the seconds for which jobs run, so that all work for the phase's length; 0: until something else."""
    length = length_of(phase) or 0.0
    overlap = generator_of(phase.engine).overlap
    # what a fill writes is asked for, not measured
    return length + overlap + block_seconds(phase) if length and overlap and phase.goal is None else length


def _latencies(jobs: Sequence[LoadJob], ends: Mapping[str, JobEnd]) -> Dict[str, Dict[str, float]]:
    """Return the mean latency in seconds per driver and operation."""
    counts_by_driver: Dict[str, Dict[str, Counts]] = {}
    for job in jobs:
        counts = ends[job.id].counts.get(job.op, Counts()) if job.id in ends else Counts()
        mine = counts_by_driver.setdefault(job.driver, {})
        mine[job.op] = mine.get(job.op, Counts()) + counts
    return {
        d: worker_groups.latencies({op: (c.good, c.busy_ns) for op, c in ops.items()})
        for d, ops in counts_by_driver.items()
    }
