"""Runs and faults on a real cephadm cluster: bootstrap, containers, orchestrator; no Ceph installed on its nodes.

An hour on two busy cores, and 3 GB of cache for the image:

    CBT_PLUGINS_LONG=1 python -m pytest tests/lab/test_cephadm.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterator, List

import cephadm_cluster
import pytest
import yaml
from cephadm_volume import REPLACEMENTS, VolumeOsd, osd_on_volumes
from cluster_log import assert_as_logged
from cluster_state import ask, clean, facts, moving
from container_faults import BY_NFT, FAULTS, ContainerFault, as_it_is, gateway_on, osd_read_errors, reading
from cycles import Cycle
from faulty import Faulty, fault
from running_lab import RunningLab
from test_daemon_faults import (
    ALL,
    STATES,
    answering,
    balancing,
    drained_under_requests,
    held,
    inject,
    killed,
    state,
)
from test_init_on_lab import OF_RGW, STATE, tool
from test_init_on_lab import state as state_of
from test_osdfailure import events, failure, happened
from waiting import end_of, wait_for

from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples
from cbt_plugins.results.stacks import profile_of

pytestmark = [pytest.mark.lab, pytest.mark.long]

FIRST, NODES = cephadm_cluster.FIRST, cephadm_cluster.NODES
S3 = {"urls": [f"http://{node}:{cephadm_cluster.PORT}" for node in cephadm_cluster.GATEWAYS], "user": "cbt"}
#: of all daemons, before and after the last test
VERSIONS = {"before": cephadm_cluster.OLD.version, "after": cephadm_cluster.NEW.version}
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


class ContainerCycle(Cycle):
    """A run whose head has Ceph in containers."""

    cluster: ClassVar[Dict[str, Any]] = cephadm_cluster.CLUSTER


class Containers(Faulty):
    """The cluster, and runs that are led from node0, which has no daemon."""

    gateways = cephadm_cluster.GATEWAYS

    def __init__(self, lab: RunningLab, base: Path) -> None:
        super().__init__(lab, base)
        lab.cluster_log = (FIRST, f"/var/log/ceph/{lab.lab.record.fsid}/cluster.log")
        keys = ("head", "ceph", "user", "osds", "mons", "rgws")
        self._cluster = {key: cephadm_cluster.CLUSTER[key] for key in keys}

    def sh(self, node: str, text: str) -> str:
        return self.lab.exec(node, ["sh", "-c", text]).stdout.strip()

    def unit(self, daemon: str) -> str:
        return f"ceph-{self.lab.lab.record.fsid}@{daemon}.service"

    def states(self, node: str) -> List[str]:
        """Return the states of the units of a node's OSDs."""
        units = " ".join(self.unit(f"osd.{osd}") for osd in self.lab.nodes[node].osds)
        return self.sh(node, f"systemctl is-active {units}").split()


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    cephadm_cluster.need_cephadm()
    store, base = cephadm_cluster.image(), tmp_path_factory.mktemp("cephadm")
    steps: List[str] = []
    made = cephadm_cluster.ContainerLab(tmp_path_factory.mktemp("lab"), say=steps.append)
    try:
        shape = cephadm_cluster.shape(tmp_path_factory.getbasetemp())
        made.up(shape, detach=False, bring_up=cephadm_cluster.Bootstrap(base, store))
        print(*steps, sep="\n")
        yield Containers(RunningLab(made, steps), base)
    finally:
        made.down(wipe=True)


def shells(containers: Containers) -> List[str]:
    """Return the containers of `cephadm shell` on the head."""
    names = containers.sh(FIRST, "podman ps --format '{{.Names}}'").split()
    return [name for name in names if not name.startswith("ceph-")]


def test_a_cycle_with_an_osd_stopped_by_the_orchestrator(containers: Containers, tmp_path: Path) -> None:
    lab = containers.lab
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    before = facts(lab)
    assert containers.sh(FIRST, "command -v ceph radosgw-admin") == ""
    cycle = ContainerCycle(lab, tmp_path, MONITORS, warp=with_a_stop(5, before=10, down=40, after=20))
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
    assert len(samples.between(window["start"], window["end"])) >= 140
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


