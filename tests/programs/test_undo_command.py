"""`cbt-tools undo`: statuses and what it says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest
from faults_world import MADE, Connections, injector, part
from undone_runs import broken, reached

import cbt_plugins.tools.undo as undo_tool
from cbt_plugins.faults import FaultError, cluster_access
from cbt_plugins.faults.undo_journal import FILE, UndoJournal, given_up_in, open_steps_in
from cbt_plugins.journal import Journal, journal_lines
from cbt_plugins.tools.__main__ import main


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return reached(monkeypatch)


def test_a_dead_run_is_undone(tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]) -> None:
    folder = broken(tmp_path / "results" / "00000000" / "id-0a1b2c3d", world)
    assert world.differences() == {"osd.0", "flag noout"}
    assert main(["undo", str(tmp_path), "--dry-run"]) == 1
    said = capsys.readouterr().out
    assert "systemctl start ceph-osd@0.service" in said and "osd unset noout" in said
    assert world.differences() == {"osd.0", "flag noout"}
    assert main(["undo", str(tmp_path)]) == 0
    assert world.differences() == set() and world.state["keys"] == {}
    assert "2 undone" in capsys.readouterr().out
    assert main(["undo", str(folder)]) == 0
    assert main(["undo", str(folder), "--dry-run"]) == 0


def events_of(folder: Path) -> List[str]:
    return [f"{line['event']} {line.get('label', '')}".strip() for line in journal_lines(folder / "events.jsonl")]


def test_an_undo_is_in_the_event_log(tmp_path: Path, world: Connections) -> None:
    folder = broken(tmp_path / "run", world)
    Journal(folder / "events.jsonl").close()
    assert main(["undo", str(folder)]) == 0
    names = ["fault-undo-begin one node", "fault-undone one node"]
    names += ["fault-undo-begin settings", "fault-undone settings"]
    assert events_of(folder) == ["undo-by-user", *names]
    assert main(["undo", str(folder)]) == 0  # nothing is open: nothing is added
    assert len(events_of(folder)) == 5


@pytest.mark.parametrize("how", ["none", "complete", "in use", "a pipe", "a link"])
def test_no_undo_depends_on_the_event_log(tmp_path: Path, world: Connections, how: str) -> None:
    folder = broken(tmp_path / "run", world)
    events, other = folder / "events.jsonl", tmp_path / "other"
    other.write_text("torn")
    with contextlib.ExitStack() as stack:
        if how == "a pipe":
            os.mkfifo(events)
        elif how == "a link":
            events.symlink_to(other)
        elif how in ("complete", "in use"):
            journal = stack.enter_context(contextlib.closing(Journal(events)))
            if how == "complete":
                journal.close()
                (folder / "complete").write_text("{}")
        assert main(["undo", str(folder)]) == 0
        assert world.differences() == set() and open_steps_in(folder) == []
    assert other.read_text() == "torn"
    assert how in ("a pipe", "a link") or not (events.exists() and events.read_text())


def test_data_that_an_undo_removes_are_named(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = injector(tmp_path, world)
    made.acquire()
    made.set_up(map(part, ("existing pool log", "pool data", "rgw user")))
    MADE.pop().close()
    assert main(["undo", str(tmp_path), "--dry-run"]) == 1
    printed = capsys.readouterr().out
    assert printed.count(" (with all data in it)\n") == 2
    sentence = f"pool data, rgw user; {undo_tool.CANNOT_CONTINUE}"
    assert printed.splitlines()[1] == f"  undo removes, with all data in it: {sentence}"
    warned: List[str] = []
    real = undo_tool.Injector.undo_all

    def undo_all(self: Any, prepared: bool = False) -> Any:
        warned.append(capsys.readouterr().err)
        return real(self, prepared)

    monkeypatch.setattr(undo_tool.Injector, "undo_all", undo_all)
    assert main(["undo", str(tmp_path)]) == 0
    before = f"{tmp_path}: removing, with all data in it: {sentence}: start again with another archive directory"
    assert before in warned[0], "said before anything is removed"
    printed = capsys.readouterr().out
    assert "3 undone" in printed and "removed, with all data in it: pool data, rgw user\n" in printed


def test_the_manual_says_in_the_words_of_the_help_that_data_go() -> None:
    docs = Path(__file__).parents[2] / "docs"
    manual = " ".join((docs / "FAULTS.md").read_text().replace("`--data`", "--data").split())
    assert undo_tool.WITH_DATA in manual and undo_tool.SCRATCH in manual
    removed = undo_tool.WITH_DATA.rstrip(".").partition("undo ")[2]
    assert removed in (docs / "TROUBLESHOOTING.md").read_text()


def test_a_dry_run_names_the_buckets_that_data_removes(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    assert main(["undo", str(folder)]) == 0
    run_id = json.loads((folder / "cluster.json").read_text())["run_id"]
    with contextlib.closing(Journal(folder / "journal.jsonl")) as journal:
        journal.write("run", run_id=run_id)
        journal.write("bucket", bucket=f"cbtp-{run_id}-4kib", admin_name=f"cbtp-{run_id}-4kib")
    before = (folder / "journal.jsonl").read_bytes()
    monkeypatch.setattr("cbt_plugins.cluster.ceph.Ceph.bucket", lambda *_: SimpleNamespace(objects=1040))
    capsys.readouterr()
    assert main(["undo", str(folder), "--dry-run"]) == 0 and "bucket" not in capsys.readouterr().out
    assert main(["undo", str(folder), "--dry-run", "--data"]) == 1
    assert f"undo --data removes bucket cbtp-{run_id}-4kib (1040 objects)\n" in capsys.readouterr().out
    assert (folder / "journal.jsonl").read_bytes() == before
    (folder / "cluster.json").write_text('{"run_id": "r1", "cluster": {}}')
    asked = len(world.said)
    assert main(["undo", str(folder), "--dry-run", "--data"]) == 1
    assert f"bucket cbtp-{run_id}-4kib\n" in capsys.readouterr().out, "named, and no node of others is asked"
    assert len(world.said) == asked


def test_what_stays_open_comes_with_its_commands(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    world.fail = ["systemctl start"]
    assert main(["undo", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "still open: one node: stop osd.0 on node1:" in said
    assert "    node1: sudo sh -c 'systemctl reset-failed ceph-osd@0.service" in said
    assert "osds.osd=0.up = 1" in said
    assert world.differences() == {"osd.0"}  # the flag is back all the same
    assert len(world.state["keys"]) == 1  # and the cluster not free


def test_a_run_that_is_at_work_is_left_alone(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    working = UndoJournal(folder)
    assert main(["undo", str(folder)]) == 1
    assert "another process is using" in capsys.readouterr().err
    working.close()
    assert world.differences() == {"osd.0", "flag noout"}


def test_a_dry_run_says_that_the_cluster_is_locked(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    made = injector(tmp_path, world)
    made.acquire()
    MADE.pop().close()
    locked = f"no change is open\n{tmp_path}: the cluster may still be locked for this run: undo unlocks it\n"
    world.fail = ["config-key rm"]
    for _ in range(2):
        assert main(["undo", str(tmp_path), "--dry-run"]) == 1 and capsys.readouterr().out == f"{tmp_path}: {locked}"
        assert main(["undo", str(tmp_path)]) == 1 and "Error: " in capsys.readouterr().err
    world.fail = []
    assert main(["undo", str(tmp_path)]) == 0 and not world.state["keys"]
    capsys.readouterr()
    assert main(["undo", str(tmp_path), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: no change is open\n"


def test_a_head_that_cannot_be_reached_leaves_no_lock(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    made = injector(tmp_path, world)
    world.fail = ["config-key"]
    with pytest.raises(FaultError, match=r"^ceph config-key dump ") as failure, made.holding():
        pass
    MADE.pop().close()
    assert "attempt" not in str(failure.value)
    for dry in (["--dry-run"], []):
        assert main(["undo", str(tmp_path), *dry]) == 0
        assert capsys.readouterr().out == f"{tmp_path}: no change is open\n"


def change_holder(world: Connections, **other: Any) -> None:
    """As if another process had the cluster for the run."""
    ((key, holder),) = world.state["keys"].items()
    world.state["keys"][key] = json.dumps({**json.loads(holder), **other})


def test_a_killed_profile_is_found_and_undone(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """`faults` beside any benchmark has its journals in ARCHIVE/faults/<time>; a link leads to somebody else's."""
    folder = broken(tmp_path / "archive" / "faults" / "20260101T000000", world)
    elsewhere = broken_aside(tmp_path / "elsewhere")
    (tmp_path / "archive" / "link").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "archive" / "file").mkdir()
    (tmp_path / "archive" / "file" / FILE).symlink_to(elsewhere / FILE)
    assert main(["undo", str(tmp_path / "archive"), "--dry-run"]) == 1
    assert f"{folder}: 2 open" in capsys.readouterr().out
    assert main(["undo", str(tmp_path / "archive")]) == 1
    assert world.differences() == set() and world.state["keys"] == {}
    said = capsys.readouterr()
    assert f"{folder}: 2 undone" in said.out and str(elsewhere) not in said.out and "link" not in said.out
    for link in ("link", f"file/{FILE}"):
        assert f"Error: {tmp_path}/archive/{link} is a link: its open changes are unknown: give" in said.err


