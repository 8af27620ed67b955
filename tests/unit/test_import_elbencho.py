"""elbencho's table and JSON: recorded phases, some of them twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List

import pytest

from cbt_plugins.results.importers import elbencho_text
from cbt_plugins.results.record_reader import importers, read_imported
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import RunRecord

DATA = Path(__file__).parent.parent / "data" / "imported" / "elbencho"


def value(record: RunRecord, phase: str, op: str, metric: str) -> Any:
    (its,) = [its for its in record.measurements if (its.phase, its.op, its.metric) == (phase, op, metric)]
    return its.value


@pytest.mark.parametrize(("name", "exact"), [("phases.json", 3e-4), ("phases.csv", 0.01)])
def test_a_phase_is_what_its_line_says(name: str, exact: float) -> None:
    """Against what elbencho calculated; the table's times are rounded to ms, and the phases are short."""
    first, again = read_imported(DATA / name)
    lines = [json.loads(line) for line in (DATA / "phases.json").read_text().splitlines()]
    write, mixed = lines[1]["last_done"], lines[5]["last_done"]
    assert value(first, "write", "write", "obj_per_s") == pytest.approx(int(write["entries/s"]), rel=0.02)
    assert value(first, "write", "write", "mean_ms") == int(write["latency"]["entries"]["avg_us"]) / 1000
    assert value(first, "write", "write", "max_ms") == int(write["latency"]["entries"]["max_us"]) / 1000
    assert value(first, "mixed rwmix30", "read", "obj_per_s") == pytest.approx(
        int(mixed["rwmix_read"]["iops"]) + 0.5, rel=exact
    )
    mean = int(mixed["latency"]["IO"]["avg_us"]) / 1000
    assert value(first, "mixed rwmix30", "write", "mean_ms") == pytest.approx(mean)
    assert value(first, "rmfiles", "delete", "obj_per_s") and value(first, "stat", "stat", "obj_per_s")
    assert {its.phase for its in again.measurements} == {"mixed rwmix30"}  # the one that came a second time
    assert first.config["load.threads"] == 2 and first.config["version.elbencho"] == "3.0-37"
    assert first.started == pytest.approx(1795340256.424) and first.usable


def test_directories_are_not_measured() -> None:
    (first, _) = read_imported(DATA / "phases.json")
    (other,) = read_imported(DATA / "v2.1-0.csv")  # they took 3 ms there
    assert not [its for its in (*first.measurements, *other.measurements) if its.phase == "mkdirs"]


def test_threads_that_did_not_run_together_are_said() -> None:
    (first, _) = read_imported(DATA / "phases.csv")
    assert {"common-window", "no-series"} <= {warning.code for warning in first.warnings}


def test_what_is_torn_is_refused(tmp_path: Path) -> None:
    text = (DATA / "phases.json").read_text()
    (tmp_path / "x.json").write_text(text[: len(text) - 200])
    with pytest.raises(Unreadable, match="no JSON of elbencho"):
        read_imported(tmp_path / "x.json")
    (tmp_path / "x.csv").write_text((DATA / "phases.csv").read_text().splitlines()[0] + "\n")
    with pytest.raises(Unreadable, match="no phase"):
        read_imported(tmp_path / "x.csv")


def test_version_3_1_and_what_it_rounds_to() -> None:
    (record,) = read_imported(DATA / "v3.1-1.csv")
    assert value(record, "write", "write", "obj_per_s") == pytest.approx(32 / 2.7845)  # whole ms, rounded down
    assert value(record, "write", "write", "mib_per_s") == pytest.approx(8192 / 2.7845)  # 32 files of 256 MiB
    assert value(record, "read", "read", "mean_ms") == 214.645
    bins = {its.metric: its.bin for its in record.measurements if its.phase == "write"}
    assert bins["mean_ms"] == bins["max_ms"] == 0.001  # whole us
    assert bins["obj_per_s"] == pytest.approx(32 / 2.7845 * 0.001 / 2.7845)
    assert record.started is None  # no time zone


def test_mib_that_are_rounded_down(tmp_path: Path) -> None:
    """Where a file is not written as a whole, its table has no more than whole MiB."""
    (tmp_path / "x.csv").write_text((DATA / "v3.1-1.csv").read_text().replace(",25,32,7460,8192,", ",25,32,7460,8190,"))
    (record,) = read_imported(tmp_path / "x.csv")
    (line,) = [its for its in record.measurements if (its.phase, its.metric) == ("write", "mib_per_s")]
    assert line.value == pytest.approx(8190 / 2.7845)
    assert line.bin == pytest.approx(2 / 2.7845 + line.value * 0.001 / 2.7845)  # of whole MiB, and of whole ms


