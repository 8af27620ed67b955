"""Write what a run needs in a Kubernetes cluster."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import yaml

from cbt_plugins.cluster.kubernetes import Kubernetes, Pod
from cbt_plugins.config.cluster import nodes_in_pods
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.fault import changes_in_kubernetes, stops_gateways
from cbt_plugins.config.fault_spans import fault_spans
from cbt_plugins.config.file_check import Config, load
from cbt_plugins.config.yaml_source import read
from cbt_plugins.inventory import nodes_of

from .command import CommandError, explain

#: has Python 3, sh and timeout; the programs of the load are copied into it
_IMAGE = "docker.io/library/python:3.11-slim"
_ACCOUNT, _LABEL = "cbt-plugins", "cbt-plugins-client"
#: of pods and Jobs with names: a DaemonSet would adopt, and delete, a pod that has its label
_NAMED_LABEL = "cbt-plugins-named-client"
#: of the pods of a DaemonSet, beside the label of the file: another file may have the same label, and other nodes
_NODES = "cbt-plugins-nodes"
_JOB = ("job", "jobs")
_OSD_LABELS, _HOST = {"app": "rook-ceph-osd"}, "kubernetes.io/hostname"
#: security context of pods that may not be root: the image may have no other user
_NO_ROOT = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532}
_SECRET = "secret:"
#: where rights for objects without a namespace are
_CLUSTER = ""
#: kind in kind/NAME, as `kubectl exec` takes it -> API group and resource
_RESOURCES = {
    kind: (group, resource)
    for group, resource, *short in (
        ("apps", "deployments", "deployment", "deploy"),
        ("apps", "replicasets", "replicaset", "rs"),
        ("apps", "statefulsets", "statefulset", "sts"),
        ("apps", "daemonsets", "daemonset", "ds"),
        ("batch", "jobs", "job"),
        ("", "replicationcontrollers", "replicationcontroller", "rc"),
        ("", "services", "service", "svc"),
    )
    for kind in (resource, *short)
}
Object = Dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs for Kubernetes."""
    explain(parser, ("cbt-tools kubernetes manifest my.yaml",))
    verbs = parser.add_subparsers(dest="kubernetes_verb", required=True, metavar="manifest")
    text = "print the pods of the clients, and a service account with the rights that the run of FILE needs"
    pipes = "`| kubectl apply -f -` makes these objects, `| kubectl delete -f -` removes these objects"
    manifest = verbs.add_parser("manifest", help=text, description=f"{text}. {pipes}.")
    explain(manifest, ("cbt-tools kubernetes manifest my.yaml --cpu 8 --away-from-osds",))
    manifest.add_argument("file", help="YAML file with `transport: kubectl`")
    image = "image of the clients, with sh and Python 3 (default: %(default)s)"
    manifest.add_argument("--image", default=_IMAGE, help=image)
    cpu = "CPU request and limit of a client (default: %(default)s)"
    manifest.add_argument("--cpu", type=_cpu, default="2", help=cpu)
    memory = "memory request and limit of a client, such as 4GiB (default: %(default)s)"
    manifest.add_argument("--memory", type=_memory, default="2Gi", help=memory)
    selector = "label of the Kubernetes nodes for clients; may be repeated"
    manifest.add_argument("--node-selector", metavar="KEY=VALUE", action="append", default=[], help=selector)
    restricted = "pods that the Pod Security level `restricted` allows: no root, no volume"
    manifest.add_argument("--restricted", action="store_true", help=restricted)
    manifest.add_argument("--away-from-osds", action="store_true", help="no client on a node with an OSD of Rook")


def _cpu(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?([eE]\d+)?|\d+m", text) or not float(text.rstrip("m")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of CPUs: write 8, 0.5 or 500m")
    return text


def _memory(text: str) -> str:
    """Return a size as Kubernetes writes it: 4Gi for 4GiB, 4G for 4GB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:([eE]\d+)|([KMGTPE]i)B?|([kKMGTPE])B?|B)?", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write 4GiB (4Gi of Kubernetes) or 4GB (4G)")
    number, exponent, binary, decimal = match.groups()
    return number + (exponent or binary or (decimal or "").replace("K", "k"))


def run(args: argparse.Namespace) -> int:
    """Print the manifest. All errors of the file go to stderr."""
    try:
        config = load(read(Path(args.file)))
    except ConfigError as error:
        raise CommandError(str(error)) from None
    kubernetes = Kubernetes.of(config.cluster)
    if kubernetes is None:
        raise CommandError(f"{args.file}: cluster: has no kubernetes: section: see docs/SITES.md")
    selector = dict(word.partition("=")[::2] for word in args.node_selector)
    if not all(key and value for key, value in selector.items()):
        raise CommandError(f"--node-selector: must be KEY=VALUE: {', '.join(args.node_selector)}")
    clients = _Clients(config, kubernetes, args.image, {"cpu": args.cpu, "memory": args.memory}, selector)
    clients.away_from_osds, clients.restricted = args.away_from_osds, args.restricted
    objects = [*clients.objects(), *_Rights(config, kubernetes).objects()]
    print(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120), end="")
    return 0


class _Dumper(yaml.SafeDumper):
    """Quotes each text that kubectl would read as a number or a truth value, and PyYAML not: 08, 1e3, y."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if len(data) > 1 and data[0].isalpha() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


