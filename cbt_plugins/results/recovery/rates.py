"""Rates of recovery: what the counters and the states of the recovery monitor's samples rose or fell by, over time."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.results.recovery.cluster_samples import Sample, Samples

#: objects, bytes, keys
_KINDS = ("objects", "bytes", "keys")
#: seconds, as exact as times of OSD maps are
_SHORTEST = 0.001
#: what `series` shows of a state
_STATES: Dict[str, Callable[[Sample], int]] = {
    "degraded": lambda sample: sample.count("degraded"),
    "misplaced": lambda sample: sample.count("misplaced"),
    "unfound": lambda sample: sample.count("unfound"),
    "not_clean": lambda sample: sample.not_clean,
    "inactive": lambda sample: sample.inactive,
    "osds_up": lambda sample: sample.osds_up,
    "osds_in": lambda sample: sample.osds_in,
}


def recovered(samples: Samples, since: float, begin: Optional[float], end: float) -> Dict[str, Any]:
    """Return the rises of the counters from `since` to `end`, and per second from `begin` (None: `since`) on.

    A counter belongs to a PG's primary, and falls or rises when another OSD that has seen less or more takes over.
    Rises are added up, falls left out (`objects_fallen`), and so are rises before a PG can have recovered. Without
    counters all is null; without time, the rates.
    """
    # what the mgr knows is in the PG states one report later
    first = since if begin is None else max(since, begin - samples.period - samples.longest_interval)
    steps = [(step, _share_since(samples, step, since)) for step in samples.rises if first < step[1] <= end]
    begin = since if begin is None or begin >= end else begin
    falls = [rise for _, t, rise in samples.rises if since < t <= end]
    numbers: Dict[str, Any] = {"begin": round(begin, 3), "end": round(end, 3), "seconds": round(end - begin, 3)}
    has_counters = samples.has_counters
    sums = {
        kind: round(sum(share * max(0, rise[i]) for (_, _, rise), share in steps)) if has_counters else None
        for i, kind in enumerate(_KINDS)
    }
    numbers.update(sums)
    numbers["objects_fallen"] = sum(max(0, -rise[0]) for rise in falls) if has_counters else None
    objects, size = sums["objects"], sums["bytes"]
    numbers["objects_per_s"] = per_second(objects, end - begin, 2)
    numbers["mib_per_s"] = per_second(None if size is None else size / 2**20, end - begin, 3)
    return numbers


def bytes_before(samples: Samples, counted_until: float, goes_on_since: float, since: float) -> int:
    """Return the bytes by which the counter rose that `recovered` has neither until `counted_until` nor since `since`.

    They are those of the rise across `counted_until`, and of all rises that end behind `goes_on_since`, when the
    recovery went on (inf: it did not). A rise that began before counts in full: what `recovered` has until then lacks
    it.
    """
    steps = [
        step
        for step in samples.rises
        if step[0] < since and (step[0] < counted_until < step[1] or goes_on_since < step[1])
    ]
    shares = [1.0 if step[1] <= since else 1.0 - _share_since(samples, step, since) for step in steps]
    return round(sum(share * max(0, rise[1]) for (_, _, rise), share in zip(steps, shares)))


def _share_since(samples: Samples, step: Tuple[float, float, Sequence[int]], since: float) -> float:
    """Return the part of a rise that counts from `since` on: all, unless PGs recovered between its begin and `since`.

    Then it may be of any of that time: nobody asks for the counters while all PGs are clean.
    """
    begin, end, _ = step
    reading = samples.before(end - samples.period)
    if reading and not reading.clean and not reading.state.get("mgr_error"):
        begin = max(begin, reading.t)  # they were asked for since then, and had not changed
    earlier = samples.between(math.nextafter(begin, math.inf), since)
    recovered_before = any(sample.recovering_or_backfilling for sample in earlier)
    return (end - since) / (end - begin) if recovered_before else 1.0


def per_second(amount: Optional[float], seconds: float, digits: int) -> Optional[float]:
    """Return a rate, None where no amount is known, or where the time is too short to have one."""
    return None if amount is None or seconds < _SHORTEST else round(amount / seconds, digits)


def copies_made(samples: Samples, since: float, begin: float, end: float) -> Dict[str, Any]:
    """Return the object copies that were degraded and no longer are, all falls of that number from `since` to `end`.

    Per second from `begin` on; null without a time after it.
    """
    if end - begin < _SHORTEST:
        return {"copies": None, "copies_per_s": None}
    degraded = [sample.count("degraded") for sample in samples.between(since, math.nextafter(end, math.inf))]
    copies = sum(max(0, before - after) for before, after in zip(degraded, degraded[1:]))
    return {"copies": copies, "copies_per_s": per_second(copies, end - begin, 2)}


def series(samples: Samples, start: int, step: int, bins: int) -> Dict[str, Any]:
    """Return the cluster in `bins` bins of `step` seconds from `start` on: those of a phase's client series, say.

    {"start", "step", "degraded", "misplaced", "unfound", "not_clean", "inactive", "osds_up", "osds_in",
    "objects_per_s", "mib_per_s": [number or null]}. A state is that at the end of its bin, null without a sample; a
    recovery rate is what the counters rose by, spread over the time in which they did, and null where the states are.
    """
    cluster_series: Dict[str, Any] = {"start": start, "step": step, **{name: [] for name in _STATES}}
    before: Optional[Sample] = None
    values: Sequence[Optional[int]] = ()
    for sample in _at_the_ends(samples, start, step, bins):
        if not values or sample is None or before is None or sample.state is not before.state:
            values = [None if sample is None else of(sample) for of in _STATES.values()]
        before = sample
        for name, value in zip(_STATES, values):
            cluster_series[name].append(value)
    rises = [rise for rise in samples.rises if start < rise[1] and rise[0] < start + bins * step]
    for i, (name, unit) in enumerate((("objects_per_s", 1), ("mib_per_s", 2**20))):
        sums = [0.0] * bins
        for begin, end, rise in rises:
            # they are asked for once a period at most, and not at all while nothing is wrong; behind a gap they rose
            # at any time of it
            before = samples.before(end)
            low = min(end - samples.period, before.t) if before else end - samples.period
            _spread(sums, max(begin, low) - start, end - start, max(0, rise[i]), step)
        watched = [state is not None for state in cluster_series["not_clean"]]
        cluster_series[name] = [round(value / unit / step, 3) if at else None for value, at in zip(sums, watched)]
    return cluster_series


def _at_the_ends(samples: Samples, start: int, step: int, bins: int) -> Iterator[Optional[Sample]]:
    """Yield the newest sample before the end of each bin, None where it is too old."""
    oldest = max(samples.longest_interval, step)
    near = samples.between(start - oldest, start + bins * step)
    place = -1
    for i in range(bins):
        border = start + (i + 1) * step
        while place + 1 < len(near) and near[place + 1].t < border:
            place += 1
        yield near[place] if place >= 0 and border - near[place].t <= oldest else None


def _spread(sums: List[float], low: float, high: float, amount: float, step: int) -> None:
    if not amount or high <= low:
        return
    for i in range(max(0, math.floor(low / step)), min(len(sums), math.ceil(high / step))):
        sums[i] += amount * max(0.0, min(high, (i + 1) * step) - max(low, i * step)) / (high - low)
