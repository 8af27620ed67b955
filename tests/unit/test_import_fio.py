"""fio's JSON, json+ and logs: recorded runs."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from cbt_plugins.compare.configuration_differences import conflicts
from cbt_plugins.compare.gate import GateLimits, GateOutcome, gate, of_texts
from cbt_plugins.compare.sides import Side
from cbt_plugins.compare.table import Rules
from cbt_plugins.results.importers import fio
from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.result_file import Unreadable, read_unpacked
from cbt_plugins.results.run_record import Measurement, RunRecord

DATA = Path(__file__).parent.parent / "data" / "imported" / "fio"
RUN = DATA / "archive" / "results" / "00000000" / "id-0c9d41ab"
HOSTS = ("client1", "client2")


def line_of(record: RunRecord, op: str, metric: str, phase: Optional[str] = None) -> Measurement:
    its = [its for its in record.measurements if (its.op, its.metric) == (op, metric) and phase in (None, its.phase)]
    assert len(its) == 1
    return its[0]


def value(record: RunRecord, op: str, metric: str) -> Any:
    return line_of(record, op, metric).value


def raw(path: Path) -> Dict[str, Any]:
    text = path.read_text()
    data: Dict[str, Any] = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
    return data


def log(path: Path, direction: int) -> np.ndarray:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    return np.array([(int(its[0]), int(its[1])) for its in lines if int(its[2]) == direction])


def alone(tmp_path: Path, name: str) -> RunRecord:
    """A file without its logs."""
    shutil.copy(DATA / name, tmp_path / name)
    (record,) = read_imported(tmp_path / name)
    return record


def test_percentiles_are_as_exact_as_their_bins(tmp_path: Path) -> None:
    alone = tmp_path / "output.0.client1"
    shutil.copy(RUN / alone.name, alone)
    for path, wide in ((alone, 1 / 64), (RUN / alone.name, 0)):  # with the logs of single requests next to it
        (record,) = read_imported(path)
        line = line_of(record, "read", "p50_ms")
        assert line.bin == pytest.approx(line.value * wide)
        assert line_of(record, "read", "obj_per_s").bin == 0


def test_one_client_has_the_percentiles_that_fio_prints() -> None:
    path = RUN / "output.0.client1"
    parts = fio.parse(path.read_text(), "0").loops[0]
    for part in parts:
        latency = raw(path)["jobs"][0][part.op]["clat_ns"]
        assert part.bins is not None and part.bins.n == latency["N"]
        for q in ("50", "90", "95", "99", "99.9"):
            # fio gives the middle of a bin, which may be more than the longest latency
            assert part.bins.quantile(float(q) / 100) == min(latency["percentile"][f"{float(q):.6f}"], latency["max"])


def test_two_jobs_are_merged_by_their_bins(tmp_path: Path) -> None:
    record = alone(tmp_path, "windowed.json")
    jobs = raw(DATA / "windowed.json")["jobs"]
    values = np.concatenate(
        [
            np.repeat([int(v) for v in its], list(its.values()))
            for its in (job["read"]["clat_ns"]["bins"] for job in jobs)
        ]
    )
    values.sort()
    n = sum(job["read"]["total_ios"] for job in jobs)
    assert len(jobs) == 2 and len(values) == n == line_of(record, "read", "p99_ms").n
    for metric, q in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        assert value(record, "read", metric) == pytest.approx(values[int(np.ceil(q * n)) - 1] / 1e6)
    mean = sum(job["read"]["total_ios"] * job["read"]["clat_ns"]["mean"] for job in jobs) / n / 1e6
    assert value(record, "read", "mean_ms") == pytest.approx(mean)
    assert value(record, "read", "obj_per_s") == pytest.approx(sum(job["read"]["iops"] for job in jobs), rel=1e-4)


def test_without_bins_percentiles_of_two_jobs_are_none(tmp_path: Path) -> None:
    data = raw(DATA / "windowed.json")
    for job in data["jobs"]:
        del job["read"]["clat_ns"]["bins"]
    (tmp_path / "plain.json").write_text(json.dumps(data))
    (record,) = read_imported(tmp_path / "plain.json")
    assert value(record, "read", "p99_ms") is None
    assert "percentiles-not-merged" in [warning.code for warning in record.warnings]
    del data["jobs"][1]
    (tmp_path / "plain.json").write_text(json.dumps(data))
    (record,) = read_imported(tmp_path / "plain.json")
    assert value(record, "read", "p99_ms") == data["jobs"][0]["read"]["clat_ns"]["percentile"]["99.000000"] / 1e6


def test_a_log_with_windows_is_the_series() -> None:
    (record,) = read_imported(DATA / "windowed.json")
    line = line_of(record, "read", "obj_per_s")
    logs = [log(DATA / f"w_iops.{job}.log", 0) for job in (1, 2)]
    assert line.series == pytest.approx([a + b for a, b in zip(logs[0][:, 1], logs[1][:, 1])], rel=0.01)
    # the last window is in no log, and in the value all the same
    assert len(line.series or ()) == 5 and line.value == pytest.approx(24002 / 6.001, rel=1e-3)
    latency = line_of(record, "read", "mean_ms")
    assert latency.series and np.mean(latency.series) == pytest.approx(latency.value, rel=0.15)


def test_a_log_of_single_requests_is_the_series() -> None:
    path = RUN / "output.0.client2"
    (record,) = read_imported(path)
    ended = log(RUN / "output.0_iops.1.log.client2", 0)[:, 0]
    counts, _ = np.histogram(ended, np.arange(7) * 1000)
    assert line_of(record, "read", "obj_per_s").series == pytest.approx(counts.tolist())
    taken = np.sort(log(RUN / "output.0_clat.1.log.client2", 1)[:, 1])
    assert value(record, "write", "p99_ms") == pytest.approx(taken[int(np.ceil(0.99 * len(taken))) - 1] / 1e6)


def test_clients_are_cut_to_the_time_they_share() -> None:
    (record,) = read_imported(DATA / "archive")
    assert record.name == "00000000/id-0c9d41ab"
    outputs = [raw(RUN / f"output.0.{host}") for host in HOSTS]
    starts = [its["timestamp_ms"] - its["jobs"][0]["read"]["runtime"] for its in outputs]
    ends = [start + its["jobs"][0]["read"]["runtime"] for start, its in zip(starts, outputs)]
    low, high = max(starts), min(ends)
    assert 4500 < high - low < 5500  # one began a second later
    taken: List[np.ndarray] = []
    done = 0
    for start, host in zip(starts, HOSTS):
        at = log(RUN / f"output.0_iops.1.log.{host}", 0)[:, 0] + start
        inside = (at >= low) & (at <= high)
        done += int(inside.sum())
        taken.append(log(RUN / f"output.0_clat.1.log.{host}", 0)[inside, 1])
    assert value(record, "read", "obj_per_s") == pytest.approx(1000 * done / (high - low), rel=0.01)
    line = line_of(record, "read", "p99_ms")
    values = np.sort(np.concatenate(taken))
    assert line.n == len(values) and line.value == pytest.approx(values[int(np.ceil(0.99 * len(values))) - 1] / 1e6)
    assert "common-window" in [warning.code for warning in record.warnings]


def test_grouped_processes_began_when_they_began() -> None:
    """job_runtime is the sum of theirs."""
    (record,) = read_imported(DATA / "grouped")
    ends = [raw(DATA / "grouped" / f"client{n}.json")["timestamp_ms"] / 1000 for n in (1, 2)]
    assert record.usable and record.started == pytest.approx(min(ends) - 3, abs=0.05)
    assert value(record, "read", "obj_per_s") == pytest.approx(5 * 200, rel=0.01)
    assert "load.numjobs" not in record.config  # 3 and 2
    (record,) = read_imported(DATA / "grouped" / "client1.json")
    assert record.config["load.numjobs"] == 3


def test_of_groups_that_ran_one_after_the_other_the_last_ended_at_the_end() -> None:
    (record,) = read_imported(DATA / "groups.json")
    first, second = (line_of(record, "read", "obj_per_s", phase) for phase in ("first", "second"))
    ended = raw(DATA / "groups.json")["timestamp_ms"] / 1000
    assert first.start is None and second.start == pytest.approx(ended - 1, abs=0.01)


def test_a_percentile_needs_its_samples() -> None:
    (record,) = read_imported(RUN / "output.0.client2")
    assert line_of(record, "read", "p99_ms").n == 300
    assert not any(its.metric == "p999_ms" for its in record.measurements)


def test_operations_of_a_mixed_job_have_a_total() -> None:
    (record,) = read_imported(DATA / "archive")
    for metric in ("obj_per_s", "mib_per_s"):
        both = value(record, "read", metric) + value(record, "write", metric)
        assert value(record, "total", metric) == pytest.approx(both)
    assert {its.phase for its in record.measurements} == {"randrw"}


def test_what_the_run_was() -> None:
    (record,) = read_imported(DATA / "archive")
    config = record.config
    assert (config["benchmark"], config["engine"], config["load.mode"]) == ("fio", "fio", "randrw")
    assert config["load.op_size"] == 4096 and config["load.queue_depth"] == 1 and config["load.processes"] == 2
    assert config["load.numjobs"] == 1
    assert config["cluster.osds"] == 8 and config["cluster.clients"] == 2 and config["pool.default.size"] == 3
    assert "load.rate_iops" not in config  # it was not the same for both
    assert record.started == pytest.approx(
        min(raw(RUN / f"output.0.{h}")["timestamp_ms"] for h in HOSTS) / 1000 - 6, abs=1
    )


def test_a_client_without_a_result_makes_the_run_unusable(tmp_path: Path) -> None:
    shutil.copytree(DATA / "archive", tmp_path / "a")
    for path in tmp_path.rglob("*.client2"):
        path.unlink()
    (record,) = read_imported(tmp_path / "a")
    assert not record.usable
    assert "client2" in next(warning.text for warning in record.warnings if warning.code == "missing-client")


def test_an_empty_output_is_said(tmp_path: Path) -> None:
    shutil.copytree(DATA / "archive", tmp_path / "a")
    for path in tmp_path.rglob("*output.0.client2"):
        path.write_text('{"fio version": "fio-3.33"}')
    (record,) = read_imported(tmp_path / "a")
    assert not record.usable and "unreadable" in [warning.code for warning in record.warnings]


def test_a_damaged_client_is_left_out(tmp_path: Path) -> None:
    shutil.copytree(DATA / "archive", tmp_path / "a")
    for path in tmp_path.rglob("*output.0.client2"):
        path.write_text('{"fio version": "fio-3.33", "jobs": [{"jobname": "a", "read": {"total_ios": 5}}]}')
    (record,) = read_imported(tmp_path / "a")
    assert not record.usable and record.config["load.processes"] == 1 and record.measurements
    (text,) = [warning.text for warning in record.warnings if warning.code == "unreadable"]
    assert text.startswith("output.0.client2: damaged: KeyError: 'runtime'")


def test_a_damaged_log_costs_the_series_only(tmp_path: Path) -> None:
    shutil.copytree(DATA / "archive", tmp_path / "a")
    for path in tmp_path.rglob("output.0_clat.1.log.client2"):
        path.write_text("1000, x1, 0, 4096, 0\n")
    (record,) = read_imported(tmp_path / "a")
    assert record.usable and record.config["load.processes"] == 2
    text = next(warning.text for warning in record.warnings if "no series of 0.client2: " in warning.text)
    assert "_clat.1.log.client2: damaged: ValueError" in text


def pack(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def test_compressed_results_and_logs_are_read(tmp_path: Path) -> None:
    shutil.copytree(DATA / "archive", tmp_path / "a")
    (plain,) = read_imported(tmp_path / "a")
    packed = [pack(path) for path in tmp_path.rglob("*output.0*client?")]
    (record,) = read_imported(tmp_path / "a")
    assert record == plain and any(its.series for its in record.measurements)
    for path in packed:
        if path.name == "output.0.client2.gz":
            path.write_bytes(path.read_bytes()[:-20])
    (torn,) = read_imported(tmp_path / "a")
    assert not torn.usable
    assert "output.0.client2.gz: the gzip stream has no end" in [warning.text for warning in torn.warnings]


def test_what_is_too_large_unpacked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(b'{"fio version": "fio-3.33"}' + b" " * 1000))
    with pytest.raises(Unreadable, match=r"x\.json\.gz: has more than 1000 bytes"):
        read_unpacked(path, 1000)


def test_what_cbt_has_cut_out_is_read_where_the_output_is_gone(tmp_path: Path) -> None:
    shutil.copytree(DATA / "archive", tmp_path / "a")
    for path in tmp_path.rglob("output.0.client?"):
        path.unlink()
    (record,) = read_imported(tmp_path / "a")
    (whole,) = read_imported(DATA / "archive")
    assert record.measurements == whole.measurements and record.usable


def test_failed_requests_are_apart() -> None:
    (record,) = read_imported(DATA / "errors.json")
    codes = [warning.code for warning in record.warnings]
    assert "errors" in codes and "job-failed" in codes and not record.usable
    (record,) = read_imported(DATA / "stopped.json")
    assert not record.usable and "job-failed" in [warning.code for warning in record.warnings]


def test_what_is_nothing_of_fio_is_refused(tmp_path: Path) -> None:
    for text in ('{"fio version": "fio-3.33", "jobs": []}', '{"fio version": ', "fio-3.33\nStarting 1 process\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(Unreadable):
            read_imported(tmp_path / "x")


@pytest.mark.parametrize(("text", "size"), [("4K", 4096), ("4096B", 4096), ("4M", 4194304), ("64kiB", 65536), ("7", 7)])
def test_sizes_of_fio(text: str, size: int) -> None:
    assert fio.parse_block_size(text) == size
    assert fio.parse_block_size("4k,64k") == "4k,64k"


def test_of_several_documents_the_last_counts(tmp_path: Path) -> None:
    text = (DATA / "intervals.txt").read_text()
    assert text.count('"fio version"') > 1
    (record,) = read_imported(DATA / "intervals.txt")
    last = json.loads(text[text.rindex('{\n  "fio version"') : text.rindex("\n}") + 2])["jobs"][0]["write"]
    assert line_of(record, "write", "obj_per_s").n == last["total_ios"] and record.usable
    (tmp_path / "x").write_text(text[: text.rindex("\n}") - 500])  # fio was killed while it wrote the last one
    (record,) = read_imported(tmp_path / "x")
    assert (line_of(record, "write", "obj_per_s").n or 0) < last["total_ios"]
    assert not record.usable and "torn-output" in [warning.code for warning in record.warnings]


def test_each_fdatasync_is_no_short_request() -> None:
    text = (DATA / "intervals.txt").read_text()
    assert re.search(r'"short_ios" : [1-9]', text)  # counted as reads, of which there were none
    (record,) = read_imported(DATA / "intervals.txt")
    assert "errors" not in [warning.code for warning in record.warnings]


def test_units_of_version_2() -> None:
    (record,) = read_imported(DATA / "v2.2.10.json")
    assert value(record, "write", "obj_per_s") == pytest.approx(15624.70, rel=1e-5)
    assert value(record, "write", "mib_per_s") == pytest.approx(62499 / 1024, rel=1e-4)  # its `bw` is in KiB/s
    assert value(record, "write", "mean_ms") == pytest.approx(8.15119)
    assert value(record, "write", "p99_ms") == pytest.approx(8.640)
    assert value(record, "write", "max_ms") == pytest.approx(261.110)


@pytest.mark.parametrize(
    ("name", "rate", "mean"), [("mixed.json", 399.9, 0.4574), ("v2.6-mixed.json", 2252.49, 1.78292)]
)
def test_directions_that_fio_has_put_together(name: str, rate: float, mean: float) -> None:
    (record,) = read_imported(DATA / name)
    assert {its.op for its in record.measurements} == {"mixed"}
    assert value(record, "mixed", "obj_per_s") == pytest.approx(rate, rel=1e-3)
    assert value(record, "mixed", "mean_ms") == pytest.approx(mean, rel=1e-3)


def test_version_3_42_in_the_text_that_cbt_leaves() -> None:
    """Its latencies have requests that the ramp began: the rate is that of `total_ios`, as fio says it."""
    (record,) = read_imported(DATA / "v3.42.txt")
    assert line_of(record, "write", "obj_per_s").value == pytest.approx(3201.659668, rel=1e-6)
    assert line_of(record, "write", "mib_per_s").value == pytest.approx(131194880 / 2**20 / 10.002)
    assert line_of(record, "write", "mean_ms").value == pytest.approx(2.486019)
    p99 = line_of(record, "write", "p99_ms")
    assert p99.value == pytest.approx(4.75136) and p99.bin == pytest.approx(4.75136 / 64)
    assert record.started == pytest.approx(1783516269.595) and record.usable


def test_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    text = (DATA / "v3.42.txt").read_text()
    (tmp_path / "x").write_text(text + text.replace("1783516269595", "1783516369595"))
    with pytest.raises(Unreadable, match="several runs"):
        read_imported(tmp_path / "x")


def test_version_2_1_counts_no_requests() -> None:
    """By hand: 361984 KiB in blocks of 512 KiB in 5.314 s; 36244 KiB in blocks of 4 KiB in 28.54 s."""
    (record,) = read_imported(DATA / "v2.1.4.json")
    line = line_of(record, "write", "obj_per_s")
    assert (line.n, line.bin) == (707, 0) and line.value == pytest.approx(133.0448, rel=1e-6)
    assert value(record, "read", "obj_per_s") == pytest.approx(317.4842, rel=1e-6)
    assert value(record, "read", "mib_per_s") == pytest.approx(36244 / 1024 / 28.54)
    assert (value(record, "write", "mean_ms"), value(record, "write", "p99_ms")) == pytest.approx((477.73484, 823.296))


def test_version_2_1_with_a_size_that_is_no_power_of_two(tmp_path: Path) -> None:
    """At 96 KiB there are 377.067 requests in 36244 KiB: nothing but the rate says so."""
    text = (DATA / "v2.1.4.json").read_text().replace('"iops": 317', '"iops": 13').replace('"iops": 133', '"iops": 700')
    (tmp_path / "x.json").write_text(text)
    (record,) = read_imported(tmp_path / "x.json")
    line = line_of(record, "read", "obj_per_s")
    assert line.value == pytest.approx(13.5, abs=0.02) and line.bin == pytest.approx(1)


def test_windows_without_requests_are_not_in_the_log() -> None:
    """A published run on a floppy disk: 31 requests at once about every four seconds."""
    (record,) = read_imported(DATA / "v3.1.json")
    line = line_of(record, "read", "obj_per_s")
    assert line.value == pytest.approx(6.642434) and line.n == 360
    ends = {int(its[0] / 1000): float(its[1]) for its in log(DATA / "v3.1_iops.1.log", 0)}
    assert line.series == pytest.approx([ends.get(second + 1, 0.0) for second in range(50)])
    assert sum(line.series or ()) == pytest.approx(329)


def test_runs_at_different_times_are_no_clients_of_one(tmp_path: Path) -> None:
    """A folder with a file for each queue depth is the usual way to keep results of fio."""
    text = (DATA / "v3.1.json").read_text()
    (tmp_path / "read-32-1.json").write_text(text)
    (tmp_path / "read-16-1.json").write_text(text.replace("1576455089", "1576455189"))
    (record,) = read_imported(tmp_path)
    assert not record.usable and "no-common-window" in [its.code for its in record.warnings]
    assert record.started == pytest.approx(1576455089.043 - 54.197)


@pytest.mark.parametrize(
    "names",
    [
        ("node1.json", "node2.json"),
        ("fio.node1", "fio.node2"),
        ("fio-2026-11-30T20:00:01.json", "fio-2026-11-30T20:00:02.json"),
    ],
)
def test_every_file_is_a_client(tmp_path: Path, names: Tuple[str, str]) -> None:
    for number, name in enumerate(names, 1):
        shutil.copy(DATA / "grouped" / f"client{number}.json", tmp_path / name)
    (record,) = read_imported(tmp_path)
    (as_named,) = read_imported(DATA / "grouped")
    assert record.usable and record.measurements == as_named.measurements
    assert record.config["load.processes"] == 2
    (tmp_path / names[1]).write_text((DATA / "v3.1.json").read_text())
    (tmp_path / names[0]).write_text((DATA / "v3.1.json").read_text().replace("1576455089", "1576555089"))
    (record,) = read_imported(tmp_path)
    assert not record.usable and "no-common-window" in [its.code for its in record.warnings]


def test_windows_of_older_versions_are_longer(tmp_path: Path) -> None:
    """A rate is that of all the time since the line before: what adds up tells which version it was."""
    (tmp_path / "x.json").write_text((DATA / "v3.1.json").read_text().replace('"v3.1"', '"x"'))
    (tmp_path / "x_iops.1.log").write_text("1000, 60, 0, 0\n5000, 60, 0, 0\n6000, 60, 0, 0\n")
    (record,) = read_imported(tmp_path / "x.json")
    assert line_of(record, "read", "obj_per_s").series == pytest.approx([60.0] * 6)


def test_depths_with_a_unit(tmp_path: Path) -> None:
    text = (DATA / "v3.1.json").read_text()
    (tmp_path / "x.json").write_text(text.replace('"iodepth": "32"', '"iodepth": "1k"'))
    (record,) = read_imported(tmp_path / "x.json")
    assert record.config["load.queue_depth"] == 1024


def test_client_and_server_of_3_43() -> None:
    """Each client has options of its own; the sums are those that fio calculated ("All clients")."""
    (record,) = read_imported(DATA / "v3.43-clients.json")
    everyone = raw(DATA / "v3.43-clients.json")["client_stats"][-1]["read"]
    assert value(record, "read", "obj_per_s") == pytest.approx(everyone["iops"])
    assert value(record, "read", "mib_per_s") == pytest.approx(everyone["bw"] / 1024)
    assert value(record, "read", "mean_ms") == pytest.approx(everyone["clat_ns"]["mean"] / 1e6)
    assert value(record, "read", "max_ms") == everyone["clat_ns"]["max"] / 1e6
    assert record.config["load.mode"] == "randread" and record.config["load.op_size"] == 4096


def test_a_job_without_any_request_is_not_usable(tmp_path: Path) -> None:
    data = raw(DATA / "groups.json")
    idle = data["jobs"][-1]
    for way in ("read", "write", "trim", "mixed"):
        if way in idle:
            idle[way].update(total_ios=0, io_bytes=0)
    (tmp_path / "groups.json").write_text(json.dumps(data))
    assert all(record.usable for record in read_imported(DATA / "groups.json"))
    (record,) = read_imported(tmp_path / "groups.json")
    assert not record.usable
    assert [its.text.endswith("did no I/O") for its in record.warnings if its.code == "no-requests"] == [True]


def test_blank_lines_behind_a_document_are_no_work(tmp_path: Path) -> None:
    """From each of them a pattern that takes line feeds would look through all of the others: half a minute."""
    text = (DATA / "v3.1.json").read_text()
    (tmp_path / "x.json").write_text(text + "\n" * 10**5)
    assert value(read_imported(tmp_path / "x.json")[0], "read", "obj_per_s") > 0


def test_a_percentile_that_is_no_number_is_none(tmp_path: Path) -> None:
    data = raw(DATA / "v3.1.json")
    data["jobs"][0]["read"]["clat_ns"]["percentile"]["99.000000"] = float("nan")
    (tmp_path / "x.json").write_text(json.dumps(data))
    (record,) = read_imported(tmp_path / "x.json")
    assert value(record, "read", "p99_ms") is None and value(record, "read", "p50_ms") > 0
    made = gate(Side("a", (record,)), [Side("b", (record,))], GateLimits(tuple(of_texts(["p99_ms<=9"]))), Rules())
    assert made.outcome is GateOutcome.INCONCLUSIVE


def test_latencies_of_two_kinds_are_not_compared(tmp_path: Path) -> None:
    """clat begins at the submission of a request, lat before it: p99 of both is not one metric."""
    data = raw(DATA / "v3.1.json")
    for name in ("clat", "lat"):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
        for job in data["jobs"]:
            for section in filter(lambda its: its.get("clat_ns", {}).get("percentile"), map(job.get, fio.DIRECTIONS)):
                section.setdefault("lat_ns", {}).update(section.pop("clat_ns"))
    (clat,), (lat,) = (read_imported(tmp_path / f"{name}.json") for name in ("clat", "lat"))
    assert [(its.key, its.base, its.new) for its in conflicts(clat, lat)] == [("load.latency", "clat", "lat")]
