"""What a run leaves of the phase that runs, for those who watch it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.load.generator import LoadJob
from cbt_plugins.plan import Phase
from cbt_plugins.results.archive import read_run, read_running
from cbt_plugins.run.live_files import WatchedPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome


def test_a_client_writes_the_files_of_its_jobs_and_no_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = WatchedPhase(tmp_path)
    with closing(watched):
        watched.add({"a"}, {"a": b"one", "../../etc": b"two", "b": b"three"})
        watched.add({"a"}, {"a": b" more"})
        assert [path.name for path in (tmp_path / "aggregates").iterdir()] == ["a.aggregates"]
        assert (tmp_path / "aggregates" / "a.aggregates").read_bytes() == b"one more"
        (tmp_path / "aggregates" / "b.aggregates").symlink_to(tmp_path / "other")
        watched.add({"b"}, {"b": b"x"})  # and no load ends for it
        assert "cannot be watched any more" in caplog.text and not (tmp_path / "other").exists()


def test_the_description_of_a_running_phase_is_read_as_that_of_a_finished_one(tmp_path: Path) -> None:
    folder = tmp_path / "phases" / "02-new.running"
    folder.mkdir(parents=True)
    phase = Phase("new", "hybrid", role="measure", engine="cbt-load", duration=30.0, ramp=2.0)
    job = LoadJob("j", "01", "c1", "MIXED", "cbt-load", "b", "", ((1, 1, 1.0),), 4, ("http://rgw1",), ("cbt-load",))
    record = PhaseOutcome(2, phase).running_record([job], {"c1": Offset(0.5, 0.0)}, 1000.0)
    WatchedPhase(folder).begin(record)
    running = read_running(tmp_path)
    assert running is not None
    archived, start = running
    assert (archived.name, archived.index, archived.status, archived.duration) == ("new", 2, "running", 30.0)
    assert start == 1002.0 and archived.jobs[0].clock_offset == 0.5
    assert read_run(tmp_path).phases == []  # it has no result yet
