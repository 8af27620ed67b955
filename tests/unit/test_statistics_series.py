"""A run's series: what neighbouring seconds, gaps and drift do to its mean and to a comparison."""

from __future__ import annotations

import math
from typing import List, Union

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from cbt_plugins.compare.statistics import (
    Comparison,
    Estimate,
    Scatter,
    Verdict,
    compare_series,
    effective_size,
    estimate_series,
    series_warnings,
)
from cbt_plugins.compare.statistics.verdicts import decide_verdicts
from cbt_plugins.metrics import Direction


def series(seed: int, n: int, lag: float = 0.0, scatter: float = 5.0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=n + 200)
    return np.asarray(100 + scatter * lfilter([1], [1, -lag], noise)[200:] * math.sqrt(1 - lag**2))


def codes(of: Union[Estimate, Comparison]) -> List[str]:
    return [warning.code for warning in of.warnings]


@pytest.mark.parametrize("lag", [0.0, 0.6, 0.9])
def test_the_effective_size_is_that_of_an_autoregressive_process(lag: float) -> None:
    sizes = [effective_size(series(seed, 1800, lag)) for seed in range(40)]
    assert np.median(sizes) == pytest.approx(1800 * (1 - lag) / (1 + lag), rel=0.15)


def test_the_interval_of_independent_seconds_is_students() -> None:
    # neither neighbours nor blocks say more than the seconds do
    found = [estimate_series(series(seed, 400)) for seed in range(30)]
    halves = [((one.high or 0) - (one.low or 0)) / 2 for one in found]
    assert np.median(halves) == pytest.approx(stats.t.ppf(0.975, 8) * 5 / 20, rel=0.15)
    assert all(one.low is not None and one.low < one.value < (one.high or 0) for one in found)


@pytest.mark.parametrize("lag", [0.0, 0.6, 0.9])
def test_intervals_hold_the_true_mean(lag: float) -> None:
    found = [estimate_series(series(seed, 600, lag)) for seed in range(200)]
    held = [one.low is None or one.low <= 100 <= (one.high or 0) for one in found]
    assert np.mean(held) >= 0.95 - 0.02


def test_slow_changes_under_fast_noise_are_seen_by_blocks() -> None:
    held = 0
    for seed in range(100):
        found = estimate_series(series(seed, 600) + series(seed + 1000, 600, 0.95, 2.0) - 100)
        held += found.low is None or found.low <= 100 <= (found.high or 0)
    assert held >= 88  # neighbours alone, which are hardly alike here, would give 65 or so


def test_gaps_are_left_out_and_named() -> None:
    whole = series(1, 300, 0.6)
    broken = whole.copy()
    broken[50:80] = np.nan
    found = estimate_series(broken)
    assert found.value == pytest.approx(np.nanmean(broken))
    assert found.n < estimate_series(whole).n
    assert "gaps" in codes(found)
    with pytest.raises(ValueError, match="no value"):
        estimate_series(np.full(5, np.nan))


def test_values_on_both_sides_of_a_gap_are_no_neighbours() -> None:
    sizes = []
    for seed in range(30):
        values = series(seed, 1800, 0.8)
        values[::3] = np.nan
        sizes.append(effective_size(values))
    # each second known second has its neighbour: the autocorrelation that is seen is still that of one second
    assert np.median(sizes) == pytest.approx(1200 * 0.2 / 1.8, rel=0.15)


def test_a_short_series_has_a_wide_interval_and_a_very_short_one_has_none() -> None:
    """Few degrees of freedom, not a cliff: autocorrelation of 0.8 over 60 s is worth 7 independent seconds."""
    short = [compare_series(series(2 * seed, 60, 0.8), 0.8 * series(2 * seed + 1, 60, 0.8)) for seed in range(60)]
    assert sum(one.p is not None and one.p < 0.05 for one in short) > 20
    same = [compare_series(series(2 * seed, 60, 0.8), series(2 * seed + 1, 60, 0.8)) for seed in range(60)]
    assert sum(one.p is not None and one.p < 0.05 for one in same) <= 3
    found = estimate_series(np.cumsum(np.sin(np.arange(12) / 3)))
    assert (found.low, found.high) == (None, None)
    assert codes(found) == ["short-series"]
    assert codes(estimate_series(np.array([4.0]))) == ["short-series"]
    compared = compare_series(100 + np.cumsum(np.sin(np.arange(12) / 3)), series(4, 400))
    assert (compared.p, compared.change_low) == (None, None)
    assert compared.change is not None
    assert decide_verdicts({1: compared}, {1: Direction.HIGHER}, 0.03)[1].verdict is Verdict.INCONCLUSIVE


