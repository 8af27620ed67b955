"""The resources monitor on the real cluster: each node's own daemons, restarts, a node that goes and comes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from cycles import CLUSTER, S3, Cycle
from running_lab import PROJECT, RunningLab
from waiting import end_of, wait_for

from cbt_plugins.journal import json_lines
from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.usage import Networks

pytestmark = pytest.mark.lab

# as a run does it, for as long as standard input is open
WATCH = """\
import json, sys
from pathlib import Path
from cbt_plugins.monitors.lifecycle import watch
from cbt_plugins.monitors.resources import Resources
cluster, run_dir, local = json.loads(sys.argv[1])
with watch(lambda: [Resources({"interval": 0.5}, cluster, {})], cluster, {}, run_dir, Path(local)):
    sys.stdin.read()
"""
RUN = "/var/tmp/watched"  # each node has its own
LEFT = r"(resources|perf_counters|backlog)_agent[.]py|monitors/agent_connections[.]py"
NO_LOAD: Dict[str, Any] = {"made": False, "per_s": 0.0, "bytes_per_s": 0.0, "ops": {}}
DAEMONS = {
    "node0": {"mon node0", "mgr node0"},
    **{f"node{n}": {f"osd {2 * n - 2}", f"osd {2 * n - 1}"} for n in range(1, 5)},
    "rgw1": {"rgw rgw1"},
    "rgw2": {"rgw rgw2"},
    "client1": set(),
    "client2": set(),
}


class Watched:
    """A monitor that runs in node0."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        about = json.dumps([CLUSTER, RUN, str(folder / "local")])
        line = [sys.executable, "-m", "cbt_plugins.tools", "lab", "exec", "--dir", str(lab.dir), "node0", "--"]
        line += ["sh", "-c", 'cd "$0" && exec "$@"', str(PROJECT), sys.executable, "-c", WATCH, about]
        self.begin, self.end = time.time(), 0.0
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, cwd=PROJECT)

    def close(self) -> Dict[str, Any]:
        """The numbers from `begin` until now."""
        self.end = time.time()
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert end_of(self.process) == 0
        return self.window(self.begin, self.end, NO_LOAD)

    def window(self, begin: float, end: float, load: Dict[str, Any]) -> Dict[str, Any]:
        nodes = read_nodes(self.folder / "local", {})
        return resources.of_window(nodes, (begin, end), load, {}, Networks())

    def windows(self, seconds: float) -> Iterator[Dict[str, Any]]:
        """The numbers of windows of `seconds` under load, each a second after the one before."""
        for begin in range(int(self.begin) + 1, int(self.end - seconds)):
            yield self.window(begin, begin + seconds, {**NO_LOAD, "made": True})


def disk_of_osds(window: Dict[str, Any]) -> Dict[str, Any]:
    (disk,) = [disk for disk in window["devices"] if disk["osds"]]
    return disk


@contextlib.contextmanager
def watched(lab: RunningLab, folder: Path) -> Iterator[Watched]:
    its = Watched(lab, folder)
    try:
        yield its
    finally:
        if its.process.poll() is None:
            its.close()
        for node in lab.nodes:
            assert not lab.exec(node, ["pgrep", "-af", LEFT]).stdout


def samples(lab: RunningLab, node: str) -> List[str]:
    return lab.exec(node, ["sh", "-c", f"cat {RUN}/*/resources/{node}.jsonl"]).stdout.splitlines()


@pytest.mark.long  # test_resources_monitor has restarts
def test_daemons_of_each_node_and_their_restarts(lab: RunningLab, tmp_path: Path) -> None:
    with watched(lab, tmp_path) as its:
        wait_for(lambda: len(samples(lab, "node4")) > 4, "samples")
        assert lab.tool("stop-osds", "--kill", "node4").returncode == 0
        assert lab.tool("start-osds", "node4").returncode == 0
        started = time.time()
        wait_for(lambda: json.loads(samples(lab, "node4")[-1])["t"] > started + 2, "samples of the new ones")
        made = its.close()
    seen: Dict[str, set[str]] = {node["node"]: set() for node in made["nodes"]}
    for line in made["daemons"]:
        seen[line["node"]].add(f"{line['class']} {line['id']}")
    assert seen == DAEMONS
    restarts = {f"{line['class']} {line['id']}": line["restarts"] for line in made["daemons"]}
    assert {name for name, n in restarts.items() if n} == {"osd 6", "osd 7"}
    assert len({node["machine"] for node in made["nodes"]}) == 1
    machine = made["nodes"][0]
    assert 0 < sum(line["cores"] for line in made["daemons"]) <= machine["busy"] * machine["cpus"] * 1.05
    (disk,) = [disk for disk in made["devices"] if disk["osds"]]
    assert sorted(disk["osds"]["block"]) == [str(n) for n in range(8)]


