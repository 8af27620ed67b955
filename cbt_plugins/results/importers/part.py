"""What one client did of one operation: all that the readers of other programs' results agree on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from cbt_plugins.results.histogram import rank
from cbt_plugins.results.record import ResultWarning


@dataclass(frozen=True)
class Steps:
    """Requests over time: a count for each stretch between two edges, spread evenly over it."""

    edges: np.ndarray  # seconds since the part began, rising; one more than counts
    counts: np.ndarray  # requests that ended well
    totals: Optional[np.ndarray] = None  # sum of their latencies, ns
    #: stretches at the end that nobody measured one by one: they are in rates, and in no series
    rest: int = 0

    def completed(self, requests: int, seconds: float, total: Optional[float]) -> Steps:
        """With a last stretch up to `seconds` for what the steps lack of all requests and of their latencies (ns)."""
        if seconds - self.edges[-1] < 0.01:
            return self
        counts = np.append(self.counts, max(0.0, requests - self.counts.sum()))
        totals = None
        if self.totals is not None and total is not None:
            totals = np.append(self.totals, max(0.0, total - self.totals.sum()))
        return Steps(np.append(self.edges, seconds), counts, totals, self.rest + 1)

    @property
    def seen(self) -> float:
        """Seconds from the begin that a series can be made of."""
        return float(self.edges[len(self.edges) - 1 - self.rest])

    @property
    def step(self) -> int:
        """Whole seconds that a bin of a series needs."""
        widths = np.diff(self.edges[: len(self.edges) - self.rest])
        return max(1, round(float(np.median(widths)))) if len(widths) else 1

    def within(self, cuts: np.ndarray) -> np.ndarray:
        """Requests between each two of `cuts` (rising, seconds since the part began)."""
        return self._within(self.counts, cuts)

    def latency_within(self, cuts: np.ndarray) -> Optional[np.ndarray]:
        """Sums of latencies between each two of `cuts`, ns; None when nothing is known of them."""
        return None if self.totals is None else self._within(self.totals, cuts)

    def _within(self, values: np.ndarray, cuts: np.ndarray) -> np.ndarray:
        upto = np.concatenate(([0.0], np.cumsum(values)))
        return np.diff(np.interp(cuts, self.edges, upto))


@dataclass(frozen=True)
class Bins:
    """Latencies as counted values: those of single requests, or the middles of a program's histogram."""

    values: np.ndarray  # ns, rising, each once
    counts: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Bins:
        """Of single requests."""
        return cls(*np.unique(values, return_counts=True))

    @classmethod
    def merged(cls, many: List[Bins]) -> Bins:
        """All of them together; exact where the programs have the same bins."""
        values = np.concatenate([its.values for its in many])
        counts = np.concatenate([its.counts for its in many])
        unique, where = np.unique(values, return_inverse=True)
        return cls(unique, np.bincount(where.ravel(), weights=counts).astype(np.int64))

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    def quantile(self, q: float) -> float:
        """The value at rank ceil(q * n), ns. ValueError when there is none."""
        if not self.n:
            raise ValueError("no values")
        at = int(np.searchsorted(np.cumsum(self.counts), rank(q, self.n)))
        return float(self.values[at])


@dataclass(frozen=True)
class Part:
    """One client, one operation, one phase. `requests`, `bytes` and latencies are of what ended well."""

    phase: str
    op: str
    client: str  # the process that did it: its file's name, its job's number
    seconds: float
    requests: int
    failed: Optional[int] = 0  # None: the program does not say
    prepares: bool = False  # it makes ready for what is measured, and is none of it
    bytes: Optional[int] = None  # None: the operation moves no data, or nobody counted it
    start: Optional[float] = None  # seconds, on a clock that all parts of a phase share; None: unknown
    steps: Optional[Steps] = None
    mean_ms: Optional[float] = None
    max_ms: Optional[float] = None
    #: as the program gave them, by key of METRICS: of this part alone
    percentiles: Mapping[str, float] = field(default_factory=dict)
    bins: Optional[Bins] = None  # of all of its requests: what percentiles of several parts are made of
    #: (when it ended in seconds since the part began, its latency in ns) of every request
    single: Optional[Tuple[np.ndarray, np.ndarray]] = None


@dataclass
class Parsed:
    """What one file says: its parts by loop (a program that repeats everything has several), and warnings."""

    kind: str
    loops: Dict[int, List[Part]] = field(default_factory=dict)
    config: Dict[str, Any] = field(default_factory=dict)  # dotted keys, as Record has them
    warnings: List[ResultWarning] = field(default_factory=list)
    usable: bool = True
    started: Optional[float] = None
