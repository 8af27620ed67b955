"""Ceph's daemons in the nodes: making their stores, starting, finding and stopping them."""

from __future__ import annotations

import signal
import subprocess
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .errors import LabError
from .process import Process, by_namespace, wait_until
from .spaces import Spaces
from .topology import HEAD, S3_PORT, Node

_RAISE_FILES = "ulimit -n 16384 2>/dev/null; "


class Daemons:
    """Everything here works on the nodes of one running lab. As a context it leaves no Job behind."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._begun: List[subprocess.Popen[str]] = []

    def __enter__(self) -> Daemons:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._begun:
            if process.returncode is None:
                process.kill()
            with process:
                pass

    def run(self, node: str, script: str) -> str:
        """A shell command in a node; what it printed, or LabError with that."""
        return finish(self.begin(node, script))

    def begin(self, node: str, script: str) -> Job:
        """The same, without waiting for it: hand it to finish()."""
        argv = [*self._spaces.enter(node), "sh", "-c", script]
        process = subprocess.Popen(
            argv,
            env=self._spaces.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._begun.append(process)
        return f"{node}: {script.replace(_RAISE_FILES, '')}", process

    def make_mon(self, address: str, fsid: str) -> Job:
        return self.begin(
            HEAD,
            f"mkdir -p /var/lib/ceph/mon/ceph-{HEAD} /var/lib/ceph/mgr/ceph-{HEAD} && "
            f"monmaptool --create --clobber --fsid {fsid} "
            f"--addv {HEAD} '[v2:{address}:3300,v1:{address}:6789]' /run/monmap && "
            f"ceph-mon --mkfs -i {HEAD} --monmap /run/monmap --keyring /etc/ceph/keyring",
        )

    def make_osds(self, nodes: Iterable[Node], uuids: Mapping[str, str]) -> List[Job]:
        return [
            self.begin(
                node.name,
                f"mkdir -p /var/lib/ceph/osd/ceph-{osd} && "
                f"ceph-osd --no-mon-config --mkfs -i {osd} --osd-uuid {uuids[str(osd)]}",
            )
            for node in nodes
            for osd in node.osds
        ]

    def start_mon(self) -> Job:
        return self.begin(HEAD, f"{_RAISE_FILES}ceph-mon -i {HEAD} --pid-file /run/ceph/mon.{HEAD}.pid")

    def start_mgr(self) -> Job:
        return self.begin(HEAD, f"ceph-mgr -i {HEAD} --pid-file /run/ceph/mgr.{HEAD}.pid")

    def start_osds(self, nodes: Iterable[Node]) -> List[Job]:
        """Start every OSD of the nodes that does not run yet, all at once."""
        running = self.running()
        return [
            self.begin(node.name, _unit_started(osd) if node.systemd else _osd_started(osd))
            for node in nodes
            for osd in node.osds
            if f"osd.{osd}" not in running.get(node.name, {})
        ]

    def stop_osds(self, node: Node, number: int = signal.SIGTERM) -> None:
        """Signal a node's OSDs and wait for their end."""
        found = self.running().get(node.name, {})
        gone = [process for name, process in found.items() if name.startswith("osd.")]
        for process in gone:
            process.kill(number)
        wait_until(
            lambda: not any(process.alive() for process in gone), f"end of the OSDs of {node.name}", 60
        )

    def stop_monitors(self) -> None:
        """SIGTERM for mgr and mon."""
        found = self.running().get(HEAD, {})
        gone = [found[name] for name in ("mgr", "mon") if name in found]
        for process in gone:
            process.kill(signal.SIGTERM)
        wait_until(lambda: not any(process.alive() for process in gone), "end of mgr and mon", 60)

    def start_rgw(self, node: Node) -> Job:
        name = f"client.{node.name}"
        return self.begin(node.name, f"{_RAISE_FILES}radosgw -n {name} --pid-file /run/ceph/{name}.pid")

    def await_rgws(self, nodes: Sequence[Node], attempts: int = 3, seconds: float = 120) -> None:
        """Wait until each RGW answers HTTP; one that died is started again.

        radosgw has been seen to abort once when it came up right after its pools were made.
        """
        left = {node.name: attempts for node in nodes}

        def answered(node: Node) -> bool:
            if self._answers(node):
                return True
            if "rgw" not in self.running().get(node.name, {}):
                left[node.name] -= 1
                if not left[node.name]:
                    raise LabError(f"radosgw on {node.name} dies at once: see nodes/{node.name}/log")
                finish(self.start_rgw(node))
            return False

        for node in nodes:
            wait_until(lambda node=node: answered(node), f"RGW on {node.name}", seconds, pause=0.1)  # type: ignore[misc]

    def _answers(self, node: Node) -> bool:
        ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3"
        script = f"exec 3<>/dev/tcp/{node.address}/{S3_PORT} && {ask}"
        argv = [*self._spaces.in_network(node.name), "bash", "-c", script]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        return " 200 " in done.stdout

    def running(self) -> Dict[str, Dict[str, Process]]:
        """node -> daemon ("mon", "mgr", "osd.3", "rgw", "sshd") -> its process."""
        spaces = by_namespace()
        found: Dict[str, Dict[str, Process]] = {}
        for name in self._spaces.names():
            first = self._spaces.first(name)
            if first:
                inside = (
                    (daemon_name(process.command()), process) for process in spaces.get(first.namespace, [])
                )
                found[name] = {daemon: process for daemon, process in inside if daemon}
        return found


def _osd_started(osd: int) -> str:
    return f"{_RAISE_FILES}ceph-osd -i {osd} --pid-file /run/ceph/osd.{osd}.pid"


def _unit_started(osd: int) -> str:
    """By the package's own unit, which runs it as user ceph."""
    owned = f"/var/lib/ceph/osd/ceph-{osd} /var/log/ceph /run/ceph /etc/ceph/keyring"
    return f"chown -R ceph:ceph {owned} && systemctl --quiet enable --now ceph-osd@{osd}"


#: What it is, for messages, and the process that does it.
Job = Tuple[str, "subprocess.Popen[str]"]


def finish(job: Job) -> str:
    """Wait for one Job; what it printed, or LabError with its last lines."""
    what, process = job
    said = process.communicate()[0]
    if process.returncode:
        tail = " | ".join(said.strip().splitlines()[-4:])
        raise LabError(f"{what}: exit status {process.returncode}: {tail}")
    return said


def daemon_name(command: Sequence[str]) -> Optional[str]:
    """Short name of a daemon from its argument list; None for any other program."""
    if not command:
        return None
    if command[0].startswith("sshd:") and "[listener]" in " ".join(command):
        return "sshd"
    program = command[0].rsplit("/", 1)[-1]
    for option in ("-i", "--id"):
        if program == "ceph-osd" and option in command[:-1]:
            return f"osd.{command[list(command).index(option) + 1]}"
    return {"ceph-mon": "mon", "ceph-mgr": "mgr", "radosgw": "rgw"}.get(program)
