"""Blast radius: rules and figures, from a real cluster's answers and by counting."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from cbt_plugins.faults.blast import RULES, Harm, Radius, radius
from cbt_plugins.faults.cluster_facts import Facts
from cbt_plugins.models.availability import inactive_share

DATA = Path(__file__).parents[1] / "data" / "ceph"
PACIFIC: Dict[str, Any] = json.loads((DATA / "pacific-blast.json").read_text())


def judge(harm: Harm, change: Callable[[Dict[str, Any]], Any] = lambda answers: None, **more: Any) -> Radius:
    answers = copy.deepcopy(PACIFIC)
    change(answers)
    return radius(Facts(answers), harm, **more)


def rules(found: Radius) -> List[str]:
    return list(dict.fromkeys(finding.rule for finding in found.findings))


def text(found: Radius, rule: str) -> str:
    return next(str(finding) for finding in found.findings if finding.rule == rule)


ONE, TWO = Harm(osds=(0,)), Harm(osds=(0, 1))


@pytest.mark.parametrize(
    ("hosts", "failed", "size", "min_size", "share"),
    [
        (8, 2, 6, 5, 15 / 28),  # EC 4+2, two of eight hosts: 53.6 %
        (8, 1, 6, 5, 0.0),
        (8, 2, 6, 4, 0.0),  # min_size k: still readable
        (4, 2, 3, 2, 0.5),
        (4, 2, 4, 3, 1.0),
        (10, 2, 3, 2, 3 * 2 / (10 * 9)),
        (8, 8, 6, 5, 1.0),
        (3, 1, 3, 2, 0.0),
    ],
)
def test_shares_by_counting(hosts: int, failed: int, size: int, min_size: int, share: float) -> None:
    domains = [1.0] * failed + [0.0] * (hosts - failed)
    assert inactive_share(domains, size, min_size) == pytest.approx(share)


def test_half_a_host_counts_half() -> None:
    """Two hosts of four lose one of two OSDs each: of the PGs that touch both hosts, a quarter loses two members."""
    assert inactive_share([0.5, 0.5, 0.0, 0.0], 3, 2) == pytest.approx(0.5 / 4)


def test_two_of_eight_hosts_at_ec_4_2() -> None:
    """The estimate is 15/28; the exact share is of the real PGs, and what became of them when the OSDs were stopped."""
    found = judge(TWO, ok_to_stop=PACIFIC["osd ok-to-stop 0 1"])
    assert found.figures["expected_inactive"]["ec42"] == pytest.approx(15 / 28)
    after: Dict[str, str] = json.loads((DATA / "pacific-blast-after.json").read_text())
    stopped = sum("active" not in state.split("+") for state in after.values())
    assert found.figures["inactive_pgs"] == stopped == 77
    assert text(found, "domain") == (
        "domain: ec42 (EC 4+2, min_size 5) can do without 1 of 8 hosts, 2 would be gone (node1, node2): "
        "53.6 % of the PGs are expected to be inactive"
    )
    assert "77 of 145 PGs (53.1 %) would serve no client: " in text(found, "inactive")
    assert "77 of 128 of pool ec42 (60.2 %; EC 4+2, min_size 5)" in text(found, "inactive")
    assert rules(found) == ["inactive", "domain", "ok-to-stop"]
    assert "77 PGs" in text(found, "ok-to-stop")


def test_one_host_is_within_all_rules() -> None:
    found = judge(ONE, ok_to_stop=PACIFIC["osd ok-to-stop 0"])
    assert found.findings == ()
    assert found.figures["inactive_share"] == 0.0
    assert found.figures["monitors_left"] == 1


def test_an_override_is_for_its_rule_only() -> None:
    found = judge(TWO, ok_to_stop=PACIFIC["osd ok-to-stop 0 1"])
    assert {finding.rule for finding in found.refused(["inactive", "domain"])} == {"ok-to-stop"}
    assert found.refused(list(RULES)) == ()


def test_an_osd_that_is_down_already_counts() -> None:
    def down(answers: Dict[str, Any]) -> None:
        answers["osd dump"]["osds"][1]["up"] = 0

    assert {"inactive", "domain"} <= set(rules(judge(ONE, down)))


def test_steady_state() -> None:
    def unsteady(answers: Dict[str, Any]) -> None:
        pgs = answers["pg dump pgs_brief"]["pg_stats"]
        pgs[0]["state"], pgs[1]["state"] = "active+recovering+degraded", "active+undersized+degraded"
        pgs[2]["state"] = "active+clean+scrubbing+deep"

    found = judge(ONE, unsteady)
    assert "steady: 2 of 145 PGs are not active+clean: 1 active+recovering+degraded" in text(found, "steady")
    # what an open fault of the same run explains is no surprise, recovery under way is
    assert "1 of 145" in text(judge(ONE, unsteady, held=[5]), "steady")


def test_out_leaves_all_pgs_active() -> None:
    assert rules(judge(Harm(osds=(0, 1), out=True))) == []


def test_destroying_more_than_the_redundancy() -> None:
    found = judge(Harm(osds=(0, 1, 2), destroyed=True))
    assert "their data would be lost" in text(found, "data")
    assert "data" not in rules(judge(Harm(osds=(0, 1), destroyed=True)))


def test_destroying_what_ceph_does_not_call_safe() -> None:
    both, answer = Harm(osds=(0, 1), destroyed=True), {"safe_to_destroy": [0], "active": [1]}
    assert text(judge(both, safe_to_destroy=answer), "safe-to-destroy").endswith("does not say so of osd.1")
    assert text(judge(both), "safe-to-destroy").endswith("osd.0, osd.1")  # no answer is no permission
    assert "safe-to-destroy" not in rules(judge(both, safe_to_destroy={"safe_to_destroy": [0, 1]}))
    assert "safe-to-destroy" not in rules(judge(TWO))


def test_a_flag_that_hides_the_fault() -> None:
    found = judge(ONE, lambda a: a["osd dump"]["flags_set"].append("nodown"))
    assert text(found, "flags") == "flags: the OSD map has nodown set"
    assert rules(judge(ONE, lambda a: a["osd dump"]["flags_set"].append("noout"))) == []


def test_quorum_and_head() -> None:
    def three(answers: Dict[str, Any]) -> None:
        answers["quorum_status"]["monmap"]["mons"] = [{"name": n} for n in "abc"]
        answers["quorum_status"]["quorum_names"] = list("abc")
        answers["mon metadata"] = [{"name": n, "hostname": h} for n, h in zip("abc", ("node1", "node2", "node9"))]

    one, two = Harm(nodes=("node1",)), Harm(nodes=("node1", "node2"))
    assert rules(judge(one, three)) == []
    assert text(judge(two, three), "quorum").startswith("quorum: 1 of 3 monitors would be left, 2 are needed")
    assert rules(judge(Harm(osds=(0,)), three)) == []  # the OSDs of a monitor's node alone
    assert "nobody would be there to undo it" in text(judge(Harm(nodes=("node9",)), three, head="node9"), "head")


def test_a_monitor_host_has_another_form_of_its_name() -> None:
    def long(answers: Dict[str, Any]) -> None:
        answers["mon metadata"] = [{"name": "node0", "hostname": "node0.example"}]

    assert "quorum" in rules(judge(Harm(nodes=("node0",)), long))
    assert "head" in rules(judge(Harm(nodes=("node0",)), long, head="node0.example"))


def test_osds_that_would_never_be_marked_out() -> None:
    assert rules(judge(TWO, lambda a: a.update({"config get mon mon_osd_min_in_ratio": 0.75}))).count("min-in") == 0
    found = judge(Harm(osds=(0, 1, 2, 3)))
    assert text(found, "min-in").startswith("min-in: 1 of 4 OSDs would never be marked out")
    assert "5 of 8 OSDs in is below mon_osd_min_in_ratio 0.75" in text(found, "min-in")


def test_room_for_the_data() -> None:
    def fuller(answers: Dict[str, Any]) -> None:
        for row in answers["osd df"]["nodes"]:
            row["kb_used"] = row["kb"] * 0.84

    found = judge(ONE, fuller)
    assert text(found, "capacity").startswith("capacity: 96.0 % of what is left would be used, full is 95 %")
    # with fewer hosts than members nothing is copied anywhere: nothing grows
    assert "capacity" not in rules(judge(Harm(osds=(0, 1, 2, 3, 4, 5)), fuller))


def test_a_rule_that_chooses_twice_is_judged_by_its_pgs_alone() -> None:
    def racks(answers: Dict[str, Any]) -> None:
        for rule in answers["osd crush rule dump"]:
            steps = rule["steps"]
            steps.insert(1, {"op": "choose_indep", "num": 2, "type": "rack"})

    found = judge(TWO, racks)
    assert "domain" not in rules(found) and "inactive" in rules(found)


def test_every_rule_is_documented() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "FAULTS.md").read_text()
    assert all(f"`{name}`" in documented for name in RULES)
