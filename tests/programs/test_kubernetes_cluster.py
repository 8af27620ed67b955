"""A real cluster of Kubernetes: the pods of `cbt-tools kubernetes manifest`, and what a run does in them.

The tests make a namespace with a random name in the cluster of KUBECONFIG, and delete it. They change nothing else, and
run only with a consent. The user of KUBECONFIG may make namespaces and roles, and impersonate accounts:

    KUBECONFIG=FILE CBT_PLUGINS_KUBERNETES=1 ./run test tests/programs/test_kubernetes_cluster.py

The image of CBT_PLUGINS_IMAGE, by default that of the manifest, has Python 3. With CBT_PLUGINS_KUBERNETES=own the only
node of the cluster is also cordoned, and drained of all pods of Rook. `tests/kubernetes` makes such a cluster.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from rook_scene import DEPLOYMENTS, GATEWAY, OPERATOR, OSD3, OSD4, perform, rook_scene

from cbt_plugins.cluster.clock_offsets import offsets
from cbt_plugins.cluster.kubernetes import CLIENT_LABEL, Kubernetes, KubernetesError
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.shell_programs import make_own
from cbt_plugins.faults import kind as kinds
from cbt_plugins.faults import service_managers
from cbt_plugins.faults.rook_gateways import DELETION_COST
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.tools.__main__ import main

CONSENT, IMAGE, FOLDER, LIMIT = "CBT_PLUGINS_KUBERNETES", "CBT_PLUGINS_IMAGE", "/var/tmp/cbt", 120.0
OWN = "own"
CLIENT, GOING, ABSENT, APART = "client1", "going", "absent", "apart"
HOST = "kubernetes.io/hostname"
#: a client whose pod is the one of a Job
WORKER = "worker"
GATEWAYS = "rook-ceph-rgw-my-store-a"
SECTION: Dict[str, Any] = {
    "rgwtest": {
        "admin": "none",
        "s3": {"urls": ["http://a"], "access_key": "secret:keys/AccessKey", "secret_key": "secret:keys/SecretKey"},
        "engine": "cbt-load",
        "objects": {"sizes": ["64KiB"]},
        "workers": 4,
        **{phase: {"duration": "10s"} for phase in ("fill", "measure", "age")},
    }
}


def kubectl(*words: str, given: str = "") -> str:
    done = subprocess.run(["kubectl", *words], input=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def create(document: Dict[str, Any], *words: str) -> None:
    kubectl("create", *words, "-f", "-", given=json.dumps({"apiVersion": "v1", **document}))


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace of these tests in a cluster whose user has agreed."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    if not os.environ.get("KUBECONFIG"):
        pytest.skip(f"no real Kubernetes was tried: KUBECONFIG=FILE {CONSENT}=1 names a cluster for a namespace")
    if not os.environ.get(CONSENT):
        text = "makes and deletes a namespace in the cluster of KUBECONFIG"
        pytest.skip(f"no real Kubernetes was tried: {CONSENT}=1 {text}")
    name = f"cbt-plugins-test-{secrets.token_hex(4)}"
    create({"kind": "Namespace", "metadata": {"name": name}})
    try:
        print(json.loads(kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"], name)
        yield name
    finally:
        kubectl("delete", "namespace", name, "--timeout=300s")


@pytest.fixture(scope="module")
def node() -> str:
    """A node that takes pods; the label of its host name is its name."""
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    free = [each["metadata"] for each in nodes if not each["spec"].get("taints")]
    return next(str(each["name"]) for each in free if each["labels"][HOST] == each["name"])


def pods(*names: str) -> Dict[str, Any]:
    return {"clients": list(names), "head": names[0], "osds": ["nobody"], "mons": ["nobody"], "transport": "kubectl"}


@pytest.fixture(scope="module")
def cluster(namespace: str, node: str, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    """The section of a file whose clients are pods that run: two by their names, one of a Job, one of a DaemonSet."""
    folder = tmp_path_factory.mktemp("manifest")
    kubernetes = {"context": Kubernetes.present_context(), "namespace": namespace}
    kubernetes["pods"] = {WORKER: f"job/{WORKER}", node: CLIENT_LABEL}
    clients = pods(CLIENT, GOING, WORKER, node)
    section = {"user": "root", **clients, "iterations": 1, "tmp_dir": FOLDER, "kubernetes": kubernetes}
    (folder / "my.yaml").write_text(yaml.safe_dump({"cluster": section, "benchmarks": SECTION}))
    apply(folder, "--cpu", "150m", "--memory", "256Mi", "--node-selector", f"{HOST}={node}")
    names = (f"pod/{CLIENT}", f"pod/{GOING}")
    kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=300s", *names)
    kubectl("-n", namespace, "wait", "--for=jsonpath={.status.ready}=1", "--timeout=300s", f"job/{WORKER}")
    kubectl("-n", namespace, "rollout", "status", "daemonset", "-l", "app=cbt-plugins-client", "--timeout=300s")
    return section


def with_client(cluster: Dict[str, Any], client: str) -> Dict[str, Any]:
    """Return the section with one client, which is a pod by its name."""
    kubernetes = {key: value for key, value in cluster["kubernetes"].items() if key != "pods"}
    return {**cluster, **pods(client), "kubernetes": kubernetes}


def apply(folder: Path, *options: str) -> None:
    """Apply the manifest of the file of a folder, by a process of its own, as its user does."""
    image = ["--image", os.environ[IMAGE]] if os.environ.get(IMAGE) and "--image" not in options else []
    with open(folder / "manifest.yaml", "w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["kubernetes", "manifest", str(folder / "my.yaml"), *image, *options]) == 0
    kubectl("apply", "-f", str(folder / "manifest.yaml"))


@pytest.fixture(params=["true", "false"], ids=["websocket", "spdy"])
def remote(request: pytest.FixtureRequest, cluster: Dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Remote:
    """A remote whose kubectl speaks one of its two protocols."""
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", request.param)
    return Remote.of_cluster(cluster, {})


def test_output_errors_and_status_come_apart(remote: Remote) -> None:
    for status in (0, 1, 3, 126):
        result = remote.run([CLIENT], f"tty; echo err >&2; exit {status}", check=False)[CLIENT]
        assert (result.stdout, result.stderr, result.status) == ("not a tty\n", "err\n", status)
    for name, status in (("INT", 130), ("KILL", 137), ("TERM", 143)):
        assert remote.run([CLIENT], f"kill -{name} $$", check=False)[CLIENT].status == status
    assert remote.run([CLIENT], "sleep 1000", timeout=1.0, check=False)[CLIENT].status == 124


def test_each_client_is_a_pod_of_its_own(remote: Remote, namespace: str, node: str) -> None:
    """Also the Job's, and the one of the DaemonSet, which adopts no other pod; all run on the chosen node."""
    clients = (CLIENT, GOING, WORKER, node)
    names = {client: result.stdout.strip() for client, result in remote.run(clients, "uname -n").items()}
    items = json.loads(kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
    by_owner = {
        each["metadata"]["name"]: [owner["kind"] for owner in each["metadata"].get("ownerReferences", ())]
        for each in items
        if each["spec"]["nodeName"] == node
    }
    owners = {client: by_owner.get(name) for client, name in names.items()}
    assert owners == {CLIENT: [], GOING: [], WORKER: ["Job"], node: ["DaemonSet"]}, names


def test_files_go_and_come_back(remote: Remote, tmp_path: Path) -> None:
    run_dir, content = f"{FOLDER}/{secrets.token_hex(4)}", os.urandom(20_000_000)
    remote.put({CLIENT: {f"{run_dir}/a/b": content, f"{run_dir}/a/c": b"#!/bin/sh\necho runs\n"}}, mode=0o700)
    assert remote.run([CLIENT], f"{run_dir}/a/c")[CLIENT].stdout == "runs\n"
    remote.fetch([CLIENT], f"{run_dir}/a", tmp_path)
    assert (tmp_path / CLIENT / "b").read_bytes() == content


def test_a_run_accepts_the_folder_of_a_pod(remote: Remote) -> None:
    assert remote.run([CLIENT], make_own(f"{FOLDER}/00000000/{secrets.token_hex(4)}"))[CLIENT].status == 0


def test_streams_and_clocks(remote: Remote) -> None:
    stream = remote.stream([CLIENT], "echo one; read x; echo got $x; echo why >&2; exit 3")
    try:
        lines = stream.lines(LIMIT)
        assert next(lines) == (CLIENT, "one")
        stream.send("two\n")
        assert list(lines) == [(CLIENT, "got two")] and stream.messages == ["why"]
    finally:
        stream.close()
    assert offsets(remote, [CLIENT])[CLIENT].error < LIMIT


def test_keys_and_rights(cluster: Dict[str, Any], namespace: str) -> None:
    create({"kind": "Secret", "metadata": {"name": "keys", "namespace": namespace}, "data": {"AccessKey": "QQ=="}})
    assert Kubernetes(cluster["kubernetes"]).secret("keys", "AccessKey") == "A"
    account = f"--as=system:serviceaccount:{namespace}:cbt-plugins"
    words = ["kubectl", "-n", namespace, account, "auth", "can-i"]
    answers: List[str] = []
    for question in (["get", "secret/keys"], ["get", "secrets"], ["create", "pods", "--subresource=exec"]):
        done = subprocess.run([*words, *question], capture_output=True, text=True, timeout=60)
        answers.append(done.stdout.strip())
    assert answers == ["yes", "no", "yes"]
    with pytest.raises(KubernetesError, match=r'secrets? "absent" not found'):
        Kubernetes(cluster["kubernetes"]).secret("absent", "AccessKey")


def test_an_image_that_cannot_be_pulled_is_named(cluster: Dict[str, Any], namespace: str, tmp_path: Path) -> None:
    section = with_client(cluster, ABSENT)
    (tmp_path / "my.yaml").write_text(yaml.safe_dump({"cluster": section, "benchmarks": SECTION}))
    apply(tmp_path, "--image", "localhost/cbt-plugins/absent:0", "--cpu", "100m", "--memory", "64Mi")
    path = "{.status.initContainerStatuses[0].state.waiting.reason}"
    pulled = f"--for=jsonpath={path}=ImagePullBackOff"
    kubectl("-n", namespace, "wait", pulled, "--timeout=300s", f"pod/{ABSENT}")
    with pytest.raises(RemoteError) as raised:
        Remote.of_cluster(section, {}).run([ABSENT], "true")
    assert re.search(rf"of pod {ABSENT} waits: (ErrImagePull|ImagePullBackOff): ", str(raised.value))


def test_no_client_runs_beside_an_osd(cluster: Dict[str, Any], namespace: str, node: str, tmp_path: Path) -> None:
    """A pod with the label of Rook's OSDs keeps a client from its node; the client runs when it has gone."""
    image = kubectl("-n", namespace, "get", "pod", CLIENT, "-o", "jsonpath={.spec.containers[0].image}")
    container = {"name": "osd", "image": image, "command": ["sleep", "infinity"]}
    osd = {"terminationGracePeriodSeconds": 1, "nodeName": node, "containers": [container]}
    labels = {"app": "rook-ceph-osd", "ceph-osd-id": "9"}
    create({"kind": "Pod", "metadata": {"name": "osd9", "labels": labels}, "spec": osd}, "-n", namespace)
    kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=300s", "pod/osd9")
    waits_for_a_node(cluster, APART, tmp_path, "anti-affinity", "--away-from-osds", "--node-selector", f"{HOST}={node}")
    kubectl("-n", namespace, "delete", "pod", "osd9")
    kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=300s", f"pod/{APART}")
    # while it runs, Kubernetes keeps OSDs from the node too
    kubectl("-n", namespace, "delete", "pod", APART)


def test_a_client_waits_for_a_node_of_its_selector(cluster: Dict[str, Any], tmp_path: Path) -> None:
    options = ("--node-selector", f"{HOST}=no-such-node")
    waits_for_a_node(cluster, "elsewhere", tmp_path, "node affinity/selector", *options)


def waits_for_a_node(cluster: Dict[str, Any], client: str, folder: Path, why: str, *options: str) -> None:
    """Apply the manifest of a client, which no node takes; its error has the reason."""
    section = with_client(cluster, client)
    (folder / "my.yaml").write_text(yaml.safe_dump({"cluster": section, "benchmarks": SECTION}))
    apply(folder, "--cpu", "50m", "--memory", "32Mi", *options)
    waits = "--for=jsonpath={.status.conditions[0].reason}=Unschedulable"
    kubectl("-n", cluster["kubernetes"]["namespace"], "wait", waits, "--timeout=120s", f"pod/{client}")
    with pytest.raises(RemoteError, match=f"pod {client} is on no node: Unschedulable: .*{why}"):
        Remote.of_cluster(section, {}).run([client], "true")


def test_a_pod_that_goes_is_a_lost_connection(cluster: Dict[str, Any], namespace: str) -> None:
    remote = Remote.of_cluster(cluster, {})
    stream = remote.stream([GOING], "echo up; exec sleep 1000")
    try:
        lines = stream.lines(LIMIT)
        assert next(lines) == (GOING, "up")
        kubectl("-n", namespace, "delete", "pod", GOING, "--grace-period=1")
        assert list(lines) == []
    finally:
        stream.close()
    result = remote.run([GOING], "true", check=False)[GOING]
    assert result.status == 255 and f'pods "{GOING}" not found' in result.stderr


@pytest.fixture(scope="module")
def rook(cluster: Dict[str, Any], namespace: str) -> Scene:
    """Deployments with the labels of Rook's daemons, and of an operator that does nothing."""
    image = kubectl("-n", namespace, "get", "pod", CLIENT, "-o", "jsonpath={.spec.containers[0].image}")
    for name, of_daemon in DEPLOYMENTS.items():
        labels = {**of_daemon, "rook_cluster": namespace}
        container = {"name": "daemon", "image": image, "command": ["sleep", "infinity"]}
        pod = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
        document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}}
        create({**document, "spec": spec}, "-n", namespace)
    for name in DEPLOYMENTS:
        kubectl("-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=300s")
    node = kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}") if os.environ[CONSENT] == OWN else "a"
    return rook_scene({**cluster["kubernetes"], "operator_namespace": namespace}, node, "b", "c")


