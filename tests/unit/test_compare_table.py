"""Verdicts of a table: planted changes are found, noise is not, and warnings are said."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Set

import pytest
from compare_records import noise, record, runs, side, warning

from cbt_plugins.compare.sides import Side, without_series
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import Choice, Compared, Rules, compare
from cbt_plugins.results.run_record import ResultWarning, RunRecord

GET, PUT = ("measure-new", "GET", "obj_per_s"), ("measure-new", "PUT", "obj_per_s")
P99 = ("measure-new", "GET", "p99_ms")


def lots(count: int = 6, seed: int = 1, **levels: float) -> Dict[Any, List[float]]:
    wanted = {"get": 100.0, "put": 50.0, "p99": 20.0, **levels}
    return {
        key: noise(wanted[name], count, scatter=0.01, seed=10 * seed + i)
        for i, (name, key) in enumerate((("get", GET), ("put", PUT), ("p99", P99)))
    }


def verdicts(compared: Compared) -> Dict[str, Verdict]:
    return {row.id: row.verdict for row in compared.rows}


def test_planted_changes_are_found_in_their_direction() -> None:
    base = side("old", runs(lots()))
    worse = side("worse", runs(lots(seed=2, get=90, p99=25), begin=0.5))
    assert verdicts(compare(base, [worse])) == {
        "measure-new/GET/obj_per_s": Verdict.WORSE,
        "measure-new/GET/p99_ms": Verdict.WORSE,
        "measure-new/PUT/obj_per_s": Verdict.EQUIVALENT,
    }
    better = side("better", runs(lots(seed=2, get=110, p99=15), begin=0.5))
    found = verdicts(compare(base, [better]))
    assert found["measure-new/GET/obj_per_s"] == found["measure-new/GET/p99_ms"] == Verdict.BETTER


def test_the_change_is_that_of_the_contender() -> None:
    row = compare(side("a", runs(lots())), [side("b", runs(lots(seed=2, get=80)))]).rows[0]
    assert row.comparison.change == pytest.approx(-0.2, abs=0.02)
    assert row.comparison.base.value == pytest.approx(100, rel=0.02)


def test_noise_gives_no_verdict_of_a_change() -> None:
    found: List[Verdict] = []
    for seed in range(2, 22):
        a, b = (side(name, runs(lots(seed=its))) for name, its in (("a", seed), ("b", 100 + seed)))
        found += verdicts(compare(a, [b])).values()
    assert sum(its in (Verdict.BETTER, Verdict.WORSE) for its in found) <= 2
    assert found.count(Verdict.EQUIVALENT) > 40  # of 60, and that is known within 5 %


def test_a_margin_decides_what_is_the_same() -> None:
    a, b = side("a", runs(lots())), side("b", runs(lots(seed=2)))
    assert set(verdicts(compare(a, [b], rules=Rules(margin=0.1))).values()) == {Verdict.EQUIVALENT}
    assert Verdict.EQUIVALENT not in verdicts(compare(a, [b], rules=Rules(margin=0.002))).values()


def test_a_success_rate_has_a_margin_of_its_own() -> None:
    """3 of 100 requests that fail are no small change; what the user gives counts for every metric."""
    rate = ("measure-new", "GET", "success_rate")
    failing = {rate: [0.97 + 0.001 * i for i in range(6)]}
    a, b = side("a", runs({rate: [1.0] * 6})), side("b", runs(failing, begin=0.5))
    assert set(verdicts(compare(a, [b])).values()) == {Verdict.WORSE}
    few = side("b", runs({rate: [0.9999 + 1e-5 * i for i in range(6)]}, begin=0.5))
    assert set(verdicts(compare(a, [few])).values()) == {Verdict.EQUIVALENT}
    assert set(verdicts(compare(a, [b], rules=Rules(margin=0.05))).values()) == {Verdict.EQUIVALENT}


def test_all_contenders_are_one_family() -> None:
    base, one = side("old", runs(lots())), side("one", runs(lots(seed=2, get=90)))
    alone = compare(base, [one])
    beside = compare(base, [one, side("two", runs(lots(seed=3)))])
    assert [row.contender for row in beside.rows] == ["one"] * 3 + ["two"] * 3
    assert len(alone.rows) == 3
    first, again = alone.rows[0].comparison, beside.rows[0].comparison
    assert first.p == again.p and first.adjusted is not None and again.adjusted is not None
    assert again.adjusted == pytest.approx(2 * first.adjusted)


def test_pairs_see_what_drift_hides() -> None:
    drift = [1.0, 0.93, 0.86, 0.8, 0.74, 0.69, 0.64, 0.6]
    small = [1.01, 0.99, 1.0, 1.005, 0.995, 1.0, 1.01, 0.99]
    base = {GET: [100 * d * s for d, s in zip(drift, small)]}
    new = {GET: [95 * d * s for d, s in zip(drift, reversed(small))]}
    a, b, late = side("a", runs(base)), side("b", runs(new, begin=0.5)), side("b", runs(new, begin=100))
    (one,), (paired,), (apart,) = (
        compare(a, [b]).rows,
        compare(a, [late], rules=Rules(paired=True)).rows,
        compare(a, [late]).rows,
    )
    assert apart.verdict is Verdict.INCONCLUSIVE and apart.way == "runs"
    assert paired.verdict is Verdict.WORSE and paired.way == "pairs"
    assert one.verdict is Verdict.WORSE and one.way == "pairs"  # their times say that they were interleaved
    with pytest.raises(ValueError, match="8 and 7"):
        compare(a, [side("b", runs({GET: base[GET][:7]}))], rules=Rules(paired=True))


def test_single_runs_are_compared_by_their_seconds() -> None:
    base, new = ({GET: noise(level, 60, scatter=0.05, seed=7 + int(level))} for level in (100.0, 80.0))
    for values, wanted in ((new, Verdict.WORSE), (base, Verdict.EQUIVALENT)):
        sides = side("a", [record(base)]), [side("b", [record(values)])]
        (row,) = compare(*sides, rules=Rules(scatter={"": 0.005})).rows
        assert row.verdict is wanted and row.way == "seconds" and row.runs == (1, 1)
        assert 20 < row.comparison.base.n <= 60  # so many of 60 seconds are independent
        (row,) = compare(*sides).rows  # how much runs differ is not known
        assert row.verdict is Verdict.INCONCLUSIVE
        assert "one-run" in {warning.code for warning in row.comparison.warnings}


def test_the_scatter_of_single_runs_is_learnt_from_repeated_ones() -> None:
    """Of the same configuration, in the history or on the other side; of each metric its own, percentiles too."""

    def nights(count: int, **more: Any) -> List[RunRecord]:
        return runs({GET: noise(100, count, scatter=0.02, seed=1), P99: noise(20, count, scatter=0.05, seed=2)}, **more)

    base, new = side("a", [record({GET: 100.0, P99: 20.0}, name="a")]), side("b", [record({GET: 85.0, P99: 22.0})])
    assert set(verdicts(compare(base, [new])).values()) == {Verdict.INCONCLUSIVE}
    known = compare(base, [new], rules=Rules(history=tuple(nights(10))))
    assert list(verdicts(known).values()) == [Verdict.WORSE, Verdict.INCONCLUSIVE]
    assert [its.comparison.method for its in known.rows] == ["t with a known scatter"] * 2
    low, high = (known.rows[0].comparison.change_low or 0), (known.rows[0].comparison.change_high or 0)
    assert low < -0.15 < high and 0.08 < high - low < 0.14
    assert verdicts(compare(side("a", nights(6)), [new])) == verdicts(known)
    for other in ({"config": {"load.drivers": 4}}, {"usable": False}):  # what they repeat is not this
        unknown = compare(base, [new], rules=Rules(history=tuple(nights(10, **other))))
        assert set(verdicts(unknown).values()) == {Verdict.INCONCLUSIVE}
    assert set(verdicts(compare(base, [new], rules=Rules(history=tuple(nights(2))))).values()) == {Verdict.INCONCLUSIVE}


def test_a_run_that_is_not_steady_has_no_verdict() -> None:
    base, new = (noise(level, 300, scatter=0.05, seed=1) for level in (100.0, 60.0))
    for broken, wanted in ((0.0, Verdict.WORSE), (6.0, Verdict.INCONCLUSIVE)):
        step = [value - broken * (100 < i < 200) for i, value in enumerate(new)]
        sides = side("a", [record({GET: base})]), [side("b", [record({GET: step})])]
        (row,) = compare(*sides, rules=Rules(scatter={"": 0.005})).rows
        assert row.verdict is wanted
        assert ("not-steady" in {its.code for its in row.comparison.new.warnings}) == bool(broken)


def test_a_scatter_that_is_known_widens_the_interval_of_single_runs() -> None:
    base, new = ({GET: noise(level, 60, scatter=0.05, seed=7 + int(level))} for level in (100.0, 90.0))
    sides = side("a", [record(base)]), side("b", [record(new)])
    (sure,), (unsure,) = (compare(sides[0], sides[1:], rules=Rules(scatter={"": its})).rows for its in (0.001, 0.05))
    assert (sure.verdict, unsure.verdict) == (Verdict.WORSE, Verdict.INCONCLUSIVE)
    assert "one-run" not in {warning.code for warning in unsure.comparison.warnings}


def test_a_scatter_of_all_rates_is_not_that_of_latencies_or_processors() -> None:
    rate, mean, cores = GET, ("measure-new", "GET", "mean_ms"), ("measure-new", "osd", "cores")
    base, new = ({key: noise(its, 60, scatter=0.02, seed=7) for key in (rate, mean, cores)} for its in (100.0, 80.0))
    choice = Choice(metrics=("obj_per_s", "mean_ms", "cores"))
    rows = compare(side("a", [record(base)]), [side("b", [record(new)])], choice, Rules(scatter={"": 0.005})).rows
    assert {row.metric: "one-run" in {its.code for its in row.comparison.warnings} for row in rows} == {
        "obj_per_s": False, "mean_ms": True, "cores": True,
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 2])
def test_a_scatter_of_all_rates_is_that_of_sides_of_two_runs_too(count: int) -> None:
    base, new = (side(name, runs({GET: [level, level + 1][:count]})) for name, level in (("a", 100.0), ("b", 90.0)))
    named, of_all = (compare(base, [new], rules=Rules(scatter={key: 0.02})).rows for key in ("obj_per_s", ""))
    assert named == of_all and named[0].comparison.method == "t with a known scatter"
    # there is an interval
    assert [warning.code for warning in named[0].comparison.all_warnings] == ["assumes-normal", "known-scatter"]


def test_several_runs_are_never_compared_by_their_seconds() -> None:
    values = {GET: noise(100.0, 60, scatter=0.1, seed=7)}
    (row,) = compare(side("a", [record(values)]), [side("b", [record(values, name=n) for n in "xyz"])]).rows
    assert row.way == "runs" and row.verdict is Verdict.INCONCLUSIVE
    assert "too-few-runs" in {warning.code for warning in row.comparison.warnings}


def test_a_percentile_of_single_runs_cannot_be_told() -> None:
    (row,) = compare(side("a", [record({P99: 20.0})]), [side("b", [record({P99: 40.0})])]).rows
    assert row.verdict is Verdict.INCONCLUSIVE and row.comparison.base.low is None
    assert row.comparison.change == pytest.approx(1.0)


def test_what_is_not_there_is_said() -> None:
    a, b = record({GET: 1.0, P99: 2.0}), record({GET: 1.0, P99: None, PUT: 3.0})
    (section,) = compare(side("a", [a]), [side("b", [b])]).sections
    assert [(its.where, its.text) for its in section.missing] == [
        ("measure-new/GET/p99_ms", "no number of b"),
        ("measure-new/PUT/obj_per_s", "no number of the base"),
    ]
    three = runs({GET: [1.0, 2.0, 3.0]})
    (row,) = compare(side("a", three), [side("b", [*three[:2], record({PUT: 1.0})])], Choice(ops=("GET",))).rows
    assert "missing-values" in {warning.code for warning in row.comparison.warnings} and row.runs == (3, 2)


@pytest.mark.parametrize(("level", "whole", "part"), [
    (100.0, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE),
    (130.0, Verdict.BETTER, Verdict.INCONCLUSIVE),
    (70.0, Verdict.WORSE, Verdict.WORSE),
])  # fmt: skip
def test_runs_without_a_number_are_neither_better_nor_equivalent(level: float, whole: Verdict, part: Verdict) -> None:
    base, new = (runs({GET: noise(its, 6, scatter=0.005, seed=1)}) for its in (100.0, level))
    for lost, verdict in (([], whole), ([record({GET: None}, name=f"lost-{i}") for i in range(3)], part)):
        (row,) = compare(side("a", base), [side("b", [*new, *lost])]).rows
        assert row.verdict is verdict


def test_which_rows_there_are() -> None:
    values = {
        ("measure-new", "GET", "obj_per_s"): 1.0,
        ("measure-new", "GET", "mib_per_s"): 1.0,
        ("measure-new", "GET", "success_rate"): 1.0,
        ("measure-new", "total", "obj_per_s"): 1.0,
        ("measure-new", "total", "ops_per_core"): 1.0,
        ("measure-new", "osd", "cores"): 1.0,
        ("a return", "cluster", "recovery_s"): 1.0,
        ("measure-new / degraded", "GET", "obj_per_s"): 1.0,
    }

    def ids(choice: Choice, **change: float) -> List[str]:
        new = {**values, ("measure-new", "GET", "success_rate"): change.get("success", 1.0)}
        made = compare(side("a", [record(values)]), [side("b", [record(new)])], choice)
        return [row.id for row in made.rows]

    main = ["measure-new/GET/obj_per_s", "measure-new/total/ops_per_core", "a return/cluster/recovery_s"]
    assert ids(Choice()) == main
    assert ids(Choice(), success=0.99) == [main[0], "measure-new/GET/success_rate", *main[1:]]
    assert ids(Choice(metrics=("success_rate",))) == ["measure-new/GET/success_rate"]
    assert ids(Choice(ops=("total",), metrics=("*_s",))) == ["measure-new/total/obj_per_s"]
    assert ids(Choice(phases=("* / *",))) == ["measure-new / degraded/GET/obj_per_s"]
    assert ids(Choice(metrics=("cores",))) == ["measure-new/osd/cores"]


def test_warnings_of_the_runs() -> None:
    """Not usable, warnings of the summary, sides that are mixed or were made one after the other, unsteady series."""
    calm = noise(100.0, 60, scatter=0.05, seed=3)
    falling = [value * (1 - i / 600) for i, value in enumerate(calm)]
    base = [record({GET: calm}, name=n, started=float(n)) for n in "123"]
    new = [
        record({GET: falling}, name="4", started=4.0, usable=False, warnings=warning("no-rows")),
        record({GET: calm}, name="5", started=5.0, warnings=warning("generator-bound")),
        record({GET: calm}, name="6", started=6.0, config={"version.ceph": "18"}, warnings=warning("few-samples")),
    ]
    made = compare(side("a", base), [side("b", new)])
    found = {(its.code, its.where) for its in made.sections[0].warnings}
    assert found >= {
        ("not-interleaved", "base, new"),
        ("mixed-side", "new"),
        ("not-usable", "new runs/4"),
        ("no-rows", "new runs/4"),
        ("generator-bound", "new runs/5"),
        ("drift", "new runs/4 measure-new GET"),
    }
    assert not any(code == "few-samples" or where.startswith("base ") for code, where in found)
    assert not made.usable and compare(side("a", base), [side("b", base)]).usable
    dropped = [side(name, [without_series(run) for run in runs]) for name, runs in (("a", base), ("b", new))]
    assert not any(measurement.series for run in dropped[1].runs for measurement in run.measurements)
    assert compare(dropped[0], dropped[1:]).sections[0].warnings == made.sections[0].warnings


def test_some_warnings_forbid_a_verdict_on_the_rows_that_they_are_about() -> None:
    """Numbers that are not what was meant to be measured are inconclusive, however different they are."""
    aged = ("measure-aged", "GET", "obj_per_s")
    values = {**lots(), aged: noise(100.0, 6, scatter=0.01, seed=5)}
    slower = {**lots(seed=2, get=80, put=40), aged: noise(80.0, 6, scatter=0.01, seed=6)}

    def found(**about: str) -> Dict[str, Verdict]:
        new = runs(slower, begin=0.5)
        new[0] = dataclasses.replace(new[0], warnings=(ResultWarning("no-rows", "a job has none", **about),))
        made = compare(side("a", runs(values)), [side("b", new)])
        for row in made.rows:
            why = [its.text for its in row.comparison.new.warnings if its.code == "no-rows"]
            assert (why == ["new: a job has none"]) == (row.verdict is Verdict.INCONCLUSIVE) or "p99" in row.id
        return verdicts(made)

    new_get, new_put, aged_get = (f"measure-{its}/obj_per_s" for its in ("new/GET", "new/PUT", "aged/GET"))
    both = (Verdict.WORSE, Verdict.INCONCLUSIVE)
    for about, forbidden in (
        ({}, {new_get, new_put, aged_get}),
        ({"phase": "measure-new"}, {new_get, new_put}),
        ({"phase": "measure-new", "op": "GET"}, {new_get}),
    ):
        shown = found(**about)
        assert {key: shown[key] for key in (new_get, new_put, aged_get)} == {
            key: both[key in forbidden] for key in (new_get, new_put, aged_get)
        }


@pytest.mark.parametrize("paired", [False, True])
def test_runs_that_did_not_recover_leave_no_verdict_to_the_others(paired: bool) -> None:
    recovery = ("kill failure", "cluster", "recovery_s")
    base = side("a", runs({recovery: noise(100, 10, scatter=0.01, seed=1)}))
    some = runs({recovery: noise(90, 10, scatter=0.01, seed=2)}, begin=0.5)
    for i in (1, 5):
        (its,) = some[i].measurements
        some[i] = dataclasses.replace(some[i], measurements=(dataclasses.replace(its, value=None),))
    for one, other, who in ((base, side("b", some), "new"), (side("b", some), base, "base")):
        (row,) = compare(one, [other], rules=Rules(paired=paired)).rows
        assert row.verdict is Verdict.INCONCLUSIVE and row.comparison.forbidden_by
        text = f"2 of 10 runs of the {who} side have no time to active+clean: not reached, or not seen"
        assert row.comparison.forbidden_by.text == text
    (row,) = compare(base, [side("b", some[6:])]).rows
    assert row.verdict is Verdict.BETTER
    rate = ("kill failure", "cluster", "recovery_mib_per_s")  # not known, which is another matter
    made = [record({rate: None if i == 3 else 80.0 + i}, name=str(i), started=float(i)) for i in range(12)]
    (row,) = compare(side("a", made[::2]), [side("b", made[1::2])], Choice(metrics=("recovery_mib_per_s",))).rows
    assert row.comparison.forbidden_by is None


@pytest.mark.parametrize(
    ("code", "op", "level", "forbidden"),
    [
        ("paced", "GET", 120.0, {"GET/obj_per_s", "GET/p99_ms"}),
        ("paced", "GET", 100.0, {"GET/obj_per_s", "GET/p99_ms"}),
        ("paced", "GET", 80.0, set()),
        ("rate-given", None, 120.0, {"GET/obj_per_s", "PUT/obj_per_s"}),
        ("rate-given", None, 80.0, set()),
        ("generator-bound", None, 120.0, {"GET/obj_per_s", "PUT/obj_per_s", "GET/p99_ms"}),
        ("generator-bound", None, 80.0, {"GET/obj_per_s", "PUT/obj_per_s", "GET/p99_ms"}),
    ],
)
def test_what_was_held_down_is_never_better_nor_equivalent(code: str, op: str, level: float, forbidden: Any) -> None:
    """Slower than it was held to is slower all the same; the rate of an open loop says nothing of its latency."""
    keys = {"GET/obj_per_s": GET, "PUT/obj_per_s": PUT, "GET/p99_ms": P99}

    def values(speed: float, seed: int) -> Dict[Any, Any]:
        levels = {GET: speed, PUT: speed, P99: 10000 / speed}
        return {key: noise(its, 8, scatter=0.003, seed=seed) for key, its in levels.items()}

    plain = [runs(values(100.0, 1)), runs(values(level, 2), begin=0.5)]
    held = [dataclasses.replace(run, warnings=(ResultWarning(code, "held", "measure-new", op),)) for run in plain[1]]
    free, capped = (
        {row.key: row for row in compare(side("a", plain[0]), [side("b", its)]).rows} for its in (plain[1], held)
    )
    for name, key in keys.items():
        assert free[key].verdict is not Verdict.INCONCLUSIVE, name
        assert capped[key].verdict is (Verdict.INCONCLUSIVE if name in forbidden else free[key].verdict), name


@pytest.mark.parametrize(
    ("codes_of_base", "codes_of_new", "hidden"),
    [
        (["generator-bound"], [], {P99}),  # a base with less load has lower latencies, and would be faster still
        ([], ["generator-bound"], {GET, P99}),
        (["generator-bound"], ["generator-bound"], {GET, P99}),  # nobody knows that both limits are the same
        (["paced"], [], {P99}),
        ([], ["paced"], set()),
        (["paced"], ["paced"], set()),
    ],
)
def test_a_limit_that_may_be_the_reason_hides_worse(
    codes_of_base: List[str], codes_of_new: List[str], hidden: Set[Any]
) -> None:
    levels = ({GET: 100.0, P99: 100.0}, {GET: 80.0, P99: 125.0})
    held = []
    for seed, codes in enumerate((codes_of_base, codes_of_new)):
        values = {key: noise(level, 8, scatter=0.003, seed=seed) for key, level in levels[seed].items()}
        warnings = tuple(ResultWarning(code, "held", "measure-new") for code in codes)
        held.append([dataclasses.replace(run, warnings=warnings) for run in runs(values, begin=seed / 2)])
    compared = compare(side("a", held[0]), [side("b", held[1])])
    assert {row.key: row.verdict for row in compared.rows} == {
        key: Verdict.INCONCLUSIVE if key in hidden else Verdict.WORSE for key in (GET, P99)
    }


def test_interleaved_runs_give_no_warning() -> None:
    a, b = side("a", runs(lots())), side("b", runs(lots(seed=2), begin=0.5))
    assert compare(a, [b]).sections[0].warnings == ()
    late = side("b", runs(lots(seed=2), begin=100))
    assert [its.code for its in compare(a, [late]).sections[0].warnings] == ["not-interleaved"]
    groups = side("b", runs(lots(seed=2), begin=2.5))  # BBBNBNBNBNNN
    assert [its.code for its in compare(a, [groups]).sections[0].warnings] == ["not-interleaved"]


def test_iterations_of_one_archive_give_a_warning() -> None:
    def made(name: str, archives: List[str]) -> Side:
        its = runs(lots(), begin=0.5 * (name == "b"))
        paths = [f"{archive}/results/{i:08d}/id-{i}" for i, archive in enumerate(archives)]
        return side(name, [dataclasses.replace(run, source=path) for run, path in zip(its, paths)])

    apart = made("a", [f"quincy{i}" for i in range(6)])
    for archives, where in ((["reef"] * 6, ["new"]), (["r1", "r2"] * 3, ["new"]), (list("123456"), [])):
        warnings = compare(apart, [made("b", archives)]).sections[0].warnings
        assert [its.where for its in warnings] == where and {its.code for its in warnings} <= {"same-archive"}
    (both,) = compare(made("a", ["quincy"] * 6), [made("b", ["reef"] * 6)]).sections[0].warnings
    assert both.where == "base, new"


def test_one_run_without_a_time_does_not_hide_the_order_of_the_others() -> None:
    rising = {GET: [100.0 + 0.5 * i for i in range(10)]}
    base, new = runs(rising), runs({GET: [value + 5 for value in rising[GET]]}, begin=10)
    base[0] = dataclasses.replace(base[0], started=None)
    made = compare(side("a", base), [side("b", new)])
    assert "(no start is known of 1 of the 20 runs)" in made.sections[0].warnings[0].text
    (row,) = made.rows
    assert row.verdict is Verdict.INCONCLUSIVE
    assert {"drift-of-runs", "order-unknown"} <= {its.code for its in row.comparison.warnings}
    unknown = [dataclasses.replace(its, started=None) for its in (*base, *new)]
    (row,) = compare(side("a", unknown[:10]), [side("b", unknown[10:])]).rows
    assert not {"drift-of-runs", "order-unknown"} & {its.code for its in row.comparison.warnings}


def test_rows_of_a_sweep_have_their_case_in_the_id() -> None:
    both = [record({GET: 1.0}, config={"phase.measure-new.workers": n}, name=str(n)) for n in (8, 16)]
    made = compare(side("a", both), [side("b", both)])
    assert [row.id for row in made.rows] == [
        "phase.measure-new.workers=8/measure-new/GET/obj_per_s",
        "phase.measure-new.workers=16/measure-new/GET/obj_per_s",
    ]


def test_key_rows_are_those_of_all_operations_and_recovery() -> None:
    total, p99 = ("measure-new", "total", "obj_per_s"), ("measure-new", "total", "p99_ms")
    values = {GET: 1.0, PUT: 1.0, P99: 1.0, total: 2.0, p99: 1.0, ("a return", "cluster", "recovery_s"): 1.0}

    def keys(choice: Choice, *without: Any) -> List[str]:
        kept = record({key: value for key, value in values.items() if key not in without})
        return [row.id for row in compare(side("a", [kept]), [side("b", [kept])], choice).rows if row.comparison.key]

    wide = ["measure-new/total/obj_per_s", "measure-new/total/p99_ms", "a return/cluster/recovery_s"]
    assert keys(Choice()) == wide
    assert keys(Choice(keys=("GET.p99_ms",))) == ["measure-new/GET/p99_ms"]
    cpu = ("measure-new", "osd", "cpu_ms_per_op")  # in no table unless it is asked for
    values[cpu] = 1.0
    assert keys(Choice(keys=("osd.cpu_ms_per_op",))) == ["measure-new/osd/cpu_ms_per_op"]
    # the only operation of a phase says all
    assert keys(Choice(), PUT, cpu) == ["measure-new/GET/obj_per_s", "measure-new/GET/p99_ms", wide[2]]


@pytest.mark.parametrize("metric", ["highest_per_s", "highest_workers"])
def test_the_answer_of_a_ladder_is_a_key_row(metric: str) -> None:
    key = ("find", "total", metric)
    base, new = (
        runs({GET: noise(100, 6, scatter=0.01, seed=1), key: noise(level, 6, scatter=0.01, seed=2)})
        for level in (1000, 600)
    )
    rows = {row.key: row for row in compare(side("a", base), [side("b", new)]).rows}
    assert list(rows) == [GET, key]
    assert rows[key].verdict is Verdict.WORSE and rows[key].comparison.key


def test_bins_of_an_importer_widen_the_interval() -> None:
    made = [record({P99: 110.0}, name=str(i), started=float(i)) for i in range(6)]
    binned = [
        dataclasses.replace(its, measurements=(dataclasses.replace(its.measurements[0], bin=10.0),)) for its in made
    ]
    found = [verdicts(compare(side("a", its), [side("b", its)]))["measure-new/GET/p99_ms"] for its in (made, binned)]
    assert found == [Verdict.EQUIVALENT, Verdict.INCONCLUSIVE]
