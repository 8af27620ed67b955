"""A run that makes its own pools, on a real cluster: as asked, kept for the resumed run, and removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest
from cluster_state import ask, facts
from cycles import S3, Cycle
from running_lab import RunningLab

pytestmark = pytest.mark.lab

POOLS = {
    "data": {
        **{"ec": "2+1", "pg_num": 8, "device_class": "hdd", "failure_domain": "host"},
        "compression": {"mode": "aggressive", "algorithm": "snappy"},
    },
    "index": {"replicas": 3, "pg_num": 4},
    "default.rgw.log": {"existing": True, "compression": {"mode": "passive"}},
}


def state(lab: RunningLab) -> Dict[str, Any]:
    """What a run may make for itself."""
    pools = {row["pool_name"]: row["options"] for row in ask(lab, "osd pool ls detail")}
    names = {what: ask(lab, f"{what} ls") for what in ("osd crush rule", "osd erasure-code-profile")}
    return {"pools": pools, "config": facts(lab)["config"], "lock": facts(lab)["lock"], **names}


def cycle(lab: RunningLab, folder: Path, **keys: Any) -> Cycle:
    phases = [{"fill": {"objects": 20}}, {"hybrid": {"duration": "3s"}}]
    return Cycle(lab, folder, warp={"s3": S3, "engine": "cbt-load", "cycle": {"phases": phases}, **keys})


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