def test_each_kind_has_its_effect_and_is_undone_after_a_kill(containers: Containers) -> None:
    """Seen from outside while the run is dead: nothing but `cbt-tools undo` puts it back."""
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

    def elsewhere() -> bool:
        manager = containers.ceph("mgr stat")
        return bool(manager["available"]) and not manager["active_name"].startswith("node2.")

    def in_maintenance() -> bool:
        (status,) = [host["status"] for host in containers.ceph("orch host ls") if host["hostname"] == "node2"]
        return status == "maintenance" and not containers.osd(2)["up"] and answering(containers) == ["node3"]

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
        (inject("maintenance", "node2"), in_maintenance),
    ]
    before = state(containers)
    for statement, effect in cases:
        folder = containers.folder()
        if "maintenance" in statement:  # refused for the host of the active manager
            if not elsewhere():
                lab.exec("node0", ["ceph", "mgr", "fail"])
            wait_for(elsewhere, "an active manager on another node")
        running = held(containers, statement, folder)
        wait_for(effect, f"the effect of {statement}", 60.0)
        killed(containers, running)
        assert effect(), statement
        done = containers.undo(folder)
        assert done.returncode == 0, (statement, done.stderr[-3000:])
        assert state(containers) == before, statement
        containers.clean()


def test_init_writes_a_file_that_runs(containers: Containers, tmp_path: Path) -> None:
    """As a user whom the run makes; only the lengths of the phases are other ones."""
    lab = containers.lab
    containers.clean()
    cycle, questions = ContainerCycle(lab, tmp_path), (*STATE, *OF_RGW)
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
    assert "cbt-plugins" not in lab.exec("node0", ["radosgw-admin", "metadata", "list", "user"]).stdout


def test_osdfailure_to_its_report(containers: Containers, tmp_path: Path) -> None:
    """All OSDs of a host are stopped by the orchestrator, and come back."""
    lab = containers.lab
    containers.clean()
    before = facts(lab)
    section = failure(s3=S3, fault={"kind": "stop", "nodes": ["node3"]}, phase={"duration": "40s"})
    cycle = ContainerCycle(lab, tmp_path, {"resources": {}, "recovery": {}}, osdfailure=section)
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before
    phases = cycle.phases()
    assert list(phases) == ["fill", "no-failure", "one-down", "recover", "wait-clean"]
    assert all(count["ok"] for name in list(phases)[:4] for count in phases[name]["accounting"])
    assert "node-a" in (cycle.folder / "report.html").read_text()


def noted(event: str) -> Callable[[Cycle, int], bool]:
    """Return what tells whether the undo journal of a run has an event of the fault, at least so many times."""

    def has(cycle: Cycle, times: int = 1) -> bool:
        texts = [path.read_text() for path in cycle.archive.glob("results/*/id-*/undo.jsonl")]
        records = [json.loads(line) for text in texts for line in text.split("\n")[:-1]]
        return sum(record["event"] == event and record.get("label") == "osd" for record in records) >= times

    return has


def in_phase(name: str) -> Callable[[Cycle, int], bool]:
    return lambda cycle, _times: bool(list(cycle.archive.glob(f"results/*/id-*/phases/*-{name}.running")))


def loaded(cycle: Cycle, _times: int = 1) -> bool:
    """Return whether there is load while the fault is in effect."""
    if not happened(cycle, "fault-in-effect"):
        return False
    since = min(e["t"] for e in events(cycle) if e["event"] == "fault-in-effect")
    return any(line["t"] > since for line in cycle.heartbeats("load"))


def reporting(cycle: Cycle, _times: int = 1) -> bool:
    """Return whether a run has come to its end, behind which it makes its report."""
    return bool(list(cycle.archive.glob("results/*/id-*/complete")))


