"""Parts: what one client did of one operation; and how the parts of several clients become measurements.

Parts are cut to the time in which all clients ran, and added up. Rates are those of this common window. Counts of
failed requests, means and maxima are of all requests: only logs of single requests say which of them were in the
window. Percentiles come from merged bins or single requests; those of several clients are never averaged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.metrics import METRICS, TOTAL
from cbt_plugins.results.histogram import rank
from cbt_plugins.results.run_record import Measurement, ResultWarning

_QUANTILES = tuple(
    metric for metric in METRICS.values() if metric.quantile is not None and metric.path[:1] != ("ttfb_ms",)
)
#: a common window that is shorter than this share of some client's time, and by some seconds, is worth a warning
_MOST = 0.95
_LITTLE = 0.5


@dataclass(frozen=True)
class Steps:
    """Requests over time: a count for each stretch between two edges, spread evenly over it."""

    edges: np.ndarray  # seconds since the part began, rising; one more than counts
    counts: np.ndarray  # requests that succeeded
    totals: Optional[np.ndarray] = None  # sum of their latencies, ns
    #: stretches at the end that nobody measured one by one: they are in rates, and in no series
    unmeasured: int = 0

    def completed(self, requests: int, seconds: float, total: Optional[float]) -> Steps:
        """Return the steps with a last stretch up to `seconds` for all requests and latencies that the steps lack."""
        if seconds - self.edges[-1] < 0.01:
            return self
        counts = np.append(self.counts, max(0.0, requests - self.counts.sum()))
        totals = None
        if self.totals is not None and total is not None:
            totals = np.append(self.totals, max(0.0, total - self.totals.sum()))
        return Steps(np.append(self.edges, seconds), counts, totals, self.unmeasured + 1)

    @property
    def seen(self) -> float:
        """Seconds from the begin that a series can be made of."""
        return float(self.edges[len(self.edges) - 1 - self.unmeasured])

    @property
    def step(self) -> int:
        """Whole seconds that a bin of a series needs."""
        widths = np.diff(self.edges[: len(self.edges) - self.unmeasured])
        return max(1, round(float(np.median(widths)))) if len(widths) else 1

    def within(self, cuts: np.ndarray) -> np.ndarray:
        """Return requests between each two of `cuts` (rising, seconds since the part began)."""
        return self._within(self.counts, cuts)

    def latency_within(self, cuts: np.ndarray) -> Optional[np.ndarray]:
        """Return sums of latencies between each two of `cuts`, ns; None when nothing is known of them."""
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
        """Return the bins of single requests."""
        return cls(*np.unique(values, return_counts=True))

    @classmethod
    def merged(cls, many: List[Bins]) -> Bins:
        """Return the sum of all of them; exact where the programs have the same bins."""
        values = np.concatenate([bins.values for bins in many])
        counts = np.concatenate([bins.counts for bins in many])
        unique, where = np.unique(values, return_inverse=True)
        return cls(unique, np.bincount(where.ravel(), weights=counts).astype(np.int64))

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    def quantile(self, q: float) -> float:
        """Return the value at rank ceil(q * n), ns. ValueError when there is none."""
        if not self.n:
            raise ValueError("no values")
        at = int(np.searchsorted(np.cumsum(self.counts), rank(q, self.n)))
        return float(self.values[at])


@dataclass(frozen=True)
class Part:
    """One client, one operation, one phase. `requests`, `bytes` and latencies are of what succeeded."""

    phase: str
    op: str
    client: str  # who did it: its file's name
    seconds: float
    requests: int
    job: int = 0  # number of its process, where a client has several
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
    resolution: float = 0.0  # width of the program's bins, as a part of the latency; 0: exact
    #: to what the program rounds: latencies, the time, the bytes
    rounded_ms: float = 0.0
    rounded_s: float = 0.0
    rounded_bytes: float = 0.0
    #: (when it ended in seconds since the part began, its latency in ns) of every request
    single: Optional[Tuple[np.ndarray, np.ndarray]] = None

    @property
    def process(self) -> str:
        """The name of the process in messages."""
        return f"{self.client}:{self.job}" if self.job else self.client


@dataclass
class Parsed:
    """The content of one file: its parts by loop (a program that repeats everything has several), and warnings."""

    kind: str
    loops: Dict[int, List[Part]] = field(default_factory=dict)
    config: Dict[str, Any] = field(default_factory=dict)  # dotted keys, as RunRecord has them
    warnings: List[ResultWarning] = field(default_factory=list)
    usable: bool = True
    started: Optional[float] = None


def measurements(parts: Sequence[Part]) -> Tuple[List[Measurement], List[ResultWarning], bool]:
    """Return (measurements, warnings, whether they are those of a complete run) of all phases."""
    phases: Dict[str, Dict[str, List[Part]]] = {}
    for part in parts:
        phases.setdefault(part.phase, {}).setdefault(part.op, []).append(part)
    phase_measurements: List[Measurement] = []
    warnings: List[ResultWarning] = []
    usable = True
    for phase, ops in phases.items():
        everything = [part for op_parts in ops.values() for part in op_parts]
        window, window_warnings = _window(phase, everything)
        warnings += window_warnings
        if window is None and not all(part.prepares for part in everything):
            usable = False
        for part in everything:
            if not part.requests and not part.prepares:
                warnings.append(ResultWarning("no-requests", f"{phase}: no {part.op} of {part.process} succeeded"))
                usable = False
        lines = [line for op, op_parts in ops.items() for line in _op(phase, op, op_parts, window, warnings)]
        phase_measurements += lines
        phase_measurements += _total(phase, lines, len(ops))
    return phase_measurements, warnings, usable


Window = Tuple[float, float]


def _start(part: Part) -> float:
    return part.start or 0.0


def _window(phase: str, parts: Sequence[Part]) -> Tuple[Optional[Window], List[ResultWarning]]:
    """Return the time in which all clients ran; None: never. A client that mixes operations is one client."""
    spans: Dict[Tuple[str, int], Window] = {}
    for part in parts:
        low, high = _start(part), _start(part) + part.seconds
        process = part.client, part.job
        span = spans.get(process, (low, high))
        spans[process] = (min(low, span[0]), max(high, span[1]))
    low, high = max(low for low, _ in spans.values()), min(high for _, high in spans.values())
    warnings = []
    if len(spans) > 1:
        if any(part.start is None for part in parts):
            text = f"{phase}: the results have no clock: all {len(spans)} clients are assumed to have started at once"
            warnings.append(ResultWarning("no-clock", text))
        if high <= low:
            text = f"{phase}: its {len(spans)} clients never ran at the same time"
            warnings.append(ResultWarning("no-common-window", f"{text}: name each file if they are several runs"))
            return None, warnings
        longest = max(high - low for low, high in spans.values())
        if _cut(high - low, longest):
            text = (
                f"{phase}: its {len(spans)} clients ran at the same time for {high - low:.1f} of up to {longest:.1f} s"
            )
            text += "; failures and latencies without a log of requests are of the whole phase, rates of that time"
            warnings.append(ResultWarning("common-window", text))
    return (low, high), warnings


def _cut(window: float, seconds: float) -> bool:
    """Return whether the window leaves out much of a client's time."""
    return window < _MOST * seconds and seconds - window > _LITTLE


