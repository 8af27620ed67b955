"""compare.py of every era judges our archives by `acceptable:`."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Sequence

import archive_builder as ea
import pytest
from cbt_trees import Trees

from cbt_plugins.config.acceptable import parse

from .conftest import Cbt

pytestmark = pytest.mark.upstream

SECTION: Dict[str, Any] = {
    "s3": {"urls": ["http://192.0.2.5:7480"], "user": "cbt"},
    "workers": [2, 4],
    "acceptable": {
        "bandwidth": "(or (greater) (near 0.05))",
        "iops_avg": "(or (greater) (near 0.05))",
        "latency_avg": "(or (less) (near 0.05))",
        "measure-new/GET/p99_ms": "(or (less) (near 0.05))",
    },
}


def archives(cbt: Cbt, *names: str, iterations: int = 1, get: Sequence[float] = (), **cluster: Any) -> None:
    """Archives of a sweep over workers; `get` are their latencies of GET (10 ms without)."""
    for name, latency in itertools.zip_longest(names, get, fillvalue=0.01):
        path = cbt.tmp / str(name)
        for config in ea.cbt_archive(path, SECTION, cbt.tmp / "ceph.conf", iterations=iterations, **cluster):
            ea.cbt_run(path, config, ea.cheap(latency={"GET": float(latency), "PUT": 0.02}, workers=config["workers"]))


def test_equal_runs_are_accepted(cbt: Cbt, tree: Path) -> None:
    archives(cbt, "new", "base", iterations=2)
    outcome = cbt.compare(tree, "new", "base", "--output", str(cbt.tmp / "out.md"))
    assert outcome.status == 0, outcome.output
    assert "All 16 tests passed." in outcome.output
    assert outcome.output.count("/measure-new/GET: measure-new/GET/p99_ms: (or (less) (near 0.05)):: ") == 4
    assert "Traceback" not in outcome.output
    table = (cbt.tmp / "out.md").read_text().splitlines()
    assert table[0] == "### all 16 tests passed"
    assert table[1] == "run | metric | baseline | result | accepted"
    first, *_ = [line for line in table if " | bandwidth | " in line]
    run = outcome.runs()[0].name
    assert first.split(" | ")[:4] == [f"warp {run}/measure-new/total", "bandwidth", "1.1719", "1.1719"]


def test_a_slower_run_is_rejected_with_its_numbers(cbt: Cbt, tree: Path) -> None:
    archives(cbt, "new", "base", get=[0.02, 0.01])
    outcome = cbt.compare(tree, "new", "base", "--output", str(cbt.tmp / "out.md"))
    assert outcome.status == 1, outcome.output
    assert "8 tests failed out of 8" in outcome.output
    assert "iops_avg: (or (greater) (near 0.05)):: 200.0/300.0  => rejected" in outcome.output
    assert (cbt.tmp / "out.md").read_text().startswith("### 8 out of 8 failed")
    assert cbt.compare(tree, "base", "new").status == 0, "what is faster is accepted"


def test_an_interrupted_run_is_rejected(cbt: Cbt, tree: Path) -> None:
    archives(cbt, "new", "base")
    run = sorted((cbt.tmp / "new").glob("results/0*/id-*"))[0]
    (run / "complete").unlink()
    outcome = cbt.compare(tree, "new", "base")
    assert outcome.status == 1, outcome.output
    assert "1 tests failed out of 5" in outcome.output
    assert f"{run}: cannot be judged: the run was interrupted" in outcome.output
    assert "usable: both runs are usable:: 0.0/1.0  => rejected" in outcome.output
    assert cbt.compare(tree, "base", "new").status == 1, "nor is anything good beside half a baseline"


def test_a_run_that_is_not_there_is_rejected(cbt: Cbt, tree: Path) -> None:
    archives(cbt, "new", "base")
    run = sorted((cbt.tmp / "new").glob("results/0*/id-*"))[-1]
    run.rename(cbt.tmp / "gone")
    outcome = cbt.compare(tree, "new", "base")
    assert outcome.status == 1, outcome.output
    assert f"{run}: cannot be judged: there is no such run" in outcome.output
    assert "1 tests failed out of 5" in outcome.output


def test_a_missing_baseline_ends_as_upstreams_do(cbt: Cbt, tree: Path) -> None:
    archives(cbt, "new", "base")
    first, _ = sorted((cbt.tmp / "base").glob("results/0*/id-*"), key=lambda path: _workers(path))
    first.rename(cbt.tmp / "gone")
    outcome = cbt.compare(tree, "new", "base")
    assert outcome.status == 0, outcome.output
    assert "baseline: " in outcome.output
    assert "result does not exist in " in outcome.output
    assert "All 0 tests passed." in outcome.output


def _workers(run: Path) -> int:
    phase = json.loads(next(run.glob("phases/*/phase.json")).read_text())
    return int(phase["jobs"][0]["workers"])


def test_without_acceptable_nothing_is_judged(cbt: Cbt, tree: Path) -> None:
    for name in ("new", "base"):
        section = {key: value for key, value in SECTION.items() if key != "acceptable"}
        for config in ea.cbt_archive(cbt.tmp / name, section, cbt.tmp / "ceph.conf"):
            ea.cbt_run(cbt.tmp / name, config, ea.cheap(workers=config["workers"]))
    outcome = cbt.compare(tree, "new", "base")
    assert outcome.status == 0, outcome.output
    assert outcome.output.count("see the reports of") == 2


def test_statements_are_evaluated_as_the_tree_does(tree: Path) -> None:
    statements = [
        "(less)",
        "(greater)",
        "(near 0.05)",
        "(near 0)",
        "(near 1)",
        "(or (greater) (near 0.05))",
        "(or (less) (or (near .1) (greater)))",
    ]
    numbers = [0.0, 1e-9, 89.9, 90.0, 95.0, 100.0, 105.0, 110.0, 1e12]
    program = (
        "import json, sys; from benchmark.lis import Env, Lispy\n"
        "cases = json.load(sys.stdin)\n"
        "evaluate = lambda s, r, b: Lispy().eval(Lispy().parse(s), Env(None, result=r, baseline=b))\n"
        "print(json.dumps([bool(evaluate(*case)) for case in cases]))"
    )
    cases = list(itertools.product(statements, numbers, numbers))
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=tree, input=json.dumps(cases), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [parse(s)(result, baseline) for s, result, baseline in cases]


def test_without_numpy_stored_summaries_are_enough(cbt: Cbt, trees: Trees) -> None:
    cbt.need("lxml")
    archives(cbt, "new", "base")
    blocker = cbt.tmp / "blocker"
    blocker.mkdir()
    (blocker / "numpy.py").write_text("raise ImportError('none here', name='numpy')\n")
    cbt.environment["PYTHONPATH"] = str(blocker)
    outcome = cbt.compare(trees["master"], "new", "base")
    assert outcome.status == 0, outcome.output
    assert "All 8 tests passed." in outcome.output
    next((cbt.tmp / "new").glob("results/0*/id-*/summary.json")).unlink()
    outcome = cbt.compare(trees["master"], "new", "base")
    assert outcome.status == 1
    assert "makes one, with pip install 'cbt-plugins[report]'" in outcome.output
