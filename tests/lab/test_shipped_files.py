"""Each file of benchmark_configs/ on a lab: nothing is edited but what EDITS says; the session writes docs/STUDIES.md.

    CBT_PLUGINS_LONG=1 ./run test tests/lab/test_shipped_files.py -k sdc
"""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
import yaml
from cycles import CLUSTER, S3, Cycle, buckets_of
from running_lab import PROJECT, RunningLab, need_machine
from tables import today
from test_cbt_years import pools  # noqa: F401 -- a fixture

from cbt_plugins.cbt import checkout
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.lab import Lab, Topology

pytestmark = pytest.mark.lab
FOLDER = PROJECT / "benchmark_configs"
#: as many OSD nodes as the studies that stop two of them; what `fill: {max_avail: 30%}` takes is written in a minute
SHAPE = {"osd_nodes": 8, "osds_per_node": 1, "block": 2 << 30}

#: names in the files -> the lab's, outside `cluster:` and `s3:`, which are replaced
EDITS = {
    r"\bosd([1-8])\b": r"node\1",
    # its one interface, which it takes up by itself
    r"interfaces: \[ens3f0, ens3f1\]": "interfaces: [eth0], deadline: 22s",
    # 75 MB in the mean: the lab's disks are too slow for them, and too small
    r"\b8192KB": "128KB",
    r"\b65536KB": "256KB",
    r"\b1048576KB": "1024KB",
    r"\bset: generic": "sizes: [16KiB, 64KiB, 128KiB, 256KiB, 1MiB]",
    # the smaller size of hsbench-mesh.yaml; fewer buckets, and two drivers for each RGW instead of ten
    r"\bsize: 4MiB": "size: 4KiB",
    r"\bdrivers: 200": "drivers: 4",
    r"\bbuckets: 512": "buckets: 16",
    # a file for a day: one round of its ten failures
    r"\brepeat: 3": "repeat: 1",
    # the bucket of benchmark_configs/age-lab.yaml
    r"cbtp-1e229d3f-16kib": "{aged}",
}
#: file -> its `scale`; one iteration of each
SCALES: Dict[str, float] = {
    "age-lab.yaml": 0.1,
    "bisect.yaml": 0.02,
    "campaign-lab.yaml": 0.5,
    "failure-openloop.yaml": 1.0,
    "first-run.yaml": 0.001,
    "hsbench-mesh.yaml": 0.01,
    "ladder.yaml": 0.1,
    "openloop.yaml": 0.03,
    "osdfailure-classic.yaml": 0.005,
    "osdfailure-quick.yaml": 0.5,
    "osdfailure-two-nodes.yaml": 0.002,
    "pr-lab.yaml": 0.5,
    "pr.yaml": 0.05,
    "quickstart.yaml": 0.3,
    "releases-lab.yaml": 0.7,
    "resilience-quick.yaml": 1.0,
    "resilience.yaml": 0.005,
    "rgw-scaling.yaml": 0.02,
    "rgwtest-generic.yaml": 0.0005,
    "rgwtest-small.yaml": 0.0005,
    "sdc-rgwtest.yaml": 0.0002,
    "single-operations.yaml": 0.05,
    "warp-histogram.yaml": 0.03,
    "warp-mixed.yaml": 0.03,
    "warp-sweep.yaml": 0.03,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """In place of the session's."""
    need_machine()
    log: List[str] = []
    made = Lab(tmp_path_factory.mktemp("lab"), say=log.append)
    try:
        made.up(Topology(**SHAPE, bind=(str(tmp_path_factory.getbasetemp()),)), detach=False)
        yield RunningLab(made, log)
    finally:
        made.down(wipe=True)


def as_text(config: Any) -> str:
    """A mapping or list of values on one line, as EDITS expect them."""
    text: str = yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=1000)
    return text


def on_lab(file: str, aged: str = "") -> Dict[str, Any]:
    """The file's content with the lab's nodes and EDITS."""
    config = yaml.safe_load((FOLDER / file).read_text())
    nodes = min(len(config["cluster"]["osds"]), SHAPE["osd_nodes"])
    cluster = {**config.pop("cluster"), **CLUSTER, "osds": [f"node{number + 1}" for number in range(nodes)]}
    ((_, section),) = config["benchmarks"].items()
    endpoints = section.get("s3", {})
    edited = as_text(config)
    for pattern, name in EDITS.items():
        edited = re.sub(pattern, name.replace("{aged}", aged), edited)
    config = yaml.safe_load(edited)
    ((_, section),) = config["benchmarks"].items()
    if endpoints:
        section["s3"] = {**endpoints, **S3}
    return {"cluster": cluster, **config}


def test_every_shipped_file_is_run_here() -> None:
    others = {"faults-one-node.yaml", "fio-scale-out.yaml", "hsbench-beside-faults.yaml"}
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*SCALES, *others}


def test_every_edit_has_its_place() -> None:
    text = "".join(as_text(yaml.safe_load(path.read_text())) for path in FOLDER.glob("*.yaml"))
    assert [pattern for pattern in EDITS if not re.search(pattern, text)] == []


def run_scaled(lab: RunningLab, folder: Path, config: Dict[str, Any], scale: float) -> Cycle:
    """Run one file with that scale, by our own loop."""
    folder.mkdir()
    ((_, section),) = config["benchmarks"].items()
    section["scale"] = scale
    cycle = Cycle(lab, folder)
    cycle.file.write_text(yaml.safe_dump(config, sort_keys=False))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    return cycle


