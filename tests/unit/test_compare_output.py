"""How comparisons are drawn: text, Markdown, CSV and JSON of the same rows, byte for byte the same every time."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Dict, Tuple

import pytest
from compare_records import noise, record, runs, side, warning

from cbt_plugins.compare import output, releases_table
from cbt_plugins.compare.configuration_differences import Scale
from cbt_plugins.compare.scaling_gains import gains
from cbt_plugins.compare.sides import ComparisonWarning
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate
from cbt_plugins.compare.table import Choice, Compared, Rules, compare
from cbt_plugins.formatting import screen
from cbt_plugins.formatting.blocks import Heading, Notes, TableGrid, Words
from cbt_plugins.formatting.formats.markdown import Markdown
from cbt_plugins.formatting.formats.terminal import Terminal

GET, P99 = ("measure-new", "GET", "obj_per_s"), ("measure-new", "GET", "p99_ms")


def compared(**more: Any) -> Compared:
    base = runs({GET: [100.0, 101.0, 99.0], P99: [20.0, 20.2, 19.9]})
    new = runs({GET: [80.0, 81.0, 79.5], P99: [20.1, 20.0, 20.3]}, begin=0.5, config={"version.ceph": "18.2.7 reef"})
    return compare(side("old", base), [side("young", new)], **more)


@pytest.mark.parametrize(("paths", "text"), [(6, "a0, a1, a2, a3, a4, a5"), (32, "32 paths, from a0 to a31")])
def test_many_paths_of_a_side_are_not_all_named(paths: int, text: str) -> None:
    base = replace(side("old", runs({GET: [1.0, 2.0]})), given=tuple(f"a{n}" for n in range(paths)))
    (line,) = output.side_lines(Compared(base, (), (), (), Rules()))
    assert line == f"base: old, 2 runs in {text}"


def as_json(made: Compared) -> Any:
    return json.loads(json.dumps(output.data(made), allow_nan=False))


def test_text() -> None:
    assert Terminal().text(output.blocks(compared())) == (
        """\
base: old, 3 runs
new:  young, 3 runs

configuration differences  base           new
version.ceph               17.2.6 quincy  18.2.7 reef

phase        op   metric      unit           base           new                  change       p    n     verdict
measure-new  GET  throughput  obj/s  100.0 ±2.5 %  80.00 ±2.6 %  -19.8 % [-21.6, -18.0]  <0.001  3+3       worse
measure-new  GET  p99         ms     20.00 ±2.1 %  20.10 ±2.1 %     +0.5 % [-0.8, +1.8]   0.467  3+3  equivalent

warnings
 - assumes-normal (measure-new GET obj_per_s and 1 more): 3 runs: valid only if the logarithms of runs are
   about normally distributed

