"""Change points over many runs."""

from __future__ import annotations

import math
from typing import List

import numpy as np
import pytest

from cbt_plugins.compare.statistics import alpha_of_budget, change_point_search, change_points


def runs(seed: int, *levels: float, length: int = 15) -> np.ndarray:
    means = np.repeat(levels, length)
    return np.asarray(means * (1 + 0.01 * np.random.default_rng(seed).normal(size=len(means))))


def test_steps_are_found_where_they_are_with_their_levels() -> None:
    values = runs(1, 100, 95, 105)
    found = change_points(values)
    assert [point.index for point in found] == [15, 30]
    assert found[0].before == np.median(values[:15])
    assert found[0].after == found[1].before == np.median(values[15:30])
    assert found[1].after == np.median(values[30:])
    assert all(0 < point.p < 0.01 for point in found)


def test_the_same_seed_finds_the_same() -> None:
    values = runs(2, 100, 98)
    assert change_points(values, seed=3) == change_points(values, seed=3)


def test_noise_has_no_change_points() -> None:
    assert sum(bool(change_points(runs(seed, 100, length=30))) for seed in range(60)) <= 3  # of 60: 5 %


def test_single_wild_runs_are_no_change() -> None:
    values = runs(4, 100, length=30)
    values[[7, 19]] = 20, 300
    assert change_points(values) == []
    values[15:] *= 0.95
    assert [point.index for point in change_points(values)] == [15]


def test_a_cut_that_does_not_hold_between_its_neighbours_is_dropped() -> None:
    chance = np.random.default_rng(30)
    values = np.concatenate([chance.normal(level, 1, n) for level, n in ((100, 12), (98, 4), (96, 4), (100, 12))])
    # the cut at 17 was one of many runs; between 12 and 20 there are 5 and 3, and their ranks are mixed
    assert [point.index for point in change_points(values, alpha=0.05)] == [12, 20]


def test_runs_without_a_value_are_passed_over() -> None:
    values = runs(5, 100, 90)
    values[[3, 14]] = math.nan
    assert [point.index for point in change_points(values)] == [15]


def test_too_few_runs_for_any() -> None:
    assert change_points([]) == []
    assert change_points([1.0, 1.0, 1.0, 2.0, 2.0]) == []
    assert change_points([5.0] * 40) == []
    with pytest.raises(ValueError, match="alpha"):
        change_points([1.0], alpha=0)


def test_the_newest_runs_are_judged_too() -> None:
    values = np.concatenate([runs(6, 100, length=25), runs(7, 93, length=4)])
    assert [point.index for point in change_points(values)] == [25]


@pytest.mark.parametrize("length", [3, 4, 5])
def test_short_dips_are_found(length: int) -> None:
    """Both ends of a fall of 10 % that lasted 3 to 5 of 60 runs."""
    found = 0
    for seed in range(10):
        values = 100 + 2 * np.random.default_rng(seed).normal(size=60)
        values[30 : 30 + length] *= 0.9
        cuts = [point.index for point in change_points(values)]
        found += all(any(abs(cut - wanted) <= 2 for cut in cuts) for wanted in (30, 30 + length))
    assert found >= 6


def test_runs_that_went_wrong_are_no_dip() -> None:
    chance = np.random.default_rng(5)
    for _ in range(20):
        values = (100 + 2 * chance.normal(size=60)) * np.where(chance.random(60) < 0.1, 0.8, 1)
        assert change_points(values) == []


def test_a_budget_over_a_year_needs_a_smaller_p_and_finds_a_change_soon() -> None:
    alpha = alpha_of_budget(1, 365.25)
    assert alpha == pytest.approx(0.0027, rel=0.02)
    assert alpha_of_budget(1000, 12) == 0.05
    values = np.concatenate([runs(6, 100, length=7), runs(7, 90, length=5)])
    (point,) = change_points(values, alpha)  # no order of 12 runs has a p as small: Student's t helps
    assert point.index == 7 and 0 < point.p < alpha


@pytest.mark.parametrize(
    "counts",
    [
        [0] * 5 + [1] * 3,  # in 4 of 56 orders the ones stand together
        [0] * 12 + [1] * 3 + [0] * 12,
        [0] * 10 + [1, 0, 0, 1, 1, 2, 2, 0, 0, 0],
        [0] * 10 + [1, 0, 0, 1, 1, 2, 2, 0, 0, 0, 1, 0, 0],
    ],
)
def test_rare_counts_side_by_side_are_no_change(counts: List[float]) -> None:
    """Student's t is far too sure of them, and 499 orders do not show a p as small as 20 rows need."""
    assert change_points(counts, alpha_of_budget(1, 365.25) / 20) == []


def test_counts_that_rise_are_found() -> None:
    assert [point.index for point in change_points([0.0] * 9 + [4, 5, 6] * 3, alpha_of_budget(1, 365.25))] == [9]
    chance = np.random.default_rng(3)
    counts = np.concatenate([chance.poisson(0.2, 30), chance.poisson(3, 15)])
    (point,) = change_points(counts, alpha_of_budget(1, 365.25) / 20)
    assert point.index == pytest.approx(30, abs=1)


def test_new_runs_move_no_change_of_long_ago_and_cost_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = np.random.default_rng(0).normal(100, 1, 800)
    for at, step in ((200, 6), (410, -6), (620, 6), (650, -6)):
        runs[at:] += step
    looks = []
    cuts_of_window = change_point_search.cuts_of_window
    monkeypatch.setattr(change_point_search, "cuts_of_window", lambda *about: looks.append(1) or cuts_of_window(*about))
    settled: change_point_search.Settled = {}
    before = change_points(runs[:799], 1e-4, settled=settled)
    assert [point.index for point in before] == pytest.approx([200, 410, 620, 650], abs=1)
    first_looks = len(looks)
    after = change_points(runs, 1e-4, settled=settled)
    assert len(looks) == first_looks + 1 and [point.index for point in after] == [point.index for point in before]
    assert change_points(runs, 1e-4) == after
    assert change_points(runs, 1e-5, settled=settled) == change_points(runs, 1e-5)
