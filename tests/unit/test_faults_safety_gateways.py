"""The safety rule `rgw`: a RADOS gateway is left, also where several gateways have one name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict

import pytest
from faults_judge import ONE, judge, rules, taken, text

from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.safety_case import OpenFault, Roles


def test_a_gateway_is_left() -> None:
    roles = Roles(gateways=("node1", "node2"))
    first, second = taken(0, nodes=("node1",)), taken(nodes=("node2",))
    found = judge(first, roles=roles)
    assert rules(found) == []
    assert found.warnings == ("1 of 2 nodes with RADOS gateways would be left; requests to node1 would fail",)
    both = taken(nodes=("node1", "node2"))
    for found in (judge(both, roles=roles), judge(second, roles=roles, held=[OpenFault(first)])):
        assert text(found, "rgw").startswith("rgw: 0 of 2 nodes with RADOS gateways would be left")
    assert rules(judge(taken(nodes=("node3",)), roles=roles, held=[OpenFault(both)])) == []
    assert judge(ONE, roles=roles).warnings == ()


def gateways(*hosts: str, ids: str = "abc") -> Callable[[Dict[str, Any]], None]:
    """The service map shows a gateway on each of these hosts: rgw.a, rgw.b ..."""

    def change(answers: Dict[str, Any]) -> None:
        rows = {str(i): {"metadata": {"id": ids[i], "hostname": host}} for i, host in enumerate(hosts)}
        answers["service dump"] = {"services": {"rgw": {"daemons": {"summary": "", **rows}}}}

    return change


def rgw(*ids: str) -> BlastRadius:
    return BlastRadius(tuple(DaemonName("rgw", id) for id in ids))


def test_the_last_gateway_is_counted_from_the_service_map() -> None:
    """Whether or not `rgws` names it; a node of `rgws` on which no gateway runs is none that stays."""
    live = gateways("node1", "node2")
    for roles in (Roles(), Roles(gateways=("node1", "node2")), Roles(gateways=("node1", "node2", "node5"))):
        assert rules(judge(rgw("a"), live, roles=roles)) == []
        assert "rgw" in rules(judge(rgw("a", "b"), live, roles=roles))
        assert "rgw" in rules(judge(rgw("b"), live, roles=roles, held=[OpenFault(rgw("a"), seen=True)]))
        assert "rgw" in rules(judge(taken(nodes=("node2",)), live, roles=roles, held=[OpenFault(rgw("a"))]))
    assert "rgw" in rules(judge(rgw("a"), gateways("node1"), roles=Roles(gateways=("node1", "node5"))))
    two_of_a_node = gateways("node1", "node1")
    assert rules(judge(rgw("a"), two_of_a_node)) == []
    assert "rgw" in rules(judge(rgw("a", "b"), two_of_a_node))


def test_a_gateway_that_shares_its_name_is_not_the_last() -> None:
    """Of several pods of a deployment of Rook one ends; another fault may take the name as a whole."""
    one = BlastRadius((DaemonName("rgw", "a"),), shared=(DaemonName("rgw", "a"),))
    assessment = judge(one, gateways("node1"))
    assert rules(assessment) == []
    assert assessment.warnings[0].startswith("of several gateways, one would be down: rgw.a; ")
    assert rules(judge(rgw("b"), gateways("node1", "node2"), held=[OpenFault(one)])) == []
    assert "rgw" in rules(judge(rgw("a"), gateways("node1"), held=[OpenFault(one)]))


@pytest.mark.parametrize("lost", ["node1", "node2"])
def test_gateways_of_one_name_on_two_nodes(lost: str) -> None:
    """A node that is drained has daemons by their names: the gateway of this name on the other node stays."""
    live, roles = gateways("node1", "node2", ids="aa"), Roles(gateways=("node1", "node2"))
    drained = replace(rgw("a"), nodes=(lost,))
    found = judge(drained, live, roles=roles)
    assert rules(found) == []
    assert found.warnings == (f"1 of 2 nodes with RADOS gateways would be left; requests to {lost} would fail",)
    assert "rgw" in rules(judge(replace(rgw("a"), nodes=("node1", "node2")), live, roles=roles))
    assert "rgw" in rules(judge(drained, gateways(lost, lost, ids="aa"), roles=roles))
    assert "rgw" in rules(judge(rgw("a"), live, roles=roles)), "of both nodes"
    (other,) = {"node1", "node2"} - {lost}
    held = [OpenFault(drained, seen=True)]
    assert "rgw" in rules(judge(replace(rgw("a"), nodes=(other,)), live, roles=roles, held=held))
