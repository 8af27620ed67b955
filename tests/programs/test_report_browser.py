"""The pages in a real browser: everything is drawn, on screens and on paper, and nobody complains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import archive_builder as made
import pytest
import sql_archive
from archive_builder import swept
from chromium import CHROMIUM, Browser
from page_archive import add_failure, add_resources, both_engines, without_windows
from waiting import wait_for

from cbt_plugins.plan import CALIBRATE
from cbt_plugins.results.summary_file import FILE, read_summary, summarize, write_summary

pytest.importorskip("jinja2")

from cbt_plugins.report.page import run_page
from cbt_plugins.tools.__main__ import main

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="NO CHROMIUM: nobody has looked whether the pages' scripts run")

#: red, green and blue of what is behind everything; canvases that something was drawn on
_BACK = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0)"
_DRAWN = """[...document.querySelectorAll("canvas")].filter((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte)).length"""
_CANVASES = "document.querySelectorAll('canvas').length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with every kind of chart that a run can have."""
    place = tmp_path_factory.mktemp("run")
    directory = both_engines(place)
    summary = summarize(directory)
    add_failure(summary, "new")
    add_resources(summary, "new")
    for pgs in (phase["series"]["pgs"] for phase in summary["phases"]):
        pgs["not_clean"] = [1 for _ in pgs["not_clean"]]
    path = place / "report.html"
    path.write_text(run_page(summary, directory), encoding="utf-8")
    return path.as_uri()


def looked_at(browser: Browser, address: str, canvases: int) -> None:
    """Light, dark and on paper: all charts, no complaint, and no request but the one for the page."""
    backs = []
    for scheme in ("light", "dark"):
        browser.open(address, prefers_color_scheme=scheme)
        assert browser.complaints() == []
        assert browser.requests() == [address]
        assert browser.evaluate(_CANVASES) == canvases
        assert browser.evaluate(_DRAWN) == canvases
        backs.append(browser.evaluate(_BACK))
    assert backs[0] > 600 > 150 > backs[1], "dark is not dark, or light not light"
    browser.evaluate("addEventListener('beforeprint', () => { onPaper = document.documentElement.className })")
    assert browser.paper().startswith(b"%PDF")
    assert browser.evaluate("onPaper") == "paper", "it was printed in the colours of the screen"
    assert browser.evaluate("document.documentElement.className") == ""
    assert browser.complaints() == []


def test_a_run(browser: Browser, run: str) -> None:
    # the run, its copies, recovery, cores and PGs; two operations; three for each of four phases; the failure; drivers;
    # cores
    looked_at(browser, run, 5 + 2 + 12 + 2 + 2 + 1)


def test_each_chart_is_named_and_has_a_table_of_its_numbers(browser: Browser, run: str) -> None:
    browser.open(run)
    named = "[...document.querySelectorAll('canvas')].every((c) => c.role === 'img' && c.ariaLabel.length > 30)"
    assert browser.evaluate(named)
    details = "document.querySelector('[data-chart=rate] details.numbers')"
    assert browser.evaluate(f"{details}.querySelector('table')") is None
    browser.evaluate(f"{details}.querySelector('summary').click()")
    wait_for(lambda: browser.evaluate(f"!!{details}.querySelector('td')"), "the table")
    assert "GET" in browser.evaluate(f"{details}.querySelector('thead').innerText")
    assert browser.evaluate(f"{details}.querySelectorAll('td')[1].innerText") not in ("", None)


