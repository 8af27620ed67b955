"""The same cycle through an unmodified cbt.py, with CBT's own collectl profile beside it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from cycles import S3, Cycle, buckets_of
from running_lab import RunningLab

from cbt_plugins.cbt import checkout

pytestmark = [pytest.mark.lab, pytest.mark.upstream]


def test_a_cycle_through_cbt(lab: RunningLab, tmp_path: Path) -> None:
    tree = checkout.find()
    if tree is None:
        pytest.skip(f"no CBT checkout: set CBT_HOME, or clone it into {checkout.cache_path()}")
    for module in ("lxml", "yaml"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"CBT itself needs {module}, which this Python lacks")
    if lab.exec("node0", ["test", "-e", str(tree / "cbt.py")]).returncode:
        pytest.skip(f"{tree} is not visible in the lab's nodes")
    cycle = Cycle(
        lab,
        tmp_path,
        {"collectl": {"args": "-sCD -i 1 -P -oz -F0 -f {collectl_dir}"}},
        warp={
            "s3": S3,
            "workers": [2, 4],
            "size": "4KiB",
            "cycle": {
                "phases": [
                    {"fill": {"objects": 60}},
                    {"hybrid": {"duration": "3s", "mix": {"get": 60, "put": 20, "stat": 10, "delete": 10}}},
                    {"warp": {"op": "mixed", "duration": "5s", "objects": 40}},
                ]
            },
        },
    )
    done = cycle.run(str(tree / "cbt.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    runs = sorted(cycle.archive.glob("results/00000000/id-*"))
    assert len(runs) == 2
    for run in runs:
        assert (run / "complete").exists() and (run / "benchmark_config.yaml").exists()
        assert json.loads((run / "manifest.json").read_text())["cbt"]["commit"]
        phases = sorted(p.name for p in run.glob("phases/*"))
        assert phases == ["01-fill", "02-calibrate", "03-hybrid", "04-warp"]
        assert list(run.glob("monitors/*/collectl.node1/*"))
        mixed = json.loads((run / "phases/04-warp/phase.json").read_text())
        assert all(b["ok"] for b in mixed["accounting"]) and {j["op"] for j in mixed["jobs"]} == {"MIXED"}
    assert (cycle.archive / "results" / "cbt_config.yaml").exists()
    secret = json.loads((lab.dir / "s3.json").read_text())["secret_key"].encode()
    assert not [p for p in cycle.archive.rglob("*") if p.is_file() and secret in p.read_bytes()]
    assert secret not in cycle.log.read_bytes()
    assert buckets_of(cycle) == []
    again = cycle.run(str(tree / "cbt.py"))
    assert again.returncode == 0 and len(list(cycle.archive.glob("results/*/id-*"))) == 2
