"""What the benches measure: sizes enough to see a growth, and planted steps whose misses count as their hits do."""

from __future__ import annotations

import ast
import importlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

PERF = Path(__file__).parents[1] / "perf"
#: sizes of a curve, at least
LEAST = 3


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PERF)
    return importlib.import_module(name)


@pytest.mark.parametrize("path", sorted((PERF / "at_scale").glob("[!_]*.py")), ids=lambda path: str(path.stem))
def test_each_curve_has_sizes_enough_to_see_how_it_grows(path: Path) -> None:
    tree = ast.parse(path.read_text())
    tuples: Dict[str, int] = {}
    for assigned in (node for node in tree.body if isinstance(node, ast.Assign)):
        for target, value in pairs(assigned.targets[0], assigned.value):
            if isinstance(target, ast.Name) and isinstance(value, ast.Tuple):
                tuples[target.id] = len(value.elts)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    sizes = [call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "sizes"]
    short = [name.id for name in sizes if isinstance(name, ast.Name) and tuples.get(name.id, LEAST) < LEAST]
    assert not short, f"{path.name}: {short}"
    assert sizes or path.stem == "costs", f"{path.name} heeds no --quick"


def pairs(target: ast.expr, value: ast.expr) -> List[tuple[ast.expr, ast.expr]]:
    """Return the targets of an assignment, each with its value."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts))
    return [(target, value)]


def test_quick_leaves_out_the_largest_size_and_long_adds_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    extent = module("at_scale.costs", monkeypatch).Extent
    sizes = {name: extent[name].sizes((1, 10, 100), (1000,)) for name in ("QUICK", "USUAL", "LONG")}
    assert sizes == {"QUICK": [1, 10], "USUAL": [1, 10, 100], "LONG": [1, 10, 100, 1000]}


def test_a_measurement_that_does_not_exist_is_refused_with_the_names_of_all() -> None:
    line = [sys.executable, "scale.py", "--quick", "nodes"]
    done = subprocess.run(line, cwd=PERF, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no measurement nodes: there are " in done.stderr
    assert ", fanout, " in done.stderr


def test_the_measurement_of_drivers_follows_a_load_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load, quick = module("at_scale.load", monkeypatch), module("at_scale.costs", monkeypatch).Extent.QUICK
    monkeypatch.setattr(load, "SIZES", (10, 100))
    monkeypatch.setattr(load, "SECONDS", 3.0)
    monkeypatch.setattr(logging, "disable", lambda level: None)
    load.main(quick)
    columns, row = (line.split() for line in capsys.readouterr().out.splitlines()[3:5])
    assert columns[:2] == ["drivers", "clients"]
    assert row[:2] == ["10", "2"]


def test_archives_have_the_blocks_and_heartbeats_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With longer blocks a report is cheaper than the report of any run."""
    archives, inputs = module("at_scale.archives", monkeypatch), module("inputs.long_runs", monkeypatch)
    run = archives.write_files(tmp_path, 120 / 3600, phase=60, clients=inputs.Clients(1, 2))
    assert [path.name for path in sorted((run / "phases").iterdir())] == ["01-age00", "02-age01"]
    for folder in (run / "phases").iterdir():
        assert json.loads((folder / "phase.json").read_text())["block"] == 1
        assert len((folder / "heartbeat.jsonl").read_text().splitlines()) == 60
    assert [archives.resolution_of(seconds) for seconds in (7200, 7201)] == [(1, 1), (60, 10)]


def test_misses_of_planted_steps_count_where_hits_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the end of a series only a hit could be seen: such positions would make each method look better."""
    scores = module("inputs.detector_scores", monkeypatch)
    values = [100.0] * (scores.FIRST + scores.PATIENCE + 9)

    def drops(values: List[float]) -> List[int]:
        return [n for n in range(1, len(values)) if values[n] < values[n - 1]]

    hits, misses = scores.of_planted(drops, [values], 1), scores.of_planted(lambda values: [], [values], 1)
    for step in map(str, scores.STEPS):
        assert hits[step] == [1] * 10
        assert misses[step] == [None] * 10


def test_f1_and_covering_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worked values of TCPDBench, the paper's own program (analysis/scripts/metrics.py)."""
    scores = module("inputs.detector_scores", monkeypatch)
    assert scores.f1({1: [10, 20], 2: [11, 20], 3: [10], 4: [0, 5]}, [10, 20]) == 1.0
    three = {1: [], 2: [10], 3: [50]}
    assert [scores.f1(three, cuts) for cuts in ([10], [])] == [pytest.approx(0.9090909090909091), pytest.approx(0.8)]
    values = [
        scores.covering({1: [10, 20], 2: [10], 3: [0, 5]}, [10, 20], 45),
        scores.covering({1: [], 2: [10], 3: [40]}, [10], 45),
        scores.covering({1: [], 2: [10], 3: [40]}, [], 45),
    ]
    assert values == pytest.approx([0.7962962962962963, 0.7954144620811286, 0.8189300411522634])


def test_a_fault_without_a_mark_counts_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    live = module("live", monkeypatch)
    assert live.delay_to_mark([100, 160], {100: 110.0}, 200.0) == "1 of 2 faults, median 25.0 s, 90 % within 37.0 s"
