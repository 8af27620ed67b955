"""cbt-tools export as Prometheus and CSV: the numbers of runs for other programs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict

import archive_builder as made
import pytest

from cbt_plugins.report.export.prometheus import prometheus
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.tools.__main__ import main

CONFIG = {"benchmark": "warp", "iteration": 0}
#: a sample of the text format: name{label="value",...} number
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')


def samples(text: str) -> Dict[str, float]:
    """'name{labels}' -> value; every line has to be of the format, and those of one name together."""
    found: Dict[str, float] = {}
    names = []
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ gauge)", line)
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert f"{match[1]}{{{match[2]}}}" not in found, "a series has one value"
        found[f"{match[1]}{{{match[2]}}}"] = float(match[3])
        names.append(match[1])
    assert [a for a, b in zip(names, [None, *names]) if a != b] == list(dict.fromkeys(names))
    assert text.count("# TYPE ") == len(set(names))
    return found


def test_prometheus_gets_base_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.cbt_run(tmp_path / "A", CONFIG)
    assert main(["export", str(tmp_path / "A"), "--format", "prometheus", "-o", str(tmp_path / "x.prom")]) == 0
    found = samples((tmp_path / "x.prom").read_text())
    name = f'benchmark="warp",run="00000000/{run.name}",run_id="k3j9"'
    where = f'{name},phase="measure-new",role="measure"'
    assert found[f'cbt_run_usable{{{name},ceph="18.2.7 reef"}}'] == 1
    assert found[f'cbt_objects_per_second{{{where},op="GET"}}'] == 200
    assert found[f'cbt_objects_per_second{{{where},op="total"}}'] == 300
    assert found[f'cbt_bytes_per_second{{{where},op="PUT"}}'] == pytest.approx(100 * 4096, rel=1e-3)
    assert found[f'cbt_latency_seconds{{{where},op="PUT",quantile="0.99"}}'] == pytest.approx(0.02)
    assert found[f'cbt_latency_mean_seconds{{{where},op="GET"}}'] == pytest.approx(0.01)
    assert found[f'cbt_success_ratio{{{where},op="total"}}'] == 1
    assert found[f"cbt_phase_end_timestamp_seconds{{{where}}}"] == 1_700_000_110
    assert "complete runs: 1 of 1" in capsys.readouterr().err


def test_runs_of_several_archives_have_series_of_their_own(tmp_path: Path) -> None:
    for name, run_id, latency in (("A", "aaaa", 0.01), ("B", "bbbb", 0.02)):
        run = made.cbt_run(tmp_path / name, CONFIG, made.cheap(latency={"GET": latency, "PUT": 0.02}), summary=False)
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps({**manifest, "run_id": run_id}))
    shutil.copytree(tmp_path / "B", tmp_path / "copy")
    archives = [str(tmp_path / name) for name in ("A", "B", "copy")]
    assert main(["export", *archives, "--format", "prometheus", "-o", str(tmp_path / "x.prom")]) == 0
    text = (tmp_path / "x.prom").read_text()
    found = {key: value for key, value in samples(text).items() if "latency_mean" in key and 'op="GET"' in key}
    assert {re.findall('run_id="(.*?)"', key)[0]: value for key, value in found.items()} == {
        "aaaa": pytest.approx(0.01),
        "bbbb": pytest.approx(0.02),
    }


def test_labels_are_escaped(tmp_path: Path) -> None:
    run = made.cbt_run(tmp_path / "A", CONFIG)
    summary = json.loads((run / "summary.json").read_text())
    summary["run"]["benchmark"] = 'a "quoted\\" \n name'
    assert all('benchmark="a \\"quoted\\\\\\" \\n name"' in key for key in samples(prometheus([(summary, True)])))


def test_a_table_has_a_line_for_each_complete_run_oldest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aged = {"GET": 0.01, "PUT": 0.02, "measure-aged:GET": 0.02, "measure-aged:PUT": 0.04}
    made.cbt_run(tmp_path / "A", CONFIG, made.cheap(latency=aged), phases=("measure-new", "measure-aged"))
    made.cbt_run(tmp_path / "B", CONFIG, complete=False)
    last = made.cbt_run(tmp_path / "C", CONFIG, made.cheap(ops=("GET",)), start=1000)
    archives = [str(tmp_path / name) for name in "CBA"]
    assert main(["export", *archives, "--format", "csv", "-o", str(tmp_path / "x.csv")]) == 4, "one is not whole"
    text = (tmp_path / "x.csv").read_text()
    first, second = list(csv.DictReader(text.splitlines()))
    assert {first["run_id"], first["ceph"], first["benchmark"]} == {"k3j9", "18.2.7 reef", "warp"}
    assert first["time"] == "2023-11-14T22:15:00Z"
    assert float(first["measure-new.total.obj_per_s"]) == 300
    assert float(first["measure-aged.GET.mean_ms"]) == 20
    assert (second["run"], second["time"]) == (f"00000000/{last.name}", "2023-11-14T22:31:40Z")
    assert float(second["measure-new.GET.obj_per_s"]) == 200
    assert second["measure-new.total.obj_per_s"] == second["measure-aged.GET.mean_ms"] == ""
    attributes, numbers = text.splitlines()[0].split("measure-new.GET.obj_per_s,", 1)
    assert attributes.startswith("time,benchmark,run,run_id,ceph,cbt_plugins,warnings,config.")
    assert ",config." not in numbers
    assert "left out: the run was interrupted" in capsys.readouterr().err


def test_configurations_are_told_apart(tmp_path: Path) -> None:
    """Of Apache Otava's series a run is one point: other workers or sizes are not the same series."""
    for number, (workers, size) in enumerate(((2, 4096), (2, 4096), (4, 65536))):
        load = made.cheap(workers=workers, size=size)
        run = made.cbt_run(tmp_path / str(number), CONFIG, load, start=1000 * number)
    archives = [str(tmp_path / str(number)) for number in range(3)]
    assert main(["export", *archives, "-o", str(tmp_path / "x.csv")]) == 0
    lines = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert [line["config.objects.sizes"] for line in lines] == ["4096", "4096", "65536"]
    assert [line["config.phase.measure-new.workers"] for line in lines] == ["4", "4", "8"]
    assert main(["export", str(run), "-o", str(tmp_path / "x.csv")]) == 0
    assert ",config." not in (tmp_path / "x.csv").read_text()


