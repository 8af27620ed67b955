"""The load that a phase begins with: its rate or workers, the next step of a ladder, and what earlier phases left."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.formatting import percent
from cbt_plugins.journal import HEARTBEATS, each_json_line
from cbt_plugins.load.generator import LoadStart, Memory, generator_of
from cbt_plugins.load.worker_groups import WorkerGroup, by_latency, by_share, fixed, groups_of
from cbt_plugins.models.ladder_search import answer_of_ladder, load_text, next_load, step_result
from cbt_plugins.plan import CALIBRATE, Ladder, Phase
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.fill_goal import reached_before
from cbt_plugins.run.reporting import numbers_of_phases

log = logging.getLogger(__name__)


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
    _check_goal(run, phase)
    if generator_of(phase.engine).worker_groups:
        return LoadStart(worker_groups=_worker_groups(run, phase) if phase.kind == "hybrid" else {})
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
    outdated: Set[str] = set()
    suffix = "" if phase.kind == "wait" else generator_of(phase.engine).state
    for i, earlier in enumerate(run.plan.phases[: index - 1], 1):
        paths = (run.archive.phase(i, earlier.name) / "state").glob(f"*{suffix}")
        left = {path.name[: -len(suffix)]: path for path in paths}
        states.update(left)
        record = run.archive.finished(i, earlier.name) if earlier.engine == phase.engine else None
        for job in record["jobs"] if record else ():  # none of a failure that was skipped
            if job["driver"] not in left:
                outdated.add(job["driver"])
            elif _is_listed(job):
                outdated.discard(job["driver"])
    since = run.journal.since("phase-done")
    stale = any(record["event"] == "phase-begun" for record in since)
    return Memory(states, stale, frozenset(outdated))


def _is_listed(job: Mapping[str, Any]) -> bool:
    """Return whether a job listed its objects before its load, so that its state does not depend on earlier ones."""
    spaces = (job["spec"] or {}).get("spaces") or ()
    return all(space["rebuild"] for space in spaces if space["numbered"])


def _next_of_ladder(run: RunContext, index: int, ladder: Ladder) -> float:
    """Return the load of the next step, from the numbers of those that are done."""
    names = [p.name for p in run.plan.phases[: index - 1] if p.ladder and p.ladder.name == ladder.name]
    if not names:
        return next_load(ladder, ())
    loads: Dict[str, float] = {}
    for i, earlier in enumerate(run.plan.phases[: index - 1], 1):
        record = run.archive.finished(i, earlier.name) if earlier.name in names else None
        if record:
            loads[earlier.name] = record["asked"]["rate"] or record["asked"]["workers"]
    unread = [name for name in loads if name not in run.ladder_steps]
    summary = numbers_of_phases(run.archive.folder, unread) if unread else {"phases": ()}
    for line in summary["phases"]:
        run.ladder_steps[line["name"]] = step_result(ladder, loads[line["name"]], summary, line)
    steps = [run.ladder_steps[name] for name in loads if name in run.ladder_steps]
    log.info("%s: %s", ladder.name, answer_of_ladder(ladder, steps).text)
    return next_load(ladder, steps)


def _rate(run: RunContext, index: int, phase: Phase) -> Optional[float]:
    """Return the rate of a phase; a share is relative to all requests/s in the window of the last closed loop before.

    A closed loop whose own rate was limited is taken only where there is no other one.
    """
    if phase.rate_share is None:
        return phase.rate
    share = percent(phase.rate_share, "g")
    limited: List[Tuple[str, float]] = []
    for i in range(index - 1, 0, -1):
        earlier = run.plan.phases[i - 1]
        record = run.archive.finished(i, earlier.name)
        closed = earlier.kind == "hybrid" and earlier.rate is earlier.rate_share is earlier.ladder is None
        closed = closed and all(work.rate is None for work in earlier.works)
        if not closed or earlier.is_calibration or not record or not record["window"]:
            continue
        rate, is_limited = _closed_loop_rate(run, i, earlier.name, record)
        if not rate:
            continue
        if not is_limited:
            log.info("%s: %s of the %.1f requests/s of %s", phase.name, share, rate, earlier.name)
            return round(phase.rate_share * rate, 3)
        limited.append((earlier.name, rate))
    if limited:
        name, rate = limited[0]
        text = "%s: %s of the %.1f requests/s of %s, whose own rate was limited: no other closed loop ran before it"
        log.warning(text, phase.name, share, rate, name)
        return round(phase.rate_share * rate, 3)
    raise RunFailed(f"{phase.name}: its rate is {share} of a closed loop, but no closed loop ran before it")


def _closed_loop_rate(run: RunContext, index: int, name: str, record: Mapping[str, Any]) -> Tuple[float, bool]:
    """Return the requests/s of a closed loop in its window (0: none), and whether its own rate was limited.

    It is that of the heartbeats in the window: before it workers may still join, and after it warp ends its requests.
    Without heartbeats it is that of all rows until the end of the window. A summary would be exact, but no load runs
    while it is made, and it needs numpy, which a run does not.
    """
    jobs = [job for job in record["jobs"] if job["first_row"] is not None]
    rate = _rate_of_heartbeats(run.archive.phase(index, name) / HEARTBEATS, record["window"], len(jobs))
    if not rate and jobs:
        lasted = record["window"]["end"] - min(job["first_row"] for job in jobs)
        rate = sum(job["rows_total"] for job in jobs) / lasted
    return rate, any(job.get("rate_limit") for job in jobs)


def _rate_of_heartbeats(path: Path, window: Mapping[str, float], jobs: int) -> float:
    """Return the requests/s of all jobs from the first to the last heartbeat in a window.

    0 where one of the jobs has less than two heartbeats there.
    """
    reports: Dict[str, List[Tuple[float, int]]] = {}  # of each job the first heartbeat and the latest one
    with contextlib.suppress(OSError, KeyError, TypeError, AttributeError):
        for beat in each_json_line(path):
            if window["start"] <= beat["t"] <= window["end"]:
                for job, line in beat["jobs"].items():
                    reports.setdefault(job, [])[1:] = [(beat["t"], line["ops"] + line["errors"])]
    spans = [(of_job[-1][0] - of_job[0][0], of_job[-1][1] - of_job[0][1]) for of_job in reports.values()]
    if len(spans) < jobs or any(seconds <= 0 for seconds, _ in spans):
        return 0.0
    return sum(requests / seconds for seconds, requests in spans)


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
            text = "%s: the calibration had too few requests of %s; workers are divided by the shares of the mix"
            log.warning(text, phase.name, driver.id)
            groups[driver.id] = by_share(phase.mix, driver.workers)
    return groups