def test_links_and_checkouts_without_open_changes_are_no_errors(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, elsewhere = tmp_path / "archive", tmp_path / "elsewhere"
    run = elsewhere / "results" / "00000000" / "id-1"
    broken(run, world)
    (archive / "worktree" / "tests").mkdir(parents=True)
    (archive / "notes").symlink_to("gone")
    (archive / "doc").symlink_to(tmp_path / "doc")
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "far").symlink_to(run)
    (archive / "parent").symlink_to(archive.parent / "doc" / "..")
    (archive / "pr.jsonl").touch()
    (archive / "results" / "00000000" / "id-2").mkdir(parents=True)
    (archive / "worktree" / "tests" / FILE).write_text("{")
    assert main(["undo", str(archive)]) == 1
    said = capsys.readouterr().err
    assert f"Error: {archive}/parent is a link: its open changes" in said
    assert f"{archive}/notes is a link to nothing that can be seen: whether it hides runs is unknown" in said
    assert main(["undo", str(elsewhere)]) == 0
    assert main(["undo", str(archive)]) == 0
    assert "no run of this archive" in capsys.readouterr().out


def test_a_link_in_the_place_of_a_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "archive"
    (archive / "results" / "00000000" / "id-2").mkdir(parents=True)
    (archive / "results" / "log").write_text("")
    (archive / "latest").symlink_to("results", target_is_directory=True)
    (archive / "log").symlink_to("results/log")
    assert main(["undo", str(archive)]) == 0 and "no run of this archive" in capsys.readouterr().out
    (archive / "id-1a2b3c4d").symlink_to(tmp_path / "unmounted" / "moved")
    assert main(["undo", str(archive)]) == 1
    said = capsys.readouterr()
    assert f"Error: {archive}/id-1a2b3c4d is a link: its open changes are unknown: give its target" in said.err
    assert "no run of this archive" not in said.out
    assert main(["undo", str(archive / "latest")]) == 0, "the user has named it"


