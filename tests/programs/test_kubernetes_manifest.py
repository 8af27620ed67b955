"""`cbt-tools kubernetes manifest`, applied by the real kubectl: its pods, and whether its rights are those of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from kube_api import KubeApi, Workload
from kube_rights import Right, granted, user_of
from rook_scene import GATEWAY, OSD3, perform

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.shell_programs import make_own
from cbt_plugins.faults import kind as kinds
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.scene import ClusterLimits, Scene, Targets
from cbt_plugins.tools.__main__ import main

OPERATOR, TOOLBOX = "rook-ceph-operator", "rook-ceph-tools"
#: a deployment of two gateways
GATEWAYS = "rook-ceph-rgw-my-store-a"
ACCOUNT = user_of("rook-ceph", "cbt-plugins")
FILE = """
cluster:
  user: root
  head: toolbox
  clients: [worker8, worker9, one, two]
  osds: [node3]
  mons: [node3]
  use_existing: true
  iterations: 1
  tmp_dir: /var/tmp/cbt
  transport: kubectl
  kubernetes:
    context: test
    pods:
      toolbox: deploy/rook-ceph-tools
      worker8: {pod: app=cbt-plugins-client, namespace: load}
      worker9: {pod: app=cbt-plugins-client, namespace: load}
      one: job/one
      two: two
      node3: app=rook-ceph-osd
benchmarks:
  osdfailure:
    s3: {urls: ['http://a'], access_key: 'secret:keys/AccessKey', secret_key: 'secret:apps/claim/SecretKey'}
    engine: cbt-load
    objects: {sizes: [64KiB]}
    workers: 4
    fill: {duration: 10s}
    phase: {duration: 10s}
    down_nodes: 1
    fault: {kind: stop, nodes: [node3]}
