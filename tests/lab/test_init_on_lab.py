"""`cbt-tools init` on clusters of each release: it changes nothing, its file plans, and one is run to a report."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest
import yaml
from cycles import IN_HOME, Cycle
from running_lab import PROJECT, RunningLab

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: of a cluster that nobody uses, these stay as they are
STATE = ("ceph config-key ls", "ceph config dump", "ceph osd pool ls detail", "ceph auth ls")
OF_RGW = ("radosgw-admin metadata list user", "radosgw-admin bucket list", "radosgw-admin zonegroup get")


def tool(lab: RunningLab, *words: str) -> subprocess.CompletedProcess[str]:
    line = [lab.python, "-m", "cbt_plugins.tools", *words]
    return lab.exec("node0", ["sh", "-c", IN_HOME, str(lab.home), *line])


def state(lab: RunningLab, *questions: str) -> Dict[str, str]:
    return {question: lab.exec("node0", question.split()).stdout for question in questions}


def test_a_file_for_a_cluster_of_each_release(of_release: RunningLab, tmp_path: Path) -> None:
    lab, file = of_release, tmp_path / "my.yaml"
    before = state(lab, *STATE, *OF_RGW)
    done = tool(lab, "init", "--head", "node0", "--clients", "client1,client2", "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert state(lab, *STATE, *OF_RGW) == before
    assert done.stderr == "" and "written: " in done.stdout and "Run 1 of 1: rgwtest" in done.stdout
    data = yaml.safe_load(file.read_text())
    assert data["cluster"]["osds"] == ["node1", "node2", "node3", "node4"]
    assert [data["cluster"][key] for key in ("mons", "rgws", "mgrs")] == [["node0"], ["rgw1", "rgw2"], ["node0"]]
    section = data["benchmarks"]["rgwtest"]
    assert section["s3"] == {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "user": "cbt-plugins"}
    live = tool(lab, "plan", "--live", str(file))
    assert live.returncode == 0, live.stderr
    assert "every node, endpoint and key, is ready for a run" in live.stdout
    file.write_text(re.sub(r"fill: {.*?}", "fill: {objects: 1000000000}", file.read_text()))
    full = tool(lab, "plan", "--live", str(file))
    assert full.returncode == 0, full.stderr
    assert re.search(r"warning: fill: writes .+iB of objects, but .+ (can hold at most|is) .+iB", full.stdout)

    again = tool(lab, "init", "--head", "node0", "-o", str(file))
    assert again.returncode == 2 and "the file exists" in again.stderr


def test_a_file_is_run_to_a_report(lab: RunningLab, tmp_path: Path) -> None:
    """By https, as a user whom the run makes; only the lengths of the phases are other ones."""
    cycle = Cycle(lab, tmp_path)
    cycle.file.unlink()
    words = ("--head", "root@node0", "--clients", "client1", "--clients", "client2", "-o", str(cycle.file))
    done = tool(lab, "init", *words, "--ca-file", "/etc/ceph/rgw-ca.pem")
    assert done.returncode == 0, done.stderr
    text = cycle.file.read_text()
    text, filled = re.subn(r"fill: {.*?}", "fill: {objects: 40}", text)
    text, timed = re.subn(r"duration: \d+m", "duration: 4s", text)
    assert (filled, timed) == (1, 2)
    cycle.file.write_text(text)
    ended = cycle.run()
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {phase["status"] for phase in cycle.phases().values()} == {"ok"}
    assert "cbt-plugins" not in lab.exec("node0", ["radosgw-admin", "metadata", "list", "user"]).stdout
    report = [sys.executable, "-m", "cbt_plugins.tools", "report", str(cycle.archive)]
    shown = subprocess.run(report, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0 and "measure-aged" in shown.stdout, shown.stderr


def test_what_a_cluster_is_not_fit_for_is_said(lab: RunningLab, tmp_path: Path) -> None:
    """A load balancer, a second zone, a flag, a node that does not exist; and a user without keys."""
    admin = ["radosgw-admin", "zonegroup", "modify", "--rgw-zonegroup=default"]
    lab.exec("node0", ["ceph", "osd", "set", "noout"])
    lab.exec("node0", [*admin, "--endpoints=http://lb.example:80,http://rgw1:7480"])
    lab.exec("node0", ["radosgw-admin", "zone", "create", "--rgw-zone=far", "--rgw-zonegroup=default"])
    try:
        words = ("--head", "node0", "--clients", "client1,nobody1", "-o")
        done = tool(lab, "init", *words, str(tmp_path / "my.yaml"))
        assert done.returncode == 0, done.stderr
        comments = " ".join((tmp_path / "my.yaml").read_text().replace("\n#  ", "").split())
        for text in (
            "the cluster is HEALTH_WARN: OSDMAP_FLAGS: noout flag(s) set",
            "nobody1 cannot be reached: ",
            "a load balancer is in front of the gateways: http://lb.example:80; ",
            "2 zones: default, far; the file uses default/default",
        ):
            assert f"Warning: {text}" in done.stderr, done.stderr
            assert f"# WARNING: {text}" in comments
        assert "clients: [client1, nobody1] # EDIT: cannot be reached: nobody1" in comments
    finally:
        lab.exec("node0", ["ceph", "osd", "unset", "noout"])
        lab.exec("node0", ["radosgw-admin", "zone", "delete", "--rgw-zone=far"])
        lab.exec("node0", ["radosgw-admin", "zonegroup", "remove", "--rgw-zonegroup=default", "--rgw-zone=far"])
        lab.exec("node0", [*admin, "--endpoints="])
    for words, text in (
        (("--head", "node0", "--user", "nobody"), "RGW user 'nobody' not found"),
        (("--head", "nowhere"), "head nowhere: ssh: "),
        (("--head", "nobody@client1"), "head client1: "),
    ):
        done = tool(lab, "init", *words, "-o", str(tmp_path / "none.yaml"))
        assert done.returncode == 1 and text in done.stderr, done.stderr
    assert not (tmp_path / "none.yaml").exists()


def test_a_cluster_without_gateways_stays_without_pools_of_rgw(tmp_path: Path) -> None:
    """`radosgw-admin` makes pools when it is first asked, so nobody may ask it there."""
    made = Lab(tmp_path / "lab", say=lambda text: None)
    try:
        made.up(Topology(osd_nodes=1, rgws=0, clients=1, bind=(str(tmp_path),)), detach=False)
        lab = RunningLab(made, [])
        pools = lab.exec("node0", ["ceph", "osd", "pool", "ls"]).stdout
        done = tool(lab, "init", "--head", "node0", "-o", str(tmp_path / "my.yaml"))
        assert done.returncode == 1 and "shows no running gateway (radosgw)" in done.stderr
        assert lab.exec("node0", ["ceph", "osd", "pool", "ls"]).stdout == pools and "rgw" not in pools
        keyring = made.dir / "etc" / "ceph" / "keyring"
        keyring.rename(keyring.with_name("away"))
        done = tool(lab, "init", "--head", "node0", "-o", str(tmp_path / "my.yaml"))
        assert done.returncode == 1 and "needs /etc/ceph/ceph.conf and a keyring" in done.stderr
        assert not (tmp_path / "my.yaml").exists()
    finally:
        made.down(wipe=True)
