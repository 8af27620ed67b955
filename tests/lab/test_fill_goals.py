"""Every goal of a fill by every engine, on the lab: each fill ends at its goal, and the run goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from cycles import S3, Cycle, buckets_of, generators
from running_lab import RunningLab
from test_hsbench_mesh import need_hsbench

from cbt_plugins.config import plugins

pytestmark = [pytest.mark.lab, pytest.mark.long]

OBJECT = 256 << 10
#: the lab's share that a fill adds: some hundreds of objects, so that the goal is not reached at once
ADDED = 0.002
AFTER = {
    "cbt-load": [{"verify": {}}, {"delete": {}}],
    "warp": [{"hybrid": {"duration": "2s", "mix": {"get": 100}, "workers": {"get": 2}}}],
    "hsbench": [{"delete": {}}],
}


def space(lab: RunningLab) -> Dict[str, Any]:
    """Return the sums of `ceph df`."""
    stats: Dict[str, Any] = json.loads(lab.exec("node0", ["ceph", "df", "-f", "json"]).stdout)["stats"]
    return stats


@pytest.mark.parametrize("goal", ["duration", "objects", "max_avail", "raw"])
@pytest.mark.parametrize("engine", plugins.built_in(plugins.GENERATORS))
def test_a_fill_ends_at_its_goal(lab: RunningLab, tmp_path: Path, engine: str, goal: str) -> None:
    extra: Dict[str, Any] = {}
    if engine == "hsbench":
        need_hsbench(lab)
        if goal in ("max_avail", "raw"):
            pytest.skip("hsbench cannot be stopped without losing count: refused by the plan (test_generated_jobs)")
        extra = {"buckets": 1, "across_buckets": True, "s3": {**S3, "host_select": "one"}}
    stats = space(lab)
    raw = stats["total_used_raw_bytes"] / stats["total_bytes"]
    value = {"duration": "3s", "objects": 40, "max_avail": f"{100 * ADDED}%", "raw": f"{100 * (raw + ADDED):.3f}%"}[
        goal
    ]
    phases: List[Dict[str, Any]] = [{"fill": {goal: value}}, *AFTER[engine]]
    keys = {"s3": S3, "engine": engine, "workers": 4, "size": f"{OBJECT}B", "cycle": {"phases": phases}}
    cycle = Cycle(lab, tmp_path, warp={**keys, **extra})
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    fill = cycle.phases()["fill"]
    by_share = goal in ("max_avail", "raw")
    assert fill["status"] == "ok"
    assert [warning["code"] for warning in fill["warnings"]] == ["fill-share"] * by_share, fill["warnings"]
    assert all(count["ok"] for its in cycle.phases().values() for count in its["accounting"])
    written = sum(count["after"] for count in fill["accounting"])
    events = [json.loads(line)["event"] for line in (cycle.folder / "events.jsonl").read_text().splitlines()]
    assert ("goal-reached" in events) == by_share
    if goal == "objects":
        assert 40 <= written <= 40 + 2 * 4
    elif goal == "max_avail":
        assert written * OBJECT >= ADDED * stats["total_bytes"] / 10  # of three copies, and the fullest OSD's share
    else:
        assert written > 10
    assert buckets_of(cycle) == [] and generators(lab) == []