@dataclass
class _Clients:
    """The pods of the clients, by what `kubernetes: pods:` says of each."""

    config: Config
    kubernetes: Kubernetes
    image: str
    resources: Mapping[str, str]
    selector: Mapping[str, str]
    away_from_osds: bool = False
    restricted: bool = False

    def objects(self) -> Iterator[Object]:
        """Yield a DaemonSet for each label, and a Job or a Pod for each name."""
        by_label: Dict[Tuple[str, str], List[str]] = {}
        for client in nodes_of(self.config.cluster, "clients"):
            pod = self.kubernetes.pod(client)
            kind, _, name = pod.pattern.rpartition("/")
            if pod.is_label:
                by_label.setdefault((pod.namespace, pod.pattern), []).append(client)
            elif kind in ("", "pod", "pods", "po", *_JOB):
                yield self._single(kind, name, pod)
            else:
                text = f"{client} is {pod.pattern}: a client must be a pod, job/NAME, or LABEL=VALUE"
                raise CommandError(f"kubernetes: pods: {text}")
        for (namespace, pattern), nodes in by_label.items():
            labels = dict(pair.partition("=")[::2] for pair in pattern.split(","))
            yield self._daemon_set(namespace, labels, nodes)

    def _single(self, kind: str, name: str, pod: Pod) -> Object:
        metadata = {"name": name, "namespace": pod.namespace, "labels": {"app": _NAMED_LABEL}}
        spec = self._pod_spec({}, spread=True)
        if kind not in _JOB:
            return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        template = {"metadata": {"labels": {"app": _NAMED_LABEL}}, "spec": spec}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"backoffLimit": 0, "template": template},
        }

    def _daemon_set(self, namespace: str, labels: Mapping[str, str], nodes: Sequence[str]) -> Object:
        # a field takes one value; of several terms one must hold
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]
        required = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
        spec = self._pod_spec({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
        spec["restartPolicy"] = "Always"
        digest = _digest([sorted(labels.items()), sorted(nodes)])
        own = {**labels, _NODES: f"n{digest}"}  # a letter first: some digests are numbers in YAML
        template = {"metadata": {"labels": own}, "spec": spec}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": f"{_LABEL}-{digest}", "namespace": namespace, "labels": own},
            "spec": {"selector": {"matchLabels": own}, "template": template},
        }

    def _pod_spec(self, affinity: Object, spread: bool = False) -> Object:
        apart = {**affinity}
        if self.away_from_osds:
            near = {"labelSelector": {"matchLabels": _OSD_LABELS}, "topologyKey": _HOST}
            near["namespaces"] = [self.kubernetes.namespace]
            apart["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
        if spread:
            others = {"labelSelector": {"matchLabels": {"app": _NAMED_LABEL}}, "topologyKey": _HOST}
            preferred = [{"weight": 100, "podAffinityTerm": others}]
            apart.setdefault("podAntiAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
        pod: Object = {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **(_NO_ROOT if self.restricted else {})},
            **({"nodeSelector": dict(self.selector)} if self.selector else {}),
            **({"affinity": apart} if apart else {}),
        }
        folder = str(self.config.cluster.get("tmp_dir") or "/tmp/cbt")
        common: Object = {
            "image": self.image,
            "resources": {"requests": dict(self.resources), "limits": dict(self.resources)},
        }
        mounts = {"volumeMounts": [{"name": "rows", "mountPath": folder}]}
        security: Object = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        # everybody can write an emptyDir, and only its owner, root, can change that: a run would refuse the folder
        sticky = {
            "name": "folder",
            **common,
            **mounts,
            "command": ["chmod", "1777", folder],
            "securityContext": {**security, "runAsUser": 0, "runAsNonRoot": False},
        }
        load = {
            "name": "load",
            **common,
            # a shell as process 1 would ignore SIGTERM
            "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"],
            "securityContext": security,
        }
        if self.restricted:  # the folder of the run is one of its own, in /tmp or /var/tmp of the image
            return {**pod, "containers": [load]}
        volumes = [{"name": "rows", "emptyDir": {}}]
        return {**pod, "initContainers": [sticky], "containers": [{**load, **mounts}], "volumes": volumes}


def _digest(content: Any) -> str:
    """Return a short text for the name of an object: objects of another content must not replace the object."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]


@dataclass
class _Rights:
    """A service account for the machine that leads the run, with what the run of a file asks the API server for."""

    config: Config
    kubernetes: Kubernetes
    #: namespace -> (API group, resource, names, verbs)
    rules: Dict[str, List[Tuple[str, str, Tuple[str, ...], Tuple[str, ...]]]] = field(default_factory=dict)

    def objects(self) -> Iterator[Object]:
        """Yield the account, a role for each namespace and one for nodes, and their bindings."""
        namespace = self.kubernetes.namespace
        self._of_commands()
        self._of_secrets()
        in_pods = bool(nodes_in_pods(self.config.cluster))
        faults = [span.fault for run in self.config.runs for span in fault_spans(run.plan)]
        self._of_faults({changes_in_kubernetes(fault, in_pods) for fault in faults})
        if any(stops_gateways(fault) for fault in faults if changes_in_kubernetes(fault, in_pods)):
            # of several gateways of one name, its deletion cost chooses the pod that ends
            self._allow(namespace, "", "pods", ["patch"])
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": namespace}}
        for where in self.rules:
            yield from self._role(where, namespace)

    def _role(self, where: str, of_account: str) -> Iterator[Object]:
        kind, group = ("Role" if where else "ClusterRole"), "rbac.authorization.k8s.io"
        rules = [
            {"apiGroups": [of], "resources": [resource], **({"resourceNames": list(names)} if names else {})}
            | {"verbs": list(verbs)}
            for of, resource, names, verbs in dict.fromkeys(self.rules[where])
        ]
        name = f"{_ACCOUNT}-{_digest([of_account, where, rules])}"
        metadata = {"name": name, **({"namespace": where} if where else {})}
        yield {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": of_account}],
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        }

    def _allow(self, where: str, of: str, resource: str, verbs: Sequence[str], names: Sequence[str] = ()) -> None:
        self.rules.setdefault(where, []).append((of, resource, tuple(names), tuple(verbs)))

    def _of_commands(self) -> None:
        """Allow commands in the pods of the nodes."""
        pods = [self.kubernetes.pod(node) for node in nodes_of(self.config.cluster)]
        for namespace in dict.fromkeys(pod.namespace for pod in pods):
            here = [pod for pod in pods if pod.namespace == namespace]
            lists = any(pod.is_label or "/" in pod.pattern for pod in here)
            self._allow(namespace, "", "pods", ["get", *(["list"] if lists else [])])
            # kubectl asks for one or the other, depending on its version
            self._allow(namespace, "", "pods/exec", ["create", "get"])
            names_by_resource: Dict[Tuple[str, str], Set[str]] = {}
            for kind, _, name in (pod.pattern.rpartition("/") for pod in here if not pod.is_label):
                if kind in _RESOURCES:
                    names_by_resource.setdefault(_RESOURCES[kind], set()).add(name)
            for (group, resource), names in names_by_resource.items():
                self._allow(namespace, group, resource, ["get"], sorted(names))

    def _of_secrets(self) -> None:
        by_namespace: Dict[str, List[str]] = {}
        for run in self.config.runs:
            s3 = run.plan.s3
            for source in (s3.access_key_source, s3.secret_key_source, s3.session_token_source):
                if source and source.startswith(_SECRET):
                    *namespace, name, _ = source[len(_SECRET) :].split("/")
                    names = by_namespace.setdefault(namespace[0] if namespace else self.kubernetes.namespace, [])
                    names += [name] if name not in names else []
        for where, names in by_namespace.items():
            self._allow(where, "", "secrets", ["get"], sorted(names))

    def _of_faults(self, changed: Set[Optional[str]]) -> None:
        """Allow what faults do that change these objects, as Kind.changes_in_kubernetes names them."""
        namespace, operators = self.kubernetes.namespace, self.kubernetes.operator_namespace
        if "deployment" in changed:
            for where in dict.fromkeys((namespace, operators)):
                self._allow(where, "", "pods", ["list"])
                self._allow(where, "apps", "deployments", ["get", "patch", *(["list"] if where == namespace else [])])
                self._allow(where, "apps", "deployments/scale", ["patch"])
        if changed.intersection(("pod", "node")):
            self._allow(namespace, "", "pods", ["list"])
            self._allow(namespace, "apps", "deployments", ["get", "list"])
        if "pod" in changed:
            self._allow(namespace, "", "pods", ["delete"])
        if "node" in changed:
            self._allow(namespace, "", "pods/eviction", ["create"])
            self._allow(_CLUSTER, "", "nodes", ["get", "patch"])
            self._allow(_CLUSTER, "", "pods", ["list"])  # kubectl drain asks for the pods of all namespaces
