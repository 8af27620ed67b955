"""Bad seconds: those in which clients had not what an objective promises them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.config.objective import DEFAULT_P99_FACTOR, DEFAULT_SUCCESS_RATE
from cbt_plugins.metrics import METRICS, TOTAL
from cbt_plugins.results.histogram import ranks
from cbt_plugins.results.requests.endpoint_stalls import least_missed
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates
from cbt_plugins.results.requests.time_series import Seconds, Timeline, coarse_bucket, lowest_of

P99, SUCCESS_RATE = "p99_ms", "success_rate"
_MS = 1e6
#: ms; config.objective has none above
_HIGHEST = 1e9


@dataclass(frozen=True)
class SecondLimits:
    """What a second of an operation, or of all, must keep."""

    bucket: Optional[int]  # coarse bucket of latencies: p99 must be below it; None: no limit of p99
    success_rate: float
    given: bool  # p99 in the file; else DEFAULT_P99_FACTOR times that of the baseline
    per_s: Optional[float]  # requests/s of the baseline; None: it has none that succeeded

    @property
    def p99_ms(self) -> Optional[float]:
        """The latency from which on a p99 is too high: the limit, rounded up to the next bucket, by up to 1.6 %."""
        return None if self.bucket is None else lowest_of(self.bucket) / _MS

    def plain(self) -> Dict[str, Any]:
        return {P99: self.p99_ms, SUCCESS_RATE: self.success_rate, "given": self.given}


def second_limits(
    objective: Mapping[str, Any], base: Optional[Mapping[str, Any]], ops: Iterable[str]
) -> Dict[str, SecondLimits]:
    """Return the limits of all operations together and of each one; of one without a limit of p99 and without an
    objective, none.

    `objective`: as in the file, by metric or operation/metric; a metric without an operation is about each one.
    """
    limits = {}
    for op in (TOTAL, *ops):
        given, line = _number(objective, op, P99), _line_of(base, op)
        usual = line.get(P99)
        ms = given if given is not None else None if usual is None else DEFAULT_P99_FACTOR * usual
        success = _number(objective, op, SUCCESS_RATE)
        if ms is not None or success is not None:
            per_s = line["requests"] / base["seconds"] or None if base and line else None
            bucket = None if ms is None else coarse_bucket(round(ms * _MS))
            rate = DEFAULT_SUCCESS_RATE if success is None else success
            limits[op] = SecondLimits(bucket, rate, given is not None, per_s)
    return limits


def _number(objective: Mapping[str, Any], op: str, metric: str) -> Optional[float]:
    value = objective.get(f"{op}/{metric}", objective.get(metric))
    return float(value) if isinstance(value, (int, float)) and 0 < value < _HIGHEST else None


def _line_of(base: Optional[Mapping[str, Any]], op: str) -> Mapping[str, Any]:
    line: Optional[Mapping[str, Any]] = base and (base["total"] if op == TOTAL else base["ops"].get(op))
    return line or {}


def bad_seconds(aggregates: PhaseAggregates, limits: Mapping[str, SecondLimits]) -> Dict[str, np.ndarray]:
    """Return for all operations together, and for each one, which seconds of a phase are bad.

    One in which p99 is too high, or too many requests failed; and one of a time without any success in which more of
    the baseline's requests are missing than chance explains. Percentiles of long phases have bins of several seconds,
    all of which are bad then.
    """
    timeline = aggregates.timeline
    at_least = _at_least(timeline, limits)
    bad = {}
    for op, limit in limits.items():
        seconds = aggregates.all_ops if op == TOTAL else timeline.seconds.get(op)
        if seconds is None and op in aggregates.phase.mix:  # not one request of it ended
            seconds = Seconds(aggregates.grid)
        counts = list(at_least.values()) if op == TOTAL else [at_least[op]] if op in at_least else []
        if seconds is not None:
            all_dry = dry_requests(aggregates, TOTAL) > 0
            excused = np.full(aggregates.grid.seconds, all_dry) | (aggregates.all_ops.sums["n"] > 0)
            silent = _silent(seconds, limit, dry_requests(aggregates, op), excused)
            bad[op] = _too_late(seconds, counts, limit) | _failed(seconds, limit) | silent
    return bad


def dry_requests(aggregates: PhaseAggregates, op: str) -> int:
    """Return how often an operation of a phase found no object; of TOTAL, if each operation of the mix ran dry."""
    dry: Dict[str, int] = {}
    for job in aggregates.phase.jobs:
        for dry_op, requests in (job.driver_end.get("dry") or {}).items():
            dry[dry_op] = dry.get(dry_op, 0) + int(requests)
    mix = aggregates.phase.mix
    if op == TOTAL:
        return sum(dry.values()) if mix and all(dry.get(mix_op) for mix_op in mix) else 0
    return dry.get(op, 0)


def _at_least(timeline: Timeline, limits: Mapping[str, SecondLimits]) -> Dict[str, Dict[int, np.ndarray]]:
    """Return op -> coarse bucket -> how many latencies each bin has in it or above: of 0, and of the limits."""
    counts = {}
    for op, blocks in timeline.blocks.items():
        limits_of_op = [limits[name].bucket for name in (TOTAL, op) if name in limits]
        buckets = [bucket for bucket in limits_of_op if bucket is not None]
        wanted = list(dict.fromkeys([0, *buckets])) if buckets else []
        counts[op] = dict(zip(wanted, blocks.at_least(*wanted)))
    return counts


def _too_late(seconds: Seconds, counts: Sequence[Mapping[int, np.ndarray]], limit: SecondLimits) -> np.ndarray:
    """Return the seconds whose p99, the nearest rank of all operations' latencies, is too high."""
    grid, q = seconds.grid, METRICS[P99].quantile or 0.0
    if limit.bucket is None:
        return np.zeros(grid.seconds, bool)
    none = np.zeros(grid.block_bins, np.int64)
    n, late = (sum((of_op[bucket] for of_op in counts), none) for bucket in (0, limit.bucket))
    bins = (n > 0) & (n - late < ranks(q, n))
    at = (grid.first + np.arange(grid.seconds) - grid.first_block) // grid.block_step
    return bins[at]


def _failed(seconds: Seconds, limit: SecondLimits) -> np.ndarray:
    n, failed = seconds.sums["n"], seconds.sums["failed"]
    return np.asarray((failed > 0) & (n < limit.success_rate * (n + failed)))


def _silent(seconds: Seconds, limit: SecondLimits, dry: int, excused: np.ndarray) -> np.ndarray:
    """Return the seconds of silences that are no chance, by the rate of the baseline, or else that of the phase.

    `dry`: requests that are not missing, because there was no object for them, in the seconds `excused` only: in others
    nothing succeeded, although another operation had objects. A phase without any success, and without a baseline, is
    one silence.
    """
    grid = seconds.grid
    own = int(seconds.sums["n"].sum()) / max(1.0, grid.length) or math.inf
    per_s = own if limit.per_s is None else limit.per_s
    silent = np.zeros(grid.seconds, bool)
    silent[[second - grid.first for second in seconds.silent()]] = True
    bad = np.zeros(grid.seconds, bool)
    for flags, found_none in ((silent & excused, dry), (silent & ~excused, 0)) if dry else ((silent, 0),):
        for begin, end in runs(flags):
            bad[begin:end] = per_s * (end - begin) - found_none >= least_missed(grid.length)
    return bad


def runs(flags: np.ndarray) -> List[Tuple[int, int]]:
    """Return (begin, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags, [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))
