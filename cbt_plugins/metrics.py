"""The metrics: every number that is compared, judged, exported or shown in a table, with its one definition.

Standard library only, so that the check of a YAML file and the readers of archives share it. compare, gate, history,
`acceptable:`, the exports (Prometheus, CSV), SQL's table of measurements and the report's tables take all from here.

To add a metric:

1. Put its number into the summary, where it is not there yet: results/requests/rates_and_latencies.py for requests,
   results/nodes/resources.py for what nodes did, results/recovery/milestones.py for failures, client_losses.py beside
   it for what clients lost by them; and results/summary.schema.json.
2. Add one line to `_ALL` below. What reads it, and what shows it, follows from that line; only the columns of the time
   to first byte are written by hand (report/result_text.py, report/run.html.j2, results/sql/summary_tables.py).
3. Add its row to the table of metrics in docs/SUMMARY.md, and its name to docs/CBT.md where `acceptable:` takes it: a
   test says which row is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from statistics import stdev
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

#: the operation that stands for all operations of a phase
TOTAL = "total"
#: the operation of what is said of the cluster, and not of requests
CLUSTER = "cluster"
#: relative changes within which most metrics are equivalent, unless the user says otherwise
MARGIN = 0.05
#: seconds of a longest gap below which it is a lower bound: of each second the first and last success are known
SURE_GAP = 1.0
#: chance of a false better or worse in a table of results, unless the user says otherwise
ALPHA = 0.05


class Direction(Enum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class MetricSource(Enum):
    """Where a summary has a metric; `Metric.path` leads from there to the number."""

    OPERATION = "a line of an operation, or of all operations, in a phase"
    DEVIATION = "the series of a phase: the standard deviation of its bins"
    NODES = "a phase in `resources`: of all operations only"
    CLASS = "a class of daemons of a phase in `resources`"
    THREADS = "a class of daemons, or a group of its threads, of a phase in `resources`"
    LADDER = "the answer of a ladder: the highest load that met its objective"
    EPISODE = "an episode of a failure: its milestones, or its recovery"
    LOSS = "an operation, or all operations, during an episode of a failure"
    LOSSES = "an episode of a failure: of all operations only"
    IMPORTED = "results of other programs only"


@dataclass(frozen=True)
class Metric:
    """One metric. Its value in a record, a table or an export has `unit`."""

    key: str
    unit: str  # "" for a share or a ratio
    direction: Direction
    title: str  # in front of the unit, in a column of a table
    text: str  # one sentence
    source: MetricSource
    path: Tuple[str, ...] = ()
    factor: float = 1.0  # value = number in the summary * factor
    quantile: Optional[float] = None
    main: bool = False  # compared without being asked for; more rows make each of them harder to decide
    column: bool = False  # a column of the tables that show few metrics: CSV, other programs' results
    expected: Optional[float] = None  # where all runs have this value, there is nothing to show
    margin: float = MARGIN  # a change within it is equivalent, unless the user says otherwise; relative, or if ...
    additive: bool = False  # ... it may be 0, so that differences are compared and not ratios: in the unit
    of_baseline: bool = False  # divided by the number of the phase without a failure
    requests: int = 1  # below so many there is no value; a percentile needs as many as its quantile says
    prometheus: str = ""  # name there, in the base unit; "" where it is not exported
    order: int = 0  # place in METRICS

    @property
    def needs(self) -> int:
        """Requests below which there is no value: of a percentile 1 for p50, then 1 / (1 - quantile)."""
        return self.requests if self.quantile is None or self.quantile <= 0.5 else round(1 / (1 - self.quantile))

    @property
    def total_only(self) -> bool:
        """It is known of all operations only, not of one."""
        return self.source in (MetricSource.NODES, MetricSource.LOSSES, MetricSource.LADDER)

    @property
    def series(self) -> Optional[str]:
        """The key of the rate in a phase's series whose mean this is."""
        return self.path[0] if self.unit in ("obj/s", "MiB/s") and self.source is MetricSource.OPERATION else None

    @property
    def heading(self) -> str:
        """What stands above its column: a rate's unit, else the title."""
        return self.unit if self.series else self.title


_UP, _DOWN, _NONE = Direction.HIGHER, Direction.LOWER, Direction.NONE
_OP, _NODES, _CLASS, _EPISODE = MetricSource.OPERATION, MetricSource.NODES, MetricSource.CLASS, MetricSource.EPISODE
_LOSS, _LOSSES = MetricSource.LOSS, MetricSource.LOSSES
_OK = "of successful requests."
_LATENCY = f"Latency {_OK}"
_P = "cbt_latency_seconds"


def _percentile(key: str, title: str, name: str, q: float, **options: Any) -> Metric:
    return Metric(key, "ms", _DOWN, title, _LATENCY, _OP, ("latency_ms", name), quantile=q, prometheus=_P, **options)