±: 95 % confidence interval; in brackets: interval of the change, in percent; of equivalent rows at 90 %,
which decides them
n: runs of the base and of the other side; values are medians
change: estimated from all runs together, not from the two medians
p: after Holm's correction over 2 rows
better and worse need p < 0.05, equivalent needs a change that is surely within ±5 %
"""
    )


def test_markdown_says_the_same() -> None:
    text, markdown = (draw(output.blocks(compared())) for draw in (Terminal().text, Markdown().text))
    head, rule = "| phase | op | metric | unit | base | new | change | p | n | verdict |", "| :--- " * 4 + "| ---: " * 6
    assert f"{head}\n{rule}|\n" in markdown
    cells = "100.0 ±2.5 % | 80.00 ±2.6 % | -19.8 % [-21.6, -18.0]"
    assert f"| measure-new | GET | throughput | obj/s | {cells} |" in markdown
    assert set(text.replace(":", "").split()) <= set(markdown.replace(" |", "").replace(":", "").split())


def test_csv_and_json_have_the_same_numbers() -> None:
    made = compared()
    rows = [dict(zip(output.COLUMNS, line)) for line in output.table(made)[1:]]
    told = as_json(made)
    assert tuple(rows[0]) == output.COLUMNS and len(rows) == len(told["sections"][0]["rows"]) == 2
    for row, its in zip(rows, told["sections"][0]["rows"]):
        assert {key: its[key] for key in ("phase", "op", "metric", "unit", "verdict")}.items() <= row.items()
        for key in ("base", "base_low", "new", "change", "change_high", "p", "p_adjusted"):
            assert float(row[key]) == its[key], key
        assert its["id"] == f"{row['phase']}/{row['op']}/{row['metric']}"
    rules = {"margin": 0.05, "alpha": 0.05, "confidence": 0.95, "paired": False, "scatter": {}, "scale": None}
    assert told["rules"] == rules
    (difference,) = told["sections"][0]["differences"]
    assert difference == {"key": "version.ceph", "base": "17.2.6 quincy", "new": "18.2.7 reef"}
    assert told["usable"] is True and told["base"]["runs"][0]["source"] == "runs/0-0"


@pytest.mark.parametrize(
    "draw",
    [
        lambda made: Terminal().text(output.blocks(made)),
        lambda made: Markdown().text(output.blocks(made)),
        output.table,
        output.data,
    ],
)
def test_the_same_input_gives_the_same_bytes(draw: Any) -> None:
    assert draw(compared()) == draw(compared())


def test_the_margin_of_each_row_is_told() -> None:
    rate = ("measure-new", "GET", "success_rate")
    both = side("a", runs({GET: [1.0, 2.0, 3.0], rate: [1.0, 0.9, 1.0]}))
    made = compare(both, [both])
    assert [row["margin"] for row in as_json(made)["sections"][0]["rows"]] == [0.05, 0.001]
    assert "surely within ±5 % (success rate: ±0.1 %)" in Terminal().text(output.blocks(made))
    assert "surely within ±5 %\n" in Terminal().text(output.blocks(compared()))


def test_what_cannot_be_computed_is_not_made_up() -> None:
    made = compare(side("a", [record({P99: 20.0})]), [side("b", [record({P99: 40.0})])])
    (row,) = made.rows
    assert output.line(row)[4:] == ("20.00", "40.00", "+100.0 %", "-", "1+1", "inconclusive")
    told = as_json(made)["sections"][0]["rows"][0]
    assert told["p"] is None and told["base_low"] is None and told["verdict"] == "inconclusive"
    assert output.number(float("inf")) is output.number(float("nan")) is None


def test_values_and_changes() -> None:
    def estimate(value: float, low: float, high: float) -> Estimate:
        return Estimate(value, low, high, 5, 0.95)

    assert output.value(estimate(100.0, 98.0, 101.0)) == "100.0 ±2.0 %"  # the farther end
    assert output.value(estimate(0.0, 0.0, 2.0)) == "0 ±2.000"
    nothing = estimate(0.0, 0.0, 0.0)
    assert output.change_text(Comparison(nothing, nothing, None, None, None, None, "none")) == "-"
    assert output.change_text(Comparison(nothing, nothing, -0.00001, None, None, None, "none")) == "0.0 %"
    assert [output.chance(p) for p in (None, 0.00099, 0.0123)] == ["-", "<0.001", "0.012"]


@pytest.mark.parametrize(
    ("change", "low", "high", "shown"),
    [
        (3.0, 1.5, 4.5, "+300.0 % [+150.0, +450.0]"),  # four times as slow, and surely worse
        (-0.6, -0.95, -0.2, "-60.0 % [-95.0, -20.0]"),
        (0.2, -0.8, 5.0, "+20.0 % [no bounds]"),
        (9.0, 0.1, 950.0, "+900.0 % [no bounds]"),
        (0.0, -1.0, float("inf"), "0.0 % [no bounds]"),
    ],
)
def test_an_interval_is_shown_where_it_tells_something(change: float, low: float, high: float, shown: str) -> None:
    one = Estimate(1.0, None, None, 3.0, 0.95)
    assert output.change_text(Comparison(one, one, change, low, high, None, "t")) == shown


def test_warnings_are_given_once_for_each_code() -> None:
    told = list(
        output.merged_warnings(
            [
                ComparisonWarning("drift", "a", "falls"),
                ComparisonWarning("drift", "b", "rises"),
                ComparisonWarning("stall", "a", "s"),
            ]
        )
    )
    assert told == ["drift (a and 1 more): falls", "stall (a): s"]


def test_single_runs_and_several_contenders() -> None:
    series = {GET: noise(100.0, 60, scatter=0.1, seed=1)}
    one = side("one", [record(series, warnings=warning("generator-bound"))])
    made = compare(one, [side("two", [record(series)]), side("three", [record(series)])])
    text = Terminal().text(output.blocks(made))
    assert text.count("\ntwo\n===\n") == text.count("\nthree\n=====\n") == 1
    assert "n with ~: independent seconds of single runs" in text and "n: runs of the base" not in text
    assert "generator-bound (base 0): because of generator-bound" in text  # it has rows, too
    assert "one-run (measure-new GET obj_per_s): one run each" in text


def test_long_values_are_cut_and_pipes_are_no_columns() -> None:
    new = runs({GET: [1.0, 2.0]}, config={"ceph.osd.long": "x" * 100})
    made = compare(side("a", runs({GET: [1.0, 2.0]})), [side("b", [*new, record({GET: 3.0})])])
    text, markdown = (draw(output.blocks(made)) for draw in (Terminal().text, Markdown().text))
    assert "x" * 57 + "..." in text and "x" * 58 not in text
    assert as_json(made)["sections"][0]["differences"][0]["new"].startswith("x" * 100)
    assert "\\|" not in text and all("\\|" in line or line.count("|") in (0, 4, 11) for line in markdown.splitlines())


def test_blocks() -> None:
    blocks = [Heading("h"), Words(()), Notes("n", ()), TableGrid(("a",), ()), Notes("n", ("word " * 40,))]
    assert Terminal().text(blocks).splitlines()[:4] == ["h", "=", "", "n"]
    assert all(len(line) <= screen.WIDTH for line in Terminal().text(blocks).splitlines())
    assert Markdown().text([Words(("a", "b"))]) == "- a\n- b\n" and Markdown().text([Words(("a",))]) == "a\n"
    assert Markdown().text([Notes("n", ("i",))]) == "n:\n\n- i\n"


def study() -> Tuple[Compared, Dict[str, float]]:
    """Hours and rates as the Reef study has them: 80 and 38 hours of recovery."""

    def run(read: float, write: float, hours: float, cores: float) -> Any:
        values = {}
        for phase, share in (("measure-new", 1.0), ("age", 0.9), ("measure-aged", 0.8)):
            values[phase, "GET", "mib_per_s"] = read * share
            values[phase, "PUT", "mib_per_s"] = write * share
            values[phase, "GET", "p99_ms"] = 1.0
        values["measure-new", "rgw", "cores"] = cores
        values["node-a return", "cluster", "recovery_s"] = hours * 3600
        return values

    config = {"phase.age.role": "age"}
    base = record(run(100, 50, 80, 10), config=config)
    new = record(run(120, 60, 38, 9), config={**config, "version.ceph": "18.2.7 reef"})
    made = compare(side("17.2.6 quincy", [base]), [side("18.2.7 reef", [new])], releases_table.CHOICE)
    return made, {}


def test_releases_side_by_side() -> None:
    made, _ = study()
    lines = Terminal().text(releases_table.blocks(made)).splitlines()
    cells = [[cell for cell in line.split("  ") if cell] for line in lines]
    told = [[part.strip() for part in row] for row in cells]
    assert ["read", "measure-new", "MiB/s", "100.0", "120.0", "+20.0 %", "-", "inconclusive"] in told
    assert ["write", "measure-aged", "MiB/s", "40.00", "48.00", "+20.0 %", "-", "inconclusive"] in told
    assert ["to active+clean", "node-a return", "h", "80.00", "38.00", "-52.5 %", "-", "inconclusive"] in told
    assert ["RGW cores", "measure-new", "cores", "10.00", "9.000", "-10.0 %", "-", "inconclusive"] in told
    titles = [line for line in lines if line in ("throughput", "recovery", "CPU")]
    assert titles == ["throughput", "recovery", "CPU"]
    assert not any("p99" in line for line in lines)


def test_releases_side_by_side_have_differences_and_warnings_and_explain_no_column_that_is_not_there() -> None:
    made, _ = study()
    good, bad = (replace(made.contenders[0].runs[0], source=f"runs/{n}", usable=n == 1) for n in (1, 2))
    bad = replace(bad, config={"version.ceph": "19.2.3 squid"})
    others = [side("18.2.7 reef", [good]), side("19.2.3 squid", [bad])]
    three = compare(made.base, others, releases_table.CHOICE)
    text = Terminal().text(releases_table.blocks(three))
    assert re.search(r"version.ceph +17.2.6 quincy +18.2.7 reef\n", text)
    assert re.search(r"version.ceph +17.2.6 quincy +19.2.3 squid\n", text)
    assert "warnings of 18.2.7 reef\n - too-few-runs (measure-new GET mib_per_s and " in text
    assert "warnings of 19.2.3 squid\n - not-usable (new 0): " in text
    key = ("measure", "GET", "mib_per_s")
    several = [side(name, runs({key: [level, level + 1, level + 2]})) for name, level in (("a", 100.0), ("b", 90.0))]
    text = Terminal().text(releases_table.blocks(compare(several[0], several[1:], releases_table.CHOICE)))
    assert "n:" not in text and "values of several runs are medians" in text


def test_hours_keep_their_intervals() -> None:
    key = ("node-a return", "cluster", "recovery_s")
    hours = {"a": (79, 80, 81), "b": (39, 38, 37)}
    a, b = (side(name, runs({key: [3600.0 * hour for hour in its]})) for name, its in hours.items())
    text = Terminal().text(releases_table.blocks(compare(a, [b], releases_table.CHOICE)))
    assert "to active+clean  node-a return  h     80.00 ±3.1 %  38.00 ±6.7 %" in text


@pytest.mark.parametrize("between", ["age", "measure"])
def test_new_and_aged_are_said_where_a_phase_has_aged_the_cluster(between: str) -> None:
    values = {(phase, "GET", "mib_per_s"): 1.0 for phase in ("one", "two", "three")}
    config = {f"phase.{name}.role": "measure" for name in ("one", "two", "three")}
    both = side("a", [record(values, config={**config, "phase.two.role": between})])
    text = Terminal().text(releases_table.blocks(compare(both, [both], releases_table.CHOICE)))
    assert ("one (new)" in text) == ("three (aged)" in text) == (between == "age") and "two (" not in text


def test_the_only_state_of_a_phase_is_not_shown_once_more() -> None:
    rates = {"calm": 9.0, "calm / no failure": 9.0, "hurt": 5.0, "hurt / degraded": 4.0, "hurt / recovering": 6.0}
    both = side("a", [record({(phase, "GET", "mib_per_s"): rate for phase, rate in rates.items()})])
    text = Terminal().text(releases_table.blocks(compare(both, [both], releases_table.CHOICE)))
    assert [line.split("  ")[1].strip() for line in text.splitlines() if line.startswith("read")] == [
        "calm",
        "hurt",
        "hurt / degraded",
        "hurt / recovering",
    ]


def test_sides_say_which_runs_are_not_usable() -> None:
    bad = [record({P99: 1.0}), record({P99: 1.0}, usable=False)]
    text = Terminal().text(output.blocks(compare(side("a", bad), [side("b", bad)])))
    assert text.startswith("base: a, 2 runs, 1 unusable\n")


def test_releases_as_csv_keep_seconds() -> None:
    made, _ = study()
    head, *lines = releases_table.table(made)
    rows = [dict(zip(head, line)) for line in lines]
    (recovery,) = [row for row in rows if row["what"] == "to active+clean"]
    assert (recovery["base_value"], recovery["value"], recovery["unit"]) == ("288000", "136800", "s")
    assert float(recovery["change"]) == pytest.approx(-0.525)


def test_the_scale_out_table_of_the_study_of_3_and_5_nodes() -> None:
    """IOPS +55, +95, +77 % from 3 to 5 nodes: 82.5, 142.5 and 115.5 % of the +66.7 % that were added."""
    expected = {"randread": 0.55, "randrw": 0.95, "randwrite": 0.77}
    base = {(job, op, "obj_per_s"): 1000.0 for job in expected for op in ("total",)}
    base.update({(job, "total", "mean_ms"): 10.0 for job in expected})
    new = {key: 1000 * (1 + expected[key[0]]) if key[2] == "obj_per_s" else 7.1 for key in base}
    five = {"cluster.osd_nodes": 5, "cluster.osds": 70}
    rules = Rules(scale=Scale(3, 5))
    made = compare(
        side("three", [record(base)]),
        [side("five", [record(new, config=five)])],
        Choice(ops=("total",), metrics=("obj_per_s",)),
        rules,
    )
    found = {its.phase: its for its in gains(made.sections[0], Scale(3, 5))}
    assert {job: round(100 * its.efficiency, 1) for job, its in found.items()} == {
        "randread": 82.5,
        "randrw": 142.5,
        "randwrite": 115.5,
    }
    told = [round(100 * (found[job].predicted or 0), 1) for job in expected]
    assert told == [-35.5, -48.7, -43.5] and found["randread"].latency == pytest.approx(-0.29)
    text = Terminal().text(output.blocks(made))
    assert "randread   total  +55.0 %        82.5 %       -29.0 %               -35.5 %" in text
    assert as_json(made)["sections"][0]["scale"][0]["efficiency"] == pytest.approx(0.825)
