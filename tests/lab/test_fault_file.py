"""One fault file beside CBT's own benchmarks, run by an unmodified cbt.py: librbdfio, and hsbench where it is.

CBT_PLUGINS_LONG=1 asks for them.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import yaml
from cluster_state import facts
from cycles import S3, Cycle
from running_lab import RunningLab

from cbt_plugins.cbt import checkout
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples
from cbt_plugins.results.run_record import RunRecord
from cbt_plugins.tools.__main__ import main

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.upstream]

#: label -> (what is planned, seconds after the load's begin)
PLAN = {"inject": 10.0, "undo": 25.0}
FAULTS = f"""\
settings: {{flags: [noscrub], config: {{mon: {{mon_osd_down_out_interval: 8}}}}}}
events:
  - {{at: {PLAN["inject"]:g}s, fault: {{label: a, kind: stop, nodes: [node4]}}}}
  - {{at: {PLAN["undo"]:g}s, undo: a}}
"""
#: seconds of load: it continues when the node is back
LOAD = 60
#: seconds by which an event may miss its plan
DRIFT = 2.0


@pytest.fixture
def tree(lab: RunningLab) -> Path:
    found = checkout.find()
    if found is None or importlib.util.find_spec("lxml") is None:
        pytest.skip("no CBT checkout, or not what it needs")
    if lab.exec("node0", ["test", "-e", str(found / "cbt.py")]).returncode:
        pytest.skip(f"{found} is not visible in the lab's nodes")
    return found


def test_cbts_own_fio_beside_a_fault_file(
    lab: RunningLab, tmp_path: Path, tree: Path, before: Dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    if lab.exec("client1", ["sh", "-c", "fio --enghelp | grep -qw rbd"]).returncode:
        pytest.skip("this fio has no engine for RBD")
    images = [f"cbt-librbdfio-{client}-0" for client in ("client1", "client2")]
    for image in images:
        assert lab.exec("node0", ["rbd", "create", "--size", "64", f"rbd/{image}"]).returncode == 0
    section = {
        "cmd_path": "/usr/bin/fio",
        "use_existing_volumes": True,
        "poolname": "rbd",
        "vol_size": 64,
        "time": LOAD,
        "time_based": True,
        "mode": "randwrite",
        "op_size": [16384],
        "iodepth": [4],
        "idle_monitor_sleep": 1,
        "fio_out_format": "json",
        "log_iops": True,
        "log_avg_msec": 1000,
    }
    cycle = Cycle(lab, tmp_path, profiles(tmp_path), librbdfio=section)
    try:
        record = run_beside(cycle, tree, before)
    finally:
        for image in images:
            lab.exec("node0", ["rbd", "rm", f"rbd/{image}"])
    assert record.started is not None
    check(cycle, record, record.started, "randwrite", "write")
    jobs = [json.loads(path.read_text())["jobs"][0] for path in cycle.folder.glob("output.0.client?")]
    assert len(jobs) == 2
    failed = sum(job["error"] != 0 for job in jobs)  # the first failure ends a job
    check_errors(record, "write", sum(job["write"]["total_ios"] for job in jobs), failed)
    check_report(cycle, capsys, "randwrite / failing")


def test_cbts_own_hsbench_beside_a_fault_file(
    lab: RunningLab, tmp_path: Path, tree: Path, before: Dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    hsbench = shutil.which("hsbench")
    if hsbench is None or lab.exec("client1", ["test", "-x", hsbench]).returncode:
        pytest.skip("no hsbench on PATH, or not visible in the lab's nodes")
    section = {
        "cmd_path": hsbench,
        "client_endpoints": "lab",
        "buckets": 2,
        "bucket_prefix": "cbt-own-",
        "modes": "ip",
        "duration": LOAD,
        "threads": 3,
        "size": "16K",
        "report_intervals": 1,
    }
    cycle = Cycle(lab, tmp_path, profiles(tmp_path), hsbench=section)
    keys = json.loads((lab.dir / "s3.json").read_text())
    of_cbt = {"driver": "s3", "urls": S3["urls"], "endpoints_per_client": 2, "user": S3["user"]}
    of_cbt.update(access_key=keys["access_key"], secret_key=keys["secret_key"])
    config = yaml.safe_load(cycle.file.read_text())
    cycle.file.write_text(yaml.safe_dump({**config, "client_endpoints": {"lab": of_cbt}}, sort_keys=False))
    buckets = [f"{section['bucket_prefix']}{number:012d}" for number in range(2)]
    try:
        record = run_beside(cycle, tree, before)
        began = min(created(lab, bucket) for bucket in buckets)  # hsbench's first act; its results have no clock
    finally:
        for bucket in buckets:
            remove = ["radosgw-admin", "bucket", "rm", f"--bucket={bucket}", "--purge-objects", "--bypass-gc"]
            lab.exec("node0", remove, timeout=600)
    check(cycle, record, began, "PUT", "PUT")
    totals = [
        line
        for path in cycle.folder.glob("output.*.json.*")
        for line in json.loads(path.read_text())
        if line["Mode"] == "PUT" and line["IntervalName"] == "TOTAL"
    ]
    assert len(totals) == 4
    check_errors(record, "PUT", sum(line["Ops"] for line in totals), sum(line["Slowdowns"] for line in totals))
    check_report(cycle, capsys, "PUT / failing")


def profiles(folder: Path) -> Dict[str, Any]:
    (folder / "faults.yaml").write_text(FAULTS)
    return {"recovery": {"nodes": "mons"}, "faults": {"file": str(folder / "faults.yaml")}}


def created(lab: RunningLab, bucket: str) -> float:
    done = lab.exec("node0", ["radosgw-admin", "bucket", "stats", f"--bucket={bucket}"])
    assert done.returncode == 0, done.stderr
    return datetime.fromisoformat(json.loads(done.stdout)["creation_time"].replace("Z", "+00:00")).timestamp()


def run_beside(cycle: Cycle, tree: Path, before: Dict[str, Any]) -> RunRecord:
    """By cbt.py, to its end; the cluster is as it was."""
    done = cycle.run(str(tree / "cbt.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(cycle.lab) == before
    (record,) = records_of(cycle.archive)
    return record


def check(cycle: Cycle, record: RunRecord, began: float, phase: str, op: str) -> None:
    """The faults came when they were planned, counted from the load's begin; load and monitor saw all of it."""
    happened = {event["event"]: event for event in events(cycle) if event.get("label") == "a"}
    begins = {"inject": happened["fault-inject-begin"]["t"], "undo": happened["fault-undo-begin"]["t"]}
    for name, planned in PLAN.items():
        assert abs(begins[name] - began - planned) < DRIFT, (name, begins[name] - began)
    assert max(event["late"] for event in events(cycle) if event["event"] == "event") < DRIFT
    osds = set(happened["fault-inject-begin"]["osds"])
    samples = read_samples(files_of(cycle.folder)).samples
    assert any(osds <= set(sample.state["down"]) for sample in samples if begins["inject"] < sample.t < begins["undo"])
    assert not samples[-1].state["down"] and samples[-1].t > happened["fault-undone"]["t"] - 1
    rate = one(record, lambda its: (its.phase, its.op, its.metric) == (phase, op, "obj_per_s"))
    assert rate.series and rate.start is not None and rate.step == 1
    assert abs(rate.start - began) < DRIFT
    during = rate.series[int(begins["inject"] - rate.start) : int(begins["undo"] - rate.start)]
    assert len(during) >= PLAN["undo"] - PLAN["inject"] - DRIFT and sum(during) > 0
    assert rate.start + len(rate.series) > begins["undo"] + DRIFT
    assert record.failure is not None
    assert [(its["kind"], its["effect"]) for its in record.failure["episodes"]] == [("failure", True), ("return", True)]
    assert record.config["load.faults"] == "10s:stop*1 25s:undo*1"


def check_errors(record: RunRecord, op: str, good: int, failed: int) -> None:
    """As many requests failed as the program itself says."""
    success = one(record, lambda its: (its.op, its.metric) == (op, "success_rate"))
    assert success.n == good + failed and success.value == pytest.approx(good / (good + failed))
    assert any(warning.code == "errors" for warning in record.warnings) is bool(failed)


def check_report(cycle: Cycle, capsys: pytest.CaptureFixture[str], state: str) -> None:
    main(["report", str(cycle.archive)])
    said = capsys.readouterr().out
    for text in (state, "failure of a: ", "return of a: ", "all OSDs up"):
        assert text in said, said


def events(cycle: Cycle) -> List[Dict[str, Any]]:
    (path,) = cycle.archive.glob("faults/*/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def one(record: RunRecord, wanted: Callable[[Any], bool]) -> Any:
    (found,) = [its for its in record.measurements if wanted(its)]
    return found
