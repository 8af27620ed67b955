"""`engine: hsbench` on the lab: a mesh of two clients and two RGWs, by the program that is on PATH."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest
from cluster_state import facts
from cycles import S3, Cycle, buckets_of, generators
from running_lab import RunningLab

pytestmark = pytest.mark.lab

ONCE = {"get": "r(1,N)"}
PHASES = [
    {"fill": {"duration": "4s"}, "name": "put", "role": "measure"},
    {"hybrid": {"duration": "1m", "mix": {"list": 100}}, "name": "list"},
    {"hybrid": {"duration": "3s", "mix": {"get": 100}, "keys": ONCE}, "name": "get"},
    {"delete": {}},
]


def need_hsbench(lab: RunningLab) -> None:
    """Skip, with the reason, where no hsbench is."""
    if lab.exec("node0", ["sh", "-c", "command -v hsbench"]).returncode:
        pytest.skip("no hsbench on the PATH of the lab's nodes: put github.com/markhpc/hsbench beside this Python")


def section(*phases: Dict[str, Any]) -> Dict[str, Any]:
    keys = {"engine": "hsbench", "drivers": 4, "workers": 4, "size": "4KiB", "buckets": 4, "across_buckets": True}
    return {"s3": {**S3, "host_select": "one"}, **keys, "cycle": {"phases": list(phases)}}


def test_the_modes_are_phases_whose_objects_are_accounted_for(lab: RunningLab, tmp_path: Path) -> None:
    need_hsbench(lab)
    before = facts(lab)
    cycle = Cycle(lab, tmp_path, warp=section(*PHASES))
    cycle.start()
    cycle.await_moment(lambda: cycle.running_rows("put"), "PUTs")
    secret = json.loads((lab.dir / "s3.json").read_text())["secret_key"]
    arguments = lab.exec("client1", ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).stdout
    assert " -m p " in arguments and "-bp cbtp-" in arguments and secret not in arguments
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
    phases, summary = cycle.phases(), cycle.summary()
    assert list(phases) == ["put", "list", "get", "delete"] and {its["status"] for its in phases.values()} == {"ok"}
    assert all(count["ok"] for its in phases.values() for count in its["accounting"])
    written = sum(count["after"] for count in phases["put"]["accounting"])
    assert written > 10 and not any(count["after"] for count in phases["delete"]["accounting"])
    assert {tuple(job["urls"]) for job in phases["put"]["jobs"]} == {(url,) for url in S3["urls"]}, "each its RGW"
    lines = {its["name"]: its for its in summary["phases"]}
    put, listed, deleted = lines["put"]["ops"]["PUT"], lines["list"]["ops"]["LIST"], lines["delete"]["ops"]["DELETE"]
    assert put["requests"] + put["outside"]["requests"] == written and put["latency_ms"]["mean"] > 0
    assert put["latency_ms"]["p99"] is None, "hsbench tells sums"
    assert listed["mib_per_s"] is None and deleted["mib_per_s"] is None and listed["requests"] >= 4 * 4
    assert deleted["requests"] == written
    assert "Hotsauce S3 Benchmark" in json.loads((cycle.folder / "manifest.json").read_text())["hsbench"]
    raw = json.loads(next(cycle.folder.glob("phases/01-put/state/*.json")).read_text())
    assert raw[-1]["IntervalName"] == "TOTAL", "as hsbench wrote it"
    assert buckets_of(cycle) == [] and generators(lab) == [] and cycle.left() == []
    assert facts(lab) == before
