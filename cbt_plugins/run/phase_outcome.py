"""The outcome of one phase: the contents of phase.json, from what its jobs and the cluster reported."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.cluster_watch import ClusterWatch, NoWatch
from cbt_plugins.journal import ARCHIVE_VERSION, write_json
from cbt_plugins.load.generator import JobEnd, LoadJob, generator_of
from cbt_plugins.plan import Phase
from cbt_plugins.run.buckets import ObjectCount
from cbt_plugins.run.fill_goal import POOL, share_text
from cbt_plugins.run.phase_window import block_seconds, took_all
from cbt_plugins.warning_kinds import Severity, severity_of

#: share of failed requests above which a job did not measure what was asked
ERROR_SHARE = 0.05
#: seconds at the end of a phase for which a job may be idle
IDLE = 1.0
#: seconds by which a clock may drift within a phase, beside what its measurement may be wrong by
DRIFT = 0.25
#: seconds for an answer about the capacity, which a cluster with a fault may not give
CAPACITY_TIMEOUT = 30.0
CAPACITY_VERSION = 1


@dataclass
class PhaseOutcome:
    """The outcome of a phase, which grows while it runs; `record` is phase.json."""

    index: int
    phase: Phase
    rate: Optional[float] = None  # requests/s of all drivers that an open loop was asked for
    workers: Optional[int] = None  # of each driver, where they are not the plan's
    status: str = "ok"  # ok | degraded | failed | aborted
    window: Optional[Tuple[float, float]] = None  # run's clock
    jobs: List[Dict[str, Any]] = field(default_factory=list)
    accounting: List[ObjectCount] = field(default_factory=list)
    warnings: List[Dict[str, Any]] = field(default_factory=list)
    cause: str = ""  # of all its warnings, where there is one
    extra: Dict[str, Any] = field(default_factory=dict)
    not_undone: str = ""  # faults that stay in force after it, and why

    def warn(self, code: str, text: str, **where: Any) -> None:
        """Add a warning to this phase, unless it is there."""
        warning = {"code": code, "text": text, **where}
        if warning not in self.warnings:
            self.warnings.append(warning)

    def degrade(self, status: str) -> None:
        """Make the status worse, never better."""
        order = ("ok", "degraded", "failed", "aborted")
        self.status = max(self.status, status, key=order.index)

    def add_jobs(
        self,
        jobs: Sequence[LoadJob],
        ends: Mapping[str, JobEnd],
        offsets: Mapping[str, Offset],
        programs: Mapping[str, Mapping[str, str]],
        keep_rows: bool,
    ) -> None:
        """Record how every job ran, in the run's clock."""
        for job in jobs:
            end = ends.get(job.id)
            if end is None:
                self.warn("job-lost", f"{job.id}: its node was lost, so its rows may be incomplete", job=job.id)
                self.degrade("degraded")
                end = JobEnd({})
            record = _job_record(job, end, offsets[job.node].seconds)
            named = {f"{{{name}}}": path for name, path in programs[job.node].items()}
            record["argv"] = [named.get(a, a) for a in job.argv]
            record["rows"] = f"rows/{job.id}.csv.zst" if keep_rows else None
            self.jobs.append(record)
            self._judge_job(job, end, record)

    def _judge_job(self, job: LoadJob, end: JobEnd, record: Mapping[str, Any]) -> None:
        """Warn of what limits the trust in a job."""
        if end.reducer:
            self.warn("aggregates", f"{job.id}: {end.reducer}", job=job.id)
            self.degrade("degraded")
        # one with orders has a last word also when it is stopped: without it nobody knows which objects there are
        speechless = job.spec is not None and end.cut and (end.signal or end.exit or end.driver_end is None)
        if end.died or speechless:
            how = f"signal {end.signal}" if end.signal else f"exit status {end.exit}"
            why = f": {end.message}" if end.message else ""
            program = self.phase.engine if job.spec is not None else job.argv[1]
            self.warn("generator-died", f"{job.id}: {program} ended with {how}{why}", job=job.id)
            self.degrade("failed")
        elif record["rows_total"] == 0:
            self.warn("generator-idle", f"{job.id}: no request was finished", job=job.id)
            self._degrade_measurement()
        for code, text in (end.driver_end or {}).get("warnings") or ():
            self.warn(code, f"{job.id}: {text}" if severity_of(code) is Severity.INVALID else text)
            if severity_of(code) is Severity.INVALID:
                self._degrade_measurement()
        # what the end of the phase cut off did not fail
        errors = record["errors_total"] - int((end.driver_end or {}).get("cut") or 0)
        if errors > 0:
            text = f"{job.id}: {errors} of {record['rows_total']} requests failed"
            self.warn("errors", text, job=job.id)
            if errors > ERROR_SHARE * record["rows_total"]:
                self._degrade_measurement()

    def _degrade_measurement(self) -> None:
        """Degrade it, unless overload, or what a failure costs, is what is looked for."""
        if self.phase.ladder is None and not self.phase.failure:
            self.degrade("degraded")

    def note_dry(self) -> None:
        """Warn of jobs that ran out of objects to delete, once the window is known."""
        if self.window is None:
            return
        for job in self.jobs:
            if job["role"] != "delete" or job["exit"] != 0 or job["last_row"] is None:
                continue
            idle = self.window[1] - job["last_row"]
            if job["restarts"] or idle > IDLE:
                again = f", listed the bucket {job['restarts']} more times" if job["restarts"] else ""
                early = f", idle for the last {idle:.1f} s" if idle > IDLE else ""
                self.warn("ran-dry", f"{job['id']} ran out of objects to delete{again}{early}", job=job["id"])

    def add_accounting(self, accounting: Sequence[ObjectCount]) -> None:
        """Record the object accounting; warn where it does not balance."""
        self.accounting = list(accounting)
        for count in accounting:
            if not count.ok:
                self.warn("accounting", f"{count.bucket}: {count.difference}")
                self.degrade("degraded")

    def note_clocks(self, before: Mapping[str, Offset], after: Mapping[str, Offset]) -> None:
        """Warn of clocks that drifted while the load was on: times are corrected by what they were before it."""
        for node in dict.fromkeys(job["node"] for job in self.jobs):
            was, now = before[node], after[node]
            moved = now.seconds - was.seconds
            if abs(moved) > DRIFT + was.error + now.error:
                text = f"the clock of {node}, and the times of its requests, moved by {moved:+.3f} s during the phase"
                self.warn("clock-offset", f"{text}: synchronize the clocks (chrony)")

    def note_sampler_clock(self, node: str, before: Offset, now: Offset) -> None:
        """Warn of the clock of the node that samples the cluster, where it moved since the begin of the invocation."""
        moved = now.seconds - before.seconds
        if abs(moved) > DRIFT + before.error + now.error:
            text = f"the clock of {node}, which samples the cluster, moved by {moved:+.3f} s since the run began"
            corrected = "a steady drift is corrected, by measurements at the ends of phases"
            self.warn("clock-offset", f"{text}: {corrected}; synchronize the clocks (chrony)")

    @property
    def rate_limits(self) -> str:
        """What its load was held to, for the log: "; LIMITED: GET to 79.2/s". Results have `warning_kinds.paced`."""
        rates = [f"{self.rate:g}/s"] if self.rate else []
        rates += [f"{work.rate:g}/s in {work.name}" for work in self.phase.works if work.rate]
        if rates:
            return f"; an open loop of {', '.join(rates)}"
        held: Dict[str, float] = {}
        for job in self.jobs:
            if job["rate_limit"]:
                held[job["op"]] = held.get(job["op"], 0.0) + job["rate_limit"]
        limits = ", ".join(f"{op} to {rate:.1f}/s" for op, rate in held.items())
        return f"; LIMITED: {limits}" if limits else ""

    @property
    def why(self) -> str:
        """Why it is not to be trusted: the cause, or all warnings."""
        return self.cause or "; ".join(warning["text"] for warning in self.warnings)

    def note_capacity(self, watch: ClusterWatch, folder: Path) -> None:
        """Write what `ceph df` and `ceph osd df` say at the phase's end; warn when there is no answer.

        A phase moves data beside what it writes, so the borders of phases are where capacity can be compared.
        """
        if isinstance(watch, NoWatch):
            return
        try:
            df, osd_df = watch.ask(("df detail", "osd df"), CAPACITY_TIMEOUT)
        except CephError as error:
            self.warn("no-capacity", f"the capacity used at the end of the phase is unknown: {error}")
            return
        reached = share_text(self.phase.goal, self.extra.get(POOL) or {}, df) if self.phase.goal else ""
        if reached:
            self.warn("fill-share", reached)
        noted = {"version": CAPACITY_VERSION, "t": time.time(), "df": df, "osd_df": osd_df}
        try:
            write_json(folder / "capacity.json", noted)
        except OSError as error:
            self.warn("no-capacity", f"the capacity used at the end could not be written: {error.strerror}")

    def running_record(
        self, jobs: Sequence[LoadJob], offsets: Mapping[str, Offset], go_at: Optional[float]
    ) -> Dict[str, Any]:
        """Return the contents of running.json, when the load begins: what phase.json will say, as far as it is known.

        `go_at` is on the run's clock. The begin of the window is null where the first requests say it.
        """
        start = None
        if go_at is not None and (not jobs or generator_of(self.phase.engine).begins_at_go):
            start = go_at + self.phase.ramp + self.phase.warmup
        return {
            **self.record(),
            "status": "running",
            "window": {"start": start, "end": None},
            "jobs": [_job_record(job, JobEnd({}), offsets[job.node].seconds) for job in jobs],
        }

    def record(self) -> Dict[str, Any]:
        """Return the contents of phase.json."""
        phase = self.phase
        return {
            "version": ARCHIVE_VERSION,
            "index": self.index,
            "name": phase.name,
            "kind": phase.kind,
            "role": phase.role,
            "engine": phase.engine,
            "status": self.status,
            "window": {"start": self.window[0], "end": self.window[1]} if self.window else None,
            "block": block_seconds(phase),
            "asked": {
                "duration": None if took_all(self.jobs) else phase.duration,
                "mix": dict(phase.shares) or None,
                "rate": self.rate,
                "workers": self.workers,
                "arrivals": phase.arrivals if self.rate else None,
                "op": phase.warp.op if phase.warp else None,
            },
            "jobs": self.jobs,
            "accounting": [count.record() for count in self.accounting],
            "warnings": self.warnings,
            **self.extra,
        }


def _job_record(job: LoadJob, end: JobEnd, offset: float) -> Dict[str, Any]:
    """Return the record of a job in phase.json; `offset` is its node's clock minus the run's, in seconds."""
    record = {**job.record(), "aggregates": f"aggregates/{job.id}.aggregates", "clock_offset": offset}
    own = end.counts.get(job.op)  # a job may have rows of preparation too
    times = {"first_row": own.first, "last_row": own.last} if own and own.first else {}
    if own and end.driver_end and "span" in end.driver_end:  # its lines come later than what they tell of
        times = dict(zip(("first_row", "last_row"), end.driver_end["span"]))
    for name in ("started", "first_row", "last_row", "ended"):
        value = times.get(name, getattr(end, name))
        record[name] = None if value is None else value - offset
    record.update(exit=end.exit, signal=end.signal, cut=end.cut, restarts=max(0, end.passes - 1))
    record["rows_total"] = sum(c.good + c.failed for c in end.counts.values())
    record["errors_total"] = sum(c.failed for c in end.counts.values())
    record["driver_end"] = end.driver_end
    return record
