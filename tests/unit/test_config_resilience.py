"""`resilience:`: a phase for each failure and repetition, under one open loop, with waits between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest
from config_files import CLUSTER, S3, errors_in, marked

from cbt_plugins.benchmarks.resilience import catalogue
from cbt_plugins.config.fault import DEADLINE
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.plan import Event, Fault, Phase, Plan, Settings

MINUTE = 60.0
NODES = {"clients": ["c1", "c2"], "osds": ["node1", "node2", "node3"]}
DOWN = {"node down": {"kind": "stop", "osd_nodes": 1, "seed": 7}}
FILE = f"{CLUSTER}benchmarks:\n  resilience:\n{S3}"


def plan(**keys: Any) -> Plan:
    return plan_of("resilience", {"s3": {"urls": ["http://rgw1:7480"], "user": "cbt"}, **keys}, NODES, None)


def rates(made: Plan) -> List[Tuple[str, Optional[float], Optional[float]]]:
    return [(phase.name, phase.rate, phase.rate_share) for phase in made.phases if phase.kind == "hybrid"]


def test_each_failure_has_a_phase_under_the_rate_of_the_baseline_and_a_wait() -> None:
    made = plan(failures=DOWN)
    assert [phase.name for phase in made.phases] == [
        *("fill", "closed-loop", "no-failure", "node-down", "node-down-clean"),
    ]
    assert rates(made) == [("closed-loop", None, None), ("no-failure", None, 0.5), ("node-down", None, 0.5)]
    mix = {"GET": 60.0, "PUT": 20.0, "DELETE": 20.0}
    fault = Fault("node-down", "stop", choose=1, choose_of="node", seed=7)
    assert made.phases[3] == Phase(
        "node-down",
        "hybrid",
        "measure",
        duration=16 * MINUTE,
        mix=mix,
        engine="cbt-load",
        rate_share=0.5,
        failure="node down",
        events=(Event(MINUTE, inject=fault, optional=True), Event(6 * MINUTE, undo=("node-down",))),
    )
    assert made.phases[4].wait_clean and made.phases[4].at_most == 360000.0
    assert made.settings == Settings(flags=("noscrub", "nodeep-scrub"))
    assert not any(phase.failure for phase in made.phases if phase.name != "node-down")


def test_a_given_rate_needs_no_closed_loop_and_aging_comes_before_it() -> None:
    assert rates(plan(failures=DOWN, rate="500/s")) == [("no-failure", 500.0, None), ("node-down", 500.0, None)]
    aged = plan(failures=DOWN, age="24h")
    assert [phase.name for phase in aged.phases][:3] == ["fill", "age", "closed-loop"]
    assert aged.phases[1].role == "age"


def test_repetitions_are_rounds_over_all_failures() -> None:
    made = plan(failures={**DOWN, "osd crash": {"kind": "crash", "osds": [3]}}, repeat=2, scale=0.1)
    measured = [(phase.name, phase.failure) for phase in made.phases if phase.failure]
    assert measured == [
        *(("node-down-1", "node down"), ("osd-crash-1", "osd crash")),
        *(("node-down-2", "node down"), ("osd-crash-2", "osd crash")),
    ]
    labels = [event.inject.label for phase in made.phases for event in phase.events if event.inject]
    assert labels == [name for name, _ in measured]
    assert {event.at for phase in made.phases for event in phase.events} == {6.0, 36.0}


def test_a_switch_does_not_fire_before_the_end_of_the_failure() -> None:
    cut = {"kind": "network", "osd_nodes": 1, "options": {"method": "nft"}}
    made = plan(failures={"node cut": cut}, parts={"failure": "1h"})
    (fault,) = [event.inject for phase in made.phases for event in phase.events if event.inject]
    assert fault.options[DEADLINE] == 3600.0 + 300.0
    own = plan(failures={"node cut": {**cut, "options": {"method": "nft", "deadline": "2h"}}})
    assert own.phases[3].events[0].inject.options[DEADLINE] == 7200.0  # type: ignore[union-attr]


def test_without_a_list_the_failures_are_those_of_the_catalogue() -> None:
    made = plan()
    assert [phase.failure for phase in made.phases if phase.failure] == list(catalogue(NODES))
    assert len(catalogue(NODES)) > 4
    faults = [event.inject for phase in made.phases for event in phase.events if event.inject]
    assert all(fault.choose == 1 and not fault.accept for fault in faults)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("    failures:\n      §outage: {kind: stop, osd_nodes: 1}\n", "a name is made of two or more words"),
        ("    failures:\n      §no failure: {kind: stop, osd_nodes: 1}\n", "no-failure is the name of another phase"),
        ("    failures: {node down: {kind: §stpo, osd_nodes: 1}}\n", "unknown kind of fault 'stpo'"),
        ("    failures: {node down: {kind: stop, osd_nodes: §9}}\n", "9 nodes, and the cluster has 1 with OSDs"),
        ("    failures: §{}\n", "empty"),
        ("    engine: warp\n    rate: §100/s\n", "goes with engine: cbt-load, and the engine here is warp"),
        ("    repeat: §0\n", "must be at least 1"),
    ],
)
def test_errors_have_their_places(tmp_path: Path, keys: str, text: str) -> None:
    file, places = marked(FILE + keys)
    errors = errors_in(tmp_path, file)
    assert len(errors) == 1 and errors[0].startswith(places[0]) and text in errors[0], errors


def test_a_failure_has_no_label_of_its_own(tmp_path: Path) -> None:
    file, places = marked(FILE + "    failures: {node down: {kind: stop, osd_nodes: 1, §label: x}}\n")
    (error,) = errors_in(tmp_path, file)
    assert error.startswith(places[0]) and "label" in error
