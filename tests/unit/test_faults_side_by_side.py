"""Steps of one fault on several nodes: at the same time in the fault and in its undo."""

from __future__ import annotations

import itertools
import threading
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Dict, List

import pytest
from faults_world import ANYTHING, Connections, Died, Time, injector
from waiting import wait_for

from cbt_plugins.cluster.fan_out import Pending, ask_at_once
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.command_runner import Runner
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, Step, lots
from cbt_plugins.faults.undo_journal import open_steps_in
from cbt_plugins.plan import Fault

PAIR = Fault("pair", "stop", ("node1", "node2"), accept=ANYTHING)


class Meeting(Connections):
    """Commands with one of these texts wait for each other, two at a time."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.met: List[str] = []
        self._barriers = {text: threading.Barrier(2, partial(self.met.append, text)) for text in texts}
        self._turn = threading.Lock()

    def run(self, nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        for text, barrier in self._barriers.items():
            if text in command:
                barrier.wait(60)
        with self._turn:
            return super().run(nodes, command, timeout, check)


class FirstMeeting(Meeting):
    """The first commands of two nodes with the text wait for each other, the later ones for none."""

    def run(self, nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if len(self.met) == len(self._barriers):
            self._barriers = {}
        return super().run(nodes, command, timeout, check)


def step(node: str, side_by_side: bool = True, orders: str = "") -> Step:
    inject = (Command(orders, "ceph orch"),) if orders else ()
    return Step(node, node, inject, (), (), side_by_side=side_by_side)


def test_nodes_stop_and_start_at_the_same_time(tmp_path: Path) -> None:
    world = Meeting("systemctl stop", "systemctl start")
    made = injector(tmp_path, world)
    made.acquire()
    made.inject(PAIR)
    assert world.met == ["systemctl stop"]
    assert world.differences() == {"osd.0", "osd.1"}
    assert made.undo(["pair"]) == []
    assert world.met == ["systemctl stop", "systemctl start"]
    assert world.differences() == set()


def test_all_steps_are_on_disk_before_the_first_command(tmp_path: Path) -> None:
    world, seen = Connections(), []
    play = world.run

    def look(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if "systemctl stop" in command:
            seen.append([(record.step.node, record.begun) for record in open_steps_in(tmp_path)])
        return play(nodes, command, timeout, check)

    world.run = look  # type: ignore[method-assign]
    made = injector(tmp_path, world)
    made.acquire()
    made.inject(PAIR)
    assert seen[0] == seen[1] == [("node1", True), ("node2", True)]


def test_when_one_node_refuses_the_undo_begins_after_the_last_command(tmp_path: Path) -> None:
    world, ended = Connections(), threading.Event()
    play = world.run

    def slow(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if "systemctl stop" in command and nodes == ["node1"]:
            return {"node1": Result("", "no such unit", 5)}
        if "systemctl stop" in command:
            assert not ended.wait(0.5)
        if "systemctl start" in command:
            ended.set()
        return play(nodes, command, timeout, check)

    world.run = slow  # type: ignore[method-assign]
    made = injector(tmp_path, world)
    made.acquire()
    with pytest.raises(FaultError, match="no such unit; the steps so far are undone"):
        made.inject(PAIR)
    assert ended.is_set()
    assert world.differences() == set()
    assert made.open_changes == []


def test_a_node_that_stays_down_keeps_no_other_from_its_undo(tmp_path: Path) -> None:
    world = Connections()
    made = injector(tmp_path, world)
    made.acquire()
    made.inject(PAIR)
    world.fail = ["systemctl start ceph-osd@1"]
    (left,) = made.undo(["pair"])
    assert left.change == "stop osd.1 on node2"
    assert world.differences() == {"osd.1"}
    events = [line for line in made.records if line["event"] == "undone"]
    assert [line["label"] for line in events] == ["pair"]
    world.fail = []
    assert made.undo(["pair"]) == []
    assert world.differences() == set()


def test_two_nodes_that_stay_down_are_waited_for_as_long_as_one(tmp_path: Path) -> None:
    waits = []
    for failing in (["systemctl start ceph-osd@1"], ["systemctl start ceph-osd@1", "systemctl start ceph-osd@0"]):
        world, time = FirstMeeting("systemctl start"), Time()
        folder = tmp_path / str(len(failing))
        folder.mkdir()
        made = injector(folder, world, time=time)
        made.acquire()
        made.inject(PAIR)
        world.fail, begun = failing, time.now
        assert len(made.undo(["pair"])) == len(failing)
        waits.append(time.now - begun)
    assert 60 < waits[1] < 1.5 * waits[0]  # both threads move the clock on


def test_a_node_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    """The first start on node1 is lost; the second one is sent while the start on node2 hangs."""
    world, starts, second_start, was_sent = Meeting(), [], threading.Event(), []
    play = world.run

    def hang(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if "systemctl start" in command and nodes == ["node1"]:
            starts.append(command)
            if len(starts) == 1:
                return {"node1": Result("", "No route to host", 255)}
            second_start.set()
        elif "systemctl start" in command:
            was_sent.append(second_start.wait(20))
        return play(nodes, command, timeout, check)

    made = injector(tmp_path, world)
    made.acquire()
    made.inject(PAIR)
    world.run = hang  # type: ignore[method-assign]
    assert made.undo(["pair"]) == []
    assert was_sent and all(was_sent)
    assert world.differences() == set()


class RealPauses(Time):
    """A clock that stands, with short pauses."""

    def _sleep(self, seconds: float) -> None:
        sleep(0.01)


def test_an_interrupt_ends_the_undo_of_both_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the third signal: nothing is sent afterwards, and both steps stay open."""
    world, started = Meeting(), threading.active_count()

    def interrupted(pending: Pending[Any]) -> None:
        raise KeyboardInterrupt

    made = injector(tmp_path, world, time=RealPauses())
    made.acquire()
    made.inject(PAIR)
    world.fail = ["systemctl start"]
    monkeypatch.setattr(Pending, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.undo(["pair"])
    wait_for(lambda: threading.active_count() <= started, "the threads")
    assert {record.step.node for record in open_steps_in(tmp_path)} == {"node1", "node2"}


@pytest.mark.parametrize("how", ["before", "after", "late"])
@pytest.mark.parametrize("at", [1, 2])
def test_killed_while_two_nodes_stop(at: int, how: str, tmp_path: Path) -> None:
    world = Meeting()
    first = injector(tmp_path, world)
    first.acquire()
    world.die_at_change = (world.changes + at, how)
    with pytest.raises(Died):
        first.inject(PAIR)
    first.close()
    assert {record.step.node for record in open_steps_in(tmp_path)} == {"node1", "node2"}
    assert injector(tmp_path, world).undo_all() == []
    world.arrive()
    assert world.differences() == set()


def test_killed_at_each_call_of_an_undo_of_two_nodes(tmp_path: Path) -> None:
    for at in itertools.count(1):
        folder, world = tmp_path / str(at), Meeting()
        folder.mkdir()
        first = injector(folder, world)
        first.acquire()
        first.inject(PAIR)
        world.die_at = (world.calls + at, "late")
        try:
            assert first.undo_all() == []
            break
        except Died:
            first.close()
        assert injector(folder, world).undo_all() == []
        world.arrive()
        assert world.differences() == set()
    assert at > 5


def test_lots_keep_the_order_and_have_each_node_once() -> None:
    steps = [step("a", False), step("b"), step("c"), step("b"), step("d"), step("e", False), step("f")]
    steps += [step("g"), step("h", orders="head"), step("i", orders="head"), step("j")]
    in_lots = [[one.node for one in lot] for lot in lots(steps, lambda one: one)]
    assert in_lots == [["a"], ["b", "c"], ["b", "d"], ["e"], ["f", "g", "h"], ["i", "j"]]


def test_an_interrupt_while_two_nodes_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is still on its way when the undo has ended does nothing."""
    world, begun, go_on, late = Connections(), threading.Event(), threading.Event(), []
    play, wait = world.run, Pending.wait

    def slow(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if "systemctl stop" in command and nodes == ["node2"]:
            begun.set()
            assert go_on.wait(60)
            late.append(play(nodes, command, timeout, check)["node2"].status)
            return {"node2": Result("", "", late[-1])}
        return play(nodes, command, timeout, check)

    def interrupted(pending: Pending[Any]) -> None:
        wait(pending)
        if any("systemctl stop" in text for _, text in world.said):  # on node1
            assert begun.wait(60)
            monkeypatch.undo()
            raise KeyboardInterrupt

    world.run = slow  # type: ignore[method-assign]
    made = injector(tmp_path, world)
    monkeypatch.setattr(Pending, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), made.holding():
        made.inject(PAIR)
    assert world.differences() == set()
    go_on.set()
    wait_for(lambda: late, "the command that was on its way")
    assert late == [75]
    assert world.differences() == set()
    assert open_steps_in(tmp_path) == []


class BusyHead:
    """A head that takes half a second for each reply."""

    def __init__(self) -> None:
        self.head, self.command, self.admin = "node0", "ceph", "radosgw-admin"
        self.most = self._under_way = 0
        self._change = threading.Condition()

    def run(self, *_: Any, **__: Any) -> Result:
        with self._change:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            self._change.wait(0.5)
            self._under_way -= 1
        return Result("", "", 0)


def test_the_head_answers_a_few_checks_at_a_time() -> None:
    ceph: Any = BusyHead()
    runner = Runner(ceph, "r", ClusterLimits())
    ask_at_once(*(partial(runner.look, [Check("node0", "ceph osd dump", ())]) for _ in range(12)))
    assert ceph.most == 4
