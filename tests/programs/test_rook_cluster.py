"""A real cluster of Rook: `init`, a run whose load comes from a pod, and faults that are undone after a kill -9.

`tests/rook` makes such a cluster, of one Kubernetes node. The tests are for this cluster only: a fault would stop the
daemons of others. But one test only reads, and is for any cluster of Rook in the namespace rook-ceph:

    tests/rook -v tests/programs/test_rook_cluster.py
    KUBECONFIG=FILE CBT_PLUGINS_KUBERNETES=1 ./run test tests/programs/test_rook_cluster.py
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
import yaml
from waiting import wait_for

from cbt_plugins.faults.rook_gateways import DELETION_COST
from cbt_plugins.journal import json_lines

CONSENT, OWN, CLIENT = "CBT_PLUGINS_KUBERNETES", "own", "client1"
PROJECT = Path(__file__).parents[2]
NAMESPACE, TOOLS, OPERATOR, STORE = "rook-ceph", "deploy/rook-ceph-tools", "rook-ceph-operator", "my-store"
#: the pool of objects
POOL = f"{STORE}.rgw.buckets.data"
#: the nodes of the file that are the pods of the OSDs
OSDS = [f"osd-{osd}" for osd in range(4)]
#: seconds: the operator of Rook makes the cluster anew in one loop
LIMIT = 300.0


def kubectl(*words: str, given: str = "") -> str:
    line = ["kubectl", "-n", NAMESPACE, *words]
    done = subprocess.run(line, input=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(kind: str) -> List[Dict[str, Any]]:
    items: List[Dict[str, Any]] = json.loads(kubectl("get", kind, "-o", "json"))["items"]
    return items


def ceph(*words: str) -> Any:
    return json.loads(kubectl("exec", TOOLS, "--", "timeout", "120", "ceph", *words, "-f", "json"))


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "cbt_plugins.tools", *words]
    return subprocess.run(line, cwd=PROJECT, capture_output=True, text=True, timeout=1200)


def annotations(each: Dict[str, Any]) -> Dict[str, str]:
    return dict(each["metadata"].get("annotations") or {})


def state() -> Dict[str, Any]:
    """What a fault may change, of Kubernetes and of Ceph; which ceph-mgr is active may change."""
    managers = ceph("mgr", "dump")
    return {
        "deployments": {
            each["metadata"]["name"]: (
                each["spec"]["replicas"],
                each["status"].get("availableReplicas", 0),
                each["metadata"]["labels"].get("cbt-plugins"),
                annotations(each).get("cbt-plugins-replicas"),
            )
            for each in objects("deployments")
            if each["metadata"]["name"].startswith(("rook-ceph-osd-", "rook-ceph-m", "rook-ceph-rgw", OPERATOR))
        },
        "costs": [pod["metadata"]["name"] for pod in objects("pods") if DELETION_COST in annotations(pod)],
        "cordoned": [node["metadata"]["name"] for node in objects("nodes") if node["spec"].get("unschedulable")],
        "osds": {osd["osd"]: (osd["up"], osd["in"]) for osd in ceph("osd", "dump")["osds"]},
        "flags": ceph("osd", "dump")["flags_set"],
        "ratios": [ceph("osd", "dump")[f"{level}_ratio"] for level in ("nearfull", "backfillfull", "full")],
        "repairs": [osd["num_shards_repaired"] for osd in ceph("pg", "dump", "osds")["osd_stats"]],
        "mons": sorted(ceph("quorum_status")["quorum_names"]),
        "mgrs": sorted([managers["active_name"], *(standby["name"] for standby in managers["standbys"])]),
        "pgs": sorted(state["state_name"] for state in ceph("status")["pgmap"]["pgs_by_state"]),
    }


@pytest.fixture(scope="module")
def init_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with my.yaml, which `init` has written and whose client is a pod."""
    if os.environ.get(CONSENT) != OWN or not shutil.which("kubectl"):
        pytest.skip("no real cluster of Rook was tried: tests/rook makes one")
    if subprocess.run(["kubectl", "-n", NAMESPACE, "get", "cephcluster"], capture_output=True).returncode:
        pytest.skip("this Kubernetes has no Rook: tests/rook makes one that has")
    folder = tmp_path_factory.mktemp("rook")
    file = folder / "my.yaml"
    words = ["--namespace", NAMESPACE, "--object-store", STORE, "--user", "load", "--clients", CLIENT]
    done = tool("init", *words, "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert "CephObjectStoreUser load" in file.read_text() and "4 OSDs on 1 host" in file.read_text()
    document = yaml.safe_load(file.read_text())
    assert document["cluster"]["watched"] == OSDS
    # not on each Kubernetes node of a label, but a pod by its name
    document["cluster"]["kubernetes"]["pods"][CLIENT] = CLIENT
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    image = os.environ["CBT_PLUGINS_IMAGE"]
    manifest = tool("kubernetes", "manifest", str(file), "--image", image, "--cpu", "250m", "--memory", "256Mi")
    assert manifest.returncode == 0, manifest.stderr
    kubectl("apply", "-f", "-", given=manifest.stdout)
    kubectl("wait", "--for=condition=Ready", f"pod/{CLIENT}", "--timeout=300s")
    wait_until_at_rest()
    yield folder
    kubectl("delete", "--ignore-not-found", "-f", "-", given=manifest.stdout)


def objects_of_plugins() -> List[str]:
    """Return the objects of Kubernetes, and the keys of Ceph, that cbt-plugins has made."""
    kinds = "pods,daemonsets,deployments,services,serviceaccounts"
    names = [*kubectl("get", kinds, "-o", "name").split(), *ceph("config-key", "ls")]
    return [name for name in names if "cbt-plugins" in name]


def test_a_cluster_of_anybody_is_only_read(tmp_path: Path) -> None:
    """`init`, `plan --live`, and the manifest as the API server would take it."""
    if not (os.environ.get(CONSENT) and os.environ.get("KUBECONFIG") and shutil.which("kubectl")):
        pytest.skip(f"no cluster of Rook was read: KUBECONFIG=FILE {CONSENT}=1 names a cluster, which is not changed")
    if subprocess.run(["kubectl", "-n", NAMESPACE, "get", "cephobjectstores"], capture_output=True).returncode:
        pytest.skip(f"no cluster of Rook was read: this Kubernetes has no CephObjectStore in namespace {NAMESPACE}")
    before, client = objects_of_plugins(), "no-such-node"
    file, store = tmp_path / "my.yaml", objects("cephobjectstores")[0]["metadata"]["name"]
    made = tool("init", "--namespace", NAMESPACE, "--object-store", store, "--clients", client, "-o", str(file))
    assert made.returncode == 0, made.stderr
    cluster = yaml.safe_load(file.read_text())["cluster"]
    daemons = [pod["metadata"].get("labels", {}) for pod in objects("pods") if pod["status"]["phase"] == "Running"]
    osds = {labels["ceph-osd-id"] for labels in daemons if labels.get("app") == "rook-ceph-osd"}
    watched = {name.removeprefix("osd-") for name in cluster.get("watched", ())}
    assert watched <= osds and len(osds - watched) <= len(cluster["osds"])
    live = json.loads(tool("plan", str(file), "--live", "--format", "json").stdout)["live"]
    nodes = {error.partition(": ")[0] for error in live["errors"]} & set(cluster["kubernetes"]["pods"])
    assert (nodes, live["refused"]) == ({client}, []), live
    manifest = tool("kubernetes", "manifest", str(file), "--away-from-osds")
    assert manifest.returncode == 0, manifest.stderr
    applied = kubectl("apply", "--dry-run=server", "-f", "-", given=manifest.stdout).splitlines()
    assert applied and all(line.endswith("(server dry run)") for line in applied)
    assert objects_of_plugins() == before


def wait_until_at_rest() -> Dict[str, Any]:
    """Wait until nothing moves; return the state."""

    def clean() -> Any:
        seen = state()
        available = all(replicas == ready for replicas, ready, _, _ in seen["deployments"].values())
        return seen if seen["pgs"] == ["active+clean"] and available and len(seen["mgrs"]) == 2 else None

    at_rest: Dict[str, Any] = wait_for(clean, "a cluster at rest", LIMIT, moving=state)
    return at_rest


def assert_ready(file: Path) -> None:
    """Assert that nodes, endpoints, keys and the cluster are ready for a run, as `plan --live` says."""
    done = tool("plan", str(file), "--live", "--format", "json")
    live = json.loads(done.stdout)["live"]
    assert (done.returncode, live["errors"], live["refused"]) == (0, [], []), done.stderr


def with_section(init_folder: Path, folder: Path, **benchmark: Dict[str, Any]) -> Path:
    """Return a file in another folder that has this section of load."""
    document = yaml.safe_load((init_folder / "my.yaml").read_text())
    s3 = document["benchmarks"]["rgwtest"]["s3"]
    document["benchmarks"] = {name: {"s3": s3, **keys} for name, keys in benchmark.items()}
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def run(file: Path, **environment: str) -> Path:
    """Run the file to its end; return the folder of the run."""
    archive = file.parent / "archive"
    line = [sys.executable, "-m", "cbt_plugins", "-a", str(archive), str(file)]
    variables = {**os.environ, **environment}
    done = subprocess.run(line, cwd=PROJECT, env=variables, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = archive.glob("results/*/id-*")
    return folder


def summary_of(folder: Path) -> Dict[str, Any]:
    summary: Dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def test_a_whole_run_as_the_account_of_the_manifest(init_folder: Path, tmp_path: Path) -> None:
    """The load goes to the name of the service, and comes from a pod; the keys are in a secret."""
    load = {"duration": "8s"}
    keys = {"objects": {"sizes": ["16KiB"]}, "workers": 4, "fill": {"objects": 200}, "measure": load, "age": load}
    file = with_section(init_folder, tmp_path, rgwtest=keys)
    token = kubectl("create", "token", "cbt-plugins").strip()
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    config["users"][0]["user"] = {"token": token}
    account = tmp_path / "account"
    account.write_text(yaml.safe_dump(config))
    folder = run(file, KUBECONFIG=str(account))
    summary = summary_of(folder)
    assert [phase["name"] for phase in summary["phases"]] == ["fill", "measure-new", "age", "measure-aged"]
    watched = summary["resources"]["phases"]["measure-new"]
    assert {node["node"] for node in watched["nodes"]} == {CLIENT, "kube1", "toolbox", *OSDS}
    assert watched["classes"]["osd"]["daemons"] == len(OSDS)
    assert not [warning for warning in summary["warnings"] if warning["code"] == "monitor-limited"]
    (samples,) = folder.rglob("recovery.jsonl")
    assert '"via": "librados", "interval": 0.25' in samples.read_text()
    for path in sorted((folder / "phases").glob("*/phase.json")):
        assert all(count["ok"] for count in json.loads(path.read_text())["accounting"])
    secret = json.loads(kubectl("get", "secret", f"rook-ceph-object-user-{STORE}-load", "-o", "json"))["data"]
    key = base64.b64decode(secret["SecretKey"])
    for path in filter(Path.is_file, folder.rglob("*")):
        assert key not in path.read_bytes(), path


def test_a_scorecard_of_failures(init_folder: Path, tmp_path: Path) -> None:
    """One of two gateways stops. What was sampled in a pod before it was stopped or deleted is not lost."""
    before = wait_until_at_rest()
    failures = {
        "osd stop": {"kind": "stop", "osds": [3]},
        "osd pod": {"kind": "delete_pod", "osds": [2]},
        "rgw stop": {"kind": "stop", "daemon_number": 1, "daemon_type": "rgw"},
    }
    keys = {"objects": {"sizes": ["16KiB"]}, "fill": {"objects": 300}, "generator_ceiling": False, "rate": "30%"}
    times = {"closed_loop": "10s", "baseline": "20s", "parts": {"start": "5s", "failure": "20s", "recovery": "20s"}}
    waits = {"wait": {"at_most": "6m", "stalled": "3m"}}
    section = {**keys, **times, **waits, "failures": failures}
    folder = run(with_section(init_folder, tmp_path, resilience=section))
    lines = {line["name"]: line for line in summary_of(folder)["scorecard"]["failures"]}
    assert {name: bool(line.get("refused")) for name, line in lines.items()} == {
        "osd stop": False, "osd pod": False, "rgw stop": False,
    }  # fmt: skip
    events = [line for line in map(json.loads, (folder / "events.jsonl").read_text().splitlines()) if "label" in line]
    injected = {line["label"]: line["t"] for line in events if line["event"] == "fault-injected"}
    assert injected.keys() - {"settings"} == {"osd-stop", "osd-pod", "rgw-stop"}
    begun = {line["label"]: line["t"] for line in events if line["event"] == "fault-inject-begin"}
    for node, label in (("osd-3", "osd-stop"), ("osd-2", "osd-pod")):
        (samples,) = folder.glob(f"monitors/*/resources.{node}/{node}.jsonl")
        written = json_lines(samples)
        first, *later = (line["t"] for line in written if "version" in line)
        assert first < begun[label] < max(later), "the monitor is started in the next pod too"
        assert any(first < line["t"] < begun[label] for line in written if "s" in line)
        assert any(line["t"] > max(later) for line in written if "s" in line)
    assert wait_until_at_rest() == before


def osds_of_map() -> List[Dict[str, Any]]:
    osds: List[Dict[str, Any]] = ceph("osd", "dump")["osds"]
    return osds


def is_down(osd: int) -> bool:
    return any(each["osd"] == osd and not each["up"] for each in osds_of_map())


def replicas(name: str) -> int:
    return int(json.loads(kubectl("get", "deployment", name, "-o", "json"))["spec"]["replicas"])


def uid_of_osd(osd: int) -> List[str]:
    pods = json.loads(kubectl("get", "pods", "-l", f"ceph-osd-id={osd}", "-o", "json"))["items"]
    return [pod["metadata"]["uid"] for pod in pods]


def osd_stop() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    return {"kind": "stop", "osds": [3]}, lambda: is_down(3) and replicas(OPERATOR) == 0


def mon_stop() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    return {"kind": "stop", "daemons": ["mon.c"]}, lambda: "c" not in ceph("quorum_status")["quorum_names"]


def mgr_stop() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    active = ceph("mgr", "dump")["active_name"]
    fault = {"kind": "stop", "daemons": [f"mgr.{active}"]}
    return fault, lambda: ceph("mgr", "dump")["active_name"] not in ("", active)


def rgw_stop() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    """Stop the older one of two gateways of one name: Kubernetes itself would end the younger one."""
    older, younger = gateways()
    assert answers(older) and answers(younger)

    def in_force() -> bool:
        left = replicas(f"rook-ceph-rgw-{STORE}-a") == 1 and gateways() == [younger]
        return left and answers(younger) and not answers(older)

    return {"kind": "stop", "daemon_number": 1, "daemon_type": "rgw"}, in_force


def gateways() -> List[str]:
    """Return the addresses of the pods of gateways, the oldest first."""
    pods = json.loads(kubectl("get", "pods", "-l", "app=rook-ceph-rgw", "-o", "json"))["items"]
    pods.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    return [pod["status"].get("podIP", "") for pod in pods]


def answers(address: str) -> bool:
    """Tell whether a gateway takes connections, as the toolbox sees it."""
    program = f"import socket; socket.create_connection(({address!r}, 8080), 5)"
    line = ["kubectl", "-n", NAMESPACE, "exec", TOOLS, "--", "python3", "-c", program]
    return subprocess.run(line, capture_output=True, timeout=120).returncode == 0


def pod_deletion() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    before = set(uid_of_osd(2))
    return {"kind": "delete_pod", "osds": [2]}, lambda: before.isdisjoint(uid_of_osd(2) or before)


def mgr_failover() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    fault, in_force = mgr_stop()
    return {**fault, "kind": "failover"}, in_force


def osd_out() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    return {"kind": "out", "osds": [1]}, lambda: any(each["osd"] == 1 and not each["in"] for each in osds_of_map())


def osd_mark() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    gone = {"osd": 1, "up": 0, "in": 0}
    return {"kind": "mark", "osds": [1]}, lambda: any(gone.items() <= each.items() for each in osds_of_map())


def osd_fill() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    fault = {"kind": "fill", "osds": [1], "options": {"level": "nearfull"}}
    return fault, lambda: "OSD_NEARFULL" in ceph("health")["checks"]


def osd_read_errors() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    """Return the fault on the first OSD that serves reads of the pool of objects, which `read` makes."""
    (osd, *_) = (pg["acting_primary"] for pg in ceph("pg", "ls-by-pool", POOL)["pg_stats"])
    option = "bluestore_debug_random_read_err"
    fault = {"kind": "read_errors", "osds": [osd], "options": {"share": "20%"}}
    return fault, lambda: float(ceph("tell", f"osd.{osd}", "config", "get", option)[option]) > 0


FAULTS: Dict[str, Callable[[], Tuple[Dict[str, Any], Callable[[], bool]]]] = {
    "stop of an OSD": osd_stop,
    "stop of a mon": mon_stop,
    "stop of the active mgr": mgr_stop,
    "stop of one of two RGWs": rgw_stop,
    "delete_pod": pod_deletion,
    "failover of the active mgr": mgr_failover,
    "out": osd_out,
    "mark": osd_mark,
    "fill, nearfull": osd_fill,
    "read_errors": osd_read_errors,
}


@pytest.fixture
def reads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reads of the pool of objects, all the time, for `read_errors`."""
    if request.node.callspec.params["name"] != "read_errors":
        yield
        return
    bench = ["kubectl", "-n", NAMESPACE, "exec", "-i", TOOLS, "--", "sh", "-c"]
    write = f"rados -p {POOL} bench 3 write -b 16384 -t 4 --no-cleanup"
    assert subprocess.run([*bench, write], capture_output=True, timeout=300).returncode == 0
    # until its input ends
    loop = f"while kill -0 $r; do timeout 60 rados -p {POOL} bench 5 rand -t 1; done >/dev/null 2>&1"
    program = f"exec 3<&0; cat <&3 >/dev/null & r=$!; {loop}"
    with subprocess.Popen([*bench, program], stdin=subprocess.PIPE) as reading:
        try:
            yield
        finally:
            assert reading.stdin is not None
            reading.stdin.close()
    kubectl("exec", TOOLS, "--", "rados", "-p", POOL, "cleanup")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_undone_after_a_kill(init_folder: Path, tmp_path: Path, reads: None, name: str) -> None:
    before = wait_until_at_rest()
    fault, in_force = FAULTS[name]()
    events = [{"at": "0s", "fault": {"label": "a", **fault}}, {"at": "1h", "undo": "a"}]
    file, archive = tmp_path / "faults.yaml", tmp_path / "faults"
    file.write_text(yaml.safe_dump({"events": events}))
    words = ["inject", str(file), "--cluster", str(init_folder / "my.yaml"), "--archive", str(archive)]
    line = [sys.executable, "-m", "cbt_plugins.tools", *words]
    log = tmp_path / "log"
    with open(log, "wb") as output:
        running = subprocess.Popen(line, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for(lambda: running.poll() is not None or in_force(), f"the effect of {name}", LIMIT)
        assert running.poll() is None, log.read_text()
    finally:
        running.kill()
        status = running.wait(60)
        done = tool("undo", str(archive))
    assert (status, done.returncode) == (-signal.SIGKILL, 0), done.stderr
    assert wait_until_at_rest() == before


def rgw_admin(*words: str) -> Any:
    return json.loads(kubectl("exec", TOOLS, "--", "timeout", "120", "radosgw-admin", *words))


def test_clients_are_a_daemon_set_unless_the_file_names_pods(init_folder: Path, tmp_path: Path) -> None:
    """As `init` writes the file: a client is the pod with the label on a Kubernetes node, also where OSDs are.

    The run makes its user, and removes it.
    """
    (host,) = (node["metadata"]["name"] for node in objects("nodes"))
    file, words = tmp_path / "my.yaml", ["--namespace", NAMESPACE, "--object-store", STORE]
    done = tool("init", *words, "--clients", host, "-o", str(file))
    assert done.returncode == 0, done.stderr
    cluster = yaml.safe_load(file.read_text())["cluster"]
    assert (cluster["clients"], cluster["watched"]) == ([host], OSDS)
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
