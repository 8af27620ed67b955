"""One run beside another by the statements of `acceptable:`: which numbers are taken, and what is never accepted."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import archive_builder as ea
import pytest

from cbt_plugins.metrics import ACCEPTABLE, read
from cbt_plugins.report.export.acceptance import check_statements
from cbt_plugins.results.summary_file import summary_of

PROJECT = Path(__file__).parents[2]
CONFIG = {"benchmark": "warp", "iteration": 0}


def judged(current: Path, baseline: Path, **acceptable: Any) -> List[List[Any]]:
    names = {key.replace("__", "/"): value for key, value in acceptable.items()}
    found = check_statements("w", current, baseline, names)
    return [[one.run, one.alias, one.result, one.baseline, one.accepted] for one in found]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """GET takes 10 ms in one and 20 ms in the other run, PUT 20 ms in both."""
    root = tmp_path_factory.mktemp("pair")
    phases = ("fill", "measure-new", "measure-aged")
    return {
        name: ea.cbt_run(root / name, CONFIG, ea.cheap(latency={"GET": get, "PUT": 0.02}), phases=phases)
        for name, get in (("fast", 0.01), ("slow", 0.02))
    }


def test_every_measurement_is_judged_by_the_total_unless_more_is_said(pair: Dict[str, Path]) -> None:
    found = judged(pair["fast"], pair["slow"], iops_avg="(greater)", PUT__mean_ms="(near 0.01)")
    assert found == [
        ["w/fill/total", "iops_avg", 300.0, 200.0, True],
        ["w/measure-new/total", "iops_avg", 300.0, 200.0, True],
        ["w/measure-aged/total", "iops_avg", 300.0, 200.0, True],
        ["w/fill/PUT", "PUT/mean_ms", 20.0, 20.0, True],
        ["w/measure-new/PUT", "PUT/mean_ms", 20.0, 20.0, True],
        ["w/measure-aged/PUT", "PUT/mean_ms", 20.0, 20.0, True],
    ], "the archive says role measure of all three"
    found = judged(pair["slow"], pair["fast"], **{"measure-aged__GET__p50_ms": "(or (less) (near 0.5))"})
    assert [one[0] for one in found] == ["w/measure-aged/GET"]
    assert found[0][2:4] == [pytest.approx(20.0, rel=1e-3), pytest.approx(10.0, rel=1e-3)]
    assert not found[0][4]


def test_what_does_not_measure_is_judged_only_by_its_name(tmp_path: Path) -> None:
    run = ea.cbt_run(tmp_path / "A", CONFIG, phases=("fill", "measure-new"))
    phase = run / "phases" / "01-fill" / "phase.json"
    phase.write_text(json.dumps({**json.loads(phase.read_text()), "role": "fill"}))
    (run / "summary.json").unlink()
    assert [one[0] for one in judged(run, run, bandwidth="(near 0)")] == ["w/measure-new/total"]
    assert [one[0] for one in judged(run, run, fill__bandwidth="(near 0)")] == ["w/fill/total"]


def test_cbts_own_names_have_cbts_units(pair: Dict[str, Path]) -> None:
    found = judged(
        pair["fast"], pair["slow"], **{f"fill__{a}": "(less)" for a in ("bandwidth", "latency_avg", "iops_stddev")}
    )
    mib, seconds = pytest.approx(300 * 4096 / 2**20, abs=1e-4), pytest.approx(0.0133333, rel=1e-5)
    assert [one[2] for one in found] == [mib, seconds, 0.0]
    assert found[1][4] and not found[0][4]


def test_the_deviation_is_that_of_the_seconds(pair: Dict[str, Path]) -> None:
    summary = summary_of(pair["fast"])
    phase = summary["phases"][0]
    phase["series"]["ops"]["GET"]["obj_per_s"] = [100.0, 300.0] * 5
    assert read(ACCEPTABLE["iops_stddev"], summary, phase, "GET") == pytest.approx(105.409, abs=0.01)
    assert read(ACCEPTABLE["iops_stddev"], summary, phase, "total") == pytest.approx(105.409, abs=0.01)
    assert read(ACCEPTABLE["iops_stddev"], summary, phase, "PUT") == 0.0
    # of the first and the last second the window has half a millisecond
    phase["series"]["ops"]["GET"]["obj_per_s"] = [16000.0, *[100.0, 300.0] * 5, 16000.0]
    phase["series"]["start"] -= 1
    phase["window"].update(start=phase["window"]["start"] - 0.0005, end=phase["window"]["end"] + 0.0005)
    assert read(ACCEPTABLE["iops_stddev"], summary, phase, "GET") == pytest.approx(105.409, abs=0.01)


def test_numbers_of_the_nodes_are_there_when_somebody_watched(pair: Dict[str, Path]) -> None:
    summary = summary_of(pair["fast"])
    phase = summary["phases"][0]
    assert read(ACCEPTABLE["ops_per_core"], summary, phase, "total") is None
    summary["resources"] = {"nodes": [], "phases": {"fill": {"ops_per_core": 12.5, "cores_per_gb_s": None}}}
    assert read(ACCEPTABLE["ops_per_core"], summary, phase, "total") == 12.5
    assert read(ACCEPTABLE["cores_per_gb_s"], summary, phase, "total") is None
    assert read(ACCEPTABLE["ops_per_core"], summary, summary["phases"][1], "total") is None


@pytest.mark.parametrize("who", ["current", "baseline"])
@pytest.mark.parametrize("why", ["interrupted", "missing", "degraded", "lost rows", "marker"])
def test_an_incomplete_run_is_never_accepted(
    tmp_path: Path, who: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = ea.cbt_run(tmp_path / "good", CONFIG)
    bad = ea.cbt_run(tmp_path / "bad", CONFIG, complete=why != "interrupted", summary=why != "lost rows")
    if why == "missing":
        bad = bad.with_name("id-00000000")
    elif why == "degraded":
        (bad / "complete").write_text('{"t": 1.0, "degraded": ["measure-new"]}')
    elif why == "marker":
        (bad / "complete").write_text("[]")
    elif why == "lost rows":
        for aggregates in bad.rglob("*.aggregates"):
            aggregates.unlink()
    current, baseline = (bad, good) if who == "current" else (good, bad)
    for acceptable in ({"bandwidth": "(or (near 1) (greater))"}, {}):
        found = judged(current, baseline, **acceptable)
        states = [0.0, 1.0] if who == "current" else [1.0, 0.0]
        assert found == [["w", "usable", *states, False]]
    says = {"interrupted": "interrupted", "missing": "no such run", "degraded": "not to be trusted: measure-new"}
    assert says.get(why, str(bad)) in caplog.text


def test_a_summary_from_before_the_end_is_not_believed(tmp_path: Path) -> None:
    run = ea.cbt_run(tmp_path / "A", CONFIG, complete=False)
    assert not check_statements("w", run, run, {})[0].accepted
    (run / "complete").write_text("{}")
    assert judged(run, run, bandwidth="(near 0)")[0][4]


def test_without_numpy_a_stored_summary_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ea.cbt_run(tmp_path / "A", CONFIG)
    monkeypatch.setitem(sys.modules, "cbt_plugins.results.summary_numbers", None)
    assert judged(run, run, bandwidth="(near 0)")[0][4]


def test_without_numpy_and_summary_it_is_said_what_to_do(tmp_path: Path) -> None:
    run = ea.cbt_run(tmp_path / "A", CONFIG, summary=False)
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from pathlib import Path; from cbt_plugins.report.export.acceptance import check_statements\n"
        "run = Path(sys.argv[1]); print(check_statements('w', run, run, {'bandwidth': '(near 0)'}))"
    )
    argv = [sys.executable, "-c", program, str(run)]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "alias='usable', result=0.0, baseline=0.0" in done.stdout
    assert "without the Python package numpy" in done.stderr
    assert f"`cbt-tools report {run}` makes one, with pip install 'cbt-plugins[report]'" in done.stderr


def test_a_number_that_is_not_there_is_not_accepted(pair: Dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    acceptable = {"fill__GET__ttfb_p50_ms": "(near 1)", "DELETE__mean_ms": "(near 1)", "x": "(less)"}
    found = judged(pair["fast"], pair["fast"], **acceptable)
    assert [one[4] for one in found] == [False] * 3
    assert all(math.isnan(value) for one in found for value in one[2:4])
    assert "w/fill/GET: ttfb_p50_ms is unknown in one run" in caplog.text
    assert "DELETE/mean_ms: no phase has this" in caplog.text
    assert "unknown metric 'x'" in caplog.text


def test_a_phase_that_only_one_run_has_is_not_accepted(pair: Dict[str, Path], tmp_path: Path) -> None:
    short = ea.cbt_run(tmp_path / "A", CONFIG, phases=("fill", "measure-new"))
    found = judged(short, pair["fast"], bandwidth="(or (less) (or (near 1) (greater)))")
    assert [(one[0], one[4]) for one in found] == [
        ("w/fill/total", True),
        ("w/measure-new/total", True),
        ("w/measure-aged/total", False),
    ]


def test_what_is_no_mapping_is_not_accepted(pair: Dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    assert not check_statements("w", pair["fast"], pair["fast"], ["(less)"])[0].accepted  # type: ignore[arg-type]
    assert "must be a mapping" in caplog.text
