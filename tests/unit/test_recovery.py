"""Milestones of made-up failures that would mislead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from recovery_times import reasons, seconds
from watched_failures import (
    BACK,
    BACK_TIMES,
    CLEAN,
    DEGRADED,
    DOWN,
    FAULT,
    RECOVERING,
    SETTLED,
    event,
    only,
    watched,
)

from cbt_plugins.results.recovery.cluster_samples import Samples, read_samples
from cbt_plugins.results.recovery.episodes import STATES, stretches
from cbt_plugins.results.recovery.milestones import blocks, milestones
from cbt_plugins.results.recovery.rates import series
from cbt_plugins.warning_kinds import forbids_verdict


def test_stale_statistics_are_not_a_clean_cluster(tmp_path: Path) -> None:
    """Eight seconds long the old "active+clean" is shown, longer than a stable stretch."""
    lines = [DOWN, {"t": 19.0, "pgs": DEGRADED, "degraded": [40, 100]}, {"t": 20.0, "settled": True}]
    lines += [{"t": 30.0, "pgs": RECOVERING}, {"t": 40.0, "pgs": CLEAN, "degraded": [0, 0], "health": "HEALTH_OK"}]
    found = seconds(only(watched(tmp_path, *lines), FAULT))
    assert found["clean"] == 30.0 and found["no-object-degraded"] == 30.0 and found["recovery-starts"] == 20.0


def test_clean_without_newer_statistics_is_reported(tmp_path: Path) -> None:
    error = "pg dump osds: a\n" + 300 * "b"
    lines = [DOWN, {"t": 20.0, "mgr_error": error}]
    episode = only(watched(tmp_path, *lines), FAULT)
    why = "it is unknown whether the statistics were newer than the OSD map"
    assert reasons(episode)["clean"].endswith(f"{why} (pg dump osds: a {184 * 'b'})")
    assert episode["outcome"] == "not recovered"
    new_agent = {"t": 30.0, "version": 1}
    assert reasons(only(watched(tmp_path, *lines, new_agent), FAULT))["clean"].endswith(why)


def test_health_ok_is_not_recovered(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    lines += [{"t": 20.0, "pgs": RECOVERING, "degraded": [0, 0], "misplaced": [9, 100], "health": "HEALTH_OK"}]
    lines += [{"t": 50.0, "pgs": CLEAN, "misplaced": [0, 0]}]
    found = seconds(only(watched(tmp_path, *lines), FAULT))
    assert (found["health-ok"], found["no-object-degraded"], found["clean"]) == (10.0, 10.0, 40.0)


#: it begins while PGs still recover from the failure; its first OSD is up 4 s later
SOON = [event(40.0, "undo-begin"), event(46.0, "undone")]
UP = {"t": 44.0, "down": [7], "settled": False, "map": [{"epoch": 3, "t": 43.9, "up": [6]}]}


def test_a_return_begins_with_its_first_osd_and_not_with_the_recovery_before_it(tmp_path: Path) -> None:
    """All PGs are clean for seconds before that OSD is up: what ended then was about the failure."""
    ill = {"pgs": DEGRADED, "degraded": [40, 100], "misplaced": [9, 100], "health": "HEALTH_WARN"}
    well = {"pgs": CLEAN, "degraded": [0, 0], "misplaced": [0, 0], "health": "HEALTH_OK"}
    lines = [DOWN, {"t": 13.0, **ill}, SETTLED, {"t": 39.0, "pgs": RECOVERING}, {"t": 41.0, **well}, UP]
    lines += [{"t": 48.0, **ill, "misplaced": [5, 100]}, {"t": 49.0, "pgs": RECOVERING}, {"t": 50.0, "settled": True}]
    back = milestones(watched(tmp_path, *lines, {"t": 60.0, **well}), [*FAULT, *SOON])["episodes"][1]
    found = seconds(back)
    assert (found["recovery-starts"], found["health-ok"], found["clean"]) == (9.0, 20.0, 20.0)
    (peak,) = (m for m in back["milestones"] if m["name"] == "misplaced-peak")
    assert (peak["seconds"], peak["value"]["objects"]) == (8.0, 5)


def test_a_return_while_pgs_recover_has_no_begin_of_recovery(tmp_path: Path) -> None:
    lines = [DOWN, SETTLED, {"t": 39.0, "pgs": RECOVERING}, UP, {"t": 50.0, "settled": True}, {"t": 60.0, "pgs": CLEAN}]
    back = milestones(watched(tmp_path, *lines), [*FAULT, *SOON])["episodes"][1]
    assert reasons(back)["recovery-starts"] == "PGs were recovering already" and seconds(back)["clean"] == 20.0


@pytest.mark.parametrize(("later", "at"), [("noscrub flag(s) set", 20.0), ("noout,noscrub flag(s) set", 40.0)])
def test_flags_of_the_run_are_no_ill_health(tmp_path: Path, later: str, at: float) -> None:
    """The run's settings are undone long after the recovery, and are not what it was about."""
    ours = {"checks": ["OSDMAP_FLAGS"], "says": {"OSDMAP_FLAGS": "noscrub flag(s) set"}, "health": "HEALTH_WARN"}
    lines = [{"t": 1.0, **ours}, {**DOWN, "checks": ["OSDMAP_FLAGS", "OSD_DOWN"]}, SETTLED]
    lines += [{"t": 30.0, **ours, "says": {"OSDMAP_FLAGS": later}}, {"t": 50.0, "checks": [], "health": "HEALTH_OK"}]
    assert seconds(only(watched(tmp_path, *lines), FAULT))["health-ok"] == at


