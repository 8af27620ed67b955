"""cbt-tools export --format cbt: points of curves, their files in both dialects, and what has no place in them."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

import archive_builder as aa
import pytest

from cbt_plugins.checksums import end_run
from cbt_plugins.report.export import curves as of
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.summary_file import summary_of
from cbt_plugins.tools.__main__ import main

PROJECT = Path(__file__).parents[2]
CONFIG = {"benchmark": "warp", "iteration": 0}


def export(archive: Path, target: Path, *options: str) -> int:
    return main(["export", str(archive), "--format", "cbt", "-o", str(target), *options])


def files(target: Path, pattern: str = "*[!s].json") -> Dict[str, Any]:
    """Path below the target -> content; of curves, without time series."""
    return {str(path.relative_to(target)): json.loads(path.read_text()) for path in sorted(target.rglob(pattern))}


def nested(name: str) -> str:
    """The folder of a phase's curves below OUT/main."""
    return f"{name}/results/common-format/{name}/load/visualisation"


def test_a_sweep_over_workers_makes_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for workers in (8, 16):
        load, config = aa.cheap(workers=workers), {**CONFIG, "workers": workers}
        aa.cbt_run(tmp_path / "A", config, load, phases=("fill", "measure-new"))
    assert export(tmp_path / "A", tmp_path / "out") == 0
    made = files(tmp_path / "out")
    assert list(made) == [
        "head/A-fill/visualisation/4096B_67_33_randrw.json",
        "head/A-measure-new/visualisation/4096B_67_33_randrw.json",
        f"main/{nested('A-fill')}/4096_1_67_33_randrw.json",
        f"main/{nested('A-measure-new')}/4096_1_67_33_randrw.json",
    ]
    # 16 workers: 8 of GET with 10 ms and 8 of PUT with 20 ms, for 10 s
    latency, n = 40 / 3 * 1e6, 12000
    deviation = math.sqrt((8000 * (10e6 - latency) ** 2 + 4000 * (20e6 - latency) ** 2) / (n - 1))
    curve = made["head/A-fill/visualisation/4096B_67_33_randrw.json"]
    assert sorted(key for key in curve if key.isdigit()) == ["16", "32"]
    assert all(isinstance(value, str) for key in ("16", "32") for value in curve[key].values())
    assert curve["16"] == {
        "bandwidth_bytes": str(1200 * 4096.0),
        "blocksize": "4096",
        "io_bytes": str(n * 4096),
        "iops": "1200.0",
        "latency": pytest_approx(curve["16"]["latency"], latency),
        "number_of_jobs": "1",
        "percentage_reads": "67",
        "percentage_writes": "33",
        "runtime_seconds": "10",
        "std_deviation": pytest_approx(curve["16"]["std_deviation"], deviation),
        "total_ios": str(n),
    }
    assert (curve["maximum_iops"], curve["maximum_bandwidth"]) == ("2400.0", str(2400 * 4096.0))
    assert float(curve["latency_at_max_iops"]) == float(curve["latency_at_max_bandwidth"]) == pytest.approx(40 / 3)
    assert len(curve) == 6
    assert {**made[f"main/{nested('A-fill')}/4096_1_67_33_randrw.json"]} == {
        **curve,
        "benchmark": "warp",
        "number_of_jobs": "1",
    }
    said = capsys.readouterr().out
    assert "4096B_67_33_randrw.json: queue depth 16, 32" in said
    assert "left out" not in said


def pytest_approx(text: str, value: float) -> str:
    """The text itself when it is near the value."""
    assert float(text) == pytest.approx(value, rel=1e-3)
    return text


def test_the_first_key_of_a_file_is_a_point(tmp_path: Path) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG)
    assert export(tmp_path / "A", tmp_path / "out") == 0
    assert all(next(iter(content)) == "4" for content in files(tmp_path / "out").values())
    assert all(list(content) == sorted(content) for content in files(tmp_path / "out").values())


@pytest.mark.parametrize(("op", "name"), [("GET", "4096B_read.json"), ("PUT", "4096B_write.json")])
def test_one_operation_alone_has_its_own_name(tmp_path: Path, op: str, name: str) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG, aa.cheap(ops=(op,)))
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "head") == 0
    assert [Path(path).name for path in files(tmp_path / "out")] == [name]
    assert "percentage_reads" not in json.dumps(files(tmp_path / "out"))


