"""A trial: commands that prepare, one cycle into its own archive, its record; whole, or put aside and made again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import fake_cycle
import leaving_cycle
import pytest
from waiting import wait_for

from cbt_plugins.campaigns.trial import Cycle, finished, put_aside, run_trial, undo_left

CODE = """
import sys
from pathlib import Path
from cbt_plugins.campaigns.trial import Cycle, run_trial
run_trial(Cycle("A", Path("my.yaml"), tuple(sys.argv[2:]), program="true"), Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    return {"FAKE_ARCHIVE": str(fake_cycle.template(tmp_path_factory.mktemp("made") / "archive"))}


def cycle(world: Dict[str, str], *prepare: str, arm: str = "A", effect: float = 1.0) -> Cycle:
    environment = {**world, "FAKE_EFFECTS": json.dumps({arm: effect}), "FAKE_NOISE": "0"}
    return Cycle(arm, Path("my.yaml"), prepare, fake_cycle.PROGRAM, environment=environment)


def test_it_prepares_runs_the_cycle_and_reads_the_record(tmp_path: Path, world: Dict[str, str]) -> None:
    line = 'echo "$CBT_PLUGINS_ARM $CBT_PLUGINS_TRIAL $CBT_PLUGINS_FILE" && basename "$CBT_PLUGINS_ARCHIVE"'
    plain = run_trial(cycle(world, line), tmp_path / "01-A")
    twice = run_trial(cycle(world, arm="B", effect=2.0), tmp_path / "02-B")
    assert (tmp_path / "01-A" / "prepare-1.log").read_text() == "A 01-A my.yaml\narchive\n"
    key = ("measure", "total", "obj_per_s")
    assert plain.reason is None and twice.values[key] == pytest.approx(2 * plain.values[key])
    assert finished(tmp_path / "02-B") == twice


def test_a_finished_trial_is_not_made_again(tmp_path: Path, world: Dict[str, str]) -> None:
    made = run_trial(cycle(world), tmp_path / "01-A")
    assert run_trial(cycle(world, "false"), tmp_path / "01-A") == made


def test_a_command_that_fails_is_named_and_the_cycle_is_not_run(tmp_path: Path, world: Dict[str, str]) -> None:
    bad = cycle(world, "true", "echo no such snapshot; exit 3", "touch never")
    trial = run_trial(bad, tmp_path / "01-A")
    assert (trial.step, trial.status, trial.records, trial.values) == ("prepare-2", 3, (), {})
    assert "exit 3) ended with status 3: no such snapshot" in str(trial.reason)
    assert not trial.archive.exists()
    assert run_trial(bad, tmp_path / "01-A").began == trial.began
    assert run_trial(cycle(world), tmp_path / "01-A", again=True).reason is None
    assert (tmp_path / "01-A.failed-1" / "trial.json").exists()


def test_a_command_over_its_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    trial = run_trial(Cycle("A", Path("x"), ("sleep 987 & sleep 987; true",), limit=0.2), tmp_path / "01-A")
    assert (trial.step, trial.status) == ("prepare-1", None) and "longer than its limit of 0.2 s" in str(trial.reason)
    assert processes(tmp_path) == []


def test_a_command_over_its_limit_is_ended_without_our_environment(tmp_path: Path) -> None:
    line = f"echo $$ >{tmp_path / 'pid'}; exec env -i sleep 987"
    trial = run_trial(Cycle("A", Path("x"), (line,), limit=0.5), tmp_path / "01-A")
    assert trial.status is None
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_archive_without_a_result_is_no_result(tmp_path: Path) -> None:
    trial = run_trial(Cycle("A", Path("x"), program="true"), tmp_path / "01-A")
    assert "the archive of the trial cannot be read" in str(trial.reason)


def processes(folder: Path) -> List[str]:
    """Return the processes that know a folder of trials."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            known = f"CBT_PLUGINS_TRIAL_FOLDER={folder}".encode() in (entry / "environ").read_bytes()
            zombie = b") Z" in (entry / "stat").read_bytes()
        except OSError:
            continue
        found += [entry.name] if known and not zombie else []
    return found


@pytest.fixture(autouse=True)
def ended(tmp_path: Path) -> Iterator[None]:
    """What a test that failed has left of its commands does not run on."""
    yield
    for number in processes(tmp_path):
        os.kill(int(number), signal.SIGKILL)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A trial whose command waits until it is ended, and then takes its time."""
    line = "trap 'echo undone; exit 1' TERM; echo up; while :; do sleep 0.05; done"
    words = [sys.executable, "-c", CODE, str(tmp_path / "01-A"), line]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    log = tmp_path / "01-A" / "prepare-1.log"
    wait_for(lambda: log.exists() and "up" in log.read_text(), "the command")
    yield process
    process.kill()
    process.wait()


def test_a_signal_ends_the_command_and_leaves_no_mark(tmp_path: Path, started: subprocess.Popen[bytes]) -> None:
    started.send_signal(signal.SIGINT)
    assert started.wait() != 0
    assert (tmp_path / "01-A" / "prepare-1.log").read_text().endswith("undone\n")
    assert processes(tmp_path) == [] and finished(tmp_path / "01-A") is None


def test_a_signal_while_a_command_is_started_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command may work before `Popen` has returned: it is no child that nobody ends then."""
    log = tmp_path / "01-A" / "prepare-1.log"

    class Interrupted(subprocess.Popen):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            wait_for(lambda: "up" in log.read_text(), "the command")
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_trial(Cycle("A", Path("x"), ("echo up; exec sleep 987",), program=""), tmp_path / "01-A")
    assert processes(tmp_path) == [] and finished(tmp_path / "01-A") is None


def test_what_was_killed_is_ended_put_aside_and_made_again(
    tmp_path: Path, started: subprocess.Popen[bytes], world: Dict[str, str]
) -> None:
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert processes(tmp_path)
    trial = run_trial(cycle(world), tmp_path / "01-A")
    assert trial.reason is None and processes(tmp_path) == []
    assert (tmp_path / "01-A.partial-1" / "prepare-1.log").read_text().endswith("undone\n")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What cycles of the stand-in leave something on; commands of trials have it in their environment."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    monkeypatch.setenv("LEAVING_CLUSTER", str(folder))
    return folder


def left_on(cluster: Path) -> List[str]:
    return [path.name for path in cluster.glob("left-*")]


def test_what_a_failed_cycle_left_on_the_cluster_is_undone(tmp_path: Path, cluster: Path) -> None:
    trial = run_trial(Cycle("A", Path("x"), program=leaving_cycle.PROGRAM), tmp_path / "01-A")
    assert trial.status == 1 and left_on(cluster) == []
    assert (cluster / "undone").read_text() == f"{tmp_path}/01-A/archive\n"
    run_trial(Cycle("A", Path("x"), program="true"), tmp_path / "01-A", again=True)
    assert (cluster / "undone").read_text().count("\n") == 1, "what is undone is not undone again"


def test_a_cycle_that_left_no_run_has_nothing_to_undo(tmp_path: Path, cluster: Path) -> None:
    (cluster / "undo-status").write_text("2")  # of an undo of a folder without a run
    archive = tmp_path / "01-A" / "archive"
    archive.mkdir(parents=True)
    cycle = Cycle("A", Path("x"), program=leaving_cycle.PROGRAM)
    assert undo_left(cycle, archive.parent) is None
    (archive / "results" / "00000000" / "id-1a2b3c4d").mkdir(parents=True)
    assert undo_left(cycle, archive.parent) is not None


@pytest.fixture
def killed(tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a trial that was killed together with its cycle, as a power cut does."""
    monkeypatch.setenv("LEAVING_HANGS", "1")
    code = CODE.replace('program="true"', f"program={leaving_cycle.PROGRAM!r}")
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "01-A")])
    wait_for(lambda: left_on(cluster), "the cycle")
    process.kill()
    process.wait()
    for number in processes(tmp_path):
        os.kill(int(number), signal.SIGKILL)
    wait_for(lambda: not processes(tmp_path), "the end of the cycle")
    monkeypatch.delenv("LEAVING_HANGS")
    return tmp_path / "01-A"


