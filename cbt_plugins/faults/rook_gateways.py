"""Gateways of Rook: all pods of one deployment are gateways of one name, of which a fault takes one.

For an object store Rook makes one deployment of `gateway.instances` replicas (startRGWPods in
pkg/operator/ceph/object/rgw.go, createDeployment in spec.go; the same from Rook 1.12 to 1.18).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.kubernetes_rights import GATEWAY, refuse_without_rights
from cbt_plugins.faults.scene import Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import FaultError
from cbt_plugins.inventory import HostTable

#: the annotation by which Kubernetes chooses among ready pods those that a deployment loses: the lowest first
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
#: phases of a pod whose containers have ended and do not start again
_ENDED = ("Failed", "Succeeded")


class GatewayPods(NamedTuple):
    """The pods of a deployment."""

    chosen: Any  # the oldest on the node of the service
    ready: int  # with the chosen one

    @property
    def name(self) -> str:
        """Return the name of the chosen pod."""
        return str(self.chosen["metadata"]["name"])


def gateway_pods(kubernetes: Kubernetes, service: Service) -> GatewayPods:
    """Return the pods of a service. Raises KubernetesError, and FaultError when its node has none of them."""
    selector, table = service.unit.split(":")[2], HostTable((service.node,))
    pods = [pod for pod in kubernetes.get("pods", "-l", selector)["items"] if not _has_ended(pod)]
    here = [pod for pod in pods if table.find(str(pod["spec"].get("nodeName")))]
    if not here:
        raise FaultError(f"{service.name}: no pod on {service.node} has the labels {selector}")
    oldest = min(here, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    return GatewayPods(oldest, sum(map(_is_ready, pods)))


def _has_ended(pod: Any) -> bool:
    """Return whether a pod ends, or is kept by Kubernetes after its end, for example after an eviction."""
    return bool(pod["metadata"].get("deletionTimestamp")) or pod.get("status", {}).get("phase") in _ENDED


def _is_ready(pod: Any) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions)


def shared_names(services_by_node: Mapping[str, Sequence[Service]]) -> Tuple[DaemonName, ...]:
    """Return the names that several gateways have."""
    return tuple(each.name for services in services_by_node.values() for each in services if each.instances > 1)


def one_of_each(scene: Scene, services: Iterable[Service]) -> List[Service]:
    """Return the services to stop: of several gateways of one name only one. Raises FaultError."""
    kubernetes = scene.ceph.kubernetes
    return [_service_of_pod(kubernetes, each) if kubernetes and each.instances > 1 else each for each in services]


def _service_of_pod(kubernetes: Kubernetes, service: Service) -> Service:
    try:
        refuse_without_rights(kubernetes, GATEWAY)
        pods = gateway_pods(kubernetes, service)
    except KubernetesError as error:
        raise FaultError(str(error)) from error
    if pods.ready != service.instances:
        ready = f"{pods.ready} of {service.instances} gateways of this name are ready"
        raise FaultError(f"{service.name}: {ready}, and Kubernetes ends those first that are not: wait for all of them")
    cost = str((pods.chosen["metadata"].get("annotations") or {}).get(DELETION_COST, ""))
    return replace(service, unit=f"{service.unit}:{pods.name}:{cost}")
