"""Aging, Little's law and scaling, against key spaces and queues that are played through."""

from __future__ import annotations

import ast
import heapq
import math
import random
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

import cbt_plugins.models
from cbt_plugins.models import closed_loop
from cbt_plugins.models.capacity import growth, occupancy, requests_until, steady_occupancy


def test_steady_state() -> None:
    assert steady_occupancy(16, 14) == pytest.approx(0.5333, abs=1e-4)
    assert steady_occupancy(36, 5) == pytest.approx(0.8780, abs=1e-4)
    with pytest.raises(ValueError, match="written or deleted"):
        steady_occupancy(0, 0)


def played(start: float, keys: int, write: float, requests: int, seed: int) -> float:
    """Share of the keys that are there after so many requests on any key, in the mean of 200 ranges."""
    chance, total = random.Random(seed), 0.0
    for _ in range(200):
        there = [i < start * keys for i in range(keys)]
        for _ in range(requests):
            there[chance.randrange(keys)] = chance.random() < write
        total += sum(there) / keys
    return total / 200


@pytest.mark.parametrize(("start", "requests"), [(1.0, 50), (1.0, 300), (0.0, 120), (0.5, 1000)])
def test_occupancy_as_played(start: float, requests: int) -> None:
    """16 writes to 14 deletes on 100 keys; the mean of 200 has a standard deviation below 0.0036."""
    write = 16 / 30
    found = occupancy(start, 100, requests * write, requests * (1 - write))
    assert found == pytest.approx(played(start, 100, write, requests, seed=requests), abs=0.012)


def test_occupancy_in_expectation_is_exact() -> None:
    """Step by step: a key is there afterwards if it was written, or was there and was not hit."""
    keys, write, delete = 7, 0.6, 0.4
    share = 0.9
    for n in range(1, 30):
        share = share * (1 - 1 / keys) + write / keys
        assert occupancy(0.9, keys, write * n, delete * n) == pytest.approx(share)


def test_borders_of_a_range() -> None:
    assert occupancy(0.7, 10, 0, 0) == 0.7
    assert occupancy(1.0, 1, 0, 1) == 0.0
    assert occupancy(1.0, 1e6, 1e9, 0) == 1.0
    with pytest.raises(ValueError, match="1 key"):
        occupancy(1.0, 0, 1, 1)


def test_when_it_is_that_full() -> None:
    n = requests_until(1.0, 0.6, 400_000, 16, 14)
    assert occupancy(1.0, 400_000, n * 16 / 30, n * 14 / 30) == pytest.approx(0.6)
    assert n == pytest.approx(400_000 * math.log((1 - 16 / 30) / (0.6 - 16 / 30)), rel=1e-5)
    assert requests_until(1.0, 0.5, 1000, 16, 14) == math.inf  # it never gets below 53.3 %
    assert requests_until(0.5, 0.9, 1000, 16, 14) == math.inf
    assert requests_until(0.8, 0.8, 1000, 16, 14) == 0.0
    assert requests_until(1.0, 0.9, 1, 1, 1) == 1.0


def test_growth() -> None:
    assert growth({"GET": 45, "PUT": 35, "STAT": 15, "DELETE": 5}) == 30
    assert growth({"PUT": 10, "MULTIPART": 5, "DELETE": 40}) == -25


def played_loop(workers: int, servers: int, service: float, pause: float, seconds: float) -> Tuple[float, float]:
    """(throughput, mean latency) of a closed loop before so many servers, played through; service is exponential."""
    chance = random.Random(3)
    free = [0.0] * servers
    heapq.heapify(free)
    arrivals: List[Tuple[float, int]] = [(0.0, worker) for worker in range(workers)]
    heapq.heapify(arrivals)
    done, spent = 0, 0.0
    while True:
        arrived, worker = heapq.heappop(arrivals)
        if arrived > seconds:
            return done / seconds, spent / done
        begin = max(arrived, heapq.heappop(free))
        end = begin + chance.expovariate(1 / service)
        heapq.heappush(free, end)
        if end <= seconds:
            done, spent = done + 1, spent + end - arrived
        heapq.heappush(arrivals, (end + pause, worker))


