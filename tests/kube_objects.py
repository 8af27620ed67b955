"""Objects of Kubernetes as plain values: their resources, documents, selectors and changes."""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

Object = Dict[str, Any]

#: (group, version) -> resource -> kind
RESOURCES: Mapping[Tuple[str, str], Mapping[str, str]] = {
    ("", "v1"): {
        "pods": "Pod",
        "services": "Service",
        "secrets": "Secret",
        "configmaps": "ConfigMap",
        "namespaces": "Namespace",
        "nodes": "Node",
        "endpoints": "Endpoints",
        "events": "Event",
        "serviceaccounts": "ServiceAccount",
    },
    ("apps", "v1"): {"deployments": "Deployment", "daemonsets": "DaemonSet"},
    ("batch", "v1"): {"jobs": "Job"},
    ("policy", "v1"): {"poddisruptionbudgets": "PodDisruptionBudget"},
    ("rbac.authorization.k8s.io", "v1"): {
        "roles": "Role",
        "rolebindings": "RoleBinding",
        "clusterroles": "ClusterRole",
        "clusterrolebindings": "ClusterRoleBinding",
    },
    ("authorization.k8s.io", "v1"): {"selfsubjectaccessreviews": "SelfSubjectAccessReview"},
    ("ceph.rook.io", "v1"): {
        "cephclusters": "CephCluster",
        "cephobjectstores": "CephObjectStore",
        "cephobjectstoreusers": "CephObjectStoreUser",
    },
    ("objectbucket.io", "v1alpha1"): {"objectbucketclaims": "ObjectBucketClaim"},
}
SHORT = {"deployments": ["deploy"], "pods": ["po"], "objectbucketclaims": ["obc"]}
OF_CLUSTER = ("namespaces", "nodes", "clusterroles", "clusterrolebindings")
VERBS = ["create", "delete", "get", "list", "patch", "update"]
PROTOBUF = b"k8s\x00"


def nodes_of(template: Object) -> List[str]:
    """Return the Kubernetes nodes that the affinity of a DaemonSet's pods names."""
    affinity = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [
        name
        for term in affinity["nodeSelectorTerms"]
        for field in term["matchFields"]
        if field["key"] == "metadata.name"
        for name in field["values"]
    ]


def let_wait(pod: Object, reason: str, message: str) -> None:
    """Give a pod the status that a kubelet gives it while its container waits, or the scheduler: "Unschedulable"."""
    detail = {"reason": reason, "message": message}
    if reason == "Unschedulable":
        del pod["spec"]["nodeName"]
        pod["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", **detail}]}
        return
    (container,) = pod["spec"]["containers"]
    scheduled = {"type": "PodScheduled", "status": "True"}
    statuses = [{"name": container["name"], "ready": False, "restartCount": 0, "state": {"waiting": detail}}]
    phase = "Running" if reason == "CrashLoopBackOff" else "Pending"
    pod["status"] = {"phase": phase, "conditions": [scheduled], "containerStatuses": statuses}


def exec_error(pod: Object) -> Optional[Tuple[int, str, str]]:
    """Return (code, reason, message) of an `exec` in a pod that has no container yet; None where it can be run."""
    if not pod["spec"].get("nodeName"):
        return 400, "BadRequest", f"pod {pod['metadata']['name']} does not have a host assigned"
    if any("waiting" in container["state"] for container in pod["status"].get("containerStatuses", ())):
        (container,) = pod["spec"]["containers"]
        return 500, "InternalError", f'unable to upgrade connection: container not found ("{container["name"]}")'
    return None


def config_document(server: str, user: str) -> Object:
    """Return a kubeconfig with the context `test`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": user, "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    }


def counts(pods: int) -> Object:
    """Return the status of a deployment, all of whose pods are ready."""
    names = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
    return dict.fromkeys(names, pods) if pods else {"observedGeneration": 1}


def first_to_end(pods: List[Object]) -> List[Object]:
    """Return ready pods, which begin with the oldest, in the order in which a ReplicaSet ends them."""

    def cost(pod: Object) -> int:
        return int(pod["metadata"].get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost", 0))

    return sorted(reversed(pods), key=cost)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def protobuf_fields(message: bytes) -> Dict[int, List[bytes]]:
    """Return the texts and messages of a protobuf message, by the numbers of their fields."""
    fields: Dict[int, List[bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        size = number()
        if key & 7 == 2:
            fields.setdefault(key >> 3, []).append(message[at : at + size])
            at += size
    return fields


def reviewed(body: bytes) -> List[str]:
    """Return namespace, verb, resource, part and name of a SelfSubjectAccessReview, which comes as protobuf."""
    message = b"".join(protobuf_fields(body[len(PROTOBUF) :])[2])
    (attributes,) = protobuf_fields(protobuf_fields(message)[2][0])[1]
    return [b"".join(protobuf_fields(attributes).get(number, ())).decode() for number in (1, 2, 5, 6, 7)]


def scale_of(deployment: Object) -> Object:
    metadata = {key: deployment["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    spec = {"replicas": deployment["spec"]["replicas"]}
    status = {"replicas": deployment.get("status", {}).get("replicas", 0)}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def group_document(group: str, version: str) -> Object:
    of = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [of], "preferredVersion": of}


def resources_document(group: str, version: str) -> Object:
    rows = []
    for name, kind in RESOURCES[group, version].items():
        single = {"singularName": kind.lower(), "shortNames": SHORT.get(name, [])}
        rows.append({"name": name, "namespaced": name not in OF_CLUSTER, "kind": kind, "verbs": VERBS, **single})
        if name == "deployments":
            scale = {"kind": "Scale", "group": "autoscaling", "version": "v1"}
            rows.append({"name": "deployments/scale", "singularName": "", "namespaced": True, "verbs": VERBS, **scale})
        if name == "pods":
            eviction = {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]}
            rows.append({"name": "pods/eviction", "singularName": "", "namespaced": True, **eviction})
            of = {"kind": "PodExecOptions", "verbs": ["create", "get"]}
            rows.append({"name": "pods/exec", "singularName": "", "namespaced": True, **of})
    versions = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": versions, "resources": rows}


def field_pairs(selector: Optional[List[str]]) -> List[Tuple[str, str]]:
    words = (selector or [""])[0].replace("==", "=").split(",")
    return [(key, value) for key, _, value in (word.partition("=") for word in words if word)]


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether labels fit "a=b,c in (d,e),f": equal, one of several, or present."""
    sets = re.findall(r"([^,\s]+) in \(([^)]*)\)", selector)
    pairs = field_pairs([re.sub(r"[^,\s]+ in \([^)]*\)", "", selector)])
    in_sets = all(labels.get(key) in [value.strip() for value in values.split(",")] for key, values in sets)
    return in_sets and all(has_label(labels, key, value) for key, value in pairs)


def has_label(labels: Mapping[str, str], key: str, value: str) -> bool:
    """Return whether a label has a value, or is there where no value is asked for."""
    return labels.get(key) == value if value else key in labels


def value_at(entry: Any, path: str) -> Any:
    for key in path.split("."):
        entry = entry.get(key) if isinstance(entry, dict) else None
    return entry


def merge(entry: Object, change: Mapping[str, Any]) -> None:
    """Apply a JSON merge patch (RFC 7396)."""
    for key, value in change.items():
        if value is None:
            entry.pop(key, None)
        elif isinstance(value, dict):
            merge(entry.setdefault(key, {}), value)
        else:
            entry[key] = value
