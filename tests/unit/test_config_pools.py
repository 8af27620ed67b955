"""`pools:` of a file: what it means, and what is refused, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

from config_files import CLUSTER, CYCLE, WARP, errors_in, marked

from cbt_plugins.config.preview import changes, pool_words, unchanged, warnings
from cbt_plugins.config.sections import plan_of
from cbt_plugins.plan import Plan, RunPool

PHASES = {"phases": [{"fill": {"objects": 5}}]}


def plan(pools: Dict[str, Any]) -> Plan:
    section = {"s3": {"urls": ["http://a"], "user": "u"}, "cycle": PHASES, "pools": pools}
    return plan_of("warp", section, {"clients": ["c1"]}, None)


def test_pools_of_a_plan() -> None:
    compression = {"mode": "aggressive", "algorithm": "zstd"}
    made = plan(
        {
            "data": {"ec": "4+2", "pg_num": 4096, "device_class": "hdd", "profile": {"plugin": "isa", "w": 8}},
            "index": {"replicas": 3, "target_ratio": 0.1, "bulk": True, "rule": "ssd-only", "application": "rbd"},
            "default.rgw.log": {"existing": True, "compression": compression},
        }
    )
    options = (("compression_mode", "aggressive"), ("compression_algorithm", "zstd"))
    assert made.pools == (
        RunPool("data", ec=(4, 2), pg_num=4096, device_class="hdd", profile=(("plugin", "isa"), ("w", "8"))),
        RunPool("index", replicas=3, target_ratio=0.1, bulk=True, rule="ssd-only", application="rbd"),
        RunPool("default.rgw.log", existing=True, options=options),
    )
    assert [pool.name("r1") for pool in made.pools] == ["cbtp-r1-data", "cbtp-r1-index", "default.rgw.log"]
    words = "EC 4+2, pg_num 4096, device_class hdd, plugin isa, w 8, application rgw"
    assert ", ".join(pool_words(made.pools[0])) == words
    said = {change.what: change.undo for change in changes(made, {})}
    assert said[f"pool cbtp-<run id>-data: made: {words}"].startswith("removed with all that is in it")
    about = "compression_mode aggressive, compression_algorithm zstd"
    assert said[f"existing pool default.rgw.log: {about}"].startswith("what it was before")
    assert unchanged([made]) == "other pool, user, flag, setting or daemon"
    assert "pools index: the autoscaler may split their PGs while phases run: give pg_num" in warnings(made, ["c1"])


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
    ("{ec: 2+1, rule: x, §root: y}", ".root: is said by rule already: keep one"),
    ("{ec: 2+1, rule: §'x y'}", ".rule: must be a name of letters"),
    ("{ec: 2+1, device_class: §$(id)}", ".device_class: must be a name of letters"),
    ("{replicas: 2, §profile: {plugin: isa}}", ".profile: goes with ec"),
    ("{ec: 2+1, profile: {§k: 3}}", ".profile.k: is said by another key of the pool"),
    ("{ec: 2+1, profile: {§crush-root: x}}", ".profile.crush-root: is said by another key of the pool"),
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
