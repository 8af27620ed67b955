"""What a phase with load starts from: what earlier phases of the run found out and left."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Dict, List, Mapping, Optional

from cbt_plugins.host import RunFailed
from cbt_plugins.load.generator import LoadStart, Memory
from cbt_plugins.load.worker_groups import WorkerGroup, by_latency, by_share, fixed, groups_of
from cbt_plugins.plan import CALIBRATE, Phase
from cbt_plugins.run.context import RunContext

log = logging.getLogger(__name__)


def start_of(run: RunContext, index: int, phase: Phase) -> LoadStart:
    """Return the start of one phase (counted from 1), before the journal says that it has begun.

    Raises RunFailed when the phase needs the result of an earlier one and there is none.
    """
    if phase.engine == "cbt-load":
        return LoadStart(memory=_memory(run, index), rate=_rate(run, index, phase))
    return LoadStart(worker_groups=_worker_groups(run, phase) if phase.kind == "hybrid" else {})


def _memory(run: RunContext, index: int) -> Memory:
    states: Dict[str, Path] = {}
    for i, earlier in enumerate(run.plan.phases[: index - 1], 1):
        for path in (run.archive.phase(i, earlier.name) / "state").glob("*.state"):
            states[path.stem] = path
    since = run.journal.since("phase-done")
    return Memory(states, stale=any(record["event"] == "phase-begun" for record in since))


def _rate(run: RunContext, index: int, phase: Phase) -> Optional[float]:
    """A share is of the successful and failed requests a second that the last closed loop before made."""
    if phase.rate_share is None:
        return phase.rate
    for i in range(index - 1, 0, -1):
        earlier = run.plan.phases[i - 1]
        record = run.archive.finished(i, earlier.name)
        closed = earlier.kind == "hybrid" and earlier.rate is None and earlier.rate_share is None
        if not closed or earlier.is_calibration or not record or not record["window"]:
            continue
        # not until the jobs ended: what they waited for and looked up after the window is no part of their load
        lasted = record["window"]["end"] - min(j["first_row"] for j in record["jobs"])
        made = sum(j["rows_total"] for j in record["jobs"]) / lasted
        return round(phase.rate_share * made, 3)
    raise RunFailed(f"{phase.name}: no closed loop before it to take {100 * phase.rate_share:g} % of")


def _worker_groups(run: RunContext, phase: Phase) -> Dict[str, List[WorkerGroup]]:
    """Workers per operation in a hybrid phase by warp: fixed by the plan, or from the one calibration of the run."""
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
            log.warning("%s: the calibration saw too few requests of %s; workers go by share", phase.name, driver.id)
            groups[driver.id] = by_share(phase.mix, driver.workers)
    return groups
