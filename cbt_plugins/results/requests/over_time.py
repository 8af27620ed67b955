"""One phase over time: the series of each operation, and the requests under way by the heartbeats of the generators."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster_conditions import is_clean
from cbt_plugins.journal import HEARTBEATS, each_json_line, lines_of
from cbt_plugins.results.archive import ArchivedPhase
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates, moves_data, op_order
from cbt_plugins.results.requests.time_series import TimeGrid, Timeline
from cbt_plugins.results.shared_values import shared

#: bins of a line of requests under way
BINS = 1000
#: what no time and no count is
_MOST = 1e18


def over_time(phase: ArchivedPhase, timeline: Timeline) -> Dict[str, Any]:
    """Return {"columns": the "ops" of `series` as arrays, "under_way": as in the summary}: less to send than lists."""
    drivers = {job.id: job.driver for job in phase.jobs}
    under_way = in_flight_over_time(phase.path / HEARTBEATS, timeline.grid, drivers)
    return {"columns": _columns(timeline), "under_way": under_way}


def of_summary(
    aggregates: PhaseAggregates, status: Sequence[Mapping[str, Any]] = ()
) -> Dict[str, Optional[Dict[str, Any]]]:
    """Return {"series", "under_way"} of a phase as in the summary; `status`: samples of the cluster."""
    parts = aggregates.over_time or over_time(aggregates.phase, aggregates.timeline)
    return {"series": _series(aggregates.grid, parts["columns"], status), "under_way": parts["under_way"]}


def series(timeline: Timeline) -> Dict[str, Any]:
    """Return numbers per bin of `step` seconds from `start` (the window may cut the first and the last), and the PGs.

    {"start", "step", "percentiles": {"start", "step"}, "ops": {op: {"obj_per_s", "mib_per_s" or null, "mean_ms",
    "max_ms", "errors", "p50_ms", "p99_ms"}}, "pgs": {"t": [seconds from start], "not_clean": [...], "total": [...]}};
    p50 and p99 have bins of their own; a latency of nothing is null.
    """
    return _series(timeline.grid, _columns(timeline), ())


def _series(
    grid: TimeGrid, columns: Mapping[str, Mapping[str, Optional[np.ndarray]]], status: Sequence[Mapping[str, Any]]
) -> Dict[str, Any]:
    return {
        "start": grid.first,
        "step": grid.step,
        "percentiles": {"start": grid.first_block, "step": grid.block_step},
        "ops": {
            op: {name: None if column is None else _listed(column) for name, column in of_op.items()}
            for op, of_op in columns.items()
        },
        "pgs": _pgs(status, grid.first),
    }


def _columns(timeline: Timeline) -> Dict[str, Dict[str, Optional[np.ndarray]]]:
    """Return the "ops" of `series` as arrays, with NaN in place of null."""
    grid = timeline.grid
    bin_seconds = grid.seconds_of_bins()
    table: Dict[str, Dict[str, Optional[np.ndarray]]] = {}
    for op in sorted(timeline.seconds, key=op_order):
        seconds, blocks = timeline.seconds[op], timeline.blocks.get(op)
        n = seconds.binned("n")
        none = np.full(grid.block_bins, math.nan)
        p50, p99 = blocks.quantile_rows(0.5, 0.99) if blocks else (none, none)
        table[op] = {
            "obj_per_s": np.round(seconds.binned("objects") / bin_seconds, 2),
            "mib_per_s": np.round(seconds.binned("bytes") / bin_seconds / 2**20, 3) if moves_data(op) else None,
            "mean_ms": np.where(n > 0, np.round(seconds.binned("total") / np.maximum(n, 1) / 1e6, 3), math.nan),
            "max_ms": np.where(n > 0, np.round(seconds.binned("max") / 1e6, 3), math.nan),
            "errors": seconds.binned("failed"),
            "p50_ms": np.array([round(ns / 1e6, 3) for ns in p50.tolist()]),
            "p99_ms": np.array([round(ns / 1e6, 3) for ns in p99.tolist()]),
        }
    return table


def _listed(column: np.ndarray) -> List[Any]:
    """Return an array as it is in JSON: null in place of no number."""
    values = column.tolist()
    if column.dtype.kind != "f":
        return values
    some = ~np.isnan(column)
    if some.all():
        return list(map(shared, values))
    return [shared(value) if is_there else None for value, is_there in zip(values, some.tolist())]


def _pgs(status: Sequence[Mapping[str, Any]], first: float) -> Dict[str, List[Any]]:
    pg_counts: Dict[str, List[Any]] = {"t": [], "not_clean": [], "total": []}
    latest: Any = None
    not_clean = total = 0
    for sample in status:
        states, t = sample.get("pgs"), sample.get("t")
        if not isinstance(states, dict) or not isinstance(t, (int, float)):
            continue
        if states is not latest:  # samples between which nothing changed share it
            latest, total = states, sum(states.values())
            not_clean = sum(n for state, n in states.items() if not is_clean(state))
        pg_counts["t"].append(shared(round(t - first, 1)))
        pg_counts["not_clean"].append(not_clean)
        pg_counts["total"].append(total)
    return pg_counts


def in_flight_over_time(path: Path, grid: TimeGrid, drivers: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """Return {"start", "step", "drivers": {driver: {"in_flight": [...], "oldest_seconds": [...]}}} per bin of the
    window.

    `drivers` is job -> driver. A bin has the most requests and the highest age that were said in it,
    null when nothing was. None: the generators say no such thing.
    """
    step = max(1, math.ceil(grid.seconds / BINS))
    bins = math.ceil(grid.seconds / step)
    reporting_drivers = set()  # drivers; warp says no such thing, and nothing under way is left out
    most: Dict[str, List[Optional[int]]] = defaultdict(lambda: [None] * bins)
    oldest: Dict[str, List[Optional[float]]] = defaultdict(lambda: [None] * bins)
    first = grid.first
    for beat in _beats(path):
        jobs, t = beat.get("jobs"), beat.get("t")
        if not isinstance(jobs, dict) or not isinstance(t, (int, float)) or not is_number(t):
            continue
        i = math.floor((t - first) / step)
        if not 0 <= i < bins:
            continue
        sums: Dict[str, int] = {}
        for job, job_beat in jobs.items():
            driver = drivers.get(job)
            if driver is None or not isinstance(job_beat, dict):
                continue
            in_flight, age = (job_beat.get(key) or 0 for key in ("in_flight", "oldest"))
            if not is_number(in_flight) or not is_number(age):
                continue
            if in_flight:
                reporting_drivers.add(driver)
            sums[driver] = sums.get(driver, 0) + int(in_flight)
            ages = oldest[driver]
            ages[i] = max(ages[i] or 0.0, round(float(age), 3))
        for driver, n in sums.items():
            line = most[driver]
            line[i] = max(line[i] or 0, n)
    if not reporting_drivers:
        return None
    lines = {
        driver: {"in_flight": most[driver], "oldest_seconds": oldest[driver]} for driver in sorted(reporting_drivers)
    }
    return {"start": grid.first, "step": step, "drivers": lines}


def is_number(value: Any) -> bool:
    """Tell whether a value can be a time or a count: a line of JSON has NaN, and numbers that no float has, too."""
    return isinstance(value, (int, float)) and -_MOST < value < _MOST


def _beats(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with open_regular(path) as file:
            if not any(b'"in_flight"' in line for line in lines_of(file)):
                return
        yield from each_json_line(path)
    except OSError:
        return