def test_what_is_not_steady_is_said() -> None:
    assert series_warnings(series(5, 600)) == ()
    assert [warning.code for warning in series_warnings(series(5, 600, 0.8))] == ["autocorrelation"]
    falls = series_warnings(series(5, 600) * np.linspace(1.1, 0.9, 600))
    assert [warning.code for warning in falls] == ["drift"]
    assert "falls by 19.9 % of its mean" in falls[0].text
    slow = series_warnings(series(5, 600) + 5 * np.sin(np.arange(600) / 40))
    assert "not-steady" in [warning.code for warning in slow]


def test_words_about_steadiness_are_rarely_wrong() -> None:
    wrong = [series_warnings(series(seed, 300, 0.6)) for seed in range(100)]
    assert sum("drift" in [warning.code for warning in found] for found in wrong) <= 5
    assert sum("not-steady" in [warning.code for warning in found] for found in wrong) <= 5


@pytest.mark.parametrize("lag", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("drift", [0.0, 0.03])
def test_two_series_of_one_level_raise_no_alarm(lag: float, drift: float) -> None:
    alarms, ramp, chance = 0, np.arange(300) / 300, np.random.default_rng(8)
    for seed in range(150):
        base, new = (series(2 * seed + i, 300, lag) + 100 * drift * chance.normal() * ramp for i in (0, 1))
        p = compare_series(base, new).p
        alarms += p is not None and p < 0.05
    assert alarms <= 0.05 * 150


def test_a_shift_is_found_and_its_interval_holds_it() -> None:
    found = [compare_series(series(seed, 300), 0.9 * series(seed + 500, 300)) for seed in range(60)]
    assert all(one.p is not None and one.p < 0.001 for one in found)
    assert all((one.change_low or 0) < -0.1 < (one.change_high or 0) for one in found)
    assert all("one-run" in codes(one) for one in found)


def test_runs_that_drift_apart_differ_only_where_they_do_at_both_ends() -> None:
    ramp = np.linspace(0, 1, 600)
    crossing = compare_series(
        series(1, 600, scatter=1) * (1 + 0.1 * ramp), series(2, 600, scatter=1) * (1.1 - 0.1 * ramp)
    )
    assert crossing.p == 1
    assert crossing.change_low is not None
    assert crossing.change_high is not None
    assert crossing.change_low < -0.08 < 0.08 < crossing.change_high
    apart = compare_series(series(1, 600, scatter=1) * (1 + 0.1 * ramp), series(2, 600, scatter=1) * (1.3 + 0.1 * ramp))
    assert apart.p is not None
    assert apart.p < 1e-6


def test_scatter_from_run_to_run_widens_the_interval() -> None:
    base, new = series(1, 900), 0.97 * series(2, 900)
    alone, known = compare_series(base, new), compare_series(base, new, scatter=Scatter(0.02))
    assert alone.p is not None
    assert known.p is not None
    assert alone.p < 0.05 < known.p
    assert "one-run" not in codes(known)
    flat = compare_series(np.full(100, 5.0), np.full(100, 6.0), scatter=Scatter(0.02))
    assert flat.p == pytest.approx(2 * stats.norm.sf(math.log(1.2) / (0.02 * math.sqrt(2))), rel=1e-3)


def test_series_without_noise() -> None:
    same = compare_series(np.full(100, 5.0), np.full(80, 5.0))
    assert (same.p, same.change, same.within) == (1, 0, 0)
    differs = compare_series(np.full(100, 5.0), np.full(80, 6.0))
    assert (differs.p, differs.within) == (None, None)
    assert "no-scatter" in codes(differs)
    assert "no-base" in codes(compare_series(np.zeros(100), np.full(80, 6.0)))


def test_negative_values_give_no_relative_change() -> None:
    """Their noise can be a thousand times the mean, whose logarithm has no limit."""
    noise = np.tile([-30.0, 30.0], 50)
    for base, new in ((noise + 0.01, np.full(100, 6.0)), (np.full(100, 6.0), noise + 0.01)):
        compared = compare_series(base, new)
        assert (compared.change, compared.change_low, compared.p) == (None, None, None)
        assert "no-base" in codes(compared)
