"""A real cluster of Rook: `init`, a run whose load comes from a pod, and faults that are undone after a kill -9.

`tests/rook` makes such a cluster, of two Kubernetes nodes. The tests are for this cluster only: a fault would stop the
daemons of others. But one test only reads, and is for any cluster of Rook in the namespace rook-ceph:

    tests/rook -v tests/programs/test_rook_cluster.py
    KUBECONFIG=FILE CBT_PLUGINS_KUBERNETES=1 ./run test tests/programs/test_rook_cluster.py
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
import yaml
from rook_cluster import (
    CLIENT,
    CONSENT,
    HOSTS,
    LIMIT,
    NAMESPACE,
    OPERATOR,
    POOL,
    PROJECT,
    STORE,
    TOOLS,
    ceph,
    kubectl,
    objects,
    objects_of_plugins,
    osds_on,
    run,
    summary_of,
    tool,
    wait_until_at_rest,
    watched_pods,
    with_section,
)
from waiting import wait_for

from cbt_plugins.journal import json_lines


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
    assert {node["node"] for node in watched["nodes"]} == {CLIENT, *HOSTS, "toolbox", *watched_pods()}
    assert watched["classes"]["osd"]["daemons"] == 4
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
    (stopped, deleted, *_) = osds_on(HOSTS[0])
    failures = {
        "osd stop": {"kind": "stop", "osds": [stopped]},
        "osd pod": {"kind": "delete_pod", "osds": [deleted]},
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
    for node, label in ((f"osd-{stopped}", "osd-stop"), (f"osd-{deleted}", "osd-pod")):
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
    """Stop one of two gateways of one name, also the older one: Kubernetes itself would end the younger one."""
    both = gateways()
    assert len(both) == 2 and all(map(answers, both))

    def in_force() -> bool:
        left = gateways()
        (gone,) = {*both}.difference(left) if len(left) == 1 else {""}
        is_scaled = replicas(f"rook-ceph-rgw-{STORE}-a") == 1 and bool(gone)
        return is_scaled and answers(left[0]) and not answers(gone)

    return {"kind": "stop", "daemon_number": 1, "daemon_type": "rgw"}, in_force


def gateways() -> List[str]:
    """Return the addresses of the pods of gateways."""
    pods = json.loads(kubectl("get", "pods", "-l", "app=rook-ceph-rgw", "-o", "json"))["items"]
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


def node_drain() -> Tuple[Dict[str, Any], Callable[[], bool]]:
    """Drain the node of one OSD; other daemons on it move to the other node."""
    (osd,) = osds_on(HOSTS[1])

    def in_force() -> bool:
        node = json.loads(kubectl("get", "node", HOSTS[1], "-o", "json"))
        return bool(node["spec"].get("unschedulable")) and is_down(osd)

    return {"kind": "node_drain", "nodes": [HOSTS[1]]}, in_force


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
    "node_drain": node_drain,
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
