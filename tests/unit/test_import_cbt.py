"""An archive that CBT itself has left: radosbench and librbdfio, two iterations of two permutations each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest
import resources_lines

from cbt_plugins.compare.sides import forbidding
from cbt_plugins.results.importers import cbt
from cbt_plugins.results.record_reader import read_imported, records_of
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import RunRecord
from cbt_plugins.tools.__main__ import main

DATA = Path(__file__).parent.parent / "data" / "imported" / "cbt"


def value(record: RunRecord, phase: str, metric: str) -> Any:
    return next(its.value for its in record.measurements if (its.phase, its.metric) == (phase, metric))


def raw(path: Path) -> Dict[str, Any]:
    data: Dict[str, Any] = json.loads(path.read_text())
    return data


def test_every_iteration_of_every_permutation_is_a_record() -> None:
    records = read_imported(DATA)
    assert len(records) == 8 and all(record.usable for record in records)
    assert sorted({record.name.split("/")[0] for record in records}) == ["00000000", "00000001"]
    assert [record.name for record in records_of(DATA)] == [record.name for record in records]
    sweep = {(r.config["benchmark"], r.config["load.op_size"], r.config.get("load.mode")) for r in records}
    assert sweep == {
        ("radosbench", 4096, None),
        ("radosbench", 65536, None),
        ("librbdfio", 4096, "randread"),
        ("librbdfio", 4096, "randwrite"),
    }


def test_iterations_of_one_permutation_have_one_configuration() -> None:
    first, second = ([r for r in read_imported(DATA) if r.name.startswith(f"0000000{i}")] for i in (0, 1))
    for record in first:
        assert any(record.config == other.config for other in second)
    assert first[0].config["cluster.osds"] == 8 and first[0].config["cluster.clients"] == 2
    assert first[0].config["pool.default.size"] == 2
    assert not any("iteration" in key for key in first[0].config)


@pytest.mark.parametrize("phase", ["write", "seq"])
def test_radosbench_as_cbt_runs_it(phase: str) -> None:
    run = DATA / "results" / "00000000" / "id-4f330ded"
    (record,) = read_imported(run)
    ends = [raw(run / phase / f"json_output.0.client{i}") for i in (1, 2)]
    rate = sum(
        int(its.get("Total writes made") or its["Total reads made"]) / float(its["Total time run"]) for its in ends
    )
    assert value(record, phase, "obj_per_s") == pytest.approx(rate, rel=0.02)
    assert value(record, phase, "max_ms") == max(1000 * float(its["Max latency(s)"]) for its in ends)
    assert record.config["load.processes"] == 2 and record.config["phases"] == "seq write"
    assert "no-clock" in [warning.code for warning in record.warnings]


def test_radosbench_where_only_the_json_of_cbt_is_left(tmp_path: Path) -> None:
    run = DATA / "results" / "00000000" / "id-4f330ded"
    shutil.copytree(run, tmp_path / "id-4f330ded")
    for path in tmp_path.rglob("output.0.client?"):
        path.unlink()
    (record,) = read_imported(tmp_path)
    (whole,) = read_imported(run)
    assert value(record, "write", "obj_per_s") == pytest.approx(value(whole, "write", "obj_per_s"), rel=0.02)
    assert not any(its.series for its in record.measurements) and any(its.series for its in whole.measurements)


def test_librbdfio_as_cbt_runs_it() -> None:
    run = DATA / "results" / "00000000" / "id-606b4c0d"
    (record,) = read_imported(run)
    jobs = [raw(run / f"json_output.0.client{i}")["jobs"][0]["read"] for i in (1, 2)]
    assert value(record, "randread", "obj_per_s") == pytest.approx(sum(job["iops"] for job in jobs), rel=0.03)
    assert value(record, "randread", "max_ms") == pytest.approx(max(job["clat_ns"]["max"] for job in jobs) / 1e6)
    # plain json has no bins: the percentiles are those of CBT's logs of every request
    assert 0 < value(record, "randread", "p99_ms") <= value(record, "randread", "max_ms")
    assert record.config["load.ioengine"] == "rbd" and record.config["load.queue_depth"] == 4
    assert record.started is not None


def test_without_its_logs_there_are_no_percentiles(tmp_path: Path) -> None:
    shutil.copytree(DATA / "results", tmp_path / "results")
    for path in tmp_path.rglob("*.log.*"):
        path.unlink()
    (record,) = read_imported(tmp_path / "results" / "00000000" / "id-606b4c0d")
    assert value(record, "randread", "p99_ms") is None
    assert "percentiles-not-merged" in [warning.code for warning in record.warnings]


def test_secrets_and_names_of_a_lab_decide_nothing(tmp_path: Path) -> None:
    run = tmp_path / "results" / "00000000" / "id-1"
    run.mkdir(parents=True)
    text = "cluster: {benchmark: hsbench, max_keys: 7, secret_key: x, access_key: y, client_endpoints: s3, size: 4K}\n"
    (run / "benchmark_config.yaml").write_text(text)
    found = cbt.configuration(run)
    assert found == {"benchmark": "hsbench", "load.max_keys": 7, "cbt.client_endpoints": "s3", "load.size": "4K"}


def test_a_run_of_our_own_is_left_to_others(tmp_path: Path) -> None:
    shutil.copytree(DATA / "results", tmp_path / "results")
    (tmp_path / "results" / "00000000" / "id-606b4c0d" / "plan.json").write_text("{}")
    assert len(read_imported(tmp_path)) == 7


def test_the_report_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(DATA)]) == 0
    text = capsys.readouterr().out
    assert text.count("librbdfio") == 4 and text.count("radosbench") == 4 and "no-clock" in text
    assert not list(DATA.rglob("summary.json"))  # a table, and no file
    assert main(["report", str(DATA.parent / "fio" / "stopped.json")]) == 4
    assert "UNUSABLE" in capsys.readouterr().out
    assert main(["report", str(DATA.parent / "cosbench")]) == 0
    assert "write\t1.19 mops\t63.26 TB" in capsys.readouterr().out


def test_an_archive_of_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results" / "00000000" / "id-1").mkdir(parents=True)
    with pytest.raises(Unreadable):
        read_imported(tmp_path)
    with pytest.raises(Unreadable):
        read_imported(tmp_path / "nothing")


@pytest.mark.parametrize("text", [
    "cluster: &a {x: *a, benchmark: fio}",
    "cluster: {benchmark: fio, x: &a [*a]}",
    "cluster: {benchmark: fio, deep: " + "[" * 5000 + "]" * 5000 + "}",
    "".join(f"k{i}: &k{i} {{{', '.join(f'v{j}: *k{i - 1}' if i else f'v{j}: 0' for j in range(10))}}}\n"
            for i in range(9)) + "cluster: *k8\n",
    "x: &x " + "a" * 10**5 + "\ncluster: {benchmark: fio, y: [" + "*x, " * 20000 + "]}\n",
], ids=["in itself", "list in itself", "deep", "many", "long"])  # fmt: skip
def test_aliases_of_a_configuration_do_not_fill_the_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "benchmark_config.yaml").write_text(text)
    assert cbt.configuration(tmp_path) == {}
    (tmp_path / "benchmark_config.yaml").write_text("cluster: {benchmark: fio, x: &x [1, 2], y: *x}")
    assert cbt.configuration(tmp_path) == {"benchmark": "fio", "load.x": "1 2", "load.y": "1 2"}


def test_what_the_nodes_did_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Samples of the monitor `resources`, which CBT collects into the run's folder."""
    shutil.copytree(DATA / "results", tmp_path / "results")
    run = tmp_path / "results" / "00000000" / "id-606b4c0d"
    (plain,) = read_imported(run)
    assert plain.used is None
    start = next(its.start for its in plain.measurements if its.start is not None)
    osd = resources_lines.Made(daemons=[("osd", "0", 1.5, 100)], busy=0.5)
    resources_lines.write(run, "node1", osd, seconds=60, begin=start - 20)
    (record,) = read_imported(run)
    assert record.used and record.used["randread"]["classes"]["osd"]["cores"] == pytest.approx(1.5)
    per_core = value(record, "randread", "ops_per_core")
    assert per_core == pytest.approx(value(record, "randread", "obj_per_s") / 1.5, rel=0.01)
    assert main(["report", str(run)]) == 0
    out = capsys.readouterr().out
    assert "CPU, memory and disks by daemon class" in out and "bottleneck: " in out
    assert "randread  osd" not in out  # classes of daemons are no operations


