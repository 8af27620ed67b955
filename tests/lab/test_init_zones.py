"""`cbt-tools init` on clusters with two realms and two zones, of each release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest
from releases import RELEASES, home_of, root_of
from running_lab import PROJECT, RunningLab, need_machine
from test_init_on_lab import OF_RGW, STATE, state, tool
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: what a site does to get a second zone, which has a gateway of its own; the realm `west` is empty
SITE = (
    "realm create --rgw-realm=east --default",
    "zonegroup modify --rgw-zonegroup=default --rgw-realm=east --master --default --endpoints=http://rgw1:7480",
    "zone modify --rgw-zone=default --rgw-zonegroup=default --rgw-realm=east --master --default"
    " --endpoints=http://rgw1:7480",
    "period update --commit",
    "zone create --rgw-zone=far --rgw-zonegroup=default --rgw-realm=east --endpoints=http://rgw2:7480",
    "period update --commit",
    "realm create --rgw-realm=west",
)


@pytest.fixture(scope="module", params=RELEASES)
def zones(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab whose rgw1 serves the master zone, and rgw2 the zone `far`."""
    need_machine()
    root = root_of(request.param)
    base = tmp_path_factory.mktemp(f"zones-{request.param}")
    own = (sys.executable, PROJECT) if root == "/" else ("/usr/bin/python3", home_of(root, base))
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        shape = Topology(osd_nodes=1, clients=1, root=root, bind=(str(tmp_path_factory.getbasetemp()),))
        made.up(shape, detach=False)
        lab = RunningLab(made, [], *own)
        lines = [*(f"radosgw-admin {words}" for words in SITE), "ceph config set client.rgw2 rgw_zone far"]
        for line in lines:
            done = lab.exec("node0", line.split())
            assert done.returncode == 0, (line, done.stderr)
        for gateway in ("rgw1", "rgw2"):
            made.crash(gateway)
            made.boot(gateway)
        served = "ceph service dump | grep -c '\"zone_name\": \"far\"'"
        wait_for(lambda: lab.exec("node0", ["sh", "-c", served]).stdout.strip() == "1", "the gateway of the zone far")
        yield lab
    finally:
        made.down(wipe=True)


def test_realms_and_zones_are_said(zones: RunningLab, tmp_path: Path) -> None:
    file, before = tmp_path / "my.yaml", state(zones, *STATE, *OF_RGW)
    done = tool(zones, "init", "--head", "node0", "--clients", "client1", "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert state(zones, *STATE, *OF_RGW) == before
    for text in (
        "2 realms: east, west; the file uses default/default",
        "2 zones: default, far; the file uses default/default",
        "not in the file: gateways of other zones: far",
    ):
        assert f"Warning: {text}" in done.stderr, done.stderr
    assert "urls: ['http://rgw1:7480']" in file.read_text()
    live = tool(zones, "plan", "--live", str(file))
    assert live.returncode == 0, live.stdout + live.stderr


def test_a_zone_that_is_not_the_master_is_said(zones: RunningLab, tmp_path: Path) -> None:
    default = ["radosgw-admin", "zone", "default", "--rgw-realm=east"]
    file = tmp_path / "my.yaml"
    assert zones.exec("node0", [*default, "--rgw-zone=far"]).returncode == 0
    try:
        done = tool(zones, "init", "--head", "node0", "--clients", "client1", "-o", str(file))
    finally:
        zones.exec("node0", [*default, "--rgw-zone=default"])
    assert done.returncode == 0, done.stderr
    text = "zone far is not the master zone, which is zone default: only the master makes users"
    assert f"Warning: {text}" in done.stderr, done.stderr
    assert "urls: ['http://rgw2:7480']" in file.read_text()
