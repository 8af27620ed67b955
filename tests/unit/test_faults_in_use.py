"""Who has the cluster: one run, with what it starts; processes that are dead, and commands that come late."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest
from faults_world import ANYTHING, CLUSTER, MADE, Connections, Died, Time, injector, mark_of, part

from cbt_plugins.cluster.ceph import TIMED_OUT, Ceph
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import ClusterAccess, FaultError, Injector, cluster_access, undo_seal
from cbt_plugins.faults.cluster_lock import Hold
from cbt_plugins.faults.command_runner import Runner, Way
from cbt_plugins.faults.node_shell import agent
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, Step, UndoRecord
from cbt_plugins.journal import write_json
from cbt_plugins.plan import Fault, Settings

STOP = {n: Fault(f"node{n}", "stop", (f"node{n}",), accept=ANYTHING) for n in (1, 2)}


def ready(folder: Path, world: Connections, **more: Any) -> Injector:
    made = injector(folder, world, **more)
    made.acquire()
    return made


def made_anew() -> Connections:
    """The same nodes with another cluster."""
    other = Connections()
    other.state["fsid"] = "11111111-2222-3333-4444-555555555555"
    return other


def test_a_cluster_in_use_is_refused(tmp_path: Path, world: Connections) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ready(tmp_path / "a", world)
    other = injector(tmp_path / "b", world)
    other.lock.identity["run"] = "r2"
    with pytest.raises(FaultError, match=r"run r1 \(pid .* has been using this cluster"):
        other.acquire()
    ((key, holder),) = world.state["keys"].items()
    world.state["keys"][key] = json.dumps({**json.loads(holder), "started": 1})
    advice = r"to resume the run, start the command of the run again; .*: `cbt-tools undo .*/a`"
    with pytest.raises(FaultError, match=rf"but its process has ended: {advice}"):
        other.acquire()
    with pytest.raises(FaultError, match="its process has ended"):
        other.inject(STOP[1])
    assert world.differences() == set()


def test_every_process_of_a_folder_has_the_same_run(tmp_path: Path, world: Connections) -> None:
    """`inject` has a new id each time it is started; what is on the nodes and in the cluster has the folder's."""
    remote: Any = world

    def process(run_id: str) -> Injector:
        reached = ClusterAccess(remote, Ceph(remote, CLUSTER), CLUSTER, run_id=run_id)
        made = Injector(tmp_path, reached, clock=Time().clock())
        MADE.append(made)
        return made

    first = process("inject-1")
    first.acquire()
    world.die_at_change = (world.changes + 1, "late")
    with pytest.raises(Died):
        first.inject(STOP[1])
    first.close()
    ((key, holder),) = world.state["keys"].items()
    world.state["keys"][key] = json.dumps({**json.loads(holder), "pid": 1, "archive": "/moved/since"})
    second = process("inject-2")
    assert cluster_access.read(tmp_path).run_id == "inject-1"
    assert second.undo_all() == []
    world.arrive()  # the mark of the undo has the name that the killed process gave its command
    assert world.differences() == set()
    second.acquire()
    second.inject(STOP[2])
    assert second.undo_all() == []
    second.release()
    assert world.state["keys"] == {}


def test_an_attempt_to_take_the_cluster_is_fenced_off_once(tmp_path: Path, world: Connections) -> None:
    made = injector(tmp_path, world)
    world.fail = ["config-key set", "config-key rm"]
    for _ in range(3):
        with pytest.raises(FaultError, match="the stand-in fails"):
            made.acquire()
    assert len(Hold(made.journal, made.lock, "r1").late()) == 1


def test_a_run_shares_the_cluster_with_what_it_starts(tmp_path: Path, world: Connections) -> None:
    """`cbt-tools inject` beside a cycle: a child of the process that has the cluster."""
    for name in ("first", "child"):
        (tmp_path / name).mkdir()
    first, child = (injector(tmp_path / name, world) for name in ("first", "child"))
    first.acquire()
    child.lock.identity.update(run="inject", pid=1)
    with pytest.raises(FaultError, match="has been using this cluster"):
        child.acquire()
    child.lock.parent = {key: first.lock.identity[key] for key in ("host", "pid", "started")}
    child.acquire()
    child.apply(Settings(flags=("noout",)))
    child.undo_all()
    child.release()
    first.lock.check()


