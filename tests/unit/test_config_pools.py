"""`pools:` of a file: what it means, and what is refused, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from config_files import CLUSTER, CYCLE, WARP, errors_in, marked

from cbt_plugins.config.plan_preview import changes, pool_words, unchanged, warnings
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.plan import Gateways, Plan, RunPool

PHASES = {"phases": [{"fill": {"objects": 5}}]}


def plan(pools: Dict[str, Any], rgw: Optional[Dict[str, Any]] = None) -> Plan:
    section = {"s3": {"urls": ["http://a"], "user": "u"}, "cycle": PHASES, "pools": pools, "rgw": rgw or {}}
    return plan_of("warp", section, {"clients": ["c1"]}, None)


def test_pools_of_a_plan() -> None:
    compression = {"mode": "aggressive", "algorithm": "zstd"}
    made = plan(
        {
            "data": {"ec": "4+2", "pg_num": 4096, "device_class": "hdd", "profile": {"plugin": "isa", "w": 8},
                     "application": "own"},
            "index": {"replicas": 3, "target_ratio": 0.1, "bulk": True, "rule": "ssd-only", "application": "rbd"},
            "default.rgw.log": {"existing": True, "compression": compression},
        }
    )
    options = (("compression_mode", "aggressive"), ("compression_algorithm", "zstd"))
    assert made.pools == (
        RunPool("data", ec=(4, 2), pg_num=4096, device_class="hdd", profile=(("plugin", "isa"), ("w", "8")),
                application="own"),
        RunPool("index", replicas=3, target_ratio=0.1, bulk=True, rule="ssd-only", application="rbd"),
        RunPool("default.rgw.log", existing=True, options=options),
    )
    assert [pool.name("r1") for pool in made.pools] == ["cbtp-r1-data", "cbtp-r1-index", "default.rgw.log"]
    words = "EC 4+2, pg_num 4096, device_class hdd, plugin isa, w 8, application own"
    assert ", ".join(pool_words(made.pools[0])) == words
    said = {change.what: change.undo for change in changes(made, {})}
    assert said[f"pool cbtp-<run id>-data: made: {words}"].startswith("removed with its data")
    about = "compression_mode aggressive, compression_algorithm zstd"
    assert said[f"existing pool default.rgw.log: {about}"].startswith("the value before")
    lock = "config-key cbt-plugins/run/... on the cluster: names the run that has the cluster"
    kept = "removed at the end of the whole run; after a run that is broken off by `cbt-tools undo ARCHIVE`"
    assert said[lock] == kept
    without_pools = {change.what: change.undo for change in changes(plan({}), {})}
    assert without_pools[lock] == "removed at the end; after a kill -9 by `cbt-tools undo ARCHIVE`"
    deleting = "configuration: mon mon_allow_pool_delete = true, while these are removed"
    assert said[deleting] == "the value before"
    assert unchanged([made]) == "other pool, user, flag, other setting or daemon"
    assert "pools index: the autoscaler may split their PGs while phases run: give pg_num" in warnings(made, ["c1"])


def test_what_rgw_is_given() -> None:
    pools = {"data": {"ec": "2+1", "pg_num": 8}, "index": {"replicas": 3, "pg_num": 8}}
    placement = {"data": "data", "index": "index", "extra": "index"}
    made = plan(pools, {"placement": placement, "threads": 512, "index_shards": 11})
    assert made.rgw == Gateways(placement, index_shards=11, threads=512, make_user=True)
    said = {change.what: change.undo for change in changes(made, {})}
    target = "zone: placement target cbtp-<run id> on pools data data, index index, extra index"
    assert said[target].startswith("removed at the end of the whole run")
    assert said["gateways: restarted, one after the other"].startswith("restarted again")
    assert said["RGW user u: made"].startswith("removed with its buckets")
    assert "configuration: client rgw_thread_pool_size = 512" in said
    assert unchanged([made]) == "other pool, other user, flag, other setting or other daemon"
    alone = plan({}, {"make_user": True})
    assert not alone.rgw.restarts and unchanged([alone]) == "pool, other user, flag, setting or daemon"
    assert plan({}).rgw == Gateways()


RGW = [
    ("{placement: {data: ec, index: §ec, extra: rep}}", ".placement.index: ec is erasure coded, and index needs"),
    ("{placement: {data: ec, index: rep, extra: §ec}}", ".placement.extra: ec is erasure coded, and extra needs"),
    ("{placement: §{data: ec, index: rep}}", ".placement: data is erasure coded: give extra: a pool with replicas"),
    ("{placement: {data: §rip, index: rep}}", ".placement.data: no pool 'rip' under pools:; did you mean 'rep'?"),
    ("{placement: {data: rep, index: §other}}", ".placement.index: other must be a pool that the run makes"),
    ("{placement: {data: rep, index: §log}}", ".placement.index: log must be a pool that the run makes"),
    ("{placement: {data: rep, index: rep}, make_user: §false}", ".make_user: placement is for a user that the run"),
    ("{index_shards: §0}", ".index_shards: must be at least 1"),
    ("{threads: §1.5}", ".threads: must be a whole number"),
    ("{make_user: §1}", ".make_user: must be true or false"),
    ("{§thread: 5}", ".thread: unknown key; did you mean 'threads'?"),
]


@pytest.mark.parametrize(("rgw", "message"), RGW)
def test_errors_of_rgw(tmp_path: Path, rgw: str, message: str) -> None:
    pools = "{ec: {ec: 2+1}, rep: {replicas: 3}, other: {replicas: 3, application: x}, log: {existing: true, bulk: on}}"
    text, (place,) = marked(CLUSTER + WARP + CYCLE + f"    pools: {pools}\n    rgw: {rgw}\n")
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.warp.rgw{message}"), found


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("    keep_data: true\n    rgw: {§make_user: true}\n", "rgw.make_user: the user is removed with its buckets"),
        ("    keep_data: true\n    pools: {a: {replicas: 3}}\n    rgw: {placement: {data: a, index: a}}\n", None),
    ],
)
def test_what_rgw_is_not_given(tmp_path: Path, keys: str, message: Optional[str]) -> None:
    """What goes at the end of the run cannot keep its data."""
    (found,) = errors_in(tmp_path, marked(CLUSTER + WARP + CYCLE + keys)[0])
    assert (message or "rgw.placement: its pools are removed at the end") in found


ERRORS = [
    ("§{pg_num: 8}", ": needs one of replicas, ec, existing"),
    ("§{replicas: 3, ec: 2+1}", ": replicas and ec exclude each other: keep one"),
    ("{replicas: §0}", ".replicas: must be at least 1"),
    ("{replicas: §11}", ".replicas: must be at most 10"),
    ("{ec: §4}", ".ec: must be an erasure code such as 4+2"),
    ("{ec: §1+2}", ".ec: 1+2: an erasure code has 2 data chunks or more; write 3"),
    ("{ec: §4+0}", ".ec: 4+0: an erasure code has 1 coding chunk or more"),
    ("{ec: 2+1, pg_num: §65537}", ".pg_num: must be at most 65536"),
    ("{ec: 2+1, pg_num: 8, §bulk: true}", ".bulk: is for the autoscaler, which pg_num switches off: keep one"),
    ("{ec: 2+1, target_ratio: §0}", ".target_ratio: must be more than 0"),
    ("{ec: 2+1, rule: x, §root: y}", ".root: is set by rule already: keep one of the two keys"),
    ("{ec: 2+1, rule: §'x y'}", ".rule: must be a name of letters"),
    ("{ec: 2+1, device_class: §$(id)}", ".device_class: must be a name of letters"),
    ("{replicas: 2, §profile: {plugin: isa}}", ".profile: goes with ec"),
    ("{ec: 2+1, profile: {§k: 3}}", ".profile.k: is set by another key of the pool"),
    ("{ec: 2+1, profile: {§crush-root: x}}", ".profile.crush-root: is set by another key of the pool"),
    ("{ec: 2+1, profile: {plugin: §true}}", ".profile.plugin: must be text or a whole number"),
    ("{ec: 2+1, compression: {mode: §hard}}", ".compression.mode: must be none or passive or aggressive or"),
    ("§{existing: true}", ": existing: and nothing to change: leave the pool out"),
    ("{existing: true, bulk: true, §device_class: hdd}", ".device_class: is for a pool that the run makes"),
    ("{existing: §false}", ".existing: must be true"),
    ("{replicas: 3, §pgnum: 8}", ".pgnum: unknown key; did you mean 'pg_num'?"),
]


def test_errors_of_pools(tmp_path: Path) -> None:
    """All are found at once."""
    lines = "".join(f"      p{n}: {pool}\n" for n, (pool, _) in enumerate(ERRORS))
    text, places = marked(CLUSTER + WARP + CYCLE + "    pools:\n" + lines)
    found = errors_in(tmp_path, text)
    assert len(found) == len(ERRORS), found
    for n, (place, (_, message)) in enumerate(zip(places, ERRORS)):
        assert any(line.startswith(f"{place}benchmarks.warp.pools.p{n}{message}") for line in found), (message, found)


def test_errors_of_names(tmp_path: Path) -> None:
    pools = "{§'a;b': {replicas: 3}, §Data: {replicas: 3}, §'-x y': {existing: true, bulk: true}}"
    text, places = marked(CLUSTER + WARP + CYCLE + f"    pools: {pools}\n")
    found = errors_in(tmp_path, text)
    names = "a name is made of up to 40 of a-z, 0-9 and -: the pool is cbtp-<run id>-<name>"
    said = [f"a;b: 'a;b': {names}", f"Data: 'Data': {names}", "-x y: not the name of a pool: '-x y'"]
    assert found == [f"{place}benchmarks.warp.pools.{text}" for place, text in zip(places, said)]
