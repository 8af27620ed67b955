"""Little's law (throughput x latency = requests in flight), what a closed loop must do because of it, and scaling.

In a closed loop of N workers without pauses N requests are in flight, always. Rates are 1/s, latencies seconds. Changes
and shares are relative: 0.55 is +55 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Sequence, Tuple


def in_flight(operations: Iterable[Tuple[float, float]]) -> float:
    """Return the mean requests in flight: sum of throughput x mean latency over (throughput, mean latency)."""
    return sum(rate * latency for rate, latency in operations)


def deviation(in_flight: float, workers: float) -> Optional[float]:
    """Return the relative excess of requests in flight over the workers: 0.1 is 10 % too many; None without workers."""
    return in_flight / workers - 1 if workers else None


def throughput(workers: float, latency: float, pause: float = 0.0) -> float:
    """Return the requests/s of a closed loop: N / (R + Z); `pause` is what a worker waits after each request."""
    return workers / (latency + pause)


def mean_latency(workers: float, rate: float, pause: float = 0.0) -> float:
    """Return the mean latency of a closed loop with this throughput: N / X - Z."""
    return workers / rate - pause


def latency_change(throughput_change: float) -> float:
    """Return the change of the mean latency that goes with a change of throughput at equal workers: 1 / (1 + x) - 1.

    Both are relative: +0.95 in throughput is -0.487 in latency.
    """
    return 1 / (1 + throughput_change) - 1


def throughput_change(latency_change: float) -> float:
    """Return the inverse of `latency_change`: -0.6 in latency is +1.5 in throughput."""
    return 1 / (1 + latency_change) - 1


def knee(unloaded: float, most: float) -> float:
    """Return the workers with which a closed loop without queues would just reach its highest throughput: R0 x Xmax."""
    return unloaded * most


def bounds(workers: float, unloaded: float, most: float) -> Tuple[float, float]:
    """Return (highest throughput, lowest mean latency) of N workers: min(N / R0, Xmax) and max(R0, N / Xmax).

    `unloaded` is the latency of one worker alone, `most` the highest throughput at any number of workers.
    """
    return min(workers / unloaded, most), max(unloaded, workers / most)


#: share of the workers at saturation with which the SDC study measures, its production level
PRODUCTION = 0.8


@dataclass(frozen=True)
class Sizing:
    """How many workers a target of latency allows, from a sweep."""

    workers: Optional[float]  # the last step within the target; None: not even the first
    next: Optional[float]  # the first one beyond it: saturation is between the two; None: none was beyond
    production: Optional[float]  # 80 % of `workers`


def size_workers(sweep: Sequence[Tuple[float, float]], target: float, production: float = PRODUCTION) -> Sizing:
    """Compute a load by a sweep, (workers, mean latency) of each step: latency(N) <= target < latency(next).

    A step beyond the target ends the search, even if a later one is within it again.
    """
    within: Optional[float] = None
    for workers, latency in sorted(sweep):
        if latency > target:
            return Sizing(within, workers, None if within is None else production * within)
        within = workers
    return Sizing(within, None, None if within is None else production * within)


def relative_change(before: float, after: float) -> float:
    """Return after / before - 1."""
    return after / before - 1


def efficiency(gain: float, before: float, after: float) -> float:
    """Return the share of the added hardware that came out as performance: gain / (n2 / n1 - 1).

    From 3 to 5 nodes +55 % of the +66.7 % that were added: 0.825. Above 1 wants an explanation (caches, a
    bottleneck that went away).
    """
    if after <= before:
        raise ValueError("efficiency needs more nodes after than before")
    return gain / relative_change(before, after)