def test_a_lock_that_comes_after_its_run_was_undone_is_none(tmp_path: Path, world: Connections) -> None:
    """Killed while it took the cluster: neither undo nor the next start may be overtaken by that."""
    for resumed in (False, True):
        first = injector(tmp_path, world)
        world.die_at_change = (world.changes + 1, "late")
        with pytest.raises(Died):
            first.acquire()
        first.close()
        second = injector(tmp_path, world)
        if resumed:
            second.acquire()
            world.arrive()
            second.apply(Settings(flags=("noout",)))
            assert second.undo_all() == []
        else:
            assert second.undo_all() == []
        second.release()
        world.arrive()
        assert world.state["keys"] == {}
        second.close()


class HeadDies(Connections):
    """A cluster whose first head is gone from some time on."""

    dead = False

    def run(self, nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Any:
        if self.dead and nodes[0] == "node0":
            return {nodes[0]: Result("", "No route to host", 255)}
        return super().run(nodes, command, timeout, check)


def test_another_head_undoes_what_the_first_has_done(tmp_path: Path) -> None:
    world = HeadDies()
    first = ready(tmp_path, world, settings=Settings(flags=("noscrub",), balancer=False))
    first.apply()
    first.inject(STOP[1])
    first.close()
    world.dead = True
    second_head = {**CLUSTER, "head": "node9", "mons": ["node9"], "conf_file": "/etc/other.conf"}
    second = injector(tmp_path, world, cluster=second_head)
    assert second.undo_all() == [] and world.differences() == set()
    told = [(node, text) for node, text in world.said if "osd unset noscrub" in text]
    assert told == [("node9", "ceph -c /etc/other.conf osd unset noscrub")]
    assert [node for node, text in world.said if "systemctl start" in text] == ["node1"]
    second.release()
    second.close()
    reached = cluster_access.ensure(tmp_path, cluster_access.read(tmp_path), ClusterLimits(), False)
    assert reached.cluster["head"] == "node9"
    admin = Command("node0", "radosgw-admin -c /etc/ceph/ceph.conf user rm --uid=a")
    present = Runner(reached.ceph, "r1", ClusterLimits(), reached.former).for_present_head(admin)
    assert str(present) == "node9: radosgw-admin -c /etc/other.conf user rm --uid=a"
    # and by the folder alone, after one more
    third = ready(tmp_path, world, settings=Settings(flags=("noscrub",)), cluster=second_head)
    third.apply()
    third.close()
    injector(tmp_path, world, cluster={**second_head, "head": "node8"}).close()
    found = cluster_access.read(tmp_path)
    assert found.cluster["head"] == "node8"
    remote: Any = world
    by_folder = replace(found, remote=remote, ceph=Ceph(remote, found.cluster))
    made = Injector(tmp_path, by_folder, clock=Time().clock())
    MADE.append(made)
    world.said.clear()
    assert made.undo_all() == [] and world.differences() == set()
    assert {node for node, _ in world.said} == {"node8"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ceph_cmd": "ceph"}, {"ceph_cmd": "/opt/ceph/bin/ceph"}),
        ({"ceph_cmd": "sudo ceph"}, {"ceph_cmd": "ceph"}),
        ({}, {"conf_file": "/etc/ceph/ceph.conf.d/new"}),
    ],
)
def test_another_command_on_the_same_head_is_taken_once(
    world: Connections, before: Dict[str, str], after: Dict[str, str]
) -> None:
    """One is a part of the other; what is recorded from now on has the present one already."""
    remote: Any = world
    was, now = (Ceph(remote, {**CLUSTER, **its}) for its in (before, after))
    runner = Runner(now, "r", ClusterLimits(), [Way.of(was)])
    for recorded in (was, now):
        command = Command("node0", f"{recorded.admin} gc list; {recorded.command} osd unset noscrub")
        shown = runner.for_present_head(command)
        assert str(shown) == f"node0: {now.admin} gc list; {now.command} osd unset noscrub"


