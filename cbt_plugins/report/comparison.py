"""A comparison as a page: verdicts, what differs, the table with its intervals, and the runs over each other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.compare import output, releases_table, scorecard
from cbt_plugins.compare.comparable_runs import Runs
from cbt_plugins.compare.sides import are_same
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import Choice, Compared, Row, Section, compare
from cbt_plugins.formatting.blocks import Block
from cbt_plugins.formatting.formats.html import Html
from cbt_plugins.metrics import MARGIN, METRICS, TOTAL, Direction, whole_bins
from cbt_plugins.report.chart_data import bands, curve, factor, means, milliseconds, short
from cbt_plugins.report.page import document
from cbt_plugins.report.sentence import first, of_comparison
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.record_index import read_once
from cbt_plugins.results.result_file import reading
from cbt_plugins.results.run_record import STATE, Measurement, RunRecord
from cbt_plugins.results.summary_file import summary_of

_CPU_TIME = Choice(metrics=("cpu_ms_per_op",))
#: rows that the page has in tables of their own
CHOICES = (releases_table.CHOICE, _CPU_TIME)
#: half the width of the picture of an interval, in its own units
_HALF = 60
#: the order in which verdicts are told
_VERDICTS = (Verdict.WORSE, Verdict.BETTER, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)


def page(compared: Compared, campaign: Optional[Mapping[str, Any]] = None) -> str:
    """Return the page of a comparison. The same input gives the same bytes.

    `campaign`: what a campaign has decided, as campaigns.output makes it: it takes the place of the first sentences.
    """
    groups = list(_groups(compared))
    charts = [chart for title, sides in groups for chart in overlays(title, sides)]
    curves = [chart for title, sides in groups for chart in percentiles(title, sides)]
    times = _cpu_time(compared)
    # judged as a table of its own, by one look
    release_tables = _releases(compared) if campaign is None else []
    scorecards = _grids(scorecard.blocks(scorecard.of(compared)))
    return document(
        "comparison.html.j2",
        ["comparison.js"],
        {"overlays": charts, "tails": curves},
        base=compared.base,
        contenders=compared.contenders,
        campaign=campaign,
        sentences=first(of_comparison(compared)) if campaign is None else (),
        contents=list(_contents(compared, (scorecards, release_tables, times, charts, curves))),
        verdict=verdict(_rows_of_two_sides(compared)) if campaign is None else campaign["verdict"],
        decided=[(row, _class(row)) for row in compared.rows if _class(row)],
        sections=[_section(section, _scale(compared.rows)) for section in compared.sections],
        head=output.HEAD,
        value=output.value,
        change=output.change_text,
        titles={name: metric.title for name, metric in METRICS.items()},
        several=len(compared.contenders) > 1,
        alone=compared.not_compared,
        legend=list(output.legend(compared.rules, compared.rows)),
        scorecards=scorecards,
        releases=release_tables,
        cpu_time=times,
        half=_HALF,
        margin=min(_HALF, _HALF * (compared.rules.margin or MARGIN) / _scale(compared.rows)),
        overlays=charts,
        tails=curves,
    )


def _contents(compared: Compared, parts: Sequence[Sequence[Any]]) -> Iterator[Tuple[str, str]]:
    """Yield the sections of the page: what links to them, and their names."""
    yield from (("result", "Result"), ("sides", "Runs"))
    for number, section in enumerate(compared.sections, 1):
        name = section.contender if len(compared.contenders) > 1 else ""
        yield f"verdicts-{number}", " ".join(filter(None, (name, section.case))) or "Verdicts"
    optional_titles = {"scorecard": "Scorecard", "releases": "Releases", "cpu-time": "CPU time"}
    optional_titles.update(overlays="Throughput", tails="Percentiles")
    yield from ((key, name) for (key, name), part in zip(optional_titles.items(), parts) if part)


def _rows_of_two_sides(compared: Compared) -> List[Row]:
    """Return the rows of the sides that are not the runs of the base."""
    return [row for section in compared.sections if not are_same(section.base, section.new) for row in section.rows]


def verdict(rows: Sequence[Row]) -> Dict[str, str]:
    """Return {"kind": good | warning | bad | equivalent, "text": "2 worse, 1 better, 3 equivalent"}."""
    counts = Counter(row.verdict for row in rows)
    text = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in _VERDICTS if counts[verdict])
    decided = {_class(row) for row in rows}
    kind = "bad" if "worse" in decided else "good" if "better" in decided else "equivalent"
    if kind == "equivalent" and counts[Verdict.INCONCLUSIVE]:
        kind = "warning"
    return {"kind": kind, "text": text or "nothing could be compared"}


def _class(row: Row) -> str:
    """Return the colour of a row: only a significant change with a better direction has one."""
    if METRICS[row.metric].direction is Direction.NONE or row.verdict not in (Verdict.BETTER, Verdict.WORSE):
        return ""
    return row.verdict.value


def _section(section: Section, scale: float) -> Dict[str, Any]:
    rows = [
        {
            "cells": output.line(row),
            "verdict": row.verdict.value,
            "class": _class(row),
            "interval": _interval(row, scale),
            "key": row.comparison.key,
        }
        for row in section.rows
    ]
    return {
        "contender": section.contender,
        "case": section.case,
        "differences": section.differences,
        "rows": rows,
        "missing": [f"{missing_row.where}: {missing_row.text}" for missing_row in section.missing],
        "warnings": list(output.merged_warnings([*section.warnings, *output.of_rows(section.rows)])),
    }


def _scale(rows: Sequence[Row]) -> float:
    """Return the relative change at the ends of the interval plots: a round one that holds most intervals."""
    ends = [abs(end) for row in rows for end in _ends(row) if end is not None and not row.comparison.unit]
    widest = max(ends, default=0.1)
    return next((limit for limit in (0.1, 0.2, 0.5) if widest <= limit), 1.0)


def _ends(row: Row) -> Tuple[Optional[float], ...]:
    comparison = row.comparison
    return (comparison.change, *comparison.deciding)


def _interval(row: Row, scale: float) -> Optional[Dict[str, Optional[float]]]:
    """Return the places in the interval plot: {"at", "low", "high"}; None when nothing can be drawn."""
    if row.comparison.unit:  # on no scale with relative changes
        return None
    at, low, high = (None if v is None else round(max(-1.0, min(1.0, v / scale)) * _HALF, 1) for v in _ends(row))
    return None if at is None else {"at": at, "low": low, "high": high}


def _groups(compared: Compared) -> Iterator[Tuple[str, List[Tuple[str, Runs]]]]:
    """Yield each configuration with the sides that have it, the base first."""
    sections: Dict[str, List[Section]] = {}
    for section in compared.sections:
        sections.setdefault(section.case, []).append(section)
    for case, case_sections in sections.items():
        contenders = [(section.contender, section.new) for section in case_sections]
        yield case, [(compared.base.name, case_sections[0].base), *contenders]


def _releases(compared: Compared) -> List[Dict[str, Any]]:
    """Return the headings and tables of releases, whose rows are judged by themselves."""
    release_comparison = compare(compared.base, compared.contenders, releases_table.CHOICE, compared.rules)
    return _grids(releases_table.table_blocks(release_comparison))


def _grids(blocks: Iterable[Block]) -> List[Dict[str, Any]]:
    """Return the headings and tables of blocks."""
    parts = (part for block in blocks for part in block.parts(Html()))
    return [part for part in parts if part["kind"] in ("heading", "table")]


def _cpu_time(compared: Compared) -> List[Tuple[str, Sequence[Tuple[str, ...]]]]:
    """Return the rows of CPU time for each operation of every contender and configuration, judged by themselves."""
    cpu_comparison = compare(compared.base, compared.contenders, _CPU_TIME, compared.rules)
    several = len(cpu_comparison.contenders) > 1
    return [
        (
            " ".join(filter(None, (section.contender if several else "", section.case))),
            [output.line(row) for row in section.rows],
        )
        for section in cpu_comparison.sections
        if section.rows
    ]


Sides = Sequence[Tuple[str, Sequence[RunRecord]]]
Key = Tuple[str, str]  # phase and operation

#: points of a line: there are many lines
_POINTS = 1000
#: runs of a side that are drawn
_MOST_RUNS = 5


def overlays(case: str, sides: Sides) -> Iterator[Dict[str, Any]]:
    """Yield for each phase and operation the objects per second of every run since the start of the phase.

    {"case", "phase", "op", "lines": [{"name", "colour": number of the side, "step", "values"}], "failures": [{"colour",
    "bands": [[from, to, True before recovery begins]], "bad": [[from, to]], "marks": [second of a fault or undo]}]};
    of a side with several runs the first few are drawn, in one colour, with the failure of the first run.
    """
    lines: Dict[Key, List[Dict[str, Any]]] = {}
    for number, (name, runs) in enumerate(sides):
        for again, run in enumerate(runs[:_MOST_RUNS]):
            for measurement in run.measurements:
                if _drawn(measurement):
                    line = _line(measurement, name if not again else f"{name} ({again + 1})", number)
                    lines.setdefault((measurement.phase, measurement.op), []).append(line)
    for (phase, op), op_lines in lines.items():
        if len({line["colour"] for line in op_lines}) > 1:
            failures = [
                {"colour": number, **_parts(runs[0]).failures[phase]}
                for number, (_, runs) in enumerate(sides)
                if runs and phase in _parts(runs[0]).failures
            ]
            yield {"case": case, "phase": phase, "op": op, "lines": op_lines, "failures": failures}


def _drawn(measurement: Measurement) -> bool:
    return (
        bool(measurement.series)
        and measurement.metric == "obj_per_s"
        and measurement.op != TOTAL
        and STATE not in measurement.phase
    )


def _line(measurement: Measurement, name: str, colour: int) -> Dict[str, Any]:
    values = [None if v != v else v for v in measurement.series or ()]  # nan is no JSON
    group = factor(len(values), _POINTS)
    return {"name": name, "colour": colour, "step": measurement.step * group, "values": short(means(values, group))}


def percentiles(case: str, sides: Sides) -> Iterator[Dict[str, Any]]:
    """Yield for each phase and operation a curve of each side, from the histograms of all its runs.

    {"case", "phase", "op", "curves"} as chart_data.tails has them. Runs of other programs have no histogram.
    """
    merged: Dict[Key, Dict[int, Histogram]] = {}
    for number, (_, runs) in enumerate(sides):
        for run in runs:
            for key, histogram in _parts(run).histograms.items():
                merged.setdefault(key, {}).setdefault(number, Histogram()).merge(histogram)
    for (phase, op), of in merged.items():
        if len(of) > 1:
            curves = [c for i, histogram in of.items() for c in curve(sides[i][0], milliseconds(histogram), i)]
            yield {"case": case, "phase": phase, "op": op, "curves": curves}


class _Parts(NamedTuple):
    """What the charts draw of a run beside the series of its record."""

    histograms: Mapping[Key, Histogram] = {}
    failures: Mapping[str, Mapping[str, Any]] = {}  # phase -> as `overlays` has them, without a colour


def _parts(run: RunRecord) -> _Parts:
    return _parts_of(Path(run.source)) if run.kind == "cbt-plugins" else _Parts()


@read_once
def _parts_of(run: Path) -> _Parts:
    """Return the parts of a run: the page of a campaign is made after each block."""
    summary = summary_of(run)
    with reading(run):
        histograms = {
            (phase["name"], op): Histogram.from_json(line["histogram_ns"])
            for phase in summary["phases"]
            for op, line in phase["ops"].items()
        }
        timelines = (summary["failure"] or {"timelines": {}})["timelines"]
        failures = {
            phase["name"]: _failure(timelines[phase["name"]], phase)
            for phase in summary["phases"]
            if phase["name"] in timelines and any(bands(timelines[phase["name"]]["windows"]))
        }
    return _Parts(histograms, failures)


def _failure(timeline: Mapping[str, Any], phase: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the failure of a phase, in seconds since the first bin that is drawn of its series.

    Its parts are no finer than the points of a line: a thrash of many hours has thousands.
    """
    series, window = phase["series"], phase["window"]
    shift = timeline["start"] - series["start"] - whole_bins(phase)[0] * series["step"]
    point = (window["end"] - window["start"]) / _POINTS
    states = list(bands(timeline["windows"]))
    spans = [(hurt, _joined(((a, b) for a, b, of in states if of is hurt), point)) for hurt in (True, False)]
    bad = _joined(timeline.get("bad") or (), point)  # older archives have none
    marks = {mark["at"] // point: mark["at"] for mark in timeline["marks"] if mark["title"] in ("fault", "undo")}
    return {
        "bands": [[round(low + shift, 3), round(high + shift, 3), hurt] for hurt, part in spans for low, high in part],
        "bad": [[low + shift, high + shift] for low, high in bad],
        "marks": [round(at + shift, 3) for at in marks.values()],
    }


def _joined(spans: Iterable[Sequence[float]], point: float) -> List[List[float]]:
    """Return the spans, which are in order, without the gaps between them that are shorter than a point, in seconds."""
    joined: List[List[float]] = []
    for low, high in spans:
        if joined and low - joined[-1][1] < point:
            joined[-1][1] = high
        else:
            joined.append([low, high])
    return joined
