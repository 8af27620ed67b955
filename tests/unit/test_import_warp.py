"""warp's own files without an archive of ours: aggregated data, and request rows."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List

import archive_builder as made
import numpy as np
import pytest

from cbt_plugins.results.importers.warp import read_rows
from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.result_file import PackedFile, Unreadable
from cbt_plugins.results.run_record import RunRecord
from cbt_plugins.tools.__main__ import main

DATA = Path(__file__).parent.parent / "data" / "imported" / "warp"
ROWS = Path(__file__).parent.parent / "data" / "rows"
_MODULES = Path(os.environ.get("GOMODCACHE") or Path.home() / "go" / "pkg" / "mod")
OF_2019 = _MODULES / "github.com/minio/warp@v1.3.1/pkg/bench/testdata/warp-benchdata-get.csv.zst"


def value(record: RunRecord, op: str, metric: str) -> Any:
    return next(its.value for its in record.measurements if (its.op, its.metric) == (op, metric))


def has(record: RunRecord, op: str, metric: str) -> bool:
    return any((its.op, its.metric) == (op, metric) for its in record.measurements)


def codes(record: RunRecord) -> List[str]:
    return [warning.code for warning in record.warnings]


def raw(name: str) -> Dict[str, Any]:
    data: Dict[str, Any] = json.loads(b"".join(PackedFile(DATA / name).chunks()))
    return data


def seconds(op: Dict[str, Any]) -> float:
    end, start = (datetime.fromisoformat(op[key][:26]) for key in ("end_time", "start_time"))
    return (end - start).total_seconds()


def test_aggregated_rates_are_of_all_of_the_run() -> None:
    (record,) = read_imported(DATA / "aggregated.json.zst")
    for name, op in raw("aggregated.json.zst")["by_op_type"].items():
        assert value(record, name, "obj_per_s") == pytest.approx(op["total_requests"] / seconds(op), rel=1e-4)
        assert value(record, name, "success_rate") == 1
        if name in ("GET", "PUT"):
            bytes_ = op["total_requests"] * 4096
            assert value(record, name, "mib_per_s") == pytest.approx(bytes_ / 2**20 / seconds(op), rel=1e-4)
    assert not has(record, "STAT", "mib_per_s")
    assert record.config["load.mode"] == "mixed" and record.config["objects.sizes"] == "4KiB"


def test_aggregated_percentiles_of_several_windows_are_not_taken() -> None:
    (record,) = read_imported(DATA / "aggregated.json.zst")
    windows = next(iter(raw("aggregated.json.zst")["by_op_type"]["GET"]["requests_by_client"].values()))
    assert len(windows) == 3
    assert not any(its.metric in ("p50_ms", "p90_ms", "p99_ms") for its in record.measurements)
    its = [window["single_sized_requests"] for window in windows]
    mean = sum(w["requests"] * w["dur_avg_millis"] for w in its) / sum(w["requests"] for w in its)
    assert value(record, "GET", "mean_ms") == pytest.approx(mean)
    assert value(record, "GET", "max_ms") == max(w["slowest_millis"] for w in its)
    assert "warp-aggregated" in codes(record) and "warp-trimmed" in codes(record)


def test_aggregated_percentiles_of_one_window_are() -> None:
    (record,) = read_imported(DATA / "v1.3.1-mixed-aggregated.json.zst")
    window = next(iter(raw("v1.3.1-mixed-aggregated.json.zst")["by_op_type"]["GET"]["requests_by_client"].values()))[0]
    assert value(record, "GET", "p99_ms") == window["single_sized_requests"]["dur_99_millis"]


def test_failed_requests_are_no_throughput_and_spoil_the_rest() -> None:
    (record,) = read_imported(DATA / "errors.json.zst")
    op = raw("errors.json.zst")["by_op_type"]["PUT"]
    assert op["total_errors"] > 0
    good = op["total_requests"] - op["total_errors"]
    assert value(record, "PUT", "obj_per_s") == pytest.approx(good / seconds(op), rel=1e-4)
    assert value(record, "PUT", "success_rate") == good / op["total_requests"]
    for metric in ("mean_ms", "max_ms", "p99_ms", "mib_per_s"):
        assert not has(record, "PUT", metric)
    assert next(its.series for its in record.measurements if its.metric == "obj_per_s") is None
    assert "errors" in codes(record)


def test_the_series_has_a_value_for_every_second_that_warp_kept() -> None:
    (record,) = read_imported(DATA / "aggregated.json.zst")
    segments = raw("aggregated.json.zst")["by_op_type"]["GET"]["throughput"]["segmented"]["segments"]
    line = next(its for its in record.measurements if (its.op, its.metric) == ("GET", "obj_per_s"))
    assert line.series == tuple(segment["obj_per_sec"] for segment in segments)
    assert len(line.series or ()) < seconds(raw("aggregated.json.zst")["by_op_type"]["GET"])


def by_hand(path: Path) -> List[Dict[str, Any]]:
    """The rows with times in ns."""
    text = b"".join(PackedFile(path).chunks()).decode()
    rows = [row for row in csv.DictReader(io.StringIO(text), delimiter="\t") if row["idx"].isdigit()]
    return [{**row, "begun": _ns(row["start"]), "ended": _ns(row["end"])} for row in rows]


def _ns(text: str) -> int:
    return int(np.datetime64(text[:-6] if text[-6] in "+-" else text[:-1], "ns").astype(np.int64))


@pytest.mark.parametrize("name", ["full.csv.zst", "distributed.csv.zst"])
def test_rows_alone_are_counted_in_the_seconds_of_all_clients(name: str) -> None:
    (record,) = read_imported(DATA / name)
    rows = by_hand(DATA / name)
    clients = {row["client_id"] for row in rows}
    assert len(clients) == (2 if name.startswith("dist") else 1)
    spans = []
    for client in clients:
        mine = [row for row in rows if row["client_id"] == client]
        spans.append((min(row["begun"] for row in mine) // 10**9 + 1, max(row["ended"] for row in mine) // 10**9))
    low, high = max(a for a, _ in spans), min(b for _, b in spans)
    assert high - low >= 4
    for op in ("GET", "PUT", "STAT", "DELETE"):
        its = [row for row in rows if row["op"] == op and low * 10**9 <= row["ended"] < high * 10**9]
        assert value(record, op, "obj_per_s") == pytest.approx(len(its) / (high - low), rel=1e-4)
        durations = np.sort([int(row["duration_ns"]) for row in its])
        assert value(record, op, "max_ms") == pytest.approx(durations[-1] / 1e6)
        assert value(record, op, "p50_ms") == pytest.approx(durations[-(-len(its) // 2) - 1] / 1e6, rel=1e-3)
    assert record.kind == "warp" and record.usable and record.config["load.mode"] == "mixed"


@pytest.mark.parametrize("before", ["# warp get\n", "\n", "warp: <ERROR> no route\n\n"])
@pytest.mark.parametrize("header", [True, False])
def test_rows_behind_what_is_none(tmp_path: Path, before: str, header: bool) -> None:
    rows = made.steady("GET", workers=2, seconds=10, latency=0.01, begin=0.0, size=1)
    (tmp_path / "x.tsv").write_text(before + made.HEADER * header + "".join(rows))
    (record,) = read_imported(tmp_path / "x.tsv")
    assert value(record, "GET", "obj_per_s") == pytest.approx(200)


def test_what_made_the_objects_is_a_phase_by_itself(tmp_path: Path) -> None:
    """`warp get` and the like have these requests in their rows, too."""
    rows = made.steady("PUT", workers=2, seconds=5, latency=0.01, begin=0.0, size=1)
    rows += made.steady("GET", workers=4, seconds=10, latency=0.01, begin=8.0, size=1)
    (tmp_path / "x.csv").write_text(made.HEADER + "".join(rows))
    (record,) = read_imported(tmp_path / "x.csv")
    rates = {(its.phase, its.op): its.value for its in record.measurements if its.metric == "obj_per_s"}
    assert {key for key in rates if key[1] != "total"} == {("prepare", "PUT"), ("warp", "GET")}
    assert rates["prepare", "PUT"] == pytest.approx(200) and rates["warp", "GET"] == pytest.approx(400)
    assert record.usable and not codes(record)


@pytest.mark.skipif(not OF_2019.exists(), reason="Go has not fetched the sources of warp")
def test_published_rows_of_2019() -> None:
    """warp's own test data, of `warp get`: no column endpoint; 1000 PUT made the objects."""
    (record,) = read_imported(OF_2019)
    its = [row for row in by_hand(OF_2019) if row["op"] == "GET"]
    low, high = min(row["begun"] for row in its) // 10**9 + 1, max(row["ended"] for row in its) // 10**9
    inside = [row for row in its if low * 10**9 <= row["ended"] < high * 10**9]
    assert (len(its), high - low) == (20948, 59)
    rate = next(its.value for its in record.measurements if (its.phase, its.metric) == ("warp", "obj_per_s"))
    assert rate == pytest.approx(len(inside) / 59, rel=1e-4)
    durations = np.sort([int(row["duration_ns"]) for row in inside])
    assert value(record, "GET", "p50_ms") == pytest.approx(durations[-(-len(inside) // 2) - 1] / 1e6, rel=1e-3)


def test_rows_of_every_version_are_read() -> None:
    for path in sorted(ROWS.glob("v*")):
        (record,) = read_imported(path)
        assert value(record, "total", "success_rate") <= 1, path.name
        assert ("errors" in codes(record)) == ("killed" in path.name)


def test_rows_of_several_files_are_one_run(tmp_path: Path) -> None:
    for number, begin in ((1, 0.0), (2, 3.0)):
        rows = made.steady("GET", workers=2, seconds=10, latency=0.01, begin=begin, size=1)
        (tmp_path / f"client{number}.csv").write_text(made.HEADER + "".join(rows))
    (record,) = read_imported(tmp_path)
    assert value(record, "GET", "obj_per_s") == pytest.approx(400)
    assert next(its.n for its in record.measurements) == pytest.approx(400 * 6, abs=4)
    assert "common-window" in codes(record)


def test_a_backup_copy_beside_its_file_has_a_warning(tmp_path: Path) -> None:
    for name in ("full.csv.zst", "full (copy).csv.zst"):
        (tmp_path / name).write_bytes((DATA / "full.csv.zst").read_bytes())
    (record,) = read_imported(tmp_path)
    text = "full.csv.zst has the same content as full (copy).csv.zst: both count"
    assert [warning.text for warning in record.warnings if warning.code == "same-content"] == [text]


def test_aggregated_files_of_several_clients_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        (tmp_path / f"client{number}.json.zst").write_bytes((DATA / "aggregated.json.zst").read_bytes())
    with pytest.raises(Unreadable, match=r"2 files of aggregated data .* cannot be added up: .* --full"):
        read_imported(tmp_path)
    for words in (["report"], ["compare", str(tmp_path)]):
        assert main([*words, str(tmp_path)]) == 4
        said = capsys.readouterr().err
        assert "2 files of aggregated data of warp" in said and "name each file" in said


def test_aggregated_files_of_sub_folders_are_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "warp.json.zst").write_bytes((DATA / "aggregated.json.zst").read_bytes())
    alone = read_imported(DATA / "aggregated.json.zst")[0].measurements
    assert [record.measurements for record in read_imported(tmp_path)] == [alone, alone]
    (tmp_path / "b" / "other.json.zst").write_bytes((DATA / "aggregated.json.zst").read_bytes())
    assert main(["report", str(tmp_path)]) == 4
    assert f"{tmp_path / 'b'}: 2 files of aggregated data of warp" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "history"])
