"""Phases that make no load: wait for a time, or until all PGs are active+clean and stay so."""

from __future__ import annotations

import json
import time

from ..ceph import Ceph, StatusWatch
from ..config.plan import Phase
from .archive import RunArchive
from .outcome import Outcome
from .progress import Now, Progress

#: PG statistics lag the OSD map: clean counts only when it has lasted so long (seconds)
STABLE = 6.0


def wait(index: int, phase: Phase, ceph: Ceph, run_dir: str, archive: RunArchive) -> Outcome:
    """Wait as the phase says, sampling the status. A cluster that is not clean in time is a result, with its data."""
    folder = archive.running(index, phase.name)
    folder.mkdir(parents=True)
    outcome = Outcome(index, phase)
    limit = phase.at_most if phase.wait_clean else phase.duration
    progress = Progress(limit)
    begun, clean_since = time.time(), None
    with StatusWatch(ceph, run_dir) as watch, open(folder / "status.jsonl", "w", encoding="utf-8") as file:
        while True:
            for at, status in watch.poll(1.0):
                sample = {"t": at, "pgs": dict(status.pgs), "clean": status.not_clean == 0, "health": status.health}
                file.write(json.dumps({**sample, "not_clean": status.not_clean, "raw_used": status.raw_used}) + "\n")
                file.flush()
                clean_since = (clean_since or at) if status.not_clean == 0 else None
            elapsed = time.time() - begun
            not_clean = watch.latest.not_clean if watch.latest else None
            left = None if limit is None else max(0.0, limit - elapsed)
            progress.show(Now(phase.name, "waiting", elapsed, left, 0.0, 0.0, 0, not_clean))
            if phase.wait_clean and clean_since is not None and time.time() - clean_since >= STABLE:
                break
            if limit is not None and elapsed >= limit:
                if phase.wait_clean:
                    outcome.warn("not-clean", f"{not_clean} PGs are not active+clean after {elapsed:.0f} s")
                    outcome.degrade("degraded")
                break
    progress.clear()
    outcome.window = (begun, time.time())
    if clean_since is not None and phase.wait_clean:
        outcome.extra["clean_at"] = clean_since
    return outcome
