"""Requests under way and the age of the oldest, as the generators said it once a second while a phase ran."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.results.series import Grid

FILE = "heartbeat.jsonl"
#: bins of a line
BINS = 1000
#: beats that are read of a file; of a longer one, runs of beats at even distances, so that every node has its part
_READ = 20_000
_RUN = 64


def under_way(path: Path, grid: Grid, drivers: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """{"start", "step", "drivers": {driver: {"in_flight": [...], "oldest_seconds": [...]}}} per bin of the window.

    `drivers` is job -> driver. A bin has the most requests and the highest age that were said in it,
    null when nothing was. None: the generators say no such thing.
    """
    step = max(1, math.ceil(grid.seconds / BINS))
    bins = math.ceil(grid.seconds / step)
    said = set()  # drivers; warp says no such thing, and nothing under way is left out
    most: Dict[str, List[Optional[int]]] = {}
    oldest: Dict[str, List[Optional[float]]] = {}
    for beat in _beats(path):
        jobs, t = beat.get("jobs"), beat.get("t")
        if not isinstance(jobs, dict) or not isinstance(t, (int, float)):
            continue
        i = math.floor((t - grid.first) / step)
        if not 0 <= i < bins:
            continue
        sums: Dict[str, int] = {}
        for job, its in jobs.items():
            driver = drivers.get(job)
            if driver is None or not isinstance(its, dict):
                continue
            if its.get("in_flight"):
                said.add(driver)
            sums[driver] = sums.get(driver, 0) + int(its.get("in_flight") or 0)
            ages = oldest.setdefault(driver, [None] * bins)
            ages[i] = round(max(ages[i] or 0.0, float(its.get("oldest") or 0)), 3)
        for driver, n in sums.items():
            line = most.setdefault(driver, [None] * bins)
            line[i] = max(line[i] or 0, n)
    if not said:
        return None
    lines = {driver: {"in_flight": most[driver], "oldest_seconds": oldest[driver]} for driver in sorted(said)}
    return {"start": grid.first, "step": step, "drivers": lines}


def _beats(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    if b'"in_flight"' not in data:
        return
    lines = data.split(b"\n")
    every = max(1, math.ceil(len(lines) / _READ)) * _RUN
    for begin in range(0, len(lines), every):
        for line in lines[begin : begin + _RUN]:
            try:
                beat = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            if isinstance(beat, dict):
                yield beat
