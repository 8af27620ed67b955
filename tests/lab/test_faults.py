"""Faults on a real cluster of four nodes, made by a process in the head node, and what becomes of them."""

from __future__ import annotations

import json
import shutil
import time
from typing import Iterator

import pytest
from cycles import free
from faulty import Faulty, PowerController, fault
from running_lab import RunningLab, need_machine
from waiting import end_of, wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = pytest.mark.lab

@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A lab of its own: these tests leave PGs moving, and others measure."""
    need_machine()
    base = tmp_path_factory.mktemp("faults")
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        topology = Topology(osds_per_node=1, rgws=0, clients=0, out_interval=600, bind=(str(base),))
        made.up(topology, detach=False)
        lab = Faulty(RunningLab(made, []), base)
        pool = "ceph osd erasure-code-profile set e k=2 m=1 crush-failure-domain=host"
        pool += " && ceph osd pool create e 8 8 erasure e"
        assert lab.lab.exec("node0", ["sh", "-c", pool]).returncode == 0
        lab.clean()
        yield lab
    finally:
        made.down(wipe=True)


def test_a_node_is_stopped_and_started(faulty: Faulty) -> None:
    before = faulty.osd(0)
    said = faulty.run(
        faulty.folder(),
        f"injector.acquire(); injector.inject({fault('a', 'stop', 'node1')})\n"
        "osds = json.loads(remote.run(['node0'], 'ceph osd dump -f json')['node0'].stdout)['osds']\n"
        "up = next(o['up'] for o in osds if o['osd'] == 0)\n"
        "say(up=up); say(left=injector.undo_all()); injector.release()",
    )
    assert {"up": 0} in said and {"left": []} in said
    assert [s["event"] for s in said if "event" in s] == [
        "fault-inject-begin",
        "fault-injected",
        "fault-in-effect",
        "fault-undo-begin",
        "fault-undone",
    ]
    assert faulty.osd(0) == before
    faulty.clean()


@pytest.mark.long  # test_osdfailure has settings, tests/crash each way to end
def test_settings_go_back_to_what_they_were(faulty: Faulty) -> None:
    """A flag that the operator had set stays; values, also absent ones, are exactly as before; so is the balancer."""
    faulty.lab.exec("node0", ["sh", "-c", "ceph osd set nodeep-scrub; ceph config set osd osd_scrub_chunk_max 20"])
    try:
        before = faulty.configuration()
        folder = faulty.folder()
        faulty.run(
            folder,
            "injector.acquire(); injector.apply(); injector.speed_up_recovery()",
            flags=["noscrub", "nodeep-scrub", "noout"],
            config=[["osd", "osd_scrub_chunk_max", "30"], ["global", "osd_op_complaint_time", "20"]],
            balancer=not before["balancer"],
            autoscaler=True,
            recovery="aggressive",
        )
        during = faulty.configuration()
        values = {(row["section"], row["name"]): row["value"] for row in during["config"]}
        assert values["osd", "osd_scrub_chunk_max"] == "30" and values["osd", "osd_max_backfills"] == "10"
        assert {"noscrub", "noout", "nodeep-scrub"} <= set(during["flags"])
        assert during["balancer"] != before["balancer"] and set(during["autoscale"].values()) == {"on"}
        assert any(key.startswith("cbt-plugins/run/") for key in during["keys"])
        running = faulty.lab.exec("node0", ["ceph", "config", "show", "osd.0", "osd_max_backfills"]).stdout.strip()
        assert running == "10"
        assert faulty.undo(folder, "--dry-run").returncode == 1
        done = faulty.undo(folder)  # the run ended without a word
        assert done.returncode == 0, done.stderr
        assert faulty.configuration() == before
    finally:
        faulty.lab.exec("node0", ["sh", "-c", "ceph osd unset nodeep-scrub; ceph config rm osd osd_scrub_chunk_max"])


def test_one_osd_out_with_its_weight(faulty: Faulty) -> None:
    faulty.lab.exec("node0", ["ceph", "osd", "reweight", "3", "0.75"])
    try:
        faulty.clean()
        before = faulty.osd(3)
        said = faulty.run(
            faulty.folder(),
            f"injector.acquire(); injector.inject({fault('o', 'out', 'osd.3')}); say(left=injector.undo_all()); "
            "injector.release()",
        )
        assert {"left": []} in said
        assert faulty.osd(3) == before and before["weight"] == pytest.approx(0.75, abs=1e-3)
    finally:
        faulty.lab.exec("node0", ["ceph", "osd", "reweight", "3", "1"])
    faulty.clean()


@pytest.mark.long  # the test above has an OSD that goes out, test_faults_mark the commands
def test_one_osd_is_marked_and_runs_on(faulty: Faulty) -> None:
    """As CBT's own recovery test has it, and with an end: here that of a test that failed."""
    process = faulty.lab.exec("node2", ["pgrep", "-x", "ceph-osd"]).stdout
    before, folder = (faulty.osd(1), faulty.configuration()), faulty.folder()
    mark = fault("m", "mark", "osd.1")
    running = faulty.start(folder, f"injector.acquire(); injector.inject({mark}); hold()")
    faulty.await_event(folder, running, "injected")
    marked = faulty.osd(1)
    assert (marked["up"], marked["in"]) == (0, 0) and "noup" in faulty.configuration()["flags"]
    assert faulty.lab.exec("node2", ["pgrep", "-x", "ceph-osd"]).stdout == process
    free(faulty)  # `cbt-tools undo`, from another shell
    assert running.poll() is not None and (faulty.osd(1), faulty.configuration()) == before
    assert faulty.lab.exec("node2", ["pgrep", "-x", "ceph-osd"]).stdout == process
    faulty.clean()


