"""A cluster as Rook runs it: a lab that is reached by the real kubectl alone, through the API server of the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
import yaml
from cluster_state import clean, facts, moving
from cycles import Cycle
from kube_rights import granted, user_of
from rook_lab import SECRET, RookLab
from running_lab import PROJECT, RunningLab
from test_osdfailure import failure, happened
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

FAULT = {"kind": "stop", "nodes": ["node4"]}
KEYS = {"access_key": f"secret:{SECRET}/AccessKey", "secret_key": f"secret:{SECRET}/SecretKey"}
S3 = {"urls": ["http://rgw1:7480", "http://rgw2:7480"], **KEYS}


@pytest.fixture
def rook(lab: RunningLab, tmp_path: Path) -> Iterator[RookLab]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    made = RookLab(lab, tmp_path)
    try:
        yield made
    finally:
        made.close()


class PodCycle(Cycle):
    """A run that this machine leads."""

    def __init__(self, rook: RookLab, folder: Path, **benchmarks: Any) -> None:
        super().__init__(rook.lab, folder, {"resources": {}, "recovery": {}}, **benchmarks)
        document = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**document, "cluster": rook.cluster()}, sort_keys=False))

    def start(self, *program: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "cbt_plugins", "-a", str(self.archive), str(self.file)]
        with open(self.log, "ab") as file:
            process = subprocess.Popen(argv, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=PROJECT)
        self.process = process
        Cycle.started.append(self)
        return process

    def send(self, number: int) -> None:
        assert self.process
        os.kill(self.process.pid, number)

    def undo(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.tool("undo", str(self.archive), *options)

    def tool(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "cbt_plugins.tools", *words]
        return subprocess.run(argv, capture_output=True, text=True, cwd=PROJECT, timeout=1200)


def as_before(rook: RookLab, before: Dict[str, Any], deployments: Dict[str, str]) -> None:
    assert rook.deployments() == deployments
    wait_for(lambda: rook.api.pods_of("rook-ceph-operator"), "the operator")
    wait_for(lambda: all(map(rook.runs, rook.daemons)), "all daemons")
    assert facts(rook.lab) == before


def test_a_node_fails_and_comes_back_to_a_report(rook: RookLab, tmp_path: Path) -> None:
    before, deployments = facts(rook.lab), rook.deployments()
    cycle = PodCycle(rook, tmp_path, osdfailure=failure(s3=S3, fault=FAULT))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    as_before(rook, before, deployments)
    phases = cycle.phases()
    assert list(phases) == ["fill", "no-failure", "one-down", "recover", "wait-clean"]
    assert all(count["ok"] for name in list(phases)[:4] for count in phases[name]["accounting"])
    recorded = next(line for line in (cycle.folder / "undo.jsonl").read_text().splitlines() if '"node-a"' in line)
    assert json.loads(recorded)["step"]["former"]["service_manager"] == "rook"
    samples = "".join(path.read_text() for path in cycle.folder.rglob("recovery.jsonl"))
    assert '"via": "librados", "interval": 0.25' in samples
    keys = json.loads((rook.lab.dir / "s3.json").read_text())
    for path in filter(Path.is_file, cycle.archive.rglob("*")):
        assert keys["secret_key"].encode() not in path.read_bytes(), path
    assert "node-a" in (cycle.folder / "report.html").read_text()
    summary = json.loads((cycle.folder / "summary.json").read_text())
    osds = [daemon for daemon in rook.daemons if daemon.startswith("osd.")]
    assert summary["resources"]["phases"]["no-failure"]["classes"]["osd"]["daemons"] == len(osds)
    assert not [warning for warning in summary["warnings"] if warning["code"] == "monitor-limited"]


def test_a_run_that_is_killed_in_its_fault_is_undone(rook: RookLab, tmp_path: Path) -> None:
    before, deployments = facts(rook.lab), rook.deployments()
    cycle = PodCycle(rook, tmp_path, osdfailure=failure(s3=S3, fault=FAULT, phase={"duration": "60s"}))
    is_down = lambda: happened(cycle, "fault-injected") and not rook.runs("osd.6")  # noqa: E731
    assert cycle.broken_off(is_down, "the fault") == -9
    assert rook.api.replicas("rook-ceph-operator") == rook.api.replicas("rook-ceph-osd-6") == 0
    done = cycle.undo("--data")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: clean(rook.lab), "a clean cluster", moving=lambda: moving(rook.lab))
    as_before(rook, before, deployments)


def test_a_right_that_is_missing_ends_the_run_before_anything_is_changed(rook: RookLab, tmp_path: Path) -> None:
    before, deployments = facts(rook.lab), rook.deployments()
    rook.api.refused["admin"] = [("create", "pods/exec")]
    cycle = PodCycle(rook, tmp_path, osdfailure=failure(s3=S3, fault=FAULT))
    done = cycle.run()
    assert done.returncode and 'User "admin" cannot create resource "pods/exec"' in done.stderr, done.stderr
    rook.api.refused.clear()
    as_before(rook, before, deployments)


def test_a_run_as_the_account_of_the_manifest(rook: RookLab, tmp_path: Path) -> None:
    """Its rights are enough for a run with a fault, to the report, and each of them is used."""
    before, deployments = facts(rook.lab), rook.deployments()
    cycle = PodCycle(rook, tmp_path, osdfailure=failure(s3=S3, fault=FAULT))
    made = cycle.tool("kubernetes", "manifest", str(cycle.file))
    assert made.returncode == 0, made.stderr
    # the pods of the clients are there
    objects = [each for each in yaml.safe_load_all(made.stdout) if each["kind"] not in ("Pod", "Job", "DaemonSet")]
    apply = ["kubectl", "--kubeconfig", str(rook.api.kubeconfig(tmp_path)), "apply", "--validate=false", "-f", "-"]
    applied = subprocess.run(apply, input=yaml.safe_dump_all(objects), text=True, capture_output=True, timeout=120)
    assert applied.returncode == 0, applied.stderr
    account = user_of(rook.api.namespace, "cbt-plugins")
    document = yaml.safe_load(cycle.file.read_text())
    document["cluster"]["kubernetes"]["kubeconfig"] = str(rook.api.kubeconfig(tmp_path, account))
    cycle.file.write_text(yaml.safe_dump(document, sort_keys=False))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    as_before(rook, before, deployments)
    asked = {right[1:4] for right in rook.api.used if right.user == account}
    unused = {right[1:4] for right in granted(rook.api.objects, account)} - asked
    assert unused <= {(rook.api.namespace, "get", "pods/exec")}  # of kubectl before 1.31
