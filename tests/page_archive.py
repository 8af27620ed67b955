"""An archive whose page has everything: both engines, a failure, resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from archive_builder import T0, cbt_load, job, phase, run, small, steady


def both_engines(tmp_path: Path) -> Path:
    """A run with what cbt-load adds: an open loop, beats, two sizes, a verify phase, warp on the same mix."""
    directory = run(tmp_path, phases=["new", "open", "warp", "verify"])
    rows = [*steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096)]
    rows += steady("PUT", workers=2, seconds=14, latency=0.02, begin=-2, size=70_000)
    rows += steady("GET", workers=1, seconds=14, latency=0.02, begin=-2, size=70_000)
    asked = {"duration": 10.0, "mix": {"GET": 71.4, "PUT": 28.6}}
    one = cbt_load("h", rows, workers=5)
    path = phase(directory, 1, "new", [one], engine="cbt-load", asked=asked, as_aggregates=True)
    beat = {"node": "client1", "jobs": {"h": {"ops": 1, "state": "running", "in_flight": 5, "oldest": 0.25}}}
    (path / "heartbeat.jsonl").write_text("".join(json.dumps({"t": T0 + i, **beat}) + "\n" for i in range(10)))
    count = len(rows)
    end = {"issued": {"GET": count}, "began": T0 - 2.0, "ended": T0 + 12.0}
    two = cbt_load("o", rows, rate_limit=count / 14, end=end)
    more = {**asked, "rate": count / 14, "arrivals": "even"}
    phase(directory, 2, "open", [two], engine="cbt-load", asked=more, as_aggregates=True, role="none")
    phase(directory, 3, "warp", [job("w", "MIXED", rows, workers=5)], kind="warp", asked=asked, role="none")
    three = cbt_load("v", steady("GET", workers=4, seconds=9, latency=0.01, size=4096))
    about: Dict[str, Any] = {"kind": "verify", "role": "none", "engine": "cbt-load", "asked": {"duration": None}}
    phase(directory, 4, "verify", [three], window=(0.01, 9.0), as_aggregates=True, **about)
    return directory


def without_windows(tmp_path: Path) -> Path:
    """A run whose first and last phase failed before their windows began, around the two of `small`."""
    directory = small(tmp_path)
    for path in sorted((directory / "phases").iterdir(), reverse=True):
        index, _, name = path.name.partition("-")
        facts = json.loads((path / "phase.json").read_text())
        (path / "phase.json").write_text(json.dumps({**facts, "index": int(index) + 1}))
        path.rename(path.with_name(f"{int(index) + 1:02d}-{name}"))
    for index, name in ((1, "failed-first"), (4, "failed-last")):
        path = phase(directory, index, name, [], status="failed", role="none") / "phase.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "window": None}))
        (path.parent / "status.jsonl").unlink()
    return directory


def add_failure(summary: Dict[str, Any], name: str) -> None:
    """Something was broken in this phase: it is degraded from its first to its third second."""
    line = {"obj_per_s": 12.0, "obj_per_s_percent": 54.5, "mib_per_s": 1.0, "mib_per_s_percent": 54.5, "p50_ms": 3.0}
    line.update(p99_ms=99.0, p999_ms=None, p99_ratio=3.3, longest_gap=2.5, silent_seconds=2, errors=7)
    line.update(bad_seconds=2, waited=1234)
    episode: Dict[str, Any] = {"kind": "failure", "labels": ["node-a"], "outcome": "recovered"}
    episode.update(recovery=None, aborted=None)
    clean = {"name": "clean", "title": "all PGs active+clean", "seconds": 42.5, "reason": None, "value": None}
    down = {"name": "first-down", "title": "first OSD down", "seconds": 0.25, "reason": None, "value": None}
    episode["milestones"] = [down, clean]
    tail: List[float] = [1.5 ** k for k in range(20)]
    of_get = {"state": "degraded", "seconds": 2.0, "total": line, "ops": {"GET": {**line, "tail_ms": tail}}}
    calm = {**of_get, "state": "no failure"}
    losses: Dict[str, Any] = {"name": "node-a failure", "seconds": 2.0, "total": line, "ops": {"GET": line}}
    losses.update(gateways=[{"endpoint": "http://rgw2:7480", "longest_gap": 2.0}], unstarted=5)
    losses["back"] = {"seconds": None, "reason": "not in 2 s"}
    impact: Dict[str, Any] = {"baseline": {"phase": "calm"}, "phases": [{"phase": name, "states": [calm, of_get]}]}
    impact["objective"] = {"total": {"p99_ms": 90.1, "success_rate": 0.999, "given": False}}
    summary["failure"] = {
        "milestones": {"episodes": [episode]},
        "impact": {**impact, "episodes": [losses]},
        "timelines": {
            name: {
                "start": next(p["series"]["start"] for p in summary["phases"] if p["name"] == name),
                "step": 1,
                "windows": [{"state": "degraded", "labels": ["node-a"], "from": 1.0, "to": 3.0}],
                "bad": [[1, 3]],
                "marks": [{"at": 1.0, "title": "first OSD down", "kind": "failure", "labels": ["node-a"]}],
                "cluster": {"degraded": [0, 9, 4], "misplaced": [0, 0, 1], "objects_per_s": [0.0, 3.0, 2.0]},
            }
        },
    }


def add_resources(summary: Dict[str, Any], name: str) -> None:
    """The nodes were watched in this phase."""
    one = {"cores": 3.25, "peak": 4.5, "rss_mib": 2048.0, "daemons": 8, "read_mib_s": 10.0, "write_mib_s": 20.0}
    start = next(p["series"]["start"] for p in summary["phases"] if p["name"] == name)
    cores: Dict[str, List[Any]] = {"osd": [3.0, 3.5] * 5, "rgw": [1.0, None] * 5}
    io = {"read_mib_s": 1.0, "write_mib_s": 2.0}
    daemon = {"node": "osd1", "class": "osd", "id": "3", "pid": 77, "cores": 0.5, "peak": 0.75, "rss_mib": 256.0, **io}
    device = {"node": "osd1", "device": "nvme0n1", "util": 0.875, "queue": 3.5, "osd": 3, **io}
    port = {"node": "osd1", "name": "eth0", "rx_mib_s": 5.0, "tx_mib_s": 6.0, "speed_mbit": 25000, "util": 0.5}
    node = {"node": "osd1", "cpus": 64, "busy": 0.25, "io_wait": 0.01, "watched": 1.0, "load": 1.5}
    node.update(available_mib=2048.0, swapped_mib=0.0)
    its: Dict[str, Any] = {"seconds": 10.0, "classes": {"osd": one, "rgw": {**one, "cores": 1.5}}, "daemons": [daemon]}
    its.update(rgw_osd_ratio=0.4615, ops_per_core=63.16, cores_per_gb_s=7.125, devices=[device], interfaces=[port])
    its["nodes"] = [node]
    its["series"] = {"start": start, "step": 1, "cores": cores}
    its["bottleneck"] = {"what": "media", "evidence": ["nvme0n1 of osd1 was busy for 97 % of the time"]}
    summary["resources"] = {"nodes": [{"node": "osd1"}], "phases": {name: its}}