def test_a_crash_is_of_that_process(faulty: Faulty) -> None:
    pid = faulty.lab.exec("node2", ["pgrep", "-x", "ceph-osd"]).stdout.split()
    folder = faulty.folder()
    faulty.run(folder, f"injector.acquire(); injector.inject({fault('c', 'crash', 'osd.1')})")
    # it has no life any more when the fault is there; its first process may still have to wait for it
    wait_for(lambda: not faulty.lab.exec("node2", ["pgrep", "-x", "ceph-osd"]).stdout.split(), "the end of osd.1", 30)
    assert faulty.undo(folder).returncode == 0
    again = faulty.lab.exec("node2", ["pgrep", "-x", "ceph-osd"]).stdout.split()
    assert len(again) == 1 and again != pid
    faulty.clean()


@pytest.mark.long  # test_faults_blast_radius has the rules
def test_a_second_node_is_refused_and_may_be_accepted(faulty: Faulty) -> None:
    """3 copies and EC 2+1 over four hosts: with two of them gone, half of the PGs are inactive, and are so for real."""
    said = faulty.run(
        faulty.folder(),
        f"injector.acquire(); injector.inject({fault('a', 'stop', 'node1')})\n"
        f"try: injector.inject({fault('b', 'stop', 'node2')})\n"
        "except FaultError as error: say(refused=str(error))\n"
        f"p = injector.inject({fault('b', 'stop', 'node2', 'inactive', 'domain', 'data', 'ok-to-stop')})\n"
        "say(predicted=p.assessment.numbers['inactive_pgs'])\n"
        "import time\n"
        "def ceph(question):\n"
        "    return json.loads(remote.run(['node0'], 'ceph ' + question + ' -f json')['node0'].stdout)\n"
        # an OSD that is marked out after 600 s gives its PGs to others
        "remote.run(['node0'], 'ceph osd set noout')\n"
        "for _ in range(300):\n"
        "    down = {osd['osd'] for osd in ceph('osd dump')['osds'] if not osd['up']}\n"
        "    pgs = ceph('pg dump pgs_brief')['pg_stats']\n"
        "    states = [set(pg['state'].split('+')) for pg in pgs]\n"
        "    late = any(down & {*pg['up'], *pg['acting']} for pg in pgs)\n"
        "    inactive = sum('active' not in s for s in states)\n"
        "    moving = late or any({'stale', 'peering', 'unknown'} & s for s in states)\n"
        "    # statistics of PGs lag: some that show no change yet are shown as inactive soon\n"
        "    if len(down) == 2 and not moving and inactive == p.assessment.numbers['inactive_pgs']: break\n"
        "    time.sleep(1)\n"
        "say(inactive=inactive, last=[sorted(down), late, sorted(map(sorted, states))])\n"
        "remote.run(['node0'], 'ceph osd unset noout')\n"
        "say(left=injector.undo_all()); injector.release()",
    )
    known = ("refused", "predicted", "inactive", "last")
    told = {key: value for line in said for key, value in line.items() if key in known}
    assert "inactive: " in told["refused"] and "EC 2+1, min_size 2" in told["refused"]
    assert "domain: " in told["refused"] and "50.0 % of the PGs are expected" in told["refused"]
    assert told["predicted"] == told["inactive"] > 0, told["last"]
    undone = [line["label"] for line in said if line.get("event") == "fault-undone"]
    assert undone == ["b", "a"] and {"left": []} in said
    faulty.clean()


