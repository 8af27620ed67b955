"""A cluster of Rook: the pods are reached by kubectl, Ceph's programs are in the toolbox, and a service is the URL."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from urllib.parse import urlsplit

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.kubernetes import CLIENT_LABEL, TRANSPORT, Kubernetes, KubernetesError
from cbt_plugins.cluster.rgw_frontends import Gateway
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.exit_status import FAILED
from cbt_plugins.formatting import several

from ..command import CommandError
from .cluster_kind import Site
from .endpoints import Endpoints
from .entry import Entry

TOOLBOX, _NAMESPACE = "rook-ceph-tools", "rook-ceph"
_HEAD = "toolbox"
_OPTIONS = ("context", "kubeconfig", "namespace", "object_store")
#: label of the pod of an OSD: its number
_OSD = "ceph-osd-id"
#: types of daemons, of which the first one on a Kubernetes node gives the pod of that node
_TYPES = ("osd", "mon", "rgw", "mgr", "mds")
#: keys in the secret of a CephObjectStoreUser, and in that of an ObjectBucketClaim
_OF_USER, _OF_CLAIM = ("AccessKey", "SecretKey"), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class RookSite(Site):
    """`--context`: a context of kubectl; a CephObjectStore in a namespace of Rook, and its toolbox."""

    option, example = "--context", "--context NAME"
    head_text = "Rook's toolbox, which has ceph and radosgw-admin"
    user_text = "the pods need no login"
    clients_text = "the pods that make the load: `cbt-tools kubernetes manifest` makes pods of these names"
    comments: ClassVar[Mapping[str, str]] = {
        "watched": "for monitors: one pod for each OSD of Kubernetes nodes with several OSDs",
        "radosgw-admin_cmd": "works on the zone of this object store",
    }

    def __init__(self, cluster: Dict[str, Any], object_store: Optional[str] = None) -> None:
        super().__init__(cluster)
        self._name = object_store
        self._store: Mapping[str, Any] = {}
        self._notes: List[str] = []

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        rook = parser.add_argument_group("a cluster of Rook, through kubectl")
        rook.add_argument(cls.option, metavar="NAME", help="context of kubectl (default: the present context)")
        text = "file with the context (default: as for kubectl)"
        rook.add_argument("--kubeconfig", metavar="FILE", type=os.path.abspath, help=text)
        rook.add_argument("--namespace", metavar="NAME", help=f"namespace of Rook's cluster (default: {_NAMESPACE})")
        rook.add_argument("--object-store", metavar="NAME", help="the CephObjectStore, if the namespace has several")

    @classmethod
    def of_arguments(cls, args: argparse.Namespace) -> Optional[Site]:
        if not any(getattr(args, option, None) for option in _OPTIONS):
            return None
        section = {"context": args.context or _present_context(args.kubeconfig)}
        section.update({"kubeconfig": args.kubeconfig} if args.kubeconfig else {})
        section["namespace"] = args.namespace or _NAMESPACE
        cluster = {"user": "root", "head": _HEAD, "transport": TRANSPORT, "kubernetes": section}
        return cls(cluster, args.object_store)

    def ceph(self) -> Ceph:
        kubernetes = self._kubernetes
        try:
            self._store = self._object_store(kubernetes)
            self._check_toolbox(kubernetes)
            self._add_pods(kubernetes)
        except KubernetesError as error:
            raise CommandError(str(error), FAILED) from None
        return super().ceph()

    def of_zone(self, ceph: Ceph, gateways: Sequence[Gateway]) -> Ceph:
        # Rook's ID of a gateway is the name of the store with dots, and a letter: my.store.a
        of_store = [each for each in gateways if each.id.rpartition(".")[0] == self._store_name.replace("-", ".")]
        own = next((each for each in of_store if each.realm and each.zonegroup and each.zone), None)
        if own is None or _is_default(ceph):
            return ceph
        options = [f"--rgw-realm={own.realm}", f"--rgw-zonegroup={own.zonegroup}", f"--rgw-zone={own.zone}"]
        self.cluster["radosgw-admin_cmd"] = shlex.join(["radosgw-admin", *options])  # a gateway names them
        return self._connection()

    def advice(self, result: Result) -> str:
        return f"; the deployment {TOOLBOX} must be Rook's toolbox"

    def keep_nodes(self, nodes: Sequence[str]) -> None:
        section, watched = self.cluster["kubernetes"], self.cluster.get("watched", ())
        section["pods"] = {node: pod for node, pod in section["pods"].items() if node in (*nodes, *watched)}

    def remarks(self) -> Sequence[str]:
        state = (self._store.get("status") or {}).get("phase")
        ready = [] if state in ("Ready", "Connected") else [f"CephObjectStore {self._store_name} is {state}, not Ready"]
        return [*ready, *self._notes]

    def endpoints(self, gateways: Sequence[Gateway], ca_file: Optional[str]) -> Endpoints:
        """Return the URL of the store's service. Raises CommandError for a service without endpoints."""
        urls = {scheme: _urls(self._store, scheme) for scheme in ("http", "https")}
        schemes = ("https", "http") if ca_file else ("http", "https")
        scheme = next((scheme for scheme in schemes if urls[scheme]), "")
        if not scheme:
            raise CommandError(f"CephObjectStore {self._store_name} has no endpoint in its status yet", FAILED)
        (second,) = set(schemes) - {scheme}
        for url in urls[scheme]:
            self._check_service(url)
        return Endpoints(scheme, urls[scheme], (), urls[second], ca_file if scheme == "https" else None, True)

    def keys(self, ceph: Ceph, user: Optional[str]) -> Optional[List[Entry]]:
        """Return the keys of a CephObjectStoreUser, None without one. Raises CommandError."""
        if user is None:
            return None
        secrets = {name: secret for name, secret in self._users()}
        if user not in secrets:
            present = ", ".join(sorted(secrets)) or "none"
            text = f"--user: CephObjectStore {self._store_name} has no CephObjectStoreUser {user}; there are: {present}"
            raise CommandError(text, FAILED)
        return _key_entries(secrets[user], _OF_USER)

    def header(self) -> Iterator[str]:
        """Yield comments on the object store, its users and the claims for buckets."""
        namespace = self._kubernetes.namespace
        yield f"CephObjectStore {self._store_name} in namespace {namespace}"
        for name, secret in self._users():
            access, private = _key_entries(secret, _OF_USER)
            yield f"CephObjectStoreUser {name}: {access.key}: {access.value}, {private.key}: {private.value}"
        for name, bucket in self._claims():
            access, private = _key_entries(f"{namespace}/{name}", _OF_CLAIM)
            yield f"ObjectBucketClaim {name}: bucket {bucket}, {access.key}: {access.value}, {private.key}: " + (
                str(private.value)
            )
            # Rook sets MaxBuckets of the user of a claim to 1, or to 0 for a bucket that existed before
            keys = f"buckets: {{names: [{bucket}], existing: true}}, keep_data: true"
            yield f"  Rook lets these keys make no bucket, as rgwtest would: in warp, beside s3, write {keys}"

    @property
    def _kubernetes(self) -> Kubernetes:
        return Kubernetes(self.cluster["kubernetes"])

    @property
    def _store_name(self) -> str:
        return str(self._store["metadata"]["name"])

    def _object_store(self, kubernetes: Kubernetes) -> Mapping[str, Any]:
        stores = {str(item["metadata"]["name"]): item for item in kubernetes.get("cephobjectstores")["items"]}
        where = f"namespace {kubernetes.namespace}"
        if self._name is not None and self._name not in stores:
            present = ", ".join(sorted(stores)) or "none"
            raise CommandError(f"--object-store: {where} has no CephObjectStore {self._name}; there are: {present}")
        if not stores:
            raise CommandError(f"{where} has no CephObjectStore: name another namespace (--namespace)", FAILED)
        if self._name is None and len(stores) > 1:
            raise CommandError(
                f"{where} has {len(stores)} object stores: {', '.join(sorted(stores))}: give --object-store"
            )
        return stores[self._name or next(iter(stores))]

    @staticmethod
    def _check_toolbox(kubernetes: Kubernetes) -> None:
        present = {str(item["metadata"]["name"]): item for item in kubernetes.get("deployments")["items"]}
        made_by = "`kubectl apply` of deploy/examples/toolbox.yaml of Rook makes it"
        if TOOLBOX not in present:
            text = f"namespace {kubernetes.namespace} has no toolbox (deployment {TOOLBOX}): {made_by}"
            raise CommandError(text, FAILED)
        if not (present[TOOLBOX].get("status") or {}).get("availableReplicas"):
            raise CommandError(f"the toolbox (deployment {TOOLBOX}) has no pod that is ready", FAILED)

    def _add_pods(self, kubernetes: Kubernetes) -> None:
        """Add node -> pod to `cluster`: the toolbox, clients, a daemon of each Kubernetes node, and further OSDs."""
        of_type = {f"rook-ceph-{type}": type for type in _TYPES}
        nodes: Dict[str, List[str]] = {}
        osds: Dict[str, Set[int]] = {}
        names = set()
        for pod in kubernetes.get("pods")["items"]:
            names.add(str(pod["metadata"]["name"]))
            labels, node = pod["metadata"].get("labels") or {}, pod["spec"].get("nodeName")
            app, osd = labels.get("app"), str(labels.get(_OSD))
            if app in of_type and node and _runs(pod):
                nodes.setdefault(str(node), []).append(app)
                osds.setdefault(str(node), set()).update([int(osd)] if osd.isdigit() else [])
        pods = {node: f"app={min(apps, key=list(of_type).index)}" for node, apps in sorted(nodes.items())}
        clients = {name: CLIENT_LABEL for name in self.cluster.get("clients", ()) if name not in names}
        # a node of the file is one pod, and that of a client has no OSD
        numbers = sorted({osd for node, own in osds.items() if len(own) > 1 or node in clients for osd in own})
        watched = {f"osd-{osd}": f"deploy/rook-ceph-osd-{osd}" for osd in numbers}
        if watched:
            self.cluster["watched"] = list(watched)
        of_nodes = {node: pod for node, pod in pods.items() if node not in clients}
        self.cluster["kubernetes"]["pods"] = {_HEAD: f"deploy/{TOOLBOX}", **clients, **of_nodes, **watched}

    def _check_service(self, url: str) -> None:
        """Raise CommandError where no pod is behind a service; only of one in the namespace of the store."""
        namespace = self._kubernetes.namespace
        name, _, domain = (urlsplit(url).hostname or "").partition(".")
        if domain.split(".")[:2] != [namespace, "svc"]:
            return
        try:
            subsets = self._kubernetes.get("endpoints", name).get("subsets") or ()
        except KubernetesError as error:
            raise CommandError(str(error), FAILED) from None
        count = sum(len(subset.get("addresses") or ()) for subset in subsets)
        if not count:
            raise CommandError(f"service {name} of {url} has no endpoints: no gateway of the store is ready", FAILED)
        self._notes.append(
            f"{url} is a service in front of {several(count, 'gateway')}: Kubernetes spreads connections, "
            "not requests"
        )

    def _users(self) -> Iterator[Tuple[str, str]]:
        """Yield each user of the store and its secret."""
        for item in self._optional("cephobjectstoreusers"):
            info = (item.get("status") or {}).get("info") or {}
            if item["spec"].get("store") == self._store_name:
                name = str(item["metadata"]["name"])
                yield name, str(info.get("secretName") or f"rook-ceph-object-user-{self._store_name}-{name}")

    def _claims(self) -> Iterator[Tuple[str, str]]:
        """Yield each ObjectBucketClaim that has its bucket in the store, and the bucket."""
        urls = [url for scheme in ("http", "https") for url in _urls(self._store, scheme)]
        hosts = {urlsplit(url).hostname for url in urls}
        for item in self._optional("objectbucketclaims"):
            name, bucket = str(item["metadata"]["name"]), item["spec"].get("bucketName")
            if bucket and (item.get("status") or {}).get("phase") == "Bound" and self._host_of(name) in (None, *hosts):
                yield name, str(bucket)

    def _host_of(self, claim: str) -> Optional[str]:
        """Return the host of the bucket of a claim, None if it is unknown."""
        try:
            values = self._kubernetes.get("configmap", claim).get("data") or {}
        except KubernetesError:
            return None
        return str(values["BUCKET_HOST"]).lower() if values.get("BUCKET_HOST") else None

    def _optional(self, resource: str) -> List[Mapping[str, Any]]:
        """Return objects that a file can do without; a remark says why there are none."""
        try:
            return list(self._kubernetes.get(resource)["items"])
        except KubernetesError as error:
            note = f"{resource} are not in the file: {error}"
            self._notes += [note] if note not in self._notes else []
            return []