CONF_WITH_SPACE = {"conf_file": "/etc/ceph/x y.conf"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ceph": "cephadm"}, {"ceph": "cephadm"}),
        (CONF_WITH_SPACE, CONF_WITH_SPACE),
        ({}, {"ceph": "cephadm"}),
        ({"ceph": "cephadm"}, {}),
    ],
)
def test_a_quoted_command_is_for_the_present_head(
    world: Connections, before: Dict[str, str], after: Dict[str, str]
) -> None:
    """As in the texts for cephadm's orchestrator, whose agent gets the command as one of its words."""
    remote: Any = world
    was, now = (Ceph(remote, {**CLUSTER, **keys}) for keys in (before, {**after, "head": "node9"}))
    runner = Runner(now, "r", ClusterLimits(), [Way.of(was)])

    def commands(ceph: Ceph) -> List[Command]:
        create = agent("create", ceph.command, "{}", program="replacement_agent")
        ordered = f"( d=/run/cbt-plugins; ceph={shlex.quote(ceph.command)}; order start osd.1 )"  # before 0.2.0
        texts = [ordered, create, f"{ceph.command} osd in 1", f"sh -c {shlex.quote(ceph.command + ' osd in 1')}"]
        return [Command(ceph.head, text) for text in texts]

    recorded, present = commands(was)[: 4 if "ceph" in before else 3], commands(now)
    assert [runner.for_present_head(command) for command in recorded] == present[: len(recorded)]
    elsewhere = Command("node1", recorded[0].text)
    assert runner.for_present_head(elsewhere) == elsewhere