def _op(
    phase: str, op: str, parts: Sequence[Part], window: Optional[Window], warnings: List[ResultWarning]
) -> Iterator[Measurement]:
    requests = sum(part.requests for part in parts)
    line = Measurement(phase, op, "", None, n=requests)
    if window is not None:
        yield from _rates(line, parts, window, warnings)
    lost = [part.failed for part in parts if part.failed is not None]
    if len(lost) == len(parts) and requests + sum(lost):
        attempts = requests + sum(lost)
        yield replace(line, metric="success_rate", value=requests / attempts, n=attempts)
    yield from _latencies(line, parts, window, warnings)


def _rates(
    line: Measurement, parts: Sequence[Part], window: Window, warnings: List[ResultWarning]
) -> Iterator[Measurement]:
    """Yield requests and bytes per second: of one part in its own time, of several in the window."""
    alone = len(parts) == 1
    low, high = window
    rate = bin_ = 0.0
    flow: Optional[float] = 0.0
    flow_bin = 0.0
    unlogged = False
    for part in parts:
        part_rate = part.requests / part.seconds if part.seconds > 0 else 0.0
        if not alone and part.steps is not None:
            at = np.array([low, high]) - _start(part)
            part_rate = float(part.steps.within(at)[0]) / (high - low)
        elif not alone and _cut(high - low, part.seconds):
            unlogged = True
        rate += part_rate
        if part.requests and part.seconds > 0:
            bin_ += part_rate * part.rounded_s / part.seconds
            flow_bin += part_rate * part.rounded_bytes / part.requests
        # bytes go along with requests: sizes do not change while a phase runs
        if part.bytes is None:
            flow = None
        elif flow is not None and part.requests:
            flow += part_rate * part.bytes / part.requests
    if unlogged:
        text = f"{line.phase}: without series the rates are of the whole run of each client"
        warnings.append(ResultWarning("no-series", text))
    seconds = [part.seconds for part in parts]
    if not max(seconds) > 0:
        return
    series, mean = _series(parts, window)
    line = replace(line, step=_step(parts), start=None if any(part.start is None for part in parts) else low)
    yield replace(line, metric="obj_per_s", value=rate, series=series, bin=bin_)
    if flow is not None and rate:
        scaled = tuple(value * flow / rate / 2**20 for value in series) if series else None
        flow_bin = (bin_ * flow / rate + flow_bin) / 2**20
        yield replace(line, metric="mib_per_s", value=flow / 2**20, series=scaled, bin=flow_bin)
    if mean is not None:
        yield replace(line, metric="mean_ms", value=_mean(parts), series=mean, bin=_rounded(parts))


def _rounded(parts: Sequence[Part]) -> float:
    return max(part.rounded_ms for part in parts)


def _step(parts: Sequence[Part]) -> int:
    return max((part.steps.step for part in parts if part.steps), default=1)


