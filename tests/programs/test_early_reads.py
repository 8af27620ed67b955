"""What a process has read of phases while their run went on: taken only for the same files, by the same program."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, List

import pytest
from archive_builder import job, phase, run, steady

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
    early_reads.read_early(folder, 0)
    assert read_now() == 4
    assert [path.stat().st_mode & 0o777 for path in (early_reads.folder(), *kept())] == [0o700, 0o600, 0o600]
    assert dumps(summarize(folder)) == expected
    early_reads.read_early(folder, 0)
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
    early_reads.read_early(folder, 0)
    before, path = dumps(summarize(folder)), change(folder)
    os.utime(path, (time.time() + 5, time.time() + 5))  # sums that this process has seen are those of this time
    after = dumps(summarize(folder))
    assert after != before
    assert read_now() == 3


def test_another_program_reads_again(
    folder: Path, read_now: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    early_reads.read_early(folder, 0)
    monkeypatch.setattr(early_reads, "program_sum", lambda: "another program")
    summarize(folder)
    assert read_now() == 4


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def other_content(path: Path) -> None:
    path.write_bytes(b"\x80\x05N.")  # None


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("damage", [damaged, other_content, linked])
def test_a_damaged_file_is_not_taken(
    folder: Path, read_now: Callable[[], int], damage: Callable[[Path], None]
) -> None:
    expected = dumps(summarize(folder))
    early_reads.read_early(folder, 0)
    for path in kept():
        damage(path)
    assert dumps(summarize(folder)) == expected
    assert read_now() == 6


def test_nothing_is_taken_from_a_folder_that_others_can_write(folder: Path, read_now: Callable[[], int]) -> None:
    early_reads.read_early(folder, 0)
    early_reads.folder().chmod(0o770)
    summarize(folder)
    assert read_now() == 4


def test_the_oldest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early_reads.read_early(folder, 0)
    both = kept()
    monkeypatch.setattr(early_reads, "MOST", max(path.stat().st_size for path in both))
    for path in both:
        path.unlink()
    early_reads.read_early(folder, 0)
    (newest,) = kept()
    assert newest in both


def test_a_phase_of_which_a_job_has_no_aggregates_is_not_kept(folder: Path) -> None:
    rows = steady("GET", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)
    phase(folder, 3, "rows", [job("d1-get", "GET", rows)], window=(0, 10))
    (folder / "phases" / "01-new" / "aggregates" / "d1-get.aggregates").write_bytes(b"no aggregates")
    early_reads.read_early(folder, 0)
    assert len(kept()) == 1


# --- during a run


def test_phases_are_read_while_the_run_goes_on(
    folder: Path, read_now: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    expected, read = dumps(summarize(folder)), read_now()
    reader = EarlyReader(folder)
    reader.phase_ended(folder / "phases" / "02-aged")
    reader.wait()
    reader.close()
    assert len(kept()) == 2
    assert dumps(summarize(folder)) == expected
    assert read_now() == read


def test_short_phases_start_no_process(folder: Path) -> None:
    reader = EarlyReader(folder)
    reader.phase_ended(folder / "phases" / "02-aged")
    reader.phase_ended(folder / "phases" / "03-wait")
    assert reader.process is None
    reader.wait()
    reader.close()


def test_one_process_at_a_time_which_ends_with_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    monkeypatch.setattr(reporting, "own_module", lambda *_: ["sleep", "1000"])
    reader = EarlyReader(folder)
    reader.phase_ended(folder / "phases" / "01-new")
    first = reader.process
    reader.phase_ended(folder / "phases" / "02-aged")
    assert first is not None and reader.process is first
    monkeypatch.setattr(reporting, "EARLY_LIMIT", 0.1)
    reader.wait()  # not longer than the report itself would take
    reader.close()
    assert first.returncode


def test_a_run_goes_on_without_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "LONG", 0)
    monkeypatch.setattr(reporting, "own_module", lambda *_: ["/is/not/there"])
    reader = EarlyReader(folder)
    reader.phase_ended(folder / "phases" / "02-aged")
    reader.wait()
    reader.close()


def test_without_a_home_nothing_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early_reads.read_early(folder, 0)

    def homeless() -> Path:
        raise early_reads.NoHome("no home folder")

    monkeypatch.setattr(early_reads, "cache_dir", homeless)
    assert [aggregates.jobs for aggregates in phase_reading.read_phases([])] == []
    summarize(folder)
