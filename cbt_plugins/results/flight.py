"""Requests under way: Little's law, the borders of the window, what a stop left over, and the rates of open loops."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from cbt_plugins.models import closed_loop
from cbt_plugins.results.phase import PhaseAggregates


def littles_law(made: PhaseAggregates) -> Dict[str, Any]:
    """Per job: requests in flight by two ways, against its workers.

    in_flight   sum of the durations of all requests that ended in the window / length of the window
                = throughput x mean latency (failed requests keep a worker busy too)
    concurrency sum of the parts of all durations that lie in the window / length of the window
    """
    jobs: List[Dict[str, Any]] = []
    for job in made.phase.jobs:
        its = made.jobs.get(job.id)
        if its is None or not made.length:
            continue
        spent = sum(of.latency.total + of.failed.total for of in its.ops.values())
        in_flight = spent / 1e9 / made.length
        jobs.append(
            {
                "job": job.id,
                "op": job.op,
                "workers": job.workers,
                "paced": job.rate_limit > 0,
                "in_flight": round(in_flight, 4),
                "concurrency": round(sum(of.busy for of in its.ops.values()) / 1e9 / made.length, 4),
                "deviation": _rounded(closed_loop.deviation(in_flight, job.workers)),
            }
        )
    closed = [line for line in jobs if not line["paced"]]
    workers = sum(line["workers"] for line in closed)
    in_flight = sum(line["in_flight"] for line in closed)
    return {
        "workers": workers,
        "in_flight": round(in_flight, 4),
        "concurrency": round(sum(line["concurrency"] for line in closed), 4),
        "deviation": _rounded(closed_loop.deviation(in_flight, workers)),
        "jobs": jobs,
    }


def _rounded(share: Optional[float]) -> Optional[float]:
    return None if share is None else round(share, 4)


def at_borders(made: PhaseAggregates) -> Optional[Dict[str, int]]:
    """Requests that were in flight when the window began and when it ended; None when there is no such moment.

    Only requests that have a row are counted: those that a stopped generator left behind are not.
    """
    if not made.jobs or not made.length or not made.grid.snapped:
        return None
    crossing = [its.crossing for its in made.jobs.values()]
    return {"start": sum(start for start, _ in crossing), "end": sum(end for _, end in crossing)}


def at_end(made: PhaseAggregates) -> Dict[str, Any]:
    """Requests of cut jobs that have no row, because the job was stopped before they ended.

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
    """An open loop's requests a second: {"asked", "issued", "deviation"}; all null in a closed loop.

    `issued` is what the drivers started, per second of their time; while the load grows (`ramp`), half of it is asked.
    """
    jobs = [job for job in made.phase.jobs if job.open_loop]
    asked = made.phase.asked.get("rate") or sum(job.rate_limit for job in jobs)
    if not jobs:
        return {"asked": None, "issued": None, "deviation": None}
    issued = 0.0
    for job in jobs:
        end = job.driver_end
        seconds = float(end.get("ended") or 0) - float(end.get("began") or 0) - job.ramp / 2
        if seconds <= 0 or not isinstance(end.get("issued"), dict):
            return {"asked": asked, "issued": None, "deviation": None}
        issued += sum(end["issued"].values()) / seconds
    return {"asked": asked, "issued": round(issued, 4), "deviation": round(issued / asked - 1, 6)}
