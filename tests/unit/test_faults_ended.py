"""Faults that something else ends before their undo: each is told of, and never one that is still in force."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Mapping, Sequence, Tuple

import pytest
from faults_judge import PACIFIC
from faults_world import ANYTHING, OUT, Connections, injector

from cbt_plugins.faults import Injector
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.command_runner import Runner
from cbt_plugins.faults.daemon_effects import serves_again
from cbt_plugins.faults.kinds.stop_crash import Stop
from cbt_plugins.faults.scene import Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Check, Step
from cbt_plugins.plan import Fault

PAIR = Fault("pair", "stop", ("node1", "node2"), accept=ANYTHING)
Events = List[Tuple[str, Mapping[str, Any]]]


def looking(monkeypatch: pytest.MonkeyPatch, question: str = "osd dump", **changes: Any) -> None:
    """Let the steps of `stop` look at whether their OSDs are up before their undo."""
    steps, text = Stop.steps, f"ceph {question} -f json"

    def with_looks(kind: Stop, *arguments: Any) -> Sequence[Step]:
        return [
            replace(step, ended_early=tuple(Check("node0", text, up(osd)) for osd in step.osds), **changes)
            for step in steps(kind, *arguments)
        ]

    monkeypatch.setattr(Stop, "steps", with_looks)


def up(osd: int) -> Any:
    return ((("osds", {"osd": osd}, "up"), 1),)


def stopped(folder: Path, world: Connections, events: Events, wait: bool = True) -> Injector:
    made = injector(folder, world, events=events)
    made.acquire()
    made.inject(PAIR, wait)
    return made


def start(world: Connections, node: str) -> None:
    world.world.systemctl(node, ["start", f"ceph-osd@{int(node[4:]) - 1}.service"])


def ended(events: Events) -> List[str]:
    return [facts["what"] for name, facts in events if name == "fault-ended"]


def test_a_step_that_something_else_has_ended_is_told_before_its_undo(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch)
    events: Events = []
    made = stopped(tmp_path, world, events)
    start(world, "node2")
    assert made.undo(["pair"]) == [] and ended(events) == ["stop osd.1 on node2"]
    names = [name for name, _ in events]
    assert names.index("fault-ended") < names.index("fault-undo-begin")


def test_a_fault_in_force_has_not_ended(tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """The undo of a step may start the daemons of the next one, as those of one service of an orchestrator."""
    looking(monkeypatch)
    events: Events = []
    made = stopped(tmp_path, world, events)
    play = world.world.systemctl

    def both(node: str, words: Sequence[str]) -> Any:
        if node == "node2" and words[0] == "start":
            play("node1", ["start", "ceph-osd@0.service"])
        return play(node, words)

    world.world.systemctl = both
    assert made.undo_all() == [] and ended(events) == []


def test_an_undo_that_is_tried_again_looks_no_more(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch)
    events: Events = []
    made = stopped(tmp_path, world, events)
    world.fail = ["systemctl reset-failed"]
    assert len(made.undo(["pair"])) == 2
    world.fail = []
    start(world, "node1")
    assert made.undo(["pair"]) == [] and ended(events) == []


def test_only_what_this_process_has_seen_in_effect_can_have_ended(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill anything may have happened."""
    looking(monkeypatch)
    events: Events = []
    stopped(tmp_path, world, events).close()
    start(world, "node1")
    again = injector(tmp_path, world, events=events)
    assert again.undo_all() == [] and ended(events) == []


def test_a_fault_that_was_not_waited_for_may_begin_at_any_time(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch)
    events: Events = []
    made = stopped(tmp_path, world, events, wait=False)
    start(world, "node1")
    assert made.undo_all() == [] and ended(events) == []


@pytest.mark.parametrize(("deadline", "told"), [(3.0, False), (900.0, True)])
def test_a_switch_that_may_have_fired_explains_the_end(
    deadline: float, told: bool, tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch, deadline=deadline)
    events: Events = []
    made = stopped(tmp_path, world, events)
    start(world, "node1")
    assert made.undo_all() == [] and bool(ended(events)) is told


def test_an_undo_does_not_wait_for_a_look_at_a_node_that_hangs(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch)
    events: Events = []
    made, hangs = stopped(tmp_path, world, events), threading.Event()
    monkeypatch.setattr(Runner, "holds", lambda *_: hangs.wait())
    start(world, "node1")
    assert made.undo_all() == [] and ended(events) == []
    hangs.set()


def test_a_look_without_a_reply_says_nothing(
    tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch, "mon dump")
    events: Events = []
    made = stopped(tmp_path, world, events)
    start(world, "node1")
    world.fail = ["mon dump"]
    assert made.undo_all() == [] and ended(events) == []


def test_all_but_mgrs_and_osds_are_looked_at() -> None:
    """A mgr that has ended may still be listed, and OSDs are in the OSD map."""
    ceph: Any = SimpleNamespace(head="node0", command="ceph")
    scene = Scene(ceph, Facts(PACIFIC), ("node0",), "f")
    services = [Service(DaemonName(type, "1"), "node1", "systemd") for type in ("osd", "mon", "mgr", "mds")]
    gateways = [Service(DaemonName("rgw", id), "node1", "cephadm", endpoints=(f"{id}:80",)) for id in ("a", "b")]
    mon, mds, *looks = serves_again(scene, [*services, *gateways])
    assert mds.text.startswith("ceph fs dump -f json | ") and mds.want == (((), "1"),)
    assert mon.text == "ceph quorum_status -f json"
    assert [look.text.split()[-2:] for look in looks] == [["answers", "a:80"], ["answers", "b:80"]]


def test_a_step_of_an_earlier_version_has_no_look(tmp_path: Path, world: Connections) -> None:
    made = stopped(tmp_path, world, [])
    plain = made.open_changes[0].step.plain()
    del plain["ended_early"]
    assert Step.parse(plain) == made.open_changes[0].step
    assert made.undo_all() == []


@pytest.mark.parametrize("kind", ["out", "stop"])
def test_upmap_entries_that_are_gone_after_the_undo_are_counted(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The monitors remove the pairs of an OSD that is marked out, for good."""
    world = Connections()
    events: Events = []
    dump = world.world.ceph_osd_dump
    entries = {"1.0": [(1, 3)], "1.1": [(3, 0), (1, 2)], "1.2": [(0, 1)]}

    def with_upmaps() -> Any:
        if not world.state["osds"]["3"]["in"]:
            entries.update({"1.0": [], "1.1": [(1, 2)]})
        items = [
            {"pgid": pg, "mappings": [{"from": a, "to": b} for a, b in pairs]} for pg, pairs in entries.items() if pairs
        ]
        return {**dump(), "pg_upmap_items": items}

    world.world.ceph_osd_dump = with_upmaps
    made = injector(tmp_path, world, events=events)
    made.acquire()
    made.inject(replace(OUT, kind=kind))
    assert made.undo(["out"]) == [] and world.differences() == set()
    lost = [facts for name, facts in events if name == "upmaps-lost"]
    assert lost == ([{"label": "out", "kind": "out", "pgs": 2, "before": 2}] if kind == "out" else [])
    assert ("out: upmap entries of 2 of 2 PGs are gone" in caplog.text) == (kind == "out")
