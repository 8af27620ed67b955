"""A campaign: order of the arms, decision, what it says beforehand, resumed after kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, Dict, List, Sequence

import fake_cycle
import pytest
import yaml
from config_files import CLUSTER, CYCLE, WARP
from waiting import wait_for

from cbt_plugins.campaigns.evaluation import Evaluation, evaluate, expected
from cbt_plugins.campaigns.loop import CampaignRun, TrialFailed
from cbt_plugins.campaigns.output import blocks, data, headline, plan_data, table
from cbt_plugins.campaigns.schedule import CampaignError, Schedule, schedule_in, schedule_of
from cbt_plugins.compare.statistics.sequential import Design, decide
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.config.file_check import load_file
from cbt_plugins.metrics import Direction
from cbt_plugins.pull_requests.verdict import Outcome, pull_request_verdict
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.__main__ import main

ARMS = {"old": {}, "new": {"benchmarks": {"warp": {"workers": 9}}}}
THROUGHPUT = ("measure", "total", "obj_per_s")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cycle.template(tmp_path_factory.mktemp("made") / "archive")


def campaign(tmp_path: Path, **section: Any) -> Path:
    """Write a CBT file with a campaign of the stand-in."""
    data = {"arms": ARMS, "program": fake_cycle.PROGRAM, **section}
    path = tmp_path / "my.yaml"
    path.write_text(CLUSTER + WARP + CYCLE + "    workers: 8\n" + yaml.safe_dump({"campaign": data}, sort_keys=False))
    return path


def schedule(tmp_path: Path, **section: Any) -> Schedule:
    return schedule_of(load_file(campaign(tmp_path, **section)), tmp_path / "folder")


def after(made: Path, its: Schedule, blocks: int, effects: Dict[str, float], codes: Sequence[str] = ()) -> Evaluation:
    """Return a campaign after some blocks; the trials named `codes` ("2 new not-clean") have a warning."""
    its.begin()
    noise = Random(7)
    for number in range(1, blocks + 1):
        for planned in its.block(number):
            folder = its.folder_of(planned)
            code = next((c.split()[2] for c in codes if c.split()[:2] == [str(number), planned.arm]), "")
            factor = effects.get(planned.arm, 1.0) * (1 + noise.gauss(0, 0.01))
            fake_cycle.archive(made, folder / "archive", factor, code)
            mark = {"arm": planned.arm, "step": "cycle", "status": 0, "reason": None, "began": 0.0}
            (folder / "trial.json").write_text(json.dumps({**mark, "version": 1, "prepared": 5.0, "measured": 15.0}))
    return evaluate(its)


def test_blocks_of_two_arms_are_mirrored_and_drawn_by_the_seed(tmp_path: Path) -> None:
    orders = ["".join(its.arm[0] for its in schedule(tmp_path).block(n)) for n in range(1, 21)]
    assert set(orders) == {"onno", "noon"}
    again = ["".join(its.arm[0] for its in schedule(tmp_path, seed=1).block(n)) for n in range(1, 21)]
    assert again != orders and set(again) == set(orders)


def test_blocks_of_more_arms_are_balanced(tmp_path: Path) -> None:
    its = schedule(tmp_path, arms={name: {} for name in "abcd"})
    for number in (1, 2, 5, 6):
        one, two = ([t.arm for t in its.block(n)] for n in (number, number + 2))
        assert sorted(one) == list("abcd") and two == one[::-1]
    assert len({tuple(t.arm for t in its.block(n)) for n in range(1, 20)}) > 6


def test_a_slower_arm_is_found_in_few_blocks(tmp_path: Path, made: Path) -> None:
    state = after(made, schedule(tmp_path), 4, {"new": 0.9})
    assert [(row.id.key, row.verdict) for row in state.rows] == [
        (THROUGHPUT, Verdict.WORSE),
        (("measure", "total", "p99_ms"), Verdict.WORSE),
    ]
    assert state.needs_no_more_blocks and state.rows[0].decision.change == pytest.approx(-0.1, abs=0.02)
    assert state.block_seconds == 80.0


def test_equal_arms_are_equivalent(tmp_path: Path, made: Path) -> None:
    state = after(made, schedule(tmp_path), 8, {})
    assert [row.verdict for row in state.rows] == [Verdict.EQUIVALENT] * 2


@pytest.mark.parametrize(
    ("code", "status", "verdict"),
    [("checksum-errors", 0, "inconclusive"), ("lost-objects", 1, "inconclusive"), ("incomplete", 0, "equivalent")],
)
def test_attempts_that_failed_are_told_and_corrupt_data_is_no_equal_arm(
    tmp_path: Path, made: Path, code: str, status: int, verdict: str, capsys: Any
) -> None:
    """Each trial was made again, and the second attempt went well."""
    its = schedule(tmp_path)
    after(made, its, 8, {})
    planned = next(planned for planned in its.block(2) if planned.arm == "new")
    failed = its.folder_of(planned).with_name(f"{planned.name}.failed-1")
    shutil.copytree(its.folder_of(planned), failed)
    (path,) = failed.glob("archive/results/*/id-*/summary.json")
    mark = json.loads((failed / "trial.json").read_text())
    mark.update(status=status, reason="cycle ended with status 1" if status else None)
    (failed / "trial.json").write_text(json.dumps(mark))
    warning = {"code": code, "severity": "invalid", "text": "12 objects"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "usable": False, "warnings": [warning]}))
    state = evaluate(its)
    assert [row.verdict.value for row in state.rows if row.verdict] == [verdict] * 2
    assert main(["campaign", "status", str(its.folder)]) == (3 if verdict == "inconclusive" else 0)
    out = " ".join(capsys.readouterr().out.split())
    assert f"new: 1 attempt failed and made again, the last one at {planned.name}: " in out
    assert (f"neither better nor equivalent: an attempt at {planned.name} lost or changed data" in out) == (
        verdict == "inconclusive"
    )
    assert [attempt["name"] for attempt in data(state)["failed_attempts"]] == [planned.name]


def test_before_the_end_it_says_what_it_would_take(tmp_path: Path, made: Path, capsys: Any) -> None:
    its = schedule(tmp_path, margin="1%")
    state = after(made, its, 3, {})
    assert not state.needs_no_more_blocks and [one.effect for one in state.rows[0].outlooks] == [0.0, 0.01, 0.02]
    none, least, twice = state.rows[0].outlooks
    assert (twice.blocks or 99) <= (least.blocks or 99) and twice.chance > least.chance
    assert none.chance == none.equivalent and least.chance == least.found
    assert main(["campaign", "status", str(its.folder)]) == 3
    out = capsys.readouterr().out
    assert "not decided after 3 of 20 blocks" in out and f"{twice.blocks} blocks (" in out


def test_at_the_end_of_the_budget_it_is_inconclusive(tmp_path: Path, made: Path) -> None:
    state = after(made, schedule(tmp_path, margin="0.1%", blocks=4), 4, {})
    assert state.needs_no_more_blocks and not state.decided
    assert {state.verdict_of(row) for row in state.rows} == {Verdict.INCONCLUSIVE}


def test_what_forbids_a_verdict_gives_no_observation(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path)
    row = after(made, its, 4, {"new": 0.9}, ["2 new not-clean"]).rows[0]
    assert row.ratios[1] is None and row.decision.n == 3
    assert row.left_out == ("new: not-clean (block 2)",)


def test_what_was_held_down_is_not_better(tmp_path: Path, made: Path) -> None:
    state = after(made, schedule(tmp_path), 5, {"new": 1.2}, ["1 old paced"])
    assert [row.verdict for row in state.rows] == [Verdict.INCONCLUSIVE] * 2 and state.rows[0].capped
    # more blocks would not tell, and nothing is decided
    assert state.needs_no_more_blocks and not state.decided
    assert main(["campaign", "status", str(state.schedule.folder)]) == 3
    text = "ended after 5 of 20 blocks: more blocks would not decide the inconclusive rows"
    assert headline(state).partition(";")[0] == text


@pytest.mark.parametrize(
    ("held", "numbers"),
    [
        (["5 new generator-bound"], [4, 4]),  # the other blocks decide
        ([f"{n} new generator-bound" for n in range(1, 6)], [0, 0]),
        ([f"{n} old generator-bound" for n in range(1, 6)], [5, 0]),  # it would be faster still; less load, less p99
    ],
)
def test_a_limit_of_the_generator_is_no_regression(
    tmp_path: Path, made: Path, held: List[str], numbers: List[int]
) -> None:
    state = after(made, schedule(tmp_path), 5, {"new": 0.9}, held)
    assert [row.decision.n for row in state.rows] == numbers
    assert [row.verdict for row in state.rows] == [Verdict.WORSE if n else None for n in numbers]


def lost_nothing(name: str) -> Dict[str, Any]:
    """Return the losses of a failure without a bad second."""
    total = dict.fromkeys(("requests", "errors", "waited", "bad_seconds", "obj_per_s", "longest_gap"), 0)
    total.update(dict.fromkeys(("obj_per_s_percent", "p50_ms", "p99_ms", "p999_ms", "p99_ratio")))
    back = {"seconds": 0.0, "between": None, "reason": None}
    about: Dict[str, Any] = {"kind": "failure", "labels": ["kill"], "begin": 0.0, "seconds": 1.0, "back": back}
    return {"name": name, **about, "ops": {}, "total": total, "gateways": [], "gateway_gap": None, "unstarted": 0}


def with_failure(summary: Dict[str, Any], seconds: Any) -> Dict[str, Any]:
    """Return a summary with a failure that was over after these seconds."""
    reached = [{"name": "clean", "seconds": seconds}]
    episode = {"labels": ["kill"], "kind": "failure", "recovery": None, "milestones": reached}
    episode.update(begin=0.0, until=1.0)
    milestones = {"version": 1, "episodes": [episode], "warnings": []}
    impact = {"version": 2, "states": [], "baseline": None, "phases": [], "worst": None, "warnings": []}
    impact["episodes"] = [lost_nothing("kill failure")]
    return {**summary, "failure": {"milestones": milestones, "impact": impact, "timelines": {}}}


def recovered_in(its: Schedule, seconds: Dict[str, List[Any]]) -> None:
    """Give the blocks' trials of an arm a failure, and the seconds until it was over."""
    for number in range(1, 6):
        for planned in its.block(number):
            for path in its.folder_of(planned).glob("archive/results/*/id-*/summary.json"):
                summary = json.loads(path.read_text())
                path.write_text(json.dumps(with_failure(summary, seconds[planned.arm][number - 1])))


