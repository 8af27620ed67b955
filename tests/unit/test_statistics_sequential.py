"""Decisions that are looked at after every block: false alarms, power, what stays decided. Simulated with seeds."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import numpy as np
import pytest

from cbt_plugins.compare.statistics.sequential import (
    OBRIEN_FLEMING,
    POCOCK,
    SPENDING,
    Design,
    critical,
    decide,
    first_look,
    first_verdict,
    outlook,
    spent,
)
from cbt_plugins.compare.statistics.verdicts import Scatter, Verdict
from cbt_plugins.metrics import Direction

UP, DOWN = Direction.HIGHER, Direction.LOWER


def crossings(values: np.ndarray, alpha: float, spending: str) -> float:
    """Return the share of campaigns without a change that find one at any look."""
    most = values.shape[1]
    n = np.arange(1, most + 1)
    means = values.cumsum(axis=1) / n
    spread = np.sqrt(np.maximum((values**2).cumsum(axis=1) / n - means**2, 1e-300) / np.maximum(n - 1, 1))
    return float((np.abs(means) > spread * np.asarray(critical(alpha, most, spending)[1:])).any(axis=1).mean())


@pytest.mark.parametrize("spending", SPENDING)
@pytest.mark.parametrize("most", [4, 5, 20, 160])
def test_false_alarms_of_a_row_are_as_stated_from_few_blocks_on(most: int, spending: str) -> None:
    """Normal noise: alpha, within what 40,000 campaigns resolve. Noise with long tails: less."""
    chance = np.random.default_rng(most)
    for alpha in (0.05, 0.01):
        resolved = 3 * math.sqrt(alpha / 40_000) + 0.03 * alpha
        assert crossings(chance.standard_normal((40_000, most)), alpha, spending) == pytest.approx(alpha, abs=resolved)
        assert crossings(chance.laplace(size=(40_000, most)), alpha, spending) < alpha


def test_the_usual_values_without_calibration_would_alarm_too_often() -> None:
    """The nominal level of Pocock's plan for 20 looks, through Student's t at each look, is not enough."""
    from scipy import special

    chance = np.random.default_rng(0)
    values = chance.standard_normal((20_000, 20))
    n = np.arange(3, 21)
    means = values.cumsum(axis=1)[:, 2:] / n
    error = np.sqrt(((values**2).cumsum(axis=1)[:, 2:] / n - means**2) / (n - 1))
    naive = (2 * special.stdtr(n - 1, -np.abs(means / error)) < 0.05).any(axis=1).mean()
    assert naive > 0.15 and crossings(values, 0.05, POCOCK) < 0.055


def test_a_long_plan_ends_early_for_a_large_change() -> None:
    """Of 160 blocks as of 40: also a look that fewer than one in 10,000 campaigns ends without a change is a look."""
    values = np.asarray(critical(0.01, 160, OBRIEN_FLEMING))
    looks = np.flatnonzero(np.isfinite(values))
    assert spent(0.01, looks[0] / 160, OBRIEN_FLEMING) < 1e-6
    assert looks[0] < 40 and len(looks) > 120 and 6 < values[looks[0]] < 7


def test_the_first_verdict_is_that_of_the_first_look() -> None:
    """One key row may be within the margin before one of two may be worse."""
    long = Design(160, 0.02, 0.05, OBRIEN_FLEMING)
    assert first_verdict(2, Design()) == 4 and first_verdict(2, long) == 24 == first_look(0.04, long)
    assert first_look(0.01, long) == 38


@pytest.mark.parametrize(
    ("ratio", "width", "verdict"),
    [
        (0.0, 0.18, None),  # both sides of a ladder in one step of 19 %
        (0.0, 0.01, Verdict.EQUIVALENT),
        (math.log(2), 0.05, Verdict.BETTER),
        (math.log(1.04), 0.18, None),
    ],
)
def test_values_in_bins_are_known_up_to_the_bins(ratio: float, width: float, verdict: Optional[Verdict]) -> None:
    decision = decide({"a": [ratio] * 20}, {"a": Direction.HIGHER}, Design(), bins={"a": width})["a"]
    assert decision.verdict is verdict and decision.low is not None and decision.high is not None
    assert math.log1p(decision.high) - math.log1p(decision.low) > 2 * width


def test_rows_that_scatter_without_bounds_have_wide_intervals() -> None:
    """An arm that nearly hangs in half of the blocks, at a look that may spend little."""
    design = Design(17, 0.01, 0.05, OBRIEN_FLEMING)
    made = decide({0: [0.0, -11.5, 0.0, -11.5]}, {0: UP}, design)[0]
    assert made.verdict is None and made.high is not None and made.high > 1e300


@pytest.mark.parametrize("spending", SPENDING)
def test_all_of_alpha_is_spent_at_the_end_and_little_of_it_early(spending: str) -> None:
    assert spent(0.05, 1.0, spending) == pytest.approx(0.05)
    assert spent(0.05, 0.15, OBRIEN_FLEMING) < 1e-5 < spent(0.05, 0.15, POCOCK) < 0.02


Table = Dict[int, List[Optional[float]]]


def table(chance: np.random.Generator, effect: Sequence[float], scatter: float = 0.02) -> Table:
    """Rows of one campaign of 20 blocks; half of their noise is common to all, as that of a cluster is."""
    common = chance.normal(0, scatter * math.sqrt(0.5), 20)
    return {
        row: list(common + chance.normal(0, scatter * math.sqrt(0.5), 20) + math.log1p(its))
        for row, its in enumerate(effect)
    }


def test_false_alarms_of_a_table_are_at_most_alpha() -> None:
    """Three rows without a change; nothing is called equivalent first, as the margin is small."""
    chance, design = np.random.default_rng(3), Design(margin=0.001)
    directions = dict.fromkeys(range(3), UP)
    alarms = 0
    for _ in range(400):
        found = decide(table(chance, (0, 0, 0)), directions, design)
        alarms += any(its.verdict in (Verdict.BETTER, Verdict.WORSE) for its in found.values())
    assert alarms <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95) / 2, alarms


def test_false_alarms_of_rows_that_jump_between_two_levels() -> None:
    """Half of the runs of either arm are 10 % higher: after three blocks their scatter is often not seen yet."""
    chance, directions = np.random.default_rng(3), dict.fromkeys(range(3), UP)
    alarms = 0
    for _ in range(400):
        old, new = (0.1 * (chance.random((2, 3, 20)) < 0.5).mean(axis=0) for _ in range(2))
        rows = dict(enumerate((new - old + chance.normal(0, 0.002, (3, 20))).tolist()))
        found = decide(rows, directions, Design(margin=0.03))
        alarms += any(its.verdict in (Verdict.BETTER, Verdict.WORSE) for its in found.values())
    assert alarms <= 400 * 0.08, alarms


def test_verdicts_follow_the_direction_and_stay() -> None:
    chance = np.random.default_rng(4)
    rows = table(chance, (0.1, 0.1, -0.1, 0.0), scatter=0.01)
    found = decide(rows, {0: UP, 1: DOWN, 2: UP, 3: UP}, Design())
    assert [its.verdict for its in found.values()] == [
        Verdict.BETTER, Verdict.WORSE, Verdict.WORSE, Verdict.EQUIVALENT,
    ]  # fmt: skip
    first = found[0].decided_at
    assert first is not None and first < 8
    back = {0: [*rows[0][:first], *(-0.3 for _ in range(20 - first))]}
    assert decide({**rows, **back}, {0: UP, 1: DOWN, 2: UP, 3: UP}, Design())[0].verdict is Verdict.BETTER


def test_what_is_found_leaves_its_alpha_to_the_others() -> None:
    """Holm: the second of two rows is tested at alpha once the first is found, and at alpha / 2 before."""
    c = {part: critical(0.05 / part, 20)[6] for part in (1, 2)}
    between = (c[1] + c[2]) / 2
    shape = np.asarray([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    row = 0.05 * (shape / (shape.std(ddof=1) / math.sqrt(6)) + between)  # its t after 6 blocks is `between`
    clear = list(0.5 + 0.001 * shape)
    weak = list(0.0001 * shape)
    design = Design(margin=1e-9)
    both = decide({"a": list(row), "b": clear}, {"a": UP, "b": UP}, design)
    alone = decide({"a": list(row), "b": weak}, {"a": UP, "b": UP}, design)
    assert both["a"].verdict is Verdict.BETTER and alone["a"].verdict is None


def test_a_row_that_appears_later_takes_back_no_verdict() -> None:
    verdicts = 0
    for seed in range(60):
        chance = np.random.default_rng(seed)
        rows: Dict[str, List[Optional[float]]] = {"a": list(chance.normal(-0.06, 0.03, 8))}
        rows["b"] = list(chance.normal(-0.02, 0.05, 8))
        first = decide({key: values[:5] for key, values in rows.items()}, dict.fromkeys("ab", UP), Design())
        late = {"late": [None] * 5 + [-0.5, -0.5001, -0.5002]}
        then = decide({**rows, **late}, dict.fromkeys((*rows, "late"), UP), Design())
        assert then["late"].verdict is None
        for key in ("a", "b"):
            if first[key].verdict:
                verdicts += 1
                assert (then[key].verdict, then[key].decided_at) == (first[key].verdict, first[key].decided_at)
    assert verdicts > 10


def test_a_block_that_says_nothing_is_left_out() -> None:
    rows = table(np.random.default_rng(5), (0.1,), scatter=0.01)
    holes: List[Optional[float]] = [None, *rows[0][:3], None]
    made = decide({0: holes}, {0: UP}, Design())[0]
    assert made.n == 3 and made.change == pytest.approx(math.expm1(float(np.mean([v for v in holes if v is not None]))))


def test_blocks_without_any_scatter_decide_nothing_unless_they_are_equal() -> None:
    """As in a comparison of runs: of a success rate of 1 on both sides nothing more can be learnt."""
    assert decide({0: [0.1] * 10}, {0: UP}, Design())[0].verdict is None
    assert decide({0: [0.0] * 2}, {0: UP}, Design())[0].verdict is None
    made = decide({0: [0.0] * 10}, {0: UP}, Design())[0]
    assert (made.verdict, made.decided_at, made.low, made.high) == (Verdict.EQUIVALENT, 4, 0.0, 0.0)


def test_equal_differences_in_a_unit_scatter_as_their_rounding_does() -> None:
    """All 24 s of each failure bad in one arm and none in the other is worse; four blocks of 0 do not prove 0."""
    rows = {"all": [24.0] * 4, "none": [0.0] * 4, "rare": [0.0] * 4 + [5.0]}
    made = decide(rows, dict.fromkeys(rows, DOWN), Design(), dict.fromkeys(rows, 1.0), dict.fromkeys(rows, "s"))
    assert (made["all"].verdict, made["none"].verdict) == (Verdict.WORSE, Verdict.EQUIVALENT)
    assert made["none"].high == pytest.approx(critical(2 * 0.05, 20)[4] / math.sqrt(4 * 12))
    for its in made.values():
        assert its.low is not None and its.high is not None and its.high - its.low > 0.5
    blocks = [outlook(rise, Scatter(1e-9), 3, Design(margin=1.0), in_unit=True).blocks for rise in (0.0, 0.6)]
    assert blocks[0] == 4 and (blocks[1] or 0) > 4


def test_the_table_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "CAMPAIGN.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (\d)% \| (-?\d+)% \| (\S+) \| (\S+) \| \S+ \| (\S+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(lines) == 15
    for scatter, change, found, equivalent, open_, blocks in lines:
        its = outlook(int(change) / 100, Scatter(int(scatter) / 100), 3, Design())
        shares = its.found, its.equivalent, 1 - its.found - its.equivalent
        assert [float(found), float(equivalent), float(open_)] == pytest.approx(shares, abs=0.08), (scatter, change)
        assert its.blocks == pytest.approx(int(blocks), abs=1)


def test_false_alarms_of_differences_of_small_counts() -> None:
    """Bad seconds of equal arms: many are 0, few are large. A block has two trials of each arm."""
    chance, directions = np.random.default_rng(6), {0: DOWN}
    for draw in (lambda: chance.poisson(0.3, (20, 4)), lambda: chance.geometric(0.2, (20, 4)) - 1):
        alarms = 0
        for _ in range(400):
            seconds = draw()
            rows = {0: list((seconds[:, :2].mean(axis=1) - seconds[:, 2:].mean(axis=1)).astype(float))}
            alarms += bool(decide(rows, directions, Design(), {0: 0.001}, {0: "s"})[0].differs)
        assert alarms <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95) / 2, alarms


def test_differences_have_a_margin_and_a_change_in_their_unit() -> None:
    noise = 0.1 * np.random.default_rng(2).standard_normal(20)
    rows = {name: list(noise + rise) for name, rise in (("equal", 0.0), ("small", 0.6), ("large", 5.0))}
    made = decide(rows, dict.fromkeys(rows, DOWN), Design(), dict.fromkeys(rows, 1.0), dict.fromkeys(rows, "s"))
    assert [made[name].verdict for name in rows] == [Verdict.EQUIVALENT, Verdict.EQUIVALENT, Verdict.WORSE]
    assert made["small"].differs == "worse" and {its.unit for its in made.values()} == {"s"}
    assert [made[name].change for name in rows] == pytest.approx([0.0, 0.6, 5.0], abs=0.1)
    large = made["large"]
    assert large.low is not None and large.high is not None and 4.5 < large.low < large.high < 5.5
    assert large.scatter == pytest.approx(0.1, abs=0.04)


def test_the_outlook_of_a_difference_is_that_of_the_same_margin_in_its_unit() -> None:
    """Only scatter / margin matters; 200 s are no logarithm."""
    small, large = (
        outlook(2.0 * scale, Scatter(0.5 * scale), 3, Design(margin=scale), in_unit=True) for scale in (1.0, 100.0)
    )
    assert small.blocks == large.blocks and small.found == large.found > 0.9
    assert outlook(0.0, Scatter(0.5), 3, Design(margin=1.0), in_unit=True).equivalent > 0.9


def test_a_small_change_says_both_and_the_first_verdict_stays() -> None:
    """3 % lower: within 5 %, and surely not 0, whichever is sure first; the interval shown agrees with both."""
    first = set()
    for seed in range(20):
        made = decide(table(np.random.default_rng(seed), (-0.03,), 0.01), {0: UP}, Design())[0]
        assert made.within and made.differs == "worse" and made.verdict in (Verdict.WORSE, Verdict.EQUIVALENT)
        assert made.low is not None and made.high is not None and -0.05 < made.low <= made.high < 0
        first.add(made.verdict)
    assert first == {Verdict.WORSE, Verdict.EQUIVALENT}


def test_the_interval_of_a_row_agrees_with_its_verdict_at_each_later_look() -> None:
    for seed in range(8):
        rows = table(np.random.default_rng(seed), (0.0, -0.04), 0.03)
        for blocks in range(4, 21):
            for made in decide({k: its[:blocks] for k, its in rows.items()}, {0: UP, 1: UP}, Design()).values():
                ends = made.low or 0.0, made.high or 0.0
                assert made.verdict is not Verdict.EQUIVALENT or -0.05 < ends[0] <= ends[1] < 0.05
                assert not made.differs or ends[0] * ends[1] > 0


def test_the_outlook_is_what_campaigns_do() -> None:
    """Blocks after which 80 % of simulated campaigns have found it, by the same rule."""
    design = Design()
    needed = outlook(0.05, Scatter(0.03), 1, design).blocks
    chance = np.random.default_rng(6)
    at = [decide(table(chance, (0.05,), 0.03), {0: UP}, design)[0].decided_at or 99 for _ in range(300)]
    assert needed is not None and np.mean([its <= needed for its in at]) == pytest.approx(0.83, abs=0.1)
    assert (outlook(0.05, Scatter(0.01), 1, design).blocks or 99) < needed
    assert outlook(0.03, Scatter(0.2), 1, design).blocks is None
    little = outlook(0.05, Scatter(0.03, 2), 1, design).blocks
    assert little is None or little > needed
