"""The numbers of stretches of whole seconds of load, each compared with the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from cbt_plugins.metrics import TOTAL
from cbt_plugins.results.histogram import tail_quantiles
from cbt_plugins.results.recovery.episodes import Stretch
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates, moves_data, op_order
from cbt_plugins.results.requests.time_series import SECOND, Blocks, Seconds, TimeGrid, coarse_bucket, lowest_of

#: ns after which a request is one that waited
WAITED = SECOND
#: operation, or TOTAL -> which seconds of a phase are bad; an operation whose bad seconds are unknown is not there
BadSeconds = Mapping[str, np.ndarray]
_NOT_JUDGED: BadSeconds = {}


class LoadPart(NamedTuple):
    """Some seconds of a phase."""

    aggregates: PhaseAggregates
    stretch: Stretch
    bad: BadSeconds = _NOT_JUDGED


@dataclass(frozen=True)
class _OpPart:
    """The same of one operation, or of all."""

    seconds: Seconds
    stretch: Stretch
    bad: Optional[np.ndarray]

    @cached_property
    def places(self) -> slice:
        """The seconds of the grid that the stretch touches."""
        first = self.seconds.grid.first
        return slice(math.floor(self.stretch.start) - first, math.ceil(self.stretch.end) - first)

    @cached_property
    def _beside(self) -> Mapping[str, np.ndarray]:
        """Columns of the seconds of the stretch whose bins of percentiles lie partly outside: "n", "total", "max"."""
        grid, places, bins = self.seconds.grid, self.places, _whole_bins(self.seconds.grid, self.stretch)
        at = (grid.first + np.arange(places.start, places.stop) - grid.first_block) // grid.block_step
        beside = (at < bins.start) | (at >= bins.stop)
        columns = {**self.seconds.sums, "max": self.seconds.max}
        return {name: columns[name][places][beside] for name in ("n", "total", "max")}

    @property
    def has_beside(self) -> bool:
        """Whether there are requests in the seconds whose bins of percentiles lie partly outside."""
        return bool(self._beside["n"].any())

    @property
    def longest_beside(self) -> int:
        """The highest latency (ns) in the seconds whose bins of percentiles lie partly outside."""
        return int(self._beside["max"].max(initial=0))

    def most_beside(self, ns: float) -> int:
        """Return how many requests at most took longer than `ns` in the seconds whose bins lie partly outside."""
        slow = self._beside["max"] > ns
        n, total = (self._beside[name][slow] for name in ("n", "total"))
        return int(np.minimum(n, total // max(1, round(ns))).sum())

    def sum(self, name: str) -> int:
        return int(self.seconds.sums[name][self.places].sum())


def _whole_bins(grid: TimeGrid, stretch: Stretch) -> slice:
    """Return the bins of percentiles that lie completely in the stretch, as far as they are in the window."""
    start, end = stretch[2:]
    low = 0 if start <= grid.start else math.ceil((start - grid.first_block) / grid.block_step)
    high = grid.block_bins if end >= grid.end else math.floor((end - grid.first_block) / grid.block_step)
    return slice(low, max(low, high))


def numbers_in(
    aggregates: PhaseAggregates, stretch: Stretch, base: Optional[Mapping[str, Any]], bad: BadSeconds = _NOT_JUDGED
) -> Dict[str, Any]:
    """Return the numbers of a stretch of whole seconds, compared with those of `base`."""
    about = {"state": stretch.state, "start": stretch.start, "end": stretch.end}
    return {**about, **merged_numbers([LoadPart(aggregates, stretch, bad)], base)}


def merged_numbers(parts: Sequence[LoadPart], base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return {"seconds", "total", "ops"} of several stretches together, compared with those of `base`."""
    everything = [_OpPart(aggregates.all_ops, stretch, bad.get(TOTAL)) for aggregates, stretch, bad in parts]
    by_op: Dict[str, List[_OpPart]] = {}
    for aggregates, stretch, bad in parts:
        for op in {**aggregates.timeline.seconds, **bad}.keys() - {TOTAL}:
            seconds = aggregates.timeline.seconds.get(op) or Seconds(aggregates.grid)
            by_op.setdefault(op, []).append(_OpPart(seconds, stretch, bad.get(op)))
    latencies = {op: _latencies(parts, op) for op in {op for part in parts for op in part.aggregates.timeline.blocks}}
    of_all = _no_latencies()
    for of_op in latencies.values():
        of_all.merge(of_op)
    return {
        "seconds": round(sum(stretch.end - stretch.start for _, stretch, _ in parts), 3),
        "total": _compared(_line(None, everything, of_all), base["total"] if base else None),
        "ops": {
            op: _compared(
                _line(op, by_op[op], latencies.get(op) or _no_latencies()), base["ops"].get(op) if base else None
            )
            for op in sorted(by_op, key=op_order)
        },
    }