def test_what_a_killed_cycle_left_is_undone_before_the_next_attempt(killed: Path, cluster: Path) -> None:
    run_trial(Cycle("A", Path("x"), (f"ls {cluster} >{cluster}/seen",), program=leaving_cycle.PROGRAM), killed)
    assert "left-" not in (cluster / "seen").read_text()
    assert (cluster / "undone").read_text().splitlines()[0] == f"{killed}.partial-1/archive"


def test_what_a_killed_cycle_left_is_undone_before_another_trial(killed: Path, cluster: Path) -> None:
    """Both trials of a block are made anew, in turns: a kill in the second one is followed by the first one."""
    put_aside(killed)
    run_trial(
        Cycle("B", Path("x"), (f"ls {cluster} >{cluster}/seen",), program=leaving_cycle.PROGRAM),
        killed.with_name("01-B"),
    )
    assert "left-" not in (cluster / "seen").read_text()
    assert (cluster / "undone").read_text().splitlines()[0] == f"{killed}.partial-1/archive"


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_cannot_be_undone_is_tried_again_after_the_preparation(
    killed: Path, cluster: Path, comes_back: bool
) -> None:
    (cluster / "undo-status").write_text("1")
    prepare = f"rm {cluster}/undo-status" if comes_back else "true"
    trial = run_trial(Cycle("A", Path("x"), (prepare,), program=leaving_cycle.PROGRAM), killed)
    if comes_back:
        assert trial.step == "cycle" and left_on(cluster) == []
        return
    assert trial.step == "undo" and not trial.archive.exists()
    reason = str(trial.reason)
    assert f"cbt_plugins.tools undo --data {killed}.partial-1/archive" in reason, "the folder as it is called now"
    assert "ended with status 1: Error: xxx" in reason and "the end" not in reason
    assert "an earlier attempt left changes on the cluster" in reason


