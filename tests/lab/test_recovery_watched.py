"""A node's OSDs stop and come back: the monitor's milestones beside the cluster's own log."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from cluster_log import assert_as_logged
from cycles import CLUSTER, IN_HOME
from running_lab import RunningLab
from second_sampler import second_sampler
from waiting import end_of, wait_for

from cbt_plugins.results.recovery.cluster_samples import FILE, Samples, read_samples
from cbt_plugins.results.recovery.milestones import milestones

pytestmark = pytest.mark.lab

# as a run does it, for as long as standard input is open
WATCH = """\
import json, sys
from pathlib import Path
from cbt_plugins.monitors.lifecycle import watch
from cbt_plugins.monitors.recovery import Recovery
cluster, profile, run_dir, local = json.loads(sys.argv[1])
with watch(lambda: [Recovery(profile, cluster, {})], cluster, {}, run_dir, Path(local)):
    sys.stdin.read()
"""
OUT = "mon_osd_down_out_interval"
WRITE = ["rados", "bench", "-p", "rbd", "6", "write", "-b", "65536", "-t", "8", "--no-cleanup"]


class Watched:
    """A monitor that runs in node0, and its samples so far."""

    def __init__(self, lab: RunningLab, folder: Path, **profile: Any) -> None:
        self.lab, self.folder = lab, folder
        about = json.dumps([CLUSTER, profile, str(folder / "run"), str(folder / "local")])
        line = lab.lab.enter("node0", ["sh", "-c", IN_HOME, str(lab.home), lab.python, "-c", WATCH, about])
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, env=lab.lab.environment())

    def samples(self) -> Samples:
        return read_samples(self.folder.glob(f"run/*/recovery/{FILE}"))

    def close(self) -> Samples:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert end_of(self.process) == 0
        return read_samples([self.folder / "local" / "recovery.node0" / FILE])


@contextlib.contextmanager
def watched(lab: RunningLab, folder: Path, **profile: Any) -> Iterator[Watched]:
    its = Watched(lab, folder, **profile)
    try:
        wait_for(lambda: its.samples().samples, "first sample")
        yield its
    finally:
        if its.process.poll() is None:
            its.close()
        left = lab.exec("node0", ["pgrep", "-af", "state_sampler_agent|ceph -c .* -f json"]).stdout
        assert not left


@pytest.fixture
def filled(lab: RunningLab) -> Iterator[None]:
    """Some objects to recover, and OSDs that are marked out soon."""
    assert lab.exec("client1", WRITE).returncode == 0
    before = lab.exec("node0", ["ceph", "config", "get", "mon", OUT]).stdout.strip()
    lab.exec("node0", ["ceph", "config", "set", "mon", OUT, "5"])
    yield
    lab.exec("node0", ["ceph", "config", "set", "mon", OUT, before])
    lab.tool("start-osds", "node4")
    lab.exec("client1", ["rados", "-p", "rbd", "cleanup"])


def test_a_node_fails_and_returns(lab: RunningLab, filled: None, tmp_path: Path) -> None:
    events: List[Dict[str, Any]] = []

    def note(name: str) -> None:
        events.append({"t": time.time(), "event": f"fault-{name}", "label": "node4", "kind": "stop", "osds": [6, 7]})

    with second_sampler(lab, tmp_path / "second") as second, watched(lab, tmp_path, interval=0.25) as its:
        wait_for(lambda: its.samples().samples[-1].clean, "all PGs clean")

        def recovered() -> bool:
            return bool(milestones(its.samples(), events)["episodes"][-1]["outcome"] == "recovered")

        note("inject-begin")
        assert lab.tool("stop-osds", "node4").returncode == 0
        note("injected")
        wait_for(recovered, "recovery without node4", 180)
        assert lab.exec("client1", WRITE).returncode == 0  # what node4 will not have
        note("undo-begin")
        assert lab.tool("start-osds", "node4").returncode == 0
        note("undone")
        wait_for(recovered, "recovery with node4", 180)
        samples, seen = its.close(), second.glimpses()
    assert samples.via == "librados" and not samples.gaps
    made = milestones(samples, events)
    failure, back = made["episodes"]
    at = {m["name"]: m["t"] for m in failure["milestones"]}
    # what a replica lacks at the failure is recovered before "out"
    for order in (["first-down", "all-down", "out", "clean"], ["first-down", "recovery-starts", "clean"]):
        assert [at[name] for name in order] == sorted(at[name] for name in order)
    assert at["all-down"] < at["degraded-peak"] < at["clean"] and at["no-object-degraded"] <= at["clean"]
    returned = {m["name"]: m["t"] for m in back["milestones"]}
    assert returned["first-up"] <= returned["all-up"] <= returned["clean"]
    assert failure["recovery"]["copies"] > 0 and failure["recovery"]["objects"] > 0

    times = [sample.t for sample in samples.samples]
    assert_as_logged(lab, made, (6, 7), since=events[0]["t"] - 0.5, samples=times, seen=seen)
    assert at["clean"] is not None and returned["clean"] is not None


def test_a_busy_monitor_is_a_gap_and_no_end(lab: RunningLab, tmp_path: Path) -> None:
    pause = "kill -STOP $(cat /run/ceph/mon.node0.pid); sleep 7; kill -CONT $(cat /run/ceph/mon.node0.pid)"
    with watched(lab, tmp_path, interval=0.5) as its:
        assert lab.exec("node0", ["sh", "-c", pause]).returncode == 0
        after = time.time()
        wait_for(lambda: its.samples().samples[-1].t > after + 2, "samples after the pause")
        samples = its.close()
    (gap,) = (gap for gap in samples.gaps if gap["seconds"] > 6)
    assert "timed out" in gap["why"] and abs(gap["t"] - after) < 3


def test_through_the_ceph_command(lab: RunningLab, tmp_path: Path) -> None:
    with watched(lab, tmp_path, librados=False) as its:
        wait_for(lambda: len(its.samples().samples) > 3, "samples")
        samples = its.close()
    assert samples.via == "ceph" and samples.samples[-1].osds_up == 8
    assert samples.samples[-1].state["recovered"] is not None
