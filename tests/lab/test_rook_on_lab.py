"""A cluster as Rook runs it: a lab that is reached by the real kubectl alone, through the API server of the tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import leading
import pytest
import yaml
from cluster_state import clean, facts, moving
from container_faults import mgr_failover, osd_mark, osd_nearfull, osd_out, osd_read_errors, ratios_and_repairs, reading
from cycles import Cycle
from faulty import Faulty
from kube_rights import granted, user_of
from rook_lab import SECRET, RookLab
from running_lab import PROJECT, RunningLab, need_machine
from test_daemon_faults import answering, held, inject, state
from test_osdfailure import failure, happened
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, Topology

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


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (("create", "pods/exec"), 'User "admin" cannot create resource "pods/exec"'),
        (("patch", "deployments/scale"), "node-a: no right to patch deployments/scale: kubectl "),
    ],
    ids=["commands", "scaling"],
)
def test_a_right_that_is_missing_ends_the_run_before_anything_is_changed(
    rook: RookLab, tmp_path: Path, refused: Tuple[str, str], text: str
) -> None:
    """Before the fill, also where only the fault of a later phase needs the right."""
    before, deployments = facts(rook.lab), rook.deployments()
    rook.api.refused["admin"] = [refused]
    cycle = PodCycle(rook, tmp_path, osdfailure=failure(s3=S3, fault=FAULT))
    done = cycle.run()
    assert done.returncode and text in done.stderr, done.stderr
    assert not list(cycle.archive.rglob("phases/*")) and not happened(cycle, "load-go")
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


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with a quorum of ceph-mons, and a standby ceph-mgr."""
    need_machine()
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        bind = (str(tmp_path_factory.getbasetemp()),)
        made.up(Topology(osds_per_node=1, mons=3, mgrs=2, out_interval=600, bind=bind), detach=False)
        yield RunningLab(made, [])
    finally:
        made.down(wipe=True)


class PodFaults(Faulty):
    """Runs with faults that this machine leads: it reaches the cluster by kubectl alone."""

    def __init__(self, rook: RookLab, base: Path) -> None:
        super().__init__(rook.lab, base)
        self.rook = rook
        self._running: List[subprocess.Popen[str]] = []

    def start(self, folder: Path, statements: str) -> subprocess.Popen[str]:
        argv = [sys.executable, leading.__file__, statements, json.dumps(self.rook.cluster()), str(folder), "{}"]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        self._running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment))
        return self._running[-1]

    def undo(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "cbt_plugins.tools", "undo", *words, str(folder)]
        return subprocess.run(argv, capture_output=True, text=True, cwd=PROJECT, timeout=1200)

    def undo_all(self) -> None:
        for running in self._running:
            with running:
                running.kill()
        for journal in self._base.glob("run*/undo.jsonl"):
            self.undo(journal.parent)

    def active_mgr(self) -> str:
        return str(self.ceph("mgr stat")["active_name"])

    def as_found(self) -> Dict[str, Any]:
        """Return all that a fault may change, of Ceph and of Kubernetes; which ceph-mgr is active may change."""
        with self.rook.api.lock:
            nodes = self.rook.api.objects["nodes"].items()
            cordoned = [name for (_, name), node in nodes if node["spec"].get("unschedulable")]
        daemons = {daemon: self.rook.runs(daemon) for daemon in self.rook.daemons}
        operator = len(self.rook.api.pods_of("rook-ceph-operator"))
        kubernetes = {"deployments": self.rook.deployments(), "cordoned": cordoned, "operator": operator}
        return {**state(self), **ratios_and_repairs(self), **kubernetes, "daemons": daemons}


@pytest.fixture
def pods(quorum: RunningLab, tmp_path: Path) -> Iterator[PodFaults]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    rook = RookLab(quorum, tmp_path)
    faults = PodFaults(rook, tmp_path)
    try:
        faults.clean()
        yield faults
    finally:
        faults.undo_all()
        rook.close()


def scaled(pods: PodFaults, daemon: str, seen: Callable[[], bool]) -> Tuple[str, Callable[[], bool]]:
    """Return the fault that stops a daemon, and what tells that it is in force. `seen`: whether the cluster sees it."""
    deployment = f"rook-ceph-{daemon.replace('.', '-')}"

    def in_force() -> bool:
        replicas = {pods.rook.api.replicas(name) for name in (deployment, "rook-ceph-operator")}
        return replicas == {0} and not pods.rook.runs(daemon) and seen()

    return inject("stop", daemon), in_force