def test_a_ratio_beyond_one_is_shown_and_is_no_progress(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    lines += [{"t": 20.0, "degraded": [135, 100]}, {"t": 30.0, "degraded": [20, 100]}]
    lines += [{"t": 40.0, "degraded": [0, 0], "pgs": CLEAN}]
    episode = only(watched(tmp_path, *lines), FAULT)
    (peak,) = (m for m in episode["milestones"] if m["name"] == "degraded-peak")
    assert peak["seconds"] == 10.0 and peak["value"]["objects"] == 135 and peak["value"]["total"] == 100
    assert episode["recovery"]["copies"] == 135 and episode["outcome"] == "recovered"


OUT = {"t": 12.0, "out": [6, 7], "settled": False, "map": [{"epoch": 2, "t": 11.2, "out": [6, 7]}]}
MOVED = {"active+remapped+backfilling": 4, "active+clean": 6}


def test_osds_that_are_marked_out_begin_a_search(tmp_path: Path) -> None:
    """They stay up: the statistics of before the map, clean for longer than a stable stretch, are no recovery."""
    lines = [OUT, {"t": 19.0, "pgs": MOVED, "settled": True}, {"t": 50.0, "pgs": CLEAN}]
    episode = only(watched(tmp_path, *lines), FAULT)
    assert seconds(episode)["clean"] == 40.0 and seconds(episode)["recovery-starts"] == 9.0
    assert seconds(episode)["first-down"] is None and seconds(episode)["out"] == pytest.approx(1.2)
    assert episode["recovery"]["seconds"] == pytest.approx(50.0 - 19.0)


def test_osds_that_are_marked_in_begin_a_search(tmp_path: Path) -> None:
    inside = {"t": 62.0, "out": [], "settled": False, "map": [{"epoch": 3, "t": 61.2, "in": [6, 7]}]}
    lines = [OUT, SETTLED, inside, {"t": 69.0, "pgs": MOVED, "settled": True}, {"t": 90.0, "pgs": CLEAN}]
    back = milestones(watched(tmp_path, *lines), [*FAULT, *BACK])["episodes"][1]
    assert seconds(back)["clean"] == 30.0 and seconds(back)["first-up"] is None


def test_a_map_that_is_seen_late_does_not_make_the_states_of_before_new(tmp_path: Path) -> None:
    """Samples after the time of the map that do not show it yet are settled: they are of the map before."""
    late = {**DOWN, "t": 12.0}
    lines = [late, {"t": 19.0, "pgs": DEGRADED, "degraded": [40, 100]}, {"t": 20.0, "settled": True}]
    lines += [{"t": 40.0, "pgs": CLEAN, "degraded": [0, 0]}]
    assert seconds(only(watched(tmp_path, *lines), FAULT))["clean"] == 30.0


def test_another_osd_that_changes_makes_the_states_old_again(tmp_path: Path) -> None:
    """One that is not of the fault: what is clean when the new states are there counts."""
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED}, SETTLED, {"t": 20.0, "pgs": CLEAN}]
    lines += [{"t": 22.0, "settled": False, "down": [1, 6, 7], "map": [{"epoch": 3, "t": 21.5, "down": [1]}]}]
    lines += [{"t": 30.0, "pgs": DEGRADED}, {"t": 34.0, "settled": True}, {"t": 50.0, "pgs": CLEAN}]
    assert seconds(only(watched(tmp_path, *lines), FAULT))["clean"] == 40.0


