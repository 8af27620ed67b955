"""Rights that faults need in a Kubernetes cluster."""

from __future__ import annotations

from typing import Iterator, Mapping, Tuple

from cbt_plugins.cluster.kubernetes import EVERYWHERE, Kubernetes, KubernetesError

#: the pod of one of several gateways that share a name
GATEWAY = "gateway"
#: object of `Kind.changes_in_kubernetes`, or `GATEWAY` -> rights of the commands that change it: verb and resource
RIGHTS: Mapping[str, Tuple[Tuple[str, str], ...]] = {
    "deployment": (("list", "pods"), ("patch", "deployments"), ("patch", "deployments/scale")),
    "pod": (("list", "pods"), ("delete", "pods")),
    "node": (("list", "pods"), ("create", "pods/eviction"), ("get", "nodes"), ("patch", "nodes")),
    GATEWAY: (("patch", "pods"),),
}
#: the same, in all namespaces: `kubectl drain` lists the pods of a node
RIGHTS_EVERYWHERE: Mapping[str, Tuple[Tuple[str, str], ...]] = {"node": (("list", "pods"),)}


def missing_rights(kubernetes: Kubernetes, changed: str) -> Iterator[str]:
    """Yield an error for each right that the user of the context lacks to change these objects.

    With deployments of daemons, that of the operator is changed too.
    """
    namespaces = (kubernetes.namespace, *((kubernetes.operator_namespace,) if changed == "deployment" else ()))
    rights = [(*right, where) for right in RIGHTS.get(changed, ()) for where in dict.fromkeys(namespaces)]
    rights += [(*right, EVERYWHERE) for right in RIGHTS_EVERYWHERE.get(changed, ())]
    for verb, resource, namespace in rights:
        try:
            kubernetes.refuse_without_right(verb, resource, namespace)
        except KubernetesError as error:
            yield str(error)


def gateways_share_a_name(kubernetes: Kubernetes) -> bool:
    """Tell whether an object store has several gateways. Raises KubernetesError."""
    deployments = kubernetes.get("deployments", "-l", "app=rook-ceph-rgw")["items"]
    return any(deployment["spec"]["replicas"] > 1 for deployment in deployments)


def refuse_without_rights(kubernetes: Kubernetes, changed: str) -> None:
    """Raise KubernetesError with the first right that the user of the context lacks to change these objects."""
    for error in missing_rights(kubernetes, changed):
        raise KubernetesError(error)
