"""Monitors in pods: the real kubectl, and an API server of the tests whose pods lose their files when they end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest
from kube_api import KubeApi, Workload
from waiting import wait_for
from watched import lines

from cbt_plugins.cbt import delegate
from cbt_plugins.monitors import agent_connections, lifecycle
from cbt_plugins.monitors.resources import Resources
from cbt_plugins.results.nodes.node_files import read_nodes

DEPLOYMENT, WORKER, OSD_POD, BARE = "rook-ceph-osd-3", "worker1", "osd-3", "client1"
#: of a node of the file: a label, a deployment, a name
NODES = (WORKER, OSD_POD, BARE)
#: seconds until a pod that came back is reached, and more
LIMIT = 30.0


class Pods:
    """Pods whose only files are in `folder`."""

    def __init__(self, folder: Path, kubeconfigs: Path) -> None:
        self.folder, self.archive = folder, kubeconfigs / "archive" / "monitors" / "01"
        self.api = KubeApi()
        self.api.deployment(DEPLOYMENT, self._workload(), WORKER, app="rook-ceph-osd")
        self.api.bare_pod(BARE, self._workload())
        pods = {WORKER: "app=rook-ceph-osd", OSD_POD: f"deploy/{DEPLOYMENT}"}
        kubernetes = {"context": "test", "kubeconfig": str(self.api.kubeconfig(kubeconfigs)), "pods": pods}
        nodes = {"clients": [BARE], "osds": [WORKER], "watched": [OSD_POD]}
        self.cluster: Dict[str, Any] = {"head": WORKER, **nodes, "transport": "kubectl", "kubernetes": kubernetes}

    def _workload(self) -> Workload:
        return Workload(list, stop=lambda: shutil.rmtree(self.folder), environment=dict(os.environ))

    def monitor(self) -> Resources:
        return Resources({"interval": 0.1, "nodes": ["clients", "osds", "watched"]}, self.cluster, {})

    def scale(self, replicas: int) -> None:
        deployment = self.api.objects["deployments"][self.api.namespace, DEPLOYMENT]
        before, deployment["spec"]["replicas"] = deployment["spec"]["replicas"], replicas
        self.api.scaled(deployment, before)
        wait_for(lambda: len(self.api.pods_of(DEPLOYMENT)) == replicas, f"{replicas} pods")

    def file(self, node: str) -> Path:
        return self.archive / f"resources.{node}" / f"{node}.jsonl"

    def has_samples(self, headers: int, node: str) -> bool:
        written = lines(self.file(node))
        return sum("version" in line for line in written) == headers and "s" in written[-1]

    def wait_for_samples(self, headers: int, *nodes: str) -> None:
        """Wait until the last of so many agents, one after the other, has sent samples."""
        for node in nodes:
            wait_for(partial(self.has_samples, headers, node), f"samples of agent {headers} of {node}", LIMIT)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    made = Pods(tmp_path / "pod", tmp_path)
    try:
        yield made
    finally:
        made.api.close()


def test_samples_of_a_pod_that_was_stopped_and_of_the_next_one_are_in_the_archive(
    pods: Pods, caplog: pytest.LogCaptureFixture
) -> None:
    with lifecycle.watch(lambda: [pods.monitor()], pods.cluster, {}, str(pods.folder), pods.archive):
        pods.wait_for_samples(1, *NODES)
        assert not list(pods.folder.rglob("*.jsonl"))
        before = {node: pods.file(node).read_bytes() for node in (WORKER, OSD_POD)}
        pods.scale(0)
        assert not pods.folder.exists()
        pods.scale(1)
        pods.wait_for_samples(2, WORKER, OSD_POD)
    assert list(pods.folder.iterdir()) == []
    assert [path.name for path in pods.archive.parent.iterdir()] == ["01"]
    assert sorted(pods.archive.rglob("*.jsonl")) == sorted(map(pods.file, NODES))
    assert "command terminated with exit code 137" in (pods.file(WORKER).parent / "output.txt").read_text()
    for node in NODES:
        assert lines(pods.file(node))[-1]["end"] == "told"
    samples = {node.name: node for node in read_nodes(pods.archive, {})}
    assert sorted(samples) == sorted(NODES) and not any(node.damage for node in samples.values())
    for name, text in before.items():
        assert pods.file(name).read_bytes().startswith(text)
        written = lines(pods.file(name))
        second = [number for number, line in enumerate(written) if "version" in line][1]
        t, again = written[second - 1]["t"], written[second]["t"]
        processors = samples[name].processors
        assert processors.meets(written[0]["t"], t) and processors.meets(again, written[-1]["t"])
        assert not processors.meets(t + 0.01, again - 0.01), "nobody watched"
    assert "resources: lost connections to worker1 (" in caplog.text
    assert not list(pods.archive.glob("left.json"))


def test_samples_are_in_the_archive_when_the_process_with_the_connections_is_killed(pods: Pods) -> None:
    """As they are when the run is killed: then nobody fetches anything."""
    monitor = pods.monitor()
    monitor.archive_folder = pods.archive
    monitor.start(str(pods.folder / "monitors-1-1"))
    try:
        pods.wait_for_samples(1, *NODES)
        process = monitor.connections_process
        assert process is not None
        process.kill()
        process.wait()
        wait_for(lambda: not pods.api.execs, "the end of all agents")
        with open(pods.file(BARE), "ab") as file:
            file.write(b'{"t": 1')  # as a kill may tear a line
        before = pods.file(BARE).read_bytes()
    finally:
        monitor.stop(str(pods.folder / "monitors-1-1"))
    again = pods.monitor()
    again.archive_folder = pods.archive
    again.start(str(pods.folder / "monitors-1-2"))
    try:
        wait_for(lambda: pods.file(BARE).read_bytes().count(b'{"version":') == 2, "the next agent", LIMIT)
    finally:
        again.stop(str(pods.folder / "monitors-1-2"))
    assert pods.file(BARE).read_bytes().startswith(before + b'\n{"version":2,')


def test_a_benchmark_under_cbt_has_them_too(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """CBT wraps our monitors in a class of its own."""
    base = type("Monitoring", (), {"__init__": lambda self, config: None})
    monkeypatch.setitem(sys.modules, "settings", SimpleNamespace(cluster=pods.cluster, common={}))
    wrapped = delegate.monitor_class("resources", lambda: Resources, base)({"interval": 0.1, "nodes": "clients"})
    with lifecycle.watch(lambda: [wrapped], pods.cluster, {}, str(pods.folder), pods.archive):
        pods.wait_for_samples(1, BARE)


def test_without_a_folder_of_the_archive_samples_stay_in_the_pod(pods: Pods) -> None:
    """CBT's own benchmarks fetch them, and tell nobody where they go."""
    monitor, folder = pods.monitor(), pods.folder / "monitors-1-1"
    monitor.start(str(folder))
    try:
        wait_for(lambda: lines(folder / "resources" / f"{BARE}.jsonl"), "samples in the pod", LIMIT)
    finally:
        monitor.stop(str(folder))