def test_what_has_no_place_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG, aa.cheap(ops=("GET", "STAT", "LIST", "PUT", "DELETE")), phases=("measure-new",))
    assert export(tmp_path / "A", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "left out: measure-new: STAT, DELETE, LIST: the generators know reads and writes only" in said
    content = files(tmp_path / "out")[f"main/{nested('A-measure-new')}/4096_1_67_33_randrw.json"]
    assert content["10"]["iops"] == "300.0", "the depth is all workers: how they are split over operations varies"


def test_without_reads_and_writes_there_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG, aa.cheap(ops=("STAT",)))
    assert export(tmp_path / "A", tmp_path / "out") == 4
    assert "no phase with reads or writes" in capsys.readouterr().err


def phase_of(tmp_path: Path, jobs: List[Dict[str, Any]], **more: Any) -> Path:
    run = aa.run(tmp_path / "A", phases=["measure-new"])
    aa.phase(run, 1, "measure-new", jobs, as_aggregates=True, **more)
    return tmp_path / "A"


def test_an_open_loop_has_no_queue_depth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = aa.steady("GET", workers=4, seconds=14, latency=0.01, begin=-2, size=4096)
    archive = phase_of(tmp_path, [aa.cbt_load("01-a", rows, rate_limit=400)], engine="cbt-load")
    assert export(archive, tmp_path / "out") == 4
    assert "left out: measure-new: an open loop, which has a rate and no queue depth" in capsys.readouterr().out


def test_drivers_of_one_size_are_one_point(tmp_path: Path) -> None:
    jobs = []
    for number, size in ((1, 4096), (2, 4096), (3, 8192)):
        rows = aa.steady("GET", workers=4, seconds=14, latency=0.01 * number, begin=-2, size=size)
        sizes = {"sizes": [[size, size, 1.0]], "driver": f"0{number}"}
        jobs.append(aa.cbt_load(f"0{number}-a", rows, **sizes))
    archive = phase_of(tmp_path, jobs, engine="cbt-load")
    assert export(archive, tmp_path / "out", "--dialect", "main") == 0
    made = files(tmp_path / "out")
    assert [Path(path).name for path in made] == ["4096_2_read.json", "8192_1_read.json"]
    small, large = made.values()
    assert (small["8"]["iops"], small["8"]["latency"][:4]) == ("600.0", "1333")
    assert set(large) & {"4", "8"} == {"4"}


def test_objects_of_several_sizes_stand_at_their_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = aa.steady("PUT", workers=4, seconds=14, latency=0.01, begin=-2, size=3000)
    job = aa.cbt_load("01-a", rows, sizes=[[1000, 1000, 0.75], [4000, 6000, 0.25]])
    assert export(phase_of(tmp_path, [job], engine="cbt-load"), tmp_path / "out", "--dialect", "head") == 0
    assert [Path(path).name for path in files(tmp_path / "out")] == ["2000B_write.json"]
    assert "shown as their mean, 2000 B" in capsys.readouterr().out


def test_runs_that_differ_in_more_have_directories_of_their_own(tmp_path: Path) -> None:
    for iteration in (0, 1):
        for engine in ("warp", "cbt-load"):
            for cycle in ({"phases": [1]}, {"phases": [2]}):
                config = {"benchmark": "warp", "iteration": iteration, "engine": engine, "cycle": cycle, "scale": 1}
                aa.cbt_run(tmp_path / "A x", config, phases=("m",))
    assert export(tmp_path / "A x", tmp_path / "out", "--dialect", "head") == 0
    assert sorted({path.split("/")[1] for path in files(tmp_path / "out")}) == [
        f"A-x-m-cycle-{cycle}-engine-{engine}-iteration-{iteration}"
        for cycle in (1, 2)
        for engine in ("cbt-load", "warp")
        for iteration in (0, 1)
    ]


def test_a_second_run_at_one_depth_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        aa.cbt_run(tmp_path / "A", {**CONFIG, "objects": number})
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "head") == 0
    assert "left out: A-measure-new: a second run with 4 workers: 4096B_67_33_randrw.json" in capsys.readouterr().out


def test_an_incomplete_run_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for workers in (2, 4):
        aa.cbt_run(tmp_path / "A", {**CONFIG, "workers": workers}, aa.cheap(workers=workers), complete=workers == 2)
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "head") == 4
    assert [key for content in files(tmp_path / "out").values() for key in content if key.isdigit()] == ["4"]
    assert "left out: the run was interrupted" in capsys.readouterr().err