def test_an_osd_that_flaps_after_the_recovery_does_not_extend_it(tmp_path: Path) -> None:
    lines = [DOWN, SETTLED, {"t": 62.0, "down": [], "settled": False, "map": [{"epoch": 3, "t": 61.0, "up": [6, 7]}]}]
    lines += [{"t": 64.0, "pgs": RECOVERING}, {"t": 70.0, "settled": True}, {"t": 80.0, "pgs": CLEAN}]
    flap = [{"t": 500.0, "down": [6], "settled": False, "map": [{"epoch": 4, "t": 499.5, "down": [6]}]}]
    flap += [{"t": 502.0, "pgs": DEGRADED, "degraded": [4, 100]}]
    flap += [{"t": 510.0, "down": [], "map": [{"epoch": 5, "t": 509.5, "up": [6]}]}]
    flap += [{"t": 520.0, "pgs": CLEAN, "degraded": [0, 0], "settled": True}]
    made = milestones(watched(tmp_path, *lines, *flap, end=600.0), [*FAULT, *BACK])
    assert seconds(made["episodes"][1])["clean"] == 20.0
    assert seconds(made["episodes"][1])["no-object-degraded"] is None  # no object lacked a copy in this recovery
    (text,) = (its["text"] for its in made["warnings"] if its["code"] == "osd-flapped")
    assert text == "return a: osd.6 was down again at 00:08:19 UTC, 439.5 s after the undo began"
    # while it recovers, the end of the recovery is that of all of it
    soon = [{**line, "t": line["t"] - 415.0} for line in flap]
    for line in soon:
        line["map"] = [{**change, "t": change["t"] - 415.0} for change in line.get("map", ())]
    made = milestones(watched(tmp_path, *lines, *soon, end=600.0), [*FAULT, *BACK])
    assert seconds(made["episodes"][1])["clean"] == 45.0
    assert "osd-flapped" in [its["code"] for its in made["warnings"]]


def test_unfound_objects_and_inactive_pgs_are_not_recovered(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    lines += [{"t": 20.0, "pgs": {"active+clean": 9, "down": 1}, "degraded": [0, 0]}]
    episode = only(watched(tmp_path, *lines), FAULT)
    assert seconds(episode)["no-object-degraded"] is None and episode["left"]["inactive_pgs"] == 1
    lines[-1] = {"t": 20.0, "pgs": CLEAN, "degraded": [0, 0], "unfound": [3, 100]}
    episode = only(watched(tmp_path, *lines), FAULT)
    assert seconds(episode)["no-object-degraded"] is None and seconds(episode)["clean"] == 10.0


def test_it_never_recovers(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    episode = only(watched(tmp_path, *lines), FAULT)
    assert reasons(episode) == {
        "out": "osd.6, osd.7 stayed in until the samples end",
        "recovery-starts": "no PG recovered until the samples end",
        "no-object-degraded": "not until the samples end, 90 s after the event",
        "health-ok": "not until the samples end",
        "clean": "not until the samples end, 90 s after the event",
    }
    assert episode["left"]["degraded"] == 40


def test_rates_that_linger_are_no_recovery(tmp_path: Path) -> None:
    lines = [{**DOWN, "rates": [300, 1, 1]}, {"t": 13.0, "pgs": DEGRADED, "degraded": [4, 100]}, SETTLED]
    lines += [{"t": 20.0, "pgs": RECOVERING, "recovered": [10, 100, 0]}]
    lines += [{"t": 25.0, "pgs": CLEAN, "degraded": [0, 0], "recovered": [50, 500, 0]}]
    episode = only(watched(tmp_path, *lines), FAULT)
    assert (seconds(episode)["recovery-starts"], seconds(episode)["clean"]) == (10.0, 15.0)
    assert episode["recovery"]["objects"] == 50 and episode["recovery"]["objects_per_s"] == 10.0


def test_a_scrub_does_not_make_a_cluster_unclean_and_an_unknown_one_is_not_clean(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED}, SETTLED, {"t": 20.0, "pgs": {}}]
    lines += [{"t": 30.0, "pgs": {"active+clean": 9, "active+clean+scrubbing+deep": 1}}]
    assert seconds(only(watched(tmp_path, *lines), FAULT))["clean"] == 20.0


def test_a_gap_in_the_samples_is_unknown(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED}, SETTLED, {"t": 20.0, "pgs": CLEAN}]
    lines += [{"t": float(t), "missing": True} for t in range(23, 29)]
    made = milestones(watched(tmp_path, *lines), FAULT)
    (episode,) = made["episodes"]
    (clean,) = (m for m in episode["milestones"] if m["name"] == "clean")
    assert clean["t"] is None and clean["reason"] == "unknown, between 9.0 s and 19.0 s: no samples"
    assert clean["between"] == [19.0, 29.0] and clean["happened"] and episode["outcome"] == "recovered"
    assert [s.state for s in stretches(made, 0.0, 60.0)][-1] == "clean without them"
    assert made["gaps"] == [{"t": 29.0, "seconds": 7.0, "why": "no monitor ran"}]
    assert [w["code"] for w in made["warnings"]] == ["recovery-gap"]


