"""Little's law: requests in flight, also at the borders of the window and by the heartbeats of the generators; the rate
that open loops issued, and what the generators could do without a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

from cbt_plugins.models import closed_loop
from cbt_plugins.plan import op_of_work, split_op
from cbt_plugins.results.archive import Ceiling
from cbt_plugins.results.requests.job_aggregates import JobAggregates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates


def littles_law(aggregates: PhaseAggregates) -> Dict[str, Any]:
    """Return, per job or work of it, its workers and the requests in flight by two ways.

    in_flight   sum of the durations of all requests that ended in the window / length of the window
                = throughput x mean latency (failed requests keep a worker busy too)
    concurrency sum of the parts of all durations that lie in the window / length of the window
    expected    workers; of a phase that ends with its last object: worker-seconds until each worker's last request
                ended / length of the window
    """
    jobs: List[Dict[str, Any]] = []
    for job in aggregates.phase.jobs:
        job_aggregates = aggregates.jobs.get(job.id)
        if job_aggregates is None or not aggregates.length:
            continue
        for loop in job.loops:
            ops = [of for op, of in job_aggregates.ops.items() if not loop.work or split_op(op)[0] == loop.work]
            in_flight = sum(of.latency.total + of.failed.total for of in ops) / 1e9 / aggregates.length
            expected = (
                _expected(aggregates, job_aggregates, loop.workers) if len(job.loops) == 1 else float(loop.workers)
            )
            jobs.append(
                {
                    "job": job.id,
                    "op": op_of_work(loop.work, "MIXED") if loop.work else job.op,
                    "workers": loop.workers,
                    "paced": loop.rate_limit > 0,
                    "in_flight": round(in_flight, 4),
                    "concurrency": round(sum(of.busy for of in ops) / 1e9 / aggregates.length, 4),
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
    """Return the number of workers that had something to do, on the average of the window."""
    if not aggregates.phase.takes_all or not job.last_end:
        return float(workers)
    return sum(max(0.0, end / 1e9 - aggregates.grid.start) for end in job.last_end.values()) / aggregates.length


def _rounded(share: Optional[float]) -> Optional[float]:
    return None if share is None else round(share, 4)


def in_flight_at_borders(aggregates: PhaseAggregates) -> Optional[Dict[str, int]]:
    """Return requests that were in flight when the window began and when it ended; None when there is no such moment.

    Only requests that have a row are counted: those that a stopped generator left behind are not.
    """
    if not aggregates.jobs or not aggregates.length or not aggregates.grid.snapped:
        return None
    crossing = [job.crossing for job in aggregates.jobs.values()]
    return {"start": sum(start for start, _ in crossing), "end": sum(end for _, end in crossing)}


def open_loop_rate(aggregates: PhaseAggregates) -> Dict[str, Any]:
    """Return the requests/s of driver open loops together; all null in a closed loop.

    asked      requests/s
    issued     what the drivers started, per second of their time; while the load grows (`ramp`), half of it is asked
    deviation  issued / asked - 1
    chance     driver standard deviation by chance alone: arrivals of a Poisson process; 0 of even ones
    unstarted  the share of due requests that no worker was free for, until the end
    """
    drivers = open_loop_rates(aggregates).values()
    nothing: Dict[str, Any] = dict.fromkeys(("asked", "issued", "deviation", "chance", "unstarted"))
    if not drivers:
        return nothing
    asked_rate = aggregates.phase.load.get("rate") or sum(driver.asked_rate for driver in drivers)
    issued = [driver.issued for driver in drivers if driver.issued is not None]
    if len(issued) < len(drivers):
        return {**nothing, "asked": asked_rate}
    requests, unstarted = sum(driver.requests for driver in drivers), sum(driver.unstarted for driver in drivers)
    by_chance = sum(driver.requests for driver in drivers if driver.poisson)
    return {
        "asked": asked_rate,
        "issued": round(sum(issued), 4),
        "deviation": round(sum(issued) / asked_rate - 1, 6),
        "chance": round(math.sqrt(by_chance) / requests, 6) if requests else None,
        "unstarted": round(unstarted / max(1, requests + unstarted), 6),
    }


@dataclass
class LoopRate:
    """Requests of an open loop, of all drivers."""

    poisson: bool
    asked_rate: float = 0.0  # requests/s
    issued: Optional[float] = 0.0  # requests/s; None: a driver has not said it
    requests: int = 0
    unstarted: int = 0  # due requests that never started


def open_loop_rates(aggregates: PhaseAggregates) -> Dict[str, LoopRate]:
    """Return the open loops of a phase by their work, "" for the only one."""
    rate_of_work: Dict[str, LoopRate] = {}
    for job in aggregates.phase.jobs if any(job.open_loop for job in aggregates.phase.jobs) else ():
        end = job.driver_end
        seconds = float(end.get("ended") or 0) - float(end.get("began") or 0) - job.ramp / 2
        issued = end.get("issued")
        for loop in job.loops:
            if not loop.rate_limit:
                continue
            by_chance = loop.poisson if loop.work else aggregates.phase.load.get("arrivals", "poisson") == "poisson"
            loop_rate = rate_of_work.setdefault(loop.work, LoopRate(by_chance))
            loop_rate.asked_rate += loop.rate_limit
            if seconds <= 0 or not isinstance(issued, dict) or loop_rate.issued is None:
                loop_rate.issued = None
                continue
            requests = sum(n for op, n in issued.items() if split_op(op)[0] == loop.work)
            loop_rate.requests += requests
            loop_rate.unstarted += loop.unstarted
            loop_rate.issued += requests / seconds
    return rate_of_work


def generator_ceiling(phase: Mapping[str, Any], ceilings: Mapping[str, Ceiling]) -> Optional[Dict[str, Any]]:
    """Return {"share", "nodes": [{"node", "requests_per_s", "ceiling_per_s", "share", "beside"}]}, the fullest first.

    `phase` is its entry in the summary, `ceilings` that of ArchivedRun. None where nothing is known.
    """
    request_rates: Dict[str, float] = {}
    seconds = phase["window"]["seconds"]
    for driver in phase["drivers"] if seconds else ():
        request_rates[driver["node"]] = request_rates.get(driver["node"], 0.0) + driver["total"]["requests"] / seconds
    nodes: List[Dict[str, Any]] = [
        {
            "node": node,
            "requests_per_s": round(request_rates[node], 3),
            "ceiling_per_s": round(rate, 3),
            "share": round(request_rates[node] / rate, 6),
            "beside": list(beside),
        }
        for node, (rate, beside) in ceilings.items()
        if node in request_rates
    ]
    nodes.sort(key=lambda line: -line["share"])
    return {"share": nodes[0]["share"], "nodes": nodes} if nodes else None