def row(file: str, change: str, lab: RunningLab, begun: float, runs: int, seen: str) -> List[str]:
    ceph = lab.exec("node0", ["ceph", "--version"]).stdout.split()[2]
    seconds = f"{time.monotonic() - begun:.0f} s"
    return ["docs/STUDIES.md", "lab", f"`{file}`", change, f"{today()}, {ceph}", str(runs), seconds, seen]


@pytest.mark.long
@pytest.mark.parametrize("file", SCALES)
def test_a_file_gives_its_report(
    lab: RunningLab, tmp_path: Path, file: str, record_property: Callable[[str, object], None]
) -> None:
    begun, aged = time.monotonic(), ""
    cycles: List[Cycle] = []
    try:
        if file == "releases-lab.yaml":
            cycles.append(run_scaled(lab, tmp_path / "aged", on_lab("age-lab.yaml"), SCALES["age-lab.yaml"]))
            (aged,) = buckets_of(cycles[0])
        config = on_lab(file, aged)
        cycle = run_scaled(lab, tmp_path / "run", config, SCALES[file])
        cycles.append(cycle)
        ((_, section),) = config["benchmarks"].items()
        assert section.get("keep_data") or buckets_of(cycle) == []
    finally:
        for bucket in [name for each in cycles for name in buckets_of(each)]:
            lab.exec("node0", ["radosgw-admin", "bucket", "rm", f"--bucket={bucket}", "--purge-objects"])
    summaries = [json.loads(path.read_text()) for path in sorted(cycle.archive.glob("results/*/id-*/summary.json"))]
    assert len(list(cycle.archive.glob("results/*/id-*/report.html"))) == len(summaries) > 0
    codes, requests = set(), 0
    for summary in summaries:
        assert summary["usable"] and summary["phases"], summary["warnings"]
        assert all(count["ok"] for phase in summary["phases"] for count in phase["accounting"])
        codes |= {warning["code"] for warning in summary["warnings"]}
        requests += sum(phase["total"]["requests"] for phase in summary["phases"])
    seen = f"{requests:,} requests, every object accounted for; {' '.join(sorted(codes)) or 'no warnings'}"
    record_property("row", row(file, f"`scale: {SCALES[file]:g}`", lab, begun, len(summaries), seen))


def through_cbt(lab: RunningLab, folder: Path, config: Dict[str, Any]) -> Cycle:
    """Run a file whose sections are CBT's own by the checkout's cbt.py."""
    tree = checkout.find()
    if tree is None or lab.exec("node0", ["test", "-e", str(tree / "cbt.py")]).returncode:
        pytest.skip(f"needs a CBT checkout that nodes see: CBT_HOME, or one in {checkout.cache_path()}")
    cycle = Cycle(lab, folder)
    cycle.file.write_text(yaml.safe_dump(config, sort_keys=False))
    done = cycle.run(str(tree / "cbt.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    return cycle


@pytest.mark.long
@pytest.mark.usefixtures("pools")
def test_fio_on_rbd_through_cbt(
    lab: RunningLab, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """CBT's section has no `scale`: shorter, one size, one depth, a small volume."""
    if shutil.which("fio") is None:
        pytest.skip("needs fio with librbd: apt-get install fio")
    begun, config = time.monotonic(), on_lab("fio-scale-out.yaml")
    config["cluster"]["pool_profiles"] = {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}}
    section = config["benchmarks"]["librbdfio"]
    section.update(time=3, ramp=1, op_size=[4096], iodepth=[4], vol_size=16, log_avg_msec=500)
    section.update(idle_monitor_sleep=1, wait_pgautoscaler_timeout=0)
    records = records_of(through_cbt(lab, tmp_path, config).archive)
    assert {record.config["load.mode"] for record in records} == {"randread", "randwrite", "randrw"}
    assert all(record.usable and record.used for record in records)
    for record in records:
        assert all(line.value for line in record.measurements if line.metric == "obj_per_s")
    change = "3 s, 4 KiB, queue depth 4, 16 MB"
    record_property("row", row("fio-scale-out.yaml", change, lab, begun, len(records), "each run has its rates"))


@pytest.mark.long
def test_hsbench_beside_a_fault_through_cbt(
    lab: RunningLab, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The fault file comes with it, ten times as fast; its node is back at the end."""
    if shutil.which("hsbench") is None:
        pytest.skip("needs hsbench on PATH")
    begun, config = time.monotonic(), on_lab("hsbench-beside-faults.yaml")
    faults = tmp_path / "faults.yaml"
    text = (FOLDER / "faults-one-node.yaml").read_text()
    faults.write_text(re.sub(r"at: (\d)m", r"at: \g<1>0s", text).replace("interval: 60", "interval: 6"))
    config["monitoring_profiles"]["faults"]["file"] = str(faults)
    keys = json.loads((lab.dir / "s3.json").read_text())
    endpoints = config["client_endpoints"]["rgws"]
    endpoints.update({name: keys[name] for name in ("access_key", "secret_key")})
    config["benchmarks"]["hsbench"].update(duration=100, size="16K")
    cycle = through_cbt(lab, tmp_path, config)
    records = records_of(cycle.archive)
    assert records and all(record.usable for record in records), [record.warnings for record in records]
    (events,) = cycle.archive.rglob("events.jsonl")
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert "fault" in " ".join(kinds) and "undo" in " ".join(kinds), kinds
    seen = "its node stopped and returned"
    for file in ("hsbench-beside-faults.yaml", "faults-one-node.yaml"):
        change = "100 s, 16 KiB; fault after 20 s for 50 s"
        record_property("row", row(file, change, lab, begun, len(records), seen))
