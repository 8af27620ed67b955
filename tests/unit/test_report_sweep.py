"""Sweeps: runs that differ in their load, the curve of them, its knee, and the page of an archive of several runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List

import archive_builder as made
import pytest
from archive_builder import SERVERS, TOOK, swept

from cbt_plugins.report.sweep import Point, Sweep, of_runs
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.tools.__main__ import main


def curve(*points: tuple[float, float, float]) -> Sweep:
    """(load, objects/s, mean ms) of each point."""
    its = [Point(load, 1, rate, None, mean, None, None) for load, rate, mean in points]
    return Sweep("", "load", "total", "workers", tuple(its))


def test_the_knee_is_where_the_service_is_saturated(tmp_path: Path) -> None:
    (sweep,) = of_runs([(path, summarize(path)) for path in swept(tmp_path)])
    assert (sweep.phase, sweep.op, sweep.unit, sweep.title) == ("load", "total", "workers", "")
    assert [point.load for point in sweep.points] == [1, 2, 4, 8, 16, 32]
    assert sweep.points[0].obj_per_s == pytest.approx(1 / TOOK, rel=0.01)
    assert sweep.points[-1].obj_per_s == pytest.approx(SERVERS / TOOK, rel=0.02)
    assert sweep.knee is not None and sweep.points[sweep.knee].load == SERVERS
    once = "; one run of each point: how much repeated runs differ is not known"
    assert sweep.about == "knee at 8 workers: 1000 obj/s at 8 ms" + once


def test_what_more_endpoints_add(tmp_path: Path) -> None:
    """1, 2 and 4 endpoints; workers are a sweep of their own for each of them."""
    runs = []
    for endpoints, loads in ((1, (4, 8)), (2, (4, 8)), (4, (8,))):
        for path in swept(tmp_path / str(endpoints), loads):
            summary = summarize(path)
            summary["environment"]["endpoints"] = [f"http://rgw{number}" for number in range(endpoints)]
            line = summary["phases"][0]["total"]
            line["obj_per_s"] *= {1: 1.0, 2: 1.75, 4: 2.5}[endpoints]
            runs.append((path, summary))
    found = of_runs(runs)
    assert [(its.unit, len(its.points)) for its in found].count(("workers", 2)) == 2
    most = max((its for its in found if its.unit == "endpoints"), key=lambda its: len(its.points))
    assert [point.load for point in most.points] == [1, 2, 4] and most.knee is None
    assert [most.speed_up(point) for point in most.points] == pytest.approx([1.0, 1.75, 2.5])
    assert [most.efficiency(point) for point in most.points[1:]] == pytest.approx([0.875, 0.625])
    text = "1 to 4 endpoints: 2.5 times the throughput, efficiency 62 % (speed-up / factor of endpoints); one run of "
    assert most.about.startswith(text)


def test_an_efficiency_above_1_is_said_to_be_strange() -> None:
    points = tuple(Point(load, 3, rate, None, 8.0, None, None) for load, rate in ((1, 100.0), (2, 236.0)))
    sweep = Sweep("", "load", "total", "endpoints", points)
    text = "efficiency 118 % (speed-up / factor of endpoints), more than endpoints alone can explain"
    assert sweep.about == f"1 to 2 endpoints: 2.36 times the throughput, {text}"


def test_a_knee_at_an_end_is_none() -> None:
    rising = curve((1, 100, 10), (2, 200, 10), (4, 400, 10))
    assert rising.knee is None and "measure higher" in rising.about
    falling = curve((8, 400, 20), (16, 400, 40), (32, 390, 82))
    assert falling.knee is None and "measure lower" in falling.about
    assert rising.highest == 2 and falling.highest == 0


def test_throughput_that_falls_again_is_no_knee() -> None:
    # power: 10, 40, 32, 5: the highest throughput is not the knee
    turning = curve((1, 100, 10), (4, 400, 10), (8, 480, 15), (16, 300, 60))
    assert turning.knee == 1 and turning.highest == 2


def test_runs_of_one_load_are_one_point(tmp_path: Path) -> None:
    runs = []
    for again, loads in enumerate(((2, 8), (2, 8), (2,))):
        runs += [(path, summarize(path)) for path in swept(tmp_path / str(again), loads)]
    runs[0][1]["phases"][0]["total"]["obj_per_s"] = 7.0
    runs[2][1]["phases"][0]["total"]["obj_per_s"] = 9.0
    (sweep,) = of_runs(runs)
    assert [(point.load, point.runs) for point in sweep.points] == [(2, 3), (8, 2)]
    assert sweep.points[0].obj_per_s == 9.0, "no median"


def test_runs_that_differ_in_more_are_no_sweep(tmp_path: Path) -> None:
    runs = [(path, summarize(path)) for path in swept(tmp_path, (2, 8))]
    for driver in runs[0][1]["phases"][0]["drivers"]:
        driver["sizes"] = [[65536, 65536, 1.0]]
    assert of_runs(runs) == []


def test_only_usable_runs_make_points(tmp_path: Path) -> None:
    runs = [(path, summarize(path)) for path in swept(tmp_path, (2, 4, 8))]
    (runs[1][0] / "complete").unlink()
    runs[1] = runs[1][0], summarize(runs[1][0])
    (sweep,) = of_runs(runs)
    assert [point.load for point in sweep.points] == [2, 8]


def test_what_sets_sweeps_apart_is_their_title(tmp_path: Path) -> None:
    runs = [(path, summarize(path)) for path in swept(tmp_path / "a", (2, 8))]
    others = [(path, summarize(path)) for path in swept(tmp_path / "b", (2, 8))]
    for _, summary in others:
        for driver in summary["phases"][0]["drivers"]:
            driver["sizes"] = [[65536, 65536, 1.0]]
    assert [sweep.title for sweep in of_runs([*runs, *others])] == ["objects.sizes=4096", "objects.sizes=65536"]


def test_an_open_loop_is_swept_by_its_rate(tmp_path: Path) -> None:
    runs: List[Any] = []
    for number, (path, summary) in enumerate((path, summarize(path)) for path in swept(tmp_path, (2, 8))):
        summary["phases"][0]["loop"] = "open"
        summary["phases"][0]["rate"]["asked"] = 100.0 * (2 - number)
        runs.append((path, summary))
    (sweep,) = of_runs(runs)
    assert sweep.unit == "requests/s" and [point.load for point in sweep.points] == [100, 200]


# --- the page of the archive


def data_of(html: str) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(html.split('id="data">')[1].split("</script>")[0])
    return found


def test_an_archive_of_several_runs_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    swept(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert f"6 runs: {tmp_path / 'index.html'}" in capsys.readouterr().out
    html = (tmp_path / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', html)
    assert len(links) == 6 and all((tmp_path / link).is_file() for link in links)
    assert "phase.load.workers" in html
    assert '<td class="gap main">' not in html, "nothing is bold that may be chance"
    for cell in ("begin, UTC", "release", "18.2.7 reef", "p99 ms", "2023-11-14"):
        assert cell in html, cell
    assert "<b>knee</b>, <b>highest throughput</b>" in html
    drawn = data_of(html)["sweeps"]
    assert [its["knee"] for its in drawn] == [3] and drawn[0]["points"][3]["load"] == 8


def test_a_run_that_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    fastest = swept(tmp_path, (2, 4, 8))[-1]
    (fastest / "complete").unlink()
    assert main(["report", str(tmp_path)]) == 4
    html = (tmp_path / "index.html").read_text()
    named = "Incomplete and invalid runs make no sweep: 00000000/id-00000008 (incomplete)."
    assert named in html
    assert len(data_of(html)["sweeps"][0]["points"]) == 2
    capsys.readouterr()
    pytest.importorskip("matplotlib")
    assert main(["report", str(tmp_path), "--plots", str(tmp_path / "plots"), "--format", "text"]) == 4
    assert "not in the sweeps: 00000000/id-00000008 (incomplete)" in capsys.readouterr().err


def test_attempts_that_were_cut_short_come_after_the_complete_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    for attempt in swept(tmp_path, (2, 4, 8))[:2]:
        (attempt / "complete").unlink()
    assert main(["report", str(tmp_path)]) == 4
    out, html = capsys.readouterr().out, (tmp_path / "index.html").read_text()
    for told in (out, html.split("<tbody>")[1]):
        assert list(dict.fromkeys(re.findall(r"00000000/id-(\w+)", told))) == ["00000008", "00000002", "00000004"]


def test_one_run_has_none(tmp_path: Path) -> None:
    made.small(tmp_path)
    main(["report", str(tmp_path)])
    assert not (tmp_path / "index.html").exists()


def test_nothing_is_written_with_text(tmp_path: Path) -> None:
    swept(tmp_path, (2, 8))
    main(["report", str(tmp_path), "--format", "text"])
    assert not (tmp_path / "index.html").exists()
