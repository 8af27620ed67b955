"""Reading `ceph status` of three releases, healthy and not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbt_plugins.cluster.ceph import Status

DATA = Path(__file__).parents[1] / "data" / "ceph"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text())


@pytest.mark.parametrize("release", ["pacific", "reef", "tentacle"])
def test_a_healthy_cluster_of_every_release(release: str) -> None:
    status = Status.parse(load(f"{release}-status.json"), load(f"{release}-df.json"))
    assert (status.health, status.osds, status.osds_up, status.osds_in) == ("HEALTH_OK", 8, 8, 8)
    assert status.num_pgs == sum(status.pgs.values()) > 0
    assert status.not_clean == 0
    assert status.raw_used is not None and 0 < status.raw_used < 0.2


def test_osds_down() -> None:
    status = Status.parse(load("pacific-down-status.json"))
    assert status.osds_up == 6
    assert "OSD_DOWN" in status.checks
    assert status.not_clean > 0 and status.degraded > 0
    assert status.raw_used is None


def test_recovering() -> None:
    status = Status.parse(load("pacific-recovering-status.json"))
    assert 0 < status.not_clean <= status.num_pgs


def test_scrubbing_and_unknown_states() -> None:
    raw = load("pacific-status.json")
    total = raw["pgmap"]["num_pgs"]
    raw["pgmap"]["pgs_by_state"] = [
        {"state_name": "active+clean+scrubbing+deep", "count": 2},
        {"state_name": "active+clean", "count": total - 5},
        {"state_name": "unknown", "count": 3},
    ]
    assert Status.parse(raw).not_clean == 3
    raw["pgmap"]["pgs_by_state"] = []  # just started: nothing is known of any PG
    assert Status.parse(raw).not_clean == total