@pytest.mark.parametrize(("workers", "servers", "pause"), [(1, 4, 0.0), (4, 4, 0.0), (20, 4, 0.0), (20, 4, 0.05)])
def test_a_closed_loop_keeps_the_law(workers: int, servers: int, pause: float) -> None:
    rate, latency = played_loop(workers, servers, 0.01, pause, 400.0)
    if not pause:
        assert closed_loop.in_flight([(rate, latency)]) == pytest.approx(workers, rel=0.01)
    assert closed_loop.throughput(workers, latency, pause) == pytest.approx(rate, rel=0.01)
    assert closed_loop.mean_latency(workers, rate, pause) == pytest.approx(latency, rel=0.03)
    highest, lowest = closed_loop.bounds(workers, 0.01, servers / 0.01)
    assert rate <= highest * 1.02
    if not pause:
        assert latency >= lowest * 0.98


def test_the_screens_of_the_study() -> None:
    screen = [(25.79, 0.61661), (4.29, 0.00595), (6.91, 0.57448), (6.05, 0.01671)]
    assert closed_loop.in_flight(screen) == pytest.approx(20, abs=0.002)
    assert closed_loop.deviation(closed_loop.in_flight(screen), 20) == pytest.approx(0, abs=1e-4)
    assert closed_loop.deviation(68.5, 68) == pytest.approx(0.00735, abs=1e-5)
    assert closed_loop.deviation(1.0, 0) is None


def test_latency_and_throughput_change_together() -> None:
    changes = [round(100 * closed_loop.latency_change(gain), 1) for gain in (0.55, 0.95, 0.77)]
    assert changes == [-35.5, -48.7, -43.5]
    assert closed_loop.throughput_change(-0.6) == pytest.approx(1.5)
    assert closed_loop.throughput_change(closed_loop.latency_change(0.3)) == pytest.approx(0.3)


def test_the_knee() -> None:
    assert closed_loop.knee(0.01, 400.0) == 4
    assert closed_loop.bounds(2, 0.01, 400.0) == (200.0, 0.01)
    assert closed_loop.bounds(4, 0.01, 400.0) == (400.0, 0.01)
    assert closed_loop.bounds(8, 0.01, 400.0) == (400.0, 0.02)


def test_workers_for_a_latency() -> None:
    sweep = [(8, 0.1), (16, 0.2), (1, 0.05), (32, 0.6), (64, 0.4)]
    assert closed_loop.size_workers(sweep, 0.5) == closed_loop.Sizing(16, 32, 0.8 * 16)
    assert closed_loop.size_workers(sweep, 0.01) == closed_loop.Sizing(None, 1, None)
    assert closed_loop.size_workers(sweep[:3], 0.5) == closed_loop.Sizing(16, None, 0.8 * 16)


def test_scaling() -> None:
    found = [round(100 * closed_loop.efficiency(gain, 3, 5), 1) for gain in (0.55, 0.95, 0.77, 0.67, 0.15)]
    assert found == [82.5, 142.5, 115.5, 100.5, 22.5]
    assert closed_loop.relative_change(80, 38) == pytest.approx(-0.525)
    with pytest.raises(ValueError, match="more nodes"):
        closed_loop.efficiency(0.1, 3, 3)


ALLOWED = ("__future__", "math", "re", "dataclasses", "typing")
#: what stands below them, and needs no library either
BELOW = ("cbt_plugins.formatting", "cbt_plugins.metrics", "cbt_plugins.plan", "cbt_plugins.s3_operations")


def test_models_stand_below_everything() -> None:
    """What runs phases uses them, and so does what reads archives: they need neither, and no library."""
    folder = Path(cbt_plugins.models.__file__).parent
    found: Dict[str, List[str]] = {}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            others = [n for n in names if n not in (*ALLOWED, *BELOW) and not n.startswith("cbt_plugins.models.")]
            found.setdefault(path.name, []).extend(others)
    assert found
    assert not {name: others for name, others in found.items() if others}
