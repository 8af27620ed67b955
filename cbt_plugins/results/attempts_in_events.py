"""Attempts at phases in the event log of a run: when they lasted, and which parts of a run were broken off."""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Set

from cbt_plugins.cluster_conditions import UNDO_BY_USER

#: events after which all that was in force is undone, and not as the plan wants it
_BREAKS = ("phase-broken-off", "run-failed", "run-interrupted", UNDO_BY_USER)


class Attempt(NamedTuple):
    """An attempt at a phase, begin <= t < end; its load begins at `go`, and where it has none the phase itself."""

    begin: float
    go: float
    end: float


class BrokenOff(NamedTuple):
    """A part of a run that was broken off, begin <= t < end, by the name of its attempt or of the folder of that."""

    begin: float
    end: float
    name: str


def attempts(events: Sequence[Mapping[str, Any]]) -> Iterator[Attempt]:
    """Yield all attempts at phases, from lines of events.jsonl in the order of time."""
    begin = go = math.nan
    for event in events:
        name, t = event.get("event"), float(event.get("t") or 0)
        if name == "load-go":
            go = float(event.get("at") or t)
        elif name in ("phase-begin", "phase-end", "phase-broken-off", "run-begun"):
            if not math.isnan(begin):
                yield Attempt(begin, go, t)
            begin = go = t if name == "phase-begin" else math.nan
    if not math.isnan(begin):
        yield Attempt(begin, go, math.inf)


def broken_off(events: Sequence[Mapping[str, Any]]) -> Iterator[BrokenOff]:
    """Yield the attempts that were broken off, from the end of the last whole phase until the run was resumed.

    Nothing is once all phases have ended: what is undone then was to be undone.
    """
    since, attempt, broken = -math.inf, "", False
    planned: Set[str] = set()
    ended: Set[str] = set()
    for event in events:
        name, t, phase = event.get("event"), float(event.get("t") or 0), str(event.get("phase"))
        if broken and name in ("run-begun", "phase-begin"):
            yield BrokenOff(since, t, attempt)
            since, broken = t, False
        if name == "run-begun":
            planned = set(map(str, event.get("phases") or ()))
        elif name == "phase-begin":
            attempt = phase
        elif name == "phase-end":
            since, attempt = t, ""
            ended.add(phase)
        elif name in _BREAKS and not (planned and planned <= ended):
            attempt, broken = str(event.get("kept") or attempt or "between phases"), True
    if broken:
        yield BrokenOff(since, math.inf, attempt)
