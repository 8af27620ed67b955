"""Who gets the cluster: two runs that begin together, what earlier runs and earlier versions have left."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from faults_world import CLUSTER, Connections

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.cluster_lock import Lock, started

OLD = "cbt-plugins/run"


def lock(world: Any, folder: Path, run: str = "r1", name: str = "a") -> Lock:
    folder = folder / name
    folder.mkdir(exist_ok=True)
    return Lock(Ceph(world, CLUSTER), run, folder)


def left(lock: Lock, **other: Any) -> str:
    """What a process of the lock's run has written that is dead by now, or is what `other` says."""
    return json.dumps({**lock.identity, "started": 1, "t": 1.0, **other})


class Stepped:
    """Stands where `Remote` does for something that calls the cluster: one call at a time, each when it is let."""

    def __init__(self, world: Connections, work: Callable[[Any], None]) -> None:
        self._world, self._work = world, work
        self._go: queue.Queue[None] = queue.Queue()
        self._before_a_call: queue.Queue[bool] = queue.Queue()
        self.refused: Optional[FaultError] = None
        threading.Thread(target=self._play, daemon=True).start()

    def run(self, *call: Any, **more: Any) -> Any:
        self._before_a_call.put(True)
        self._go.get()
        return self._world.run(*call, **more)

    def waits(self) -> bool:
        """True when it stands before a call, False when it has ended."""
        return self._before_a_call.get(timeout=600)

    def step(self) -> bool:
        """Let it make its call; then as `waits`."""
        self._go.put(None)
        return self.waits()

    def _play(self) -> None:
        try:
            self._work(self)
        except FaultError as error:
            self.refused = error
        self._before_a_call.put(False)


def interleaved(
    make: Callable[[], Tuple[Connections, List[Callable[[Any], None]]]],
) -> Iterator[Tuple[Connections, List[Stepped], List[int]]]:
    """Every order in which calls of several can come to the cluster, each played in a new world."""
    order: List[int] = []
    while True:
        world, works = make()
        takers = [Stepped(world, work) for work in works]
        alive = {i for i, taker in enumerate(takers) if taker.waits()}
        choices: List[List[int]] = []
        taken: List[int] = []
        while alive:
            choices.append(sorted(alive))
            taken.append(order[len(taken)] if len(taken) < len(order) else min(alive))
            if not takers[taken[-1]].step():
                alive.remove(taken[-1])
        yield world, takers, taken
        while taken and taken[-1] == choices[len(taken) - 1][-1]:
            taken.pop()
        if not taken:
            return
        order = [*taken[:-1], next(c for c in choices[len(taken) - 1] if c > taken[-1])]


@pytest.mark.parametrize(
    "case", ["two runs", "a copy of the archive", "both find what the run has left"]
)
def test_of_two_at_most_one_gets_the_cluster(case: str, tmp_path: Path) -> None:
    def make() -> Tuple[Connections, List[Callable[[Any], None]]]:
        world = Connections()
        ids = ["r1", "r2" if case == "two runs" else "r1"]
        if "left" in case:
            world.state["keys"][f"{OLD}/r1-lock-of-the-dead"] = left(lock(world, tmp_path), archive="/moved/since")
        works = [
            lambda remote, run=run, i=i: lock(remote, tmp_path, run, f"folder{i}").take(f"{run}-lock-{i}")
            for i, run in enumerate(ids)
        ]
        return world, works

    outcomes: Dict[int, int] = {}
    for world, takers, order in interleaved(make):
        got = [i for i, taker in enumerate(takers) if taker.refused is None]
        keys = world.state["keys"]
        assert len(got) < 2, f"both, with the calls in the order {order}"
        assert len(keys) == len(got), f"{order}: {sorted(keys)} are left, {got} have the cluster"
        for taker in takers:
            assert taker.refused is None or "has been using this cluster" in str(taker.refused)
        outcomes[len(got)] = outcomes.get(len(got), 0) + 1
    assert outcomes[1] > 10 and outcomes[0] > 10  # no tie-break: who sees the other goes


def test_one_that_has_the_cluster_keeps_it_while_others_try(tmp_path: Path) -> None:
    """Whatever the holder sees of one that asks, it is none of its business."""

    def make() -> Tuple[Connections, List[Callable[[Any], None]]]:
        world = Connections()
        lock(world, tmp_path, "r1", "a").take("r1-lock-1")

        def work(remote: Any) -> None:
            lock(remote, tmp_path, "r1", "a").check()
            lock(remote, tmp_path, "r1", "a").check()

        return world, [work, lambda remote: lock(remote, tmp_path, "r2", "b").take("r2-lock-1")]

    for world, (holder, other), _ in interleaved(make):
        assert holder.refused is None and other.refused is not None
        assert list(world.state["keys"]) == [f"{OLD}/r1-lock-1"]


def test_the_holder_is_not_disturbed_by_a_key_that_is_on_its_way_out(tmp_path: Path) -> None:
    """Two that began together: the one's key is seen by the other, which has looked already, at its next fault."""
    world = Connections()
    first = lock(world, tmp_path)
    first.take("r1-lock-1")
    world.state["keys"][f"{OLD}/r2-lock-1"] = left(first, run="r2", archive="/b", started=first.identity["started"])
    first.check()