def test_tables_before_version_2_1_have_no_label(tmp_path: Path) -> None:
    lines = (DATA / "v3.1-1.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines]
    (tmp_path / "x.csv").write_text("".join(",".join(row[:1] + row[2:]) + "\n" for row in rows))
    (record,) = read_imported(tmp_path / "x.csv")
    assert value(record, "write", "write", "obj_per_s") == pytest.approx(32 / 2.7845)  # whole ms, rounded down


def test_writes_with_the_latencies_of_reads_have_none(tmp_path: Path) -> None:
    """Until 2.0-7 one histogram has both, and the table has no latency of the reads."""
    head, _, row, _ = (DATA / "v3.1-1.csv").read_text().splitlines()
    (tmp_path / "x.csv").write_text(f"{head},rwmix read IOPS [first],rwmix read IOPS [last]\n{row},900,1000\n")
    (record,) = read_imported(tmp_path / "x.csv")
    assert {its.op for its in record.measurements} == {"write", "read", "total"}
    assert not [its for its in record.measurements if its.metric in ("mean_ms", "max_ms")]


def test_a_torn_line_is_no_phase(tmp_path: Path) -> None:
    text = (DATA / "v3.1-1.csv").read_text()
    (tmp_path / "x.csv").write_text(text[: text.index("READ,846,9") + len("READ,846,9")])
    (record,) = read_imported(tmp_path / "x.csv")
    assert {its.phase for its in record.measurements} == {"write"} and not record.usable
    assert "torn-output" in [warning.code for warning in record.warnings]


def test_json_of_3_0_29_has_no_configuration() -> None:
    """By hand: 8589934592 bytes at 44497455 bytes/s; 33554432 bytes at 6890027104 bytes/s and 1682135 IO/s."""
    (record,) = read_imported(DATA / "v3.0-29.json")
    assert value(record, "V02_HDD1 write", "write", "obj_per_s") == pytest.approx(128 / 193.0432784)
    assert value(record, "V02_HDD1 write", "write", "mib_per_s") == pytest.approx(44497455 / 2**20)
    assert value(record, "V02_HDD1 write", "write", "mean_ms") == 115256.695  # of files
    read = [its for its in record.measurements if (its.phase, its.metric) == ("V01_NVME read", "obj_per_s")]
    assert read[0].n == 8192 and read[0].value == pytest.approx(1682135, rel=1e-6)
    assert value(record, "V01_NVME read", "read", "max_ms") == 0.064
    (gone,) = [its for its in record.measurements if (its.op, its.metric) == ("delete", "obj_per_s")]
    assert abs(gone.value - 128 / 1.1381) < gone.bin / 2 < 0.06  # its last file took 1138100 us
    assert record.config["version.elbencho"] == "3.0-29" and record.started == pytest.approx(1753861382.737, abs=0.001)


def test_version_2_1_that_a_time_limit_ended() -> None:
    """It counts no files then: 470717 blocks of 1 MiB in 95.139 to 95.140 s."""
    (record,) = read_imported(DATA / "v2.1-0.csv")
    (rate,) = [its for its in record.measurements if its.metric == "obj_per_s"]
    assert abs(rate.value - 470717 / 95.1395) < rate.bin / 2 < 0.6
    assert value(record, "write", "write", "mib_per_s") == pytest.approx(470717 / 95.1395, rel=1e-5)
    assert (value(record, "write", "write", "mean_ms"), value(record, "write", "write", "max_ms")) == (3.075, 33.274)
    (warning,) = [its for its in record.warnings if its.code == "common-window"]
    assert "57.4 of 95.1 s" in warning.text


def test_text_that_people_showed() -> None:
    """By hand: 400 objects and 4000 MiB in 2.374 s; 151705 objects in 1800.279 s."""
    (record,) = read_imported(DATA / "resfile.txt")
    assert value(record, "read", "read", "obj_per_s") == pytest.approx(400 / 2.3745)
    assert value(record, "read", "read", "mib_per_s") == pytest.approx(4000 / 2.3745, rel=1e-3)
    assert value(record, "write", "write", "obj_per_s") == pytest.approx(151705 / 1800.2795)
    assert {its.phase for its in record.measurements} == {"read", "write"} and record.usable
    assert "1.54 of 2.37 s" in next(its.text for its in record.warnings if its.code == "common-window")


def test_latencies_of_text_are_rounded_to_their_digits() -> None:
    (record,) = read_imported(DATA / "resfile-lat.txt")
    (mean,) = [its for its in record.measurements if its.metric == "mean_ms"]
    assert (mean.value, mean.bin) == (4.0, 0.01)
    assert value(record, "write", "write", "max_ms") == 8.3
    assert value(record, "write", "write", "obj_per_s") == pytest.approx(8 / 0.0325)
    assert value(record, "write", "write", "mib_per_s") == pytest.approx(8 * 4096 / 2**20 / 0.0325)
    assert record.config["load.threads"] == record.config["load.queue_depth"] == 1
    assert record.config["load.size"] == 4096


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        ('"elbencho" "--threads" "16" "--block=5m" "--iodepth" "4" "-s" "1g"', ("16", "5242880", "4", "1073741824")),
        ('"elbencho" "-t" "2" "-b" "4KiB" "--hosts" "a,b" "-s" "[4k-1m]"', ("2", "4096", None, None)),
        ('"elbencho "', (None, None, None, None)),
    ],
)
def test_the_load_is_in_the_command(command: str, columns: Any) -> None:
    text = (DATA / "resfile-lat.txt").read_text()
    line = next(line for line in text.splitlines() if line.startswith("COMMAND"))
    ((row,), torn) = elbencho_text.rows_of(text.replace(line, f"COMMAND LINE: {command}"))
    assert tuple(map(row.get, ("threads", "block size", "IO depth", "file size"))) == columns
    assert not torn and row.get("hosts") == ("2" if "--hosts" in command else None)


