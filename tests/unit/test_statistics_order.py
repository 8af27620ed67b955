"""The order of runs: blocks of interleaved ones, drift and correlation of those made one side after the other."""

from __future__ import annotations

import itertools
from typing import List, Set, Tuple

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from cbt_plugins.compare.statistics import Comparison, compare_runs, pooled_scatter
from cbt_plugins.compare.statistics.run_order import blocks, in_groups, line, resembling_p, within_blocks

Times = Tuple[List[int], List[int]]


def times(pattern: str) -> Times:
    base, new = ([i for i, its in enumerate(pattern) if its == side] for side in "BN")
    return base, new


def compared(pattern: str, made: np.ndarray, change: float = 0.0) -> Comparison:
    base, new = times(pattern)
    return compare_runs(made[base], (1 + change) * made[new], times=(base, new))


def codes(of: Comparison) -> Set[str]:
    return {warning.code for warning in of.warnings}


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("BNBNBN", [(1, 1)] * 3),
        ("BNNBBN", [(1, 1)] * 3),
        ("BBNNBBNN", [(2, 2)] * 2),
        ("BBNBBNBBN", [(2, 1)] * 3),
        ("BBBNNN", [(3, 3)]),
        ("BNNNN", [(1, 4)]),
        ("BNBNBNBNBNB", [(1, 1)] * 4 + [(2, 1)]),
        ("BNBNBBNBNBN", [(1, 1)] * 2 + [(2, 1)] + [(1, 1)] * 2),
        ("BBNBBNBBNBB", [(2, 1)] * 2 + [(4, 1)]),
        ("BBBBBBNNNNN", [(6, 5)]),
        ("BBBBBNNNNNB", [(6, 5)]),
    ],
)
def test_blocks_have_both_sides_in_the_proportion_of_the_whole(
    pattern: str, sizes: List[Tuple[int, int]]
) -> None:
    found = blocks(*times(pattern))
    assert [(len(a), len(b)) for a, b in found] == sizes
    assert sorted(i for a, _ in found for i in a) == list(range(pattern.count("B")))


def test_interleaved_runs_are_compared_in_blocks() -> None:
    """A drift that hides a change from runs without their order."""
    noise = 1 + 0.005 * np.random.default_rng(1).normal(size=16)
    drift = 100 * noise * np.linspace(1, 1.5, 16)
    found = compared("BN" * 8, drift, -0.05)
    base, new = times("BN" * 8)
    assert (found.method, found.blocks) == ("exact signed ranks", 8)
    assert found.p is not None and found.p < 0.01
    alone = compare_runs(drift[base], 0.95 * drift[new])
    assert alone.p is not None and alone.p > 0.05


def test_interleaved_runs_of_which_one_is_missing_are_interleaved() -> None:
    """A drift of both sides is neither the change nor a reason to doubt it."""
    noise = 1 + 0.005 * np.random.default_rng(1).normal(size=19)
    found = compared("BN" * 9 + "B", 100 * noise * np.linspace(1, 1.06, 19), -0.03)
    assert (found.method, found.blocks, found.forbidden_by) == ("exact aligned ranks", 9, None)
    assert found.p is not None and found.p < 0.005 and found.change == pytest.approx(-0.03, abs=0.01)
    few = compared("BNBNBNBNB", 100 * noise[:9] * np.linspace(1, 1.06, 9), -0.03)
    assert not codes(few) & {"drift-of-runs", "correlated-runs"}


def test_a_few_runs_at_the_end_do_not_make_two_sides_interleaved() -> None:
    noise = 1 + 0.005 * np.random.default_rng(5).normal(size=22)
    assert compared("B" * 10 + "N" * 10 + "BN", 100 * noise * np.linspace(1, 1.05, 22)).forbidden_by is not None


def test_the_aligned_rank_test_counts_all_ways_within_the_blocks() -> None:
    made = np.exp(0.02 * np.random.default_rng(2).normal(size=12))
    found = compared("BBNN" * 3, made, 0.03)
    values = np.log(made) + np.where(np.arange(12) % 4 > 1, np.log(1.03), 0)
    ranks = stats.rankdata((values.reshape(3, 4) - values.reshape(3, 4).mean(axis=1)[:, None]).ravel()).reshape(3, 4)
    ways = [
        sum(block[list(chosen)].sum() for block, chosen in zip(ranks, way))
        for way in itertools.product(itertools.combinations(range(4), 2), repeat=3)
    ]
    seen, mean = ranks[:, :2].sum(), np.mean(ways)
    assert (found.method, found.blocks) == ("exact aligned ranks", 3)
    assert found.p == pytest.approx(np.mean(np.abs(np.asarray(ways) - mean) >= abs(seen - mean) - 1e-9))


