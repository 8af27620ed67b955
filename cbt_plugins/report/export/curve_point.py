"""A point of a curve: throughput and latency at one queue depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from cbt_plugins.report.export.latency_seconds import LatencyBin


@dataclass(frozen=True)
class CurvePoint:
    """A point: the result of the drivers of one object size in one phase of one run."""

    size: int  # bytes of an object; the mean where there are several sizes
    op: str  # "read", "write" or "randrw", which are both
    shares: Optional[Tuple[str, str]]  # of randrw: percent of reads and of writes that were asked for
    depth: int  # workers, of all drivers
    jobs: int  # drivers
    seconds: float
    requests: int
    bytes: int
    latency_ns: float  # mean
    deviation_ns: float  # standard deviation of the latency of the requests
    cpu: Optional[float]  # percent of one core that the generators took; None: no monitor, or others ran too
    start: float = 0.0  # epoch seconds
    bins: Tuple[LatencyBin, ...] = ()  # none where nobody knows when requests ended
