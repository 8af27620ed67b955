"""Runs the phases of a plan one after the other: each whole or not at all, and none that is done already."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Dict, List, Optional, Sequence

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import Injector
from cbt_plugins.faults.cluster_facts import ask
from cbt_plugins.faults.steady import down_otherwise
from cbt_plugins.host import HostRun, RunFailed
from cbt_plugins.journal import Journal, write_json
from cbt_plugins.plan import Fault, Phase, Plan
from cbt_plugins.run.archive import RunArchive
from cbt_plugins.run.capacity import note_capacity
from cbt_plugins.run.events import Timeline, monitors_of
from cbt_plugins.run.load_phase import Loader
from cbt_plugins.run.outcome import Outcome
from cbt_plugins.run.start import Starts
from cbt_plugins.run.wait_phase import settle, wait

log = logging.getLogger(__name__)


@dataclass
class Phasing:
    """One invocation's way through the phases."""

    host: HostRun
    plan: Plan
    ceph: Ceph
    archive: RunArchive
    journal: Journal
    events: Journal
    injector: Injector
    loader: Loader

    def run(self, index: int, phase: Phase) -> bool:
        """Run one phase (counted from 1) unless it is done; False when its result is not to be trusted.

        Raises RunFailed when it has none.
        """
        number = len(self.plan.phases)
        done = self.archive.finished(index, phase.name)
        if done is not None:
            log.info("phase %d of %d, %s: done already", index, number, phase.name)
            return bool(done["status"] == "ok")
        log.info("phase %d of %d: %s", index, number, phase.name)
        repeated = [*self._prepare_again(index, phase), *self._break_again(index, phase)]
        try:
            outcome = self._attempt(index, phase)
        except BaseException as error:
            set_aside(self.archive, self.events, index, phase, f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        for text in repeated:
            outcome.warn("repeated", text)
        note_capacity(self.ceph, self.archive.running(index, phase.name), outcome)
        for warning in outcome.warnings:
            log.warning("%s: %s", phase.name, warning["text"])
        if outcome.status in ("failed", "aborted"):
            write_json(self.archive.running(index, phase.name) / "phase.json", outcome.record())
            set_aside(self.archive, self.events, index, phase, outcome.status)
            raise RunFailed(f"{phase.name} {outcome.status}: " + "; ".join(w["text"] for w in outcome.warnings))
        self.archive.finish(index, phase.name, outcome.record())
        self.journal.write("phase-done", index=index, phase=phase.name, status=outcome.status)
        self.events.write("phase-end", phase=phase.name, status=outcome.status)
        _say(outcome)
        return outcome.status == "ok"

    def _attempt(self, index: int, phase: Phase) -> Outcome:
        start = Starts(self.plan, self.archive, self.journal).of(index, phase)
        # the folder on the nodes is the configuration's: a killed run of another archive may have left things there
        attempt = f"{self.loader.run_id}-{index:02d}-{phase.name}.{len(self.journal.all('phase-begun'))}"
        scratch = str(PurePosixPath(self.host.run_dir) / "load" / attempt)
        self.journal.write("phase-begun", index=index, phase=phase.name, scratch=scratch)
        self.events.write("phase-begin", phase=phase.name, kind=phase.kind, role=phase.role)
        timeline = Timeline(phase.events, self.injector, self.events.write, phase.name)
        if phase.kind == "wait":
            offset = self.loader.ready.offsets[self.ceph.head].seconds
            return wait(index, phase, self.host, self.ceph, self.archive, timeline, monitors_of(self.plan), offset)
        return self.loader.run(index, phase, start, timeline, scratch)

    def _begun_before(self, phase: Phase) -> bool:
        """An attempt at it was broken off."""
        return any(record["phase"] == phase.name for record in self.journal.all("phase-begun"))

    def _prepare_again(self, index: int, phase: Phase) -> List[str]:
        """A phase that was broken off before: begin it from the same state as far as that can be had."""
        if phase.kind == "wait" or not self._begun_before(phase):
            return []
        first = next(i for i, p in enumerate(self.plan.phases, 1) if p.kind != "wait")
        if index == first:
            self.loader.buckets.empty(self.loader.buckets.counts())
            return []
        return ["an attempt was broken off before; its objects are still in the bucket"]

    def _break_again(self, index: int, phase: Phase) -> List[str]:
        """Faults of earlier phases that should be in force now, and are not: an invocation that ended undid them.

        The cluster may still be healing from that, so it settles before the first of them, and before those of a
        phase that does not follow upon what came before it in the plan. In between, what the earlier ones have
        taken is no reason to wait, as it is none for the rule `steady`.
        """
        wanted: Dict[str, Fault] = {}
        earlier = [event for p in self.plan.phases[: index - 1] for event in sorted(p.events, key=lambda e: e.at)]
        for event in earlier:
            if event.inject is not None:
                wanted[event.inject.label] = event.inject
            for label in event.undo:
                wanted.pop(label, None)
        there = {record.label for record in self.injector.open}
        lost = [fault for label, fault in wanted.items() if label not in there]
        if any(event.inject for event in earlier):
            self.injector.hasten()  # in force from the first fault to the end of the run, whoever began it
        for fault in lost:
            self._settle(index, phase, [fault])
            log.warning("injecting %s again, as it was before the run was broken off", fault.label)
            self.injector.inject(fault)
        if lost or self._begun_before(phase):
            self._settle(index, phase, [event.inject for event in phase.events if event.inject is not None])
        return [f"{fault.label} was undone when the run was broken off, and injected again" for fault in lost]

    def _settle(self, index: int, phase: Phase, faults: Sequence[Fault]) -> None:
        """Wait for the cluster unless these faults accept one that is not steady.

        One that does not get so in time is left to the rule itself, which refuses with its numbers.
        """
        labels = [fault.label for fault in faults if "steady" not in fault.accept]
        if not labels:
            return
        held = {osd for record in self.injector.open for osd in record.step.osds}
        down = down_otherwise(ask(self.ceph, ("osd dump",)), held)
        if down:
            log.warning("down, and not by this run: %s", ", ".join(f"osd.{osd}" for osd in down))
        log.info("%s: the cluster must be steady before %s", phase.name, ", ".join(labels))
        self.events.write("settle-begin", phase=phase.name, before=labels, down=down)
        begun = time.monotonic()
        given_up = settle(phase.name, self.plan, index, self.ceph, self.host.run_dir, bool(held))
        seconds = round(time.monotonic() - begun, 3)
        self.events.write("settle-end", phase=phase.name, seconds=seconds, given_up=given_up)
        if given_up:
            log.warning("%s: not recovered: %s", phase.name, given_up)


def set_aside(archive: RunArchive, events: Journal, index: int, phase: Phase, why: str) -> Optional[str]:
    """Keep what a broken attempt left under another name; returns it, None when there was nothing."""
    kept = archive.keep_partial(index, phase.name)
    if kept is None:
        return None
    events.write("phase-broken", phase=phase.name, kept=kept.name, why=why)
    log.warning("%s was broken off (%s); what it left is kept in %s", phase.name, why, kept.name)
    return kept.name


def _say(outcome: Outcome) -> None:
    if outcome.window:
        seconds = outcome.window[1] - outcome.window[0]
        requests = sum(j["rows_total"] - j["errors_total"] for j in outcome.jobs)
        log.info("%s: %s, %.0f s, %d requests", outcome.phase.name, outcome.status, seconds, requests)