def test_nobody_watches_until_the_return(tmp_path: Path) -> None:
    """Clean 12 s after the fault, and nobody was there: that is no cluster that did not recover."""
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    lines += [{"t": float(t), "missing": True} for t in range(20, 65)]
    lines += [{"t": 65.0, "down": [], "pgs": CLEAN, "degraded": [0, 0]}]
    made = milestones(watched(tmp_path, *lines), [*FAULT, *BACK])
    failure, back = made["episodes"]
    assert failure["outcome"] == "unknown" and back["outcome"] == "recovered"
    told = reasons(failure)
    assert told["clean"] == told["recovery-starts"] == told["out"] == "unknown, between 9.0 s and 50.0 s: no samples"
    # no map tells of them, and two samples show it
    assert reasons(back)["first-up"] == reasons(back)["all-up"] == "unknown, between 0.0 s and 5.0 s: no samples"
    assert "not-recovered" not in [w["code"] for w in made["warnings"]]


def test_osds_of_which_an_agent_knows_nothing_yet_did_not_change(tmp_path: Path) -> None:
    again = {"t": 20.0, "version": 1}
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED}, SETTLED, again, {"t": 23.0, "down": [6, 7], "out": []}]
    samples = watched(tmp_path, *lines)
    assert ["down" in sample.state for sample in samples.samples[18:24]] == [True, True, False, False, True, True]
    assert "first-up" not in seconds(only(samples, FAULT))
    back = [event(17.0, "undo-begin"), event(18.0, "undone")]
    assert reasons(milestones(samples, [*FAULT, *back])["episodes"][1])["first-up"].startswith("no OSD of the fault")


