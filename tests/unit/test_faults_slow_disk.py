"""The limits of an OSD's disk in version 2 of control groups: a file stands for `io.max`, which is not everywhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cbt_plugins.faults.cluster_lock import started
from cbt_plugins.faults.kind import make
from cbt_plugins.faults.kinds.disk import SlowDisk
from cbt_plugins.faults.node_shell import script_text

SDB, SDC = "8:16", "8:32"


def call(action: str, group: Path, **values: object) -> subprocess.CompletedProcess[str]:
    process = f"{os.getpid()}:{started(os.getpid())}"
    own = {"name": "n", "process": process, "how": "v2", "group": group, "join": group, "numbers": f"{SDB} {SDC}"}
    text = script_text("slow_disk", action=action, **{**own, **values})
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"iops": 20}, f"{SDC} riops=20 wiops=20"),
        ({"iops": 0, "bps": 1000}, f"{SDC} rbps=1000 wbps=1000"),
        ({"iops": 9, "bps": 8}, f"{SDC} riops=9 wiops=9 rbps=8 wbps=8"),
    ],
)
def test_the_limits_of_each_disk_are_one_line(tmp_path: Path, limits: dict, line: str) -> None:  # type: ignore[type-arg]
    assert call("set", tmp_path, **limits).returncode == 0
    assert (tmp_path / "io.max").read_text() == f"{line}\n"  # a file keeps the last of what the kernel would collect


def test_a_former_limit_is_set_back_and_none_is_max(tmp_path: Path) -> None:
    former = f"{SDC} rbps=5 wbps=max riops=max wiops=max"
    (tmp_path / "io.max").write_text("")
    assert call("unset", tmp_path, former=former).returncode == 0
    assert (tmp_path / "io.max").read_text() == f"{former}\n"
    assert call("unset_seen", tmp_path, former=former).stdout == "recovered\n"
    assert call("unset_seen", tmp_path, former="").stdout == ""
    assert call("unset", tmp_path).returncode == 0
    assert (tmp_path / "io.max").read_text() == f"{SDC} rbps=max wbps=max riops=max wiops=max\n"


def test_a_disk_that_is_gone_has_no_limit(tmp_path: Path) -> None:
    """The kernel refuses its number (ENODEV), as a folder refuses every text here; a disk that is there is an error."""
    (tmp_path / "io.max").mkdir()
    there = next(iter(sorted(path.name for path in Path("/sys/dev/block").iterdir())), None)
    assert call("unset", tmp_path, numbers="4095:7").returncode == 0
    assert there is None or call("unset", tmp_path, numbers=f"4095:7 {there}").returncode == 1


def test_a_unit_that_is_gone_has_no_limits(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert call("unset", gone).returncode == 0 and call("unset_seen", gone).stdout == "recovered\n"


def test_another_process_of_the_same_number_is_left_alone(tmp_path: Path) -> None:
    done = call("set", tmp_path, iops=20, process=f"{os.getpid()}:1")
    assert done.returncode == 1 and "has ended" in done.stderr and not list(tmp_path.iterdir())


def test_a_file_on_another_disk_is_not_the_data_of_the_osd(tmp_path: Path) -> None:
    """An OSD whose database is on a disk of its own has files open on both."""
    disks = [path for path in sorted(Path("/sys/block").iterdir()) if os.access(f"/dev/{path.name}", os.R_OK)]
    if len(disks) < 2:
        pytest.skip("needs two block devices that this user may read")
    opened, closed = disks[:2]
    with open(f"/dev/{opened.name}", "rb"):
        look = {"numbers": "", "iops": 20}
        done = call("look", tmp_path, disks=closed.name, **look)
        assert done.returncode == 1 and f"has no file open on {closed.name}" in done.stderr
        # what follows depends on the control groups of the machine
        assert "no file open" not in call("look", tmp_path, disks=f"{closed.name} {opened.name}", **look).stderr


def test_an_encrypted_volume_on_a_partition_lies_on_its_disk(tmp_path: Path) -> None:
    """As on most clusters of ceph-volume: what is open is the last of these devices."""
    mine = next((path for path in sorted(Path("/dev").glob("loop[0-9]*")) if os.access(path, os.R_OK)), None)
    if mine is None:
        pytest.skip("needs a block device that this user may read")
    number = os.stat(mine).st_rdev
    open_number, crypt, volume = f"{os.major(number)}:{os.minor(number)}", tmp_path / "dm-1", tmp_path / "dm-0"
    partition = tmp_path / "sdb" / "sdb1"
    for folder, dev, below in ((crypt, open_number, "dm-0"), (volume, "253:0", "sdb1"), (partition, "8:17", "")):
        (folder / "slaves" / below).mkdir(parents=True)
        (folder / "dev").write_text(f"{dev}\n")
        links = tmp_path / "sys" / "dev" / "block"
        links.mkdir(parents=True, exist_ok=True)
        (links / dev).symlink_to(folder)
    for folder, dev in ((tmp_path / "sdb", SDB), (tmp_path / "sdc", SDC)):
        disk = tmp_path / "sys" / "block" / folder.name
        disk.mkdir(parents=True)
        for path in (disk, folder):
            path.mkdir(exist_ok=True)
            (path / "dev").write_text(f"{dev}\n")
    (crypt / "slaves" / "dm-0" / "dev").write_text("253:0\n")
    (volume / "slaves" / "sdb1" / "dev").write_text("8:17\n")
    with open(mine, "rb"):
        look = {"numbers": "", "iops": 20, "sys": tmp_path / "sys"}
        assert "no file open" not in call("look", tmp_path, disks="sdb", **look).stderr
        assert "has no file open on sdc" in call("look", tmp_path, disks="sdc", **look).stderr


def test_a_limit_has_a_default() -> None:
    for options, limits in (({}, (50, 0)), ({"rate": 1e6}, (0, 1_000_000)), ({"iops": 7, "rate": 1e6}, (7, 1_000_000))):
        kind = make("slow_disk", options)
        assert isinstance(kind, SlowDisk) and tuple(kind.options.limits.values()) == limits
