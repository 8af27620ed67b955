"""Samples of a large cluster: a sample waits for a second of maps at most, and the mgr for a tenth of the time."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from cbt_plugins.cluster import state_sampler_agent, state_sampler_maps


class SlowCluster:
    """A source on a clock that only its replies and `pass_time` move. In each map another OSD is down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, map_seconds: float, mgr_seconds: float) -> None:
        self.now, self.epoch, self.osds = 1000.0, 1, 100
        self._map_seconds, self._mgr_seconds = map_seconds, mgr_seconds
        self.asked: List[str] = []
        self.limits: List[float] = []
        read = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now, strptime=time.strptime)
        for module in (state_sampler_agent, state_sampler_maps):
            monkeypatch.setattr(module, "time", read)

    def mon(self, question: Dict[str, Any]) -> Any:
        self.asked.append(question["prefix"])
        if question["prefix"] == "osd dump":
            self.now += self._map_seconds
            number = question["epoch"]
            osds = [{"osd": n, "up": int(n != number), "in": 1, "up_from": 1} for n in range(self.osds)]
            return {"epoch": number, "modified": f"2026-11-21T13:00:{number % 60:02}.0+0000", "osds": osds}
        up = {"num_osds": self.osds, "num_up_osds": self.osds - 1, "num_in_osds": self.osds}
        pgs = {"pgs_by_state": [{"state_name": "active+undersized", "count": 9}], "num_pgs": 9}
        health = {"status": "HEALTH_WARN", "checks": {}}
        return {"osdmap": {**up, "epoch": self.epoch, "osd_up_since": self.epoch}, "pgmap": pgs, "health": health}

    def mgr(self, question: Dict[str, Any], timeout: float = 5.0) -> Any:
        self.asked.append("pg dump")
        self.limits += [timeout] if question["dumpcontents"] == ["osds"] else []
        self.now += self._mgr_seconds
        sums = {f"num_{unit}_recovered": 0 for unit in ("objects", "bytes", "keys")}
        return {"pg_stats_sum": {"stat_sum": sums}, "osd_stats": []}


def test_maps_that_take_long_are_read_over_several_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SlowCluster(monkeypatch, map_seconds=0.3, mgr_seconds=0.0)
    sampler = state_sampler_agent.StateSampler(cluster, 5.0, {"recovery": True}, None)
    sampler.sample()
    cluster.epoch = 21
    epochs: List[int] = []
    samples = 0
    while len(epochs) < 20:
        cluster.asked.clear()
        state, changes, _ = sampler.sample()
        epochs += [change["epoch"] for change in changes]
        samples += 1
        assert cluster.asked.count("osd dump") <= 4
        assert state["settled"] is False
    assert epochs == list(range(2, 22)), "each map once, and in order"
    assert samples == 5
    cluster.asked.clear()
    sampler.sample()
    assert "osd dump" not in cluster.asked


def test_the_mgr_is_asked_for_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, most in ((0.01, 41), (2.0, 5)):
        cluster = SlowCluster(monkeypatch, map_seconds=0.0, mgr_seconds=seconds / 2)
        sampler = state_sampler_agent.StateSampler(cluster, 5.0, {"recovery": True}, None)
        begun = cluster.now
        while cluster.now < begun + 100:
            sampler.sample()
            cluster.now += 1.0
        looks = cluster.asked.count("pg dump") / 2
        assert most / 2 < looks <= most + 1


def test_the_reports_of_many_osds_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mgr takes 16 s for those of 10,000 OSDs."""
    cluster = SlowCluster(monkeypatch, map_seconds=0.0, mgr_seconds=0.0)
    cluster.osds = 10_000
    sampler = state_sampler_agent.StateSampler(cluster, 5.0, {"recovery": True}, None)
    while not cluster.limits:
        sampler.sample()
        cluster.now += 1.0
    assert cluster.limits == [55.0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("pg dump osds: no reply for 5 s", "pg dump osds: no reply for 5 s"),
        ("pg dump: Connection timed out", "pg dump osds: pg dump: Connection timed out"),
        (f"pg dump osds: a\n{'b' * 300}", f"pg dump osds: a {'b' * 184}"),
    ],
)
def test_a_sample_names_the_question_that_the_mgr_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    """Else it would stay unknown why the statistics of a large cluster are never new enough."""
    cluster = SlowCluster(monkeypatch, map_seconds=0.0, mgr_seconds=5.0)
    answer = cluster.mgr

    def refuse(question: Dict[str, Any], *limit: float) -> Any:
        reply = answer(question, *limit)
        if question["dumpcontents"] == ["osds"]:
            raise state_sampler_agent.NoReply(text)
        return reply

    sampler = state_sampler_agent.StateSampler(cluster, 5.0, {"recovery": True}, None)
    monkeypatch.setattr(cluster, "mgr", refuse)
    state, _, _ = sampler.sample()
    assert (state["mgr_error"], state["settled"]) == (error, False)
    monkeypatch.setattr(cluster, "mgr", answer)
    cluster.now += state_sampler_agent.MGR_PAUSE * 10
    state, _, _ = sampler.sample()
    assert state["mgr_error"] is None


def test_a_sample_without_the_newest_map_does_not_blame_the_mgr(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SlowCluster(monkeypatch, map_seconds=0.0, mgr_seconds=0.0)
    answer = cluster.mon

    def refuse(question: Dict[str, Any]) -> Any:
        if question["prefix"] == "osd dump":
            raise state_sampler_agent.NoReply("osd dump: no reply for 5 s")
        return answer(question)

    sampler = state_sampler_agent.StateSampler(cluster, 5.0, {"recovery": True}, None)
    monkeypatch.setattr(cluster, "mon", refuse)
    state, _, _ = sampler.sample()
    assert (state["mgr_error"], state["settled"]) == (None, False)
