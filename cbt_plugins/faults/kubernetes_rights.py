"""Rights that faults need in a Kubernetes cluster."""

from __future__ import annotations

from typing import Iterator, Mapping, Tuple

from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError

#: object of `Kind.changes_in_kubernetes` -> rights of the commands that change it: verb and resource
RIGHTS: Mapping[str, Tuple[Tuple[str, str], ...]] = {
    "deployment": (("list", "pods"), ("patch", "deployments"), ("patch", "deployments/scale")),
    "pod": (("list", "pods"), ("delete", "pods")),
    "node": (("list", "pods"), ("create", "pods/eviction"), ("patch", "nodes")),
}


def missing_rights(kubernetes: Kubernetes, changed: str) -> Iterator[str]:
    """Yield an error for each right that the user of the context lacks to change these objects.

    With deployments of daemons, that of the operator is changed too.
    """
    namespaces = (kubernetes.namespace, *((kubernetes.operator_namespace,) if changed == "deployment" else ()))
    for verb, resource in RIGHTS.get(changed, ()):
        for namespace in dict.fromkeys(namespaces):
            try:
                kubernetes.refuse_without_right(verb, resource, namespace)
            except KubernetesError as error:
                yield str(error)


def refuse_without_rights(kubernetes: Kubernetes, changed: str) -> None:
    """Raise KubernetesError with the first right that the user of the context lacks to change these objects."""
    for error in missing_rights(kubernetes, changed):
        raise KubernetesError(error)
