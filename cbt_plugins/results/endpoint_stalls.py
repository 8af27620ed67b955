"""Endpoints that stalled while others answered, and latencies corrected for what a closed loop could not ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from cbt_plugins.results import flight
from cbt_plugins.results.histogram import Histogram, middles, rank
from cbt_plugins.results.phase import PhaseAggregates, total

#: seconds without an answer after which an endpoint counts as stalled
STALLED = 3.0
#: share of its requests below which an endpoint gets too few of them
FEW = 0.5
#: requests that it should have had, at least: fewer may be missing by chance
_MISSED, _SHARE = 10.0, 40.0
_NS = 1e9


@dataclass(frozen=True)
class EndpointStall:
    """An endpoint that answered nothing for a time, or got too few requests."""

    endpoint: str
    share: float  # of the successful requests that it should have had
    seconds: float = 0.0  # of the longest time without an answer; 0: it answered all the time
    at: float = 0.0  # the begin of that, run's clock
    silent: float = 0.0  # seconds without an answer in all

    def text(self, start: float, length: float) -> str:
        """Return it in words; `start` and `length` are those of the window."""
        share = f"{100 * self.share:.0f} % of its share of the requests"
        if not self.seconds:
            return f"{self.endpoint} answered {share}"
        longest = f"the longest time is {self.seconds:.0f} s, from second {self.at - start:.0f} on"
        text = f"{self.endpoint} answered nothing in {self.silent:.0f} of {length:.0f} seconds while others did"
        return f"{text}; {longest}; it answered {share}"


def stalls(aggregates: PhaseAggregates) -> List[EndpointStall]:
    """Return the endpoints of a phase that stalled or got less than half of their share.

    What stops all endpoints is no stall of one: a warning of its own tells of it.
    """
    shares = dict(_shares(aggregates))
    stalled = []
    for endpoint, answers in sorted(aggregates.timeline.endpoints.items()):
        times = list(_silences(aggregates, endpoint, answers))
        share, expected = shares.get(endpoint, (1.0, 0.0))
        if times:
            seconds, at = max(times)
            stalled.append(EndpointStall(endpoint, share, seconds, at, sum(length for length, _ in times)))
        elif share < FEW and expected >= _SHARE:
            stalled.append(EndpointStall(endpoint, share))
    return stalled


def _silences(aggregates: PhaseAggregates, endpoint: str, answers: np.ndarray) -> Iterator[Tuple[float, float]]:
    """Yield (seconds, begin) of the times in which this endpoint answered nothing and the others went on."""
    grid, every = aggregates.grid, aggregates.timeline.endpoints
    if len(every) < 2 or not aggregates.length:
        return
    others = sum((counts for name, counts in every.items() if name != endpoint), np.zeros_like(answers))
    per_second = float(others.sum() + answers.sum()) / len(every) / aggregates.length
    edges = np.flatnonzero(np.diff(np.concatenate(([0], answers == 0, [0]))))
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist()):
        seconds = float((end - first) * grid.block)
        if seconds < STALLED or per_second * seconds < _MISSED:
            continue
        # the requests of a frozen endpoint may hold all workers; a cluster that stalls holds those of every endpoint
        went_on = float(others[first:end].sum()) > FEW * per_second * (len(every) - 1) * seconds
        if went_on or _alone_is_slow(aggregates, endpoint, seconds):
            yield seconds, float(grid.first_block + first * grid.block)


def _alone_is_slow(aggregates: PhaseAggregates, endpoint: str, seconds: float) -> bool:
    """Return whether only this endpoint had requests that took half of this time."""
    longest: Dict[str, int] = {}
    for job in aggregates.jobs.values():
        for (name, _), of in job.endpoints.items():
            longest[name] = max(of.longest, longest.get(name, 0))
    limit = FEW * seconds * _NS
    return longest.get(endpoint, 0) >= limit and all(ns < limit for name, ns in longest.items() if name != endpoint)


def _shares(aggregates: PhaseAggregates) -> Iterator[Tuple[str, Tuple[float, float]]]:
    """Yield endpoint -> (share of what it should have had, that), over the jobs that have several endpoints."""
    had: Dict[str, float] = {}
    expected: Dict[str, float] = {}
    for job in aggregates.jobs.values():
        counts: Dict[str, int] = {}
        for (endpoint, _), of in job.endpoints.items():
            counts[endpoint] = counts.get(endpoint, 0) + of.n
        for endpoint, number in counts.items() if len(counts) > 1 else ():
            had[endpoint] = had.get(endpoint, 0.0) + number
            expected[endpoint] = expected.get(endpoint, 0.0) + sum(counts.values()) / len(counts)
    for endpoint, n in had.items():
        if expected[endpoint]:
            yield endpoint, (n / expected[endpoint], expected[endpoint])


def corrected(aggregates: PhaseAggregates) -> Optional[Dict[str, Any]]:
    """Return milliseconds of all operations as an open loop would have seen them: {"interval", "n", "p50", ...}.

    Only of a closed loop in which an endpoint, or all, answered nothing for seconds; else None. By the method of
    HdrHistogram (copyCorrectedForCoordinatedOmission, Gil Tene): a request of v that should take the interval I hides
    requests of v - I, v - 2 I, ... down to I. I is the mean of the requests below STALLED.
    """
    if not aggregates.phase.jobs or any(job.open_loop for job in aggregates.phase.jobs):
        return None
    stalled = [stall for stall in stalls(aggregates) if stall.seconds]
    if not stalled and len(aggregates.all_ops.silent()) < STALLED:
        return None
    everything = total(aggregates.ops.values())
    histogram = Histogram()
    histogram.merge(everything.latency)
    end = aggregates.grid.end - aggregates.grid.block
    last = [stall.seconds for stall in stalled if stall.at + stall.seconds > end]
    if last:
        histogram.record(_unended(aggregates, max(last)))
    return _corrected(histogram) if histogram.n and histogram.whole else None


def _unended(aggregates: PhaseAggregates, seconds: float) -> List[int]:
    """Return the ages (ns) of the requests that a stall of this length, to the end of the window, kept from ending.

    The workers of a closed loop are always in a request: what is missing of their time is that of these.
    """
    law = flight.littles_law(aggregates)
    many = round((law["expected"] - law["in_flight"]) * aggregates.length / seconds)
    return [round(seconds * _NS)] * max(0, min(many, law["workers"]))


def _corrected(histogram: Histogram) -> Optional[Dict[str, Any]]:
    values, counts = middles(histogram.numbers), histogram.counts
    usual = values < STALLED * _NS
    if not usual.any():
        return None
    interval = max(1.0, float((values[usual] * counts[usual]).sum() / counts[usual].sum()))
    n = int(_above(values, counts, interval, -1.0))
    line: Dict[str, Any] = {"interval": round(interval / 1e6, 6), "n": n}
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        low, high = 0.0, float(values.max())
        while high - low > max(1.0, high / 10_000):
            middle = (low + high) / 2
            low, high = (low, middle) if n - _above(values, counts, interval, middle) >= rank(q, n) else (middle, high)
        line[name] = round(high / 1e6, 3)
    return line


def _above(values: np.ndarray, counts: np.ndarray, interval: float, limit: float) -> float:
    """Return how many requests took longer than `limit`, those included that were not asked."""
    hidden = np.floor((values - max(limit, interval)) / interval)
    if limit >= interval:  # what is just at the limit is not above it
        hidden = np.ceil((values - limit) / interval) - 1
    seen = values > limit
    return float((counts * seen).sum() + (counts * seen * np.maximum(hidden, 0)).sum())


def correction_text(line: Dict[str, Any]) -> str:
    """Return a sentence about percentiles that are corrected."""
    p99, p999 = (f"{line[name]:,.1f} ms" for name in ("p99", "p999"))
    hidden = "the loop was closed: its percentiles leave out what could not be asked meanwhile"
    return f"{hidden}; corrected by the expected interval ({line['interval']:.1f} ms) p99 is {p99}, p99.9 {p999}"
