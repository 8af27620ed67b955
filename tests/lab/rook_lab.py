"""A lab as Rook would run it: the API server of the tests, whose pods are daemons and nodes of the lab."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Dict, List, Sequence

from kube_api import KubeApi, Workload
from running_lab import RunningLab
from waiting import wait_for

from cbt_plugins.tools.lab.daemons import Daemons

STORE, USER = "my-store", "load"
#: with the keys of the lab's user
SECRET = f"rook-ceph-object-user-{STORE}-{USER}"


def name_on_node(daemon: str) -> str:
    """Return how the lab names a daemon among those of its node: osd.3, but rgw for rgw.rgw1."""
    return daemon if daemon.startswith("osd.") else daemon.partition(".")[0]


class RookLab:
    """`lab`, and `api` in front of it; this machine leads runs, and reaches nothing of the lab but by kubectl."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.api = KubeApi()
        self._lines: Dict[str, List[str]] = {}
        osds = {f"osd.{osd}": node.name for node in lab.nodes.values() for osd in node.osds}
        self.daemons = dict(osds)
        for role in ("mon", "mgr", "rgw"):
            names = [node.name for node in lab.nodes.values() if getattr(node, role)]
            self.daemons.update({f"{role}.{name}": name for name in names})
        for node in lab.nodes.values():
            self.api.put("nodes", node.name, spec={})
        operator = Workload(list)
        self.api.deployment("rook-ceph-operator", operator, "node0", app="rook-ceph-operator")
        self.api.deployment("rook-ceph-tools", self._workload("node0"), "node0", app="rook-ceph-tools")
        for daemon, node in self.daemons.items():
            type, _, id = daemon.partition(".")
            labels = {"app": f"rook-ceph-{type}", "ceph_daemon_id": id}
            if type == "osd":
                labels["ceph-osd-id"] = id
            self.api.deployment(f"rook-ceph-{type}-{id}", self._workload(node, daemon), node, **labels)
        for client in ("client1", "client2"):
            self.api.bare_pod(client, self._workload(client))
        self._object_store()

    def _object_store(self) -> None:
        """What Rook's documents say of an object store and its user."""
        keys = json.loads((self.lab.dir / "s3.json").read_text())
        endpoint = f"http://rook-ceph-rgw-{STORE}.{self.api.namespace}.svc:80"
        access, private = keys["access_key"], keys["secret_key"]
        self.api.secret(SECRET, AccessKey=access, SecretKey=private, Endpoint=endpoint)
        self.api.put("cephobjectstores", STORE, status={"phase": "Ready", "info": {"endpoint": endpoint}})
        info = {"phase": "Ready", "info": {"secretName": SECRET}}
        self.api.put("cephobjectstoreusers", USER, spec={"store": STORE}, status=info)

    def _workload(self, node: str, daemon: str = "") -> Workload:
        def enter(argv: Sequence[str]) -> List[str]:
            return self.lab.lab.enter(node, argv)

        environment = {**os.environ, **self.lab.lab.environment()}
        if not daemon:
            return Workload(enter, environment=environment)
        return Workload(enter, lambda: self._start(node, daemon), lambda: self._stop(node, daemon), environment)

    def _stop(self, node: str, daemon: str) -> None:
        """SIGTERM, as a kubelet sends it."""
        process = Daemons(self.lab.lab.spaces).running()[node][name_on_node(daemon)]
        self._lines[daemon] = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0").split("\0")
        os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: not Path(f"/proc/{process.pid}").exists(), f"the end of {daemon}")

    def _start(self, node: str, daemon: str) -> None:
        done = self.lab.exec(node, self._lines[daemon])
        assert done.returncode == 0, done.stderr

    def share_gateways(self, first: str, second: str) -> None:
        """Give the deployment of a gateway the pod of another one too, as with `gateway.instances: 2`."""
        former = f"rook-ceph-{second.replace('.', '-')}"
        with self.api.lock:
            del self.api.objects["deployments"][self.api.namespace, former]
            for pod in self.api.pods_of(former):
                self.api.delete_pod(pod)
        node = self.daemons[second]
        self.api.add_replica(f"rook-ceph-{first.replace('.', '-')}", node, self._workload(node, second))

    def close(self) -> None:
        """End the server; a daemon that is stopped runs again."""
        self.api.close()
        for daemon in set(self.daemons) - {*filter(self.runs, self.daemons)}:
            self._start(self.daemons[daemon], daemon)

    def runs(self, daemon: str) -> bool:
        return name_on_node(daemon) in Daemons(self.lab.lab.spaces).running().get(self.daemons[daemon], {})

    def deployments(self) -> Dict[str, Any]:
        """What a fault may change of each deployment."""
        with self.api.lock:
            return {
                # no annotations and empty ones are the same
                name: json.dumps([deployment["spec"]["replicas"], [*filter(all, deployment["metadata"].items())]])
                for (_, name), deployment in self.api.objects["deployments"].items()
            }

    def cluster(self, **kubernetes: Any) -> Dict[str, Any]:
        """The section `cluster:` of a file."""
        osds = [node.name for node in self.lab.nodes.values() if node.osds]
        mons = [node.name for node in self.lab.nodes.values() if node.mon]
        rgws = [node.name for node in self.lab.nodes.values() if node.rgw]
        osd_pods = {osd: f"osd-{osd}" for node in self.lab.nodes.values() for osd in node.osds}
        pods = {
            "toolbox": "deploy/rook-ceph-tools",
            "node0": "app=rook-ceph-mon",
            **{node: "app=rook-ceph-osd" for node in osds},
            **{node: "app=rook-ceph-rgw" for node in rgws},
            **{name: f"deploy/rook-ceph-osd-{osd}" for osd, name in osd_pods.items()},
        }
        kubeconfig = str(self.api.kubeconfig(self.folder))
        return {
            "user": "root",
            "head": "toolbox",
            "clients": ["client1", "client2"],
            "osds": osds,
            "mons": mons,
            "rgws": rgws,
            "watched": list(osd_pods.values()),
            "use_existing": True,
            "iterations": 1,
            "tmp_dir": "/var/tmp/cbt-rook",
            "transport": "kubectl",
            "kubernetes": {"context": "test", "kubeconfig": kubeconfig, "pods": pods, **kubernetes},
        }
