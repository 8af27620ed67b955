"""The undo of a replaced OSD on LVM, with programs that stand in for Ceph's on the node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.kinds.out_replace import volume_commands
from cbt_plugins.faults.scene import ClusterLimits, Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import FaultError, NoAnswer

#: the file `state` is "destroyed", "new", "gone" or "up", as the monitors see the OSD; "silent": they do not answer
CEPH = """#!/bin/sh
cd "$(dirname "$0")"
case "$2 $3 $(cat state)" in
  *silent) echo "[errno 13] RADOS permission denied" >&2; exit 1 ;;
  "tree destroyed destroyed") echo '{"nodes": [{"id": 3, "name": "osd.3"}]}' ;;
  "tree destroyed "*) echo '{"nodes": []}' ;;
  "new "*" destroyed" | "new "*" gone") [ "$4" = 3 ] && echo new > state ;;
  "destroy 3 new" | "destroy 3 destroyed") echo destroyed > state ;;
  *) exit 22 ;;
esac
"""
#: `fails` has what each failed attempt leaves: ceph-volume may end before it has cleaned up
VOLUME = """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> orders
case "$2 $(cat state) $(cat fails)" in
  zap*) ;;
  "create destroyed ") echo up > state ;;
  "create destroyed "*) head -n 1 fails > state; sed -i 1d fails; exit 1 ;;
  *) exit 22 ;;
esac
"""


BLOCK = {"type": "block", "vg_name": "vg", "lv_name": "osd-block-3", "tags": {"ceph.osd_fsid": "u"}}


def commands(volumes: List[Any], refusal: str = "") -> Any:
    """The commands for an OSD with these volumes, as ceph-volume lists them. `refusal`: of `ceph` on its node."""

    def ask(node: str, text: str, root: bool = False) -> str:
        if text.startswith("ceph ") and node == "node1" and refusal:
            raise NoAnswer(refusal)
        return json.dumps({"3": volumes})

    ceph: Any = SimpleNamespace(head="node0", command="ceph")
    scene: Any = SimpleNamespace(
        ceph=ceph,
        limits=ClusterLimits(),
        ask=ask,
        set=lambda *lines: Scene.set(scene, *lines),
        head="node0",
        facts=SimpleNamespace(osds={3: {"uuid": "u"}}),
    )
    return volume_commands(scene, "node1", Service(DaemonName("osd", "3"), "node1", "systemd", "ceph-osd@3.service"))


@pytest.fixture
def undo(tmp_path: Path) -> Any:
    """A function that runs the first command of the undo, with these programs, and returns its exit status."""
    for name, text in (("ceph", CEPH), ("ceph-volume", VOLUME), ("systemctl", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    command = commands([BLOCK, {"type": "db", "vg_name": "fast", "lv_name": "db-3", "tags": {}}])[1][0]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return lambda: subprocess.run(["sh", "-c", command.text], env=path, capture_output=True, check=False).returncode


@pytest.mark.parametrize("failures", [[], ["gone"], ["new", "gone"], ["destroyed"]])
def test_an_osd_that_could_not_be_made_is_made_by_the_next_attempt(
    failures: List[str], undo: Any, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("destroyed\n")
    (tmp_path / "fails").write_text("".join(f"{state}\n" for state in failures))
    for _ in failures:
        assert undo() != 0 and (tmp_path / "state").read_text() == "destroyed\n"
    assert undo() == 0 and (tmp_path / "state").read_text() == "up\n"
    orders = (tmp_path / "orders").read_text().splitlines()
    assert len(orders) == 2 * len(failures) + 2
    assert orders[-2:] == [
        "lvm zap vg/osd-block-3 fast/db-3",
        "lvm create --osd-id 3 --data vg/osd-block-3 --block.db fast/db-3",
    ]
    assert undo() == 0 and (tmp_path / "orders").read_text().splitlines() == orders  # nothing of an OSD that is there


def test_an_osd_with_a_partition_is_refused() -> None:
    """The path that ceph-volume tells is that of the time when the OSD was made: it may be another OSD's now."""
    db = {"type": "db", "path": "/dev/sdd1", "tags": {"PARTUUID": "p"}}
    with pytest.raises(FaultError, match=r"node1: osd\.3 uses /dev/sdd1, which is not on LVM"):
        commands([BLOCK, db])


@pytest.mark.parametrize("own_first", [True, False])
def test_only_the_volumes_of_the_osd_itself_are_wiped(own_first: bool) -> None:
    """Of a number, ceph-volume lists those of a purged OSD and of other clusters too."""
    other = {**BLOCK, "vg_name": "other", "tags": {"ceph.osd_fsid": "v"}}
    other_db = {"type": "db", "vg_name": "other", "lv_name": "db", "tags": {"ceph.osd_fsid": "v"}}
    inject, undo, former = commands([BLOCK, other, other_db] if own_first else [other_db, other, BLOCK])
    assert former["volumes"] == {"block": "vg/osd-block-3"}
    assert "other/" not in "".join(command.text for command in (*inject, *undo))
    with pytest.raises(FaultError, match=r"knows no block device of osd\.3 \(u\)"):
        commands([other])


def test_an_undo_that_cannot_ask_the_cluster_fails(undo: Any, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("silent\n")
    assert undo() != 0 and not (tmp_path / "orders").exists()


def test_a_node_on_which_ceph_does_not_work_is_refused() -> None:
    """Its undo creates the OSD there: without the keyring it would see no destroyed OSD. A later look may succeed."""
    refusal = "node1: ceph osd tree destroyed -f json: [errno 13] RADOS permission denied"
    with pytest.raises(NoAnswer, match=r"denied: to create osd\.3 again, root needs `ceph` and its keyring there"):
        commands([BLOCK], refusal)
