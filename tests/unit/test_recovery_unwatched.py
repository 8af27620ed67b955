"""Milestones, states, warnings and rates of failures that were watched in part, or had hardly any time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from recovery_times import reasons, seconds
from watched_failures import BACK, CLEAN, DEGRADED, DOWN, FAULT, RECOVERING, SETTLED, only, watched

from cbt_plugins.results.recovery.episodes import stretches
from cbt_plugins.results.recovery.milestones import milestones
from cbt_plugins.results.recovery.rates import series

DEGRADED_AT_13 = {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}
UP = {"t": 65.0, "down": [], "settled": False, "pgs": RECOVERING, "map": [{"epoch": 3, "t": 64.5, "up": [6, 7]}]}
ENDS = [{"t": 100.0, "event": "phase-end", "phase": "hybrid"}, {"t": 130.0, "event": "run-done"}]


def gaps(made: Dict[str, Any]) -> List[str]:
    return [warning["text"] for warning in made["warnings"] if warning["code"] == "recovery-gap"]


def states(made: Dict[str, Any], begin: float) -> List[Tuple[str, float]]:
    return [(stretch.state, stretch.start) for stretch in stretches(made, begin, 100.0)]


def test_a_sampler_that_dies_during_a_failure_leaves_gaps_in_all_that_follow(tmp_path: Path) -> None:
    """It dies at 20, and no sample comes later."""
    made = milestones(watched(tmp_path, DOWN, DEGRADED_AT_13, SETTLED, end=20.0), [*FAULT, *BACK, *ENDS])
    assert [episode["outcome"] for episode in made["episodes"]] == ["unknown", "unknown"]
    assert gaps(made) == [
        "failure a: 1 gap in the samples, the longest 40.0 s: no monitor ran",
        "return a: 1 gap in the samples, the longest 60.0 s: no monitor ran",
    ]
    assert "not-recovered" not in [warning["code"] for warning in made["warnings"]]


def test_a_sampler_that_dies_during_the_last_return_does_not_say_that_nothing_recovered(tmp_path: Path) -> None:
    lines = [DOWN, DEGRADED_AT_13, SETTLED, UP]
    back = milestones(watched(tmp_path, *lines, end=70.0), [*FAULT, *BACK, *ENDS])["episodes"][1]
    assert (back["outcome"], back["end"], back["end_why"]) == ("unknown", 120.0, "the run ends")
    assert reasons(back)["clean"] == "unknown, between 10.0 s and 60.0 s: no samples"
    # the run went on to sample, and ended: nothing is missing
    made = milestones(watched(tmp_path, *lines, end=129.0), [*FAULT, *BACK, *ENDS])
    assert (made["episodes"][1]["outcome"], gaps(made)) == ("not recovered", [])


def test_what_a_gap_may_have_hidden_is_not_said_to_be_none(tmp_path: Path) -> None:
    """Nobody watches from 12 to 40; then all is clean on the other OSDs."""
    hidden = [{"t": float(t), "missing": True} for t in range(12, 40)]
    lines = [{**DOWN, "health": "HEALTH_OK"}, *hidden, {"t": 40.0, "settled": True, "pgs": CLEAN}]
    failure = milestones(watched(tmp_path, *lines), [*FAULT, *BACK, *ENDS])["episodes"][0]
    told = reasons(failure)
    for name in ("no-object-degraded", "health-ok"):
        assert told[name] == "unknown, between 1.0 s and 30.0 s: no samples", told
    seen = milestones(watched(tmp_path, lines[0], lines[-1]), [*FAULT, *BACK, *ENDS])["episodes"][0]
    assert "no object was degraded" in reasons(seen).values()


def test_a_sampler_that_dies_before_the_osds_are_up_does_not_say_that_nothing_changed(tmp_path: Path) -> None:
    """All PGs are active+clean on the other OSDs when the undo begins; the last sample comes 2 s after it has ended."""
    made = milestones(watched(tmp_path, DOWN, SETTLED, end=65.0), [*FAULT, *BACK, *ENDS])
    back = made["episodes"][1]
    assert (back["effect"], back["outcome"]) == (None, "unknown")
    assert states(made, 61.0) == [("returning", 61.0), ("returned", 63.0)]
    # where samples go on, nothing has changed
    made = milestones(watched(tmp_path, DOWN, SETTLED), [*FAULT, *BACK, ENDS[0]])
    assert (made["episodes"][1]["effect"], made["episodes"][1]["outcome"]) == (False, "unchanged")
    assert states(made, 61.0) == [("returning", 61.0), ("clean again", 63.0)]


def test_osds_that_were_down_before_the_first_sample_went_down_at_an_unknown_time(tmp_path: Path) -> None:
    """The sampler begins at 70, 60 s after the fault."""
    lines = [DOWN, DEGRADED_AT_13, SETTLED, {"t": 80.0, "pgs": CLEAN, "degraded": [0, 0]}]
    made = milestones(watched(tmp_path, *lines, begin=70.0), FAULT)
    (failure,) = made["episodes"]
    unknown = "unknown, between 0.0 s and 60.0 s: no samples"
    told = reasons(failure)
    assert told["first-down"] == told["all-down"] == told["degraded-peak"] == unknown
    assert failure["effect"] is True and seconds(failure)["clean"] == 70.0
    assert gaps(made) == ["failure a: 1 gap in the samples, the longest 60.0 s: no monitor ran"]
    # they are out too, and recovery has begun
    late = [{**DOWN, "out": [6, 7], "pgs": RECOVERING}, SETTLED]
    told = reasons(only(watched(tmp_path, *late, begin=70.0), FAULT))
    assert told["out"] == told["recovery-starts"] == unknown


@pytest.mark.parametrize("osds", [(6, 7), ()])
def test_a_return_that_is_over_at_the_first_sample_is_unknown(tmp_path: Path, osds: Tuple[int, ...]) -> None:
    events = [{**line, "osds": list(osds)} for line in (*FAULT, *BACK)]
    made = milestones(watched(tmp_path, begin=90.0), events)
    back = made["episodes"][1]
    assert (back["effect"], back["outcome"]) == (None, "unknown")
    assert reasons(back)["clean"] == reasons(back)["health-ok"] == "unknown, between 0.0 s and 30.0 s: no samples"
    if osds:
        assert reasons(back)["all-up"] == "unknown, between 0.0 s and 30.0 s: no samples"


def test_an_agent_that_does_not_know_the_osds_before_the_undo_takes_times_from_the_maps(tmp_path: Path) -> None:
    """A new agent runs from 58 on, and has read no map before 62."""
    again = [{"t": 58.0, "version": 1}, {"t": 62.0, "down": [6, 7], "out": []}]
    first = {**UP, "down": [7], "map": [{"epoch": 3, "t": 64.5, "up": [6]}]}
    last = {"t": 67.0, "down": [], "map": [{"epoch": 4, "t": 66.5, "up": [7]}]}
    back = milestones(watched(tmp_path, DOWN, SETTLED, *again, first, last), [*FAULT, *BACK])["episodes"][1]
    assert (seconds(back)["first-up"], seconds(back)["all-up"]) == (4.5, 6.5)


def test_what_recovers_behind_the_undo_of_osds_that_were_back_before_it_is_counted(tmp_path: Path) -> None:
    """As after a reboot: the maps of the failure have the OSDs down and up, and its recovery outlasts the undo."""
    up = {"t": 40.0, "down": [], "pgs": RECOVERING, "map": [{"epoch": 3, "t": 39.5, "up": [6, 7]}]}
    counted = {"t": 70.0, "recovered": [50, 50 << 20, 0]}
    samples = watched(tmp_path, DOWN, DEGRADED_AT_13, up, counted, {"t": 80.0, "pgs": CLEAN, "degraded": [0, 0]})
    failure, back = milestones(samples, [*FAULT, *BACK, *ENDS])["episodes"]
    assert failure["recovery"]["objects"] == 0
    assert (back["effect"], back["recovery"]["objects"], back["recovery"]["bytes"]) == (True, 50, 50 << 20)


def test_an_osd_that_goes_down_right_before_the_undo_has_no_rate_of_recovery(tmp_path: Path) -> None:
    """0.2 ms before it: a time of 0 in the numbers."""
    late = {**DOWN, "t": 60.0, "map": [{"epoch": 2, "t": 59.9998, "down": [6, 7]}]}
    recovery = milestones(watched(tmp_path, late), [*FAULT, *BACK])["episodes"][0]["recovery"]
    rates = (recovery["objects_per_s"], recovery["mib_per_s"], recovery["copies_per_s"])
    assert recovery["seconds"] == 0.0 and rates == (None, None, None)


def test_what_recovered_in_a_gap_is_spread_over_it_and_is_no_peak_behind_it(tmp_path: Path) -> None:
    """400 objects between 20 and 40; of the rate in between nothing is known, and before 10 neither."""
    lines = [DOWN, DEGRADED_AT_13, {"t": 16.0, "pgs": RECOVERING}]
    lines += [{"t": float(t), "missing": True} for t in range(21, 40)]
    lines += [{"t": 40.0, "recovered": [400, 400 << 20, 0]}]
    made = series(watched(tmp_path, *lines, begin=10.0), 0, 1, 60)
    for name in ("objects_per_s", "mib_per_s"):
        rates = made[name]
        assert rates[5] is None and rates[30] is None and rates[50] == 0.0
        assert [rate is None for rate in rates] == [state is None for state in made["degraded"]]
        assert max(rate for rate in rates if rate is not None) == pytest.approx(20.0)
