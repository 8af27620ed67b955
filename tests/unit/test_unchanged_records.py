"""Records that a process reads once, as long as the files that they are from stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import List

import archive_builder
import pytest

from cbt_plugins.checksums import END, end_run
from cbt_plugins.report import comparison
from cbt_plugins.results import record_index
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.run_record import ResultWarning, RunRecord
from cbt_plugins.results.summary_file import FILE, summarize, summary_of, write_summary


def sealed(folder: Path) -> Path:
    """Return an archive whose run has ended, with the sums of its files."""
    archive = archive_builder.archive(folder, archive_builder.Load(seconds=12))
    run = find_runs(archive)[0]
    facts = json.loads((run / END).read_text())
    (run / END).unlink()
    end_run(run, facts)
    write_summary(summarize(run), run / FILE)
    return archive


@pytest.fixture
def read_archives(monkeypatch: pytest.MonkeyPatch) -> List[Path]:
    """Return the list of the archives that are read, which grows."""
    archives: List[Path] = []
    original = record_index.records_of

    def read(archive: Path) -> List[RunRecord]:
        archives.append(archive)
        return original(archive)

    monkeypatch.setattr(record_index, "records_of", read)
    return archives


def test_a_sealed_archive_is_read_again_only_after_a_change(tmp_path: Path, read_archives: List[Path]) -> None:
    archive = sealed(tmp_path / "archive")
    before = record_index.unchanged_records(archive)
    assert before[0].usable
    assert record_index.unchanged_records(archive) == before and read_archives == [archive]
    (find_runs(archive)[0] / "plan.json").write_text("{}")
    assert not record_index.unchanged_records(archive)[0].usable and len(read_archives) == 2


def test_an_index_keeps_the_limits_of_bad_seconds_and_the_warnings_that_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, original = sealed(tmp_path / "archive"), record_index.readable_records
    unfinished = ResultWarning("unfinished-request", "3 requests", "measure-new", "GET", ("a",), ("b",), ("p99_ms",))

    def limited(runs: List[Path]) -> List[RunRecord]:
        (record,) = original(runs)
        first, *others = record.measurements
        measurements = (replace(first, limit_ms=9.0), *others)
        return [replace(record, measurements=measurements, warnings=(ResultWarning("drift", ""), unfinished))]

    monkeypatch.setattr(record_index, "readable_records", limited)
    for read in (1, 0):
        index = record_index.RecordIndex(tmp_path / "index")
        (record,) = index.records([archive], lambda key: True)
        assert [m.limit_ms for m in record.measurements[:2]] == [9.0, None] and index.read == read
        assert record.warnings == (unfinished,)
        index.write()


def test_an_archive_that_is_not_sealed_is_read_each_time(tmp_path: Path, read_archives: List[Path]) -> None:
    archive = archive_builder.archive(tmp_path / "archive", archive_builder.Load(seconds=12))
    record_index.unchanged_records(archive)
    record_index.unchanged_records(archive)
    assert len(read_archives) == 2


def test_the_page_of_a_campaign_reads_a_sealed_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = sealed(tmp_path / "archive")
    records = record_index.unchanged_records(archive)
    read: List[Path] = []
    monkeypatch.setattr(comparison, "summary_of", lambda run: read.append(run) or summary_of(run))
    pages = [list(comparison.percentiles("", [("a", records), ("b", records)])) for _ in range(2)]
    assert pages[0] and pages[0] == pages[1] and len(read) == 1