def test_aggregated_files_in_a_run_of_cbt_say_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run = tmp_path / "results" / "00000000" / "id-1"
    run.mkdir(parents=True)
    for number in (1, 2):
        (run / f"client{number}.json.zst").write_bytes((DATA / "aggregated.json.zst").read_bytes())
    for path in (tmp_path, run):
        assert main([command, str(path)]) == 4
        said = "".join(capsys.readouterr())
        assert "2 files of aggregated data of warp" in said
    assert not list(tmp_path.rglob("summary.json"))


@pytest.mark.parametrize("name", ["full.csv.zst", "aggregated.json.zst"])
def test_a_packed_file_and_its_unpacked_copy_are_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes((DATA / name).read_bytes())
    (alone,) = read_imported(tmp_path)
    (tmp_path / name[: -len(".zst")]).write_bytes(b"".join(PackedFile(DATA / name).chunks()))
    (record,) = read_imported(tmp_path)
    assert replace(record, source=alone.source, name=alone.name) == alone


def test_clients_of_one_file_are_told_apart(tmp_path: Path) -> None:
    lines = []
    for client, begin in (("abcd", 0.0), ("wxyz", 4.0)):
        for row in made.steady("GET", workers=1, seconds=10, latency=0.01, begin=begin, size=1):
            fields = row.split("\t")
            lines.append("\t".join([*fields[:3], client, *fields[4:]]))
    (tmp_path / "x.csv").write_text(made.HEADER + "".join(lines))
    (record,) = read_imported(tmp_path / "x.csv")
    assert value(record, "GET", "obj_per_s") == pytest.approx(200)
    assert next(its.n for its in record.measurements) == pytest.approx(200 * 5, abs=2)
    assert "common-window" in codes(record)


