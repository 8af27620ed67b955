"""Folders that `cbt-tools undo` takes, and what it says of those without an undo journal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from undone_runs import broken, reached

from cbt_plugins.tools.__main__ import main

DATA = Path(__file__).parents[1] / "data"
NOTHING = "no run of this archive has changed a cluster"


def write_events(folder: Path, *events: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"t": 1.0 + number, **event} for number, event in enumerate(events)]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def fault(name: str, label: str) -> Any:
    return {"event": f"fault-{name}", "label": label}


def test_a_folder_without_a_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", str(tmp_path / "none")]) == 2
    (tmp_path / "notes").mkdir()
    for dry in ([], ["--dry-run"]):
        assert main(["undo", str(tmp_path), *dry]) == 2
        said = capsys.readouterr()
        assert f"Error: {tmp_path}: no run in it (looked for " in said.err and said.out == ""


def test_an_archive_whose_runs_changed_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DATA / "imported" / "cbt", tmp_path / "of CBT")
    run = tmp_path / "begun" / "results" / "00000000" / "id-1a2b3c4d"
    write_events(run, {"event": "run-failed"})
    ended = (fault("inject-begin", "a"), fault("injected", "a"), fault("undone", "a"), {"event": "run-done"})
    write_events(tmp_path / "complete" / "results" / "00000000" / "id-1a2b3c4d", {"event": "run-begun"}, *ended)
    for name in ("of CBT", "begun", "complete"):
        assert main(["undo", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == f"{tmp_path / name}: {NOTHING}\n"


def test_a_missing_journal_of_a_run_with_changes_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy by another user has no undo.jsonl: its mode is 0600."""
    copy = tmp_path / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(DATA / "live" / "half", copy)
    for folder in (tmp_path, copy):
        for dry in ([], ["--dry-run"]):
            assert main(["undo", str(folder), *dry]) == 1
            said = capsys.readouterr()
            shown = "settings, pools and users of the run, recovery, node-a: its open changes are unknown"
            missing = f"Error: {copy}/undo.jsonl is missing, but events.jsonl shows changes without an undo: {shown}"
            assert missing in said.err and NOTHING not in said.out
    assert not (copy / "undo.jsonl").exists()


def test_a_folder_of_archives_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An undo removes the pools of a run: that of a parent would end each run that could be resumed."""
    world = reached(monkeypatch)
    up = tmp_path / "up"
    run = broken(up / "x" / "y" / "a" / "results" / "00000000" / "id-1a2b3c4d", world)
    shutil.copytree(run, up / "b")
    shutil.copytree(run, up / "c" / "faults" / "20260101T000000")
    monkeypatch.chdir(up)
    for folder, shown in ((up, f"{up}/"), (Path("."), "")):
        for dry in ([], ["--dry-run"]):
            assert main(["undo", str(folder), *dry]) == 2
            below = f"; give one of the archives below it: {shown}b, {shown}c, {shown}x/y/a\n"
            assert capsys.readouterr().err.endswith(below)
    monkeypatch.setattr("cbt_plugins.tools.runs_to_undo.SHOWN", 2)
    assert main(["undo", "."]) == 2 and capsys.readouterr().err.endswith(" below it: b, c and 1 more\n")
    assert world.differences() == {"osd.0", "flag noout"}
    (up / "c" / "faults" / "20260101T000000" / "undo.jsonl").unlink()
    shutil.move(str(up / "b"), str(up / "x" / "y" / "a" / "b"))
    assert main(["undo", "x/y/a"]) == 1
    said = capsys.readouterr()
    assert "x/y/a/results/00000000/id-1a2b3c4d: 2 undone" in said.out
    other = "x/y/a/b is a run of another archive: its open changes are unknown: give x/y/a/b"
    assert said.err.strip() == f"Error: {other}"


@pytest.mark.parametrize("place", ["", "results", "results/00000000", "results/00000000/id-1a2b3c4d"])
def test_the_parts_of_an_archive_are_no_other_archives(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = reached(monkeypatch)
    broken(tmp_path / "results" / "00000000" / "id-1a2b3c4d", world)
    assert main(["undo", str(tmp_path / place)]) == 0
    assert world.differences() == set()


@pytest.mark.parametrize("journal", ["campaign.jsonl", "bisect.jsonl", "pr.jsonl"])
def test_the_folder_of_a_campaign_has_its_trials(
    tmp_path: Path, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = reached(monkeypatch)
    broken(tmp_path / "trials" / "01-1-a" / "archive" / "results" / "00000000" / "id-1a2b3c4d", world)
    assert main(["undo", str(tmp_path)]) == 2
    (tmp_path / journal).touch()
    assert main(["undo", str(tmp_path)]) == 0
    assert world.differences() == set()
