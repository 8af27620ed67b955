"""A gateway that is frozen for 20 of 28 s: the summary names it, and says what the closed loop hides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cycles import S3, Cycle, hang
from running_lab import RunningLab

pytestmark = pytest.mark.lab


@pytest.mark.long
@pytest.mark.parametrize("engine", ["cbt-load", "warp"])
def test_a_gateway_that_is_frozen_for_twenty_of_28_seconds(lab: RunningLab, tmp_path: Path, engine: str) -> None:
    mix = {"hybrid": {"duration": "28s", "mix": {"get": 60, "put": 40}}, "name": "frozen"}
    phases = [{"fill": {"objects": 60}}, mix]
    section = {"s3": S3, "engine": engine, "workers": 8, "size": "4KiB", "cycle": {"phases": phases}}
    cycle = Cycle(lab, tmp_path, warp=section)
    cycle.start()

    def all_work() -> bool:
        rows = cycle.job_rows("frozen")
        return len({line["node"] for line in cycle.heartbeats("frozen")}) == 2 and min(rows.values()) > 0

    cycle.await_moment(all_work, "requests of every job")
    begin = max(line["t"] for line in cycle.heartbeats("frozen"))
    recover = hang(lab)
    try:
        moment = lambda: max(line["t"] for line in cycle.heartbeats("frozen")) >= begin + 20  # noqa: E731
        cycle.await_moment(moment, "20 s of the frozen gateway")
    finally:
        recover()
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]

    summary = cycle.summary()
    (text,) = [its["text"] for its in summary["warnings"] if its["code"] == "stalled-endpoint"]
    stall = re.match(r"http://rgw1:7480 answered nothing in (\d+) of 2\d seconds (while|and)", text)
    assert stall and int(stall[1]) >= 10, text
    (phase,) = [phase for phase in summary["phases"] if phase["name"] == "frozen"]
    # half of the requests would have waited for up to 20 s: the measured percentiles do not know them
    measured, corrected = phase["total"]["latency_ms"], phase["corrected_ms"]
    assert measured["p90"] < 5000 < corrected["p90"] < corrected["p99"] <= corrected["p999"], (measured, corrected)
    assert f"p99 is {corrected['p99']:,.1f} ms" in text
