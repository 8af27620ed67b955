"""A run that makes its own pools, on a real cluster: as asked, kept for the resumed run, and removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from cluster_state import ask, facts
from cycles import S3, Cycle
from running_lab import RunningLab

pytestmark = pytest.mark.lab

POOLS = {
    "data": {
        **{"ec": "2+1", "pg_num": 8, "device_class": "hdd", "failure_domain": "host"},
        "compression": {"mode": "aggressive", "algorithm": "snappy"},
        "application": "spare",  # no bucket is placed on it
    },
    "index": {"replicas": 3, "pg_num": 4, "application": "spare"},
    "default.rgw.log": {"existing": True, "compression": {"mode": "passive"}},
}


def state(lab: RunningLab) -> Dict[str, Any]:
    """What a run may make for itself."""
    pools = {row["pool_name"]: row["options"] for row in ask(lab, "osd pool ls detail")}
    names = {what: ask(lab, f"{what} ls") for what in ("osd crush rule", "osd erasure-code-profile")}
    for question, key in (("zone get", "placement_pools"), ("zonegroup get", "placement_targets"), ("user list", "")):
        answer = json.loads(lab.exec("node0", ["radosgw-admin", *question.split()]).stdout)
        names[question] = answer[key] if key else answer
    return {"pools": pools, "config": facts(lab)["config"], "lock": facts(lab)["lock"], **names}


def cycle(lab: RunningLab, folder: Path, **keys: Any) -> Cycle:
    phases = [{"fill": {"objects": 20}}, {"hybrid": {"duration": "3s"}}]
    return Cycle(lab, folder, warp={"s3": S3, "engine": "cbt-load", "cycle": {"phases": phases}, **keys})


def threads(lab: RunningLab) -> List[str]:
    """What the gateways that were started last say of themselves."""
    rows = ask(lab, "service dump")["services"]["rgw"]["daemons"]
    newest = {row["metadata"]["id"]: key for key, row in sorted(rows.items()) if isinstance(row, dict)}
    shown = [["ceph", "config", "show", f"rgw.{key}", "rgw_thread_pool_size"] for key in newest.values()]
    return [lab.exec("node0", words).stdout.strip() for words in shown]


def test_a_user_and_a_pool_for_one_run(lab: RunningLab, tmp_path: Path) -> None:
    before = state(lab)
    pool = {"replicas": 2, "pg_num": 4, "application": "spare"}
    keys = {"s3": {**S3, "user": "bench"}, "rgw": {"make_user": True}, "pools": {"a": pool}}
    done = (one := cycle(lab, tmp_path, **keys, cycle={"phases": [{"fill": {"objects": 20}}]})).run()
    assert done.returncode == 0, done.stderr
    assert state(lab) == before
    seen = json.loads((one.folder / "manifest.json").read_text())["pools"]["a"]
    assert (seen["size"], seen["pg_num"]) == (2, 4)


@pytest.mark.long
def test_garbage_goes_and_caches_are_dropped(lab: RunningLab, tmp_path: Path) -> None:
    """What large objects leave when they are deleted is collected hours later, unless somebody asks for it."""
    listed = ["radosgw-admin", "gc", "list", "--include-all"]
    wait = {"gc": True, "at_most": "5m", "drop_caches": True}
    cycle = {"phases": [{"fill": {"objects": 3}}, {"delete": {}}, {"wait": wait}]}
    done = (one := Cycle(lab, tmp_path, warp={"s3": S3, "engine": "cbt-load", "size": "8MiB", "cycle": cycle})).run()
    assert done.returncode == 0, done.stderr
    assert json.loads(lab.exec("node0", listed).stdout) == []
    assert one.phases()["wait"]["status"] == "ok"
    events = map(json.loads, (one.folder / "events.jsonl").read_text().splitlines())
    (event,) = [event for event in events if event["event"] == "caches-dropped"]
    assert event["nodes"] == ["node1", "node2", "node3", "node4"]


@pytest.mark.long
def test_buckets_on_pools_of_the_run(lab: RunningLab, tmp_path: Path) -> None:
    """Killed while a gateway restarts, then run to its end: objects and shards are where they were asked for."""
    before, were = state(lab), threads(lab)
    pools = {"data": {"ec": "2+1", "pg_num": 8}, "index": {"replicas": 3, "pg_num": 4}}
    rgw = {"placement": {"data": "data", "index": "index", "extra": "index"}, "threads": 48, "index_shards": 3}
    one = cycle(lab, tmp_path, s3={**S3, "user": "bench"}, pools=pools, rgw=rgw)
    journal = lambda: "".join(path.read_text() for path in one.archive.glob("results/*/id-*/undo.jsonl"))  # noqa: E731
    one.broken_off(lambda: "rgw.rgw1 restarted" in journal(), "a restart")
    assert one.undo().returncode == 0
    assert state(lab) == before and set(threads(lab)) == set(were)
    done = one.run()
    assert done.returncode == 0, done.stderr
    assert state(lab) == before and set(threads(lab)) == set(were)
    manifest = json.loads((one.folder / "manifest.json").read_text())
    assert [gateway["rgw_thread_pool_size"] for gateway in manifest["rgw"].values()] == ["48", "48"]
    border = json.loads((one.folder / "phases" / "02-hybrid" / "capacity.json").read_text())
    stored = {row["name"]: row["stats"]["objects"] for row in border.get("df", border)["pools"]}
    own = {key: stored[its["pool_name"]] for key, its in manifest["pools"].items()}
    assert own["data"] >= 20 and own["index"] == 3


@pytest.mark.long
def test_pools_of_a_run_that_is_killed(lab: RunningLab, tmp_path: Path) -> None:
    """They stay for the resumed run, and go at its end, or by an undo, after which nobody resumes."""
    before = state(lab)
    one = cycle(lab, tmp_path, pools=POOLS)
    one.broken_off(lambda: one.running_rows("hybrid"), "requests of the hybrid phase")
    own = [name for name in state(lab)["pools"] if name not in before["pools"]]
    assert sorted(name.partition("-")[2].partition("-")[2] for name in own) == ["data", "index"]
    log_options = {**before["pools"]["default.rgw.log"], "compression_mode": "passive"}
    assert state(lab)["pools"]["default.rgw.log"] == log_options
    done = one.run()
    assert done.returncode == 0, done.stderr
    assert state(lab) == before
    seen = json.loads((one.folder / "manifest.json").read_text())["pools"]
    options = {"compression_mode": "aggressive", "compression_algorithm": "snappy"}
    assert (seen["data"]["size"], seen["data"]["pg_num"], seen["data"]["options"]) == (3, 8, options)
    (tmp_path / "other").mkdir()
    other = cycle(lab, tmp_path / "other", pools=POOLS)
    other.broken_off(lambda: other.running_rows("hybrid"), "requests of the hybrid phase")
    assert other.undo().returncode == 0
    assert state(lab) == before
    again = other.run()
    assert again.returncode == 1 and "removed since the run was broken off" in again.stderr
    assert state(lab) == before
