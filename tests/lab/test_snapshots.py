"""Snapshots of a lab, and other releases in it, on a real cluster."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest
from releases import BRING, roots
from running_lab import lab_tool, need_machine
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, Topology
from cbt_plugins.tools.lab.installed_releases import release_of

pytestmark = pytest.mark.lab


@pytest.mark.long  # of the lab itself: two more clusters
def test_a_snapshot_brings_the_same_objects_back(tmp_path: Path) -> None:
    need_machine(1)
    where = ("--dir", str(tmp_path / "lab"), "--snapshots", str(tmp_path / "snapshots"))
    lab = Lab(tmp_path / "lab", say=lambda _: None)
    try:
        lab.up(Topology(1, 1, 0, 0), detach=False)
        write = "for i in 1 2 3 4 5 6; do echo {} $i | rados -p rbd put object$i -; done"
        lab.exec("node0", ["sh", "-c", write.format("old")], check=True)
        assert lab_tool("snapshot", *where, "aged").returncode == 0
        assert lab.running
        lab.exec("node0", ["sh", "-c", write.format("new")], check=True)
        # one of its six hashes is made wrong: the others must be right, and it must be seen
        record = tmp_path / "snapshots/aged/snapshot.json"
        record.write_text(re.sub(r'"sha256": "\w+"', f'"sha256": "{"0" * 64}"', record.read_text(), count=1))
        done = lab_tool("restore", *where, "aged")
        assert done.returncode == 1, done.stderr
        assert re.findall(r"object\d of pool rbd: (.+)", done.stderr) == ["other content"]
        assert lab.exec("node0", ["rados", "-p", "rbd", "get", "object3", "-"]).stdout == "old 3\n"
    finally:
        lab.down(wipe=True)


@pytest.mark.long
@pytest.mark.skipif(not roots(), reason=f"no other release: {BRING}")
def test_a_newer_release_opens_a_copy_and_daemons_are_switched_to_it(tmp_path: Path) -> None:
    need_machine(1)
    ours = release_of("/")
    newer = [root for root in roots() if ours < release_of(root) and not ours.refusal(release_of(root))]
    if not newer:
        pytest.skip(f"no release that Ceph upgrades {ours} to: {BRING}")
    where = ("--dir", str(tmp_path / "lab"), "--snapshots", str(tmp_path / "snapshots"))
    lab, version = Lab(tmp_path / "lab", say=lambda _: None), str(release_of(newer[0])).split()[0]

    def running() -> Dict[str, List[str]]:
        told = json.loads(lab.exec("node0", ["ceph", "versions", "-f", "json"], check=True).stdout)
        return {kind: [text.split()[2] for text in its] for kind, its in told.items() if its}

    try:
        lab.up(Topology(1, 1, 1, 0, bind=(newer[0],)), detach=False)
        lab.exec("node0", ["sh", "-c", "rados -p rbd put object /etc/os-release"], check=True)
        assert lab_tool("snapshot", *where, "old").returncode == 0
        for daemon, kind in (("mon.node0", "mon"), ("mgr.node0", "mgr"), ("osd.0", "osd")):
            done = lab_tool("switch", "--dir", str(tmp_path / "lab"), daemon, "--root", newer[0])
            assert done.returncode == 0, done.stderr
            wait_for(lambda kind=kind: running().get(kind) == [version], f"{kind} at {version}", 120)  # type: ignore[misc]
        assert lab.record.topology.root == newer[0]
        done = lab_tool("restore", *where, "old", "--root", newer[0])
        assert done.returncode == 0, done.stderr
        assert "upgrade complete" in done.stderr and "1 objects are as in snapshot old" in done.stderr
        wait_for(lambda: "rgw" in running(), "a gateway", 60)
        assert running()["rgw"] == [version]  # and none that the snapshot remembers
        assert lab_tool("snapshot", *where, "new").returncode == 0
        done = lab_tool("restore", *where, "new", "--root", "/")
        assert (done.returncode, "an older release" in done.stderr) == (2, True), done.stderr
        assert running()["osd"] == [version]
    finally:
        lab.down(wipe=True)


@pytest.mark.long
@pytest.mark.skipif(not roots(), reason=f"no other release: {BRING}")
def test_nodes_run_another_releases_binaries(tmp_path: Path) -> None:
    need_machine()
    root = roots()[0]
    script = "ceph versions; ceph health detail; pdsh -w node[1-3] cat /etc/os-release | grep VERSION_ID"
    shape = ("--osd-nodes", "3", "--osds-per-node", "1", "--rgws", "1", "--clients", "0")
    where = ("--dir", str(tmp_path / "lab"), "--root", root)
    done = lab_tool("run", *where, *shape, "--wipe", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    version = re.search(r'VERSION_ID="(\d+)"', Path(root, "etc/os-release").read_text())
    assert version
    assert done.stdout.count(f'VERSION_ID="{version[1]}"') == 3
    ours = subprocess.run(["ceph", "--version"], capture_output=True, text=True).stdout
    theirs = subprocess.run(["chroot", root, "ceph", "--version"], capture_output=True, text=True).stdout
    assert theirs != ours
    assert re.search(r"ceph version ([\d.]+)", theirs)[1] in done.stdout  # type: ignore[index]
    assert "\nHEALTH_OK" in done.stdout
    assert root not in Path("/proc/mounts").read_text()
