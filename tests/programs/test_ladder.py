"""Ladders: how the load is searched, what is an answer, and what a file may ask for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import archive_builder as made
import numpy as np
import pytest
from run_context import context

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.models.ladder_search import LadderStep, answer_of_ladder, ladder_of, next_load, step_result
from cbt_plugins.plan import S3, Ladder, Phase, Plan
from cbt_plugins.report.sentence import of_run
from cbt_plugins.results.record_reader import record_of_summary
from cbt_plugins.results.run_record import measurements
from cbt_plugins.results.summary_numbers import numbers_of
from cbt_plugins.run import reporting
from cbt_plugins.run.load_start import start_of
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.tools.__main__ import main

RATES = Ladder("find", "rate", 100.0, 5000.0, 12, {"GET/p99_ms": 50.0})
WORKERS = Ladder("find", "workers", 1.0, 256.0, 12, {"mean_ms": 20.0})


def climb(ladder: Ladder, meets: Callable[[float], bool]) -> List[LadderStep]:
    steps: List[LadderStep] = []
    for number in range(ladder.steps):
        load = next_load(ladder, steps)
        steps.append(LadderStep(f"step-{number}", load, {}, () if meets(load) else ("p99 99 ms",)))
    return steps


@pytest.mark.parametrize("true", [130.0, 437.0, 1999.0, 4990.0])
def test_the_answer_is_between_two_close_loads(true: float) -> None:
    steps = climb(RATES, lambda load: load <= true)
    found = answer_of_ladder(RATES, steps)
    assert found.low and found.high and found.low <= true < found.high <= 1.1 * found.low
    assert steps[0].load == 100 and max(step.load for step in steps) <= 5000
    assert f"met at {found.low:g}/s" in found.text and f"missed at {found.high:g}/s" in found.text


def test_workers_are_whole_and_the_neighbours_of_the_answer_are_tried() -> None:
    steps = climb(WORKERS, lambda load: load <= 37)
    assert [step.load for step in steps[:7]] == [1, 2, 4, 8, 16, 32, 64]
    assert all(step.load == int(step.load) for step in steps)
    found = answer_of_ladder(WORKERS, steps)
    assert (found.low, found.high) == (37, 38) and "80 % of it: 29 workers per driver" in found.text


def test_what_no_load_or_every_load_meets() -> None:
    none, every = climb(RATES, lambda _: False), climb(RATES, lambda _: True)
    assert answer_of_ladder(RATES, none).low is None and {step.load for step in none} == {100}
    assert "missed at 100/s in 12 of 12 steps, the lowest load (p99 99 ms)" in answer_of_ladder(RATES, none).text
    assert answer_of_ladder(RATES, every).high is None
    assert [step.load for step in every].count(5000) > 3
    assert answer_of_ladder(RATES, ()).text.startswith("no step was made")


def test_one_disturbance_does_not_decide() -> None:
    """The fourth step misses for another reason than its load: it is repeated, and the search goes on above it."""
    ladder = Ladder("find", "rate", 100.0, 1000.0, 30, {"GET/p99_ms": 50.0})
    disturbed = iter([True, True, True, False])
    found = answer_of_ladder(ladder, climb(ladder, lambda load: next(disturbed, True) and load <= 950))
    assert found.low and found.high and found.low <= 950 < found.high <= 1.1 * found.low


def test_half_of_the_steps_is_not_enough_to_meet() -> None:
    steps = [LadderStep("a", 100, {}, ()), LadderStep("b", 100, {}, ("p99",)), LadderStep("c", 200, {}, ())]
    found = answer_of_ladder(RATES, steps)
    assert (found.low, found.high) == (None, 100) and "missed at 100/s in 1 of 2 steps" in found.text
    assert answer_of_ladder(RATES, [*steps, LadderStep("d", 100, {}, ())]).high is None


def phase(**line: Any) -> Dict[str, Any]:
    get = {"latency_ms": {"p99": 40.0}, "requests": 500, **line}
    total = {"latency_ms": {"mean": 5.0}, "requests": 900, "success_rate": 0.9995}
    return {"name": "find-step-1", "ops": {"GET": get}, "total": total, "rate": {"deviation": 0.0}}


def missed(ladder: Ladder, its: Mapping[str, Any]) -> Tuple[str, ...]:
    return step_result(ladder, 100.0, {}, its).missed


def test_what_misses_an_objective() -> None:
    assert missed(RATES, phase()) == ()
    assert missed(RATES, phase(latency_ms={"p99": 50.5})) == ("GET p99 50.5 ms",)
    assert missed(RATES, phase(latency_ms=None, requests=0)) == ("GET p99 unknown: 0 requests succeeded",)
    assert missed(RATES, {**phase(), "ops": {}}) == ("GET p99 unknown: 0 requests succeeded",)
    waiting = {**phase(), "rate": {"deviation": -0.031, "chance": 0.027, "unstarted": 0.03}}
    assert missed(RATES, waiting) == ("3 % of the requests never started: all workers waited",)
    slow = {**phase(), "rate": {"deviation": -0.031, "chance": 0.005, "unstarted": 0.0}}
    assert missed(RATES, slow) == ("3.1 % of the requests were not issued, more than chance explains",)
    share = Ladder("x", "rate", 1.0, 2.0, 2, {"success_rate": 0.9999})
    assert missed(share, phase()) == ("success rate 0.9995",)


def test_what_chance_issues_less_is_no_miss() -> None:
    """147 requests/s for 9 s: one Poisson process in three issues 1 % less than was asked for."""
    chance = np.random.default_rng(1)
    for requests in chance.poisson(147 * 9, 300):
        its = {"deviation": requests / (147 * 9) - 1, "chance": requests**-0.5, "unstarted": 0.0}
        assert missed(RATES, {**phase(), "rate": its}) == ()


def test_a_ladder_of_a_strange_plan_is_refused() -> None:
    its = vars(RATES)
    assert ladder_of({"ladder": its}) == RATES and ladder_of({}) is None
    for wrong in ({"unit": "x"}, {"objective": {"GET/no": 1}}):
        with pytest.raises(ValueError, match="no ladder"):
            ladder_of({"ladder": {**its, **wrong}})


def half_way(tmp_path: Path, hanging: Sequence[str] = ()) -> Tuple[Path, Tuple[Phase, ...]]:
    """An archive with two of three steps: 100/s with a p99 of 10 ms, 200/s with one of 80 ms and refusals."""
    ladder = Ladder("find", "rate", 100.0, 400.0, 3, {"GET/p99_ms": 50.0})
    phases = tuple(Phase(f"find-step-{n}", "hybrid", engine="cbt-load", ladder=ladder) for n in (1, 2, 3))
    directory = made.run(tmp_path, phases=[its.name for its in phases])
    plan = json.loads((directory / "plan.json").read_text())
    plan["phases"] = [asdict(its) for its in phases]
    (directory / "plan.json").write_text(json.dumps(plan))
    for number, (rate, latency) in enumerate([(100.0, 0.01), (200.0, 0.08)], 1):
        rows = made.steady("GET", workers=2, seconds=12, latency=latency, begin=-1, size=4096)
        rows += [*[made.row("GET", 5.0, 0.001, error="503: SlowDown")] * number, *hanging]
        about: Dict[str, Any] = {"role": "none", "engine": "cbt-load"}
        about["asked"] = {"duration": 10.0, "mix": {"GET": 100}, "rate": rate, "workers": None}
        job = made.cbt_load("h", rows, rate_limit=rate, end={"issued": {"GET": round(14 * rate)}})
        made.phase(directory, number, f"find-step-{number}", [job], **about)
    return directory, phases


def test_the_next_step_follows_from_the_numbers_of_the_archive(tmp_path: Path) -> None:
    directory, phases = half_way(tmp_path)
    plan = Plan("warp", S3(("http://rgw1:7480",)), (), (), phases)
    journal = SimpleNamespace(since=lambda _: [])
    run = context(plan=plan, archive=RunArchive(directory), journal=journal)
    assert start_of(run, 1, phases[0]).rate == 100.0
    assert start_of(run, 3, phases[2]).rate == 141.4


def test_a_run_reads_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All phases again for each step would take longer and longer."""
    directory, phases = half_way(tmp_path)
    plan = Plan("warp", S3(("http://rgw1:7480",)), (), (), phases)
    archive, read = RunArchive(directory), []

    def counted(folder: Path, *words: str, **options: Any) -> Any:
        done = run_report(folder, *words, **options)
        read.append([line["name"] for line in json.loads(Path(words[-1]).read_text())["phases"]])
        return done

    run_report = reporting.run_report
    monkeypatch.setattr(reporting, "run_report", counted)
    run, resumed = (context(plan=plan, archive=archive, journal=SimpleNamespace(since=lambda _: [])) for _ in range(2))
    assert start_of(run, 2, phases[1]).rate == 200.0
    assert start_of(resumed, 3, phases[2]).rate == 141.4
    assert read == [["find-step-1"], ["find-step-1", "find-step-2"]]
    for path in directory.glob("phases/01-*/rows/*"):
        path.unlink()
    assert [start_of(run, 3, phases[2]).rate for _ in range(2)] == [141.4, 141.4]
    assert read[2:] == [["find-step-2"]]