def test_a_key_of_nobody_knows_whom_is_refused(tmp_path: Path) -> None:
    world = Connections()
    for text in ("no JSON", "[]", '{"run": "r1"}'):
        world.state["keys"][f"{OLD}/x"] = text
        with pytest.raises(FaultError, match="cbt-plugins/run/x of the cluster was not written by cbt-plugins"):
            lock(world, tmp_path).take("r1-lock-1")
        assert list(world.state["keys"]) == [f"{OLD}/x"]
    lock(world, tmp_path).release(force=True)
    assert list(world.state["keys"]) == [f"{OLD}/x"]
    world.state["keys"] = {"cbt-plugins/runner": "of somebody else"}
    lock(world, tmp_path).take("r1-lock-1")


def test_a_process_that_lives_keeps_the_cluster_when_its_folder_was_emptied(tmp_path: Path) -> None:
    world = Connections()
    mine = lock(world, tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as alive:
        world.state["keys"][f"{OLD}/r1-lock-1"] = left(mine, pid=alive.pid, started=started(alive.pid))
        with pytest.raises(FaultError, match="has been using this cluster"):
            mine.take("r1-lock-2")
        mine.release(force=True)
        assert list(world.state["keys"]) == [f"{OLD}/r1-lock-1"]


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}/stat").exists() and started(child.pid) is None
    child.wait()


def test_the_name_of_a_key_reaches_no_shell(tmp_path: Path) -> None:
    world = Connections()
    mine = lock(world, tmp_path)
    world.state["keys"][f"{OLD}/x$(reboot)"] = left(mine)
    mine.take("r1-lock-1")
    (text,) = [text for _, text in world.said if "reboot" in text]
    assert text.endswith(f" config-key rm '{OLD}/x$(reboot)'")


@pytest.mark.parametrize("t", [-1.0, 1e30, float("inf"), float("nan")])
def test_a_key_from_no_time_is_nobodys(t: float, tmp_path: Path) -> None:
    world = Connections()
    mine = lock(world, tmp_path)
    world.state["keys"][f"{OLD}/x"] = left(mine, t=t, run="r2", host="elsewhere")
    with pytest.raises(FaultError, match="was not written by cbt-plugins"):
        mine.take("r1-lock-1")


def test_what_was_not_heard_of_is_taken_back(tmp_path: Path) -> None:
    """The key is set, and no answer comes: without the cluster, nothing of ours may stay there."""
    world = Connections()
    mine = lock(world, tmp_path)
    real = world.world.ceph

    def deaf(words: List[str]) -> Any:
        answer = real(words)
        return ("", "timed out", 1) if words[:2] == ["config-key", "set"] else answer

    world.world.ceph = deaf
    with pytest.raises(FaultError, match="config-key set on node0: timed out"):
        mine.take("r1-lock-1")
    assert world.state["keys"] == {}


def test_only_who_says_so_takes_another_machines_key_away(tmp_path: Path) -> None:
    world = Connections()
    mine = lock(world, tmp_path)
    world.state["keys"][f"{OLD}/r1-lock-1"] = left(mine, host="elsewhere")
    world.state["keys"][f"{OLD}/r2-lock-1"] = left(mine, host="elsewhere", run="r2")
    world.state["keys"][f"{OLD}/r1-lock-2"] = left(mine, started=mine.identity["started"], archive="/a/copy")
    with pytest.raises(FaultError):
        mine.take("r1-lock-3")
    mine.release()
    assert len(world.state["keys"]) == 3
    mine.release(force=True)
    assert sorted(world.state["keys"]) == [f"{OLD}/r1-lock-2", f"{OLD}/r2-lock-1"]
    assert socket.gethostname() in world.state["keys"][f"{OLD}/r1-lock-2"]  # at work on this machine


@pytest.mark.parametrize("other", ["machine", "folder"])
def test_another_machine_of_the_same_name_is_not_taken_for_a_dead_process(other: str, tmp_path: Path) -> None:
    """Such as a container: its host name and the path of its archive are ours, the archive is not."""
    world = Connections()
    mine = lock(world, tmp_path)
    there = left(mine, run="r2", boot="another", **{other: "another"})
    world.state["keys"][f"{OLD}/r2-lock-1"] = there
    text = "if its process has ended, on that host" if other == "machine" else "but its process has ended"
    with pytest.raises(FaultError, match=text):
        mine.take("r1-lock-1")
    assert world.state["keys"] == {f"{OLD}/r2-lock-1": there}


def test_what_an_earlier_version_has_left_here_is_taken_away(tmp_path: Path) -> None:
    world = Connections()
    mine = lock(world, tmp_path)
    key = {name: value for name, value in json.loads(left(mine)).items() if name not in ("machine", "folder")}
    world.state["keys"][f"{OLD}/r2-lock-1"] = json.dumps({**key, "run": "r2"})
    mine.take("r1-lock-1")
    assert list(world.state["keys"]) == [f"{OLD}/r1-lock-1"]
