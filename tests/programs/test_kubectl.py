"""The transport `kubectl`: the real program, and an API server of the tests whose pods are shells of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest
from config_files import CLUSTER, RGWTEST, errors_in
from kube_api import Exec, KubeApi, Workload
from kube_exec import kill_session
from kube_objects import let_wait
from waiting import wait_for

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.clock_offsets import offsets
from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.plan import S3
from cbt_plugins.run.s3_key_sources import s3_keys

TOOLBOX, WORKER, CLIENT = "toolbox", "worker1", "client1"
LIMIT = 60.0


@pytest.fixture
def api() -> Iterator[KubeApi]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    server = KubeApi()
    here = lambda name: Workload(lambda argv: ["env", f"POD={name}", *argv], environment=dict(os.environ))  # noqa: E731
    try:
        server.deployment("rook-ceph-tools", here(TOOLBOX), "node9", app="rook-ceph-tools")
        for osd, node in (("3", WORKER), ("4", "worker2")):
            labels = {"app": "rook-ceph-osd", "ceph-osd-id": osd}
            server.deployment(f"rook-ceph-osd-{osd}", here(f"osd.{osd}"), node, **labels)
        server.bare_pod(CLIENT, here(CLIENT))
        yield server
    finally:
        server.close()


def section(api: KubeApi, folder: Path, **keys: Any) -> Dict[str, Any]:
    pods = {TOOLBOX: "deploy/rook-ceph-tools", WORKER: "app=rook-ceph-osd"}
    kubernetes = {"context": "test", "kubeconfig": str(api.kubeconfig(folder)), "pods": pods, **keys}
    nodes = {"head": TOOLBOX, "clients": [CLIENT], "osds": [WORKER]}
    return {"user": "root", **nodes, "transport": "kubectl", "kubernetes": kubernetes}


@pytest.fixture(params=["true", "false"], ids=["websocket", "spdy"])
def remote(
    request: pytest.FixtureRequest, api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Remote]:
    """A remote whose kubectl speaks one of its two protocols."""
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", request.param)
    yield Remote.of_cluster(section(api, tmp_path), {})
    assert api.protocols <= {"websocket" if request.param == "true" else "SPDY/3.1"}


def test_output_errors_and_status_come_apart(remote: Remote) -> None:
    for node, name in ((TOOLBOX, TOOLBOX), (WORKER, "osd.3"), (CLIENT, CLIENT)):
        result = remote.run([node], "echo $POD; tty; echo err >&2; exit 3", check=False)[node]
        assert (result.stdout, result.stderr, result.status) == (f"{name}\nnot a tty\n", "err\n", 3)
    for status in (0, 1, 126, 137):
        assert remote.run([TOOLBOX], f"exit {status}", check=False)[TOOLBOX].status == status
    assert remote.run([TOOLBOX], "sleep 1000", timeout=0.5, check=False)[TOOLBOX].status == 124


def test_a_hundred_megabytes_go_in_and_out(remote: Remote, tmp_path: Path) -> None:
    size = 100_000_000
    content = os.urandom(1 << 20) * (size >> 20)
    remote.put({CLIENT: {f"{tmp_path}/in/file": content}})
    assert (tmp_path / "in" / "file").read_bytes() == content
    remote.fetch([CLIENT], f"{tmp_path}/in", tmp_path / "back")
    assert (tmp_path / "back" / CLIENT / "file").read_bytes() == content


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("KILL", 137), ("TERM", 143)])
def test_a_signal_that_ends_a_command_is_its_status(remote: Remote, name: str, status: int) -> None:
    """As a kubelet gives it: 128 and the number; one that ends the shell around the command is no status of it."""
    assert remote.run([CLIENT], f"kill -{name} $$", check=False)[CLIENT].status == status
    alone = f"{remote.login(CLIENT)} sh -c 'kill -{name} $$'"
    done = subprocess.run(["sh", "-c", alone], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stderr) == (status, f"command terminated with exit code {status}\n")
    lost = remote.run([CLIENT], f"kill -{name} $(ps -o sid= -p $$)", check=False)[CLIENT]
    assert lost.status == 255 and "; try: kubectl " in lost.stderr


@pytest.fixture
def without_tar(api: KubeApi, tmp_path: Path) -> None:
    """The pod of the client has all programs of this machine but tar."""
    programs = tmp_path / "bin"
    programs.mkdir()
    found = {path.name: path for folder in reversed(os.get_exec_path()) for path in Path(folder).glob("*")}
    for name in found.keys() - {"tar"}:
        (programs / name).symlink_to(found[name])
    api.workloads[CLIENT] = Workload(lambda argv: ["env", f"PATH={programs}", *argv], environment=dict(os.environ))


def test_files_go_and_come_back_without_tar(remote: Remote, tmp_path: Path, without_tar: None) -> None:
    assert remote.run([CLIENT], "command -v tar", check=False)[CLIENT].status
    content, there = bytes(range(256)) * (1 << 14), f"{tmp_path}/there"
    remote.put({CLIENT: {f"{there}/b": content, f"{there}/c/d": b""}})
    remote.put({CLIENT: {f"{there}/c/d": b"#!/bin/sh\necho runs\n"}}, mode=0o700)
    listed = remote.run([CLIENT], f"stat -c %a {there}/b {there}/c/d; {there}/c/d")[CLIENT].stdout
    assert listed == "600\n700\nruns\n"
    remote.run([CLIENT], f"cd {there}; mkdir empty; ln -s /etc/passwd link; mkfifo pipe")
    remote.fetch([CLIENT], there, tmp_path / "back")
    back = tmp_path / "back" / CLIENT
    assert sorted(str(path.relative_to(back)) for path in back.rglob("*")) == ["b", "c", "c/d", "empty"]
    assert (back / "b").read_bytes() == content
    remote.fetch([CLIENT], f"{tmp_path}/nothing", tmp_path / "nowhere")
    assert list((tmp_path / "nowhere" / CLIENT).iterdir()) == []
    with pytest.raises(RemoteError, match="writing files failed on 1 of 1 nodes: "):
        remote.put({CLIENT: {"/proc/cbt/file": b""}})


def test_streams(remote: Remote) -> None:
    stream = remote.stream([TOOLBOX], "echo one; read x; echo got $x; echo why >&2; exit 3")
    try:
        lines = stream.lines(LIMIT)
        assert next(lines) == (TOOLBOX, "one")
        stream.send("two\n")
        assert list(lines) == [(TOOLBOX, "got two")] and stream.messages == ["why"]
    finally:
        stream.close()
    assert abs(offsets(remote, [TOOLBOX])[TOOLBOX].seconds) < 1.0


def test_a_closed_stream_closes_the_input_of_its_command(remote: Remote, tmp_path: Path) -> None:
    stream = remote.stream([TOOLBOX], f"echo up; cat >/dev/null; touch {tmp_path}/ended")
    assert next(stream.lines(LIMIT))[1] == "up"
    stream.close()
    wait_for((tmp_path / "ended").exists, "the end of cat", LIMIT)


def while_it_runs(api: KubeApi, remote: Remote, folder: Path, node: str, act: Callable[[Exec], None]) -> Any:
    """The result of a command during which `act` gets it."""

    def watch() -> None:
        wait_for((folder / "up").exists, "the command", LIMIT)
        act(api.execs[0])

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        return remote.run([node], f"touch {folder}/up; echo much; exec sleep 1000", check=False)[node]
    finally:
        watching.join()


def test_a_dropped_connection_is_no_success(api: KubeApi, remote: Remote, tmp_path: Path) -> None:
    result = while_it_runs(api, remote, tmp_path, TOOLBOX, Exec.drop)
    assert result.status == 255 and "try: kubectl --kubeconfig=" in result.stderr
    assert result.stderr.endswith(" exec -i --quiet --pod-running-timeout=10s deploy/rook-ceph-tools -- true\n")
    for running in list(api.execs):
        kill_session(running.process.pid)


@pytest.mark.parametrize("node", [WORKER, TOOLBOX])
def test_a_pod_that_goes_is_a_lost_connection(api: KubeApi, remote: Remote, tmp_path: Path, node: str) -> None:
    result = while_it_runs(api, remote, tmp_path, node, lambda running: api.delete_pod(running.pod))
    assert result.status == 255 and "command terminated with exit code 137" in result.stderr


def test_what_is_not_there_says_so(api: KubeApi, remote: Remote, tmp_path: Path) -> None:
    api.delete_pod(api.pods_of("rook-ceph-osd-3")[0])
    api.delete_pod(CLIENT)
    results = remote.run([WORKER, CLIENT], "true", check=False)
    assert [result.status for result in results.values()] == [255, 255]
    absent = f"no pod app=rook-ceph-osd runs on node {WORKER} in namespace rook-ceph\n"
    assert results[WORKER].stderr == absent and 'pods "client1" not found' in results[CLIENT].stderr
    del api.objects["deployments"]["rook-ceph", "rook-ceph-tools"]
    why = remote.run([TOOLBOX], "true", check=False)[TOOLBOX].stderr
    assert why.startswith('Error from server (NotFound): deployments "rook-ceph-tools" not found; try: kubectl ')
    elsewhere = Remote.of_cluster(section(api, tmp_path, context="nowhere"), {})
    why = elsewhere.run([CLIENT], "true", check=False)[CLIENT].stderr
    assert why.startswith('error: context "nowhere" does not exist; try: kubectl ')


@pytest.mark.parametrize(("node", "kind"), [(WORKER, "DaemonSet"), (CLIENT, "Job")])
def test_a_pod_that_was_refused_is_named_with_its_reason(api: KubeApi, tmp_path: Path, node: str, kind: str) -> None:
    """As by Pod Security: there is no pod, and only an event says why; the newest one of the owner counts."""
    for (_, pod), entry in list(api.objects["pods"].items()):
        if entry["spec"]["nodeName"] == WORKER:
            api.delete_pod(pod)
    api.put("daemonsets", "load", labels={"app": "rook-ceph-osd"}, spec={})
    api.put("jobs", "load", spec={"selector": {"matchLabels": {"batch.kubernetes.io/job-name": "load"}}})
    of_job = {"pods": {CLIENT: "job/load", WORKER: "app=rook-ceph-osd"}}
    for i, (of, name) in enumerate([(kind, "load"), (kind, "load"), (kind, "another"), ("ReplicaSet", "load")], 1):
        about = {"involvedObject": {"kind": of, "name": name}, "message": f"violates PodSecurity: {i}"}
        api.put("events", f"e{i}", reason="FailedCreate", lastTimestamp=f"2026-01-01T00:00:0{i}Z", **about)
    cluster = section(api, tmp_path)
    cluster["kubernetes"].update(of_job)
    assert Kubernetes(cluster["kubernetes"]).waits_of(node) == [
        f"{kind} load makes no pod: FailedCreate: violates PodSecurity: 2"
    ]
    if node == WORKER:
        stderr = Remote.of_cluster(cluster, {}).run([node], "true", check=False)[node].stderr
        assert stderr.endswith("; DaemonSet load makes no pod: FailedCreate: violates PodSecurity: 2\n")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", 'failed to pull and unpack image "ceph:absent": not found'),
        ("ImagePullBackOff", 'Back-off pulling image "ceph:absent"'),
        ("CreateContainerConfigError", 'secret "keys" not found'),
        ("CrashLoopBackOff", "back-off 5m0s restarting failed container=main"),
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."),
    ],
)
@pytest.mark.parametrize("node", [CLIENT, TOOLBOX, WORKER])
def test_a_pod_that_does_not_run_is_named_with_its_reason(
    api: KubeApi, tmp_path: Path, node: str, reason: str, message: str
) -> None:
    """By its name, by its deployment, and by its label."""
    owner = {CLIENT: CLIENT, TOOLBOX: "rook-ceph-tools", WORKER: "rook-ceph-osd-3"}[node]
    (pod,) = api.pods_of(owner)
    with api.lock:
        let_wait(api.objects["pods"]["rook-ceph", pod], reason, message)
    with pytest.raises(RemoteError) as raised:
        Remote.of_cluster(section(api, tmp_path), {}).run([node], "true")
    (result,) = raised.value.results.values()
    container = "main" if node == CLIENT else owner if node == TOOLBOX else "rook-ceph-osd"
    waits = f"container {container} of pod {pod} waits" if reason != "Unschedulable" else f"pod {pod} is on no node"
    assert result.status == 255 and f"; {waits}: {reason}: {message}" in result.stderr
    assert result.stderr.count("\n") == 1 and result.stderr in f"{raised.value}\n"


def test_rights_are_named(api: KubeApi, tmp_path: Path) -> None:
    api.refused["viewer"] = [("create", "pods/exec"), ("patch", "deployments/scale")]
    cluster = section(api, tmp_path, kubeconfig=str(api.kubeconfig(tmp_path, "viewer")))
    result = Remote.of_cluster(cluster, {}).run([CLIENT], "true", check=False)[CLIENT]
    assert result.status == 255 and 'User "viewer" cannot create resource "pods/exec"' in result.stderr
    kubernetes = Kubernetes.of(cluster)
    assert kubernetes
    kubernetes.refuse_without_right("get", "deployments")
    with pytest.raises(KubernetesError, match=r"no right to patch deployments/scale: kubectl .* can-i patch deplo"):
        kubernetes.refuse_without_right("patch", "deployments/scale")


def test_keys_come_from_a_secret(api: KubeApi, tmp_path: Path) -> None:
    api.secret("rook-ceph-object-user-store-a", AccessKey="AKIA1", SecretKey="s3cr3t")
    api.put("secrets", "claim", "apps", data={"AWS_ACCESS_KEY_ID": "QQ==", "AWS_SECRET_ACCESS_KEY": "Qg=="})
    cluster = section(api, tmp_path)
    ceph = Ceph(Remote.of_cluster(cluster, {}), cluster)

    def keys(access: str, secret: str, ceph: Ceph = ceph) -> Any:
        return s3_keys(S3(("http://a",), access_key_source=access, secret_key_source=secret), ceph).all

    of_user = "secret:rook-ceph-object-user-store-a"
    assert keys(f"{of_user}/AccessKey", f"{of_user}/SecretKey") == ("AKIA1", "s3cr3t", "")
    api.secret("echoed", AccessKey="AKIA1\n", SecretKey=" s3cr3t\n", Empty="\n")
    assert keys("secret:echoed/AccessKey", "secret:echoed/SecretKey") == ("AKIA1", "s3cr3t", "")
    with pytest.raises(CephError, match=r"s3\.secret_key: echoed/Empty is empty$"):
        keys("secret:echoed/AccessKey", "secret:echoed/Empty")
    of_claim = "secret:apps/claim"
    assert keys(f"{of_claim}/AWS_ACCESS_KEY_ID", f"{of_claim}/AWS_SECRET_ACCESS_KEY") == ("A", "B", "")
    with pytest.raises(CephError, match=r"s3.secret_key: secret \S+ has no key Secret; it has AccessKey, SecretKey$"):
        keys(f"{of_user}/AccessKey", f"{of_user}/Secret")
    with pytest.raises(CephError, match=r's3.access_key: kubectl .* get secret absent .*: secrets "absent" not found'):
        keys("secret:absent/A", "secret:absent/B")
    with pytest.raises(CephError, match=r"s3\.access_key: secret:a/b needs cluster: kubernetes: \{context: NAME\}"):
        keys("secret:a/b", "secret:a/c", Ceph(Remote.of_cluster({}, {}), {}))
    assert "s3cr3t" not in " ".join(api.requests)


def test_pods_that_only_monitors_need(tmp_path: Path) -> None:
    section = f"{CLUSTER}  transport: kubectl\n  kubernetes: {{context: a, pods: {{osd-0: deploy/rook-ceph-osd-0}}}}\n"
    assert errors_in(tmp_path, f"{section}  watched: [osd-0]\n{RGWTEST}") == []
    (error,) = errors_in(tmp_path, f"{section}  watched: [osd-0, ../x]\n{RGWTEST}")
    assert "cluster.watched[1]: '../x' is not a host name" in error
    (error,) = errors_in(tmp_path, f"{section}{RGWTEST}")
    assert "kubernetes.pods.osd-0: the section has no node 'osd-0'" in error


def test_nodes_of_a_key_of_the_users_own_have_names(tmp_path: Path) -> None:
    monitors = "monitoring_profiles: {resources: {nodes: [clients, mine]}}\n"
    (error,) = errors_in(tmp_path, f"{CLUSTER}  mine: [../x]\n{monitors}{RGWTEST}")
    assert "monitoring_profiles.resources.nodes[1]: cluster.mine: '../x' is not a host name" in error


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("", "cluster.transport: kubectl needs the key `kubernetes:` of `cluster:`"),
        ("kubernetes: {namespace: a}", "cluster.kubernetes.context: "),
        ("kubernetes: {context: a, pods: {nobody: b}}", "kubernetes.pods.nobody: the section has no node 'nobody'"),
        ("kubernetes: {context: '-a'}", "cluster.kubernetes.context: must be the name of a context"),
        ("kubernetes: {context: a, pods: {client1: 'A;b'}}", "cluster.kubernetes.pods.client1.pod: must be a pod"),
        ("kubernetes: {context: a, pods: {client1: {pod: a, contaner: b}}}", "did you mean 'container'"),
    ],
)
def test_the_section_is_checked(tmp_path: Path, lines: str, error: str) -> None:
    section = f"{CLUSTER}  transport: kubectl\n{f'  {lines}' if lines else ''}\n"
    assert error in "\n".join(errors_in(tmp_path, section + RGWTEST))
