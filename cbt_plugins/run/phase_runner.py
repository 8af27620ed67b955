"""Runs the phases of a plan one after the other: each whole or not at all, and none that is done already."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.faults.kind import make
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import insist_on_room, write_json
from cbt_plugins.load.load_session import Agents
from cbt_plugins.plan import Phase, Plan, Settings
from cbt_plugins.run.buckets import Buckets
from cbt_plugins.run.context import LOAD, RunContext
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.leftover_files import set_aside
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.load_start import start_of
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_start_state import restore_state
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.sampler_clock import SamplerClock
from cbt_plugins.run.upgrade import Upgrader
from cbt_plugins.run.wait_phase import wait

log = logging.getLogger(__name__)


@dataclass
class Watchers:
    """The monitors that watch all phases of one invocation; `stack` ends them.

    Monitors with agents run from the first phase to the last: an agent begins again on a node that was restarted, and
    on no other node.
    """

    context: RunContext
    stack: contextlib.ExitStack
    started: int = 0
    _without_agents: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, anew: bool) -> None:
        """Start them unless they run; `anew`: again those that a node which was restarted has lost."""
        if self.started and not anew:
            return
        run = self.context
        folder = run.archive.monitors_of(len(run.journal.all("invocation")))
        if self.started:
            self._without_agents.close()
            folder = folder.with_name(f"{folder.name}.{self.started + 1}")
        else:
            self.stack.enter_context(run.cbt_run.monitors(folder, "recovery", acting=False, reconnects=True))
            self.stack.enter_context(self._without_agents)
        self._without_agents.enter_context(
            run.cbt_run.monitors(folder, "recovery", acting=False, reconnects=False)
        )
        self.started += 1


@dataclass
class PhaseRunner:
    """The phases of one invocation."""

    context: RunContext
    ready: Ready
    buckets: Buckets
    watchers: Watchers
    agents: Agents
    clock: SamplerClock

    def run_unless_finished(self, index: int, phase: Phase) -> bool:
        """Run one phase (counted from 1) unless it is done; False when its result is not to be trusted.

        Raises RunFailed when it has none.
        """
        run, number = self.context, len(self.context.plan.phases)
        done = run.archive.finished(index, phase.name)
        if done is not None:
            log.info("phase %d of %d, %s: done already", index, number, phase.name)
            return bool(done["status"] == "ok")
        log.info("phase %d of %d: %s", index, number, phase.name)
        self.watchers.start(anew=index > 1 and restarts_nodes(run.plan, index - 1))
        differences = restore_state(run, self.buckets, index, phase)
        try:
            outcome = self.attempt(index, phase)
        except BaseException as error:
            set_aside(run, index, phase, f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        for code, text in differences:
            outcome.warn(code, text)
        self.clock.measure(outcome)
        self._finish(index, phase, outcome)
        if outcome.not_undone:  # the phase has its result; the next one may not begin beside the fault
            raise RunFailed(f"not undone after {phase.name}: {outcome.not_undone}")
        return outcome.status == "ok"

    def attempt(self, index: int, phase: Phase) -> PhaseOutcome:
        """Make one attempt at a phase, in a folder whose name says that it runs."""
        run = self.context
        start = start_of(run, index, phase)
        # the folder on the nodes is the configuration's: a killed run of another archive may have left files there
        attempt = f"{run.run_id}-{index:02d}-{phase.name}.{len(run.journal.all('phase-begun'))}"
        scratch = str(PurePosixPath(run.cbt_run.run_dir) / LOAD / attempt)
        run.journal.write("phase-begun", index=index, phase=phase.name, scratch=scratch)
        run.events.write("phase-begin", phase=phase.name, kind=phase.kind, role=phase.role)
        note = partial(run.events.write, phase=phase.name)
        upgrader = Upgrader(run.injector, run.ceph, note, nodes_of(run.cbt_run.cluster))
        schedule = EventSchedule(phase.events, run.injector, run.events.write, phase.name, upgrader.run)
        if phase.kind == "wait":
            self.agents.close()  # a wait may take a day, and restart nodes
            outcome = wait(run, index, phase, schedule)
            outcome.note_capacity(run.watch, run.archive.running(index, phase.name))
            return outcome
        if phase.failure:
            if schedule.refusal():
                run.archive.running(index, phase.name).mkdir(parents=True)
                now = time.time()
                return PhaseOutcome(index, phase, window=(now, now))
            phase = replace(phase, duration=(phase.duration or 0.0) + schedule.postpone())
        if run.plan.settings.autoscaler is not None:  # gateways make pools when they are first used
            run.injector.apply(Settings(autoscaler=run.plan.settings.autoscaler))
        return LoadPhase(run, self.ready, self.buckets, self.agents).run(index, phase, start, schedule, scratch)

    def _finish(self, index: int, phase: Phase, outcome: PhaseOutcome) -> None:
        """Give the phase its place in the archive. Raises RunFailed when it has no result."""
        run = self.context
        for warning in outcome.warnings:
            log.warning("%s: %s", phase.name, warning["text"])
        if outcome.status in ("failed", "aborted"):
            write_json(run.archive.running(index, phase.name) / "phase.json", outcome.record())
            set_aside(run, index, phase, outcome.status)
            raise RunFailed(f"{phase.name} {outcome.status}: {outcome.why}")
        insist_on_room(run.archive.folder, partial(run.archive.finish, index, phase.name, outcome.record()))
        run.journal.write("phase-done", index=index, phase=phase.name, status=outcome.status)
        run.events.write("phase-end", phase=phase.name, status=outcome.status)
        if outcome.window:
            seconds = outcome.window[1] - outcome.window[0]
            requests = sum(j["rows_total"] - j["errors_total"] for j in outcome.jobs)
            limits = outcome.rate_limits
            log.info("%s: %s, %.0f s, %d requests%s", phase.name, outcome.status, seconds, requests, limits)


def restarts_nodes(plan: Plan, index: int) -> bool:
    """Return whether nodes came back in a phase (counted from 1) without what ran there."""
    faults = {event.inject.label: event.inject for phase in plan.phases for event in phase.events if event.inject}
    undone = [label for event in plan.phases[index - 1].events for label in event.undo]
    return any(make(faults[label].kind, faults[label].options).restarts for label in undone if label in faults)
