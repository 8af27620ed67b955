"""Keys of CBT's own sections that its classes do not read."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from config_files import CLUSTER, CYCLE, WARP, stand_in_checkout

from cbt_plugins.cbt import run_loop
from cbt_plugins.cbt.unread_keys import unread_keys
from cbt_plugins.config.yaml_source import read
from cbt_plugins.tools.__main__ import main

#: shaped as CBT's: a class reads its keys in its module, in its base class, and in a package that it imports
TREE = {
    "benchmark/benchmark.py": "class Benchmark:\n    def __init__(self, config):\n        config.get('log_bw')\n",
    "benchmark/hsbench.py": "from .benchmark import Benchmark\nimport settings\n"
    "class Hsbench(Benchmark):\n    x = lambda config: (config.get('report_intervals'), config.get('size'))\n",
    "benchmark/newfio.py": "from workloads.workloads import Workloads\nfrom command import options\n",
    "workloads/workloads.py": "KEYS = ['iodepth']\n",
    "command/options.py": "'total_iodepth' in {}\n",
    "settings.py": "common.get('tmp_dir')\n",
}
SECTIONS = """\
benchmarks:
  hsbench: {size: 4K, acceptable: {}, log_bw: false,
            report_interval: 1, tmp_dir: /x, colour: 3}
  newfio: {iodepth: 1, total_iodepth: 2, depth: 3}
  unheard: {a: 1}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return stand_in_checkout(tmp_path / "cbt", TREE)


def texts(tmp_path: Path, tree: Path, sections: str) -> List[str]:
    path = tmp_path / "f.yaml"
    path.write_text(sections)
    return [str(each).replace(str(tmp_path), ".") for each in unread_keys(read(path), tree)]


def test_each_has_its_place_and_what_may_be_meant(tmp_path: Path, tree: Path) -> None:
    assert texts(tmp_path, tree, SECTIONS) == [
        "./f.yaml:3:13: benchmarks.hsbench.report_interval: ./cbt/benchmark/hsbench.py does not read this key; "
        "did you mean 'report_intervals'?",
        "./f.yaml:3:33: benchmarks.hsbench.tmp_dir: ./cbt/benchmark/hsbench.py does not read this key",
        "./f.yaml:3:46: benchmarks.hsbench.colour: ./cbt/benchmark/hsbench.py does not read this key",
        "./f.yaml:4:42: benchmarks.newfio.depth: ./cbt/benchmark/newfio.py does not read this key",
    ]


def test_a_tree_that_cannot_be_read_says_nothing(tmp_path: Path, tree: Path) -> None:
    (tree / "benchmark" / "hsbench.py").write_text("def (")
    assert all("newfio" in text for text in texts(tmp_path, tree, SECTIONS))
    assert texts(tmp_path, tree, "- benchmarks\n") == texts(tmp_path, tmp_path, SECTIONS) == []


def test_a_monitor_that_nobody_has(tmp_path: Path, tree: Path) -> None:
    sections = "monitoring_profiles: {perf: {}, resources: {}, internals: {}}\n"
    (text,) = texts(tmp_path, tree, sections)
    assert text.startswith("./f.yaml:1:48: monitoring_profiles.internals: unknown monitor; there is backlog, blktrace")
    (tree / "monitoring").mkdir()
    (tree / "monitoring" / "internals.py").write_text('NAME = "internals"\n')
    assert texts(tmp_path, tree, sections) == []  # a newer CBT has it


@pytest.mark.parametrize(("others", "status"), [("", 2), ("  hsbench: {size: 4K}\n", 0)])
def test_recovery_test_is_for_benchmarks_of_cbt(
    tmp_path: Path, others: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error where it has no effect at all, a warning where it has an effect on other sections."""
    monkeypatch.setenv("CBT_HOME", str(stand_in_checkout(tmp_path / "cbt", {"cluster/ceph.py": "'recovery_test'\n"})))
    path, text = tmp_path / "f.yaml", f"{CLUSTER}{WARP}{CYCLE}".replace("cluster:\n", "cluster:\n  recovery_test: {}\n")
    path.write_text(text + others)
    assert main(["plan", str(path)]) == status
    output = capsys.readouterr()
    assert "recovery_test: has no effect on warp: only CBT's own" in (output.err if status else output.out)
    path.write_text(text.split("benchmarks:")[0] + "benchmarks:\n" + others)
    assert not others or texts(tmp_path, tmp_path / "cbt", path.read_text()) == []


def test_our_loop_refuses_a_monitor_that_nobody_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before it contacts a node; under cbt.py it is CBT that knows its monitors."""
    path = tmp_path / "f.yaml"
    path.write_text(f"monitoring_profiles:\n  collectl: {{}}\n  internals: {{}}\n{CLUSTER}{WARP}{CYCLE}")
    assert run_loop.main(["-a", str(tmp_path / "archive"), str(path)]) == 2
    assert f"{path}:3:3: monitoring_profiles.internals: unknown monitor; there is" in capsys.readouterr().err
    assert not (tmp_path / "archive").exists()


def test_plan_shows_them(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CBT_HOME", str(tree))
    path = tmp_path / "f.yaml"
    path.write_text("cluster: {iterations: 1}\n" + SECTIONS)
    assert main(["plan", str(path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("Warning: ") and "does not read this key" in line for line in errors) == 4
    assert errors[-1].endswith("this file has no benchmark of cbt-plugins")
