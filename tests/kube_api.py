"""A small API server of Kubernetes for tests: real `kubectl` talks to it; its pods are whatever `enter` reaches.

It has objects of the kinds that Rook's documents name, rights by token, deployments whose pods start and stop, an
operator that scales its deployments back, and `exec` (kube_exec.py).
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import secrets
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple
from urllib.parse import parse_qs

import kube_exec
import kube_spdy
from kube_objects import (
    OF_CLUSTER,
    RESOURCES,
    Object,
    config_document,
    counts,
    exec_error,
    field_pairs,
    first_to_end,
    group_document,
    merge,
    nodes_of,
    now,
    resources_document,
    reviewed,
    scale_of,
    selects,
    value_at,
)
from kube_rights import Right, is_allowed


@dataclass
class Workload:
    """What a deployment runs: `enter` makes a command line that runs in its pod; a daemon that starts and stops."""

    enter: Callable[[Sequence[str]], List[str]]
    start: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    environment: Optional[Dict[str, str]] = None


@dataclass
class Exec:
    """One command in a pod."""

    pod: str
    process: subprocess.Popen[bytes]
    connection: socket.socket

    def drop(self) -> None:
        """Cut the connection, as a node or a load balancer between does; what runs is left alone."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@dataclass
class KubeApi:
    """The server. `refused` has the (verb, resource) pairs that a user may not do.

    A user is the first part of the path: kubectl sends a token through TLS only (kube_tls.py). A user of `tokens` needs
    one. A service account has the rights of its roles (kube_rights.py). `used` has every request that was allowed.
    """

    namespace: str = "rook-ceph"
    refused: Dict[str, List[Tuple[str, str]]] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: Dict[str, Dict[Tuple[str, str], Object]] = {}
        self.workloads: Dict[str, Workload] = {}  # deployment or bare pod -> what it runs
        self.others: Dict[str, Dict[str, Workload]] = {}  # deployment -> node of one more pod -> what that runs
        self.execs: List[Exec] = []
        self.requests: List[str] = []
        self.protocols: Set[str] = set()  # of all `exec`
        self.used: Set[Right] = set()
        #: a Kubernetes node -> what runs in a pod that a DaemonSet, a Job or a manifest makes there
        self.on_node: Callable[[str], Workload] = lambda node: Workload(list)
        self.scales_back = ""  # a deployment that somebody else scales back to 1 at once
        self._changing: List[threading.Thread] = []
        self._ended = threading.Event()
        api = self
        self.put("namespaces", self.namespace)

        class Handler(_Handler):
            server_api = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._threads = [threading.Thread(target=self._server.serve_forever, daemon=True)]
        self._threads.append(threading.Thread(target=self._operate, daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, folder: Path, user: str = "admin") -> Path:
        """Write a file with the context `test`."""
        path = folder / f"kubeconfig-{user}"
        path.write_text(json.dumps(config_document(f"{self.url}/{user}", user)))
        return path

    def close(self) -> None:
        self._ended.set()
        for running in list(self.execs):
            kube_exec.kill_session(running.process.pid)
        self._server.shutdown()
        self._server.server_close()
        for thread in (*self._threads, *self._changing):
            thread.join(60)

    # ---- objects ----

    def put(self, resource: str, name: str, namespace: str = "", **content: Any) -> Object:
        """Make an object; `labels` and `annotations` belong to its metadata."""
        group, version, kind = next((*of, kinds[resource]) for of, kinds in RESOURCES.items() if resource in kinds)
        where = "" if resource in OF_CLUSTER else namespace or self.namespace
        metadata = {"name": name, "uid": secrets.token_hex(8), "creationTimestamp": now(), "resourceVersion": "1"}
        metadata.update({key: content.pop(key) for key in ("labels", "annotations") if key in content})
        if where:
            metadata["namespace"] = where
        made = {
            "apiVersion": f"{group}/{version}" if group else version,
            "kind": kind,
            "metadata": metadata,
            **content,
        }
        with self.lock:
            self.objects.setdefault(resource, {})[where, name] = made
        return made

    def secret(self, name: str, **values: str) -> None:
        self.put("secrets", name, data={key: base64.b64encode(text.encode()).decode() for key, text in values.items()})

    def bare_pod(self, name: str, workload: Workload, node: str = "node0", **labels: str) -> None:
        """Make a pod that no deployment has."""
        self.workloads[name] = workload
        self._make_pod(name, name, labels, node)

    def deployment(self, name: str, workload: Workload, node: str, namespace: str = "", **labels: str) -> None:
        """Make a deployment of one replica, with its pod on a node; its daemon runs already."""
        self.workloads[name] = workload
        labels["rook_cluster"] = namespace or self.namespace  # as Rook does
        replicas = {"replicas": 1, "selector": {"matchLabels": labels}}
        pod = {"metadata": {"labels": labels}, "spec": {"nodeName": node, "containers": [{"name": labels["app"]}]}}
        self.put("deployments", name, namespace, labels=dict(labels), spec={**replicas, "template": pod})
        self._start_pod(self.objects["deployments"][namespace or self.namespace, name], node)

    def add_replica(self, name: str, node: str, workload: Workload) -> None:
        """Give a deployment one more pod, on another node; its daemon runs already."""
        self.others.setdefault(name, {})[node] = workload
        deployment = next(d for (_, n), d in self.objects["deployments"].items() if n == name)
        deployment["spec"]["replicas"] += 1
        self._start_pod(deployment, node)

    def _start_pod(self, deployment: Object, node: str) -> None:
        name, template = deployment["metadata"]["name"], deployment["spec"]["template"]
        pod = f"{name}-{secrets.token_hex(3)}"
        owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "0", "controller": True}]
        self._make_pod(pod, name, template["metadata"]["labels"], node, owners, deployment["metadata"]["namespace"])
        deployment["status"] = counts(len(self.pods_of(name)))

    def workload_of(self, pod: Object) -> Workload:
        owner = pod["metadata"]["annotations"]["test/owner"]
        return self.others.get(owner, {}).get(pod["spec"].get("nodeName"), self.workloads[owner])

    def _make_pod(
        self,
        name: str,
        owner: str,
        labels: Mapping[str, str],
        node: str,
        owners: Sequence[Object] = (),
        namespace: str = "",
    ) -> None:
        container = {"name": labels.get("app", "main"), "image": "ceph"}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "startTime": now()}
        about = {"labels": dict(labels), "annotations": {"test/owner": owner}}
        spec = {"nodeName": node, "containers": [container]}
        made = self.put("pods", name, namespace, spec=spec, status=status, **about)
        if owners:
            made["metadata"]["ownerReferences"] = list(owners)

    def pods_of(self, deployment: str) -> List[str]:
        with self.lock:
            return [
                name
                for (_, name), pod in self.objects.get("pods", {}).items()
                if pod["metadata"]["annotations"]["test/owner"] == deployment
            ]

    def replicas(self, name: str) -> int:
        with self.lock:
            return int(next(d for (_, n), d in self.objects["deployments"].items() if n == name)["spec"]["replicas"])

    def scaled(self, deployment: Object, before: int) -> None:
        """Begin what the controllers and the kubelet do after a change of `replicas`; it ends later."""
        now = deployment["spec"]["replicas"]
        if now != before:
            # a name in a closure would be the last one
            change = threading.Thread(target=self._change, args=(deployment,), daemon=True)
            self._changing.append(change)
            change.start()

    def _change(self, deployment: Object) -> None:
        name = deployment["metadata"]["name"]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_LOCKS.setdefault(id(deployment), threading.Lock()))
            wanted, others = deployment["spec"]["replicas"], self.others.get(name, {})
            with self.lock:
                pods = [self.objects["pods"][deployment["metadata"]["namespace"], pod] for pod in self.pods_of(name)]
            taken = {pod["spec"]["nodeName"] for pod in pods}
            first = deployment["spec"]["template"]["spec"]["nodeName"]
            free = [node for node in (first, *others) if node not in taken]
            for node in filter(self._takes_pods, free[: max(0, wanted - len(pods))]):
                others.get(node, self.workloads[name]).start()
                with self.lock:
                    self._start_pod(deployment, node)
            ended = first_to_end(pods)[: max(0, len(pods) - wanted)]
            with self.lock:
                for pod in ended:
                    pod["metadata"]["deletionTimestamp"] = now()
                    deployment["status"] = counts(wanted)
            for pod in ended:
                self.workload_of(pod).stop()
                self.delete_pod(pod["metadata"]["name"])
        if name == self.scales_back and not deployment["spec"]["replicas"]:
            with self.lock:
                deployment["spec"]["replicas"] = 1
            self._change(deployment)

    def _takes_pods(self, node: str) -> bool:
        return not self.objects.get("nodes", {}).get(("", node), {}).get("spec", {}).get("unschedulable")

    def schedule(self) -> None:
        """Begin to start what has no pod, as the scheduler does when a node takes pods again."""
        with self.lock:
            deployments = list(self.objects.get("deployments", {}).values())
        for deployment in deployments:
            if deployment["spec"]["replicas"] > len(self.pods_of(deployment["metadata"]["name"])):
                self.scaled(deployment, 0)

    def end_pod(self, name: str) -> None:
        """Begin what the kubelet and the controllers do with a pod that is deleted or evicted; it ends later."""
        with self.lock:
            pod = next(pod for (_, pod_name), pod in self.objects["pods"].items() if pod_name == name)
            pod["metadata"]["deletionTimestamp"] = now()
            owner = pod["metadata"]["annotations"]["test/owner"]
            deployments = self.objects.get("deployments", {}).values()
            deployment = next((d for d in deployments if d["metadata"]["name"] == owner), None)

        def end() -> None:
            if deployment is None:
                return self.delete_pod(name)
            with _LOCKS.setdefault(id(deployment), threading.Lock()):
                self.workload_of(pod).stop()
                self.delete_pod(name)
                with self.lock:
                    deployment["status"] = counts(len(self.pods_of(owner)))
            self._change(deployment)

        change = threading.Thread(target=end, daemon=True)
        self._changing.append(change)
        change.start()

    def create(self, resource: str, namespace: str, body: Object) -> Object:
        """Store an object as a client sends it, and begin what its controller does."""
        metadata = {"uid": secrets.token_hex(8), "creationTimestamp": now(), "resourceVersion": "1"}
        made: Object = {**body, "metadata": {**body["metadata"], **metadata}}
        name = made["metadata"]["name"]
        if resource not in OF_CLUSTER:
            made["metadata"]["namespace"] = namespace
        with self.lock:
            self.objects.setdefault(resource, {})[made["metadata"].get("namespace", ""), name] = made
        if resource == "daemonsets":
            for node in nodes_of(made["spec"]["template"]):
                self._make_load_pod(f"{name}-{node}", namespace, made["spec"]["template"], node)
        elif resource == "jobs":
            labels = {"batch.kubernetes.io/job-name": name}
            made["spec"].setdefault("selector", {"matchLabels": labels})
            made["spec"]["template"]["metadata"].setdefault("labels", {}).update(labels)
            self._make_load_pod(f"{name}-{secrets.token_hex(3)}", namespace, made["spec"]["template"], name)
        elif resource == "pods":
            self._make_load_pod(name, namespace, made, name)
        return made

    def _make_load_pod(self, name: str, namespace: str, template: Object, node: str) -> None:
        self.workloads[name] = self.on_node(node)
        self._make_pod(name, name, template["metadata"].get("labels", {}), node, namespace=namespace)

    def delete_pod(self, name: str) -> None:
        """Remove a pod, and kill what runs in it."""
        for running in [e for e in self.execs if e.pod == name]:
            kube_exec.kill_session(running.process.pid)
        with self.lock:
            pods = self.objects["pods"]
            pods.pop(next(key for key in pods if key[1] == name))

    def _operate(self) -> None:
        """Do what Rook's operator does while it runs: a daemon's deployment has all of its replicas."""
        while not self._ended.wait(0.5):
            with self.lock:
                deployments = list(self.objects.get("deployments", {}).values())
                if "rook-ceph-operator" not in self.workloads or not self.pods_of("rook-ceph-operator"):
                    continue
                for deployment in deployments:
                    name, before = deployment["metadata"]["name"], deployment["spec"]["replicas"]
                    wanted = 1 + len(self.others.get(name, ()))
                    if before < wanted and name.startswith("rook-ceph-"):
                        deployment["spec"]["replicas"] = wanted
                        self.scaled(deployment, before)