def _line(op: Optional[str], parts: Sequence[_OpPart], latencies: Blocks) -> Dict[str, Any]:
    length = sum(part.stretch.end - part.stretch.start for part in parts)
    n, failed, objects, size, total = (
        sum(part.sum(name) for part in parts) for name in ("n", "failed", "objects", "bytes", "total")
    )
    tail = tail_quantiles(latencies.n)
    p50, p99, p999, *tail_ms = _quantiles(latencies, parts, 0.5, 0.99, 0.999, *tail)
    bad = [int(part.bad[part.places].sum()) for part in parts if part.bad is not None]
    return {
        "requests": n,
        "errors": failed,
        "waited": _waited(parts, latencies),
        "bad_seconds": sum(bad) if len(bad) == len(parts) else None,
        "obj_per_s": round(objects / length, 4),
        "mib_per_s": round(size / length / 2**20, 4) if moves_data(op) else None,
        "mean_ms": round(total / n / 1e6, 3) if n else None,
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
        "max_ms": round(max(int(part.seconds.max[part.places].max()) for part in parts) / 1e6, 3) if n else None,
        "longest_gap": round(max(map(_gap, parts)), 6),
        "silent_seconds": sum(map(_silent, parts)),
        "tail_ms": tail_ms,
    }


def _gap(part: _OpPart) -> float:
    """Return the longest time within the stretch in which nothing succeeded."""
    seconds, places = part.seconds, part.places
    some = seconds.sums["n"][places] > 0
    begin, end = round(part.stretch.start * SECOND), round(part.stretch.end * SECOND)
    first, last = seconds.first[places][some], seconds.last[places][some]
    gaps = np.concatenate((first, [end])) - np.concatenate(([begin], np.maximum.accumulate(last)))
    return max(0, int(gaps.max())) / SECOND


def _silent(part: _OpPart) -> int:
    """Return the number of whole seconds in which nothing succeeded."""
    first, (start, end) = part.seconds.grid.first, part.stretch[2:]
    inner = slice(math.ceil(start) - first, max(math.floor(end), math.ceil(start)) - first)
    return int((part.seconds.sums["n"][inner] == 0).sum())


def _latencies(parts: Sequence[LoadPart], op: str) -> Blocks:
    """Return one bin with the latencies of an operation in the bins that lie completely in a stretch."""
    merged = _no_latencies()
    for aggregates, stretch, _ in parts:
        op_blocks = aggregates.timeline.blocks.get(op)
        if op_blocks is not None:
            bins = _whole_bins(aggregates.grid, stretch)
            counts = op_blocks.sum(bins)
            if bins.stop > bins.start and counts.size:
                merged.add(0, op_blocks.low, counts[np.newaxis])
                merged.max[0] = max(int(merged.max[0]), int(op_blocks.max[bins].max()))
    return merged


def _no_latencies() -> Blocks:
    return Blocks(TimeGrid(0.0, 1.0))


def _waited(parts: Sequence[_OpPart], latencies: Blocks) -> Optional[int]:
    """Return the requests that took WAITED; None where some did in seconds whose bins lie partly outside."""
    bucket = coarse_bucket(WAITED)
    if any(part.longest_beside >= lowest_of(bucket) for part in parts):
        return None
    return int(latencies.at_least(bucket).sum())


def _quantiles(latencies: Blocks, parts: Sequence[_OpPart], *wanted: float) -> List[Optional[float]]:
    """Return milliseconds, off by less than 0.8 %; None below 1 / (1 - q) samples.

    None also where the seconds whose bins lie partly outside may have had many of the slowest requests: more than half
    as many as are above the quantile took longer than a tenth of these.
    """
    n = latencies.n
    beside = [part for part in parts if part.has_beside]
    quantiles = [bins[0] for bins in latencies.quantiles(*wanted)]
    highs = [bins[0] for bins in latencies.quantiles(*(1 - (1 - q) / 10 for q in wanted))] if beside else quantiles
    ms = []
    for q, ns, high in zip(wanted, quantiles, highs):
        is_unknown = ns is None or high is None or n < round(1 / (1 - q))
        unseen = 0 if is_unknown else sum(part.most_beside(high or 0.0) for part in beside)
        ms.append(None if is_unknown or unseen > (1 - q) * n / 2 else round((ns or 0.0) / 1e6, 3))
    return ms


def _compared(line: Dict[str, Any], base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    for name in ("obj_per_s", "mib_per_s"):
        of = base.get(name) if base else None
        line[f"{name}_percent"] = round(100 * line[name] / of, 2) if of and line[name] is not None else None
    return line
