"""An archive of another format is refused with one sentence, by everything that reads one."""

import errno
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import archive_builder as made
import pytest
from run_context import runner_of

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.journal import archive_refusal
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.result_file import NOT_ALLOWED, Unreadable
from cbt_plugins.tools.__main__ import main

SAID = "was written by cbt-plugins 0.1.0 (format 1), this is "


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run as cbt-plugins 0.1.0 left it: with a summary, and rows that could be imported."""
    run = made.small(tmp_path / "old")
    for path in (run / "manifest.json", *run.glob("phases/*/phase.json")):
        path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1, "cbt_plugins": "0.1.0"}))
    (run / "summary.json").write_text('{"version": 1, "run": {}, "phases": [], "usable": true}')
    return run


@pytest.mark.parametrize("verb", ["report", "compare", "export", "sql"])
def test_what_answers_refuses_it(old: Path, verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    more = {"compare": [str(old)], "export": ["-o", str(tmp_path / "x.csv")], "sql": ["SELECT * FROM ops"]}
    assert main([verb, str(old), *more.get(verb, [])]) != 0
    said = capsys.readouterr()
    assert said.err.count(SAID) == 1 and said.err.startswith("Error: "), said
    assert not (old / "report.html").exists()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_undo_refuses_it(old: Path, dry: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from cbt_plugins.faults import undo_journal

    (old / undo_journal.FILE).write_text('{"t": 1.0, "event": "open"}\n')
    assert main(["undo", str(old), *dry]) == 1
    assert SAID in capsys.readouterr().err


def test_it_is_not_resumed(old: Path) -> None:
    with pytest.raises(RunFailed, match=r"format 1.* read it with that version"):
        runner_of(old).execute()


def test_a_newer_one_is_refused_and_a_damaged_one_left_to_its_readers(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"version": 3, "cbt_plugins": "0.9"}')
    assert "cbt-plugins 0.9 (format 3)" in (archive_refusal(tmp_path) or "")
    (tmp_path / "manifest.json").write_text("{")
    assert archive_refusal(tmp_path) is None


@pytest.mark.parametrize("linked", ["results", "results/00000000", "results/00000000/id-1"])
def test_a_run_is_not_found_through_a_link(linked: str, tmp_path: Path) -> None:
    """A link could lead anywhere; that the archive itself is reached through a link is its user's affair."""
    run = tmp_path / "elsewhere" / "results" / "00000000" / "id-1"
    run.mkdir(parents=True)
    assert find_runs(tmp_path / "elsewhere") == [run]
    (tmp_path / "by-link").symlink_to(tmp_path / "elsewhere")
    assert find_runs(tmp_path / "by-link") == [tmp_path / "by-link" / run.relative_to(tmp_path / "elsewhere")]
    link = tmp_path / "archive" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere" / linked)
    with pytest.raises(Unreadable, match="no run in it"):
        find_runs(tmp_path / "archive")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("unread", ["results", "results/00000001"])
def test_a_folder_that_cannot_be_read_is_no_run_less(
    unread: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in ("00000000", "00000001"):
        (tmp_path / "results" / iteration / "id-1").mkdir(parents=True)
    listing = os.scandir

    def scandir(folder: str) -> Any:
        if folder == str(tmp_path / unread):
            raise OSError(error, os.strerror(error), folder)
        return listing(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    text = NOT_ALLOWED if error == errno.EACCES else os.strerror(error)
    with pytest.raises(Unreadable, match=re.escape(f"{tmp_path / unread}: {text}")):
        find_runs(tmp_path)


@pytest.mark.parametrize("verb", ["report", "compare", "gate", "history", "sql"])
def test_rows_are_not_imported_where_a_folder_of_an_archive_cannot_be_read(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unread = made.small(tmp_path).parent.with_name("00000001")
    unread.mkdir()
    monkeypatch.setattr(os, "scandir", partial(_forbid, os.scandir, str(unread)))
    more = {"sql": ["SELECT * FROM ops"], "compare": [str(tmp_path)], "gate": [str(tmp_path), "--limit", "p99_ms=5%"]}
    assert main([verb, str(tmp_path), *more.get(verb, [])]) == 4
    assert f"Error: {unread}: {NOT_ALLOWED}" in capsys.readouterr().err


def test_a_folder_of_others_beside_iterations_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "00000000" / "id-1"
    for folder in (run, tmp_path / "lost+found"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda folder, _: "lost" not in str(folder))
    monkeypatch.setattr(os, "scandir", partial(_forbid, os.scandir, str(tmp_path / "lost+found")))
    assert find_runs(tmp_path) == [run]


def _forbid(listing: Any, forbidden: str, folder: str) -> Any:
    if folder == forbidden:
        raise PermissionError(errno.EACCES, "no", folder)
    return listing(folder)