@pytest.mark.parametrize("arm", ["old", "new"])
def test_trials_that_did_not_recover_leave_no_verdict_to_the_others(tmp_path: Path, made: Path, arm: str) -> None:
    its = schedule(tmp_path)
    after(made, its, 5, {})
    seconds: Dict[str, List[Any]] = {"old": [100, 102, 99, 100, 101], "new": [60, 61, 59, 62, 60]}
    recovered_in(its, seconds)
    recovered = evaluate(its)
    assert recovered.rows[-1].verdict is Verdict.BETTER
    # no bad second in any trial: there is no ratio of these, and they keep the campaign from no decision
    assert [row.id.metric for row in recovered.rows] == ["obj_per_s", "p99_ms", "recovery_s"]
    seconds[arm][1] = None
    recovered_in(its, seconds)
    state = evaluate(its)
    text = f"2 of 10 runs of the {arm} side have no time to active+clean: not reached, or not seen"
    assert (state.rows[-1].verdict, state.rows[-1].forbidden) == (Verdict.INCONCLUSIVE, text)
    assert f"no verdict: {text}" in str(blocks(state))


def test_the_answers_of_ladders_are_known_up_to_the_next_step(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path, keys=["total.p99_ms", "find.total.highest_per_s"])
    after(made, its, 5, {})
    intervals = []
    for high_of_old in (404.0, 480.0):
        for planned in (planned for number in range(1, 6) for planned in its.block(number)):
            for path in its.folder_of(planned).glob("archive/results/*/id-*/summary.json"):
                ladder = {"name": "find", "unit": "rate", "low": 400.0, "objective": {}, "text": "", "steps": []}
                ladder["high"] = 480.0 if planned.arm == "new" else high_of_old
                path.write_text(json.dumps({**json.loads(path.read_text()), "ladders": [ladder]}))
        (row,) = (row for row in evaluate(its).rows if row.id.metric == "highest_per_s")
        assert row.verdict is None
        intervals.append((row.decision.low, row.decision.high))
    assert intervals[0] == intervals[1]  # 480 / 400 is possible in both


