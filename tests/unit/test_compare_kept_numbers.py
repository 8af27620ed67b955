"""Of many runs a comparison keeps only the numbers that it needs, and says the same as with all numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest
from compare_records import record

from cbt_plugins.compare import sides
from cbt_plugins.compare.table import Choice
from cbt_plugins.metrics import CLUSTER, METRICS, TOTAL, MetricSource, from_source
from cbt_plugins.results import record_reader
from cbt_plugins.results.run_record import STATE, Key, RunRecord
from cbt_plugins.tools.__main__ import main

#: phase -> operations and sources of its metrics; a phase of losses also has percentiles of failures
PHASES = {
    "measure-new": (("GET", "PUT", TOTAL), (MetricSource.OPERATION,)),
    "measure-aged": (("GET", "PUT", TOTAL), (MetricSource.OPERATION,)),
    f"measure-aged{STATE}degraded": (("GET", "PUT", TOTAL), (MetricSource.OPERATION,)),
    "one-down failure": (("GET", TOTAL), (MetricSource.LOSS, MetricSource.OPERATION)),
    "node down": (("GET", TOTAL), (MetricSource.LOSS,)),
}
#: the failure of a scorecard
SCORED = "node down"


def keys() -> Iterator[Key]:
    for phase, (ops, sources) in PHASES.items():
        for metric in from_source(MetricSource.EPISODE) if MetricSource.LOSS in sources else ():
            yield phase, CLUSTER, metric.key
        for op in ops:
            yield from ((phase, op, metric.key) for source in sources for metric in from_source(source))
    for metric in from_source(MetricSource.CLASS):
        yield from (("measure-new", daemons, metric.key) for daemons in ("osd", "rgw"))
    yield from (("measure-new", TOTAL, metric.key) for metric in from_source(MetricSource.NODES))


def a_run(path: Path) -> RunRecord:
    """Return a run that lacks some of the numbers, as runs with few requests do."""
    chance = random.Random(path.name)
    numbers: Dict[Key, Any] = {}
    for key in keys():
        if chance.random() > 0.3:
            series = key[2] == "obj_per_s" and key[0] == "measure-new"
            values = [chance.lognormvariate(4, 0.1) for _ in range(20)]
            numbers[key] = values if series else None if chance.random() < 0.05 else values[0]
    run = record(numbers, name=path.name, kind="hsbench", started=float(path.name[1:]), source=str(path))
    repeated = (
        replace(m, repeats=(m.value, m.value * 1.1, m.value * 0.9)) if m.phase == SCORED and m.value else m
        for m in run.measurements
    )
    return replace(run, measurements=tuple(repeated))


@pytest.fixture(autouse=True)
def archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives of one run each; those of a larger cluster begin with b."""
    nodes = {"a": 3, "b": 5}

    def each_record(path: Path) -> Iterator[RunRecord]:
        run = a_run(path)
        yield replace(run, config={**run.config, "cluster.osd_nodes": nodes[path.name[0]]})

    for module in (sides, record_reader):
        monkeypatch.setattr(module, "each_record", each_record)


COMPARE = ["compare", "--base", "a1", "a3", "a5", "a7", "--new", "a2", "a4", "a6", "a8"]
JSON = ("--format", "json")
HISTORY = ["history", *(f"a{number}" for number in range(1, 20))]


@pytest.mark.parametrize(
    "words",
    [
        COMPARE,
        [*COMPARE, *JSON],
        [*COMPARE, "--format", "html"],
        [*COMPARE, "--releases"],
        [*COMPARE, "--releases", "--format", "csv"],
        [*COMPARE, "--metric", "p99_ms", "--phase", "*", *JSON],
        [*COMPARE, "--op", "total", "--format", "html"],
        [*COMPARE, "--key", "measure-aged.total.max_ms", "--format", "csv"],
        [*COMPARE, "--phase", "nothing"],
        ["compare", "--base", "a1", "a3", "--new", "b2", "b4", "--scale", "3:5"],
        ["compare", "--base", "a1", "a3", "--new", "b2", "b4", "--scale", "3:5", *JSON],
        ["compare", "--base", "a1", "--new", "a2", "a4", "--history", "a5", "a7", *JSON],
        ["compare", "--base", "a1", "--new", "a2", "--new", "a4", "a6", "--format", "html"],
        ["gate", *COMPARE[1:], "--limit", "p99_ms=10%", "--limit", "bad_s<=90", *JSON],
        ["gate", *COMPARE[1:], "--limit", "p99_ms=10%"],
        ["gate", *COMPARE[1:], "--limit", "nothing.p99_ms=10%"],
        ["gate", "--base", "a1", "a3", "--new", "b2", "b4", "--scale", "3:5", "--limit", "p50_ms=5%", *JSON],
        HISTORY,
        [*HISTORY, "--metric", "p99_ms", "--phase", "*", *JSON],
    ],
    ids=" ".join,
)
def test_the_output_is_as_with_all_numbers(
    words: List[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = (main(words), capsys.readouterr())
    for name in ("sides", "former_runs"):
        read = getattr(sides, name)
        monkeypatch.setattr(sides, name, lambda paths, _takes, read=read: read(paths))
    assert (main(words), capsys.readouterr()) == kept
    assert kept[1].out or kept[1].err


@pytest.mark.parametrize("metric", ["p99_ms", None])
def test_only_the_numbers_of_chosen_rows_are_kept(metric: Optional[str]) -> None:
    choice = Choice(metrics=(metric,) if metric else ())
    paths = [Path("a1"), Path("a2"), Path("b3")]
    (side,) = sides.sides([paths], choice.takes)
    for run, path in zip(side.runs[:2], paths):
        every = a_run(path).keys
        assert run.keys == every and [m.key for m in run.measurements] == list(filter(choice.takes, every))
        assert 0 < len(run.measurements) < len(every) / 3
    assert len(side.runs[2].measurements) == len(a_run(paths[2]).keys)  # the series of a single run are compared
    assert {METRICS[key[2]].source for key in side.runs[0].keys} >= {MetricSource.OPERATION, MetricSource.LOSS}
