"""Journals that cannot be opened: each command names the file, why, and what to do."""

from __future__ import annotations

import errno
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any, List

import pytest
from config_files import CLUSTER
from faults_world import Connections, injector

from cbt_plugins import journal as journal_module
from cbt_plugins.archive_files import open_to_append
from cbt_plugins.campaigns.loop import CampaignRun
from cbt_plugins.campaigns.schedule import CampaignError, Schedule
from cbt_plugins.journal import Journal, JournalError, JournalInUse, journal_lines, sync_files
from cbt_plugins.tools.__main__ import main


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> str:
    """The error that follows the path of a journal, as a pattern: all new files belong to another user."""
    user = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    return rf": belongs to another user \(uid {user}\): run this as that user, or use another archive folder"


def test_a_journal_of_another_user_is_named(tmp_path: Path, foreign: str) -> None:
    with pytest.raises(JournalError, match=f"^{tmp_path}/journal.jsonl{foreign}"):
        Journal(tmp_path / "journal.jsonl")


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link.jsonl").symlink_to("journal.jsonl")
    (tmp_path / "long.jsonl").write_bytes(bytes(2))
    monkeypatch.setattr(journal_module, "LONGEST_LINE", 2)
    reasons = {"link.jsonl": "is a link or is reached through a link", "long.jsonl": "has a line of more than 2 bytes"}
    for name, why in reasons.items():
        with pytest.raises(JournalError, match=f"^{tmp_path}/{name}: {why}"):
            Journal(tmp_path / name)


@pytest.mark.parametrize("at", ["write", "fsync", "append"])
def test_an_interrupt_leaves_a_record_in_file_and_memory_or_in_neither(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    class Interrupted(list):  # type: ignore[type-arg]
        def append(self, record: Any) -> None:
            super().append(record)
            raise KeyboardInterrupt

    opened: List[HalfWritten] = []
    monkeypatch.setattr(
        journal_module, "open_to_append", lambda *args, **own: opened.append(HalfWritten(*args, **own)) or opened[0]
    )
    with closing(Journal(tmp_path / "journal.jsonl")) as journal:
        monkeypatch.undo()
        journal.write("first")
        former = journal.records
        if at == "append":
            journal.records = Interrupted(former)
        else:
            monkeypatch.setattr(os, "fsync", interrupt)
        opened[0].half = at == "write"
        with pytest.raises(KeyboardInterrupt):
            journal.write("open", id="1")
        monkeypatch.undo()
        opened[0].half = False
        kept = [record["event"] for record in journal.records]
        assert kept == (["first", "open"] if at == "append" else ["first"])
        journal.records = list(journal.records)
        journal.write("last")
    assert [line["event"] for line in journal_lines(tmp_path / "journal.jsonl")] == [*kept, "last"]


class HalfWritten:
    """A file in which an interrupt comes after a part of a line, while it is `half`."""

    def __init__(self, *args: Any, **own: bool) -> None:
        self.file, self.half = open_to_append(*args, **own), False
        self.fileno, self.close = self.file.fileno, self.file.close

    def write(self, data: Any) -> int:
        count = self.file.write(data[:5] if self.half else data)
        if self.half:
            raise KeyboardInterrupt
        return count


def test_a_file_system_without_locks_is_not_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(journal_module.fcntl, "flock", refused)
    with pytest.raises(JournalError, match="cannot be locked: No locks available: its file system needs flock") as told:
        Journal(tmp_path / "journal.jsonl")
    assert not isinstance(told.value, JournalInUse)


def test_files_and_their_names_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("x")
    synced: List[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    sync_files(tmp_path)
    assert sorted(synced) == sorted(map(str, (tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "file")))


def test_a_full_disk_under_a_new_journal_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device", str(tmp_path / "journal.jsonl"))

    monkeypatch.setattr(journal_module, "open_to_append", full)
    with pytest.raises(JournalError, match=r"no space is left on the disk at .*: free some, then run the same command"):
        Journal(tmp_path / "journal.jsonl")


def test_a_campaign_names_a_journal_of_another_user(
    tmp_path: Path, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = object.__new__(Schedule)
    object.__setattr__(schedule, "folder", tmp_path)
    monkeypatch.setattr(Schedule, "begin", lambda self: None)
    with pytest.raises(CampaignError, match=f"campaign.jsonl{foreign}"):
        CampaignRun(schedule, print).run()


def test_an_injector_names_a_journal_of_another_user(tmp_path: Path, foreign: str) -> None:
    with pytest.raises(JournalError, match=f"undo.jsonl{foreign}"):
        injector(tmp_path, Connections())


def test_the_verb_inject_names_a_journal_of_another_user(
    tmp_path: Path, foreign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faults.yaml").write_text("events: [{at: 0s, mark: begin}]\n")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    paths = [str(tmp_path / "faults.yaml"), "--cluster", str(tmp_path / "cluster.yaml")]
    assert main(["inject", *paths, "--archive", str(tmp_path / "new")]) == 1
    assert re.search(f"^Error: {tmp_path}/new/events.jsonl{foreign}", capsys.readouterr().err)
