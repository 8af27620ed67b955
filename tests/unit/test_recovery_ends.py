"""What looks like the end of a recovery and is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Sequence

import pytest
from recovery_times import reasons
from watched_failures import BACK, DOWN, FAULT, SETTLED, only, watched

from cbt_plugins.cluster.state_sampler_agent import are_all_clean
from cbt_plugins.cluster_conditions import found_in, is_active, is_clean
from cbt_plugins.faults.pool_settings import COUNT_PGS
from cbt_plugins.journal import json_lines
from cbt_plugins.results.recovery.cluster_samples import read_samples
from cbt_plugins.results.recovery.episodes import has_whole_recovery
from cbt_plugins.results.recovery.milestones import milestones

DATA = Path(__file__).parents[1] / "data" / "recovery"
STALE = {"pgs": {"active+clean": 39, "stale+active+clean": 10}, "num_pgs": 49}


def test_pgs_whose_osds_are_all_down_are_neither_clean_nor_active(tmp_path: Path) -> None:
    """Ceph goes on to show the state that they had, with the word `stale` in front."""
    samples = watched(tmp_path, DOWN, {"t": 12.0, **STALE}, SETTLED)
    failure = only(samples, FAULT)
    assert failure["outcome"] == "not recovered" and reasons(failure)["clean"].startswith("not until the samples end")
    (seen,) = {(sample.not_clean, sample.inactive, sample.all_copies) for sample in samples.samples[20:]}
    assert seen == (10, 10, False)
    assert found_in(STALE) == {"not-clean": "10 of 49 PGs: 10 stale+active+clean"}


@pytest.mark.parametrize("name", ["killed", "one"])
def test_pgs_whose_new_primary_has_not_reported_yet_are_not_clean_and_count_as_they_were(name: str) -> None:
    """For 1 to 2 s after a primary OSD is down, Ceph shows its PGs as `stale`, and counts none of them as inactive."""
    samples = read_samples([DATA / f"{name}.jsonl"])
    stale = [sample for sample in samples.samples if any("stale" in state for state in sample.pgs)]
    assert stale and {(sample.clean, sample.inactive) for sample in stale} == {(False, 0)}
    failure = milestones(samples, json_lines(DATA / f"{name}-events.jsonl"))["episodes"][0]
    values = {milestone["name"]: milestone["value"] for milestone in failure["milestones"]}
    assert values["degraded-peak"]["most_inactive_pgs"] == 1  # one that peers


@pytest.mark.parametrize(
    ("state", "active", "clean"),
    [
        ("active+clean", True, True),
        ("active+clean+scrubbing+deep", True, True),
        ("active+undersized+degraded", True, False),
        ("stale+active+clean", False, False),
        ("stale+active+undersized+degraded", False, False),
        ("peering", False, False),
    ],
)
def test_all_who_ask_agree_which_pgs_are_clean(state: str, active: bool, clean: bool) -> None:
    assert (is_active(state), is_clean(state), are_all_clean({state: 3}, 3)) == (active, clean, clean)
    reply = json.dumps({"pg_stats": [{"state": state}] * 3})
    command = [sys.executable, "-c", COUNT_PGS]
    counts = json.loads(subprocess.run(command, input=reply, stdout=subprocess.PIPE, check=True, text=True).stdout)
    assert counts == {"pgs": 3, "not_clean": 0 if clean else 3}


#: four of ten PGs wait for their backfill when the load ends, and are removed with their pool
LEFT = {"pgs": {"active+undersized+degraded+remapped+backfill_wait": 4, "active+clean": 6}, "degraded": [40, 100]}
REMOVED = {"t": 110.0, "pgs": {"active+clean": 6}, "num_pgs": 6, "degraded": [0, 0], "recovered": [0, 0, 0]}
UP = {"t": 65.0, "down": [], "settled": False, "map": [{"epoch": 3, "t": 64.5, "up": [6, 7]}]}
#: the run removes its buckets and its pools, or pools only, as earlier versions say
CLEANUPS = {
    "buckets": [{"t": 105.0, "event": "cleanup-begin"}],
    "pools": [{"t": 109.0, "event": "fault-undo-begin", "kind": "prepared", "label": "pool data", "osds": []}],
}


@pytest.mark.parametrize(("kinds", "end"), [(("buckets", "pools"), 105.0), (("buckets",), 105.0), (("pools",), 109.0)])
def test_data_that_the_run_removes_does_not_recover(kinds: Sequence[str], end: float, tmp_path: Path) -> None:
    lines = [DOWN, {"t": 13.0, **LEFT}, SETTLED, UP, {"t": 75.0, "settled": True}, {"t": 90.0, "recovered": [5, 5, 0]}]
    events = [*FAULT, *BACK, {"t": 100.0, "event": "phase-end", "phase": "hybrid"}]
    events += [event for kind in kinds for event in CLEANUPS[kind]] + [{"t": 122.0, "event": "run-done"}]
    recovery = milestones(watched(tmp_path, *lines, REMOVED, end=125.0), events)
    back = recovery["episodes"][1]
    assert (back["outcome"], back["end"], back["left"]["degraded"]) == ("not recovered", end, 40)
    assert reasons(back)["clean"].startswith(f"not until the run removes its data, {end - 60:.0f} s after the event")
    assert (back["recovery"]["copies"], back["recovery"]["objects"]) == (None, 5) and not has_whole_recovery(back)
    assert [w["code"] for w in recovery["warnings"] if w.get("episode") == "a return"] == ["not-recovered"]
