"""hsbench's CSV and JSON: recorded runs, and the numbers of its README."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from cbt_plugins.results.importers import hsbench
from cbt_plugins.results.importers.client_parts import measurements
from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import Measurement, RunRecord

DATA = Path(__file__).parent.parent / "data" / "imported" / "hsbench"


def line_of(measurements: Sequence[Measurement], phase: str, metric: str) -> Measurement:
    return next(its for its in measurements if its.phase == phase and its.metric == metric)


def value(record: RunRecord, phase: str, metric: str) -> Any:
    return line_of(record.measurements, phase, metric).value


def codes(record: RunRecord) -> List[str]:
    return [warning.code for warning in record.warnings]


def row(name: str, seconds: float, mode: str, ops: int, mbps: float, iops: float, slow: int = 0) -> List[Any]:
    return [0, name, seconds, mode, ops, mbps, iops, 1.2, 2.1, 3.4, 63.1, slow]


def text_of(rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(hsbench.COLUMNS)
    writer.writerows(rows)
    return out.getvalue()


def test_the_example_of_the_readme() -> None:
    text = text_of(
        [
            row("TOTAL", 10.0, "PUT", 47783, 18.66, 4777),
            row("TOTAL", 10.0, "GET", 11222, 4.37, 1118),
            row("TOTAL", 8.6, "DEL", 47783, 21.61, 5532),
        ]
    )
    lines, _, usable = measurements(hsbench.parse(text, "0").loops[0])
    assert line_of(lines, "PUT", "obj_per_s").value == pytest.approx(4777)
    put = line_of(lines, "PUT", "mib_per_s").value
    assert put == pytest.approx(4777 * 4096 / 2**20) and round(put or 0, 2) == 18.66  # its MB/s are MiB/s
    assert not [its for its in lines if its.phase == "DEL" and its.metric == "mib_per_s"]  # nobody moved them
    assert line_of(lines, "DEL", "obj_per_s").op == "DELETE" and usable


def test_csv_and_json_say_the_same() -> None:
    for of_csv, of_json in zip(read_imported(DATA / "twice.csv"), read_imported(DATA / "twice.json")):
        assert of_csv.config == of_json.config
        assert of_csv.config["load.op_size"] == 4096
        for one, other in zip(of_csv.measurements, of_json.measurements):
            assert (one.phase, one.op, one.metric, one.n) == (other.phase, other.op, other.metric, other.n)
            assert one.value == pytest.approx(other.value, rel=0.01)


def test_a_loop_is_a_run() -> None:
    assert [record.name for record in read_imported(DATA / "twice.json")] == ["twice.json loop 1", "twice.json loop 2"]
    first, second = read_imported(DATA / "twice.json")
    assert value(first, "PUT", "obj_per_s") == pytest.approx(1366.698, abs=0.001)
    assert value(second, "PUT", "obj_per_s") == pytest.approx(1339.789, abs=0.001)


def test_the_intervals_are_the_series_and_no_more_than_the_total() -> None:
    raw = json.loads((DATA / "twice.json").read_text())
    record = read_imported(DATA / "twice.json")[0]
    for mode in ("PUT", "GET", "DEL"):
        mine = [its for its in raw if its["Loop"] == 0 and its["Mode"] == mode]
        line = line_of(record.measurements, mode, "obj_per_s")
        assert line.series == pytest.approx([its["Ops"] for its in mine[:-1]])
        assert sum(line.series or ()) <= mine[-1]["Ops"] == line.n


def test_the_body_of_a_get_is_in_no_latency_and_it_says_so() -> None:
    assert "get-without-body" in codes(read_imported(DATA / "twice.json")[0])


def test_slowdowns_are_failed_requests() -> None:
    (record,) = read_imported(DATA / "slow.json")
    assert value(record, "PUT", "success_rate") == pytest.approx(65 / 66)
    assert line_of(record.measurements, "PUT", "obj_per_s").n == 65
    assert "errors" in codes(record) and record.usable


def test_seconds_after_the_first_thread_has_ended_are_in_no_series() -> None:
    (record,) = read_imported(DATA / "slow.json")
    line = line_of(record.measurements, "PUT", "obj_per_s")
    assert line.series == pytest.approx([14, 2, 11, 3, 3, 6, 1, 22])
    assert line.value == pytest.approx(65 / 11.0056, rel=1e-4)
    assert "no-intervals" in codes(record)


@pytest.mark.parametrize(
    ("slow", "threads", "intervals", "usable"),
    [
        (2, None, 10, True),  # nobody gave up
        (3, None, 10, False),  # one may have
        (3, 4, 10, True),  # the intervals of all threads go on to the end
        (3, 4, 5, False),  # those of one have ended
        (12, 4, 10, False),  # all may have: the end is theirs
    ],
)
def test_threads_that_gave_up_make_a_run_unusable(
    slow: int, threads: Optional[int], intervals: int, usable: bool
) -> None:
    rows = [row(str(i), 1.0, "PUT", 100, 0.39, 100) for i in range(intervals)]
    rows.append(row("TOTAL", 10.02, "PUT", 1002, 0.39, 100, slow))
    assert hsbench.parse(text_of(rows), "0", threads).usable is usable


@pytest.mark.parametrize("name", ["stale.csv", "stale.json"])
def test_what_a_longer_run_left_is_not_read(name: str) -> None:
    (record,) = read_imported(DATA / name)
    assert line_of(record.measurements, "PUT", "obj_per_s").n == 917
    assert line_of(record.measurements, "PUT", "obj_per_s").series == pytest.approx([525, 390])
    assert "stale-tail" in codes(record)


def test_an_interval_of_two_seconds_is_a_step_of_two_seconds() -> None:
    rows = [row(str(i), 2.0, "PUT", 200 + i, 0.39, 100) for i in range(4)]
    lines, _, _ = measurements(
        hsbench.parse(text_of([*rows, row("TOTAL", 8.0, "PUT", 806, 0.39, 100.75)]), "0").loops[0]
    )
    line = line_of(lines, "PUT", "obj_per_s")
    assert line.step == 2 and line.series == pytest.approx([100, 100.5, 101, 101.5])


def by_hand(processes: Sequence[Sequence[Dict[str, Any]]], mode: str) -> Tuple[float, float]:
    """(common seconds, requests in them): every process's time cut into milliseconds."""
    spans = []
    for lines in processes:
        begin = 0.0
        for line in lines:
            if line["IntervalName"] == "TOTAL":
                if line["Mode"] == mode:
                    spans.append((begin, begin + line["Seconds"]))
                begin += line["Seconds"]
    low, high = max(a for a, _ in spans), min(b for _, b in spans)
    done = 0.0
    for lines, (begin, end) in zip(processes, spans):
        its = [line for line in lines if line["Mode"] == mode]
        pieces = [(line["Seconds"], line["Ops"]) for line in its[:-1]]
        pieces.append((end - begin - sum(s for s, _ in pieces), its[-1]["Ops"] - sum(n for _, n in pieces)))
        at = begin
        for seconds, ops in pieces:
            for i in range(1000):
                if low <= at + seconds * (i + 0.5) / 1000 < high:
                    done += ops / 1000
            at += seconds
    return high - low, done


