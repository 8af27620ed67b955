"""`cbt-tools undo` and the scratch folders that a killed run has left on its nodes; this machine is the node."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from cbt_plugins import checksums
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote, Result
from cbt_plugins.faults import ClusterAccess, cluster_access, undo_seal
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.run import scratch
from cbt_plugins.run.scratch import abandoned_folders
from cbt_plugins.tools.__main__ import main

HERE = socket.gethostname()
CLUSTER = {"head": HERE}
REMOTE = Remote.of_cluster({}, {})
#: a run without Ceph's commands
ACCESS = ClusterAccess(REMOTE, Ceph(REMOTE, CLUSTER), CLUSTER, {}, "r1", admin=False)


class KilledRun:
    """The archive of a run that was killed, and its scratch folder with programs, rows and a monitor's file."""

    def __init__(self, folder: Path) -> None:
        self.archive, self.scratch = folder / "archive", folder / "cbt" / "00000000" / "warp-r1"
        self.archive.mkdir()
        cluster_access.write(self.archive, ACCESS)
        UndoJournal(self.archive).close()
        (self.archive / "journal.jsonl").write_text("")
        self.add_invocation(str(self.scratch))
        for name in ("bin/warp", "load/r1-fill/rows/part", "monitors-1-1/resources.jsonl"):
            file = self.scratch / name
            file.parent.mkdir(parents=True)
            file.write_text("content")

    def add_invocation(self, run_dir: str, run_id: str = "r1") -> None:
        line = {"t": 1.0, "event": "invocation", "run_dir": run_dir, "pid": 1, "clients": [HERE]}
        with open(self.archive / "journal.jsonl", "a") as journal:
            journal.write(json.dumps({**line, **(undo_seal.mark(line, run_id) if run_id else {})}) + "\n")

    def folders(self, data: bool = False) -> Any:
        return [folder.path for folder in abandoned_folders(self.archive, ACCESS, data)]

    @property
    def files(self) -> Any:
        return sorted(file.name for file in self.scratch.rglob("*") if file.is_file())


@pytest.fixture
def killed(tmp_path: Path) -> KilledRun:
    return KilledRun(tmp_path)


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that is still at work in a session's folder, and ends when it is asked to."""
    line = "while [ ! -e stop ]; do sleep 0.05; done"
    process = subprocess.Popen(["sh", "-c", line], cwd=folder)
    try:
        born = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (folder / "pids").write_text(f"{process.pid} {born}\n")
        yield process
    finally:
        process.kill()
        process.wait()


def test_without_data_they_stay_and_undo_says_why(killed: KilledRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", str(killed.archive)]) == 0
    printed = capsys.readouterr().out
    assert f"scratch folder {killed.scratch} stays on {HERE}: a resumed run fetches rows" in printed
    assert killed.files == ["part", "resources.jsonl", "warp"]


def test_a_dry_run_names_them_and_changes_nothing(killed: KilledRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", str(killed.archive), "--dry-run", "--data"]) == 1
    assert f"undo --data removes scratch folder {killed.scratch} on {HERE}\n" in capsys.readouterr().out
    assert killed.files == ["part", "resources.jsonl", "warp"]


def test_with_data_they_go_after_their_monitors_files_came_home(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    another = killed.scratch.parent / "warp-r2"
    another.mkdir()
    with agent(killed.scratch / "load" / "r1-fill") as process:
        assert main(["undo", str(killed.archive), "--data"]) == 0
        assert process.wait(10) == 0, "it has ended before its folder went"
    assert os.listdir(killed.scratch.parent) == ["warp-r2"]
    assert (killed.archive / "monitors" / "01" / f"resources.jsonl.{HERE}").read_text() == "content"
    capsys.readouterr()
    assert main(["undo", str(killed.archive), "--data"]) == 0
    assert main(["undo", str(killed.archive), "--data", "--dry-run"]) == 0
    assert "scratch" not in capsys.readouterr().out


def test_monitor_files_that_could_not_be_fetched_stay(
    killed: KilledRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scratch, "bring_left", lambda *_: None)
    assert main(["undo", str(killed.archive), "--data"]) == 0
    assert killed.files == ["resources.jsonl"]
    assert f"scratch folder {killed.scratch} stays on {HERE}" in caplog.text


def test_a_node_that_does_not_answer_is_named(killed: KilledRun) -> None:
    answers = {"n1": Result("present\n", "", 0), "n2": Result("", "Connection refused", 255), "n3": Result("", "", 0)}
    remote: Any = SimpleNamespace(run=lambda *_, **__: answers)
    (folder,) = abandoned_folders(killed.archive, ACCESS, data=False)
    assert folder.nodes_with(remote, ["n1", "n2", "n3", "n4"]) == ["n1", "n2 (no answer)", "n4 (no answer)"]


def test_only_folders_of_the_run_that_this_user_has_sealed_are_touched(killed: KilledRun) -> None:
    root = killed.scratch.parents[1]
    for name in ("00000000/warp-r2", "00000000/warp-r11", "home/warp-r1", "../00000000/warp-r1"):
        killed.add_invocation(f"{root}/{name}")
    killed.add_invocation("00000000/warp-r1")
    killed.add_invocation(f"{root}/00000001/warp-r1", run_id="")
    killed.add_invocation(f"{root}/00000001/warp-r1", run_id="another")
    assert killed.folders() == killed.folders(data=True) == [str(killed.scratch)]


def test_what_a_complete_run_could_not_clean_goes_with_data(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that was unreachable at the end of an attempt and at each resume; no command continues the run."""
    facts = {"t": 1.0, "run_id": "r1", "degraded": []}
    checksums.end_run(killed.archive, facts)
    assert main(["undo", str(killed.archive)]) == 0
    assert "scratch folder" not in capsys.readouterr().out and killed.files
    assert main(["undo", str(killed.archive), "--dry-run", "--data"]) == 1
    assert f"undo --data removes scratch folder {killed.scratch} on {HERE}\n" in capsys.readouterr().out
    assert main(["undo", str(killed.archive), "--data"]) == 0
    assert not killed.scratch.exists()
    assert (killed.archive / "monitors" / "01" / f"resources.jsonl.{HERE}").exists()
    assert not checksums.check_sums(killed.archive).changed
