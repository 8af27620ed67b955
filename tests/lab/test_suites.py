"""Each study file of benchmark_configs/ on the lab, made small; the rows of docs/STUDIES.md are printed (-s)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
import yaml
from cycles import CLUSTER, S3, Cycle, buckets_of
from running_lab import PROJECT, RunningLab
from test_cbt_years import pools  # noqa: F401 -- a fixture

from cbt_plugins.cbt import checkout
from cbt_plugins.results.records import records_of

#: file -> what is changed in its section, and in which of its phases
SMALL: Dict[str, Dict[str, Any]] = {
    "rgwtest-small.yaml": {"scale": 0.001, "workers": 2, "age": {"duration": "2h"}, "warp_mixed": "2h"},
    "rgwtest-generic.yaml": {
        **{"scale": 0.001, "workers": 2, "age": {"duration": "2h"}, "warp_mixed": "2h"},
        "objects": {"sizes": ["1MiB", "4MiB"]},
    },
    "sdc-rgwtest.yaml": {
        **{"scale": 0.001, "size": {"1KB": "50%", "64KB": "50%"}, "cbt_load": {"deadline": "60s"}},
        "phases": {0: {"fill": {"objects": 50_000}}, 2: {"hybrid": {"duration": "2h"}}},
    },
    "single-operations.yaml": {"scale": 0.05, "size": "64KB", "phases": {0: {"fill": {"objects": 1000}}}},
    "hsbench-mesh.yaml": {"scale": 0.005, "drivers": 4, "workers": 4, "size": "4KiB", "buckets": 16},
    "rgw-scaling.yaml": {"scale": 0.02, "size": "64KiB", "workers": 8},
    "warp-sweep.yaml": {"scale": 0.03, "size": "4KiB", "workers": [4, 8]},
    "warp-histogram.yaml": {"scale": 0.03, "workers": 4},
    "warp-mixed.yaml": {"scale": 0.03},
    "ladder.yaml": {
        **{"scale": 0.1, "workers": 16, "phases": {1: {"ladder": {"steps": 4}}, 2: {"ladder": {"steps": 4}}}}
    },
    "openloop.yaml": {"scale": 0.02, "workers": 8},
}


def small(file: str) -> Dict[str, Any]:
    """The file with the lab's nodes, made small."""
    config = yaml.safe_load((PROJECT / "benchmark_configs" / file).read_text())
    changes = dict(SMALL[file])
    phases: Mapping[int, Any] = changes.pop("phases", {})
    ((name, section),) = config["benchmarks"].items()
    section["s3"] = {**section["s3"], **S3}
    section.update(changes)
    for index, phase in phases.items():
        ((kind, keys),) = phase.items()
        its = section["cycle"]["phases"][index]
        its[kind] = keys if kind == "fill" else {**its[kind], **keys}
    profiles = {key: its for key, its in (config.get("monitoring_profiles") or {}).items() if key != "collectl"}
    return {"cluster": CLUSTER, "monitoring_profiles": profiles, "benchmarks": {name: section}}


@pytest.mark.long
@pytest.mark.parametrize("file", list(SMALL))
def test_each_study_file_gives_its_report(lab: RunningLab, tmp_path: Path, file: str) -> None:
    config = small(file)
    made = Cycle(lab, tmp_path, warp={})
    made.file.write_text(yaml.safe_dump(config, sort_keys=False))
    done = made.run()
    assert done.returncode == 0, done.stderr[-3000:]
    summaries = [json.loads(path.read_text()) for path in sorted(made.archive.glob("results/*/id-*/summary.json"))]
    assert summaries and buckets_of(made) == []
    codes = set()
    for summary in summaries:
        assert summary["usable"] and summary["phases"]
        assert all(count["ok"] for phase in summary["phases"] for count in phase["accounting"])
        codes |= {its["code"] for its in summary["warnings"]}
    assert list(made.archive.glob("results/*/id-*/report.html"))
    requests = sum(phase["total"]["requests"] for summary in summaries for phase in summary["phases"])
    print(f"| `{file}` | {len(summaries)} runs | {requests:,} requests | {' '.join(sorted(codes))} |")


@pytest.mark.long
@pytest.mark.usefixtures("pools")
def test_fio_on_rbd_through_cbt(lab: RunningLab, tmp_path: Path) -> None:
    tree = checkout.find()
    seen = tree and not lab.exec("node0", ["test", "-e", str(tree / "cbt.py")]).returncode
    if tree is None or not seen or shutil.which("fio") is None:
        pytest.skip(f"needs fio, and a CBT checkout that nodes see: CBT_HOME, or one in {checkout.cache_path()}")
    config = yaml.safe_load((PROJECT / "benchmark_configs" / "fio-scale-out.yaml").read_text())
    config["cluster"] |= {**CLUSTER, "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}}}
    section = config["benchmarks"]["librbdfio"]
    section.update(time=3, ramp=1, op_size=[4096], iodepth=[4], vol_size=16, log_avg_msec=500)
    section.update(idle_monitor_sleep=1, wait_pgautoscaler_timeout=0)
    made = Cycle(lab, tmp_path)
    made.file.write_text(yaml.safe_dump(config, sort_keys=False))
    done = made.run(str(tree / "cbt.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    records = records_of(made.archive)
    assert {record.config["load.mode"] for record in records} == {"randread", "randwrite", "randrw"}
    assert all(record.usable and record.used for record in records)
    for record in records:
        assert all(line.value for line in record.measurements if line.metric == "obj_per_s")
