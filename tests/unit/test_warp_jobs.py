"""Command lines for warp."""

from __future__ import annotations

from dataclasses import replace
from typing import List

import pytest

from cbt_plugins.config.plan_preview import forecast
from cbt_plugins.load.cbt_load import CbtLoadJobs
from cbt_plugins.load.generator import LoadJob, LoadStart
from cbt_plugins.load.warp import WarpJobs, drop_share, object_size
from cbt_plugins.load.worker_groups import by_share
from cbt_plugins.plan import S3, Bucket, Driver, Event, Goal, Phase, Plan, Upgrade, WarpOp

MIX = {"GET": 45.0, "PUT": 35.0, "STAT": 15.0, "DELETE": 5.0}
HYBRID = Phase(name="measure", kind="hybrid", role="measure", duration=60.0, mix=MIX)


def plan(*phases: Phase, existing: bool = False, **s3: object) -> Plan:
    return Plan(
        benchmark="warp",
        s3=S3(urls=("http://rgw1:7480", "http://rgw2:7480"), user="cbt", **s3),  # type: ignore[arg-type]
        buckets=(Bucket("4KiB", ((4096, 4096, 1.0),), existing=existing),),
        drivers=(Driver("01-4KiB", "client1", ("4KiB",), 8), Driver("02-4KiB", "client2", ("4KiB",), 8)),
        phases=phases,
    )


def option(job: LoadJob, name: str) -> str:
    return job.argv[job.argv.index(name) + 1]


def all_jobs(p: Plan) -> List[LoadJob]:
    made = WarpJobs(p, {"4KiB": "cbtp-1-4kib"}, "1")
    jobs: List[LoadJob] = []
    start = LoadStart(worker_groups={d.id: by_share(MIX, d.workers) for d in p.drivers})
    for phase in p.phases:
        jobs += made.jobs(phase, start)
    return jobs


FILL = Phase(name="fill", kind="fill", role="fill", goal=Goal(objects=1000))
MIXED = Phase(name="plain", kind="warp", duration=9.0, mix=MIX, warp=WarpOp("mixed", objects=1001))


def test_one_endpoint_for_each_driver() -> None:
    hosts = {(job.node, option(job, "--host"), option(job, "--host-select")) for job in all_jobs(
        plan(FILL, HYBRID, host_select="one")
    )}
    assert hosts == {("client1", "rgw1:7480", "weighed"), ("client2", "rgw2:7480", "weighed")}


def test_no_command_may_empty_a_bucket() -> None:
    """warp empties its bucket before and after unless told; `stat --list-existing` even then but for --noclear."""
    for job in all_jobs(plan(FILL, HYBRID, MIXED)):
        assert "--noclear" in job.argv, job.id


def test_no_secret_and_no_result_in_memory() -> None:
    for job in all_jobs(plan(FILL, HYBRID, MIXED)):
        assert not [a for a in job.argv if "key" in a]
        assert {"--full", "--stress", "--stdout"} <= set(job.argv)


def test_a_fill_by_objects_writes_that_number_in_all() -> None:
    jobs = [j for j in all_jobs(plan(FILL, HYBRID)) if j.role == "fill"]
    assert sum(int(option(j, "--objects")) for j in jobs) == 1000
    assert {j.argv[1] for j in jobs} == {"stat"}  # its preparation writes a number of objects


def test_a_fill_of_few_objects_writes_one_for_each_worker_and_the_plan_says_so() -> None:
    few = replace(FILL, goal=Goal(objects=10))
    made = plan(few, HYBRID)
    written = sum(int(option(j, "--objects")) for j in all_jobs(made) if j.role == "fill")
    assert written == forecast(made).objects == 16, "8 workers of two drivers"
    assert forecast(plan(FILL, HYBRID)).objects == 1000


def test_what_is_deleted_is_never_read() -> None:
    jobs = all_jobs(plan(FILL, HYBRID))
    deleted = {option(j, "--prefix") for j in jobs if j.op == "DELETE"}
    read = {option(j, "--prefix") for j in jobs if j.role in ("read", "stat")}
    assert read == {"keep"}
    assert deleted == {"drop/01-4KiB", "drop/02-4KiB"}  # two on one prefix would delete the same objects
    written = {option(j, "--prefix") for j in jobs if j.op == "PUT"}
    assert all(p.startswith(("keep/", "drop/")) for p in written)


