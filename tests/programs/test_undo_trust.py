"""`cbt-tools undo` of archives that others may have written: what is obeyed, refused, and never touched."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Callable, List

import pytest
from faults_world import ANYTHING, MADE, Connections, injector, part
from undone_runs import broken, reached

import cbt_plugins.tools.undo as undo_tool
from cbt_plugins.faults import FaultError, cluster_access, undo_seal
from cbt_plugins.faults.undo_journal import FILE, open_steps_in
from cbt_plugins.journal import journal_lines
from cbt_plugins.plan import Fault
from cbt_plugins.tools.__main__ import main


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return reached(monkeypatch)


def altered(path: Path, **changes: str) -> None:
    """What a stranger writes into an archive: texts replaced by others."""
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (FILE, "systemctl", "touch"),
        (FILE, '"node": "node1"', '"node": ""'),
        (FILE, '"seal"', '"sealed"'),
        (cluster_access.FILE, '"common": {}', '"common": {"pdsh_cmd": "reboot"}'),
        (cluster_access.FILE, '"node1"', '"-oProxyCommand=reboot"'),
        (cluster_access.FILE, '"run_id": "', '"run_id": "$(reboot)'),
    ],
)
def test_what_others_wrote_is_not_run(
    file: str, old: str, new: str, tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "id-1a2b3c4d", world)
    altered(folder / file, **{old: new})
    before, sent = world.differences(), len(world.said)
    assert main(["undo", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    damaged = "without this file the cluster cannot be reached"
    assert (damaged if "run_id" in old else "not written by this user on this machine") in said
    if file == FILE:
        with pytest.raises(FaultError, match="not written by this user"):  # of a run that is resumed
            injector(folder, world)
    assert (world.differences(), len(world.said)) == (before, sent)


def as_of_an_earlier_version(folder: Path) -> None:
    """Seal the journal as commit 8667765 did: parts of the open steps, and nothing else."""
    run_id = json.loads((folder / cluster_access.FILE).read_text())["run_id"]
    former = []
    for line in journal_lines(folder / FILE):
        del line["seal"]
        if line["event"] == "open":
            content = {key: line[key] for key in ("id", "label", "kind", "step")}
            line["seal"] = undo_seal.of({**content, "run": run_id})
        former.append(json.dumps(line) + "\n")
    (folder / FILE).write_text("".join(former))


def test_a_run_of_an_earlier_version_is_resumed_and_undone(tmp_path: Path, world: Connections) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    first = injector(folder, world)
    first.acquire()
    first.set_up([part("pool a")])
    first.inject(Fault("some", "stop", (), choose=1, seed=1, accept=ANYTHING))
    MADE.pop().close()
    as_of_an_earlier_version(folder)
    former = len(journal_lines(folder / FILE))
    for _ in range(2):  # the second one finds lines of both versions
        resumed = injector(folder, world)
        assert "pool a" in [record.label for record in resumed.open_changes]
        assert [line["label"] for line in resumed.records if line["event"] == "chosen"] == ["some"]
        assert resumed.undo_all() == []
        MADE.pop().close()
    assert len(journal_lines(folder / FILE)) > former
    assert [record.label for record in open_steps_in(folder)] == ["pool a"]
    assert main(["undo", str(folder)]) == 0 and not world.differences()


@pytest.mark.parametrize("damage", ["step", "label", "no seal", "cluster.json", "another run"])
def test_a_journal_of_an_earlier_version_that_was_changed_is_refused(
    damage: str, tmp_path: Path, world: Connections
) -> None:
    folder = broken(tmp_path / "run", world)
    as_of_an_earlier_version(folder)
    if damage == "cluster.json":
        altered(folder / cluster_access.FILE, **{'"common": {}': '"common": {"pdsh_cmd": "reboot"}'})
    elif damage == "another run":
        document = json.loads((folder / cluster_access.FILE).read_text())
        content = {**{key: value for key, value in document.items() if key != "seal"}, "run_id": "another"}
        (folder / cluster_access.FILE).write_text(json.dumps({**content, "seal": undo_seal.of(content)}))
    else:
        old, new = {"step": ("systemctl", "touch"), "label": ("one node", "two"), "no seal": ('"seal"', '"x"')}[damage]
        altered(folder / FILE, **{old: new})
    before, sent = world.differences(), len(world.said)
    assert main(["undo", str(folder)]) == 1
    with pytest.raises(FaultError, match=r"not written by this user on this machine, or the key .* was removed"):
        injector(folder, world)
    assert (world.differences(), len(world.said)) == (before, sent)


def test_unsealed_lines_after_a_sealed_one_are_not_obeyed_in_a_journal_of_both_versions(
    tmp_path: Path, world: Connections
) -> None:
    folder = broken(tmp_path / "run", world)
    as_of_an_earlier_version(folder)
    with contextlib.closing(injector(folder, world)) as resumed:
        resumed.acquire()
    MADE.pop()
    undone = "".join(json.dumps({"t": 1.0, "event": "undone", "id": str(id)}) + "\n" for id in (1, 2))
    with open(folder / FILE, "a") as file:
        file.write(undone)
    assert main(["undo", str(folder)]) == 0
    assert world.differences() == set()


def test_an_archive_of_another_machine_is_shown_and_then_trusted(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = broken(tmp_path / "run", world)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert main(["undo", str(folder), "--dry-run"]) == 1
    said = capsys.readouterr().out
    assert f"{folder / cluster_access.FILE} was not written by this user on this machine" in said
    assert f"cbt-tools undo --trust {folder}" in said and '"cluster": {' in said
    assert main(["undo", str(folder)]) == 1 and world.differences()
    assert main(["undo", str(folder), "--trust"]) == 0 and not world.differences()


def test_a_dry_run_shows_all_that_trust_would_run(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without an open change: how the cluster is asked, and the folders of monitors that are ended."""
    folder = broken(tmp_path / "run", world)
    lines = journal_lines(folder / FILE)
    for line in lines:
        if line["event"] == "open" and line["kind"] == "settings":
            line["step"]["took"] = [{**line["step"]["checks"][0], "node": "", "text": "touch /asked", "root": True}]
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert main(["undo", str(folder), "--dry-run"]) == 1
    assert "asks    here: sudo touch /asked" in capsys.readouterr().out
    (folder / FILE).write_text("")
    line = {"t": 1, "event": "invocation", "run_dir": "/tmp/$(id)\x1b"}
    (folder / "journal.jsonl").write_text(json.dumps(line) + "\n")
    altered(folder / cluster_access.FILE, **{'"common": {}': '"common": {"pdsh_cmd": "reboot"}'})
    assert main(["undo", str(folder), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "no change is open" in said and '"pdsh_cmd": "reboot"' in said
    assert "undo --trust ends the monitors in /tmp/$(id)" in said and "\x1b" not in said


def test_names_from_an_archive_reach_no_shell(tmp_path: Path, world: Connections) -> None:
    folder = broken(tmp_path / "run", world)
    assert main(["undo", str(folder)]) == 0
    with open(folder / FILE, "a") as file:
        file.write('{"t": 1, "event": "lock", "name": "x\\"; reboot; \\""}\n')
    sent = len(world.said)
    assert main(["undo", str(folder)]) == 0  # nobody has sealed it
    assert main(["undo", str(folder), "--trust"]) == 1
    assert not [text for text in world.said[sent:] if "reboot" in str(text)]


def test_the_key_is_made_once_and_is_for_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def no_links(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)  # some file systems have none
    first = undo_seal.of({"a": (1, 2)})
    assert (
        undo_seal.of({"a": [1, 2]}) == first
        and undo_seal.holds(first, {"a": [1, 2]})
        and not undo_seal.holds(first, {"a": []})
    )
    folder = tmp_path / "cbt-plugins" / "seal"
    assert [path.name for path in folder.iterdir()] == ["key"]
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "key")] == [0o700, 0o600]
    folder.chmod(0o777)
    with pytest.raises(FaultError, match=r"seal can be written by everybody.*chmod go-w"):
        undo_seal.of({})
    folder.chmod(0o700)
    (folder / "key").write_bytes(b"short")
    with pytest.raises(FaultError, match="damaged: remove the file"):
        undo_seal.of({})


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def folder_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


