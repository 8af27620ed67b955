"""Several runs over each other: rates through their phases, and curves of latency over quantile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from cbt_plugins.metrics import TOTAL
from cbt_plugins.report.curves import curve, milliseconds
from cbt_plugins.report.downsample import factor, means, short
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.loader import summary_of
from cbt_plugins.results.record import STATE, Measurement, RunRecord

Sides = Sequence[Tuple[str, Sequence[RunRecord]]]
Key = Tuple[str, str]  # phase and operation

#: points of a line: there are many lines
_POINTS = 1000
#: runs of a side that are drawn
_RUNS = 5


def overlays(case: str, sides: Sides) -> Iterator[Dict[str, Any]]:
    """For each phase and operation the objects per second of every run, from the beginning of the phase.

    {"case", "phase", "op", "lines": [{"name", "colour": number of the side, "step", "values"}]}; of a side with several
    runs the first few are drawn, in one colour.
    """
    lines: Dict[Key, List[Dict[str, Any]]] = {}
    for number, (name, runs) in enumerate(sides):
        for again, run in enumerate(runs[:_RUNS]):
            for its in run.measurements:
                if _drawn(its):
                    line = _line(its, name if not again else f"{name} ({again + 1})", number)
                    lines.setdefault((its.phase, its.op), []).append(line)
    for (phase, op), its_lines in lines.items():
        if len({line["colour"] for line in its_lines}) > 1:
            yield {"case": case, "phase": phase, "op": op, "lines": its_lines}


def _drawn(its: Measurement) -> bool:
    return bool(its.series) and its.metric == "obj_per_s" and its.op != TOTAL and STATE not in its.phase


def _line(its: Measurement, name: str, colour: int) -> Dict[str, Any]:
    values = [None if v != v else v for v in its.series or ()]  # nan is no JSON
    group = factor(len(values), _POINTS)
    return {"name": name, "colour": colour, "step": its.step * group, "values": short(means(values, group))}


def percentiles(case: str, sides: Sides) -> Iterator[Dict[str, Any]]:
    """For each phase and operation a curve of each side: of all its runs' histograms together.

    {"case", "phase", "op", "curves"} as report.curves has them. Runs of other programs have no histogram.
    """
    merged: Dict[Key, Dict[int, Histogram]] = {}
    for number, (_, runs) in enumerate(sides):
        for run in runs:
            for key, histogram in _histograms(run).items():
                merged.setdefault(key, {}).setdefault(number, Histogram()).merge(histogram)
    for (phase, op), of in merged.items():
        if len(of) > 1:
            curves = [c for i, its in of.items() for c in curve(sides[i][0], milliseconds(its), i)]
            yield {"case": case, "phase": phase, "op": op, "curves": curves}


def _histograms(run: RunRecord) -> Dict[Key, Histogram]:
    if run.kind != "cbt-plugins":
        return {}
    return {
        (phase["name"], op): Histogram.from_json(line["histogram_ns"])
        for phase in summary_of(Path(run.source))["phases"]
        for op, line in phase["ops"].items()
    }
