"""`replace` of an OSD of cephadm: what is refused, and the undo, with stand-ins of the orchestrator and of LVM."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, cast

import pytest
from faults_judge import PACIFIC

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.faults import replacement_agent
from cbt_plugins.faults.cluster_facts import Facts, osd_names
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import FaultError, Step

FSID, UUID = PACIFIC["osd dump"]["fsid"], PACIFIC["osd dump"]["osds"][3]["uuid"]
FOLDER, UNIT = f"/var/lib/ceph/{FSID}/osd.3", f"ceph-{FSID}@osd.3.service"
TAGS = f"ceph.osd_id=3,ceph.osd_fsid={UUID},ceph.cluster_fsid={FSID}"
BLOCK = {"vg_name": "vg", "lv_name": "osd-block-3", "lv_tags": f"{TAGS},ceph.type=block,ceph.encrypted=0"}
DB = {"vg_name": "fast", "lv_name": "db-3", "lv_tags": f"{TAGS},ceph.type=db"}
ROW = {"daemon_type": "osd", "daemon_id": "3", "hostname": "node4", "service_name": "osd.disks"}


# ---- before anything is touched ----


class Answers:
    """Stands where `Remote` does."""

    def __init__(self) -> None:
        self.rows: List[Dict[str, Any]] = [{**ROW, "daemon_id": "13", "hostname": "node9"}, ROW]
        self.removals = "No OSD remove/replace operations reported"
        self.volumes: List[Dict[str, str]] = [{"vg_name": "system", "lv_name": "root", "lv_tags": ""}, BLOCK, DB]
        self.listing: Optional[str] = None
        self.host: Dict[str, Any] = {"hostname": "node4", "labels": ["_admin"], "status": ""}

    def run(self, nodes: Sequence[str], command: str, **_: Any) -> Dict[str, Result]:
        if "osd rm status" in command:
            text = self.removals
        elif "orch host ls" in command:
            text = json.dumps([{"hostname": "node9", "labels": ["_no_schedule"], "status": "Offline"}, self.host])
        elif "orch ps" in command:
            text = json.dumps(self.rows) if self.rows else "No daemons reported"
        elif "lvs" in command:
            assert FOLDER in command and nodes == ["node4"]
            text = self.listing or json.dumps({"report": [{"lv": self.volumes}]})
        else:
            names = ("osd.3", "osd.2") if "osd.2" in command.splitlines()[0] else ("osd.3",)
            text = "".join(f"unit {name} ceph-{FSID}@{name}.service active\n" for name in names)
        return {nodes[0]: Result(text, "", 0)}


def step(answers: Answers, *osds: int, changed: Optional[Dict[str, Any]] = None) -> Step:
    facts = Facts({**deepcopy(PACIFIC), **(changed or {})})
    ceph = SimpleNamespace(command="ceph", head="node0", remote=answers, kubernetes=None, in_pods=())
    scene = Scene(cast(Ceph, ceph), facts, ("node0", *facts.hosts), "r1")
    daemons = osd_names(osds or [3])
    (planned,) = make("replace", {}).steps(scene, Targets((), daemons, tuple(map(str, daemons))))
    return planned


def plan_of(command_text: str) -> Dict[str, Any]:
    """The last word of a command that runs the agent."""
    words = subprocess.run(["sh", "-c", f"printf '%s\\0' {command_text}"], capture_output=True, text=True, check=True)
    plan: Dict[str, Any] = json.loads(words.stdout.split("\0")[-2])
    return plan


def test_the_osd_is_destroyed_at_once_and_made_by_the_orchestrator() -> None:
    planned = step(Answers())
    stop, destroy = planned.inject
    assert (stop.text, stop.node) == (f"systemctl stop {UNIT}", "node4")
    assert destroy.text == "ceph osd destroy 3 --yes-i-really-mean-it"
    remove, clear, create, start, mark_in = planned.undo
    assert {command.node for command in (remove, create, mark_in)} == {"node0"}
    # also where nothing was destroyed, whatever the map says, and where the daemon that was created does not run
    assert (start.node, start.root) == ("node4", True) and f"systemctl start {UNIT}" in start.text
    assert start.text.startswith(f"[ ! -e {FOLDER} ] || ")
    assert (clear.node, clear.root) == ("node4", True)
    assert f"folder={FOLDER}; osd_fsid={UUID}; volumes='vg/osd-block-3 fast/db-3'" in clear.text
    assert mark_in.text == "ceph osd in 3"
    plan = plan_of(create.text)
    assert plan == plan_of(remove.text) and round(plan.pop("weight"), 4) == 0.0098
    assert plan == {
        "osd": 3,
        "host": "node4",
        "bucket": "node4",
        "devices": [["data_devices", "/dev/vg/osd-block-3"], ["db_devices", "/dev/fast/db-3"]],
        "service": "disks",
        "location": ["host=node4", "root=default"],
        "device_class": "hdd",
    }


def test_an_osd_of_no_service() -> None:
    answers = Answers()
    answers.rows = [{**ROW, "service_name": "osd"}]
    assert plan_of(step(answers).undo[0].text)["service"] == ""


def dump_with(osd: int, **entries: Any) -> Dict[str, Any]:
    dump = deepcopy(PACIFIC["osd dump"])
    dump["osds"][osd].update(entries)
    return {"osd dump": dump}


def tree_with(*children: int, name: str = "node4") -> Dict[str, Any]:
    tree = deepcopy(PACIFIC["osd tree"])
    host = next(node for node in tree["nodes"] if node["name"] == "node4")
    host.update(name=name, children=list(children))
    return {"osd tree": tree}


REFUSALS: Dict[str, Any] = {
    "is being removed by the orchestrator": {"removals": json.dumps([{"osd_id": 3}])},
    "the orchestrator does not know osd.3": {"rows": []},
    "the name 'a,b' cannot be given to": {"rows": [{**ROW, "service_name": "osd.a,b"}]},
    "osd.3 cannot be replaced: its host node4 has the label _no_schedule, and the orchestrator creates no OSDs": {
        "host": {"hostname": "node4", "labels": ["osd", "_no_schedule"], "status": ""}
    },
    "its host node4 has the status offline, and": {"host": {"hostname": "node4", "labels": [], "status": "Offline"}},
    "node4: osd.3 has no folder /var/lib/ceph/": {"listing": "none\n"},
    "or lvs fails on node4": {"listing": json.dumps({"report": [{"lv": [BLOCK]}]}) + "\nnone\n"},
    "node4: osd.3 has no logical volume with its data; the orchestrator creates only": {"volumes": [DB]},
    "uses /dev/sdd1, which is not on LVM": {
        "volumes": [{**BLOCK, "lv_tags": f"{BLOCK['lv_tags']},ceph.db_device=/dev/sdd1"}]
    },
    "node4: osd.3 is encrypted": {"volumes": [{**BLOCK, "lv_tags": BLOCK["lv_tags"].replace("ed=0", "ed=1")}]},
}


@pytest.mark.parametrize("text", REFUSALS)
def test_an_osd_that_would_not_be_made_again_is_refused(text: str) -> None:
    answers = Answers()
    vars(answers).update(REFUSALS[text])
    with pytest.raises(FaultError, match=text):
        step(answers)


def test_the_volumes_of_an_earlier_osd_with_the_number_do_not_count() -> None:
    answers = Answers()
    answers.volumes = [{**BLOCK, "lv_tags": BLOCK["lv_tags"].replace(UUID, "an-earlier-one")}]
    with pytest.raises(FaultError, match="has no logical volume"):
        step(answers)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (tree_with(3, name="ssds"), "osd.3 is in the CRUSH bucket 'ssds', but the orchestrator looks .* in 'node4'"),
        ({**tree_with(3, 2), **dump_with(2, state=["destroyed", "exists"])}, "node4 has destroyed .* use: osd.2"),
    ],
)
def test_an_osd_whose_number_another_one_would_get_is_refused(changed: Dict[str, Any], text: str) -> None:
    with pytest.raises(FaultError, match=text):
        step(Answers(), changed=changed)


def test_two_osds_of_a_host_are_refused() -> None:
    metadata = [{**row, "hostname": "node4"} if row["id"] == 2 else row for row in PACIFIC["osd metadata"]]
    changed = {**tree_with(2, 3), "osd metadata": metadata}
    with pytest.raises(FaultError, match=r"node4: osd\.2, osd\.3: .* replace one OSD of a host at a time"):
        step(Answers(), 2, 3, changed=changed)


# ---- the undo on the head ----


class Orchestrator:
    """The map and the orchestrator, as far as the agent asks them. `makes`: what an order for an OSD leads to."""

    def __init__(self) -> None:
        self.state: Optional[List[str]] = ["destroyed", "exists"]
        self.daemon, self.destroyed, self.orders = True, [3], list[str]()
        self.makes: Callable[[str], None] = lambda argument: self.up()
        self.makes_first = False  # the OSD, by its service
        self.shows = 0  # so many times, although it is removed
        self.looks, self.refreshes, self.refreshed = 0, 0, True
        self.device_class, self.uuid, self.activates = "ssd", "", True
        self.fails = ""  # the beginning of the order that fails once

    def up(self) -> None:
        self.state, self.daemon = ["exists", "new", "up"], True

    def purge(self) -> None:
        """Do what ceph-volume does with an OSD that it could not create."""
        self.state, self.destroyed, self.device_class = None, [], ""

    def __call__(self, ceph: str, *words: str) -> str:
        line = " ".join(words)
        if line.startswith("osd dump"):
            entry = {"osd": 3, "state": self.state, "uuid": self.uuid}
            return json.dumps({"osds": [{"osd": 0, "state": ["exists", "up"]}] + ([entry] if self.state else [])})
        if line.startswith("orch ps"):
            assert line.startswith("orch ps node4 "), "every host of the cluster would list its daemons"
            self.shows -= 1 if self.shows and not self.daemon else 0
            return json.dumps([{"daemon_id": "3"}]) if self.daemon or self.shows else "No daemons reported"
        if line.startswith("osd tree destroyed"):
            if self.makes_first:
                self.up()
                self.destroyed = []
            osds = [{"type": "osd", "id": osd, "device_class": self.device_class} for osd in self.destroyed]
            host = {"type": "host", "id": -2, "name": "node4", "children": self.destroyed}
            return json.dumps({"nodes": [host, *osds]})
        if line.startswith("orch device ls"):
            self.refreshes += "--refresh" in words
            self.looks += self.refreshed
            device = {"path": "/dev/sdb", "created": f"look {self.looks}"}
            return json.dumps([{"name": "node4", "devices": [device]}])
        if self.fails and line.startswith(self.fails):
            self.fails = ""
            raise replacement_agent.ReplacementError(line)
        self.orders.append(line)
        if line.startswith("orch daemon rm"):
            self.daemon = False
        elif line.startswith("osd new"):
            self.state, self.uuid = ["exists", "new"], words[2]
        elif line.startswith("osd destroy"):
            self.state, self.uuid = ["destroyed", "exists"], ""
        elif line.startswith("osd crush add"):
            self.destroyed = [3]
        elif line.startswith("osd crush set-device-class"):
            self.device_class = words[3]
        elif line.startswith("orch daemon add osd"):
            self.makes(words[-1])
            return "Created osd(s) 3 on host 'node4'" if "up" in (self.state or ()) else ""
        elif line.startswith("cephadm osd activate") and self.activates:
            self.up()
        return ""


PLAN = {
    "osd": 3,
    "host": "node4",
    "bucket": "node4",
    "devices": [["data_devices", "/dev/vg/lv"], ["db_devices", "/dev/fast/db"]],
    "service": "disks",
    "weight": 0.5,
    "location": ["host=node4", "root=default"],
    "device_class": "ssd",
}
ORDER = "orch daemon add osd node4:data_devices=/dev/vg/lv,db_devices=/dev/fast/db"


@pytest.fixture
def orchestrator(monkeypatch: pytest.MonkeyPatch) -> Orchestrator:
    stand_in = Orchestrator()
    monkeypatch.setattr(replacement_agent, "run_ceph", stand_in)
    monkeypatch.setattr(replacement_agent, "LIMIT", 0.05)
    monkeypatch.setattr(replacement_agent, "PAUSE", 0.01)
    return stand_in


def run(verb: str, **changed: Any) -> None:
    replacement_agent.main(verb, "ceph", json.dumps({**PLAN, **changed}))


def test_the_osd_comes_back_in_its_service(orchestrator: Orchestrator) -> None:
    run("remove")
    assert orchestrator.orders == ["orch daemon rm osd.3 --force"] and not orchestrator.daemon
    run("create")
    assert orchestrator.orders[1:] == [f"{ORDER},service_id=disks"] and orchestrator.refreshes == 1
    orders = list(orchestrator.orders)
    for verb in ("remove", "create"):
        run(verb)
    assert orchestrator.orders == orders  # nothing of an OSD that is there


def test_an_osd_of_no_service_comes_back(orchestrator: Orchestrator) -> None:
    """For it the orchestrator needs no change in its inventory."""
    orchestrator.daemon = False
    run("remove")
    run("create", service="")
    assert orchestrator.orders == [ORDER] and orchestrator.refreshes == 0


@pytest.mark.parametrize("state", [["exists"], ["exists", "up"]])
def test_an_osd_that_was_not_destroyed_is_left_alone(state: List[str], orchestrator: Orchestrator) -> None:
    orchestrator.state = state
    for daemon in (True, False):
        orchestrator.daemon = daemon
        for verb in ("remove", "create"):
            run(verb)
    assert orchestrator.orders == []


def test_a_daemon_that_still_shows_is_waited_for(orchestrator: Orchestrator) -> None:
    """The orchestrator may have begun to look at the host before it removed the daemon."""
    orchestrator.shows = 3
    run("remove")
    assert orchestrator.shows == 0
    orchestrator.shows = 3
    run("create", service="")
    assert orchestrator.orders == ["orch daemon rm osd.3 --force", ORDER]


def test_nothing_is_made_while_the_daemon_is_there(orchestrator: Orchestrator) -> None:
    """Its folder tells the host that the volumes may not be cleared."""
    with pytest.raises(replacement_agent.ReplacementError, match="has not removed the daemon"):
        run("create")
    assert orchestrator.orders == []


def test_nothing_is_made_beside_another_destroyed_osd(orchestrator: Orchestrator) -> None:
    orchestrator.daemon, orchestrator.destroyed = False, [2, 3]
    with pytest.raises(replacement_agent.ReplacementError, match="node4 has the destroyed OSDs 2, 3"):
        run("create")
    assert orchestrator.orders == []


def test_a_service_that_makes_the_osd_by_itself_needs_no_order(orchestrator: Orchestrator) -> None:
    """As seen on 18.2.7: its volumes were clear, and the orchestrator was faster."""
    orchestrator.daemon, orchestrator.makes_first = False, True
    run("create")
    assert orchestrator.orders == []


def test_an_osd_that_its_service_has_made_meanwhile_is_no_error(orchestrator: Orchestrator) -> None:
    """The order has found no free volume, and the service has not started the daemon yet."""

    def make_by_service(argument: str) -> None:
        orchestrator.state = ["exists", "new"]

    orchestrator.daemon, orchestrator.makes = False, make_by_service
    run("create")
    assert orchestrator.orders == [f"{ORDER},service_id=disks", "cephadm osd activate node4"]


@pytest.mark.parametrize("refreshed", [True, False])
def test_an_order_that_the_orchestrator_skips_is_given_without_the_service(
    refreshed: bool, orchestrator: Orchestrator
) -> None:
    """As for a host in whose inventory nothing has changed since the service was applied."""
    orchestrator.daemon, orchestrator.refreshed = False, refreshed
    orchestrator.makes = lambda argument: None if "service_id" in argument else orchestrator.up()
    run("create")
    assert orchestrator.orders == [f"{ORDER},service_id=disks", ORDER]


def test_an_osd_that_cannot_be_made_says_so(orchestrator: Orchestrator) -> None:
    orchestrator.daemon, orchestrator.makes = False, lambda argument: None
    with pytest.raises(replacement_agent.ReplacementError, match="add osd: created no osd"):
        run("create")


def test_a_service_that_cannot_make_the_osd_says_so(orchestrator: Orchestrator) -> None:
    """Its ceph-volume has removed the OSD from the map before the orchestrator got an order."""
    orchestrator.daemon, orchestrator.makes_first, orchestrator.up = False, True, orchestrator.purge  # type: ignore
    with pytest.raises(replacement_agent.ReplacementError, match=r"osd\.3: its service could not create it"):
        run("create")
    assert orchestrator.orders == []


def test_no_further_osd_is_made_after_one_that_ceph_volume_has_removed(orchestrator: Orchestrator) -> None:
    """It would get another number: the map has no destroyed OSD any more."""

    def fail(argument: str) -> None:
        orchestrator.state = None

    orchestrator.daemon, orchestrator.makes = False, fail
    with pytest.raises(replacement_agent.ReplacementError, match="add osd: created no osd"):
        run("create")
    assert orchestrator.orders == [f"{ORDER},service_id=disks"]


DESTROYED_AGAIN = [
    "osd destroy 3 --yes-i-really-mean-it",
    "osd crush add osd.3 0.5 host=node4 root=default",
    "osd crush set-device-class ssd osd.3",
    ORDER,
]


@pytest.mark.parametrize("fails", ["", "osd new", "osd destroy", "osd crush add", "osd crush set"])
def test_an_osd_that_ceph_volume_has_removed_is_destroyed_again(fails: str, orchestrator: Orchestrator) -> None:
    """Also when the undo is broken off between two of the commands."""
    orchestrator.daemon, orchestrator.fails = False, fails
    orchestrator.purge()
    if fails:
        with pytest.raises(replacement_agent.ReplacementError):
            run("create", service="")
    run("create", service="")
    new, *orders = orchestrator.orders
    assert new.startswith("osd new ") and new.endswith(" 3")
    assert orders == DESTROYED_AGAIN


def test_a_plan_of_an_earlier_version_has_no_device_class(orchestrator: Orchestrator) -> None:
    orchestrator.daemon = False
    orchestrator.purge()
    plan = {key: value for key, value in PLAN.items() if key != "device_class"}
    replacement_agent.main("create", "ceph", json.dumps({**plan, "service": ""}))
    assert orchestrator.orders[1:] == [DESTROYED_AGAIN[0], DESTROYED_AGAIN[1], ORDER]


def test_an_osd_that_cannot_be_activated_is_created_anew(orchestrator: Orchestrator) -> None:
    """As when the host was lost after ceph-volume had put the OSD into the map."""
    orchestrator.daemon, orchestrator.state, orchestrator.uuid = False, ["exists", "new"], "of ceph-volume"
    orchestrator.activates = False
    run("create", service="")
    assert orchestrator.orders == ["cephadm osd activate node4", DESTROYED_AGAIN[0], ORDER]


def test_an_osd_that_has_no_daemon_after_its_creation_says_so(orchestrator: Orchestrator) -> None:
    def make_no_daemon(argument: str) -> None:
        orchestrator.state = ["exists", "new"]

    orchestrator.daemon, orchestrator.activates, orchestrator.makes = False, False, make_no_daemon
    with pytest.raises(replacement_agent.ReplacementError, match="no daemon after ceph cephadm osd activate node4"):
        run("create", service="")


def test_a_creation_that_was_cut_short_is_finished(orchestrator: Orchestrator) -> None:
    """By nobody else within a minute; it is never begun again, which would use another number."""
    orchestrator.daemon, orchestrator.state = False, ["exists", "new"]
    run("create")
    assert orchestrator.orders == ["cephadm osd activate node4"]
    orchestrator.daemon, orchestrator.state, orchestrator.orders = True, ["exists", "new"], []
    run("create")
    assert orchestrator.orders == []


def test_the_agent_runs_ceph(tmp_path: Path) -> None:
    ceph = tmp_path / "ceph"
    ceph.write_text('#!/bin/sh\nprintf "%s|" "$@"\n[ "$3" != bad ] || { echo no such >&2; exit 22; }\n')
    ceph.chmod(0o755)
    assert replacement_agent.run_ceph(f"{ceph} -c 'a b'", "osd", "d ump") == "-c|a b|osd|d ump|"
    with pytest.raises(replacement_agent.ReplacementError, match=r"^ceph bad x: no such$"):
        replacement_agent.run_ceph(f"{ceph} -c c", "bad", "x")
