"""Ceph's daemons in the nodes: from started nodes to a clean cluster, and starting, finding, stopping them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.journal import write_json
from cbt_plugins.polling import wait_until

from .ceph_conf import ceph_conf, keyring, mon_addresses, pool_commands, runtime_commands
from .installed_releases import Release
from .namespaces import Spaces
from .node_files import write_tls
from .process import CephShell, LabProcess, by_namespace, default_signals, wait_for, wait_for_end
from .requirements import LabError
from .topology import HEAD, S3_PORT, LabNode, LabRecord, Topology

_RAISE_FILES = "ulimit -n 16384 2>/dev/null; "


class Daemons:
    """Ceph's daemons in the nodes of one running lab. As a context it leaves no LabJob behind."""

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
        """Run a shell command in a node and return what it printed; LabError with that."""
        return finish(self.begin(node, script))

    def begin(self, node: str, script: str) -> LabJob:
        """Start a shell command in a node; hand the result to finish()."""
        argv = [*self._spaces.enter(node), "sh", "-c", script]
        process = subprocess.Popen(
            argv,
            env=self._spaces.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=default_signals,
        )
        self._begun.append(process)
        return f"{node}: {script.replace(_RAISE_FILES, '')}", process

    def make_mons(self, nodes: Iterable[LabNode], fsid: str) -> List[LabJob]:
        mons = [node for node in nodes if node.mon]
        addresses = " ".join(f"--addv {mon.name} '{mon_addresses(mon)}'" for mon in mons)
        return [
            self.begin(
                mon.name,
                f"mkdir -p /var/lib/ceph/mon/ceph-{mon.name} && "
                f"monmaptool --create --clobber --fsid {fsid} {addresses} /run/monmap && "
                f"ceph-mon --mkfs -i {mon.name} --monmap /run/monmap --keyring /etc/ceph/keyring",
            )
            for mon in mons
        ]

    def make_osds(self, nodes: Iterable[LabNode], uuids: Mapping[str, str]) -> List[LabJob]:
        return [
            self.begin(
                node.name,
                f"mkdir -p /var/lib/ceph/osd/ceph-{osd} && "
                f"ceph-osd --no-mon-config --mkfs -i {osd} --osd-uuid {uuids[str(osd)]}",
            )
            for node in nodes
            for osd in node.osds
        ]

    def start_mons(self, nodes: Iterable[LabNode]) -> List[LabJob]:
        names = [node.name for node in nodes if node.mon]
        return [self.begin(n, f"{_RAISE_FILES}ceph-mon -i {n} --pid-file /run/ceph/mon.{n}.pid") for n in names]

    def start_mgrs(self, nodes: Iterable[LabNode]) -> List[LabJob]:
        names = [node.name for node in nodes if node.mgr]
        make = "mkdir -p /var/lib/ceph/mgr/ceph-{0}"
        return [self.begin(n, f"{make.format(n)} && ceph-mgr -i {n} --pid-file /run/ceph/mgr.{n}.pid") for n in names]

    def start_osds(self, nodes: Iterable[LabNode]) -> List[LabJob]:
        """Start every OSD of the nodes that does not run yet, all at once."""
        running = self.running()
        return [
            self.begin(node.name, _unit_started(osd) if node.systemd else _osd_started(osd))
            for node in nodes
            for osd in node.osds
            if f"osd.{osd}" not in running.get(node.name, {})
        ]

    def stop_osds(self, node: LabNode, number: int = signal.SIGTERM) -> None:
        """Signal a node's OSDs and wait for their end."""
        processes = self.running().get(node.name, {})
        stopping = [process for name, process in processes.items() if name.startswith("osd.")]
        for process in stopping:
            process.kill(number)
        wait_for_end(stopping, f"end of the OSDs of {node.name}", 60)

    def stop_monitors(self) -> None:
        """Stop all mgrs and mons with SIGTERM."""
        running = self.running().values()
        stopping = [processes[name] for name in ("mgr", "mon") for processes in running if name in processes]
        for process in stopping:
            process.kill(signal.SIGTERM)
        wait_for_end(stopping, "end of mgrs and mons", 60)

    def start_rgw(self, node: LabNode) -> LabJob:
        name = f"client.{node.name}"
        return self.begin(node.name, f"{_RAISE_FILES}radosgw -n {name} --pid-file /run/ceph/{name}.pid")

    def await_rgws(self, nodes: Sequence[LabNode], attempts: int = 3, seconds: float = 120) -> None:
        """Wait until each RGW answers HTTP; one that died is started again.

        radosgw has been seen to abort once when it came up right after its pools were made.
        """
        left = {node.name: attempts for node in nodes}

        def is_good(text: str) -> bool:
            return " 200 " in text

        def reply(node: LabNode) -> str:
            text = self._rgw_reply(node)
            if is_good(text):
                return text
            if "rgw" not in self.running().get(node.name, {}):
                left[node.name] -= 1
                if not left[node.name]:
                    raise LabError(f"radosgw on {node.name} exits at start: see nodes/{node.name}/log")
                finish(self.start_rgw(node))
            return text

        for node in nodes:
            wait_for(partial(reply, node), f"RGW on {node.name}", seconds, 0.1, met=is_good)

    def _rgw_reply(self, node: LabNode) -> str:
        """Return the first line of the answer of a node's gateway, or the error of the connection."""
        ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3"
        script = f"exec 3<>/dev/tcp/{node.address}/{S3_PORT} && {ask}"
        argv = [*self._spaces.in_network(node.name), "bash", "-c", script]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        except subprocess.TimeoutExpired:
            return "no reply within 30 s"
        return done.stdout.rstrip("\r\n") or done.stderr.strip()

    def running(self) -> Dict[str, Dict[str, LabProcess]]:
        """Return node -> daemon ("mon", "mgr", "osd.3", "rgw", "sshd") -> its process."""
        spaces = by_namespace()
        daemons_by_node: Dict[str, Dict[str, LabProcess]] = {}
        for name in self._spaces.names():
            first = self._spaces.first(name)
            if first:
                inside = (
                    (daemon_name(process.command()), process) for process in spaces.get(first.namespace, [])
                )
                daemons_by_node[name] = {daemon: process for daemon, process in inside if daemon}
        return daemons_by_node