def test_threads_are_those_of_each_host(tmp_path: Path) -> None:
    """With --hosts: their requests in flight are the queue depth of a point in `export --format cbt`."""
    text = (DATA / "resfile-lat.txt").read_text()
    line = next(line for line in text.splitlines() if line.startswith("COMMAND"))
    for hosts, depth in (("", 8), ("a,b,c,d,", 32)):
        command = f'COMMAND LINE: "elbencho" "-t" "2" "--iodepth" "4" "--hosts" "{hosts}"'
        (tmp_path / "x.txt").write_text(text.replace(line, command if hosts else command.partition(' "--hosts"')[0]))
        (record,) = read_imported(tmp_path / "x.txt")
        assert importers()["elbencho"].queue_depth(record) == depth


def test_the_number_of_hosts_of_a_file_is_not_known(tmp_path: Path) -> None:
    text = (DATA / "resfile-lat.txt").read_text()
    line = next(line for line in text.splitlines() if line.startswith("COMMAND"))
    (tmp_path / "x.txt").write_text(text.replace(line, f'{line} "--iodepth" "4" "--hostsfile" "all"'))
    (record,) = read_imported(tmp_path / "x.txt")
    assert importers()["elbencho"].queue_depth(record) is None


def test_an_hour_in_text_is_whole_seconds() -> None:
    text = (DATA / "resfile.txt").read_text().replace("30m0.279s", "1h30m9s")
    rows, _ = elbencho_text.rows_of(text)
    assert rows[-1]["time ms [last]"] == "5409000" and rows[-1][elbencho_text.WHOLE_SECONDS]


def written(path: Path, begun: str = "2026-11-25T10:00:00.000+0000") -> Path:
    """A write of 32 objects in 2.784 s, in the table of 3.1."""
    head, _, row, _ = (DATA / "v3.1-1.csv").read_text().splitlines()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}\n{begun},{row.partition(',')[2]}\n")
    return path


def test_table_and_text_of_one_run_are_one_client(tmp_path: Path) -> None:
    """An elbencho with --csvfile run.csv and --resfile run.txt; the table has more digits."""
    written(tmp_path / "run.csv")
    (alone,) = read_imported(tmp_path)
    (tmp_path / "run.txt").write_text((DATA / "resfile.txt").read_text())
    (record,) = read_imported(tmp_path)
    assert record == alone


def test_files_with_one_name_in_two_folders_are_two_clients(tmp_path: Path) -> None:
    for year, folder in ((2025, "run1"), (2026, "run2")):
        written(tmp_path / folder / "result.csv", f"{year}-11-25T10:00:00.000+0000")
    (record,) = read_imported(tmp_path)
    assert not record.usable and "no-common-window" in [warning.code for warning in record.warnings]
    written(tmp_path / "run1" / "result.csv")
    (record,) = read_imported(tmp_path)
    assert record.usable and record.config["load.processes"] == 2
    assert value(record, "write", "write", "obj_per_s") == pytest.approx(2 * 32 / 2.7845)


@pytest.mark.parametrize("hosts", [["client1"], ["client1", "client2"]])
def test_a_client_of_cbts_benchmark_without_a_result_is_missing(tmp_path: Path, hosts: List[str]) -> None:
    """CBT keeps the host as a folder."""
    cell = "small/elbencho/write_65536/threads-002/iodepth-004"
    for host in hosts:
        written(tmp_path / "results" / "00000000" / "id-1" / host / cell / "result.csv")
    (tmp_path / "results" / "cbt_config.yaml").write_text("cluster: {clients: [client1, client2]}\n")
    (record,) = read_imported(tmp_path)
    texts = [warning.text for warning in record.warnings if warning.code == "missing-client"]
    if len(hosts) == 1:
        assert texts == ["no result of client2: the numbers are of the other clients"] and not record.usable
    else:
        assert record.usable and not texts and record.config["load.processes"] == 2
