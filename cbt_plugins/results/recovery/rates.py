"""Rates of recovery: what the counters and the states of the recovery monitor's samples rose or fell by, over time."""

from __future__ import annotations

import bisect
import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from cbt_plugins.results.recovery.cluster_samples import Sample, Samples

#: objects, bytes, keys
_KINDS = ("objects", "bytes", "keys")


def recovered(samples: Sequence[Sample], since: float, begin: Optional[float], end: float) -> Dict[str, Any]:
    """Return the rises of the counters from `since` to `end`, and per second from `begin` (None: `since`) on.

    A counter belongs to a PG's primary, and falls when another OSD that has seen less takes over: rises are added up,
    falls left out (`objects_fallen`). So it is a lower bound. Without counters all is null.
    """
    steps = [step for step in _steps(samples) if since < step[1] <= end]
    has_counters = any(sample.state.get("recovered") for sample in samples)
    begin = since if begin is None or begin >= end else begin
    numbers: Dict[str, Any] = {"begin": round(begin, 3), "end": round(end, 3), "seconds": round(end - begin, 3)}
    sums = {
        kind: sum(max(0, rise[i]) for _, _, rise in steps) if has_counters else None for i, kind in enumerate(_KINDS)
    }
    numbers.update(sums)
    numbers["objects_fallen"] = sum(max(0, -rise[0]) for _, _, rise in steps) if has_counters else None
    objects, size = sums["objects"], sums["bytes"]
    numbers["objects_per_s"] = None if objects is None else round(objects / (end - begin), 2)
    numbers["mib_per_s"] = None if size is None else round(size / 2**20 / (end - begin), 3)
    return numbers


def copies_made(samples: Sequence[Sample], begin: float, end: float) -> int:
    """Return the object copies that were degraded and no longer are: the sum of all falls of that number."""
    degraded = [sample.count("degraded") for sample in samples if begin <= sample.t <= end]
    return sum(max(0, before - after) for before, after in zip(degraded, degraded[1:]))


def _steps(samples: Sequence[Sample]) -> List[Tuple[float, float, Tuple[int, ...]]]:
    """Return (from, to, rise of each counter): the counters rose, or fell, between these two moments."""
    steps = []
    last: Optional[Sequence[int]] = None
    at = 0.0
    for sample in samples:
        now = sample.state.get("recovered")
        if not now or now is last:
            continue
        if last is not None and list(now) != list(last):
            steps.append((at, sample.t, tuple(b - a for a, b in zip(last, now))))
        last, at = now, sample.t
    return steps


def series(samples: Samples, start: int, step: int, bins: int) -> Dict[str, Any]:
    """Return the cluster in `bins` bins of `step` seconds from `start` on: those of a phase's client series, say.

    {"start", "step", "degraded", "misplaced", "unfound", "not_clean", "inactive", "osds_up", "osds_in": [number or
    null], "objects_per_s", "mib_per_s": [number]}. A state is that at the end of its bin, null without a sample; a
    recovery rate is what the counters rose by, spread over the time in which they did.
    """
    times = [sample.t for sample in samples.samples]
    at: List[Optional[Sample]] = []
    for i in range(bins):
        border = start + (i + 1) * step
        place = bisect.bisect_left(times, border) - 1
        fresh = place >= 0 and border - times[place] <= max(samples.longest_interval, step)
        at.append(samples.samples[place] if fresh else None)
    columns: Dict[str, Callable[[Sample], int]] = {
        "degraded": lambda sample: sample.count("degraded"),
        "misplaced": lambda sample: sample.count("misplaced"),
        "unfound": lambda sample: sample.count("unfound"),
        "not_clean": lambda sample: sample.not_clean,
        "inactive": lambda sample: sample.inactive,
        "osds_up": lambda sample: sample.osds_up,
        "osds_in": lambda sample: sample.osds_in,
    }
    cluster_series: Dict[str, Any] = {"start": start, "step": step}
    for name, of in columns.items():
        cluster_series[name] = [None if sample is None else of(sample) for sample in at]
    for i, (name, unit) in enumerate((("objects_per_s", 1), ("mib_per_s", 2**20))):
        sums = [0.0] * bins
        for begin, end, rise in _steps(samples.samples):
            # they are asked for once a period at most, and not at all while nothing is wrong
            _spread(sums, max(begin, end - samples.period) - start, end - start, max(0, rise[i]), step)
        cluster_series[name] = [round(value / unit / step, 3) for value in sums]
    return cluster_series


def _spread(sums: List[float], low: float, high: float, amount: float, step: int) -> None:
    if not amount or high <= low:
        return
    for i in range(max(0, math.floor(low / step)), min(len(sums), math.ceil(high / step))):
        sums[i] += amount * max(0.0, min(high, (i + 1) * step) - max(low, i * step)) / (high - low)
