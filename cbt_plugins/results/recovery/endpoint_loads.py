"""When requests of a failure failed, and how its load was spread over the endpoints, against the baseline."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np

from cbt_plugins.formatting import percent, plain
from cbt_plugins.results.recovery.episodes import Stretch
from cbt_plugins.results.recovery.stretch_numbers import LoadPart

#: a share of the load that changed by less than this is not worth a sentence
_MOVED = 0.1


def failed_and_loads(
    parts: Sequence[LoadPart], cut: Sequence[LoadPart], begin: float, base: Optional[Mapping[str, Any]]
) -> Dict[str, Any]:
    """Return {"failed_span": {"first", "last"} or None, "endpoints": [...]} of the parts of a failure or return.

    "first" and "last" are the seconds from `begin` to the begin of the second in which the first and the last failed
    request ended. Each endpoint has its successful requests/s and its share of all, in whole blocks, and the same of
    the baseline. `parts` are complete phases: one has the baseline.
    """
    return {"failed_span": _failed_span(cut, begin), "endpoints": _endpoints(cut, list(_calm(parts, base)))}


def _failed_span(cut: Sequence[LoadPart], begin: float) -> Optional[Dict[str, float]]:
    seconds: List[int] = []
    for aggregates, stretch, _ in cut:
        first = aggregates.grid.first
        low, high = math.floor(stretch.start) - first, math.ceil(stretch.end) - first
        failed = np.flatnonzero(aggregates.all_ops.sums["failed"][low:high]) + first + low
        seconds += failed.tolist()
    if not seconds:
        return None
    return {name: round(max(0.0, at - begin), 3) for name, at in (("first", min(seconds)), ("last", max(seconds)))}


def _calm(parts: Sequence[LoadPart], base: Optional[Mapping[str, Any]]) -> Iterator[LoadPart]:
    """Yield the part of the baseline."""
    for part in parts:
        if base and part.aggregates.phase.name == base["phase"]:
            yield part._replace(stretch=Stretch("", (), base["start"], base["end"]))


def _endpoints(cut: Sequence[LoadPart], calm: Sequence[LoadPart]) -> List[Dict[str, Any]]:
    now, usual = _rates(cut), _rates(calm)
    total, usual_total = sum(now.values()), sum(usual.values())
    return [
        {
            "endpoint": endpoint,
            "per_s": round(rate, 4),
            "share": round(rate / total, 6) if total else None,
            "base_per_s": round(usual[endpoint], 4) if endpoint in usual else None,
            "base_share": round(usual[endpoint] / usual_total, 6) if endpoint in usual and usual_total else None,
        }
        for endpoint, rate in now.items()
    ]


def _rates(parts: Sequence[LoadPart]) -> Dict[str, float]:
    """Return endpoint -> successful requests/s in the whole blocks of these parts."""
    answers_by_endpoint: Dict[str, int] = {}
    seconds = 0
    for aggregates, stretch, _ in parts:
        grid, answers = aggregates.grid, aggregates.timeline.endpoints
        urls = {url for job in aggregates.phase.jobs for url in job.urls}
        low = math.ceil((stretch.start - grid.first_block) / grid.block)
        high = max(low, math.floor((stretch.end - grid.first_block) / grid.block))
        seconds += (high - low) * grid.block
        for endpoint in sorted(urls if set(answers) <= urls else answers):
            some = int(answers[endpoint][low:high].sum()) if endpoint in answers else 0
            answers_by_endpoint[endpoint] = answers_by_endpoint.get(endpoint, 0) + some
    return {endpoint: some / seconds for endpoint, some in answers_by_endpoint.items()} if seconds else {}


def load_texts(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the times of failed requests, and the endpoints if the load moved among them. Older archives have none."""
    span = line.get("failed_span")
    if span:
        yield f"first failed request after {span['first']:.0f} s, last after {span['last']:.0f} s"
    endpoints = [each for each in line.get("endpoints") or () if None not in (each["share"], each["base_share"])]
    if any(abs(each["share"] - each["base_share"]) >= _MOVED for each in endpoints):
        for each in endpoints:
            usual = f"{plain(each['base_per_s'])} requests/s, {percent(each['base_share'])}"
            now = f"{plain(each['per_s'])} requests/s, {percent(each['share'])}"
            yield f"{each['endpoint']} had {now} of all (baseline: {usual})"
