"""Limits of a gate: their units, and the failures that they name."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import List, Optional, Tuple

import pytest
from compare_records import record, runs, side

pytest.importorskip("scipy")

from cbt_plugins.compare.gate import GateLimits, GateOutcome, gate, of_texts
from cbt_plugins.compare.gate_output import blocks, data
from cbt_plugins.compare.table import Rules
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.results.run_record import Measurement

GET, P99 = ("measure-new", "GET", "obj_per_s"), ("measure-new", "GET", "p99_ms")


@pytest.mark.parametrize(
    ("text", "most", "least"),
    [
        ("p99_ms<=50", 50.0, None),
        ("p99_ms<=50ms", 50.0, None),
        ("node down.recovery_s<= 60 s", 60.0, None),
        ("success_rate>=0.999", None, 0.999),
        ("success_rate>=99.9%", None, 0.999),
        ("node down.availability>=100%", None, 1.0),
        ("node down.p99_ratio<=1.5", 1.5, None),
    ],
)
def test_a_value_has_the_unit_of_its_metric(text: str, most: Optional[float], least: Optional[float]) -> None:
    (limit,) = of_texts([text])
    assert (limit.most, limit.least) == (most, least) and limit.text in text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("node down.bad_s<=20%", "write s, the unit of bad_s"),
        ("GET.p99_ms<=10%", "write ms, the unit of p99_ms"),
        ("GET.p99_ms<=1s", "write ms, the unit of p99_ms"),
        ("success_rate>=1s", "write no unit or %: success_rate is a share or a ratio"),
        ("success_rate>=99.9", "write 0.999 or 99.9%"),
        ("node down.availability>=99.9", "write 0.999 or 99.9%"),
        ("success_rate>=101%", "write 0.999 or 99.9%"),
        ("node down.availability=+5", "write 0.999 or 99.9%"),
    ],
)
def test_impossible_units_and_shares_are_refused(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match="invalid limit") as refused:
        of_texts([text])
    assert str(refused.value).endswith(advice)


@pytest.mark.parametrize(
    ("text", "phase", "op"),
    [
        ("node*.bad_s=+1s", "node*", "total"),
        ("node*.recovery_s=10%", "node*", "cluster"),
        ("node down.bad_s=+1s", "node down", "total"),
        ("node*.GET.bad_s=+1s", "node*", "GET"),
        ("*.bad_s=+1s", None, "*"),
        ("G*.bad_s=+1s", None, "G*"),
        ("tot*.bad_s=+1s", None, "tot*"),
        ("readers:*.bad_s=+1s", None, "readers:*"),
        ("read*.p99_ms=10%", None, "read*"),
    ],
)
def test_a_pattern_names_failures_where_it_can_be_no_operation(text: str, phase: Optional[str], op: str) -> None:
    (limit,) = of_texts([text])
    assert (limit.phase, limit.op) == (phase, op)


@pytest.mark.parametrize(
    ("pattern", "row"),
    [
        ("readers*", "node down/readers:GET/bad_s"),
        ("node down.readers*", "node down/readers:GET/bad_s"),
        ("node*", "node down/total/bad_s"),
    ],
)
def test_a_pattern_that_no_failure_matches_names_operations(pattern: str, row: str) -> None:
    values = {("node down", op, "bad_s"): 1.0 for op in ("readers:GET", "total")}
    base, new = (side(name, [record(values, name=name)]) for name in ("old", "young"))
    gated = gate(base, [new], GateLimits(tuple(of_texts([f"{pattern}.bad_s<=3"]))), Rules())
    assert [(ruling.row, ruling.outcome.word) for ruling in gated.rulings] == [(row, "ok")]


@pytest.mark.parametrize(
    ("gap", "text", "outcome"),
    [(0.3, "<=0.5", "inconclusive"), (0.3, "<=1s", "ok"), (0.7, "<=0.5", "regression"), (3.0, "<=0.5", "regression")],
)
def test_a_gap_below_a_second_keeps_no_limit_below_a_second(gap: float, text: str, outcome: str) -> None:
    """It is a lower bound: nobody knows the gaps within a second."""
    key = ("node down", "total", "longest_gap_s")
    base, new = (side(name, [record({key: gap}, name=name)]) for name in ("old", "young"))
    (ruling,) = gate(base, [new], GateLimits(tuple(of_texts([f"node down.longest_gap_s{text}"]))), Rules()).rulings
    assert ruling.outcome.word == outcome


@pytest.mark.parametrize(
    ("metric", "level", "share"), [("bad_s", 20, 1.0), ("bad_s", 20, 2.0), ("availability", 0.8, -0.5)]
)
def test_a_limit_that_is_a_share_of_a_count_scatters_as_the_base(metric: str, level: float, share: float) -> None:
    """A true change as large as the limit is hardly ever ok, and hardly ever a regression."""
    key, outcomes = ("node down", "GET", metric), []
    limits = GateLimits(tuple(of_texts([f"node down.GET.{metric}={abs(share):.0%}"])))
    for seed in range(60):
        chance = random.Random(seed)
        base, new = (
            [mean * (1 + chance.gauss(0, scatter)) for _ in range(10)]
            for mean, scatter in ((level, 0.1), (level * (1 + share), 0.02))
        )
        old, young = side("a", runs({key: base})), side("b", runs({key: new}, begin=0.5))
        outcomes.append(gate(old, [young], limits, Rules()).outcome)
    assert outcomes.count(GateOutcome.OK) <= 6 and outcomes.count(GateOutcome.REGRESSION) <= 5


@pytest.mark.parametrize(("count", "why"), [(2, "no interval: too few runs"), (3, "no-scatter"), (4, "no-scatter")])
def test_answers_of_ladders_that_are_all_alike_have_no_scatter(count: int, why: str) -> None:
    key = ("find", "total", "highest_per_s")
    base, new = (side(str(level), runs({key: [level] * count}, begin=level)) for level in (400.0, 200.0))
    (ruling,) = gate(base, [new], GateLimits(tuple(of_texts(["find.highest_per_s=5%"]))), Rules()).rulings
    assert (ruling.outcome, ruling.why) == (GateOutcome.INCONCLUSIVE, why)


@pytest.mark.parametrize(
    ("base", "new", "text", "outcome"),
    [
        (0.11, 1.30, "=+1s", "inconclusive"),  # the gap of the base may be 1 s
        (0.11, 2.30, "=+1s", "regression"),
        (0.11, 1.70, "=+0.5s", "regression"),
        (0.11, 2.30, "=200%", "inconclusive"),
        (0.11, 3.30, "=200%", "regression"),
        (1.11, 2.30, "=+1s", "regression"),
        (0.11, 1.30, "=+2s", "ok"),
    ],
)
def test_a_gap_of_the_base_below_a_second_may_be_a_second(base: float, new: float, text: str, outcome: str) -> None:
    key = ("node down", "total", "longest_gap_s")
    old, young = (
        side(name, runs({key: [gap + 0.01 * i for i in range(5)]}, begin=begin))
        for name, gap, begin in (("old", base, 0), ("young", new, 0.5))
    )
    (ruling,) = gate(old, [young], GateLimits(tuple(of_texts([f"node down.longest_gap_s{text}"]))), Rules()).rulings
    assert ruling.outcome.word == outcome


@pytest.mark.parametrize(
    ("texts", "shadowed"),
    [
        (["GET.p99_ms=10%", "GET.p99_ms<=170"], ("GET.p99_ms: 10%",)),
        (["GET.p99_ms<=170", "p99_ms<=170", "p99_ms<=170"], ("GET.p99_ms: <=170", "p99_ms: <=170")),
        (["obj_per_s>=90", "p99_ms=10%"], ()),
    ],
)
def test_limits_whose_rows_have_a_later_limit_are_named(texts: List[str], shadowed: Tuple[str, ...]) -> None:
    base, new = (side(name, runs({GET: [100.0] * 3, P99: [20.0] * 3})) for name in ("old", "young"))
    gated = gate(base, [new], GateLimits(tuple(of_texts(texts))), Rules())
    assert gated.shadowed == shadowed and data(gated)["shadowed"] == list(shadowed)
    assert ("limits without effect" in Terminal().text(blocks(gated))) == bool(shadowed)


@pytest.mark.parametrize("name", ["highest_per_s", "find", "fi*", "*", "total", "find.total"])
def test_a_limit_names_a_ladder_as_a_failure(name: str) -> None:
    key = ("find", "total", "highest_per_s")
    base, new = (side(its, [record({key: level}, name=its)]) for its, level in (("a", 1000.0), ("b", 600.0)))
    (limit,) = of_texts([f"{name}{'.highest_per_s' if name != 'highest_per_s' else ''}>=900"])
    (ruling,) = gate(base, [new], GateLimits((limit,)), Rules()).rulings
    assert (ruling.row, ruling.outcome.word) == ("find/total/highest_per_s", "regression")


@pytest.mark.parametrize(("metric", "n", "failed", "outcome"), [
    ("p99_ms", 60, 0, GateOutcome.OK),
    ("p99_ms", 60, 39, GateOutcome.OK),
    ("p99_ms", 60, 40, GateOutcome.INCONCLUSIVE),  # with fewer failures it would be known
    ("p99_ms", 100, 0, GateOutcome.INCONCLUSIVE),
    ("p99_ms", 0, 60, GateOutcome.INCONCLUSIVE),
    ("p50_ms", 60, 0, GateOutcome.INCONCLUSIVE),
    ("p999_ms", 999, 0, GateOutcome.OK),
    ("ttfb_p99_ms", 60, 0, GateOutcome.OK),
])  # fmt: skip
def test_no_configuration_needs_a_percentile_of_too_few_requests(
    metric: str, n: int, failed: int, outcome: GateOutcome
) -> None:
    """Whatever program the runs are of, and whatever the phase is for."""
    absent, success = (("measure-new", "GET", name) for name in (metric, "success_rate"))
    few, many = (
        runs({key: [20.0] * 3 for key in keys}, begin=workers, config={"phase.measure-new.workers": workers})
        for workers, keys in ((1, (GET,)), (64, (GET, absent)))
    )
    for i, run in enumerate(few):
        rate = Measurement(*success, n / (n + failed), n=n + failed)
        few[i] = replace(run, measurements=(replace(run.measurements[0], n=n), rate), kind="fio")
    limits = GateLimits(tuple(of_texts([f"GET.{metric}<=30"])))
    for base in (many, [*many, *few]):
        assert gate(side("a", base), [side("b", [*many, *few])], limits, Rules()).outcome is outcome
