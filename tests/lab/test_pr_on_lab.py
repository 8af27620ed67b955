"""`cbt-tools pr` on a real cluster that is restored before each cycle; the head's OSDs are slower. An hour or less:

    CBT_PLUGINS_LONG=1 ./run test tests/lab/test_pr_on_lab.py
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cycles import CLUSTER, S3
from running_lab import PROJECT, lab_tool, need_machine
from waiting import busy, wait_for

from cbt_plugins.pull_requests.leftovers import processes
from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

TOOLS = [sys.executable, "-m", "cbt_plugins.tools"]
DELAY = "osd_debug_inject_dispatch_delay"
RUN = {
    "s3": {**S3, "urls": ["http://rgw1:7480"]},
    "engine": "cbt-load",
    "size": "16KiB",
    "workers": 4,
    "cycle": {
        "phases": [
            {"fill": {"objects": 200}},
            {"hybrid": {"duration": "6s", "warmup": "1s", "mix": {"get": 60, "put": 40}}, "name": "measure"},
        ]
    },
}


def pull_request(folder: Path, lab: Path) -> Path:
    """Write a file whose head delays all messages of OSDs by 2 ms."""
    places = shlex.join(["--dir", str(lab), "--snapshots", str(folder / "snapshots")])
    bound = '--bind "$CBT_PLUGINS_CAMPAIGN"'
    tool = shlex.join([*TOOLS, "lab"])
    ceph = f"{tool} exec --dir {lab} node0 -- ceph config set osd {DELAY}"
    slow = f"{ceph}_duration 0.002 && {ceph}_probability 1.0"
    section = {
        "deploy": f"{tool} restore aged {places} {bound} && {{ [ $CBT_PLUGINS_REVISION = fast ] || {{ {slow}; }}; }}",
        "clean": f"{tool} down --dir {lab}",
        "through": f"{tool} exec --dir {lab} node0 --",
    }
    cluster = {**CLUSTER, "clients": ["client1"], "osds": ["node1", "node2"], "rgws": ["rgw1"]}
    path = folder / "pr.yaml"
    data = {"cluster": cluster, "monitoring_profiles": {"resources": {}}, "benchmarks": {"warp": RUN}, "pr": section}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def test_a_slower_head_is_a_regression_also_after_kill_9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_machine(1)
    lab, state = Lab(tmp_path / "lab", say=lambda _: None), tmp_path / "state"
    words = [*TOOLS, "pr", "fast", "slow", "--config", str(pull_request(tmp_path, lab.dir)), "-a", str(state)]
    # few blocks, so that they decide soon; a cycle takes a minute, and at a load of 30 on two cores five
    words += ["--within", f"{max(60.0, 20.0 * busy()):.0f}m"]
    try:
        lab.up(Topology(2, 1, 1, 1, bind=(str(tmp_path),)), detach=False)
        done = lab_tool("snapshot", "--dir", str(lab.dir), "--snapshots", str(tmp_path / "snapshots"), "aged")
        assert done.returncode == 0, done.stderr
        killed = subprocess.Popen(words, cwd=PROJECT, stderr=subprocess.DEVNULL)
        first = state / "rehearsal" / "base" / "archive"
        wait_for(lambda: list(first.glob("results/*/*/journal.jsonl")), "the first cycle", 300.0)
        killed.kill()
        killed.wait()
        assert processes(state)
        words += ["--format", "md"]
        ended = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
        assert ended.returncode == 1, ended.stderr[-3000:]
        assert not lab.running and processes(state) == []
        answer = json.loads((state / "pr.json").read_text())
    finally:
        lab.down(wipe=True)
    assert ended.stdout == (state / "pr.md").read_text()
    assert answer["conclusion"] == "failure" and answer["campaign"]["blocks"] >= 4
    parts = {row["op"] for row in answer["cpu"]}
    assert parts > {"osd", "rgw"} and any(part.startswith("osd:") for part in parts)
    assert any(DELAY in line["key"] for line in answer["differences"]), answer["differences"]
