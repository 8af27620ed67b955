"""What recovery made, by counters that also change although nothing recovers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from watched_failures import BACK, CLEAN, DEGRADED, DOWN, FAULT, RECOVERING, SETTLED, only, watched

from cbt_plugins.cluster import state_sampler_agent
from cbt_plugins.journal import json_lines
from cbt_plugins.results.recovery.cluster_samples import read_samples
from cbt_plugins.results.recovery.milestones import milestones

DATA = Path(__file__).parents[1] / "data" / "recovery"
#: PGs recover from 20 to 50
LINES = [{"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED, {"t": 20.0, "pgs": RECOVERING}]
END = {"t": 50.0, "pgs": CLEAN, "degraded": [0, 0]}


def counted(tmp_path: Path, *counters: Tuple[float, int], before: int = 100) -> Any:
    """Return the objects that recovered in the failure, where the counter has these values from these times on."""
    by_time: Dict[float, Dict[str, Any]] = {line["t"]: line for line in (DOWN, *LINES, END)}
    for t, value in ((0.0, before), *counters):
        by_time[t] = {**by_time.get(t, {"t": t}), "recovered": [value, 1000 * value, 0]}
    return only(watched(tmp_path, *by_time.values()), FAULT)["recovery"]


def test_a_mgr_that_has_just_become_active_has_recovered_nothing(tmp_path: Path) -> None:
    """It answers zeros, then what those OSDs had counted that have reported so far."""
    plain = counted(tmp_path, (22.0, 130), (40.0, 180))
    assert (plain["objects"], plain["bytes"], plain["objects_fallen"]) == (80, 80_000, 0)
    failover = counted(tmp_path, (22.0, 130), (26.0, 0), (28.0, 60), (31.0, 135), (40.0, 180))
    assert (failover["objects"], failover["bytes"], failover["objects_fallen"]) == (80, 80_000, 0)
    # an OSD that never reports has taken its count with it: a new mgr waits for four periods
    lost = counted(tmp_path, (22.0, 130), (26.0, 0), (28.0, 60), (47.0, 70), (49.0, 90))
    assert (lost["objects"], lost["objects_fallen"]) == (30 + 20, 60)


def test_a_counter_that_rises_before_a_pg_can_have_recovered_counts_nothing(tmp_path: Path) -> None:
    """Of the OSDs that lead the PGs of the dead ones, some have counted more before."""
    assert counted(tmp_path, (12.0 - 1, 165), (40.0, 245))["objects"] == 80
    # a report before the first PG is seen to recover it may have begun
    assert counted(tmp_path, (18.0, 165), (40.0, 245))["objects"] == 145


@pytest.mark.parametrize(
    ("clean", "again", "before"), [(False, False, 60_000), (True, False, 30_000), (True, True, 90_000)]
)
def test_recovery_goes_on_until_an_osd_is_up(tmp_path: Path, clean: bool, again: bool, before: int) -> None:
    """The undo begins at 60, and the node boots until 80. If all is clean at 50, a rise until 58 is not lost.

    `again`: PGs recover again from 59 on.
    """
    by_time: Dict[float, Dict[str, Any]] = {line["t"]: line for line in (DOWN, *LINES)}
    by_time[50.0] = END if clean else {"t": 50.0}
    by_time[59.0] = {"t": 59.0, **({"pgs": RECOVERING} if again else {})}
    by_time[80.0] = {"t": 80.0, "down": [], "map": [{"epoch": 3, "t": 79.5, "up": [6, 7]}], "settled": False}
    by_time[92.0] = {"t": 92.0, "pgs": CLEAN, "degraded": [0, 0], "settled": True}
    for t, value in ((0.0, 100), (58.0, 130), (65.0, 160), (79.0, 190), (85.0, 200)):
        by_time[t] = {**by_time.get(t, {"t": t}), "recovered": [value, 1000 * value, 0]}
    by_time[82.0] = {"t": 82.0, "pgs": RECOVERING}
    failure, back = milestones(watched(tmp_path, *by_time.values()), [*FAULT, *BACK])["episodes"]
    counted = [failure["recovery"]["bytes"], back["recovery"]["bytes_before"], back["recovery"]["bytes"]]
    assert counted[1:] == [before, 10_000] and (clean or counted[0] == 30_000)
    assert failure["recovery"]["bytes_before"] == 0


@pytest.mark.parametrize(
    ("name", "number", "objects"),
    [
        ("one", 0, 8298),
        ("one", 1, 2161),  # 738 more rose between the end of the recovery before and the first OSD that was up
        ("two", 0, 5530),  # 665 more rose 8 s before a PG recovered, when PGs got other primaries
        ("two", 1, 2145),
        ("killed", 0, 5622),
    ],
)
def test_recorded_counters(name: str, number: int, objects: int) -> None:
    events = json_lines(DATA / f"{name}-events.jsonl")
    episode = milestones(read_samples([DATA / f"{name}.jsonl"]), events)["episodes"][number]
    assert episode["recovery"]["objects"] == objects


class NewMgr:
    """A source with a mgr that has not all reports at first."""

    def __init__(self) -> None:
        self.ready = False

    def mon(self, question: Dict[str, Any]) -> Any:
        osds = {"num_osds": 1, "num_up_osds": 1, "num_in_osds": 1, "epoch": 1}
        if question["prefix"] == "osd dump":
            row = {"osd": 0, "up": 1, "in": 1, "up_from": 1}
            return {"epoch": 1, "modified": "2026-11-21T13:00:00.0+0000", "osds": [row]}
        pgs = {"pgs_by_state": [{"state_name": "active+recovering", "count": 9}], "num_pgs": 9}
        return {"osdmap": osds, "pgmap": pgs, "health": {"status": "HEALTH_WARN", "checks": {}}}

    def mgr(self, question: Dict[str, Any], timeout: Optional[float] = None) -> Any:
        counts = {f"num_{unit}_recovered": 7 if self.ready else 0 for unit in ("objects", "bytes", "keys")}
        parts: Dict[str, Any] = {"sum": {"pg_map": {"pg_stats_sum": {"stat_sum": counts}}}, "osds": {"osd_stats": []}}
        return {"pg_ready": self.ready, **parts[question["dumpcontents"][0]]}


def test_the_agent_takes_no_counters_of_a_mgr_without_all_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(state_sampler_agent.time, "monotonic", lambda: now[0])
    source = NewMgr()
    sampler = state_sampler_agent.StateSampler(source, 5.0, {"recovery": True}, None)
    states: List[Dict[str, Any]] = []
    for source.ready in (False, False, True):
        states.append(sampler.sample()[0])
        now[0] += 3.0  # it is asked again at once, unlike one that does not answer
    assert [state["recovered"] for state in states] == [None, None, [7, 7, 7]]
    error = "pg dump sum: the mgr has not the reports of all OSDs yet"
    assert [state["mgr_error"] for state in states] == [error, error, None]


def test_copies_on_osds_that_come_back_were_not_made(tmp_path: Path) -> None:
    """As in a reboot: 100 copies are made on other OSDs, then the OSDs are up and have all but 12 of theirs."""
    lines: List[Dict[str, Any]] = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [9557, 20000]}, SETTLED]
    moves = {"t": 20.0, "pgs": RECOVERING}
    made, up = {"t": 24.0, "degraded": [9457, 20000]}, {"t": 31.0, "down": [], "settled": False}
    up.update(degraded=[12, 100], pgs=RECOVERING, map=[{"epoch": 3, "t": 30.0, "up": [6]}])
    ends = [{"t": 33.0, "pgs": CLEAN, "degraded": [0, 0]}, {"t": 40.0, "settled": True}]
    rate = only(watched(tmp_path, *lines, moves, made, up, *ends), FAULT)["recovery"]
    assert (rate["copies"], rate["copies_per_s"]) == (100, 10.0) and rate["seconds"] == 13.0
    none = only(watched(tmp_path, *lines, up, *ends), FAULT)["recovery"]
    assert (none["copies"], none["copies_per_s"], none["seconds"]) == (None, None, 2.0)
