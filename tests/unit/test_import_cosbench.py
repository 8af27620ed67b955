"""COSbench's tables: a published run, the two of a talk, made from its slides, and made ones with several stages."""

from __future__ import annotations

import gzip
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compare_records import side

from cbt_plugins.compare.gate import GateLimits, gate, of_texts
from cbt_plugins.compare.table import Rules
from cbt_plugins.results.importers import cosbench
from cbt_plugins.results.importers.cosbench import tables
from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import RunRecord

DATA = Path(__file__).parent.parent / "data" / "imported" / "cosbench"
PUBLIC = DATA.with_name("cosbench-public")
HEAD = "Op-Type\tOp-Count\tByte-Count\tAvg-ResTime\tAvg-ProcTime\tThroughput\tBandwidth\tSucc-Ratio"
TIMES = "Op-Type\t60%-RT\t80%-RT\t90%-RT\t95%-RT\t99%-RT\t100%-RT"
#: as published
HYBRID = f"""\
General Report
{HEAD}
read\t4.46 mops\t237.03 TB\t616.61 ms\t50.02 ms\t25.79 op/s\t1.37 GB/S\t99.49%
list\t740.94 kops\t0 B\t5.95 ms\t5.95 ms\t4.29 op/s\t0 B/S\t99.48%
write\t1.19 mops\t63.26 TB\t574.48 ms\t78.97 ms\t6.91 op/s\t366.11 MB/S\t100%
delete\t1.04 mops\t0 B\t16.71 ms\t16.71 ms\t6.05 op/s\t0 B/S\t100%
ResTime (RT) Details
{TIMES}
read\t< 80 ms\t< 250 ms\t< 820 ms\t< 1,020 ms\t< 12,700 ms\t< 16,870 ms
list\t< 10 ms\t< 10 ms\t< 10 ms\t< 20 ms\t< 50 ms\t< 1,530 ms
write\t< 70 ms\t< 250 ms\t< 790 ms\t< 980 ms\t< 11,870 ms\t< 17,500 ms
delete\t< 10 ms\t< 30 ms\t< 50 ms\t< 70 ms\t< 120 ms\t< 10,110 ms
"""
DELWRITE = f"""\
General Report
{HEAD}
write\t305.56 kops\t16.13 TB\t462.57 ms\t62.69 ms\t42.45 op/s\t2.24 GB/S\t100%
delete\t203.46 kops\t0 B\t12.7 ms\t12.7 ms\t28.27 op/s\t0 B/S\t100%
ResTime (RT) Details
{TIMES}
write\t< 20 ms\t< 240 ms\t< 660 ms\t< 730 ms\t< 8,770 ms\t< 12,450 ms
delete\t< 20 ms\t< 20 ms\t< 20 ms\t< 20 ms\t< 70 ms\t< 10,040 ms
"""


def value(record: RunRecord, op: str, metric: str) -> Any:
    return next(its.value for its in record.measurements if (its.op, its.metric) == (op, metric))


@pytest.mark.parametrize(("workload", "page"), [("w13", HYBRID), ("w15", DELWRITE)])
def test_the_published_tables_are_printed_as_they_were(workload: str, page: str) -> None:
    lines = [line for line in cosbench.lines(DATA / "workloads.csv") if line.workload == workload]
    assert tables(lines) == page