def test_what_an_earlier_export_has_left_is_replaced(tmp_path: Path) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG)
    folder = tmp_path / "out" / "head" / "A-measure-new" / "visualisation"
    folder.mkdir(parents=True)
    flat = tmp_path / "out" / "main" / "A-measure-new" / "visualisation"
    deep = tmp_path / "out" / "main" / nested("A-measure-new")
    for directory in (folder, flat, deep):
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("1B_read.json", "1B_read.png", "1B_read.svg", "notes.txt"):
            (directory / name).touch()
    for _ in range(2):
        assert export(tmp_path / "A", tmp_path / "out") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["4096B_67_33_randrw.json", "notes.txt"]
    assert sorted(path.name for path in flat.iterdir()) == ["notes.txt"], "CBT refuses a JSON file there"
    assert sorted(path.name for path in deep.iterdir()) == ["4096_1_67_33_randrw.json", "notes.txt"]


def test_archives_of_one_name_have_folders_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for release, workers in (("reef", 2), ("pacific", 4)):
        aa.cbt_run(tmp_path / release / "A", {**CONFIG, "workers": workers}, aa.cheap(workers=workers))
    options = ["--format", "cbt", "-o", str(tmp_path / "out"), "--dialect", "head"]
    assert main(["export", *(str(tmp_path / its / "A") for its in ("reef", "pacific", "reef")), *options]) == 0
    made = files(tmp_path / "out")
    assert {path.split("/")[1]: next(iter(its)) for path, its in made.items()} == {
        "pacific-A-measure-new": "8",
        "reef-A-measure-new": "4",
    }
    aa.cbt_run(tmp_path / "B", CONFIG, phases=("m-new",))
    aa.cbt_run(tmp_path / "B-m", CONFIG, phases=("new",))
    assert main(["export", str(tmp_path / "B"), str(tmp_path / "B-m"), *options[:3], str(tmp_path / "none")]) == 2
    assert "B-m would both be written to B-m-new: export them one by one" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_configuration_comes_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config,) = aa.cbt_archive(tmp_path / "A", {"workers": 2}, tmp_path / "ceph.conf")
    run = aa.cbt_run(tmp_path / "A", config)
    kept = (tmp_path / "A" / "results" / "cbt_config.yaml").read_text()
    for source, name in ((tmp_path / "A", "A"), (run, run.name)):
        assert export(source, tmp_path / "out", "--dialect", "main") == 0
        copy = tmp_path / "out" / "main" / f"{name}-measure-new" / "results" / "cbt_config.yaml"
        assert copy.read_text() == kept
    (tmp_path / "A" / "results" / "cbt_config.yaml").unlink()
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "main") == 0
    assert copy.parent.parent.with_name("A-measure-new").joinpath("results", "cbt_config.yaml").read_text() == ""
    assert f"--archive={tmp_path / 'out' / 'main' / 'A-measure-new'}" in capsys.readouterr().out


def test_no_configuration_comes_from_above_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, out = tmp_path / "A", tmp_path / "out; touch B"
    aa.cbt_run(archive, CONFIG)
    (tmp_path / "cbt_config.yaml").write_text("of somebody else")
    (archive / "results" / "cbt_config.yaml").unlink(missing_ok=True)
    assert export(archive, out, "--dialect", "main") == 0
    (copy,) = out.rglob("cbt_config.yaml")
    assert copy.read_text() == ""
    assert f"--archive='{copy.parents[1]}'" in capsys.readouterr().out


def test_the_generators_cpu_is_there_when_somebody_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG)

    def watched(run: Path) -> Dict[str, Any]:
        phases = {"measure-new": {"classes": {"generator": {"cores": 1.25}}}}
        return {**summary_of(run), "resources": {"nodes": [], "phases": phases}}

    monkeypatch.setattr(of, "summary_of", watched)
    assert export(tmp_path / "A", tmp_path / "out") == 0
    head, main_ = files(tmp_path / "out").values()
    assert main_["4"]["cpu"] == main_["maximum_cpu_usage"] == "125.0"
    assert "cpu" not in json.dumps(head)


def test_benchmarks_of_cbts_own_are_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = aa.cbt_run(tmp_path / "A", CONFIG)
    other = run.with_name("id-0c9d41ab")
    other.mkdir()
    (other / "json_output.0.client1").write_text("{}")
    assert export(tmp_path / "A", tmp_path / "out") == 0
    said = capsys.readouterr()
    assert "left out: 00000000/id-0c9d41ab: it is a result of CBT's own benchmark" in said.out
    assert said.err == ""
    assert main(["export", str(tmp_path / "A")]) == 0
    left_out = f"Warning: {other}: left out: it is a result of CBT's own benchmark\n"
    assert capsys.readouterr().err == "complete runs: 1 of 1\n" + left_out


