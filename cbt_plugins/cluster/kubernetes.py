"""A Kubernetes cluster as the program `kubectl` of this machine reaches it: contexts, plug-ins and credentials work."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.inventory import host_of

#: name of the transport of its pods
TRANSPORT = "kubectl"
#: seconds for an answer of the API server
ANSWER = 30.0
#: of the pods that `cbt-tools kubernetes manifest` makes for clients
CLIENT_LABEL = "app=cbt-plugins-client"
#: option of kubectl that stands for a namespace
EVERYWHERE = "--all-namespaces"
#: names of the pods of a label that are not about to end
_NAMES = "{{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}"


class KubernetesError(Exception):
    """kubectl could not ask or tell the cluster; the text is for the user."""


@dataclass(frozen=True)
class Pod:
    """The pod that a node is: its name, `deploy/NAME`, or a label."""

    node: str
    pattern: str
    container: str
    namespace: str

    @property
    def is_label(self) -> bool:
        """Whether the pod is found by a label and the Kubernetes node that it runs on."""
        return "=" in self.pattern


class Kubernetes:
    """The section `cluster: kubernetes:` of the YAML, as the check has passed it."""

    operator = "rook-ceph-operator"

    def __init__(self, section: Mapping[str, Any]) -> None:
        self._section = section
        self.namespace = str(section.get("namespace") or "rook-ceph")
        self.operator_namespace = str(section.get("operator_namespace") or self.namespace)
        pods = section.get("pods") or {}
        self._pods = {host_of(str(node)): {"pod": pod} if isinstance(pod, str) else pod for node, pod in pods.items()}

    @classmethod
    def of(cls, cluster: Mapping[str, Any]) -> Optional[Kubernetes]:
        """Return the one of a section `cluster:`, None where it has none."""
        section = cluster.get("kubernetes")
        return cls(section) if isinstance(section, Mapping) else None

    @staticmethod
    def present_context(kubeconfig: Optional[str] = None) -> str:
        """Return the context that kubectl uses where none is named. Raises KubernetesError."""
        options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        return _output(["kubectl", *options, "config", "current-context"]).strip()

    def words(self, namespace: str = "") -> List[str]:
        """Return the command line of kubectl without its verb."""
        file = self._section.get("kubeconfig")
        # an undo may run the command line in another folder
        options = [f"--kubeconfig={os.path.abspath(file)}"] if file else []
        context, where = self._section["context"], namespace or self.namespace
        return ["kubectl", *options, f"--context={context}", f"--namespace={where}"]

    def pod(self, node: str) -> Pod:
        """Return the pod that a node is."""
        about = self._pods.get(node) or {"pod": node}
        namespace = str(about.get("namespace") or self.namespace)
        return Pod(node, str(about["pod"]), str(about.get("container") or ""), namespace)

    def exec_words(self, node: str) -> List[str]:
        """Return the command line that runs the words behind it in the pod of a node: no terminal, input open."""
        pod = self.pod(node)
        kubectl = self.words(pod.namespace)
        run = [*kubectl, "exec", "-i", "--quiet", "--pod-running-timeout=10s"]
        container = ["-c", pod.container] if pod.container else []
        if not pod.is_label:
            return [*run, pod.pattern, *container, "--"]
        selectors = ["-l", pod.pattern, f"--field-selector=spec.nodeName={node},status.phase=Running"]
        get = shlex.join([*kubectl, "get", "pods", *selectors, "-o", f"go-template={_NAMES}"])
        absent = shlex.quote(f"no pod {pod.pattern} runs on node {node} in namespace {pod.namespace}")
        text = f'p=$({get}) || exit; [ "$p" ] || {{ echo {absent} >&2; exit 1; }}'
        return ["sh", "-c", f'{text}; exec {shlex.join(run)} "${{p%% *}}" {shlex.join(container)} -- "$@"', "kubectl"]

    def waits_of(self, node: str) -> List[str]:
        """Return the reasons of Kubernetes why the pods that are or may become this node have no container that runs.

        A pod of a label without a Kubernetes node may become any node. Without any pod: the reason why its DaemonSet or
        Job makes none. Raises KubernetesError.
        """
        pod = self.pod(node)
        kind, _, name = pod.pattern.rpartition("/")
        if not pod.is_label and kind in ("", "pod", "pods"):
            return list(_waits(self.get("pod", name, namespace=pod.namespace)))
        selector = pod.pattern
        if not pod.is_label:
            chosen = self.get(kind, name, namespace=pod.namespace)["spec"].get("selector") or {}
            labels = chosen.get("matchLabels", chosen)  # a service has the labels alone
            selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        pods = self.get("pods", "-l", selector, namespace=pod.namespace)["items"] if selector else []
        if pod.is_label:
            pods = [each for each in pods if each["spec"].get("nodeName") in (None, node)]
        if not pods:
            return list(self._refusals(pod, kind, name))
        return [text for each in pods for text in _waits(each)]

    def _refusals(self, pod: Pod, kind: str, name: str) -> Iterator[str]:
        """Yield the newest refusal of a pod of the DaemonSets of a label, or of a Job, as by Pod Security."""
        owners = {("Job", name)} if kind in ("job", "jobs") else set()
        if pod.is_label:
            items = self.get("daemonsets", "-l", pod.pattern, namespace=pod.namespace)["items"]
            owners = {("DaemonSet", str(item["metadata"]["name"])) for item in items}
        events = self.get("events", "--field-selector=reason=FailedCreate", namespace=pod.namespace) if owners else {}
        about = {_time(event): event for event in events.get("items", ()) if _object_of(event) in owners}
        if about:
            newest = about[max(about)]
            yield _wait("{} {} makes no pod".format(*_object_of(newest)), newest)

    def ask(self, *words: str, namespace: str = "") -> str:
        """Return the output of kubectl. Raises KubernetesError."""
        return _output([*self.words(namespace), f"--request-timeout={ANSWER:g}s", *words])

    def get(self, *words: str, namespace: str = "") -> Any:
        """Return the JSON of `kubectl get`. Raises KubernetesError."""
        answer = self.ask("get", *words, "-o", "json", namespace=namespace)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise KubernetesError(f"kubectl get {' '.join(words)}: could not parse the reply") from error

    def check_operator(self) -> None:
        """Raise KubernetesError if Rook's operator is not in its namespace."""
        try:
            self.get("deployment", self.operator, namespace=self.operator_namespace)
        except KubernetesError as error:
            if "(NotFound)" not in str(error):
                raise
            hint = "if it is in another namespace, set cluster: kubernetes: operator_namespace"
            raise KubernetesError(f"{error}: {hint}") from error

    def secret(self, name: str, key: str, namespace: str = "") -> str:
        """Return a value of a secret. Raises KubernetesError, whose text has no value."""
        values = self.get("secret", name, namespace=namespace).get("data") or {}
        if key not in values:
            raise KubernetesError(f"secret {name} has no key {key}; it has {', '.join(sorted(values)) or 'none'}")
        try:
            return base64.b64decode(values[key], validate=True).decode()
        except ValueError:
            raise KubernetesError(f"secret {name}: the value of {key} is not text") from None

    def refuse_without_right(self, verb: str, resource: str, namespace: str = "") -> None:
        """Raise KubernetesError where the user of the context may not do this; `resource` as in deployments/scale.

        `namespace`: default: that of the cluster; `EVERYWHERE`: all of them.
        """
        kind, _, part = resource.partition("/")
        words = ["auth", "can-i", verb, kind, *([f"--subresource={part}"] if part else [])]
        if namespace == EVERYWHERE:
            words, namespace = [*words, EVERYWHERE], ""
        try:
            answer = self.ask(*words, namespace=namespace).strip()
        except KubernetesError as error:  # "no" has the exit status 1
            raise KubernetesError(f"no right to {verb} {resource}: {error}") from error
        if answer != "yes":
            raise KubernetesError(f"no right to {verb} {resource}: kubectl auth can-i says {answer!r}")


