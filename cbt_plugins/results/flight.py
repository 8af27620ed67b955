"""Requests in flight: Little's law, the borders of the window, what the generators said once a second, and what they
could do without a cluster."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.archive_files import open_regular
from cbt_plugins.journal import each_json_line, lines_of
from cbt_plugins.models import closed_loop
from cbt_plugins.plan import op_of_work, split_op
from cbt_plugins.results.archive import Ceiling
from cbt_plugins.results.job import JobAggregates
from cbt_plugins.results.phase import PhaseAggregates
from cbt_plugins.results.series import TimeGrid


def littles_law(made: PhaseAggregates) -> Dict[str, Any]:
    """Return, per job or work of it, its workers and the requests in flight by two ways.

    in_flight   sum of the durations of all requests that ended in the window / length of the window
                = throughput x mean latency (failed requests keep a worker busy too)
    concurrency sum of the parts of all durations that lie in the window / length of the window
    expected    workers; of a phase that ends with its last object: worker-seconds until each worker's last request
                ended / length of the window
    """
    jobs: List[Dict[str, Any]] = []
    for job in made.phase.jobs:
        its = made.jobs.get(job.id)
        if its is None or not made.length:
            continue
        for loop in job.loops:
            ops = [of for op, of in its.ops.items() if not loop.work or split_op(op)[0] == loop.work]
            in_flight = sum(of.latency.total + of.failed.total for of in ops) / 1e9 / made.length
            expected = _expected(made, its, loop.workers) if len(job.loops) == 1 else float(loop.workers)
            jobs.append(
                {
                    "job": job.id,
                    "op": op_of_work(loop.work, "MIXED") if loop.work else job.op,
                    "workers": loop.workers,
                    "paced": loop.rate_limit > 0,
                    "in_flight": round(in_flight, 4),
                    "concurrency": round(sum(of.busy for of in ops) / 1e9 / made.length, 4),
                    "expected": round(expected, 4),
                    "deviation": _rounded(closed_loop.deviation(in_flight, expected)),
                }
            )
    closed = [line for line in jobs if not line["paced"]]
    workers = sum(line["workers"] for line in closed)
    expected = sum(line["expected"] for line in closed)
    in_flight = sum(line["in_flight"] for line in closed)
    return {
        "workers": workers,
        "in_flight": round(in_flight, 4),
        "concurrency": round(sum(line["concurrency"] for line in closed), 4),
        "expected": round(expected, 4),
        "deviation": _rounded(closed_loop.deviation(in_flight, expected)),
        "jobs": jobs,
    }


def _expected(aggregates: PhaseAggregates, job: JobAggregates, workers: int) -> float:
    """Return how many workers had something to do, on the average of the window."""
    if not aggregates.phase.takes_all or not job.last_end:
        return float(workers)
    return sum(max(0.0, end / 1e9 - aggregates.grid.start) for end in job.last_end.values()) / aggregates.length


def _rounded(share: Optional[float]) -> Optional[float]:
    return None if share is None else round(share, 4)


def at_borders(made: PhaseAggregates) -> Optional[Dict[str, int]]:
    """Return requests that were in flight when the window began and when it ended; None when there is no such moment.

    Only requests that have a row are counted: those that a stopped generator left behind are not.
    """
    if not made.jobs or not made.length or not made.grid.snapped:
        return None
    crossing = [its.crossing for its in made.jobs.values()]
    return {"start": sum(start for start, _ in crossing), "end": sum(end for _, end in crossing)}


def at_end(made: PhaseAggregates) -> Dict[str, Any]:
    """Return requests of cut jobs that have no row, because the job was stopped before they ended.

    A closed loop starts a request when the last one has ended: its age at the stop is how long its thread
    has been silent. `oldest` is thus a lower bound of the longest latency. cbt-load gives every request a row.
    """
    ages: List[float] = []
    for job in made.phase.jobs:
        its = made.jobs.get(job.id)
        if not job.cut or its is None or job.rate_limit > 0 or job.cbt_load:
            continue
        border = job.ended if job.ended is not None else made.grid.end
        ages += [border - end / 1e9 for end in its.last_end.values()]
    ages = [age for age in ages if age > 0]
    return {"requests": len(ages), "oldest_seconds": round(max(ages), 3) if ages else None}


def rate(made: PhaseAggregates) -> Dict[str, Any]:
    """Return the requests/s of driver open loops together; all null in a closed loop.

    asked      requests/s
    issued     what the drivers started, per second of their time; while the load grows (`ramp`), half of it is asked
    deviation  issued / asked - 1
    chance     driver standard deviation by chance alone: arrivals of a Poisson process; 0 of even ones
    unstarted  the share of due requests that no worker was free for, until the end
    """
    drivers = rates(made).values()
    nothing: Dict[str, Any] = dict.fromkeys(("asked", "issued", "deviation", "chance", "unstarted"))
    if not drivers:
        return nothing
    asked = made.phase.asked.get("rate") or sum(driver.asked for driver in drivers)
    issued = [driver.issued for driver in drivers if driver.issued is not None]
    if len(issued) < len(drivers):
        return {**nothing, "asked": asked}
    requests, unstarted = sum(driver.requests for driver in drivers), sum(driver.unstarted for driver in drivers)
    by_chance = sum(driver.requests for driver in drivers if driver.poisson)
    return {
        "asked": asked,
        "issued": round(sum(issued), 4),
        "deviation": round(sum(issued) / asked - 1, 6),
        "chance": round(math.sqrt(by_chance) / requests, 6) if requests else None,
        "unstarted": round(unstarted / max(1, requests + unstarted), 6),
    }


@dataclass
class LoopRate:
    """Requests of an open loop, of all drivers."""

    poisson: bool
    asked: float = 0.0  # requests/s
    issued: Optional[float] = 0.0  # requests/s; None: a driver has not said it
    requests: int = 0
    unstarted: int = 0  # due requests that never started


def rates(made: PhaseAggregates) -> Dict[str, LoopRate]:
    """Return the open loops of a phase by their work, "" for the only one."""
    found: Dict[str, LoopRate] = {}
    for job in made.phase.jobs if any(job.open_loop for job in made.phase.jobs) else ():
        end = job.driver_end
        seconds = float(end.get("ended") or 0) - float(end.get("began") or 0) - job.ramp / 2
        said = end.get("issued")
        for loop in job.loops:
            if not loop.rate_limit:
                continue
            by_chance = loop.poisson if loop.work else made.phase.asked.get("arrivals", "poisson") == "poisson"
            its = found.setdefault(loop.work, LoopRate(by_chance))
            its.asked += loop.rate_limit
            if seconds <= 0 or not isinstance(said, dict) or its.issued is None:
                its.issued = None
                continue
            requests = sum(n for op, n in said.items() if split_op(op)[0] == loop.work)
            its.requests += requests
            its.unstarted += loop.unstarted
            its.issued += requests / seconds
    return found


def generator_ceiling(phase: Mapping[str, Any], ceilings: Mapping[str, Ceiling]) -> Optional[Dict[str, Any]]:
    """Return {"share", "nodes": [{"node", "requests_per_s", "ceiling_per_s", "share", "beside"}]}, the fullest first.

    `phase` is its entry in the summary, `ceilings` that of ArchivedRun. None where nothing is known.
    """
    made: Dict[str, float] = {}
    seconds = phase["window"]["seconds"]
    for driver in phase["drivers"] if seconds else ():
        made[driver["node"]] = made.get(driver["node"], 0.0) + driver["total"]["requests"] / seconds
    nodes: List[Dict[str, Any]] = [
        {
            "node": node,
            "requests_per_s": round(made[node], 3),
            "ceiling_per_s": round(rate, 3),
            "share": round(made[node] / rate, 6),
            "beside": list(beside),
        }
        for node, (rate, beside) in ceilings.items()
        if node in made
    ]
    nodes.sort(key=lambda its: -its["share"])
    return {"share": nodes[0]["share"], "nodes": nodes} if nodes else None


FILE = "heartbeat.jsonl"
#: bins of a line
BINS = 1000


def under_way(path: Path, grid: TimeGrid, drivers: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """{"start", "step", "drivers": {driver: {"in_flight": [...], "oldest_seconds": [...]}}} per bin of the window.

    `drivers` is job -> driver. A bin has the most requests and the highest age that were said in it,
    null when nothing was. None: the generators say no such thing.
    """
    step = max(1, math.ceil(grid.seconds / BINS))
    bins = math.ceil(grid.seconds / step)
    said = set()  # drivers; warp says no such thing, and nothing under way is left out
    most: Dict[str, List[Optional[int]]] = defaultdict(lambda: [None] * bins)
    oldest: Dict[str, List[Optional[float]]] = defaultdict(lambda: [None] * bins)
    for beat in _beats(path):
        jobs, t = beat.get("jobs"), beat.get("t")
        if not isinstance(jobs, dict) or not isinstance(t, (int, float)):
            continue
        i = math.floor((t - grid.first) / step)
        if not 0 <= i < bins:
            continue
        sums: Dict[str, int] = {}
        for job, its in jobs.items():
            driver = drivers.get(job)
            if driver is None or not isinstance(its, dict):
                continue
            if its.get("in_flight"):
                said.add(driver)
            sums[driver] = sums.get(driver, 0) + int(its.get("in_flight") or 0)
            ages = oldest[driver]
            ages[i] = round(max(ages[i] or 0.0, float(its.get("oldest") or 0)), 3)
        for driver, n in sums.items():
            line = most[driver]
            line[i] = max(line[i] or 0, n)
    if not said:
        return None
    lines = {driver: {"in_flight": most[driver], "oldest_seconds": oldest[driver]} for driver in sorted(said)}
    return {"start": grid.first, "step": step, "drivers": lines}


def _beats(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with open_regular(path) as file:
            if not any(b'"in_flight"' in line for line in lines_of(file)):
                return
        yield from each_json_line(path)
    except OSError:
        return
