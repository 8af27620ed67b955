"""Series of faults and random ones (`every`, `rolling`, `thrash`) become single faults with their undo."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from event_plans import FILL, hybrid, warp

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.config.fault_spans import event_text

BOTH = {"label": "f", "kind": "stop", "nodes": ["node1", "node2"]}


def series(**keys: Any) -> Dict[str, Any]:
    return {"at": "60s", "fault": {"label": "f", "kind": "stop", "nodes": ["node1"]}, **keys}


def happens(*events: Dict[str, Any], **keys: Any) -> List[Any]:
    planned = warp(FILL, hybrid(*events, **keys)).phases[1].events
    return [(e.at, (e.inject.label, e.inject.targets) if e.inject else e.undo) for e in planned]


def test_a_series_is_single_faults_each_with_its_undo() -> None:
    assert happens(series(every="60s", times=2, lasts="20s")) == [
        (60.0, ("f-1", ("node1",))),
        (80.0, ("f-1",)),
        (120.0, ("f-2", ("node1",))),
        (140.0, ("f-2",)),
    ]
    assert [at for at, _ in happens(series(every="60s", times=2))] == [60.0, 90.0, 120.0, 150.0]


def test_a_rolling_series_takes_one_target_after_the_other() -> None:
    event = series(every="60s", rolling=True, fault={"label": "f", "kind": "stop", "nodes": ["node2", "node1"]})
    assert happens(event) == [
        (60.0, ("f-1", ("node2",))),
        (90.0, ("f-1",)),
        (120.0, ("f-2", ("node1",))),
        (150.0, ("f-2",)),
    ]
    event["fault"] = {"label": "f", "kind": "stop", "osds": [3, 4]}
    assert [what[1] for _, what in happens(event)[::2]] == [("osd.3",), ("osd.4",)]


def test_each_fault_of_a_series_may_wait_until_the_cluster_is_clean() -> None:
    planned = warp(FILL, hybrid(series(every="60s", times=2, wait="clean"))).phases[1].events
    assert [event.after_clean for event in planned] == [True, False, True, False]


def rolling(**keys: Any) -> Dict[str, Any]:
    over = {"over": "osd_nodes", "wait": "clean"}
    return {"at": "60s", "lasts": "20s", "rolling": over, "fault": {"label": "f", "kind": "stop"}, **keys}


def test_a_rolling_fault_goes_over_all_osd_nodes_and_waits_between_them() -> None:
    """The undo on a node comes before the fault on the next node, which has the same time."""
    assert happens(rolling()) == [
        (60.0, ("f-1", ("node1",))),
        (80.0, ("f-1",)),
        (80.0, ("f-2", ("node2",))),
        (100.0, ("f-2",)),
    ]
    (first, _, second, _) = warp(FILL, hybrid(rolling(lasts="21s"))).phases[1].events
    assert first.after_clean and second.after_clean and first.at_most == second.at_most == 3600.0
    single = warp(FILL, hybrid(series(every="60s", times=2, wait="clean"))).phases[1].events[0]
    assert single.after_clean and single.at_most is None
    assert event_text(second) == "1m21s or when the cluster is clean (1h more at most): fault f-2: stop node2"


@pytest.mark.parametrize(
    ("keys", "place", "says"),
    [
        ({"lasts": None}, "rolling", "needs lasts"),
        ({"every": "60s"}, "every", "is not for rolling"),
        ({"wait": "clean"}, "wait", "is not for rolling"),
        ({"fault": {"label": "f", "kind": "stop", "nodes": ["node1"]}}, "fault.nodes", "says what the fault hits"),
        ({"fault": {"label": "f", "kind": "stop", "accept": ["clean"]}}, "fault.accept", "the rule that rolling waits"),
        ({"fault": {"label": "f", "kind": "slow_disk"}}, "fault.kind", "slow_disk hits no nodes: not for"),
        ({"fault": None, "mark": "x"}, "lasts", "it needs fault"),
        ({"rolling": {"over": "osd_nodes", "at_most": "59s"}}, "rolling.at_most", "is less than 1m"),
        ({"rolling": {"over": "nodes"}}, "rolling.over", "must be osd_nodes"),
        ({"rolling": {}}, "rolling.over", "this key is required"),
        ({"rolling": "over", "fault": BOTH}, "rolling", "must be true or false"),
        ({"lasts": "10m"}, "lasts", "the last undo is at 21m: the phase is over after 10m"),
        ({"at": "10m"}, "at", "the phase is over after 10m"),
    ],
)
def test_an_error_of_a_rolling_fault_is_at_its_key(keys: Dict[str, Any], place: str, says: str) -> None:
    event = {key: value for key, value in rolling(**keys).items() if value is not None}
    with pytest.raises(ConfigError) as raised:
        happens(event)
    (text,) = [str(error) for error in raised.value.errors]
    assert says in text and f"events[0].{place}" in text


def test_a_fault_file_has_the_osd_nodes_of_its_cluster(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("events: [{at: 0s, lasts: 9s, rolling: {over: osd_nodes}, fault: {label: f, kind: stop}}]")
    for nodes in ({"osds": ["root@node1", "node2"]}, {"over": ["node1", "node2"]}):
        events, _ = load_fault_file(file, **nodes)
        assert [event.inject.targets for event in events if event.inject] == [("node1",), ("node2",)]
    with pytest.raises(ConfigError, match=r"events\[0\].rolling.over: no cluster with OSD nodes is known here"):
        load_fault_file(file)
    with pytest.raises(ConfigError, match="needs two OSD nodes"):
        load_fault_file(file, ["node1"])


def test_what_comes_between_the_times_of_a_series_keeps_its_time() -> None:
    other = {"at": "100s", "fault": {"label": "g", "kind": "stop", "nodes": ["node2"]}}
    assert [at for at, _ in happens(series(every="60s", times=2), other)] == [60.0, 90.0, 100.0, 120.0, 150.0]


def test_the_times_of_a_series_are_scaled() -> None:
    planned = warp(FILL, hybrid(series(every="60s", times=2)), scale=0.5).phases[1].events
    assert [event.at for event in planned] == [30.0, 45.0, 60.0, 75.0]


@pytest.mark.parametrize(
    ("event", "place", "says"),
    [
        (series(times=3), "times", "it needs fault and every"),
        ({"at": "1s", "undo": "x", "every": "60s", "times": 2}, "every", "it needs fault and every"),
        (series(every="60s"), "every", "either times, or rolling: true"),
        (series(every="60s", times=2, rolling=True, fault=BOTH), "every", "either times, or rolling: true"),
        (series(every="60s", rolling=True), "rolling", "two named targets"),
        (series(every="60s", times=2, lasts="60s"), "lasts", "still be in force"),
        (series(every="60s", times=100), "times", "the last undo is at 1h40m30s: the phase is over after 10m"),
        (series(at="11m", every="60s", times=2), "at", "the phase is over after 10m"),
        (
            {"at": "60s", "thrash": {"for": "10m", "every": "60s"}},
            "thrash.for",
            ": the phase is over after 10m",
        ),
    ],
)
def test_an_error_of_a_series_is_at_its_key(event: Dict[str, Any], place: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        happens(event)
    (text,) = [str(error) for error in raised.value.errors]
    assert says in text and f"events[0].{place}: " in text


def thrash(**keys: Any) -> List[Any]:
    event = {"at": "60s", "thrash": {"for": "5m", "every": "60s", "kinds": ["stop", "out", "loss"], "seed": 7, **keys}}
    return list(warp(FILL, hybrid(event)).phases[1].events)


def test_the_seed_of_a_thrash_repeats_its_faults() -> None:
    events = thrash()
    faults = [event.inject for event in events if event.inject]
    assert [event.at for event in events if event.inject] == [60.0, 120.0, 180.0, 240.0, 300.0]
    assert [fault.label for fault in faults] == [f"thrash-{n}" for n in range(1, 6)]
    assert all(event.optional for event in events if event.inject)
    assert all(fault.choose_of == ("node" if fault.kind == "loss" else "osd") and fault.choose == 1 for fault in faults)
    assert thrash() == events != thrash(seed=8)
    undone = {label: event.at for event in events for label in event.undo}
    assert set(undone) == {fault.label for fault in faults} and max(undone.values()) <= 360.0
    assert len({fault.seed for fault in faults}) == 5 and {fault.kind for fault in faults} > {"stop"}


def test_a_thrash_draws_one_daemon_for_a_kind_that_takes_no_osds() -> None:
    faults = [event.inject for event in thrash(kinds=["failover", "pause"]) if event.inject]
    assert {(fault.kind, fault.choose_of, fault.choose) for fault in faults} == {
        ("failover", "mgr", 1),
        ("pause", "osd", 1),
    }


def test_a_thrash_draws_the_daemons_of_a_type() -> None:
    kinds = ["stop rgw", "pause mon", "failover mon", "crash mgr", "stop"]
    events = [event for seed in range(10) for event in thrash(kinds=kinds, seed=seed)]
    faults = [event.inject for event in events if event.inject]
    assert {(fault.kind, fault.choose_of, fault.choose) for fault in faults} == {
        ("stop", "rgw", 1),
        ("pause", "mon", 1),
        ("failover", "mon", 1),
        ("crash", "mgr", 1),
        ("stop", "osd", 1),
    }


def test_each_fault_of_a_thrash_keeps_a_share_of_the_osds_in() -> None:
    assert {event.inject.min_in for event in thrash(min_in="60%") if event.inject} == {0.6}
    assert {event.inject.min_in for event in thrash() if event.inject} == {0.0}
    (single, _) = warp(FILL, hybrid(series(every="60s", times=2))).phases[1].events[:2]
    assert single.inject and single.inject.min_in == 0.0


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"min_in": "100%"}, "min_in: must be 1% to 99%"),
        ({"min_in": 0.6}, "min_in: 0.6: percent[?] write 0.6%"),
        ({"kinds": ["failover rgw"]}, "failover rgw: failover hits mgr or mon daemons"),
        ({"kinds": ["stop rgv"]}, "stop rgv: "),
        ({"kinds": ["stop", "stopp"]}, "unknown kind of fault 'stopp'"),
        ({"kinds": ["network"]}, "needs the option interfaces"),
        ({"kinds": ["replace"]}, "name the OSDs"),
        ({"kinds": ["drain"]}, "drain needs either the option balancers"),
        ({"for": "30s"}, "is not 1 to 10000 times every"),
        ({"accept": ["klean"]}, "unknown safety rule"),
    ],
)
def test_an_error_of_a_thrash_says_what_is_wrong(keys: Dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        thrash(**keys)


def test_another_fault_on_a_target_of_a_series_is_an_error() -> None:
    other = {"at": "130s", "fault": {"label": "g", "kind": "stop", "nodes": ["node1"]}}
    with pytest.raises(ConfigError, match="node1 is hit by 'f-2' already"):
        happens(series(every="60s", times=2), other)