def test_processes_are_cut_to_their_common_time() -> None:
    (record,) = read_imported(DATA / "archive")
    files = sorted(DATA.glob("archive/results/*/*/output.*.json.*"))
    processes = [json.loads(file.read_text()) for file in files]
    assert len(files) == 2
    for mode in ("PUT", "GET", "DEL"):
        seconds, done = by_hand(processes, mode)
        assert value(record, mode, "obj_per_s") == pytest.approx(done / seconds, rel=2e-3)
    # the sum of the TOTALs is more than both ever did together
    total = sum(
        line["Iops"] for its in processes for line in its if line["Mode"] == "DEL" and line["IntervalName"] == "TOTAL"
    )
    assert not math.isclose(value(record, "DEL", "obj_per_s"), total, rel_tol=2e-3)
    assert "no-clock" in codes(record) and "common-window" in codes(record)


def test_percentiles_of_two_processes_are_none_and_means_are_weighted() -> None:
    (record,) = read_imported(DATA / "archive")
    totals = [
        line
        for file in sorted(DATA.glob("archive/results/*/*/output.*.json.*"))
        for line in json.loads(file.read_text())
        if line["Mode"] == "PUT" and line["IntervalName"] == "TOTAL"
    ]
    n = sum(line["Ops"] for line in totals)
    assert value(record, "PUT", "p99_ms") is None and "percentiles-not-merged" in codes(record)
    assert value(record, "PUT", "mean_ms") == pytest.approx(sum(line["Ops"] * line["AvgLat"] for line in totals) / n)
    assert value(record, "PUT", "max_ms") == max(line["MaxLat"] for line in totals)


def test_modes_that_prepare_do_not_decide_whether_a_run_is_complete(tmp_path: Path) -> None:
    """Of tenths of a second, and without a clock: that two clients made their buckets together is not known."""
    for number, cleared in ((1, 0.9), (2, 0.1)):
        rows = [row("TOTAL", cleared, "BCLR", 90, 0, 100), row("TOTAL", 0.1, "BINIT", 2, 0, 20)]
        rows.append(row("TOTAL", 10.0, "PUT", 4770, 1.86, 477))
        (tmp_path / f"output.0.csv.client{number}").write_text(text_of(rows))
    (record,) = read_imported(tmp_path)
    assert "no-common-window" in codes(record) and record.usable
    assert value(record, "PUT", "obj_per_s") == pytest.approx(954, rel=0.01)


def test_what_is_nothing_of_hsbench_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", '[{"IntervalName": "TOTAL"}]', "Loop,Inteval,Duration(s)\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(Unreadable):
            read_imported(tmp_path / "x")