def test_a_success_rate_has_a_margin_of_its_own(tmp_path: Path, made: Path) -> None:
    for margin, wanted in (({}, 0.001), ({"margin": "5%"}, 0.05)):
        (tmp_path / str(wanted)).mkdir()
        its = schedule(tmp_path / str(wanted), keys=["total.success_rate"], **margin)
        assert its.rules.margin_of("success_rate") == wanted
        assert "(success rate: ±0.1 %)" in str(blocks(after(made, its, 4, {}))) or margin
    rows = {"a": [0.002, 0.003] * 4}
    small, large = (decide(rows, {"a": Direction.HIGHER}, Design(), its)["a"].verdict for its in ({"a": 0.001}, {}))
    assert (small, large) == (Verdict.BETTER, Verdict.EQUIVALENT)


def test_trials_without_a_number_leave_no_better_and_no_equal_arm(tmp_path: Path, made: Path) -> None:
    """In some blocks too few requests of an arm succeeded for a p99: the other blocks are no fair choice."""
    its = schedule(tmp_path)
    after(made, its, 9, {})
    for block in (1, 3, 5):
        planned = next(planned for planned in its.block(block) if planned.arm == "new")
        (path,) = its.folder_of(planned).glob("archive/results/*/id-*/summary.json")
        summary = json.loads(path.read_text())
        for phase in summary["phases"]:
            for line in [*phase["ops"].values(), phase["total"]]:
                line["latency_ms"]["p99"] = None
        path.write_text(json.dumps(summary))
    state = evaluate(its)
    assert [row.verdict for row in state.rows] == [Verdict.EQUIVALENT, Verdict.INCONCLUSIVE]
    assert state.rows[1].capped == "trials of new have no number, and the others are no fair choice"
    assert pull_request_verdict(state).outcome is Outcome.INCONCLUSIVE