def mon_stop(pods: PodFaults) -> Tuple[str, Callable[[], bool]]:
    return scaled(pods, "mon.node2", lambda: "node2" not in pods.ceph("quorum_status")["quorum_names"])


def mgr_stop(pods: PodFaults) -> Tuple[str, Callable[[], bool]]:
    first = pods.active_mgr()
    return scaled(pods, f"mgr.{first}", lambda: pods.active_mgr() != first)


def rgw_stop(pods: PodFaults) -> Tuple[str, Callable[[], bool]]:
    return scaled(pods, "rgw.rgw1", lambda: answering(pods) == ["rgw2"])


def one_of_two_rgws(pods: PodFaults) -> Tuple[str, Callable[[], bool]]:
    """The gateway of the target's node ends, not the younger pod of the same deployment."""
    pods.rook.share_gateways("rgw.rgw1", "rgw.rgw2")

    def in_force() -> bool:
        replicas = [pods.rook.api.replicas(name) for name in ("rook-ceph-rgw-rgw1", "rook-ceph-operator")]
        return replicas == [1, 0] and not pods.rook.runs("rgw.rgw1") and answering(pods) == ["rgw2"]

    return inject("stop", "rgw.rgw1"), in_force


def pod_deletion(pods: PodFaults) -> Tuple[str, Callable[[], bool]]:
    """Kubernetes makes another pod at once, and the operator stays."""
    before = pods.rook.api.pods_of("rook-ceph-osd-3")

    def another() -> bool:
        now = pods.rook.api.pods_of("rook-ceph-osd-3")
        return len(now) == 1 and now != before and pods.rook.runs("osd.3")

    return inject("delete_pod", "osd.3"), another


def drain(pods: PodFaults) -> Tuple[str, Callable[[], bool]]:
    def drained() -> bool:
        with pods.rook.api.lock:
            cordoned = pods.rook.api.objects["nodes"]["", "node4"]["spec"].get("unschedulable")
        return bool(cordoned) and not pods.rook.runs("osd.3") and not pods.osd(3)["up"]

    return inject("node_drain", "node4"), drained


FAULTS: Dict[str, Callable[[PodFaults], Tuple[str, Callable[[], bool]]]] = {
    "stop of a mon": mon_stop,
    "stop of the active mgr": mgr_stop,
    "stop of an RGW": rgw_stop,
    "stop of one of two RGWs": one_of_two_rgws,
    "delete_pod": pod_deletion,
    "node_drain": drain,
    "failover of the active mgr": mgr_failover,
    "out": lambda pods: osd_out(pods, 3),
    "mark": lambda pods: osd_mark(pods, 3),
    "fill, nearfull": lambda pods: osd_nearfull(pods, 3),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_undone_after_a_kill(pods: PodFaults, name: str) -> None:
    held_killed_and_undone(pods, name, *FAULTS[name](pods))


def test_read_errors_are_undone_after_a_kill(pods: PodFaults) -> None:
    """The undo restarts the OSD, by scaling its deployment: this release forgets repairs only so."""

    def came_up() -> Dict[int, int]:
        return {osd["osd"]: osd["up_from"] for osd in pods.ceph("osd dump")["osds"]}

    with reading(pods):
        former, fault = came_up(), osd_read_errors(pods)
        held_killed_and_undone(pods, "read_errors", *fault)
        (restarted,) = [osd for osd, epoch in came_up().items() if epoch != former[osd]]
        assert f"osd.{restarted}" in fault.statement


def held_killed_and_undone(pods: PodFaults, name: str, statement: str, in_force: Callable[[], bool]) -> None:
    """Seen from outside while the run is dead: nothing but `cbt-tools undo` puts the cluster back."""
    before, folder = pods.as_found(), pods.folder()
    assert not in_force()
    running = held(pods, statement, folder)
    wait_for(in_force, f"the effect of {name}", 60.0)
    running.kill()
    assert running.wait(60) == -signal.SIGKILL and in_force()
    done = pods.undo(folder)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: pods.as_found() == before, f"all as before {name}", moving=pods.as_found)
    pods.clean()
