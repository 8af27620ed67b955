"""Nodes whose first process is a real systemd: what it finds there, and what the machine would keep of it.

It is furnished as a container's is. Its units are targets, Ceph's own and the node's sshd: none of the machine's
services is ever seen, and what it enables or writes is in the node's own folder.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any, Dict

from .process import wait_until

#: the folder of units that packages bring, of every release that the lab runs
UNITS = "/usr/lib/systemd/system"
#: those of them that a node has: no wants of other packages' services, so nothing is started by being installed
_SHOWN = ("*.target", "*.slice", "ceph*.service", "systemd-reboot.service", "systemd-poweroff.service")
_WANTED = ("lab-ssh.service", "ceph.target", "ceph-osd.target")
_SSH = """\
[Unit]
Description=The lab's sshd

[Service]
ExecStart=/usr/sbin/sshd -D -f /root/.ssh/sshd_config
KillMode=process
"""


def order(directory: Path, name: str, root: str) -> Dict[str, Any]:
    """What the node's first process needs to become systemd; the folders are made, what was enabled in them stays."""
    home = directory / "nodes" / name / "systemd"
    shutil.rmtree(home / "units", ignore_errors=True)
    (home / "units").mkdir(parents=True)
    for pattern in _SHOWN:
        for unit in Path(root + UNITS).glob(pattern):
            shutil.copy(unit, home / "units" / unit.name, follow_symlinks=False)
    (home / "units" / "lab-ssh.service").write_text(_SSH)
    wants = home / "units" / "multi-user.target.wants"
    wants.mkdir()
    for unit_name in _WANTED:
        (wants / unit_name).symlink_to(f"../{unit_name}")
    for part in ("etc/system", "generators"):
        (home / part).mkdir(parents=True, exist_ok=True)
    (home / "machine-id").write_text(f"{_identity(directory / name)}\n")
    (home / "hostname").write_text(f"{name}\n")
    return {
        "group": f"{_group(directory)}/{name}",
        "binds": {
            str(home / "units"): UNITS,
            str(home / "etc"): "/etc/systemd",
            str(home / "generators"): "/usr/lib/systemd/system-generators",
            str(home / "machine-id"): "/etc/machine-id",
            str(home / "hostname"): "/etc/hostname",
        },
        "argv": ["/usr/lib/systemd/systemd", "--system", "--unit=multi-user.target"],
    }


def remove_groups(directory: Path) -> None:
    """Control groups outlive the processes in them, and the namespace that they were seen in: the lab's are removed."""
    script = (
        'mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 0; cd /sys/fs/cgroup; [ ! -d "$0" ] || '
        'find "$0" -depth -type d -exec rmdir {} +'
    )
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, _group(directory)]

    def gone() -> bool:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0

    wait_until(gone, "removal of the lab's control groups", 30)


def _group(directory: Path) -> str:
    """At the top, where a node that boots later, from another login, finds it again."""
    return f"cbt-lab-{_identity(directory)[:12]}"


def _identity(path: Path) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, str(path)).hex
