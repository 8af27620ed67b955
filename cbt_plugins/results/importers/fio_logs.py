"""fio's logs: write_iops_log, write_lat_log.

A line is: ms since the job began (its end), value, direction, block size, offset. Without log_avg_msec there is a line
for each request: the value of an iops log is 1, that of a latency log its latency in ns. With it there is a line for
each window and direction: requests per second, the mean latency; the window ends at its time, and the last one that is
not whole is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Mapping, Optional, Tuple

import numpy as np

from cbt_plugins.results.importers.part import Steps

_WAYS = ("read", "write", "trim")
#: PREFIX_iops.1.log, and .HOST behind it when CBT has collected it
_NAME = re.compile(r"(?P<prefix>.*)_(?P<kind>iops|clat|lat)\.(?P<job>\d+)\.log(?P<host>\..*)?$")


@dataclass(frozen=True)
class Log:
    """One direction of one job."""

    steps: Steps
    single: Optional[Tuple[np.ndarray, np.ndarray]]  # see Part


class Logs:
    """The logs of one process: those with this prefix and host in one directory."""

    def __init__(self, directory: Path, prefix: str, host: str = "", latency: str = "clat") -> None:
        self._files: Dict[int, Dict[str, Path]] = {}
        for path in directory.glob(f"{prefix}_*.log{host}"):
            found = _NAME.match(path.name)
            if found and found["prefix"] == prefix and (found["host"] or "") == host and path.stat().st_size:
                self._files.setdefault(int(found["job"]), {})[found["kind"]] = path
        self._latency = latency

    def of(self, number: int, jobs: int) -> Mapping[str, Log]:
        """By direction, of the job with this number of `jobs`; nothing when jobs and logs are not in pairs."""
        files = self._files.get(number)
        if not files or "iops" not in files or len(self._files) != jobs:
            return {}
        requests = _table(files["iops"])
        latencies = _table(files[self._latency]) if self._latency in files else None
        made: Dict[str, Log] = {}
        for code, way in enumerate(_WAYS):
            its = requests[requests[:, 2] == code]
            if len(its):
                taken = latencies[latencies[:, 2] == code] if latencies is not None else None
                made[way] = _single(its, taken) if (its[:, 1] == 1).all() else _windows(its, taken)
        return made


def _table(path: Path) -> np.ndarray:
    """Time, value, direction: the first columns, which all versions have."""
    rows = []
    with path.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            fields = line.split(",", 3)
            if len(fields) == 4:
                rows.append((int(fields[0]), int(fields[1]), int(fields[2])))
    return np.array(rows, np.int64).reshape(-1, 3)


def _single(requests: np.ndarray, latencies: Optional[np.ndarray]) -> Log:
    """A line is a request."""
    ended = requests[:, 0] / 1000
    edges = np.arange(int(ended.max()) + 2, dtype=float)
    counts, _ = np.histogram(ended, edges)
    if latencies is None or len(latencies) != len(requests):
        return Log(Steps(edges, counts.astype(float)), None)
    totals, _ = np.histogram(latencies[:, 0] / 1000, edges, weights=latencies[:, 1].astype(float))
    return Log(Steps(edges, counts.astype(float), totals), (latencies[:, 0] / 1000, latencies[:, 1]))


def _windows(requests: np.ndarray, latencies: Optional[np.ndarray]) -> Log:
    """A line is a window; those of the two logs need not be the same."""
    edges = np.concatenate(([0.0], requests[:, 0] / 1000))
    steps = Steps(edges, requests[:, 1] * np.diff(edges))
    if latencies is None or not len(latencies):
        return Log(steps, None)
    others = np.concatenate(([0.0], latencies[:, 0] / 1000))
    its = Steps(others, steps.within(others) * latencies[:, 1])
    return Log(Steps(edges, steps.counts, its.within(edges)), None)


def beside(file: Path, text: str, host: str) -> Optional[Logs]:
    """The logs of the process that wrote this output, when they lie beside it under the names that its options say."""
    names = set(re.findall(r'"write_iops_log" *: *"([^"]+)"', text))
    if len(names) != 1:
        return None
    clat = re.search(r'"clat_ns" *: *\{[^{}]*"percentile"', text)
    lat = re.search(r'"lat_ns" *: *\{[^{}]*"percentile"', text)
    return Logs(file.parent, Path(names.pop()).name, host, "lat" if lat and not clat else "clat")
