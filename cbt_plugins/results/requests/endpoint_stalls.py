"""Endpoints that stalled while others answered, and latencies corrected for what a closed loop could not ask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.formatting import percent
from cbt_plugins.results.aggregates_file import span
from cbt_plugins.results.archive import ArchivedJob
from cbt_plugins.results.histogram import Histogram, middles, rank
from cbt_plugins.results.requests import littles_law
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates, total
from cbt_plugins.results.requests.time_series import MOST_ENDPOINTS

#: seconds without a success after which an endpoint counts as stalled
STALLED = 3.0
#: share of its requests below which an endpoint gets too few of them
FEW = 0.5
#: requests that an endpoint should have had, at least: fewer may be missing by chance. A silence in which the endpoint
#: misses m requests has the chance e^-m (Poisson), and may begin at each second and endpoint: m grows by the logarithm
_MISSED, _SHARE = 10.0, 40.0
#: a silence lasts longer than this many usual requests of the slowest kind: workers in such requests succeed in nothing
_USUAL_REQUESTS = 3.0
#: share of all requests' time that a kind has at least, to hold the workers of one endpoint while the others go on
_USUAL_KIND = 0.1
_NS = 1e9


def least_missed(chances: float) -> float:
    """Return the requests that a silence misses at least, to be no chance; it might begin at so many places."""
    return _MISSED + math.log(max(1.0, chances))


class Silence(NamedTuple):
    """A time in which an endpoint answered nothing while jobs worked that may choose it."""

    seconds: float
    begin: float  # run's clock
    others: bool  # the other endpoints answered meanwhile; False: requests of this endpoint held the workers


@dataclass(frozen=True)
class EndpointStall:
    """An endpoint that answered nothing for a time, or got too few requests."""

    endpoint: str
    share: Optional[float]  # of the successful requests that it should have had; None: no job chose among endpoints
    longest: Optional[Silence] = None  # None: it answered all the time
    silent: float = 0.0  # seconds of all silences

    def text(self, start: float, length: float) -> str:
        """Return a sentence about the endpoint; `start` and `length` are those of the window."""
        share = "" if self.share is None else f"answered {percent(self.share, '.0f')} of its share of the requests"
        if self.longest is None:
            return f"{self.endpoint} {share}"
        longest = f"the longest time is {self.longest.seconds:.0f} s, from second {self.longest.begin - start:.0f} on"
        others = "while others did" if self.longest.others else "and its requests held the workers"
        text = f"{self.endpoint} answered nothing in {self.silent:.0f} of {length:.0f} seconds {others}; {longest}"
        return f"{text}; it {share}" if share else text


class Spans(NamedTuple):
    """Times of the window, run's clock."""

    begins: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class JobWork:
    """The time of the window in which a job worked, and the successful requests of each endpoint it could choose."""

    begin: float
    end: float
    answers: Mapping[str, int]
    workers: int
    restarted: bool  # its processes followed each other: nobody knows when it worked

    def parts(self, spans: Spans) -> np.ndarray:
        """Return the share of the job's time that lies in each of these times."""
        seconds = np.minimum(spans.ends, self.end) - np.maximum(spans.begins, self.begin)
        return np.maximum(0.0, seconds) / (self.end - self.begin)

    def missed(self, endpoint: str, spans: Spans, block: int) -> np.ndarray:
        """Return the requests m that an endpoint missed which is silent in a time: by chance, this is so at e^-m.

        Of n requests at random times, none lies in a part p of the time at (1 - p)^n; the time of these n is a block at
        least. An endpoint that has few of its requests beside the silence, too, should have had half of its share (see
        FEW); one without any the share, as nothing was chosen among many times.
        """
        parts, n = (0.0 if self.restarted else 1.0) * self.parts(spans), self.answers[endpoint]
        share = sum(self.answers.values()) / len(self.answers) * parts
        if not n:
            return share
        beside = max(0.0, 1 - block / (self.end - self.begin))
        return np.maximum(-n * np.log1p(-np.minimum(parts, beside)), FEW * share)


def stalls(aggregates: PhaseAggregates) -> List[EndpointStall]:
    """Return the endpoints of a phase that stalled or got less than half of their share.

    A stall of all endpoints is not in it: it has the warning `stall`.
    """
    works = list(_works(aggregates))
    shares = _shares(works)
    stalled = []
    for endpoint in sorted({name for work in works for name in work.answers}):
        silences = list(_silences(aggregates, works, endpoint))
        share, expected = shares.get(endpoint, (None, 0.0))
        if silences:
            stalled.append(EndpointStall(endpoint, share, max(silences), sum(each.seconds for each in silences)))
        elif share is not None and share < FEW and expected >= _SHARE:
            stalled.append(EndpointStall(endpoint, share))
    return stalled


