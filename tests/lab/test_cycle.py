"""Whole cycles on the real cluster, through pdsh and ssh."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any, Dict

import jsonschema
import pytest
import yaml
from cycles import S3, Cycle, buckets_of, generators, hang, objects
from request_rows import rows_of
from running_lab import PROJECT, RunningLab
from waiting import busy, wait_for

pytestmark = pytest.mark.lab

RGWTEST: Dict[str, Any] = {
    "s3": S3,
    "engine": "warp",
    "keep_rows": True,
    "objects": {"sizes": ["4KiB", "64KiB"]},
    "workers": 4,
    "fill": {"objects": 200},
    "measure": {"duration": "5s"},
    "age": {"duration": "4s"},
}
READS = {"get": 60, "stat": 40}
COLLECTL = {"collectl": {"args": "-sCD -i 1 -P -oz -F0 -f {collectl_dir}"}}


@pytest.fixture(scope="module")
def cycle(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Cycle:
    """One RGWtest cycle, killed in its first measurement and resumed: what the tests of this file look at.

    An uninterrupted one is in test_through_cbt.py.
    """
    made = Cycle(lab, tmp_path_factory.mktemp("rgwtest"), COLLECTL, rgwtest=RGWTEST)
    status = made.broken_off(lambda: made.running_rows("measure-new") > 10 and _puts(made), "PUTs in measure-new")
    assert status != 0
    made.seen = made.running_rows("measure-new")
    wait_for(lambda: generators(lab) == [], "the generators to end", 30)
    done = made.run()
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def _puts(cycle: Cycle) -> int:
    """PUTs of measure-new: they begin at the go, and readers may begin before it."""
    return sum(rows for job, rows in cycle.job_rows("measure-new").items() if "-put-" in job)


def test_all_phases_are_there_and_whole(cycle: Cycle) -> None:
    phases = cycle.phases()
    assert list(phases) == ["fill", "calibrate", "measure-new", "age", "measure-aged"]
    assert {p["status"] for p in phases.values()} == {"ok"}
    assert (cycle.folder / "complete").exists()


def test_the_aged_data_is_what_is_measured(cycle: Cycle) -> None:
    """STAT rows name their objects: all of them were written by the fill or by an earlier phase."""
    phases = cycle.phases()
    folder = next(cycle.folder.glob("phases/*-measure-aged"))
    for job in phases["measure-aged"]["jobs"]:
        if job["op"] == "STAT":
            names = {row["file"] for row in rows_of(folder / job["rows"])}
            assert names and all(n.startswith("keep/") for n in names)
            assert {n.split("/")[2] for n in names} >= {"fill", "age"}
        if job["op"] in ("GET", "STAT"):
            assert "--list-existing" in job["argv"] and "--noclear" in job["argv"]
            assert job["errors_total"] == 0


def test_every_object_has_the_size_of_its_bucket(cycle: Cycle) -> None:
    folder = next(cycle.folder.glob("phases/*-fill"))
    for job in cycle.phases()["fill"]["jobs"]:
        (size,) = [s for s, _, _ in job["sizes"]]
        assert {int(r["bytes"]) for r in rows_of(folder / job["rows"]) if r["op"] == "PUT"} == {size}


def test_the_accounting_balances_against_the_buckets(cycle: Cycle) -> None:
    before = 0
    for name, phase in cycle.phases().items():
        for count in phase["accounting"]:
            assert count["ok"], count
            assert abs(count["after"] - count["before"] - count["put"] + count["delete"]) <= count["in_flight"]
        total = sum(b["before"] for b in phase["accounting"])
        # what the attempt that was killed has written is there, too
        assert total == before or name == "measure-new", name
        before = sum(b["after"] for b in phase["accounting"])
    assert 400 <= sum(b["after"] for b in cycle.phases()["fill"]["accounting"]) <= 400 + 2 * 2 * 4


def test_rows_counts_and_summary_agree(cycle: Cycle) -> None:
    summary = {p["name"]: p for p in cycle.summary()["phases"]}
    for name, phase in cycle.phases().items():
        folder = next(cycle.folder.glob(f"phases/[0-9][0-9]-{name}"))
        for job in phase["jobs"]:
            assert len(rows_of(folder / job["rows"])) == job["rows_total"], job["id"]
    asked, measured = summary["measure-new"]["mix"]["asked"], summary["measure-new"]["mix"]["measured"]
    assert asked == {"GET": 45, "PUT": 35, "STAT": 15, "DELETE": 5}
    assert sum(measured.values()) == pytest.approx(100, abs=0.1) and set(measured) == set(asked)


def test_summary_fits_its_schema_and_the_report_is_there(cycle: Cycle) -> None:
    schema = json.loads((PROJECT / "cbt_plugins/results/summary.schema.json").read_text())
    jsonschema.validate(cycle.summary(), schema)
    page = (cycle.folder / "report.html").read_text()
    assert "measure-aged" in page and "<script src=" not in page


def test_what_describes_the_cluster_is_in_the_archive(cycle: Cycle) -> None:
    manifest = json.loads((cycle.folder / "manifest.json").read_text())
    assert "1.3.1" in manifest["warp"]
    assert manifest["ceph"]["overall"]
    assert set(manifest["clock_offsets"]) == set(manifest["nodes"]) >= {"node0", "node4", "rgw2", "client1"}
    assert all(facts["kernel"] for facts in manifest["nodes"].values())
    for when in ("before", "after"):
        found = {p.name for p in (cycle.folder / "cluster" / when).iterdir()}
        assert {"ceph.conf", "config_dump.json", "pools.json", "versions.json", "osd_tree.json"} <= found
    assert (cycle.folder / "plan.json").exists() and (cycle.folder / "config.yaml").exists()


def test_collectl_ran_beside_it_and_its_files_arrived(cycle: Cycle) -> None:
    for begun in ("01", "02"):  # the invocation that was killed, and the one that resumed
        for node in ("node1", "rgw1", "client1"):
            files = [p for p in (cycle.folder / "monitors" / begun / f"collectl.{node}").iterdir() if p.stat().st_size]
            assert files, (begun, node)


def test_no_secret_is_in_archive_or_log(cycle: Cycle) -> None:
    keys = json.loads((cycle.lab.dir / "s3.json").read_text())
    secrets = [keys["access_key"].encode(), keys["secret_key"].encode()]
    for path in [*cycle.archive.rglob("*"), cycle.log]:
        if path.is_file():
            data = path.read_bytes()
            if path.name.endswith(".csv.zst"):
                data = json.dumps(rows_of(path)).encode()
            assert not [s for s in secrets if s in data], path


def test_nothing_is_left_on_the_cluster(cycle: Cycle) -> None:
    assert buckets_of(cycle) == []
    assert generators(cycle.lab) == []
    (its,) = (path.name.replace("id-", "") for path in cycle.archive.glob("results/*/id-*"))
    other = re.compile(rf"/var/tmp/cbt/\d{{8}}/\w+-(?!{its})[0-9a-f]{{8}}/")  # a run that another test killed there
    for node in ("client1", "node0", "node1"):
        left = cycle.lab.exec(node, ["find", "/var/tmp/cbt", "-type", "f"]).stdout.splitlines()
        assert [path for path in left if not other.match(path)] == [], node


def test_again_does_nothing(cycle: Cycle) -> None:
    before = len(cycle.journal())
    done = cycle.run()
    assert done.returncode == 0 and "nothing to do" in done.stderr
    assert len(cycle.journal()) == before


def test_kill_9_and_resume(cycle: Cycle) -> None:
    """What is done is not done again, what was broken off is kept aside and redone, and the load dies with its run."""
    begun = [r["phase"] for r in cycle.journal() if r["event"] == "phase-begun"]
    assert begun == ["fill", "calibrate", "measure-new", "measure-new", "age", "measure-aged"]
    partial = next(cycle.folder.glob("phases/*-measure-new.partial-1"))
    kept = sum(len(rows_of(path)) for path in (partial / "rows").glob("*.csv.zst"))
    assert kept >= cycle.seen > 10
    assert not (partial / "phase.json").exists()
    assert [w["code"] for w in cycle.phases()["measure-new"]["warnings"]].count("repeated") == 1


@pytest.mark.long  # tests/crash ends a fill, too
def test_a_fill_that_was_killed_starts_from_an_empty_bucket(lab: RunningLab, tmp_path: Path) -> None:
    cycle = Cycle(
        lab,
        tmp_path,
        warp={"s3": S3, "workers": 4, "cycle": {"phases": [{"fill": {"duration": "6s"}}]}},
    )
    assert cycle.broken_off(lambda: cycle.running_rows("fill") > 20, "requests in fill", signal.SIGTERM) == 130
    assert generators(lab) == []
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    (count,) = cycle.phases()["fill"]["accounting"]
    assert count["before"] == 0 and count["ok"]


@pytest.mark.long  # tests/crash has somebody else's bucket in every cycle
def test_existing_data_stays_as_it_was(lab: RunningLab, tmp_path: Path) -> None:
    maker = Cycle(
        lab,
        tmp_path,
        warp={"s3": S3, "workers": 4, "keep_data": True, "cycle": {"phases": [{"fill": {"objects": 40}}]}},
    )
    assert maker.run().returncode == 0
    (bucket,) = {j["bucket"] for j in maker.phases()["fill"]["jobs"]}
    count = objects(lab, bucket)
    assert count
    (tmp_path / "reader").mkdir()
    reader = Cycle(
        lab,
        tmp_path / "reader",
        warp={
            "s3": S3,
            "workers": 4,
            "buckets": {"names": [bucket], "existing": True},
            "cycle": {"phases": [{"hybrid": {"duration": "2s", "mix": READS, "workers": {"get": 1, "stat": 1}}}]},
        },
    )
    done = reader.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert objects(lab, bucket) == count
    lab.exec("node0", ["radosgw-admin", "bucket", "rm", f"--bucket={bucket}", "--purge-objects"])


def test_a_full_cluster_stops_the_fill(lab: RunningLab, tmp_path: Path) -> None:
    cycle = Cycle(
        lab,
        tmp_path,
        warp={
            "s3": S3,
            "workers": 2,
            "full_guard": "0.1%",
            "cycle": {"phases": [{"fill": {"duration": "10m"}}]},
        },
    )
    done = cycle.run()
    assert done.returncode == 1
    assert "full_guard" in done.stderr
    assert not (cycle.folder / "complete").exists()
    assert generators(lab) == []


@pytest.mark.long  # test_cbt_load has one that hangs, test_load_session warp's cut
def test_a_phase_ends_on_time_although_an_rgw_hangs(lab: RunningLab, tmp_path: Path) -> None:
    """warp itself would wait 20 minutes for each request: SIGSTOP leaves connections open and silent."""
    cycle = Cycle(
        lab,
        tmp_path,
        warp={
            "s3": S3,
            "workers": 6,
            "cycle": {
                "phases": [
                    {"fill": {"objects": 60}},
                    {
                        "hybrid": {
                            "duration": "8s",
                            "mix": {"get": 45, "put": 35, "stat": 15, "delete": 5},
                            "workers": {"get": 2, "put": 3, "stat": 1, "delete": 1},
                        },
                        "name": "hung",
                    },
                ]
            },
        },
    )
    cycle.start()
    cycle.await_moment(lambda: cycle.running_rows("hung") > 10, "requests in the hybrid phase")
    recover = hang(lab)
    try:
        cycle.ended()
    finally:
        recover()
    phase = cycle.phases()["hung"]
    longest = max(j["ended"] for j in phase["jobs"]) - min(j["started"] for j in phase["jobs"] if j["op"] == "PUT")
    assert longest < 3 + 8 + 10 + (3 + 10) * busy()
    assert any(j["cut"] for j in phase["jobs"] if j["op"] == "PUT")
    assert all(b["ok"] for b in phase["accounting"])


@pytest.mark.long  # the unit tests have the arithmetic, test_fill_goals the goals
def test_exact_sizes_and_a_fill_by_share(lab: RunningLab, tmp_path: Path) -> None:
    """One bucket with two sizes and nothing in between; the fill ends when its share of MAX AVAIL is used."""
    cycle = Cycle(
        lab,
        tmp_path,
        warp={
            "s3": S3,
            "keep_rows": True,
            "workers": 8,
            "size": {"4KiB": "25%", "256KiB": "75%"},
            "cycle": {"phases": [{"fill": {"max_avail": "0.05%"}}]},
        },
    )
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    phase = cycle.phases()["fill"]
    assert phase["status"] == "ok" and all(j["cut"] for j in phase["jobs"])
    (folder,) = cycle.folder.glob("phases/*-fill")
    sizes = [int(row["bytes"]) for job in phase["jobs"] for row in rows_of(folder / job["rows"])]
    assert set(sizes) == {4096, 262144}
    pools = json.loads((cycle.folder / "cluster" / "before" / "df.json").read_text())["pools"]
    free = next(p["stats"]["max_avail"] for p in pools if p["name"] == "default.rgw.buckets.data")
    assert sum(sizes) >= 0.0005 * free
    assert all(b["ok"] for b in phase["accounting"])


def test_a_warp_that_dies_is_seen_and_no_secret_is_in_any_command_line(lab: RunningLab, tmp_path: Path) -> None:
    cycle = Cycle(
        lab,
        tmp_path,
        warp={"s3": S3, "workers": 4, "cycle": {"phases": [{"fill": {"duration": "10m"}}]}},
    )
    cycle.start()
    cycle.await_moment(lambda: cycle.running_rows("fill") > 20, "requests in fill")
    keys = json.loads((lab.dir / "s3.json").read_text())
    lines = [line for line in map(command_line, Path("/proc").glob("[0-9]*")) if line]
    assert any(b"/bin/warp" in line for line in lines)
    for key in (keys["secret_key"], keys["access_key"]):
        assert not [line for line in lines if key.encode() in line]
    (victim,) = lab.exec("client1", ["pgrep", "-x", "warp"]).stdout.split()
    lab.exec("client1", ["kill", "-9", victim])
    assert cycle.ended() == 1
    assert "ended early with" in cycle.log.read_text()
    assert list(cycle.folder.glob("phases/*-fill.partial-1")) and not (cycle.folder / "complete").exists()
    assert generators(lab) == []


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _user(lab: RunningLab, uid: str, quota: bool = False) -> Dict[str, Any]:
    """Make an RGW user, whose PUTs are all refused with a quota; return the section that uses it."""
    commands = [["user", "create", f"--display-name={uid}"]]
    if quota:
        scope = ["--quota-scope=user"]
        commands += [["quota", "set", *scope, "--max-size=1"], ["quota", "enable", *scope]]
    for command in commands:
        done = lab.exec("node0", ["radosgw-admin", *command, f"--uid={uid}"])
        assert done.returncode == 0, done.stderr
    return {**S3, "user": uid}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["cbt-load", "warp"])
def test_a_fill_that_the_cluster_refuses_ends_with_its_words(lab: RunningLab, tmp_path: Path, engine: str) -> None:
    s3 = _user(lab, f"perf$full-{engine}", quota=True)
    phases = [{"fill": {"duration": "20m"}}, {"hybrid": {"duration": "20m"}}]
    cycle = Cycle(lab, tmp_path, warp={"s3": s3, "engine": engine, "workers": 2, "cycle": {"phases": phases}})
    done = cycle.run()
    assert done.returncode == 1
    assert re.search(r"failed: warp.*: fill failed: \S+: all of its first \d+ requests failed: .*[Qq]uota", done.stderr)


@pytest.mark.long  # the test above has a user of a tenant
def test_the_buckets_of_a_tenant(lab: RunningLab, tmp_path: Path) -> None:
    s3 = _user(lab, "perf$cbt")
    cycle = {"phases": [{"fill": {"objects": 50}}, {"hybrid": {"duration": "2s"}}]}
    made = Cycle(lab, tmp_path, warp={"s3": s3, "engine": "cbt-load", "workers": 2, "cycle": cycle})
    done = made.run()
    assert done.returncode == 0, done.stderr
    for phase in made.phases().values():
        assert all(count["ok"] and count["after"] >= 50 for count in phase["accounting"]), phase["accounting"]
    listed = json.loads(lab.exec("node0", ["radosgw-admin", "metadata", "list", "bucket"]).stdout)
    assert listed is not None and not [name for name in listed if made.journal()[0]["run_id"] in name]


@pytest.mark.long  # the Go tests have TLS, test_init_on_lab such a gateway
def test_https_with_an_authority_of_its_own(lab: RunningLab, tmp_path: Path) -> None:
    """Both engines trust what s3.ca_file names; without it the run is refused before anything is touched."""
    if not (lab.lab.dir / "etc" / "ceph" / "rgw-ca.pem").exists():
        pytest.skip("needs openssl: apt-get install openssl")
    s3 = {"urls": ["https://rgw1:7443", "https://rgw2:7443"], "user": "cbt"}
    phases = [{"fill": {"objects": 40}}, {"warp": {"op": "put", "duration": "2s"}}]
    keys = {"engine": "cbt-load", "workers": 2, "cycle": {"phases": phases}}
    (tmp_path / "refused").mkdir()
    refused = Cycle(lab, tmp_path / "refused", warp={"s3": s3, **keys})
    done = refused.run()
    assert done.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in done.stderr and "ca_file" in done.stderr
    assert not list(refused.archive.glob("results/*/id-*/phases/*"))
    made = Cycle(lab, tmp_path, warp={"s3": {**s3, "ca_file": "/etc/ceph/rgw-ca.pem"}, **keys})
    done = made.run()
    assert done.returncode == 0, done.stderr[-3000:]
    for phase in made.phases().values():
        assert sum(job["rows_total"] for job in phase["jobs"]) and not sum(j["errors_total"] for j in phase["jobs"])


@pytest.mark.long  # the Go tests have both without a cluster
def test_versions_and_encryption(lab: RunningLab, tmp_path: Path) -> None:
    """Each overwrite of a versioned bucket is an object more, a DELETE none less; RGW says how it keeps the objects."""
    s3 = {"urls": ["https://rgw1:7443", "https://rgw2:7443"], "user": "cbt", "verify_tls": False, "sse": "c"}
    mix = {"get": 40, "put": 40, "multipart": 5, "delete": 15}
    hybrid = {"duration": "3s", "mix": mix, "keys": {"put": "u(1,2N)", "delete": "u(1,N)"}}
    keys = {"engine": "cbt-load", "workers": 4, "versioned": True, "cbt_load": {"verify": True, "part_size": "5MiB"}}
    cycle = {"phases": [{"fill": {"objects": 30}}, {"hybrid": hybrid}]}
    made = Cycle(lab, tmp_path, warp={"s3": s3, **keys, "keep_data": True, "cycle": cycle})
    done = made.run()
    assert done.returncode == 0, done.stderr[-3000:]
    (count,) = made.phases()["hybrid"]["accounting"]
    (space,) = made.phases()["hybrid"]["jobs"][0]["driver_end"]["spaces"]
    assert space["overwritten"] and space["removed"] and count["ok"] and count["delete"] == 0
    (bucket,) = buckets_of(made)
    stats = json.loads(lab.exec("node0", ["radosgw-admin", "bucket", "stats", f"--bucket={bucket}"]).stdout)
    rados = "rados -p default.rgw.buckets.data"
    one = f"$({rados} ls | grep '^{stats['marker']}_.*_cbt-load/' | grep -v multipart | head -1)"
    mode = lab.exec("node0", ["sh", "-c", f'{rados} getxattr "{one}" user.rgw.crypt.mode'])
    lab.exec("node0", ["radosgw-admin", "bucket", "rm", f"--bucket={bucket}", "--purge-objects"])
    assert mode.stdout.strip("\0\n") == "SSE-C-AES256", mode


def test_a_run_without_ceph_commands(lab: RunningLab, tmp_path: Path) -> None:
    """`admin: none` logs in on clients only, leaves no bucket, and says what is not known."""
    (key,) = json.loads(lab.exec("node0", ["radosgw-admin", "user", "info", "--uid=cbt"]).stdout)["keys"]
    for name in ("access_key", "secret_key"):
        (tmp_path / name).write_text(key[name])
    s3 = {"urls": S3["urls"], **{name: f"file:{tmp_path / name}" for name in ("access_key", "secret_key")}}
    phases = [{"fill": {"objects": 40}}, {"hybrid": {"duration": "2s"}}]
    keys = {"admin": "none", "engine": "cbt-load", "workers": 2, "cycle": {"phases": phases}}
    made = Cycle(lab, tmp_path, warp={"s3": s3, **keys})
    config = yaml.safe_load(made.file.read_text())
    nobody = {"head": "client1", "osds": ["nobody"], "mons": ["nobody"], "rgws": ["nobody"]}
    config["cluster"].update({**nobody, "ceph_cmd": "/bin/false", "radosgw-admin_cmd": "/bin/false"})
    made.file.write_text(yaml.safe_dump(config))
    done = made.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert buckets_of(made) == [] and not made.left()
    codes = [its["code"] for its in made.summary()["warnings"]]
    assert codes.count("no-admin") == 1 and not {"state-unknown", "no-accounting", "no-capacity"} & set(codes)
