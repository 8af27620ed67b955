"""`cbt-tools bisect` on generated repositories; a stand-in runs the cycles."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List
from xml.etree import ElementTree

import fake_cycle
import pytest
import yaml
from test_campaign_trial import processes
from waiting import wait_for

from cbt_plugins.bisect import loop, output
from cbt_plugins.bisect.commit_history import Worktree
from cbt_plugins.bisect.session import BisectSession
from cbt_plugins.config.bisect import BisectSection
from cbt_plugins.config.file_check import load, load_file
from cbt_plugins.config.yaml_source import read
from cbt_plugins.journal import json_lines
from cbt_plugins.tools.__main__ import main

FILE: Dict[str, Any] = {
    "cluster": {"user": "root", "head": "h", "clients": ["c"], "osds": ["o"], "mons": ["h"], "iterations": 1},
    "benchmarks": {"rgwtest": {"s3": {"urls": ["http://h:7480"], "user": "u"}, "objects": {"sizes": ["4KiB"]}}},
}
SECTION = {
    "repo": "repo",
    "good": "HEAD~8",
    "bad": "HEAD",
    "metric": "measure.total.obj_per_s",
    "build": 'cp speed "$CBT_PLUGINS_BUILD/" && ! grep broken speed',
    "deploy": 'cat "$CBT_PLUGINS_BUILD/speed" speed > "$CBT_PLUGINS_TRIAL_FOLDER/deployed"',
    "program": fake_cycle.PROGRAM,
}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(repo: Path, files: Dict[str, str], subject: str) -> str:
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    git(repo, *who, "commit", "-qm", subject)
    return git(repo, "rev-parse", "HEAD")


def merged(repo: Path, branch: str) -> str:
    git(repo, "-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", "--no-ff", "-m", "merge", branch)
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(fake_cycle.template(tmp_path_factory.mktemp("made") / "archive"))


class World(SimpleNamespace):
    """A repository of 9 commits, a CBT file for it, and how fast the stand-in is at each commit."""

    folder: Path
    shas: List[str]

    def write(self, **changes: Any) -> Path:
        path = self.folder / "my.yaml"
        path.write_text(yaml.safe_dump({**FILE, "bisect": {**SECTION, **changes}}))
        return path

    @property
    def journal(self) -> List[Dict[str, Any]]:
        return json_lines(self.folder / "my.bisect" / "bisect.jsonl")

    def events(self, name: str) -> List[Dict[str, Any]]:
        return [its for its in self.journal if its["event"] == name]


@pytest.fixture
def world(tmp_path: Path, template: str, monkeypatch: pytest.MonkeyPatch) -> World:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    shas = [commit(repo, {"speed": f"{n}\n"}, f"commit {n}") for n in range(9)]
    effects = {sha[:12]: 0.8 for sha in shas[5:]}
    for name, value in (("ARCHIVE", template), ("EFFECTS", json.dumps(effects)), ("NOISE", "0.002")):
        monkeypatch.setenv(f"FAKE_{name}", value)
    return World(folder=tmp_path, shas=shas, repo=repo)


def test_it_finds_the_commit_and_leaves_the_repository_as_it_is(world: World, capsys) -> None:
    (world.repo / "speed").write_text("mine\n")
    assert main(["bisect", "run", str(world.write()), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "found"
    assert [its["sha"] for its in found["commits"]] == [world.shas[5]]
    assert found["posterior"] >= 0.95
    assert found["log_ratio"]["change"] == pytest.approx(0.223, abs=0.02)
    assert found["second_change"]["posterior"] < 0.5
    archive = world.folder / "my.bisect"
    page = (archive / "bisect.html").read_text()
    assert "commit 5" in page and "<svg" in page
    assert any("obj_per_s" in its["name"] for its in found["changed_with_it"])
    # each build once, each deployment of the commit that was measured
    built = world.events("build")
    assert len(built) == len({its["sha"] for its in built}) == len({b["sha"] for b in world.events("block")}) + 1
    for block in world.events("block"):
        at = world.shas.index(block["sha"])
        folder = archive / "blocks" / f"{block['n']:04}"
        assert (folder / "other" / "deployed").read_text() == f"{at}\n{at}\n"
        assert (folder / "good" / "deployed").read_text() == "0\n0\n"
    assert (world.repo / "speed").read_text() == "mine\n"
    assert git(world.repo, "worktree", "list").count("\n") == 0


def test_the_plot_is_xml_with_any_subject() -> None:
    row = {"position": 0, "sha": "a" * 40, "subject": "\x1b[31m <b>", "change": 0.0, "error": None, "left_out": None}
    row.update(measurements=1, posterior=0.0)
    plot = ElementTree.fromstring(output.svg([row], SimpleNamespace(commits=["good", "bad"])))
    assert [title.text for title in plot.iter("{http://www.w3.org/2000/svg}title")] == [
        "aaaaaaaaaaaa \\x1b[31m <b>: 0.0 %, n=1"
    ]


def test_the_order_within_a_block_alternates(world: World) -> None:
    main(["bisect", "run", str(world.write(budget={"measurements": 3}))])
    first = []
    for number in (1, 2):
        folder = world.folder / "my.bisect" / "blocks" / f"000{number}"
        began = {n: json.loads((folder / n / "trial.json").read_text())["began"] for n in ("good", "other")}
        first.append(min(began, key=lambda name: began[name]))
    assert first == ["good", "other"]


def test_what_cannot_be_built_is_gone_round(world: World, capsys) -> None:
    commit(world.repo, {"speed": "broken\n"}, "broken")
    fixed = commit(world.repo, {"speed": "10\n"}, "fixed, and slow")
    os.environ["FAKE_EFFECTS"] = json.dumps({fixed[:12]: 0.8})
    file = world.write(good="HEAD~3", bad="HEAD")
    assert main(["bisect", "run", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [its["subject"] for its in found["commits"]] == ["broken", "fixed, and slow"]
    assert "or one of the 1 commit before it" in found["why"]
    (skip,) = world.events("skip")
    assert "ended with status 1" in skip["reason"]
    assert main(["bisect", "run", str(file)]) == 0
    assert len(world.events("skip")) == 2, "it is tried again"


def test_an_outage_of_builds_is_no_answer_and_is_tried_again(world: World, monkeypatch, capsys) -> None:
    outage = world.folder / "outage"
    outage.touch()
    ends = "|".join((world.shas[0], world.shas[8]))
    build = f"[ ! -e ../../outage ] || case $CBT_PLUGINS_COMMIT in {ends}) ;; *) echo no space; exit 1;; esac"
    words = ["bisect", "run", str(world.write(build=build, deploy="true")), "--format", "json"]
    for tried in (7, 14):
        assert main(words) == 3
        found = json.loads(capsys.readouterr().out)
        assert (found["outcome"], len(found["commits"]), found["more"]) == ("undecided", 8, None)
        assert "of the 8 commits left, only the last could be measured" in found["why"] and "no space" in found["why"]
        assert len(world.events("skip")) == tried
    outage.unlink()
    world.write(build=build, deploy="true", build_limit="5h", deploy_limit="2h")
    assert main(words) == 0
    assert [its["sha"] for its in json.loads(capsys.readouterr().out)["commits"]] == [world.shas[5]]
    # git asks again for what it skipped
    monkeypatch.chdir(world.repo)
    git(world.repo, "checkout", "-q", "--detach", world.shas[4])
    outage.touch()
    file = str(world.write(build=build, deploy="true", good=world.shas[0], bad="main"))
    assert main(["bisect", "step", file, "-a", str(world.folder / "steps")]) == 125
    outage.unlink()
    assert main(["bisect", "step", file, "-a", str(world.folder / "steps")]) == 0


def test_a_warning_that_forbids_a_verdict_is_no_measurement(world: World, capsys) -> None:
    program = world.folder / "cycle.sh"
    program.write_text(f"""
        case $CBT_PLUGINS_ARM in
        {world.shas[4][:12]}) export FAKE_WARNING=generator-bound ;;
        {world.shas[8][:12]}) [ -e "$CBT_PLUGINS_TRIAL_FOLDER.failed-1" ] || export FAKE_WARNING=daemon-down ;;
        esac
        exec {fake_cycle.PROGRAM} "$@"
    """)
    file = world.write(program=f"sh {program}")
    assert main(["bisect", "run", str(file), "--format", "json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [its["subject"] for its in found["commits"]] == ["commit 4", "commit 5"]
    (left_out,) = [its["left_out"] for its in found["history"] if its["left_out"]]
    assert left_out == "2 times: measure.total.obj_per_s: said by the stand-in (generator-bound)"
    assert {its["sha"] for its in found["again"]} == {world.shas[4], world.shas[8]}
    assert "daemon-down" in "".join(its["reason"] for its in found["again"])
    for event in ("again", "skip"):  # what gave nothing counts for the budget of time
        assert all(its["seconds"] > 0 for its in world.events(event))
    counted = [its["seconds"] for its in world.journal if "seconds" in its]
    assert found["hours"] == pytest.approx(sum(counted) / 3600)
    assert (world.folder / "my.bisect" / "cycle.yaml").stat().st_mode & 0o077 == 0  # keys may stand in it
    assert main(["bisect", "status", str(file)]) == 0
    assert "measured again" in " ".join(capsys.readouterr().out.split())


def without_number(world: World, sha: str) -> Path:
    """A search whose cycles give no number of the metric for one commit."""
    program = world.folder / "cycle.sh"
    program.write_text(f"""
        {fake_cycle.PROGRAM} "$@"
        [ $CBT_PLUGINS_ARM != {sha[:12]} ] ||
            sed -i 's/"name": "measure"/"name": "other"/' "$CBT_PLUGINS_ARCHIVE"/results/*/id-*/summary.json
    """)
    return world.write(program=f"sh {program}")


def test_what_a_bad_commit_without_a_number_took_is_spent(world: World, capsys) -> None:
    file = str(without_number(world, world.shas[8]))
    for tried in (1, 2):
        assert main(["bisect", "run", file]) == 1
        assert f"the bad commit {world.shas[8][:12]} cannot be measured" in capsys.readouterr().err
        again = world.events("again")
        assert len(again) == tried and all(its["seconds"] > 0 for its in again)


def test_a_commit_without_a_number_is_left_out(world: World, capsys) -> None:
    assert main(["bisect", "run", str(without_number(world, world.shas[4])), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [its["subject"] for its in found["commits"]] == ["commit 4", "commit 5"]
    (skip,) = world.events("skip")
    assert "no number of this name" in skip["reason"] and "other.total.obj_per_s" in skip["reason"]


def test_a_search_resumes_and_shows_what_is_left(world: World, capsys) -> None:
    file = world.write(budget={"measurements": 3})
    assert main(["bisect", "run", str(file)]) == 3
    assert "raise `budget:` and run it again" in capsys.readouterr().out
    number = len(world.events("block"))
    # a block that was killed: its trials are put aside and made again
    folder = world.folder / "my.bisect" / "blocks" / "0004" / "good"
    folder.mkdir(parents=True)
    (folder / "archive").mkdir()
    assert main(["bisect", "status", str(file)]) == 3
    assert "commits)" in capsys.readouterr().out
    assert main(["bisect", "run", str(world.write())]) == 0
    assert len(world.events("begin")) == 1
    assert len(world.events("block")) > number == 3
    assert folder.with_name("good.partial-1").is_dir()
    assert main(["bisect", "run", str(world.write(metric="measure.total.p99_ms"))]) == 2
    assert "the archive of another search" in capsys.readouterr().err


def started(file: Path, archive: str) -> subprocess.Popen[bytes]:
    """A search in a process of its own; what it logs is in ARCHIVE.log."""
    words = [sys.executable, "-m", "cbt_plugins.tools", "bisect", "run", str(file), "-a", str(file.parent / archive)]
    with open(file.parent / f"{archive}.log", "wb") as log:
        return subprocess.Popen(words, cwd=file.parent, stdout=subprocess.DEVNULL, stderr=log)


def test_searches_that_share_builds_make_each_once(world: World) -> None:
    build = "echo $CBT_PLUGINS_COMMIT >> ../../made; for i in $(seq 600); do [ -e ../../go ] && break; sleep 0.05; done"
    file = world.write(build=build, deploy="true", builds="shared", budget={"measurements": 3})
    first = started(file, "a")
    wait_for((world.folder / "made").exists, "the first build")
    second = started(file, "b")
    log = world.folder / "b.log"
    wait_for(lambda: "build" in log.read_text() or second.poll() is not None, "the second search")
    (world.folder / "go").touch()
    assert [first.wait(), second.wait()] == [3, 3], log.read_text()
    assert sorted((world.folder / "made").read_text().split()) == sorted([world.shas[0], world.shas[8]])


def test_a_killed_build_is_ended_wherever_its_folder_is(world: World) -> None:
    (world.folder / "real").mkdir()
    (world.folder / "link").symlink_to("real")
    build = "[ -e ../../my.bisect/up ] || { touch ../../my.bisect/up; sleep 60; }"
    file = world.write(build=build, deploy="true", builds="repo/../link/builds", budget={"measurements": 3})
    search = started(file, "my.bisect")
    wait_for((world.folder / "my.bisect" / "up").exists, "the build")
    search.kill()
    search.wait()
    assert main(["bisect", "run", str(file)]) == 3
    assert processes(world.folder) == []


def test_two_commits_that_do_not_differ_are_refused_with_numbers(world: World, capsys) -> None:
    file = world.write(bad="HEAD~5")
    assert main(["bisect", "run", str(file)]) == 1 == main(["bisect", "status", str(file)])
    out = " ".join(capsys.readouterr().out.split())
    assert "good and bad do not differ by 3.0 % or more" in out
    assert re.search(r"bad commit is [+-]?\d.* in \d measurements; posterior of no such change (9\d|100) %", out)


@pytest.mark.parametrize(("level", "advised"), [(1.0, False), (1.01, False), (1.1, True)])
def test_only_a_commit_that_is_better_by_the_effect_is_worth_another_search(
    world: World, level: float, advised: bool, monkeypatch: pytest.MonkeyPatch, capsys, caplog
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("FAKE_EFFECTS", json.dumps({world.shas[8][:12]: level}))
    monkeypatch.setenv("FAKE_NOISE", "0.0001" if level > 1 else "0")
    assert main(["bisect", "run", str(world.write())]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "good and bad do not differ by 3.0 % or more" in out and ("search for that" in out) == advised
    assert (": 0.0 %, " in caplog.text, "%, better" in caplog.text) == (False, level > 1)


def test_a_reference_that_fails_stops_the_search(world: World, capsys) -> None:
    there = world.folder / "space"
    deploy = f"test -e {there} || {{ echo no space; exit 7; }}"
    file = world.write(deploy=deploy, budget={"measurements": 3})
    assert main(["bisect", "run", str(file)]) == 1
    error = capsys.readouterr().err
    assert "the good commit" in error and "status 7: no space" in error
    assert "run the same command again to resume the search" in error
    assert not world.events("block")
    assert main(["bisect", "status", str(file)]) == 1
    assert f"undecided: the good commit {world.shas[0][:12]} cannot be measured" in capsys.readouterr().out
    there.touch()
    assert [main(["bisect", verb, str(file)]) for verb in ("run", "status")] == [3, 3]


def test_a_metric_that_is_not_there_is_named_with_those_that_are(world: World, capsys) -> None:
    assert main(["bisect", "run", str(world.write(metric="nothing.GET.p99_ms"))]) == 1
    error = capsys.readouterr().err
    assert "no number of this name" in error and "measure.total.obj_per_s" in error


def test_steps_say_good_or_bad(world: World, monkeypatch) -> None:
    monkeypatch.chdir(world.repo)
    file = world.write(good=world.shas[0], bad="main")
    for at, status in ((4, 0), (5, 1)):
        git(world.repo, "checkout", "-q", "--detach", world.shas[at])
        assert main(["bisect", "step", str(file)]) == status


@pytest.mark.long
def test_git_bisect_run_finds_it_by_steps(world: World) -> None:
    file = world.write(good=world.shas[3], bad="main")
    git(world.repo, "bisect", "start", "main", world.shas[3])
    program = f"{sys.executable} -m cbt_plugins.tools bisect step {file}"
    done = subprocess.run(["git", "bisect", "run", "sh", "-c", program], cwd=world.repo, capture_output=True, text=True)
    assert f"{world.shas[5]} is the first bad commit" in done.stdout, done.stderr


def test_build_and_deploy_work_on_their_own_checkout(world: World, monkeypatch) -> None:
    mine = world.folder / "mine"
    git(world.repo, "worktree", "add", "--detach", str(mine))
    # as git starts programs in a linked worktree
    for name, value in (("DIR", git(mine, "rev-parse", "--git-dir")), ("WORK_TREE", str(mine)), ("PREFIX", "")):
        monkeypatch.setenv(f"GIT_{name}", value)
    ask = "git checkout -q --detach HEAD~0 && git rev-parse HEAD"
    build = f'({ask}) > "$CBT_PLUGINS_BUILD/head"'
    deploy = f'({ask}) > "$CBT_PLUGINS_TRIAL_FOLDER/head"'
    main(["bisect", "run", str(world.write(build=build, deploy=deploy, budget={"measurements": 3}))])
    archive = world.folder / "my.bisect"
    heads = {path.read_text().strip() for path in archive.glob("builds/*/files/head")}
    assert heads == {world.shas[0], world.shas[8]}
    assert (archive / "blocks" / "0001" / "good" / "head").read_text().strip() == world.shas[0]


def test_a_good_commit_of_a_merged_branch_is_for_steps_only(world: World, monkeypatch, capsys) -> None:
    git(world.repo, "checkout", "-q", "-b", "release", world.shas[1])
    tag = commit(world.repo, {"release": "1"}, "release")
    git(world.repo, "checkout", "-q", "main")
    merge = merged(world.repo, "release")
    file = str(world.write(good=tag, bad=merge))
    assert main(["bisect", "run", file]) == 2
    assert f"{tag} is not on the line of first parents of {merge}" in capsys.readouterr().err
    assert not world.journal, "another good commit can have this archive"
    monkeypatch.chdir(world.repo)
    assert main(["bisect", "step", file]) == 128
    assert "good and bad do not differ" in capsys.readouterr().err
    assert main(["bisect", "status", file]) == 1


def test_steps_skip_what_cannot_be_built_and_abort_without_a_difference(world: World, monkeypatch) -> None:
    monkeypatch.chdir(world.repo)
    git(world.repo, "checkout", "-q", "--detach", world.shas[4])
    commit(world.repo, {"speed": "broken\n"}, "broken")
    assert main(["bisect", "step", str(world.write(good=world.shas[0], bad="main"))]) == 125
    file = world.write(good=world.shas[0], bad=world.shas[3])
    assert main(["bisect", "step", str(file), "-a", str(world.folder / "b")]) == 128


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("broken"), "RuntimeError: broken"),
        (ModuleNotFoundError("no numpy", name="numpy"), "Error: missing Python package numpy"),
        (ImportError("libblas.so.3"), "ImportError: libblas.so.3"),
    ],
)
def test_an_error_of_the_program_is_no_bad_commit(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, text: str
) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(loop, "differ", broken)
    monkeypatch.chdir(world.repo)
    assert main(["bisect", "step", str(world.write(good=world.shas[0], bad="main"))]) == 128
    assert text in capsys.readouterr().err


def test_an_error_in_the_command_line_of_a_step_is_no_bad_commit(capsys: pytest.CaptureFixture[str]) -> None:
    for words, status in ((["step", "my.yaml", "--archiv", "x", "--bad"], 128), (["run", "my.yaml", "--bad"], 2)):
        with pytest.raises(SystemExit) as end:
            main(["bisect", *words])
        assert end.value.code == status
    assert "unrecognized arguments: --bad" in capsys.readouterr().err


@pytest.mark.parametrize("of_user", [["clone", "-q", "."], ["worktree", "add", "-q", "--detach"]])
def test_a_checkout_of_the_user_is_left_alone(
    world: World, capsys: pytest.CaptureFixture[str], of_user: List[str]
) -> None:
    mine = world.folder / "my.bisect" / "worktree"
    git(world.repo, *of_user, str(mine))
    (mine / "speed").write_text("not committed")
    (mine / "new").write_text("")
    assert main(["bisect", "run", str(world.write())]) == 1
    said = capsys.readouterr().err
    assert f"{mine}: no checkout of this program, so nothing in it was changed" in said
    assert f"git -C {world.repo} worktree remove -f -f {mine}" in said
    assert (mine / "speed").read_text() == "not committed" and (mine / "new").exists()
    Worktree(world.repo, mine).remove()
    assert (mine / "new").exists()


def test_a_journal_of_another_user_is_an_error_with_a_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert main(["bisect", "run", str(world.write())]) == 2
    said = capsys.readouterr().err
    assert f"Error: {world.folder}/my.bisect/bisect.jsonl: belongs to another user (uid {os.getuid()}): run" in said


def test_all_commits_have_the_fault_file_that_the_search_began_with(world: World) -> None:
    faults = world.folder / "faults.yaml"
    events = [{"at": "1s", "fault": {"label": "a", "kind": "stop", "osds": [0]}}, {"at": "2s", "undo": "a"}]
    faults.write_text(yaml.safe_dump({"events": events}))
    phases = [{"fill": {"objects": 1000}}, {"hybrid": {"duration": "60s", "events": {"file": str(faults)}}}]
    warp = {"s3": {"urls": ["http://h:7480"], "user": "u"}, "cycle": {"phases": phases}}
    file = world.folder / "my.yaml"
    file.write_text(yaml.safe_dump({**FILE, "benchmarks": {"warp": warp}, "bisect": SECTION}))
    source = read(file)
    plan = load(source).runs[0].plan
    section = BisectSection.model_validate(source.data["bisect"])
    for osd in (0, 1):
        faults.write_text(faults.read_text().replace("- 0", f"- {osd}"))
        BisectSession(file, section, source.data, world.folder / "my.bisect").close()
        assert load_file(world.folder / "my.bisect" / "cycle.yaml").runs[0].plan == plan
