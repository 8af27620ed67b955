"""Runs the phases that make load: watches the generators, the cluster and the clock, and ends what must end."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from cbt_plugins import signals as interrupts
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.watch import StatusWatch
from cbt_plugins.faults import Injector
from cbt_plugins.faults.undoing import RECOVERY, SETTINGS
from cbt_plugins.host import HostRun
from cbt_plugins.load import split
from cbt_plugins.load.cbt_load import CbtLoadJobs
from cbt_plugins.load.jobs import Counts, Job, JobEnd
from cbt_plugins.load.keys import environment
from cbt_plugins.load.session import Beat, LoadError, LoadSession
from cbt_plugins.load.warp import LEAD, WarpJobs
from cbt_plugins.plan import CALIBRATE, Phase, Plan
from cbt_plugins.run.archive import RunArchive
from cbt_plugins.run.buckets import Buckets, balance
from cbt_plugins.run.events import Timeline, monitors_of
from cbt_plugins.run.outcome import Outcome, block_of, window_of
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.progress import Now, Progress
from cbt_plugins.run.start import Start

log = logging.getLogger(__name__)

#: seconds before the deadline in which a generator may end as it likes
LATE = 45.0
#: seconds after the word within which every generator should have begun
LATEST_START = 15.0
#: a generator that finishes nothing for so long is said to stall
STALL = 15.0


@dataclass
class Loader:
    """Everything that a phase with load needs."""

    host: HostRun
    plan: Plan
    remote: Remote
    ceph: Ceph
    ready: Ready
    buckets: Buckets
    archive: RunArchive
    run_id: str
    injector: Injector
    event: Callable[..., None]

    def jobs(self, phase: Phase, start: Start) -> List[Job]:
        """The generator processes of a phase."""
        if phase.engine == "cbt-load":
            return CbtLoadJobs(self.plan, self.buckets.names, self.run_id).jobs(phase, start.memory, start.rate)
        warp = WarpJobs(self.plan, self.buckets.names, self.run_id)
        return {
            "fill": lambda: warp.fill(phase, phase.name),
            "hybrid": lambda: warp.hybrid(phase, dict(start.lanes), phase.name),
            "warp": lambda: warp.plain(phase, phase.name),
        }[phase.kind]()

    def run(self, index: int, phase: Phase, start: Start, timeline: Timeline, scratch: str) -> Outcome:
        """Run one phase into its .running folder; `scratch` is a folder on the nodes that no attempt has used.

        Raises LoadError when it cannot be started or a node is lost.
        """
        jobs = self.jobs(phase, start)
        folder = self.archive.running(index, phase.name)
        folder.mkdir(parents=True)
        outcome = Outcome(index, phase, rate=start.rate)
        before = self._counts()
        duration = phase.goal.duration if phase.goal else phase.duration
        if duration:
            duration += phase.ramp + phase.warmup
        session = LoadSession(
            self.remote,
            scratch,
            jobs,
            self.ready.programs,
            environment(self.ready.keys.access, self.ready.keys.secret),
            self.ready.offsets,
            duration or 0.0,
            phase=phase.name,
            block=block_of(phase),
            keep_rows=self.plan.keep_rows,
        )
        watch = StatusWatch(self.ceph, self.host.run_dir, self.ready.offsets[self.ceph.head].seconds)
        observer = _Observer(self, outcome, session, watch, timeline, folder, duration)
        try:
            with self.host.monitors(folder / "monitors", *monitors_of(self.plan)), watch:
                try:
                    session.start()
                    observer.until_over()
                    timeline.close()
                    session.close()
                    session.collect(folder)
                except BaseException:
                    self._break_off(session, timeline, folder)
                    raise
                observer.note_timeline()
        finally:
            observer.close()
        ends = session.ends()
        outcome.add_jobs(jobs, ends, self.ready.offsets, self.ready.programs, self.plan.keep_rows)
        outcome.window = window_of(phase, outcome.jobs, session.go_at)
        outcome.note_dry()
        if not (phase.warp and phase.warp.op in ("versioned", "multipart")):
            after = self._counts(settle=True)
            outcome.add_books(balance({b: n for b, n in before.items() if b in after}, after, jobs, ends))
            if not (before and after):
                text = "objects were not counted: the index of buckets was out of reach while something was broken"
                outcome.warn("no-books", text)
        if phase.name == CALIBRATE:
            outcome.extra["latency"] = _latencies(jobs, ends)
        return outcome

    def _break_off(self, session: LoadSession, timeline: Timeline, folder: Path) -> None:
        """No load, then no fault, and only then the rows: a second signal may cost these, and the load its good end."""
        try:
            with interrupts.allowed():
                session.close()
        finally:
            with interrupts.unhurried():
                timeline.abandon()
                self.injector.undo_all()
        with interrupts.allowed():
            _rescue(session, folder)

    def _counts(self, settle: bool = False) -> Dict[str, int]:
        broken = any(record.label not in (SETTINGS, RECOVERY) for record in self.injector.open)
        return self.buckets.counts_if_told(settle) if broken else self.buckets.counts(settle)


@dataclass
class _Observer:
    """Follows one session from its start to its end."""

    loader: Loader
    outcome: Outcome
    session: LoadSession
    watch: StatusWatch
    timeline: Timeline
    folder: Path
    duration: Optional[float]
    _counts: Dict[str, Mapping[str, Counts]] = field(default_factory=dict)
    _rates: List[float] = field(default_factory=lambda: [0.0, 0.0])
    _stalled: Dict[str, bool] = field(default_factory=dict)
    _first_rows: Dict[str, float] = field(default_factory=dict)  # head's clock
    _stopping: Optional[float] = None
    _written: Dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._beats = open(self.folder / "heartbeat.jsonl", "w", encoding="utf-8")  # noqa: SIM115
        self._status = open(self.folder / "status.jsonl", "w", encoding="utf-8")  # noqa: SIM115
        self._progress = Progress(self.duration)
        # a day of seconds would be a hundred megabytes
        self._every = 1.0 if block_of(self.outcome.phase) < 60 else 10.0
        self._previous = (time.monotonic(), Counts())

    def close(self) -> None:
        self._progress.close()
        self._beats.close()
        self._status.close()

    def until_over(self) -> None:
        session, goal = self.session, self.outcome.phase.goal
        target = _target(self.loader.ceph, goal) if goal else None
        while not session.over:
            for beat in session.beats(1.0):
                self._take(beat)
            self._take_status()
            for job, end in session.ends().items():  # an agent whose last generator has died says no more than that
                if end.died:
                    self._died(job, f"signal {end.signal}" if end.signal else f"exit status {end.exit}")
            if session.go_at is None and session.all_ready:
                self.timeline.prepare()
                session.go()
                self.loader.event("load-go", phase=self.outcome.phase.name, at=session.go_at)
            if not self.timeline.begun and (begun := self._load_begun()) is not None:
                self.timeline.begin(begun)
            self._show()
            if self._stopping is not None:
                if time.monotonic() > self._stopping + 60.0:
                    raise LoadError("the generators did not end when they were asked to")
                continue
            self._guard()
            if self.timeline.failure is not None:
                self._abort("fault-failed", self.timeline.failure, "failed")
                continue
            if target is not None and target(self.watch):
                self.loader.event("goal-reached", phase=self.outcome.phase.name)
                self._stop()
            elif session.deadline is not None and time.time() > session.deadline:
                self.outcome.warn("late", "the generators did not end in time and were stopped")
                self.outcome.degrade("degraded")
                self._stop()

    def _past_end(self) -> bool:
        """True when the generators only see to what is left of their requests."""
        begun = self.session.go_at
        return bool(begun and self.duration and time.time() > begun + LEAD + self.duration)

    def _load_begun(self) -> Optional[float]:
        """When the load began: what events are timed from. cbt-load begins when it is told; warp takes its time."""
        at = self.session.go_at
        if at is None or time.time() < at:
            return None
        if self.outcome.phase.engine == "cbt-load":
            return at
        waited = [j.id for j in self.session.jobs if j.start == "go"]
        rows = [self._first_rows.get(job) for job in waited]
        first = [row for row in rows if row is not None]
        if len(first) == len(waited) or time.time() > at + LATEST_START:
            return max(first, default=time.time())
        return None

    def note_timeline(self) -> None:
        """The load is over: say what should have happened in it and has not."""
        if self.timeline.failure is not None:
            self.outcome.warn("fault-failed", self.timeline.failure)
            self.outcome.degrade("failed")
        elif self.timeline.left:
            self.outcome.warn("events-left", f"the load was over before {self.timeline.left} of its events")
            self.outcome.degrade("degraded")

    def _stop(self) -> None:
        self._stopping = time.monotonic()
        self.session.stop()

    def _abort(self, code: str, text: str, status: str) -> None:
        log.error("%s: %s", self.outcome.phase.name, text)
        self.outcome.warn(code, text)
        self.outcome.degrade(status)
        self._stop()

    def _take(self, beat: Beat) -> None:
        offset = self.loader.ready.offsets[beat.node].seconds
        jobs = {}
        for job, counts in beat.counts.items():
            self._counts[job] = counts
            seen = [c.first for c in counts.values() if c.first is not None]
            if seen:
                self._first_rows.setdefault(job, min(seen) - offset)
            total = sum(counts.values(), Counts())
            jobs[job] = {"ops": total.good, "bytes": total.size, "errors": total.failed, "state": beat.states[job]}
            said = beat.driver.get(job, {})
            jobs[job].update((key, said[key]) for key in ("in_flight", "oldest", "queued", "dry") if said.get(key))
            down = [url for url, host in said.get("hosts", {}).items() if not host["up"]]
            if down:
                jobs[job]["down"] = down
            since = max(beat.last_row[job], (self.session.go_at or beat.at) + offset)
            late = beat.states[job] == "running" and beat.at - since > STALL and not self._past_end()
            if late and not self._stalled.get(job):
                text = f"{job}: no request was finished for {STALL:.0f} s"
                log.warning("%s: %s", self.outcome.phase.name, text)
                self.outcome.warn("stall", text, job=job)
            self._stalled[job] = late
            code = beat.exits[job]
            if beat.states[job] == "done" and code not in (0, None):
                self._died(job, f"exit status {code}" if code > 0 else f"signal {-code}")
        if beat.at - self._written.get(beat.node, 0.0) > self._every - 0.5:
            self._written[beat.node] = beat.at
            self._beats.write(json.dumps({"t": beat.at - offset, "node": beat.node, "jobs": jobs}) + "\n")
            self._beats.flush()

    def _died(self, job: str, how: str) -> None:
        """A generator ended badly: what is left of the load is not what was asked for, so the phase ends here."""
        deadline = self.session.deadline
        if self._stopping is None and not (deadline is not None and time.time() > deadline - LATE):
            self._abort("generator-died", f"{job} ended with {how}, before its time", "failed")

    def _take_status(self) -> None:
        for at, status in self.watch.poll():
            self._status.write(json.dumps(status.sample(at)) + "\n")
            self._status.flush()

    def _guard(self) -> None:
        status = self.watch.latest
        if status is None:
            return
        limit = self.loader.plan.full_guard
        if status.raw_used is not None and status.raw_used >= limit:
            self._abort(
                "full",
                f"{100 * status.raw_used:.1f} % of raw capacity is used, full_guard is {100 * limit:g} %",
                "aborted",
            )
        full = [c for c in status.checks if c in ("OSD_FULL", "POOL_FULL", "OSD_BACKFILLFULL")]
        if full:
            self._abort("full", f"Ceph says {', '.join(full)}", "aborted")

    def _show(self) -> None:
        total = sum((c for counts in self._counts.values() for c in counts.values()), Counts())
        moment, last = self._previous
        passed = time.monotonic() - moment
        if passed >= 1.0:
            self._rates = [(total.good - last.good) / passed, (total.size - last.size) / passed / (1 << 20)]
            self._previous = (time.monotonic(), total)
        begun = self.session.go_at
        elapsed = max(0.0, time.time() - begun) if begun else 0.0
        left = None
        if begun and self.duration:
            lead = LEAD if self.outcome.phase.engine == "warp" else 0.0
            left = max(0.0, begun + lead + self.duration - time.time())
        fresh = self.watch.latest is not None and time.monotonic() - self.watch.latest_at < 30.0
        stalled = [job for job, late in self._stalled.items() if late]
        self._progress.show(
            Now(
                phase=self.outcome.phase.name,
                state="starting" if begun is None else "stopping" if self._stopping else "running",
                elapsed=elapsed,
                left=left,
                objects_per_second=self._rates[0],
                mib_per_second=self._rates[1],
                errors=total.failed,
                not_clean=self.watch.latest.not_clean if fresh and self.watch.latest else None,
                note=f"stalled: {', '.join(stalled)}" if stalled else "",
            )
        )


def _rescue(session: LoadSession, folder: Path) -> None:
    """The phase is lost: end its generators, keep their rows, and let nothing hide why it was lost."""
    session.close()
    try:
        session.collect(folder)
    except Exception as error:
        log.error("the rows of %s could not be brought in: %s", folder.name, error)


def _target(ceph: Ceph, goal: object) -> Optional[Callable[[StatusWatch], bool]]:
    """When a fill by share is done: a question to the latest status. None for goals that end by themselves."""
    max_avail, raw = getattr(goal, "max_avail", None), getattr(goal, "raw", None)
    if raw is not None:
        return lambda watch: bool(watch.latest and watch.latest.raw_used is not None and watch.latest.raw_used >= raw)
    if max_avail is None:
        return None
    pool = ceph.data_pool()
    wanted = ceph.pool_bytes(pool) + max_avail * ceph.max_avail(pool)
    asked = [0.0]

    def reached(_: StatusWatch) -> bool:
        if time.monotonic() < asked[0]:
            return False
        asked[0] = time.monotonic() + 5.0
        return ceph.pool_bytes(pool) >= wanted

    return reached


def _latencies(jobs: Sequence[Job], ends: Mapping[str, JobEnd]) -> Dict[str, Dict[str, float]]:
    """Mean latency in seconds per driver and operation."""
    found: Dict[str, Dict[str, Counts]] = {}
    for job in jobs:
        counts = ends[job.id].counts.get(job.op, Counts()) if job.id in ends else Counts()
        mine = found.setdefault(job.driver, {})
        mine[job.op] = mine.get(job.op, Counts()) + counts
    return {d: split.latencies({op: (c.good, c.busy_ns) for op, c in ops.items()}) for d, ops in found.items()}
