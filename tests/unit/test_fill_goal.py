"""When a fill by a share of the capacity is done."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Mapping, Optional, cast

import pytest
from run_context import context

from cbt_plugins.ceph_df import PoolSpace
from cbt_plugins.cluster.ceph import BucketStats, Ceph, CephError
from cbt_plugins.journal import Journal
from cbt_plugins.plan import S3, Bucket, Goal, Plan
from cbt_plugins.run import fill_goal
from cbt_plugins.run.context import LOAD_BEGUN
from cbt_plugins.run.fill_goal import reaching

PLAN = Plan("warp", S3(urls=("http://a",), user="t$cbt"), (Bucket("b", ()),), (), ())
ZONE = {
    "placement_pools": [
        {"key": "default-placement", "val": {"storage_classes": {"STANDARD": {"data_pool": "shared:store.data"}}}},
        {
            "key": "fast",
            "val": {
                "storage_classes": {
                    "STANDARD": {"data_pool": "nvme"},
                    "COLD": {"data_pool": "hdd", "compression_type": "zstd"},
                }
            },
        },
        {"key": "of-jewel", "val": {"data_pool": ".rgw.buckets"}},
    ]
}


class Pool(Ceph):
    """A cluster with a zone, one pool and, once `placement` is set, the run's bucket."""

    used: Any = 100
    free = 1000
    name = "data"
    placement = ""

    def __init__(self) -> None:
        pass

    def admin_json(self, command: str, timeout: float = 120.0) -> Any:
        return {"zone get": ZONE, "zonegroup get": {"default_placement": "fast/COLD"}}[command]

    def bucket(self, name: str, timeout: float = 120.0) -> Optional[BucketStats]:
        assert name == "t/cbtp-r1-b"
        return BucketStats(0, 0, 11, "1", self.placement) if self.placement else None

    def pools(self) -> Mapping[str, PoolSpace]:
        if isinstance(self.used, CephError):
            raise self.used
        other = PoolSpace("other", 0, 0, self.free, 0)
        own = PoolSpace(self.name, self.used or 0, 3 * (self.used or 0), self.free, 1)
        return {pool.name: pool for pool in (other, own) if pool is other or self.used is not None}