def test_a_node_that_does_not_read_the_program_holds_up_no_other_node(tmp_path: Path) -> None:
    """As a kubectl that waits for its API server. The program is longer than a pipe holds."""
    program, output, fifo = "#" * 200_000, tmp_path / "node2.jsonl", tmp_path / "fifo"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDWR)  # waits for no reader
    files = [str(output), str(tmp_path / "output.txt")]
    nodes = {
        "node1": {"command": ["sh", "-c", 'read line <"$0"', str(fifo)], "lost": []},
        "node2": {"command": ["sh", "-c", f"head -c {len(program)} | wc -c; cat"], "lost": [], "files": files},
    }
    words = [sys.executable, "-IS", agent_connections.__file__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            wanted = {"name": "resources", "output": "output.txt", "program": program, "nodes": nodes}
            process.stdin.write(f"{json.dumps(wanted)}\n")
            process.stdin.flush()
            wait_for(lambda: output.exists() and output.read_text() == f"{len(program)}\n", "node2", 20.0)
            process.stdin.close()
        except BaseException:
            process.kill()
            raise
        finally:
            os.write(end, b"\n")
            os.close(end)
        assert json.loads(process.stdout.read())["lost"] == {"node1": 0, "node2": 0}


def warnings_of(text: str) -> List[str]:
    return [line for line in text.splitlines() if "WARNING" in line]


def test_a_file_that_takes_no_more_is_named_at_once_and_at_the_end(
    pods: Pods, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As on a disk without room: the agents and the other files go on."""
    pods.file(BARE).mkdir(parents=True)
    monitor, said = pods.monitor(), []
    monitor.archive_folder = pods.archive
    monitor.start(str(pods.folder / "monitors-1-1"))
    try:
        wait_for(lambda: said.append(capfd.readouterr().err) or "dropped" in "".join(said), "the warning")
        pods.wait_for_samples(1, WORKER)
    finally:
        monitor.stop(str(pods.folder / "monitors-1-1"))
    (warning,) = warnings_of("".join(said))
    assert warning.endswith(f"{pods.file(BARE)}: Is a directory: what comes from the node is dropped")
    assert f" bytes from {BARE} did not fit into the archive: samples are missing" in caplog.text
    assert json.loads(pods.file(WORKER).read_text().splitlines()[0])["version"] == 2
