"""Faults of an OSD on a volume of LVM, under systemd, as on clusters of packages: `replace`, and `slow_disk` by io.max.

Its disk is a loop device. Where the kernel has no device mapper: tests/uml -v tests/lab/test_volumes.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from cluster_state import ask
from faulty import BUSY, Faulty
from running_lab import RunningLab, need_systemd
from waiting import end_of, wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODE, OSD, UNIT = "node3", 3, "ceph-osd@3.service"
PROGRAMS = ("lvcreate", "losetup", "dmsetup", "udevadm", "ceph-volume")
ACCEPT = (*BUSY, "inactive", "domain", "data", "ok-to-stop", "safe-to-destroy")
REPLACE = (
    f"injector.inject(Fault('f', 'replace', ('osd.{OSD}',), accept={ACCEPT!r}, "
    f"options={{'consent': 'osd.{OSD} will be destroyed'}}))"
)
SLOW = f"injector.inject(Fault('f', 'slow_disk', ('osd.{OSD}',), accept={ACCEPT!r}, options={{'iops': 5}}))"
#: $1 loop device, $2 its numbers, $3 number of the device mapper, $4 volume group: an OSD as ceph-volume makes it. A
#: node has no udev
MAKE = """set -e
mkdir -p /dev/mapper /run/lvm /run/lock/lvm /run/lvm.conf.d
mknod "$1" b $2; mknod /dev/mapper/control c 10 "$3"
cat > /run/lvm.conf.d/lvm.conf <<END
devices { filter = ["a|$1|", "r|.*|"] obtain_device_list_from_udev = 0 external_device_info_source = "none" }
activation { udev_sync = 0 udev_rules = 0 verify_udev_operations = 0 }
backup { backup = 0 archive = 0 }
END
mount --bind /run/lvm.conf.d /etc/lvm
pvcreate -q "$1"; vgcreate -q "$4" "$1"; lvcreate -q -y -W n -l 100%FREE -n data "$4"
printf '[osd.3]\\nkeyring = /var/lib/ceph/osd/ceph-3/keyring\\n' >> /etc/ceph/ceph.conf
mkdir -p /var/lib/ceph/bootstrap-osd
ceph auth get client.bootstrap-osd -o /var/lib/ceph/bootstrap-osd/ceph.keyring
ceph-volume lvm create --data "$4/data"
"""


class Volumes(Faulty):
    """A lab with an OSD on a volume."""

    def sh(self, text: str) -> str:
        """What a command of the node prints."""
        done = self.lab.exec(NODE, ["sh", "-c", text])
        assert done.returncode == 0, (text, done.stderr[-3000:])
        return done.stdout.strip()

    def volume(self) -> Dict[str, Any]:
        """The volume of the OSD, as ceph-volume has labelled it."""
        ((entry,),) = [json.loads(self.sh(f"ceph-volume lvm list {OSD} --format json"))[str(OSD)]]
        return {"path": entry["lv_path"], "uuid": entry["tags"]["ceph.osd_fsid"]}

    def limits(self) -> str:
        """What io.max of its unit says."""
        return self.sh(f'cat "/sys/fs/cgroup$(systemctl show -p ControlGroup --value {UNIT})/io.max"')

    def as_it_is(self) -> Dict[str, Any]:
        """All that these kinds may change, but the UUID of an OSD that was destroyed."""
        dump, config, tree, keys = (
            self.ceph(words) for words in ("osd dump", "config dump", "osd tree", "config-key dump cbt-plugins")
        )
        places = sorted((node["id"], node["name"], node.get("children"), node.get("status")) for node in tree["nodes"])
        osds: List[Any] = [(o["osd"], o["up"], o["in"], o["weight"], sorted(o["state"])) for o in dump["osds"]]
        return {
            "osds": osds,
            "tree": places,
            "flags": dump["flags_set"],
            "config": config,
            "keys": keys,
            "volume": self.volume()["path"],
            "limits": self.limits(),
            "unit": self.sh(f"systemctl is-active {UNIT}; systemctl --failed --no-legend"),
            "at boot": self.sh(f"find /etc/systemd/system -name 'ceph-volume@lvm-{OSD}-*' | wc -l"),
        }

    def killed_and_undone(self, statement: str, moment: str) -> None:
        """Kill a run when its journal has the event `moment`, and undo it."""
        then = "injector.undo_all()" if moment == "undo" else "hold()"
        folder = self.folder()
        running = self.start(folder, f"injector.acquire(); {statement}; {then}")
        self.await_event(folder, running, moment)
        self.lab.exec("node0", ["kill", "-9", str(self.holder()["pid"])])
        end_of(running)
        assert running.stdout is not None
        running.stdout.close()
        done = self.undo(folder)
        assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volumes]:
    need_systemd()
    absent = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if absent:
        pytest.skip(f"no OSD on a volume, missing {', '.join(absent)} (packages lvm2, udev, ceph-volume, mount)")
    mapper = [line.split()[0] for line in Path("/proc/misc").read_text().splitlines() if "device-mapper" in line]
    if not mapper:
        pytest.skip("this kernel has no device mapper: tests/uml -v tests/lab/test_volumes.py")
    base = tmp_path_factory.mktemp("volumes")
    group = f"cbt-plugins-{os.getpid()}"
    disk = base / "disk"
    with open(disk, "wb") as file:
        file.truncate(6 << 30)
    loop = run("losetup", "--find", "--show", str(disk))
    lab = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        shape = Topology(
            osd_nodes=3, osds_per_node=1, rgws=0, clients=0, out_interval=600, bind=(str(base),), systemd=(NODE,)
        )
        lab.up(shape, detach=False)
        made = Volumes(RunningLab(lab, []), base)
        numbers = os.stat(loop).st_rdev
        words = [loop, f"{os.major(numbers)} {os.minor(numbers)}", *mapper, group]
        done = made.lab.exec(NODE, ["sh", "-c", MAKE, "sh", *words])
        assert done.returncode == 0, done.stderr[-3000:]
        made.sh(f"systemctl set-property --runtime {UNIT} IOAccounting=yes")
        wait_for(lambda: made.osd(OSD)["up"], "osd.3 up")
        made.clean()
        yield made
    finally:
        mapped = f"{group.replace('-', '--')}-data"
        try:
            lab.down(wipe=True)
            if mapped in run("dmsetup", "ls"):
                run("dmsetup", "remove", mapped)
        finally:
            run("losetup", "--detach", loop)


def run(*argv: str) -> str:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("moment", ["begun", "injected", "confirmed", "undo"])
def test_a_replaced_osd_is_made_again_on_its_volume(volumes: Volumes, moment: str) -> None:
    before, uuid = volumes.as_it_is(), volumes.osd(OSD)["uuid"]
    volumes.killed_and_undone(REPLACE, moment)
    wait_for(lambda: volumes.as_it_is() == before, "all as before", moving=volumes.as_it_is)
    assert volumes.osd(OSD)["uuid"] == volumes.volume()["uuid"]
    if moment != "begun":  # there the OSD may not have been destroyed yet
        assert volumes.osd(OSD)["uuid"] != uuid
    volumes.clean()


def test_a_replaced_osd_is_seen_to_be_destroyed(volumes: Volumes) -> None:
    folder = volumes.folder()
    volumes.run(folder, f"injector.acquire(); {REPLACE}")
    state = next(osd["state"] for osd in ask(volumes.lab, "osd dump")["osds"] if osd["osd"] == OSD)
    assert "destroyed" in state and volumes.sh(f"systemctl is-active {UNIT} || true") == "inactive"
    done = volumes.undo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    volumes.clean()


@pytest.mark.parametrize("moment", ["begun", "confirmed", "undo"])
def test_the_disk_of_a_unit_is_as_fast_as_before(volumes: Volumes, moment: str) -> None:
    before = volumes.as_it_is()
    assert before["limits"] == ""
    volumes.killed_and_undone(SLOW, moment)
    wait_for(lambda: volumes.as_it_is() == before, "all as before", moving=volumes.as_it_is)
    volumes.clean()


def test_a_slow_disk_is_limited_by_its_unit(volumes: Volumes) -> None:
    """The effect that counts is the time of a direct read, which the injector takes; here is what the kernel says."""
    folder = volumes.folder()
    said = volumes.run(folder, f"injector.acquire(); {SLOW}")
    assert "by io.max of the unit" in next(line for line in said if line.get("event") == "fault-injected")["steps"][0]
    assert volumes.limits().endswith(" rbps=max wbps=max riops=5 wiops=5")
    done = volumes.undo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert volumes.limits() == ""
    volumes.clean()
