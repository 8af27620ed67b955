"""A plan's phases as orders for cbt-load."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from config_files import CLUSTER

from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.load.cbt_load import CbtLoadJobs
from cbt_plugins.load.generator import LoadJob, LoadStart, Memory
from cbt_plugins.plan import S3, Bucket, CbtLoad, Driver, Goal, Keys, Phase, Plan, Work

NOTHING = Memory()
MIX = {"GET": 60.0, "LIST": 10.0, "PUT": 16.0, "DELETE": 14.0}
SIZES = ((1000, 1000, 0.5), (2000, 4000, 0.5))
FILL = Phase("fill", "fill", "fill", goal=Goal(objects=11), engine="cbt-load")


def plan(*phases: Phase, existing: bool = False, drivers: int = 2, across: bool = False, **keys: Any) -> Plan:
    buckets = (Bucket("a", SIZES, existing=existing), Bucket("b", SIZES, existing=existing))
    names = tuple(b.key for b in buckets)
    made = (Driver(f"0{i}", f"c{i}", names if across else names[:1], 8) for i in range(1, drivers + 1))
    return Plan("warp", S3(urls=("http://r1", "http://r2")), buckets, tuple(made), phases, **keys)


def jobs(plan: Plan, phase: Phase, memory: Memory = NOTHING, **keys: Any) -> List[LoadJob]:
    names = {b.key: b.key if b.existing else f"cbtp-1-{b.key}" for b in plan.buckets}
    return CbtLoadJobs(plan, names, "1").jobs(phase, LoadStart(memory=memory, **keys))


def specs(plan: Plan, phase: Phase, memory: Memory = NOTHING, **keys: Any) -> List[Dict[str, Any]]:
    return [dict(job.spec or {}) for job in jobs(plan, phase, memory, **keys)]


def test_a_fill_writes_exactly_so_many_objects_into_each_bucket() -> None:
    for across in (False, True):
        made = specs(plan(FILL, across=across), FILL)
        assert [spec["objects"] for spec in made] == [6, 5]
        assert all(spec["sets_n"] and "duration" not in spec for spec in made)
    assert [s["name"] for s in made[0]["spaces"]] == made[0]["ops"][0]["spaces"] == ["a", "b"]


def test_drivers_write_apart_and_differ_in_their_seed() -> None:
    one, two = specs(plan(FILL), FILL)
    assert one["spaces"][0]["prefix"] != two["spaces"][0]["prefix"]
    assert one["seed"] != two["seed"]
    assert one["spaces"][0]["sizes"] == [[1000, 1000, 0.5], [2000, 4000, 0.5]]


def test_any_seed_of_the_file_is_one_of_cbt_load() -> None:
    for seed in (0, 1_795_869_579_472_123_000, (1 << 63) - 1):
        seeds = [spec["seed"] for spec in specs(plan(FILL, cbt_load=CbtLoad(seed=seed)), FILL)]
        assert len({*seeds}) == 2 and all(0 <= number < 1 << 63 for number in seeds)


def test_a_mix_takes_its_objects_by_range_and_role() -> None:
    ranges = {"PUT": Keys("s(N+1,10N)"), "DELETE": Keys("u(1,2N)", absent=True)}
    times = {"duration": 60.0, "ramp": 5.0, "warmup": 10.0}
    mix = Phase("m", "hybrid", mix=MIX, engine="cbt-load", keys=ranges, roles={"PUT": ("b",)}, **times)
    (spec, _) = specs(plan(FILL, mix, across=True), mix)
    ops = {op["op"]: op for op in spec["ops"]}
    assert {name: op["share"] for name, op in ops.items()} == MIX
    assert (ops["GET"]["select"], ops["GET"]["spaces"]) == ("live", ["a", "b"])
    assert (ops["PUT"]["select"], ops["PUT"]["spaces"]) == ("s(N+1,10N)", ["b"])
    assert ops["DELETE"]["absent"] and "absent" not in ops["PUT"]
    assert (spec["duration"], spec["ramp"]) == (75.0, 5.0)


def test_the_rate_is_shared_among_the_drivers() -> None:
    mix = Phase("m", "hybrid", duration=60.0, mix=MIX, engine="cbt-load", arrivals="even")
    made = jobs(plan(FILL, mix), mix, rate=100.0)
    assert [job.rate_limit for job in made] == [50.0, 50.0]
    assert all(job.spec and (job.spec["rate"], job.spec["arrivals"]) == (50.0, "even") for job in made)
    assert [job.rate_limit for job in jobs(plan(FILL, mix), mix)] == [0.0, 0.0]


def test_each_driver_has_one_endpoint_of_a_mesh() -> None:
    mix = Phase("m", "hybrid", duration=60.0, mix=MIX, engine="cbt-load")
    pairs = plan(FILL, mix)
    urls = ("http://r1", "http://r2", "http://r3")
    pairs = replace(pairs, s3=replace(pairs.s3, urls=urls, host_select="one"))
    assert [job.urls for job in jobs(pairs, mix)] == [("http://r1",), ("http://r2",)]
    mesh = replace(pairs, drivers=tuple(Driver(f"{i}", f"c{i % 2}", ("a",), 8) for i in range(6)))
    made = jobs(mesh, mix)
    assert {(job.node, *job.urls) for job in made} == {(node, url) for node in ("c0", "c1") for url in urls}
    assert all(job.spec and tuple(job.spec["hosts"]) == job.urls for job in made)
    assert {job.spec["host_select"] for job in made if job.spec} == {"weighed"}


def test_what_a_driver_knows_of_its_objects_goes_with_it() -> None:
    mix = Phase("m", "hybrid", duration=60.0, mix=MIX, engine="cbt-load")
    one, two = jobs(plan(FILL, mix), mix, Memory({"01": Path("/a/01.state")}, stale=True))
    assert one.spec and two.spec
    assert one.state == Path("/a/01.state") and one.spec["state_in"].endswith("/spec/01-hybrid.state")
    assert two.state is None and two.spec["state_in"] == ""
    assert two.spec["make_buckets"] and not one.spec["make_buckets"]  # where it has written the bucket is there
    assert one.spec["spaces"][0]["rebuild"] and one.spec["state_out"].endswith("/state/01.state")


@pytest.mark.parametrize(
    ("mix", "kind", "outdated", "no_deletes"),
    [
        ({"GET": 50.0, "DELETE": 50.0}, "hybrid", (), [False, True]),
        ({"GET": 50.0, "PUT": 50.0}, "hybrid", (), [True, True]),
        ({"GET": 50.0, "PUT": 50.0}, "hybrid", ("01",), [False, False]),
        (None, "delete", (), [False, False]),
        (None, "verify", (), [True, True]),
    ],
)
def test_objects_that_a_listing_lacks_are_lost_where_nothing_has_deleted_any(
    mix: Any, kind: str, outdated: Tuple[str, ...], no_deletes: List[bool]
) -> None:
    phase = Phase("m", kind, duration=60.0, mix=mix, roles={"DELETE": ("a",)}, engine="cbt-load")
    memory = Memory({"01": Path("/a/01.state")}, stale=True, outdated=frozenset(outdated))
    (spec,) = specs(plan(FILL, phase, drivers=1, across=True), phase, memory)
    assert [space["no_deletes"] for space in spec["spaces"]] == no_deletes
    (spec,) = specs(plan(FILL, phase, drivers=1, across=True), phase, replace(memory, stale=False))
    assert [space["rebuild"] for space in spec["spaces"]] == [bool(outdated)] * 2
    assert not any("no_deletes" in space for space in spec["spaces"])


def test_data_that_is_not_numbered_is_listed_and_only_read() -> None:
    mix = Phase("m", "hybrid", duration=60.0, mix=MIX, engine="cbt-load")
    by_warp = plan(Phase("fill", "fill", goal=Goal(objects=9)), mix)
    for made, prefix in ((by_warp, "keep/"), (plan(mix, existing=True), "")):
        (spec, _) = specs(made, mix)
        listed = [s for s in spec["spaces"] if not s["numbered"]]
        assert [(s["prefix"], s["exclude"]) for s in listed] == [(prefix, "cbtp-1/")]
        spaces = {op["op"]: op["spaces"] for op in spec["ops"]}
        assert spaces["GET"] == spaces["LIST"] == ["a", "a, listed"]
        assert spaces["PUT"] == spaces["DELETE"] == ["a"]
    (existing, _) = specs(plan(mix, existing=True), mix)
    assert existing["spaces"][0]["prefix"].startswith("cbtp-1/") and not existing["make_buckets"]
    assert specs(by_warp, mix)[0]["make_buckets"]


def test_verify_and_delete_take_every_object_once() -> None:
    for kind, op in (("verify", "GET"), ("delete", "DELETE")):
        phase = Phase(kind, kind, engine="cbt-load")
        (job, _) = jobs(plan(FILL, phase), phase)
        assert job.spec and [(o["op"], o["select"][:4]) for o in job.spec["ops"]] == [(op, "r(1,")]
        assert job.spec["verify"] == (kind == "verify") and job.op == op


def test_options_and_where_it_goes() -> None:
    (spec, _) = specs(plan(FILL, cbt_load=CbtLoad(deadline=7.0, retries=2, compressible=0.5, verify=True)), FILL)
    assert [spec[k] for k in ("deadline", "retries", "compressible", "verify")] == [7.0, 2, 0.5, True]
    assert spec["hosts"] == ["http://r1", "http://r2"] and spec["workers"] == 8


def test_an_order_has_no_secret_and_its_record_has_the_spec() -> None:
    (job, _) = jobs(plan(FILL), FILL)
    assert job.record()["spec"] == job.spec and "state" not in job.record()
    assert job.argv[:2] == ("{cbt-load}", "run")


def test_encryption_and_versions_are_told_and_the_key_is_in_the_environment_only() -> None:
    made = plan(FILL, versioned=True)
    made = replace(made, s3=replace(made.s3, sse="kms:a:b"))
    (first, _) = specs(made, FILL)
    assert (first["encryption"], first["kms_key"], first["versioned"]) == ("kms", "a:b", True)
    (first, _) = specs(made, FILL, Memory({"01-a": Path("/s"), "01": Path("/s")}))
    assert first["versioned"] and not first["make_buckets"]
    keys = S3Keys("access", "secret")
    key = keys.environment(sse="c")["CBT_LOAD_SSE_KEY"]
    assert len(base64.b64decode(key)) == 32 and key == keys.environment(sse="c")["CBT_LOAD_SSE_KEY"]
    assert key not in S3Keys("access", "other").environment(sse="c").values()
    assert "CBT_LOAD_SSE_KEY" not in keys.environment()


def test_what_cbt_load_would_refuse_is_refused_by_the_plan() -> None:
    slow = Phase("m", "hybrid", rate=4e-6, engine="cbt-load")
    works = Phase("w", "hybrid", works=(Work("a", 1, MIX, rate=3e-6), Work("b", 1, MIX)), engine="cbt-load")
    assert not [*CbtLoadJobs.refused(plan(slow, works, drivers=3))]
    errors = [*CbtLoadJobs.refused(plan(replace(slow, rate=3.9e-6), works, drivers=4))]
    assert [error.path for error in errors] == [("phases", "m", "rate"), ("phases", "w", "works", "a", "rate")]
    assert errors[0].text == "9.75e-07/s for a driver: cbt-load takes 0.000001/s to 10000000/s; change the rate"
    for existing, most in ((False, 10_000), (True, 5_000)):
        buckets = tuple(Bucket(f"a-{i}", SIZES, existing=existing) for i in range(most + 1))
        drivers = tuple(Driver(f"0{i}", "c", tuple(b.key for b in buckets[i:]), 8) for i in (0, 1))
        large = Plan("warp", S3(urls=("http://r1",)), buckets, drivers, (FILL,))
        (error,) = CbtLoadJobs.refused(large)
        assert error.path == ("buckets",) and f"{most + 1} buckets" in error.text
        assert not [*CbtLoadJobs.refused(replace(large, drivers=drivers[1:]))]


@pytest.mark.parametrize(
    ("s3", "more", "message"),
    [
        ("sse: c", "engine: cbt-load", "c goes with https URLs"),
        ("sse: x", "engine: cbt-load", "must be c, s3, or kms:"),
        ("sse: s3", "engine: warp", "goes with engine: cbt-load, but these phases have another engine: fill"),
        ("host_select: one", "versioned: true", "versioned: goes with engine: cbt-load, but these phases have another"),
    ],
)
def test_what_encryption_and_versions_need(tmp_path: Path, s3: str, more: str, message: str) -> None:
    section = f"benchmarks:\n  warp:\n    s3: {{urls: ['http://rgw1:7480'], user: cbt, {s3}}}\n    {more}\n"
    (tmp_path / "f.yaml").write_text(CLUSTER + section + "    cycle: {phases: [{fill: {objects: 9}}]}\n")
    with pytest.raises(ConfigError, match=message):
        load_file(tmp_path / "f.yaml")
