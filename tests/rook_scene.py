"""Daemons of a cluster of Rook for tests of their faults: what Ceph says of them, and what a step does by kubectl."""

from __future__ import annotations

import subprocess
from typing import Any, Dict, Mapping, Sequence, Union

from waiting import wait_for

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.scene import ClusterLimits, Scene
from cbt_plugins.faults.step import Check, Command

OPERATOR = "rook-ceph-operator"
OSD3, OSD4 = DaemonName("osd", "3"), DaemonName("osd", "4")
GATEWAY = DaemonName("rgw", "my.store.a")
#: deployment -> its labels, as Rook makes them
DEPLOYMENTS: Mapping[str, Dict[str, str]] = {
    OPERATOR: {"app": OPERATOR},
    "rook-ceph-osd-3": {"app": "rook-ceph-osd", "ceph-osd-id": "3"},
    "rook-ceph-osd-4": {"app": "rook-ceph-osd", "ceph-osd-id": "4"},
    "rook-ceph-rgw-my-store-a": {"app": "rook-ceph-rgw", "ceph_daemon_id": "my-store", "rook_object_store": "my-store"},
}


def rook_scene(kubernetes: Mapping[str, Any], *nodes: str, transport: Union[str, Dict[str, str]] = "kubectl") -> Scene:
    """The scene of a cluster with these daemons, on nodes: of osd.3, osd.4, and the gateway."""
    hosts = nodes or ("node3", "node4", "node5")
    section = {"head": "t", "osds": list(hosts[:2]), "rgws": [hosts[2]], "kubernetes": dict(kubernetes)}
    section["transport"] = transport
    osds = [{"id": int(osd.id), "hostname": host} for osd, host in zip((OSD3, OSD4), hosts)]
    tree = [{"id": -1, "type": "host", "name": "a", "children": [3, 4]}]
    gateway = {"gid": 1, "metadata": {"id": GATEWAY.id, "hostname": hosts[2]}}
    answers: Dict[str, Any] = {"osd metadata": osds, "osd tree": {"nodes": tree}}
    answers["service dump"] = {"services": {"rgw": {"daemons": {"1": gateway}}}}
    rows = [{"osd": int(osd.id), "up": 1, "in": 1, "weight": 1.0, "down_at": 5} for osd in (OSD3, OSD4)]
    answers.update({"osd dump": {"osds": rows}, "mon metadata": [], "mgr metadata": [], "mds metadata": []})
    ceph = Ceph(Remote.of_cluster(section, {}), section)
    return Scene(ceph, Facts(answers), hosts, "r1-a", ClusterLimits(pause=0.1))


def perform(commands: Sequence[Command], checks: Sequence[Check] = ()) -> None:
    """Do what a step has on the leading machine: all but what Ceph is asked for, which is not there."""
    for command in commands:
        if command.node == "":
            ended = subprocess.run(["sh", "-c", command.text], capture_output=True, text=True, timeout=300)
            assert ended.returncode == 0, ended.stderr
    for check in checks:
        if check.node == "":
            wait_for(lambda check=check: check.differs(reply_to(check)) is None, str(check))  # type: ignore[misc]


def reply_to(check: Check) -> str:
    return subprocess.run(["sh", "-c", check.text], capture_output=True, text=True, timeout=120).stdout