def test_the_two_digits_of_its_table_are_bins() -> None:
    of_csv, of_json = (read_imported(DATA / f"twice.{form}")[0].measurements for form in ("csv", "json"))
    for metric in ("mean_ms", "p99_ms", "max_ms"):
        assert line_of(of_csv, "PUT", metric).bin == 0.01 and line_of(of_json, "PUT", metric).bin == 0
    assert line_of(of_csv, "PUT", "obj_per_s").bin == pytest.approx(0.01)


@pytest.mark.parametrize("total", ["ALL", "TOTAL"])
def test_what_it_printed(tmp_path: Path, total: str) -> None:
    """A published run; by hand: 11086 requests at 1104 a second, of 4 KiB."""
    (tmp_path / "x.log").write_text((DATA / "printed.txt").read_text().replace("Int: ALL", f"Int: {total}"))
    (record,) = read_imported(tmp_path / "x.log")
    its = {line.metric: line for line in record.measurements if line.op == "GET"}
    assert its["obj_per_s"].value == pytest.approx(1104) and its["obj_per_s"].bin == pytest.approx(1)
    assert its["obj_per_s"].series == pytest.approx([1190, 1142, 1111, 1113, 1083, 1089, 1122, 1089, 1059])
    assert its["mib_per_s"].value == pytest.approx(1104 * 4096 / 2**20)
    assert (its["mean_ms"].value, its["p99_ms"].value, its["max_ms"].value) == (0.8, 1.1, 5.7)
    assert its["p99_ms"].bin == pytest.approx(0.1) and record.config["load.op_size"] == 4096


def test_threads_that_it_printed_can_be_compared(tmp_path: Path) -> None:
    text = (DATA / "printed.txt").read_text()
    printed = re.search(r"threads=(\d+)", text)
    assert printed
    for name, threads in (("few", int(printed[1])), ("many", 4096)):
        (tmp_path / name).write_text(text.replace(printed[0], f"threads={threads}"))
        assert read_imported(tmp_path / name)[0].config["load.threads"] == threads


def test_what_it_printed_is_no_second_client(tmp_path: Path) -> None:
    for name in ("slow.csv", "slow.json"):
        shutil.copy(DATA / name, tmp_path / name)
    alone = read_imported(tmp_path)
    shutil.copy(DATA / "printed.txt", tmp_path / "log.txt")
    assert [its.measurements for its in read_imported(tmp_path)] == [its.measurements for its in alone]


def _mode(mode: str, loop: int = 0, *, ends: bool = True) -> List[List[Any]]:
    intervals = [[loop, *row(str(i), 1.0, mode, 100, 0.39, 100)[1:]] for i in range(20)]
    return intervals + [[loop, *row("TOTAL", 20.0, mode, 2000, 0.39, 100)[1:]]] * ends


@pytest.mark.parametrize(
    ("left", "code"),
    [
        ([*_mode("PUT"), *_mode("GET", ends=False)], "torn-output"),
        (_mode("PUT"), "missing-client"),
        ([*_mode("PUT"), *_mode("GET"), *_mode("PUT", 1)], "missing-client"),
        ([*_mode("PUT"), *_mode("GET"), *_mode("PUT", 1), *_mode("GET", 1)], None),
    ],
)
def test_a_client_that_was_broken_off_makes_the_run_unusable(
    tmp_path: Path, left: List[List[Any]], code: Optional[str]
) -> None:
    full = [*_mode("PUT"), *_mode("GET"), *(line for line in [*_mode("PUT", 1), *_mode("GET", 1)] if left[-1][0])]
    for client, rows in (("client1", full), ("client2", left)):
        (tmp_path / f"output.0.csv.{client}").write_text(text_of(rows))
    records = read_imported(tmp_path)
    assert {its for record in records for its in codes(record)} >= ({code} if code else set())
    assert records[-1].usable is (code is None)
    for client, rows in (("client1", left), ("client2", left)):  # both alike: only the torn mode is seen
        (tmp_path / f"output.0.csv.{client}").write_text(text_of(rows))
    assert all(record.usable is (code != "torn-output") for record in read_imported(tmp_path))


def test_a_client_without_a_file_in_the_folder_of_a_mode_is_missing(tmp_path: Path) -> None:
    for mode, clients in (("PUT", ("node1", "node2")), ("GET", ("node1",))):
        (tmp_path / mode).mkdir()
        for client in clients:
            (tmp_path / mode / f"{client}.csv").write_text(text_of(_mode(mode)))
    (record,) = read_imported(tmp_path)
    (text,) = [warning.text for warning in record.warnings if warning.code == "missing-client"]
    assert not record.usable and "no result of node2" in text


def test_an_interrupted_copy_is_not_read_instead_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "node1.csv").write_text(text_of(_mode("PUT")))
    (tmp_path / "node1.csv.gz").write_bytes(gzip.compress(text_of(_mode("PUT")).encode())[:-20])
    (record,) = read_imported(tmp_path)
    assert record.usable


def test_files_of_different_modes_are_no_lost_clients(tmp_path: Path) -> None:
    for mode in ("PUT", "GET"):
        (tmp_path / f"{mode}.csv").write_text(text_of(_mode(mode)))
    (record,) = read_imported(tmp_path)
    assert record.usable and "missing-client" not in codes(record)
