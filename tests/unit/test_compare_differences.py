"""What makes runs incomparable is refused by name with both values; all else that differs is listed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import pytest
from compare_records import record, side

from cbt_plugins.compare.comparable_runs import comparable_runs
from cbt_plugins.compare.configuration_differences import Difference, Incomparable, Scale, conflicts, differing, within
from cbt_plugins.compare.sides import cases

VALUES = {("measure-new", "GET", "obj_per_s"): 100.0}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("benchmark", "osdfailure", ("rgwtest", "osdfailure")),
        ("engine", "warp", ("cbt-load", "warp")),
        ("phases", "measure-new", ("measure-new measure-aged", "measure-new")),
        ("objects.sizes", "4096", ("4096 65536", "4096")),
        ("load.drivers", 3, ("2", "3")),
        ("phase.measure-new.mix", "GET:100", ("DELETE:5 GET:45 PUT:35 STAT:15", "GET:100")),
        ("phase.measure-new.workers", 8, ("16", "8")),
        ("phase.measure-new.loop", "open", ("closed", "open")),
        ("pool.data.type", "replicated", ("erasure", "replicated")),
        ("pool.data.k", 8, ("4", "8")),
        ("pool.data.m", 3, ("2", "3")),
        ("cluster.clients", 4, ("5", "4")),
        ("cluster.osds", 28, ("42", "28")),
    ],
)
def test_essential_keys_are_refused(key: str, value: Any, shown: tuple) -> None:
    base, new = record(VALUES), record(VALUES, config={key: value})
    assert conflicts(base, new) == [Difference(key, *shown)]
    with pytest.raises(Incomparable, match="cannot compare old with young") as refused:
        cases(side("old", [base]), side("young", [new]))
    assert refused.value.differences == (Difference(key, *shown),)


def test_results_of_other_programs_are_refused() -> None:
    assert conflicts(record(VALUES), record(VALUES, kind="warp")) == [Difference("results of", "cbt-plugins", "warp")]


def test_all_else_is_listed() -> None:
    base = record(VALUES)
    new = record(VALUES, config={"version.ceph": "18.2.7 reef", "ceph.osd.osd_op_queue": "wpq", "host.kernel": "6.1"})
    assert conflicts(base, new) == []
    assert differing([base], [new]) == [
        Difference("ceph.osd.osd_op_queue", "not set", "wpq"),
        Difference("host.kernel", "not known", "6.1"),
        Difference("version.ceph", "17.2.6 quincy", "18.2.7 reef"),
    ]


def test_what_only_one_side_knows_is_no_reason_to_refuse() -> None:
    base, new = record(VALUES), record(VALUES, config={"pool.index.size": 3})
    assert conflicts(base, new) == conflicts(new, base) == []
    assert differing([base], [new]) == [Difference("pool.index.size", "not known", "3")]


def test_runs_of_one_side_that_differ_show_all_values() -> None:
    mixed = [record(VALUES), record(VALUES, config={"version.ceph": "17.2.7 quincy"})]
    assert within(mixed) == {"version.ceph": ("17.2.6 quincy", "17.2.7 quincy")}
    (difference,) = differing(mixed, [mixed[0]])
    assert difference == Difference("version.ceph", "17.2.6 quincy | 17.2.7 quincy", "17.2.6 quincy")


def test_a_run_that_was_killed_at_once_does_not_hide_what_the_others_know() -> None:
    killed = replace(record({}), config={"benchmark": "rgwtest"})
    assert differing([killed, record(VALUES)], [record(VALUES)]) == []
    found = {its.key: its.base for its in differing([killed], [record(VALUES)])}
    assert found["load.drivers"] == "not known" and "benchmark" not in found


FIVE: Dict[str, Any] = {"cluster.osd_nodes": 5, "cluster.osds": 70}


def test_scale_lets_the_sizes_of_clusters_differ_and_nothing_else() -> None:
    three, five = record(VALUES), record(VALUES, config=FIVE)
    assert {its.key for its in conflicts(three, five)} == {"cluster.osd_nodes", "cluster.osds"}
    assert conflicts(three, five, Scale(3, 5)) == []
    other = record(VALUES, config={**FIVE, "phase.measure-new.workers": 8})
    assert [its.key for its in conflicts(three, other, Scale(3, 5))] == ["phase.measure-new.workers"]
    (case,), _ = cases(side("a", [three]), side("b", [five]), Scale(3, 5))
    assert [its.key for its in case.differences] == ["cluster.osd_nodes", "cluster.osds"]


def test_a_scale_that_is_not_what_differs_is_refused() -> None:
    with pytest.raises(Incomparable, match=r"cluster\.osd_nodes 3:5"):
        conflicts(record(VALUES), record(VALUES, config=FIVE), Scale(3, 6))


def test_a_first_run_that_lacks_a_key_merges_no_configurations() -> None:
    """As a bare summary.json, a run without admin, or an archive of before the key."""
    whole = record(VALUES, name="bare")
    bare = replace(whole, config={key: value for key, value in whole.config.items() if key != "cluster.osds"})
    twelve, ten = (
        [record(VALUES, config={"cluster.osds": osds}, name=f"{osds}-{i}") for i in range(2)] for osds in (12, 10)
    )
    assert [len(group) for group in comparable_runs([bare, *twelve, *ten])] == [3, 2]
    with pytest.raises(Incomparable) as refused:
        cases(side("base", [bare, *twelve]), side("new", ten))
    assert [(its.key, its.base, its.new) for its in refused.value.differences] == [("cluster.osds", "12", "10")]


def test_the_cases_of_a_sweep_find_each_other() -> None:
    def run(workers: int, name: str) -> Any:
        return record(VALUES, config={"phase.measure-new.workers": workers}, name=name)

    base = [run(8, "a"), run(16, "b"), run(8, "c"), run(32, "d")]
    new = [run(16, "x"), run(8, "y"), run(64, "z")]
    assert [[its.name for its in group] for group in comparable_runs(base)] == [["a", "c"], ["b"], ["d"]]
    found, alone = cases(side("old", base), side("young", new))
    told = [(case.title, [r.name for r in case.base], [r.name for r in case.new]) for case in found]
    assert told == [
        ("phase.measure-new.workers=8", ["a", "c"], ["y"]),
        ("phase.measure-new.workers=16", ["b"], ["x"]),
    ]
    assert [(its.title, its.text) for its in alone] == [
        ("phase.measure-new.workers=32", "only in old: d (phase.measure-new.workers is 32, in the other 64)"),
        ("phase.measure-new.workers=64", "only in young: z"),
    ]


def test_titles_have_as_few_keys_as_tell_cases_apart() -> None:
    changes = [{}, {"load.drivers": 4, "objects.sizes": "1"}, {"load.drivers": 8, "objects.sizes": "1"}]
    both = side("s", [record(VALUES, config=change, name=str(i)) for i, change in enumerate(changes)])
    found, _ = cases(both, both)
    assert [case.title for case in found] == ["load.drivers=2", "load.drivers=4", "load.drivers=8"]


def test_titles_have_no_key_that_tells_no_further_cases_apart() -> None:
    """`engine` comes before `load.op_size`, but depends on `benchmark`."""
    changes = [
        {"benchmark": "fio", "engine": "fio", "load.op_size": 4096},
        {"benchmark": "radosbench", "engine": "rados bench", "load.op_size": 4096},
        {"benchmark": "radosbench", "engine": "rados bench", "load.op_size": 65536},
    ]
    both = side("s", [record(VALUES, config=change, name=str(i)) for i, change in enumerate(changes)])
    found, _ = cases(both, both)
    assert [case.title for case in found] == [
        "benchmark=fio, load.op_size=4096",
        "benchmark=radosbench, load.op_size=4096",
        "benchmark=radosbench, load.op_size=65536",
    ]
