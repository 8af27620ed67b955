"""What tests do on a cluster of cephadm of any release."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List

import yaml
from cephadm_cluster import FIRST, NODES
from cluster_log import assert_as_logged
from cluster_state import clean, facts, moving
from container_faults import ContainerFault, as_it_is, gateway_on
from container_lab import S3, ContainerCycle, Containers
from cycles import Cycle
from doc_examples import changed, files_in
from test_daemon_faults import STATES, answering, held, inject, state
from test_init_on_lab import OF_RGW, STATE, tool
from test_init_on_lab import state as state_of
from waiting import wait_for

from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples
from cbt_plugins.results.stacks import profile_of

MONITORS: Dict[str, Any] = {
    "resources": {},
    "recovery": {},
    "perf_counters": {"interval": 2},
    "backlog": {"interval": 10},
    "stacks": {"interval": 20, "seconds": 3},
    "collectl": {"args": "-sCD -i 1 -P -oz -F0 -f {collectl_dir}"},
}
#: in names of Ceph's own functions
OF_CEPH = re.compile(r"\b(BlueStore|PrimaryLogPG|OSD|PG|rocksdb|AsyncConnection|EventCenter|ProtocolV2|ceph)\b")

#: as `cluster_state` and the studies have it: an OSD is out after eight seconds
SETTINGS = {"scrub": False, "config": {"mon": {"mon_osd_down_out_interval": 8}}, "recovery": "aggressive"}

#: the file of docs/SITES.md with the names of the lab, and shorter
OF_THE_LAB = {
    "mon1\n": f"{FIRST}\n",
    "[mon1, mon2, mon3]": "[node1, node2, node3]",
    "[host1, host2, host3]": "[node1, node2, node3]",
    "[host1, host2]": "[node2, node3]",
    "'http://host1:80', 'http://host2:80'": ", ".join(S3["urls"]),
    "[client1, client2]": "[client1]",
    "duration: 10m": "duration: 10s",
    "duration: 30m": "duration: 70s",
    "at: 5m": "at: 10s",
    "at: 20m": "at: 50s",
}


def with_a_stop(osd: int, before: int, down: int, after: int) -> Dict[str, Any]:
    """Return a section: a fill, and load during which an OSD is down for some of its seconds."""
    events = [
        {"at": f"{before}s", "fault": {"label": "osd", "kind": "stop", "osds": [osd]}},
        {"at": f"{before + down}s", "undo": "osd"},
    ]
    load = {"duration": f"{before + down + after}s", "mix": {"get": 60, "put": 30, "delete": 10}, "events": events}
    settled = {"wait": {"clean": True, "at_most": "4m"}, "name": "clean"}
    phases = [{"fill": {"objects": 300}}, {"hybrid": load, "name": "load"}, settled]
    common = {"s3": S3, "engine": "cbt-load", "size": "16KiB", "workers": 8, "settings": SETTINGS}
    return {**common, "cycle": {"phases": phases}}


def shells(containers: Containers) -> List[str]:
    """Return the containers of `cephadm shell` on the head."""
    names = containers.sh(FIRST, "podman ps --format '{{.Names}}'").split()
    return [name for name in names if not name.startswith("ceph-")]


def run_with_an_osd_stopped(containers: Containers, folder: Path) -> None:
    """Run a cycle with all monitors, during which an OSD is stopped and started again."""
    lab = containers.lab
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    before = facts(lab)
    assert containers.sh(FIRST, "command -v ceph radosgw-admin") == ""
    cycle = ContainerCycle(lab, folder, MONITORS, warp=with_a_stop(5, before=10, down=60, after=20))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before
    (shell,) = shells(containers)
    assert shell.startswith("cbt-plugins-shell-")
    phases, samples = cycle.phases(), read_samples(files_of(cycle.folder))
    assert list(phases) == ["fill", "load", "clean"]
    for name, phase in phases.items():
        assert phase["status"] == "ok", (name, phase["warnings"])
        assert all(count["ok"] for count in phase["accounting"]), (name, phase["accounting"])
    # the agent of the sampler runs in the container, where librados is: as often as on a node with packages
    assert samples.via == "librados" and not samples.fallbacks
    window = phases["load"]["window"]
    assert len(samples.between(window["start"], window["end"])) >= 180
    managers = [e["step"]["former"]["service_manager"] for e in opened(cycle) if "units" in e["step"]["former"]]
    assert managers == ["cephadm"]
    assert containers.states("node3") == ["active", "active"]
    for monitor in ("collectl", "resources"):
        for node in (*NODES, "client1"):
            files = cycle.folder.glob(f"monitors/*/{monitor}.{node}/*")
            assert any(path.stat().st_size for path in files), (monitor, node)
    summary = cycle.summary()
    daemons = {f"{row['class']}.{row['id']}" for row in summary["resources"]["phases"]["load"]["daemons"]}
    assert {*(f"osd.{osd}" for osd in range(6)), *(f"mon.{node}" for node in NODES)} <= daemons, daemons
    assert sum(name.startswith(("mgr.", "rgw.")) for name in daemons) == 4, daemons
    inside = summary["perf_counters"]["phases"]
    assert all(inside[name]["lines"] for name, phase in phases.items() if phase["jobs"])
    garbage = inside["load"]["backlog"]["gc"]
    assert all(isinstance(entries, int) for entries in garbage), garbage
    assert_functions_of_osds(cycle)
    made = summary["failure"]["milestones"]
    (failed, returned) = made["episodes"]
    assert (failed["kind"], returned["kind"], returned["outcome"]) == ("failure", "return", "recovered")
    times = [sample.t for sample in samples.samples]
    assert assert_as_logged(lab, made, (5,), since=made["start"], samples=times) >= 5
    assert (cycle.folder / "report.html").exists()


def assert_functions_of_osds(cycle: Cycle) -> None:
    """Assert that stacks of OSDs in containers have names of Ceph's functions, or that a limit says why not."""
    profile = profile_of([cycle.archive])
    frames = {frame for stack in profile.cpu_ms if stack[0] == "osd" for frame in stack[3:]}
    named = sorted(frame for frame in frames if OF_CEPH.search(frame))
    print(f"{profile.samples} samples, {len(frames)} functions in OSDs, of Ceph {len(named)}:", *named[:9], sep="\n")
    limits = [note for note in profile.notes if "osd: no symbols" in note]
    assert frames and (named or limits), (frames, profile.notes)
    print(*profile.notes, sep="\n")