@pytest.mark.parametrize("name", ["", "workloads.csv", "run-history.csv"])
def test_a_workload_is_a_record(name: str) -> None:
    hybrid, delwrite = read_imported(DATA / name if name else DATA)
    assert (hybrid.name, delwrite.name) == ("w13-hybrid2x", "w15-delWrite2hr")
    assert value(hybrid, "read", "obj_per_s") == 25.79
    assert value(hybrid, "read", "mib_per_s") == pytest.approx(1371606000 / 2**20)
    assert value(hybrid, "read", "success_rate") == 0.9949
    assert (value(hybrid, "write", "mean_ms"), value(hybrid, "write", "p99_ms")) == (574.48, 11870)
    assert (value(delwrite, "delete", "p90_ms"), value(delwrite, "delete", "max_ms")) == (20, 10040)
    assert {its.open_ends for its in hybrid.measurements if its.metric in ("p90_ms", "max_ms")} == {(10.0, 0.0)}
    assert not [its for its in hybrid.measurements if its.op == "list" and its.metric == "mib_per_s"]
    assert hybrid.config["phase.s1-main.mix"] == "delete:14 list:10 read:60 write:16"
    assert hybrid.config["phase.s1-main.workers"] == 20 and hybrid.usable


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_times_do_not_depend_on_the_zone_of_the_reader(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        started = [record.started for record in read_imported(DATA)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert started == [1560115143.0, 1560291635.0]  # 2019-06-09 21:19:03, 2019-06-11 22:20:35


def test_a_published_run_whose_last_column_has_commas() -> None:
    (record,) = read_imported(DATA.parent / "cosbench-public" / "w55-1cont_4kb.csv")
    found = {(its.phase, its.op, its.metric): its.value for its in record.measurements}
    stage = "s2-w(4)KB_c1_o1000_r80w15d5_1"
    assert found[stage, "read", "obj_per_s"] == 74.45 and found[stage, "read", "success_rate"] == 0.7487
    assert found[stage, "delete", "p99_ms"] == 100 and found["s20-cleanup", "cleanup-delete", "max_ms"] == 60
    assert found["s10-w(4)KB_c1_o1000_r0w100d0_64", "write", "mib_per_s"] == pytest.approx(2025430.67 / 2**20)
    assert record.usable and "errors" in {warning.code for warning in record.warnings}


def test_its_percentiles_are_upper_bounds_and_say_so() -> None:
    assert "upper-bounds" in [warning.code for warning in read_imported(DATA)[0].warnings]


def test_littles_law_says_how_many_workers_there_were() -> None:
    (hybrid, _) = read_imported(DATA)
    busy = sum(
        value(hybrid, op, "obj_per_s") * value(hybrid, op, "mean_ms") / 1000
        for op in ("read", "list", "write", "delete")
    )
    assert busy == pytest.approx(hybrid.config["phase.s1-main.workers"], rel=1e-3)


TABLE = """\
Stage,Op-Name,Op-Type,Op-Count,Byte-Count,Avg-ResTime,Avg-ProcTime,60%-ResTime,80%-ResTime,90%-ResTime,95%-ResTime,\
99%-ResTime,100%-ResTime,Throughput,Bandwidth,Succ-Ratio,Status,Detailed Status
s1-init,init,init,5,0,100,100,110,110,110,110,110,110,10,0,100%,completed,waiting @ 2026-01-01 00:00:00,\
completed @ 2026-01-01 00:00:01
s2-read,read,read,600,6000,10,5,10,20,20,20,30,40,60,600,100%,completed,waiting @ 2026-01-01 00:00:00
s3-again,read,read,300,3000,20,10,20,40,40,40,60,80,30,300,50%,{state},waiting @ 2026-01-01 00:00:00
s4-delay,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,completed,waiting @ 2026-01-01 00:00:00
s5-list,list,list,0,0,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,0,0,N/A,completed,waiting @ 2026-01-01 00:00:00
"""


def test_all_stages_of_a_workload_are_kept(tmp_path: Path) -> None:
    (tmp_path / "w7-x.csv").write_text(TABLE.format(state="completed"))
    (record,) = read_imported(tmp_path / "w7-x.csv")
    rates = {its.phase: its.value for its in record.measurements if its.metric == "obj_per_s"}
    assert rates == {"s1-init": 10, "s2-read": 60, "s3-again": 30, "s5-list": 0}
    assert record.config["phases"] == "s1-init s2-read s3-again s5-list"
    assert not record.usable, "the stage of lists did nothing"
    assert "s2-read: read" in tables(cosbench.lines(tmp_path / "w7-x.csv"))


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    for name in ("workloads.csv", "run-history.csv"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((DATA / name).read_bytes()))
    expected = [replace(record, source="") for record in read_imported(DATA)]
    for path in (tmp_path, tmp_path / "workloads.csv.gz", tmp_path / "run-history.csv.gz"):
        assert [replace(record, source="") for record in read_imported(path)] == expected
    (tmp_path / "w7-x.csv.gz").write_bytes(gzip.compress(TABLE.format(state="completed").encode()))
    assert [record.name for record in read_imported(tmp_path / "w7-x.csv.gz")] == ["w7-x"]


def test_a_workload_that_failed_is_not_usable(tmp_path: Path) -> None:
    (tmp_path / "w7-x.csv").write_text(TABLE.format(state="aborted"))
    assert not read_imported(tmp_path / "w7-x.csv")[0].usable
    for name in ("workloads.csv", "run-history.csv"):
        text = (DATA / name).read_text()
        (tmp_path / name).write_text(
            text.replace("delete,finished,processing @ 2019-06-09", "delete,terminated,x @ 2019")
        )
    hybrid, delwrite = read_imported(tmp_path)
    assert not hybrid.usable and delwrite.usable


def test_a_workload_in_an_archive_of_cbt(tmp_path: Path) -> None:
    run = tmp_path / "results" / "00000000" / "id-1"
    (run / "w7-x").mkdir(parents=True)
    (run / "w7-x" / "w7-x.csv").write_text(TABLE.format(state="completed"))
    (record,) = read_imported(tmp_path)
    assert record.kind == "cosbench"


def test_without_a_history_there_are_numbers_all_the_same(tmp_path: Path) -> None:
    shutil.copy(DATA / "workloads.csv", tmp_path)
    assert [record.name for record in read_imported(tmp_path / "workloads.csv")] == ["w13", "w15"]


def test_what_is_nothing_of_cosbench_is_refused(tmp_path: Path) -> None:
    shutil.copy(DATA / "run-history.csv", tmp_path)
    with pytest.raises(Unreadable):
        read_imported(tmp_path / "run-history.csv")  # it has no numbers
    for text in ("Id,Op-Name,Op-Count,\nw1-s1-1,read,x\n", "Stage,Op-Name,Op-Type,\n"):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(Unreadable):
            read_imported(tmp_path / "x.csv")


def test_javas_largest_integer_is_no_time_and_one_request_has_no_percentile(tmp_path: Path) -> None:
    row = "s2-read,read,read,{n},6000,10,5,10,20,{p},20,{p},{p},60,600,100%,completed,waiting @ 2026-01-01 00:00:00\n"
    head = TABLE.splitlines()[0] + "\n"
    (tmp_path / "w7-x.csv").write_text(head + row.format(n=600, p=9223372036854775807))
    (record,) = read_imported(tmp_path / "w7-x.csv")
    found = {its.metric for its in record.measurements}
    assert found == {"obj_per_s", "mib_per_s", "success_rate", "mean_ms", "p95_ms"}
    assert "N/A" in tables(cosbench.lines(tmp_path / "w7-x.csv"))
    (tmp_path / "w7-x.csv").write_text(head + row.format(n=1, p=30))
    (record,) = read_imported(tmp_path / "w7-x.csv")
    assert not [its for its in record.measurements if its.metric in ("p90_ms", "p95_ms", "p99_ms")]
    assert value(record, "read", "max_ms") == 30


def test_its_two_digits_are_bins() -> None:
    record = cosbench.read(DATA / "workloads.csv")[0]
    bins = {its.metric: its.bin for its in record.measurements}
    assert bins["obj_per_s"] == bins["mean_ms"] == 0.01 and bins["success_rate"] == 0.0001 and bins["p99_ms"] == 10


@pytest.mark.parametrize(
    ("limit", "word"), [("25ms", "ok"), ("20ms", "ok"), ("15ms", "inconclusive"), ("9ms", "regression")]
)
def test_a_percentile_may_be_below_the_end_of_its_bin_and_not_above(tmp_path: Path, limit: str, word: str) -> None:
    row = "s2-read,read,read,600,6000,10,5,10,20,20,20,20,20,60,600,100%,completed,\n"
    (tmp_path / "w7-x.csv").write_text(f"{TABLE.splitlines()[0]}\n{row}")
    run = side("a", read_imported(tmp_path / "w7-x.csv"))
    assert gate(run, [run], GateLimits(tuple(of_texts([f"read.p99_ms<={limit}"]))), Rules()).outcome.word == word


def test_nothing_that_ended_well_is_said(tmp_path: Path) -> None:
    """It writes N/A for a success ratio of 0, and for one that it does not know."""
    lines = (DATA / "workloads.csv").read_text().splitlines()
    fields = lines[1].split(",")
    fields[2:4], fields[5:16] = ["0", "0"], [*["N/A"] * 8, "0", "0", "N/A"]
    (tmp_path / "workloads.csv").write_text("\n".join([lines[0], ",".join(fields)]) + "\n")
    (record,) = cosbench.read(tmp_path / "workloads.csv")
    (text,) = [warning.text for warning in record.warnings if warning.code == "no-requests"]
    assert "no read succeeded" in text and not record.usable


def test_a_torn_line_is_refused(tmp_path: Path) -> None:
    text = (DATA / "workloads.csv").read_text()
    (tmp_path / "workloads.csv").write_text(text[: text.index("25.79") + 4])
    with pytest.raises(Unreadable, match="a line has no end"):
        cosbench.read(tmp_path / "workloads.csv")


def line(record: RunRecord, stage: str, op: str, metric: str) -> Any:
    (its,) = [its for its in record.measurements if (its.phase, its.op, its.metric) == (stage, op, metric)]
    return its.value


def test_a_published_run_in_which_a_node_failed() -> None:
    (record,) = read_imported(PUBLIC / "w161-delete_write.csv")
    assert line(record, "s1-no_failure", "write", "obj_per_s") == 354.61
    assert line(record, "s3-node_failure", "write", "mib_per_s") == pytest.approx(7025343535.17 / 2**20)
    assert line(record, "s3-node_failure", "write", "success_rate") == 0.9999
    assert line(record, "s3-node_failure", "write", "p99_ms") == 2180
    assert line(record, "s2-osd_failure", "delete", "max_ms") == 3530
    worst = {its.phase for its in record.measurements if (its.op, its.metric) == ("delete", "max_ms")}
    assert worst == {"s1-no_failure", "s2-osd_failure"}  # then above all bins
    assert [its.text for its in record.warnings if its.code == "errors"] == [
        "s3-node_failure: 0.01 % of write failed; rates and latencies lack these requests"
    ]


def test_stages_in_which_nothing_is_counted_are_no_errors() -> None:
    (record,) = read_imported(PUBLIC / "w45-4KB.csv")
    assert record.config["phases"] == "s1-init s2-prepare s3-main-1worker s13-dispose"
    assert line(record, "s3-main-1worker", "read", "mean_ms") == 6.97
    assert "errors" not in [its.code for its in record.warnings] and record.usable
