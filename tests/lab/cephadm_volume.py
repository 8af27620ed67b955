"""An OSD of cephadm on logical volumes, as the orchestrator makes it, in a node without a device mapper.

LVM works on its metadata alone (`activation = 0`): volumes have names, sizes and tags as everywhere. Where the device
mapper would put the device of a volume is a loop device, which begins at the first byte of the volume on the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

from faulty import Faulty
from test_daemon_faults import ALL, inject, state
from waiting import wait_for

NODE = "node3"
#: of the orchestrator, which manages it: it makes OSDs on these volumes by itself when it can
SERVICE = "volumes"
DEVICES = {"data_devices": "data", "db_devices": "db"}
#: the volumes and their sizes in GiB
PARTS = {"data": 5, "db": 1}
GIB, FIRST_EXTENT = 1 << 30, 1 << 20
#: of the node: $1 its volume group, $2 the disk's MAJOR MINOR. The containers of OSDs have the node's /run/lvm
_PREPARE = """set -e
cat > /run/lvm/lvm.conf <<END
global { activation = 0 }
devices { filter = ["a|^/dev/replaced-disk$|", "r|.*|"] obtain_device_list_from_udev = 0
  external_device_info_source = "none" use_devicesfile = 0 }
backup { backup = 0 archive = 0 }
END
mount --bind /run/lvm /etc/lvm
sed -i '/^env = /d; /^.containers.$/a env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", \
"TERM=xterm", "LVM_SYSTEM_DIR=/run/lvm"]' /etc/containers/containers.conf
mknod /dev/replaced-disk b $2
pvcreate -q /dev/replaced-disk; vgcreate -q "$1" /dev/replaced-disk; mkdir "/dev/$1"
"""
#: $1 volume group, $2 name, $3 GiB, $4 MAJOR MINOR
_VOLUME = 'set -e; lvcreate -q -y -an -Zn -Wn -L "${3}g" -n "$2" "$1"; mknod "/dev/$1/$2" b $4'


class VolumeOsd(NamedTuple):
    """An OSD with its data and its database on volumes of a group."""

    containers: Faulty
    number: int
    group: str

    def sh(self, text: str) -> str:
        return run_in(self.containers, NODE, text)

    def tags(self) -> Dict[str, Dict[str, str]]:
        """Volume -> its tags."""
        listing = json.loads(self.sh(f"lvs --reportformat json -o lv_name,lv_tags {self.group}"))
        rows = listing["report"][0]["lv"]
        return {row["lv_name"]: dict(tag.partition("=")[::2] for tag in row["lv_tags"].split(",")) for row in rows}

    def row(self) -> List[Dict[str, Any]]:
        """Of the orchestrator."""
        answer = run_in(self.containers, "node0", f"ceph orch ps --daemon_type osd --daemon_id {self.number} -f json")
        return json.loads(answer) if answer.startswith("[") else []

    def map_state(self) -> List[str]:
        dump = self.containers.ceph("osd dump")
        return sorted(next(osd["state"] for osd in dump["osds"] if osd["osd"] == self.number))

    def as_it_is(self) -> Dict[str, Any]:
        """All that the fault may change, but the UUID of an OSD that was destroyed."""
        tree = self.containers.ceph("osd tree")["nodes"]
        keys = ("id", "name", "children", "crush_weight", "device_class")
        places = sorted((tuple(entry.get(key) for key in keys) for entry in tree), key=str)
        volatile = ("osd_fsid", "block_uuid", "db_uuid")
        tags = {
            name: {key: value for key, value in values.items() if not key.endswith(volatile)}
            for name, values in self.tags().items()
        }
        rows = [(row["hostname"], row["service_name"], row["status_desc"]) for row in self.row()]
        return {**state(self.containers), "tree": places, "tags": tags, "orchestrator": rows}


def run_in(containers: Faulty, node: str, text: str) -> str:
    done = containers.lab.exec(node, ["sh", "-c", text])
    assert done.returncode == 0, (text, done.stderr[-3000:])
    return done.stdout.strip()


def loop(file: Path, offset: int = 0, size: int = 0) -> str:
    words = ["losetup", "--find", "--show", "--offset", str(offset), "--sizelimit", str(size), str(file)]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.strip()


def numbers(device: str) -> str:
    number = os.stat(device).st_rdev
    return f"{os.major(number)} {os.minor(number)}"


@contextmanager
def osd_on_volumes(containers: Faulty, base: Path) -> Iterator[VolumeOsd]:
    """Let the orchestrator make an OSD on volumes of NODE; remove the OSD and the volumes in the end."""
    group, disk = f"cbt-plugins-{os.getpid()}", base / "disk"
    with open(disk, "wb") as file:
        file.truncate((sum(PARTS.values()) + 1) * GIB)

    def in_node(script: str, *words: str) -> None:
        done = containers.lab.exec(NODE, ["sh", "-c", script, "sh", group, *words])
        assert done.returncode == 0, done.stderr[-3000:]

    with ExitStack() as stack:

        def device(offset: int = 0, size: int = 0) -> str:
            made = loop(disk, offset, size)
            stack.callback(subprocess.run, ["losetup", "--detach", made], check=True)
            return numbers(made)

        stack.callback(disk.unlink)
        in_node(_PREPARE, device())
        first = FIRST_EXTENT
        for name, gib in PARTS.items():
            in_node(_VOLUME, name, str(gib), device(first, gib * GIB))
            first += gib * GIB
        before = {osd["osd"] for osd in containers.ceph("osd dump")["osds"]}

        def new_osds() -> List[int]:
            return [osd["osd"] for osd in containers.ceph("osd dump")["osds"] if osd["osd"] not in before and osd["up"]]

        spec = {part: {"paths": [f"/dev/{group}/{name}"]} for part, name in DEVICES.items()}
        service = {"service_type": "osd", "service_id": SERVICE, "placement": {"hosts": [NODE]}, "spec": spec}
        applied = containers.lab.exec("node0", ["ceph", "orch", "apply", "-i", "-"], input=json.dumps(service))
        assert applied.returncode == 0, applied.stderr
        (number,) = wait_for(new_osds, "an OSD of the service", 300.0)
        osd = VolumeOsd(containers, number, group)
        try:
            wait_for(lambda: osd.row() and osd.row()[0]["status_desc"] == "running", f"osd.{number} running")
            containers.clean()
            yield osd
        finally:
            remove = f"ceph orch rm osd.{SERVICE} --force; ceph orch daemon rm osd.{number} --force"
            run_in(containers, "node0", f"{remove}; ceph osd purge {number} --yes-i-really-mean-it")
            containers.lab.exec(NODE, ["sh", "-c", "umount /etc/lvm"])


def replaced(osd: VolumeOsd, killed_at: str) -> None:
    """Replace the OSD, kill the run when its journal has an event, and undo what it has left."""
    containers, name = osd.containers, f"osd.{osd.number}"
    statement = inject("replace", name, accept=(*ALL, "safe-to-destroy"), consent=f"{name} will be destroyed")
    folder, then = containers.folder(), "injector.undo_all()" if killed_at == "undo" else "hold()"
    running = containers.start(folder, f"injector.acquire(); {statement}; {then}")
    containers.await_event(folder, running, killed_at)
    containers.end_by_kill(running)
    if killed_at == "confirmed":
        assert osd.map_state() == ["destroyed", "exists"]
    done = containers.undo(folder)
    assert done.returncode == 0, done.stderr[-3000:]


def replaced_by_two_undos(osd: VolumeOsd) -> None:
    """Kill the undo when the orchestrator has removed the daemon, and has made no OSD yet."""
    containers, name = osd.containers, f"osd.{osd.number}"
    statement = inject("replace", name, accept=(*ALL, "safe-to-destroy"), consent=f"{name} will be destroyed")
    folder = containers.folder()
    containers.run(folder, f"injector.acquire(); {statement}")
    undoing = containers.start(folder, "injector.acquire(); injector.undo_all()")
    wait_for(lambda: not osd.row(), "the daemon removed", 300.0)
    containers.end_by_kill(undoing)
    assert osd.map_state() == ["destroyed", "exists"]
    done = containers.undo(folder)
    assert done.returncode == 0, done.stderr[-3000:]


#: when a run that replaces an OSD, or its undo, is killed
REPLACEMENTS: Dict[str, Callable[[VolumeOsd], None]] = {
    **{moment: partial(replaced, killed_at=moment) for moment in ("begun", "injected", "confirmed", "undo")},
    "daemon removed": replaced_by_two_undos,
}
