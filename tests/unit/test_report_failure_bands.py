"""Failures in the charts over time: the data of the comparison page, and what the plot files show."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
import sql_archive

pytest.importorskip("jinja2")
pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from matplotlib.image import imread

from cbt_plugins.report.chart_data import bands
from cbt_plugins.report.comparison import overlays
from cbt_plugins.report.plot_files import of_run
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.summary_file import FILE, check, read_summary, summarize, write_summary


def _run(archive: Path, change: Callable[[Dict[str, Any]], None]) -> Path:
    """Return a run in whose phase `hurt` a node is down from second 5 to 8; `change` gets its summary."""
    directory = sql_archive.sql_run(archive)
    summary = dict(read_summary(directory / FILE))
    summary["run"] = {**summary["run"], "run_id": archive.name}  # two archives of one run are one run
    change(summary)
    write_summary(summary, directory / FILE)
    return directory


def _charts(*sides: List[Path]) -> Dict[Tuple[str, str], Dict[str, Any]]:
    named = [(str(number), [record for run in runs for record in records_of(run)]) for number, runs in enumerate(sides)]
    return {(chart["phase"], chart["op"]): chart for chart in overlays("", named)}


def _late_undo(summary: Dict[str, Any]) -> None:
    timeline = summary["failure"]["timelines"]["hurt"]
    timeline["windows"][1]["to"] = timeline["windows"][2]["from"] = timeline["marks"][1]["at"] = 9.0
    timeline["bad"] = [[5, 6], [7, 9]]
    timeline["marks"].append({"at": 9.5, "title": "all PGs active+clean", "kind": "return", "labels": []})


def _cut_first_second(summary: Dict[str, Any]) -> None:
    """Let the window of the phase begin within a second before: this second is in the series, but not in the line."""
    phase, timeline = summary["phases"][1], summary["failure"]["timelines"]["hurt"]
    phase["window"]["start"] -= 0.75
    phase["series"]["start"] -= 1
    for op_series in phase["series"]["ops"].values():
        op_series.update({key: [values[0], *values] for key, values in op_series.items() if values})
    timeline["start"] -= 1
    for window in timeline["windows"]:
        window.update({key: window[key] + 1 for key in ("from", "to")})
    for mark in timeline["marks"]:
        mark["at"] += 1
    timeline["bad"] = [[low + 1, high + 1] for low, high in timeline["bad"]]


def _of_an_older_version(summary: Dict[str, Any]) -> None:
    del summary["failure"]["timelines"]["hurt"]["bad"]


def test_each_side_has_the_failure_of_its_first_run(tmp_path: Path) -> None:
    base = [_run(tmp_path / name, lambda summary: None) for name in ("a1", "a2")]
    new = [_run(tmp_path / "b", _late_undo)]
    charts = _charts(base, new)
    expected = [
        {"colour": 0, "bands": [[5.0, 8.0, True], [8.0, 10.0, False]], "bad": [[7, 8]], "marks": [5.0, 8.0]},
        {"colour": 1, "bands": [[5.0, 9.0, True], [9.0, 10.0, False]], "bad": [[5, 6], [7, 9]], "marks": [5.0, 9.0]},
    ]
    assert charts["hurt", "GET"]["failures"] == charts["hurt", "PUT"]["failures"] == expected
    assert charts["new", "GET"]["failures"] == []
    assert len(charts["hurt", "GET"]["lines"]) == 3


def test_bands_are_where_their_seconds_are_in_the_line(tmp_path: Path) -> None:
    """The line begins with the first second that the window has in full."""
    base, new = _run(tmp_path / "a", _cut_first_second), _run(tmp_path / "b", _of_an_older_version)
    chart = _charts([base], [new])["hurt", "GET"]
    assert [line["values"].index(100.0) for line in chart["lines"]] == [6, 6]
    cut, old = chart["failures"]
    assert (cut["bands"][0], cut["bad"], cut["marks"]) == ([5.0, 8.0, True], [[7, 8]], [5.0, 8.0])
    assert (old["bands"][0], old["bad"], old["marks"]) == ([5.0, 8.0, True], [], [5.0, 8.0])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("failing", "no effect", "returning", "clean again"), [(0, 2, True), (2, 3, False)]),
        (("failing", "failed", "returning", "returned"), [(0, 2, True), (2, 3, False)]),
        (("failing", "clean without them", "recovering back", "clean again"), [(0, 1, True), (2, 3, False)]),
    ],
)
def test_a_band_is_light_from_the_undo_on(states: Tuple[str, ...], expected: List[Tuple[float, float, bool]]) -> None:
    windows = [{"state": state, "from": t, "to": t + 1} for t, state in enumerate(states)]
    seconds = {t: hurt for low, high, hurt in bands(windows) for t in range(int(low), int(high))}
    assert seconds == {t: hurt for low, high, hurt in expected for t in range(int(low), int(high))}


def _of_a_thrash(summary: Dict[str, Any]) -> None:
    """Faults of 1 ms, 2 ms apart: a point of the chart has 10 ms."""
    timeline = summary["failure"]["timelines"]["hurt"]
    times = [number / 500 for number in range(2500)]
    timeline["windows"] = [
        {"state": state, "labels": [], "from": t + at, "to": t + at + 0.001}
        for t in times
        for state, at in (("failing", 0.0), ("clean again", 0.001))
    ]
    timeline["bad"] = [[t, t + 0.001] for t in times]
    timeline["marks"] = [{"at": t, "title": "fault", "kind": "failure", "labels": []} for t in times]


def test_a_failure_is_no_finer_than_the_points_of_a_line(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, _of_a_thrash) for name in "ab"]
    for failure in _charts(*([run] for run in runs))["hurt", "GET"]["failures"]:
        assert (failure["bands"], failure["bad"]) == ([[0.0, 4.999, True]], [[0.0, pytest.approx(4.999)]])
        assert 490 < len(failure["marks"]) <= 510


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sql_archive.sql_run(tmp_path_factory.mktemp("stored")) / FILE


@pytest.mark.parametrize(
    "damaged",
    [
        5,
        {"windows": None},
        {"windows": [{"state": "failing", "from": "5", "to": 8}]},
        {"windows": [{"state": "failing", "from": math.nan, "to": 8}]},
        {"bad": [[1, math.inf]]},
        {"marks": [{"title": "fault"}]},
    ],
)
def test_a_damaged_timeline_is_no_valid_summary(stored: Path, damaged: Any) -> None:
    summary = read_summary(stored)
    timelines = summary["failure"]["timelines"]
    timelines["hurt"] = {**timelines["hurt"], **damaged} if isinstance(damaged, dict) else damaged
    with pytest.raises(ValueError, match=r"not a valid summary: \$\.failure\.timelines"):
        check(summary)


def test_damage_that_the_schema_allows_is_named(tmp_path: Path) -> None:
    def damage(summary: Dict[str, Any]) -> None:
        summary["failure"]["timelines"]["hurt"]["bad"] = [[1, 2, 3]]

    runs = [_run(tmp_path / "a", damage), _run(tmp_path / "b", lambda summary: None)]
    with pytest.raises(Unreadable, match=r"a/.*: damaged: ValueError"):
        _charts(*([run] for run in runs))


#: bands of a plot as SVG: their fill, opacity, left and right end, and height
Band = Tuple[str, float, float, float, float]


def _svg_bands(path: Path) -> List[Band]:
    bands = []
    for corners, style in re.findall(r'<path d="([^"]*)"[^>]*style="(fill: #[^"]*)"', path.read_text()):
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", corners)]
        if len(numbers) not in (8, 10):  # not a rectangle
            continue
        fill, opacity = re.findall(r"fill: (#\w+)", style)[0], re.findall(r"opacity: ([\d.]+)", style)
        across, down = numbers[::2], numbers[1::2]
        bands.append((fill, float(opacity[0]) if opacity else 1.0, min(across), max(across), max(down) - min(down)))
    return bands


@pytest.fixture(scope="module")
def plots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plots")
    of_run(summarize(sql_archive.sql_run(place / "a")), place)
    return place


@pytest.mark.parametrize(("name", "rows"), [("throughput", 1), ("latency", 1), ("recovery", 3)])
def test_plots_over_time_have_the_bands_and_marks_of_a_failure(plots: Path, name: str, rows: int) -> None:
    bands = _svg_bands(plots / f"{name}.svg")
    phases = [band for band in bands if band[:2] == ("#3c5a8c", 0.07)]
    assert len(phases) == 3 * rows
    _, _, begin, end, height = phases[1]
    second = (end - begin) / 10
    states = [band for band in bands if band[1] == 0.12]
    # failing from second 5 to 8, returning to the end of `hurt`, and through `aged`
    ends = {("#b3261e", 5, 8), ("#8a5a00", 8, 10), ("#8a5a00", 100, 110)}
    assert {(fill, round((a - begin) / second), round((b - begin) / second)) for fill, _, a, b, _ in states} == ends
    assert len(states) == 3 * rows and {round(band[4] / height, 3) for band in states} == {1.0}
    bad = [band for band in bands if band[:2] == ("#b3261e", 1.0)]
    assert {(round((a - begin) / second), round((b - begin) / second)) for _, _, a, b, _ in bad} == {(7, 8)}
    assert len(bad) == rows and {round(band[4] / height, 3) for band in bad} == {0.03}, "no strip at the bottom"
    text = (plots / f"{name}.svg").read_text()
    assert [text.count(f"<!-- {mark} -->") for mark in ("fault", "undo")] == [1, 1]
    dotted = re.findall(r'<path d="M ([\d.]+) [^"]*L [^"]*"[^>]*stroke-dasharray[^>]*stroke: #b3261e', text)
    assert {round((float(at) - begin) / second) for at in dotted} == {5, 8} and len(dotted) == 2 * rows


def test_the_png_has_the_bad_seconds_where_the_svg_has_them(plots: Path) -> None:
    (band,) = [band for band in _svg_bands(plots / "throughput.svg") if band[:2] == ("#b3261e", 1.0)]
    pixels = imread(plots / "throughput.png")[:, :, :3]
    red = (abs(pixels - [0xB3 / 255, 0x26 / 255, 0x1E / 255]) < 0.02).all(axis=2)
    left, right = (end * 150 / 72 for end in band[2:4])  # dots per inch of the PNG, points per inch of the SVG
    strip = red[red.sum(axis=1) > (right - left) / 2]
    columns = strip.all(axis=0).nonzero()[0]
    assert len(strip) == pytest.approx(band[4] * 150 / 72, abs=2)
    assert (columns.min(), columns.max()) == (pytest.approx(left, abs=2), pytest.approx(right, abs=2))