def _runs(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs or will run. A pod that failed or was evicted stays until somebody deletes it."""
    phase = (pod.get("status") or {}).get("phase", "Running")
    return phase in ("Running", "Pending") and not pod["metadata"].get("deletionTimestamp")


def _is_default(ceph: Ceph) -> bool:
    """Return whether `radosgw-admin` without options can only mean the zone of the store. Raises CephError."""
    realms, zones = ceph.admin_json("realm list"), ceph.admin_json("zone list")
    return bool(realms.get("default_info")) and len(realms["realms"]) == len(zones["zones"]) == 1


def _present_context(kubeconfig: Optional[str]) -> str:
    """Return the context that kubectl would use. Raises CommandError."""
    try:
        return Kubernetes.present_context(kubeconfig)
    except KubernetesError as error:
        raise CommandError(f"{RookSite.option}: {error}") from None


def _urls(store: Mapping[str, Any], scheme: str) -> Tuple[str, ...]:
    """Return the URLs of one scheme in the status of an object store, as releases of Rook have them."""
    status = store.get("status") or {}
    info, lists = status.get("info") or {}, status.get("endpoints") or {}
    single = info.get({"http": "endpoint", "https": "secureEndpoint"}[scheme])
    listed = lists.get({"http": "insecure", "https": "secure"}[scheme]) or ()
    return tuple(dict.fromkeys(str(url).rstrip("/") for url in ([single] if single else listed)))


def _key_entries(secret: str, names: Tuple[str, str]) -> List[Entry]:
    """Return the lines of a file that name the keys in a secret."""
    access, private = names
    return [
        Entry("access_key", f"secret:{secret}/{access}", "the run reads the secret; the keys stay in memory"),
        Entry("secret_key", f"secret:{secret}/{private}"),
    ]