def _works(aggregates: PhaseAggregates) -> Iterator[JobWork]:
    """Yield the work of each job that has aggregates and worked in the window."""
    grid = aggregates.grid
    for job in aggregates.phase.jobs:
        if job.id not in aggregates.jobs:
            continue
        answers: Dict[str, int] = {}
        for (endpoint, _), of in aggregates.jobs[job.id].endpoints.items():
            answers[endpoint] = answers.get(endpoint, 0) + of.n
        if set(answers) <= set(job.urls):  # else the rows have names of their own for the endpoints
            answers = {**dict.fromkeys(job.urls, 0), **answers}
        begin = max(grid.start, _begin(job, grid.start))
        end = grid.end if job.ended is None else job.ended
        if not job.cut and (aggregates.phase.takes_all or job.ended is None or end < grid.end):
            # the process may end seconds after its last request
            end = max(aggregates.jobs[job.id].last_end.values(), default=round(end * _NS)) / _NS
        end = min(end, grid.end)
        if answers and end > begin:
            yield JobWork(begin, end, answers, job.workers, job.restarts > 0)


def _begin(job: ArchivedJob, start: float) -> float:
    """Return the time a job began to send requests, else `start`. A warp process may prepare for minutes before."""
    measured = span(job.aggregates) if job.aggregates and not job.driver_end else None
    if measured:
        return measured[0]
    return start if job.began is None else job.began


def _silences(aggregates: PhaseAggregates, works: Sequence[JobWork], endpoint: str) -> Iterator[Silence]:
    """Yield the silences of an endpoint that are neither chance nor a stall of the cluster."""
    grid, series = aggregates.grid, aggregates.timeline.endpoints
    names = {name for work in works for name in work.answers}
    own = [work for work in works if endpoint in work.answers]
    if not 1 < len(names) <= MOST_ENDPOINTS or not any(name in series for name in names):
        return
    answers = series.get(endpoint, np.zeros(grid.blocks, np.int64))
    others = sum((series[name] for name in names if name != endpoint and name in series), np.zeros_like(answers))
    limit = least_missed(aggregates.length * len(names))
    edges = np.flatnonzero(np.diff(np.concatenate(([0], answers == 0, [0]))))
    firsts, ends = edges[::2], edges[1::2]
    begin, end = min(work.begin for work in own), max(work.end for work in own)
    low, high = (grid.first_block + blocks * grid.block for blocks in (firsts, ends))
    spans = Spans(np.maximum(low, begin), np.minimum(high, end))
    missed, usual = _missed(works, endpoint, spans, grid.block), _usual(works, endpoint, spans)
    candidates = np.flatnonzero((spans.ends - spans.begins >= STALLED) & (missed >= limit) & (usual > 0)).tolist()
    if not candidates:
        return
    # a single slow request hides no silence while the others go on; where they do not, it may be all that is left
    beside_others, alone = (_USUAL_REQUESTS * _slowest_kind(aggregates, part) for part in (_USUAL_KIND, 0.0))
    for i in candidates:
        begin, seconds = float(spans.begins[i]), float(spans.ends[i] - spans.begins[i])
        # the requests of a frozen endpoint may hold all workers; a cluster that stalls holds those of every endpoint
        went_on = float(others[firsts[i] : ends[i]].sum() / usual[i])
        if seconds > beside_others and went_on > FEW and missed[i] * min(1.0, went_on) >= limit:
            yield Silence(seconds, begin, True)
        elif seconds > alone and _are_on_every_endpoint(own) and _alone_is_slow(aggregates, endpoint, seconds):
            yield Silence(seconds, begin, went_on > FEW)


def _missed(works: Sequence[JobWork], endpoint: str, spans: Spans, block: int) -> np.ndarray:
    """Return the requests that the endpoint should have had in each of these times.

    An endpoint that never answered and has its jobs for itself has no rate: it is the lowest one of the other jobs.
    """
    own = [work for work in works if endpoint in work.answers]
    if any(sum(work.answers.values()) for work in own):
        return np.sum([work.missed(endpoint, spans, block) for work in own], axis=0)
    totals = ((sum(work.answers.values()), work) for work in works if endpoint not in work.answers)
    rates = [n / len(work.answers) / (work.end - work.begin) for n, work in totals if n]
    return min(rates, default=0.0) * (spans.ends - spans.begins)


def _usual(works: Sequence[JobWork], endpoint: str, spans: Spans) -> np.ndarray:
    """Return the requests that all other endpoints usually have in each of these times."""
    numbers = ((sum(work.answers.values()) - work.answers.get(endpoint, 0), work) for work in works)
    return np.sum([n * work.parts(spans) for n, work in numbers], axis=0)


