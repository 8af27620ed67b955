"""What a process has read of phases while their run went on: taken only for the same files, by the same program."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import time
from pathlib import Path
from typing import Any, Callable, List

import pytest
from archive_builder import job, phase, run, steady

from cbt_plugins import checksums, programs
from cbt_plugins.results.requests import early_reads, job_files, phase_reading
from cbt_plugins.results.summary_file import dumps, summarize
from cbt_plugins.run import reporting
from cbt_plugins.run.reporting import EarlyReader

NAMES = ("new", "aged")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run with two phases that have aggregates, and heartbeats; each phase counts as a long one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(early_reads, "MANY", 0)
    made = run(tmp_path / "archive", phases=NAMES)
    for index, name in enumerate(NAMES, 1):
        rows = steady("GET", workers=2, seconds=14, latency=0.02 * index, begin=-2, size=4096)
        made_phase = phase(made, index, name, [job("d1-get", "GET", rows)], window=(0, 10), as_aggregates=True)
        beat = '{"t": 1700000001.0, "node": "client1", "jobs": {"d1-get": {"in_flight": 2, "oldest": 0.5}}}\n'
        (made_phase / "heartbeat.jsonl").write_text(beat)
    return made


@pytest.fixture
def read_now(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many jobs were read from their files until now, in this process."""
    number = 0
    lot = job_files.read_lot

    def counted(work: Any) -> Any:
        nonlocal number
        number += len({task.job for task in work[0]})
        return lot(work)

    monkeypatch.setattr(job_files, "read_lot", counted)
    return lambda: number


def kept() -> List[Path]:
    return sorted(early_reads.folder().iterdir())


def test_the_summary_is_the_same(folder: Path, read_now: Callable[[], int]) -> None:
    expected = dumps(summarize(folder))
    assert read_now() == 2
    early_reads.read_early(folder, NAMES)
    assert read_now() == 4
    assert [path.stat().st_mode & 0o777 for path in (early_reads.folder(), *kept())] == [0o700, 0o600, 0o600]
    assert dumps(summarize(folder)) == expected
    early_reads.read_early(folder, NAMES)
    assert read_now() == 4, "nothing was read again"


def aggregates(folder: Path) -> Path:
    path = folder / "phases" / "02-aged" / "aggregates" / "d1-get.aggregates"
    path.write_bytes(path.read_bytes()[:-1])
    return path


def heartbeats(folder: Path) -> Path:
    path = folder / "phases" / "02-aged" / "heartbeat.jsonl"
    path.write_text(path.read_text().replace('"in_flight": 2', '"in_flight": 1'))
    return path


@pytest.mark.parametrize("change", [aggregates, heartbeats])
def test_a_changed_file_is_read_again(
    folder: Path, read_now: Callable[[], int], change: Callable[[Path], Path]
) -> None:
    early_reads.read_early(folder, NAMES)
    before, path = dumps(summarize(folder)), change(folder)
    os.utime(path, (time.time() + 5, time.time() + 5))  # sums that this process has seen are those of this time
    after = dumps(summarize(folder))
    assert after != before
    assert read_now() == 3


