"""Requests that were due in the window and ended after it, or never: no latency and no success rate has them."""

from __future__ import annotations

import math
from typing import Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from cbt_plugins.formatting import percent
from cbt_plugins.metrics import MARGIN, METRICS
from cbt_plugins.plan import split_op
from cbt_plugins.results.histogram import lows
from cbt_plugins.results.requests.job_aggregates import OpAggregates
from cbt_plugins.results.requests.littles_law import open_loop_rates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates
from cbt_plugins.results.requests.time_series import Seconds

#: seconds that a request is in flight, at least, to be told
_LONG = 1.0
#: standard deviations by which more requests may be in flight at the end of the window than usual by chance
_CHANCE = 3.0
#: share of the successes, the first ones, whose latency is usual where latency grows
_FIRST = 0.1
#: factor by which the last quarter of the window is slower than the one before, at least, where latency grows
_GROWS = 1.1
#: share of the usual requests: with fewer in flight at the start of the window the load has begun just before
_FEW = 0.8
_NS = 1e9


def _limits() -> Iterator[Tuple[str, float]]:
    """Yield (metric, share of the requests): with more missing requests it is no percentile of all requests."""
    times = [metric for metric in METRICS.values() if metric.path[:1] in (("latency_ms",), ("ttfb_ms",))]
    quantiles = {metric.path[1]: metric.quantile for metric in times if metric.quantile}
    yield from ((metric.key, 1 - quantiles[metric.path[1]]) for metric in times if metric.path[1] in quantiles)
    yield "p99_ratio", 1 - quantiles["p99"]


_LIMITS = dict(_limits())


class UnfinishedRequests(NamedTuple):
    """Requests of an operation (None: of any) that numbers of the window lack."""

    op: Optional[str]
    text: str
    metrics: Tuple[str, ...]  # those that look better than they are


def unfinished_requests(aggregates: PhaseAggregates, law: Mapping[str, float]) -> Iterator[UnfinishedRequests]:
    """Yield the operations of a phase whose numbers lack slow requests, or requests that nobody answered.

    In an open loop the requests count that are in flight at the end of the window, without as many as are usually in
    flight. A closed loop sends nothing while it waits, so that the part of its time counts that is in no
    latency; and only where a request was in flight for longer than every finished one. `law`: Little's law of the
    phase.
    """
    rates = open_loop_rates(aggregates)
    for op, of in aggregates.ops.items():
        age, slowest = _oldest(of)
        is_long = age > max(_LONG, slowest)
        hidden = _hidden(of)
        rate = rates.get(split_op(op)[0])
        if rate is None:
            share = hidden if is_long else 0.0
            texts = []
        else:
            first_mean = _first_mean(of, aggregates.timeline.seconds.get(op))
            share = _late(of, first_mean, aggregates.length)
            share += rate.unstarted / max(1, rate.requests + rate.unstarted)
            late = f"{percent(share, '.2g')} of the {op} that were due in the window ended after it, or never"
            texts = [late] if share else []
        metrics = _metrics(share, hidden, is_long, of.cut + of.cut_outside + of.failed_after > 0)
        if metrics:
            if is_long:
                texts.append(f"a request of {age:.1f} s or more was in flight at the end, longer than any that ended")
            yield UnfinishedRequests(op, "; ".join([*texts, _ends(metrics)]), metrics)
    # of a job that was stopped, requests may have no row
    oldest = aggregates.in_flight_at_end["oldest_seconds"] or 0.0
    if oldest > max(_LONG, *(max(of.latency.max, of.failed.max) / _NS for of in aggregates.ops.values()), 0.0):
        hidden = max(0.0, -(law["deviation"] or 0.0))
        metrics = _metrics(hidden, hidden, True, True)
        text = f"a request of {oldest:.1f} s or more was in flight when the jobs were stopped, and has no row"
        yield UnfinishedRequests(None, f"{text}; {_ends(metrics)}", metrics)


def _oldest(of: OpAggregates) -> Tuple[float, float]:
    """Return the age of the oldest request that did not end in the window, at least, and that of the slowest one.

    Seconds. Which of the failed ones the end of the run cut off is known where it cut off all of them.
    """
    only_cut = of.cut >= of.failed.n
    slowest = of.latency.max if only_cut else max(of.latency.max, of.failed.max)
    return max(of.oldest_after, of.failed.max if only_cut else 0) / _NS, slowest / _NS


