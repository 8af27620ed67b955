"""Runs the phases of a plan one after the other: each whole or not at all, and none that is done already."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import PurePosixPath

from cbt_plugins.host import RunFailed
from cbt_plugins.journal import write_json
from cbt_plugins.plan import Phase
from cbt_plugins.run.buckets import Buckets, note_capacity
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.events import EventSchedule
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.outcome import PhaseOutcome
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.resume import restore_state, set_aside
from cbt_plugins.run.start import start_of
from cbt_plugins.run.wait_phase import wait

log = logging.getLogger(__name__)


@dataclass
class PhaseRunner:
    """The phases of one invocation."""

    context: RunContext
    ready: Ready
    buckets: Buckets

    def run(self, index: int, phase: Phase) -> bool:
        """Run one phase (counted from 1) unless it is done; False when its result is not to be trusted.

        Raises RunFailed when it has none.
        """
        run, number = self.context, len(self.context.plan.phases)
        done = run.archive.finished(index, phase.name)
        if done is not None:
            log.info("phase %d of %d, %s: done already", index, number, phase.name)
            return bool(done["status"] == "ok")
        log.info("phase %d of %d: %s", index, number, phase.name)
        repeated = restore_state(run, self.buckets, index, phase)
        try:
            outcome = self._attempt(index, phase)
        except BaseException as error:
            set_aside(run, index, phase, f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        for text in repeated:
            outcome.warn("repeated", text)
        unknown = note_capacity(run.ceph, run.archive.running(index, phase.name))
        if unknown:
            outcome.warn("no-capacity", unknown)
        self._finish(index, phase, outcome)
        return outcome.status == "ok"

    def _attempt(self, index: int, phase: Phase) -> PhaseOutcome:
        run = self.context
        start = start_of(run, index, phase)
        # the folder on the nodes is the configuration's: a killed run of another archive may have left files there
        attempt = f"{run.run_id}-{index:02d}-{phase.name}.{len(run.journal.all('phase-begun'))}"
        scratch = str(PurePosixPath(run.host.run_dir) / "load" / attempt)
        run.journal.write("phase-begun", index=index, phase=phase.name, scratch=scratch)
        run.events.write("phase-begin", phase=phase.name, kind=phase.kind, role=phase.role)
        schedule = EventSchedule(phase.events, run.injector, run.events.write, phase.name)
        if phase.kind == "wait":
            return wait(run, index, phase, schedule, self.ready.offsets[run.ceph.head].seconds)
        return LoadPhase(run, self.ready, self.buckets).run(index, phase, start, schedule, scratch)

    def _finish(self, index: int, phase: Phase, outcome: PhaseOutcome) -> None:
        """Give the phase its place in the archive. Raises RunFailed when it has no result."""
        run = self.context
        for warning in outcome.warnings:
            log.warning("%s: %s", phase.name, warning["text"])
        if outcome.status in ("failed", "aborted"):
            write_json(run.archive.running(index, phase.name) / "phase.json", outcome.record())
            set_aside(run, index, phase, outcome.status)
            raise RunFailed(f"{phase.name} {outcome.status}: " + "; ".join(w["text"] for w in outcome.warnings))
        run.archive.finish(index, phase.name, outcome.record())
        run.journal.write("phase-done", index=index, phase=phase.name, status=outcome.status)
        run.events.write("phase-end", phase=phase.name, status=outcome.status)
        if outcome.window:
            seconds = outcome.window[1] - outcome.window[0]
            requests = sum(j["rows_total"] - j["errors_total"] for j in outcome.jobs)
            log.info("%s: %s, %.0f s, %d requests", phase.name, outcome.status, seconds, requests)
