"""Runs that differ in their load only: throughput against latency, and where the knee is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.compare.differences import is_essential
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.summary_file import measured

#: keys of a run's configuration that are its load, and what follows from it
_LOAD = re.compile(r"phase\..*\.(workers|rate|rate_share)$|load\.workers$")
TOTAL = "total"

#: a run: its configuration (compare.configuration) and its summary
Run = Tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Point:
    """One load: medians of its runs. `load` is workers, or requests a second that were asked for."""

    load: float
    runs: int
    obj_per_s: float
    mib_per_s: Optional[float]
    mean_ms: float
    p50_ms: Optional[float]
    p99_ms: Optional[float]

    @property
    def power(self) -> float:
        """Kleinrock's power: throughput / mean latency."""
        return self.obj_per_s / self.mean_ms


@dataclass(frozen=True)
class Sweep:
    """The points of one phase and operation in the order of their loads."""

    title: str  # what sets this sweep apart from others of the archive, "" when it is the only one
    phase: str
    op: str
    unit: str  # of the load: "workers" or "requests/s"
    points: Tuple[Point, ...]

    @property
    def knee(self) -> Optional[int]:
        """The number of the point with the most power; None when it is one of the ends, for then it is not within.

        In a closed loop of n workers, throughput is at most n / R and the service's limit X, and power grows with n as
        long as n < X R and falls beyond: its maximum is where both limits meet. (L. Kleinrock, Power and deterministic
        rules of thumb for probabilistic problems in computer communications, ICC 1979.)
        """
        best = max(range(len(self.points)), key=lambda i: self.points[i].power)
        return best if 0 < best < len(self.points) - 1 else None

    @property
    def highest(self) -> int:
        """The number of the point with the highest throughput."""
        return max(range(len(self.points)), key=lambda i: self.points[i].obj_per_s)

    @property
    def about(self) -> str:
        """The knee in words."""
        if self.knee is not None:
            its = self.points[self.knee]
            return f"knee at {its.load:g} {self.unit}: {its.obj_per_s:.4g} obj/s at {its.mean_ms:.4g} ms"
        if self.points[0].power > self.points[-1].power:
            return "the knee is at the smallest load or below it: measure less"
        return "the knee is at the largest load or beyond it: measure more"


def sweeps(runs: Sequence[Run]) -> List[Sweep]:
    """Every phase and operation that was measured with two loads at least, all else being equal."""
    groups: Dict[Tuple[Tuple[str, Any], ...], List[Mapping[str, Any]]] = {}
    for config, summary in runs:
        fixed = tuple((key, config[key]) for key in sorted(config) if is_essential(key) and not _LOAD.search(key))
        groups.setdefault(fixed, []).append(summary)
    titles = _titles(list(groups))
    found = [sweep for title, group in zip(titles, groups.values()) for sweep in _of_group(title, group)]
    return [sweep for sweep in found if len(sweep.points) > 1]


def of_runs(runs: Sequence[Tuple[Path, Mapping[str, Any]]]) -> List[Sweep]:
    """The sweeps of these runs: directories and summaries."""
    return sweeps([(configuration(summary, path), summary) for path, summary in runs])


def _titles(groups: Sequence[Tuple[Tuple[str, Any], ...]]) -> Iterator[str]:
    """Yield for each group what sets it apart."""
    common = set.intersection(*(set(group) for group in groups)) if groups else set()
    for group in groups:
        yield ", ".join(f"{key}={value}" for key, value in group if (key, value) not in common)


def _of_group(title: str, summaries: Sequence[Mapping[str, Any]]) -> Iterator[Sweep]:
    lines: Dict[Tuple[str, str, str], Dict[float, List[Mapping[str, Any]]]] = {}
    for summary in summaries:
        for phase in measured(summary):
            unit, load = _load(phase)
            ops = phase["ops"] if len(phase["ops"]) > 1 else {}
            for op, line in [(TOTAL, phase["total"]), *ops.items()]:
                if load and line["latency_ms"] and line["obj_per_s"]:
                    lines.setdefault((phase["name"], op, unit), {}).setdefault(load, []).append(line)
    for (name, op, unit), loads in lines.items():
        yield Sweep(title, name, op, unit, tuple(_point(load, its) for load, its in sorted(loads.items())))


def _load(phase: Mapping[str, Any]) -> Tuple[str, Optional[float]]:
    if phase["loop"] == "open":
        return "requests/s", phase["rate"]["asked"]
    return "workers", float(sum(driver["workers"] for driver in phase["drivers"])) or None


def _point(load: float, lines: Sequence[Mapping[str, Any]]) -> Point:
    def middle(values: Sequence[Optional[float]]) -> Optional[float]:
        there = [value for value in values if value is not None]
        return median(there) if there else None

    times = [line["latency_ms"] for line in lines]
    return Point(
        load=load,
        runs=len(lines),
        obj_per_s=median(line["obj_per_s"] for line in lines),
        mib_per_s=middle([line["mib_per_s"] for line in lines]),
        mean_ms=median(its["mean"] for its in times),
        p50_ms=middle([its["p50"] for its in times]),
        p99_ms=middle([its["p99"] for its in times]),
    )
