"""`cbt-tools pr` on names and on commits of a generated repository; a stand-in runs the cycles."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import fake_cycle
import pytest
import yaml
from config_files import CLUSTER, CYCLE, WARP
from test_bisect_run import commit, git
from test_campaign import with_failure
from waiting import wait_for

from cbt_plugins.journal import json_lines
from cbt_plugins.pull_requests import session
from cbt_plugins.pull_requests.leftovers import processes
from cbt_plugins.tools.__main__ import main


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(fake_cycle.template(tmp_path_factory.mktemp("made") / "archive"))


class World:
    """A folder with pr.yaml; `run` returns the exit status and the answer."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.state, self._monkeypatch = folder, folder / "state", monkeypatch

    def level(self, head: float, noise: float = 0.002) -> None:
        self._monkeypatch.setenv("FAKE_EFFECTS", json.dumps({"head": head}))
        self._monkeypatch.setenv("FAKE_NOISE", str(noise))

    def write(self, **section: Any) -> Path:
        path = self.folder / "pr.yaml"
        section = {"deploy": "true", "program": fake_cycle.PROGRAM, **section}
        path.write_text(CLUSTER + WARP + CYCLE + "    workers: 8\n" + yaml.safe_dump({"pr": section}))
        return path

    def words(self, base: str, head: str, *more: str) -> List[str]:
        return ["pr", base, head, "--config", str(self.folder / "pr.yaml"), "-a", str(self.state), *more]

    def run(self, base: str, head: str, *more: str) -> int:
        return main(self.words(base, head, *more))

    @property
    def answer(self) -> Dict[str, Any]:
        answer: Dict[str, Any] = json.loads((self.state / "pr.json").read_text())
        return answer

    @property
    def comment(self) -> str:
        return (self.state / "pr.md").read_text()


@pytest.fixture
def world(tmp_path: Path, template: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("FAKE_ARCHIVE", template)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "MOST_BLOCKS", 5)
    world = World(tmp_path, monkeypatch)
    world.level(1.0)
    return world