def _osd_started(osd: int) -> str:
    return f"{_RAISE_FILES}ceph-osd -i {osd} --pid-file /run/ceph/osd.{osd}.pid"


def _unit_started(osd: int) -> str:
    """Return the command that starts an OSD by the package's unit, which runs it as user ceph."""
    owned = f"/var/lib/ceph/osd/ceph-{osd} /var/log/ceph /run/ceph /etc/ceph/keyring"
    return f"chown -R ceph:ceph {owned} && systemctl --quiet enable --now ceph-osd@{osd}"


#: What it is, for messages, and the process that does it.
LabJob = Tuple[str, "subprocess.Popen[str]"]


def finish(job: LabJob) -> str:
    """Wait for one Job; what it printed, or LabError with its last lines."""
    task, process = job
    output = process.communicate()[0]
    if process.returncode:
        tail = " | ".join(output.strip().splitlines()[-4:])
        raise LabError(f"{task}: exit status {process.returncode}: {tail}")
    return output


def daemon_name(command: Sequence[str]) -> Optional[str]:
    """Return the short name of a daemon from its argument list; None for any other program."""
    if not command:
        return None
    if command[0].startswith("sshd:") and "[listener]" in " ".join(command):
        return "sshd"
    program = command[0].rsplit("/", 1)[-1]
    for option in ("-i", "--id"):
        if program == "ceph-osd" and option in command[:-1]:
            return f"osd.{command[list(command).index(option) + 1]}"
    return {"ceph-mon": "mon", "ceph-mgr": "mgr", "radosgw": "rgw"}.get(program)


S3_USER = "cbt"
Step = Callable[[str], None]
#: `bring_up`, or another way to the daemons of a lab
BringUp = Callable[[Path, LabRecord, Spaces, bool, Step], None]


def bring_up(directory: Path, record: LabRecord, spaces: Spaces, fresh: bool, step: Step) -> None:
    """Boot all nodes and their daemons; `fresh` makes the cluster first. `step` is told what was reached."""
    shape = record.topology
    nodes = list(shape.nodes.values())
    spaces.start_nodes(nodes)
    step(f"{len(nodes)} nodes")
    with Daemons(spaces) as daemons:
        stores = _make_stores(directory, record, daemons) if fresh else []
        for job in daemons.start_mons(nodes):
            finish(job)
        mgrs = daemons.start_mgrs(nodes)
        step(f"{shape.mons} mons" if shape.mons > 1 else "mon")
        with CephShell(spaces.enter(HEAD), spaces.environment(), record.fsid) as ceph:
            if fresh:
                for osd in shape.osds:
                    ceph.ask(f"osd new {record.osd_uuids[str(osd)]}")
                for job in stores:
                    finish(job)
                step(f"{len(stores)} OSD stores")
            starting = daemons.start_osds(nodes)
            placement_groups = make_pools(ceph, shape) if fresh else 1
            for job in [*starting, *mgrs]:
                finish(job)
            step(f"{len(shape.osds)} OSDs started")
            await_up(ceph, shape)
            step("OSDs up")
            if not fresh:
                _complete_upgrade(ceph, step)
            rgws = [node for node in nodes if node.rgw]
            for job in [daemons.start_rgw(node) for node in rgws]:
                finish(job)
            daemons.await_rgws(rgws)
            if rgws:
                step("RGWs answer")
            if rgws and fresh:
                _make_s3_user(directory, daemons, shape)
                step("S3 user")
            step(await_clean(ceph, len(shape.osds), placement_groups))
    record.state = "created"
    record.save(directory)


