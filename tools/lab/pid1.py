"""First process of the lab and of each node: furnishes its namespaces, then reaps orphans for ever, or becomes systemd.

Run by path with nothing but the standard library, because a node's view of the file system is what is being
made. The starter holds the other end of a socket. Messages: "born" up (the kernel adds our pid as the starter
sees it), the JSON order down, "ready" or "failed: why" up; the lab's first process then waits for "detach". A
starter that goes away before the end of this exchange takes the whole lab along: the first process exits,
the kernel does the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from typing import Any, Dict, List, Tuple

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 0x1, 0x20, 0x1000, 0x4000
CLONE_NEWCGROUP = 0x2000000
LIBC = ctypes.CDLL(None, use_errno=True)

#: where the Python of another release finds this project, and the folder of the lab that is shown there
OWN, LINKS = "/opt/cbt-plugins", "python"
#: Folders that every node has for itself, and the mode of those that begin empty with each boot. /root also
#: because a shell's slow ~/.bashrc would cost more than the command that CBT sends; /tmp because CBT works
#: there unless told otherwise.
HIDDEN = {"/root": "mode=700", "/tmp": "mode=1777", "/var/tmp": ""}


def mount(source: str, target: str, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """Call mount(2) itself: mount(8) would resolve a /proc/self/fd path to a name that is hidden by now."""
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} on {target}: {os.strerror(code)}")


def bind(source: str, target: str) -> None:
    """Show a file or folder in a second place."""
    try:
        mount(source, target, flags=MS_BIND)
    except OSError as fault:
        if fault.errno != errno.EINVAL:
            raise
        # In a user namespace a tree with mounts below it can only be shown as a whole.
        mount(source, target, flags=MS_BIND | MS_REC)


def ip(*commands: str) -> None:
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()}")


def hide(root: str, lasting: str, keep: List[str]) -> None:
    """Give the node its own HIDDEN folders; show `keep`, shared with the machine, in them or in a new root.

    `lasting` is the folder behind /var/tmp: it keeps its content when the node boots again.
    """
    kept: List[Tuple[str, int]] = []
    for path in keep:
        if root or any(path.startswith(folder + "/") for folder in HIDDEN):
            with contextlib.suppress(OSError):
                kept.append((path, os.open(path, os.O_PATH)))
    behind = os.open(lasting, os.O_PATH)
    for folder, mode in HIDDEN.items():
        os.makedirs(root + folder, exist_ok=True)
        if mode:
            mount("tmpfs", root + folder, "tmpfs", data=mode)
        else:
            bind(f"/proc/self/fd/{behind}", root + folder)
    os.close(behind)
    for path, fd in kept:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.makedirs(root + path, exist_ok=True)
            bind(f"/proc/self/fd/{fd}", root + path)
        os.close(fd)


def optional_bcrypt(root: str, private: str) -> None:
    """Let mgr modules load where bcrypt cannot be imported in a sub-interpreter: all fail on Debian 13."""
    path = f"{root}/usr/share/ceph/mgr/mgr_util.py"
    try:
        with open(path) as source:
            text = source.read()
    except OSError:
        return
    if "\nimport bcrypt\n" in text:
        optional = "\ntry:\n    import bcrypt\nexcept ImportError:\n    bcrypt = None\n"
        with open(f"{private}/mgr_util.py", "w") as out:
            out.write(text.replace("\nimport bcrypt\n", optional))
        bind(f"{private}/mgr_util.py", path)


def show_throttles(top: str) -> None:
    """Show the control groups that limit disks, where the machine has them in version 1: /sys here is a new one."""
    try:
        mount("tmpfs", top, "tmpfs", data="mode=755")
        os.mkdir(f"{top}/blkio")
        mount("cgroup", f"{top}/blkio", "cgroup", data="blkio")
    except OSError:
        pass


def furnish_lab(order: Dict[str, Any]) -> None:
    mount("proc", "/proc", "proc")
    socket.sethostname("lab")
    ip("link set lo up", "link add br0 type bridge stp_state 0 forward_delay 0", "link set br0 up")


def furnish_node(order: Dict[str, Any]) -> None:
    """Furnish the node of an order: {name, address, mask, dir, root ("" = the machine's), keep: [path], sshd: bool,
    mgr: bool, systemd: null or {group, binds: {source: target}, argv}}
    """
    home, root = order["dir"], order["root"]
    private = f"{home}/nodes/{order['name']}"
    for part in ("lib", "log", "tmp"):
        os.makedirs(f"{private}/{part}", exist_ok=True)
    os.chmod(f"{private}/tmp", 0o1777)
    socket.sethostname(order["name"])
    ip("link set lo up", f"addr add {order['address']}/{order['mask']} dev eth0", "link set eth0 up")
    hide(root, f"{private}/tmp", order["keep"])
    if root:
        mount("/dev", f"{root}/dev", flags=MS_BIND | MS_REC)
    if order["systemd"]:
        devices(root)
    mount("sysfs", f"{root}/sys", "sysfs")
    if not order["systemd"]:
        show_throttles(f"{root}/sys/fs/cgroup")
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", data="mode=1777")
    os.makedirs(f"{root}/run", exist_ok=True)
    mount("tmpfs", f"{root}/run", "tmpfs", data="mode=755,size=256m")
    for folder in ("ceph", "sshd", "lock"):
        os.mkdir(f"{root}/run/{folder}")
    shown = [
        (f"{private}/lib", "/var/lib/ceph"),
        (f"{private}/log", "/var/log/ceph"),
        (f"{home}/etc/ceph", "/etc/ceph"),
        (f"{home}/ssh", "/root/.ssh"),
    ]
    if root:
        shown.append((f"{home}/{LINKS}", OWN))
    for source, target in shown:
        os.makedirs(root + target, exist_ok=True)
        bind(source, root + target)
    if not os.path.exists(f"{root}/etc/hosts"):
        open(f"{root}/etc/hosts", "w").close()
    bind(f"{home}/etc/hosts", f"{root}/etc/hosts")
    if order["mgr"]:
        optional_bcrypt(root, private)
    mount("proc", f"{root}/proc", "proc")
    if order["systemd"]:
        furnish_systemd(root, order["systemd"])
    if root:
        os.chroot(root)
    os.chdir("/")
    if order["sshd"] and not order["systemd"]:
        done = subprocess.run(
            ["/usr/sbin/sshd", "-f", "/root/.ssh/sshd_config"], capture_output=True, text=True
        )
        if done.returncode:
            raise OSError(f"sshd: {done.stderr.strip()}")


def devices(root: str) -> None:
    """Make a /dev of its own: systemd makes links in it, and looks for consoles and watchdogs."""
    names = ("null", "zero", "full", "random", "urandom", "tty")
    numbers = {name: os.stat(f"/dev/{name}").st_rdev for name in names}
    mount("tmpfs", f"{root}/dev", "tmpfs", data="mode=755")
    for name, number in numbers.items():
        os.mknod(f"{root}/dev/{name}", stat.S_IFCHR, number)
        os.chmod(f"{root}/dev/{name}", 0o666)
    for folder in ("shm", "pts"):
        os.mkdir(f"{root}/dev/{folder}")
    mount("devpts", f"{root}/dev/pts", "devpts", data="newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")


def furnish_systemd(root: str, order: Dict[str, Any]) -> None:
    """Bind units, and a control group that is the top of all for what runs in it; no way to the kernel's own settings.
    """
    for source, target in order["binds"].items():
        if not os.path.exists(root + target):
            if os.path.isdir(source):
                os.makedirs(root + target)
            else:
                open(root + target, "w").close()
        bind(source, root + target)
    # it would raise limits there, which are the whole machine's
    for folder in ("fs", "kernel"):
        bind(f"{root}/proc/sys/{folder}", f"{root}/proc/sys/{folder}")
        mount("none", f"{root}/proc/sys/{folder}", flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    top = f"{root}/sys/fs/cgroup"
    mount("cgroup2", top, "cgroup2")
    group = f"{top}/{order['group']}"
    # of the last boot
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    os.makedirs(group, exist_ok=True)
    # where the machine has limits of disks in version 2, units of the node have them, too
    with contextlib.suppress(OSError), open(f"{os.path.dirname(group)}/cgroup.subtree_control", "w") as controllers:
        controllers.write("+io")
    with open(f"{group}/cgroup.procs", "w") as joined:
        joined.write("0")
    if LIBC.unshare(CLONE_NEWCGROUP) or LIBC.umount2(top.encode(), 0):
        raise OSError(f"a control group of its own: {os.strerror(ctypes.get_errno())}")
    mount("cgroup2", top, "cgroup2")


def reap(*_: object) -> None:
    """Collect every child that ended; orphans of the namespace become ours."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(role: str, descriptor: str) -> None:
    # Whatever the starter ignored, the node's programs must not: CBT ends its tools with SIGINT.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    leash = socket.socket(fileno=int(descriptor))
    leash.set_inheritable(False)
    leash.send(b"born")
    order = leash.recv(1 << 16)
    if not order:
        return
    request = json.loads(order)
    try:
        {"lab": furnish_lab, "node": furnish_node}[role](request)
    except (OSError, subprocess.SubprocessError) as fault:
        leash.send(f"failed: {fault}".encode())
        return
    if request.get("systemd"):
        leash.send(b"ready")
        argv = request["systemd"]["argv"]
        os.execve(argv[0], argv, {"container": "cbt-lab", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGCHLD, reap)
    reap()
    leash.send(b"ready")
    if role == "lab" and leash.recv(64) != b"detach":
        return
    leash.close()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    os._exit(0)