def test_another_program_reads_again(
    folder: Path, read_now: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    early_reads.read_early(folder, NAMES)
    monkeypatch.setattr(early_reads, "program_sum", lambda: "another program")
    summarize(folder)
    assert read_now() == 4


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def a_flipped_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_content(path: Path) -> None:
    content = pickle.dumps(["no phase"])
    path.write_bytes(hashlib.sha256(content).digest() + content)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("damage", [cut, a_flipped_bit, other_content, linked])
def test_a_damaged_file_is_not_taken(
    folder: Path, read_now: Callable[[], int], damage: Callable[[Path], None]
) -> None:
    expected = dumps(summarize(folder))
    early_reads.read_early(folder, NAMES)
    for path in kept():
        damage(path)
    assert dumps(summarize(folder)) == expected
    assert read_now() == 6
    early_reads.read_early(folder, NAMES)
    assert dumps(summarize(folder)) == expected
    assert read_now() == 8, "the damaged files were replaced"


def test_nothing_is_taken_from_a_folder_that_others_can_write(folder: Path, read_now: Callable[[], int]) -> None:
    early_reads.read_early(folder, NAMES)
    early_reads.folder().chmod(0o770)
    summarize(folder)
    assert read_now() == 4
    with pytest.raises(PermissionError, match="another user can write in it"):
        early_reads.read_early(folder, NAMES)
    assert read_now() == 4, "nor is anything read for it"


def test_a_file_that_changed_since_the_end_is_not_taken(folder: Path, read_now: Callable[[], int]) -> None:
    early_reads.read_early(folder, NAMES)
    (folder / "complete").unlink(missing_ok=True)
    checksums.end_run(folder, {})
    sums = folder / checksums.FILE
    lines = [f"{'0' * 64}{line[64:]}" if "02-aged/agg" in line else line for line in sums.read_text().splitlines(True)]
    sums.write_text("".join(lines))
    assert [bool(line["ops"]) for line in summarize(folder)["phases"]] == [True, False]


def test_files_that_cannot_be_named_are_not_kept(folder: Path) -> None:
    """One with large holes has no checksum: two of them would have one name."""
    os.truncate(folder / "phases" / "02-aged" / "aggregates" / "d1-get.aggregates", 1 << 28)
    early_reads.read_early(folder, NAMES)
    assert len(kept()) == 1


def test_an_error_of_the_cache_is_none_of_the_report(
    folder: Path, read_now: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    early_reads.read_early(folder, NAMES)

    def stale() -> str:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(early_reads, "program_sum", stale)
    summarize(folder)
    assert read_now() == 4


def test_a_file_under_edit_is_no_part_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.py").write_text("")
    (tmp_path / ".#plan.py").symlink_to("user@host.123")  # the lock of an editor
    monkeypatch.setattr(programs, "__file__", str(tmp_path / "programs.py"))
    programs.program_sum.cache_clear()
    assert len(programs.program_sum()) == 64
    programs.program_sum.cache_clear()


def test_drafts_and_folders_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early_reads.folder().mkdir(parents=True, mode=0o700)
    (early_reads.folder() / ".draft.1").write_text("another process writes")
    old = early_reads.folder() / ".draft.2"
    old.write_text("a process that was killed")
    os.utime(old, (1, 1))
    monkeypatch.setattr(early_reads, "MOST", 10)
    early_reads.read_early(folder, NAMES[:1])
    assert [path.name for path in kept()] == [".draft.1"]
    (early_reads.folder() / "folder").mkdir()
    early_reads.read_early(folder, NAMES)
    assert (early_reads.folder() / "folder").is_dir()


def test_the_oldest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early_reads.read_early(folder, NAMES)
    both = kept()
    monkeypatch.setattr(early_reads, "MOST", max(path.stat().st_size for path in both))
    for path in both:
        path.unlink()
    early_reads.read_early(folder, NAMES)
    (newest,) = kept()
    assert newest in both


def test_a_phase_of_which_a_job_has_no_aggregates_is_not_kept(folder: Path) -> None:
    rows = steady("GET", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)
    phase(folder, 3, "rows", [job("d1-get", "GET", rows)], window=(0, 10))
    (folder / "phases" / "01-new" / "aggregates" / "d1-get.aggregates").write_bytes(b"no aggregates")
    early_reads.read_early(folder, NAMES)
    assert len(kept()) == 1


# --- during a run


def test_phases_are_read_while_the_run_goes_on(
    folder: Path, read_now: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    expected, read = dumps(summarize(folder)), read_now()
    reader = EarlyReader(folder)
    for index, name in enumerate(NAMES, 1):
        reader.phase_ended(name, folder / "phases" / f"{index:02d}-{name}")
        reader.wait()
        assert len(kept()) == index
    reader.close()
    assert dumps(summarize(folder)) == expected
    assert read_now() == read


def test_short_phases_start_no_process(folder: Path) -> None:
    reader = EarlyReader(folder)
    reader.phase_ended("aged", folder / "phases" / "02-aged")
    reader.phase_ended("wait", folder / "phases" / "03-wait")
    assert reader.process is None
    reader.wait()
    reader.close()


def test_one_process_at_a_time_which_ends_with_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    given: List[List[str]] = []
    monkeypatch.setattr(reporting, "own_module", lambda *words: given.append(list(words)) or ["sleep", "1000"])
    reader = EarlyReader(folder)
    reader.phase_ended("new", folder / "phases" / "01-new")
    first = reader.process
    reader.phase_ended("aged", folder / "phases" / "02-aged")
    assert first is not None and reader.process is first
    monkeypatch.setattr(reporting, "EARLY_LIMIT", 0.1)
    reader.wait()  # not longer than the report itself would take
    assert first.poll() is None
    first.kill()
    first.wait()
    reader.phase_ended("wait", folder / "phases" / "03-wait")
    second = reader.process
    reader.close()
    assert second is not None and second.returncode
    assert given == [[reporting.EARLY_READS, str(folder), name] for name in NAMES], "the second has waited"


def test_why_it_does_not_read_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    early_reads.folder().mkdir(parents=True)
    early_reads.folder().chmod(0o777)
    reader = EarlyReader(folder)
    reader.phase_ended("new", folder / "phases" / "01-new")
    reader.wait()
    reader.close()
    (text,) = caplog.messages
    assert text == (
        f"long phases are not read while the run goes on ({early_reads.folder()}: is a link, or another user can write "
        "in it): its report takes longer"
    )


def test_a_run_goes_on_without_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    monkeypatch.setattr(reporting, "own_module", lambda *_: ["/is/not/there"])
    (folder / "phases" / "01-new" / "aggregates" / "x.aggregates").symlink_to("nowhere")
    reader = EarlyReader(folder)
    for index, name in enumerate(NAMES, 1):
        reader.phase_ended(name, folder / "phases" / f"{index:02d}-{name}")
    reader.wait()
    reader.close()
    assert [text for text in caplog.messages if "No such file or directory" in text] == caplog.messages != []


def test_without_a_home_nothing_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early_reads.read_early(folder, NAMES)

    def homeless() -> Path:
        raise early_reads.NoHome("no home folder")

    monkeypatch.setattr(early_reads, "cache_dir", homeless)
    assert [aggregates.jobs for aggregates in phase_reading.read_phases([])] == []
    summarize(folder)