def test_a_node_that_goes_and_comes_is_watched_again(lab: RunningLab, tmp_path: Path) -> None:
    with watched(lab, tmp_path) as its:
        wait_for(lambda: len(samples(lab, "node4")) > 4, "samples")
        assert lab.tool("crash", "node4").returncode == 0
        assert lab.tool("boot", "node4").returncode == 0
        booted = time.time()
        wait_for(lambda: [line for line in samples(lab, "node4") if json.loads(line)["t"] > booted + 2], "new samples")
        made = its.close()
    assert json_lines(tmp_path / "local" / "resources.node4" / "node4.jsonl")[-1]["end"] == "told"
    assert {line["id"] for line in made["daemons"] if line["node"] == "node4"} == {"6", "7"}


@pytest.mark.long
def test_a_busy_disk_of_osds_is_the_bottleneck(lab: RunningLab, tmp_path: Path) -> None:
    # under another name: fio is a load generator, and would be that
    copy = "cp /usr/bin/fio /var/tmp/diskload && mkdir -p /var/lib/ceph/x && exec /var/tmp/diskload --name=x"
    how = "--directory=/var/lib/ceph/x --numjobs=4 --group_reporting --size=256M --rw=randwrite --bs=1m --direct=1"
    how += " --ioengine=libaio --iodepth=32 --time_based --runtime=15"
    with watched(lab, tmp_path) as its:
        wait_for(lambda: len(samples(lab, "node1")) > 2, "samples")
        its.begin = time.time()
        try:
            assert lab.exec("node1", ["sh", "-c", f"{copy} {how}"]).returncode == 0
        finally:
            lab.exec("node1", ["rm", "-rf", "/var/lib/ceph/x", "/var/tmp/diskload"])
        its.close()
    # when fio's own writes begin and end depends on the machine: the busiest 4 s are within them
    made = max(its.windows(4.0), key=lambda window: disk_of_osds(window)["util"])
    disk = disk_of_osds(made)
    assert disk["util"] > 0.9 and disk["write_mib_s"] > 10
    assert made["bottleneck"]["what"] == "media"
    assert f"{disk['device']} of osd.0" in made["bottleneck"]["evidence"][0]


def test_a_cycle_has_its_cores_by_class(lab: RunningLab, tmp_path: Path) -> None:
    hybrid = {"duration": "6s", "mix": {"get": 60, "put": 40}, "workers": {"get": 2, "put": 2}}
    phases = [{"fill": {"objects": 60}}, {"hybrid": hybrid}]
    profiles = {"resources": {}, "perf_counters": {"interval": 1}, "backlog": {"interval": 5}}
    cycle = Cycle(lab, tmp_path, profiles, warp={"s3": S3, "workers": 4, "cycle": {"phases": phases}})
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    summary = cycle.summary()
    made = summary["resources"]
    assert {node["node"] for node in made["nodes"]} == set(DAEMONS)
    line = made["phases"]["hybrid"]
    assert all(line["classes"][its]["cores"] > 0 for its in ("osd", "rgw", "generator"))
    assert [line["classes"][its]["daemons"] for its in ("osd", "rgw", "mon", "mgr")] == [8, 2, 1, 1]
    assert line["rgw_osd_ratio"] > 0 and line["ops_per_core"] > 0
    assert all(node["watched"] > 0.95 for node in line["nodes"])
    assert all(node["monitor_cores"] < 0.05 for node in line["nodes"])
    assert all(net["side"] and net["speed_mbit"] for net in line["interfaces"] if net["node"] != "node0")
    assert sum(net["tx_mib_s"] for net in line["interfaces"]) > 0
    assert line["bottleneck"]["evidence"]
    times = {(its["class"], its["group"]): its["ms_per_op"] for its in line["threads"]["lines"]}
    assert all(times["osd", group] > 0 for group in ("messenger", "op-queue", "rocksdb"))
    assert times["rgw", "frontend"] > 0.3 * times["rgw", None]
    assert all(times.get((its, "ended"), 0.0) < 0.2 * times[its, None] for its in ("osd", "rgw"))
    inside = summary["perf_counters"]["phases"]["hybrid"]
    numbers = {its["name"]: its for its in inside["lines"]}
    assert numbers["op_w_latency"]["value"] > 0 and numbers["requests"]["value"] > 0
    assert all(0 < numbers["allocator_score"][at] < 1 for at in ("start", "end"))
    assert inside["backlog"]["gc"] is not None and inside["backlog"]["reshard"] == []
    for node in lab.nodes:
        assert not lab.exec(node, ["pgrep", "-af", LEFT]).stdout
