"""The agent of the sampler, without a cluster: which OSD maps it looks at, and when its statistics are new."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Collection, Dict, List, Tuple

import pytest
from waiting import wait_for

from cbt_plugins.cluster import state_sampler_agent, state_sampler_maps
from cbt_plugins.cluster.cluster_watch import ClusterWatch
from cbt_plugins.cluster.state_sampler_sources import NoReply

DATA = Path(__file__).parents[1] / "data" / "ceph"


def test_statistics_are_newer_when_every_osd_has_reported_again() -> None:
    reports = state_sampler_agent.Reports(5.0)
    reports.begin(100.0)
    ups = {0: 7, 1: 9}

    def look(now: float, *numbers: Tuple[int, int]) -> bool:
        if reports.wanted(now):
            reports.look(now, ups, [{"osd": i, "seq": (e << 32) + n} for i, (e, n) in enumerate(numbers)])
        reports.wait(now)
        return bool(reports.settled)

    assert not look(101.0, (7, 10), (9, 10))  # too early: their maps may be old
    assert not look(102.0, (7, 11), (8, 50))  # osd.1 has not reported since it is up again
    assert not look(105.0, (7, 12), (9, 1))
    assert not look(110.0, (7, 13), (9, 2))  # the mgr knows, the monitors not yet
    assert not look(115.0, (7, 14), (9, 3))
    assert look(115.5, (7, 14), (9, 3))
    reports.begin(120.0)
    assert not look(125.0, (7, 14), (9, 3))


def test_a_clock_that_is_set_back_ends_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of a fill rests on the space; the clock of the node is set back by an hour."""
    clock, now, used = [1000.0], [50.0], [0]
    monkeypatch.setattr(state_sampler_agent.time, "time", lambda: clock[0])
    monkeypatch.setattr(state_sampler_agent.time, "monotonic", lambda: now[0])

    class Source:
        def mon(self, question: Dict[str, Any]) -> Any:
            if question["prefix"] == "df":
                used[0] += 1
                return {"stats": {"total_used_raw_ratio": used[0] / 100}, "pools": []}
            return json.loads((DATA / "pacific-recovering-status.json").read_text())

    sampler = state_sampler_agent.StateSampler(Source(), 5.0, {"df": True}, None)
    sampler.sample()
    for step in (6.0, -3600.0, 6.0):
        clock[0] += step
        now[0] += 6.0
        sampler.sample()
    assert used == [4]


def dump(epoch: int, up: List[int], inside: List[int]) -> Dict[str, Any]:
    osds = [{"osd": i, "up": up[i], "in": inside[i], "up_from": 1} for i in range(len(up))]
    return {"epoch": epoch, "modified": f"2026-11-21T13:56:{epoch:02d}.5+0000", "osds": osds}


def test_every_map_between_two_samples_is_looked_at() -> None:
    states = {1: ([1, 1], [1, 1]), 2: ([0, 1], [1, 1]), 3: ([1, 1], [1, 1]), 4: ([1, 1], [0, 1])}
    maps = {epoch: dump(epoch, *state) for epoch, state in states.items()}
    asked: List[int] = []
    fails = [3]

    def ask(question: Dict[str, Any]) -> Dict[str, Any]:
        asked.append(question["epoch"])
        if question["epoch"] in fails:
            fails.clear()
            raise NoReply("busy")
        return maps[question["epoch"]]

    def status(epoch: int, up: int, since: int) -> Dict[str, Any]:
        return {"epoch": epoch, "num_osds": 2, "num_up_osds": up, "num_in_osds": 2, "osd_up_since": since}

    osds = state_sampler_maps.Osds(None)
    assert osds.follow(status(1, 2, 1), ask) == []
    with pytest.raises(NoReply):
        osds.follow(status(4, 2, 3), ask)
    begin = 1795269360.5
    assert osds.follow(status(4, 2, 3), ask) == [
        {"epoch": 2, "t": begin + 2, "down": [0]},
        {"epoch": 3, "t": begin + 3, "up": [0]},
        {"epoch": 4, "t": begin + 4, "out": [0]},
    ]
    assert asked == [1, 2, 3, 3, 4]
    assert osds.follow(status(9, 2, 3), ask) == [] and len(asked) == 5  # only placements changed


def test_maps_that_are_too_many_to_be_read_change_nothing_at_a_known_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """osd.0 goes down in a map that nobody reads: no other map has the time of that."""
    monkeypatch.setattr(state_sampler_maps, "MAPS", 2)
    states = {1: [1, 1], 2: [1, 1], 3: [0, 1], 4: [0, 1], 5: [0, 0], 6: [0, 0]}
    maps = {epoch: dump(epoch, up, [1, 1]) for epoch, up in states.items()}
    osds = state_sampler_maps.Osds(1)
    status = {"epoch": 6, "num_osds": 2, "num_up_osds": 0, "num_in_osds": 2, "osd_up_since": 1}
    changes = osds.follow(status, lambda question: maps[question["epoch"]])
    assert [(change["epoch"], change["down"]) for change in changes] == [(5, [1])]
    assert osds.missed == "OSD maps 2 to 3 were not read" and osds.up == set()