# fmt: off
_ALL = (
    # rates of what ended well in the window
    Metric("obj_per_s", "obj/s", _UP, "throughput", f"Objects {_OK}", _OP, ("obj_per_s",),
           main=True, column=True, prometheus="cbt_objects_per_second"),
    Metric("mib_per_s", "MiB/s", _UP, "bandwidth", f"Bytes {_OK}", _OP, ("mib_per_s",),
           column=True, prometheus="cbt_bytes_per_second"),
    Metric("success_rate", "", _UP, "success rate", "Successful requests / all requests.", _OP, ("success_rate",),
           main=True, column=True, expected=1.0, margin=0.001, prometheus="cbt_success_ratio"),
    # latencies of what ended well
    Metric("mean_ms", "ms", _DOWN, "mean", f"Mean latency {_OK}", _OP, ("latency_ms", "mean"),
           column=True, prometheus="cbt_latency_mean_seconds"),
    _percentile("p50_ms", "p50", "p50", 0.5, column=True),
    _percentile("p90_ms", "p90", "p90", 0.9, column=True),
    Metric("p95_ms", "ms", _DOWN, "p95", _LATENCY, MetricSource.IMPORTED, quantile=0.95),
    _percentile("p99_ms", "p99", "p99", 0.99, main=True, column=True),
    _percentile("p999_ms", "p99.9", "p999", 0.999, column=True),
    Metric("max_ms", "ms", _DOWN, "max", "Highest latency of a successful request.", _OP, ("latency_ms", "max"),
           column=True, prometheus="cbt_latency_max_seconds"),
    Metric("ttfb_p50_ms", "ms", _DOWN, "first byte p50", "Median time to the first byte.", _OP, ("ttfb_ms", "p50")),
    Metric("ttfb_p99_ms", "ms", _DOWN, "first byte p99", "p99 of the time to the first byte.", _OP, ("ttfb_ms", "p99"),
           requests=100),
    Metric("longest_gap_s", "s", _DOWN, "longest gap", "Longest time without a success.", _OP,
           ("longest_gap", "seconds"), margin=1.0, additive=True, prometheus="cbt_longest_gap_seconds"),
    Metric("seconds", "s", _NONE, "length", "How long it took.", MetricSource.IMPORTED),
    # a failure and what followed
    Metric("recovery_s", "s", _DOWN, "to active+clean", "Until all PGs were active+clean.", _EPISODE,
           ("milestones", "clean"), main=True),
    Metric("no_degraded_s", "s", _DOWN, "to no object degraded", "Until no object lacked a copy.", _EPISODE,
           ("milestones", "no-object-degraded")),
    Metric("moved_mib", "MiB", _DOWN, "moved", "Bytes that recovery made.", _EPISODE, ("recovery", "bytes"),
           factor=2**-20, margin=1.0, additive=True),
    Metric("recovery_obj_per_s", "obj/s", _UP, "recovered", "Objects that recovery made.", _EPISODE,
           ("recovery", "objects_per_s")),
    Metric("recovery_mib_per_s", "MiB/s", _UP, "recovered", "Bytes that recovery made.", _EPISODE,
           ("recovery", "mib_per_s")),
    # what clients lost meanwhile
    Metric("bad_s", "s", _DOWN, "bad seconds", "Seconds beyond the objective.", _LOSS, ("bad_seconds",),
           main=True, margin=1.0, additive=True),
    Metric("availability", "", _UP, "availability", "Successful requests / all requests that were due.", _LOSS,
           ("availability",), margin=0.001, additive=True),
    Metric("failed", "requests", _DOWN, "failed", "Requests that failed.", _LOSS, ("errors",),
           margin=1.0, additive=True),
    Metric("waited", "requests", _DOWN, "over 1 s", "Successful requests that took over 1 s.", _LOSS, ("waited",),
           margin=1.0, additive=True),
    Metric("throughput_share", "", _UP, "throughput kept", "Throughput / throughput of the baseline.", _LOSS,
           ("obj_per_s_percent",), factor=0.01, of_baseline=True),
    Metric("p99_ratio", "", _DOWN, "p99 ratio", "p99 / p99 of the baseline.", _LOSS, ("p99_ratio",), requests=100,
           of_baseline=True),
    Metric("gateway_gap_s", "s", _DOWN, "gateway's gap", "Longest time without a success of one gateway.", _LOSSES,
           ("gateway_gap",), margin=1.0, additive=True),
    Metric("unstarted", "requests", _DOWN, "never started", "Due requests of an open loop that never started.", _LOSSES,
           ("unstarted",), margin=1.0, additive=True),
    Metric("back_s", "s", _DOWN, "throughput back", "Until throughput was 90 % of the baseline's for 30 s.", _LOSSES,
           ("back", "seconds"), margin=1.0, additive=True),
    # what a ladder found; its name stands for a phase
    Metric("highest_per_s", "/s", _UP, "highest rate", "Highest rate of a ladder that met its objective.",
           MetricSource.LADDER, ("rate",), main=True),
    Metric("highest_workers", "workers", _UP, "most workers", "Most workers that met the objective of a ladder.",
           MetricSource.LADDER, ("workers",), main=True),
    # what it took
    Metric("cores", "cores", _DOWN, "CPU", "Processors used, mean.", _CLASS, ("cores",)),
    Metric("cpu_ms_per_op", "ms", _DOWN, "CPU per operation", "CPU time of daemons for each successful request.",
           MetricSource.THREADS, ("ms_per_op",)),
    Metric("rss_mib", "MiB", _DOWN, "memory", "Resident memory, mean.", _CLASS, ("rss_mib",)),
    Metric("ops_per_core", "ops/s", _UP, "per core", "Objects/s for each core of the cluster.", _NODES,
           ("ops_per_core",), main=True),
    Metric("cores_per_gb_s", "cores", _DOWN, "per GB/s", "Cores of the cluster for each GB/s.", _NODES,
           ("cores_per_gb_s",)),
    Metric("rgw_osd_ratio", "", _NONE, "RGW:OSD cores", "Cores of the RGWs / cores of the OSDs.", _NODES,
           ("rgw_osd_ratio",)),
)

