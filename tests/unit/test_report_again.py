"""A report takes the summary that a finished run has, unless a file or the program has changed since."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Callable

import archive_builder
import pytest

from cbt_plugins import evidence
from cbt_plugins.results import summary_file
from cbt_plugins.results.summary_file import FILE, made_already, summarize, write_summary
from cbt_plugins.tools.__main__ import main


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with sums, whose summary is marked."""
    run = archive_builder.run(tmp_path_factory.mktemp("finished"), phases=["new"])
    archive_builder.Load(seconds=10).write(run, 1, "new", 0, as_aggregates=True)
    return mark(seal(run))


def seal(run: Path) -> Path:
    for name in (evidence.END, evidence.FILE):
        (run / name).unlink(missing_ok=True)
    evidence.end_run(run, {})
    return run


def mark(run: Path) -> Path:
    summary = summarize(run)
    summary["run"]["benchmark"] = "marked"
    write_summary(summary, run / FILE)
    return run


def benchmark_after(change: Callable[[Path], Any], finished: Path, folder: Path) -> str:
    """Change a copy of the run and report it; return the benchmark that the summary names then."""
    run = folder / "results" / "00000000" / finished.name
    shutil.copytree(finished, run)
    change(run)
    assert main(["report", str(run)]) in (0, 4)
    return str(json.loads((run / FILE).read_text())["run"]["benchmark"])


def test_the_summary_that_is_there_is_taken(finished: Path, tmp_path: Path) -> None:
    assert benchmark_after(lambda run: None, finished, tmp_path) == "marked"


def change_a_file(run: Path) -> None:
    (run / "events.jsonl").write_text("{}\n")


def change_the_summary(run: Path) -> None:
    (run / FILE).write_text((run / FILE).read_text().replace('"index": 1', '"index": 3', 1))


def remove_the_sums(run: Path) -> None:
    (run / evidence.FILE).unlink()


@pytest.mark.parametrize("change", [change_a_file, change_the_summary, remove_the_sums])
def test_a_summary_is_made_where_a_file_has_changed(
    change: Callable[[Path], None], finished: Path, tmp_path: Path
) -> None:
    assert benchmark_after(change, finished, tmp_path) != "marked"


def test_a_summary_is_made_where_the_program_has_changed(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = partial(monkeypatch.setattr, summary_file, "_own_sum", lambda: "of another version")
    assert benchmark_after(lambda run: change(), finished, tmp_path) != "marked"


def test_a_summary_is_made_of_rows(finished: Path, tmp_path: Path) -> None:
    """Rows are judged while they are read."""
    run = tmp_path / "results" / "00000000" / finished.name
    shutil.copytree(finished, run)
    assert made_already(run) is not None
    shutil.rmtree(run / "phases")
    archive_builder.Load(seconds=10).write(run, 1, "new", 0)
    mark(seal(run))
    assert made_already(run) is None
