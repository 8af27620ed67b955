"""Runs the phases of a plan one after the other: each whole or not at all, and none that is done already."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Dict, List, Optional

from ..ceph import Ceph
from ..config.plan import Fault, Phase, Plan
from ..faults import Injector
from ..host.run import HostRun, RunFailed
from ..journal import Journal
from .archive import RunArchive, write_json
from .loading import Loader
from .outcome import Outcome
from .start import Starts
from .timeline import Timeline, monitors_of
from .waiting import wait

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
        repeated = [*self._prepare_again(index, phase), *self._break_again(index)]
        try:
            outcome = self._attempt(index, phase)
        except BaseException as error:
            set_aside(self.archive, self.events, index, phase, f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        for text in repeated:
            outcome.warn("repeated", text)
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
            return wait(index, phase, self.host, self.ceph, self.archive, timeline, monitors_of(self.plan))
        return self.loader.run(index, phase, start, timeline, scratch)

    def _prepare_again(self, index: int, phase: Phase) -> List[str]:
        """A phase that was broken off before: begin it from the same state as far as that can be had."""
        if phase.kind == "wait" or not any(r["phase"] == phase.name for r in self.journal.all("phase-begun")):
            return []
        first = next(i for i, p in enumerate(self.plan.phases, 1) if p.kind != "wait")
        if index == first:
            self.loader.buckets.empty(self.loader.buckets.counts())
            return []
        return ["an attempt was broken off before; its objects are still in the bucket"]

    def _break_again(self, index: int) -> List[str]:
        """Faults of earlier phases that should be in force now, and are not: an invocation that ended undid them."""
        wanted: Dict[str, Fault] = {}
        for phase in self.plan.phases[: index - 1]:
            for event in sorted(phase.events, key=lambda event: event.at):
                if event.inject is not None:
                    wanted[event.inject.label] = event.inject
                for label in event.undo:
                    wanted.pop(label, None)
        there = {record.label for record in self.injector.open}
        lost = [fault for label, fault in wanted.items() if label not in there]
        for fault in lost:
            log.warning("injecting %s again, as it was before the run was broken off", fault.label)
            self.injector.inject(fault)
        return [f"{fault.label} was undone when the run was broken off, and injected again" for fault in lost]


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