def test_what_an_aborted_attempt_did_is_marked(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    attempt = [{"t": 5.0, "event": "phase-begin", "phase": "one-down"}]
    kept = {"t": 70.0, "event": "phase-broken-off", "phase": "one-down", "kept": "03-one-down.partial-1"}
    again = {"t": 75.0, "event": "phase-begin", "phase": "one-down"}
    second = [event(80.0, "inject-begin"), event(80.5, "injected")]
    made = milestones(watched(tmp_path, *lines), [*attempt, *FAULT, *BACK, kept, again, *second])
    assert [its["aborted"] for its in made["episodes"]] == ["03-one-down.partial-1"] * 2 + [None]
    assert next(blocks(made)).title == "failure of a (aborted attempt 03-one-down.partial-1): not recovered"
    assert not any(w["text"].startswith("return a: not all PGs") for w in made["warnings"])


def test_a_repeated_phase_begins_without_a_failure(tmp_path: Path) -> None:
    """The attempt before it has broken and returned the same OSDs, and all PGs were active+clean again."""
    up = {"t": 63.0, "down": [], "map": [{"epoch": 3, "t": 62.0, "up": [6, 7]}], "settled": True}
    kept = {"t": 80.0, "event": "phase-broken-off", "phase": "one-down", "kept": "03-one-down.partial-1"}
    attempt = [{"t": 5.0, "event": "phase-begin", "phase": "one-down"}, *FAULT, *BACK, kept]
    second = [{"t": 84.0, "event": "phase-begin", "phase": "one-down"}, event(90.0, "inject-begin")]
    made = milestones(watched(tmp_path, DOWN, SETTLED, up), [*attempt, *second])
    states = [(stretch.state, stretch.labels) for stretch in stretches(made, 84.0, 95.0)]
    assert states == [("no failure", ()), ("failing", ("a",))]


def test_a_change_between_two_samples_is_seen(tmp_path: Path) -> None:
    """Down and up again within one second: the maps tell, the samples cannot."""
    maps = [{"epoch": 2, "t": 11.2, "down": [6]}, {"epoch": 3, "t": 11.8, "up": [6]}]
    flap = {"t": 12.0, "settled": False, "map": maps}
    episode = only(watched(tmp_path, flap, SETTLED), FAULT)
    assert seconds(episode)["first-down"] == 1.2
    assert reasons(episode)["all-down"] == "osd.6, osd.7 stayed up until the samples end"


def test_clocks_that_differ_are_said_and_do_not_move_events_beyond_the_samples(tmp_path: Path) -> None:
    late = {**DOWN, "map": [{"epoch": 2, "t": 15.0, "down": [6, 7]}]}
    made = milestones(watched(tmp_path, late), FAULT)
    assert seconds(made["episodes"][0])["first-down"] == 1.25
    assert "clock-skew" in [w["code"] for w in made["warnings"]]


def test_a_map_that_is_read_late_keeps_its_time(tmp_path: Path) -> None:
    """The samples of 11 to 14 know of newer maps, which are many: the agent reads that of 10.4 with the one of 15."""
    lines = [{"t": 1.0, "epoch": 40}, {"t": 11.0, "epoch": 90, "settled": False}, {"t": 13.0, "epoch": 95}]
    made = milestones(watched(tmp_path, *lines, {**DOWN, "t": 15.0, "map": [{**DOWN["map"][0], "epoch": 60}]}), FAULT)
    assert seconds(made["episodes"][0])["first-down"] == pytest.approx(0.4)
    assert "clock-skew" not in [warning["code"] for warning in made["warnings"]]
    # a wrong clock is one all the same: there was no such map at 10
    wrong = [{**DOWN["map"][0], "epoch": 60, "t": t} for t in (6.0, 14.5)]
    for map_line, first_down in zip(wrong, (10.0 - 0.25, 11.0 + 0.25)):
        samples = watched(tmp_path, *lines, {**DOWN, "t": 15.0, "map": [map_line]})
        assert samples.changes[0].t == pytest.approx(first_down) and samples.skew > 3


def test_without_samples_the_events_are_what_there_is() -> None:
    made = milestones(Samples(), [*FAULT, *BACK])
    failure, back = made["episodes"]
    assert (failure["outcome"], failure["effect"], seconds(failure)["injected"]) == ("unknown", None, 0.5)
    assert seconds(back)["undone"] == 3.0
    assert [w["code"] for w in made["warnings"]] == ["no-recovery-samples"]
    assert [s.state for s in stretches(made, 0, 100)] == ["no failure", "failing", "failed", "returning", "returned"]


def test_a_fault_without_effect(tmp_path: Path) -> None:
    made = milestones(watched(tmp_path), [*FAULT, *BACK])
    failure = made["episodes"][0]
    assert failure["effect"] is False and failure["outcome"] == "unchanged"
    assert reasons(failure)["clean"] == "no OSD changed and all PGs stayed active+clean"
    states = [(s.state, s.start) for s in stretches(made, 0, 100)][1:]
    assert states == [("failing", 10.0), ("no effect", 11.0), ("returning", 60.0), ("clean again", 63.0)]


def test_the_effect_of_a_fault_that_takes_no_osd_is_what_the_run_has_seen(tmp_path: Path) -> None:
    """Of a gateway: its port refused connections before the run had asked all; no PG tells of it."""
    seen = {**event(14.0, "in-effect", osds=()), "milestones": {"refused": 12.5}}
    fault = [event(10.0, "inject-begin", osds=()), event(10.5, "injected", osds=()), seen]
    made = milestones(watched(tmp_path), [*fault, *(event(t, name, osds=()) for t, name in BACK_TIMES)])
    failure, back = made["episodes"]
    assert (failure["effect"], failure["outcome"], seconds(failure)["in-effect"]) == (False, "unchanged", 2.5)
    assert (back["outcome"], back["left"]) == ("unchanged", None)
    states = [(s.state, s.start) for s in stretches(made, 0, 100)][1:]
    assert states == [("failing", 10.0), ("in effect", 13.0), ("returning", 60.0), ("clean again", 63.0)]
    # read errors: PGs are repaired meanwhile, and the fault is in force all the same
    repairs = [{"t": 20.0, "pgs": RECOVERING}, {"t": 30.0, "pgs": CLEAN}]
    made = milestones(watched(tmp_path, *repairs), [*fault, *(event(t, name, osds=()) for t, name in BACK_TIMES)])
    assert [s.state for s in stretches(made, 0, 60)] == ["no failure", "failing", "in effect"]
    # of OSDs that are down, the OSD maps tell more
    made = milestones(watched(tmp_path, DOWN), [*FAULT, event(12.0, "in-effect")])
    assert [s.state for s in stretches(made, 0, 60)] == ["no failure", "failing", "degraded"]


def test_a_cut_that_ends_by_itself_ends_there(tmp_path: Path) -> None:
    """The dead man's switch of one of two nodes fired 20 s before the undo: what came then is no failure any more."""
    back = [*BACK, {**event(61.0, "recovered"), "at": 45.0}, {**event(61.1, "recovered"), "at": 40.0}]
    made = milestones(watched(tmp_path, DOWN), [*FAULT, *back])
    failure, returned = made["episodes"]
    assert (failure["end"], returned["begin"], failure["switch_fired"]) == (40.0, 40.0, None)
    assert returned["switch_fired"] == {"t": 40.0, "undo": 60.0} and seconds(returned)["undone"] == 23.0
    (text,) = (w["text"] for w in made["warnings"] if w["code"] == "switch-fired-early")
    assert text.startswith("return a: the fault ended by itself at 00:00:40 UTC, 20.0 s before its undo; ")
    # one that could be reached only after its switch had fired has lasted as long as its deadline
    made = milestones(watched(tmp_path, DOWN), [*FAULT, *BACK, {**event(62.0, "recovered"), "at": 61.5}])
    assert made["episodes"][1]["begin"] == 60.0
    assert "switch-fired-early" not in [w["code"] for w in made["warnings"]]
    # OSDs that come back from then on are of the return
    up = {"t": 50.0, "down": [], "map": [{"epoch": 3, "t": 49.5, "up": [6, 7]}]}
    made = milestones(watched(tmp_path, DOWN, up), [*FAULT, *back])
    assert "fault-ended-early" not in [w["code"] for w in made["warnings"]]
    # another fault was in force meanwhile, and was asked to end at the same time
    other = [event(30.0, "inject-begin", "b", [4]), event(60.0, "undo-begin", "b", [4])]
    made = milestones(watched(tmp_path, DOWN), [*FAULT, *other, *back])
    assert made["episodes"][-1]["begin"] == 60.0 and "switch-fired-early" in [w["code"] for w in made["warnings"]]
    # then its OSDs come back during both failures: no row of them is as planned, and it is known why
    made = milestones(watched(tmp_path, DOWN, up), [*FAULT, *other, *back])
    early = [its for its in made["warnings"] if its["code"] == "fault-ended-early"]
    assert [its["episode"] for its in early] == ["a failure", "b failure"]
    assert all(its["text"].endswith(" before its undo: the switch of its node has ended the fault") for its in early)


def codes(made: Dict[str, Any]) -> List[Tuple[str, Optional[str]]]:
    return [(its["code"], its.get("episode")) for its in made["warnings"]]


def test_a_fault_that_something_else_ends_is_said_on_the_rows_of_its_failure(tmp_path: Path) -> None:
    """systemd has started the OSDs, or the node has booted: what recovers then are the same OSDs."""
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED}, SETTLED]
    lines += [{"t": 30.0, "down": [7], "settled": False, "map": [{"epoch": 3, "t": 29.5, "up": [6]}]}]
    lines += [{"t": 31.0, "down": [], "map": [{"epoch": 4, "t": 30.5, "up": [7]}]}]
    lines += [{"t": 34.0, "pgs": CLEAN}, {"t": 36.0, "settled": True}]
    made = milestones(watched(tmp_path, *lines), [*FAULT, *BACK])
    assert made["episodes"][0]["outcome"] == "recovered"
    (warning,) = (its for its in made["warnings"] if its["code"] == "fault-ended-early")
    assert warning["episode"] == "a failure" and forbids_verdict("fault-ended-early")
    assert warning["text"] == (
        "failure a: osd.6 was up again at 00:00:29 UTC, 30.5 s before its undo: something else has ended the fault"
    )
    # one that comes back because it is to, as after a reboot
    own = [{**event, "returns": True} if "inject" in event["event"] else event for event in FAULT]
    assert codes(milestones(watched(tmp_path, *lines), [*own, *BACK])) == []
    # of a gateway, while OSDs that are not of the fault come and go
    gateway = [{**event, "osds": []} for event in (*FAULT, *BACK)]
    assert codes(milestones(watched(tmp_path, *lines), gateway)) == []
    # by the undo, which a clock that is a little off puts before it
    undo = [event(29.6, "undo-begin"), event(31.0, "undone")]
    assert [code for code, _ in codes(milestones(watched(tmp_path, *lines), [*FAULT, *undo]))] == ["not-recovered"]


