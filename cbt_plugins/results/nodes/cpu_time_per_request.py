"""CPU time for each operation, by class of daemons and by what their threads do."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from cbt_plugins.formatting import plain
from cbt_plugins.results.nodes.node_samples import Counter, NodeSamples
from cbt_plugins.results.nodes.thread_groups import GROUPS, name_of
from cbt_plugins.results.nodes.usage import CLASSES, rounded

#: points of a series
_POINTS = 100
#: parts of a window whose scatter makes the interval of its mean, and Student's t for that: 95 %
_BATCHES, _T = 10, 2.262
#: share of the CPU time of all daemons; smaller groups are not shown
_LEAST = 0.02


def cpu_seconds(node: NodeSamples, window: Tuple[float, float], interval: float) -> Dict[str, np.ndarray]:
    """Return the CPU time of the classes of daemons of a node in the bins of a window: (bins, GROUPS).

    {}: nobody saw threads. `interval` is the longest one of the nodes that are added.
    """
    edges = _edges(window, interval)
    used: Dict[str, np.ndarray] = {}
    for daemon in node.daemons:
        if daemon.daemon_class in CLASSES and daemon.groups.meets(*window):
            used[daemon.daemon_class] = used.get(daemon.daemon_class, 0.0) + daemon.groups.rises(edges)
    watched = node.processors.watched_seconds(edges)
    return {name: _extrapolate(rises, watched, float(edges[1] - edges[0])) for name, rises in used.items()}


def _edges(window: Tuple[float, float], interval: float) -> np.ndarray:
    bins = max(1, min(_POINTS, math.floor((window[1] - window[0]) / max(1.0, interval))))
    return np.linspace(*window, bins + 1)


def cpu_time(
    used: Mapping[str, np.ndarray], window: Tuple[float, float], interval: float, served: Counter
) -> Optional[Dict[str, Any]]:
    """Return the CPU time of classes of daemons and of their thread groups in a window; None: nobody saw threads.

    {"step", "lines": [{"class", "group": None for all of the class, "cores", "ms_per_op", "low", "high", "series"}]};
    `used` are the sums of `cpu_seconds`, `served` counts successful requests; without any there are cores only. A
    series has the mean of its line: with n requests and CPU time c in a bin, and r of the window, it is
    r + (c - r n) / mean(n) (ratio estimator, linearized).
    """
    if not used:
        return None
    edges = _edges(window, interval)
    step = float(edges[1] - edges[0])
    requests = served.rises(edges)[:, 0]
    lines: List[Dict[str, Any]] = []
    for daemon_class in (name for name in CLASSES if name in used):
        lines.append({"class": daemon_class, "group": None, **_numbers(used[daemon_class].sum(axis=1), requests, step)})
        for group, seconds in zip(GROUPS, used[daemon_class].T):
            if seconds.sum() > 0:
                lines.append({"class": daemon_class, "group": group, **_numbers(seconds, requests, step)})
    return {"step": max(1, round(step)), "lines": lines}


def _extrapolate(rises: np.ndarray, watched: np.ndarray, step: float) -> np.ndarray:
    """Return the rise in each bin; a bin that was watched in part rises at the rate of that part."""
    rate = rises.sum(axis=0) / max(float(watched.sum()), 1e-9)
    extrapolated: np.ndarray = rises + np.outer(np.maximum(0.0, step - watched), rate)
    return extrapolated


def _numbers(seconds: np.ndarray, requests: np.ndarray, step: float) -> Dict[str, Any]:
    numbers: Dict[str, Any] = {"cores": rounded(seconds.sum() / (step * len(seconds)))}
    if not requests.sum():
        return {**numbers, "ms_per_op": None, "low": None, "high": None, "series": []}
    mean = 1000 * float(seconds.sum() / requests.sum())
    values = mean + (1000 * seconds - mean * requests) / requests.mean()
    low = high = None
    if len(values) >= _BATCHES:
        parts = np.array([part.mean() for part in np.array_split(values, _BATCHES)])
        half = _T * float(parts.std(ddof=1)) / math.sqrt(_BATCHES)
        low, high = rounded(max(0.0, mean - half)), rounded(mean + half)
    series = [float(f"{value:.5g}") for value in values]
    return {**numbers, "ms_per_op": rounded(mean), "low": low, "high": high, "series": series}


def cpu_time_rows(phases: Mapping[str, Mapping[str, Any]]) -> List[List[str]]:
    """Return a table of the phases in `resources` that had requests: a head, then a line for each class and group.

    Groups that nowhere have 2 % of the CPU time of all are left out.
    """
    shown = {name: (used.get("threads") or {"lines": ()})["lines"] for name, used in phases.items()}
    shown = {name: lines for name, lines in shown.items() if any(line["ms_per_op"] is not None for line in lines)}
    cells = {name: {name_of(line): _cell(line) for line in lines} for name, lines in shown.items()}
    every = {name_of(line): line for lines in shown.values() for line in lines}
    names = sorted(_large(shown.values()), key=lambda name: _place(every[name]))
    rows = [[name, *(phase_cells.get(name, "-") for phase_cells in cells.values())] for name in names]
    return [["ms", *shown], *rows] if rows else []


def _large(phases: Iterable[Sequence[Mapping[str, Any]]]) -> Set[str]:
    large = set()
    for lines in phases:
        least = _LEAST * sum(line["ms_per_op"] or 0.0 for line in lines if line["group"] is None)
        large |= {name_of(line) for line in lines if line["group"] is None or (line["ms_per_op"] or 0.0) >= least}
    return large


def _place(line: Mapping[str, Any]) -> Tuple[int, int]:
    return CLASSES.index(line["class"]), GROUPS.index(line["group"]) if line["group"] in GROUPS else -1


def _cell(line: Mapping[str, Any]) -> str:
    mean, high = line["ms_per_op"], line["high"]
    return plain(mean) if mean is None or high is None else f"{plain(mean)} ±{plain(high - mean)}"
