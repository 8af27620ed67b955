"""The real cluster of Rook that `tests/rook` makes: its state, and runs of files for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import yaml
from waiting import wait_for

from cbt_plugins.faults.rook_gateways import DELETION_COST

CONSENT, OWN, CLIENT = "CBT_PLUGINS_KUBERNETES", "own", "client1"
PROJECT = Path(__file__).parents[2]
NAMESPACE, TOOLS, OPERATOR, STORE = "rook-ceph", "deploy/rook-ceph-tools", "rook-ceph-operator", "my-store"
#: the pool of objects
POOL = f"{STORE}.rgw.buckets.data"
#: the nodes of Kubernetes: three OSDs and all mons are on the first one
HOSTS = ["kube1", "kube2"]
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


def osds_on(host: str) -> List[int]:
    """Return the OSDs of a node of Kubernetes: only the second node has a single one, which stands for the node."""
    osds: List[int] = next(node["children"] for node in ceph("osd", "tree")["nodes"] if node["name"] == host)
    return sorted(osds)


def watched_pods() -> List[str]:
    """Return the nodes of the file that are pods of OSDs."""
    return [f"osd-{osd}" for osd in osds_on(HOSTS[0])]


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


def objects_of_plugins() -> List[str]:
    """Return the objects of Kubernetes, and the keys of Ceph, that cbt-plugins has made."""
    kinds = "pods,daemonsets,deployments,services,serviceaccounts"
    names = [*kubectl("get", kinds, "-o", "name").split(), *ceph("config-key", "ls")]
    return [name for name in names if "cbt-plugins" in name]


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


def rgw_admin(*words: str) -> Any:
    return json.loads(kubectl("exec", TOOLS, "--", "timeout", "120", "radosgw-admin", *words))
