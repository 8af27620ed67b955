"""The metrics of a run that goes on, as OpenMetrics 1.0: latencies as histograms, which can be added up, no quantiles.

https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.report.export.prometheus import escaped
from cbt_plugins.results.histogram import Histogram, lows
from cbt_plugins.results.live_run import GOING_ON
from cbt_plugins.results.requests.job_aggregates import OpAggregates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: borders of the histograms, seconds: six for each power of ten
BORDERS = (*(float(f"{m}e{e}") for e in range(-4, 2) for m in ("1", "1.5", "2", "3", "5", "7")), 100.0)

#: a suffix of the name, labels, value
Line = Tuple[str, Mapping[str, str], float]


class Family(NamedTuple):
    """A metric with all of its lines."""

    name: str
    kind: str  # info | gauge | counter | histogram | summary
    unit: str  # the end of the name, or ""
    about: str
    lines: Sequence[Line]


def metrics(moment: Mapping[str, Any], aggregates: Optional[PhaseAggregates]) -> str:
    """Return the metrics of a moment; `aggregates` are those of the phase that runs."""
    text: List[str] = []
    for family in _families(moment, aggregates):
        if not family.lines:
            continue
        text += [f"# TYPE {family.name} {family.kind}"]
        text += [f"# UNIT {family.name} {family.unit}"] if family.unit else []
        text += [f"# HELP {family.name} {family.about}"]
        text += [f"{family.name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in family.lines]
    return "\n".join([*text, "# EOF\n"])


def _families(moment: Mapping[str, Any], aggregates: Optional[PhaseAggregates]) -> Iterator[Family]:
    run = {"run": str(moment["run"])}
    place = {**run, "phase": str(moment["phase"] or "")}
    yield Family("cbt_run", "info", "", "The run.", [("_info", {**run, "state": str(moment["state"])}, 1)])
    going_on = float(moment["state"] == GOING_ON)
    yield Family("cbt_run_going_on", "gauge", "", "1 while the run goes on.", [("", run, going_on)])
    gauges = (
        ("cbt_phase_number", "", "Place of the phase in the plan.", "number"),
        ("cbt_phase_elapsed_seconds", "seconds", "Time since the phase's load began.", "elapsed_s"),
        ("cbt_phase_left_seconds", "seconds", "Time left of the phase.", "left_s"),
        ("cbt_objects_per_second", "", "Successful requests a second, over 5 s.", "obj_per_s"),
        ("cbt_pgs_not_clean", "", "PGs that are not active+clean.", "pgs_not_clean"),
    )
    for name, unit, about, key in gauges:
        yield Family(name, "gauge", unit, about, [("", place, moment[key])] if moment[key] is not None else [])
    faults = [
        ("", {**run, "label": str(fault["label"]), "kind": str(fault["kind"])}, float(fault["until"] is None))
        for fault in moment["faults"]
    ]
    yield Family("cbt_fault_in_force", "gauge", "", "1 while a fault is in force.", faults)
    yield from _requests(run, aggregates)


def _requests(run: Mapping[str, str], aggregates: Optional[PhaseAggregates]) -> Iterator[Family]:
    ops: List[Tuple[Dict[str, str], OpAggregates]] = []
    if aggregates is not None:
        ops = [({**run, "phase": aggregates.phase.name, "op": op}, of) for op, of in aggregates.ops.items()]
    failed: List[Line] = [("_total", labels, of.failures) for labels, of in ops]
    yield Family("cbt_request_errors", "counter", "", "Failed requests of the phase's window.", failed)
    moved: List[Line] = [("_total", labels, of.bytes) for labels, of in ops]
    yield Family("cbt_object_bytes", "counter", "bytes", "Bytes of successful requests.", moved)
    latencies = [line for labels, of in ops if of.latency.has_buckets for line in histogram_lines(labels, of.latency)]
    about = "Latency of successful requests of the phase's window."
    yield Family("cbt_request_latency_seconds", "histogram", "seconds", about, latencies)
    sums = [line for labels, of in ops if not of.latency.has_buckets for line in _count_and_sum(labels, of.latency)]
    about = "Number and sum of the latencies of a generator that reports only sums."
    yield Family("cbt_request_mean_latency_seconds", "summary", "seconds", about, sums)


def histogram_lines(labels: Mapping[str, str], histogram: Histogram) -> Iterable[Line]:
    """Yield a histogram; a border is off by less than 0.1 %, as the buckets of the histogram are."""
    # the values of a bucket are below the smallest one of the next
    ends = lows(histogram.numbers + 1)
    sums = np.concatenate(([0], np.cumsum(histogram.counts)))
    places = np.searchsorted(ends, np.round(np.array(BORDERS) * 1e9), side="right")
    for border, count in zip(BORDERS, sums[places].tolist()):
        yield "_bucket", {**labels, "le": repr(border)}, count
    yield "_bucket", {**labels, "le": "+Inf"}, histogram.n
    yield from _count_and_sum(labels, histogram)


def _count_and_sum(labels: Mapping[str, str], histogram: Histogram) -> Iterable[Line]:
    yield "_count", labels, histogram.n
    yield "_sum", labels, histogram.total / 1e9


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items()) + "}"


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)
