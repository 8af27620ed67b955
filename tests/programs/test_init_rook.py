"""`cbt-tools init` for a cluster of Rook: the real kubectl, an API server of the tests, recorded replies of Ceph."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

import pytest
import yaml
from kube_api import KubeApi, Workload
from recorded_cluster import Recorded, connected

from cbt_plugins.config.file_check import load_file
from cbt_plugins.tools.__main__ import main

STORE, SERVICE = "my-store", "rook-ceph-rgw-my-store"
URL = f"http://{SERVICE}.rook-ceph.svc:80"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return connected(monkeypatch, "reef")


@pytest.fixture
def api() -> Iterator[KubeApi]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    server = KubeApi()
    try:
        server.deployment("rook-ceph-tools", Workload(list), "node9", app="rook-ceph-tools")
        for type, node in (("osd", "node1"), ("mon", "node1"), ("mon", "node0"), ("rgw", "rgw1"), ("csi", "node7")):
            server.bare_pod(f"{type}-{node}", Workload(list), node, app=f"rook-ceph-{type}")
        object_store(server, STORE)
        server.put("endpoints", SERVICE, subsets=[{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}])
        yield server
    finally:
        server.close()


def object_store(api: KubeApi, name: str) -> None:
    status = {"phase": "Ready", "info": {"endpoint": f"http://rook-ceph-rgw-{name}.rook-ceph.svc:80"}}
    api.put("cephobjectstores", name, status=status)


def init(api: KubeApi, folder: Path, *words: str, user: str = "admin") -> Tuple[int, Path]:
    file, config = folder / "my.yaml", str(api.kubeconfig(folder, user))
    return main(["init", "--kubeconfig", config, "--clients", "node8", *words, "-o", str(file)]), file


def test_a_file_for_an_object_store(
    api: KubeApi, cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its nodes are pods, its URL is the service; without rights for users it says which one is missing."""
    api.put("cephobjectstoreusers", "load", spec={"store": STORE}, status={"info": {"secretName": "keys-of-load"}})
    api.put("cephobjectstoreusers", "other", spec={"store": "other"})
    api.put("objectbucketclaims", "photos", spec={"bucketName": "photos-1"}, status={"phase": "Bound"})
    kubectl = ["--context", "test", "--namespace", "rook-ceph"]
    status, file = init(api, tmp_path, *kubectl)
    out, err = capsys.readouterr()
    assert status == 0 and "Run 1 of 1: rgwtest" in out, err
    assert err == (
        f"Warning: {URL} is a service in front of 2 gateways: Kubernetes spreads connections, not requests\n"
    )
    document, text = yaml.safe_load(file.read_text()), file.read_text()
    section = document["cluster"]
    assert (section["head"], section["transport"], section["clients"]) == ("toolbox", "kubectl", ["node8"])
    assert section["kubernetes"]["pods"] == {
        "toolbox": "deploy/rook-ceph-tools",
        "node8": "app=cbt-plugins-client",
        "node0": "app=rook-ceph-mon",
        "node1": "app=rook-ceph-osd",
        "rgw1": "app=rook-ceph-rgw",
    }
    assert document["benchmarks"]["rgwtest"]["s3"] == {"urls": [URL], "user": "cbt-plugins"}
    for line in (
        f"# CephObjectStore {STORE} in namespace rook-ceph",
        "# CephObjectStoreUser load: access_key: secret:keys-of-load/AccessKey, secret_key: secret:keys-of-load/Secret",
        "# ObjectBucketClaim photos: bucket photos-1, access_key: secret:rook-ceph/photos/AWS_ACCESS_KEY_ID,",
    ):
        assert line in text
    assert "CephObjectStoreUser other" not in text and load_file(file).runs
    assert {right.verb for right in api.used} <= {"get", "list"}