def test_what_the_report_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = half_way(tmp_path)
    assert main(["report", str(directory)]) == 4  # it is not complete
    (found,) = json.loads((directory / "summary.json").read_text())["ladders"]
    assert (found["low"], found["high"]) == (100.0, 200.0)
    assert [step["error_kinds"] for step in found["steps"]] == [{"503": 1}, {"503": 2}]
    out = " ".join(capsys.readouterr().out.split())
    assert "GET p99 at most 50 ms: met at 100/s, missed at 200/s (GET p99 80 ms)" in out
    assert "200.0 missed 80.00 " in out and "2 x 503" in out
    assert "Ladder find" in (directory / "report.html").read_text()
    (directory / "complete").write_text('{"t": 1700000100.0, "run_id": "k3j9"}')
    summary = numbers_of(directory)
    assert not {its["code"] for its in summary["warnings"]} & {"rate", "errors"}  # overload is what is looked for
    summary["usable"] = True
    (sentence,) = of_run(summary, {})
    assert sentence.text == f"find: {summary['ladders'][0]['text']}."
    found = [its for its in measurements(summary) if its.metric.startswith("highest_")]
    assert [(its.phase, its.op, its.metric, its.value) for its in found] == [
        ("find", "total", "highest_per_s", summary["ladders"][0]["low"])
    ]
    record = record_of_summary(summary, directory, directory)  # another run has other loads in its steps
    assert [its.key for its in record.measurements] == [("find", "total", "highest_per_s")]


