"""`cluster: kubernetes:` -- which cluster kubectl reaches, and which pod each node is."""

from __future__ import annotations

from typing import Annotated, Any, Dict, Iterator, Mapping, Optional

from pydantic import BeforeValidator, Field, WithJsonSchema

from cbt_plugins.config.key_errors import FieldError, Strict
from cbt_plugins.config.shell_values import FilePath, KubernetesContext, KubernetesName, PodPattern
from cbt_plugins.inventory import host_of


class PodSection(Strict):
    """The pod that a node is."""

    pod: PodPattern = Field(description="Pod; `deploy/NAME`; or `LABEL=VALUE`, the pod on the node of this name.")
    container: Optional[KubernetesName] = Field(None, description="Container. Default: the first one.")
    namespace: Optional[KubernetesName] = Field(None, description="Default: `namespace:` of the cluster.")


def _pod(value: Any) -> Any:
    return {"pod": value} if isinstance(value, str) else value


_POD_SCHEMA = {"anyOf": [{"type": "string"}, PodSection.model_json_schema()]}
Pod = Annotated[PodSection, BeforeValidator(_pod), WithJsonSchema(_POD_SCHEMA)]


class KubernetesSection(Strict):
    """A Kubernetes cluster, as kubectl reaches it."""

    context: KubernetesContext = Field(description="Context: `kubectl config current-context` prints the present one.")
    kubeconfig: Optional[FilePath] = Field(None, description="Default: as for kubectl (KUBECONFIG, `~/.kube/config`).")
    namespace: KubernetesName = Field("rook-ceph", description="Namespace of Ceph's daemons and the toolbox.")
    operator_namespace: Optional[KubernetesName] = Field(
        None, description="Namespace of Rook's operator. Default: `namespace:`."
    )
    pods: Dict[str, Pod] = Field({}, description="Node -> pod. Default: the pod that has the name of the node.")


def errors_of_pods(cluster: Mapping[str, Any], hosts: Any) -> Iterator[FieldError]:
    """Yield each node of `kubernetes: pods:` that the section does not have."""
    section = cluster.get("kubernetes")
    pods = section.get("pods") if isinstance(section, dict) else None
    for node in pods if isinstance(pods, dict) else ():
        if host_of(str(node)) not in hosts:
            yield FieldError(("kubernetes", "pods", node), f"the section has no node {node!r}", of_key=True)
