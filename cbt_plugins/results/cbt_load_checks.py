"""What cbt-load says about itself that makes its numbers doubtful."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

from cbt_plugins.results.job import kind
from cbt_plugins.results.phase import PhaseAggregates

RATE = 0.01  # share of the rate that was asked for
LATE = 1.0  # seconds

_Check = Callable[[PhaseAggregates, Mapping[str, Any]], Iterator[Dict[str, Any]]]


def _dry(made: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in made.phase.jobs:
        issued = job.driver_end.get("issued") or {}
        for op, n in (job.driver_end.get("dry") or {}).items():
            if n:
                made_ = issued.get(op, 0)
                text = f"{job.id}: {n} times there was no object for a {op}, which was left out; {made_} were made"
                yield {"code": "ran-dry", "text": text, "op": op, "job": job.id}


def _checksums(made: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    said = sum(int(job.driver_end.get("checksum_errors") or 0) for job in made.phase.jobs)
    seen = sum(n for of in made.ops.values() for text, n in of.messages.items() if kind(text) == "checksum")
    if max(said, seen):
        text = f"{max(said, seen)} objects were not what had been written: the cluster gave wrong data"
        yield {"code": "checksum-errors", "text": text}


def _unknown(made: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in made.phase.jobs:
        for space in job.driver_end.get("spaces") or ():
            if space.get("unknown"):
                n, name = space["unknown"], space.get("name")
                text = f"{job.id}: nothing could tell whether {n} objects of {name} are there"
                yield {"code": "unknown-objects", "text": text, "job": job.id}


def _lost(made: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in made.phase.jobs:
        for space in job.driver_end.get("spaces") or ():
            if space.get("lost"):
                text = f"{job.id}: {space['lost']} objects of {space.get('name')} are gone, and nobody had deleted them"
                yield {"code": "lost-objects", "text": text, "job": job.id}


def _rate(made: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    asked, issued, off = (line["rate"][name] for name in ("asked", "issued", "deviation"))
    if off is None:
        return
    requests = sum(sum(job.driver_end["issued"].values()) for job in made.phase.jobs if job.open_loop)
    # a Poisson process has a chance of its own: three standard deviations
    chance = 3 / math.sqrt(max(1, requests)) if made.phase.asked.get("arrivals", "poisson") == "poisson" else 0.0
    if abs(off) > max(RATE, chance):
        text = f"{issued:.1f} requests/s were issued, {asked:.1f} were asked for ({100 * off:+.1f} %)"
        yield {"code": "rate", "text": text}


def _late(made: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in made.phase.jobs:
        late = float(job.driver_end.get("latest_start") or 0)
        if job.open_loop and late > LATE:
            text = f"{job.id}: a request was started {late:.1f} s late, all workers were busy: no open loop any more"
            if job.driver_end.get("unstarted"):
                text += f"; {job.driver_end['unstarted']} were due and never started"
            yield {"code": "late-starts", "text": text, "job": job.id}


CHECKS: Tuple[_Check, ...] = (_dry, _checksums, _unknown, _lost, _rate, _late)
