"""Endpoints that stall beside others, and what a closed loop could not ask meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence

import archive_builder as made
import numpy as np
import pytest

from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.requests.endpoint_stalls import percentiles_corrected_for_omission
from cbt_plugins.results.summary_file import summarize

ASKED = {"duration": 28.0, "mix": {"GET": 100.0}}
#: 8 workers on each of two gateways, 25 ms a request
WORKERS, LATENCY = 16, 0.025


def loop(endpoint: int, begin: float, end: float, workers: int = WORKERS // 2) -> List[str]:
    """Requests without a pause from `begin` to `end`."""
    rows = []
    for i in range(round((end - begin) / LATENCY)):
        at = begin + (i + 1) * LATENCY
        rows += [made.row("GET", at, LATENCY, thread=w, endpoint=f"http://rgw{endpoint}:7480") for w in range(workers)]
    return rows


def answer(endpoint: int, end: float, seconds: float, workers: int = WORKERS // 2) -> List[str]:
    return [made.row("GET", end, seconds, thread=w, endpoint=f"http://rgw{endpoint}:7480") for w in range(workers)]


def phase_of(tmp_path: Path, rows: List[str], generator: str = "cbt-load", **more: Any) -> Any:
    """The phase, and its warnings by code."""
    directory = made.run(tmp_path, phases=["new"])
    rows = sorted(rows, key=lambda row: row.split("\t")[11])
    job = made.cbt_load("h", rows, workers=WORKERS, **more)
    if generator == "warp":
        job = made.job("h", "GET", rows, workers=WORKERS, **more)
    about: Dict[str, Any] = {"engine": generator, "asked": ASKED, "as_aggregates": True, "window": (0.0, 28.0)}
    made.phase(directory, 1, "new", [job], **about)
    summary = summarize(directory)
    return summary["phases"][0], {warning["code"]: warning["text"] for warning in summary["warnings"]}


@pytest.mark.parametrize("generator", ["cbt-load", "warp"])
def test_a_gateway_that_is_frozen_for_twenty_seconds(tmp_path: Path, generator: str) -> None:
    rows = loop(1, 0, 4) + answer(1, 24, 20.0) + loop(1, 24, 28) + loop(2, 0, 28)
    phase, warnings = phase_of(tmp_path, rows, generator)
    text = warnings["stalled-endpoint"]
    assert text.startswith("http://rgw1:7480 answered nothing in 19 of 28 seconds while others did; the longest ")
    assert "time is 19 s, from second 5 on; it answered 44 % of its share of the requests; closed loop" in text
    assert "stall" not in warnings and "littles-law" not in warnings
    # what was measured hides the outage; half of the requests of 20 s would have waited
    assert phase["total"]["latency_ms"]["p99"] == pytest.approx(25.0, rel=0.01)
    corrected = phase["corrected_ms"]
    assert corrected["p50"] == pytest.approx(25, rel=0.2) and 18_000 < corrected["p99"] < corrected["p999"] <= 20_000
    assert f"p99 is {corrected['p99']:,.1f} ms" in text


@pytest.mark.parametrize(
    "slow",
    [
        made.row("LIST", 24, 20.0, endpoint="http://rgw1:7480"),
        made.row("PUT", 12, 7.0, size=1 << 30, endpoint="http://rgw2:7480"),
    ],
    ids=["at the frozen one", "elsewhere"],
)
def test_one_slow_request_hides_no_stall(tmp_path: Path, slow: str) -> None:
    rows = loop(1, 0, 4) + answer(1, 24, 20.0) + loop(1, 24, 28) + loop(2, 0, 28)
    _, warnings = phase_of(tmp_path, [*rows, slow])
    assert "answered nothing in 19 of 28 seconds" in warnings["stalled-endpoint"]


def test_a_gateway_that_is_frozen_to_the_end(tmp_path: Path) -> None:
    """Its requests are in no row of the window: the time of the workers says how many they are."""
    phase, warnings = phase_of(tmp_path, loop(1, 0, 12) + loop(2, 0, 28) + answer(1, 32, 20.0))
    assert "answered nothing in 15 of 28 seconds" in warnings["stalled-endpoint"]
    assert "littles-law" not in warnings  # they are in flight
    assert phase["corrected_ms"]["p99"] > 14_000


def test_all_workers_may_wait_for_one_gateway(tmp_path: Path) -> None:
    rows = loop(1, 0, 8) + answer(1, 18, 10.0, WORKERS) + loop(1, 18, 28) + loop(2, 0, 8) + loop(2, 18, 28)
    _, warnings = phase_of(tmp_path, rows)
    assert warnings["stalled-endpoint"].startswith("http://rgw1:7480 ") and "rgw2" not in warnings["stalled-endpoint"]
    assert "; corrected by the expected interval (25.0 ms)" in warnings["stall"]


def test_a_cluster_that_stalls_is_no_stalled_endpoint(tmp_path: Path) -> None:
    rows = [row for e in (1, 2) for row in loop(e, 0, 8) + answer(e, 18, 10.0) + loop(e, 18, 28)]
    phase, warnings = phase_of(tmp_path, rows)
    assert "stalled-endpoint" not in warnings
    assert "corrected by the expected interval" in warnings["stall"] and phase["corrected_ms"]["p99"] > 9000


@pytest.mark.parametrize("endpoints", [(1,), (1, 2)])
@pytest.mark.parametrize("ends", [27.0, 30.0])
def test_a_cluster_that_stalls_to_the_end(tmp_path: Path, endpoints: Sequence[int], ends: float) -> None:
    """Whether the last requests end in the window or after it, they hide as many requests."""
    workers = WORKERS // len(endpoints)
    rows = [row for e in endpoints for row in loop(e, 0, 8, workers) + answer(e, ends, ends - 8, workers)]
    phase, _ = phase_of(tmp_path, rows)
    assert phase["total"]["latency_ms"]["p50"] == 25.0 and phase["corrected_ms"]["p99"] > 17_000


@pytest.mark.parametrize("hanging", [0, 1])
def test_workers_without_an_object_are_in_no_stall(tmp_path: Path, hanging: int) -> None:
    """The loop ran dry at second 14: at most one request is in flight at the end."""
    rows = loop(1, 0, 14, WORKERS) + answer(1, 30, 16.0, hanging)
    phase, _ = phase_of(tmp_path, rows)
    usual = 14 * WORKERS / LATENCY
    corrected = phase["corrected_ms"]
    assert corrected["n"] == pytest.approx(usual + hanging * 14 / LATENCY, rel=0.01)
    assert corrected["p50"] == pytest.approx(25.0, rel=0.01)
    assert (corrected["p99"] < 30) is (not hanging)


def test_half_of_the_share_is_little(tmp_path: Path) -> None:
    _, warnings = phase_of(tmp_path / "few", loop(1, 0, 28, workers=2) + loop(2, 0, 28, workers=14))
    assert warnings["stalled-endpoint"] == "http://rgw1:7480 answered 25 % of its share of the requests"
    phase, warnings = phase_of(tmp_path / "most", loop(1, 0, 28, workers=6) + loop(2, 0, 28, workers=10))
    assert warnings == {} and phase["corrected_ms"] is None


def test_few_requests_of_an_endpoint_are_chance(tmp_path: Path) -> None:
    rows = [made.row("GET", 4 * i + 1, 0.5, endpoint=f"http://rgw{e}:7480") for i in range(7) for e in (1, 2)]
    _, warnings = phase_of(tmp_path, rows)
    assert "stalled-endpoint" not in warnings


def test_the_correction_is_that_of_hdrhistogram() -> None:
    """Against its definition: for each value v, also v - I, v - 2 I, ... as long as they are at least I."""
    chance = np.random.default_rng(5)
    values = np.concatenate((chance.exponential(0.02, 2000), [2.5, 7.0, 20.0, 20.0])) * 1e9
    histogram = Histogram()
    histogram.record(values.astype(np.int64))
    interval = float(values[values < 3e9].mean())
    every = [*values, *(v - i * interval for v in values for i in range(1, int(v / interval)))]
    line = percentiles_corrected_for_omission(histogram)
    assert line is not None
    assert line["interval"] == pytest.approx(interval / 1e6, rel=1e-3)
    assert line["n"] == pytest.approx(len(every), rel=1e-3)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        assert line[name] == pytest.approx(float(np.quantile(every, q)) / 1e6, rel=0.01, abs=interval / 2e6), name