def test_blocks_of_one_pair_are_the_paired_t() -> None:
    x, y = np.random.default_rng(3).normal(size=(2, 6))
    change, error, freedom = within_blocks(x, y, blocks(*times("BN" * 6)))
    assert freedom == 5
    assert change / error == pytest.approx(stats.ttest_rel(y, x).statistic)


@pytest.mark.parametrize("pattern", ["BBBBBBNNNNNN", "NNNNNNBBBBBB", "BBBNNNBBBNNN", "BNBBBNNNNBNB"])
def test_the_lines_of_one_slope_are_those_of_least_squares(pattern: str) -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 6))
    found = line(x, y, times(pattern))
    assert found is not None
    side, place = np.repeat([0.0, 1.0], 6), np.concatenate(times(pattern))
    design = np.column_stack([np.ones(12), side, place])
    fitted, left, *_ = np.linalg.lstsq(design, np.concatenate([x, y]), rcond=None)
    assert (found.change, found.drift) == pytest.approx((fitted[1], fitted[2] * 11))
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * left[0] / 9)
    assert (found.change_p, found.p) == pytest.approx(tuple(2 * stats.t.sf(abs(fitted / errors), 9)[1:]))
    assert line(x[:3], y[:3], times("BBBNNN")) is None


def test_a_drift_is_no_change() -> None:
    """Made one side after the other; a step that the drift does not explain is one all the same."""
    noise = 1 + 0.005 * np.random.default_rng(5).normal(size=16)
    assert "drift-of-runs" in codes(compared("B" * 8 + "N" * 8, 100 * noise * np.linspace(1, 1.05, 16)))
    turned = compared("N" * 8 + "B" * 8, 100 * noise * np.linspace(1, 1.05, 16))
    assert "drift-of-runs" in codes(turned) and turned.forbidden_by is not None
    step = compared("B" * 8 + "N" * 8, 100 * noise * np.linspace(1, 1.01, 16), 0.1)
    assert step.forbidden_by is None and step.p is not None and step.p < 0.001


def test_a_drift_hides_no_change() -> None:
    """The new side is 5 % worse, and the cluster gains 7 % while the runs are made: the sides look nearly equal."""
    drift = np.exp(0.02 * np.random.default_rng(2).normal(size=40)) * np.linspace(1, 1.07, 40)
    hidden = compared("B" * 20 + "N" * 20, 100 * drift, -0.05)
    assert hidden.forbidden_by is None and hidden.change is not None and abs(hidden.change) < 0.02
    assert hidden.change_low is not None and hidden.inner_low is not None and hidden.inner_high is not None
    assert hidden.change_low < hidden.inner_low < -0.05 < hidden.change < hidden.inner_high
    (text,) = (warning.text for warning in hidden.warnings if warning.code == "drift")
    assert "the interval includes the change without the drift" in text
    turns = compared("BN" * 20, 100 * drift, -0.05)
    assert turns.inner_high is not None and turns.inner_high < -0.03 and "drift" not in codes(turns)


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        *(("BN" * 5, False), ("BNNB" * 3, False), ("BBNN" * 3, False), ("BNBBNBNBN", False), ("BBN" * 4, False)),
        *(("BBBNBBBN", False), ("BBBNNNBBBNNN", True), ("BBBNNNNNBB", True), ("BBBBBNNNNNBBBBB", True)),
        *(("BBBBBBNNN", True), ("BNNNBB", True)),
    ],
)
def test_turns_have_at_most_two_runs_of_a_side(pattern: str, groups: bool) -> None:
    assert in_groups(*times(pattern)) is groups


def alarms(pattern: str, lag: float, drift: float, scatter: float) -> int:
    """Return how often 100 campaigns without a change find one."""
    found = 0
    for seed in range(100):
        noise = np.random.default_rng(seed).normal(size=100 + len(pattern))
        made = scatter * np.sqrt(1 - lag**2) * lfilter([1], [1, -lag], noise)[100:]
        its = compared(pattern, 100 * np.exp(made) * np.linspace(1, 1 + drift, len(pattern)))
        found += its.p is not None and its.p < 0.05 and its.forbidden_by is None
    return found


