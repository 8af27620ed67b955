"""Bins of a window, and the gaps in it."""

from __future__ import annotations

import random

import pytest

from cbt_plugins.analysis.histogram import Histogram
from cbt_plugins.analysis.series import Gaps, Grid, Series


def put(series: Series, second: int, values: list[int]) -> None:
    its = Histogram()
    its.record(values)
    series.add(second, its.counts, its.n, 0, its.total, its.max)


def test_bins_cover_the_window_exactly() -> None:
    grid = Grid(100.25, 110.5)
    assert (grid.first, grid.step, grid.bins) == (100, 1, 11)
    assert [grid.span(i) for i in (0, 1, 10)] == [0.75, 1, 0.5]
    assert sum(map(grid.span, range(grid.bins))) == grid.length
    assert [grid.bin(s) for s in (99, 100, 110, 111)] == [0, 0, 10, 10]


def test_long_windows_get_wider_bins() -> None:
    grid = Grid(0.5, 38 * 3600 + 0.25)
    assert grid.step == 20
    assert grid.bins <= 7200
    assert sum(map(grid.span, range(grid.bins))) == pytest.approx(grid.length)
    assert grid.bin(38 * 3600) == grid.bins - 1


def test_no_window_has_no_bins() -> None:
    assert (Grid(0, 0).bins, Grid(0, 0).seconds) == (0, 0)


def test_quantiles_of_a_bin_are_within_a_percent() -> None:
    draw = random.Random(5)
    series = Series(Grid(0, 3))
    everything = []
    for _ in range(300):  # many small additions, so that the packed histogram is put together in between
        values = [int(draw.lognormvariate(16, 1)) for _ in range(40)]
        everything += values
        put(series, 1, values)
    everything.sort()
    for q in (0.01, 0.5, 0.9, 0.99):
        assert series.quantile(1, q) == pytest.approx(everything[int(q * len(everything)) - 1], rel=0.008)
    assert series.quantile(1, 1) == everything[-1]
    assert series.quantile(0, 0.5) is None


def test_series_merge() -> None:
    one, other, both = (Series(Grid(0, 2)) for _ in range(3))
    for series in (one, both):
        put(series, 0, [1000, 2000])
    for series in (other, both):
        put(series, 0, [9000])
        put(series, 1, [4000])
        series.fail(1, 2)
    one.merge(other)
    assert (list(one.n), list(one.total), list(one.max)) == ([3, 1], [12000, 4000], [9000, 4000])
    assert list(one.failed) == [0, 2]
    assert [one.quantile(0, q) for q in (0.3, 0.6, 1)] == [both.quantile(0, q) for q in (0.3, 0.6, 1)]


def test_the_longest_gap_counts_the_borders_and_what_is_between() -> None:
    gaps = Gaps(Grid(100.5, 120))
    assert gaps.longest() == (19.5, 100.5)
    gaps.add(103, 103.25, 103.75)
    gaps.add(110, 110.5, 110.5)
    assert gaps.longest() == (9.5, 110.5)
    gaps.add(115, 115.0, 115.5)
    assert gaps.longest() == (6.75, 103.75)
    assert gaps.silent() == [s for s in range(101, 120) if s not in (103, 110, 115)]


def test_gaps_merge() -> None:
    one, other = Gaps(Grid(0, 10)), Gaps(Grid(0, 10))
    one.add(2, 2.1, 2.2)
    other.add(2, 2.0, 2.9)
    other.add(8, 8.5, 8.5)
    one.merge(other)
    assert one.longest() == (pytest.approx(5.6), 2.9)
