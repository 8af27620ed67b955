"""Verdicts over a table: Holm, equivalence, directions, and how often they are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_plugins.compare.statistics import Comparison, Estimate, Verdict, compare_runs, decide_verdicts, holm
from cbt_plugins.compare.statistics.verdicts import false_discovery, widened
from cbt_plugins.metrics import Direction

HIGHER, LOWER, NONE = Direction.HIGHER, Direction.LOWER, Direction.NONE
LEVEL = Estimate(100.0, 99.0, 101.0, 6, 0.95)


def row(change: float, reach: float, p: Optional[float], **other: float) -> Comparison:
    return replace(
        Comparison(
            LEVEL,
            LEVEL,
            change,
            change - reach,
            change + reach,
            p,
            "t",
            inner_low=change - 0.8 * reach,
            inner_high=change + 0.8 * reach,
        ),
        **other,
    )


def verdict(comparison: Comparison, direction: Direction = HIGHER) -> Optional[Verdict]:
    return decide_verdicts({0: comparison}, {0: direction}, 0.03)[0].verdict


def codes(comparison: Comparison) -> List[str]:
    return [warning.code for warning in comparison.warnings]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_rejects_what_stepping_down_rejects(p_values: List[float]) -> None:
    rejected = set()
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - place) >= 0.05:
            break
        rejected.add(index)
    adjusted = holm(p_values)
    assert {index for index, p in enumerate(adjusted) if p < 0.05} == rejected
    assert all(before <= after for before, after in zip(p_values, adjusted))


def test_holm_of_the_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_false_discovery_rate_rejects_what_stepping_up_rejects(p_values: List[float]) -> None:
    ordered = sorted(p_values)
    most = max((rank for rank, p in enumerate(ordered, 1) if p <= 0.05 * rank / len(ordered)), default=0)
    assert sum(p <= 0.05 * (1 + 1e-12) for p in false_discovery(p_values)) == most


def test_the_false_discovery_rate_of_the_textbook() -> None:
    assert false_discovery([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_key_rows_are_decided_first_with_the_whole_budget() -> None:
    """A long table takes nothing from them, and they take nothing from it."""
    rows: Dict[int, Comparison] = {0: row(0.1, 0.05, 0.02), **{i: row(0.0, 0.1, 0.5) for i in range(1, 20)}}
    directions = dict.fromkeys(rows, HIGHER)
    assert decide_verdicts(rows, directions, 0.03)[0].verdict is Verdict.INCONCLUSIVE
    judged = decide_verdicts(rows, directions, 0.03, keys={0, 1})
    assert judged[0].verdict is Verdict.BETTER and judged[0].adjusted == pytest.approx(0.04)
    assert [its.key for its in judged.values()] == [True, True] + [False] * 18
    rows = {**rows, 5: row(0.1, 0.05, 0.002), 6: row(0.1, 0.05, 0.004)}
    judged = decide_verdicts(rows, directions, 0.03, keys={0, 1})
    assert judged[5].verdict is judged[6].verdict is Verdict.BETTER
    assert judged[6].adjusted == pytest.approx(0.004 * 18 / 2)


def test_values_in_bins_are_known_by_half_a_bin_less() -> None:
    """True p99 of 101.5 and 108.5 ms, both told as 110: not equivalent within 5 %."""
    told = compare_runs([110.0, 110, 120, 110, 110], [110.0, 110, 110, 110, 120])
    wide = widened(told, (5.0, 5.0), (5.0, 5.0))
    assert told.within is not None and wide.within is not None and wide.within > told.within + 0.08
    assert (wide.change_low or 0) < (told.change_low or 0) and "in-bins" in codes(wide)
    same = compare_runs([110.0] * 6, [110.0] * 6)
    both = same, widened(same, (5.0, 5.0), (5.0, 5.0))
    verdicts = [decide_verdicts({0: its}, {0: LOWER}, 0.05)[0].verdict for its in both]
    assert verdicts == [Verdict.EQUIVALENT, Verdict.INCONCLUSIVE]


def test_the_ends_of_bins_are_multiplied() -> None:
    """20 +- 5 and 20 +- 5: the true ratio is from 15 / 25 to 25 / 15; a base that may be 0 has no upper end."""
    equal = compare_runs([20.0] * 6, [20.0] * 6)
    told = widened(equal, (5.0, 5.0), (5.0, 5.0))
    assert (told.change_low, told.change_high) == (pytest.approx(15 / 25 - 1), pytest.approx(25 / 15 - 1))
    assert (told.inner_low, told.inner_high) == (told.change_low, told.change_high)
    open_end = widened(equal, (20.0, 5.0), (25.0, 5.0))
    assert (open_end.change_low, open_end.change_high) == (-1.0, float("inf"))


def test_the_true_values_of_ladders_are_above_their_answers() -> None:
    """A limit from 400 to 440, and one from 300 to 345: the change is from 300 / 440 to 345 / 400."""
    told = widened(compare_runs([400.0] * 6, [300.0] * 6), (0.0, 40.0), (0.0, 45.0))
    assert (told.base.low, told.base.high, told.new.low, told.new.high) == (400.0, 440.0, 300.0, 345.0)
    assert (told.change_low, told.change_high) == (pytest.approx(300 / 440 - 1), pytest.approx(345 / 400 - 1))


def test_the_direction_says_what_is_better() -> None:
    assert verdict(row(0.1, 0.02, 0.001)) is Verdict.BETTER
    assert verdict(row(-0.1, 0.02, 0.001)) is Verdict.WORSE
    assert verdict(row(0.1, 0.02, 0.001), LOWER) is Verdict.WORSE
    assert verdict(row(-0.1, 0.02, 0.001), LOWER) is Verdict.BETTER
    found = decide_verdicts({0: row(0.1, 0.02, 0.001)}, {0: NONE}, 0.03)[0]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "no-direction" in codes(found)


def test_no_difference_seen_is_not_the_same() -> None:
    assert verdict(row(0.0, 0.1, 0.9)) is Verdict.INCONCLUSIVE
    assert verdict(row(0.0, 0.01, 0.9)) is Verdict.EQUIVALENT
    assert verdict(row(0.029, 0.01, 0.2)) is Verdict.INCONCLUSIVE  # may be more than 3 %
    assert (
        verdict(replace(row(0.0, 0.01, None), change_low=None, change_high=None, inner_low=None, inner_high=None))
        is Verdict.INCONCLUSIVE
    )


@pytest.mark.parametrize(
    ("change", "direction", "word"),
    [(0.01, HIGHER, "better"), (-0.01, HIGHER, "worse"), (0.01, LOWER, "worse"), (0.01, NONE, "higher")],
)
def test_a_sure_difference_within_the_margin_says_both(change: float, direction: Direction, word: str) -> None:
    found = decide_verdicts({0: row(change, 0.005, 0.0001)}, {0: direction}, 0.03)[0]
    assert (found.verdict, found.differs, found.margin) == (Verdict.EQUIVALENT, word, 0.03)
    (text,) = [its.text for its in found.warnings if its.code == "small-difference"]
    assert text == f"{word} by 0.6 to 1.4 %, within 3 %"


def test_the_interval_that_is_shown_is_the_one_that_decides() -> None:
    """-0.1 % with 3.4 % either way at 95 %, and 2.7 % at 90 %: equivalent within 3 %, by the second."""
    equivalent, open_ = (
        decide_verdicts({0: row(change, 0.034, 0.9)}, {0: HIGHER}, 0.03)[0] for change in (-0.001, 0.02)
    )
    assert equivalent.verdict is Verdict.EQUIVALENT and open_.verdict is Verdict.INCONCLUSIVE
    assert [round(end or 0, 4) for end in equivalent.deciding] == [-0.0282, 0.0262]
    assert [round(end or 0, 4) for end in open_.deciding] == [-0.014, 0.054]
    assert (equivalent.deciding_confidence, open_.deciding_confidence) == (0.9, 0.95)


def test_more_runs_find_a_small_change_more_often() -> None:
    """3 % lower at 1 % scatter: no number of runs hides that it is lower, though it is within the margin of 5 %."""
    chance = np.random.default_rng(4)
    seen = []
    for runs in (3, 5, 10):
        judged = (
            decide_verdicts({0: compare_runs(*_planted(chance, runs, -0.03, 0.01))}, {0: HIGHER}, 0.05)[0]
            for _ in range(60)
        )
        seen.append(sum(its.differs == "worse" for its in judged))
    assert seen == sorted(seen) and seen[-1] == 60


def test_a_long_table_needs_smaller_p_values() -> None:
    rows: Dict[int, Comparison] = {0: row(0.1, 0.05, 0.01)}
    assert decide_verdicts(rows, dict.fromkeys(rows, HIGHER), 0.03)[0].verdict is Verdict.BETTER
    rows.update({i: row(0.0, 0.1, 0.5) for i in range(1, 10)})
    judged = decide_verdicts(rows, dict.fromkeys(rows, HIGHER), 0.03)
    assert judged[0].adjusted == pytest.approx(0.1)
    assert judged[0].verdict is Verdict.INCONCLUSIVE
    assert list(judged) == list(rows)


def test_rows_without_p_do_not_lengthen_the_table() -> None:
    rows = {0: row(0.1, 0.05, 0.01), **{i: row(0.0, 0.1, None) for i in range(1, 10)}}
    judged = decide_verdicts(rows, dict.fromkeys(rows, HIGHER), 0.03)
    assert judged[0].verdict is Verdict.BETTER
    assert judged[1].adjusted is None


def test_a_t_test_helps_an_exact_one_out_of_a_table_that_is_too_long_for_it() -> None:
    others = {i: row(0.0, 0.1, 0.5) for i in range(1, 20)}
    few = {"floor": 0.0079, "second": 0.0001}
    directions = dict.fromkeys(range(20), HIGHER)
    helped = decide_verdicts({0: row(0.1, 0.05, 0.0079, **few), **others}, directions, 0.03)[0]
    assert helped.verdict is Verdict.BETTER
    assert helped.adjusted == pytest.approx(0.002)
    assert "assumes-normal" in codes(helped)
    # the exact test must say yes alone
    assert (
        decide_verdicts({0: row(0.1, 0.05, 0.06, **few), **others}, directions, 0.03)[0].verdict is Verdict.INCONCLUSIVE
    )
    # and where it can speak for itself, it does
    many = {"floor": 0.0001, "second": 0.0001}
    assert (
        decide_verdicts({0: row(0.1, 0.05, 0.0079, **many), **others}, directions, 0.03)[0].verdict
        is Verdict.INCONCLUSIVE
    )


def test_margins_of_their_own_and_wrong_ones() -> None:
    rows = {"a": row(0.0, 0.04, 0.9), "b": row(0.0, 0.04, 0.9)}
    directions = dict.fromkeys(rows, HIGHER)
    judged = decide_verdicts(rows, directions, {"a": 0.05, "b": 0.02})
    assert [comparison.verdict for comparison in judged.values()] == [Verdict.EQUIVALENT, Verdict.INCONCLUSIVE]
    with pytest.raises(ValueError, match="margin"):
        decide_verdicts(rows, directions, 0.0)
    with pytest.raises(ValueError, match=r"0\.95"):
        decide_verdicts(rows, directions, 0.03, alpha=0.01)


@pytest.mark.parametrize(("runs", "paired"), [(3, False), (5, False), (8, False), (3, True), (7, True)])
def test_noise_alone_raises_an_alarm_in_one_table_of_twenty_at_most(runs: int, paired: bool) -> None:
    tables, rows, alarms = 60, 10, 0
    chance = np.random.default_rng(21)
    for _ in range(tables):
        made = np.exp(chance.normal(0, 0.3, (rows, 2, runs)))
        table = {i: compare_runs(made[i, 0], made[i, 1], paired) for i in range(rows)}
        judged = decide_verdicts(table, dict.fromkeys(table, HIGHER), 0.03)
        alarms += any(found.verdict in (Verdict.BETTER, Verdict.WORSE) for found in judged.values())
    # 5 % of 60 are 3; a rule that keeps to its 5 % gives 7 or more in 1 of 30 tries (tests/perf/chance.py tries more)
    assert alarms <= 6


@pytest.mark.parametrize("runs", [3, 5, 8])
@pytest.mark.parametrize("change", [0.03, -0.03])
def test_a_change_of_the_margin_is_hardly_ever_the_same(runs: int, change: float) -> None:
    chance = np.random.default_rng(12)
    wrong = 0
    for _ in range(200):
        base, new = np.exp(chance.normal(0, 0.005, (2, runs)))
        wrong += verdict(compare_runs(base, (1 + change) * new)) is Verdict.EQUIVALENT
    assert wrong <= 0.05 * 200 + 6  # twice the standard error above 5 %


def test_planted_changes_are_found() -> None:
    chance = np.random.default_rng(13)
    for runs in (4, 8):
        found = [verdict(compare_runs(*_planted(chance, runs, -0.05, 0.01))) for _ in range(50)]
        assert found.count(Verdict.WORSE) == 50
    same = [verdict(compare_runs(*_planted(chance, 8, 0.0, 0.01))) for _ in range(50)]
    assert same.count(Verdict.EQUIVALENT) == 50


def _planted(chance: np.random.Generator, runs: int, change: float, scatter: float) -> List[np.ndarray]:
    base, new = np.exp(chance.normal(0, scatter, (2, runs)))
    return [base, (1 + change) * new]