@pytest.mark.parametrize("samples", [True, False])
def test_a_fault_that_had_ended_right_before_its_undo(samples: bool, tmp_path: Path) -> None:
    """Nothing of it is in the OSD maps: a slow disk, or a gateway that somebody has started."""
    seen = watched(tmp_path) if samples else read_samples([])
    over = event(59.9, "ended", osds=[])
    made = milestones(seen, [*FAULT, over, *BACK])
    (warning,) = (its for its in made["warnings"] if its["code"] == "fault-ended-early")
    assert warning == {
        "code": "fault-ended-early",
        "text": "failure a: it was no longer in force at 00:00:59 UTC, before its undo: something else has ended it",
        "episode": "a failure",
    }
    switch = {**event(61.0, "recovered"), "at": 45.0}
    assert "fault-ended-early" not in [code for code, _ in codes(milestones(seen, [*FAULT, over, *BACK, switch]))]
    again = [event(70.0 + t, name) for t, name in ((0.0, "inject-begin"), (0.5, "injected"), (20.0, "undo-begin"))]
    assert milestones(seen, [*FAULT, *BACK, *again])["episodes"][2]["ended_early"] is None


def test_an_osd_that_flaps_while_its_fault_is_in_force_has_not_come_back(tmp_path: Path) -> None:
    """Of a partition, or a lossy link: the OSDs are down and up again and again, for as long as it lasts."""
    lines = [DOWN, SETTLED, {"t": 20.0, "map": [{"epoch": 3, "t": 19.5, "up": [6, 7]}]}]
    flap = {"t": 30.0, "map": [{"epoch": 4, "t": 29.5, "down": [6, 7]}]}
    last = {"t": 41.0, "map": [{"epoch": 5, "t": 40.5, "up": [7]}]}

    def early(*changes: Dict[str, Any]) -> List[str]:
        made = milestones(watched(tmp_path, *lines, *changes), [*FAULT, *BACK])
        return [warning["text"] for warning in made["warnings"] if warning["code"] == "fault-ended-early"]

    assert early(flap) == []
    (text,) = early(flap, last)
    assert text.startswith("failure a: osd.7 was up again at 00:00:40 UTC, 19.5 s before its undo: ")
    (text,) = early()
    assert text.startswith("failure a: osd.6, osd.7 were up again at 00:00:19 UTC, 40.5 s before its undo: ")