def _make_stores(directory: Path, record: LabRecord, daemons: Daemons) -> List[LabJob]:
    """Make configuration, keys and the monitors' stores; the OSDs' stores are still being made when this returns."""
    shape, config = record.topology, directory / "etc" / "ceph"
    text = keyring(shape, daemons.run(HEAD, "ceph-authtool --gen-print-key").strip())
    # The second name is where CBT and people look for the administrator's key.
    for name in ("keyring", "ceph.client.admin.keyring"):
        with open(os.open(config / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(text)
    (config / "ceph.conf").write_text(ceph_conf(shape, record.fsid, write_tls(config, shape)))
    nodes = list(shape.nodes.values())
    stores = daemons.make_osds(nodes, record.osd_uuids)
    for job in daemons.make_mons(nodes, record.fsid):
        finish(job)
    return stores


def make_pools(ceph: CephShell, shape: Topology) -> int:
    """Set the options of a new cluster and make its pools; return the number of placement groups."""
    pools, placement_groups = pool_commands(shape)
    listing = ceph.ask("config ls")
    option_names = json.loads(listing[listing.index("[") :])
    for command in [*runtime_commands(shape, option_names), *pools]:
        if "names beginning with ." in ceph.ask(command):
            # Since Quincy .rgw.root needs a flag that Pacific does not know; the refusal counts as success.
            ceph.ask(f"{command} --yes-i-really-mean-it")
    return placement_groups


def _make_s3_user(directory: Path, daemons: Daemons, shape: Topology) -> None:
    """Make the S3 user; radosgw-admin generates the keys, so that they are in no argument list."""
    create = f"radosgw-admin user create --uid={S3_USER} --display-name={S3_USER} --max-buckets=0"
    output = daemons.run(HEAD, f"{create} --gen-access-key --gen-secret 2>/dev/null")
    key = json.loads(output[output.index("{") :])["keys"][0]
    keys = {name: key[name] for name in ("access_key", "secret_key")}
    write_json(directory / "s3.json", {"uid": S3_USER, **keys, "urls": shape.urls}, mode=0o600)


def await_up(ceph: CephShell, shape: Topology, seconds: float = 120) -> None:
    """Wait until every OSD is up; LabError with those that are not, and their nodes."""

    def late(_: int) -> LabError:
        answer = ceph.ask("osd dump")
        up = {osd["osd"] for osd in json.loads(answer[answer.index("{") :])["osds"] if osd["up"]}
        down = [f"osd.{osd} on {node.name}" for node in shape.nodes.values() for osd in node.osds if osd not in up]
        hint = "see nodes/NODE/log; with --systemd OSDs run as user ceph, who must be able to read /etc"
        return LabError(f"timeout of {seconds:g} s: OSDs are down: {', '.join(down)} ({hint})")

    wait_until(lambda: int(ceph.status()["osdmap"]["num_up_osds"]), seconds, 0.1, late, met=len(shape.osds).__eq__)


def _complete_upgrade(ceph: CephShell, step: Step) -> None:
    """Let the OSDs use what their release has over the one that was required before."""
    versions, dump = ceph.ask("versions"), ceph.ask("osd dump")
    releases = [Release.parse(text) for text in json.loads(versions[versions.index("{") :])["osd"]]
    names = {release.name for release in releases if release}
    required = json.loads(dump[dump.index("{") :])["require_osd_release"]
    if len(names) == 1 and required not in names:
        ceph.ask(f"osd require-osd-release {names.pop()}")
        step("upgrade complete")


def await_clean(ceph: CephShell, osds: int, placement_groups: int, seconds: float = 300) -> str:
    """Wait for HEALTH_OK with every OSD up and every PG active+clean; return what was seen in the end."""
    muted: Set[str] = set()

    def look() -> Tuple[bool, str]:
        status = ceph.status()
        # Tentacle's word for the keys that an older release made: they work, and are the same in each restore.
        for check in {name for name in status["health"]["checks"] if name.startswith("AUTH_INSECURE_")} - muted:
            ceph.ask(f"health mute {check} --sticky")
            muted.add(check)
        states = {state["state_name"]: state["count"] for state in status["pgmap"]["pgs_by_state"]}
        up, health = status["osdmap"]["num_up_osds"], status["health"]
        counted = ", ".join(f"{count} {name}" for name, count in states.items())
        text = " ".join([health["status"], *health["checks"], f"({up} of {osds} OSDs up; PGs: {counted})"])
        settled = set(states) == {"active+clean"} and states["active+clean"] >= placement_groups
        return settled and up == osds and health["status"] == "HEALTH_OK", text

    def late(last: Tuple[bool, str]) -> LabError:
        return LabError(f"timeout of {seconds:g} s: the cluster is not clean: {last[1]}")

    return wait_until(look, seconds, 0.1, late, met=lambda last: last[0])[1]