def test_a_history(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    places = [str(tmp_path / str(number)) for number in range(3)]
    for place in places:
        made.renamed(made.small(Path(place)), place[-1])
    path = tmp_path / "history.html"
    assert main(["history", *places, "-o", str(path)]) == 0
    plots = path.read_text().count('data-chart="history"')
    assert plots > 3
    looked_at(browser, path.as_uri(), plots)


def test_a_comparison(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    for name in "ab":
        made.small(tmp_path / name)
    path = tmp_path / "compared.html"
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--format", "html", "-o", str(path)]) == 0
    # two operations of two phases: through the time, and their percentiles
    looked_at(browser, path.as_uri(), 8)


#: red, green, blue and opacity of a row of a chart's plot, so many pixels below its top, or above its bottom
_ROW = """((place, y) => {
  const canvas = place.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const plot = place.querySelector(".u-over").getBoundingClientRect(), ratio = canvas.width / box.width;
  const top = Math.round(((y < 0 ? plot.bottom : plot.top) - box.top + y) * ratio);
  const left = Math.round((plot.left - box.left) * ratio), width = Math.round(plot.width * ratio);
  const data = canvas.getContext("2d").getImageData(left, top, width, 1).data;
  return Array.from({ length: width }, (_, x) => [...data.slice(4 * x, 4 * x + 4)]);
})"""
_BLUE, _ORANGE, _RED = (38, 103, 201), (217, 115, 13), (179, 38, 30)


def painted(
    browser: Browser, place: str, y: int, colour: Tuple[int, ...], opacity: int, near: int = 8
) -> List[float]:
    """Return where a row of a chart's plot has this colour: parts of its width from the left."""
    row = browser.evaluate(f"{_ROW}({place}, {y})")
    return [
        x / len(row)
        for x, (*parts, alpha) in enumerate(row)
        if abs(alpha - opacity) < 3 and all(abs(a - b) < near for a, b in zip(parts, colour))
    ]


def test_a_comparison_has_a_lane_for_the_failure_of_each_side(browser: Browser, tmp_path: Path) -> None:
    """A node is down from second 5 to 8, or to 9; the chart is from 0.5 to 9.5."""
    pytest.importorskip("scipy")
    sql_archive.sql_run(tmp_path / "a")
    run = sql_archive.sql_run(tmp_path / "b")
    summary = dict(read_summary(run / FILE))
    summary["run"] = {**summary["run"], "run_id": "another"}
    timeline = summary["failure"]["timelines"]["hurt"]
    timeline["windows"][1]["to"] = timeline["windows"][2]["from"] = timeline["marks"][1]["at"] = 9.0
    timeline["bad"] = []
    write_summary(summary, run / FILE)
    path = tmp_path / "compared.html"
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--format", "html", "-o", str(path)]) == 0
    looked_at(browser, path.as_uri(), 12)
    browser.open(path.as_uri())
    assert "failure of the first run of each side" in browser.evaluate("document.querySelector('#overlays').innerText")
    figures = "[...document.querySelectorAll('#overlays figure')]"
    names = browser.evaluate(f"{figures}.map((figure) => figure.innerText.trim().split(',')[0])")
    place = f"{figures}[{names.index('hurt GET')}].querySelector('.chart')"
    for y, colour, opacity, ends in (
        (-14, _BLUE, 0x77, (5, 8)), (-14, _BLUE, 0x33, (8, 9.5)), (-10, _RED, 255, (7, 8)),
        (-6, _ORANGE, 0x77, (5, 9)), (-6, _ORANGE, 0x33, (9, 9.5)),
    ):  # fmt: skip
        parts = painted(browser, place, y, colour, opacity)
        assert [parts[0], parts[-1]] == pytest.approx([(end - 0.5) / 9 for end in ends], abs=0.01), (y, opacity)
    assert painted(browser, place, -2, _RED, 255) == []
    calm = f"{figures}[{names.index('new GET')}].querySelector('.chart')"
    assert painted(browser, calm, -14, _BLUE, 0x77) == []
    zoom(browser, place, 6, 8.5)
    # without, and over a line of the grid
    blue, orange = ([x for a in (0xAA, 0xAF) for x in painted(browser, place, 1, of, a, 20)] for of in (_BLUE, _ORANGE))
    assert blue and blue == pytest.approx([2 / 2.5] * len(blue), abs=0.02), "not only the undo at second 8"
    assert orange == [], "the fault at second 5, or the undo at second 9"


def zoom(browser: Browser, place: str, begin: float, end: float) -> None:
    """Zoom a chart from second 0.5 to 9.5 to these seconds."""
    box = f"{place}.querySelector('.u-over').getBoundingClientRect()"
    browser.evaluate(f"scrollTo(0, {box}.top + scrollY - 100)")
    x, y, width = (browser.evaluate(f"{box}.{side}") for side in ("x", "y", "width"))
    browser.drag(x + width * (begin - 0.5) / 9, y + 50, x + width * (end - 0.5) / 9)


def test_every_chart_over_time_shows_the_failure(browser: Browser, tmp_path: Path) -> None:
    """It was broken in the first of four phases, which follow each other."""
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    for number, phase in enumerate(summary["phases"]):
        for part in (phase["window"], phase["series"]):
            part.update({key: part[key] + 20 * number for key in ("start", "end") if key in part})
    add_failure(summary, "new")
    add_resources(summary, "new")
    pgs = summary["phases"][0]["series"]["pgs"]
    pgs["not_clean"] = [int(t > 5) for t in pgs["t"]]
    path = tmp_path / "report.html"
    path.write_text(run_page(summary, directory), encoding="utf-8")
    browser.open(path.as_uri())
    charts = "[...document.querySelectorAll('[data-chart]:not([data-chart=tail])')]"
    kinds = browser.evaluate(f"{charts}.map((place) => [place.dataset.chart, place.dataset.phase ?? ''])")
    of_phase = {"rate", "latency", "copies", "recovered", "cores", "in_flight", "oldest_seconds", "pgs"}
    assert {kind for kind, phase in kinds if phase == "0"} == of_phase
    for number, (kind, phase) in enumerate(kinds):
        place = f"{charts}[{number}]"
        # under the area of recovered objects the red is another one
        bad = painted(browser, place, -3, _RED, 255, near=40)
        band = painted(browser, place, 5, _RED, 0x1C)
        assert (len(bad) > 5) is (phase in ("", "0")), (kind, phase)
        # the charts of the run have a band for each phase behind it
        assert phase == "" or (len(band) > 5) is (phase == "0"), (kind, phase)
    place = f"{charts}[{kinds.index(['rate', '0'])}]"
    zoom(browser, place, 3.5, 9)
    assert painted(browser, place, 1, _RED, 0x88, near=20) == [], "the mark at second 1"


def test_an_archive_with_a_sweep(browser: Browser, tmp_path: Path) -> None:
    swept(tmp_path, (1, 2, 8, 32))
    assert main(["report", str(tmp_path)]) == 0
    address = (tmp_path / "index.html").as_uri()
    looked_at(browser, address, 1)
    link = browser.evaluate("document.querySelector('a').href")
    browser.open(link)
    assert browser.evaluate("document.querySelector('h1').innerText").startswith("warp")


def test_a_drag_zooms_all_charts_of_the_phase(browser: Browser, run: str) -> None:
    browser.open(run)
    box = "document.querySelector('[data-chart=rate] .u-over').getBoundingClientRect()"
    browser.evaluate(f"scrollTo(0, {box}.top - 100)")
    x, y, width = (browser.evaluate(f"{box}.{side}") for side in ("x", "y", "width"))
    before = browser.evaluate("document.querySelector('[data-chart=latency] canvas').toDataURL()")
    browser.drag(x + width / 4, y + 50, x + width / 2)
    assert browser.evaluate("document.querySelector('[data-chart=latency] canvas').toDataURL()") != before


def test_hovering_shows_the_numbers(browser: Browser, run: str) -> None:
    browser.open(run)
    box = "document.querySelector('[data-chart=rate] .u-over').getBoundingClientRect()"
    browser.evaluate(f"scrollTo(0, {box}.top - 100)")
    x, y, width = (browser.evaluate(f"{box}.{side}") for side in ("x", "y", "width"))
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width / 2, y=y + 50)
    legend = browser.evaluate("document.querySelector('[data-chart=rate] .u-legend').innerText")
    assert "250" in legend, legend  # GETs per second


def test_a_narrow_page_does_not_overflow_and_names_its_phases(browser: Browser, run: str, tmp_path: Path) -> None:
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    for phase in summary["phases"]:
        phase["name"] = f"{phase['name']}-after-{'long-' * 12}aging"  # 480 px
    path = tmp_path / "report.html"
    path.write_text(run_page(summary, directory), encoding="utf-8")
    names = "document.querySelector('.names')"
    browser.open(path.as_uri())
    assert browser.evaluate(f"{names}.hidden"), "there is room for the names of the phases"
    for address in (path.as_uri(), run):
        browser.open(address, width=420)
        assert browser.evaluate("document.documentElement.scrollWidth") == 420
    browser.open(path.as_uri(), width=420)
    assert browser.evaluate(f"!{names}.hidden && {names}.innerText").split()[:2] == ["1", summary["phases"][0]["name"]]


#: columns of a chart's canvas in which something has the colour of its line
_INKED = """((chart, colour) => {
  const canvas = document.querySelector(`[data-chart=${chart}] canvas`), [w, h] = [canvas.width, canvas.height];
  const data = canvas.getContext("2d").getImageData(0, 0, w, h).data, x = Array.from({ length: w }, (_, x) => x);
  const its = (i) => colour.every((part, k) => Math.abs(data[i + k] - part) < 8);
  return x.filter((x) => { for (let y = 0; y < h; y++) if (its(4 * (y * w + x))) return true; }).length / w;
})"""


def test_lines_have_holes_where_nothing_is_known(browser: Browser, tmp_path: Path) -> None:
    """A quarter of the phase without beats, and three quarters without a sample of the PGs."""
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    phase = summary["phases"][0]
    beats = phase["under_way"]["drivers"]["01-4KiB"]
    for what, value in (("in_flight", 5), ("oldest_seconds", 0.25)):
        beats[what] = [value] * 4 + [None] + [value] * 45 + [None] * 25 + [value] * 25
    t = [*range(0, 12), *range(48, 60)]
    phase["series"]["pgs"] = {"t": t, "not_clean": [3] * len(t), "total": [9] * len(t)}
    path = tmp_path / "report.html"
    path.write_text(run_page(summary, directory), encoding="utf-8")
    browser.open(path.as_uri())
    assert browser.complaints() == []
    whole = browser.evaluate(f"{_INKED}('rate', [38, 103, 201])")
    for chart, colour in (("in_flight", [38, 103, 201]), ("oldest_seconds", [38, 103, 201])):
        assert 0.7 < browser.evaluate(f"{_INKED}('{chart}', {colour})") / whole < 0.8, chart
    assert 0.3 < browser.evaluate(f"{_INKED}('pgs', [138, 90, 0])") / whole < 0.5


def lengthen(phase: Dict[str, Any], times: int) -> None:
    """Let a phase last so many times as long, with the same seconds again and again."""
    for op_series in phase["series"]["ops"].values():
        op_series.update({key: values * times for key, values in op_series.items() if values})
    window = phase["window"]
    window["end"] = window["start"] + times * (window["end"] - window["start"])


def column(browser: Browser, chart: str, label: str) -> List[str]:
    """Return a column of the table below the first such chart."""
    details = f"document.querySelector('[data-chart={chart}] details.numbers')"
    browser.evaluate(f"{details}.querySelector('summary').click()")
    wait_for(lambda: browser.evaluate(f"!!{details}.querySelector('td')"), "the table")
    place = browser.evaluate(f"[...{details}.querySelectorAll('th')].map((cell) => cell.innerText)").index(label)
    rows = f"[...{details}.querySelectorAll('tbody tr')]"
    cells: List[str] = browser.evaluate(f"{rows}.map((row) => row.cells[{place}].innerText)")
    return cells


def test_failed_requests_are_counted_per_second_as_the_rates_are(browser: Browser, tmp_path: Path) -> None:
    """Of a phase of 2,500 s, in which a point covers 2 s: 3 GETs fail in each second."""
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    phase = summary["phases"][0]
    phase["series"]["ops"]["GET"]["errors"] = [3] * 10
    lengthen(phase, 250)
    path = tmp_path / "report.html"
    path.write_text(run_page(summary, directory), encoding="utf-8")
    browser.open(path.as_uri())
    assert browser.complaints() == []
    failed = column(browser, "rate", "failed")
    assert len(failed) == 1250 and set(failed) == {"3"}


def test_phases_without_a_window_move_no_chart_of_the_run(browser: Browser, tmp_path: Path) -> None:
    times = []
    for directory in (made.small(tmp_path / "a"), without_windows(tmp_path / "b")):
        path = directory / "report.html"
        path.write_text(run_page(summarize(directory), directory), encoding="utf-8")
        browser.open(path.as_uri())
        assert browser.complaints() == []
        times.append(column(browser, "run", "time"))
    assert times[0] == times[1] and times[0][0] == "0:01"


def test_many_drivers_are_drawn_together(browser: Browser, tmp_path: Path) -> None:
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    said = summary["phases"][0]["under_way"]
    said["drivers"] = {f"c{i}": said["drivers"]["01-4KiB"] for i in range(20)}
    path = tmp_path / "report.html"
    legend = "document.querySelector('[data-chart={}] .u-legend').innerText.split(/\\s{{2,}}|\\n|\\t/).filter(Boolean)"
    for step, total in ((2, "sum, at most (right axis)"), (1, "sum (right axis)")):
        said["step"] = step
        path.write_text(run_page(summary, directory), encoding="utf-8")
        browser.open(path.as_uri())
        assert browser.complaints() == []
        assert browser.evaluate(legend.format("in_flight"))[-3:] == ["highest", "median", total]
    assert browser.evaluate(legend.format("oldest_seconds"))[-2:] == ["highest", "median"]
    assert browser.evaluate(_DRAWN) == browser.evaluate(_CANVASES)


#: how high the line of GETs is in the middle of the timeline, as a part of its canvas from the top
_HIGH = """(() => {
  const canvas = document.querySelector("[data-chart=run] canvas"), [w, h] = [canvas.width, canvas.height];
  const data = canvas.getContext("2d").getImageData(0, 0, w, h).data, blue = [38, 103, 201];
  for (let y = 0; y < h; y++) for (let x = w * .45 | 0; x < w * .6; x++)
    if (blue.every((part, i) => Math.abs(data[4 * (y * w + x) + i] - part) < 8)) return y / h;
})()"""


def test_neither_a_calibration_nor_idle_time_sets_the_scale(browser: Browser, tmp_path: Path) -> None:
    """Two phases of 10 s, an hour apart, and a calibration with a hundred times the rate."""
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    first, second = summary["phases"][:2]
    for part in (second["window"], second["series"]):
        part.update({key: part[key] + 3600 for key in ("start", "end") if key in part})
    calibration = json.loads(json.dumps(first))
    calibration.update(name=CALIBRATE, role="none")
    for its in calibration["series"]["ops"].values():
        its["obj_per_s"] = [100 * rate for rate in its["obj_per_s"]]
    for part in (calibration["window"], calibration["series"]):
        part.update({key: part[key] - 20 for key in ("start", "end") if key in part})
    summary["phases"] = [calibration, first, second]
    path = tmp_path / "report.html"
    path.write_text(run_page(summary, directory), encoding="utf-8")
    browser.open(path.as_uri())
    assert browser.complaints() == []
    assert browser.evaluate(_HIGH) < 0.4, "the rates of the measurement are at the bottom, or not in the middle"