def test_osds_that_somebody_marks_in_during_a_fault_that_marked_them_out(tmp_path: Path) -> None:
    lines = [OUT, SETTLED, {"t": 30.0, "out": [7], "map": [{"epoch": 3, "t": 29.5, "in": [6]}]}]
    made = milestones(watched(tmp_path, *lines), [*FAULT, *BACK])
    (text,) = (its["text"] for its in made["warnings"] if its["code"] == "fault-ended-early")
    assert text.startswith("failure a: osd.6 was in again at 00:00:29 UTC, 30.5 s before its undo: ")


def test_a_fault_that_ends_during_another_one_is_said_on_both(tmp_path: Path) -> None:
    other = [event(20.0, "inject-begin", "b", [4]), event(20.5, "injected", "b", [4])]
    lines = [DOWN, {"t": 30.0, "down": [6, 7], "map": [{"epoch": 3, "t": 29.5, "up": [6]}]}]
    found = codes(milestones(watched(tmp_path, *lines), [*FAULT, *other, *BACK]))
    early = [episode for code, episode in found if code == "fault-ended-early"]
    assert early == ["a failure", "b failure"]


def test_a_failure_of_a_cluster_that_was_not_clean(tmp_path: Path) -> None:
    lines = [{"t": 5.0, "pgs": MOVED}, DOWN, {"t": 50.0, "pgs": CLEAN}, {"t": 51.0, "pgs": MOVED}]
    second = [event(80.0, "inject-begin", "b", [4]), event(80.5, "injected", "b", [4])]

    def unclean(*events: Dict[str, Any]) -> List[Optional[str]]:
        made = milestones(watched(tmp_path, *lines), list(events))
        return [episode for code, episode in codes(made) if code == "not-clean-before"]

    assert unclean(*FAULT) == ["a failure"] and forbids_verdict("not-clean-before")
    assert unclean(*FAULT, *BACK, *second) == ["a failure", "b failure"]
    # the plan wants it so: another fault of the run is in force
    assert unclean(*FAULT, *second) == ["a failure"]


