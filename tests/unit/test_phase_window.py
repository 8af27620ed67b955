"""The window of a phase, and the blocks of its aggregates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import pytest

from cbt_plugins.plan import Goal, Phase
from cbt_plugins.run.load_phase import lasting
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_window import block_seconds, late_go, window_of


def record(first: float, last: float, role: str = "read") -> Dict[str, Any]:
    return {"first_row": first, "last_row": last, "role": role}


def test_the_window_is_where_all_jobs_were_at_work() -> None:
    jobs = [record(10, 80), record(12, 75), record(11, 40, "delete")]
    # a DELETE that ran dry does not end it
    assert window_of(Phase("m", "hybrid", duration=60.0), jobs, None) == (12, 72)
    assert window_of(Phase("m", "hybrid", duration=100.0), jobs, None) == (12, 75)
    assert window_of(Phase("m", "hybrid", duration=60.0), [record(10, 20), record(30, 40)], None) is None


def test_a_fill_by_objects_lasts_to_its_last_put() -> None:
    assert window_of(Phase("f", "fill", goal=Goal(objects=9)), [record(10, 50), record(12, 70)], None) == (10, 70)


def hybrid(**keys: Any) -> Phase:
    return Phase("m", "hybrid", duration=60.0, engine="cbt-load", **keys)


def test_cbt_loads_window_is_what_was_asked_for() -> None:
    jobs = [{**record(100.4, 175.0), "cut": False, "ended": 175.5}]
    assert window_of(hybrid(), jobs, 100.0) == (100, 160)
    assert window_of(hybrid(ramp=5.0, warmup=10.0), jobs, 100.0) == (115, 175)
    assert window_of(hybrid(), [*jobs, {**record(100, 130), "cut": True, "ended": 130.7}], 100.0) == (100, 130)


def test_a_client_that_got_the_go_late_begins_the_window() -> None:
    """Before that the load was not what the file says."""
    about: Dict[str, Any] = {"cut": False, "ended": 181.0}
    jobs = [
        {**record(100.4, 175.0), **about, "driver_end": {"began": began + 7.0}, "clock_offset": 7.0}
        for began in (100.004, 120.3)
    ]
    assert window_of(hybrid(warmup=5.0), jobs, 100.0) == (126, 165)
    assert late_go(hybrid(), jobs, 100.0) == pytest.approx(20.3) and late_go(hybrid(), jobs[:1], 100.0) == 0.0
    assert window_of(hybrid(), jobs[:1], 100.0) == (100, 160)


def test_a_phase_that_takes_each_object_once_ends_with_the_last_one() -> None:
    about: Dict[str, Any] = {"cut": False, "ended": 120.5}
    ended = [{**record(100.5, 120.25), **about, "driver_end": {"reason": "exhausted"}} for _ in range(2)]
    assert window_of(hybrid(), ended, 100.0) == (100.5, 120.25)
    outcome = PhaseOutcome(1, hybrid(), jobs=ended)
    assert outcome.record()["asked"]["duration"] is None
    ended[1]["driver_end"] = {"reason": "duration"}
    assert window_of(hybrid(), ended, 100.0) == (100, 160)
    assert outcome.record()["asked"]["duration"] == 60.0


def test_a_window_is_whole_blocks() -> None:
    assert window_of(Phase("m", "hybrid", duration=60.0), [record(10.2, 90)], None) == (11, 71)
    day = Phase("m", "hybrid", duration=86400.0)
    assert block_seconds(day) == 60
    assert window_of(day, [record(130.0, 86530.0)], None) == (180, 86520)
    assert block_seconds(Phase("f", "fill", goal=Goal(objects=9))) == 10


def test_jobs_that_begin_one_after_the_other_last_for_a_whole_window() -> None:
    """A phase of 20 s by warp had a window of 18 s."""
    phase = Phase("m", "hybrid", duration=20.0)
    lasts = lasting(phase)
    begins = (103.4, 104.9)  # within two seconds
    assert window_of(phase, [record(begin, begin + lasts) for begin in begins], 100.0) == (105, 125)
    day = replace(phase, duration=86400.0)
    start, end = window_of(day, [record(begin, begin + lasting(day)) for begin in begins], 100.0) or (0, 0)
    assert end - start == 86400
    assert lasting(replace(phase, engine="cbt-load")) == 20.0
    assert lasting(Phase("f", "fill", goal=Goal(duration=15.0))) == 15.0
