"""A warning of fills by objects for which the cluster has no room: at the begin of a run, and by `plan --live`."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest

from cbt_plugins.ceph_df import Space
from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.plan import S3, Bucket, CbtLoad, Driver, Gateways, Goal, Phase, Plan
from cbt_plugins.run.fill_goal import room_warnings

GIB = 1 << 30
ANSWERS = Path(__file__).parents[1] / "data" / "ceph"
FILL = Phase("fill", "fill", goal=Goal(objects=1000), engine="cbt-load")
BUCKET = Bucket("b", ((20 << 20, 20 << 20, 1.0),))
PLAN = Plan("warp", S3(urls=("http://a",)), (BUCKET,), (Driver("01", "c1", ("b",), 8),), (FILL,))
DATA = "default.rgw.buckets.data"


class RecordedCeph(Ceph):
    """The answers of a real cluster to `ceph df detail` and `radosgw-admin zone get`."""

    def __init__(self, release: str) -> None:
        answers = json.loads((ANSWERS / f"{release}-init.json").read_text(encoding="utf-8"))
        self.df, self.zone = copy.deepcopy(answers["df detail"]), copy.deepcopy(answers["zone get"])
        self.questions: List[str] = []

    def json(self, command: str, timeout: float = 120.0) -> Any:
        self.questions.append(command)
        return self.df

    def admin_json(self, command: str, timeout: float = 120.0) -> Any:
        if self.zone is None:
            raise CephError("no such command")
        return self.zone

    def pool(self, name: str = DATA) -> Dict[str, Any]:
        return next(pool["stats"] for pool in self.df["pools"] if pool["name"] == name)


def of_size(size: float, plan: Plan = PLAN) -> Plan:
    return replace(plan, buckets=(replace(BUCKET, sizes=((int(size / 1000), int(size / 1000), 1.0),)),))


@pytest.mark.parametrize("release", ["pacific", "reef", "tentacle"])
def test_a_fill_that_the_data_pool_cannot_hold(release: str) -> None:
    ceph = RecordedCeph(release)
    ceph.pool().update(stored=3 * GIB, max_avail=16 * GIB)
    assert room_warnings(ceph, [of_size(18.9 * GIB)]) == [], "what is stored now may be removed"
    (warning,) = room_warnings(ceph, [of_size(20 * GIB)])
    text = f"fill: writes 20 GiB of objects, but {DATA} can hold at most 19 GiB, by `ceph df`, even if they"
    assert warning == f"{text} were empty"


def test_runs_of_a_file_are_one_question() -> None:
    ceph = RecordedCeph("reef")
    ceph.pool().update(stored=0, max_avail=16 * GIB)
    assert len(room_warnings(ceph, [of_size(20 * GIB), of_size(1 * GIB), of_size(30 * GIB)])) == 2
    assert ceph.questions == ["df detail"]
    assert room_warnings(ceph, [replace(PLAN, phases=(replace(FILL, goal=Goal(raw=0.5)),))]) == []
    assert ceph.questions == ["df detail"], "a fill by another goal ends in time"


def test_any_pool_of_the_zone_may_take_the_objects() -> None:
    """The placement of a bucket's owner, and its storage class, are not in the plan."""
    ceph = RecordedCeph("reef")
    ceph.pool().update(stored=0, max_avail=16 * GIB)
    ceph.zone["placement_pools"][0]["val"]["storage_classes"]["COLD"] = {"data_pool": "cold:a-namespace"}
    assert room_warnings(ceph, [of_size(79 * GIB)]) == [], "the pool is not there, so its redundancy is unknown"
    ceph.df["pools"].append({"name": "cold", "stats": {**ceph.pool(), "max_avail": 30 * GIB}})
    assert room_warnings(ceph, [of_size(45 * GIB)]) == []
    assert f"but cold, {DATA} can hold at most 46 GiB" in room_warnings(ceph, [of_size(47 * GIB)])[0]


def test_without_a_known_pool_only_the_raw_capacity_is_too_small() -> None:
    ceph = RecordedCeph("reef")
    total = Space.parse(ceph.df).total
    ceph.pool().update(stored=0, max_avail=0)
    assert room_warnings(ceph, [of_size(0.9 * total)]) == [], "0 is also unknown"
    (warning,) = room_warnings(ceph, [of_size(1.1 * total)])
    assert warning == "fill: writes 88 GiB of objects, but the raw capacity of the cluster is 80 GiB"
    ceph.pool().update(stored=20 * GIB, max_avail=0)
    assert "can hold at most 20 GiB" in room_warnings(ceph, [of_size(21 * GIB)])[0], "a full pool"
    ceph.pool().update(stored=0, max_avail=16 * GIB)
    existing = of_size(20 * GIB)
    existing = replace(existing, buckets=(replace(existing.buckets[0], existing=True),))
    own = of_size(20 * GIB, replace(PLAN, rgw=Gateways(placement={"data": "d", "index": "i"})))
    assert room_warnings(ceph, [existing, own]) == []
    ceph.df["stats"]["total_bytes"] = 0
    assert room_warnings(ceph, [existing, own]) == []


def test_data_that_compression_makes_smaller_may_fit() -> None:
    ceph = RecordedCeph("reef")
    ceph.pool().update(stored=0, max_avail=16 * GIB)
    half = replace(PLAN, cbt_load=CbtLoad(compressible=0.5))
    assert room_warnings(ceph, [of_size(30 * GIB, half)]) == []
    assert room_warnings(ceph, [of_size(34 * GIB, half)])


@pytest.mark.parametrize("answers", [{"zone": None}, {"zone": {}}, {"df": {}}, {"df": {"pools": 1, "stats": {}}}])
def test_an_answer_that_is_not_understood_warns_of_nothing(answers: Dict[str, Any]) -> None:
    ceph = RecordedCeph("reef")
    vars(ceph).update(answers)
    assert room_warnings(ceph, [of_size(2000 * GIB)]) == []
