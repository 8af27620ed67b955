"""A history as a site of static pages: an overview, a page for each series, and the runs with links to their reports.

Texts of archives are escaped. A link leads to a page of the site, to a report in an archive (relative to the site, so
any web server that has both will do), or to a bug of triage.yaml.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple
from urllib.parse import quote

import numpy as np

from cbt_plugins.compare.configuration_differences import Difference, differing, short
from cbt_plugins.compare.history import History, Track
from cbt_plugins.compare.output import chance, change_of
from cbt_plugins.compare.statistics.change_point_search import noise_of
from cbt_plugins.compare.triage import Triaged, TriageEntry, TriageState
from cbt_plugins.formatting import plain, several, short_percent, when
from cbt_plugins.journal import read_json, write_json, write_whole
from cbt_plugins.metrics import METRICS
from cbt_plugins.report.page import document
from cbt_plugins.report.sentence import Sentence
from cbt_plugins.report.text_page import chart_of, name_of, sentence_of
from cbt_plugins.results.run_record import RunRecord

INDEX = "index.html"
#: what the site's folder has beside its pages: their names, so that those of earlier looks can be removed
PAGES = "pages.json"
_PAGE = re.compile(r"(index|runs-\d+|[A-Za-z0-9_.-]*-[0-9a-f]{12})\.html")
#: what a kill leaves of a file that is being written
_DRAFT = re.compile(rf"\.({_PAGE.pattern}|{re.escape(PAGES)})\.\d+")
_MARK = "cbt-tools history"
#: lines of the lists of the overview
_NEWEST = 30
#: differences that a line of a table names
_NAMED = 3
#: the key of the release, which is an event of its own
_RELEASE = "version.ceph"
#: reports of runs, each in the folder of its run
_REPORT = "report.html"


class NoSite(Exception):
    """A folder into which no site can be written; the text says why."""


@dataclass(frozen=True)
class HistoryEvent:
    """A run before which the release or the configuration changed."""

    run: RunRecord
    kind: str  # "release" or "configuration"
    text: str


@dataclass(frozen=True)
class SiteFacts:
    """The content of the pages."""

    histories: Sequence[History]
    triaged: Sequence[Triaged]
    idle: Sequence[TriageEntry] = ()  # entries of triage.yaml that are about no change
    notes: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)  # source of a run -> link to its report


def write_site(folder: Path, facts: SiteFacts) -> int:
    """Write the pages, and remove those of series that are gone; returns their number. Raises NoSite, OSError.

    The same input gives the same bytes.
    """
    former = _former(folder)
    pages = dict(_pages(facts))
    # before the first page: a site that is cut short is known as one, with all of its pages
    write_json(folder / PAGES, {_MARK: 1, "pages": sorted({*former, *pages})})
    for name, text in pages.items():
        write_whole(folder / name, text())
    for name in former - set(pages):
        (folder / name).unlink(missing_ok=True)
    write_json(folder / PAGES, {_MARK: 1, "pages": list(pages)})
    return len(pages)


def _former(folder: Path) -> Set[str]:
    """Return the pages that are there. Raises NoSite for a folder with anything else."""
    try:
        if all(_DRAFT.fullmatch(name) for name in os.listdir(folder)):
            return set()
    except FileNotFoundError:
        return set()
    except NotADirectoryError:
        raise NoSite(f"{folder} is not a folder") from None
    try:
        data = read_json(folder / PAGES)
        names = {name for name in data["pages"] if _PAGE.fullmatch(name)} if data[_MARK] else set()
    except (OSError, ValueError, KeyError, TypeError):
        raise NoSite(f"{folder} has files, but is not a site of a history: give an empty or a new folder") from None
    return names


def report_links(histories: Sequence[History], folder: Path) -> Dict[str, str]:
    """Return the link to the report of each run that has one, relative to the site's folder."""
    site = os.path.realpath(folder)
    links = {}
    for source in dict.fromkeys(run.source for history in histories for run in history.runs):
        report = os.path.join(os.path.realpath(source), _REPORT)
        if _is_file(report):
            # "./": a name with a colon is no scheme
            links[source] = "./" + quote(os.path.relpath(report, site), errors="surrogateescape")
    return links