def test_what_can_be_compared_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG, phases=("fill", "measure-new", "measure-aged"))
    fill = next((tmp_path / "A").rglob("phases/01-fill"))
    put = aa.cbt_run(tmp_path / "B", CONFIG, aa.cheap(ops=("PUT",)), phases=("fill",))
    fill.rename(tmp_path / "gone")
    (put / "phases" / "01-fill").rename(fill)
    assert export(tmp_path / "A", tmp_path / "out") == 0
    root = tmp_path / "out" / "main"
    said = capsys.readouterr().out
    assert f"--baseline={root / 'A-measure-new'} --archives={root / 'A-measure-aged'} " in said
    assert said.count("--baseline=") == 1


def random_rows(seconds: int, silent: Sequence[int] = ()) -> Dict[int, List[int]]:
    """Second -> latencies in ns of the requests that end in it, up to 1.3 s."""
    chance = random.Random(7)
    return {
        second: [int(chance.lognormvariate(16, 1)) % 1_300_000_000 for _ in range(chance.randrange(150, 400))]
        for second in range(seconds)
        if second not in silent
    }


@pytest.mark.parametrize("block", [1, 10])
def test_quantiles_and_maximum_of_each_second_are_those_of_its_requests(tmp_path: Path, block: int) -> None:
    latencies = random_rows(20, silent=(3, 12))
    rows = []
    for second, values in latencies.items():
        for number, ns in enumerate(values):
            end = second + (number + 1) / (len(values) + 1)
            rows.append(aa.row("GET" if number % 3 else "PUT", end, ns / 1e9, size=4096, thread=number % 8))
    job = aa.cbt_load("01-a", rows, sizes=[[4096, 4096, 1.0]], workers=8)
    archive = phase_of(tmp_path, [job], engine="cbt-load", window=(0, 20), block=block)
    assert export(archive, tmp_path / "out", "--dialect", "main") == 0
    (path,) = (tmp_path / "out").rglob("*_timeseries.json")
    assert path.parts[-4:-1] == ("load", "iodepth-8", "visualisation")
    assert re.fullmatch(r"4096_1_6\d_3\d_randrw_8_timeseries.json", path.name)
    content = json.loads(path.read_text())
    points = content["timeseries"]
    assert [point["timestamp_sec"] for point in points] == list(range(0, 20, block))
    assert content["metadata"]["start_time_epoch"] == aa.T0
    assert content["metadata"]["sampling_interval_ms"] == 1000 * block
    for point in points:
        at = int(point["timestamp_sec"])
        values = sorted(ns for second in range(at, at + block) for ns in latencies.get(second, ()))
        assert point["num_samples"] == len(values)
        assert point["iops"] == len(values) / block
        assert point["bandwidth_bytes"] == 4096 * len(values) / block
        if not values:
            assert block == 1 and at in (3, 12)
            assert all(math.isnan(value) for key, value in point.items() if key.endswith("latency_ms"))
            continue
        assert point["max_latency_ms"] == values[-1] / 1e6
        assert point["mean_latency_ms"] == pytest.approx(sum(values) / len(values) / 1e6)
        for q in (50, 95, 99):
            exact = values[math.ceil(len(values) * q / 100) - 1] / 1e6
            assert point[f"p{q}_latency_ms"] == pytest.approx(exact, rel=0.0005), (at, q)
    highest = max((point for point in points if point["num_samples"]), key=lambda point: point["max_latency_ms"])
    assert float(content["maximum_latency"]) == highest["max_latency_ms"]
    assert float(content["timestamp_at_max_latency"]) == highest["timestamp_sec"]
    assert float(content["maximum_iops"]) == max(point["iops"] for point in points)


