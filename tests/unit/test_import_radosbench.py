"""rados bench: recorded output, as text and as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest

from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import Measurement, RunRecord

DATA = Path(__file__).parent.parent / "data" / "imported" / "radosbench"


def line_of(record: RunRecord, metric: str) -> Measurement:
    return next(its for its in record.measurements if its.metric == metric)


def value(record: RunRecord, metric: str) -> Any:
    return line_of(record, metric).value


def totals(name: str) -> Dict[str, str]:
    pairs = [line.split(":", 1) for line in (DATA / name).read_text().splitlines() if line.count(":") == 1]
    return {key.strip(): text.strip() for key, text in pairs}


def test_text() -> None:
    (record,) = read_imported(DATA / "write.txt")
    said = totals("write.txt")
    assert value(record, "obj_per_s") == pytest.approx(480 / float(said["Total time run"]))
    assert value(record, "mib_per_s") == pytest.approx(float(said["Bandwidth (MB/sec)"]), rel=1e-5)
    assert value(record, "mean_ms") == pytest.approx(1000 * float(said["Average Latency(s)"]))
    assert value(record, "max_ms") == pytest.approx(1000 * float(said["Max latency(s)"]))
    assert line_of(record, "obj_per_s").n == 480
    assert record.config["load.op_size"] == 65536 and record.config["load.queue_depth"] == 4
    assert {its.op for its in record.measurements} == {"write"}


def test_the_series_is_what_was_finished_in_each_second() -> None:
    (record,) = read_imported(DATA / "write.txt")
    assert line_of(record, "obj_per_s").series == pytest.approx([72, 122 - 72, 220 - 122, 309 - 220])
    assert line_of(record, "mib_per_s").series == pytest.approx([4.5, 3.125, 6.125, 5.5625])  # its "cur MB/s"


def test_json() -> None:
    (record,) = read_imported(DATA / "write.json")
    text = (DATA / "write.json").read_text()
    said = json.loads(text[text.index("{") :])
    assert value(record, "obj_per_s") == pytest.approx(1354 / float(said["total_time_run"]))
    assert value(record, "mib_per_s") == pytest.approx(float(said["bandwidth"]), rel=1e-5)
    assert line_of(record, "obj_per_s").series == pytest.approx([432, 275, 235, 295, 113])


def test_times_before_the_lines() -> None:
    (record,) = read_imported(DATA / "rand.txt")
    assert value(record, "obj_per_s") == pytest.approx(5171 / 4.03819)
    assert line_of(record, "obj_per_s").series == pytest.approx([700, 928, 1810, 1729])
    assert {its.op for its in record.measurements} == {"read"}


def test_a_run_of_less_than_a_second_has_no_series() -> None:
    (record,) = read_imported(DATA / "seq.json")
    assert value(record, "obj_per_s") == pytest.approx(1354 / 0.795099)
    assert line_of(record, "obj_per_s").series is None


def test_no_count_of_failures_is_no_success_rate() -> None:
    (record,) = read_imported(DATA / "write.txt")
    assert not any(its.metric == "success_rate" for its in record.measurements)


def test_an_error_makes_it_unusable(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        (DATA / "write.txt").read_text() + "error during benchmark: (110) Connection timed out\n"
    )
    (record,) = read_imported(tmp_path / "x")
    assert not record.usable and "job-failed" in [warning.code for warning in record.warnings]


def test_processes_without_a_clock_are_added_with_a_warning(tmp_path: Path) -> None:
    run = tmp_path / "results" / "00000000" / "id-1"
    for directory, name in (("write", "write.txt"), ("rand", "rand.txt")):
        (run / directory).mkdir(parents=True)
        for host in ("client1", "client2"):
            shutil.copy(DATA / name, run / directory / f"output.0.{host}")
    (record,) = read_imported(tmp_path)
    rates = {its.phase: its for its in record.measurements if its.metric == "obj_per_s"}
    assert rates["write"].value == pytest.approx(2 * 480 / 5.01786)
    assert rates["write"].series == pytest.approx([144, 100, 196, 178])
    assert rates["rand"].value == pytest.approx(2 * 5171 / 4.03819)
    assert "no-clock" in [warning.code for warning in record.warnings]


def test_what_is_cut_off_is_refused(tmp_path: Path) -> None:
    text = (DATA / "write.txt").read_text()
    (tmp_path / "x").write_text(text[: text.index("Total time run")])
    with pytest.raises(Unreadable) as refused:
        read_imported(tmp_path / "x")
    why = "no result of rados bench: total_time_run is missing: it did not come to its end"
    assert str(refused.value) == f"{tmp_path / 'x'}: {why}"


def test_the_words_of_hammer() -> None:
    (record,) = read_imported(DATA / "hammer-write.txt")
    assert value(record, "obj_per_s") == pytest.approx(7430 / 60.231902)
    assert value(record, "mib_per_s") == pytest.approx(493.426, rel=1e-5)
    assert value(record, "mean_ms") == pytest.approx(129.699) and value(record, "max_ms") == pytest.approx(793.961)


def test_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    """The time of one would be taken for the requests of the other."""
    (tmp_path / "x").write_text((DATA / "write.txt").read_text() + (DATA / "rand.txt").read_text())
    with pytest.raises(Unreadable, match="several runs"):
        read_imported(tmp_path / "x")
