"""CBT's own benchmarks beside a fault file: recorded runs of librbdfio and of hsbench, and what is told of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest

from cbt_plugins.metrics import CLUSTER
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.run_record import RunRecord
from cbt_plugins.tools.__main__ import main

DATA = Path(__file__).parent.parent / "data" / "imported" / "faults"
HSBENCH, FIO = "id-bae3d46a", "id-41067571"


def record_of(archive: Path, run: str = HSBENCH) -> RunRecord:
    (record,) = [its for its in records_of(archive) if its.name.endswith(run)]
    return record


def value(record: RunRecord, phase: str, op: str, metric: str) -> Any:
    return next(its.value for its in record.measurements if (its.phase, its.op, its.metric) == (phase, op, metric))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "archive"))


def journal(archive: Path, run: str = HSBENCH) -> Path:
    return next(path for path in archive.glob("faults/*/events.jsonl") if run in path.read_text())


def rewrite(path: Path, keep: Any) -> None:
    """Keep some lines of a journal, or change them in place."""
    lines: List[Dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if keep(line)))


@pytest.mark.parametrize("run", [HSBENCH, FIO])
def test_a_run_has_the_faults_that_were_injected_during_it(run: str) -> None:
    record = record_of(DATA, run)
    assert record.usable and record.failure is not None
    assert record.config["load.faults"] == "10s:stop*1 25s:undo*1"
    failure, back = record.failure["episodes"]
    begun = next(json.loads(line) for line in journal(DATA, run).read_text().splitlines() if '"begun"' in line)["at"]
    assert failure["begin"] - begun == pytest.approx(10, abs=0.1) and failure["osds"] == [6, 7]
    assert back["begin"] - begun == pytest.approx(25, abs=0.1) and back["kind"] == "return"


def test_hsbench_has_the_clock_of_its_faults() -> None:
    """Its own results have none: its modes follow one another from the begin of the load."""
    record = record_of(DATA)
    (rate,) = [its for its in record.measurements if (its.phase, its.metric) == ("PUT", "obj_per_s")]
    files = sorted((DATA / "results" / "00000000" / HSBENCH).glob("output.*"))
    modes = [[line for line in json.loads(path.read_text()) if line["IntervalName"] == "TOTAL"] for path in files]
    made = max(lines[0]["Seconds"] for lines in modes)  # all clients have made their buckets
    assert rate.start is not None and record.started is not None
    assert rate.start == pytest.approx(record.started + made) and record.started == 1795291228.702


@pytest.mark.parametrize(("run", "phase", "op"), [(HSBENCH, "PUT", "PUT"), (FIO, "randwrite", "write")])
def test_rates_of_the_states_are_those_of_their_seconds(run: str, phase: str, op: str) -> None:
    record = record_of(DATA, run)
    (rate,) = [its for its in record.measurements if (its.phase, its.op, its.metric) == (phase, op, "obj_per_s")]
    states = [its for its in record.measurements if its.phase.startswith(f"{phase} / ") and its.metric == "obj_per_s"]
    assert rate.series and rate.start is not None and record.failure is not None
    assert sum(its.n or 0 for its in states) == pytest.approx(sum(rate.series), abs=len(states))
    assert [its.phase for its in states][:3] == [
        f"{phase} / {state}" for state in ("no failure", "failing", "degraded")
    ]
    calm = int(record.failure["episodes"][0]["begin"] - rate.start)  # whole seconds before the fault
    assert states[0].value == pytest.approx(sum(rate.series[:calm]) / calm, rel=0.05)


def test_a_comparison_has_the_failure(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(DATA, FIO)
    assert value(record, "a return", CLUSTER, "recovery_s") == pytest.approx(24.9, abs=0.1)
    assert value(record_of(DATA), "a return", CLUSTER, "recovery_s") is None  # it was not watched so long
    base, other = (DATA / "results" / "00000000" / FIO, archive / "results" / "00000000" / FIO)
    assert main(["compare", "--phase", "*", str(base), str(other)]) == 0
    said = capsys.readouterr().out
    assert "randwrite / returning" in said and "a return" in said


def test_a_run_without_a_failure_is_another_load(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(archive / "faults")
    config = archive / "results" / "cbt_config.yaml"
    config.write_text(config.read_text().replace("  faults:\n    file: faults.yaml\n", ""))
    assert record_of(archive).config["load.faults"] == "none" and record_of(archive).failure is None
    runs = [str(where / "results" / "00000000" / HSBENCH) for where in (DATA, archive)]
    assert main(["compare", *runs]) != 0
    assert "load.faults: 10s:stop*1 25s:undo*1 in the base, none in the other" in capsys.readouterr().err


def test_report_tells_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(DATA)]) == 0
    said = capsys.readouterr().out
    for text in (
        "PUT / degraded",
        "randwrite / clean again",
        "during the load: 10s:stop*1",
        "failure of a: not recovered",
    ):
        assert text in said


def test_an_archive_without_runs_of_ours_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(DATA), "-o", str(tmp_path / "runs.csv")]) == 4
    assert "no run of cbt-plugins" in capsys.readouterr().err


def test_a_load_that_ran_without_its_faults_is_no_run_of_them(archive: Path) -> None:
    rewrite(journal(archive), lambda line: line["event"] in ("beside", "ended"))
    record = record_of(archive)
    assert not record.usable and record.config["load.faults"] == "none"
    assert "no-faults" in [warning.code for warning in record.warnings]


@pytest.mark.parametrize("killed", [True, False])
def test_faults_that_did_not_all_come_are_said(archive: Path, killed: bool) -> None:
    def keep(line: Dict[str, Any]) -> bool:
        line.update({"why": ["a: refused"]} if line["event"] == "ended" else {})
        return not killed or line["event"] != "ended"

    rewrite(journal(archive), keep)
    record = record_of(archive)
    assert not record.usable and "faults-failed" in [warning.code for warning in record.warnings]


def test_an_event_that_came_late_is_said(archive: Path) -> None:
    rewrite(journal(archive), lambda line: line.update({"late": 3.2} if line["event"] == "event" else {}) is None)
    warnings = {warning.code: warning.text for warning in record_of(archive).warnings}
    assert "3.2 s" in warnings["faults-late"]
    assert "faults-late" not in [warning.code for warning in record_of(DATA).warnings]


def test_without_the_monitor_the_states_are_those_of_the_commands(archive: Path) -> None:
    for path in archive.rglob("recovery.jsonl"):
        path.unlink()
    record = record_of(archive)
    states = {its.phase for its in record.measurements if its.metric == "obj_per_s"}
    assert {"PUT / no failure", "PUT / failed"} <= states and record.usable
