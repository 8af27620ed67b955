"""Upper bounds: of every number in a file, and of what the file asks for in all. More is a typing error.

Runs of 40 hours on 200 disks and the largest published studies (10^10 objects) stay far below. A bound that a study
needs to pass is changed here, for `plan` and both hosts alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence, Tuple

from cbt_plugins.config.plan_preview import forecast
from cbt_plugins.config.units import format_duration
from cbt_plugins.formatting import about_size
from cbt_plugins.plan import Plan

#: runs and phases of a file
RUNS, PHASES = 10_000, 100_000
#: seconds of the phases whose duration is given, and bytes that fills by number of objects write, of all runs
SECONDS, BYTES = 366 * 86400.0, 1 << 60
#: of one run: requests in flight, and pairs of a driver and a bucket that it works on
IN_FLIGHT, PAIRS = 1_000_000, 1_000_000


@dataclass(frozen=True)
class Total:
    """What all runs of a file ask for together, as far as the file alone tells."""

    runs: int
    phases: int
    seconds: float
    unknown_time: Tuple[str, ...]  # what only the cluster can tell
    bytes: float  # written by fills by number of objects, before replication or erasure coding


def total_of(plans: Sequence[Plan], iterations: int) -> Total:
    """Return the total of these runs, each repeated so often."""
    forecasts = [forecast(plan) for plan in plans]
    return Total(
        runs=len(plans) * iterations,
        phases=sum(len(plan.phases) for plan in plans) * iterations,
        seconds=sum(run_forecast.seconds for run_forecast in forecasts) * iterations,
        unknown_time=tuple(dict.fromkeys(text for run_forecast in forecasts for text in run_forecast.unknown_time)),
        bytes=sum(run_forecast.bytes or 0.0 for run_forecast in forecasts) * iterations,
    )


def too_much(plans: Sequence[Plan], iterations: int) -> Iterator[str]:
    """Yield a text for each number above a bound, and the cure."""
    split = "shorten it, or split it into several files"
    total = total_of(plans, iterations)
    if total.runs > RUNS:
        yield f"{total.runs} runs, and {RUNS} are the limit of a file: {split}"
    if total.phases > PHASES:
        yield f"{total.phases} phases in all runs, and {PHASES} are the limit of a file: {split}"
    if total.seconds > SECONDS:
        time = f"{format_duration(float(round(total.seconds)))} in all"
        yield f"{time}, and {format_duration(SECONDS)} is the limit of a file: {split}"
    if total.bytes > BYTES:
        yield f"{about_size(total.bytes)} written in all, and {about_size(BYTES)} is the limit of a file: {split}"
    in_flight = max((_in_flight(plan) for plan in plans), default=0)
    if in_flight > IN_FLIGHT:
        yield f"{in_flight} requests in flight in one run, and {IN_FLIGHT} are the limit: fewer drivers or workers"
    pairs = max((sum(len(driver.buckets) for driver in plan.drivers) for plan in plans), default=0)
    if pairs > PAIRS:
        yield f"{pairs} pairs of a driver and a bucket in one run, and {PAIRS} are the limit: fewer drivers or buckets"


def _in_flight(plan: Plan) -> int:
    ladders = [phase.ladder for phase in plan.phases if phase.ladder and phase.ladder.unit == "workers"]
    most = max((int(ladder.highest) for ladder in ladders), default=0)
    most = max([most, *(sum(work.workers for work in phase.works) for phase in plan.phases)])
    return sum(max(driver.workers, most) for driver in plan.drivers)
