"""What a phase begins from: the objects that are there, and the rate that an earlier phase made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
from run_context import context

from cbt_plugins.host import RunFailed
from cbt_plugins.journal import Journal
from cbt_plugins.plan import S3, Driver, Goal, Phase, Plan
from cbt_plugins.run.context import RunArchive
from cbt_plugins.run.phases import start_of

MIX = {"GET": 50.0, "PUT": 50.0}
FILL = Phase("fill", "fill", goal=Goal(objects=9), engine="cbt-load")
CLOSED = Phase("closed", "hybrid", duration=10.0, mix=MIX, engine="cbt-load")
OPEN = Phase("open", "hybrid", duration=10.0, mix=MIX, engine="cbt-load", rate_share=0.5)
PLAN = Plan("warp", S3(urls=("http://a",)), (), (Driver("01", "c1", ("b",), 8),), (FILL, CLOSED, OPEN))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.jsonl")
    yield journal
    journal.close()


def finish(archive: RunArchive, index: int, name: str, **record: Any) -> None:
    (archive.running(index, name) / "state").mkdir(parents=True)
    (archive.running(index, name) / "state" / "01.state").write_text(name)
    archive.finish(index, name, record)


def test_the_newest_state_counts(tmp_path: Path, journal: Journal) -> None:
    archive = RunArchive(tmp_path)
    run = context(plan=PLAN, archive=archive, journal=journal)
    assert start_of(run, 1, FILL).memory.states == {}
    finish(archive, 1, "fill")
    finish(archive, 2, "closed", window={"start": 10, "end": 20}, jobs=[{"first_row": 10.0, "rows_total": 1000}])
    journal.write("phase-done", phase="closed")
    memory = start_of(run, 3, OPEN).memory
    assert memory.states["01"].read_text() == "closed" and not memory.stale


def test_after_a_broken_attempt_the_objects_are_listed_again(tmp_path: Path, journal: Journal) -> None:
    archive = RunArchive(tmp_path)
    finish(archive, 1, "fill")
    journal.write("phase-done", phase="fill")
    journal.write("phase-begun", phase="closed")
    assert start_of(context(plan=PLAN, archive=archive, journal=journal), 2, CLOSED).memory.stale


def test_a_share_is_of_the_last_closed_loop(tmp_path: Path, journal: Journal) -> None:
    archive = RunArchive(tmp_path)
    run = context(plan=PLAN, archive=archive, journal=journal)
    with pytest.raises(RunFailed, match="no closed loop"):
        start_of(run, 3, OPEN)
    jobs = [{"ended": 24.0, "first_row": 10.0 + n / 1000, "rows_total": n} for n in (600, 400)]
    finish(archive, 2, "closed", window={"start": 12.0, "end": 20.4}, jobs=jobs)
    assert start_of(run, 3, OPEN).rate == 50.0
    assert start_of(run, 2, CLOSED).rate is None