def test_a_damaged_journal_keeps_nobody_from_the_others(
    tmp_path: Path, world: Connections, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "archive" / "results" / "00000000"
    other = broken_aside(runs / "id-b")
    folder = broken(runs / "id-a", world)
    whole = len((folder / FILE).read_text().splitlines())
    with open(folder / FILE, "a") as journal:
        journal.write('{"t": 1, "eve\n{"t": 1.0}\n{"event": "undone", "id": "1"}\n')
    os.utime(other / FILE, (1, 1))  # the newest is first
    (folder / "journal.jsonl").write_text('{"t": 1.0}\n')
    assert main(["undo", str(tmp_path / "archive"), "--dry-run"]) == 1
    said = capsys.readouterr().out
    assert f"{folder}: 2 open" in said and f"{other}: 2 open" in said
    assert f"{folder / FILE}: damaged lines that are left out: 3" in caplog.text
    assert main(["undo", str(tmp_path / "archive")]) == 1
    said = capsys.readouterr()
    assert f"{folder}: 2 undone" in said.out
    damaged = f"damaged lines: {whole + 1}, {whole + 2}, {whole + 3}: its open changes are unknown"
    assert f"Error: {folder / FILE}: {damaged}" in said.err
    world.state["keys"].clear()  # the lock that stays has the ID of both runs
    assert main(["undo", str(tmp_path / "archive")]) == 1
    assert f"{other}: 2 undone" in capsys.readouterr().out


def test_a_change_whose_line_is_damaged_is_not_said_to_be_undone(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bit of the line that opened it has changed: what is known is undone, and the cluster stays locked."""
    folder = broken(tmp_path / "run", world)
    lines = (folder / FILE).read_text().splitlines(keepends=True)
    number, id = next(
        (number, json.loads(line)["id"])
        for number, line in enumerate(lines)
        if '"open"' in line and '"one node"' in line
    )
    lines[number] = "\0" + lines[number][1:]
    (folder / FILE).write_text("".join(lines))
    missing = f"the line that opened one node (id {id}) is missing"
    for command in (["--dry-run"], [], []):
        assert main(["undo", str(folder), *command]) == 1
        said = capsys.readouterr()
        assert f"{folder / FILE}: damaged lines: {number + 1}; {missing}: its open changes are unknown" in said.err
        assert "no change is open" not in said.out
    assert world.differences() == {"osd.0"} and world.state["keys"]
    again = injector(folder, world)
    with pytest.raises(FaultError, match=rf"then delete these lines and all lines of id {id} from the file$"):
        again.undo_earlier()
    again.set_up([part("pool a")])
    assert int(again.open_changes[0].id) == int(id) + 1, "no ID is used twice"
    assert again.undo_all(prepared=True) == []
    MADE.pop().close()
    left = [line for line in (folder / FILE).read_text().splitlines(keepends=True) if f'"id": "{id}"' not in line]
    (folder / FILE).write_text("".join(line for line in left if not line.startswith("\0")))
    assert main(["undo", str(folder)]) == 0 and not world.state["keys"]


def test_a_damaged_journal_is_said_beside_another_refusal(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line tells an open change any more, and the file that tells how to reach the cluster is lost too."""
    folder = broken(tmp_path / "run", world)
    lines = (folder / FILE).read_text().splitlines(keepends=True)
    (folder / FILE).write_text("".join("\0" + line[1:] if '"open"' in line else line for line in lines))
    (folder / cluster_access.FILE).unlink()
    for command in (["--dry-run"], []):
        assert main(["undo", str(folder), *command]) == 1
        assert "its open changes are unknown: " in capsys.readouterr().err
    assert world.differences()


def broken_aside(folder: Path) -> Path:
    other = Connections()
    broken(folder, other)
    return folder


def test_what_cannot_be_looked_into_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["undo", str(tmp_path)]) == 1
    assert f"{tmp_path}/closed: Permission denied: its open changes are unknown" in capsys.readouterr().err


def test_a_copy_does_not_end_what_a_run_does(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run's journal is locked in the archive itself only; the cluster says who is at work."""
    folder = broken(tmp_path / "run", world)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for force in ([], ["--force"]):  # it is alive, and that is known
        assert main(["undo", str(copy), *force]) == 1
        assert f"(pid {os.getpid()} on " in capsys.readouterr().err
    assert world.differences() == {"osd.0", "flag noout"} and len(world.state["keys"]) == 1
    change_holder(world, started=1)  # it is dead
    assert main(["undo", str(copy)]) == 0
    assert world.differences() == set() and world.state["keys"] == {}


def test_of_another_machines_process_somebody_must_say_that_it_is_dead(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    change_holder(world, host="elsewhere")
    assert main(["undo", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "on elsewhere" in said and "or on this machine with --force" in said
    assert world.differences() == {"osd.0", "flag noout"}
    assert main(["undo", str(folder), "--force"]) == 0
    assert world.differences() == set() and world.state["keys"] == {}


@pytest.mark.parametrize("lock", ["removed", "of another run", "not to be had"])
def test_undo_is_more_important_than_who_has_the_cluster(
    lock: str, tmp_path: Path, world: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    folder = broken(tmp_path / "run", world)
    if lock == "removed":
        world.state["keys"].clear()
    elif lock == "of another run":
        change_holder(world, run="r2", archive="/other")
    else:
        world.fail = ["config-key dump"]
    assert main(["undo", str(folder)]) == (1 if world.fail else 0)  # then the cluster cannot be given back
    assert world.differences() == set()
    said = {"removed": "", "of another run": "run r2", "not to be had": "undoing nevertheless"}[lock]
    assert said in caplog.text
    assert bool(world.state["keys"]) == (lock != "removed")


def test_what_can_never_be_seen_undone_is_given_up_by_name(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """osd.0 was purged while its node was stopped."""
    folder = broken(tmp_path / "run", world)
    del world.state["osds"]["0"]
    assert main(["undo", str(folder)]) == 1
    assert main(["undo", str(folder), "--give-up", "another"]) == 2
    assert open_steps_in(folder) != []
    capsys.readouterr()
    assert main(["undo", str(folder), "--give-up", "one node"]) == 0
    said = capsys.readouterr().out
    assert "given up" in said and "systemctl start ceph-osd@0.service" in said and "osds.osd=0.up = 1" in said
    assert world.state["keys"] == {}
    assert main(["undo", str(folder)]) == 0
    assert "one node: stop osd.0 on node1: given up 20" in capsys.readouterr().out  # for ever
    assert injector(folder, world).open_changes == []
    MADE.pop().close()


def test_buckets_that_stay_are_said(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is given up does not keep the buckets; any other change does."""
    removed: List[Path] = []
    monkeypatch.setattr(undo_tool, "remove_buckets", lambda folder, run: [removed.append(folder)])
    folder = broken(tmp_path / "run", world)
    world.fail = ["osd unset noout"]
    del world.state["osds"]["0"]
    assert main(["undo", str(folder), "--data", "--give-up", "one node"]) == 1
    said = capsys.readouterr().err
    assert "not removed: buckets of the run: changes are open: settings" in said and removed == []
    world.fail = []
    assert main(["undo", str(folder), "--data"]) == 0 and removed == [folder]
    world.state["osds"]["0"] = dict(world.first["osds"]["0"])
    second = broken(tmp_path / "second", world)
    del world.state["osds"]["0"]
    assert main(["undo", str(second), "--data", "--give-up", "one node"]) == 0
    assert removed == [folder, second]


def test_what_can_be_undone_is_not_given_up(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    assert main(["undo", str(folder), "--give-up", "one node"]) == 0
    assert world.differences() == set()
    said = capsys.readouterr().out
    assert "2 undone" in said and "given up" not in said


def test_an_archive_that_cannot_be_written_is_said(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "results" / "00000000" / "id-1", world)
    write = UndoJournal.note

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system", str(folder / FILE))

    monkeypatch.setattr(UndoJournal, "note", refuse)
    assert main(["undo", str(tmp_path)]) == 1
    assert "Read-only file system" in capsys.readouterr().err
    assert world.differences() == set()  # undone all the same
    assert main(["undo", str(tmp_path), "--give-up", "one node"]) == 1
    assert given_up_in(journal_lines(folder / FILE)) == []
    monkeypatch.setattr(UndoJournal, "note", write)
    monkeypatch.setattr(undo_tool, "Injector", refuse)  # not even to be read by who asks
    assert main(["undo", str(tmp_path)]) == 1
    assert "Read-only file system" in (said := capsys.readouterr().err) and "(2 open)" in said
