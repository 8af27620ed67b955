"""Namespaces of a lab seen from the machine: starts the first processes of lab and nodes, and enters them.

One outer set of namespaces is the lab: it holds the bridge, so nothing of it shows on the machine. Each node
is a nested set, joined by a veth pair. None has a name in the file system: they end with their first process.
A node may have a real systemd as its first process, furnished as a container's is: its units are targets, Ceph's own
and the node's sshd; what it enables or writes is in the node's own folder.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import uuid
from operator import not_
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import cbt_plugins
from cbt_plugins.journal import write_json
from cbt_plugins.programs import cache_dir, cache_home

from .pid1 import HIDDEN
from .process import LabProcess, wait_for, wait_for_end
from .requirements import PATH, LabError, LabUsage, unshare_flags
from .topology import MASK, LabNode

PID1 = str(Path(__file__).resolve().with_name("pid1.py"))


class Birth:
    """Starter's end of the exchange with one first process (see pid1.py)."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self._log = name, log
        self._own_end, self.child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._own_end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def await_born(self) -> LabProcess:
        """Return the new process by the pid that it has for us: the kernel translates between pid namespaces."""
        self.child_end.close()
        text, pid = self._receive()
        process = LabProcess.of(pid)
        if text != "born" or not process:
            raise self._failed(text)
        return process

    def order(self, order: Dict[str, Any]) -> None:
        try:
            self._own_end.send(json.dumps(order).encode())
        except OSError:
            raise self._failed("") from None

    def await_ready(self) -> None:
        text, _ = self._receive()
        if text != "ready":
            raise self._failed(text)

    def detach(self) -> None:
        """Let the lab outlive its starter."""
        self._own_end.send(b"detach")

    def close(self) -> None:
        self._own_end.close()

    def _receive(self, seconds: float = 60) -> Tuple[str, int]:
        self._own_end.settimeout(seconds)
        try:
            data, ancillary, _, _ = self._own_end.recvmsg(1 << 16, socket.CMSG_SPACE(12))
        except socket.timeout:
            raise self._failed(f"no message within {seconds:g} s") from None
        except OSError:
            return "", 0
        pids = [
            struct.unpack("3i", value)[0] for _, kind, value in ancillary if kind == socket.SCM_CREDENTIALS
        ]
        return data.decode(), pids[0] if pids else 0

    def _failed(self, text: str) -> LabError:
        try:
            tail = self._log.read_text(errors="replace").strip().splitlines()[-3:]
        except OSError:
            tail = []
        reason = text[len("failed: ") :] if text.startswith("failed: ") else text
        return LabError(
            f"{self.name} did not start: {reason or ' | '.join(tail) or 'its first process died'}"
        )