def test_a_millisecond_of_a_second_has_no_highest_rate(tmp_path: Path) -> None:
    """A fill with 16 requests each 0.8 s: the last ones end 0.5 ms after a whole second, and the slowest of all."""
    rows = [aa.row("PUT", i * 0.8, 0.8, size=4096, thread=w) for i in range(1, 16) for w in range(16)]
    rows += [aa.row("PUT", 13.0005, 1.0, size=4096, thread=w) for w in range(16)]
    job = aa.cbt_load("01-a", rows, sizes=[[4096, 4096, 1.0]], workers=16)
    asked: Dict[str, Any] = {"duration": None, "mix": {}}
    archive = phase_of(tmp_path, [job], engine="cbt-load", kind="fill", window=(0, 13.0005), asked=asked)
    assert export(archive, tmp_path / "out", "--dialect", "main") == 0
    (path,) = (tmp_path / "out").rglob("*_timeseries.json")
    content = json.loads(path.read_text())
    assert max(point["iops"] for point in content["timeseries"]) > 30_000
    assert (content["maximum_iops"], content["maximum_bandwidth"]) == ("32.0", str(32 * 4096.0))
    assert (content["maximum_latency"], content["timestamp_at_max_latency"]) == ("1000.0", "13.0")


def report(archive: Path, phase: str) -> int:
    return main(["report", str(archive), "--visualisation", phase])


def test_an_archive_gets_the_files_of_one_phase_and_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for workers in (2, 4):
        load, config = aa.cheap(workers=workers), {**CONFIG, "workers": workers}
        run = aa.cbt_run(tmp_path / "A", config, load, phases=("fill", "m"))
        (run / "complete").unlink()
        end_run(run, {"t": 1.0, "run_id": "k3j9"})
        runs.append(run)
    assert main(["verify", str(tmp_path / "A")]) == 0
    before = {run: (run / "SHA256SUMS").read_text() for run in runs}
    for phase in ("fill", "m"):
        assert report(tmp_path / "A", phase) == 0
        made = files(tmp_path / "A" / "results" / "common-format")
        assert list(made) == [f"A-{phase}/load/visualisation/4096_1_67_33_randrw.json"]
        assert [key for key in made.popitem()[1] if key.isdigit()] == ["4", "8"]
    (tmp_path / "A" / "results" / "common-format" / "A-m" / "load" / "visualisation" / "x.svg").touch()
    link = tmp_path / "A" / "results" / "common-format" / "A-m" / "A-m"
    assert sorted(path.name for path in (link / "visualisation").iterdir()) == ["4096_1_67_33_randrw.json", "x.svg"]
    assert main(["verify", str(tmp_path / "A")]) == 0
    assert before == {run: (run / "SHA256SUMS").read_text() for run in runs}
    assert find_runs(tmp_path / "A") == sorted(runs)
    assert f"generate_timeseries_performance_report.py --archive={tmp_path / 'A'} " in capsys.readouterr().out


def test_files_in_an_archive_need_one_curve_of_a_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for engine in ("warp", "cbt-load"):
        run = aa.cbt_run(tmp_path / "A", {**CONFIG, "engine": engine}, phases=("m",))
    assert report(tmp_path / "A", "m") == 2
    assert "(A-m-engine-cbt-load, A-m-engine-warp): use `cbt-tools export" in capsys.readouterr().err
    assert report(tmp_path / "A", "measure") == 2
    assert "no phase measure with reads or writes; the phases are m" in capsys.readouterr().err
    assert report(run, "m") == 2
    assert "not an archive of CBT: it has no folder `results`" in capsys.readouterr().err
    assert not (tmp_path / "A" / "results" / "common-format").exists()


@pytest.mark.parametrize("place", ["common-format", "common-format/A-m", "common-format/A-m/load/visualisation"])
def test_a_link_in_an_archive_leads_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    aa.cbt_run(tmp_path / "A", CONFIG, phases=("m",))
    link = tmp_path / "A" / "results" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.json").touch()
    link.symlink_to(tmp_path / "mine")
    assert report(tmp_path / "A", "m") == 2
    assert "is a link: remove it" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["x.json"]


def elbencho(archive: Path, client: str, threads: int, depth: int, *phases: str) -> None:
    """A result of CBT's benchmark elbencho, at the place and in the form that it has."""
    cell = f"write_small/elbencho/write_65536/threads-{threads:03d}/iodepth-{depth:03d}"
    folder = archive / "results" / "00000000" / "id-0c9d41ab" / client / "osd_ra-00000000" / cell
    folder.mkdir(parents=True)
    command = f'"elbencho" "--write" "--threads" "{threads}" "--block" "64k" "--iodepth" "{depth}" "--size" "128k"'
    table = f"OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n{'=' * 11} {'=' * 16}    {'=' * 10}   {'=' * 9}\n"
    head = f"ISO DATE: 2026-09-22T14:23:41+0000\nCOMMAND LINE: {command} \n\n{table}"
    (folder / "result.csv").write_text(head + "".join(f"{phase}---\n" for phase in phases))