@pytest.mark.parametrize(
    ("placement", "pool"),
    [("default-placement", "shared"), ("fast", "nvme"), ("fast/COLD", "hdd"), ("of-jewel", ".rgw.buckets")],
)
def test_a_fill_ends_by_the_pool_in_which_rgw_has_placed_its_bucket(
    placement: str, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: Dict[str, Any] = {}
    now, cluster = [1000.0], Pool()
    monkeypatch.setattr(fill_goal.time, "monotonic", lambda: now[0])
    cluster.name = pool
    reached = reaching(context(plan=PLAN, ceph=cluster), Goal(max_avail=0.2), noted)
    assert reached is not None

    def answer(used: int) -> bool:
        cluster.used = used
        now[0] += 10.0
        return reached(cast(Any, None))

    assert not answer(150)  # the generators make the bucket
    cluster.placement = placement
    assert [answer(used) for used in (150, 299, 300)] == [False, False, True]
    assert noted[fill_goal.POOL] == {"name": pool, "stored": 100, "max_avail": 1000}
    with pytest.raises(CephError, match="no data pool for the placement 'slow'"):
        cluster.data_pool("slow")


def test_a_fill_ends_by_the_default_placement_where_radosgw_admin_does_not_show_its_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of a profile may be those of a user with a tenant, in which radosgw-admin would find the bucket."""
    now, cluster, noted = [1000.0], Pool(), cast(Dict[str, Any], {})
    monkeypatch.setattr(fill_goal.time, "monotonic", lambda: now[0])
    cluster.name = "hdd"
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        journal.write(LOAD_BEGUN, phase="before")
        reached = reaching(context(plan=PLAN, ceph=cluster, journal=journal), Goal(max_avail=0.2), noted)
        assert reached is not None

        def answer(used: int, later: float) -> bool:
            cluster.used = used
            now[0] += later
            return reached(cast(Any, None))

        assert not answer(100, 10.0)
        assert not answer(100, fill_goal.BUCKET_LIMIT)
        journal.write(LOAD_BEGUN, phase="fill")
        assert not answer(301, 10.0)
        assert not noted
        assert not answer(299, fill_goal.BUCKET_LIMIT)
        assert noted[fill_goal.POOL] == {"name": "hdd", "stored": 100, "max_avail": 1000}
        assert answer(300, 10.0)


def test_a_fill_by_raw_ends_when_so_much_of_the_cluster_is_used() -> None:
    class Watch:
        latest: Any = None
        latest_at = math.inf

    class Sample:
        raw_used: Any = None

    watch = Watch()
    reached = reaching(cast(Any, None), Goal(raw=0.25), {})
    assert reached is not None
    answers = [reached(cast(Any, watch))]
    watch.latest = Sample()
    for used in (None, 0.2499, 0.25):
        watch.latest.raw_used = used
        answers.append(reached(cast(Any, watch)))
    assert answers == [False, False, False, True]
    assert reaching(cast(Any, None), Goal(duration=5.0), {}) is None


def test_a_fill_by_raw_asks_the_cluster_when_no_samples_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that samples is gone: the goal, and the guard, would wait for ever for a number above the last one."""
    now, answers = [1000.0], iter([0.1, 0.2, 0.3])
    monkeypatch.setattr(fill_goal.time, "monotonic", lambda: now[0])
    silent = SimpleNamespace(status=lambda: SimpleNamespace(raw_used=next(answers)))
    watch: Any = SimpleNamespace(latest=SimpleNamespace(raw_used=0.05), latest_at=1000.0)
    reached = reaching(context(plan=PLAN, ceph=silent), Goal(raw=0.3), {})
    assert reached is not None

    def after(seconds: float) -> bool:
        now[0] += seconds
        return reached(watch)

    assert [after(30.0), after(1.0), after(1.0), after(5.0), after(5.0)] == [False, False, False, False, True]

    def unreachable() -> Any:
        raise CephError("No route to host")

    # an hour of samples is no silence: the next gap begins anew
    answering, gaps = [True], reaching(context(plan=PLAN, ceph=silent), Goal(raw=0.9), {})
    silent.status = lambda: SimpleNamespace(raw_used=0.1) if answering[0] else unreachable()
    assert gaps is not None
    for seconds in (31.0, 3600.0, 31.0):
        now[0] += seconds
        watch.latest_at = now[0] - (0.0 if seconds > fill_goal.SILENCE_LIMIT else seconds)
        assert not gaps(watch)
        answering[0] = False

    nobody = reaching(context(plan=PLAN, ceph=SimpleNamespace(status=unreachable)), Goal(raw=0.3), {})
    assert nobody is not None and not nobody(watch)
    now[0] += fill_goal.SILENCE_LIMIT + 1.0
    with pytest.raises(CephError, match="No route"):
        nobody(watch)


def test_a_fill_by_share_goes_on_when_a_question_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    now, silent = [1000.0], CephError("Connection reset by peer")
    pool, nothing = Pool(), cast(Any, None)
    pool.name, pool.placement = "nvme", "fast"
    monkeypatch.setattr(fill_goal.time, "monotonic", lambda: now[0])
    reached = reaching(context(plan=PLAN, ceph=pool), Goal(max_avail=0.3), {})
    assert reached is not None

    def answer(used: Any, later: float) -> bool:
        pool.used = used
        now[0] += later
        return reached(nothing)

    assert not answer(399, 10.0)
    assert not answer(silent, 10.0)
    assert answer(400, 10.0)
    with pytest.raises(CephError, match="reset"):
        answer(silent, fill_goal.SILENCE_LIMIT + 1.0)

    # RGW makes its data pool for the first object
    noted: Dict[str, Any] = {}
    pool.used = None
    reached = reaching(context(plan=PLAN, ceph=pool), Goal(max_avail=0.3), noted)
    assert reached is not None and not answer(None, 10.0)
    pool.free = 800
    assert not answer(200, 10.0)
    assert noted[fill_goal.POOL] == {"name": "nvme", "stored": 0, "max_avail": 1000}
    pool.free = 701
    assert not answer(299, 10.0)
    assert answer(300, 10.0)

    # a mgr that has just started does not know MAX AVAIL
    noted, pool.used, pool.free = {}, 100, 0
    reached = reaching(context(plan=PLAN, ceph=pool), Goal(max_avail=0.3), noted)
    assert reached is not None and not answer(100, 10.0) and not answer(200, 10.0)
    pool.free = 700
    assert not answer(300, 10.0)
    assert noted[fill_goal.POOL] == {"name": "nvme", "stored": 100, "max_avail": 900}
    assert not answer(369, 10.0) and answer(370, 10.0)