def test_clients_that_never_ran_at_the_same_time_have_no_rates(tmp_path: Path) -> None:
    for number, begin in ((1, 0.0), (2, 30.0)):
        rows = made.steady("GET", workers=1, seconds=5, latency=0.01, begin=begin, size=1)
        (tmp_path / f"client{number}.csv").write_text(made.HEADER + "".join(rows))
    record = read_rows(sorted(tmp_path.glob("*.csv")))
    assert not record.usable and "no-window" in codes(record)
    assert not has(record, "GET", "obj_per_s")


def test_a_torn_file_counts_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "torn.csv.gz"
    data = (ROWS / "v1.3.1-stdout-headerless.tsv.gz").read_bytes()
    path.write_bytes(data[: len(data) // 2])
    (record,) = read_imported(path)
    assert "torn-rows" in codes(record) and value(record, "GET", "obj_per_s") > 0


def test_a_small_file_does_not_fill_the_memory(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packer = zstandard.ZstdCompressor().compressobj()
    blanks = b" " * (1 << 24)
    data = [packer.compress(b'{"v": 2, "commandline": "warp get"')]
    data += [packer.compress(blanks) for _ in range(17)]
    (tmp_path / "x.json.zst").write_bytes(b"".join(data) + packer.flush())
    with pytest.raises(Unreadable, match="has more than"):
        read_imported(tmp_path / "x.json.zst")


@pytest.mark.parametrize("away", [-3 * 86400, 3 * 86400])
def test_a_request_days_away_does_not_count(tmp_path: Path, away: int) -> None:
    rows = made.steady("GET", workers=2, seconds=10, latency=0.01, begin=0.0, size=1)
    far = made.row("GET", away + 0.5, 0.01, size=1, endpoint="http://rgw1:7480")
    (tmp_path / "x.csv").write_text(made.HEADER + "".join(rows) + far)
    (record,) = read_imported(tmp_path / "x.csv")
    assert value(record, "GET", "obj_per_s") == pytest.approx(200)
    (warning,) = record.warnings
    assert warning.code == "bad-rows" and "not counted: 1 request" in warning.text


def test_a_pause_of_hours_drops_no_phase(tmp_path: Path) -> None:
    """Objects may be uploaded hours before they are read, and a cluster may fail for an hour."""
    longer = made.steady("PUT", workers=2, seconds=30, latency=0.1, begin=0.0, size=1)
    read = made.steady("GET", workers=2, seconds=10, latency=0.01, begin=2 * 3600.0, size=1)
    (tmp_path / "x.csv").write_text(made.HEADER + "".join([*longer, *read]))
    (record,) = read_imported(tmp_path / "x.csv")
    assert value(record, "GET", "obj_per_s") == pytest.approx(200) and codes(record) == ["stall"]


def test_what_is_nothing_of_warp_is_refused(tmp_path: Path) -> None:
    for text in ('{"v": 2, "commandline": "warp get"}', made.HEADER, "idx\tthread\top\tx\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(Unreadable):
            read_imported(tmp_path / "x")
