"""Bins of a window, and the gaps in it."""

from __future__ import annotations

import pickle
import random
from typing import List, Sequence, Tuple

import numpy as np
import pytest

from cbt_plugins.results.histogram import buckets
from cbt_plugins.results.requests.time_series import Seconds, TimeGrid, Timeline


def latencies(timeline: Timeline, block: int, values: Sequence[int], op: str = "GET") -> None:
    """Add latencies of one block, as a frame's tables have them."""
    numbers, counts = np.unique(buckets(np.array(values)), return_counts=True)
    number, inside = np.array([timeline.number(op)]), np.array([True])
    timeline.add_maxima(np.array([block]), number, np.array([max(values)]))
    timeline.add_latencies(np.array([block]), number, inside, np.array([len(numbers)]), numbers, counts)


def rows(timeline: Timeline, ends: Sequence[Tuple[int, float, float]], op: str = "GET") -> None:
    """Add seconds with a success each: (second, its first success, its last one)."""
    second = np.array([s for s, _, _ in ends])
    columns = {name: np.ones(len(ends), np.int64) for name in ("n", "failed", "objects", "bytes", "total", "max")}
    columns["first"] = np.array([round(first * 1e9) for _, first, _ in ends])
    columns["last"] = np.array([round(last * 1e9) for _, _, last in ends])
    timeline.add_seconds(second, np.full(len(ends), timeline.number(op)), columns)


def seconds(grid: TimeGrid, *ends: Tuple[int, float, float]) -> Seconds:
    timeline = Timeline(grid)
    rows(timeline, ends)
    return timeline.all_ops()


def test_bins_cover_the_window_exactly() -> None:
    grid = TimeGrid.of(100.25, 110.5, 1, everything=True)
    assert (grid.first, grid.step, grid.bins) == (100, 1, 11)
    assert grid.seconds_of_bins()[[0, 1, 10]].tolist() == [0.75, 1, 0.5]
    assert grid.seconds_of_bins().sum() == grid.length


def test_long_windows_get_wider_bins() -> None:
    grid = TimeGrid.of(0, 38 * 3600, 60)
    assert (grid.step, grid.bins, grid.block_step, grid.block_bins) == (19, 7200, 60, 2280)
    assert grid.seconds_of_bins().sum() == pytest.approx(grid.length)
    fine = TimeGrid.of(0, 38 * 3600, 1)
    assert (fine.step, fine.bins, fine.block_step, fine.block_bins) == (19, 7200, 19, 7200)
    assert TimeGrid.of(0, 20 * 86400, 60).block_step == 240


def test_a_block_is_in_the_window_as_a_whole() -> None:
    grid = TimeGrid.of(130, 290, 1)
    assert grid.holds(np.array([60, 120, 180, 240, 300]), 60).tolist() == [False, False, True, False, False]
    assert grid.holds(np.array([129, 130, 289, 290]), 1).tolist() == [False, True, True, False]


def test_no_window_has_no_bins() -> None:
    grid = TimeGrid.of(0, 0, 1)
    assert (grid.bins, grid.seconds, grid.block_bins, grid.length) == (0, 0, 0, 0)


def test_quantiles_of_a_bin_are_within_a_percent() -> None:
    draw = random.Random(5)
    timeline = Timeline(TimeGrid.of(0, 180, 60))
    everything: List[int] = []
    for _ in range(300):
        values = [int(draw.lognormvariate(16, 1)) for _ in range(40)]
        everything += values
        latencies(timeline, 60, values)
    everything.sort()
    wanted = (0.01, 0.5, 0.9, 0.99)
    for q, found in zip(wanted, timeline.blocks["GET"].quantiles(*wanted)):
        assert found == [None, pytest.approx(everything[int(q * len(everything)) - 1], rel=0.008), None]
    assert timeline.blocks["GET"].quantiles(1)[0] == [None, everything[-1], None]


def test_timelines_of_other_processes_are_merged() -> None:
    one, other, both = (Timeline(TimeGrid.of(0, 10, 1)) for _ in range(3))
    for timeline in (one, both):
        latencies(timeline, 0, [1000, 2000])
        rows(timeline, [(2, 2.1, 2.2)])
    for timeline in (other, both):
        latencies(timeline, 0, [9000])
        latencies(timeline, 7, [4000, 0])
        latencies(timeline, 8, [4000], "PUT")
        rows(timeline, [(2, 2.0, 2.9), (8, 8.5, 8.5)])
        rows(timeline, [(9, 9.5, 9.5)], "PUT")
    one.merge(pickle.loads(pickle.dumps(other)))
    for op in ("GET", "PUT"):
        assert one.blocks[op].quantiles(0.3, 0.6, 1) == both.blocks[op].quantiles(0.3, 0.6, 1)
        for name in one.seconds[op].sums:
            assert one.seconds[op].sums[name].tolist() == both.seconds[op].sums[name].tolist()
        assert one.seconds[op].longest_gap() == both.seconds[op].longest_gap()
    assert one.seconds["GET"].longest_gap() == (pytest.approx(5.6), 2.9)


def test_the_longest_gap_counts_the_borders_and_what_is_between() -> None:
    grid = TimeGrid.of(100.5, 120, 1, everything=True)
    assert Seconds(grid).longest_gap() == (19.5, 100.5)
    two = (103, 103.25, 103.75), (110, 110.5, 110.5)
    assert seconds(grid, *two).longest_gap() == (9.5, 110.5)
    three = seconds(grid, *two, (115, 115.0, 115.5))
    assert three.longest_gap() == (6.75, 103.75)
    assert three.silent() == [s for s in range(101, 120) if s not in (103, 110, 115)]
