"""Targets of faults: CRUSH buckets, daemons of other types, and those that a kind may take now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest
from faults_judge import PACIFIC
from faults_world import Connections, injector

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.cluster_facts import DAEMON_QUESTIONS, DaemonName, Facts, osd_names
from cbt_plugins.faults.kinds.failover import Failover
from cbt_plugins.faults.step import Step
from cbt_plugins.faults.target_choice import TargetResolver
from cbt_plugins.plan import DAEMON_TYPES, Fault

NODES = [f"node{i}" for i in range(9)]


def cluster(**answers: Any) -> Facts:
    """Eight hosts with an OSD each, node1 to node4 in rack1; a gateway and a ceph-mon on node1 and node2."""
    tree: Dict[str, Any] = PACIFIC["osd tree"]
    ids = {node["name"]: node["id"] for node in tree["nodes"]}
    rack = {"id": -100, "name": "rack1", "type": "rack", "children": [ids[f"node{i}"] for i in (1, 2, 3, 4)]}
    rows = {str(i): {"metadata": {"id": f"gw{i}", "hostname": f"node{i}"}} for i in (1, 2)}
    return Facts(
        {
            **PACIFIC,
            "osd tree": {**tree, "nodes": [*tree["nodes"], rack]},
            "mon metadata": [{"name": f"m{i}", "hostname": f"node{i}"} for i in (1, 2)],
            DAEMON_QUESTIONS["rgw"]: {"services": {"rgw": {"daemons": {"summary": "", **rows}}}},
            **answers,
        }
    )


def resolved(facts: Facts, fault: Fault, takes: str = "either", types: Any = DAEMON_TYPES, nodes: Any = NODES) -> Any:
    return TargetResolver(facts, nodes).resolve(fault, takes, types)


def test_a_bucket_stands_for_its_osds_or_its_nodes() -> None:
    facts = cluster()
    osds = sorted(osd for host in ("node1", "node2", "node3", "node4") for osd in facts.hosts[host])
    fault = Fault("r", "x", ("crush:rack1",))
    for takes in ("either", "daemon"):
        targets = resolved(facts, fault, takes)
        assert targets.daemons == osd_names(osds) and targets.nodes == () and targets.named == ("crush:rack1",)
    whole = resolved(facts, fault, "node", ("osd",))
    assert whole.nodes == ("node1", "node2", "node3", "node4") and whole.osds == tuple(osds)


def test_a_bucket_of_a_type_is_chosen_by_the_seed() -> None:
    facts = cluster()
    chosen = {resolved(facts, Fault("h", "x", choose=1, choose_of="crush:host", seed=n)).named for n in range(40)}
    assert chosen == {(f"crush:node{n}",) for n in range(1, 9)}
    rack = resolved(facts, Fault("r", "x", choose=1, choose_of="crush:rack"), "node", ("osd",))
    assert rack.named == ("crush:rack1",) and rack.nodes == ("node1", "node2", "node3", "node4")
    types = "types with OSDs: host, rack, root"
    with pytest.raises(FaultError, match=rf"^d: the CRUSH tree has no row with OSDs; {types}$"):
        resolved(facts, Fault("d", "x", choose=1, choose_of="crush:row"))
    down = [{**osd, "up": 0} if osd["osd"] == 0 else osd for osd in facts.answers["osd dump"]["osds"]]
    facts = cluster(**{"osd dump": {**facts.answers["osd dump"], "osds": down}})
    with pytest.raises(FaultError, match=r"^d: no rack has only healthy OSDs: rack1$"):
        resolved(facts, Fault("d", "x", choose=1, choose_of="crush:rack"))


def test_a_bucket_that_cannot_be_taken_is_named() -> None:
    facts = cluster()
    with pytest.raises(FaultError, match=r"r: no CRUSH bucket rack9; buckets of the cluster: default, node1, .*rack1"):
        resolved(facts, Fault("r", "x", ("crush:rack9",)))
    with pytest.raises(FaultError, match=r"rack1 stands for its OSDs: x hits mgr/mon daemons"):
        resolved(facts, Fault("r", "x", ("crush:rack1",)), "daemon", ("mgr", "mon"))
    with pytest.raises(FaultError, match=r"hosts of rack1 that are no nodes of `cluster:`: node1, node2"):
        resolved(facts, Fault("r", "x", ("crush:rack1",)), "node", ("osd",), NODES[3:])
    tree = [dict(node) for node in facts.tree.values()]
    host = next(node for node in tree if node["name"] == "node1")
    moved = host["children"][0]
    tree.append({"id": -101, "name": "rack2", "type": "rack", "children": [moved]})
    split = [{**n, "children": [*n["children"], 7]} if n["name"] == "node1" else n for n in tree]
    facts = cluster(**{"osd tree": {"nodes": split}, "osd metadata": []})
    with pytest.raises(FaultError, match=r"hits whole nodes; node1 also has osd\.\d+, outside rack2"):
        resolved(facts, Fault("r", "x", ("crush:rack2",)), "node", ("osd",))


def test_a_node_means_its_osds_unless_the_fault_has_another_type() -> None:
    facts = cluster()
    assert resolved(facts, Fault("a", "x", ("node1",))).daemons == osd_names(facts.hosts["node1"])
    for type, name in (("mon", "m1"), ("rgw", "gw1")):
        assert resolved(facts, Fault("a", "x", ("node1",), choose_of=type)).daemons == (DaemonName(type, name),)
    chosen = resolved(facts, Fault("a", "x", choose=1, choose_of="rgw"))
    assert chosen.daemons[0].type == "rgw"
    with pytest.raises(FaultError, match="with rgw daemons; nodes with such daemons: node1, node2"):
        resolved(facts, Fault("a", "x", ("node3",), choose_of="rgw"))


def test_an_osd_of_a_node_that_a_mon_names_is_no_target_twice() -> None:
    facts = cluster()
    (osd,) = osd_names(facts.hosts["node1"])
    by_mon, chosen = Fault("l", "loss", ("node1",), choose_of="mon"), Fault("l", "loss", choose=1)
    paused = TargetResolver(facts, NODES, held=[osd])
    with pytest.raises(FaultError, match=f"^l: {osd}: already hit by another open fault$"):
        paused.resolve(by_mon, "node", DAEMON_TYPES)
    assert {paused.resolve(replace(chosen, seed=n), "node", ("mon",)).nodes for n in range(9)} == {("node2",)}
    rows = [{**row, "up": int(row["osd"] != int(osd.id))} for row in facts.answers["osd dump"]["osds"]]
    facts = cluster(**{"osd dump": {**facts.answers["osd dump"], "osds": rows}})
    with pytest.raises(FaultError, match=f"^l: {osd}: already down, but not by this run$"):
        resolved(facts, by_mon, "node")
    assert resolved(facts, by_mon).daemons == (DaemonName("mon", "m1"),)  # of a kind that takes daemons


def test_a_failover_is_of_the_active_manager_or_the_leader() -> None:
    status = {**PACIFIC["quorum_status"], "quorum_leader_name": "m2"}
    managers = [{"name": name, "hostname": name} for name in ("node1", "node2")]
    facts = cluster(**{"quorum_status": status, "mgr stat": {"active_name": "node2"}, "mgr metadata": managers})
    eligible = Failover(None).eligible(facts)
    resolver = TargetResolver(facts, NODES, (), eligible)
    for type, name in (("mgr", "node2"), ("mon", "m2")):
        fault = Fault("f", "failover", choose=1, choose_of=type)
        assert resolver.resolve(fault, "daemon", ("mgr", "mon")).daemons == (DaemonName(type, name),)
    with pytest.raises(FaultError, match=r"f: mgr\.node1: failover can hit only mgr\.node2, mon\.m2 now"):
        resolver.resolve(Fault("f", "failover", ("mgr.node1",)), "daemon", ("mgr", "mon"))


def test_an_osd_that_is_paused_counts_as_gone_although_it_is_up(tmp_path: Path, world: Connections) -> None:
    made = injector(tmp_path, world)
    made.acquire()
    for silent, refused in ((False, set()), (True, {"inactive", "domain", "ok-to-stop"})):
        step = Step("x", "node1", (), (), (), daemons=("osd.0",), silent=silent)
        record = made.journal.write_step("p", "pause", step)
        made.journal.note("confirmed", record)
        rules = {finding.rule for finding in made.prepare(Fault("b", "stop", ("node2",))).refused}
        assert rules & {"inactive", "domain", "ok-to-stop"} == refused
        made.give_up("p")


# ---- the file


def errors(tmp_path: Path, fault: str) -> List[str]:
    file = tmp_path / "f.yaml"
    file.write_text(f"events:\n  - at: 0s\n    fault: {{label: a, {fault}}}\n")
    with pytest.raises(ConfigError) as refused:
        load_fault_file(file, ["node1", "node2"])
    return [line.partition("fault")[2] for line in str(refused.value).splitlines()]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kind: failover, crush: rack1", ".crush: stands for OSDs; failover hits mgr or mon daemons"),
        ("kind: failover, crush_type: rack", ".crush_type: stands for OSDs; failover hits mgr or mon daemons"),
        ("kind: stop, crush: -rack", ".crush: must be a name of letters"),
        ("kind: stop, osds: [1], daemon_type: rgw", ".daemon_type: is for daemon_number, and for nodes of a kind"),
        ("kind: reboot, nodes: [node1], daemon_type: rgw", ".daemon_type: is for daemon_number, and for nodes of a"),
        ("kind: drain, daemon_number: 1, daemon_type: mon, options: {balancers: lb}", ".daemon_type: drain hits rgw"),
        ("kind: stop, nodes: [rgw1]", ".nodes[0]: rgw1 is not among the cluster's osds"),
        ("kind: drain, daemons: [rgw.a]", ".options: drain needs either the option balancers"),
        ("kind: drain, daemons: [rgw.a], options: {'off': x}", ".options: drain needs either the option balancers"),
        ("kind: pause, osds: [1], options: {deadline: 4s}", ".options.deadline: must be 5s to 7d"),
    ],
)
def test_errors_of_targets_are_placed(tmp_path: Path, fault: str, message: str) -> None:
    (text,) = errors(tmp_path, fault)
    assert text.startswith(message)


def test_targets_are_planned(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "events:\n"
        "  - {at: 0s, fault: {label: a, kind: reboot, crush: rack1}}\n"
        "  - {at: 1s, fault: {label: b, kind: crash, nodes: [rgw1], daemon_type: rgw}}\n"
        "  - {at: 2s, fault: {label: c, kind: failover, daemon_number: 1, daemon_type: mon}}\n"
        "  - {at: 3s, fault: {label: d, kind: pause, daemon_number: 1}}\n"
        "  - {at: 4s, fault: {label: e, kind: stop, crush_type: rack, seed: 3}}\n"
        "  - {at: 5s, fault: {label: f, kind: delay, nodes: [rgw2], daemon_type: rgw}}\n"
    )
    events, _ = load_fault_file(file, ["node1"])
    assert [event.inject for event in events] == [
        Fault("a", "reboot", ("crush:rack1",)),
        Fault("b", "crash", ("rgw1",), choose_of="rgw"),
        Fault("c", "failover", choose=1, choose_of="mon"),
        Fault("d", "pause", choose=1, choose_of="osd"),
        Fault("e", "stop", choose=1, choose_of="crush:rack", seed=3),
        Fault("f", "delay", ("rgw2",), choose_of="rgw"),
    ]
