"""How long the cluster may take, from the file to every command and check, and to whoever undoes it later."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

import pytest
from faults_world import ANYTHING, CLUSTER, Connections, Time

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import ClusterAccess, FaultError, Injector
from cbt_plugins.faults.cluster_access import limits_of
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.undo_journal import open_steps_in
from cbt_plugins.plan import Fault, Settings
from cbt_plugins.tools.__main__ import main

SLOW = Settings(limits={"command": 70.0, "daemons": 400.0, "down": 500.0, "back": 2000.0, "boot": 3000.0})
STOP = Fault("a", "stop", ("node1",), accept=ANYTHING)


class Timed(Connections):
    """Notes how long each command may take, and can be slow to see what has happened to its OSDs."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: List[float] = []
        self.time = Time()
        self.seen_after = 0.0  # seconds after the first look
        self._looked: Optional[float] = None

    def run(self, nodes: Sequence[str], command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Any]:
        self.allowed.append(timeout)
        return super().run(nodes, command, timeout, check)

    def look_slowly(self, seconds: float) -> None:
        """From now on the map shows what OSDs are only so long after it was first asked for."""
        before, began = self.world.ceph_osd_dump(), []
        now = self.world.ceph_osd_dump

        def dump() -> Any:
            began.append(self.time.now)
            return now() if self.time.now - began[0] >= seconds else before

        self.world.ceph_osd_dump = dump


@pytest.fixture
def made() -> Iterator[List[Injector]]:
    injectors: List[Injector] = []
    yield injectors
    for one in injectors:
        one.close()


def injector(made: List[Injector], folder: Path, world: Timed, settings: Optional[Settings]) -> Injector:
    remote: Any = world
    clock = world.time.clock()
    access = ClusterAccess(remote, Ceph(remote, CLUSTER), CLUSTER, run_id="r1")
    made.append(Injector(folder, access, settings=settings, clock=clock))
    return made[-1]


def test_a_file_changes_what_it_names() -> None:
    base = ClusterLimits(quick=1.0, down=2.0, again=3.0)
    assert limits_of(Settings(), base) == base
    assert limits_of(Settings(limits={"down": 9.0})) == ClusterLimits(down=9.0)
    named = ClusterLimits(70.0, 400.0, down=500.0, back=2000.0, boot=3000.0, again=3.0, lag=500.0)
    assert limits_of(SLOW, base) == named


def test_each_limit_is_where_it_belongs(tmp_path: Path, made: List[Injector]) -> None:
    one = injector(made, tmp_path, Timed(), SLOW)
    (step,) = one.prepare(STOP).steps
    assert {command.timeout for command in step.inject} == {400.0}
    assert [check.timeout for check in step.took] == [500.0]
    assert [check.timeout for check in step.checks] == [2000.0]
    (reboot,) = one.prepare(Fault("r", "reboot", ("node1",), accept=ANYTHING)).steps
    assert {check.timeout for check in reboot.checks} == {3000.0}


@pytest.mark.parametrize("settings", [None, SLOW])
def test_monitors_that_take_minutes_to_see_it(
    tmp_path: Path, made: List[Injector], settings: Optional[Settings]
) -> None:
    world = Timed()
    one = injector(made, tmp_path, world, settings)
    one.acquire()
    prepared = one.ready(STOP)
    world.look_slowly(400.0)
    if settings is None:
        with pytest.raises(FaultError, match=r"no effect: node0: osds\.osd=0\.up is 1, not 0"):
            one.inject_ready(prepared)
    else:
        one.inject_ready(prepared)
        assert one.confirm(["a"]) == {"a": None}
        assert min(world.allowed) >= 70.0


def test_who_undoes_it_has_the_same_limits(tmp_path: Path, made: List[Injector]) -> None:
    world = Timed()
    one = injector(made, tmp_path, world, SLOW)
    one.acquire()
    one.inject(STOP)
    one.close()
    world.allowed.clear()
    other = injector(made, tmp_path, world, None)  # as `cbt-tools undo` has it: no file, only the archive
    world.look_slowly(1500.0)
    assert other.undo_all() == [] and open_steps_in(tmp_path) == []
    assert min(world.allowed) >= 70.0


def test_the_newest_file_counts(tmp_path: Path, made: List[Injector]) -> None:
    for settings, down in ((SLOW, 500.0), (SLOW, 500.0), (Settings(), 60.0), (None, 60.0)):
        one = injector(made, tmp_path, Timed(), settings)
        assert one.prepare(STOP).steps[0].took[0].timeout == down
        one.close()
    assert (tmp_path / "undo.jsonl").read_text().count('"limits"') == 2


def test_a_plan_asks_with_the_limits_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = Timed()
    monkeypatch.setattr("cbt_plugins.cluster.remote.Remote.of_cluster", lambda cluster, common: world)
    file = tmp_path / "f.yaml"
    file.write_text(
        "cluster: {user: root, head: node0, clients: [c1], osds: [node1, node2, node3, node4], mons: [node0], "
        "iterations: 1}\nbenchmarks:\n  osdfailure:\n    s3: {urls: ['http://rgw1:7480'], user: cbt}\n"
        "    down_nodes: 1\n    fault: {kind: stop, nodes: [node1]}\n"
        "    settings: {limits: {command: 70s}}\n"
    )
    assert main(["plan", "--live", str(file)]) == 0
    assert 70.0 in world.allowed and ClusterLimits().quick not in world.allowed
