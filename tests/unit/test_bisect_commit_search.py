"""The search for the commit that changed a metric; `./run bench bisection` has more histories and longer ones."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from cbt_plugins.bisect.commit_search import (
    Evidence,
    Observation,
    SearchRules,
    belief,
    bits_left,
    buildable,
    chances_of,
    choose_commit,
    information,
    search_answer,
)
from cbt_plugins.config.bisect import parse_metric_name

sys.path.insert(0, str(Path(__file__).parents[1] / "perf"))

from bisection import History, plain, right, search

RULES = SearchRules()


def test_a_gap_is_searched_by_ratios_and_a_count_of_a_failure_is_refused() -> None:
    assert parse_metric_name("GET.longest_gap_s").metric == "longest_gap_s"
    with pytest.raises(ValueError, match="bad_s may be 0"):
        parse_metric_name("node down.GET.bad_s")


@pytest.mark.parametrize("metric", ["highest_per_s", "find.total.highest_workers"])
def test_the_answer_of_a_ladder_is_refused(metric: str) -> None:
    """Two commits that differ by less than a step would give equal numbers again and again."""
    with pytest.raises(ValueError, match=r"highest_\w+ is known up to a step of its ladder: name a metric of a phase"):
        parse_metric_name(metric)


def _drawn(changes, noise=0.02, case="", seeds=3, commits=64):
    return [History.drawn(commits, changes, noise, seed, case) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("changes", "noise", "case"),
    [([0.1], 0.02, ""), ([0.1], 0.02, "drift"), ([0.1], 0.02, "unbuildable"), ([], 0.02, ""), ([0.1, 0.1], 0.02, "")],
)
def test_it_is_right(changes, noise, case):
    histories = _drawn(changes, noise, case)
    found = [right(search(history)[0], history) for history in histories]
    assert all(found)


def test_it_needs_fewer_measurements_than_plain_bisection_with_repeats():
    ours = [search(history)[2] for history in _drawn([0.1])]
    plainly = [plain(history, 0.1, sequential=False)[1] + RULES.pairs for history in _drawn([0.1])]
    assert np.mean(ours) < 0.85 * np.mean(plainly)


def test_a_long_history_takes_few_more():
    history = History.drawn(1024, [0.1], 0.02, 5)
    answer, _, made = search(history)
    assert right(answer, history)
    assert made < 30


def _evidence(ratios, commits=8, weights=None):
    seen = [Observation(position, ratio) for position, its in ratios.items() for ratio in its]
    return Evidence(weights or [1.0] * commits, seen)


def test_unbuildable_commits_share_what_is_known_of_them():
    evidence = _evidence({8: [0.1, 0.11, 0.1, 0.09], 3: [0.0, 0.01, -0.01], 6: [0.1, 0.1, 0.11]})
    assert search_answer(evidence, RULES, belief(evidence, RULES)).culprit is None, "4 and 5 could be measured"
    evidence.unbuildable.update({4: None, 5: None})
    found = search_answer(evidence, RULES, belief(evidence, RULES)).culprit
    assert (found.first, found.last) == (4, 6)
    assert found.posterior >= 0.95


def test_it_goes_on_further_away_from_what_cannot_be_built():
    evidence = _evidence({64: [0.1, 0.1, 0.11]}, commits=64)
    evidence.unbuildable[32] = None
    chance = buildable(evidence)
    assert chance[30] == 0.5 < chance[20] < chance[0]
    assert chance[31] == 0 and chance[63] == 1
    position = choose_commit(evidence, RULES, belief(evidence, RULES), [1.0] * 64)
    assert 4 <= abs(position - 32) < 24


def test_the_bad_commit_is_measured_first():
    evidence = _evidence({})
    assert choose_commit(evidence, RULES, belief(evidence, RULES), [1.0] * 8) == 8
    evidence = _evidence({8: [0.02, -0.01, 0.0, 0.01]})
    held = belief(evidence, RULES)
    assert held.none > 0.5
    assert choose_commit(evidence, RULES, held, [1.0] * 8) == 8, "whether anything changed is not known"


def test_no_change_and_a_change_for_the_better_are_refused():
    for ratios in ([0.0, 0.01, -0.01] * 4, [-0.1, -0.09, -0.11] * 5):
        evidence = _evidence({8: ratios})
        assert search_answer(evidence, RULES, belief(evidence, RULES)).none


def test_what_lies_at_the_effect_is_not_denied():
    """A change of 3 % at 2 % noise: on average over all sizes it is unlikely, but that of 3 % is not."""
    evidence = _evidence({8: [0.03, -0.012, 0.02, 0.006, 0.0]})
    held = belief(evidence, RULES)
    assert held.none > RULES.posterior and held.denied < RULES.needed
    assert not search_answer(evidence, RULES, held).none


def test_runs_that_are_far_off_do_not_hide_a_change():
    """Ten measurements of 3 %, of which two had a cycle 20 % off."""
    usual = [0.03, 0.05, 0.02, 0.04, 0.03, 0.025, 0.035, 0.03]
    held = belief(_evidence({8: [*usual, -0.2, 0.24]}), RULES)
    assert held.none < 0.03 and held.noise < 0.03


def test_too_much_noise_is_no_answer():
    noisy = SearchRules(most_pairs=12)
    evidence = _evidence({8: [0.3, -0.3, 0.2, -0.2, 0.33, -0.3, 0.25, -0.1, 0.15, 0.2, -0.28, 0.1]})
    answer = search_answer(evidence, noisy, belief(evidence, noisy))
    assert answer.noisy and not answer.none and answer.culprit is None


def test_a_build_that_is_there_counts():
    evidence = _evidence({64: [0.1, 0.11, 0.09], 30: [0.0]}, commits=64)
    held = belief(evidence, RULES)
    free = choose_commit(evidence, RULES, held, [1.0] * 64)
    costly = [50.0] * 64
    costly[43] = 1.0
    assert abs(free - 47) < 6
    assert choose_commit(evidence, RULES, held, costly) == 44


def test_a_prior_draws_the_search():
    evidence = _evidence({64: [0.1, 0.11, 0.09]}, weights=[1.0] * 10 + [100.0] + [1.0] * 53)
    held = belief(evidence, RULES)
    assert choose_commit(evidence, RULES, held, [1.0] * 64) in (10, 11)
    assert bits_left(held) < 6.1


def test_one_broken_run_does_not_decide():
    evidence = _evidence({8: [0.1, 0.11, 0.09, 0.1], 4: [0.005, -0.01, 0.0, 0.35]})
    held = belief(evidence, RULES)
    assert sum(its.posterior for its in held.suspects if its.last <= 4) < 0.1


def test_a_second_change_is_said_and_placed():
    ratios = {64: [0.2, 0.21, 0.19, 0.2], 20: [0.0, 0.01], 21: [0.1, 0.11], 40: [0.1, 0.09], 50: [0.2, 0.2]}
    held = belief(_evidence(ratios, commits=64), RULES)
    assert held.second > 0.95
    assert (held.best.first, held.best.last) == (21, 21)
    other = max(held.second_suspects, key=lambda its: its.posterior)
    assert (other.first, other.last) == (41, 50)
    assert held.credible(0.9).first == 21


@pytest.mark.parametrize("times", [3.0, 10.0, 200.0])
def test_a_large_change_has_its_size_and_is_no_second_one(times):
    answer, held, made = search(History.drawn(64, [times - 1], 0.05, 1))
    assert answer.culprit and made < 20
    assert np.exp(held.size) == pytest.approx(times, rel=0.2)
    assert held.second < 0.5 and held.noise < 0.12


def test_information_is_greatest_where_half_of_the_posterior_is():
    held = belief(_evidence({64: [0.1, 0.11, 0.09]}, commits=64), RULES)
    bits = information(held)
    assert bits.argmax() + 1 in range(26, 39)
    assert 0 < bits[-1] < bits[10] < bits.max() < 2


def test_one_commit_by_itself_is_good_or_bad():
    bad = {8: [0.1, 0.11, 0.09, 0.1]}
    good = chances_of(_evidence({**bad, 4: [0.0, 0.01]}), 4, RULES)
    worse = chances_of(_evidence({**bad, 4: [0.1, 0.09]}), 4, RULES)
    unknown = chances_of(_evidence({**bad, 4: []}), 4, RULES)
    assert good[0] > 0.95 and worse[1] > 0.95
    assert max(unknown) < 0.9
    assert sum(chances_of(_evidence({8: [0.0, 0.01, -0.01] * 4, 4: [0.0]}), 4, RULES)) < 0.5
