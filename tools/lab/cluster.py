"""A lab as a whole: from an empty folder to a clean cluster, its accidents, and its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from .bringup import bring_up
from .daemons import Daemons, finish
from .errors import LabError, LabUsage
from .needs import missing, refuse_without_namespaces
from .spaces import Birth, Spaces, needed_paths
from .ssh import write_ssh
from .systemd import remove_groups
from .topology import HEAD, Node, Record, Topology

#: What a lab makes in its folder, and so what --wipe removes.
PARTS = ("etc", "ssh", "nodes", "run", "log", "s3.json", "lab.json")


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Lab:
    """The lab in a folder, running or not. `say` gets one line for each step."""

    def __init__(self, directory: Path, say: Callable[[str], None] = to_stderr) -> None:
        self.dir = directory.absolute()
        self.privileged = os.geteuid() == 0
        self._say, self._born = say, time.monotonic()
        self._leash: Optional[Birth] = None

    @property
    def record(self) -> Record:
        record = Record.load(self.dir)
        if not record:
            raise LabUsage(f"{self.dir} holds no lab (cbt-tools lab up makes one)")
        return record

    @property
    def nodes(self) -> Dict[str, Node]:
        return self.record.topology.nodes

    @property
    def spaces(self) -> Spaces:
        shape = self.record.topology
        keep = needed_paths(self.dir, shape.root, shape.bind)
        return Spaces(self.dir, shape.root, keep, self.privileged)

    @property
    def running(self) -> bool:
        return Record.load(self.dir) is not None and self.spaces.first("lab") is not None

    def enter(self, node: str, argv: Sequence[str]) -> List[str]:
        """Argument list that runs `argv` in a node, in the caller's working folder when the node has it."""
        if node != "lab":
            self.record.topology.node(node)
        script = 'cd "$1" 2>/dev/null || cd; shift; exec "$@"'
        return [*self.spaces.enter(node), "sh", "-c", script, node, os.getcwd(), *argv]

    def environment(self) -> Dict[str, str]:
        given = {name: os.environ[name] for name in ("TERM",) if name in os.environ}
        return {**self.spaces.environment(), **given}

    def exec(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in a node. `options` as in subprocess.run; output is captured as text by default."""
        if not {"stdout", "stderr", "capture_output"} & set(options):
            options["capture_output"] = True
        return subprocess.run(self.enter(node, argv), **{"text": True, "env": self.environment(), **options})

    def up(self, topology: Topology, detach: bool = True) -> None:
        """Start this folder's cluster, or make one of that shape. What fails takes everything down again.

        Without `detach` the lab ends with this process, however that ends.
        """
        self._born = time.monotonic()
        self.dir.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self.running:
                raise LabError(f"already running: {self.dir}")
            record = Record.load(self.dir)
            fresh = record is None or record.state != "created"
            if fresh:
                uuids = {str(osd): str(uuid.uuid4()) for osd in topology.osds}
                record = Record(topology, str(uuid.uuid4()), uuids)
            assert record
            if topology not in (replace(record.topology, bind=topology.bind), Topology(bind=topology.bind)):
                self._say(
                    f"{self.dir} holds a cluster already: its shape stays (`lab down --wipe` removes it)"
                )
            # A node that boots later, perhaps started by another Python, sees what its neighbours see.
            seen = needed_paths(self.dir, record.topology.root, topology.bind)
            record.topology = replace(record.topology, bind=tuple(seen))
            self._check_machine(record.topology)
            self._leash = self._prepare(record, fresh)
            try:
                bring_up(self.dir, record, self.spaces, fresh, self._step)
                if detach:
                    self._leash.detach()
            except BaseException:
                self._end()
                raise
            self._step(f"up: {self.dir}")

    def _check_machine(self, shape: Topology) -> None:
        if not sys.platform.startswith("linux"):
            raise LabError("the lab needs Linux namespaces")
        if shape.root != "/" and not Path(shape.root, "usr").is_dir():
            raise LabUsage(f"--root {shape.root}: no root folder of a Linux release there")
        if shape.systemd and not self.privileged:
            raise LabUsage("--systemd needs root: control groups are the machine's")
        faults, warnings = missing(shape.root, ssh=self.privileged, systemd=bool(shape.systemd))
        if faults:
            raise LabError("\n".join(faults))
        for line in warnings:
            self._say(line)
        refuse_without_namespaces(self.privileged)
        if not self.privileged:
            self._say(
                "not root: the nodes stand in a user namespace. Missing: sshd, so no ssh or pdsh between the "
                "nodes and no CBT run; `lab exec` reaches every node. Run the lab as root for CBT."
            )

    def _prepare(self, record: Record, fresh: bool) -> Birth:
        if fresh:
            self._remove(keep=("run",))
        for part in ("etc/ceph", "ssh", "nodes", "run", "log"):
            (self.dir / part).mkdir(parents=True, exist_ok=True)
        record.save(self.dir)
        spaces = self.spaces
        if fresh:
            write_ssh(self.dir, record.topology, spaces.environment())
        return spaces.start_lab()

    def stop_osds(self, name: str, number: int = signal.SIGTERM) -> None:
        node = self._osd_node(name)
        with self._locked():
            Daemons(self.spaces).stop_osds(node, number)

    def start_osds(self, name: str) -> None:
        node = self._osd_node(name)
        with self._locked(), Daemons(self.spaces) as daemons:
            for job in daemons.start_osds([node]):
                finish(job)

    def crash(self, name: str) -> None:
        """Power failure of one node: SIGKILL to its first process."""
        self.record.topology.node(name)
        with self._locked():
            self.spaces.kill(name)

    def boot(self, name: str) -> None:
        """Start a crashed node with the daemons that belong on it."""
        node = self.record.topology.node(name)
        with self._locked():
            spaces = self.spaces
            if spaces.first(name):
                raise LabError(f"{name} is running")
            spaces.start_nodes([node])
            with Daemons(spaces) as daemons:
                if name == HEAD:
                    finish(daemons.start_mon())
                    finish(daemons.start_mgr())
                for job in daemons.start_osds([node]):
                    finish(job)
                if node.rgw:
                    finish(daemons.start_rgw(node))
                    daemons.await_rgws([node])

    def link(self, name: str, up: bool) -> None:
        """Pull or plug the network cable of a node."""
        self.record.topology.node(name)
        self.spaces.set_link(name, up)

    def _osd_node(self, name: str) -> Node:
        node = self.record.topology.node(name)
        if not node.osds:
            raise LabUsage(f"{name} has no OSDs")
        return node

    def down(self, graceful: bool = False, wipe: bool = False) -> bool:
        """End it; False when it did not run.

        BlueStore survives the plain end, which is a power failure of everything.
        """
        if not Record.load(self.dir):
            return False
        with self._locked():
            was = self.running
            if was and graceful:
                daemons = Daemons(self.spaces)
                for node in self.nodes.values():
                    daemons.stop_osds(node)
                daemons.stop_monitors()
            if was:
                self._end()
            else:
                self._forget()
            if wipe:
                self._remove()
        if wipe:
            with contextlib.suppress(OSError):
                self.dir.rmdir()
        return was

    def _end(self) -> None:
        spaces = self.spaces
        if spaces.first("lab"):
            spaces.kill("lab")
        if self._leash:
            self._leash.close()
            self._leash = None
        self._forget()

    def _forget(self) -> None:
        """What the end of all processes leaves."""
        for stale in (self.dir / "run").glob("*.json"):
            stale.unlink()
        if self.record.topology.systemd:
            remove_groups(self.dir)

    def _remove(self, keep: Sequence[str] = ()) -> None:
        for part in PARTS:
            path = self.dir / part
            if part in keep:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One command at a time changes a lab."""
        (self.dir / "run").mkdir(parents=True, exist_ok=True)
        with open(self.dir / "run" / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("another command works on this lab: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _step(self, text: str) -> None:
        self._say(f"[{time.monotonic() - self._born:6.2f} s] {text}")
