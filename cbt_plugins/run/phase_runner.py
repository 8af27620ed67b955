"""Runs the phases of a plan one after the other: each whole or not at all, and none that is done already."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Dict, List, Mapping, Optional

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.faults.kind import make
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import insist_on_room, write_json
from cbt_plugins.load.generator import LoadStart, Memory, generator_of
from cbt_plugins.load.load_session import Agents
from cbt_plugins.load.worker_groups import WorkerGroup, by_latency, by_share, fixed, groups_of
from cbt_plugins.models.ladder import answer_of_ladder, judge, load_text, next_load
from cbt_plugins.plan import CALIBRATE, Ladder, Phase, Plan, Settings
from cbt_plugins.run.buckets import Buckets
from cbt_plugins.run.context import LOAD, RunContext
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.fill_goal import reached_before
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_restore import restore_state
from cbt_plugins.run.preflight import Ready
from cbt_plugins.run.reporting import numbers_so_far
from cbt_plugins.run.rescue import set_aside
from cbt_plugins.run.upgrade import Upgrader
from cbt_plugins.run.wait_phase import wait

log = logging.getLogger(__name__)


@dataclass
class Watchers:
    """The monitors that watch all phases of one invocation; `stack` ends them."""

    context: RunContext
    stack: contextlib.ExitStack
    started: int = 0

    def start(self, anew: bool) -> None:
        """Start them unless they run; `anew`: also those that a node which was restarted has lost."""
        if self.started and not anew:
            return
        run = self.context
        self.stack.close()
        folder = run.archive.monitors_of(len(run.journal.all("invocation")))
        if self.started:
            folder = folder.with_name(f"{folder.name}.{self.started + 1}")
        self.stack.enter_context(run.host.monitors(folder, "recovery", acting=False))
        self.started += 1


@dataclass
class PhaseRunner:
    """The phases of one invocation."""

    context: RunContext
    ready: Ready
    buckets: Buckets
    watchers: Watchers
    agents: Agents

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
        self.watchers.start(anew=index > 1 and restarts_nodes(run.plan, index - 1))
        repeated = restore_state(run, self.buckets, index, phase)
        try:
            outcome = self._attempt(index, phase)
        except BaseException as error:
            set_aside(run, index, phase, f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        for text in repeated:
            outcome.warn("repeated", text)
        self._finish(index, phase, outcome)
        return outcome.status == "ok"

    def _attempt(self, index: int, phase: Phase) -> PhaseOutcome:
        run = self.context
        start = start_of(run, index, phase)
        # the folder on the nodes is the configuration's: a killed run of another archive may have left files there
        attempt = f"{run.run_id}-{index:02d}-{phase.name}.{len(run.journal.all('phase-begun'))}"
        scratch = str(PurePosixPath(run.host.run_dir) / LOAD / attempt)
        run.journal.write("phase-begun", index=index, phase=phase.name, scratch=scratch)
        run.events.write("phase-begin", phase=phase.name, kind=phase.kind, role=phase.role)
        note = partial(run.events.write, phase=phase.name)
        upgrader = Upgrader(run.injector, run.ceph, note, nodes_of(run.host.cluster))
        schedule = EventSchedule(phase.events, run.injector, run.events.write, phase.name, upgrader.run)
        if phase.kind == "wait":
            self.agents.close()  # a wait may take a day, and restart nodes
            outcome = wait(run, index, phase, schedule)
            outcome.note_capacity(run.watch, run.archive.running(index, phase.name))
            return outcome
        if phase.failure and schedule.refusal():
            run.archive.running(index, phase.name).mkdir(parents=True)
            now = time.time()
            return PhaseOutcome(index, phase, window=(now, now))
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
            log.info("%s: %s, %.0f s, %d requests%s", phase.name, outcome.status, seconds, requests, outcome.limited)


def restarts_nodes(plan: Plan, index: int) -> bool:
    """Return whether nodes came back in a phase (counted from 1) without what ran there."""
    faults = {event.inject.label: event.inject for phase in plan.phases for event in phase.events if event.inject}
    undone = [label for event in plan.phases[index - 1].events for label in event.undo]
    return any(make(faults[label].kind, faults[label].options).restarts for label in undone if label in faults)


def start_of(run: RunContext, index: int, phase: Phase) -> LoadStart:
    """Return the start of one phase (counted from 1), before the journal says that it has begun.

    Raises RunFailed when the phase needs the result of an earlier one and there is none.
    """
    if phase.ladder is not None:
        load = _next_of_ladder(run, index, phase.ladder)
        log.info("%s: %s", phase.name, load_text(phase.ladder, load))
        by_rate = phase.ladder.unit == "rate"
        return LoadStart(
            memory=_memory(run, index, phase), rate=load if by_rate else None, workers=None if by_rate else int(load)
        )
    if generator_of(phase.engine).worker_groups:
        return LoadStart(worker_groups=_worker_groups(run, phase) if phase.kind == "hybrid" else {})
    _check_goal(run, phase)
    return LoadStart(memory=_memory(run, index, phase), rate=_rate(run, index, phase))


def _check_goal(run: RunContext, phase: Phase) -> None:
    """Raise RunFailed for a fill with nothing to do: earlier phases have used the space, or other data has.

    An attempt at the phase that was broken off may have filled all of it.
    """
    if any(record["phase"] == phase.name for record in run.journal.all("phase-begun")):
        return
    with contextlib.suppress(CephError):  # full_guard asks again, and for as long as the phase takes
        errors = reached_before(run.ceph, [phase])
        if errors:
            raise RunFailed(errors[0])


def _memory(run: RunContext, index: int, phase: Phase) -> Memory:
    states: Dict[str, Path] = {}
    suffix = "" if phase.kind == "wait" else generator_of(phase.engine).state
    for i, earlier in enumerate(run.plan.phases[: index - 1], 1):
        for path in (run.archive.phase(i, earlier.name) / "state").glob(f"*{suffix}"):
            states[path.name[: -len(suffix)]] = path
    since = run.journal.since("phase-done")
    return Memory(states, stale=any(record["event"] == "phase-begun" for record in since))


def _next_of_ladder(run: RunContext, index: int, ladder: Ladder) -> float:
    """Return the load of the next step, from the numbers of those that are done."""
    names = [p.name for p in run.plan.phases[: index - 1] if p.ladder and p.ladder.name == ladder.name]
    if not names:
        return next_load(ladder, ())
    summary = numbers_so_far(run.archive.folder)
    lines = {line["name"]: line for line in summary["phases"]}
    steps = []
    for i, earlier in enumerate(run.plan.phases[: index - 1], 1):
        record = run.archive.finished(i, earlier.name) if earlier.name in names else None
        if record and earlier.name in lines:
            load = record["asked"]["rate"] or record["asked"]["workers"]
            steps.append(judge(ladder, load, summary, lines[earlier.name]))
    log.info("%s: %s", ladder.name, answer_of_ladder(ladder, steps).text)
    return next_load(ladder, steps)


def _rate(run: RunContext, index: int, phase: Phase) -> Optional[float]:
    """Return the rate of a phase; a share is relative to all requests/s of the last closed loop before."""
    if phase.rate_share is None:
        return phase.rate
    for i in range(index - 1, 0, -1):
        earlier = run.plan.phases[i - 1]
        record = run.archive.finished(i, earlier.name)
        closed = earlier.kind == "hybrid" and earlier.rate is earlier.rate_share is earlier.ladder is None
        closed = closed and all(work.rate is None for work in earlier.works)
        if not closed or earlier.is_calibration or not record or not record["window"]:
            continue
        # not until the jobs ended: what they waited for and looked up after the window is no part of their load
        worked = [j for j in record["jobs"] if j["first_row"] is not None]
        if not worked:
            continue
        lasted = record["window"]["end"] - min(j["first_row"] for j in worked)
        request_rate = sum(j["rows_total"] for j in worked) / lasted
        return round(phase.rate_share * request_rate, 3)
    share = f"{100 * phase.rate_share:g} % of a closed loop"
    raise RunFailed(f"{phase.name}: its rate is {share}, and no closed loop ran before it")


def _worker_groups(run: RunContext, phase: Phase) -> Dict[str, List[WorkerGroup]]:
    """Return the workers per operation in a hybrid phase by warp: fixed by the plan, or by the calibration of the run.
    """
    assert phase.mix is not None
    drivers = run.plan.drivers
    if phase.workers:
        return {d.id: fixed(phase.mix, phase.workers) for d in drivers}
    if phase.is_calibration:
        return {d.id: by_share(phase.mix, d.workers) for d in drivers}
    index = next(i for i, p in enumerate(run.plan.phases, 1) if p.is_calibration)
    calibrated = run.archive.finished(index, CALIBRATE) or {}
    groups = {}
    for driver in drivers:
        latency: Mapping[str, float] = calibrated.get("latency", {}).get(driver.id, {})
        if all(latency.get(op) for op, _, _ in groups_of(phase.mix)):
            groups[driver.id] = by_latency(phase.mix, driver.workers, latency)
        else:
            text = "%s: the calibration saw too few requests of %s; workers are divided by the shares of the mix"
            log.warning(text, phase.name, driver.id)
            groups[driver.id] = by_share(phase.mix, driver.workers)
    return groups