def _series(parts: Sequence[Part], window: Window) -> Tuple[Optional[Tuple[float, ...]], Optional[Tuple[float, ...]]]:
    """Return (requests per second, latency in ms) of each whole step of the window.

    The latencies are values whose mean is that of all requests, and not of the steps: with n requests of the mean m in
    a step, M + n (m - M) / mean(n) (the ratio estimator, linearized; Cochran, Sampling Techniques, 3rd ed., 6.3).
    """
    if any(part.steps is None for part in parts):
        return None, None
    low = window[0]
    high = min([window[1], *(_start(part) + part.steps.seen for part in parts if part.steps)])
    step = _step(parts)
    # a hundredth: programs round the time that they took
    cuts = low + step * np.arange(int((high - low) / step + 0.01) + 1)
    if len(cuts) < 2:
        return None, None
    counts = np.zeros(len(cuts) - 1)
    totals: Optional[np.ndarray] = np.zeros(len(cuts) - 1)
    for part in parts:
        assert part.steps is not None
        at = cuts - _start(part)
        counts += part.steps.within(at)
        latencies = part.steps.latency_within(at)
        totals = None if latencies is None or totals is None else totals + latencies
    if totals is None or not counts.sum():
        return tuple((counts / step).tolist()), None
    mean = totals.sum() / counts.sum()
    values = (mean + (totals - counts * mean) / counts.mean()) / 1e6
    return tuple((counts / step).tolist()), tuple(values.tolist())


def _mean(parts: Sequence[Part]) -> Optional[float]:
    """Return the mean of all requests: the clients' means, each as often as it has requests."""
    some = [part for part in parts if part.requests]
    if not some or any(part.mean_ms is None for part in some):
        return None
    return sum((part.mean_ms or 0) * part.requests for part in some) / sum(part.requests for part in some)


def _latencies(
    line: Measurement, parts: Sequence[Part], window: Optional[Window], warnings: List[ResultWarning]
) -> Iterator[Measurement]:
    some = [part for part in parts if part.requests]
    if not some:
        return
    if window is None or _series(parts, window)[1] is None:
        mean = _mean(parts)
        if mean is not None:
            yield replace(line, metric="mean_ms", value=mean, bin=_rounded(some))
    bins = _bins(some, window)
    wanted = {key for part in some for key in part.percentiles}
    wide, exact = max(part.resolution for part in some), all(part.single is not None for part in some)
    if bins is not None and bins.n:
        for metric in _QUANTILES:
            if bins.n >= metric.needs:
                at = bins.quantile(metric.quantile or 0) / 1e6
                bin_ = 0 if exact else max(at * wide, _rounded(some))
                yield replace(line, metric=metric.key, value=at, n=bins.n, bin=bin_)
    elif len(some) == 1:
        for key, value in some[0].percentiles.items():
            if some[0].requests >= METRICS[key].needs:
                yield replace(line, metric=key, value=value, bin=max(value * wide, _rounded(some)))
    elif wanted and max(part.requests for part in some) >= METRICS["p99_ms"].needs:
        for key in sorted(wanted):
            yield replace(line, metric=key, value=None)
        text = (
            f"{line.phase} {line.op}: no percentiles: percentiles of {len(some)} clients cannot be merged "
            "without histograms"
        )
        warnings.append(ResultWarning("percentiles-not-merged", text))
    highs = [part.max_ms for part in some]
    if all(high is not None for high in highs):
        yield replace(line, metric="max_ms", value=max(high or 0 for high in highs), bin=_rounded(some))


def _bins(parts: Sequence[Part], window: Optional[Window]) -> Optional[Bins]:
    """Return all latencies; of those that are known one by one, those in the window when there are several clients."""
    bins_of_parts = []
    for part in parts:
        if part.single is not None and (window is not None or len(parts) == 1):
            ended, taken = part.single
            if window is not None and len(parts) > 1:
                taken = taken[(ended >= window[0] - _start(part)) & (ended <= window[1] - _start(part))]
            bins_of_parts.append(Bins.of(taken))
        elif part.bins is not None:
            bins_of_parts.append(part.bins)
        else:
            return None
    return Bins.merged(bins_of_parts)


def _total(phase: str, lines: Sequence[Measurement], ops: int) -> Iterator[Measurement]:
    """Yield the rates of all operations of a phase that mixes them."""
    if ops < 2:
        return
    for metric in ("obj_per_s", "mib_per_s"):
        op_lines = [line for line in lines if line.metric == metric and line.value is not None]
        if not op_lines:
            continue
        series = None
        if all(line.series is not None for line in op_lines):
            shortest = min(len(line.series or ()) for line in op_lines)
            series = tuple(sum(values) for values in zip(*((line.series or ())[:shortest] for line in op_lines)))
        n = sum(line.n or 0 for line in op_lines)
        value, bin_ = sum(line.value or 0.0 for line in op_lines), sum(line.bin for line in op_lines)
        yield replace(op_lines[0], op=TOTAL, value=value, series=series, n=n, bin=bin_)
