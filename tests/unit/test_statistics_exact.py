"""Exact tests of few runs, against scipy and against counting every case."""

from __future__ import annotations

import itertools
from typing import List

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cbt_plugins.compare.statistics import compare_differences
from cbt_plugins.compare.statistics import ranks as exact

DISTINCT = st.lists(st.integers(-1000, 1000), min_size=2, max_size=14, unique=True)
TIED = st.lists(st.integers(0, 4), min_size=2, max_size=5)


@settings(deadline=None, max_examples=60)
@given(DISTINCT, st.integers(1, 13))
def test_rank_sum_p_is_scipys_without_ties(values: List[int], cut: int) -> None:
    first, second = np.array(values[: cut % len(values) or 1], float), np.array(values[cut % len(values) or 1 :], float)
    wanted = stats.mannwhitneyu(first, second, alternative="two-sided", method="exact").pvalue
    assert exact.rank_sum_p(first, second) == pytest.approx(wanted)


@settings(deadline=None, max_examples=60)
@given(TIED, TIED)
def test_rank_sum_p_counts_all_deals_of_tied_ranks(first: List[int], second: List[int]) -> None:
    ranks = stats.rankdata(first + second)
    n, mean = len(first), len(first) * ranks.mean()
    sums = [sum(ranks[list(chosen)]) for chosen in itertools.combinations(range(len(ranks)), n)]
    seen = abs(ranks[:n].sum() - mean)
    wanted = np.mean([abs(total - mean) >= seen - 1e-9 for total in sums])
    assert exact.rank_sum_p(np.array(first, float), np.array(second, float)) == pytest.approx(wanted)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
def test_signed_rank_p_counts_all_signs(differences: List[int]) -> None:
    left = np.array([difference for difference in differences if difference], float)
    ranks = stats.rankdata(np.abs(left)) if len(left) else left
    seen = abs(float((np.sign(left) * ranks).sum()))
    signs = itertools.product((-1, 1), repeat=len(left))
    wanted = np.mean([abs(float(np.dot(flips, ranks))) >= seen - 1e-9 for flips in signs])
    assert exact.signed_rank_p(np.array(differences, float)) == pytest.approx(wanted)


def test_signed_rank_p_is_scipys_without_ties() -> None:
    differences = np.random.default_rng(4).normal(0.5, 1, 12)
    assert exact.signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(4, 8), st.integers(4, 8), st.sampled_from([0.05, 0.1]))
def test_the_interval_of_a_shift_is_the_inverse_of_the_test(seed: int, n: int, m: int, alpha: float) -> None:
    chance = np.random.default_rng(seed)
    first, second = chance.normal(size=n), chance.normal(1.5, 1, m)
    value, interval = exact.shift_of_samples(first, second, alpha)
    assert interval is not None
    assert interval[0] <= value <= interval[1]
    assert (interval[0] > 0 or interval[1] < 0) == (exact.rank_sum_p(first, second) <= alpha)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(6, 12), st.sampled_from([0.05, 0.1]))
def test_the_interval_of_pairs_is_the_inverse_of_the_test(seed: int, n: int, alpha: float) -> None:
    differences = np.random.default_rng(seed).normal(0.8, 1, n)
    value, interval = exact.shift_of_pairs(differences, alpha)
    assert interval is not None
    assert interval[0] <= value <= interval[1]
    assert (interval[0] > 0 or interval[1] < 0) == (exact.signed_rank_p(differences) <= alpha)


def test_an_interval_that_cannot_be_is_none() -> None:
    assert exact.shift_of_samples(np.arange(3.0), np.arange(3.0), 0.05)[1] is None
    assert exact.shift_of_samples(np.arange(3.0), np.arange(3.0), 0.1)[1] == (-2, 2)
    assert exact.shift_of_pairs(np.arange(5.0), 0.05)[1] is None


def test_the_estimates_of_hodges_and_lehmann() -> None:
    assert exact.shift_of_samples(np.array([1.0, 2, 3]), np.array([11.0, 13, 100]), 0.1)[0] == 11
    assert exact.shift_of_pairs(np.array([1.0, 2, 100]), 0.1)[0] == pytest.approx((2 + 50.5) / 2)


def test_many_values_are_not_counted_but_agree_with_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    first, second = chance.normal(0, 1, 45), chance.normal(0.4, 1, 50)
    counted = (
        exact.rank_sum_p(first, second),
        exact.signed_rank_p(second),
        exact.shift_of_samples(first, second, 0.05)[1],
        exact.shift_of_pairs(second, 0.05)[1],
    )
    monkeypatch.setattr(exact, "COUNTED", 0)
    assert exact.rank_sum_p(first, second) == pytest.approx(counted[0], rel=0.05)
    assert exact.signed_rank_p(second) == pytest.approx(counted[1], rel=0.1)
    assert exact.shift_of_samples(first, second, 0.05)[1] == pytest.approx(counted[2], abs=0.03)
    assert exact.shift_of_pairs(second, 0.05)[1] == pytest.approx(counted[3], abs=0.03)


@pytest.mark.parametrize("digits", [0, 1, 9], ids=["many-ties", "ties", "no-ties"])
def test_the_p_of_many_values_is_scipys(digits: int) -> None:
    chance = np.random.default_rng(5)
    first, second = (chance.normal(shift, 1, n).round(digits) for shift, n in ((0, 90), (0.2, 120)))
    wanted = stats.mannwhitneyu(first, second, alternative="two-sided", method="asymptotic").pvalue
    assert exact.rank_sum_p(first, second) == pytest.approx(wanted)
    differences = chance.normal(0.15, 1, 400).round(digits)
    left = differences[differences != 0]
    assert len(left) > exact.COUNTED
    assert exact.signed_rank_p(differences) == pytest.approx(stats.wilcoxon(left, correction=True).pvalue)
    assert exact.rank_sum_p(np.ones(60), np.ones(60)) == 1


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_floors_are_the_p_of_runs_that_are_all_apart(n: int) -> None:
    low, high = np.arange(n, dtype=float), 100 + np.arange(n, dtype=float)
    assert exact.rank_sum_p(low, high) == pytest.approx(exact.rank_sum_floor(n, n))
    assert exact.signed_rank_p(high) == pytest.approx(exact.signed_rank_floor(n))


def test_equal_runs_do_not_make_the_interval_of_the_others_short() -> None:
    """The interval that is shown is no shorter than the inner one, and the exact test decides about 0."""
    quiet, long = [0.0] * 8, [0.0] * 7 + [300.0]
    told = compare_differences(quiet, long)
    assert told.inner_high is not None and told.change_high is not None and told.change_high > told.inner_high > 50
    assert (told.change_low or 0.0) < (told.inner_low or 0.0) < 0
    worse = compare_differences(quiet, [3.0] * 7 + [300.0])
    assert worse.p is not None and worse.p < 0.001 and worse.change_low == 3 and (worse.change_high or 0.0) > 50
    better = compare_differences([3.0] * 7 + [300.0], quiet)
    assert better.change_high == -3 and (better.change_low or 0.0) < -50