def _slowest_kind(aggregates: PhaseAggregates, part: float) -> float:
    """Return the seconds of a usual request (median) of the operation and size whose requests take longest.

    Kinds that have less than this part of all requests' time do not count.
    """
    kinds: Dict[Tuple[str, int], Histogram] = {}
    for job in aggregates.jobs.values():
        for kind, of in job.sizes.items():
            kinds.setdefault(kind, Histogram()).merge(of.latency)
    least = part * sum(of.mean * of.n for of in kinds.values() if of.n)
    usual = (of for of in kinds.values() if of.n and of.mean * of.n >= least)
    medians = (of.quantile(0.5) if of.has_buckets else of.mean for of in usual)
    return max(medians, default=0.0) / _NS


def _are_on_every_endpoint(works: Sequence[JobWork]) -> bool:
    """Return whether requests that are under way at one endpoint alone are no chance.

    A job chooses the least busy endpoint, or each in turn: with fewer workers than endpoints it is not on all of them.
    """
    return any(work.workers >= len(work.answers) for work in works) or sum(work.workers for work in works) > _MISSED


def _alone_is_slow(aggregates: PhaseAggregates, endpoint: str, seconds: float) -> bool:
    """Return whether only this endpoint had requests that took half of this time."""
    longest: Dict[str, int] = {}
    for job in aggregates.jobs.values():
        for (name, _), of in job.endpoints.items():
            longest[name] = max(of.longest, longest.get(name, 0))
    limit = FEW * seconds * _NS
    return longest.get(endpoint, 0) >= limit and all(ns < limit for name, ns in longest.items() if name != endpoint)


def _shares(works: Sequence[JobWork]) -> Dict[str, Tuple[float, float]]:
    """Return endpoint -> (share of the requests that it should have had, these), of jobs with several endpoints."""
    had: Dict[str, float] = {}
    expected: Dict[str, float] = {}
    for work in works:
        for endpoint, number in work.answers.items() if len(work.answers) > 1 else ():
            had[endpoint] = had.get(endpoint, 0.0) + number
            expected[endpoint] = expected.get(endpoint, 0.0) + sum(work.answers.values()) / len(work.answers)
    return {endpoint: (n / expected[endpoint], expected[endpoint]) for endpoint, n in had.items() if expected[endpoint]}


def corrected_for_omission(aggregates: PhaseAggregates) -> Optional[Dict[str, Any]]:
    """Return milliseconds of all operations as an open loop would have seen them: {"interval", "n", "p50", ...}.

    Only of a closed loop in which an endpoint, or all, answered nothing for seconds; else None. By the method of
    HdrHistogram (copyCorrectedForCoordinatedOmission, Gil Tene): a request of v that should take the interval I hides
    requests of v - I, v - 2 I, ... down to I. I is the mean of the requests below STALLED.
    """
    if not aggregates.phase.jobs or any(job.open_loop for job in aggregates.phase.jobs):
        return None
    stalled = [stall.longest for stall in stalls(aggregates) if stall.longest]
    if not stalled and len(aggregates.all_ops.silent()) < STALLED:
        return None
    everything = total(aggregates.ops.values())
    histogram = Histogram()
    histogram.merge(everything.latency)
    end = aggregates.grid.end - aggregates.grid.block
    last = [silence.seconds for silence in stalled if silence.begin + silence.seconds > end]
    last.append(aggregates.all_ops.last_gap())
    if max(last) >= STALLED:
        histogram.record(_unended(aggregates, max(last)))
    return percentiles_corrected_for_omission(histogram) if histogram.n and histogram.has_buckets else None


def _unended(aggregates: PhaseAggregates, seconds: float) -> List[int]:
    """Return the ages (ns) of the requests that a stall of this length, to the end of the window, kept from ending.

    The workers of a closed loop are in a request unless it ran dry: what is missing of their time is that of the
    requests in flight at the end.
    """
    law = littles_law.littles_law(aggregates)
    many = round((law["expected"] - law["in_flight"]) * aggregates.length / seconds)
    in_flight = total(aggregates.ops.values()).in_flight_at_end + aggregates.in_flight_at_end["requests"]
    return [round(seconds * _NS)] * max(0, min(many, law["workers"], in_flight))


def percentiles_corrected_for_omission(histogram: Histogram) -> Optional[Dict[str, Any]]:
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
    """Return the number of requests that took longer than `limit`, those included that were not asked."""
    hidden = np.floor((values - max(limit, interval)) / interval)
    if limit >= interval:  # what is just at the limit is not above it
        hidden = np.ceil((values - limit) / interval) - 1
    seen = values > limit
    return float((counts * seen).sum() + (counts * seen * np.maximum(hidden, 0)).sum())


def correction_text(line: Dict[str, Any]) -> str:
    """Return a sentence about percentiles that are corrected."""
    p99, p999 = (f"{line[name]:,.1f} ms" for name in ("p99", "p999"))
    hidden = "closed loop: percentiles lack the requests that could not be sent meanwhile"
    return f"{hidden}; corrected by the expected interval ({line['interval']:.1f} ms) p99 is {p99}, p99.9 {p999}"
