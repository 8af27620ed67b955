"""Estimates and comparisons of independent runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, List, Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cbt_plugins.compare.statistics import Comparison, Estimate, compare_differences, compare_runs, estimate
from cbt_plugins.compare.statistics.student import KNOWN_SCATTER
from cbt_plugins.compare.statistics.verdicts import Scatter

RUNS = st.lists(st.floats(1, 1000), min_size=3, max_size=4, unique=True)
A, B = [100.0, 103.0, 98.0, 101.0, 99.5], [90.0, 92.0, 91.0, 89.0, 90.5]


def codes(of: Estimate | Comparison) -> List[str]:
    return [warning.code for warning in of.warnings]


def test_an_estimate_is_the_median_between_order_statistics() -> None:
    found = estimate([5, 1, 4, 2, 3, 6])
    assert (found.value, found.low, found.high, found.n) == (3.5, 1, 6, 6)  # covers 1 - 2 / 2**6 = 96.9 %
    assert not found.warnings
    assert estimate(range(1, 10)).low == 2  # scipy.stats.binom.cdf(1, 9, 0.5) = 0.0195


def test_three_to_five_runs_have_an_interval_that_takes_logarithms_as_normal() -> None:
    values = [100.0, 110.0, 104.0]
    found = estimate(values)
    logs = np.log(values)
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert codes(found) == ["assumes-normal"]


def test_one_and_two_runs_have_no_interval() -> None:
    for values in ([7.0], [7.0, 8.0]):
        found = estimate(values)
        assert (found.low, found.high) == (None, None)
        assert codes(found) == ["too-few-runs"]


def test_runs_without_a_value_are_left_out_and_named() -> None:
    found = estimate([1.0, math.nan, 2.0, 3.0])
    assert (found.value, found.n) == (2.0, 3)
    assert "missing" in codes(found)
    with pytest.raises(ValueError, match="no run"):
        estimate([math.nan])
    assert "missing" in codes(compare_runs([*A, math.nan], B))
    assert compare_runs([*A, math.nan], B).p == compare_runs(A, B).p


def test_two_runs_cannot_tell() -> None:
    found = compare_runs([1.0, 1.1], [2.0, 2.1])
    assert (found.p, found.change_low, found.within, found.method) == (None, None, None, "none")
    assert found.change == pytest.approx(math.sqrt(2.0 * 2.1 / 1.1) - 1)
    assert codes(found) == ["too-few-runs"]


@settings(deadline=None, max_examples=50)
@given(RUNS, RUNS)
def test_three_and_four_runs_are_compared_with_welchs_t_on_logarithms(base: List[float], new: List[float]) -> None:
    x, y = np.log(base), np.log(new)
    if min(x.std(), y.std()) < 1e-6:
        return
    found = compare_runs(base, new)
    assert found.method == "Welch's t"
    assert "assumes-normal" in codes(found)
    assert found.p == pytest.approx(stats.ttest_ind(x, y, equal_var=False).pvalue, rel=1e-6, abs=1e-12)
    assert found.change == pytest.approx(math.exp(y.mean() - x.mean()) - 1)
    assert found.change_low is not None
    assert found.change_high is not None
    assert (found.change_low > 0 or found.change_high < 0) == (found.p < 0.05)


def test_five_runs_are_compared_with_the_exact_test() -> None:
    found = compare_runs(A, B)
    assert found.method == "exact rank sum"
    assert found.p == pytest.approx(stats.mannwhitneyu(A, B, method="exact").pvalue)
    assert found.floor == found.p
    assert found.second == pytest.approx(stats.ttest_ind(np.log(A), np.log(B), equal_var=False).pvalue)
    ratios = np.log(np.divide.outer(B, A))
    assert found.change == pytest.approx(math.exp(np.median(ratios)) - 1)
    assert not found.warnings


def test_one_wild_run_does_not_hide_a_change_from_the_exact_test() -> None:
    base = [100.0, 103.0, 98.0, 101.0, 99.5, 100.5, 99.0, 20.0]
    new = [90.0, 92.0, 91.0, 89.0, 90.5, 91.5, 90.2, 90.1]
    found = compare_runs(base, new)
    assert found.p is not None
    assert found.second is not None
    assert found.p < 0.05 < found.second
    assert "tests-disagree" in codes(found)
    assert found.change == pytest.approx(-0.09, abs=0.02)


def scattered(sizes: Tuple[int, int], scatters: Tuple[float, float], times: Any = None) -> int:
    """Return how many of 200 comparisons without a change find one."""
    found, chance = 0, np.random.default_rng(1)
    for _ in range(200):
        base, new = (100 * np.exp(scatter * chance.normal(size=n)) for n, scatter in zip(sizes, scatters))
        its = compare_runs(base, new, times=times)
        found += its.p is not None and its.p < 0.05
    return found


@pytest.mark.parametrize("sizes", [(30, 5), (60, 3), (10, 3), (20, 10)])
def test_few_runs_that_scatter_more_than_many_are_no_change(sizes: Tuple[int, int]) -> None:
    """At most 5 of 100, and what 200 of them resolve."""
    assert scattered(sizes, (0.01, 0.05)) <= 18
    assert scattered(sizes, (0.02, 0.02)) <= 18


def test_blocks_with_few_runs_that_scatter_more_are_no_change() -> None:
    times = [i for i in range(15) if i % 3 < 2], list(range(2, 15, 3))
    assert scattered((10, 5), (0.01, 0.05), times) <= 18


def test_of_unequal_sides_both_tests_must_agree() -> None:
    base, new = [*A, *(101.5, 99.0, 100.5)], B
    x, y = np.log(base), np.log(new)
    found = compare_runs(base, new)
    exact, t = stats.mannwhitneyu(x, y, method="exact").pvalue, stats.ttest_ind(x, y, equal_var=False)
    assert found.method == "exact rank sum and Welch's t"
    assert (found.p, found.second) == pytest.approx((max(exact, t.pvalue), t.pvalue))
    low, high = (-its for its in t.confidence_interval()[::-1])
    differences = np.sort(np.subtract.outer(y, x), axis=None)
    assert found.change_low is not None and math.log1p(found.change_low) <= low + 1e-12
    assert found.change_high is not None and math.log1p(found.change_high) >= high - 1e-12
    assert found.change == pytest.approx(math.exp(np.median(differences)) - 1)
    wild = compare_runs([*base, 20.0], new)
    assert wild.p is not None and wild.p > 0.05 and "tests-disagree" in codes(wild)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("few", [1, 2])
def test_many_runs_do_not_tell_how_one_or_two_scatter(few: int, interleaved: bool) -> None:
    """Of two runs that scatter five times as much 0.24 would be better or worse than twelve, without a change."""
    many = np.linspace(100, 104, 80)
    times = (list(range(80)), [20.5, 60.5][:few]) if interleaved else None
    found = compare_runs(many, [90.0, 91.0][:few], times=times)
    assert (found.method, found.p, found.change_low) == ("none", None, None) and "too-few-runs" in codes(found)
    known = compare_runs(many, [90.0, 91.0][:few], times=times, scatter=Scatter(0.01, 79))
    assert known.method == KNOWN_SCATTER and known.p is not None and known.p < 0.05


def test_the_interval_within_is_narrower_and_two_sided() -> None:
    for base, new, paired in ((A, B, False), (A, B, True), ([*A, *B], [*B, *A], True)):
        narrower = compare_runs(base, new, paired, confidence=0.9)
        assert narrower.change_low is not None
        assert narrower.change_high is not None
        ends = max(abs(narrower.change_low), abs(narrower.change_high))
        assert compare_runs(base, new, paired).within == pytest.approx(ends)
    t = compare_runs(A[:3], B[:3])
    x, y = np.log(A[:3]), np.log(B[:3])
    error = math.hypot(stats.sem(x), stats.sem(y))
    freedom = error**4 / (stats.sem(x) ** 4 / 2 + stats.sem(y) ** 4 / 2)
    low = y.mean() - x.mean() - stats.t.ppf(0.95, freedom) * error
    assert t.within == pytest.approx(1 - math.exp(low))


@pytest.mark.parametrize(("pairs", "method"), [(5, "paired t"), (6, "paired t"), (7, "exact signed ranks")])
def test_pairs_cancel_what_drifts(pairs: int, method: str) -> None:
    drift = np.linspace(1, 3, pairs)
    base = 100 * drift + np.cos(np.arange(pairs))
    new = 95 * drift + np.sin(np.arange(pairs))
    alone, paired = compare_runs(base, new), compare_runs(base, new, paired=True)
    assert alone.p is not None
    assert paired.p is not None
    assert paired.p < 0.05 < alone.p
    assert paired.method == method
    assert paired.change == pytest.approx(-0.05, abs=0.01)
    assert "drift" in codes(alone)
    assert "drift" not in codes(paired)


def test_a_pair_with_a_missing_half_is_left_out() -> None:
    found = compare_runs([1.0, math.nan, 3.0, 4.0], [1.1, 2.0, 3.5, 4.2], paired=True)
    assert found.p == compare_runs([1.0, 3.0, 4.0], [1.1, 3.5, 4.2], paired=True).p
    with pytest.raises(ValueError, match="pairs"):
        compare_runs([1.0], [1.0, 2.0], paired=True)
    with pytest.raises(ValueError, match="no pair"):
        compare_runs([1.0, math.nan], [math.nan, 2.0], paired=True)


@pytest.mark.parametrize("runs", [3, 6])
@pytest.mark.parametrize("paired", [True, False])
def test_runs_that_are_all_the_same_are_the_same(runs: int, paired: bool) -> None:
    found = compare_runs([0.98] * runs, [0.98] * runs, paired)
    assert (found.p, found.change, found.within) == (1, 0, 0)
    assert "no-scatter" in codes(found)


def test_constants_that_differ_cannot_tell_with_a_t_test() -> None:
    found = compare_runs([1.0] * 3, [0.9] * 3)
    assert (found.p, found.change_low) == (None, None)
    assert "no-scatter" in codes(found)
    assert compare_runs([1.0] * 5, [0.9] * 5).p == pytest.approx(2 / 252)


def test_values_that_are_not_positive_are_compared_without_logarithms() -> None:
    base, new = [0.0, 10.0, 20.0, 10.0], [30.0, 35.0, 40.0, 31.0]
    found = compare_runs(base, new)
    assert "not-positive" in codes(found)
    assert found.p == pytest.approx(stats.ttest_ind(base, new, equal_var=False).pvalue)
    assert found.change == pytest.approx((34 - 10) / 10)
    nothing = compare_runs([0.0, 0.0, 0.0, 1.0], new)
    assert nothing.change is None
    assert "no-base" in codes(nothing)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(0.01, 1000), st.booleans())
def test_units_do_not_matter_and_sides_are_alike(seed: int, n: int, unit: float, paired: bool) -> None:
    base, new = np.random.default_rng(seed).lognormal(3, 0.1, (2, n))
    here, there = compare_runs(base, new, paired), compare_runs(unit * base, unit * new, paired)
    assert there.p == pytest.approx(here.p)
    assert there.change == pytest.approx(here.change, abs=1e-9)
    back = compare_runs(new, base, paired)
    assert here.change is not None
    assert here.change_low is not None
    assert back.p == pytest.approx(here.p)
    assert back.change == pytest.approx(1 / (1 + here.change) - 1)
    assert back.change_high == pytest.approx(1 / (1 + here.change_low) - 1)


@pytest.mark.parametrize(("runs", "paired"), [(3, False), (5, False), (10, False), (7, True)])
def test_differences_of_small_counts_keep_their_error(runs: int, paired: bool) -> None:
    """Counts of about 2 a run, many of them 0: unchanged they differ in 5 of 100 cases at most."""
    chance = np.random.default_rng(5)
    differ = held = 0
    for _ in range(200):
        base, new = chance.poisson(2.0, runs), chance.poisson(4.0, runs)
        same = compare_differences(base, chance.poisson(2.0, runs), paired)
        differ += same.p is not None and same.p < 0.05
        found = compare_differences(base, new, paired)
        held += found.change_low is not None and found.change_low <= 2.0 <= (found.change_high or 0.0)
    assert differ <= 0.08 * 200 and held >= 0.92 * 200


def test_runs_of_which_most_are_alike_have_a_scatter() -> None:
    found = compare_differences([0.0] * 8, [24.0, *[0.0] * 7])
    assert found.p == 1.0 and (found.change_high or 0.0) > (found.inner_high or 0.0) > 8
    assert "no-scatter" not in codes(found)


def test_differences_are_in_the_unit_of_the_values() -> None:
    found = compare_differences([0.0, 0, 1, 0, 0, 0], [5.0, 6, 4, 7, 6, 5])
    assert (found.change, found.change_low, found.change_high) == (5.0, 4.0, pytest.approx(6.438, abs=0.001))
    assert codes(found) == []  # by ranks alone it ends at 6
    nothing = compare_differences([0.0] * 5, [0.0] * 5)
    assert (nothing.change, nothing.p, nothing.inner_high) == (0.0, 1.0, 0.0)


def test_an_exact_test_assumes_no_normal_logarithms() -> None:
    base, new = [10.2, 10.0, 10.4, 10.1, 10.3], [11.2, 11.0, 11.4, 11.1, 11.3]
    exact, by_t = compare_runs(base, new), compare_runs(base[:4], new[:4])
    assert {warning.code for warning in exact.base.warnings} == {"assumes-normal"}
    assert not exact.all_warnings
    of_t = replace(exact, method="exact aligned ranks")  # its interval is of the t
    assert {warning.code for warning in of_t.all_warnings} == {"assumes-normal"}
    assert {warning.code for warning in by_t.all_warnings} == {"assumes-normal"}