def test_without_deletes_everything_is_kept() -> None:
    reads = Phase(name="m", kind="hybrid", duration=5.0, mix={"GET": 50.0, "PUT": 50.0})
    assert drop_share(plan(FILL, reads)) == 0
    assert drop_share(plan(FILL, HYBRID)) == pytest.approx(5 / 40)


def test_what_cbt_load_deletes_is_none_of_warps_fill() -> None:
    """It deletes what it wrote itself, and reads what is under keep/ only."""
    assert drop_share(plan(FILL, replace(HYBRID, engine="cbt-load"))) == 0
    assert drop_share(plan(FILL, replace(HYBRID, engine="cbt-load"), HYBRID)) == pytest.approx(5 / 40)


def test_a_short_fill_gives_more_to_delete() -> None:
    fill = Phase(name="fill", kind="fill", goal=Goal(duration=20.0))
    assert drop_share(plan(fill, HYBRID)) == pytest.approx(3 * 0.05 * 60 / 20)
    hours = Phase(name="fill", kind="fill", goal=Goal(duration=14400.0))
    assert drop_share(plan(hours, HYBRID)) == pytest.approx(5 / 40)
    seconds = Phase(name="fill", kind="fill", goal=Goal(duration=1.0))
    assert drop_share(plan(seconds, HYBRID)) == 0.5


def test_existing_data_is_read_whole_and_written_only_under_our_prefix() -> None:
    for job in all_jobs(plan(FILL, HYBRID, existing=True)):
        if job.role in ("read", "stat"):
            assert "--prefix" not in job.argv
        else:
            assert option(job, "--prefix").startswith("cbtp-1/")


def test_exact_sizes() -> None:
    assert object_size(((4096, 4096, 1.0),)) == "4096"
    # measured with warp 1.3.1: only 4096 and 65536 bytes, 50:30
    assert object_size(((65536, 65536, 0.375), (4096, 4096, 0.625))) == "4096:0,4097:6250,65536:0,65537:3750"
    assert object_size(((10, 10, 0.5), (11, 11, 0.5))) == "10:0,11:5000,12:5000"


def test_objects_that_mixed_prepares_are_rounded_up_to_its_workers() -> None:
    job = next(j for j in all_jobs(plan(MIXED)) if j.role == "warp")
    assert job.prepared == 1008
    assert option(job, "--put-distrib") == "35"


def test_tls_and_unsigned_payload() -> None:
    p = plan(HYBRID, payload="unsigned", verify_tls=False)
    p = Plan(**{**p.__dict__, "s3": S3(urls=("https://rgw1",), verify_tls=False, payload="unsigned")})
    for job in all_jobs(p):
        assert {"--tls", "--insecure", "--disable-sha256-payload"} <= set(job.argv)
        assert option(job, "--host") == "rgw1"


@pytest.mark.parametrize(
    ("release", "payload"),
    [("16.2.15 (a) pacific", "signed"), ("18.2.7 (a) reef", "signed"), ("20.2.4 (a) tentacle", "unsigned")],
)
def test_releases_that_refuse_its_signatures_get_unsigned_payloads(release: str, payload: str) -> None:
    """Of the RGWs, which may be newer than the monitors."""
    version, old = f"ceph version {release} (stable)", "ceph version 16.2.15 (a) pacific (stable)"
    for versions in ({"rgw": {version: 2}, "mon": {old: 3}}, {"overall": {old: 3, version: 2}}):
        assert WarpJobs.payload(plan(FILL), versions) == payload
        assert CbtLoadJobs.payload(plan(FILL), versions) == "signed"
    assert WarpJobs.payload(plan(FILL, payload="unsigned"), {}) == "unsigned"
    assert ("--disable-sha256-payload" in all_jobs(plan(FILL, payload=payload))[0].argv) == (payload == "unsigned")


@pytest.mark.parametrize(("to", "payload"), [("18.2", "signed"), ("20", "unsigned"), ("20.2.4", "unsigned")])
def test_the_payload_is_that_of_the_release_after_an_upgrade(to: str, payload: str) -> None:
    """It stays the same in the whole run, also in an invocation after the upgrade."""
    upgraded = replace(HYBRID, events=(Event(5.0, upgrade=Upgrade("u", to, command="true")),))
    versions = {"overall": {"ceph version 16.2.15 (a) pacific (stable)": 3}}
    assert WarpJobs.payload(plan(upgraded), versions) == payload