def test_warnings_are_exported(tmp_path: Path) -> None:
    run = made.run(tmp_path / "A", phases=["new"])
    get = made.steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096)
    hurt = {"health": "HEALTH_ERR", "pgs": {"active+undersized+degraded": 20, "active+clean": 11}}
    made.phase(run, 1, "new", [made.job("g", "GET", get)], states=lambda t: hurt)
    warnings = [its for its in summarize(run)["warnings"] if its["severity"] == "warning"]
    assert "not-clean" in {its["code"] for its in warnings}
    assert main(["export", str(run), "-o", str(tmp_path / "x.csv")]) == 0
    (line,) = csv.DictReader((tmp_path / "x.csv").read_text().splitlines())
    assert "not-clean" in line["warnings"].split(" ")
    assert main(["export", str(run), "--format", "prometheus", "-o", str(tmp_path / "x.prom")]) == 0
    found = samples((tmp_path / "x.prom").read_text())
    said = {key.split("severity=")[1]: value for key, value in found.items() if key.startswith("cbt_run_warnings{")}
    assert said['"warning"}'] == len(warnings) and said['"invalid"}'] == 0


def test_a_run_of_another_program_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.cbt_run(tmp_path / "A", CONFIG)
    other = run.with_name("id-ffffffff")
    other.mkdir()
    for form in ("csv", "prometheus"):
        assert main(["export", str(tmp_path / "A"), "--format", form, "-o", str(tmp_path / "x")]) == 0
        assert f"Warning: {other}: left out: it is a result of CBT's own benchmark" in capsys.readouterr().err


def test_of_an_incomplete_run_prometheus_gets_only_that(tmp_path: Path) -> None:
    run = made.cbt_run(tmp_path / "A", CONFIG, complete=False)
    assert main(["export", str(run), "--format", "prometheus", "-o", str(tmp_path / "x.prom")]) == 4
    assert list(samples((tmp_path / "x.prom").read_text()).values()) == [0.0]


@pytest.mark.parametrize("verb", ["export", "export --format prometheus", "export --format parquet -o lake", "flame"])
def test_runs_that_are_given_twice_are_refused(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "parquet" in verb:
        pytest.importorskip("duckdb")
    run = made.small(tmp_path / "a")
    (tmp_path / "b").symlink_to("a")
    for other in ("a", "b", "a/results/00000000", str(run)):
        assert main([*verb.split(), "a", other]) == 2, other
        out, err = capsys.readouterr()
        assert out == "" and err.endswith(" is given twice\n") and not (tmp_path / "lake").exists()


def test_a_run_whose_folder_was_renamed_is_named(tmp_path: Path) -> None:
    run = made.small(tmp_path)
    renamed = shutil.copytree(run, run.with_name("before-the-upgrade"))
    (run.parent / "cosbench").mkdir()  # of CBT's own benchmark
    line = [sys.executable, "-m", "cbt_plugins.tools", "export", str(tmp_path), "-o", str(tmp_path / "x.csv")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    why = "not read: the name of a run's folder begins with id-: rename this one, or give its path"
    assert done.stderr == f"Warning: {renamed}: {why}\ncomplete runs: 1 of 1\n" and done.returncode == 0
    assert find_runs(renamed) == [renamed]