def _waits(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why a pod is on no Kubernetes node, or its containers do not run."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    for condition in status.get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False"):
            yield _wait(f"pod {name} is on no node", condition)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            yield _wait(f"container {container.get('name')} of pod {name} waits", waiting)


def _object_of(event: Mapping[str, Any]) -> Tuple[str, str]:
    """Return the kind and the name of the object of an event."""
    return str(event["involvedObject"].get("kind")), str(event["involvedObject"].get("name"))


def _time(event: Mapping[str, Any]) -> str:
    """Return when an event happened last; times sort as text."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _wait(text: str, reason: Mapping[str, Any]) -> str:
    return " ".join(": ".join(filter(None, (text, reason.get("reason"), reason.get("message")))).split())


def _output(line: Sequence[str]) -> str:
    """Return the output of a command line of kubectl. Raises KubernetesError."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise KubernetesError(f"kubectl: {error.strerror}: install it on this machine") from error
    with process:
        try:
            out, err = (data.decode(errors="replace") for data in process.communicate(timeout=2 * ANSWER))
        except subprocess.TimeoutExpired:
            raise KubernetesError(f"{shlex.join(line)}: no reply within {2 * ANSWER:g} s") from None
        finally:
            if process.returncode is None:  # with its credential plug-in
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        why = err.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise KubernetesError(f"{shlex.join(line)}: {why[0]}")
    return out