def _is_file(path: str) -> bool:
    """Tell whether there is a regular file: a link could lead a web server out of the archive."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def page_name(history: History, track: Track) -> str:
    """Return the file name of a series: the same as long as the series is."""
    words = (track.phase, track.op, track.metric)
    digest = hashlib.sha256("\0".join((history.case, *words)).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', '-'.join(words))[:100].strip('.-')}-{digest}.html"


def _runs_name(history: History, facts: SiteFacts) -> str:
    return f"runs-{[*map(id, facts.histories)].index(id(history)) + 1}.html"


def events_of(history: History) -> List[HistoryEvent]:
    """Return the runs before which the release or the configuration changed, by their records, in order."""
    events = []
    runs = [run for run in history.runs if run.usable]
    for before, run in zip(runs, runs[1:]):
        is_release = bool(run.label and before.label and run.label != before.label)
        if is_release:
            events.append(HistoryEvent(run, "release", f"{before.label} -> {run.label}"))
        # equal configurations are mostly one object, and telling that of thousands of runs is quick
        if run.config is not before.config:
            skipped = (_RELEASE,) if is_release else ()
            differences = [difference for difference in differing([before], [run]) if difference.key not in skipped]
            if differences:
                events.append(HistoryEvent(run, "configuration", _named(differences)))
    return events


def _named(differences: Sequence[Difference]) -> str:
    texts = [f"{short(d.key)}: {short(d.base)} -> {short(d.new)}" for d in differences[:_NAMED]]
    if len(differences) > _NAMED:
        texts.append(f"and {len(differences) - _NAMED} more")
    return "; ".join(texts)


def _pages(facts: SiteFacts) -> Iterator[Tuple[str, Callable[[], str]]]:
    """Yield the name of each page, and the function that makes its text."""
    events = {id(history): events_of(history) for history in facts.histories}
    for history in facts.histories:
        yield _runs_name(history, facts), partial(_runs_page, history, facts)
        for track in history.tracks:
            if track.known_values:
                yield page_name(history, track), partial(_series_page, history, track, events[id(history)], facts)
    yield INDEX, partial(_overview, facts, events)


def _line(triaged: Triaged) -> Dict[str, Any]:
    """Return a change as the tables show it."""
    change, track, entry = triaged.change, triaged.track, triaged.entry
    warned = ", ".join(sorted({warning.code for warning in change.warnings}))
    size = change_of(METRICS[track.metric], change.before, change.after)
    return {
        "page": page_name(triaged.history, track),
        "series": name_of(track),
        "case": triaged.history.case,
        "since": change.run.started,
        "release": change.run.label or "-",
        "cells": (plain(change.before), plain(change.after), size, chance(change.p)),
        "verdict": track.verdict(change),
        "why": "; ".join(filter(None, (_named(change.differences), warned and f"warnings: {warned}"))),
        "state": triaged.state.value,
        "bug": entry.bug if entry else None,
        "note": entry.note if entry else None,
        "source": change.run.source,
    }


def _level(history: History, track: Track) -> Dict[str, Any]:
    """Return a series as the overview shows it."""
    values = track.known_values
    level, noise = _current(track)
    change = track.changes[-1] if track.changes else None
    return {
        "page": page_name(history, track),
        "series": name_of(track),
        "runs": len(values),
        "level": level,
        "noise": noise,
        "last": values[-1],
        "changes": len(track.changes),
        "since": change.run.started if change else None,
    }


def _current(track: Track) -> Tuple[float, str]:
    """Return the level of the newest runs, and the noise from run to run as a share of it."""
    values = track.known_values
    level = track.changes[-1].after if track.changes else median(values)
    noise = noise_of(np.asarray(values)) if len(values) > 1 else None
    return level, "-" if noise is None or not level else short_percent(noise / abs(level))


def _overview(facts: SiteFacts, events: Mapping[int, Sequence[HistoryEvent]]) -> str:
    newest = sorted(facts.triaged, key=lambda triaged: -(triaged.change.run.started or 0.0))
    in_state: Dict[TriageState, List[Triaged]] = {state: [] for state in TriageState}
    for triaged in newest:
        in_state[triaged.state].append(triaged)
    open_changes = in_state[TriageState.OPEN]
    shown = [triaged for triaged in newest if triaged.state is not TriageState.HIDDEN]
    sentences = [_first_sentence(open_changes, facts.histories)]
    sentences += [sentence_of(triaged.track, triaged.change) for triaged in open_changes[:2]]
    return document(
        "site_overview.html.j2",
        ["history_charts.js"],
        {"tracks": []},
        sentences=sentences,
        runs=several(sum(len(history.runs) for history in facts.histories), "run"),
        lists=[
            ("open", "Open", list(map(_line, open_changes))),
            ("acknowledged", "Acknowledged", list(map(_line, in_state[TriageState.ACKNOWLEDGED]))),
            ("newest", "What changed last", list(map(_line, shown[:_NEWEST]))),
        ],
        counts=", ".join(f"{len(changes)} {state.value}" for state, changes in in_state.items()),
        histories=[
            {
                "case": history.case,
                "runs": len(history.runs),
                "runs_page": _runs_name(history, facts),
                "first": history.runs[0].started,
                "last": history.runs[-1].started,
                "series": [_level(history, track) for track in history.tracks if track.known_values],
                "events": list(reversed(events[id(history)]))[:_NEWEST],
                "unusable": sum(not run.usable for run in history.runs),
            }
            for history in facts.histories
        ],
        entries="".join(map(_entry_of, open_changes)),
        idle=[f"{entry.series} since {when(entry.since)}: {entry.state}" for entry in facts.idle],
        notes=list(facts.notes),
        links=facts.links,
    )


def _first_sentence(open_changes: Sequence[Triaged], histories: Sequence[History]) -> Sentence:
    series = sum(bool(track.known_values) for history in histories for track in history.tracks)
    if not open_changes:
        return Sentence(f"No open change in {series} series.", "equivalent")
    verdicts = [triaged.track.verdict(triaged.change) for triaged in open_changes]
    kind = "worse" if "worse" in verdicts else "inconclusive"
    return Sentence(f"{several(len(open_changes), 'open change')}, {verdicts.count('worse')} worse.", kind)


def _entry_of(triaged: Triaged) -> str:
    """Return the lines of triage.yaml that acknowledge a change, and no change of another series."""
    track, case = triaged.track, triaged.history.case
    lines = [
        f"  - series: {_pattern('.'.join((track.phase, track.op, track.metric)))}\n",
        f"    since: {when(triaged.change.run.started).removesuffix(' UTC')}\n",
        "    state: acknowledged\n",
        f"    case: {_pattern(case)}\n" if case else "",
    ]
    return "".join(lines)


def _pattern(name: str) -> str:
    """Return the shell pattern of one name, as YAML quotes it: names are an archive's."""
    return "'" + glob.escape(name).replace("'", "''") + "'"


