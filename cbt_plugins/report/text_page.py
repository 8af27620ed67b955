"""The text of a gate or a history as a page; a history with charts of its series."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Mapping, Sequence

from cbt_plugins.compare import gate_output, history
from cbt_plugins.compare.gate import Gated, GateOutcome
from cbt_plugins.compare.history import History, LevelChange, Track
from cbt_plugins.compare.output import change_of
from cbt_plugins.formatting import several, when
from cbt_plugins.formatting.blocks import Block
from cbt_plugins.formatting.formats.html import Html
from cbt_plugins.metrics import METRICS
from cbt_plugins.report.chart_data import short
from cbt_plugins.report.page import document
from cbt_plugins.report.sentence import Sentence, first


@dataclass(frozen=True)
class SeriesChart:
    """The chart of a series: its caption and its data, as history_charts.js takes them."""

    caption: str
    data: Mapping[str, Any]


#: series of a history that have a chart, those with changes first
_MOST_CHARTS = 24
_KINDS = {GateOutcome.OK: "better", GateOutcome.REGRESSION: "worse"}


def gate_page(gated: Gated) -> str:
    """Return the page of a gate. The same input gives the same bytes."""
    *details, _ = gate_output.blocks(gated)
    answer = gate_output.outcome_line(gated)
    kind = _KINDS.get(gated.outcome, "inconclusive")
    name = ", ".join(side.name for side in gated.compared.contenders)
    return _page(f"{name} against {gated.compared.base.name}", "gate", details, [Sentence(answer, kind)])


def history_page(histories: Sequence[History]) -> str:
    """Return the page of histories. The same input gives the same bytes."""
    changed = [(owner, track) for owner in histories for track in owner.tracks if track.changes]
    steady = [
        (owner, track) for owner in histories for track in owner.tracks if not track.changes and track.known_values
    ]
    charted = [*changed, *steady][:_MOST_CHARTS]
    sentences = [sentence_of(track, track.changes[-1]) for _, track in changed]
    runs = several(sum(len(owner.runs) for owner in histories), "run")
    return _page(
        runs,
        "history",
        history.blocks(histories),
        first(sentences) or [_no_change(histories)],
        [chart_of(owner, track, owner.case if len(histories) > 1 else "") for owner, track in charted],
        f"Each dot is a run, each line a level. Shown: {len(charted)} of {len(changed) + len(steady)} series, series "
        "with changes first; the tables have all series.",
    )


def _no_change(histories: Sequence[History]) -> Sentence:
    """Return that no level has changed, or that the last runs of a series have no number."""
    texts = dict.fromkeys(history.no_change_text(owner) for owner in histories)
    text = next((text for text in texts if "; " in text), "")
    return Sentence(f"N{text[1:]}.", "inconclusive") if text else Sentence("No level change found.", "equivalent")


def name_of(track: Track) -> str:
    """Return the name of a series for people."""
    metric = METRICS[track.metric]
    return " ".join(filter(None, (track.phase, track.op, metric.title, metric.unit)))


def sentence_of(track: Track, change: LevelChange) -> Sentence:
    """Return a change of a series in words."""
    verdict = track.verdict(change)
    size = change_of(METRICS[track.metric], change.before, change.after)
    text = f"{name_of(track)} {verdict} since {when(change.run.started)}: {size}."
    return Sentence(text, verdict if verdict in ("better", "worse") else "inconclusive")


def chart_of(owner: History, track: Track, case: str = "") -> SeriesChart:
    """Return the chart of a series: {"times": epoch seconds, "values", "levels": the level of each run}."""
    points = [(run, value) for run, value in zip(owner.runs, track.values) if value is not None]
    starts = {id(change.run): change for change in track.changes}
    level = track.changes[0].before if track.changes else median(track.known_values)
    levels = []
    for run, _ in points:
        level = starts[id(run)].after if id(run) in starts else level
        levels.append(level)
    times = [run.started or float(number) for number, (run, _) in enumerate(points)]
    values = short([value for _, value in points])
    return SeriesChart(f"{case} {name_of(track)}".strip(), {"times": times, "values": values, "levels": short(levels)})


def _page(
    title: str,
    over: str,
    blocks: Sequence[Block],
    sentences: Sequence[Sentence],
    charts: Sequence[SeriesChart] = (),
    note: str = "",
) -> str:
    return document(
        "text_page.html.j2",
        ["history_charts.js"],
        {"tracks": [chart.data for chart in charts]},
        title=title,
        over=over,
        sentences=list(sentences),
        charts=[chart.caption for chart in charts],
        charts_note=note,
        blocks=[part for block in blocks for part in block.parts(Html())],
    )

