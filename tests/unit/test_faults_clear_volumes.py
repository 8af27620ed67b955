"""The clearing of the volumes of a destroyed OSD, on its node, with stand-ins of LVM's programs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import List

import pytest

from cbt_plugins.faults.node_shell import script_text

UUID = "0b8f1a5e-5c1e-4b0f-8d0c-6a52e4f5a1c3"
TAGS = f"ceph.osd_id=3,ceph.osd_fsid={UUID},ceph.cluster_fsid=4f1c7d52-90c4-4b7e-9d0e-1b1f4f3d5e2a"

#: tags of volumes are in files of the folder `tags`
_LVS = 'for v; do :; done; cat "{0}/tags/${{v##*/}}" 2>/dev/null || {{ echo no volume >&2; exit 5; }}'
_LVCHANGE = 'echo "lvchange $*" >> {0}/orders; for v; do :; done; echo > "{0}/tags/${{v##*/}}"'
_WIPEFS = 'echo "wipefs $*" >> {0}/orders; [ ! -e {0}/busy ]'
_DD = 'echo "dd $*" >> {0}/orders; case "$*" in *seek=10240*) exit 1 ;; esac'


class Node:
    """A node with stand-ins of LVM's programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = {"lvs": _LVS, "lvchange": _LVCHANGE, "wipefs": _WIPEFS, "dd": _DD}
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{text.format(folder)}\n")
            (folder / name).chmod(0o755)
        (folder / "tags").mkdir()
        (folder / "orders").touch()
        self.tag("lv", f"  {TAGS},ceph.type=block,of-the-user\n")

    def tag(self, volume: str, tags: str) -> None:
        (self.folder / "tags" / volume).write_text(tags)

    def clear(self, *volumes: str) -> subprocess.CompletedProcess[str]:
        values = {"folder": self.folder / "osd.3", "osd_fsid": UUID, "volumes": " ".join(volumes)}
        line = ["sh", "-c", script_text("clear_volumes", **values)]
        path = {"PATH": f"{self.folder}:/usr/bin:/bin"}
        return subprocess.run(line, env=path, capture_output=True, text=True, check=False)

    @property
    def orders(self) -> List[str]:
        return (self.folder / "orders").read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_volumes_are_cleared_once_and_lose_their_tags_last(node: Node) -> None:
    assert node.clear("vg/lv").returncode == 0
    wipe, *zeros, change = node.orders
    assert wipe == "wipefs --all --quiet /dev/vg/lv"
    places = [order.partition("seek=")[2].split(" conv")[0] for order in zeros]
    assert places == ["0 count=10", "1024 count=1", "10240 count=1"]
    tags = f"--deltag {TAGS.replace(',', ' --deltag ')} --deltag ceph.type=block"
    assert change == f"lvchange --quiet {tags} vg/lv"
    assert node.clear("vg/lv").returncode == 0 and len(node.orders) == 5


def test_nothing_is_cleared_while_cephadm_has_the_daemon(node: Node) -> None:
    (node.folder / "osd.3").mkdir()
    assert node.clear("vg/lv").returncode == 0 and node.orders == []


def test_a_volume_of_another_osd_is_not_cleared(node: Node) -> None:
    node.tag("lv", f"  {TAGS.replace(UUID, 'a-new-one')}\n")
    assert node.clear("vg/lv").returncode == 0 and node.orders == []


def test_a_busy_volume_keeps_its_tags(node: Node) -> None:
    (node.folder / "busy").touch()
    assert node.clear("vg/lv").returncode == 1 and node.orders == ["wipefs --all --quiet /dev/vg/lv"]


def test_a_volume_that_is_gone_does_not_keep_others(node: Node) -> None:
    done = node.clear("vg/gone", "vg/lv")
    assert (done.returncode, done.stderr) == (5, "no volume\n")
    assert node.orders[-1].startswith("lvchange ")