def test_what_was_not_watched_beside_it_is_no_verdict(tmp_path: Path) -> None:
    """One of two nodes was watched during a part of the phase; a third one before it only."""
    shutil.copytree(DATA / "results", tmp_path / "results")
    run = tmp_path / "results" / "00000000" / "id-606b4c0d"
    (plain,) = read_imported(run)
    start = next(its.start for its in plain.measurements if its.start is not None)
    osd = resources_lines.Made(daemons=[("osd", "0", 1.5, 100)], busy=0.5)
    for name, seconds, begin in (("node1", 60, start - 20), ("node2", 22, start - 20)):
        resources_lines.write(run, name, osd, seconds=seconds, begin=begin)
    (record,) = read_imported(run)
    (gap,) = (warning for warning in record.warnings if warning.code == "resources-gap")
    assert gap.phase == "randread" and "node2" in gap.text and "node1" not in gap.text
    assert value(record, "randread", "ops_per_core") > 0
    for metric, said in (("ops_per_core", ["resources-gap"]), ("obj_per_s", [])):
        assert [its.code for its in forbidding("new", (record,), ("randread", "total", metric))] == said
    rgw = resources_lines.Made(daemons=[("rgw", "a", 1.5, 100)])
    resources_lines.write(run, "node3", rgw, seconds=10, begin=start - 20)
    (record,) = read_imported(run)
    assert "node3 (0 %)" in next(warning.text for warning in record.warnings if warning.code == "resources-gap")
    assert not [line for line in record.measurements if line.metric == "ops_per_core"]
