"""Power: the fast trial agrees with the functions that it is about, and with the textbook."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cbt_plugins.compare.statistics import (
    Campaign,
    Verdict,
    compare_runs,
    gate_false_alarms,
    judge,
    minimum_runs,
    power,
    smallest_p,
)
from cbt_plugins.metrics import Direction

ALARMS = (Verdict.BETTER, Verdict.WORSE)


@pytest.mark.parametrize(
    ("runs", "paired", "rows"),
    [(4, False, 1), (6, False, 1), (6, False, 40), (8, False, 5), (5, True, 1), (8, True, 20)],
)
def test_power_is_how_often_the_judge_finds_the_change(runs: int, paired: bool, rows: int) -> None:
    rounds, found = 60, 0
    chance = np.random.default_rng(5)
    base = chance.normal(0, 0.02, (rounds, runs))
    new = chance.normal(math.log(1.05), 0.02, (rounds, runs))
    nothing = compare_runs([1.0, 1.1, 0.9], [1.0, 1.1, 0.9])
    for i in range(rounds):
        one = compare_runs(np.exp(base[i]), np.exp(new[i]), paired)
        table = {0: one, **dict.fromkeys(range(1, rows), nothing)}
        found += judge(table, dict.fromkeys(table, Direction.HIGHER), 0.0001)[0].verdict in ALARMS
    assert power(runs, 0.05, Campaign(0.02, paired, rows=rows), rounds, seed=5) == found / rounds


def test_power_of_few_runs_is_that_of_the_t_test() -> None:
    distance = math.log(1.05) / (0.02 * math.sqrt(2 / 4))
    reach = stats.t.ppf(0.975, 6)
    wanted = stats.nct.sf(reach, 6, distance) + stats.nct.cdf(-reach, 6, distance)
    assert power(4, 0.05, Campaign(0.02)) == pytest.approx(wanted, abs=0.06)  # Welch of equal scatters has less


def test_without_a_change_power_is_the_rate_of_false_alarms() -> None:
    for runs in (3, 4, 5, 6, 8, 10):
        assert power(runs, 0.0, Campaign(0.02)) <= 0.05 + 0.007  # twice the standard error of 4000 rounds
        assert power(runs, 0.0, Campaign(0.02, paired=True)) <= 0.05 + 0.007
        assert power(runs, 0.0, Campaign(0.02, rows=20)) <= 0.05 / 20 + 0.0016


def test_pairs_do_not_mind_drift() -> None:
    alone, pairs = (power(5, 0.03, Campaign(0.01, paired, drift=0.1)) for paired in (False, True))
    assert alone < 0.5 < 0.9 < pairs


def test_minimum_runs() -> None:
    assert minimum_runs(0.03, Campaign(0.02)) == 10
    assert power(10, 0.03, Campaign(0.02)) >= 0.8 > power(9, 0.03, Campaign(0.02))
    assert minimum_runs(0.001, Campaign(0.05), most=4) is None


def test_a_gate_of_single_runs() -> None:
    chance = np.random.default_rng(1)
    ratio = np.exp(chance.normal(0, 0.03, 100_000) - chance.normal(0, 0.03, 100_000))
    assert gate_false_alarms(0.05, 0.03) == pytest.approx(np.mean(ratio < 0.95), abs=0.005)


def test_smallest_p() -> None:
    assert [round(smallest_p(n, n), 3) for n in (3, 4, 5, 6)] == [0.1, 0.029, 0.008, 0.002]
    assert smallest_p(5, 5, paired=True) == 0.0625
