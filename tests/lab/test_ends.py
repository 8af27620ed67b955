"""What a run leaves and says that comes to no good end, and what it leaves of a good one."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from cycles import S3, Cycle
from running_lab import RunningLab

pytestmark = pytest.mark.lab


def warp(*phases: Dict[str, Any], **keys: Any) -> Dict[str, Any]:
    return {"s3": S3, "workers": 2, "size": "4KiB", "cycle": {"phases": list(phases)}, **keys}


def left_on(lab: RunningLab) -> List[str]:
    """What is in tmp_dir of the nodes of a run."""
    found = {node: lab.exec(node, ["find", "/var/tmp/cbt", "-mindepth", "1"]).stdout for node in lab.nodes}
    return [f"{node}: {path}" for node, text in found.items() for path in text.splitlines()]


@pytest.fixture
def before(lab: RunningLab) -> List[str]:
    """What runs of other tests have left on the nodes: those that were killed, and not resumed."""
    return left_on(lab)


@pytest.mark.long  # test_faults_lock refuses runs, the tests below end one
def test_a_run_that_is_refused_leaves_the_other_alone(lab: RunningLab, tmp_path: Path, before: List[str]) -> None:
    """Both have one file, so CBT gives both runs one id."""
    section = warp({"fill": {"duration": "2m"}})
    (tmp_path / "other").mkdir()
    first, second = (Cycle(lab, folder, warp=section) for folder in (tmp_path, tmp_path / "other"))
    first.start()
    first.await_moment(lambda: first.running_rows("fill") > 20, "the first run's load")
    there = [path for path in left_on(lab) if "/bin/" in path and path not in before]
    assert len(there) == 4, there  # two programs on two clients
    refused = second.run()
    assert refused.returncode == 1
    assert refused.stderr.count("has been using this cluster") == 1, refused.stderr
    assert "Traceback" not in refused.stderr
    assert first.folder.name == second.folder.name
    assert [path for path in there if path not in left_on(lab)] == []
    first.send(signal.SIGINT)
    assert first.ended() == 130, first.log.read_text()[-3000:]
    assert "the report failed" not in first.log.read_text()
    assert (first.folder / "report.html").exists()
    assert set(left_on(lab)) <= set(before)


def test_errors_of_the_preflight_are_one_line_each(lab: RunningLab, tmp_path: Path, before: List[str]) -> None:
    cycle = Cycle(lab, tmp_path, warp=warp({"fill": {"objects": 20}}, s3={**S3, "urls": ["http://rgw1:9"]}))
    done = cycle.run()
    assert done.returncode == 1
    said = done.stderr.split("Error: ")[-1].splitlines()
    assert said[1].startswith("failed: warp, iteration 0")
    assert [line.split(":")[0] for line in said[2:]] == ["  client1", "  client2"], done.stderr
    assert "Traceback" not in done.stderr and "report" not in done.stderr
    events = [json.loads(line) for line in (cycle.folder / "events.jsonl").read_text().splitlines()]
    (failed,) = [event for event in events if event["event"] == "run-failed"]
    assert "PreflightError" in failed["traceback"]
    assert set(left_on(lab)) <= set(before)


@pytest.fixture
def small_disk(lab: RunningLab, tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB, in node0 only."""
    disk = tmp_path / "disk"
    disk.mkdir()
    assert lab.exec("node0", ["mount", "-t", "tmpfs", "-o", "size=8m", "small", str(disk)]).returncode == 0
    yield disk
    with contextlib.suppress(OSError):
        lab.exec("node0", ["umount", "-l", str(disk)])


@pytest.mark.long
def test_a_full_disk_ends_a_run_that_then_resumes(lab: RunningLab, tmp_path: Path, small_disk: Path) -> None:
    settings = {"flags": ["noout"]}  # to be undone, whatever the disk does
    section = warp({"fill": {"objects": 50}}, {"hybrid": {"duration": "6s", "mix": {"get": 100}}}, settings=settings)
    cycle = Cycle(lab, tmp_path, warp=section)
    cycle.archive = small_disk / "archive"
    running = f"ls {cycle.archive}/results/*/id-*/phases/*-hybrid.running/heartbeat.jsonl"
    cycle.start()
    cycle.await_moment(lambda: lab.exec("node0", ["sh", "-c", running]).returncode == 0, "the second phase")
    assert "noout" in lab.exec("node0", ["ceph", "osd", "dump"]).stdout
    lab.exec("node0", ["dd", "if=/dev/zero", f"of={small_disk}/filler", "bs=4k"])
    assert cycle.ended() == 1
    log = cycle.log.read_text()
    assert f"no space is left on the disk at {small_disk}: free some, then run the same command again" in log, log
    assert "internal error" not in log
    assert "noout" not in lab.exec("node0", ["ceph", "osd", "dump"]).stdout
    lab.exec("node0", ["rm", f"{small_disk}/filler"])
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert lab.exec("node0", ["sh", "-c", f"ls {cycle.archive}/results/*/id-*/complete"]).returncode == 0
    assert set(left_on(lab)) <= set(before)


@pytest.fixture
def unreached(lab: RunningLab) -> Iterator[List[str]]:
    """`ip` words for a route by which client1 reaches no head; it is gone afterwards."""
    route = ["blackhole", lab.lab.nodes["node0"].address]
    yield route
    lab.exec("client1", ["ip", "route", "del", *route])


def silence(cycle: Cycle, node: str) -> float:
    """Seconds between the last words of a node and of any."""
    (file,) = cycle.folder.glob("phases/*.running/heartbeat.jsonl")
    said = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    return float(said[-1]["t"] - max(line["t"] for line in said if line["node"] == node))


@pytest.mark.long
def test_a_phase_outlasts_a_client_that_is_away(lab: RunningLab, tmp_path: Path, unreached: List[str]) -> None:
    cycle = Cycle(lab, tmp_path, warp=warp({"fill": {"objects": 100}}, {"hybrid": {"duration": "2m"}}))
    file = yaml.safe_load(cycle.file.read_text())
    # a connection that others share has the patience of the one that made it
    cycle.file.write_text(yaml.safe_dump({**file, "common": {"pdsh_ssh_args": "-a -x -oControlPath=none -l%u %h"}}))
    cycle.start()
    cycle.await_moment(lambda: cycle.running_rows("hybrid") > 20, "the load")
    assert lab.exec("client1", ["ip", "route", "add", *unreached]).returncode == 0
    # other connections are given up after 60 s
    cycle.await_moment(lambda: silence(cycle, "client1") > 75.0, "a long silence")
    assert "no message from client1 for 30 s" in cycle.log.read_text()
    assert lab.exec("client1", ["ip", "route", "del", *unreached]).returncode == 0
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
    phase = cycle.phases()["hybrid"]
    assert phase["status"] == "ok"
    (said,) = [warning["text"] for warning in phase["warnings"] if warning["code"] == "client-silent"]
    assert said.startswith("client1 sent no message for ") and int(said.split()[5]) >= 70
