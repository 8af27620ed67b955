"""Blast radius: rules and numbers, from the replies of a real cluster and by counting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from faults_judge import DATA, ONE, PACIFIC, TWO, judge, rules, taken, text

from cbt_plugins.cluster.ceph import Reply
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.safety_case import OpenFault, Roles, cluster_roles
from cbt_plugins.faults.safety_rules_data import RULES, questions
from cbt_plugins.models.pools import inactive_share

#: as a `ceph` of its own prints it, its line of errors before it
YES = Reply("\n" + json.dumps(PACIFIC["osd ok-to-stop 0"]), 0)
NO = Reply(
    "Error EBUSY: unsafe to stop osd(s) at this time (77 PGs are or would become offline)\n\n"
    + json.dumps(PACIFIC["osd ok-to-stop 0 1"]),
    16,
)


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


def test_each_map_is_made_once() -> None:
    """A judgement looks into them for each member of each PG: of 2000 OSDs and 10,000 PGs that took over a minute."""
    facts = Facts(PACIFIC)
    assert facts.osds is facts.osds and facts.tree is facts.tree
    assert facts.pgs is facts.pgs and facts.hosts is facts.hosts


def test_half_a_host_counts_half() -> None:
    """Two hosts of four lose one of two OSDs each: of the PGs that touch both hosts, a quarter loses two members."""
    assert inactive_share([0.5, 0.5, 0.0, 0.0], 3, 2) == pytest.approx(0.5 / 4)


def test_two_of_eight_hosts_at_ec_4_2() -> None:
    """The estimate is 15/28; the exact share is of the real PGs, and what became of them when the OSDs were stopped."""
    found = judge(TWO, ok_to_stop=NO)
    assert found.numbers["expected_inactive"]["ec42"] == pytest.approx(15 / 28)
    after: Dict[str, str] = json.loads((DATA / "pacific-blast-after.json").read_text())
    stopped = sum("active" not in state.split("+") for state in after.values())
    assert found.numbers["inactive_pgs"] == stopped == 77
    assert text(found, "domain") == (
        "domain: ec42 (EC 4+2, min_size 5): 2 of 8 hosts would be lost (node1, node2), only 1 may be lost: "
        "53.6 % of the PGs are expected to be inactive"
    )
    assert "77 of 145 PGs (53.1 %) would be inactive: " in text(found, "inactive")
    assert "77 of 128 PGs of pool ec42 (60.2 %; EC 4+2, min_size 5)" in text(found, "inactive")
    assert rules(found) == ["inactive", "domain", "ok-to-stop"]
    assert "77 PGs" in text(found, "ok-to-stop")


def test_one_host_is_within_all_rules() -> None:
    found = judge(ONE, ok_to_stop=YES)
    assert found.findings == ()
    assert found.numbers["inactive_share"] == 0.0
    assert found.numbers["monitors_left"] == 1


def test_an_override_is_for_its_rule_only() -> None:
    found = judge(TWO, ok_to_stop=NO)
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
    assert "clean: 2 of 145 PGs are not active+clean: 1 active+recovering+degraded" in text(found, "clean")
    # what an open fault of the same run explains is no surprise, recovery under way is
    assert "1 of 145" in text(judge(ONE, unsteady, held=[OpenFault(taken(5))]), "clean")


def test_pgs_that_the_manager_does_not_know_yet_are_not_judged() -> None:
    """After a failover of the manager it knows some or none of them for a while."""

    def no_report(answers: Dict[str, Any]) -> None:
        answers["pg dump pgs_brief"] = {"pg_ready": False, "pg_stats": []}

    def a_part(answers: Dict[str, Any]) -> None:
        del answers["pg dump pgs_brief"]["pg_stats"][100:]

    with pytest.raises(FaultError, match=r"ceph pg dump .* 0 of 145 PGs.*try again"):
        judge(TWO, no_report)
    with pytest.raises(FaultError, match=r"100 of 145 PGs"):
        judge(TWO, a_part)


def test_out_leaves_all_pgs_active() -> None:
    assert rules(judge(taken(0, 1, out=True))) == []


def test_out_needs_domains_for_the_data() -> None:
    """What cannot leave the OSDs that are out is no better off than before, and depends on them."""
    most = judge(taken(*range(7), out=True))
    assert text(most, "domain").startswith("domain: 1 of 8 hosts would be left for the data of ")
    assert ", 3 copies, min_size 2: the data of OSDs that are out could not move" in text(most, "domain")
    # an erasure code of six needs five hosts; three copies on two hosts are warned of
    six = judge(taken(*range(6), out=True))
    assert {pool for its in six.findings for pool in its.numbers["pools"]} == {"ec42"}
    assert any(", 3 copies: recovery cannot end, since a PG needs 3 hosts" in warning for warning in six.warnings)
    assert "domain" not in rules(judge(taken(0, 1, out=True)))


def test_the_second_out_of_two_is_judged_with_the_first() -> None:
    first, second = taken(0, 1, 2, out=True), taken(3, 4, 5, 6, out=True)
    assert "3 copies" not in str(judge(second).findings)
    both = judge(second, held=[OpenFault(first)])
    assert "1 of 5 hosts would be left for the data of " in text(both, "domain")
    # what was marked out holds no data that a later fault could take
    stopped = judge(taken(3, 4), held=[OpenFault(first)])
    assert "(3 copies, min_size 2): 2 of 5 hosts would be lost" in str(stopped.findings)


def test_destroying_more_than_the_redundancy() -> None:
    found = judge(taken(0, 1, 2, destroyed=True))
    assert "the data of these PGs would be lost" in text(found, "data")
    assert "data" not in rules(judge(taken(0, 1, destroyed=True)))


def test_destroying_what_ceph_does_not_call_safe() -> None:
    both, answer = taken(0, 1, destroyed=True), Reply('{"safe_to_destroy": [0], "active": [1]}', 16)
    finding = "safe-to-destroy: ceph osd safe-to-destroy says no: osd.1"
    assert text(judge(both, safe_to_destroy=answer), "safe-to-destroy") == finding
    for said in (None, Reply("", 124)):  # no answer is no permission
        assert text(judge(both, safe_to_destroy=said), "safe-to-destroy").endswith("osd.0, osd.1")
    assert "safe-to-destroy" not in rules(judge(both, safe_to_destroy=Reply('{"safe_to_destroy": [0, 1]}', 0)))
    assert "safe-to-destroy" not in rules(judge(TWO))


def test_a_flag_that_hides_the_fault() -> None:
    found = judge(ONE, lambda a: a["osd dump"]["flags_set"].append("nodown"))
    assert text(found, "flags") == "flags: the OSD map has nodown set"
    assert rules(judge(ONE, lambda a: a["osd dump"]["flags_set"].append("noout"))) == []


def monitors(answers: Dict[str, Any]) -> None:
    answers["quorum_status"]["monmap"]["mons"] = [{"name": n} for n in "abc"]
    answers["quorum_status"]["quorum_names"] = list("abc")
    answers["mon metadata"] = [{"name": n, "hostname": h} for n, h in zip("abc", ("node1", "node2", "node9"))]


def test_quorum() -> None:
    one, two = taken(nodes=("node1",)), taken(nodes=("node1", "node2"))
    assert rules(judge(one, monitors)) == []
    assert text(judge(two, monitors), "quorum").startswith("quorum: 1 of 3 monitors would be left, 2 are needed")
    assert rules(judge(taken(0), monitors)) == []  # the OSDs of a monitor's node alone


def test_a_monitor_of_a_node_that_an_open_fault_has_counts_as_gone() -> None:
    """In a plan; and in a run, where its lease has not run out yet, or where the node has come back by itself."""

    def down(answers: Dict[str, Any]) -> None:
        monitors(answers)
        answers["osd dump"]["osds"][0]["up"] = 0

    def noticed(answers: Dict[str, Any]) -> None:
        down(answers)
        answers["quorum_status"]["quorum_names"] = ["b", "c"]

    first, second = taken(0, nodes=("node1",)), taken(1, nodes=("node2",))
    for change, seen in [(monitors, False), (down, True), (noticed, True)]:
        found = judge(second, change, held=[OpenFault(first, seen)])
        assert text(found, "quorum").startswith("quorum: 1 of 3 monitors would be left")
        assert found.numbers["monitors_left"] == 1
        # what the first has done already is no fault of one that takes no monitor
        assert "quorum" not in rules(judge(taken(3, nodes=("node4",)), change, held=[OpenFault(first, seen)]))
    assert judge(second, monitors, held=[OpenFault(first, seen=True)]).numbers["monitors_left"] == 2
    assert judge(second, monitors, held=[OpenFault(taken(0))]).numbers["monitors_left"] == 2


def managers(answers: Dict[str, Any]) -> None:
    answers["mgr metadata"] = [{"name": n, "hostname": h} for n, h in zip("xyz", ("node1", "node2.example", "node3"))]
    answers["mgr stat"] = {"active_name": "y", "available": True, "num_standby": 2}


def test_a_manager_is_left() -> None:
    """Without one no state of a PG changes: a run would wait for active+clean, and see that of before the fault."""
    first, second = taken(0, nodes=("node1",)), taken(nodes=("node2", "node3"))
    assert rules(judge(first, managers)) == rules(judge(second, managers)) == []
    both = judge(second, managers, held=[OpenFault(first)])
    assert text(both, "mgr") == (
        "mgr: 0 of 3 managers would be left, and the states of PGs would be unknown; the fault takes away mgr.y, mgr.z"
    )
    assert "mgr" not in rules(judge(taken(nodes=("node4",)), managers, held=[OpenFault(first), OpenFault(second)]))
    assert "mgr" not in rules(judge(taken(0), managers))  # the OSDs of a manager's node alone
    assert "mgr" in rules(judge(BlastRadius((DaemonName("mgr", "node0"),))))
    assert "mgr" in rules(judge(taken(nodes=("node0",)), lambda a: a["mon metadata"].clear()))


def test_the_active_manager_is_hit() -> None:
    """Until another one has taken over, the states of PGs are those of before the fault."""
    assert judge(taken(0, nodes=("node1",)), managers).warnings == ()
    (warning,) = judge(taken(1, nodes=("node2",)), managers).warnings
    assert warning == (
        "mgr.y is the active manager: until a standby takes over, for up to a minute, Ceph shows the PG states from "
        "before the fault"
    )


def test_a_second_fault_is_judged_with_what_the_first_has_taken() -> None:
    first, both = judge(ONE), judge(TWO)
    assert "inactive" not in rules(first)
    second = judge(taken(1), held=[OpenFault(ONE)])
    assert second.numbers["inactive_pgs"] == both.numbers["inactive_pgs"] == 77
    assert "53.6 %" in text(second, "domain")
    # what is out serves, and what is up again after the cluster had seen it gone serves again
    assert "inactive" not in rules(judge(taken(1), held=[OpenFault(taken(0, out=True))]))
    assert "inactive" not in rules(judge(taken(1), held=[OpenFault(ONE, seen=True)]))


def test_what_ceph_is_asked_about() -> None:
    """Also about what it does not know yet to be gone."""
    held = [OpenFault(taken(5)), OpenFault(taken(6, out=True)), OpenFault(taken(7), seen=True)]
    assert questions(TWO, held) == {"ok_to_stop": "osd ok-to-stop 0 1 5"}
    assert questions(taken(0, out=True), [OpenFault(ONE)]) == {}
    asked = questions(taken(1, 2, destroyed=True), ())
    assert asked == {"ok_to_stop": "osd ok-to-stop 1 2", "safe_to_destroy": "osd safe-to-destroy 1 2"}


def test_ok_to_stop_in_the_words_of_older_releases() -> None:
    no = "Error EBUSY: 77 PGs are already too degraded, would become too degraded or might become unavailable"
    assert text(judge(ONE, ok_to_stop=Reply(no, 16)), "ok-to-stop") == f"ok-to-stop: ceph osd ok-to-stop says no: {no}"
    yes = "OSD(s) 0 are ok to stop without reducing availability or risking data, provided there are no other faults"
    assert judge(ONE, ok_to_stop=Reply(yes, 0)).findings == ()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Reply("", None), "the command did not end"),
        (Reply('{"ok_to_stop": tr', None), '{"ok_to_stop": tr'),
        (Reply("", 124), "exit status 124"),
        (Reply("Error EAGAIN: OSDs not reported in yet", 11), "Error EAGAIN: OSDs not reported in yet"),
        (Reply("[errno 110] RADOS timed out (error connecting to the cluster)", 1), "[errno 110] RADOS timed out"),
    ],
)
def test_no_answer_of_ok_to_stop_is_no_yes(said: Reply, why: str) -> None:
    assert text(judge(ONE, ok_to_stop=said), "ok-to-stop").startswith(
        f"ok-to-stop: ceph osd ok-to-stop: no usable reply: {why}"
    )


def test_who_leads_the_run_is_not_hit() -> None:
    roles = Roles(head="node9", own="driver")
    assert "node9 is the head" in text(judge(taken(nodes=("node9",)), roles=roles), "head")
    assert "the run could not undo the fault" in text(judge(taken(nodes=("node9",)), roles=roles), "head")
    assert "leading machine of this run" in text(judge(taken(nodes=("node1", "driver.lab")), roles=roles), "head")
    assert rules(judge(taken(nodes=("node1",)), roles=roles)) == []
    assert rules(judge(ONE, roles=Roles(head="node1", own="node1"))) == []  # its OSDs alone


def test_this_machine_is_known_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node3.example")
    found = cluster_roles({"head": "root@node0", "clients": "root@c1,c2", "rgws": {"rgw1": None}})
    assert found == Roles("node0", "node3.example", ("c1", "c2"), ("rgw1",))
    assert rules(judge(taken(nodes=("node3",)), roles=found)) == ["head"]


def test_a_load_generator_is_not_hit() -> None:
    roles = Roles(clients=("node1.example", "node2", "client1"))
    found = judge(taken(nodes=("node1",)), roles=roles)
    assert text(found, "client") == "client: 1 of 3 clients would be lost, and the load of these clients: node1.example"
    assert found.refused(["client"]) == ()
    assert rules(judge(ONE, roles=roles)) == []


def test_the_last_metadata_server_is_left() -> None:
    def servers(answers: Dict[str, Any]) -> None:
        answers["mds metadata"] = [{"name": n, "hostname": f"node{i}"} for i, n in enumerate("ab", 1)]

    one = BlastRadius((DaemonName("mds", "a"),))
    assert rules(judge(one, servers)) == []
    both = judge(BlastRadius((*one.daemons, DaemonName("mds", "b"))), servers)
    assert text(both, "mds") == "mds: 0 of 2 metadata servers would be left; the fault takes away mds.a, mds.b"
    # of kinds whose daemons are OSDs
    assert "mds" in rules(judge(taken(0, 1, nodes=("node1", "node2")), servers))
    first = OpenFault(taken(0, nodes=("node1",)))
    assert "mds" in rules(judge(taken(1, nodes=("node2",)), servers, held=[first]))
    assert "mds" not in rules(judge(taken(1, nodes=("node2",)), servers))


@pytest.mark.parametrize(
    ("mon_host", "way"),
    [
        ("10.0.0.1", False),
        ("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", False),
        ("a", False),
        ("10.0.0.1:6789, 10.0.0.12", False),  # of no monitor
        ("10.0.0.1 10.0.0.2", True),
        ("[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.3:3300,v1:10.0.0.3:6789]", True),
        ("", True),  # not known
        ("mons.example", True),
        ("a.lab.example.com:6789", False),
        ("node1.lab.example.com", False),  # its host
        ("node1.lab.example.com;node2.lab.example.com", True),
        ("[2001:db8::1]:6789", False),
        ("[v2:[2001:db8::1]:3300/0,v1:[2001:db8::1]:6789/0]", False),
        ("2001:db8::1, 2001:db8::2", True),
    ],
)
def test_the_way_of_the_head_to_the_cluster_stays(mon_host: str, way: bool) -> None:
    def addressed(answers: Dict[str, Any]) -> None:
        monitors(answers)
        answers["mon metadata"] = [{"name": name, "hostname": f"node{i}"} for i, name in enumerate("abc", 1)]
        for number, mon in enumerate(answers["quorum_status"]["monmap"]["mons"], 1):
            addresses = (f"10.0.0.{number}:6789", f"[2001:db8::{number}]:6789")
            mon["name"], mon["public_addrs"] = "abc"[number - 1], {"addrvec": [{"addr": text} for text in addresses]}

    roles = Roles(head="node9", mon_host=mon_host)
    one = BlastRadius((DaemonName("mon", "a"),))
    assert ("head" in rules(judge(one, addressed, roles=roles))) is not way
    assert "head" not in rules(judge(BlastRadius((DaemonName("mon", "b"),)), addressed, roles=roles))
    unknown = "the ceph.conf of node9 lists mons.example, which no monitor has as name, host or address"
    warnings = [warning for warning in judge(one, addressed, roles=roles).warnings if warning.startswith(unknown)]
    assert len(warnings) == int(mon_host == "mons.example")


def test_what_is_paused_serves_nobody_although_it_is_up() -> None:
    """Its step says so: the rules count it as gone, and Ceph is asked about it together with the next one."""
    one = OpenFault(taken(0), seen=False)
    assert questions(taken(1), [one]) == {"ok_to_stop": "osd ok-to-stop 0 1"}
    assert judge(taken(1), held=[one]).numbers == judge(TWO).numbers


def test_a_monitor_host_has_another_form_of_its_name() -> None:
    def long(answers: Dict[str, Any]) -> None:
        answers["mon metadata"] = [{"name": "node0", "hostname": "node0.example"}]

    assert "quorum" in rules(judge(taken(nodes=("node0",)), long))
    assert "head" in rules(judge(taken(nodes=("node0",)), long, roles=Roles(head="node0.example")))


@pytest.mark.parametrize("flag", ["noout", "norecover", "nobackfill", "norebalance"])
def test_a_flag_of_the_operator_is_said_and_one_of_the_run_is_not(flag: str) -> None:
    found = judge(ONE, lambda a: a["osd dump"]["flags_set"].append(flag))
    assert found.findings == ()
    (warning,) = found.warnings
    assert warning.startswith(f"{flag} is set, but not by this run: ")
    assert judge(ONE, lambda a: a["osd dump"]["flags_set"].append(flag), flags=[flag]).warnings == ()
    out = judge(taken(0, out=True), lambda a: a["osd dump"]["flags_set"].append(flag))
    assert bool(out.warnings) == (flag != "noout")


def limit(*rows: str) -> Callable[[Dict[str, Any]], None]:
    def change(answers: Dict[str, Any]) -> None:
        option = "mon_osd_down_out_subtree_limit"
        parts = [row.split("=") for row in rows]
        answers["config dump"] = [{"section": s, "name": option, "mask": "", "value": v} for s, v in parts]

    return change


def test_a_whole_host_that_the_monitors_do_not_mark_out() -> None:
    assert judge(ONE).warnings == ()  # racks are the default, and there are none
    (warning,) = judge(ONE, limit("global=rack", "mon=host")).warnings
    assert warning == (
        "all OSDs of host node1 would be down: because of mon_osd_down_out_subtree_limit (host), 1 OSDs of the fault "
        "are not marked out, so recovery does not begin by itself"
    )
    assert len(judge(TWO, limit("global=host")).warnings) == 2
    assert judge(ONE, limit("global=host", "mon=rack")).warnings == judge(ONE, limit("mon=")).warnings == ()
    assert judge(taken(0, out=True), limit("mon=host")).warnings == ()

    def crowd(answers: Dict[str, Any]) -> None:
        limit("mon=host")(answers)
        hosts = {n["name"]: n for n in answers["osd tree"]["nodes"]}
        hosts["node1"]["children"], hosts["node2"]["children"] = [0, 1], []

    assert judge(ONE, crowd).warnings == ()
    assert "host node1" in judge(taken(1), crowd, held=[OpenFault(ONE)]).warnings[0]


def test_a_rack_goes_with_its_last_host() -> None:
    def rack(answers: Dict[str, Any]) -> None:
        nodes = answers["osd tree"]["nodes"]
        names = {n["name"]: n["id"] for n in nodes}
        nodes.append(
            {"id": -90, "name": "r1", "type": "rack", "type_id": 3, "children": [names["node1"], names["node2"]]}
        )
        nodes[0]["children"] = [-90, *(c for c in nodes[0]["children"] if c not in nodes[-1]["children"])]

    assert judge(ONE, rack).warnings == ()
    assert "rack r1 would be down" in judge(taken(1), rack, held=[OpenFault(ONE)]).warnings[0]


def test_osds_that_would_never_be_marked_out() -> None:
    assert rules(judge(TWO, lambda a: a.update({"config get mon mon_osd_min_in_ratio": 0.75}))).count("min-in") == 0
    found = judge(taken(0, 1, 2, 3))
    assert text(found, "min-in").startswith("min-in: 1 of 4 OSDs of the fault would never be marked out")
    assert "when only 5 of all 8 OSDs are in (mon_osd_min_in_ratio 0.75)" in text(found, "min-in")


def test_what_went_before_is_marked_out_first() -> None:
    """Of eight OSDs three may go; two are down and still in, or will be."""
    both = taken(2, 3)
    assert "min-in" not in rules(judge(both))
    beside_two = text(judge(both, held=[OpenFault(TWO)]), "min-in")
    assert beside_two.startswith("min-in: 1 of 2 OSDs of the fault would never be marked out")
    assert "min-in" in rules(judge(both, held=[OpenFault(taken(0, 1, out=True))]))

    def down(answers: Dict[str, Any]) -> None:
        for entry in answers["osd dump"]["osds"][:2]:
            entry["up"] = 0

    assert "min-in" in rules(judge(both, down, held=[OpenFault(TWO, seen=True)]))
    assert "min-in" not in rules(judge(both, held=[OpenFault(TWO, seen=True)]))  # they are back


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
