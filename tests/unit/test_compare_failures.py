"""Rows of failures: what each side measured them by, and what some of their runs did not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from impact_phases import FAULT, MIB, T0, load, milestone, phase, recovery

pytest.importorskip("scipy")

from cbt_plugins.compare.sides import Side
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import Choice, Row, Rules, compare
from cbt_plugins.results.recovery.impact import impact
from cbt_plugins.results.run_record import Measurement, RunRecord, measurements, of_episode, of_failure


def run_with(name: str, numbers: List[Measurement], started: float = 0.0) -> RunRecord:
    return RunRecord(name, name, "cbt-plugins", {"benchmark": "x"}, tuple(numbers), True, (), started=started)


def row_of(base: List[List[Measurement]], new: List[List[Measurement]], metric: str, **rules: Any) -> Row:
    """Compare runs that were made in turns."""
    sides = [
        Side(name, tuple(run_with(f"{name}{i}", numbers, 2000.0 * i + place) for i, numbers in enumerate(runs)))
        for place, (name, runs) in enumerate((("old", base), ("young", new)))
    ]
    choice = Choice(ops=("*",), metrics=(metric,))
    return compare(sides[0], sides[1:], choice, Rules(**rules)).rows[0]


def summary_of(tmp_path: Path, calm_s: float, objective: Dict[str, float]) -> Dict[str, Any]:
    """Return a summary of a run with 40 s of requests that take 200 ms."""
    calm = phase(tmp_path, load(-200, -100, 0.1, calm_s), name="no-failure", begin=-200.0)
    slow = [*load(0, 20, 0.1, calm_s), *load(20, 60, 0.1, 0.2), *load(60, 100, 0.1, calm_s)]
    section = impact([calm, phase(tmp_path, slow, name="hit")], recovery(FAULT), objective=objective)
    failure = {"impact": section, "milestones": {"episodes": []}}
    return {"phases": [], "failure": failure}


@pytest.mark.parametrize(("objective", "verdict"), [({}, "inconclusive"), ({"p99_ms": 50.0}, "better")])
def test_bad_seconds_by_unlike_baselines_have_no_verdict(
    tmp_path: Path, objective: Dict[str, float], verdict: str
) -> None:
    """The limits are 60 ms and 240 ms: the slower side has no bad second."""
    of_sides = [list(measurements(summary_of(tmp_path, calm_s, objective))) for calm_s in (0.02, 0.08)]
    of_sides = [[m for m in side if (m.op, m.metric) == ("total", "bad_s")] for side in of_sides]
    if not objective:
        assert [side[0].value for side in of_sides] == [40.0, 0.0]
        assert [side[0].limit_ms for side in of_sides] == pytest.approx([60.0, 240.0], rel=0.03)
    more = [[[replace(side[0], value=level + i % 2)] for i in range(6)] for side, level in zip(of_sides, (60.0, 40.0))]
    row = row_of(*more, "bad_s")
    assert row.verdict.value == verdict
    assert ("lenient-limits" in {warning.code for warning in row.comparison.warnings}) == (not objective)


def test_limits_within_the_margin_are_alike() -> None:
    def side(limit: float, level: float) -> List[List[Measurement]]:
        return [[Measurement("a failure", "total", "bad_s", level + i % 2, limit_ms=limit)] for i in range(6)]

    base = side(60.0, 24.0)
    assert row_of(base, side(58.0, 4.0), "bad_s").verdict is Verdict.BETTER
    assert row_of(base, side(56.0, 4.0), "bad_s").verdict is Verdict.INCONCLUSIVE
    assert row_of(base, side(56.0, 4.0), "bad_s", margin=0.1).verdict is Verdict.BETTER


def test_a_side_that_is_worse_by_a_more_lenient_limit_is_worse() -> None:
    def side(limit: float, level: float) -> List[List[Measurement]]:
        return [[Measurement("a failure", "total", "bad_s", level + i % 2, limit_ms=limit)] for i in range(6)]

    assert row_of(side(60.0, 4.0), side(240.0, 40.0), "bad_s").verdict is Verdict.WORSE
    assert row_of(side(60.0, 0.0), side(240.0, 0.0), "bad_s").verdict is Verdict.INCONCLUSIVE
    assert row_of(side(240.0, 4.0), side(60.0, 40.0), "bad_s").verdict is Verdict.INCONCLUSIVE


def test_repetitions_have_the_limit_of_their_run() -> None:
    numbers: Dict[str, Any] = {"requests": 9, "bad_seconds": 3}
    score = {"total": numbers, "ops": {}, "cluster": {"touched": False}}
    (bad,) = [m for m in of_failure({"name": "x", "scores": [score]}, {"total": 60.0}) if m.metric == "bad_s"]
    assert (bad.value, bad.limit_ms) == (3, 60.0)


def returned(clean_s: Optional[float]) -> Dict[str, Any]:
    """Return an episode whose recovery was counted until it ended, or until nobody looked any longer."""
    milestone_line = {**milestone("clean", None if clean_s is None else 60.0 + clean_s), "seconds": clean_s}
    moved = {"bytes": 5 * MIB, "objects": 5, "objects_per_s": 2.5, "mib_per_s": 2.5}
    about = {"kind": "return", "labels": ["a"], "begin": T0 + 60.0, "effect": True}
    return {**about, "milestones": [milestone_line], "recovery": moved}


def test_what_recovery_moved_is_unknown_without_its_end() -> None:
    numbers = [{m.metric: m.value for m in of_episode(returned(clean_s))} for clean_s in (20.0, None)]
    assert numbers[0] == {"recovery_s": 20.0, "moved_mib": 5.0, "recovery_obj_per_s": 2.5, "recovery_mib_per_s": 2.5}
    assert numbers[1] == dict.fromkeys(numbers[0])


@pytest.mark.parametrize(
    ("end_why", "outcome", "moved"),
    [
        ("the return of a begins", "not recovered", 5.0),
        ("the return of a begins", "unknown", None),  # nobody looked until then
        ("the run ends", "not recovered", None),
        ("the samples end", "not recovered", None),
    ],
)
def test_a_failure_that_the_plan_ended_has_what_recovery_moved(
    end_why: str, outcome: str, moved: Optional[float]
) -> None:
    episode = {**returned(None), "kind": "failure", "end_why": end_why, "outcome": outcome}
    assert {m.metric: m.value for m in of_episode(episode)}["moved_mib"] == moved


def test_failures_that_the_plan_ended_are_compared() -> None:
    episode = {**returned(None), "kind": "failure", "end_why": "the return of a begins", "outcome": "not recovered"}
    numbers = list(of_episode(episode))
    more = [replace(number, value=number.value and number.value * 90) for number in numbers]
    assert row_of([numbers] * 4, [more] * 4, "moved_mib").verdict is Verdict.WORSE


@pytest.mark.parametrize(("clean_s", "moved"), [(20.0, 5.0), (None, None)])
def test_a_repetition_that_did_not_recover_has_no_moved_bytes(
    tmp_path: Path, clean_s: Optional[float], moved: Optional[float]
) -> None:
    episodes = recovery(FAULT)
    episodes["episodes"][0].update(effect=False, recovery=None)
    episodes["episodes"].append(returned(clean_s))
    section = impact([phase(tmp_path, load(0, 100, 0.1, 0.01))], episodes, failure_of_phase={"hybrid": "node down"})
    assert section["scores"][0]["cluster"] == {"touched": True, "recovery_s": clean_s, "moved_mib": moved}


@pytest.mark.parametrize("metric", ["moved_mib", "recovery_obj_per_s"])
def test_no_verdict_on_recoveries_of_which_some_did_not_end(metric: str) -> None:
    def runs(*values: Optional[float]) -> List[List[Measurement]]:
        names = (metric, "recovery_s")
        return [[Measurement("a return", "cluster", name, value) for name in names] for value in values]

    base = runs(40.0, 41.0, 42.0, 41.5, 40.5, 42.5)
    assert row_of(base, runs(80.0, 81.0, 82.0, 81.5, 80.5, 82.5), metric).verdict is not Verdict.INCONCLUSIVE
    row = row_of(base, runs(80.0, 81.0, 82.0, 81.5, 80.5, None), metric)
    assert row.verdict is Verdict.INCONCLUSIVE
    texts = {warning.code: warning.text for warning in row.comparison.new.warnings}
    assert texts["unrecovered-runs"].startswith("1 of 6 runs of the new side have no end of the recovery")


def outages(*seconds: float) -> List[List[Measurement]]:
    return [[Measurement("a failure", "total", "bad_s", value)] for value in seconds]


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("runs", [3, 4, 5, 10])
def test_an_outage_in_all_runs_of_one_side_is_worse(runs: int, paired: bool) -> None:
    row = row_of(outages(*[0.0] * runs), outages(*[24.0] * runs), "bad_s", paired=paired)
    assert row.verdict is Verdict.WORSE and row.comparison.change == 24.0
    same = row_of(outages(*[24.0] * runs), outages(*[24.0] * runs), "bad_s", paired=paired)
    assert same.verdict is Verdict.EQUIVALENT


@pytest.mark.parametrize(("order", "way"), [("ABBA" * 5, "pairs"), ("AABB" * 4, "blocks"), ("ABBAB" * 3, "blocks")])
def test_an_outage_in_all_runs_is_worse_in_turns(order: str, way: str) -> None:
    sides = []
    for name, value in (("A", 0.0), ("B", 24.0)):
        places = [place for place, side in enumerate(order) if side == name]
        records = [run_with(f"{name}{place}", outages(value)[0], 1000.0 * place) for place in places]
        sides.append(Side(name, tuple(records)))
    (row,) = compare(sides[0], sides[1:], Choice(ops=("*",), metrics=("bad_s",))).rows
    assert (row.way, row.verdict) == (way, Verdict.WORSE)


def test_an_outage_beside_many_other_rows_is_worse() -> None:
    """The exact test of 5 and 5 runs gives no p that is small enough for 20 rows; the t test decides."""
    def runs(seconds: float) -> List[List[Measurement]]:
        others = [Measurement(f"f{i} failure", "total", "bad_s", 5.0) for i in range(19)]
        return [[*outages(seconds)[0], *others]] * 5

    assert row_of(runs(0.0), runs(24.0), "bad_s").verdict is Verdict.WORSE


@pytest.mark.parametrize("repetitions", [1, 2, 5])
def test_repetitions_do_not_make_a_known_scatter_smaller(repetitions: int) -> None:
    """A change of 1.5 standard deviations of a difference of two runs."""
    def side(level: float) -> List[List[Measurement]]:
        repeats = tuple(level * (1 + 0.001 * i) for i in range(repetitions))
        return [[Measurement("node down", "total", "p99_ratio", level, repeats=repeats)]]

    row = row_of(side(2.0), side(2.0 * 1.53), "p99_ratio", scatter={"p99_ratio": 0.2})
    assert (row.way, row.runs) == ("values", (1, 1)) and row.verdict is Verdict.INCONCLUSIVE
    assert row.comparison.p == pytest.approx(0.133, abs=0.01)
    assert row_of(side(2.0), side(4.0), "p99_ratio", scatter={"p99_ratio": 0.2}).verdict is Verdict.WORSE
    assert row_of(side(2.0), side(3.0), "p99_ratio").way == "repetitions"


@pytest.mark.parametrize(("metric", "verdict"), [("p99_ms", Verdict.WORSE), ("p99_ratio", Verdict.INCONCLUSIVE)])
def test_repetitions_that_share_a_baseline_have_no_verdict(metric: str, verdict: Verdict) -> None:
    """The baseline of one side may have been quicker by chance: all its repetitions have this error."""
    def side(level: float, number: int) -> List[List[Measurement]]:
        repeats = tuple(level * (1 + 0.01 * i) for i in range(3))
        return [[Measurement("node down", "total", metric, level, repeats=repeats)]] * number

    row = row_of(side(2.0, 1), side(6.0, 1), metric)
    assert row.verdict is verdict
    assert ("one-baseline" in {warning.code for warning in row.comparison.warnings}) == (metric == "p99_ratio")
    assert row_of(side(2.0, 6), side(6.0, 6), metric).verdict is Verdict.WORSE