def _late(of: OpAggregates, first_mean: float, length: float) -> float:
    """Return the share of the due requests of an open loop that should have ended in a window of so many seconds.

    A load that begins with the window has few in flight at its start. By Little's law rate x latency are usual, with
    the latency before a queue has grown: `first_mean` (ns).
    """
    due = max(1, of.finished + of.cut + of.in_flight_at_end - of.in_flight_at_start)
    usual = due / max(1.0, length) * min(first_mean, _mean(of)) / _NS
    usual = usual if of.in_flight_at_start < _FEW * usual else of.in_flight_at_start
    return max(0.0, of.in_flight_at_end - usual - _CHANCE * math.sqrt(of.in_flight_at_end + usual)) / due


def _first_mean(of: OpAggregates, seconds: Optional[Seconds]) -> float:
    """Return the mean latency (ns) of the first tenth of an operation's successes; infinite unless latency grows.

    The first ones that end are short ones, also of a steady load that begins with the window.
    """
    if seconds is None or not seconds.sums["n"].any() or not _grows(of, seconds):
        return math.inf
    n, total = (np.cumsum(seconds.sums[name]) for name in ("n", "total"))
    first = int(np.searchsorted(n, max(1.0, _FIRST * n[-1])))
    return float(total[first] / n[first])


def _grows(of: OpAggregates, seconds: Seconds) -> bool:
    """Return whether latency still grows in the second half of the window, and not by chance.

    By then a steady load has its usual latency, unless requests take as long as half the window. Where many requests
    fail slowly by then, those that succeed do not tell: in an overload the slow ones time out. Requests that fail at
    once, such as those to a dead gateway, wait in no queue.
    """
    quarter = seconds.grid.seconds // 4
    if not quarter:
        return False
    ended, failed = (int(seconds.sums[name][-2 * quarter :].sum()) for name in ("n", "failed"))
    usual = of.latency.total / max(1, of.latency.n)
    slow = of.failed.counts[lows(of.failed.numbers) > usual].sum() / max(1, of.failed.n)
    if failed * slow > (_GROWS - 1.0) * ended:
        return True
    mean, chance = [], 0.0
    for part in (slice(-2 * quarter, -quarter), slice(-quarter, None)):
        n, total = (seconds.sums[name][part] for name in ("n", "total"))
        if not n.any():
            return False
        means = total[n > 0] / n[n > 0]
        mean.append(float(total.sum() / n.sum()))
        chance += float(means.var()) / len(means)
    return mean[1] > max(_GROWS * mean[0], mean[0] + _CHANCE * math.sqrt(chance))


def _hidden(of: OpAggregates) -> float:
    """Return the part of the time in flight within the window that no request has which ended in it."""
    ended = of.latency.total + of.failed.total
    by_chance = _CHANCE * math.sqrt(of.in_flight_at_end + of.in_flight_at_start)
    return max(0.0, of.busy - ended - by_chance * _mean(of)) / max(1, of.busy)


def _mean(of: OpAggregates) -> float:
    """Return the mean time (ns) of the requests that ended in the window."""
    return (of.latency.total + of.failed.total) / max(1, of.latency.n + of.failed.n)


def _metrics(share: float, hidden: float, is_long: bool, unanswered: bool) -> Tuple[str, ...]:
    """Return the metrics without the share `share` of the requests and the part `hidden` of their time.

    `is_long`: a request took longer than those that ended. `unanswered`: requests failed later, or were cut off.
    """
    metrics = {key for key, limit in _LIMITS.items() if share > limit}
    metrics.update(["max_ms"] if is_long else [])
    if metrics:
        metrics.update(["mean_ms"] if hidden > MARGIN else [])
        metrics.update(["success_rate"] if unanswered else [])
    return tuple(metric for metric in METRICS if metric in metrics)


def _ends(metrics: Tuple[str, ...]) -> str:
    """Return which numbers are lower bounds, and which are upper bounds."""
    lower: List[str] = [METRICS[key].title for key in metrics if key not in ("success_rate", "p99_ratio")]
    texts = [f"lower bounds: {', '.join(lower)}"] if lower else []
    return "; ".join([*texts, *(["upper bound: success rate"] if "success_rate" in metrics else [])])