def opened(cycle: Cycle) -> List[Dict[str, Any]]:
    """Return the steps that a run has written down before it made them."""
    (path,) = cycle.archive.rglob("undo.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in records if record["event"] == "open"]


def hold_and_undo_each_kind(containers: Containers) -> None:
    """Kill a run in each kind of fault: seen from outside, nothing but `cbt-tools undo` puts the cluster back."""
    lab = containers.lab
    containers.clean()
    active = str(containers.ceph("mgr stat")["active_name"])
    gateway = gateway_on(containers, "node2")

    def stopped(node: str, program: str) -> bool:
        return lab.exec(node, ["sh", "-c", STATES.format(program)]).stdout.split() == ["T"]

    def in_quorum(mon: str) -> bool:
        return mon in containers.ceph("quorum_status")["quorum_names"]

    def managers() -> List[str]:
        dump = containers.ceph("mgr dump")
        return [dump["active_name"], *(standby["name"] for standby in dump["standbys"])]

    # soon after faults on managers 18.2.7 refuses the host of the standby
    (host,) = {*NODES} - {name.partition(".")[0] for name in managers()}

    def in_maintenance() -> bool:
        (status,) = [row["status"] for row in containers.ceph("orch host ls") if row["hostname"] == host]
        osds_up = [osd for osd in lab.nodes[host].osds if containers.osd(osd)["up"]]
        return status == "maintenance" and not osds_up and host not in answering(containers)

    cases: List[Any] = [
        (inject("stop", gateway), lambda: answering(containers) == ["node3"]),
        (inject("pause", gateway), lambda: stopped("node2", "radosgw|notif-worker0")),
        (inject("crash", "mon.node2"), lambda: not in_quorum("node2")),
        (inject("pause", "mon.node2"), lambda: stopped("node2", "ceph-mon") and not in_quorum("node2")),
        (inject("pause", "osd.4"), lambda: stopped("node3", "ceph-osd") or not containers.osd(4)["up"]),
        (inject("stop", "mon.node3"), lambda: not in_quorum("node3")),
        (inject("stop", f"mgr.{active}"), lambda: containers.ceph("mgr stat")["active_name"] != active),
        (inject("crash", f"mgr.{active}"), lambda: active not in managers()),
        (inject("pause", f"mgr.{active}"), lambda: stopped(active.partition(".")[0], "ceph-mgr")),
        (inject("maintenance", host), in_maintenance),
    ]
    before = state(containers)
    for statement, effect in cases:
        folder = containers.folder()
        running = held(containers, statement, folder)
        wait_for(effect, f"the effect of {statement}", 60.0)
        containers.end_by_kill(running)
        assert effect(), statement
        done = containers.undo(folder)
        assert done.returncode == 0, (statement, done.stderr[-3000:])
        assert state(containers) == before, statement
        containers.clean()


def run_the_file_of_init(containers: Containers, folder: Path) -> None:
    """Write a file by `cbt-tools init`, and run it with shorter phases, as a user whom the run makes."""
    lab = containers.lab
    containers.clean()
    cycle, questions = ContainerCycle(lab, folder), (*STATE, *OF_RGW)
    cycle.file.unlink()
    before = state_of(lab, *questions)
    done = tool(lab, "init", "--cephadm", f"root@{FIRST}", "--clients", "client1", "-o", str(cycle.file))
    assert done.returncode == 0, done.stderr
    assert state_of(lab, *questions) == before and "Warning" not in done.stderr
    data = yaml.safe_load(cycle.file.read_text())
    assert (data["cluster"]["head"], data["cluster"]["ceph"]) == (FIRST, "cephadm")
    section = data["benchmarks"]["rgwtest"]
    assert section["s3"] == {"urls": S3["urls"], "user": "cbt-plugins"}
    live = tool(lab, "plan", "--live", str(cycle.file))
    assert live.returncode == 0 and "every node, endpoint and key, is ready for a run" in live.stdout, live.stderr
    section.update(fill={"objects": 200}, measure={"duration": "8s"}, age={"duration": "8s"})
    cycle.file.write_text(yaml.safe_dump(data))
    ended = cycle.run()
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert all(phase["status"] == "ok" for phase in cycle.phases().values())
    assert (cycle.folder / "report.html").exists()
    users = json.loads(lab.exec("node0", ["radosgw-admin", "metadata", "list", "user"]).stdout)
    assert "cbt" in users and "cbt-plugins" not in users


def run_the_file_of_sites(containers: Containers, folder: Path) -> None:
    """Run the file that docs/SITES.md has for cephadm, as it is printed there, to its report."""
    containers.clean()
    before, cycle = state(containers), ContainerCycle(containers.lab, folder)
    cycle.file.write_text(changed(files_in("SITES.md")["cephadm"], OF_THE_LAB))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    containers.clean()
    assert state(containers) == before
    phases = cycle.phases()
    assert list(phases) == ["fill", "hybrid"]
    assert all(count["ok"] for phase in phases.values() for count in phase["accounting"])
    assert "osd.5" in (cycle.folder / "report.html").read_text()


def held_killed_and_undone(containers: Containers, held_fault: ContainerFault) -> None:
    """Kill a run that holds a fault: nothing but `cbt-tools undo` puts the cluster back."""
    before, folder = as_it_is(containers), containers.folder()
    assert not held_fault.in_force()
    running = held(containers, held_fault.statement, folder)
    wait_for(held_fault.in_force, f"the effect of {held_fault.statement}", 60.0)
    containers.end_by_kill(running)
    assert held_fault.in_force(), held_fault.statement
    done = containers.undo(folder)
    assert done.returncode == 0, (held_fault.statement, done.stderr[-3000:])
    # the mons and gateways of a node whose links were cut come back by themselves
    back = lambda: as_it_is(containers) == before  # noqa: E731
    wait_for(back, f"all as before {held_fault.statement}", moving=lambda: as_it_is(containers))
    containers.clean()


