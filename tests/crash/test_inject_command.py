"""`cbt-tools inject` beside a load that is over when its standard input ends, on a stand-in cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
import yaml
from scenario import CLUSTER
from standin_cluster import StandIn

MUCH_LATER = {"at": "1h", "fault": {"label": "late", "kind": "stop", "nodes": ["node2"]}}


@pytest.mark.parametrize(
    ("events", "unmade"), [([MUCH_LATER], ["late"]), ([{"at": "1h", "mark": "only a word"}], []), ([], [])]
)
def test_a_load_that_is_over_before_its_faults_had_not_what_it_was_to_have(
    events: List[object], unmade: List[str], tmp_path: Path
) -> None:
    world = StandIn(tmp_path / "w")
    done = inject(world, tmp_path, [{"at": "0s", "mark": "begin"}, *events])
    assert done.returncode == (1 if unmade else 0), done.stderr
    assert ("stopped before these faults: late" in done.stderr) == bool(unmade)
    ended = json.loads((world.archive / "events.jsonl").read_text().splitlines()[-1])
    assert ended["event"] == "ended" and bool(ended["why"]) == bool(unmade)
    assert world.settle() + world.changes() == []


def test_a_rolling_fault_goes_over_the_osd_nodes_of_the_cluster_file(tmp_path: Path) -> None:
    world = StandIn(tmp_path / "w")
    rolling = {"at": "0s", "lasts": "9s", "rolling": {"over": "osd_nodes"}, "fault": {"label": "f", "kind": "stop"}}
    done = inject(world, tmp_path, [rolling], "--dry-run")
    assert done.returncode == 0, done.stderr
    faults = [line for line in done.stdout.splitlines() if line.startswith("f-")]
    assert faults == [f"f-{number}: stop {node}" for number, node in enumerate(CLUSTER["osds"], 1)]


def inject(
    world: StandIn, folder: Path, events: List[object], *options: str
) -> subprocess.CompletedProcess[str]:
    file, cluster = folder / "faults.yaml", folder / "cluster.yaml"
    file.write_text(yaml.safe_dump({"settings": {"flags": ["noout"]}, "events": events}))
    cluster.write_text(yaml.safe_dump({"cluster": CLUSTER}))
    words = [*options, "--tied", "--cluster", str(cluster), "--archive", str(world.archive)]
    return world.run([sys.executable, "-m", "cbt_plugins.tools", "inject", str(file), *words])
