"""Runs that lost a number: they hold back a verdict only if it depends on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Collection, List, Sequence, Tuple

import pytest
from compare_records import noise, runs, side

from cbt_plugins.compare.gate import GateLimits, Ruling, gate, limit
from cbt_plugins.compare.table import Choice, Row, Rules, compare
from cbt_plugins.results.run_record import Key, RunRecord

P99, RATE = ("measure", "GET", "p99_ms"), ("measure", "GET", "obj_per_s")
BAD = ("node failure", "total", "bad_s")


def made(key: Key, values: Sequence[float], lost: Collection[int] = (), begin: float = 0.0) -> List[RunRecord]:
    """Return runs, one after the other in turns with others that begin half a second later."""
    made_runs = runs({key: values}, begin=begin)
    for i in lost:
        made_runs[i] = replace(made_runs[i], measurements=(replace(made_runs[i].measurements[0], value=None),))
    return made_runs


def ruled(base: Sequence[RunRecord], new: Sequence[RunRecord], text: str, paired: bool = False) -> Tuple[Ruling, Row]:
    name = ".".join(base[0].measurements[0].key)
    its = gate(side("a", base), [side("b", new)], GateLimits((limit(name, text),)), Rules(paired=paired))
    (ruling,), (row,) = its.rulings, its.compared.rows
    return ruling, row


@pytest.mark.parametrize(("lost", "new_lost", "level", "word"), [
    ((3,), (), 100.0, "regression"),
    ((), (3,), 100.0, "regression"),
    ((), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 100.0, "regression"),
    (range(0, 20, 2), (), 100.0, "inconclusive"),
    ((3,), (), 10.0, "ok"),
    ((), (3,), 10.0, "ok"),
    ((3,), (4,), 10.0, "ok"),
    ((), range(0, 20, 2), 10.0, "inconclusive"),
])  # fmt: skip
@pytest.mark.parametrize("new_runs", [20, 10])
def test_one_run_that_lost_its_number_decides_no_gate(
    lost: Collection[int], new_lost: Collection[int], level: float, word: str, new_runs: int
) -> None:
    if new_runs == 10 and new_lost:
        return  # of sides of unequal sizes a t test must agree
    base = made(P99, noise(10.0, 20, scatter=0.02, seed=1), lost)
    new = made(P99, noise(level, new_runs, scatter=0.02, seed=2), new_lost, 0.5)
    new = [replace(run, started=0.5 + i * 20 / new_runs) for i, run in enumerate(new)]
    ruling, row = ruled(base, new, "10%")
    assert ruling.outcome.word == word
    assert ("have a number" in ruling.why) == (word == "inconclusive")
    assert "missing-values" in {its.code for its in row.comparison.warnings}
    verdict = {"regression": "worse", "ok": "equivalent"}.get(word, word)
    assert row.verdict.value == compare(side("a", base), [side("b", new)]).rows[0].verdict.value == verdict


def test_a_lost_number_of_a_rate_may_be_a_low_one() -> None:
    steady = noise(100.0, 20, scatter=0.02, seed=1)
    for level, word in ((100.0, "ok"), (50.0, "regression"), (150.0, "ok")):
        for lost, new_lost in (((3,), ()), ((), (3,))):
            new = made(RATE, noise(level, 20, scatter=0.02, seed=2), new_lost, 0.5)
            ruling, row = ruled(made(RATE, steady, lost), new, "10%")
            assert ruling.outcome.word == word
            assert row.verdict.value == {100.0: "equivalent", 50.0: "worse", 150.0: "better"}[level]
    new = made(RATE, noise(150.0, 20, scatter=0.02, seed=2), range(0, 20, 2), 0.5)
    assert ruled(made(RATE, steady), new, "10%")[1].verdict.value == "inconclusive"  # half of them may be bad


def test_few_runs_of_which_one_lost_its_number_decide_nothing() -> None:
    """One bad run of three or four may be all that the change is."""
    for count in (3, 4):
        steady = noise(10.0, count, scatter=0.002, seed=1)
        for new in (made(P99, steady, [0], 0.5), made(P99, [2 * value for value in steady], (), 0.5)):
            lost = [] if None in [run.measurements[0].value for run in new] else [0]
            assert ruled(made(P99, steady, lost), new, "10%")[0].outcome.word == "inconclusive"


def test_a_base_that_lost_its_slowest_runs_does_not_make_others_worse() -> None:
    wrong = 0
    for seed in range(40):
        base, new = (noise(10.0, 10, scatter=0.1, seed=2 * seed + i) for i in (0, 1))
        slowest = sorted(range(10), key=base.__getitem__)[-4:]
        ruling, row = ruled(made(P99, base, slowest), made(P99, new, (), 0.5), "1%")
        wrong += ruling.outcome.word == "regression" or row.verdict.value == "worse"
    assert wrong <= 2


def test_counts_and_values() -> None:
    base, new = [5.0, 6, 5, 7, 6, 5, 6, 7, 5, 6], [55.0, 66, 54, 57, 61, 53, 62, 70, 58, 69]
    assert ruled(made(BAD, base, [1]), made(BAD, new, (), 0.5), "+10s")[0].outcome.word == "regression"
    assert ruled(made(BAD, base, [1]), made(BAD, base, (), 0.5), "+10s")[0].outcome.word == "ok"
    assert ruled(made(BAD, base), made(BAD, base, [1], 0.5), "+10s")[0].outcome.word == "inconclusive"
    many = noise(10.0, 20, scatter=0.02, seed=1)
    for values, lost, text, word in (
        (many, [3], "<=11", "ok"),
        (many[:2], [1], "<=11", "inconclusive"),
        (many[:4], [1], "<=11", "inconclusive"),
        (many, range(8), "<=11", "inconclusive"),
        (many, [3], "<=9", "regression"),
    ):
        assert ruled(made(P99, many), made(P99, values, lost, 0.5), text)[0].outcome.word == word


def test_pairs() -> None:
    base, same, new = (noise(level, 12, scatter=0.02, seed=i) for i, level in enumerate((10.0, 10.0, 20.0)))
    rows = [ruled(made(P99, base, [2]), made(P99, values, [3], 0.5), "10%", True) for values in (same, new)]
    assert [ruling.outcome.word for ruling, _ in rows] == ["ok", "regression"]


def test_lost_numbers_of_pairs_are_counted_of_each_side() -> None:
    base, new = (noise(10.0, 10, scatter=0.02, seed=i) for i in (0, 1))
    ruling, row = ruled(made(P99, base, [0, 1]), made(P99, new, [2, 3, 4], 0.5), "10%", True)
    text = "8 of 10 runs of the base and 7 of 10 runs of the {} side have a number"
    assert ruling.why == text.format("new")
    texts = [its.text for its in row.comparison.warnings if its.code == "missing-values"]
    assert texts == [text.format("other") + ", both runs of 5 pairs"] and row.runs == (5, 5)


def test_a_row_of_which_nothing_is_lost_keeps_its_verdict() -> None:
    steady = {P99: noise(10.0, 6, scatter=0.01, seed=1), RATE: noise(100.0, 6, scatter=0.01, seed=2)}
    slower = {P99: noise(12.0, 6, scatter=0.01, seed=3), RATE: noise(80.0, 6, scatter=0.01, seed=4)}
    base = runs(steady)
    for i, run in enumerate(base[:3]):
        base[i] = replace(run, measurements=(replace(run.measurements[0], value=None), run.measurements[1]))
    rows = compare(side("a", base), [side("b", runs(slower, begin=0.5))], Choice(metrics=("p99_ms", "obj_per_s"))).rows
    assert [row.verdict.value for row in rows] == ["worse", "inconclusive"]
