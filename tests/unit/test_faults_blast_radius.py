"""Blast radius of every kind: refusals on the head, on a client, in the last quorum, in a second failure domain."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence, Tuple

import pytest
from faults_judge import judge, rules, text
from faults_scene import last_quorum, scene_of
from faults_world import CLUSTER, Connections

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.config import plugins
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, osd_names
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.prepared_fault import Preparer
from cbt_plugins.faults.safety_case import OpenFault, Roles
from cbt_plugins.faults.scene import ClusterLimits, Scene, Targets


class Case(NamedTuple):
    """Options of a kind, and the rules that refuse the fault, each in its situation."""

    kind: str
    options: Mapping[str, Any]
    refused: Sequence[str]


#: a node that is lost with everything on it; a node that serves on; daemons that are lost
LOST, DISTURBED = ("head", "client", "quorum", "domain"), ("head", "client")
DAEMONS, OSDS = ("quorum", "domain"), ("domain",)
POWER, DRAIN = {"off": "x {node}", "on": "y {node}"}, {"off": "x", "on": "y"}
CASES = [
    *(Case(kind, {}, LOST) for kind in ("reboot", "partition", "maintenance", "node_drain")),
    Case("network", {"method": "nft"}, LOST),
    Case("power", POWER, LOST),
    Case("delay", {"delay": 1.0}, LOST),
    Case("delay", {"delay": 0.99}, DISTURBED),
    Case("rate", {"rate": 1.24e6}, LOST),
    Case("rate", {"rate": 1.25e6}, DISTURBED),
    Case("loss", {"share": 0.1}, LOST),
    Case("loss", {"share": 0.09}, DISTURBED),
    Case("pressure", {"cpus": 9}, LOST),
    Case("pressure", {"cpus": 8}, DISTURBED),
    Case("pressure", {"memory": 6.1e9}, LOST),
    Case("pressure", {"memory": 5.9e9}, DISTURBED),
    *(Case(kind, {}, DAEMONS) for kind in ("stop", "crash", "pause", "delete_pod")),
    Case("failover", {}, ("quorum",)),
    *(Case(kind, {}, OSDS) for kind in ("replace", "mark", "slow_disk", "read_errors")),
    Case("fill", {"level": "full"}, OSDS),
    # these OSDs stay up; the data of `out` have a rule of their own, and `drain` has `rgw`
    Case("fill", {"level": "backfillfull"}, ()),
    Case("out", {}, ()),
    Case("drain", DRAIN, ()),
]


def osds_of(scene: Scene, node: str) -> Tuple[DaemonName, ...]:
    return osd_names(scene.on_node(node))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind} {dict(case.options)}")
def test_every_kind_is_refused_where_it_would_do_harm(case: Case) -> None:
    kind, scene = make(case.kind, case.options), scene_of()
    hit = osds_of(scene, "node1") if "osd" in kind.daemon_types else ()
    targets = Targets(("node1",), hit, ("node1",))
    if case.kind == "pressure":
        kind.steps(scene, targets)  # which asks the node
    taken = kind.blast_radius(scene, targets)
    mon = Targets((), (DaemonName("mon", "node1"),), ("mon.node1",))
    without_mon = kind.blast_radius(scene, mon) if kind.takes != "node" and "mon" in kind.daemon_types else taken
    other = OpenFault(BlastRadius(osds_of(scene, "node2")))
    found = {
        "head": judge(taken, roles=Roles(head="node1")),
        "client": judge(taken, roles=Roles(clients=("node1",))),
        "quorum": judge(without_mon, last_quorum),
        "domain": judge(taken, held=[other]),
    }
    assert [rule for rule in found if rule in rules(found[rule])] == list(case.refused)


def test_every_kind_is_in_the_table() -> None:
    assert {case.kind for case in CASES} == {*plugins.built_in(plugins.FAULTS)}


SILENT = ("delay", "rate", "loss", "pressure", "read_errors")


@pytest.mark.parametrize("case", [case for case in CASES if case.kind in SILENT])
def test_what_counts_as_down_does_so_beside_the_next_fault(case: Case) -> None:
    """Its OSDs are up in the OSD map, so the step says that they do not serve."""
    scene, kind = scene_of(), make(case.kind, case.options)
    steps = kind.steps(scene, Targets(("node1",), osds_of(scene, "node1"), ("node1",)))
    assert steps[0].silent is (case.refused in (LOST, OSDS))


NODE_KINDS = [case for case in CASES if case.refused == LOST and case.kind not in ("reboot", "network", "power")]


@pytest.mark.parametrize("case", NODE_KINDS, ids=lambda case: f"{case.kind} {dict(case.options)}")
def test_a_node_of_a_mon_is_lost_with_its_osds_too(case: Case) -> None:
    """`nodes: [node1], daemon_type: mon` names the node by one of its daemons."""
    scene, kind = scene_of(), make(case.kind, case.options)
    targets = Targets(("node1",), (DaemonName("mon", "node1"),), ("node1",))
    if case.kind == "pressure":
        kind.steps(scene, targets)
    taken = kind.blast_radius(scene, targets)
    assert {*taken.daemons} == {*osds_of(scene, "node1"), DaemonName("mon", "node1")}


@pytest.mark.parametrize("kind", ["delay", "loss", "rate", "partition", "pressure"])
def test_a_node_without_osds_is_disturbed(kind: str) -> None:
    scene = scene_of()
    assert scene.on_node("node0") == ()
    targets = Targets(("node0",), (DaemonName("mgr", "node0"),), ("node0",))
    (step,) = make(kind, {}).steps(scene, targets)
    assert step.node == "node0" and not any("osd" in check.text for check in (*step.took, *step.checks))


def test_a_disturbed_head_and_client_are_named() -> None:
    taken, roles = BlastRadius(disturbed=("node1", "node2")), Roles(head="node1", clients=("node2", "node5"))
    found = judge(taken, roles=roles)
    assert text(found, "head").endswith("reaches the cluster: the fault would disturb the commands of this run")
    assert text(found, "client").startswith("client: 1 of 2 clients would be disturbed, and the load of these clients:")


def test_a_head_is_disturbed_under_any_of_its_names(world: Connections) -> None:
    remote: Any = world
    world.names = {"head9": "node1"}
    cluster = {**CLUSTER, "head": "head9"}
    preparer = Preparer(Ceph(remote, cluster), cluster, ClusterLimits())
    found, _ = preparer.assess(BlastRadius(disturbed=("node1",)), [])
    assert rules(found) == ["head"]


def test_one_of_several_gateways_that_is_stopped_keeps_the_nodes_of_the_others() -> None:
    """The service map has one of the pods at first, and not which."""
    name, roles = DaemonName("rgw", "my.store.a"), Roles(gateways=("node1", "node2", "node3"))

    def two_gateways(answers: Any) -> None:
        nodes = {"11": "node1", "12": "node2"}
        rows = {gid: {"gid": int(gid), "metadata": {"id": name.id, "hostname": node}} for gid, node in nodes.items()}
        answers["service dump"] = {"services": {"rgw": {"daemons": rows}}}

    held = [OpenFault(BlastRadius((name,), shared=(name,)), seen=True)]
    drains = {node: judge(BlastRadius((), (node,)), two_gateways, held=held, roles=roles) for node in roles.gateways}
    one_is_gone = "rgw: an open fault has taken one of the gateways rgw.my.store.a; the fault takes away node1, "
    assert text(drains["node1"], "rgw").startswith(one_is_gone)
    assert "rgw" in rules(drains["node2"]) and "rgw" not in rules(drains["node3"])
