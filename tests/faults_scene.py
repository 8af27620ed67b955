"""A scene for the steps of faults: a recorded cluster of eight hosts, whose nodes reply as if they could do all."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Dict, Sequence

from faults_judge import PACIFIC

from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults.cluster_facts import Facts
from cbt_plugins.faults.scene import Scene

NODES = tuple(f"node{i}" for i in range(9))
MONS = ("node1", "node2", "node3")


class Cluster:
    """Stands where `Ceph` and `Remote` do: OSDs of systemd, and nodes whose kernels can do all."""

    head, command, kubernetes, in_pods = "node0", "ceph", None, ()
    repaired, commands_of_osds = 0, ""  # reads of each OSD; what `tell osd.N help` replies

    @property
    def remote(self) -> Cluster:
        return self

    def port(self, node: str) -> int:
        return 22

    def __init__(self, links: str) -> None:
        self._links = links

    def run(self, nodes: Sequence[str], command: str, **_: Any) -> Dict[str, Result]:
        return {node: Result(self._reply(node, command), "", 0) for node in nodes}

    def _reply(self, node: str, command: str) -> str:
        if "ip -o addr" in command:
            return f"10.0.0.{node[-1]}\n"
        if "echo possible" in command:
            return "possible\n"
        if "config get bluestore_debug_random_read_err" in command:
            return '{"bluestore_debug_random_read_err": "0"}'
        if "pg dump osds" in command:
            return json.dumps({"osd_stats": [{"osd": osd, "num_shards_repaired": self.repaired} for osd in range(8)]})
        if re.search(r"tell osd\.\d+ help", command):
            return self.commands_of_osds
        if "action=look" in command:
            return self._links if "table=" in command else "cpus 2\navailable 8000000000\n"
        units = re.findall(r"\bosd\.\d+", command.splitlines()[0]) if "daemons=" in command else []
        return "".join(f"unit {name} ceph-osd@{name[4:]}.service active\n" for name in units) or "2\n"


def scene_of(links: str = "dev eth0 1000\n") -> Scene:
    """Return the scene. `links`: what a node replies about the interfaces and round trips of its links."""
    answers = copy.deepcopy(PACIFIC)
    last_quorum(answers)
    return Scene(Cluster(links), Facts(answers), NODES, "f")  # type: ignore[arg-type]


def last_quorum(answers: Dict[str, Any]) -> None:
    """Of three mons, one is down already."""
    answers["quorum_status"]["monmap"]["mons"] = [{"name": node} for node in MONS]
    answers["quorum_status"]["quorum_names"] = list(MONS[:2])
    answers["mon metadata"] = [{"name": node, "hostname": node} for node in MONS]
