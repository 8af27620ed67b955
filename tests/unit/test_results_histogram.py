"""Histograms against the sorted sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cbt_plugins.results.histogram import WIDTH, Histogram, buckets, lows, middles, rank, ranks

durations = st.one_of(st.integers(0, 5000), st.integers(0, 10**13), st.integers(0, 2**40).map(lambda v: v << 14))
samples = st.lists(durations, min_size=1, max_size=200)
EXACT = 0.0005


def of(values: list[int]) -> Histogram:
    made = Histogram()
    made.record(values)
    return made


@given(durations)
def test_a_bucket_holds_its_value_and_is_narrow(value: int) -> None:
    number = buckets(np.array([value]))
    low, high = lows(np.array([number[0], number[0] + 1])).tolist()
    assert low <= value < high
    assert high - low == 1 or (high - low) / low <= 2 * EXACT
    assert middles(number)[0] == (low + high - 1) / 2


@given(durations)
@example(2048)
def test_the_middle_of_merged_buckets_is_off_by_less_than_half_of_them(value: int) -> None:
    first = buckets(np.array([value])) >> 4 << 4
    middle = middles(first, 16)[0]
    assert abs(middle - value) < max(8, 0.008 * value)


def test_buckets_follow_each_other_without_holes() -> None:
    numbers = np.arange(WIDTH)
    assert (np.diff(lows(numbers)) > 0).all()
    assert (buckets(lows(numbers)) == numbers).all()
    assert (buckets(lows(numbers[1:]) - 1) == numbers[:-1]).all()
    assert buckets(np.array([np.iinfo(np.int64).max]))[0] == WIDTH - 1


@given(samples, st.floats(0, 1))
def test_a_quantile_is_that_of_the_sorted_sample(values: list[int], q: float) -> None:
    true = sorted(values)[max(0, math.ceil(q * len(values) - 1e-9 * len(values)) - 1)]
    assert of(values).quantile(q) == pytest.approx(true, rel=EXACT, abs=0.5)


@given(samples)
def test_count_mean_and_extremes_are_exact(values: list[int]) -> None:
    made = of(values)
    assert (made.n, made.total, made.min, made.max) == (len(values), sum(values), min(values), max(values))
    assert made.quantile(1) == max(values)


@given(st.lists(samples, max_size=5))
def test_merged_in_any_order_is_the_histogram_of_everything(parts: list[list[int]]) -> None:
    everything = of([v for part in parts for v in part])
    for order in (parts, parts[::-1]):
        merged = Histogram()
        for part in order:
            merged.merge(of(part))
        assert merged == everything


@given(samples)
def test_json_brings_back_the_same(values: list[int]) -> None:
    assert Histogram.from_json(of(values).to_json()) == of(values)


def test_a_percentile_is_not_one_rank_too_high() -> None:
    assert of(list(range(1, 101))).quantile(0.07) == 7
    assert of([*range(1, 1000), 10**9]).quantile(0.999) == 999


@pytest.mark.parametrize("q", [0.0, 0.07, 0.5, 0.9, 0.99, 0.999, 1 - 0.01 / 10, 1.0])
def test_ranks_of_many_samples_are_those_of_each(q: float) -> None:
    n = np.arange(3000)
    assert ranks(q, n).tolist() == [rank(q, each) for each in n.tolist()]
    assert ranks(np.array([[q], [0.5]]), n)[0].tolist() == ranks(q, n).tolist()


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        Histogram().quantile(0.5)
    with pytest.raises(ValueError, match="no values"):
        _ = Histogram().mean


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 ns"):
        of([-1])
    good = of([5, 7]).to_json()
    with pytest.raises(ValueError, match="12 significant bits"):
        Histogram.from_json({**good, "bits": 12})
    with pytest.raises(ValueError, match="do not sum"):
        Histogram.from_json({**good, "n": 3})


def test_a_merged_histogram_shares_the_buckets_of_the_first_and_changes_none_of_them() -> None:
    """The histograms of 1000 drivers take gigabytes, and each is merged into several tables."""
    part, merged = of([5, 7]), Histogram()
    merged.merge(part)
    assert merged.counts is part.counts
    merged.merge(of([7, 9]))
    assert part == of([5, 7])
    assert merged == of([5, 7, 7, 9])