"""


@pytest.fixture
def api() -> Iterator[KubeApi]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    server = KubeApi()
    here = Workload(list, environment=dict(os.environ))
    server.on_node = lambda node: Workload(lambda argv: ["env", f"POD={node}", *argv], environment=dict(os.environ))
    try:
        server.deployment(OPERATOR, Workload(list), "node0", app=OPERATOR)
        server.deployment(TOOLBOX, here, "node0", app=TOOLBOX)
        labels = {"app": "rook-ceph-osd", "ceph-osd-id": "3"}
        server.deployment("rook-ceph-osd-3", here, "node3", **labels)
        labels = {"app": "rook-ceph-rgw", "rook_object_store": "my-store"}
        server.deployment(GATEWAYS, here, "node3", **labels)
        server.add_replica(GATEWAYS, "node4", here)
        server.put("nodes", "node3", spec={})
        server.secret("keys", AccessKey="A")
        server.secret("others", AccessKey="B")
        server.put("secrets", "claim", "apps", data={"SecretKey": "Qg=="})
        yield server
    finally:
        server.close()


def manifest(folder: Path, capsys: pytest.CaptureFixture[str], *options: str, text: str = FILE) -> List[Any]:
    (folder / "my.yaml").write_text(text)
    assert main(["kubernetes", "manifest", str(folder / "my.yaml"), *options]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("given", "written"),
    [("4GB", "4G"), ("4GiB", "4Gi"), ("1.5Gi", "1.5Gi"), ("64KB", "64k"), ("4e9", "4e9"), ("1000", "1000")],
)
def test_sizes_are_written_as_kubernetes_reads_them(
    tmp_path: Path, given: str, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = manifest(tmp_path, capsys, "--memory", given, "--cpu", "500m")[0]["spec"]["template"]["spec"]
    limits = {"cpu": "500m", "memory": written}
    assert [part["resources"]["limits"] for part in pod["initContainers"] + pod["containers"]] == [limits, limits]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--memory", "4 GB"), ("--memory", "x"), ("--memory", "400m"), ("--memory", "0"), ("--memory", "4gb"),
     ("--cpu", "x"), ("--cpu", "0"), ("--cpu", "2GB"), ("--cpu", "-1")],
)  # fmt: skip
def test_what_kubernetes_would_refuse_is_refused(
    tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text(FILE)
    with pytest.raises(SystemExit) as ended:
        main(["kubernetes", "manifest", str(tmp_path / "my.yaml"), f"{option}={value}"])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == "" and f"{value!r} is not a " in said.err


def kubectl(api: KubeApi, folder: Path, *words: str, given: str = "") -> str:
    line = ["kubectl", "--kubeconfig", str(api.kubeconfig(folder)), *words]
    done = subprocess.run(line, input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def applied(api: KubeApi, folder: Path, objects: List[Any]) -> None:
    kubectl(api, folder, "apply", "--validate=false", "-f", "-", given=yaml.safe_dump_all(objects))


def section(api: KubeApi, folder: Path) -> Dict[str, Any]:
    cluster: Dict[str, Any] = yaml.safe_load(FILE)["cluster"]
    cluster["kubernetes"]["kubeconfig"] = str(api.kubeconfig(folder, ACCOUNT))
    return cluster


def with_a_fault(kind: str, daemon: DaemonName) -> str:
    """Return the file with a fault of this kind."""
    if (kind, daemon) == ("stop", OSD3):
        return FILE
    target = "nodes: [node3]" if kind == "node_drain" else f"daemons: [{daemon}]"
    head, _, keys = FILE.partition("  osdfailure:\n")
    s3 = keys.splitlines()[0]
    events = f"[{{at: 1s, fault: {{label: a, kind: {kind}, {target}}}}}, {{at: 5s, undo: a}}]"
    load = f"{{hybrid: {{duration: 10s, mix: {{get: 100}}, events: {events}}}}}"
    phases = f"    cycle: {{phases: [{{fill: {{objects: 9}}}}, {load}]}}\n"
    return f"{head}  warp:\n{s3}\n    engine: cbt-load\n    size: 64KiB\n    workers: 4\n{phases}"


def injected_and_undone(ceph: Ceph, kind: str, daemon: DaemonName) -> None:
    """Do all that a fault on node3 or its daemon asks the API server for."""
    answers: Dict[str, Any] = {"mon metadata": [], "mgr metadata": [], "mds metadata": []}
    answers["osd metadata"] = [{"id": 3, "hostname": "node3"}]
    answers["osd tree"] = {"nodes": [{"id": -1, "type": "host", "name": "a", "children": [3]}]}
    answers["osd dump"] = {"osds": [{"osd": 3, "up": 1, "in": 1, "weight": 1.0, "down_at": 5}]}
    gateway = {"gid": 1, "metadata": {"id": GATEWAY.id, "hostname": "node3"}} if daemon == GATEWAY else {}
    answers["service dump"] = {"services": {"rgw": {"daemons": {"1": gateway}}}}
    name = f"r{os.getpid()}-a"  # of a file in /run/cbt-plugins: the restart of an OSD is not repeated
    scene = Scene(ceph, Facts(answers), ("node3",), name, ClusterLimits(pause=0.1))
    targets = Targets(("node3",) if kind == "node_drain" else (), (daemon,), (str(daemon),))
    (step,) = kinds.make(kind, {}).steps(scene, targets)
    try:
        perform(step.inject, step.took)
        perform(step.undo, step.checks)
    finally:
        for folder in ("/run/cbt-plugins", f"/tmp/cbt-plugins-{os.getuid()}"):
            Path(folder, f"{name}-osd.3.restarted").unlink(missing_ok=True)


#: a `ceph` for the toolbox, which prints what `read_errors` asks for: of a release that forgets repairs by a restart
CEPH = """#!/bin/sh
case "$*" in
  *"config get"*) echo '{"bluestore_debug_random_read_err": "0.000000"}' ;;
  *"pg dump"*) echo '{"osd_stats": [{"osd": 3, "num_shards_repaired": 0}]}' ;;