def test_a_step_that_kept_its_objective_without_requests_has_a_warning(tmp_path: Path) -> None:
    directory, _ = half_way(tmp_path, [made.row("GET", 30.0, 25.0, error="cut: the run ended")])
    warned = [its["phase"] for its in numbers_of(directory)["warnings"] if its["code"] == "unfinished-request"]
    assert warned == ["find-step-1"]  # the other step has missed it


FILE = """\
cluster: {user: root, head: node0, clients: [c1, c2], osds: [o], mons: [m], iterations: 1}
benchmarks:
  warp:
    s3: {urls: ['http://rgw1:7480'], user: cbt}
    engine: cbt-load
    cycle:
      phases:
        - fill: {objects: 1000}
        - ladder: {SECTION, duration: 30s, objective: {GET/p99_ms: 50, success_rate: 99.9%}}
"""


def file_of(tmp_path: Path, section: str, **replaced: str) -> Path:
    text = FILE.replace("SECTION", section)
    for old, new in replaced.items():
        text = text.replace(old, new)
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return path


def test_a_ladder_becomes_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, "rate: {lowest: 100/s, highest: 2000/s}, steps: 3")
    (run,) = load_file(path).runs
    assert [its.name for its in run.plan.phases] == ["fill", *(f"ladder-step-{n}" for n in (1, 2, 3))]
    ladder = Ladder("ladder", "rate", 100.0, 2000.0, 3, {"GET/p99_ms": 50.0, "success_rate": 0.999})
    assert all(its.ladder == ladder and its.duration == 30 and its.engine == "cbt-load" for its in run.plan.phases[1:])
    assert main(["plan", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "next load of ladder, from 100/s to 2000/s, Poisson arrivals: GET p99 at most 50 ms, success rate" in text


def test_a_ladder_that_scale_made_too_short_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = "rate: {lowest: 100/s, highest: 2000/s}, steps: 3"
    for scale, warned in ((1, False), (0.1, True)):
        path = file_of(tmp_path, section, **{"engine: cbt-load": f"engine: cbt-load\n    scale: {scale}"})
        assert main(["plan", str(path)]) == 0
        text = " ".join(capsys.readouterr().out.split())
        # 100/s for 3 s, 45 % of them GET
        assert ("ladder: GET/p99_ms needs 100 requests, and the first step makes about 135" in text) == warned, text
        assert ("success_rate needs" in text) is False


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("steps: 3", "ladder: needs one of rate, workers"),
        ("rate: {lowest: 100/s, highest: 100/s}", "ladder.rate.highest: must be more than lowest"),
        ("rate: {lowest: 10%, highest: 100/s}", "ladder.rate.lowest: not a rate; write for example 500/s"),
        ("workers: {highest: 8}, arrivals: even", "ladder.arrivals: goes with rate: only"),
        ("workers: {highest: 8}, mix: {put: 100}", "objective.GET/p99_ms: this operation is not in the mix"),
        ("workers: {highest: 2000000}", "ladder.workers.highest: "),
    ],
)
def test_errors_of_a_file(tmp_path: Path, section: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_file(file_of(tmp_path, section))
    assert said in str(error.value)


def test_the_workers_of_all_drivers_have_a_limit(tmp_path: Path) -> None:
    many = {"engine: cbt-load": "engine: cbt-load\n    drivers: 101"}
    with pytest.raises(ConfigError, match="1010000 requests in flight in one run"):
        load_file(file_of(tmp_path, "workers: {highest: 10000}", **many))


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("{GET/p98_ms: 50", "unknown metric 'p98_ms'; did you mean"),
        ("{x/GET/p99_ms: 50", "it is about every step"),
        ("{GET/p99_ms: 50ms", "must be a number more than 0 (ms)"),
        ("{total/success_rate: 99.9, GET/p99_ms: 50", "total/success_rate: 99.9: percent? write 99.9%"),
        ("{total/success_rate: 1000, GET/p99_ms: 50", "must be a number more than 0 (0 to 1, or a percentage)"),
        ("{GET/p99_ms: .inf", "must be a number more than 0 (ms)"),
        ("{GET/p999_ms: 50", "GET/p999_ms: needs 1000 requests, and the first step makes about 135: make steps longer"),
    ],
)
def test_errors_of_an_objective(tmp_path: Path, objective: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_file(file_of(tmp_path, "rate: {lowest: 10/s, highest: 80/s}", **{"{GET/p99_ms: 50": objective}))
    assert said in str(error.value) and "objective" in str(error.value)


def test_numbers_that_do_not_come_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, _ = half_way(tmp_path)
    monkeypatch.setattr(reporting, "NUMBERS_LIMIT", 0.01)
    with pytest.raises(RunFailed, match="the results of find-step-2 were not ready within 0"):
        reporting.numbers_of_phases(directory, ["find-step-2"])
