"""The lab's errors, and what the machine must have: programs, packages, namespaces."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from cbt_plugins.cluster.shell_programs import own_here


class LabError(Exception):
    """An error of the lab; str() is what to print, `status` the exit status of the command."""

    status = 1


class LabUsage(LabError):
    """Wrong use: an option, a node's name, a folder that is not a lab."""

    status = 2


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Need:
    """A program, its package on Debian and on Fedora/RHEL, and what needs it ("": the lab)."""

    program: str
    deb: str
    rpm: str
    needed_for: str = ""


#: length of the map of user ids outside of user namespaces
_ALL_USERS = (1 << 32) - 1
#: what a BlueStore OSD takes of fs.aio-max-nr
AIO_PER_OSD = 2048
#: Programs of the machine itself, whatever release the nodes run.
HOST = (
    Need("unshare", "util-linux", "util-linux"),
    Need("nsenter", "util-linux", "util-linux"),
    Need("setsid", "util-linux", "util-linux"),
    Need("ip", "iproute2", "iproute"),
    Need("ssh-keygen", "openssh-client", "openssh-clients"),
)
#: Programs that the nodes run.
NODES = (
    Need("ceph-mon", "ceph-mon", "ceph-mon"),
    Need("ceph-mgr", "ceph-mgr", "ceph-mgr"),
    Need("ceph-osd", "ceph-osd", "ceph-osd"),
    Need("radosgw", "radosgw", "ceph-radosgw"),
    Need("ceph", "ceph-common", "ceph-common"),
    Need("sshd", "openssh-server", "openssh-server"),
    Need("ssh", "openssh-client", "openssh-clients"),
    Need("sudo", "sudo", "sudo"),
    Need("pdsh", "pdsh", "pdsh", "CBT uses pdsh between the nodes"),
    Need("killall", "psmisc", "psmisc", "CBT uses killall"),
)

#: Programs of nodes whose first process is systemd.
SYSTEMD = (Need("systemctl", "systemd", "systemd"), Need("systemd-run", "systemd", "systemd"))


def is_present(program: str, root: str) -> bool:
    """Return whether a root folder has a program, by its path or by its name."""
    if "/" in program:
        return os.path.lexists(os.path.join(root, program.lstrip("/")))
    if root == "/":
        return shutil.which(program, path=PATH) is not None
    return any(os.path.lexists(f"{root}{folder}/{program}") for folder in PATH.split(":"))


def _installer(root: str) -> Tuple[str, bool]:
    """Return (command that installs packages, whether they have Debian's names)."""
    debian = is_present("apt-get", root) or not is_present("dnf", root)
    command = "apt-get install" if debian else "dnf install"
    return (command if root == "/" else f"chroot {root} {command}"), debian


def missing(root: str = "/", ssh: bool = True, systemd: bool = False) -> Tuple[List[str], List[str]]:
    """Return (errors, warnings), a line for each missing package; `ssh=False` when the nodes get no sshd anyway."""
    errors: List[str] = []
    warnings: List[str] = []
    for needs, where in ((HOST, "/"), (NODES, root), (SYSTEMD if systemd else (), root)):
        command, debian = _installer(where)
        for need in needs:
            if is_present(need.program, where) or (not ssh and need.program in ("sshd", "ssh-keygen", "sudo")):
                continue
            package = need.deb if debian else need.rpm
            line = f"missing: {need.program} (package {package}): {command} {package}"
            if need.needed_for:
                warnings.append(f"{line} ({need.needed_for})")
            else:
                errors.append(line)
    return errors, warnings


def unshare_flags(privileged: bool) -> List[str]:
    """Return the options of `unshare`; a plain user gets a user namespace in which that user is root."""
    user = [] if privileged else ["--user", "--map-root-user"]
    spaces = ["--fork", "--pid", "--mount", "--net", "--uts", "--ipc"]
    return [*user, *spaces, "--kill-child=KILL", "--propagation", "private"]


def refuse_others_folder(folder: Path, option: str, action: str = "look") -> None:
    """Raise LabError for a folder that other users could write or replace; they would choose what runs as this user.

    `action` is that of own_here; `option` of the command names another folder.
    """
    try:
        own_here(folder, action, f"name another folder with {option}")
    except PermissionError as error:
        raise LabError(str(error.strerror)) from error


def is_closed_in_user_namespace(folder: Path) -> bool:
    """Tell whether a folder is ours and closed in a user namespace, where the machine's folders above are nobody's."""
    users = Path("/proc/self/uid_map")
    if not users.exists() or int(users.read_text().split()[2]) == _ALL_USERS:
        return False
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def refuse_without_namespaces(privileged: bool) -> None:
    """Raise LabError with the likely cause when the kernel or a container refuses namespaces."""
    result = subprocess.run(
        ["unshare", *unshare_flags(privileged), "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if result.returncode == 0:
        return
    reason = result.stderr.strip().splitlines()[-1] if result.stderr.strip() else f"exit status {result.returncode}"
    if privileged:
        raise LabError(
            f"namespaces are refused to root ({reason}): give the container CAP_SYS_ADMIN"
        )
    raise LabError(
        f"user namespaces are refused ({reason}): {_refused_by()}, or run the lab as root"
    )


def refuse_without_aio(osds: int) -> None:
    """Raise LabError when the kernel has too few places for asynchronous requests left for so many OSDs.

    All labs on a machine share them; an OSD without its share exits at once, and its log alone would say why.
    """
    used, most = (int(sysctl_value(f"fs/{name}") or 0) for name in ("aio-nr", "aio-max-nr"))
    if most and most - used < osds * AIO_PER_OSD:
        raise LabError(
            f"{osds} OSDs need {osds * AIO_PER_OSD} of fs.aio-max-nr, which has {most - used} of {most} left: "
            "end other labs, or sysctl -w fs.aio-max-nr=1048576"
        )


def _refused_by() -> str:
    for name, bad, good in (
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("user/max_user_namespaces", "0", "15000"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ):
        if sysctl_value(name) == bad:
            return f"sysctl -w {name.replace('/', '.')}={good}"
    return "ask the administrator of this machine or container to allow user namespaces"


def sysctl_value(name: str) -> Optional[str]:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None