def written(objects: int, seconds: float, latency: str = "") -> str:
    lines = {
        "Elapsed time": (f"{seconds - 0.1:.3f}s", f"{seconds:.3f}s"),
        "Objects/s": (f"{objects / seconds:.0f}",) * 2,
        "IOPS": (f"{2 * objects / seconds:.0f}",) * 2,
        "Throughput MiB/s": (f"{objects / 8 / seconds:.0f}",) * 2,
        "Total MiB": (f"{objects / 8:.0f}",) * 2,
        "Objects total": (str(objects),) * 2,
    }
    text = "".join(
        f"{'' if number else 'WRITE':<11} {kind:<17}: {first:>11} {last:>11}\n"
        for number, (kind, (first, last)) in enumerate(lines.items())
    )
    return text + (f"{'':<11} {'Objects latency':<17}: [ min=1us avg={latency} max=1.00s ]\n" if latency else "")


def test_elbencho_of_cbts_own_benchmark_makes_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buckets = "MKBUCKETS   Elapsed time     : 32ms 32ms\n            Buckets total    : 1 1"
    for client in ("client1", "client2"):
        elbencho(tmp_path / "A", client, 2, 4, f"{buckets}\n", written(1000, 10))
        elbencho(tmp_path / "A", client, 8, 4, written(1600, 8))
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "main") == 0
    ((path, content),) = files(tmp_path / "out").items()
    assert path.endswith("A-write-small/load/visualisation/131072_2_write.json")
    assert [key for key in content if key.isdigit()] == ["16", "64"]
    assert float(content["16"]["iops"]) == pytest.approx(200, rel=1e-3)
    assert float(content["16"]["bandwidth_bytes"]) == pytest.approx(200 * 131072, rel=1e-3)
    assert float(content["16"]["latency"]) == pytest.approx(16 / 200 * 1e9, rel=1e-3), "Little's law"
    assert float(content["64"]["iops"]) == pytest.approx(400, rel=1e-3)
    assert content["benchmark"] == "elbencho"
    assert "no latency in the results: the mean is workers / rate" in capsys.readouterr().out
    assert not list((tmp_path / "out").rglob("*_timeseries.json"))
    assert report(tmp_path / "A", "write_small") == 0


def test_latencies_of_elbencho_are_taken_where_it_wrote_them(tmp_path: Path) -> None:
    for client, latency in (("client1", "61.4ms"), ("client2", "2.98ms")):
        elbencho(tmp_path / "A", client, 2, 4, written(1000, 10, latency))
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "main") == 0
    ((_, content),) = files(tmp_path / "out").items()
    assert float(content["16"]["latency"]) == pytest.approx((61.4 + 2.98) / 2 * 1e6)


def test_a_torn_result_of_elbencho_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elbencho(tmp_path / "A", "client1", 2, 4, written(1000, 10))
    elbencho(tmp_path / "A", "client1", 8, 4, written(1600, 8), written(1600, 8))
    path = next((tmp_path / "A").rglob("threads-008/iodepth-004/result.csv"))
    path.write_text(path.read_text()[:-200])
    assert export(tmp_path / "A", tmp_path / "out", "--dialect", "main") == 4
    assert "result: its last line has no end" in capsys.readouterr().err
    ((_, content),) = files(tmp_path / "out").items()
    assert [key for key in content if key.isdigit()] == ["8"]
    path.write_text(path.read_text().partition("WRITE")[0])
    assert export(tmp_path / "A", tmp_path / "out") == 4
    (run,) = find_runs(tmp_path / "A")
    assert f"Warning: {run}: {path.relative_to(run)}: elbencho ran no phase\n" in capsys.readouterr().err


def test_wrong_use_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--format", "cbt"]) == 2
    assert "--format cbt makes a folder: give -o DIR" in capsys.readouterr().err
    assert export(tmp_path / "none", tmp_path / "out") == 2
    assert "no such file or directory" in capsys.readouterr().err
    aa.cbt_run(tmp_path / "A", CONFIG)
    (tmp_path / "file").touch()
    assert export(tmp_path / "A", tmp_path / "file") == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_without_numpy_it_is_said(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from cbt_plugins.tools.__main__ import main; sys.exit(main(['export', 'a', '--format', 'cbt', '-o', 'b']))"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert done.stderr == "Error: missing Python package numpy: pip install 'cbt-plugins[report]'\n"
