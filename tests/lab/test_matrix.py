"""Every release, with every engine, in the quick start and in a failure, with all monitors at once.

`./run test all` prints what docs/TESTED.md has of it at its end; this file alone, in about half an hour:

    CBT_PLUGINS_LONG=1 CBT_LAB_ROOTS=DIR:DIR python -m pytest tests/lab/test_matrix.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import yaml
from cluster_log import assert_as_logged
from cluster_state import clean, facts, moving
from cycles import Cycle
from running_lab import PROJECT, RunningLab
from test_osdfailure import failure
from waiting import wait_for

from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples

pytestmark = [pytest.mark.lab, pytest.mark.long]

MONITORS: Dict[str, Any] = {
    "resources": {},
    "recovery": {},
    "perf_counters": {"interval": 2},
    "backlog": {"interval": 10},
    "collectl": {"args": "-sCD -i 1 -P -oz -F0 -f {collectl_dir}"},
}


def quick_start(engine: str) -> Dict[str, Any]:
    """The file that everybody begins with, a few seconds for each phase."""
    section = yaml.safe_load((PROJECT / "benchmark_configs" / "quickstart.yaml").read_text())["benchmarks"]["rgwtest"]
    short = {key: {"duration": "8s"} for key in ("fill", "measure", "age")}
    return {"rgwtest": {**section, **short, "warp_mixed": "8s", "engine": engine, "keep_data": False}}


def one_node_fails(engine: str) -> Dict[str, Any]:
    return {"osdfailure": failure(engine=engine, phase={"duration": "12s"})}


@pytest.mark.parametrize("cycle_of", [quick_start, one_node_fails], ids=["quick start", "osdfailure"])
@pytest.mark.parametrize("engine", ["warp", "cbt-load"])
def test_cell(
    of_release: RunningLab,
    engine: str,
    cycle_of: Callable[[str], Dict[str, Any]],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    lab = of_release
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    before, begun = facts(lab), time.monotonic()
    cycle = Cycle(lab, tmp_path, MONITORS, **cycle_of(engine))
    done = cycle.run()
    assert (cycle.folder / "complete").exists(), done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before
    phases, summary = cycle.phases(), cycle.summary()
    requests, samples = 0, read_samples(files_of(cycle.folder))
    assert samples.via == "librados" and not samples.fallbacks
    for name, phase in phases.items():
        assert phase["status"] == "ok", (name, phase["warnings"])
        assert all(count["ok"] for count in phase["accounting"]), (name, phase["accounting"])
        if phase["jobs"]:
            assert samples.between(phase["window"]["start"], phase["window"]["end"]), name
            requests += sum(job["rows_total"] for job in phase["jobs"])
    assert requests > 100
    for monitor in ("collectl", "resources"):
        for node in ("node1", "rgw1", "client1"):
            files = cycle.folder.glob(f"monitors/*/{monitor}.{node}/*")
            assert any(path.stat().st_size for path in files), (monitor, node)
    inside = summary["perf_counters"]["phases"]
    assert all(inside[name]["lines"] and inside[name]["backlog"]["gc"] for name, its in phases.items() if its["jobs"])
    watched = summary["resources"]["phases"]
    assert all(name in watched for name, phase in phases.items() if phase["jobs"]), list(watched)
    if cycle_of is one_node_fails:
        made = summary["failure"]["milestones"]
        assert [(e["kind"], e["outcome"]) for e in made["episodes"]][1:] == [("return", "recovered")], made
        events = [json.loads(line) for line in (cycle.folder / "events.jsonl").read_text().splitlines()]
        back = next(e["t"] for e in events if e["event"] == "fault-undo-begin" and e["label"] == "recovery")
        assert assert_as_logged(lab, made, (6, 7), since=made["start"], until=back) >= 5
    assert (cycle.folder / "report.html").exists()
    codes = sorted({w["code"] for w in summary["warnings"]})
    record_property("tested", [engine, *cycle_of(engine), f"{requests:,}", " ".join(codes)])
    record_property("seconds", round(time.monotonic() - begun))
    record_property("ceph", " ".join(ceph_version(cycle)))


def ceph_version(cycle: Cycle) -> List[str]:
    named = json.loads((cycle.folder / "manifest.json").read_text())["ceph"]["overall"]
    return [name.split()[2] for name in named]
