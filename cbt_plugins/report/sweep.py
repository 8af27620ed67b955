"""Runs that differ in their load, or in the endpoints they use, only: the knee of the curve; what an endpoint adds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.compare.configuration_differences import is_essential, text
from cbt_plugins.formatting import percent
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.run_state import run_state
from cbt_plugins.results.summary_file import measured

#: keys of a run's configuration that are its load, and what follows from it
_LOAD = re.compile(r"phase\..*\.(workers|workers_by_op|rate|rate_share)$|load\.workers$")
_ENDPOINTS = "cluster.endpoints"
TOTAL = "total"

#: a run: its configuration (compare.configuration) and its summary
Run = Tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Point:
    """One load: medians of its runs. `load` is workers, requests a second that were asked for, or endpoints."""

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
    unit: str  # of the load: "workers", "requests/s" or "endpoints"
    points: Tuple[Point, ...]

    @property
    def knee(self) -> Optional[int]:
        """The number of the point with the most power; None when it is one of the ends, for then it is not within.

        In a closed loop of n workers, throughput is at most n / R and the service's limit X, and power grows with n as
        long as n < X R and falls beyond: its maximum is where both limits meet. (L. Kleinrock, Power and deterministic
        rules of thumb for probabilistic problems in computer communications, ICC 1979.)
        """
        best = max(range(len(self.points)), key=lambda i: self.points[i].power)
        if self.unit == "endpoints":
            return None
        return best if 0 < best < len(self.points) - 1 else None

    @property
    def highest(self) -> int:
        """The number of the point with the highest throughput."""
        return max(range(len(self.points)), key=lambda i: self.points[i].obj_per_s)

    def speed_up(self, point: Point) -> float:
        """Return the throughput relative to the throughput of the fewest endpoints."""
        return point.obj_per_s / self.points[0].obj_per_s

    def efficiency(self, point: Point) -> Optional[float]:
        """Return speed-up / factor of endpoints: 1 is linear; None for the fewest endpoints."""
        factor = point.load / self.points[0].load
        return self.speed_up(point) / factor if factor > 1 else None

    @property
    def about(self) -> str:
        """The knee in words, or what the endpoints have added, and what limits the trust in it."""
        text = self._result
        single = [point.load for point in self.points if point.runs == 1]
        if not single:
            return text
        where = "each point" if len(single) == len(self.points) else f"{', '.join(f'{load:g}' for load in single)}"
        return f"{text}; one run of {where}: how much repeated runs differ is not known"

    @property
    def _result(self) -> str:
        if self.unit == "endpoints":
            first, most = self.points[0], self.points[-1]
            gained = f"{self.speed_up(most):.3g} times the throughput"
            part = self.efficiency(most) or 0.0
            strange = ", more than endpoints alone can explain" if part > 1 else ""
            share = f"efficiency {percent(part, '.0f')} (speed-up / factor of endpoints){strange}"
            return f"{first.load:g} to {most.load:g} endpoints: {gained}, {share}"
        if self.knee is not None:
            point = self.points[self.knee]
            return f"knee at {point.load:g} {self.unit}: {point.obj_per_s:.4g} obj/s at {point.mean_ms:.4g} ms"
        if self.points[0].power > self.points[-1].power:
            return "the knee is at or below the smallest load: measure lower loads"
        return "the knee is at or above the largest load: measure higher loads"


def sweeps(runs: Sequence[Run]) -> List[Sweep]:
    """Return a sweep of each phase and operation that usable runs, otherwise equal, measured with several loads."""
    runs = [(config, summary) for config, summary in runs if summary["usable"]]
    by_load = _sweeps(runs, lambda key: bool(_LOAD.search(key)), _load)
    by_endpoints = _sweeps(runs, lambda key: key == _ENDPOINTS, _endpoints)
    return [sweep for sweep in (*by_load, *by_endpoints) if len(sweep.points) > 1]


def left_out(summaries: Iterable[Mapping[str, Any]]) -> str:
    """Return the names of the runs that make no point of a sweep, and why; "" when there are none."""
    return ", ".join(
        f"{summary['run']['name']} ({run_state(summary)})" for summary in summaries if not summary["usable"]
    )


#: (summary, phase) -> unit, load
_Axis = Callable[[Mapping[str, Any], Mapping[str, Any]], Tuple[str, Optional[float]]]


def _sweeps(runs: Sequence[Run], varies: Callable[[str], bool], axis: _Axis) -> List[Sweep]:
    groups: Dict[Tuple[Tuple[str, Any], ...], List[Mapping[str, Any]]] = {}
    for config, summary in runs:
        fixed = tuple((key, config[key]) for key in sorted(config) if is_essential(key) and not varies(key))
        groups.setdefault(fixed, []).append(summary)
    titles = _titles(list(groups))
    return [sweep for title, group in zip(titles, groups.values()) for sweep in _of_group(title, group, axis)]


def of_runs(runs: Sequence[Tuple[Path, Mapping[str, Any]]]) -> List[Sweep]:
    """Return the sweeps of these runs: directories and summaries."""
    return sweeps([(configuration(summary, path), summary) for path, summary in runs])


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> List[str]:
    """Return the essential keys in which the configurations of runs differ."""
    keys = sorted({key for config in configs for key in config if is_essential(key)})
    return [key for key in keys if len({text(config.get(key)) for config in configs}) > 1]


def _titles(groups: Sequence[Tuple[Tuple[str, Any], ...]]) -> Iterator[str]:
    """Yield for each group what sets it apart."""
    common = set.intersection(*(set(group) for group in groups)) if groups else set()
    for group in groups:
        yield ", ".join(f"{key}={value}" for key, value in group if (key, value) not in common)


def _of_group(title: str, summaries: Sequence[Mapping[str, Any]], axis: _Axis) -> Iterator[Sweep]:
    lines: Dict[Tuple[str, str, str], Dict[float, List[Mapping[str, Any]]]] = {}
    for summary in summaries:
        for phase in measured(summary):
            unit, load = axis(summary, phase)
            ops = phase["ops"] if len(phase["ops"]) > 1 else {}
            for op, line in [(TOTAL, phase["total"]), *ops.items()]:
                if load and line["latency_ms"] and line["obj_per_s"]:
                    lines.setdefault((phase["name"], op, unit), {}).setdefault(load, []).append(line)
    for (name, op, unit), loads in lines.items():
        yield Sweep(
            title, name, op, unit, tuple(_point(load, load_lines) for load, load_lines in sorted(loads.items()))
        )


def _endpoints(summary: Mapping[str, Any], _: Mapping[str, Any]) -> Tuple[str, Optional[float]]:
    return "endpoints", float(len(summary["environment"]["endpoints"])) or None


def _load(_: Mapping[str, Any], phase: Mapping[str, Any]) -> Tuple[str, Optional[float]]:
    if phase["loop"] == "open":
        return "requests/s", phase["rate"]["asked"]
    return "workers", float(sum(driver["workers"] for driver in phase["drivers"])) or None


def _point(load: float, lines: Sequence[Mapping[str, Any]]) -> Point:
    def middle(values: Sequence[Optional[float]]) -> Optional[float]:
        numbers = [value for value in values if value is not None]
        return median(numbers) if numbers else None

    times = [line["latency_ms"] for line in lines]
    return Point(
        load=load,
        runs=len(lines),
        obj_per_s=median(line["obj_per_s"] for line in lines),
        mib_per_s=middle([line["mib_per_s"] for line in lines]),
        mean_ms=median(latency_ms["mean"] for latency_ms in times),
        p50_ms=middle([latency_ms["p50"] for latency_ms in times]),
        p99_ms=middle([latency_ms["p99"] for latency_ms in times]),
    )
