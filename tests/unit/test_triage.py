"""Decisions about changes of a history: which change an entry of triage.yaml is about."""

from __future__ import annotations

import html
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from compare_records import record

pytest.importorskip("jinja2")

from cbt_plugins.compare.history import DEFAULT_BUDGET, History, LevelChange, Track
from cbt_plugins.compare.triage import TriageState, read_triage, triage
from cbt_plugins.report.history_site import SiteFacts, write_site

DAY = 86400.0
#: the first night, with 10 runs, one a night
FIRST = datetime(2026, 3, 10, 22, 30, tzinfo=timezone.utc).timestamp()


def nights(case: str = "", changed: int = 3, *phases: str) -> History:
    """Return a history of 10 nights in which GET of each phase is slower since night number `changed`."""
    names = phases or ("measure",)
    values = {(phase, "GET", "obj_per_s"): 100.0 for phase in names}
    runs = tuple(record(values, name=f"{case}-{night}", started=FIRST + night * DAY) for night in range(10))
    change = LevelChange(runs[changed - 1], runs[changed], 100.0, 80.0, 0.001, (), (), False)
    tracks = tuple(Track(phase, "GET", "obj_per_s", (100.0,) * 10, (change,)) for phase in names)
    return History(case, runs, tracks, 0.001, DEFAULT_BUDGET)


@pytest.mark.parametrize(
    ("since", "state"),
    [
        ("2025-03-13", TriageState.OPEN),
        ("2026-03-09 22:30:00", TriageState.OPEN),
        ("2026-03-10", TriageState.ACKNOWLEDGED),
        ("2026-03-13", TriageState.ACKNOWLEDGED),
        ("2026-03-20", TriageState.OPEN),
    ],
)
def test_an_entry_older_than_all_runs_hides_no_change(since: str, state: TriageState, tmp_path: Path) -> None:
    """The runs of its change are not among the runs that are looked at."""
    file = tmp_path / "triage.yaml"
    file.write_text(f"changes: [{{series: GET.obj_per_s, since: {since}, state: acknowledged}}]")
    entries = read_triage(file)
    (triaged,), idle = triage([nights()], entries)
    assert triaged.state is state
    assert idle == ([] if state is TriageState.ACKNOWLEDGED else list(entries))


def test_an_entry_names_a_configuration_by_keys_that_are_not_in_its_title(tmp_path: Path) -> None:
    """Other configurations, or another version, gave it another title."""
    histories = []
    for workers in (8, 16):
        history = nights(f"phase.fill.workers={workers}")
        config = {"phase.fill.workers": workers, "phase.measure.workers": workers, "phase.read.size": "4 [KiB]"}
        histories.append(replace(history, runs=tuple(replace(run, config=config) for run in history.runs)))
    file = tmp_path / "triage.yaml"
    for case, states in (
        ("phase.fill.workers=8, phase.measure.workers=8, phase.read.size=4 [[]KiB]", [True, False]),
        ("phase.measure.workers=16", [False, True]),
        ("phase.measure.workers=*", [True, True]),
        ("phase.measure.workers=1", [False, False]),
        ("phase.measure.workers=8, phase.other=1", [False, False]),
        ("phase.measure.workers=8, phase.other=None", [True, False]),
        ("phase.fill.*=16", [False, True]),
        ("8", [False, False]),
    ):
        file.write_text(
            f"changes: [{{series: GET.obj_per_s, since: 2026-03-13, state: acknowledged, case: '{case}'}}]"
        )
        triaged, _ = triage(histories, read_triage(file))
        assert [change.state is TriageState.ACKNOWLEDGED for change in triaged] == states, case


def test_the_lines_of_the_overview_are_about_one_change_each(tmp_path: Path) -> None:
    """Although names of phases and configurations have characters of shell patterns, or are words of YAML."""
    names = {"load.workers=[8]": "n*", "load.workers=8": "what's [1]", "null": "yes"}
    histories = [nights(case, 3, "new", phase) for case, phase in names.items()]
    changes, _ = triage(histories, ())
    write_site(tmp_path / "site", SiteFacts(histories, changes))
    overview = (tmp_path / "site" / "index.html").read_text()
    file = tmp_path / "triage.yaml"
    file.write_text(html.unescape(overview.split("<pre>")[1].split("</pre>")[0]))
    entries = read_triage(file)
    acknowledged = []
    for entry in entries:
        triaged, idle = triage(histories, [entry])
        assert not idle
        acknowledged.append([i for i, change in enumerate(triaged) if change.state is TriageState.ACKNOWLEDGED])
    assert sorted(acknowledged) == [[number] for number in range(6)]