def test_what_is_set_on_the_cluster_is_no_fault(tmp_path: Path) -> None:
    settings = [{**event(1.0, name, "settings"), "kind": "settings"} for name in ("inject-begin", "injected")]
    made = milestones(watched(tmp_path, DOWN), [*settings, *FAULT])
    assert [episode["labels"] for episode in made["episodes"]] == [["a"]]


def test_two_failures_and_one_return(tmp_path: Path) -> None:
    events = [*FAULT, event(30.0, "inject-begin", "b", [4]), event(31.0, "injected", "b", [4])]
    events += [event(60.0, "undo-begin", "b", [4]), event(62.0, "undone", "b", [4])]
    events += [event(62.1, "undo-begin"), event(65.0, "undone")]
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
    lines += [{"t": 31.0, "down": [4, 6, 7], "settled": False, "map": [{"epoch": 3, "t": 30.5, "down": [4]}]}]
    lines += [{"t": 62.0, "down": [6, 7], "map": [{"epoch": 4, "t": 61.5, "up": [4]}]}]
    lines += [{"t": 65.0, "down": [], "map": [{"epoch": 5, "t": 64.5, "up": [6, 7]}]}]
    lines += [{"t": 70.0, "pgs": CLEAN, "degraded": [0, 0], "settled": True}]
    made = milestones(watched(tmp_path, *lines), events)
    first, second, back = made["episodes"]
    assert first["end_why"] == "the fault b begins" and first["end"] == 30.0
    assert seconds(second)["all-down"] == 0.5
    assert back["labels"] == ["b", "a"] and back["osds"] == [4, 6, 7]
    found = seconds(back)
    assert (found["first-up"], found["all-up"], found["undone"], found["clean"]) == (1.5, 4.5, 5.0, 10.0)


def test_states_leave_nothing_out_and_begin_with_their_second(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED, {"t": 20.0, "pgs": RECOVERING}]
    lines += [{"t": 40.0, "pgs": CLEAN, "degraded": [0, 0]}]
    lines += [{"t": 62.0, "down": [], "map": [{"epoch": 3, "t": 61.5, "up": [6, 7]}]}]
    lines += [{"t": 63.0, "pgs": RECOVERING}, {"t": 70.0, "pgs": CLEAN}]
    made = milestones(watched(tmp_path, *lines), [*FAULT, *BACK])
    its = stretches(made, 5.0, 90.0)
    assert [(s.state, s.start, s.end) for s in its] == [
        ("no failure", 5.0, 10.0),
        ("failing", 10.0, 11.0),
        ("degraded", 11.0, 20.0),
        ("recovering", 20.0, 40.0),
        ("clean without them", 40.0, 60.0),
        ("returning", 60.0, 62.0),
        ("recovering back", 62.0, 70.0),
        ("clean again", 70.0, 90.0),
    ]
    assert {s.state for s in its} <= STATES.keys()
    assert [s.state for s in stretches(made, 75.0, 80.0)] == ["clean again"]


def test_the_series_has_the_bins_that_were_asked_for(tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, {"t": 20.0, "recovered": [0, 0, 0]}]
    lines += [{"t": 22.0, "pgs": RECOVERING, "recovered": [50, 5 << 20, 0]}]
    lines += [{"t": float(t), "missing": True} for t in range(30, 40)]
    made = series(watched(tmp_path, *lines), 10, 1, 40)
    assert made["osds_up"][:3] == [8, 6, 6] and made["not_clean"][2:4] == [0, 4]
    assert made["degraded"][3] == 40 and made["osds_in"][0] == 8
    assert made["degraded"][25] is None and made["degraded"][31] == 40
    assert sum(filter(None, made["objects_per_s"])) == pytest.approx(50)
    assert sum(filter(None, made["mib_per_s"])) == pytest.approx(5)
    wide = series(watched(tmp_path, *lines), 10, 10, 4)
    assert sum(filter(None, wide["objects_per_s"])) * 10 == pytest.approx(50) and len(wide["degraded"]) == 4
