"""Room for the data of a fault's OSDs: on what is left of the cluster, of a class, of a host or rack."""

from __future__ import annotations

import copy
import json
from typing import Any, Dict, List, Tuple

import pytest
from faults_judge import ONE, TWO, judge, rules, taken, text
from faults_world import standin

from cbt_plugins.faults.cluster_facts import QUESTIONS, Facts
from cbt_plugins.faults.safety_case import OpenFault, Surroundings
from cbt_plugins.faults.safety_rules_data import assess


def fuller(answers: Dict[str, Any]) -> None:
    for row in answers["osd df"]["nodes"]:
        row["kb_used"] = row["kb"] * 0.84


def test_room_for_the_data() -> None:
    found = judge(ONE, fuller)
    assert text(found, "capacity").startswith("capacity: default (pools: ")
    limits = "the full ratio is 95 % (backfill stops at 90 %)"
    assert f") would be 96.0 % full after recovery; {limits}" in text(found, "capacity")
    # with fewer hosts than members nothing is copied anywhere: nothing grows
    assert "capacity" not in rules(judge(taken(0, 1, 2, 3, 4, 5), fuller))
    # nothing is left: no number that JSON does not have
    everything = judge(taken(*range(8)))
    assert text(everything, "capacity").startswith("capacity: no capacity would be left in default (pools: ")
    assert json.loads(json.dumps([everything.numbers["full_after"]], allow_nan=False)) == [None]
    # what is given away, or will be, leaves no room either
    assert "112.0 %" in text(judge(taken(1, out=True), fuller, held=[OpenFault(ONE)]), "capacity")
    assert "112.0 %" in text(judge(ONE, fuller, held=[OpenFault(taken(1, out=True))]), "capacity")


def test_each_class_of_devices_has_to_hold_its_own() -> None:
    """Four OSDs of eight are fast, small and nearly full; the others have room for everything."""

    def classes(answers: Dict[str, Any]) -> None:
        for node in answers["osd tree"]["nodes"]:
            if node["type"] == "osd":
                node["device_class"] = "ssd" if node["id"] < 4 else "hdd"
        for row in answers["osd df"]["nodes"]:
            row["kb_used"] = row["kb"] * (0.8 if row["id"] < 4 else 0.05)
        fast = copy.deepcopy(answers["osd crush rule dump"][0])
        fast["rule_id"] = 7
        fast["steps"][0]["item_name"] = "default~ssd"
        answers["osd crush rule dump"].append(fast)
        next(p for p in answers["osd dump"]["pools"] if p["pool_name"] == "rbd")["crush_rule"] = 7

    found = judge(ONE, classes)
    assert text(found, "capacity").startswith(
        "capacity: default, class ssd (pools: rbd) would be 106.7 % full after recovery; the full ratio is 95 %"
    )
    assert found.numbers["full_after"] == pytest.approx(4 * 0.8 / 3)
    both = " | ".join(map(str, judge(TWO, classes).findings))
    assert "rbd (3 copies, min_size 2): 2 of 4 hosts would be lost" in both
    slow = judge(taken(5), classes)
    assert "capacity" not in rules(slow)
    assert slow.numbers["full_after"] == pytest.approx((4 * 0.8 + 4 * 0.05) / 7)