def _series_page(history: History, track: Track, events: Sequence[HistoryEvent], facts: SiteFacts) -> str:
    own = [triaged for triaged in facts.triaged if triaged.history is history and triaged.track is track]
    chart = chart_of(history, track)
    runs = [run for run, value in zip(history.runs, track.values) if value is not None]
    marks = [[event.run.started, event.kind == "release"] for event in events if event.run.started]
    data = {**chart.data, "links": [facts.links.get(run.source, "") for run in runs], "marks": marks}
    level, noise = _current(track)
    metric = METRICS[track.metric]
    return document(
        "site_series.html.j2",
        ["history_charts.js"],
        {"tracks": [data]},
        title=name_of(track),
        case=history.case,
        about=metric.text,
        unit=metric.unit,
        level=level,
        noise=noise,
        runs=len(runs),
        runs_page=_runs_name(history, facts),
        changes_of=list(map(_line, reversed(own))),
        entry="".join(_entry_of(triaged) for triaged in own if triaged.state is TriageState.OPEN),
        events_of=list(reversed(events)),
        links=facts.links,
    )


def _runs_page(history: History, facts: SiteFacts) -> str:
    return document(
        "site_runs.html.j2",
        ["history_charts.js"],
        {"tracks": []},
        case=history.case,
        runs=list(reversed(history.runs)),
        links=facts.links,
    )


def overview_sentence(facts: SiteFacts) -> str:
    """Return the sentence that the overview begins with."""
    open_changes = [triaged for triaged in facts.triaged if triaged.state is TriageState.OPEN]
    return _first_sentence(open_changes, facts.histories).text
