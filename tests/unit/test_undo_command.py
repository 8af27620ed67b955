"""`cbt-tools undo`: statuses and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faults_world import ANYTHING, MADE, Connections, injector

import cbt_plugins.tools.undo as undo_tool
from cbt_plugins.config.plan import Fault, Settings
from cbt_plugins.faults import access, record
from cbt_plugins.tools.__main__ import main


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """`undo` meets the stand-in instead of real nodes."""
    made = Connections()
    real = access.read

    def reach(folder: Path) -> Any:
        cluster, _, ceph, run_id = real(folder)
        ceph.remote = made  # type: ignore[assignment]
        return cluster, made, ceph, run_id

    monkeypatch.setattr(undo_tool.access, "read", reach)
    monkeypatch.setattr("cbt_plugins.faults.injector.Clock", lambda: _clock())
    return made


def _clock() -> Any:
    from faults_world import Time

    return Time().clock()


def broken(folder: Path, world: Connections) -> Path:
    """A run that died with a node stopped and a flag set."""
    folder.mkdir(parents=True)
    made = injector(folder, world, Settings(flags=("noout",)))
    made.acquire()
    made.apply()
    made.inject(Fault("one node", "stop", ("node1",), accept=ANYTHING))
    MADE.pop().close()
    return folder


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


def test_what_stays_open_comes_with_its_commands(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    world.fail = ["systemctl start"]
    assert main(["undo", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "still open: one node: stop osd.0 on node1:" in said
    assert "    node1: sudo systemctl reset-failed ceph-osd@0.service" in said
    assert "osds.osd=0.up = 1" in said
    assert world.differences() == {"osd.0"}  # the flag is back all the same
    assert "cbt-plugins/run" in world.state["keys"]  # and the cluster not free


def test_a_run_that_is_at_work_is_left_alone(
    tmp_path: Path, world: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = broken(tmp_path / "run", world)
    working = record.UndoJournal(folder)
    assert main(["undo", str(folder)]) == 1
    assert "another process is at work" in capsys.readouterr().err
    working.close()
    assert world.differences() == {"osd.0", "flag noout"}


def test_no_archive_and_nothing_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", str(tmp_path / "none")]) == 2
    assert main(["undo", str(tmp_path)]) == 0
    assert "no run has changed anything" in capsys.readouterr().out