@pytest.mark.long  # test_systemd has it for a timer, test_faults_node and crash/test_undo_at_each_call for a process
def test_a_cut_node_heals_although_nobody_asks(faulty: Faulty) -> None:
    """kill -9 for the run; its node comes back by itself, at the time that was said."""
    folder = faulty.folder()
    cut = fault("n", "network", "node3", interfaces=["eth0"], deadline=20)
    running = faulty.start(
        folder, f"injector.acquire(); injector.inject({cut}); hold()"
    )
    try:
        faulty.await_event(folder, running, "injected")
        wait_for(lambda: not faulty.osd(2)["up"], "osd.2 seen down")
        holder = faulty.holder()
        faulty.lab.exec("node0", ["kill", "-9", str(holder["pid"])])
        end_of(running)
        records = [json.loads(line) for line in (folder / "undo.jsonl").read_text().splitlines()]
        armed = next(record for record in records if record["event"] == "armed")
        wait_for(lambda: faulty.osd(2)["up"], "osd.2 up again, by itself", 60.0)
        assert time.time() >= armed["fires"] - 1.0
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()
    refused = faulty.run(
        folder,
        "try: injector.inject(Fault('x', 'stop', ('node1',)))\nexcept FaultError as error: say(refused=str(error))",
    )
    assert "an earlier process left open changes: n: take down eth0 on node3" in refused[0]["refused"]
    done = faulty.undo(folder)
    assert done.returncode == 0, done.stderr
    left = faulty.lab.exec("node3", ["sh", "-c", "ls /run/cbt-plugins"]).stdout.split()
    assert not [name for name in left if name.endswith((".armed", ".fired", ".recover"))]
    assert faulty.configuration()["keys"] == {}
    faulty.clean()


@pytest.mark.long  # test_systemd has it for a timer, test_faults_node for a process
def test_a_switch_that_is_not_needed_is_disarmed(faulty: Faulty) -> None:
    """The interface of a node is cut and restored through another way: here, by its own console."""
    folder = faulty.folder()
    cut = fault("n", "network", "node3", interfaces=["eth0"], deadline=900)
    faulty.run(folder, f"injector.acquire(); injector.inject({cut}, wait=False)")
    records = [json.loads(line) for line in (folder / "undo.jsonl").read_text().splitlines()]
    pid = next(record for record in records if record["event"] == "armed")["switch"].split()[2]
    wait_for(lambda: not faulty.osd(2)["up"], "osd.2 seen down")
    faulty.lab.exec("node3", ["ip", "link", "set", "eth0", "up"])
    assert faulty.undo(folder).returncode == 0
    assert faulty.lab.exec("node3", ["test", "-e", f"/proc/{pid}"]).returncode != 0
    assert faulty.osd(2)["up"] == 1
    faulty.clean()


@pytest.mark.skipif(not shutil.which("nft"), reason="needs nft (Debian: nftables)")
@pytest.mark.long  # test_fault_kinds has a partition
def test_a_node_whose_packets_are_dropped_is_still_in_reach(faulty: Faulty) -> None:
    """nft: the cluster loses its OSD, and ssh does not lose the node."""
    folder = faulty.folder()
    cut = fault("n", "network", "node3", method="nft", deadline=900)
    faulty.run(folder, f"injector.acquire(); injector.inject({cut})")
    assert faulty.osd(2)["up"] == 0
    assert "policy drop" in faulty.lab.exec("node3", ["nft", "list", "ruleset"]).stdout
    done = faulty.undo(folder)
    assert done.returncode == 0, done.stderr
    assert faulty.lab.exec("node3", ["nft", "list", "ruleset"]).stdout == ""
    assert faulty.osd(2)["up"] == 1
    faulty.clean()


@pytest.mark.long
def test_a_replaced_osd_has_its_number_and_nothing_else(faulty: Faulty) -> None:
    before = faulty.osd(1)
    consent = "osd.1 will be destroyed"
    said = faulty.run(
        faulty.folder(),
        f"injector.acquire(); injector.inject({fault('r', 'replace', 'osd.1', 'safe-to-destroy', consent=consent)}); "
        "say(left=injector.undo_all()); injector.release()",
    )
    assert {"left": []} in said
    after = faulty.osd(1)
    assert after["uuid"] != before["uuid"]
    assert {**after, "uuid": ""} == {**before, "uuid": ""}
    faulty.clean()


@pytest.mark.long  # test_systemd reboots a node
def test_power_and_reboot_by_commands(faulty: Faulty) -> None:
    """Through commands that ask the lab, as those of a site ask a BMC."""
    controller = PowerController(faulty)
    off, on, again = (controller.command(verb, "node4") for verb in ("off", "on", "reboot"))
    power, reboot = fault("p", "power", "node4", off=off, on=on), fault("r", "reboot", "node4", command=again)
    statements = (
        f"injector.acquire(); injector.inject({power}); say(left=injector.undo(['p']))\n"
        f"p = injector.inject({reboot}); say(boot=p.steps[0].former['boot'])\n"
        "say(left=injector.undo_all()); injector.release(); injector.close()"
    )
    running = faulty.start(faulty.folder(), statements)
    try:

        def over() -> bool:
            controller.carry_out()
            return running.poll() is not None

        wait_for(over, "the end of power and reboot", 240.0, lambda: len(controller.carried_out))
    finally:
        if running.poll() is None:
            running.kill()
        said = running.communicate()[0]
    assert running.returncode == 0 and said.count('{"left": []}') == 2, said
    assert controller.carried_out[:3] == ["off", "on", "reboot"]
    assert faulty.osd(3)["up"] == 1
    faulty.clean()