esac
"""


@pytest.mark.parametrize(
    ("kind", "daemon"),
    [("stop", OSD3), ("stop", GATEWAY), ("read_errors", OSD3), ("delete_pod", OSD3), ("node_drain", OSD3)],
    ids=lambda value: str(value),
)
def test_the_rights_are_those_of_a_run(
    api: KubeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, daemon: DaemonName
) -> None:
    """All that a run with a fault asks for is allowed, and nothing is allowed that it does not ask for."""
    applied(api, tmp_path, manifest(tmp_path, capsys, text=with_a_fault(kind, daemon)))
    cluster = section(api, tmp_path)
    api.used.clear()
    remote = Remote.of_cluster(cluster, {})
    results = remote.run(["toolbox", "worker8", "worker9", "one", "two", "node3"], "echo $POD", check=False)
    assert [result.status for result in results.values()] == [0] * 6, results
    outputs = [results[client].stdout for client in ("worker8", "worker9", "one", "two")]
    assert outputs == ["worker8\n", "worker9\n", "one\n", "two\n"]
    kubernetes = Kubernetes(cluster["kubernetes"])
    assert (kubernetes.secret("keys", "AccessKey"), kubernetes.secret("claim", "SecretKey", "apps")) == ("A", "B")
    with pytest.raises(KubernetesError, match=r'User ".*:cbt-plugins" cannot get resource "secrets"'):
        kubernetes.secret("others", "AccessKey")
    deployment, pods = (GATEWAYS, 2) if daemon == GATEWAY else ("rook-ceph-osd-3", 1)
    program, before = tmp_path / "ceph", api.pods_of(deployment)
    program.write_text(CEPH)
    program.chmod(0o755)
    injected_and_undone(Ceph(remote, {**cluster, "ceph_cmd": str(program)}), kind, daemon)
    assert len(api.pods_of(deployment)) == pods and api.pods_of(deployment) != before
    by_kubectl_before_1_31 = {Right(ACCOUNT, where, "get", "pods/exec", "*") for where in ("rook-ceph", "load")}
    asked = {(right.namespace, right.verb, right.resource) for right in api.used if right.user == ACCOUNT}
    rights = set(granted(api.objects, ACCOUNT))
    assert by_kubectl_before_1_31 <= rights
    unused = {right for right in rights - by_kubectl_before_1_31 if right[1:4] not in asked}
    assert unused == set()
    changes = {
        "stop": ("patch", "deployments/scale"),
        "read_errors": ("patch", "deployments/scale"),
        "delete_pod": ("delete", "pods"),
        "node_drain": ("create", "pods/eviction"),
    }
    assert {right for right in set(changes.values()) if ("rook-ceph", *right) in asked} == {changes[kind]}
    assert (("rook-ceph", "patch", "pods") in asked) == (daemon == GATEWAY)
    assert {right.name for right in rights if right.resource == "secrets"} == {"keys", "claim"}


def test_a_second_file_takes_nothing_from_a_run(
    api: KubeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rights and the Kubernetes nodes of its clients are others, also with Ceph in another namespace."""
    first = manifest(tmp_path, capsys, text=with_a_fault("node_drain", OSD3))
    assert first == manifest(tmp_path, capsys, text=with_a_fault("node_drain", OSD3))
    applied(api, tmp_path, first)
    rights, pods = set(granted(api.objects, ACCOUNT)), set(api.objects["pods"])
    second = with_a_fault("delete_pod", OSD3).replace("worker8", "worker7")
    third = with_a_fault("node_drain", OSD3).replace("context: test", "context: test\n    namespace: other")
    for text in (second, third):
        applied(api, tmp_path, manifest(tmp_path, capsys, text=text))
    assert rights <= set(granted(api.objects, ACCOUNT)) and pods <= set(api.objects["pods"])
    selectors = [each["spec"]["selector"]["matchLabels"] for each in api.objects["daemonsets"].values()]
    assert len({tuple(sorted(labels.items())) for labels in selectors}) == len(selectors)


