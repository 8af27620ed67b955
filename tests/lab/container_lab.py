"""A lab whose cluster cephadm runs in containers, and runs on it that are led from node0, which has no daemon."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Dict, Iterator, List

import cephadm_cluster
import pytest
from cephadm_cluster import FIRST, Image
from cycles import Cycle
from faulty import Faulty
from running_lab import RunningLab

S3 = {"urls": [f"http://{node}:{cephadm_cluster.PORT}" for node in cephadm_cluster.GATEWAYS], "user": "cbt"}


class ContainerCycle(Cycle):
    """A run whose head has Ceph in containers."""

    cluster: ClassVar[Dict[str, Any]] = cephadm_cluster.CLUSTER


class Containers(Faulty):
    """The cluster, and runs that are led from node0, which has no daemon."""

    gateways = cephadm_cluster.GATEWAYS

    def __init__(self, lab: RunningLab, base: Path) -> None:
        super().__init__(lab, base)
        lab.cluster_log = (FIRST, f"/var/log/ceph/{lab.lab.record.fsid}/cluster.log")
        keys = ("head", "ceph", "user", "osds", "mons", "rgws")
        self._cluster = {key: cephadm_cluster.CLUSTER[key] for key in keys}

    def sh(self, node: str, text: str) -> str:
        return self.lab.exec(node, ["sh", "-c", text]).stdout.strip()

    def unit(self, daemon: str) -> str:
        return f"ceph-{self.lab.lab.record.fsid}@{daemon}.service"

    def states(self, node: str) -> List[str]:
        """Return the states of the units of a node's OSDs."""
        units = " ".join(self.unit(f"osd.{osd}") for osd in self.lab.nodes[node].osds)
        return self.sh(node, f"systemctl is-active {units}").split()


@contextmanager
def container_lab(image: Image, factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """Run a cluster that an image's own cephadm has made, and end it."""
    cephadm_cluster.need_cephadm()
    base = factory.mktemp("cephadm")
    bring_up = cephadm_cluster.Bootstrap(base, image)
    steps: List[str] = []
    lab = cephadm_cluster.ContainerLab(factory.mktemp("lab"), say=steps.append)
    try:
        shape = cephadm_cluster.shape(factory.getbasetemp())
        lab.up(shape, detach=False, bring_up=bring_up)
        print(*steps, sep="\n")
        yield Containers(RunningLab(lab, steps), base)
    finally:
        lab.down(wipe=True)
