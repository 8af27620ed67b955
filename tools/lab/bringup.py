"""From started nodes to a clean cluster: stores, daemons, pools, gateways, the S3 user.

Much of it overlaps, because ten seconds is what a person waits for: OSDs make their stores while the monitor
makes its own, and boot while the pools are made.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Callable, List

from cbt_plugins.journal import write_json

from .conf import ceph_conf, keyring, pool_commands, runtime_commands
from .daemons import Daemons, Job, finish
from .errors import LabError
from .process import wait_until
from .shell import CephShell
from .spaces import Spaces
from .topology import HEAD, Record, Topology

S3_USER = "cbt"
Step = Callable[[str], None]


def bring_up(directory: Path, record: Record, spaces: Spaces, fresh: bool, step: Step) -> None:
    """Boot all nodes and their daemons; `fresh` makes the cluster first. `step` is told what was reached."""
    shape = record.topology
    nodes = list(shape.nodes.values())
    spaces.start_nodes(nodes)
    step(f"{len(nodes)} nodes")
    with Daemons(spaces) as daemons:
        stores = _make_stores(directory, record, daemons) if fresh else []
        finish(daemons.start_mon())
        mgr = daemons.start_mgr()
        step("mon")
        with CephShell(spaces.enter(HEAD), spaces.environment(), record.fsid) as ceph:
            if fresh:
                for osd in shape.osds:
                    ceph.ask(f"osd new {record.osd_uuids[str(osd)]}")
                for job in stores:
                    finish(job)
                step(f"{len(stores)} OSD stores")
            starting = daemons.start_osds(nodes)
            placement_groups = _make_pools(ceph, shape) if fresh else 1
            for job in [*starting, mgr]:
                finish(job)
            step(f"{len(shape.osds)} OSDs started")
            wait_until(lambda: ceph.status()["osdmap"]["num_up_osds"] == len(shape.osds), "OSDs up", 120, 0.1)
            step("OSDs up")
            rgws = [node for node in nodes if node.rgw]
            for job in [daemons.start_rgw(node) for node in rgws]:
                finish(job)
            daemons.await_rgws(rgws)
            if rgws:
                step("RGWs answer")
            if rgws and fresh:
                _make_s3_user(directory, daemons, shape)
                step("S3 user")
            step(_await_clean(ceph, len(shape.osds), placement_groups))
    record.state = "created"
    record.save(directory)


def _make_stores(directory: Path, record: Record, daemons: Daemons) -> List[Job]:
    """Configuration, keys, the monitor's store; the OSDs' stores are still being made when this returns."""
    shape, config = record.topology, directory / "etc" / "ceph"
    text = keyring(shape, daemons.run(HEAD, "ceph-authtool --gen-print-key").strip())
    # The second name is where CBT and people look for the administrator's key.
    for name in ("keyring", "ceph.client.admin.keyring"):
        with open(os.open(config / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(text)
    (config / "ceph.conf").write_text(ceph_conf(shape, record.fsid))
    stores = daemons.make_osds(shape.nodes.values(), record.osd_uuids)
    finish(daemons.make_mon(shape.nodes[HEAD].address, record.fsid))
    return stores


def _make_pools(ceph: CephShell, shape: Topology) -> int:
    pools, placement_groups = pool_commands(shape)
    for command in [*runtime_commands(shape), *pools]:
        if "names beginning with ." in ceph.ask(command):
            # Since Quincy .rgw.root needs a flag that Pacific does not know; the refusal counts as success.
            ceph.ask(f"{command} --yes-i-really-mean-it")
    return placement_groups


def _make_s3_user(directory: Path, daemons: Daemons, shape: Topology) -> None:
    """radosgw-admin makes up the keys, so that they stand in no argument list."""
    create = f"radosgw-admin user create --uid={S3_USER} --display-name={S3_USER} --max-buckets=0"
    said = daemons.run(HEAD, f"{create} --gen-access-key --gen-secret 2>/dev/null")
    key = json.loads(said[said.index("{") :])["keys"][0]
    keys = {name: key[name] for name in ("access_key", "secret_key")}
    write_json(directory / "s3.json", {"uid": S3_USER, **keys, "urls": shape.urls}, mode=0o600)


def _await_clean(ceph: CephShell, osds: int, placement_groups: int, seconds: float = 300) -> str:
    """Wait for HEALTH_OK with every OSD up and every placement group clean; what was seen in the end."""
    seen = ""

    def clean() -> bool:
        nonlocal seen
        status = ceph.status()
        states = {state["state_name"]: state["count"] for state in status["pgmap"]["pgs_by_state"]}
        up, health = status["osdmap"]["num_up_osds"], status["health"]
        counted = ", ".join(f"{count} {name}" for name, count in states.items())
        seen = " ".join([health["status"], *health["checks"], f"({up} of {osds} OSDs up; PGs: {counted})"])
        settled = set(states) == {"active+clean"} and states["active+clean"] >= placement_groups
        return settled and up == osds and health["status"] == "HEALTH_OK"

    try:
        wait_until(clean, "clean cluster", seconds, 0.1)
    except LabError as fault:
        raise LabError(f"{fault}: {seen}") from None
    return seen