#: CBT's own names for some of them, in CBT's units: in `acceptable:` only
_OF_CBT = (
    Metric("bandwidth", "MiB/s", _UP, "bandwidth", f"Bytes {_OK}", _OP, ("mib_per_s",)),
    Metric("iops_avg", "obj/s", _UP, "throughput", f"Objects {_OK}", _OP, ("obj_per_s",)),
    Metric("iops_stddev", "obj/s", _DOWN, "deviation", "Standard deviation of the objects of each second.",
           MetricSource.DEVIATION),
    Metric("latency_avg", "s", _DOWN, "mean", f"Mean latency {_OK}", _OP, ("latency_ms", "mean"), factor=1e-3),
)
# fmt: on


def _registry(metrics: Sequence[Metric]) -> Dict[str, Metric]:
    return {metric.key: Metric(**{**vars(metric), "order": order}) for order, metric in enumerate(metrics)}


METRICS: Dict[str, Metric] = _registry(_ALL)
#: what a statement of `acceptable:` may be about: a number of a phase with a direction
ACCEPTABLE: Dict[str, Metric] = {
    metric.key: metric
    for metric in (*_OF_CBT, *METRICS.values())
    if metric.source in (_OP, MetricSource.DEVIATION, _NODES) and metric.direction is not _NONE
}
#: the columns of tables that show few metrics
COLUMNS = tuple(metric for metric in METRICS.values() if metric.column)
#: of these, what a table of operations shows side by side; it has counts of failed requests for the success rate
RATES = tuple(metric for metric in COLUMNS if metric.series)
LATENCIES = tuple(metric for metric in COLUMNS if metric.unit == "ms")
#: metrics of an operation in a phase that are also said of a failure: key there -> key in METRICS
DURING_FAILURES = {"longest_gap": "longest_gap_s", **{key: key for key in ("p50_ms", "p99_ms", "p999_ms")}}


def from_source(source: MetricSource) -> Tuple[Metric, ...]:
    """Return the metrics that a summary has in that place, in their order."""
    return tuple(metric for metric in METRICS.values() if metric.source is source)


def number_at(line: Optional[Mapping[str, Any]], path: Sequence[str]) -> Optional[float]:
    """Return the number of a line of a summary at the end of a path of keys; None where a part of it is missing."""
    value: Any = line
    for key in path:
        value = value.get(key) if value else None
    return value


def read(metric: Metric, summary: Mapping[str, Any], phase: Mapping[str, Any], op: str) -> Optional[float]:
    """Return a metric of an operation, or of TOTAL, in a phase of a summary, in the metric's unit.

    None when the phase has no such number: no such operation, too few requests, no monitor on the nodes.
    """
    if metric.source is MetricSource.NODES:
        watched = (summary.get("resources") or {}).get("phases", {}).get(phase["name"])
        value = number_at(watched, metric.path) if op == TOTAL else None
    elif op != TOTAL and op not in phase["ops"]:
        return None
    elif metric.source is MetricSource.DEVIATION:
        value = _deviation(phase, op)
    elif op != TOTAL:
        value = number_at(phase["ops"][op], metric.path)
    else:  # the gap of all operations is the phase's own
        value = number_at(phase if metric.path[0] == "longest_gap" else phase["total"], metric.path)
    return None if value is None else float(value) * metric.factor


def whole_bins(phase: Mapping[str, Any]) -> Tuple[int, int]:
    """Return the bins of the series, low <= bin < high, that the window has in full."""
    window, series = phase["window"], phase["series"]
    low = math.ceil((window["start"] - series["start"]) / series["step"])
    high = math.floor((window["end"] - series["start"]) / series["step"])
    return low, max(low, high)


def _deviation(phase: Mapping[str, Any], op: str) -> Optional[float]:
    """Sample standard deviation of the series' whole bins, which are seconds up to two hours."""
    series = [op_series["obj_per_s"] for name, op_series in phase["series"]["ops"].items() if op in (name, TOTAL)]
    # a request that ends in a millisecond of the window is a rate of a thousand
    bins = [math.fsum(at) for at in zip(*series)][slice(*whole_bins(phase))]
    return stdev(bins) if len(bins) > 1 else None
