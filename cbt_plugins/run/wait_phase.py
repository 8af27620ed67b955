"""Waiting, with no load: for a time, or until all PGs are active+clean and stay so; as a phase, or before a fault."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.status import Status
from cbt_plugins.cluster.watch import StatusWatch
from cbt_plugins.faults.steady import unsteady
from cbt_plugins.host import HostRun
from cbt_plugins.plan import Phase, Plan
from cbt_plugins.run.archive import RunArchive
from cbt_plugins.run.events import Timeline
from cbt_plugins.run.outcome import Outcome
from cbt_plugins.run.progress import Now, Progress

#: PG statistics lag the OSD map by two periods of the mgr (5 s each): clean counts when it has lasted so long
STABLE = 13.0
#: seconds; for a plan that waits for active+clean nowhere: what `osdfailure:` has without a word
AT_MOST, STALLED = 360000.0, 7200.0


def wait(
    index: int,
    phase: Phase,
    host: HostRun,
    ceph: Ceph,
    archive: RunArchive,
    timeline: Timeline,
    monitors: Sequence[str],
    offset: float,
) -> Outcome:
    """Wait as the phase says, sampling the status. A cluster that is not clean in time is a result, with its data.

    `offset` is the head node's clock minus ours, in seconds.
    """
    folder = archive.running(index, phase.name)
    folder.mkdir(parents=True)
    outcome = Outcome(index, phase)
    limit = phase.at_most if phase.wait_clean else phase.duration
    timeline.prepare()
    state = _State(lambda status: status.not_clean)
    try:
        with host.monitors(folder / "monitors", *monitors), StatusWatch(ceph, host.run_dir, offset) as watch:
            begun = time.time()  # whoever watches is there before anything happens
            timeline.begin(begun)
            _watch(phase, limit, watch, timeline, state, outcome, folder / "status.jsonl")
            timeline.close()
    except BaseException:
        timeline.abandon()
        raise
    if timeline.failure is not None:
        outcome.warn("fault-failed", timeline.failure)
        outcome.degrade("failed")
    outcome.window = (begun, time.time())
    if state.clean_since is not None and phase.wait_clean:
        outcome.extra["clean_at"] = state.clean_since
    return outcome


def _watch(
    phase: Phase,
    limit: Optional[float],
    watch: StatusWatch,
    timeline: Timeline,
    state: _State,
    outcome: Outcome,
    path: Path,
) -> None:
    """Until it is over, one way or another."""
    progress, begun = Progress(limit), time.time()
    with contextlib.closing(progress), open(path, "w", encoding="utf-8") as file:
        while timeline.failure is None:
            for at, status in watch.poll(1.0):
                state.take(at, status)
                file.write(json.dumps(status.sample(at)) + "\n")
                file.flush()
            now = time.time()
            left = None if limit is None else max(0.0, limit - (now - begun))
            progress.show(Now(phase.name, "waiting", now - begun, left, 0.0, 0.0, 0, state.not_clean))
            if not phase.wait_clean:
                if limit is not None and now - begun >= limit:
                    return
                continue
            if state.stable(now):
                return
            given_up = state.given_up(now, begun, limit, phase.stalled)
            if given_up:
                outcome.warn("not-clean", given_up)
                outcome.degrade("degraded")
                return


def settle(name: str, plan: Plan, index: int, ceph: Ceph, run_dir: str, beside_faults: bool) -> Optional[str]:
    """Wait until the rule `steady` has nothing against a fault, as long as the plan waits for active+clean.

    `name` and `index` are those of the phase that is to begin; `beside_faults`: the run has some in force. None, or
    why it was given up.
    """
    limit, stalled = _patience(plan, index)
    state = _State(lambda status: sum(unsteady(status.pgs, beside_faults).values()))
    progress, begun = Progress(limit), time.time()
    with contextlib.closing(progress), StatusWatch(ceph, run_dir) as watch:
        while True:
            for at, status in watch.poll(1.0):
                state.take(at, status)
            now = time.time()
            if state.stable(now):
                return None
            given_up = state.given_up(now, begun, limit, stalled)
            if given_up:
                return given_up
            left = None if limit is None else max(0.0, limit - (now - begun))
            note = "until the cluster has settled"
            progress.show(Now(name, "waiting", now - begun, left, 0.0, 0.0, 0, state.not_clean, note))


def _patience(plan: Plan, index: int) -> Tuple[Optional[float], Optional[float]]:
    """`at_most` and `stalled` of the next wait for active+clean from a phase on (counted from 1), else of the last."""
    waits = [(i, phase) for i, phase in enumerate(plan.phases, 1) if phase.wait_clean]
    found = next((phase for i, phase in waits if i >= index), waits[-1][1] if waits else None)
    return (found.at_most, found.stalled) if found else (AT_MOST, STALLED)


@dataclass
class _State:
    """How far the cluster has come."""

    count: Callable[[Status], int]  # PGs that are waited for
    not_clean: Optional[int] = None
    clean_since: Optional[float] = None  # our clock
    progress_at: Optional[float] = None  # when less was to be done than ever before
    _least: Optional[Tuple[int, int]] = None

    def take(self, at: float, status: Status) -> None:
        self.not_clean = self.count(status)
        self.clean_since = (self.clean_since or at) if self.not_clean == 0 else None
        # degraded may rise while PGs move: either getting less is progress
        todo = (self.not_clean, status.degraded + status.misplaced)
        if self._least is None or todo[0] < self._least[0] or todo[1] < self._least[1]:
            least = self._least or todo
            self._least = (min(todo[0], least[0]), min(todo[1], least[1]))
            self.progress_at = time.time()

    def stable(self, now: float) -> bool:
        """Nothing has been left to wait for long enough."""
        return self.clean_since is not None and now - self.clean_since >= STABLE

    def given_up(self, now: float, begun: float, limit: Optional[float], stalled: Optional[float]) -> Optional[str]:
        """Why it is not waited for any longer; None while it is."""
        many = f"{self.not_clean} PGs are not active+clean"
        if self.not_clean is None:
            many = "ceph status has not answered"
        if limit is not None and now - begun >= limit:
            return f"{many} after {now - begun:.0f} s"
        if stalled is not None and now - (self.progress_at or begun) >= stalled:
            return f"{many} and nothing has changed for {stalled:.0f} s"
        return None