@pytest.mark.parametrize("pattern", ["BBBBBNNNNNBBBBBNNNNN", "BBBNNN" * 2, "BBBBBNNNNNNNNNNBBBBB", "BBBBBNNNNNBBBBB"])
def test_false_alarms_of_runs_in_groups(pattern: str) -> None:
    """As few as of runs one side after the other: 8 of 100 without a drift, and hardly any of one."""
    assert alarms(pattern, 0.5, 0.0, 0.02) <= 13 and alarms(pattern, 0.8, 0.0, 0.02) <= 13
    assert alarms(pattern, 0.0, 0.04, 0.01) <= 5


@pytest.mark.parametrize("pattern", ["BN" * 10, "BNNB" * 5])
def test_the_order_of_turns_is_no_reason_to_doubt(pattern: str) -> None:
    for seed in range(20):
        walk = lfilter([1], [1, -0.9], np.random.default_rng(seed).normal(size=120))[100:]
        assert not codes(compared(pattern, 100 + walk)) & {"drift-of-runs", "correlated-runs"}


def test_a_change_is_found_in_groups_all_the_same() -> None:
    found = 0
    for seed in range(50):
        made = 100 * np.exp(0.01 * np.random.default_rng(seed).normal(size=12))
        its = compared("BBBNNN" * 2, made, 0.03)
        found += its.forbidden_by is None and its.p is not None and its.p < 0.05
    assert found >= 44


def test_runs_without_a_time_are_left_out_of_the_order_and_named() -> None:
    noise = 1 + 0.005 * np.random.default_rng(5).normal(size=18)
    made, (base, new) = 100 * noise * np.linspace(1, 1.05, 18), times("B" * 9 + "N" * 9)
    whole, part = (compare_runs(made[base], made[new], times=(its, new)) for its in (base, [np.nan, *base[1:]]))
    assert "drift-of-runs" in codes(whole) and codes(part) - codes(whole) == {"order-unknown"}
    assert "drift-of-runs" in codes(part)
    (text,) = (its.text for its in part.warnings if its.code == "order-unknown")
    assert text == "1 of 18 runs have no start time: only the order of the other runs was checked"
    turns = compare_runs(made[::2], made[1::2], times=([np.nan, *range(2, 18, 2)], range(1, 18, 2)))
    assert (turns.blocks, codes(turns) & {"drift-of-runs"}) == (0, set())
    alone = compare_runs(made[base], made[new], times=([np.nan] * 9, new))
    assert codes(alone) == {"order-unknown"}


def test_runs_that_resemble_their_neighbours_are_seen() -> None:
    found = 0
    for seed in range(20):
        chance = np.random.default_rng(seed)
        walk = lfilter([1], [1, -0.8], chance.normal(size=240))[200:]
        found += "correlated-runs" in codes(compared("B" * 20 + "N" * 20, 100 + walk))
    assert found >= 15
    p = [resembling_p(*np.random.default_rng(seed).normal(size=(2, 8))) for seed in range(100)]
    assert sum(its is not None and its < 0.05 for its in p) <= 12
    assert resembling_p(np.ones(3), np.ones(3)) is None


def test_false_alarms_of_runs_one_side_after_the_other() -> None:
    alarms = 0
    for seed in range(100):
        made = 100 * (1 + 0.01 * np.random.default_rng(seed).normal(size=20)) * np.linspace(1, 1.03, 20)
        its = compared("B" * 10 + "N" * 10, made)
        alarms += its.p is not None and its.p < 0.05 and its.forbidden_by is None
    assert alarms <= 25  # of 80 or so that the drift alone would give


def test_the_pooled_scatter_is_that_of_the_textbook() -> None:
    one, other = np.exp(np.random.default_rng(6).normal(0, 0.02, (2, 5)))
    found = pooled_scatter([one, 3 * other, [7.0]])
    assert found is not None and found.freedom == 8
    assert found.value == pytest.approx(np.sqrt((np.log(one).var(ddof=1) + np.log(other).var(ddof=1)) / 2))
    for groups in ([[1.0, 2.0]], [[1.0, 1.0, 1.0]], [[1.0, 2.0, 0.0]], []):
        assert pooled_scatter(groups) is None
