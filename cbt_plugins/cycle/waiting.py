"""Phases that make no load: wait for a time, or until all PGs are active+clean and stay so."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence, Tuple

from ..ceph import Ceph, Status, StatusWatch
from ..config.plan import Phase
from ..host.run import HostRun
from .archive import RunArchive
from .outcome import Outcome
from .progress import Now, Progress
from .timeline import Timeline

#: PG statistics lag the OSD map by two periods of the mgr (5 s each): clean counts when it has lasted so long
STABLE = 13.0


def wait(
    index: int,
    phase: Phase,
    host: HostRun,
    ceph: Ceph,
    archive: RunArchive,
    timeline: Timeline,
    monitors: Sequence[str],
) -> Outcome:
    """Wait as the phase says, sampling the status. A cluster that is not clean in time is a result, with its data."""
    folder = archive.running(index, phase.name)
    folder.mkdir(parents=True)
    outcome = Outcome(index, phase)
    limit = phase.at_most if phase.wait_clean else phase.duration
    timeline.prepare()
    state = _State()
    try:
        with host.monitors(folder / "monitors", *monitors), StatusWatch(ceph, host.run_dir) as watch:
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
            if phase.wait_clean and state.clean_since is not None and now - state.clean_since >= STABLE:
                return
            if limit is not None and now - begun >= limit:
                if phase.wait_clean:
                    _give_up(outcome, state, f"after {now - begun:.0f} s")
                return
            if phase.stalled is not None and now - (state.progress_at or begun) >= phase.stalled:
                _give_up(outcome, state, f"and nothing has changed for {phase.stalled:.0f} s")
                return


@dataclass
class _State:
    """How far the cluster has come."""

    not_clean: Optional[int] = None
    clean_since: Optional[float] = None  # head's clock
    progress_at: Optional[float] = None  # when less was to be done than ever before
    _least: Optional[Tuple[int, int]] = None

    def take(self, at: float, status: Status) -> None:
        self.not_clean = status.not_clean
        self.clean_since = (self.clean_since or at) if status.not_clean == 0 else None
        # degraded may rise while PGs move: either getting less is progress
        todo = (status.not_clean, status.degraded + status.misplaced)
        if self._least is None or todo[0] < self._least[0] or todo[1] < self._least[1]:
            least = self._least or todo
            self._least = (min(todo[0], least[0]), min(todo[1], least[1]))
            self.progress_at = time.time()


def _give_up(outcome: Outcome, state: _State, when: str) -> None:
    outcome.warn("not-clean", f"{state.not_clean} PGs are not active+clean {when}")
    outcome.degrade("degraded")
