"""What an injector makes of the rules of safety: by what its open faults have taken, and by answers that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Tuple

import pytest
from faults_world import ANYTHING, CLUSTER, Connections, Time, injector

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import FaultError, Injector, Prepared
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import ask
from cbt_plugins.plan import Fault, Settings


def begun(folder: Path, world: Connections, **more: Any) -> Injector:
    made = injector(folder, world, **more)
    made.acquire()
    return made


def cut(made: Injector, node: str, *accept: str) -> Prepared:
    """Return the fault as one that takes the node as well."""
    prepared = made.prepare(Fault(node, "stop", (node,), accept=accept))
    return replace(prepared, taken=BlastRadius(prepared.targets.daemons, prepared.targets.nodes))


def test_a_monitor_that_the_quorum_still_lists_is_gone_with_its_node(tmp_path: Path, world: Connections) -> None:
    names = ["node1", "node2", "node3"]
    world.world.ceph_quorum_status = lambda: {"quorum_names": names, "monmap": {"mons": [{"name": n} for n in names]}}
    world.world.ceph_mon_metadata = lambda: [{"name": n, "hostname": n} for n in names]
    made = begun(tmp_path, world)
    first, second = cut(made, "node1"), cut(made, "node2", *ANYTHING)
    made.inject_ready(made.ready(first), wait=False)
    with pytest.raises(FaultError, match=r"refused\. quorum: 1 of 3 monitors would be left"):
        made.ready(second)
    assert made.confirm() == {"node1": None}
    with pytest.raises(FaultError, match=r"refused\. quorum: 1 of 3 monitors would be left"):
        made.ready(second)
    world.state["osds"]["0"].update(up=1, unit="active")  # by itself, as after a reboot
    assert made.ready(second).assessment.numbers["monitors_left"] == 2


def test_a_head_or_client_is_known_by_an_address_or_another_name(tmp_path: Path, world: Connections) -> None:
    world.names = {"10.0.0.1": "node1.lab", "admin-vip": "node2"}
    made = begun(tmp_path, world, cluster={**CLUSTER, "head": "admin-vip", "clients": ["client1", "10.0.0.1"]})
    with pytest.raises(FaultError, match=r"refused\. client: 1 of 2 clients would be lost, .*: 10\.0\.0\.1"):
        made.ready(cut(made, "node1"))
    with pytest.raises(FaultError, match=r"refused\. head: node2 is the head, through which this run reaches"):
        made.ready(cut(made, "node2"))
    made.ready(cut(made, "node3"))
    assert [text for _, text in world.said if text == "uname -n"] == ["uname -n"] * 3  # once each
    world.said.clear()
    made.ready(Fault("f", "stop", ("osd.0",)))
    assert "uname -n" not in [text for _, text in world.said]


def test_a_gateway_is_known_by_an_address_or_another_name(tmp_path: Path, world: Connections) -> None:
    world.names = {"10.0.0.1": "node1.lab", "s3-vip": "node2"}
    made = begun(tmp_path, world, cluster={**CLUSTER, "rgws": ["10.0.0.1"]})
    with pytest.raises(FaultError, match=r"refused\. rgw: 0 of 1 nodes with RADOS gateways .* takes away 10\.0\.0\.1"):
        made.ready(cut(made, "node1"))
    made.ready(cut(made, "node3"))
    made.release()
    made.close()
    (tmp_path / "other").mkdir()
    other = begun(tmp_path / "other", world, cluster={**CLUSTER, "rgws": ["10.0.0.1", "s3-vip"]})
    assert "requests to s3-vip would fail" in " ".join(other.ready(cut(other, "node2")).warnings)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            ("", "Error EBUSY: 3 PGs are already too degraded", 16),
            "says no: Error EBUSY: 3 PGs are already too degraded",
        ),
        (("", "Error EAGAIN: OSDs have not reported", 11), "no usable reply: .*Error EAGAIN"),
        (("", "", 124), "no usable reply: .*exit status 124"),
    ],
)
def test_ok_to_stop_without_json_is_no_yes(
    tmp_path: Path, world: Connections, answer: Tuple[str, str, int], why: str
) -> None:
    made = begun(tmp_path, world)
    world.world.ceph_osd_ok_to_stop = lambda *_: answer
    with pytest.raises(FaultError, match=f"ok-to-stop: .*{why}"):
        made.inject(Fault("first", "stop", ("node1",)))
    world.world.ceph_osd_ok_to_stop = lambda *_: ("", "OSD(s) 0 are ok to stop", 0)
    made.inject(Fault("first", "stop", ("node1",)))


def test_a_question_that_was_broken_off_has_no_answer(world: Connections) -> None:
    """What the others said is kept."""
    play = world.play
    world.play = lambda node, text: replace(play(node, text), stdout=play(node, text).stdout.partition("status")[0])
    facts = ask(Ceph(world, CLUSTER), ("osd dump",), alone=("osd ok-to-stop 0", "osd ok-to-stop 1"))
    assert len(facts.osds) == 4
    assert [facts.answers[f"osd ok-to-stop {n}"].status for n in (0, 1)] == [None, None]


def test_the_machines_of_the_run_itself(tmp_path: Path, world: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node2.example")
    roles = {**CLUSTER, "clients": ["node3"], "rgws": ["root@node1"]}
    made = begun(tmp_path, world, cluster=roles)
    for node, name in [("node1", "rgw"), ("node2", "head"), ("node3", "client")]:
        with pytest.raises(FaultError, match=rf"refused\. {name}: .*accept: \[{name}\] on the fault"):
            made.ready(cut(made, node))
        made.ready(cut(made, node, name))


def test_a_share_of_the_osds_stays_in_whatever_a_fault_accepts(tmp_path: Path, world: Connections) -> None:
    made = begun(tmp_path, world)
    random = [Fault(f"thrash-{n}", "out", (f"osd.{n}",), accept=ANYTHING, min_in=0.75) for n in range(2)]
    second = made.prepare(random[1])
    made.inject(random[0])  # 3 of 4 are 75 %
    with pytest.raises(FaultError) as raised:
        made.ready(random[1])
    says = "thrash min_in: 2 of 4 OSDs (50.0 %) would be in and up; min_in is 75.0 %"
    assert str(raised.value) == f"thrash-1: refused. {says}"
    with pytest.raises(FaultError, match=r"refused\. thrash min_in"):
        made.ready(second)
    made.ready(replace(random[1], min_in=0.5))
    made.ready(replace(second, taken=BlastRadius()))  # a fault that takes no OSD
    made.undo(["thrash-0"])
    world.state["osds"]["3"]["up"] = 0
    assert f"refused by safety rule {says}" in "\n".join(made.prepare(random[1]).lines())


def test_what_was_only_warned_of_is_in_the_events(tmp_path: Path, world: Connections) -> None:
    world.state["flags"].append("norecover")
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = begun(tmp_path, world, events=events, settings=Settings(flags=("noout",)))
    made.apply()
    made.inject(Fault("node1", "stop", ("node1",)))
    said = next(facts for name, facts in events if name == "fault-inject-begin" and facts["label"] == "node1")
    assert said["warnings"] == ["norecover is set, but not by this run: nothing is recovered"]


class Peering:
    """PGs of the stand-in that peer until a time."""

    def __init__(self, world: Connections, until: float) -> None:
        self.time, self._until = Time(), until
        self._pgs, self._ok = world.world.pgs, world.world.ceph_osd_ok_to_stop
        world.world.pgs, world.world.ceph_osd_ok_to_stop = self.pgs, self.ok_to_stop

    @property
    def over(self) -> bool:
        return self.time.now >= self._until

    def pgs(self) -> Iterator[Any]:
        for pg in self._pgs():
            yield pg if self.over else {**pg, "state": "remapped+peering"}

    def ok_to_stop(self, *numbers: str) -> Any:
        return self._ok(*numbers) if self.over else ('{"ok_to_stop": false, "num_not_ok_pgs": 5}\n', "", 16)


def test_a_refusal_for_pgs_that_peer_is_none_when_they_have(tmp_path: Path, world: Connections) -> None:
    """An OSD has just come back: for a moment Ceph would let none be stopped."""
    cluster = Peering(world, until=1006.0)
    made = begun(tmp_path, world, time=cluster.time)
    assert made.ready(Fault("first", "stop", ("node1",))).assessment.findings == ()
    assert 1006.0 <= cluster.time.now < 1009.0


def test_pgs_that_go_on_peering_refuse_it(tmp_path: Path, world: Connections) -> None:
    cluster = Peering(world, until=5000.0)
    made = begun(tmp_path, world, time=cluster.time)
    with pytest.raises(FaultError, match=r"refused\. clean: .* remapped\+peering \| ok-to-stop"):
        made.ready(Fault("first", "stop", ("node1",)))
    assert 1015.0 <= cluster.time.now < 1030.0


@pytest.mark.parametrize("accept", [("clean", "ok-to-stop"), ()])
def test_what_peering_does_not_decide_is_decided_at_once(
    tmp_path: Path, world: Connections, accept: Tuple[str, ...]
) -> None:
    """Also where nothing is refused."""
    cluster = Peering(world, until=5000.0)
    made = begun(tmp_path, world, time=cluster.time)
    world.state["flags"] += [] if accept else ["nodown"]
    before = cluster.time.now
    if accept:
        assert made.ready(Fault("first", "stop", ("node1",), accept=accept)).assessment.transient
    else:
        with pytest.raises(FaultError, match="flags: "):
            made.ready(Fault("first", "stop", ("node1",)))
    assert cluster.time.now == before


def test_a_run_that_ends_does_not_wait_for_pgs(tmp_path: Path, world: Connections) -> None:
    cluster = Peering(world, until=5000.0)
    made = begun(tmp_path, world, time=cluster.time)
    made.shut()
    with pytest.raises(FaultError, match="the run is stopping"):
        made.ready(Fault("first", "stop", ("node1",)))
