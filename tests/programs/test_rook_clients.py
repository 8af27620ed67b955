"""Clients of a real cluster of Rook: a DaemonSet, restricted pods, keys of a claim; and counters of its daemons.

    tests/rook -v tests/programs/test_rook_clients.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
import yaml
from rook_cluster import (
    CLIENT,
    HOSTS,
    LIMIT,
    NAMESPACE,
    STORE,
    assert_ready,
    kubectl,
    objects_of_plugins,
    rgw_admin,
    run,
    summary_of,
    tool,
    wait_until_at_rest,
    watched_pods,
    with_section,
)


def test_clients_are_a_daemon_set_unless_the_file_names_pods(init_folder: Path, tmp_path: Path) -> None:
    """As `init` writes the file: a client is the pod with the label on a Kubernetes node, also where OSDs are.

    The run makes its user, and removes it.
    """
    host = HOSTS[0]
    file, words = tmp_path / "my.yaml", ["--namespace", NAMESPACE, "--object-store", STORE]
    done = tool("init", *words, "--clients", host, "-o", str(file))
    assert done.returncode == 0, done.stderr
    cluster = yaml.safe_load(file.read_text())["cluster"]
    assert (cluster["clients"], cluster["watched"]) == ([host], watched_pods())
    image = os.environ["CBT_PLUGINS_IMAGE"]
    manifest = tool("kubernetes", "manifest", str(file), "--image", image, "--cpu", "250m", "--memory", "256Mi")
    assert "kind: DaemonSet" in manifest.stdout, manifest.stderr
    kubectl("apply", "-f", "-", given=manifest.stdout)
    try:
        (name,) = (name for name in objects_of_plugins() if name.startswith("daemonset"))
        kubectl("rollout", "status", name, "--timeout=300s")
        wait_until_at_rest()
        before = sorted(rgw_admin("user", "list"))
        assert_ready(file)
        phases = [{"fill": {"objects": 50}}, {"hybrid": {"duration": "5s", "mix": {"get": 100}}, "name": "m"}]
        keys = {"engine": "cbt-load", "size": "16KiB", "workers": 2, "generator_ceiling": False}
        (tmp_path / "run").mkdir()
        keys["rgw"] = yaml.safe_load(file.read_text())["benchmarks"]["rgwtest"]["rgw"]
        folder = run(with_section(tmp_path, tmp_path / "run", warp={**keys, "cycle": {"phases": phases}}))
        assert keys["rgw"] == {"make_user": True} and sorted(rgw_admin("user", "list")) == before
        assert '"rgw user' in (folder / "undo.jsonl").read_text()
        jobs = [job for path in folder.glob("phases/*/phase.json") for job in json.loads(path.read_text())["jobs"]]
        assert jobs and {job["node"] for job in jobs} == {host}
    finally:
        kubectl("delete", "--ignore-not-found", "-f", "-", given=manifest.stdout)


#: Rook makes a bucket for it, and a user who may have no other bucket
CLAIM, CLASS = "photos", "cbt-plugins-tests"
CLAIMED = f"""
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {CLASS}}}
provisioner: {NAMESPACE}.ceph.rook.io/bucket
reclaimPolicy: Delete
parameters: {{objectStoreName: {STORE}, objectStoreNamespace: {NAMESPACE}}}
---
apiVersion: objectbucket.io/v1alpha1
kind: ObjectBucketClaim
metadata: {{name: {CLAIM}, namespace: {NAMESPACE}}}
spec: {{generateBucketName: {CLAIM}, storageClassName: {CLASS}}}
"""


@pytest.fixture
def bucket(init_folder: Path) -> Iterator[str]:
    """The bucket of a claim."""
    kubectl("create", "-f", "-", given=CLAIMED)
    try:
        bound = ["--for=jsonpath={.status.phase}=Bound", f"--timeout={LIMIT:.0f}s"]
        kubectl("wait", *bound, f"objectbucketclaim/{CLAIM}")
        yield json.loads(kubectl("get", "objectbucketclaim", CLAIM, "-o", "json"))["spec"]["bucketName"]
    finally:
        # Rook removes the bucket by the parameters of the class
        for name in (f"objectbucketclaim/{CLAIM}", f"storageclass/{CLASS}"):
            kubectl("delete", "--ignore-not-found", name)


def test_keys_of_a_claim_load_the_bucket_of_the_claim(init_folder: Path, tmp_path: Path, bucket: str) -> None:
    """As the comment of `init` says; these keys can make no bucket. The objects of the run stay."""
    file, words = tmp_path / "init.yaml", ["--namespace", NAMESPACE, "--object-store", STORE, "--clients", CLIENT]
    done = tool("init", *words, "-o", str(file))
    assert done.returncode == 0, done.stderr
    text = " ".join(line.lstrip("# ") for line in file.read_text().splitlines())
    assert f"ObjectBucketClaim {CLAIM}: bucket {bucket}, " in text
    written = re.search(r"in warp, beside s3, write (buckets: .*?, keep_data: true)", text)
    keys = re.search(rf"(access_key: \S+, secret_key: secret:{NAMESPACE}/{CLAIM}/\w+)", text)
    assert written and keys
    stats = rgw_admin("bucket", "stats", f"--bucket={bucket}")
    assert rgw_admin("user", "info", f"--uid={stats['owner']}")["max_buckets"] == 1
    s3 = yaml.safe_load((init_folder / "my.yaml").read_text())["benchmarks"]["rgwtest"]["s3"]
    section = {"s3": {"urls": s3["urls"], **yaml.safe_load(f"{{{keys[1]}}}")}, **yaml.safe_load(f"{{{written[1]}}}")}
    section.update(engine="cbt-load", size="16KiB", workers=2, generator_ceiling=False)
    phases = [{"fill": {"objects": 50}}, {"hybrid": {"duration": "5s", "mix": {"get": 60, "put": 40}}, "name": "m"}]
    file = with_section(init_folder, tmp_path, warp={**section, "cycle": {"phases": phases}})
    wait_until_at_rest()
    assert_ready(file)
    folder = run(file)
    counts = [json.loads(path.read_text())["accounting"] for path in sorted(folder.glob("phases/*/phase.json"))]
    assert len(counts) == 2 and all(count["ok"] and count["bucket"] == bucket for of in counts for count in of)
    usage = rgw_admin("bucket", "stats", f"--bucket={bucket}")["usage"]["rgw.main"]
    assert usage["num_objects"] == counts[-1][0]["after"] >= 50


#: what the API server refuses in a namespace with the label, when a pod is made
LEVEL = "pod-security.kubernetes.io/enforce"


@pytest.fixture
def restricted_pods(init_folder: Path) -> Iterator[None]:
    """New pods must keep the Pod Security level `restricted`; those of Rook are there already."""
    wait_until_at_rest()
    kubectl("label", "namespace", NAMESPACE, f"{LEVEL}=restricted")
    try:
        yield
    finally:
        kubectl("label", "namespace", NAMESPACE, f"{LEVEL}-")


def test_clients_where_pods_must_be_restricted(init_folder: Path, tmp_path: Path, restricted_pods: None) -> None:
    """The pods of the manifest are refused, those of `--restricted` run the load."""
    document = yaml.safe_load((init_folder / "my.yaml").read_text())
    document["cluster"]["kubernetes"]["pods"][CLIENT] = name = "restricted-client"
    file = tmp_path / "my.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    words = ["--image", os.environ["CBT_PLUGINS_IMAGE"], "--cpu", "250m", "--memory", "256Mi"]
    manifest = tool("kubernetes", "manifest", str(file), *words).stdout
    line = ["kubectl", "-n", NAMESPACE, "apply", "-f", "-"]
    try:
        refused = subprocess.run(line, input=manifest, capture_output=True, text=True, timeout=600)
        assert f'pods "{name}" is forbidden: violates PodSecurity "restricted:latest"' in refused.stderr
        live = tool("plan", str(file), "--live")
        assert live.returncode == 1 and f'"{name}" not found' in live.stderr, live.stderr
        manifest = tool("kubernetes", "manifest", str(file), *words, "--restricted").stdout
        kubectl("apply", "-f", "-", given=manifest)
        kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=300s")
        assert kubectl("exec", name, "--", "id", "-u").strip() != "0"
        assert_ready(file)
        phases = [{"fill": {"objects": 50}}, {"hybrid": {"duration": "5s", "mix": {"get": 60, "put": 40}}, "name": "m"}]
        keys = {"engine": "cbt-load", "size": "16KiB", "workers": 2, "generator_ceiling": False}
        (tmp_path / "run").mkdir()
        folder = run(with_section(tmp_path, tmp_path / "run", warp={**keys, "cycle": {"phases": phases}}))
        counts = [json.loads(path.read_text())["accounting"] for path in sorted(folder.glob("phases/*/phase.json"))]
        assert len(counts) == 2 and all(count["ok"] for of in counts for count in of)
        assert kubectl("exec", name, "--", "sh", "-c", "ls -A /tmp/cbt 2>/dev/null || true") == ""
    finally:
        kubectl("delete", "--ignore-not-found", "pod", name)


def test_counters_of_the_daemons_in_pods(init_folder: Path, tmp_path: Path) -> None:
    """OSDs by their admin sockets in their pods; the garbage of RGW as the toolbox sees it."""
    phases = [{"fill": {"objects": 60}}, {"hybrid": {"duration": "25s", "mix": {"get": 60, "put": 40}}, "name": "m"}]
    keys = {"engine": "cbt-load", "size": "16KiB", "workers": 2, "generator_ceiling": False}
    file = with_section(init_folder, tmp_path, warp={**keys, "cycle": {"phases": phases}})
    document = yaml.safe_load(file.read_text())
    document["monitoring_profiles"].update(perf_counters={"interval": 2}, backlog={"interval": 5})
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    wait_until_at_rest()
    folder = run(file)
    summary = summary_of(folder)
    inside = summary["perf_counters"]["phases"]["m"]
    numbers = {line["name"]: line for line in inside["lines"]}
    assert numbers["op_w_latency"]["value"] > 0 and numbers["kv_commit_latency"]["value"] > 0
    assert inside["backlog"]["gc"] is not None
    for osd in watched_pods():
        assert any(path.stat().st_size for path in folder.glob(f"monitors/*/perf_counters.{osd}/*")), osd
    assert not [warning for warning in summary["warnings"] if warning["code"].startswith("monitor-")]