def uids(namespace: str) -> Dict[str, str]:
    """Deployment -> the UID of its only pod, for the deployments that have a pod."""
    pods = json.loads(kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
    not_compared = ("pod-template-hash", "rook_cluster")
    by_labels = {
        json.dumps({key: value for key, value in pod["metadata"]["labels"].items() if key not in not_compared}): pod
        for pod in pods
        if pod["metadata"].get("labels") and not pod["metadata"].get("deletionTimestamp")
    }
    uids = {name: by_labels.get(json.dumps(labels)) for name, labels in DEPLOYMENTS.items()}
    return {name: str(pod["metadata"]["uid"]) for name, pod in uids.items() if pod}


def test_daemons_of_rook_are_stopped_and_started(rook: Scene, namespace: str) -> None:
    """The operator goes first, stays away as long as a fault is open, and comes back last."""
    (step,) = kinds.make("stop", {}).steps(rook, Targets((), (OSD3,), (str(OSD3),)))
    (other,) = service_managers.find_services(rook, [OSD4]).values()
    perform(step.inject, step.took)
    assert sorted(uids(namespace)) == ["rook-ceph-osd-4", "rook-ceph-rgw-my-store-a"]
    perform(service_managers.stop(rook, other))
    perform(step.undo, step.checks)
    assert sorted(uids(namespace)) == ["rook-ceph-osd-3", "rook-ceph-rgw-my-store-a"]
    for _ in range(2):  # an undo may be repeated
        perform(service_managers.start(rook, other), service_managers.MANAGERS["rook"].settled(rook, other))
    assert sorted(uids(namespace)) == sorted(DEPLOYMENTS) and OPERATOR in uids(namespace)


def test_one_of_two_gateways_is_stopped(cluster: Dict[str, Any], rook: Scene, namespace: str) -> None:
    """The older pod ends, although Kubernetes itself would end the younger one."""
    kubectl("-n", namespace, "scale", f"deployment/{GATEWAYS}", "--replicas=2")
    kubectl("-n", namespace, "rollout", "status", f"deployment/{GATEWAYS}", "--timeout=300s")

    def gateways() -> List[Dict[str, Any]]:
        items = json.loads(kubectl("-n", namespace, "get", "pods", "-l", "app=rook-ceph-rgw", "-o", "json"))["items"]
        items.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        return [pod for pod in items if not pod["metadata"].get("deletionTimestamp")]

    older, younger = (str(pod["metadata"]["uid"]) for pod in gateways())
    scene = rook_scene(
        {**cluster["kubernetes"], "operator_namespace": namespace}, "a", "b", gateways()[0]["spec"]["nodeName"]
    )
    (step,) = kinds.make("stop", {}).steps(scene, Targets((), (GATEWAY,), (str(GATEWAY),)))
    perform(step.inject, step.took)
    assert [pod["metadata"]["uid"] for pod in gateways()] == [younger] and OPERATOR not in uids(namespace)
    for _ in range(2):  # an undo may be repeated
        perform(step.undo, step.checks)
    back = [pod["metadata"] for pod in gateways()]
    assert len(back) == 2 and back[0]["uid"] == younger and back[1]["uid"] != older
    assert not any(DELETION_COST in about.get("annotations", {}) for about in back)
    kubectl("-n", namespace, "scale", f"deployment/{GATEWAYS}", "--replicas=1")


def test_a_deleted_pod_of_rook_is_made_anew(rook: Scene, namespace: str) -> None:
    before = uids(namespace)
    for options in ({}, {"grace": 0.0}):
        (step,) = kinds.make("delete_pod", options).steps(rook, Targets((), (OSD3,), (str(OSD3),)))
        perform(step.inject, step.took)
        perform(step.undo, step.checks)
        after = uids(namespace)
        assert after.keys() == before.keys()
        assert [name for name in before if after[name] != before[name]] == ["rook-ceph-osd-3"]
        before = after


def test_a_node_is_drained_of_rook_until_the_undo(rook: Scene, namespace: str) -> None:
    """Only pods with labels of Rook are evicted."""
    if os.environ[CONSENT] != OWN:
        pytest.skip(f"no node was drained: {CONSENT}={OWN} allows it, for a cluster of one node")
    node, before = rook.nodes[0], uids(namespace)
    assert len(kubectl("get", "nodes", "-o", "name").split()) == 1
    (step,) = kinds.make("node_drain", {}).steps(rook, Targets((node,), (OSD3,), (node,)))
    try:
        perform(step.inject, step.took)
        evicted = {uid for name, uid in before.items() if name != OPERATOR}
        assert not evicted & set(uids(namespace).values())
        kubectl("-n", namespace, "get", f"pod/{CLIENT}")
        perform(step.undo, step.checks)
    finally:
        kubectl("uncordon", node)
    for name in DEPLOYMENTS:
        kubectl("-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=300s")
    assert uids(namespace)[OPERATOR] == before[OPERATOR] and uids(namespace).keys() == before.keys()