def test_maps_that_are_trimmed_are_left_out_but_for_the_newest_one() -> None:
    maps = {5: dump(5, [1, 1], [1, 1]), 6: dump(6, [0, 1], [1, 1])}

    def ask(question: Dict[str, Any]) -> Dict[str, Any]:
        if question["epoch"] not in maps:
            raise NoReply(f"osd dump: there is no map for epoch {question['epoch']}")
        return maps[question["epoch"]]

    def status(epoch: int) -> Dict[str, Any]:
        return {"epoch": epoch, "num_osds": 2, "num_up_osds": 1, "num_in_osds": 2, "osd_up_since": 1}

    osds = state_sampler_maps.Osds(2)
    assert [change["down"] for change in osds.follow(status(6), ask)] == [[0]]
    assert osds.missed == "OSD maps up to 4 are trimmed" and osds.ids == [0, 1]
    with pytest.raises(NoReply):  # the monitor that is asked does not have it yet
        state_sampler_maps.Osds(None).follow(status(7), ask)


class BusyMonitor:
    """A source whose monitor does not answer for some maps at first; in map 2 osd.0 is down, in map 3 up again."""

    def __init__(self, busy: Collection[int], epoch: int = 1) -> None:
        self.busy, self.epoch = busy, epoch

    def mon(self, question: Dict[str, Any]) -> Any:
        if question["prefix"] == "osd dump":
            if question["epoch"] in self.busy:
                raise NoReply("busy")
            return dump(question["epoch"], [int(question["epoch"] != 2), 1], [1, 1])
        ups = {"num_osds": 2, "num_up_osds": 2, "num_in_osds": 2, "osd_up_since": self.epoch, "epoch": self.epoch}
        pgs = {"pgs_by_state": [{"state_name": "active+clean", "count": 9}], "num_pgs": 9}
        return {"osdmap": ups, "pgmap": pgs, "health": {"status": "HEALTH_OK", "checks": {}}}

    def mgr(self, question: Dict[str, Any], timeout: float = 5.0) -> Any:
        raise NoReply("paused")


@pytest.mark.parametrize("busy", [(2,), (4,)], ids=["no map is read", "some maps are read"])
def test_maps_that_were_not_told_are_told_by_the_next_agent(busy: Tuple[int, ...], tmp_path: Path) -> None:
    """The connection ends after a sample without the changes up to its map."""
    source = BusyMonitor(busy=())
    sampler = state_sampler_agent.StateSampler(source, 5.0, {"recovery": True}, None)
    first, _, _ = sampler.sample()
    source.epoch, source.busy = 4, busy
    second, changes, _ = sampler.sample()
    assert (first["unreported"], second["epoch"], second["unreported"], changes) == (0, 4, 3, [])
    lines = ({"version": 1, "t": 1.0}, *({**state, "map": []} for state in (first, second)))
    (tmp_path / "recovery.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments: List[str] = []

    def stream(nodes: List[str], line: str) -> Any:
        arguments[:] = shlex.split(line)
        raise OSError("no process")

    ceph: Any = SimpleNamespace(remote=SimpleNamespace(stream=stream), programs=SimpleNamespace(python="python3"))
    with ClusterWatch(ceph, "node0", tmp_path / "recovery.jsonl", {}):
        wait_for(lambda: arguments)
    last_epoch = json.loads(arguments[-1])[1]
    source.busy = ()
    state, changes, _ = state_sampler_agent.StateSampler(source, 5.0, {"recovery": True}, last_epoch).sample()
    assert [(change.get("down"), change.get("up")) for change in changes] == [([0], None), (None, [0])]
    assert state["unreported"] == 0


def test_a_flap_in_the_second_of_the_last_change_is_seen() -> None:
    """The status has whole seconds: it looks as it did before the OSD went down and came back."""
    states = {1: [1, 1], 2: [0, 1], 3: [1, 1], 4: [0, 1], 5: [1, 1], 6: [1, 1], 7: [1, 1]}
    stamps = {1: "00.0", 2: "30.1", 3: "30.3", 4: "30.6", 5: "30.9", 6: "31.5", 7: "33.0"}
    asked: List[int] = []

    def ask(question: Dict[str, Any]) -> Dict[str, Any]:
        asked.append(question["epoch"])
        modified = f"2026-11-21T13:56:{stamps[question['epoch']]}+0000"
        return {**dump(question["epoch"], states[question["epoch"]], [1, 1]), "modified": modified}

    osds = state_sampler_maps.Osds(None)
    changes = []
    for epoch, since in ((1, 0), (3, 30), (5, 30), (6, 30), (7, 30)):
        status = {"epoch": epoch, "num_osds": 2, "num_up_osds": 2, "num_in_osds": 2}
        changes += osds.follow({**status, "osd_up_since": 1795269360 + since, "osd_in_since": 0}, ask)
    assert [(change["epoch"], change.get("down"), change.get("up")) for change in changes] == [
        *((2, [0], None), (3, None, [0]), (4, [0], None), (5, None, [0])),
    ]
    assert asked == [1, 2, 3, 4, 5, 6], "once each, and none later than that second"