def test_what_a_failed_trial_leaves_open_is_in_its_reason(tmp_path: Path, cluster: Path) -> None:
    (cluster / "undo-status").write_text("1")
    trial = run_trial(Cycle("A", Path("x"), program=leaving_cycle.PROGRAM), tmp_path / "01-A")
    reason = str(trial.reason)
    assert trial.step == "cycle" and "ended with status 1 " in reason
    assert f"; and changes are still open: undo ({leaving_cycle.PROGRAM}.tools undo" in reason


def test_what_an_interrupted_trial_leaves_open_is_logged(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cluster / "undo-status").write_text("1")
    monkeypatch.setenv("LEAVING_HANGS", "1")
    code = CODE.replace('program="true"', f"program={leaving_cycle.PROGRAM!r}")
    words = [sys.executable, "-c", code, str(tmp_path / "01-A")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: left_on(cluster), "the cycle")
    process.send_signal(signal.SIGINT)
    assert "01-A: changes are still open: undo (" in process.communicate()[1]


def test_nothing_is_left_on_a_cluster_that_was_made_anew(killed: Path, cluster: Path) -> None:
    (cluster / "undo-status").write_text("5")
    trial = run_trial(Cycle("A", Path("x"), program=leaving_cycle.PROGRAM), killed)
    assert trial.step == "cycle" and json.loads((killed.with_name("01-A.partial-1") / "undone.json").read_text())


def test_a_full_disk_does_not_prevent_an_undo(killed: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (killed / "group").unlink(missing_ok=True)
    (killed / "group").symlink_to("/dev/full")
    (killed / "undo.log").symlink_to("/dev/full")
    assert undo_left(Cycle("A", Path("x"), program=leaving_cycle.PROGRAM), killed) is None
    assert left_on(cluster) == []


@pytest.mark.parametrize(("made", "undone"), [("faults", True), ("logs", False)])
def test_an_archive_that_has_no_run_yet_is_undone_if_it_has_faults(
    tmp_path: Path, cluster: Path, made: str, undone: bool
) -> None:
    """The profile `faults` may have changed the cluster before CBT makes the folder of its run."""
    folder = tmp_path / "01-A"
    (folder / "archive" / made).mkdir(parents=True)
    (cluster / "left-1").write_text(str(folder / "archive"))
    assert undo_left(Cycle("A", Path("x"), program=leaving_cycle.PROGRAM), folder) is None
    assert (left_on(cluster) == []) == undone