@pytest.mark.parametrize(
    ("level", "noise", "status", "conclusion"),
    [(0.9, 0.002, 1, "failure"), (1.1, 0.002, 0, "success"), (0.97, 0.2, 3, "neutral")],
)
def test_the_exit_status_is_the_verdict(
    world: World, level: float, noise: float, status: int, conclusion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.level(level, noise)
    world.write(deploy='echo "$CBT_PLUGINS_REVISION" > "$CBT_PLUGINS_TRIAL_FOLDER/deployed"')
    assert world.run("18.2.7", "quay.io/ceph/ceph:v20", "--format", "md") == status
    assert capsys.readouterr().out == world.comment
    answer = world.answer
    assert (answer["exit_status"], answer["conclusion"]) == (status, conclusion)
    for arm, name in (("base", "18.2.7"), ("head", "quay.io/ceph/ceph:v20")):
        folders = [*world.state.glob(f"trials/*-{arm}"), world.state / "rehearsal" / arm]
        assert {(folder / "deployed").read_text().strip() for folder in folders} == {name}
    assert processes(world.state) == []


def test_a_slower_recovery_is_a_regression(world: World, template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """... of which the comment has a row, though throughput and p99 did not change."""
    archive = world.folder / "archive"
    shutil.copytree(template, archive)
    for path in archive.glob("results/*/id-*/summary.json"):
        path.write_text(json.dumps(with_failure(json.loads(path.read_text()), 100.0)))
    monkeypatch.setenv("FAKE_ARCHIVE", str(archive))
    monkeypatch.setenv("FAKE_RECOVERY", json.dumps({"base": 100.0, "head": 130.0}))
    world.write()
    assert world.run("a", "b") == 1
    assert "kill failure" in world.answer["why"] and "throughput" not in world.answer["why"]
    (row,) = [line for line in world.comment.splitlines() if line.startswith("| `kill failure")]
    assert " +29.9 % [" in row and row.endswith("regression (worse) |"), row


@pytest.fixture
def repo(world: World) -> Dict[str, str]:
    """A repository in which a branch has left main; name -> commit."""
    folder = world.folder / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    shas = {"old": commit(folder, {"speed": "1\n"}, "old")}
    shas["fork"] = commit(folder, {"speed": "2\n"}, "fork")
    git(folder, "checkout", "-qb", "change")
    shas["change"] = commit(folder, {"speed": "3\n"}, "<img src=x> @everyone `|` #1")
    git(folder, "checkout", "-q", "main")
    shas["main"] = commit(folder, {"speed": "4\n"}, "of others")
    return shas


BUILD = {
    "repo": "repo",
    "build": 'cp speed "$CBT_PLUGINS_BUILD/"',
    "deploy": 'cat "$CBT_PLUGINS_BUILD/speed" speed > "$CBT_PLUGINS_TRIAL_FOLDER/deployed"',
}


def test_the_base_of_commits_is_their_merge_base(world: World, repo: Dict[str, str]) -> None:
    world.level(0.9)
    world.write(**BUILD)
    assert world.run("main", "change") == 1
    answer = world.answer
    assert (answer["base"]["sha"], answer["head"]["sha"]) == (repo["fork"], repo["change"])
    assert answer["check"]["head_sha"] == repo["change"] and answer["check"]["output"]["summary"] == world.comment
    for arm, text in (("base", "2\n2\n"), ("head", "3\n3\n")):
        assert {path.read_text() for path in world.state.glob(f"trials/*-{arm}/deployed")} == {text}
    built = [record["sha"] for record in json_lines(world.state / "pr.jsonl") if record["event"] == "build"]
    assert built == [repo["fork"], repo["change"]], "each once, from new"
    assert f"cbt-tools pr {repo['fork']} {repo['change']} --config pr.yaml" in world.comment
    assert "`<img src=x> @everyone '¦' #1`" in world.comment
    assert git(world.folder / "repo", "worktree", "list").count("\n") == 0


def test_the_last_clean_runs_where_the_others_run(
    world: World, repo: Dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, cleaned = world.folder / "data" / "mine", world.folder / "cleaned"
    mine.parent.mkdir()
    mine.touch()
    monkeypatch.chdir(world.folder)
    names = ("PWD", "CBT_PLUGINS_WORKTREE", "CBT_PLUGINS_COMMIT", "CBT_PLUGINS_REVISION", "CBT_PLUGINS_BUILD")
    clean = f"rm -rf data; echo {' '.join(f'${name}' for name in names)} >> {cleaned}"
    world.write(**{**BUILD, "deploy": "mkdir data"}, clean=clean)
    assert world.run("main", "change") == 0
    assert mine.exists()
    lines = cleaned.read_text().splitlines()
    worktree, builds = world.state / "worktree", world.state / "builds"
    assert set(lines[-1:]) < set(lines[:-1]), "the variables of the side that was deployed last"
    assert {line.rpartition(" ")[0] for line in lines} == {
        f"{worktree} {worktree} {repo['fork']} main", f"{worktree} {worktree} {repo['change']} change"
    }
    assert all(line.rpartition(" ")[2].startswith(f"{builds}/") for line in lines)
    # a checkout of the user in the place of the worktree is neither taken nor cleaned
    world.state = world.folder / "other"
    git(world.folder / "repo", "worktree", "add", "-q", "--detach", str(world.state / "worktree"))
    (world.state / "worktree" / "data").mkdir()
    assert world.run("main", "change") == 2
    assert (world.state / "worktree" / "data").exists() and cleaned.read_text().splitlines() == lines


def test_a_pull_request_is_fetched_by_its_number(world: World, repo: Dict[str, str], tmp_path: Path) -> None:
    origin = world.folder / "repo"
    git(origin, "update-ref", "refs/pull/7/head", repo["change"])
    git(origin, "clone", "-q", "--single-branch", ".", str(tmp_path / "clone"))
    world.write(**{**BUILD, "repo": "clone"}, clean="true")
    assert world.run("origin/main", "pull/7", "--plan") == 0
    assert git(tmp_path / "clone", "rev-parse", "refs/cbt-plugins/pull/7") == repo["change"]
    assert not world.state.exists()


@pytest.mark.parametrize(("arm", "number", "conclusion"), [("base", 2, "neutral"), ("head", 3, "failure")])
def test_a_side_that_cannot_be_built(
    world: World, repo: Dict[str, str], arm: str, number: int, conclusion: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.write(**{**BUILD, "build": f"! grep {number} speed || {{ echo SECRET; exit 7; }}"})
    assert world.run("main", "change") == 125
    answer = world.answer
    assert (answer["conclusion"], answer["campaign"]) == (conclusion, None)
    assert f"{arm} cannot be built: see builds/" in answer["why"]
    assert "SECRET" in caplog.text and "SECRET" not in world.comment
    assert not (world.state / "worktree").exists()


HANG = "if {where}; then setsid sh -c 'echo $$ > {daemon}; exec sleep 600' & sleep 600; fi\n"
#: where a step hangs: a build has no arm, and the last `clean` neither
AT_HEAD = {"build": "grep -q 3 speed", "clean": '[ "$CBT_PLUGINS_ARM" != base ]'}


@pytest.mark.parametrize("step", ["build", "clean", "deploy", "cycle"])
def test_a_hung_step_ends_and_leaves_nothing(
    world: World, repo: Dict[str, str], step: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    where = AT_HEAD.get(step, '[ "$CBT_PLUGINS_ARM" = head ]')
    hang = HANG.format(where=where, daemon=world.folder / "daemon")
    program = world.folder / "program.sh"
    program.write_text(f'{hang if step == "cycle" else ""}exec {fake_cycle.PROGRAM} "$@"\n')
    section = {**BUILD, "clean": f"echo $CBT_PLUGINS_ARM >> {world.folder}/cleaned", "program": f"sh {program}"}
    if step != "cycle":
        section[step] += f"\n{hang}"
    # the limit of the cycle holds for the healthy cycle of the base, too
    seconds = 5 if step == "cycle" else 2
    world.write(**section, **{f"{'deploy' if step == 'clean' else step}_limit": f"{seconds}s"})
    assert world.run("main", "change") == 125
    name = "the cycle" if step == "cycle" else step
    why = f"tested: {name} took longer than its limit, 2 times: see rehearsal/" if step != "build" else "built: see "
    assert world.answer["why"].startswith(f"head cannot be {why}") and world.answer["conclusion"] == "failure"
    assert f"took longer than its limit of {seconds} s" in caplog.text
    assert (world.folder / "daemon").exists() and processes(world.state) == []
    rehearsed = [] if step == "build" else ["base", "head", "head"]
    assert (world.folder / "cleaned").read_text().split("\n") == [*rehearsed, "", ""], "and at the end"


def test_after_kill_9_any_next_verdict_ends_what_is_left(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.write(deploy="touch up; setsid sleep 600 & sleep 600")
    words = [sys.executable, "-m", "cbt_plugins.tools", *world.words("a", "b")]
    killed = subprocess.Popen(words, cwd=world.folder, stderr=subprocess.DEVNULL)
    wait_for((world.folder / "up").exists, "the deployment")
    assert world.run("a", "b") == 2
    assert "another process is using" in capsys.readouterr().err
    first, world.state = world.state, world.folder / "other"
    assert world.run("a", "b") == 2
    assert f"another `cbt-tools pr` runs on this machine, in {first}" in capsys.readouterr().err
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(processes(first)) >= 2
    world.write()
    assert world.run("a", "b") == 0
    assert processes(first) == []


def test_it_resumes_without_half_a_block(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.level(0.9)
    stop = world.folder / "stop"
    stop.touch()
    interrupt = f"sleep 1; kill -INT {os.getpid()}; sleep 60"
    world.write(deploy=f"case $CBT_PLUGINS_TRIAL in 02-3-*) [ ! -e {stop} ] || {{ {interrupt}; }};; esac")
    assert world.run("a", "b") == 130
    stop.unlink()
    spent = session.spent(json_lines(world.state / "pr.jsonl"))
    assert world.run("a", "b") == 1
    assert len(list(world.state.glob("trials/02-?-*.partial-1"))) == 3, "the trials before the kill, too"
    assert not list(world.state.glob("trials/01-*partial*"))
    assert world.answer["seconds"] > spent > 0 and world.answer["campaign"]["blocks"] == 4
    (world.state / "pr.json").unlink()
    assert world.run("a", "c") == 2, "this folder belongs to another verdict"
    assert world.run("a", "b") == 1, "what is decided stays"


@pytest.mark.parametrize(
    ("lost", "plain", "statuses"), [("the rehearsal of head", False, [3]), ("01-?-head", True, [125, 3])]
)
def test_lost_objects_of_any_attempt_are_no_equal_side(
    world: World, lost: str, plain: bool, statuses: List[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """... also of a rehearsal, and of a trial that the same command put aside with its block."""
    folder = "rehearsal/head" if "rehearsal" in lost else f"trials/{lost}"
    program = world.folder / "program.sh"
    program.write_text(f"""
        once() {{ [ ! -e {world.folder}/$1 ] && touch {world.folder}/$1; }}
        case $CBT_PLUGINS_TRIAL_FOLDER in
        */rehearsal/base) ! once base || {{ echo SECRET; exit 1; }} ;;
        {world.state}/{folder})
            ! {str(plain).lower()} || ! once plain || exit 1
            ! once lost || export FAKE_WARNING=lost-objects
        esac
        exec {fake_cycle.PROGRAM} "$@"
    """)
    world.write(program=f"sh {program}")
    assert [world.run("a", "b") for _ in statuses] == statuses
    (at,) = world.state.glob(f"{folder}.failed-{len(statuses)}")
    name = lost if "rehearsal" in lost else at.name.partition(".")[0]
    assert f"an attempt at {name} lost or changed data" in world.comment
    assert f"head: {len(statuses)} attempt" in world.comment
    assert "base: 1 attempt failed and made again, the last one at the rehearsal of base`" in world.comment
    assert "SECRET" not in world.comment
    assert {row["outcome"] for row in world.answer["rows"]} == {"inconclusive"}
    assert main(["campaign", "status", str(world.state)]) == 3
    assert f"an attempt at {name} lost or changed data" in " ".join(capsys.readouterr().out.split())


def test_the_time_in_a_journal_of_an_earlier_version_counts() -> None:
    times = [("begin", 50.0), ("start", 100.0), ("say", 160.0), ("start", 1000.0), ("say", 1030.0)]
    records = [{"event": event, "t": t} for event, t in times]
    assert session.spent(records) == 90.0
    stepped = [{"event": "start", "t": 2000.0}, {"event": "say", "t": 5.0}]
    assert session.spent([*records, *stepped]) == 90.0
    resumed = [{"event": "start", "t": 2000.0, "spent": 90.5}, {"event": "say", "t": 2030.0, "spent": 120.5}]
    assert session.spent([*records, *resumed]) == 120.5
    assert session.spent([records[0], *resumed]) == 120.5


#: the stand-in, whose undo notes what it undoes, and fails while there is a file `refused`
UNDOING = """
import pathlib, sys
here = pathlib.Path(__file__).parent
if sys.argv[2] == "cbt_plugins.tools":
    with open(here / "undone", "a") as log:
        log.write(f"{pathlib.Path(sys.argv[-1]).parent.name}\\n")
    sys.exit("SECRET" if (here / "refused").exists() else 0)
sys.argv[1:3] = []
sys.path.insert(0, TESTS)
import fake_cycle
fake_cycle.main()
"""


@pytest.mark.parametrize("refused", [False, True])
def test_what_a_killed_cycle_left_is_undone_before_the_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    program = world.folder / "program.py"
    program.write_text(UNDOING.replace("TESTS", repr(str(Path(fake_cycle.__file__).parent))))
    world.write(program=f"{sys.executable} {program} -m cbt_plugins")
    assert world.run("a", "b") == 0
    (trial,) = world.state.glob("trials/04-3-*")
    for mark in (*world.state.glob("trials/04-4-*/trial.json"), trial / "trial.json"):  # killed in the last block
        mark.unlink()
    if refused:
        (world.folder / "refused").touch()
    monkeypatch.setattr(session.PullRequestRun, "seconds_left", lambda _: 0.0)
    assert world.run("a", "b") == 3
    assert f"{trial.name}.partial-1" in (world.folder / "undone").read_text().split()
    text = f"trials/{trial.name}, "
    assert (text in world.comment) == refused == ("may still be open on the cluster" in world.comment)
    assert "SECRET" not in world.comment


def test_a_key_that_matches_no_row_is_an_error_after_the_rehearsal(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.write(keys=["measure.total.obj_per_s", "mesure.total.p99_ms"])
    assert world.run("a", "b") == 2
    assert "no row matches the key mesure.total.p99_ms: correct `keys:`" in capsys.readouterr().err
    assert (world.state / "rehearsal" / "head").exists() and not (world.state / "trials").exists()


def test_an_error_leaves_no_earlier_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    output = world.folder / "comment.md"
    world.write()
    assert world.run("a", "b", "-o", str(output)) == 0
    assert output.read_text() == world.comment

    def broken(_: Any) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(session.PullRequestRun, "seconds_left", broken)
    assert world.run("a", "c", "-o", str(output)) == 2  # the folder of another verdict
    assert not output.exists() and world.answer["outcome"] == "no regression"
    output.write_text("of an earlier verdict")
    assert world.run("a", "b", "-o", str(output)) == 125
    assert not output.exists() and not [*world.state.glob("pr.md"), *world.state.glob("pr.json")]


def test_a_broken_library_is_no_regression(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: List[Exception] = [ImportError("libblas.so.3"), ModuleNotFoundError("no numpy", name="numpy")]

    def broken(_: Any) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(session.PullRequestRun, "run", broken)
    world.write()
    assert [world.run("a", "b") for _ in range(2)] == [125, 2]


def test_too_little_time_is_refused_beforehand(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.write()
    assert world.run("a", "b", "--within", "abc") == 2
    assert "--within: not a duration; write for example 30s" in capsys.readouterr().err
    assert world.run("a", "b", "--within", "10m") == 2
    assert "fewer than 4 blocks of 4 cycles fit into 10 min" in capsys.readouterr().err
    assert world.run("a", "b", "--within", "8h", "--plan") == 0
    printed = capsys.readouterr().out
    assert "a change of" in printed and "first: then less scatter finds less" in printed


def test_a_text_that_is_no_name_is_refused(world: World) -> None:
    world.write()
    for text in ("$(id)", "-x", "a b", "a\nb", "`id`"):
        assert main(["pr", "--config", str(world.folder / "pr.yaml"), "--", "a", text]) == 2


def test_a_running_build_ends_when_the_time_is_over(
    world: World, repo: Dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Although its own limit is far away; an earlier process has spent all but 3 s."""
    caplog.set_level("INFO")
    world.write(**{**BUILD, "build": "sleep 600"})
    world.state.mkdir()
    (world.state / "pr.jsonl").write_text(json.dumps({"t": 1.0, "event": "start", "spent": 8 * 3600 - 3.0}) + "\n")
    assert world.run("main", "change", "--within", "8h") == 3
    assert world.answer["why"] == "the time ran out before the first block"
    assert "build took longer than its limit of " in caplog.text and processes(world.state) == []


def test_it_ends_within_a_block_when_the_time_is_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    left = lambda _: 0.0 if list(world.state.glob("trials/02-1-*")) else 3600.0  # noqa: E731
    monkeypatch.setattr(session.PullRequestRun, "seconds_left", left)
    world.write()
    assert world.run("a", "b") == 3
    assert len(list(world.state.glob("trials/0?-*"))) == 5
    assert world.answer["campaign"]["blocks"] == 1 and "1 of 5 blocks" in world.answer["why"]
