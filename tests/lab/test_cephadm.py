"""Runs and faults on a real cephadm cluster: bootstrap, containers, orchestrator; no Ceph installed on its nodes.

An hour and a half on two busy cores, and 3 GB of cache for the image:

    CBT_PLUGINS_LONG=1 python -m pytest tests/lab/test_cephadm.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterator

import cephadm_cluster
import pytest
from cephadm_volume import REPLACEMENTS, VolumeOsd, osd_on_volumes
from cluster_state import clean, facts, moving
from container_faults import BLKIO, BY_NFT, FAULTS, NODE, gateway_on, osd_read_errors, osd_slow_disk, reading
from container_lab import S3, ContainerCycle, Containers, container_lab
from container_runs import (
    held_killed_and_undone,
    hold_and_undo_each_kind,
    run_the_file_of_init,
    run_the_file_of_sites,
    run_with_an_osd_stopped,
    shells,
    with_a_stop,
)
from cycles import Cycle
from faulty import PowerController, fault
from test_daemon_faults import ALL, balancing, drained_under_requests, inject, state
from test_osdfailure import events, failure, happened
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

FIRST = cephadm_cluster.FIRST
#: of all daemons, before and after the last test
VERSIONS = {"before": cephadm_cluster.OLD.version, "after": cephadm_cluster.NEW.version}


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    with container_lab(cephadm_cluster.OLD, tmp_path_factory) as cluster:
        yield cluster


def test_a_cycle_with_an_osd_stopped(containers: Containers, tmp_path: Path) -> None:
    run_with_an_osd_stopped(containers, tmp_path)


def test_each_kind_has_its_effect_and_is_undone_after_a_kill(containers: Containers) -> None:
    hold_and_undo_each_kind(containers)


def test_init_writes_a_file_that_runs(containers: Containers, tmp_path: Path) -> None:
    run_the_file_of_init(containers, tmp_path)


def test_the_file_of_the_page_runs_to_its_report(containers: Containers, tmp_path: Path) -> None:
    run_the_file_of_sites(containers, tmp_path)


def test_osdfailure_to_its_report(containers: Containers, tmp_path: Path) -> None:
    """All OSDs of a host are stopped, and come back."""
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
    """The unit may have been stopped or not: the cluster is as it was found."""
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


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_undone_after_a_kill(containers: Containers, name: str) -> None:
    if name in BY_NFT and not shutil.which("nft"):
        pytest.skip("needs nft (Debian: nftables)")
    containers.clean()
    # the limit is for packets between OSDs, and has an effect only on packets that come faster
    with reading(containers, "write -b 65536 -t 4 --no-cleanup") if name == "rate" else nullcontext():
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
    """The undo of this release restarts the OSD: only so is its count of repairs cleared."""
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


def test_a_slow_disk_is_fast_again_after_a_kill(containers: Containers, volume_osd: VolumeOsd) -> None:
    """The data of the OSD is on a loop device, its database on another one."""
    if containers.lab.exec(NODE, ["sh", "-c", f"mkdir {BLKIO} && mount -t cgroup -o blkio none {BLKIO}"]).returncode:
        pytest.skip("needs blkio.throttle (control groups of version 1)")
    containers.clean()
    held_killed_and_undone(containers, osd_slow_disk(containers, volume_osd.number))
    containers.sh(NODE, f"umount {BLKIO} && rmdir {BLKIO}")


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


@pytest.mark.parametrize("kind", ["reboot", "power"])
def test_a_host_that_was_off_comes_back(containers: Containers, kind: str) -> None:
    """systemd starts its containers; the undo waits for its OSDs. The host has no volumes, which a boot would lose."""
    host, lab = "node2", containers.lab.lab
    containers.clean()
    before, controller = state(containers), PowerController(containers)
    switches = {verb: controller.command(verb, host) for verb in ("off", "on")} if kind == "power" else {}
    statement = f"{inject(kind, host, **switches)}; say(left=injector.undo_all())"
    running = containers.start(containers.folder(), f"injector.acquire(); {statement}; injector.release()")
    boots = [lab.spaces.first(host)]

    def over() -> bool:
        controller.carry_out()
        if kind == "reboot" and lab.spaces.first(host) is None:
            lab.boot(host)
            boots.append(lab.spaces.first(host))
        return running.poll() is not None

    try:
        wait_for(over, f"the end of {kind}", 300.0, lambda: (len(boots), controller.carried_out))
    finally:
        if running.poll() is None:
            running.kill()
        said = running.communicate()[0]
    assert running.returncode == 0 and '{"left": []}' in said, said
    assert controller.carried_out == (["off", "on"] if kind == "power" else [])
    assert len(boots) == (1 if kind == "power" else 2) and lab.spaces.first(host) != boots[0]
    assert all(containers.osd(osd)["up"] for osd in containers.lab.nodes[host].osds)
    back = lambda: state(containers) == before  # noqa: E731
    wait_for(back, f"all as before {kind}", moving=lambda: state(containers))
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
        # the OSD on volumes is there until the end of this file
        counts = {"mon": 3, "mgr": 2, "osd": len(containers.ceph("osd dump")["osds"]), "rgw": 2}
        versions = {when: {type: {name: n} for type, n in counts.items()} for when, name in VERSIONS.items()}
        assert upgrade["versions"] == versions and upgrade["complete"]
        assert (upgrade["from"], upgrade["to"]) == (["16.2.15"], "18.2") and len(upgrade["steps"]) > 3
        assert all(new.name in row["container_image_name"] for row in containers.ceph("orch ps"))
        assert "Upgrade from 16.2.15 to 18.2" in (cycle.folder / "report.html").read_text()
        assert all(count["ok"] for count in cycle.phases()["load"]["accounting"])
    finally:
        registry.kill()
        registry.wait()