def test_a_command_that_waits_for_the_lock_of_a_node_is_no_sign_of_a_slow_cluster(world: Connections) -> None:
    """A slow command grants more time to the next question; this one may have waited for another step."""

    def cut(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        return {node: Result("", "", TIMED_OUT) for node in nodes}

    world.run = cut  # type: ignore[method-assign]
    remote: Any = world
    ceph = Ceph(remote, CLUSTER)
    runner, command = Runner(ceph, "r", ClusterLimits()), Command("node0", "ceph osd in 1", 30.0)
    record = UndoRecord("1", "a", "crash", Step("a", "node1", (), (), ()), 0.0, True, True)
    assert runner.undo(record, command, lambda *_: None) is not None
    with pytest.raises(FaultError):
        runner.inject(record, command)
    assert ceph.times.limit(30.0) == 30.0
    runner.look([Check("node0", "ceph osd dump", (), 30.0)])
    assert ceph.times.limit(30.0) > 30.0


def test_the_folder_keeps_the_commands_of_its_version(tmp_path: Path, world: Connections) -> None:
    """A later version may build other commands from the same `cluster:`."""
    ready(tmp_path, world).close()
    document = json.loads((tmp_path / cluster_access.FILE).read_text())
    (way,) = document["former"]
    del document["seal"]
    document["former"] = [[way[0], "ceph of an earlier version", way[2]]]
    write_json(tmp_path / cluster_access.FILE, {**document, "seal": undo_seal.of(document)})
    reached = cluster_access.ensure(tmp_path, cluster_access.read(tmp_path), ClusterLimits(), False)
    runner = Runner(reached.ceph, "r1", ClusterLimits(), reached.former)
    shown = runner.for_present_head(Command(way[0], "ceph of an earlier version osd in 1"))
    assert str(shown) == "node0: ceph -c /etc/ceph/ceph.conf osd in 1"


def test_a_command_on_a_node_that_was_the_head_stays_there(tmp_path: Path) -> None:
    """Only what asks or tells the cluster is for the present head."""
    world = Connections()
    first = ready(tmp_path, world, cluster={**CLUSTER, "head": "node1"})
    first.inject(STOP[1])
    first.close()
    second = injector(tmp_path, world, cluster={**CLUSTER, "head": "node2"})
    world.said.clear()
    assert second.undo_all() == []
    assert {node for node, text in world.said if text.startswith("systemctl")} == {"node1"}
    assert {node for node, text in world.said if text.startswith("ceph")} == {"node2"}


def test_the_folder_of_another_cluster_is_refused(tmp_path: Path, world: Connections) -> None:
    ready(tmp_path, world).close()
    other, another_head = Connections(), {**CLUSTER, "head": "headB"}
    other.state["fsid"] = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(FaultError, match=r"35488bad-.*head node0.* 11111111-.*head headB"):
        injector(tmp_path, other, cluster=another_head)
    assert cluster_access.read(tmp_path).cluster["head"] == "node0"
    other.fail = ["fsid"]  # nothing is known of it but its name
    with pytest.raises(FaultError, match=r"head node0.*head headB"):
        injector(tmp_path, other, cluster=another_head)
    injector(tmp_path, other, cluster={**CLUSTER, "clients": ["client2"]}).close()
    assert cluster_access.read(tmp_path).cluster["clients"] == ["client2"]


@pytest.mark.parametrize("by", ["the run", "the profile faults"])
def test_what_is_open_is_not_undone_on_a_cluster_that_was_made_anew(
    tmp_path: Path, world: Connections, by: str
) -> None:
    """The same nodes, the same conf_file, and another fsid."""
    if by == "the profile faults":  # it asks nothing
        remote: Any = world
        cluster_access.write(tmp_path, ClusterAccess(remote, Ceph(remote, CLUSTER), CLUSTER, run_id="r1"))
    first = ready(tmp_path, world)
    first.inject(STOP[1])
    first.close()
    other = made_anew()
    with pytest.raises(FaultError, match=r"35488bad-.* 11111111-"):
        injector(tmp_path, other)
    other.fail = ["fsid"]  # without an answer it may be the same one
    injector(tmp_path, other).close()
    again = injector(tmp_path, world)
    assert again.undo_all() == [] and world.differences() == set()
    again.release()
    again.close()
    other.fail = []
    with pytest.raises(FaultError, match=r"35488bad-.* 11111111-.*: use another archive directory"):
        injector(tmp_path, other)  # nothing is open, but its phases were measured elsewhere


def test_a_cluster_that_gives_no_id_at_first_is_known_from_the_next_process_on(
    tmp_path: Path, world: Connections
) -> None:
    world.fail = ["fsid"]
    ready(tmp_path, world).close()  # the journal has its attempt to lock the cluster
    world.fail = []
    first = ready(tmp_path, world)
    first.inject(STOP[1])
    first.close()
    other = made_anew()
    with pytest.raises(FaultError, match=r"35488bad-.* 11111111-"):
        injector(tmp_path, other)


def test_no_two_labels_have_one_name_on_the_nodes(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world)
    labels = ("net-1", "net.1", "net_1", "net 1", "nét-1", "net-1-0", "net-1-1", "net.2e.1", "net")
    names = [made.journal.name(label) for label in labels]
    assert len(set(names)) == len(labels)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", name) for name in names)
    assert names[0] == "r1-net-1-0"


def test_a_copy_of_the_folder_undoes_nothing_of_a_run_that_lives(tmp_path: Path, world: Connections) -> None:
    folder, copy = tmp_path / "run", tmp_path / "copy"
    folder.mkdir()
    first = ready(folder, world)
    first.set_up([part("pool a")])
    first.inject(STOP[1])
    shutil.copytree(folder, copy)
    before = world.differences()
    second = injector(copy, world)
    advice = "nothing is undone until that process has ended"
    with pytest.raises(FaultError, match=rf"has been using this cluster since .*: {advice}"):
        second.undo_earlier()
    with pytest.raises(FaultError, match="has been using this cluster"), second.holding():
        raise AssertionError("it has the cluster")
    assert mark_of("pool a") in world.state["flags"]
    assert world.differences() == before and len(world.state["keys"]) == 1
    second.close()
    ((key, holder),) = world.state["keys"].items()
    world.state["keys"][key] = json.dumps({**json.loads(holder), "host": "elsewhere"})
    elsewhere = injector(copy, world)
    with pytest.raises(FaultError, match=rf"on that host: .*; or on this machine: `cbt-tools undo --force {copy}`"):
        elsewhere.undo_earlier()
    elsewhere.close()
    assert world.differences() == before
    world.state["keys"][key] = json.dumps({**json.loads(holder), "started": 1})  # it is dead
    third = injector(copy, world)
    third.undo_earlier()
    assert world.differences() == {f"flag {mark_of('pool a')}"}
