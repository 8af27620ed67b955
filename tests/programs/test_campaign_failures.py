"""A campaign with a failure in its cycle: numbers that may be 0 are decided by differences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Dict

import fake_cycle
import pytest
import yaml
from config_files import CLUSTER, CYCLE, WARP

from cbt_plugins.campaigns.evaluation import Evaluation, evaluate, expected, key_rows, outlooks_of
from cbt_plugins.campaigns.output import blocks, change_text, data, page, progress, table
from cbt_plugins.campaigns.schedule import CampaignError, Schedule, schedule_in, schedule_of
from cbt_plugins.compare.statistics.verdicts import Scatter, Verdict
from cbt_plugins.config.file_check import load_file
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.pull_requests.detectable_change import detectable_lines
from cbt_plugins.pull_requests.verdict import pull_request_verdict
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.__main__ import main

BAD = ("node down", "total", "bad_s")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cycle.template(tmp_path_factory.mktemp("made") / "archive")


def schedule(folder: Path, **section: Any) -> Schedule:
    arms = {"old": {}, "new": {"benchmarks": {"warp": {"workers": 9}}}}
    keys = {"keys": [".".join(BAD), "node down.total.p99_ms"], **section}
    text = yaml.safe_dump({"campaign": {"arms": arms, "program": fake_cycle.PROGRAM, **keys}}, sort_keys=False)
    folder.mkdir()
    (folder / "my.yaml").write_text(CLUSTER + WARP + CYCLE + "    workers: 8\n" + text)
    return schedule_of(load_file(folder / "my.yaml"), folder / "campaign")


def with_failure(archive: Path, bad_seconds: int, limit_ms: float = 90.0, is_given: bool = True) -> None:
    """Add the scorecard of one failure to the summary of an archive; the limit of p99 is that of the file, or not."""
    (path,) = archive.glob("results/*/id-*/summary.json")
    limits = {"total": {"p99_ms": limit_ms, "success_rate": 0.999, "given": is_given}}
    impact: Dict[str, Any] = {"version": 1, "states": [], "baseline": None, "phases": [], "worst": None, "warnings": []}
    milestones: Dict[str, Any] = {"version": 1, "episodes": [], "warnings": []}
    failure = {"milestones": milestones, "impact": {**impact, "episodes": [], "objective": limits}, "timelines": {}}
    of_failure = {"failure": failure, "scorecard": fake_cycle.scorecard(bad_seconds)}
    path.write_text(json.dumps({**json.loads(path.read_text()), **of_failure}))


def after(made: Path, its: Schedule, number: int, more: Dict[str, int], **limits: Any) -> Evaluation:
    """Return a campaign after some blocks; trials have 0 or 1 bad seconds, and those of an arm so many `more`.

    `limits`: arm -> the limit of p99 of a bad second, by the arm's own baseline.
    """
    its.begin()
    noise = Random(3)
    for planned in [planned for block in range(1, number + 1) for planned in its.block(block)]:
        folder = its.folder_of(planned)
        fake_cycle.archive(made, folder / "archive", 1.0)
        limit = {"limit_ms": limits[planned.arm], "is_given": False} if limits else {}
        with_failure(folder / "archive", noise.randrange(2) + more.get(planned.arm, 0), **limit)
        mark = {"arm": planned.arm, "step": "cycle", "status": 0, "reason": None, "began": 0.0, "version": 1}
        (folder / "trial.json").write_text(json.dumps({**mark, "prepared": 5.0, "measured": 15.0}))
    return evaluate(its)


def test_bad_seconds_are_decided_by_differences(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path / "a", keys=[".".join(BAD)])
    state = after(made, its, 6, {"new": 6})
    (row,) = state.rows
    assert (row.id.key, row.verdict, row.decision.unit) == (BAD, Verdict.WORSE, "s")
    assert row.decision.change == pytest.approx(6, abs=1) and row.medians["new"] == pytest.approx(7, abs=1)
    text = Terminal().text(blocks(state))
    assert f"{change_text(row.decision)}: worse" in "".join(progress(state)) and " s [+" in change_text(row.decision)
    assert "within ±5 % (bad seconds: ±1 s)" in " ".join(text.split())
    (told,) = data(state)["rows"]
    assert told["differences"] == list(row.ratios) and told["unit"] == "s" and told["log_ratios"] is None
    assert [line[-3:] for line in table(state)][1:] == [("", value, "s") for value in row.ratios]
    assert "bad seconds" in page(state)


@pytest.mark.parametrize(
    ("more", "old_ms", "new_ms", "verdict", "said"),
    [
        (-6, 90.0, 270.0, Verdict.INCONCLUSIVE, "neither better nor equivalent: p99 of a bad second: 90 ms and 270 ms"),
        (6, 90.0, 270.0, Verdict.WORSE, "neither better nor equivalent"),
        (6, 270.0, 90.0, Verdict.INCONCLUSIVE, "no verdict: p99 of a bad second: 270 ms and 90 ms"),
        (-6, 90.0, 92.0, Verdict.BETTER, ""),
    ],
)
def test_limits_by_the_arms_own_baselines(
    tmp_path: Path, made: Path, more: int, old_ms: float, new_ms: float, verdict: Verdict, said: str
) -> None:
    """A slower arm has a higher limit, and with it fewer bad seconds."""
    its = schedule(tmp_path / "a", keys=[".".join(BAD)])
    state = after(made, its, 6, {"new": max(0, more), "old": max(0, -more)}, old=old_ms, new=new_ms)
    (row,) = state.rows
    assert row.verdict is verdict
    shown = " ".join(Terminal().text(blocks(state)).split())
    assert said in shown and ("p99 of a bad second" in shown) == bool(said)


def test_a_campaign_begun_by_older_rules_keeps_them(tmp_path: Path, made: Path) -> None:
    """No row that may be 0, no percentile of a failure, and gaps by ratios: the first verdict stays."""
    gap, p99, bad = (("node down", "GET", metric) for metric in ("longest_gap_s", "p99_ms", "bad_s"))
    state = after(made, schedule(tmp_path / "a", keys=["node down.*", *map(".".join, (gap, p99))]), 5, {})
    file = state.schedule.folder / "campaign.json"
    begun = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in begun.items() if name != "rules"}))
    its = schedule_in(state.schedule.folder)
    its.begin()
    assert "rules" not in json.loads(file.read_text())
    old = evaluate(its)
    keys, old_keys = ({row.id.key for row in evaluation.rows} for evaluation in (state, old))
    assert keys - old_keys == {p99, bad} and gap in old_keys
    (row,) = [row for row in old.rows if row.id.key == gap]
    assert row.decision.unit == "" and its.margin_of(gap[2]) == 0.05
    assert "gap: ±1 s" in Terminal().text(blocks(state)) and "gap: ±1 s" not in Terminal().text(blocks(old))
    assert "longest gap" in page(old)


def test_equal_bad_seconds_are_equivalent_within_a_second(tmp_path: Path, made: Path) -> None:
    state = after(made, schedule(tmp_path / "a", keys=[".".join(BAD)]), 14, {})
    (row,) = state.rows
    assert pull_request_verdict(state).why.startswith("no key row became worse by 5 % (bad seconds: 1 s) or more; ")
    assert row.verdict is Verdict.EQUIVALENT and row.decision.high is not None and row.decision.high < 1
    assert min(row.ratios) < 0 < max(row.ratios)  # no share of 0 is taken


def test_the_noisiest_row_is_that_of_most_margins(tmp_path: Path, made: Path) -> None:
    """A second of scatter is one margin of bad seconds; 0.2 of logarithms are four margins of a p99."""
    its = schedule(tmp_path / "a", keys=[".".join(BAD), "node down.GET.p99_ms"])
    state, rows = after(made, its, 4, {}), []
    for row in state.rows:
        scatter = 1.0 if row.id.key == BAD else 0.2
        decision = replace(row.decision, verdict=None, scatter=scatter)
        rows.append(replace(row, decision=decision, outlooks=outlooks_of(row.id.metric, Scatter(scatter, 3), 2, its)))
    assert len(rows) == 2
    assert list(progress(replace(state, rows=tuple(rows))))[-1].endswith("(node down GET p99)")


def test_numbers_of_failures_that_may_be_0_are_key_rows_only_by_name(tmp_path: Path, made: Path) -> None:
    """With several bad seconds, equal arms would seldom be decided."""
    state = after(made, schedule(tmp_path / "a", keys=[]), 4, {})
    keys = {row.id.key for row in state.rows}
    assert {key for key in keys if key[0] == "node down"} == {("node down", "cluster", "recovery_s")}
    archives = [state.schedule.folder_of(planned) / "archive" for planned in state.schedule.block(1)]
    records = [record for archive in archives for record in records_of(archive)]
    assert key_rows(records, state.schedule).keys() == keys


def measures_nothing(summary: Dict[str, Any]) -> Dict[str, Any]:
    """Return a summary without a measurement, but with a failure that left no PG degraded, and with its state."""
    phases = [{**phase, "role": "none"} for phase in summary["phases"]]
    (first, *_), total = phases, {key: 9.0 for key in ("mean_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")}
    total.update(requests=900, obj_per_s=9.0, mib_per_s=1.0)
    state = {"state": "gateway down", **first["window"], "ops": {}, "total": total}
    impact = {**summary["failure"]["impact"], "phases": [{"phase": first["name"], "states": [state]}]}
    for score in (score for failure in summary["scorecard"]["failures"] for score in failure["scores"]):
        score["cluster"] = {"touched": False, "recovery_s": None, "moved_mib": 0.0}
    return {**summary, "phases": phases, "failure": {**summary["failure"], "impact": impact}}


def test_ladders_are_key_rows_only_by_name_or_where_nothing_else_is_measured(tmp_path: Path, made: Path) -> None:
    """A campaign that an older version began has no such row, and its family of rows must not grow."""
    ladder = {"name": "find", "unit": "rate", "low": 400.0, "high": 440.0, "objective": {}, "text": "", "steps": []}
    answer = ("find", "total", "highest_per_s")
    for name, keys in (("a", []), ("b", [".".join(answer), "total.p99_ms"]), ("alone", []), ("failure", [])):
        its = after(made, schedule(tmp_path / name, keys=keys), 4, {}).schedule
        for path in its.folder.rglob("summary.json"):
            summary = {**json.loads(path.read_text()), "ladders": [ladder]}
            summary = measures_nothing(summary) if name in ("alone", "failure") else summary
            summary.update({"failure": None, "scorecard": None} if name == "alone" else {})
            path.write_text(json.dumps(summary))
        rows = {row.id.key for row in evaluate(its).rows}
        assert rows and (answer in rows) == (name != "a")
        assert name not in ("alone", "failure") or rows == {answer}


def test_a_row_that_appears_after_the_first_look_says_that_it_is_never_worse(tmp_path: Path, made: Path) -> None:
    its = after(made, schedule(tmp_path / "a", keys=[".".join(BAD), "measure.total.p99_ms"]), 8, {"new": 6}).schedule
    for planned in [planned for block in range(1, 5) for planned in its.block(block)]:
        (path,) = its.folder_of(planned).glob("archive/results/*/id-*/summary.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), "failure": None, "scorecard": None}))
    state = evaluate(its)
    first, late = sorted(state.rows, key=lambda row: row.id.key == BAD)
    assert first.late is None and late.verdict is None
    assert late.decision.n == 4 and late.decision.low is not None and late.decision.low > 0 and not late.outlooks
    text = "neither better nor worse: no number until block 4, so it has no share of alpha"
    assert text in " ".join(Terminal().text(blocks(state)).split()) and data(state)["rows"][-1]["late"]


def test_the_scatter_of_a_history_is_that_of_differences(tmp_path: Path, made: Path) -> None:
    """Runs with 0 and with 2 bad seconds: a block has two trials of each arm, so its difference scatters as one run."""
    its = schedule(tmp_path / "a", keys=[".".join(BAD)])
    records = []
    for number, seconds in enumerate((0, 2, 0, 2)):
        archive = tmp_path / f"night{number}"
        fake_cycle.archive(made, archive, 1.0)
        with_failure(archive, seconds)
        records += list(records_of(archive))
    scatter, outlooks = expected(records, its)[BAD]
    assert scatter.value == pytest.approx((4 / 3) ** 0.5) and scatter.freedom == 3
    assert [outlook.effect for outlook in outlooks] == [0.0, 1.0, 2.0]
    last = list(detectable_lines(its, records))[-1]
    text = "decided by differences, margin 1 s (block scatter of the history: 1.155 s)"
    assert last == f"node down total bad seconds: {text}"


def test_the_trials_have_the_fault_file_that_the_campaign_began_with(tmp_path: Path) -> None:
    """Each trial is a process of its own, and two arms with different faults would compare nothing."""
    faults, file, folder = tmp_path / "faults.yaml", tmp_path / "my.yaml", tmp_path / "campaign"
    events = [{"at": "1s", "fault": {"label": "a", "kind": "stop", "osds": [0]}}, {"at": "2s", "undo": "a"}]
    faults.write_text(yaml.safe_dump({"events": events}))
    cycle = CYCLE.replace("60s", f"60s, events: {{file: {faults}}}")
    own_cycle = {"benchmarks": {"warp": yaml.safe_load(cycle)}}
    file.write_text(CLUSTER + WARP + cycle + yaml.safe_dump({"campaign": {"arms": {"old": {}, "new": own_cycle}}}))
    its = schedule_of(load_file(file), folder)
    its.begin()
    text = faults.read_text()
    faults.write_text(text.replace("- 0", "- 1"))
    for arm in its.arms:
        assert load_file(its.file_of(arm)).runs[0].plan == its.config.runs[0].plan
    for resume in (lambda config: schedule_of(config, folder).begin(), lambda config: schedule_in(folder, config)):
        with pytest.raises(CampaignError, match="or its fault files"):
            resume(load_file(file))
    faults.write_text(text)
    schedule_of(load_file(file), folder).begin()

    path = folder / "campaign.json"  # of a version that kept the path
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": load_file(file).data}))
    assert schedule_in(folder, load_file(file)).arms == its.arms
    schedule_of(load_file(file), folder).begin()
    assert str(faults) not in path.read_text()


def test_the_status_of_a_file_names_the_folder_that_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text("{}")
    assert main(["campaign", "status", str(tmp_path / "my.yaml")]) == 2
    assert capsys.readouterr().err == f"Error: {tmp_path}/my.yaml: not a folder: give the folder of `campaign run`\n"
