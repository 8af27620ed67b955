"""A lab as a whole: start it, break its nodes, say what it is doing, end it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from cbt_plugins.formatting import about_size

from .daemons import BringUp, Daemons, bring_up, finish
from .link_delay import LinkDelay
from .namespaces import Birth, Spaces, needed_paths, refuse_unseen, remove_groups, unseen
from .node_files import write_links, write_ssh
from .pid1 import LINKS
from .process import CephShell, LabProcess, by_namespace, default_signals
from .requirements import (
    LabError,
    LabUsage,
    is_closed_in_user_namespace,
    is_present,
    missing,
    refuse_others_folder,
    refuse_without_aio,
    refuse_without_namespaces,
)
from .topology import HEAD, LabNode, LabRecord, Topology

#: What a lab makes in its folder, and so what --wipe removes, in this order: a killed --wipe leaves a lab's folder.
PARTS = ("etc", "ssh", "nodes", "log", "s3.json", LINKS, "restoring", "restored", "lab.json")

#: a Python, by its path or its name
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
#: our command, which names a Python of this machine in its first line
_COMMAND = re.compile(r"(?:.*/)?cbt-tools")
#: the Python of a release; it does not import this project as it lies in a working folder
_RELEASES_PYTHON = ("env", "PYTHONSAFEPATH=1", "python3")


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _refuse_others(folder: Path) -> None:
    """Raise LabUsage for a folder that nodes would not see, and for one that holds something, and no lab: that would be
    closed, and parts of it removed.
    """
    why = unseen(folder)
    if why:
        raise LabUsage(f"--dir {folder}: {why}: name a folder elsewhere")
    entries = sorted(os.listdir(folder)) if folder.is_dir() else []
    if entries and not _holds_lab(folder):
        raise LabUsage(
            f"--dir {folder}: not a lab's folder, and not empty ({', '.join(entries[:3])}): "
            "name an empty or a new folder"
        )


def _holds_lab(folder: Path) -> bool:
    """Return whether a folder holds a lab, or only what a command left that was killed before it wrote lab.json."""
    if (folder / "lab.json").exists() or not (folder / "run" / "lock").exists():
        return (folder / "lab.json").exists()
    left = set(os.listdir(folder)) <= {"run", "restoring"} and os.listdir(folder / "run") == ["lock"]
    return left or (folder / "restored" / "lab.json").exists()


class Lab:
    """A lab in a folder, running or not. `say` gets one line for each step."""

    def __init__(self, directory: Path, say: Callable[[str], None] = to_stderr) -> None:
        self.dir = directory.absolute()
        self.privileged = os.geteuid() == 0
        self._say, self._born = say, time.monotonic()
        self._leash: Optional[Birth] = None
        self._is_own = False

    @property
    def record(self) -> LabRecord:
        record = self._load()
        if not record:
            raise LabUsage(f"no lab in {self.dir}: `cbt-tools lab up` makes a lab")
        return record

    def _load(self) -> Optional[LabRecord]:
        """Return the record of the folder, None where there is none; LabError for a folder that others could write."""
        if not self._is_own and os.path.lexists(self.dir):
            if not is_closed_in_user_namespace(self.dir):
                refuse_others_folder(self.dir, "--dir")
            self._is_own = True
        return LabRecord.load(self.dir)

    def _created(self) -> Optional[LabRecord]:
        """Return the record of the cluster that `up` starts again, None where it makes one."""
        record = self._load()
        return record if record and record.state == "created" else None

    def refuse_unseen(self, topology: Topology) -> None:
        """Raise LabUsage for a folder of `bind` that nodes would not see; a cluster that is here keeps its root."""
        refuse_unseen(topology.bind, (self._created() or LabRecord(topology, "")).topology.root)

    @property
    def nodes(self) -> Dict[str, LabNode]:
        return self.record.topology.nodes

    @property
    def spaces(self) -> Spaces:
        shape = self.record.topology
        keep = needed_paths(self.dir, shape.root, shape.bind)
        return Spaces(self.dir, shape.root, keep, self.privileged)

    @property
    def running(self) -> bool:
        return self._load() is not None and self.spaces.first("lab") is not None

    def enter(self, node: str, argv: Sequence[str]) -> List[str]:
        """Return the argument list that runs `argv` in a node, in the caller's working folder when the node has it.

        A Python of this machine becomes that of the nodes' release, for which this project is there too, also the
        Python of `cbt-tools`.
        """
        root = "/"
        if node != "lab":
            self.record.topology.node(node)
            root = self.record.topology.root
        if argv and root != "/" and not is_present(argv[0], root):
            if _PYTHON.fullmatch(argv[0]):
                argv = [*_RELEASES_PYTHON, *argv[1:]]
            elif _COMMAND.fullmatch(argv[0]):
                argv = [*_RELEASES_PYTHON, "-m", "cbt_plugins.tools", *argv[1:]]
        script = 'cd "$1" 2>/dev/null || cd; shift; exec "$@"'
        return [*self.spaces.enter(node), "sh", "-c", script, node, os.getcwd(), *argv]

    def environment(self) -> Dict[str, str]:
        """Return the environment of commands in nodes; they find the programs of this Python, such as cbt-tools."""
        given = {name: os.environ[name] for name in ("TERM",) if name in os.environ}
        fixed = self.spaces.environment()
        return {**fixed, "PATH": f"{fixed['PATH']}:{os.path.dirname(sys.executable)}", **given}

    def exec(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in a node. `options` as in subprocess.run; output is captured as text by default."""
        if not {"stdout", "stderr", "capture_output"} & set(options):
            options["capture_output"] = True
        defaults = {"text": True, "env": self.environment(), "preexec_fn": default_signals}
        return subprocess.run(self.enter(node, argv), **{**defaults, **options})

    def ceph(self) -> CephShell:
        """Return a shell for many `ceph` commands; it is a context."""
        return CephShell(self.spaces.enter(HEAD), self.spaces.environment(), self.record.fsid)

    def up(self, topology: Topology, detach: bool = True, bring_up: BringUp = bring_up) -> LabProcess:
        """Start this folder's cluster, or make one of that shape; return its first process, by which it is known.

        After an error everything is down again.

        Without `detach` the lab ends with this process, however that ends. `bring_up` starts the nodes and the daemons.
        """
        self._born = time.monotonic()
        self._own()
        with self.alone():
            if self.running:
                raise LabError(f"already running: {self.dir}")
            record = self._created()
            fresh = record is None
            if record is None:
                uuids = {str(osd): str(uuid.uuid4()) for osd in topology.osds}
                record = LabRecord(topology, str(uuid.uuid4()), uuids)
            if topology not in (replace(record.topology, bind=topology.bind), Topology(bind=topology.bind)):
                self._say(
                    f"{self.dir} holds a cluster already: the shape on the command line is ignored "
                    "(`lab down --wipe` removes the cluster)"
                )
            # A node that boots later, perhaps started by another Python, sees what its neighbours see.
            seen = needed_paths(self.dir, record.topology.root, topology.bind)
            record.topology = replace(record.topology, bind=tuple(seen))
            self._check_machine(record.topology)
            self._leash = self._prepare(record, fresh)
            try:
                first = self.spaces.need("lab")
                bring_up(self.dir, record, self.spaces, fresh, self.step)
                if detach:
                    self._leash.detach()
            except BaseException:
                self._end()
                raise
            self.step(f"up: {self.dir}")
            return first

    def _own(self) -> None:
        """Make the lab's folder, or refuse one that is somebody else's."""
        _refuse_others(self.dir)
        refuse_others_folder(self.dir, "--dir", "make")

    def _check_machine(self, shape: Topology) -> None:
        if not sys.platform.startswith("linux"):
            raise LabError("the lab needs Linux namespaces")
        if shape.root != "/" and not Path(shape.root, "usr").is_dir():
            raise LabUsage(f"--root {shape.root}: not the root folder of a Linux release")
        if shape.systemd and not self.privileged:
            raise LabUsage("--systemd needs control groups: run the lab as root")
        errors, warnings = missing(shape.root, ssh=self.privileged, systemd=bool(shape.systemd))
        if errors:
            raise LabError("\n".join(errors))
        for line in warnings:
            self._say(line)
        why = unseen(Path.cwd(), shape.root)
        if why:
            lost = "an archive that a command in a node writes there is lost: use another folder"
            self._say(f"nodes do not see the working folder {Path.cwd()} ({why}); {lost}")
        refuse_without_namespaces(self.privileged)
        refuse_without_aio(len(shape.osds))
        if not self.privileged:
            self._say(
                "not root: the nodes are in a user namespace. Missing: sshd, so no ssh or pdsh between the "
                "nodes and no CBT run; `lab exec` reaches every node. Run the lab as root for CBT."
            )

    def _prepare(self, record: LabRecord, fresh: bool) -> Birth:
        if fresh:
            self._remove(keep=("lab.json",))
        record.save(self.dir)
        for part in ("etc/ceph", "ssh", "nodes", "run", "log"):
            (self.dir / part).mkdir(parents=True, exist_ok=True)
        if record.topology.root != "/":
            write_links(self.dir / LINKS)
        spaces = self.spaces
        if fresh:
            write_ssh(self.dir, record.topology, spaces.environment())
        return spaces.start_lab()

    def stop_osds(self, name: str, number: int = signal.SIGTERM) -> None:
        node = self._osd_node(name)
        with self.alone():
            Daemons(self.spaces).stop_osds(node, number)

    def start_osds(self, name: str) -> None:
        node = self._osd_node(name)
        with self.alone(), Daemons(self.spaces) as daemons:
            for job in daemons.start_osds([node]):
                finish(job)

    def crash(self, name: str) -> None:
        """Kill a node as a power failure does: SIGKILL to its first process."""
        self.record.topology.node(name)
        with self.alone():
            self.spaces.kill(name)

    def boot(self, name: str) -> None:
        """Start a crashed node with the daemons that belong on it."""
        node = self.record.topology.node(name)
        with self.alone():
            spaces = self.spaces
            if spaces.first(name):
                raise LabError(f"already running: {name}")
            spaces.start_nodes([node])
            with Daemons(spaces) as daemons:
                for start in (daemons.start_mons, daemons.start_mgrs, daemons.start_osds):
                    for job in start([node]):
                        finish(job)
                if node.rgw:
                    finish(daemons.start_rgw(node))
                    daemons.await_rgws([node])

    def switch(self, daemon: str, root: str) -> None:
        """Restart a daemon ("osd.3") with the programs of a root folder, from the machine or from the daemon's node."""
        record, (kind, _, name) = self.record, daemon.partition(".")
        osds = {str(osd): node.name for node in self.nodes.values() for osd in node.osds}
        node = record.topology.node(osds.get(name, f"of {daemon}") if kind == "osd" else name)
        if kind != "osd" and not getattr(node, kind, False):
            raise LabUsage(f"{daemon}: not a daemon of this lab")
        if node.systemd:
            raise LabUsage(f"{daemon}: the unit of this daemon on {node.name} starts the machine's own programs")
        argv = ["sh", str(Path(__file__).with_name("switch_release.sh")), root, daemon]
        if socket.gethostname() == node.name and not self.spaces.first(node.name):
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        else:
            done = self.exec(node.name, argv, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise LabError(f"{daemon}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        if kind == "mon":  # an older release cannot start this lab again
            record.topology = replace(record.topology, root=root)
            record.save(self.dir)

    def link(self, name: str, up: bool) -> None:
        """Plug or pull the network cable of a node."""
        self.record.topology.node(name)
        self.spaces.set_link(name, up)

    def delay_link(self, name: str, out: float = 0.0, back: float = 0.0) -> None:
        """Delay the packets that leave a node, and those that come back to it, by seconds; 0 and 0: no delay."""
        self.record.topology.node(name)
        with self.alone():
            if not self.spaces.first(name):
                raise LabError(f"not running: {name} in {self.dir}")
            delay = LinkDelay(self.spaces, name)
            if out or back:
                delay.set(out, back)
            else:
                delay.remove()

    def _osd_node(self, name: str) -> LabNode:
        node = self.record.topology.node(name)
        if not node.osds:
            raise LabUsage(f"{name} has no OSDs")
        return node

    def down(self, graceful: bool = False, wipe: bool = False, started: Optional[LabProcess] = None) -> bool:
        """End the lab; False when it did not run. `started`: what `up` returned; a lab that was started anew goes on.

        BlueStore survives the plain end, which is a power failure of everything.
        """
        if not self._load() and not _holds_lab(self.dir):
            self._close_leash()
            return False
        with self.alone():
            first = self.spaces.first("lab") if self._load() else None
            was = first is not None
            if started and first not in (None, started):
                self._close_leash()
                return False
            if was and graceful:
                daemons = Daemons(self.spaces)
                for node in self.nodes.values():
                    daemons.stop_osds(node)
                daemons.stop_monitors()
            if was:
                self._end()
            else:
                self._close_leash()  # another process has ended the lab
                self._forget()
            if wipe:
                self._remove()
                # the lock goes last; another command may be making the next one
                shutil.rmtree(self.dir / "run", ignore_errors=True)
        if wipe:
            with contextlib.suppress(OSError):
                self.dir.rmdir()
        return was

    def replace(self, fill: Callable[[Path], None]) -> None:
        """Put the cluster that `fill` writes into a new folder in the place of this one, which is ended and removed.

        Killed before `fill` is done: the cluster is as it was. Later: the next command completes it.
        """
        self._born = time.monotonic()
        self._own()
        with self.alone():
            stage = self.dir / "restoring"
            shutil.rmtree(stage, ignore_errors=True)
            fill(stage)
            if self._load():
                self._end()
            os.rename(stage, self.dir / "restored")
            self._move_restored()

    def _move_restored(self) -> None:
        """Move each part of a complete restore to its place; what was moved before a kill is not moved again."""
        ready = self.dir / "restored"
        if not ready.is_dir():
            return
        if self._load():
            self._end()
        for path in sorted(ready.iterdir()):
            if path.is_dir():
                self._remove_part(self.dir / path.name)
            os.replace(path, self.dir / path.name)
        ready.rmdir()

    def _end(self) -> None:
        spaces = self.spaces
        if spaces.first("lab"):
            spaces.kill("lab")
        self._close_leash()
        self._forget()

    def _close_leash(self) -> None:
        if self._leash:
            self._leash.close()
            self._leash = None

    def _forget(self) -> None:
        """Remove what the end of all processes leaves."""
        for stale in (self.dir / "run").glob("*.json"):
            stale.unlink()
        record = self._load()
        if record and record.topology.systemd:
            remove_groups(self.dir)

    def _remove(self, keep: Sequence[str] = ()) -> None:
        for part in PARTS:
            if part not in keep:
                self._remove_part(self.dir / part)

    def _remove_part(self, path: Path) -> None:
        if path.is_symlink():
            self._say(f"{path}: only the link is removed; the files in {os.path.realpath(path)} stay")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lab's lock: one command changes it. What a killed restore has left to do is done first."""
        path, locked = self.dir / "run" / "lock", False
        with contextlib.ExitStack() as stack:
            while not locked:
                stack.close()
                with contextlib.suppress(FileNotFoundError):  # removed by a `down --wipe` that ends
                    self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.parent.mkdir(exist_ok=True)
                    lock = stack.enter_context(open(path, "a"))
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        self._say("waiting for another command on this lab")
                        fcntl.flock(lock, fcntl.LOCK_EX)
                    locked = os.path.samestat(os.fstat(lock.fileno()), os.stat(path))
            self._move_restored()
            yield

    def step(self, text: str) -> None:
        """Tell what was reached, and when."""
        self._say(f"[{time.monotonic() - self._born:6.2f} s] {text}")


def status_of(lab: Lab) -> Dict[str, Any]:
    """Return {"dir", "running", "health", "urls", "root", "nodes": {name: NODE}}.

    NODE: {"address", "up", "pid", "memory" (bytes), "daemons": {name: pid}};
    pids are those of the machine; memory is the proportional set size of everything in the node.
    """
    record, spaces = lab.record, lab.spaces
    namespaces, daemons = by_namespace(), Daemons(spaces).running()
    nodes: Dict[str, Any] = {}
    for node in record.topology.nodes.values():
        first = spaces.first(node.name)
        inside = namespaces.get(first.namespace, []) if first else []
        nodes[node.name] = {
            "address": node.address,
            "up": first is not None,
            "pid": first.pid if first else None,
            "memory": sum(process.memory() for process in inside),
            "daemons": {name: process.pid for name, process in sorted(daemons.get(node.name, {}).items())},
        }
    running = lab.running
    monitor = next((name for name, node in record.topology.nodes.items() if node.mon and nodes[name]["up"]), HEAD)
    return {
        "dir": str(lab.dir),
        "running": running,
        "health": _health(lab, monitor) if running else None,
        "urls": record.topology.urls,
        "root": record.topology.root,
        "nodes": nodes,
    }


def _health(lab: Lab, node: str) -> str:
    try:
        done = lab.exec(node, ["ceph", "--connect-timeout", "5", "status", "-f", "json"], timeout=30)
        status = json.loads(done.stdout)
    except (LabError, subprocess.TimeoutExpired, ValueError):
        return "no reply of the monitor"
    checks = "".join(f" {check}" for check in sorted(status["health"]["checks"]))
    states = {state["state_name"]: state["count"] for state in status["pgmap"]["pgs_by_state"]}
    counted = ", ".join(f"{count} {name}" for name, count in states.items())
    up, osds = status["osdmap"]["num_up_osds"], status["osdmap"]["num_osds"]
    return f"{status['health']['status']}{checks}; {up} of {osds} OSDs up; PGs: {counted}"


def as_text(status: Dict[str, Any]) -> List[str]:
    """Return the lines that `lab status` prints."""
    if not status["running"]:
        return [f"not running: {status['dir']}"]
    lines = [f"lab      {status['dir']}", f"health   {status['health']}"]
    if status["root"] != "/":
        lines.append(f"root     {status['root']}")
    if status["urls"]:
        lines.append(f"S3       {' '.join(status['urls'])}  (keys: {status['dir']}/s3.json)")
    total = sum(node["memory"] for node in status["nodes"].values())
    lines.append(f"memory   {about_size(total)}")
    for name, node in status["nodes"].items():
        daemons = " ".join(f"{daemon}:{pid}" for daemon, pid in node["daemons"].items())
        state = f"{about_size(node['memory']):>8}  {daemons}" if node["up"] else "down"
        lines.append(f"{name:8} {node['address']:12} {state}")
    return lines