def test_key_rows_can_be_chosen(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path, keys=["GET.obj_per_s"])
    assert [row.id.key for row in after(made, its, 1, {}).rows] == [("measure", "GET", "obj_per_s")]
    with pytest.raises(CampaignError, match="no row of the results matches"):
        after(made, schedule(tmp_path / "..", keys=["odd.p99_ms"]), 1, {})
    (tmp_path / "half").mkdir()
    half = after(made, schedule(tmp_path / "half", keys=["GET.obj_per_s", "odd.p99_ms"]), 1, {})
    assert "no row matches the key odd.p99_ms, so the campaign does not decide this key" in str(blocks(half))


def fewer_osds(its: Schedule, block: int) -> None:
    """Take two OSDs from the new arm in a block."""
    for planned in its.block(block):
        if planned.arm == "new":
            for path in its.folder_of(planned).glob("archive/results/*/id-*/cluster/before/osd_tree.json"):
                tree = json.loads(path.read_text())
                tree["nodes"] = [node for node in tree["nodes"] if node["id"] not in (0, 1)]
                path.write_text(json.dumps(tree))


@pytest.mark.parametrize("keys", [[], ["total.obj_per_s", "total.p99_ms"]])
def test_a_row_that_an_arm_has_no_number_for_is_not_decided(tmp_path: Path, made: Path, keys: List[str]) -> None:
    its = schedule(tmp_path, keys=keys)
    full = after(made, its, 8, {})
    for path in its.folder.glob("trials/*-new/archive/results/*/id-*/summary.json"):
        summary = json.loads(path.read_text())
        for phase in summary["phases"]:
            phase["total"]["latency_ms"]["p99"] = None
        path.write_text(json.dumps(summary))
    state = evaluate(its)
    assert full.decided and not state.decided
    assert [(row.id.metric, row.verdict) for row in state.rows] == [
        ("obj_per_s", Verdict.EQUIVALENT),
        ("p99_ms", None),
    ]
    assert "new: no number above 0 (block 1, 2, 3, 4, 5, 6, 7, 8)" in str(blocks(state))
    assert state.rows[0].decision == full.rows[0].decision  # its share of alpha is the same


def test_arms_may_differ_in_what_makes_other_runs_incomparable(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path)
    after(made, its, 1, {})
    fewer_osds(its, 1)
    state = evaluate(its)
    assert state.blocks == 1 and state.rows[0].ratios[0] is not None
    assert state.compared and "cluster.osds" in [one.key for one in state.compared.sections[0].differences]


def test_a_trial_that_differs_from_the_first_of_its_arm_gives_no_observation(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path)
    before = after(made, its, 4, {"new": 0.9}).rows[0]
    fewer_osds(its, 3)
    row = evaluate(its).rows[0]
    assert row.ratios == (*before.ratios[:2], None, before.ratios[3])
    assert row.left_out == ("new: cluster.osd_nodes is 3, at first 4, cluster.osds is 6, at first 8 (block 3)",)


def set_versions(its: Schedule, blocks: Sequence[int], **releases: str) -> None:
    """Give the trials of some blocks the releases of their arms."""
    for planned in (planned for number in blocks for planned in its.block(number)):
        for path in its.folder_of(planned).glob("archive/results/*/id-*/summary.json"):
            summary = json.loads(path.read_text())
            summary["environment"]["versions"]["ceph"] = releases[planned.arm]
            path.write_text(json.dumps(summary))


