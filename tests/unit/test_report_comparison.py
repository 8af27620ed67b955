"""The page of a comparison: what differs, verdicts with a colour only where there is one, runs over each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import archive_builder as made
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("scipy")

from cbt_plugins.compare.sides import Alone, sides
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import Compared, compare
from cbt_plugins.report.chart_data import milliseconds
from cbt_plugins.report.comparison import overlays, page, percentiles, verdict
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.summary_file import read_summary, summarize, write_summary
from cbt_plugins.tools.__main__ import main


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> List[Path]:
    """Two runs of `small`; the second one has another release, and its GETs take three times as long when it is new."""
    place = tmp_path_factory.mktemp("archives")
    base, new = made.small(place / "a"), made.small(place / "b")
    manifest = (new / "manifest.json").read_text().replace("18.2.7", "19.2.3").replace("reef", "squid")
    (new / "manifest.json").write_text(manifest)
    summary = summarize(base)
    write_summary(summary, base / "summary.json")
    slow = summarize(new)
    get = slow["phases"][0]["ops"]["GET"]
    slower = Histogram()
    slower.record([30_000_000] * get["requests"])
    get["histogram_ns"] = slower.to_json()
    # seconds that are not all alike, so that something can be said of their mean
    for its, level in ((summary, 200.0), (slow, 70.0)):
        rates = its["phases"][0]["series"]["ops"]["GET"]["obj_per_s"]
        rates[:] = [level + (i * 7 % 5) - 2 for i in range(len(rates))]
    slow["resources"] = summary["resources"] = None
    slow["run"]["run_id"] = "another"  # two archives of one run are one run
    write_summary(summary, base / "summary.json")
    write_summary(slow, new / "summary.json")
    return [base, new]


@pytest.fixture(scope="module")
def compared(archives: List[Path]) -> Compared:
    base, new = sides([[path] for path in archives])
    return compare(base, [new])


def data_of(html: str) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(html.split('id="data">')[1].split("</script>")[0])
    return found


def with_verdicts(compared: Compared, *verdicts: Verdict) -> Compared:
    """The same with these verdicts of its first rows, and no other rows."""
    (section,) = compared.sections
    rows = tuple(
        replace(row, comparison=replace(row.comparison, verdict=its)) for row, its in zip(section.rows, verdicts)
    )
    return replace(compared, sections=(replace(section, rows=rows),))


def test_what_differs_comes_before_what_changed(compared: Compared) -> None:
    html = page(compared)
    assert html.index("version.ceph") < html.index("Changes")
    assert "19.2.3 squid <span>compared with 18.2.7 reef</span>" in html
    assert html.index("inconclusive") < html.index("version.ceph"), "the summary is not first"


def test_a_verdict_has_a_colour(compared: Compared) -> None:
    html = page(with_verdicts(compared, Verdict.WORSE, Verdict.BETTER)).split("<body>")[1]
    assert html.count("verdict-worse") == 2 and html.count("verdict-better") == 2  # the change and the verdict
    assert html.count('class="interval worse"') == 1


def test_what_is_not_significant_has_none(compared: Compared) -> None:
    html = page(with_verdicts(compared, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)).split("<body>")[1]
    assert "verdict-" not in html and 'class="interval "' in html


def test_a_small_difference_is_marked_as_equivalent(compared: Compared) -> None:
    """Its cell says "equivalent (worse)"."""
    small = with_verdicts(compared, Verdict.EQUIVALENT)
    (row,) = small.rows
    row = replace(row, comparison=replace(row.comparison, differs="worse"))
    html = page(replace(small, sections=(replace(small.sections[0], rows=(row,)),)))
    assert "equivalent (worse)" in html and '<span class="mark ">=</span>' in html


def test_a_metric_without_direction_has_none(compared: Compared) -> None:
    odd = with_verdicts(compared, Verdict.WORSE)
    row = replace(odd.sections[0].rows[0], metric="rgw_osd_ratio")
    html = page(replace(odd, sections=(replace(odd.sections[0], rows=(row,)),)))
    assert "verdict-worse" not in html.split("<body>")[1]
    assert verdict([row])["kind"] == "equivalent"


@pytest.mark.parametrize(
    ("verdicts", "kind", "text"),
    [
        ((Verdict.WORSE, Verdict.BETTER, Verdict.EQUIVALENT), "bad", "1 worse, 1 better, 1 equivalent"),
        ((Verdict.BETTER, Verdict.INCONCLUSIVE), "good", "1 better, 1 inconclusive"),
        ((Verdict.EQUIVALENT, Verdict.EQUIVALENT), "equivalent", "2 equivalent"),
        ((Verdict.EQUIVALENT, Verdict.INCONCLUSIVE), "warning", "1 equivalent, 1 inconclusive"),
        ((), "equivalent", "nothing could be compared"),
    ],
)
def test_the_summary_of_verdicts(compared: Compared, verdicts: Any, kind: str, text: str) -> None:
    assert verdict(with_verdicts(compared, *verdicts).rows) == {"kind": kind, "text": text}


def test_runs_are_drawn_over_each_other(compared: Compared) -> None:
    charts = data_of(page(compared))["overlays"]
    assert [(its["phase"], its["op"]) for its in charts] == [
        ("new", "GET"), ("new", "PUT"), ("aged", "GET"), ("aged", "PUT"),
    ]  # fmt: skip
    base, new = charts[0]["lines"]
    assert (base["name"], base["step"], base["values"][:3]) == ("18.2.7 reef", 1, [198.0, 200.0, 202.0])
    assert new["values"][:2] == [68.0, 70.0] and new["colour"] != base["colour"]


def test_a_side_s_curve_is_of_all_its_runs(archives: List[Path]) -> None:
    base, new = archives
    (both,) = sides([[base, new]])
    (only,) = sides([[new]])
    named = [("both", both.runs), ("only", only.runs)]
    its = next(chart for chart in percentiles("", named) if (chart["phase"], chart["op"]) == ("new", "GET"))
    merged = Histogram()
    for run in (base, new):
        summary = read_summary(run / "summary.json")
        merged.merge(Histogram.from_json(summary["phases"][0]["ops"]["GET"]["histogram_ns"]))
    assert its["curves"][0]["ms"] == pytest.approx(milliseconds(merged), rel=1e-3)
    # half of them took 10 ms, half of them 30: the last point below one half is its third
    assert [round(ms) for ms in its["curves"][0]["ms"][:6]] == [10, 10, 10, 10, 30, 30]
    assert list(overlays("", named[:1])) == [], "one side alone is no comparison"


def test_texts_of_archives_are_no_markup(compared: Compared) -> None:
    bad = "</script><script>alert(1)</script>"
    html = page(replace(compared, base=replace(compared.base, name=bad), alone=(Alone("", "", (), bad),)))
    assert "<script>alert" not in html and html.count("<script") == 2


def test_the_command_writes_it(archives: List[Path], tmp_path: Path) -> None:
    base, new = archives
    path = tmp_path / "c.html"
    assert main(["compare", str(base), str(new), "--format", "html", "-o", str(path)]) == 0
    html = path.read_text()
    assert "Releases side by side" in html and "objects per core" not in html
    first = path.read_bytes()
    main(["compare", str(base), str(new), "--format", "html", "-o", str(path)])
    assert path.read_bytes() == first