@pytest.mark.parametrize("make", [pipe, device, endless, folder_instead])
@pytest.mark.parametrize("file", [FILE, cluster_access.FILE, "manifest.json", "journal.jsonl"])
@pytest.mark.parametrize("option", [[], ["--dry-run"], ["--trust"], ["--give-up", "one node"]])
def test_no_file_of_an_archive_holds_an_undo(
    option: List[str], file: str, make: Callable[[Path], None], tmp_path: Path, world: Connections
) -> None:
    """A test that hangs is ended by its timeout."""
    folder = broken(tmp_path / "id-1a2b3c4d", world)
    make(folder / file)
    status = main(["undo", str(tmp_path), *option])
    assert status in ((1, 2) if file in (FILE, cluster_access.FILE) or option == ["--dry-run"] else (0,))


@pytest.mark.parametrize("option", [[], ["--trust"]])
@pytest.mark.parametrize("way", ["hard link", "soft link", "linked folder"])
def test_an_undo_changes_no_file_outside_the_archive(
    way: str, option: List[str], tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its torn last line was cut off."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / FILE).write_text('{"t": 1.0, "event": "lock"}\na file of the user of undo')
    (mine / cluster_access.FILE).write_text("{")
    folder = tmp_path / "archive" / "id-1a2b3c4d"
    if way == "linked folder":
        (folder.parent / "id-5e6f7a8b").mkdir(parents=True)
        folder.symlink_to(mine)
    else:
        broken(folder, world)
        (folder / FILE).unlink()
        (os.link if way == "hard link" else os.symlink)(mine / FILE, folder / FILE)
    before = {path: path.read_bytes() for path in mine.iterdir()}
    assert main(["undo", str(tmp_path / "archive"), *option]) == (1 if way == "soft link" else 0)  # nothing is open
    assert {path: path.read_bytes() for path in mine.iterdir()} == before
    assert ("2 hard links" in capsys.readouterr().err) == (way == "hard link")


def test_nothing_is_written_before_the_seal_is_verified(tmp_path: Path, world: Connections) -> None:
    folder = broken(tmp_path / "run", world)
    altered(folder / FILE, systemctl="touch")
    with open(folder / FILE, "a") as file:
        file.write("torn")
    before = {path: (path.read_bytes(), path.stat().st_mode) for path in folder.iterdir()}
    assert main(["undo", str(folder)]) == 1
    assert {path: (path.read_bytes(), path.stat().st_mode) for path in folder.iterdir()} == before


def test_a_file_of_another_user_is_not_obeyed(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    sent = len(world.said)
    assert main(["undo", str(folder)]) == 1
    assert f"belongs to another user (uid {os.getuid()})" in capsys.readouterr().err and len(world.said) == sent


@pytest.mark.parametrize("line", ["undone", "limits", "lock"])
def test_lines_that_nobody_sealed_are_not_obeyed(line: str, tmp_path: Path, world: Connections) -> None:
    folder = broken(tmp_path / "run", world)
    facts = {"id": "1", "seconds": {"command": 1e9}, "name": "x"}
    with open(folder / FILE, "a") as file:
        file.write(json.dumps({"t": 1.0, "event": line, **facts}) + "\n")
    assert main(["undo", str(folder)]) == 0
    assert world.differences() == set() and world.state["keys"] == {}


def test_only_the_monitors_of_the_run_are_ended(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a live run that somebody has written into the journal is left alone."""
    folder = broken(tmp_path / "run", world)
    ended: List[str] = []
    monkeypatch.setattr(undo_tool, "stop_left", lambda remote, nodes, run_dir: ended.append(run_dir))
    run_id = json.loads((folder / cluster_access.FILE).read_text())["run_id"]
    own = {"t": 1.0, "event": "invocation", "run_dir": "/tmp/cbt/own"}
    of_live = {"t": 2.0, "event": "invocation", "run_dir": "/tmp/cbt/live"}
    lines = [{**own, **undo_seal.mark(own, run_id)}, of_live, {**of_live, **undo_seal.mark(of_live, "another")}]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["undo", str(folder)]) == 0 and ended == ["/tmp/cbt/own"]
    assert main(["undo", str(folder), "--trust"]) == 0 and ended[1:] == ["/tmp/cbt/own", "/tmp/cbt/live"]


def test_no_umask_opens_a_journal_to_others(tmp_path: Path, world: Connections) -> None:
    before = os.umask(0)
    try:
        folder = broken(tmp_path / "run", world)
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        FILE: 0o600,
        cluster_access.FILE: 0o644,
    }
    (folder / FILE).chmod(0o666)  # of an earlier version
    assert main(["undo", str(folder)]) == 0
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