class Spaces:
    """The namespaces of the lab in `directory`. DIR/run/NAME.json holds each first process."""

    def __init__(
        self, directory: Path, root: str = "/", keep: Sequence[str] = (), privileged: bool = True
    ) -> None:
        self._dir = directory
        self._root = "" if root == "/" else root
        self._keep = list(keep)
        self.privileged = privileged

    def first(self, name: str) -> Optional[LabProcess]:
        """Return the live first process of "lab" or of a node."""
        try:
            process = LabProcess(**json.loads((self._dir / "run" / f"{name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return process if process.alive() else None

    def names(self) -> List[str]:
        """Return the nodes that were started."""
        return sorted(path.stem for path in (self._dir / "run").glob("*.json") if path.stem != "lab")

    def start_lab(self) -> Birth:
        """Make the outer namespaces. The lab ends if the Birth is closed or lost before its detach()."""
        self._clean_up()
        birth = self._spawn("lab", [])
        try:
            self._register("lab", birth.await_born())
            birth.order({})
            birth.await_ready()
        except BaseException:
            birth.close()
            raise
        return birth

    def start_nodes(self, nodes: Sequence[LabNode]) -> None:
        """Boot nodes: all of them at the same time."""
        lab = self._entered("lab")
        births = [(node, self._spawn(node.name, lab)) for node in nodes]
        try:
            firsts = {node: birth.await_born() for node, birth in births}
            for node, first in firsts.items():
                self._register(node.name, first)
            self._wire(firsts)
            for node, birth in births:
                birth.order(self._node_order(node))
            for _, birth in births:
                birth.await_ready()
            for node in firsts:
                if node.systemd:
                    self._await_systemd(node.name)
        finally:
            for _, birth in births:
                birth.close()

    def enter(self, name: str) -> List[str]:
        """Return the command prefix that runs a program in a node (or in "lab"), as root there."""
        return self._entered(name)

    def environment(self) -> Dict[str, str]:
        """Return the environment of programs in nodes."""
        fixed = {
            "PATH": PATH,
            "HOME": "/root",
            "USER": "root",
            "LOGNAME": "root",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
        }
        return {**fixed, **_DAEMONS, "PDSH_RCMD_TYPE": "ssh", "XDG_CACHE_HOME": str(cache_home())}

    def in_network(self, name: str) -> List[str]:
        """Return the command prefix that runs a program of the machine on a node's network."""
        first = self.need(name)
        user = [] if self.privileged else ["-U", "--preserve-credentials"]
        return ["nsenter", "-t", str(first.pid), *user, "-n"]

    def set_link(self, name: str, up: bool) -> None:
        """Plug or unplug a node's network cable, at the switch's end."""
        self.need(name)
        self.ip([f"link set v-{name} {'up' if up else 'down'}"])

    def kill(self, name: str) -> None:
        """SIGKILL a first process and wait until nothing of its namespaces is left running."""
        first = self.need(name)
        first.kill(signal.SIGKILL)
        wait_for_end([first], f"end of {name}", 120)
        (self._dir / "run" / f"{name}.json").unlink(missing_ok=True)

    def need(self, name: str) -> LabProcess:
        """Return the live first process of "lab" or of a node; LabError where there is none."""
        process = self.first(name)
        if not process:
            raise LabError(f"not running: {'the lab' if name == 'lab' else name} in {self._dir}")
        return process

    def _entered(self, name: str) -> List[str]:
        user = [] if self.privileged else ["-U", "--preserve-credentials"]
        return ["nsenter", "-t", str(self.need(name).pid), *user, "-m", "-u", "-i", "-n", "-p", "-r", "-w"]

    def _spawn(self, name: str, inside: List[str]) -> Birth:
        log = self._dir / "log" / f"{name}.log"
        birth = Birth(name, log)
        # A session of its own: Ctrl-C at the terminal is for the starter, which then ends the lab in order.
        fd = birth.child_end.fileno()
        flags = unshare_flags(privileged=self.privileged or bool(inside))
        argv = [*inside, "setsid", "--fork", "unshare", *flags, "--"]
        argv += [sys.executable, "-E", "-S", PID1, "node" if inside else "lab", str(fd)]
        with open(log, "w") as out:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(fd,), env=self.environment()
            )
        if done.returncode:
            raise LabError(f"{name}: {log.read_text().strip() or argv[0] + ' failed'}")
        return birth

    def _register(self, name: str, process: LabProcess) -> None:
        write_json(self._dir / "run" / f"{name}.json", dataclasses.asdict(process))

    def _clean_up(self) -> None:
        for stale in (self._dir / "run").glob("*.json"):
            stale.unlink()

    def _wire(self, firsts: Dict[LabNode, LabProcess]) -> None:
        # A crashed node's network namespace is removed in the background: its cable may still hang there.
        stale = [f"link del {side}-{node.name}" for node in firsts for side in "vd"]  # d-: of a delay
        self.ip(stale, force=True)
        commands: List[str] = []
        for node, first in firsts.items():
            peer = f"type veth peer name eth0 address {node.mac} netns {first.pid}"
            commands += [f"link add v-{node.name} {peer}", f"link set v-{node.name} master br0 up"]
        self.ip(commands)

    def ip(self, commands: List[str], force: bool = False) -> None:
        """Run `ip` on the lab's network, but in our pid namespace, because the pids are ours."""
        argv = [*self.in_network("lab"), "ip", *(["-force"] if force else []), "-batch", "-"]
        done = subprocess.run(argv, input="\n".join(commands), capture_output=True, text=True)
        if done.returncode and not force:
            raise LabError(f"ip: {done.stderr.strip()}")

    def interfaces(self) -> List[str]:
        """Return the network interfaces of the lab outside of its nodes."""
        argv = [*self.in_network("lab"), "ip", "-brief", "link"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"ip: {done.stderr.strip()}")
        return [line.split()[0].partition("@")[0] for line in done.stdout.splitlines()]

    def _await_systemd(self, name: str) -> None:
        """Wait until it has started what it starts at boot."""
        argv = [*self._entered(name), "systemctl", "is-active", "multi-user.target"]

        def state() -> str:
            done = subprocess.run(argv, capture_output=True, text=True)
            return done.stdout.strip() or done.stderr.strip()

        wait_for(state, f"systemd on {name}", 60, 0.1, met="active".__eq__)

    def _node_order(self, node: LabNode) -> Dict[str, Any]:
        return {
            "name": node.name,
            "address": node.address,
            "mask": MASK,
            "dir": str(self._dir),
            "root": self._root,
            "keep": self._keep,
            "sshd": self.privileged,
            "mgr": node.mgr,
            "systemd": systemd_order(self._dir, node.name, self._root) if node.systemd else None,
        }


#: folders of a system: nodes with the machine's root see the machine's, other nodes have those of their release
_SYSTEM = {
    Path(path) for path in ("/", "/root", "/tmp", "/home", "/opt", "/var", "/var/tmp", "/etc", "/usr", "/usr/local")
}
#: folders that each node has for itself, with everything in them; see pid1.py, also for HIDDEN
_OWN_OF_NODES = ("/dev", "/proc", "/run", "/sys", "/etc/ceph", "/root/.ssh", "/var/lib/ceph", "/var/log/ceph")


def needed_paths(directory: Path, root: str, binds: Sequence[str]) -> List[str]:
    """Return folders that nodes must see where the machine has them: the lab, this program, its Python, the cache.

    Outermost first and none inside another, with what links lead to; another release's root keeps its own system
    folders.
    """
    project = Path(str(cbt_plugins.__file__)).resolve().parents[1]
    wanted = [
        directory,
        project,
        Path(sys.prefix),
        Path(sys.base_prefix),
        cache_dir(),
        Path.cwd(),
    ]
    wanted += [Path(bind) for bind in binds]
    chosen: List[Path] = []
    paths = {place for path in wanted for place in (path.absolute(), path.resolve())} - _SYSTEM
    for path in sorted(paths, key=lambda path: len(path.parts)):
        inside_root = root != "/" and Path(root) in (path, *path.parents)
        if path.is_dir() and not inside_root and not any(above in path.parents for above in chosen):
            chosen.append(path)
    return [str(path) for path in chosen]


def unseen(folder: Path, root: str = "/") -> str:
    """Return the reason for which nodes with this root do not see a folder of the machine; "" where they see it."""
    path = folder.resolve()
    for own in map(Path, _OWN_OF_NODES):
        if own in (path, *path.parents):
            return f"each node has its own {own}"
    if str(path) in HIDDEN:
        return f"each node has its own {path}"
    if root != "/" and (path in _SYSTEM or Path(root) in (path, *path.parents)):
        return f"nodes have the folders of {root}"
    return ""


def refuse_unseen(binds: Sequence[str], root: str) -> None:
    """Raise LabUsage for a folder of --bind that nodes would not see: what a command writes there would be lost."""
    for bind in binds:
        if not Path(bind).is_dir():
            raise LabUsage(f"--bind {bind}: no such folder: make the folder first")
        why = unseen(Path(bind), root)
        if why:
            raise LabUsage(f"--bind {bind}: {why}: name a folder elsewhere")


#: of daemons: pids come again in a new namespace, and 16.2 takes an OSD with the old pid for the one that was killed
_DAEMONS = {"CEPH_USE_RANDOM_NONCE": "1"}
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


def systemd_order(directory: Path, name: str, root: str) -> Dict[str, Any]:
    """Make the folders and return the order with which a node becomes systemd; enabled units stay enabled."""
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
    given = " ".join(f"{name}={value}" for name, value in _DAEMONS.items())
    (home / "etc" / "system.conf").write_text(f"[Manager]\nDefaultEnvironment={given}\n")
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


#: shows all control groups of version 2, in a mount namespace of its own; a mount right upon another one is refused
SHOW_GROUPS = "mount -t tmpfs tmpfs /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup"


def remove_groups(directory: Path) -> None:
    """Remove the lab's control groups: they outlive the processes in them and the namespace."""
    script = (
        f'{SHOW_GROUPS} || exit 0; cd /sys/fs/cgroup; [ ! -d "$0" ] || '
        'find "$0" -depth -type d -exec rmdir {} +'
    )
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, _group(directory)]

    def error() -> str:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""

    wait_for(error, "removal of the lab's control groups", 30, met=not_)


def _group(directory: Path) -> str:
    """Return the group's name at the top, where a node that boots later, from another login, finds it again."""
    return f"cbt-lab-{_identity(directory)[:12]}"


def _identity(path: Path) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, str(path)).hex