def test_arms_without_a_recorded_difference_are_named_in_the_headline(
    tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    its = schedule(tmp_path)
    after(made, its, 8, {})
    text = "new does not differ from old in anything that was recorded"
    set_versions(its, range(1, 9), old="16.2.15 pacific", new="18.2.7 reef")
    assert main(["campaign", "status", str(its.folder)]) == 0 and text not in capsys.readouterr().out
    set_versions(its, range(1, 9), old="16.2.15 pacific", new="16.2.15 pacific")
    state = evaluate(its)
    assert state.decided and state.arms_like_base == ("new",) and headline(state).endswith(text)
    for form in ("text", "html"):
        assert main(["campaign", "status", str(its.folder), "--format", form]) == 0
        assert text in capsys.readouterr().out


def test_a_trial_of_another_release_gives_no_observation(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path)
    before = after(made, its, 4, {"new": 0.9}).rows[0]
    set_versions(its, (1, 2), old="16.2.15 pacific", new="18.2.7 reef")
    set_versions(its, (3, 4), old="16.2.15 pacific", new="16.2.15 pacific")
    row = evaluate(its).rows[0]
    assert row.ratios == (*before.ratios[:2], None, None)
    assert row.left_out == ("new: version.ceph is 16.2.15 pacific, at first 18.2.7 reef (block 3, 4)",)


def test_the_plan_says_how_much_it_is(tmp_path: Path, made: Path) -> None:
    its = schedule(tmp_path, blocks=5)
    facts = plan_data(its)
    assert (facts["trials"], facts["cycle_seconds"], len(facts["order"]), facts["seconds"]) == (20, 70.0, 5, 1400.0)
    after(made, its, 2, {})
    noise = expected([run for path in sorted(its.folder.glob("trials/*-old/archive")) for run in records_of(path)], its)
    scatter, outlooks = noise[THROUGHPUT]
    assert scatter.value == pytest.approx(0.01, rel=0.9) and outlooks[0].blocks


@pytest.fixture
def world(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ARCHIVE", str(made))
    monkeypatch.setenv("FAKE_NOISE", "0.004")
    monkeypatch.setenv("FAKE_EFFECTS", json.dumps({"new": 0.8}))


def test_it_runs_until_it_is_decided(tmp_path: Path, world: Any, capsys: Any) -> None:
    file, folder = campaign(tmp_path), tmp_path / "folder"
    assert main(["campaign", "run", str(file), str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.count("measured in") == 16 and "decided after 4 of 20 blocks" in out
    assert main(["campaign", "run", str(file), str(folder)]) == 0
    assert "measured" not in capsys.readouterr().out
    words = {"json": '"verdict": "worse"', "csv": "new,,measure,total,obj_per_s,3,", "html": "Block by"}
    for form, word in words.items():
        assert main(["campaign", "status", str(folder), "--format", form]) == 0
        assert word in capsys.readouterr().out
    assert main(["campaign", "status", str(file), str(folder)]) == 0  # as `bisect status` takes it
    assert "decided after 4 of 20 blocks" in capsys.readouterr().out
    arm = yaml.safe_load((folder / "arms" / "new.yaml").read_text())
    assert arm["benchmarks"]["warp"]["workers"] == 9 and "campaign" not in arm


def test_a_key_that_matches_no_row_ends_it_after_a_block(
    tmp_path: Path, made: Path, world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["measure.total.obj_per_s", "mesure.total.p99_ms"]
    file, folder = campaign(tmp_path, keys=keys), tmp_path / "folder"
    assert main(["campaign", "run", str(file), str(folder)]) == 2
    printed = capsys.readouterr()
    assert "no row matches the key mesure.total.p99_ms: correct `keys:`" in printed.err
    assert printed.out.count("measured in") == 4
    (tmp_path / "all").mkdir()
    state = after(made, schedule(tmp_path / "all", keys=keys), 8, {})
    assert {row.verdict for row in state.rows} == {Verdict.EQUIVALENT} and not state.decided
    assert main(["campaign", "status", str(state.schedule.folder)]) == 3
    assert "no row matches the key mesure.total.p99_ms" in headline(state)
    assert pull_request_verdict(state).outcome is Outcome.INCONCLUSIVE


def test_before_each_arm_has_a_trial_there_is_no_page(tmp_path: Path, capsys: Any) -> None:
    its = schedule(tmp_path)
    its.begin()
    assert main(["campaign", "status", str(its.folder), "--format", "html"]) == 2
    assert "not every arm has a trial" in capsys.readouterr().err


def test_another_content_of_the_file_is_refused(tmp_path: Path) -> None:
    schedule(tmp_path).begin()
    with pytest.raises(CampaignError, match="another content"):
        schedule(tmp_path, blocks=7).begin()


def test_a_file_with_numbers_as_keys_is_the_same_when_it_resumes(tmp_path: Path) -> None:
    file = campaign(tmp_path)
    file.write_text(file.read_text().replace("mons: [node0]", "mons: {node0: {0: '10.0.0.1:6789'}}"))
    for _ in range(2):
        schedule_of(load_file(file), tmp_path / "folder").begin()
    assert schedule_in(tmp_path / "folder").config.data == load_file(file).data


def test_a_folder_that_has_its_file_as_json_resumes(tmp_path: Path) -> None:
    its = schedule(tmp_path)
    its.begin()
    path = its.folder / "campaign.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": its.config.data}))
    its.begin()
    assert schedule_in(its.folder).arms == its.arms


def test_secrets_of_the_file_are_for_the_user_alone(tmp_path: Path) -> None:
    file = campaign(tmp_path)
    file.write_text(f"{file.read_text()}client_endpoints:\n  rgw: {{driver: s3, secret_key: hunter2}}\n")
    folder = tmp_path / "folder"
    for _ in range(2):
        schedule_of(load_file(file), folder).begin()
    having = [path for path in folder.rglob("*") if path.is_file() and "hunter2" in path.read_text()]
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in having}
    assert modes == dict.fromkeys(("new.yaml", "old.yaml"), "0o600")
    assert schedule_in(folder).arms == ("old", "new")


def test_a_folder_in_which_references_to_secrets_are_masked_resumes(tmp_path: Path) -> None:
    """Versions before this one masked `secret:NAME/KEY`."""
    file = campaign(tmp_path)
    endpoints = "client_endpoints:\n  rgw: {driver: s3, secret_key: secret:n/SecretKey}\n"
    file.write_text(file.read_text() + endpoints)
    its = schedule_of(load_file(file), tmp_path / "folder")
    its.begin()
    path = its.folder / "campaign.json"
    path.write_text(path.read_text().replace("secret:n/SecretKey", "'***'"))
    its.begin()
    assert "secret:n/SecretKey" in path.read_text()


def test_a_trial_that_fails_twice_stops_it_and_is_made_again(tmp_path: Path, world: Any) -> None:
    its = schedule(tmp_path, blocks=4, prepare=[f"test -e {tmp_path}/there"])
    with pytest.raises(TrialFailed, match="failed 2 times: prepare-1"):
        CampaignRun(its, print).run()
    assert main(["campaign", "status", str(its.folder)]) == 1
    (tmp_path / "there").touch()
    assert CampaignRun(its, print).run().blocks == 4


def test_killed_it_continues_with_the_trial_that_was_running(tmp_path: Path, world: Any) -> None:
    """kill -9 in the second trial of block 1: the first is kept, the second is put aside and made again."""
    first = [planned.arm for planned in schedule(tmp_path).block(1)]
    hold = f"case $CBT_PLUGINS_TRIAL in 01-2-*) test -e {tmp_path}/go || {{ echo held; sleep 600; }};; esac"
    file = campaign(tmp_path, prepare=[hold])
    folder = tmp_path / "folder"
    words = [sys.executable, "-m", "cbt_plugins.tools", "campaign", "run", str(file), str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    log = folder / "trials" / f"01-2-{first[1]}" / "prepare-1.log"
    wait_for(lambda: log.exists() and "held" in log.read_text(), "the second trial")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = (folder / "trials" / f"01-1-{first[0]}" / "trial.json").stat().st_mtime_ns
    (tmp_path / "go").touch()
    state = CampaignRun(schedule_of(load_file(file), folder), lambda _: None).run()
    assert state.decided and (folder / "trials" / f"01-2-{first[1]}.partial-1").exists()
    assert (folder / "trials" / f"01-1-{first[0]}" / "trial.json").stat().st_mtime_ns == kept


def test_the_table_has_each_block(tmp_path: Path, made: Path) -> None:
    lines = list(table(after(made, schedule(tmp_path), 2, {})))
    assert len(lines) == 1 + 2 * 2 and lines[1][:6] == ("new", "", *THROUGHPUT, 1)
