"""How often each verdict is given: by the textbook, and what follows from the margin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cbt_plugins.compare.statistics import (
    Campaign,
    chances,
    gate_false_alarms,
    minimum_runs,
    smallest_p,
)


def test_each_comparison_has_one_verdict_and_the_same_numbers_give_the_same() -> None:
    its = chances(5, -0.03, Campaign(0.02), 200)
    assert sum(its) == pytest.approx(1) and min(its) >= 0
    assert its == chances(5, -0.03, Campaign(0.02), 200) != chances(5, -0.03, Campaign(0.02), 200, seed=1)


def test_power_of_few_runs_is_that_of_the_t_test() -> None:
    distance = math.log(1.05) / (0.02 * math.sqrt(2 / 4))
    reach = stats.t.ppf(0.975, 6)
    wanted = stats.nct.sf(reach, 6, distance) + stats.nct.cdf(-reach, 6, distance)
    its = chances(4, 0.05, Campaign(0.02), 500)
    assert its.found + its.small == pytest.approx(wanted, abs=0.08)  # Welch of equal scatters has less


def test_without_a_change_any_finding_is_a_false_alarm() -> None:
    for runs in (3, 6, 10):
        for campaign in (Campaign(0.02), Campaign(0.02, paired=True)):
            its = chances(runs, 0.0, campaign, 600)
            assert its.found + its.small <= 0.05 + 0.018  # twice the standard error


def test_equivalent_is_a_verdict_of_the_table() -> None:
    """3 % lower at 1 % scatter, with a margin of 5 %: more runs call it equivalent, but all say that it is worse."""
    three, ten = (chances(runs, -0.03, Campaign(0.01), 200) for runs in (3, 10))
    assert ten.found < 0.1 < three.found and ten.small > 0.9 and ten.true(-0.03, 0.05) > 0.98
    assert chances(10, 0.0, Campaign(0.01), 200).equivalent > 0.9
    assert chances(10, -0.05, Campaign(0.01), 200).true(-0.05, 0.05) == pytest.approx(0.95, abs=0.05)


def test_pairs_do_not_mind_drift() -> None:
    alone, pairs = (chances(5, 0.03, Campaign(0.01, paired=its, drift=0.1), 200) for its in (False, True))
    assert alone.found + alone.small < 0.5 < 0.9 < pairs.found + pairs.small


def test_minimum_runs() -> None:
    campaign = Campaign(0.02)
    runs = minimum_runs(0.05, campaign, rounds=300)
    assert runs is not None and 4 <= runs <= 6
    assert chances(runs, 0.05, campaign, 300).true(0.05, 0.05) >= 0.8
    assert minimum_runs(0.001, Campaign(0.05), most=4, rounds=100) is None
    assert (minimum_runs(0.02, Campaign(0.02, margin=0.02), rounds=200) or 0) > 2 * runs


def test_a_gate_of_single_runs() -> None:
    chance = np.random.default_rng(1)
    ratio = np.exp(chance.normal(0, 0.03, 100_000) - chance.normal(0, 0.03, 100_000))
    assert gate_false_alarms(0.05, 0.03) == pytest.approx(np.mean(ratio < 0.95), abs=0.005)


def test_smallest_p() -> None:
    assert [round(smallest_p(n, n), 3) for n in (3, 4, 5, 6)] == [0.1, 0.029, 0.008, 0.002]
    assert smallest_p(5, 5, paired=True) == 0.0625