#: when the run is killed; `twice`: in force, and again when the run that was resumed has injected it anew
MOMENTS: Dict[str, Callable[[Cycle, int], bool]] = {
    "fill": in_phase("fill"),
    "opened": noted("open"),
    "begun": noted("begun"),
    "injected": noted("injected"),
    "confirmed": noted("confirmed"),
    "load": loaded,
    "undo": noted("undo"),
    "wait": in_phase("clean"),
    "report": reporting,
    "twice": noted("confirmed"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_and_undone(containers: Containers, tmp_path: Path, moment: str) -> None:
    """The orchestrator may have carried out the order or not: the cluster is as it was found."""
    lab = containers.lab
    containers.clean()
    before, reached = state(containers), MOMENTS[moment]
    down = 30 if moment in ("undo", "wait", "report") else 600
    cycle = ContainerCycle(lab, tmp_path, {"recovery": {}}, warp=with_a_stop(1, before=3, down=down, after=3))
    for times in (1, 2) if moment == "twice" else (1,):
        assert cycle.broken_off(partial(reached, cycle, times), moment) != 0
    if moment in ("confirmed", "load", "twice"):
        assert not containers.osd(1)["up"]
        wait_for(lambda: "inactive" in containers.states("node1"), "the end of the container")
    if moment == "confirmed":
        # the container of the run goes away with the head's podman, as after a boot: an undo opens another one
        containers.sh(FIRST, f"podman rm -f {shells(containers)[0]}")
    undone = cycle.undo()
    assert undone.returncode == 0, undone.stderr
    assert containers.states("node1") == ["active", "active"]
    containers.clean()
    assert state(containers) == before
    if moment == "report":
        again = cycle.run()
        assert again.returncode == 0 and (cycle.folder / "report.html").exists(), again.stderr[-3000:]


def held_killed_and_undone(containers: Containers, held_fault: ContainerFault) -> None:
    """A run holds a fault and is killed; nothing but `cbt-tools undo` puts the cluster back."""
    before, folder = as_it_is(containers), containers.folder()
    assert not held_fault.in_force()
    running = held(containers, held_fault.statement, folder)
    wait_for(held_fault.in_force, f"the effect of {held_fault.statement}", 60.0)
    killed(containers, running)
    assert held_fault.in_force(), held_fault.statement
    done = containers.undo(folder)
    assert done.returncode == 0, (held_fault.statement, done.stderr[-3000:])
    # the mons and gateways of a node whose links were cut come back by themselves
    back = lambda: as_it_is(containers) == before  # noqa: E731
    wait_for(back, f"all as before {held_fault.statement}", moving=lambda: as_it_is(containers))
    containers.clean()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_undone_after_a_kill(containers: Containers, name: str) -> None:
    if name in BY_NFT and not shutil.which("nft"):
        pytest.skip("needs nft (Debian: nftables)")
    containers.clean()
    held_killed_and_undone(containers, FAULTS[name](containers))


def test_a_gateway_is_drained_before_it_is_stopped(containers: Containers) -> None:
    containers.clean()
    with balancing(containers) as admin_socket:
        drained_under_requests(containers, gateway_on(containers, containers.gateways[0]), admin_socket)
    containers.clean()


@pytest.fixture
def reads(containers: Containers) -> Iterator[None]:
    """A pool `reads`, which is read all the time."""
    with reading(containers):
        yield


def test_read_errors_are_undone_after_a_kill(containers: Containers, reads: None) -> None:
    """The undo of this release restarts the OSD, by the orchestrator: only so is its count of repairs cleared."""
    held_killed_and_undone(containers, osd_read_errors(containers))


def test_kinds_that_these_osds_cannot_have_are_refused(containers: Containers) -> None:
    """An OSD on a file in a container has no volume of LVM, and reports no disk."""
    replace = inject("replace", "osd.4", accept=(*ALL, "safe-to-destroy"), consent="osd.4 will be destroyed")
    slow_disk = inject("slow_disk", "osd.4")
    for statement, reason in ((replace, "has no logical volume"), (slow_disk, "does not report its disk")):
        (said,) = containers.run(
            containers.folder(),
            f"try: {statement.replace('injector.inject', 'injector.prepare')}; say(refused='')\n"
            "except FaultError as error: say(refused=str(error))",
        )
        assert reason in said["refused"], said


@pytest.fixture(scope="module")
def volume_osd(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VolumeOsd]:
    if not shutil.which("losetup"):
        pytest.skip("needs losetup (Debian: mount)")
    with osd_on_volumes(containers, tmp_path_factory.mktemp("volumes")) as osd:
        yield osd


@pytest.mark.parametrize("moment", REPLACEMENTS)
def test_an_osd_is_replaced_by_the_orchestrator(containers: Containers, volume_osd: VolumeOsd, moment: str) -> None:
    before, uuid = volume_osd.as_it_is(), containers.osd(volume_osd.number)["uuid"]
    REPLACEMENTS[moment](volume_osd)
    wait_for(lambda: volume_osd.as_it_is() == before, f"all as before, {moment}", moving=volume_osd.as_it_is)
    tags = {name: values["ceph.osd_fsid"] for name, values in volume_osd.tags().items()}
    assert set(tags.values()) == {containers.osd(volume_osd.number)["uuid"]}
    if moment != "begun":  # there the OSD may not have been destroyed yet
        assert uuid not in tags.values()
    containers.clean()


def test_a_crash_lasts_although_the_unit_would_start_again(containers: Containers) -> None:
    folder, unit = containers.folder(), containers.unit("osd.4")
    try:
        containers.run(folder, f"injector.acquire(); injector.inject({fault('f', 'crash', 'osd.4')})")
        shown = containers.sh("node3", f"systemctl show -p Restart -p ActiveState {unit}").split()
        assert "Restart=on-failure" in shown and {"ActiveState=failed", "ActiveState=inactive"} & set(shown)
    finally:
        undone = containers.undo(folder)
    assert undone.returncode == 0, undone.stderr
    assert containers.states("node3") == ["active", "active"] and containers.osd(4)["up"] == 1
    containers.clean()


def test_a_stop_on_order_does_not_come_after_its_undo(containers: Containers) -> None:
    """kill -9 when the orchestrator has its order and has done nothing yet: it pauses until the undo is at work."""
    folder = containers.folder()
    orders = "ceph log last 1000 info cephadm | grep -c 'Schedule .* daemon osd.4'"
    assert containers.lab.exec("node0", ["ceph", "orch", "pause"]).returncode == 0
    count = int(containers.sh("node0", orders))
    running = containers.start(folder, f"injector.acquire(); injector.inject({fault('f', 'stop', 'osd.4')})")
    try:
        wait_for(lambda: int(containers.sh("node0", orders)) > count, "the order")
        holder = containers.holder()
        containers.lab.exec("node0", ["kill", "-9", str(holder["pid"])])
        end_of(running)
        count = int(containers.sh("node0", orders))
        with ThreadPoolExecutor() as pool:
            try:
                undoing = pool.submit(containers.undo, folder)
                wait_for(lambda: int(containers.sh("node0", orders)) > count, "the order of the undo")
            finally:
                containers.lab.exec("node0", ["ceph", "orch", "resume"])
            done = undoing.result()
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()
    assert done.returncode == 0, done.stderr
    # every order is carried out when the orchestrator has looked at the node once more
    refreshed = ask(containers.lab, "orch ps")[0]["last_refresh"]
    wait_for(lambda: containers.ceph("orch ps --refresh")[0]["last_refresh"] > refreshed, "a look of the orchestrator")
    assert containers.states("node3") == ["active", "active"] and containers.osd(4)["up"] == 1
    assert containers.sh(FIRST, "ls /run/cbt-plugins/ | grep stopping") == ""
    containers.clean()


def test_an_upgrade_by_the_orchestrator_under_load(containers: Containers, tmp_path: Path) -> None:
    """The last test: there is no way back. The image comes from a registry, and no node has it before."""
    lab, new = containers.lab, cephadm_cluster.NEW
    cephadm_cluster.image(new)
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    serving = lab.lab.enter("node0", cephadm_cluster.registry(cephadm_cluster.REGISTRY.replace("node0", "")))
    registry = subprocess.Popen(serving, env={**os.environ, **lab.lab.environment()}, stderr=subprocess.DEVNULL)
    try:
        order = {"to": "18.2", "image": new.name, "timeout": "40m", "irreversible": True}
        load = {"duration": "10m", "mix": {"get": 60, "put": 30, "delete": 10}}
        load["events"] = [{"at": "10s", "upgrade": order}]
        settled = {"wait": {"clean": True, "at_most": "8m"}, "name": "clean"}
        phases = [{"fill": {"objects": 300}}, {"hybrid": load, "name": "load"}, settled]
        section = {"s3": S3, "engine": "cbt-load", "size": "16KiB", "workers": 4, "cycle": {"phases": phases}}
        cycle = ContainerCycle(lab, tmp_path, {"recovery": {}}, warp=section)
        done = cycle.run()
        assert done.returncode == 0, done.stderr[-3000:]
        (upgrade,) = cycle.summary()["upgrades"]
        print(json.dumps({key: upgrade[key] for key in ("from", "to", "versions", "complete", "outlasted")}))
        print(*(step["state"] for step in upgrade["steps"]), sep="\n")
        counts = {"mon": 3, "mgr": 2, "osd": 6, "rgw": 2}
        versions = {when: {type: {name: n} for type, n in counts.items()} for when, name in VERSIONS.items()}
        assert upgrade["versions"] == versions and upgrade["complete"]
        assert (upgrade["from"], upgrade["to"]) == (["16.2.15"], "18.2") and len(upgrade["steps"]) > 3
        assert all(new.name in row["container_image_name"] for row in containers.ceph("orch ps"))
        assert "Upgrade from 16.2.15 to 18.2" in (cycle.folder / "report.html").read_text()
        assert all(count["ok"] for count in cycle.phases()["load"]["accounting"])
    finally:
        registry.kill()
        registry.wait()