def test_a_file_without_faults_needs_no_right_to_change_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILE[: FILE.index("  osdfailure")] + "  rgwtest: {s3: {urls: ['http://a'], profile: p, region: r}, \n"
    text += "    objects: {sizes: [64KiB]}, workers: 4, fill: {duration: 10s}, measure: {duration: 10s}, "
    text += "age: {duration: 10s}, engine: cbt-load}\n"
    objects = manifest(tmp_path, capsys, text=text)
    rules = [rule for document in objects if document["kind"] == "Role" for rule in document["rules"]]
    verbs = {(rule["resources"][0], verb) for rule in rules for verb in rule["verbs"]}
    assert {verb for resource, verb in verbs if resource != "pods/exec"} <= {"get", "list"}
    assert not any(document["kind"] == "ClusterRole" for document in objects)


def test_daemons_outside_of_pods_need_no_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = "transport: {toolbox: ssh, node3: ssh, worker8: kubectl, worker9: kubectl, one: kubectl, two: kubectl}"
    for text in (FILE, with_a_fault("stop", GATEWAY)):
        objects = manifest(tmp_path, capsys, text=text.replace("transport: kubectl", mixed))
        assert not any("patch" in rule["verbs"] for each in objects for rule in each.get("rules", ()))


def test_the_pods_of_the_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--cpu", "8", "--memory", "4Gi", "--node-selector", "role=load", "--away-from-osds", "--image", "i:1")
    objects = manifest(tmp_path, capsys, *options)
    job, pod, daemons = (next(d for d in objects if d["kind"] == kind) for kind in ("Job", "Pod", "DaemonSet"))
    assert daemons["metadata"]["namespace"] == "load"
    assert (pod["metadata"]["name"], job["metadata"]["name"]) == ("two", "one")
    specs = [pod["spec"], job["spec"]["template"]["spec"], daemons["spec"]["template"]["spec"]]
    for spec in specs:
        (container,) = spec["containers"]
        given = {"cpu": "8", "memory": "4Gi"}
        assert container["resources"] == {"requests": given, "limits": given} and container["image"] == "i:1"
        assert spec["nodeSelector"] == {"role": "load"} and spec["automountServiceAccountToken"] is False
        (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["labelSelector"]["matchLabels"] == {"app": "rook-ceph-osd"}
        assert apart["namespaces"] == ["rook-ceph"] and apart["topologyKey"] == "kubernetes.io/hostname"
        assert container["volumeMounts"][0]["mountPath"] == "/var/tmp/cbt"
        (sticky,) = spec["initContainers"]
        assert sticky["volumeMounts"] == container["volumeMounts"] and sticky["resources"] == container["resources"]
        assert sticky["securityContext"]["runAsUser"] == 0, "the owner of an emptyDir"
        assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert [spec["restartPolicy"] for spec in specs] == ["Never", "Never", "Always"]
    selector = daemons["spec"]["selector"]["matchLabels"].items()
    for metadata in (pod["metadata"], job["spec"]["template"]["metadata"]):
        assert not selector <= metadata["labels"].items(), "the DaemonSet would adopt the pod"
    chosen = specs[2]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # Kubernetes refuses a field with several values
    assert [term["matchFields"][0]["values"] for term in chosen["nodeSelectorTerms"]] == [["worker8"], ["worker9"]]


def test_kubectl_reads_each_text_as_a_text(api: KubeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of what looks like a number, or a truth value, to the YAML of kubectl and not to PyYAML."""
    text = FILE.replace("app=cbt-plugins-client, namespace: load", "'app=load,rack=09,on=y', namespace: load")
    (tmp_path / "my.yaml").write_text(text)
    selectors = ["--node-selector", "rack=08", "--node-selector", "zone=1e3"]
    assert main(["kubernetes", "manifest", str(tmp_path / "my.yaml"), *selectors, "--cpu", "1e3"]) == 0
    kubectl(api, tmp_path, "apply", "--validate=false", "-f", "-", given=capsys.readouterr().out)
    (daemon_set,) = api.objects["daemonsets"].values()
    template = daemon_set["spec"]["template"]
    assert {"app": "load", "rack": "09", "on": "y"}.items() <= template["metadata"]["labels"].items()
    assert template["spec"]["nodeSelector"] == {"rack": "08", "zone": "1e3"}
    assert template["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1e3"


def test_restricted_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the Pod Security level `restricted` demands (Kubernetes, Pod Security Standards)."""
    objects = manifest(tmp_path, capsys, "--restricted")
    pods = [d["spec"] if d["kind"] == "Pod" else d["spec"]["template"]["spec"] for d in objects[:3]]
    assert sorted(d["kind"] for d in objects[:3]) == ["DaemonSet", "Job", "Pod"]
    for spec in pods:
        of_pod, (container,) = spec["securityContext"], spec["containers"]
        assert of_pod["runAsNonRoot"] is True and of_pod["runAsUser"] and of_pod["seccompProfile"]
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == security
        assert not {"initContainers", "volumes"}.intersection(spec) and "volumeMounts" not in container


def test_a_run_accepts_the_folder_of_a_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "rows"
    objects = manifest(tmp_path, capsys, text=FILE.replace("/var/tmp/cbt", str(folder)))
    pod = next(d for d in objects if d["kind"] == "Pod")
    folder.mkdir()
    folder.chmod(0o777)  # as the kubelet makes an emptyDir
    script = make_own(f"{folder}/00000000/rgwtest-1")
    assert subprocess.run(["sh", "-c", script], capture_output=True, timeout=60).returncode == 77
    (sticky,) = pod["spec"]["initContainers"]
    subprocess.run(sticky["command"], check=True, timeout=60)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_label_has_a_daemon_set_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FILE.replace("worker9: {pod: app=cbt-plugins-client", "worker9: {pod: 'app=cbt-plugins-client,site=b'")
    objects = [d for d in manifest(tmp_path, capsys, text=text) if d["kind"] == "DaemonSet"]
    names = [d["metadata"]["name"] for d in objects]
    assert len({*names}) == 2 and all(name.startswith("cbt-plugins-client-") for name in names)
    assert [d["metadata"]["labels"].get("site") for d in objects] == [None, "b"]
    # text also for kubectl, which takes 04956879 and 896694e3 for numbers
    assert all(d["metadata"]["labels"]["cbt-plugins-nodes"].startswith("n") for d in objects)


@pytest.mark.parametrize(
    ("pattern", "group", "resource"),
    [
        ("deployment/tools", "apps", "deployments"),
        ("deployments/tools", "apps", "deployments"),
        ("statefulset/tools", "apps", "statefulsets"),
        ("sts/tools", "apps", "statefulsets"),
        ("rs/tools", "apps", "replicasets"),
        ("daemonset/tools", "apps", "daemonsets"),
        ("service/tools", "", "services"),
        ("jobs/tools", "batch", "jobs"),
    ],
)
def test_every_spelling_of_a_pod_has_its_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str, group: str, resource: str
) -> None:
    objects = manifest(tmp_path, capsys, text=FILE.replace("deploy/rook-ceph-tools", pattern))
    rules = [rule for each in objects if each["kind"] == "Role" for rule in each["rules"]]
    (rule,) = (rule for rule in rules if "tools" in rule.get("resourceNames", ()))
    assert (rule["apiGroups"], rule["resources"], rule["verbs"]) == ([group], [resource], ["get"])


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (FILE.replace("job/one", "deploy/one"), (), "pods: one is deploy/one: a client must be a pod, job/NAME, or"),
        (FILE, ("--node-selector", "role"), "--node-selector: must be KEY=VALUE: role"),
        (FILE.replace("transport: kubectl", "transport: kubect"), (), "no transport 'kubect' is installed"),
    ],
)
def test_what_cannot_be_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, options: Any, said: str
) -> None:
    (tmp_path / "my.yaml").write_text(text)
    assert main(["kubernetes", "manifest", str(tmp_path / "my.yaml"), *options]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.out == ""
