"""Daemons that Rook runs: entries of a set, behind the real kubectl and an API server of the tests."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any, List, Sequence, Set

from kube_api import KubeApi, Workload
from rook_scene import DEPLOYMENTS, rook_scene

from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.scene import Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Command


class Rook:
    """The API server with daemons that are entries of `running`."""

    def __init__(self, folder: Path) -> None:
        self.api, self.folder = KubeApi(), folder
        self.running: Set[str] = set()
        nodes = ("node0", "node3", "node4", "node5")
        for node, (name, labels) in zip(nodes, DEPLOYMENTS.items()):
            self.api.deployment(name, self.workload(name), node, **labels)

    def workload(self, name: str) -> Workload:
        self.running.add(name)
        return Workload(list, lambda: self.running.add(name), lambda: self.running.discard(name))

    def scene(self, **kubernetes: Any) -> Scene:
        config = str(self.api.kubeconfig(self.folder, kubernetes.pop("as_user", "admin")))
        return rook_scene({"context": "test", "kubeconfig": config, **kubernetes})

    def find(self, *daemons: DaemonName, **options: Any) -> List[Service]:
        services_by_node = service_managers.find_services(self.scene(**options), daemons)
        return [service for group in services_by_node.values() for service in group]

    def do(self, commands: Sequence[Command]) -> subprocess.CompletedProcess[str]:
        (command,) = commands
        assert command.node == "" and not command.root
        return subprocess.run(["sh", "-c", command.text], capture_output=True, text=True, timeout=120)

    def stop(self, *found: Service) -> subprocess.CompletedProcess[str]:
        return self.do(service_managers.stop(self.scene(), found))

    def start(self, *found: Service) -> subprocess.CompletedProcess[str]:
        return self.do(service_managers.start(self.scene(), found))

    def settled(self, *found: Service) -> bool:
        (check,) = service_managers.MANAGERS["rook"].settled(self.scene(), found)
        done = subprocess.run(["sh", "-c", check.text], capture_output=True, text=True, timeout=120)
        return check.differs(done.stdout) is None

    def deployment(self, name: str) -> Any:
        return self.api.objects["deployments"]["rook-ceph", name]

    def keep_evicted_pod(self, pod: str) -> None:
        """Add a pod of the same labels that was evicted long ago; Kubernetes keeps it, and does not count it."""
        pods = self.api.objects["pods"]
        evicted = copy.deepcopy(pods[self.api.namespace, pod])
        evicted["metadata"].update(name=f"{pod}-evicted", uid="evicted", creationTimestamp="2020-01-01T00:00:00Z")
        evicted["metadata"]["annotations"]["test/owner"] = ""
        evicted["status"] = {"phase": "Failed", "reason": "Evicted"}
        pods[self.api.namespace, f"{pod}-evicted"] = evicted