def test_keys_of_a_user_of_the_store(
    api: KubeApi, cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.put("cephobjectstoreusers", "load", spec={"store": STORE})
    assert init(api, tmp_path, "--user", "nobody")[0] == 1
    assert f"CephObjectStore {STORE} has no CephObjectStoreUser nobody; there are: load" in capsys.readouterr().err
    status, file = init(api, tmp_path, "--user", "load")
    section = yaml.safe_load(file.read_text())["benchmarks"]["rgwtest"]
    secret = f"secret:rook-ceph-object-user-{STORE}-load"
    assert status == 0 and "rgw" not in section
    keys = {"access_key": f"{secret}/AccessKey", "secret_key": f"{secret}/SecretKey"}
    assert section["s3"] == {"urls": [URL], **keys}


def test_clients_to_edit_are_pods(
    api: KubeApi, cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest makes them; no machine has a login."""
    file = tmp_path / "my.yaml"
    assert main(["init", "--kubeconfig", str(api.kubeconfig(tmp_path)), "-o", str(file)]) == 0
    (line,) = [line for line in file.read_text().splitlines() if "# EDIT" in line]
    assert line.startswith("  clients: [client1] ") and "`cbt-tools kubernetes manifest` makes pods of" in line
    assert not re.search("ssh|password|login on", file.read_text())
    capsys.readouterr()
    assert main(["kubernetes", "manifest", str(file), "--image", "i:1"]) == 0
    objects = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(capsys.readouterr().out)]
    assert ("Pod", "client1") in objects


def test_keys_of_a_claim_have_the_bucket_of_the_claim(api: KubeApi, cluster: Recorded, tmp_path: Path) -> None:
    """The comment of the file says what a section needs: a run with these keys can make no bucket."""
    bucket = "photos-0a2e9c6b-31f4-4a52-9b26-0d5a7d6f8f10"
    api.put("objectbucketclaims", "photos", spec={"bucketName": bucket}, status={"phase": "Bound"})
    status, file = init(api, tmp_path)
    text = " ".join(line.lstrip("# ") for line in file.read_text().splitlines())
    assert status == 0 and f"ObjectBucketClaim photos: bucket {bucket}, access_key: secret:rook-ceph/photos/" in text
    written = re.search(r"in warp, beside s3, write (buckets: .*?, keep_data: true)", text)
    keys = re.search(r"(access_key: \S+, secret_key: secret:rook-ceph/photos/\w+)", text)
    assert written and keys
    phases = [{"fill": {"objects": 9}}, {"hybrid": {"duration": "5s", "mix": {"get": 60, "put": 40}}}]
    s3 = {"urls": [URL], **yaml.safe_load(f"{{{keys[1]}}}")}
    section = {"s3": s3, "engine": "cbt-load", "cycle": {"phases": phases}}
    document = yaml.safe_load(file.read_text())
    document["benchmarks"] = {"warp": {**section, **yaml.safe_load(f"{{{written[1]}}}")}}
    file.write_text(yaml.safe_dump(document))
    (run,) = load_file(file).runs
    assert [(each.key, each.existing) for each in run.plan.buckets] == [(bucket, True)] and run.plan.keep_data


def test_claims_of_another_store_are_left_out(api: KubeApi, cluster: Recorded, tmp_path: Path) -> None:
    """The keys of such a claim do not work at the URL of the file."""
    for name, service in (("photos", SERVICE), ("films", "rook-ceph-rgw-second")):
        api.put("objectbucketclaims", name, spec={"bucketName": f"{name}-1"}, status={"phase": "Bound"})
        api.put("configmaps", name, data={"BUCKET_HOST": f"{service}.rook-ceph.svc", "BUCKET_NAME": f"{name}-1"})
    status, file = init(api, tmp_path)
    text = file.read_text()
    assert status == 0 and "ObjectBucketClaim photos" in text and "films" not in text


def test_all_osds_of_a_node_are_watched(api: KubeApi, cluster: Recorded, tmp_path: Path) -> None:
    """A node of the file is one pod: the file names the pod of each OSD where a Kubernetes node has several OSDs."""
    for osd, node in ((10, "node1"), (2, "node1"), (5, "node2"), (7, "node8")):
        labels = {"app": "rook-ceph-osd", "ceph-osd-id": str(osd)}
        api.deployment(f"rook-ceph-osd-{osd}", Workload(list), node, **labels)
    status, file = init(api, tmp_path)
    text, section = file.read_text(), yaml.safe_load(file.read_text())["cluster"]
    assert status == 0 and section["watched"] == ["osd-2", "osd-7", "osd-10"]  # the pod of node8 is a client
    assert "# for monitors: one pod for each OSD of Kubernetes nodes with several OSDs" in text
    pods = section["kubernetes"]["pods"]
    assert {pods[name] for name in section["watched"]} == {f"deploy/rook-ceph-osd-{osd}" for osd in (2, 7, 10)}
    assert (pods["node1"], pods["node2"], pods["node8"]) == (*["app=rook-ceph-osd"] * 2, "app=cbt-plugins-client")
    assert "\n  kubernetes:\n    context: test\n" in text and load_file(file).runs


def _two(api: KubeApi) -> None:
    object_store(api, "second")


def _none(api: KubeApi) -> None:
    api.objects["cephobjectstores"].clear()


def _no_toolbox(api: KubeApi) -> None:
    del api.objects["deployments"]["rook-ceph", "rook-ceph-tools"]


def _no_gateway(api: KubeApi) -> None:
    api.objects["endpoints"]["rook-ceph", SERVICE]["subsets"] = []


def _no_right(api: KubeApi) -> None:
    api.refused["admin"] = [("list", "cephobjectstores")]


@pytest.mark.parametrize(
    ("change", "words", "status", "text"),
    [
        (_two, (), 2, f"has 2 object stores: {STORE}, second: give --object-store"),
        (_two, ("--object-store", "third"), 2, f"has no CephObjectStore third; there are: {STORE}, second"),
        (_none, (), 1, "namespace rook-ceph has no CephObjectStore: name another namespace (--namespace)"),
        (_no_toolbox, (), 1, "namespace rook-ceph has no toolbox (deployment rook-ceph-tools): `kubectl apply` of"),
        (_no_gateway, (), 1, f"service {SERVICE} of {URL} has no endpoints: no gateway of the store is ready"),
        (_no_right, (), 1, 'User "admin" cannot list resource "cephobjectstores" in the namespace "rook-ceph"'),
        (_none, ("--context", "absent"), 1, 'error: context "absent" does not exist'),
    ],
)
def test_what_cannot_be_a_file(
    api: KubeApi,
    cluster: Recorded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[KubeApi], Any],
    words: Sequence[str],
    status: int,
    text: str,
) -> None:
    change(api)
    ended, file = init(api, tmp_path, *words)
    assert ended == status and not file.exists()
    assert text in capsys.readouterr().err


def two_realms(api: KubeApi, cluster: Recorded) -> None:
    """Make the gateway of the host rgw1 one of a second store, with a realm of its own."""
    _two(api)
    api.put("endpoints", "rook-ceph-rgw-second", subsets=[{"addresses": [{"ip": "10.0.0.3"}]}])
    replies = cluster.replies
    replies["realm list"] = {"default_info": "0a", "realms": [STORE, "second"]}
    replies["zone list"]["zones"] = [STORE, "second"]
    replies["zone get"]["name"] = "second"  # the reply to the question with options
    for row in replies["service dump"]["services"]["rgw"]["daemons"].values():
        about = row["metadata"] if isinstance(row, dict) else {}
        if about:
            store = "second" if about["hostname"] == "rgw1" else STORE
            names = {name: store for name in ("realm_name", "zonegroup_name", "zone_name")}
            about.update(names, id=f"{store.replace('-', '.')}.a")


def test_a_store_in_a_realm_of_its_own(api: KubeApi, cluster: Recorded, tmp_path: Path) -> None:
    """Rook makes a realm for each object store, and `radosgw-admin` alone works on the first one."""
    two_realms(api, cluster)
    status, file = init(api, tmp_path, "--object-store", "second")
    assert status == 0
    section = yaml.safe_load(file.read_text())["cluster"]
    options = "--rgw-realm=second --rgw-zonegroup=second --rgw-zone=second"
    assert section["radosgw-admin_cmd"] == f"radosgw-admin {options}" and section["rgws"] == ["rgw1"]
    questions = {command for command in cluster.commands if "radosgw-admin" in command and " list" not in command}
    assert questions and all(options in command for command in questions)
    assert "zone second of zonegroup default\n" in file.read_text()


def test_a_gateway_cannot_run_a_command(
    api: KubeApi, cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_realms(api, cluster)
    for row in cluster.replies["service dump"]["services"]["rgw"]["daemons"].values():
        if isinstance(row, dict):
            row["metadata"]["realm_name"] = "second; touch $(id)"
    status, file = init(api, tmp_path, "--object-store", "second")
    assert status == 2 and "radosgw-admin_cmd: must be " in capsys.readouterr().err and not file.exists()
    questions = [shlex.split(command) for command in cluster.commands if "touch" in command]
    assert questions and all(words[1] == "--rgw-realm=second; touch $(id)" for words in questions)


def test_a_pod_that_does_not_run_is_no_node(api: KubeApi, cluster: Recorded, tmp_path: Path) -> None:
    """An evicted pod stays until somebody deletes it, also on a Kubernetes node that is gone."""
    for number, (phase, gone) in enumerate([("Failed", False), ("Succeeded", False), ("Running", True)]):
        name = f"mgr-{number}"
        api.bare_pod(name, Workload(list), f"node7{number}", app="rook-ceph-mgr")
        pod = api.objects["pods"]["rook-ceph", name]
        pod["status"] = {"phase": phase}
        pod["metadata"].update({"deletionTimestamp": "2026-01-01T00:00:00Z"} if gone else {})
    # a gateway of another store, which has no daemon of this cluster's roles on its node
    api.bare_pod("rgw-second", Workload(list), "node80", app="rook-ceph-rgw")
    status, file = init(api, tmp_path)
    pods = yaml.safe_load(file.read_text())["cluster"]["kubernetes"]["pods"]
    assert status == 0 and not {node for node in pods if node.startswith(("node7", "node80"))}


def test_one_of_two_object_stores(api: KubeApi, cluster: Recorded, tmp_path: Path) -> None:
    _two(api)
    api.put("endpoints", "rook-ceph-rgw-second", subsets=[{"addresses": [{"ip": "10.0.0.3"}]}])
    status, file = init(api, tmp_path, "--object-store", "second")
    section: Dict[str, Any] = yaml.safe_load(file.read_text())
    assert status == 0
    assert section["benchmarks"]["rgwtest"]["s3"]["urls"] == ["http://rook-ceph-rgw-second.rook-ceph.svc:80"]
