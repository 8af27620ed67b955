"""A partition: which side goes down, by the monitors that it reaches and the OSDs that report it."""

from __future__ import annotations

import copy
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import pytest
from faults_judge import PACIFIC, judge, rules

from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.cluster_facts import Facts, osd_names
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.kinds.links import Partition
from cbt_plugins.faults.scene import Scene, Targets

NODES = tuple(f"node{n}" for n in range(9))


class Said:
    """Stands where `Ceph` does: `mon_osd_min_down_reporters` is 2. `addresses`: the reply of each node."""

    head, command, kubernetes, in_pods = "node0", "ceph", None, ()

    def __init__(self, addresses: Optional[Mapping[str, str]] = None) -> None:
        self._addresses = addresses or {}

    def port(self, node: str) -> int:
        return 22

    @property
    def remote(self) -> Said:
        return self

    def run(self, nodes: Sequence[str], text: str, **_: Any) -> Dict[str, Result]:
        if "ip -o addr" in text:
            return {node: Result(self._addresses[node], "", 0) for node in nodes}
        assert "config show mon." in text and text.endswith("mon_osd_min_down_reporters")
        return {nodes[0]: Result("2\n", "", 0)}


def sides(
    targets: Sequence[str], peers: Sequence[str] = (), monitors: Sequence[str] = ("node0",)
) -> Tuple[Any, Sequence[int]]:
    """Return the blast radius of a partition, and the OSDs that are seen to go down."""
    answers = copy.deepcopy(PACIFIC)
    answers["mon metadata"] = [{"name": node, "hostname": node} for node in monitors]
    ceph: Any = Said()
    scene = Scene(ceph, Facts(answers), NODES, "f")
    kind = make("partition", {"peers": list(peers)})
    assert isinstance(kind, Partition)
    hit = Targets(tuple(targets), osd_names(o for node in targets for o in scene.on_node(node)), tuple(targets))
    return kind.blast_radius(scene, hit), sorted(kind.seen_down(scene, hit))


def osds(*nodes: str) -> Tuple[int, ...]:
    return tuple(osd for node in nodes for osd in Facts(PACIFIC).hosts[node])


def test_one_node_against_all_others_is_what_goes_down() -> None:
    taken, down = sides(["node1"])
    assert taken.nodes == ("node1",) and taken.osds == osds("node1") == tuple(down)


def test_two_large_sides_that_both_reach_the_monitors_report_each_other() -> None:
    taken, down = sides(["node1", "node2"], ["node3", "node4"])
    assert set(taken.nodes) == {"node1", "node2", "node3", "node4"}
    assert tuple(down) == tuple(sorted(osds("node1", "node2", "node3", "node4")))
    assert {"inactive", "domain"} <= set(rules(judge(taken)))


def test_a_side_without_the_quorum_reports_nobody() -> None:
    taken, down = sides(["node1", "node2"], ["node0", "node3", "node4"])
    assert set(taken.nodes) == {"node1", "node2"} and tuple(down) == tuple(sorted(osds("node1", "node2")))


def test_monitors_that_neither_side_has_are_reached_by_both() -> None:
    taken, _ = sides(["node1", "node2", "node3"], ["node4"], ["node5", "node6", "node4"])
    assert taken.nodes == ("node4",)  # node4 is reported by three, and reports alone


def test_two_nodes_that_nobody_is_believed_of_wait_for_each_other() -> None:
    taken, down = sides(["node1"], ["node2"])
    assert set(taken.nodes) == {"node1", "node2"} and list(down) == []


def test_a_side_without_osds_is_what_its_users_lose() -> None:
    taken, down = sides(["node1"], ["node0"], ["node5"])
    assert taken.nodes == ("node0",) and taken.osds == () and list(down) == []


@pytest.mark.parametrize(("peers", "says"), [(["node77"], "not in `cluster:`"), (["node1"], "no node is left")])
def test_far_ends_that_cannot_be_are_refused(peers: Sequence[str], says: str) -> None:
    with pytest.raises(FaultError, match=says):
        sides(["node1"], peers)


def test_a_network_is_no_address_of_a_node() -> None:
    """The far end of a link is dropped by its addresses: with 0.0.0.0/0 of a node that lies it would be everybody."""
    ceph: Any = Said({"node1": "10.9.0.1\n", "node2": "0.0.0.0/0\n}; flush ruleset\n"})
    scene = Scene(ceph, Facts(PACIFIC), NODES, "f")
    kind = make("partition", {"peers": ["node2"]})
    hit = Targets(("node1",), osd_names(scene.on_node("node1")), ("node1",))
    with pytest.raises(FaultError, match="node2: no reply, or no address: the links to these nodes are unknown"):
        kind.steps(scene, hit)