def regular(hosts: int, per_host: int, used: float, racks: int = 0) -> Facts:
    """A cluster of equal OSDs, all as full; pools of 3 copies on its hosts, or its racks."""
    world: Any = standin.World(standin.new_state(hosts, per_host))
    answers = {question: json.loads(world.ceph(question.split())[0]) for question in QUESTIONS}
    rows = [{"id": osd, "kb": 1000, "kb_used": round(1000 * used)} for osd in range(hosts * per_host)]
    answers["osd df"] = {"nodes": rows}
    answers["service dump"] = world.ceph_service_dump()
    nodes = answers["osd tree"]["nodes"]
    below = [node["id"] for node in nodes if node["type"] == "host"]
    for rack in range(racks):
        children = below[rack * hosts // racks : (rack + 1) * hosts // racks]
        nodes.append({"id": -20 - rack, "name": f"rack{rack}", "type": "rack", "children": children})
        nodes[0]["children"] = [-20 - rack for rack in range(racks)]
    for rule in answers["osd crush rule dump"] if racks else ():
        rule["steps"][1]["type"] = "rack"
    return Facts(answers)


def filled(facts: Facts, *osds: int, **more: Any) -> Tuple[List[str], List[str]]:
    found = assess(facts, taken(*osds), Surroundings(**more))
    warnings = [text for text in found.warnings if " full" in text or "capacity" in text]
    return [str(f) for f in found.findings if f.rule == "capacity"], warnings


def test_a_host_keeps_its_data_where_no_other_may_take_it() -> None:
    """3 hosts, 3 copies: what one OSD of four had goes to the other three, although the cluster has much room."""
    node1 = "host node1 (pools: rbd, data) would be"
    full = f"{node1} 96.0 % full after recovery; the full ratio is 95 % (backfill stops at 90 %)"
    assert filled(regular(3, 4, 0.72), 0) == ([f"capacity: {full}"], [])
    assert filled(regular(3, 4, 0.72), 0, 5)[0]  # the worst of two hosts
    assert filled(regular(3, 4, 0.69), 0) == (
        [],
        [f"{node1} 92.0 % full after recovery: backfill stops at 90 %"],
    )
    assert filled(regular(3, 4, 0.6), 0) == ([], [])
    assert filled(regular(4, 4, 0.72), 0) == ([], [])  # a fourth host takes some
    # 4 of 4 hosts were enough, 3 are not: a quarter of the lost host's data comes on top
    assert filled(regular(4, 4, 0.6), 4)[0] == []
    ((found,), _) = filled(regular(4, 4, 0.6), 4, held=[OpenFault(taken(0, 1, 2, 3))])
    assert "host node2 (pools: rbd, data) would be 106.7 % full" in found
    # two hosts for three copies: nothing of the third comes, and its own remains
    ((found,), _) = filled(regular(3, 4, 0.72), 4, held=[OpenFault(taken(0, 1, 2, 3))])
    assert "host node2 (pools: rbd, data) would be 96.0 % full" in found


def test_a_host_whose_other_osds_have_not_told_their_size_has_no_room() -> None:
    facts = regular(3, 2, 0.4)
    facts.answers["osd df"]["nodes"][1].update(kb=0, kb_used=0)  # as of one that has just been made
    ((found,), _) = filled(facts, 0)
    assert found.startswith("capacity: no capacity would be left in host node1")


def test_a_rack_keeps_the_data_of_its_hosts() -> None:
    ((found,), _) = filled(regular(6, 4, 0.6, racks=3), 0, 1, 2, 3)
    assert "rack rack0 (pools: rbd, data) would be 120.0 % full" in found
    assert filled(regular(8, 4, 0.4, racks=4), 0, 1, 2, 3) == ([], [])


def in_two_steps(facts: Facts, hosts: int, op: str = "_firstn") -> Facts:
    """Let the rules choose two racks, and hosts in each of them."""
    for rule in facts.answers["osd crush rule dump"]:
        rule["steps"][1:2] = [
            {"op": f"choose{op}", "num": 2, "type": "rack"},
            {"op": f"chooseleaf{op}" if op == "_firstn" else f"choose{op}", "num": hosts, "type": "host"},
        ]
    return facts


@pytest.mark.parametrize("racks", [2, 3])
def test_a_rule_of_two_steps_moves_no_data_to_another_rack(racks: int) -> None:
    """As crushtool shows it: the first step chooses the same racks, also if there is a spare one."""
    ((found,), _) = filled(in_two_steps(regular(4 * racks, 1, 0.75, racks), 2), 0)
    assert "rack rack0 (pools: rbd, data) would be 100.0 % full" in found
    facts = in_two_steps(regular(4 * racks, 1, 0.75, racks), 2)
    assert filled(facts, *facts.below(-20)) == ([], [])  # all of rack0
    assert filled(in_two_steps(regular(4 * racks, 1, 0.75, racks), 2, "msr"), 0) == ([], [])  # chooses all again
    # both hosts of a rack are needed: each keeps its data
    ((found,), _) = filled(in_two_steps(regular(2 * racks, 4, 0.72, racks), 2), 0)
    assert "host node1 (pools: rbd, data) would be 96.0 % full" in found
    assert filled(in_two_steps(regular(2 * racks, 4, 0.72, racks), 1), 0) == ([], [])


def test_a_warning_comes_before_the_refusal() -> None:
    def nearly(answers: Dict[str, Any]) -> None:
        for row in answers["osd df"]["nodes"]:
            row["kb_used"] = row["kb"] * 0.8

    found = judge(ONE, nearly)
    assert rules(found) == [] and " would be 91.4 % full after recovery: " in found.warnings[0]


def test_a_share_of_the_osds_that_stays_in_may_be_exactly_min_in() -> None:
    """0.55 * 100 is a little more than 55 for a float."""
    facts, around = regular(20, 5, 0.1), Surroundings(min_in=0.55)
    left = {osds: rules(assess(facts, taken(*range(100 - osds), out=True), around)) for osds in (55, 54)}
    assert "thrash min_in" not in left[55] and "thrash min_in" in left[54]