_LOCKS: Dict[int, threading.Lock] = {}


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_api: KubeApi

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    # ---- the parts of an answer ----

    def _send(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, code: int, reason: str, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self._send(code, {**status, "reason": reason, "message": message, "code": code})

    def _answer(self) -> None:
        api, (path, query) = self.server_api, self.path.split("?", 1) if "?" in self.path else (self.path, "")
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with api.lock:
            api.requests.append(f"{self.command} {self.path}")
        try:
            self._user, *parts = [part for part in path.split("/") if part]
            given = self.headers.get("Authorization")
            if f"Bearer {api.tokens.get(self._user)}" not in ("Bearer None", given):
                return self._fail(401, "Unauthorized", "Unauthorized")
            self._user = self.headers.get("Impersonate-User", self._user)
            self._route(parts, parse_qs(query))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, parts: List[str], query: Dict[str, List[str]]) -> None:
        if parts == ["version"]:
            return self._send(200, {"major": "1", "minor": "32", "gitVersion": "v1.32.0"})
        if parts == ["api"]:
            return self._send(200, {"kind": "APIVersions", "versions": ["v1"]})
        if parts == ["apis"]:
            groups = [group_document(*of) for of in RESOURCES if of[0]]
            return self._send(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        of = ("", parts[1]) if parts[:1] == ["api"] else tuple(parts[1:3])
        tail = parts[2:] if parts[:1] == ["api"] else parts[3:]
        if of not in RESOURCES:
            return self._fail(404, "NotFound", "the server could not find the requested resource")
        if not tail:
            return self._send(200, resources_document(*of))  # type: ignore[misc,arg-type]
        namespace = ""
        if tail[0] == "namespaces" and len(tail) > 2:
            namespace, tail = tail[1], tail[2:]
        self._object(namespace, tail[0], tail[1] if len(tail) > 1 else "", "/".join(tail[2:]), query)

    def _may(self, right: Right) -> bool:
        if (right.verb, right.resource) in self.server_api.refused.get(self._user, []):
            return False
        return is_allowed(self.server_api.objects, RESOURCES, right)

    def _object(self, namespace: str, resource: str, name: str, part: str, query: Dict[str, List[str]]) -> None:
        api = self.server_api
        if resource == "selfsubjectaccessreviews":
            return self._review()
        verb = {"GET": "get" if name else "list", "POST": "create", "PUT": "update", "DELETE": "delete"}.get(
            self.command, "patch"
        )
        verb = "create" if part == "exec" or (verb == "get" and self.command == "POST") else verb
        what = f"{resource}/{part}" if part else resource
        right = Right(self._user, namespace, verb, what, name)
        if not self._may(right):
            user = f'User "{self._user}" cannot {verb} resource "{what}" in the namespace "{namespace}"'
            return self._fail(403, "Forbidden", f"{what} is forbidden: {user}")
        with api.lock:
            api.used.add(right)
            if verb == "create" and not part:
                return self._send(201, api.create(resource, namespace, json.loads(self._body)))
            stored = api.objects.get(resource, {})
            if verb == "list":
                return self._list(resource, [o for (at, _), o in stored.items() if namespace in ("", at)], query)
            entry = stored.get((namespace, name))
            if entry is None:
                return self._fail(404, "NotFound", f'{resource} "{name}" not found')
        if part == "exec":
            return self._exec(entry, query)
        if part == "eviction":
            api.end_pod(name)
            return self._send(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
        with api.lock:
            self._one(entry, resource, part)
        if resource == "nodes":
            api.schedule()

    def _review(self) -> None:
        """Answer `kubectl auth can-i`."""
        namespace, verb, resource, part, name = reviewed(self._body)
        allowed = self._may(Right(self._user, namespace, verb, "/".join(filter(None, (resource, part))), name))
        of = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}}
        self._send(201, {**of, "spec": {}, "status": {"allowed": allowed}})

    def _list(self, resource: str, objects: Sequence[Object], query: Dict[str, List[str]]) -> None:
        selector = (query.get("labelSelector") or [""])[0]
        fields = field_pairs(query.get("fieldSelector"))
        chosen = [
            entry
            for entry in objects
            if selects(selector, entry["metadata"].get("labels", {}))
            and all((value_at(entry, key.rstrip("!")) == value) != key.endswith("!") for key, value in fields)
        ]
        kind = next(kinds[resource] for kinds in RESOURCES.values() if resource in kinds)
        version = next("/".join(filter(None, of)) for of, kinds in RESOURCES.items() if resource in kinds)
        self._send(200, {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": chosen})

    def _one(self, entry: Object, resource: str, part: str) -> None:
        if self.command == "DELETE" and resource == "pods":
            self.server_api.end_pod(entry["metadata"]["name"])
        elif self.command == "DELETE":
            del self.server_api.objects[resource][entry["metadata"].get("namespace", ""), entry["metadata"]["name"]]
        elif self.command in ("PATCH", "PUT"):
            change, before = json.loads(self._body), entry.get("spec", {}).get("replicas", 0)
            if part == "scale":
                entry["spec"]["replicas"] = change["spec"]["replicas"]
            else:
                merge(entry, change)
            if resource == "deployments":
                self.server_api.scaled(entry, before)
        self._send(200, scale_of(entry) if part == "scale" else copy.deepcopy(entry))

    # ---- exec ----

    def _exec(self, pod: Object, query: Dict[str, List[str]]) -> None:
        refusal = exec_error(pod)
        if refusal:
            return self._fail(*refusal)
        wants_input = query.get("stdin") == ["true"]
        channels = kube_exec.accepted(self) or kube_spdy.accepted(self, wants_input)
        if channels is None:
            return self._fail(400, "BadRequest", "exec needs a WebSocket or SPDY/3.1")
        self.server_api.protocols.add(self.headers["Upgrade"])
        workload = self.server_api.workload_of(pod)
        try:
            process = subprocess.Popen(
                workload.enter(query["command"]),
                stdin=subprocess.PIPE if wants_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=workload.environment,
            )
        except OSError as error:
            channels.send(kube_exec.ERROR, kube_exec.failure(str(error)))
            return
        running = Exec(pod["metadata"]["name"], process, self.connection)
        self.server_api.execs.append(running)
        try:
            kube_exec.serve(channels, process)
        finally:
            self.server_api.execs.remove(running)
