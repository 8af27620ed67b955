"""What a phase begins from: the objects that are there, and the rate that an earlier phase made."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable, Iterator, Optional, Tuple, cast

import pytest
from run_context import context

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.journal import HEARTBEATS, Journal
from cbt_plugins.plan import S3, Driver, Goal, Phase, Plan
from cbt_plugins.run import preflight
from cbt_plugins.run.fill_goal import reached_before
from cbt_plugins.run.load_start import start_of
from cbt_plugins.run.run_archive import RunArchive

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


def job(listed: bool = False) -> Dict[str, Any]:
    spaces = [{"numbered": True, "rebuild": listed}, {"numbered": False}]
    return {"driver": "01", "spec": {"spaces": spaces}}


def finish(archive: RunArchive, index: int, name: str, jobs: Iterable[Any] = (), **record: Any) -> None:
    (archive.running(index, name) / "state").mkdir(parents=True)
    (archive.running(index, name) / "state" / "01.state").write_text(name)
    archive.finish(index, name, {**record, "jobs": [{**job(), **own} for own in jobs]})


def test_the_newest_state_counts(tmp_path: Path, journal: Journal) -> None:
    archive = RunArchive(tmp_path)
    run = context(plan=PLAN, archive=archive, journal=journal)
    assert start_of(run, 1, FILL).memory.states == {}
    finish(archive, 1, "fill")
    finish(archive, 2, "closed", window={"start": 10, "end": 20}, jobs=[{"first_row": 10.0, "rows_total": 1000}])
    journal.write("phase-done", phase="closed")
    memory = start_of(run, 3, replace(OPEN, rate_share=None)).memory
    assert memory.states["01"].read_text() == "closed" and not memory.stale


def test_after_a_broken_attempt_the_objects_are_listed_again(tmp_path: Path, journal: Journal) -> None:
    archive = RunArchive(tmp_path)
    finish(archive, 1, "fill")
    journal.write("phase-done", phase="fill")
    journal.write("phase-begun", phase="closed")
    run = context(plan=PLAN, archive=archive, journal=journal)
    memory = start_of(run, 2, CLOSED).memory
    assert memory.stale and not memory.outdated


def test_the_objects_of_a_lost_job_are_listed_before_a_state_counts_again(tmp_path: Path, journal: Journal) -> None:
    """A mix that deleted objects left no state: a phase that began from the state of the fill does not mend this."""
    archive = RunArchive(tmp_path)
    phases = (FILL, CLOSED, replace(CLOSED, name="read"), replace(CLOSED, name="read-2"), replace(CLOSED, name="last"))
    run = context(plan=replace(PLAN, phases=phases), archive=archive, journal=journal)
    finish(archive, 1, "fill", jobs=[job()])
    archive.running(2, "closed").mkdir(parents=True)
    archive.finish(2, "closed", {"jobs": [job()]})
    memory = start_of(run, 3, phases[2]).memory
    assert not memory.stale and memory.outdated == {"01"}
    finish(archive, 3, "read", jobs=[job(listed=False)])  # by a version that did not list here
    assert start_of(run, 4, phases[3]).memory.outdated == {"01"}
    finish(archive, 4, "read-2", jobs=[job(listed=True)])
    assert not start_of(run, 5, phases[4]).memory.outdated


def test_a_failure_that_was_skipped_outdates_no_state(tmp_path: Path, journal: Journal) -> None:
    """Its phase has a folder, but had no job."""
    archive = RunArchive(tmp_path)
    run = context(plan=PLAN, archive=archive, journal=journal)
    finish(archive, 1, "fill", jobs=[job()])
    archive.running(2, "closed").mkdir(parents=True)
    archive.finish(2, "closed", {"jobs": []})
    assert not start_of(run, 3, replace(OPEN, rate_share=None)).memory.outdated


def beat(folder: Path, counts: Iterable[Tuple[float, float]]) -> Path:
    """Write a heartbeat of a job for each time and count of its requests, of which a part has failed."""
    file = folder / HEARTBEATS
    with file.open("w") as out:
        for t, n in counts:
            out.write(json.dumps({"t": t, "node": "c1", "jobs": {"a": {"ops": n - n / 5, "errors": n / 5}}}) + "\n")
    return file


def test_a_share_is_of_the_window_of_the_last_closed_loop(tmp_path: Path, journal: Journal) -> None:
    """Before the window, from 10 to 20, and after it, where warp still makes rows, there is half of the load."""
    archive = RunArchive(tmp_path)
    run = context(plan=PLAN, archive=archive, journal=journal)
    with pytest.raises(RunFailed, match="no closed loop"):
        start_of(run, 3, OPEN)
    jobs = [{"ended": 40.0, "first_row": 10.0, "rows_total": 1500}]
    finish(archive, 2, "closed", window={"start": 20.0, "end": 30.0}, jobs=jobs)
    counts = ((t, 50 * (t - 10) + 50 * min(10, max(0, t - 20))) for t in range(10, 41))
    heartbeats = beat(archive.phase(2, "closed"), counts)
    assert start_of(run, 3, OPEN).rate == 50.0
    assert start_of(run, 2, CLOSED).rate is None
    heartbeats.unlink()
    assert start_of(run, 3, OPEN).rate == 37.5, "as well as it is known"


def test_a_rate_is_computed_without_all_heartbeats_in_memory(tmp_path: Path, journal: Journal) -> None:
    """A hundred drivers write a million counts in three hours."""
    archive = RunArchive(tmp_path)
    jobs = [{"ended": 1e4, "first_row": 0.0, "rows_total": 500_000}]
    finish(archive, 2, "closed", window={"start": 0.0, "end": 1e4}, jobs=jobs)
    beat(archive.phase(2, "closed"), ((t, 50 * t) for t in range(10_000)))
    run = context(plan=PLAN, archive=archive, journal=journal)
    tracemalloc.start()
    try:
        assert start_of(run, 3, OPEN).rate == 25.0
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_closed_loop_that_was_limited_is_taken_only_without_another_one(
    tmp_path: Path, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    archive = RunArchive(tmp_path)
    phases = (CLOSED, replace(CLOSED, name="limited"), OPEN)
    run = context(plan=replace(PLAN, phases=phases), archive=archive, journal=journal)
    job = {"first_row": 30.0, "rows_total": 500, "rate_limit": 60.0}
    finish(archive, 2, "limited", window={"start": 30.0, "end": 40.0}, jobs=[job])
    assert start_of(run, 3, OPEN).rate == 25.0
    assert "of limited, whose own rate was limited: no other closed loop ran before it" in caplog.text
    job = {"first_row": 10.0, "rows_total": 1000, "rate_limit": 0.0}
    finish(archive, 1, "closed", window={"start": 10.0, "end": 20.0}, jobs=[job])
    assert start_of(run, 3, OPEN).rate == 50.0


def used(share: Optional[float]) -> Any:
    return SimpleNamespace(status=lambda: SimpleNamespace(raw_used=share))


def test_a_fill_by_raw_that_has_nothing_to_fill_is_refused_before_it_begins(tmp_path: Path, journal: Journal) -> None:
    fill = replace(FILL, goal=Goal(raw=0.02))
    text = "fill: raw: 2% is already reached: 2.9 % of the raw capacity is used: set a higher share, or fill by"
    run = context(plan=PLAN, archive=RunArchive(tmp_path), journal=journal, ceph=used(0.029))
    with pytest.raises(RunFailed, match=text):
        start_of(run, 1, fill)
    assert reached_before(run.ceph, [fill, CLOSED])[0].startswith(text)
    with pytest.raises(RunFailed, match=text):
        start_of(run, 1, replace(fill, engine="warp"))
    for share in (0.019, None):
        start_of(replace(run, ceph=used(share)), 1, fill)
    journal.write("phase-begun", phase="fill")  # the first attempt may have filled all
    start_of(run, 1, fill)


def test_an_unanswered_question_keeps_no_fill_from_its_begin(tmp_path: Path, journal: Journal) -> None:
    def fail() -> None:
        raise CephError("no answer")

    ceph = SimpleNamespace(status=fail)
    run = context(plan=PLAN, archive=RunArchive(tmp_path), journal=journal, ceph=ceph)
    assert start_of(run, 1, replace(FILL, goal=Goal(raw=0.02))).rate is None


def test_the_preflight_refuses_it_with_all_its_errors(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = ("_facts", "offsets", "authority_of", "s3_keys", "owners_of")
    for name in nothing:
        monkeypatch.setattr(preflight, name, lambda *_: {})
    for name in ("python_errors", "_scratch_errors", "keys_of_users", "token_errors", "errors_of_endpoints"):
        monkeypatch.setattr(preflight, name, lambda *_: [])
    monkeypatch.setattr(preflight, "await_conditions", lambda _: ["not clean"])
    monkeypatch.setattr(preflight, "room_warnings", lambda *_: ["fill: no room"])
    ceph = SimpleNamespace(**vars(used(0.029)), json=lambda _: {}, bucket=lambda _: None)
    plan = replace(PLAN, phases=(CLOSED, replace(FILL, goal=Goal(raw=0.02))))
    host = cast(Any, SimpleNamespace(cluster={"head": "node0"}, run_dir="/nowhere"))
    run = context(plan=plan, cbt_run=host, archive=RunArchive(tmp_path), journal=journal, ceph=ceph)
    with pytest.raises(preflight.PreflightError, match=r"not clean(.|\n)*fill: raw: 2% is already reached"):
        preflight.check(run)
    assert caplog.messages.count("fill: no room") == 1
    journal.write("phase-begun", phase="closed")  # what is used may be the run's own
    with pytest.raises(preflight.PreflightError) as refused:
        preflight.check(run)
    assert "reached" not in str(refused.value) and caplog.messages.count("fill: no room") == 1
