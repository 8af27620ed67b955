"""The same cycle through an unmodified cbt.py, with CBT's own collectl profile beside it, on nodes with a domain."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Iterator

import pytest
import yaml
from cycles import S3, Cycle, buckets_of
from running_lab import RunningLab

from cbt_plugins.cbt import checkout

pytestmark = [pytest.mark.lab, pytest.mark.upstream]


DOMAIN = "lab.example.com"
#: names as people write them: pdsh takes a common domain off its labels
NAMES = {
    "clients": [f"client1.{DOMAIN}", f"root@Client2.{DOMAIN}"],
    "osds": [f"node1.{DOMAIN}", f"NODE2.{DOMAIN}", f"root@node3.{DOMAIN}", "10.77.0.14"],
    "rgws": [f"rgw1.{DOMAIN}", f"rgw2.{DOMAIN}"],
}


@pytest.fixture
def domain(lab: RunningLab) -> Iterator[None]:
    """The nodes have a domain too."""
    hosts = lab.dir / "etc" / "hosts"
    before = hosts.read_text()
    lines = [f"{node.address} {node.name}.{DOMAIN}\n" for node in lab.nodes.values()]
    hosts.write_text(before + "".join(lines))
    yield
    hosts.write_text(before)


@pytest.mark.usefixtures("domain")
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
    config = yaml.safe_load(cycle.file.read_text())
    config["cluster"].update(NAMES)
    cycle.file.write_text(yaml.safe_dump(config, sort_keys=False))
    done = cycle.run(str(tree / "cbt.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    runs = sorted(cycle.archive.glob("results/00000000/id-*"))
    assert len(runs) == 2
    for run in runs:
        assert (run / "complete").exists() and (run / "benchmark_config.yaml").exists()
        assert json.loads((run / "manifest.json").read_text())["cbt"]["commit"]
        phases = sorted(p.name for p in run.glob("phases/*"))
        assert phases == ["01-fill", "02-calibrate", "03-hybrid", "04-warp"]
        watched = {path.name for path in run.glob("monitors/*/collectl.*") if list(path.iterdir())}
        assert watched >= {f"collectl.{name.split('@')[-1]}" for names in NAMES.values() for name in names}
        mixed = json.loads((run / "phases/04-warp/phase.json").read_text())
        assert all(b["ok"] for b in mixed["accounting"]) and {j["op"] for j in mixed["jobs"]} == {"MIXED"}
    assert (cycle.archive / "results" / "cbt_config.yaml").exists()
    secret = json.loads((lab.dir / "s3.json").read_text())["secret_key"].encode()
    assert not [p for p in cycle.archive.rglob("*") if p.is_file() and secret in p.read_bytes()]
    assert secret not in cycle.log.read_bytes()
    assert buckets_of(cycle) == []
    again = cycle.run(str(tree / "cbt.py"))
    assert again.returncode == 0 and len(list(cycle.archive.glob("results/*/id-*"))) == 2
    assert "0 of 2 planned runs executed, 2 skipped (their results exist)" in again.stderr
