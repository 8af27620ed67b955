"""cbt-load on the real cluster: exact mixes on the data that is there, accounting, failures of RGWs, open loops."""

from __future__ import annotations

import calendar
import json
import math
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Set, Tuple

import pytest
from cycles import S3, Cycle, buckets_of, generators, hang
from request_rows import rows_of
from running_lab import RunningLab
from waiting import busy, wait_for

pytestmark = pytest.mark.lab

REEF = {"get": 45, "put": 35, "stat": 15, "delete": 5}
WORKERS = 8
SDC = {"get": 60, "list": 10, "put": 16, "delete": 14}


def cbt_load(**keys: Any) -> Dict[str, Any]:
    return {"s3": S3, "engine": "cbt-load", "workers": WORKERS, "size": "4KiB", **keys}


def shares(phase: Dict[str, Any]) -> Dict[str, float]:
    """Percent of the requests that ended in the window, by operation."""
    counts = {op: line["requests"] + line["errors"] for op, line in phase["ops"].items()}
    return {op.lower(): 100 * n / sum(counts.values()) for op, n in counts.items()}


def chance(phase: Dict[str, Any]) -> float:
    """By how many percent the mix of a window may be off.

    Requests in flight at its two ends may be in the next one's; and the mix is exact over every 1000 operations of a
    driver, so that the part of its last thousand is a sample without replacement (at most 62.5 of variance).
    """
    requests = sum(line["requests"] + line["errors"] for line in phase["ops"].values())
    off = WORKERS * 2 + 3 * math.sqrt(62.5 * len(phase["drivers"]))
    return max(0.5, 100.0 * off / requests)


def whole(cycle: Cycle) -> None:
    """No request failed, no object was missed, and the buckets hold what they should."""
    for name, phase in cycle.phases().items():
        assert phase["status"] == "ok", (name, phase["warnings"])
        for count in phase["accounting"]:
            assert count["ok"] and (phase["engine"] == "warp" or count["in_flight"] == 0), (name, count)
            assert phase["engine"] == "warp" or count["after"] == count["expected"], (name, count)
        assert sum(job["errors_total"] for job in phase["jobs"]) == 0, name


@pytest.fixture(scope="module")
def cycle(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Cycle:
    """The RGWtest cycle by cbt-load, with `warp mixed` beside it."""
    rgwtest = {
        "s3": S3,
        "engine": "cbt-load",
        "keep_rows": True,
        "objects": {"sizes": ["4KiB", "64KiB"]},
        "workers": 4,
        "mix": REEF,
        # so that `warp mixed`, too, prepares few objects
        "scale": 0.02,
        "fill": {"objects": 20000},
        "measure": {"duration": "300s"},
        "warp_mixed": "200s",
        "age": {"duration": "300s"},
    }
    made = Cycle(lab, tmp_path_factory.mktemp("cbt-load"), rgwtest=rgwtest)
    done = made.run()
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def test_the_reef_mix_is_exact_and_nothing_is_missed(cycle: Cycle) -> None:
    whole(cycle)
    assert list(cycle.phases()) == ["fill", "measure-new", "warp-mixed", "age", "measure-aged"]
    for phase in cycle.summary()["phases"]:
        if phase["name"] in ("measure-new", "age", "measure-aged"):
            assert shares(phase) == pytest.approx(REEF, abs=chance(phase)), phase["name"]
            assert phase["window"]["seconds"] == 6.0


def test_a_fill_writes_exactly_what_was_asked_for(cycle: Cycle) -> None:
    assert [count["after"] for count in cycle.phases()["fill"]["accounting"]] == [400, 400]


def test_the_aged_objects_are_read_and_no_deleted_one(cycle: Cycle) -> None:
    """From the rows: every object that was read had been written, and not yet been deleted."""
    there: Set[str] = set()
    gone: Dict[str, int] = {}
    reads = 0
    for name in ("fill", "measure-new", "age", "measure-aged"):
        folder = next(cycle.folder.glob(f"phases/[0-9][0-9]-{name}"))
        rows = [row for path in sorted((folder / "rows").glob("*.csv.zst")) for row in rows_of(path)]
        for row in rows:
            if row["op"] == "PUT":
                there.add(row["file"])
            elif row["op"] == "DELETE":
                gone[row["file"]] = nanoseconds(row["start"])
        for row in rows:
            if row["op"] in ("GET", "STAT"):
                reads += 1
                assert row["file"] in there, row
                ended = nanoseconds(row["end"])
                assert gone.get(row["file"], ended) >= ended, row
    assert reads > 200
    read = {int(row["file"].rsplit("/", 1)[1]) for row in rows if row["op"] == "GET"}
    assert min(read) <= 400 < max(read), "objects of the fill and of aging"


def test_rows_and_aggregates_say_the_same(cycle: Cycle) -> None:
    for name, phase in cycle.phases().items():
        folder = next(cycle.folder.glob(f"phases/[0-9][0-9]-{name}"))
        for job in phase["jobs"]:
            assert len(rows_of(folder / job["rows"])) == job["rows_total"], (name, job["id"])
    assert not [w for w in cycle.summary()["warnings"] if w["code"] in ("lost-rows", "bad-rows", "torn-rows")]


def test_all_drivers_begin_at_one_instant(cycle: Cycle) -> None:
    for name in ("measure-new", "age"):
        begun = [j["driver_end"]["began"] - j["clock_offset"] for j in cycle.phases()[name]["jobs"]]
        assert max(begun) - min(begun) < 0.05


def test_the_report_says_how_the_engines_differ(cycle: Cycle) -> None:
    assert cycle.summary()["engines"], "measure-new beside warp-mixed"
    assert "warp mixed" in (cycle.folder / "report.html").read_text()


def test_nothing_is_left(cycle: Cycle) -> None:
    assert buckets_of(cycle) == [] and generators(cycle.lab) == []
    keys = json.loads((cycle.lab.dir / "s3.json").read_text())
    for path in [*cycle.archive.rglob("*"), cycle.log]:
        if path.is_file():
            assert keys["secret_key"].encode() not in path.read_bytes(), path


@pytest.mark.long  # test_bucket_removal has several users
def test_works_at_once_with_buckets_of_several_users(lab: RunningLab, tmp_path: Path) -> None:
    """Two works on groups of buckets, of which a user of a tenant has one."""
    groups = {"small": {"number": 2, "objects": 60}, "large": {"size": "64KiB", "user": "acme$works"}}
    works = {
        "readers": {"workers": 2, "mix": {"get": 80, "list": 20}, "buckets": ["small"]},
        "writers": {"workers": 4, "mix": {"put": 60, "delete": 40}, "buckets": ["large"], "rate": "20/s"},
    }
    phases = [{"fill": {"objects": 20}}, {"hybrid": {"duration": "4s", "works": works}, "name": "both"}, {"verify": {}}]
    section = cbt_load(buckets=groups, across_buckets=True, rgw={"make_user": True}, cycle={"phases": phases})
    cycle = Cycle(lab, tmp_path, warp={**section, "s3": {**S3, "user": "works"}})
    cycle.start()
    cycle.await_moment(lambda: cycle.running_rows("both") > 0, "requests of both")
    admin = lambda *words: json.loads(lab.exec("node0", ["radosgw-admin", *words]).stdout)  # noqa: E731
    owners = {admin("bucket", "stats", f"--bucket={name}")["owner"] for name in buckets_of(cycle)}
    secret = admin("user", "info", "--uid=acme$works")["keys"][0]["secret_key"]
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
    whole(cycle)
    accounting = {count["bucket"].rsplit("-", 1)[1]: count for count in cycle.phases()["both"]["accounting"]}
    assert accounting["large"]["put"] and accounting["large"]["delete"] and not accounting["2"]["put"]
    (phase,) = (phase for phase in cycle.summary()["phases"] if phase["name"] == "both")
    assert list(phase["ops"]) == ["readers:GET", "readers:LIST", "writers:PUT", "writers:DELETE"]
    assert phase["rate"]["asked"] == 20.0 and phase["mix"]["asked"]["writers:PUT"] == 60.0
    read = {its["op"] for its in phase["littles_law"]["jobs"]}
    assert read == {"readers:MIXED", "writers:MIXED"}
    # the bucket of a tenant is its user's; what the run made is gone, and no key is in the archive
    assert owners == {"works", "acme$works"}
    assert buckets_of(cycle) == [] and not {"works", "acme$works"} & set(admin("metadata", "list", "user"))
    assert all(secret.encode() not in path.read_bytes() for path in cycle.archive.rglob("*") if path.is_file())


@pytest.mark.long  # the Go tests have ranges, test_cbt_load_jobs roles, test_the_reef_mix the rest
def test_the_sdc_mix_by_ranges_and_roles(lab: RunningLab, tmp_path: Path) -> None:
    """Five buckets: put and delete in two, get and list in three; then everything is verified and deleted."""
    roles = {"put": [1, 2], "delete": [1, 2], "get": [3, 4, 5], "list": [3, 4, 5]}
    keys = {"get": "u(1,N)", "put": "u(1,2N)", "delete": {"select": "u(1,2N)", "absent": True}}
    phases = [
        {"fill": {"objects": 200}},
        {"hybrid": {"duration": "8s", "mix": SDC, "roles": roles, "keys": keys}, "name": "sdc"},
        {"verify": {}},
        {"delete": {}},
    ]
    sizes = {"1KB": "50%", "4KB-8KB": "30%", "64KB": "20%"}
    cycle = Cycle(
        lab,
        tmp_path,
        warp=cbt_load(buckets=5, across_buckets=True, size=sizes, keep_rows=True, cycle={"phases": phases}),
    )
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    whole(cycle)
    sdc = next(p for p in cycle.summary()["phases"] if p["name"] == "sdc")
    assert shares(sdc) == pytest.approx(SDC, abs=chance(sdc))
    accounting = cycle.phases()["sdc"]["accounting"]
    assert [b["after"] for b in accounting[2:]] == [200, 200, 200], "buckets that are only read stay as they are"
    assert all(b["put"] and b["delete"] for b in accounting[:2])
    folder = next(cycle.folder.glob("phases/*-fill"))
    written = [int(row["bytes"]) for path in (folder / "rows").glob("*.csv.zst") for row in rows_of(path)]
    assert len(written) == 1000 and {1000, 64000} <= set(written)
    assert {size for size in written if not 4000 <= size <= 8000} == {1000, 64000}
    assert 450 <= written.count(1000) <= 550
    verified = sum(j["rows_total"] for j in cycle.phases()["verify"]["jobs"])
    assert verified == sum(b["after"] for b in accounting)
    assert [b["after"] for b in cycle.phases()["delete"]["accounting"]] == [0] * 5


@pytest.mark.long  # the Go tests do so without a cluster
def test_verify_finds_the_one_object_that_is_not_what_was_written(lab: RunningLab, tmp_path: Path) -> None:
    phases = [{"fill": {"objects": 60}}, {"wait": {"duration": "3s"}, "name": "pause"}, {"verify": {}}]
    cycle = Cycle(lab, tmp_path, warp=cbt_load(keep_rows=True, cycle={"phases": phases}))
    cycle.start()
    cycle.await_moment(lambda: list(cycle.archive.glob("results/*/id-*/phases/*-pause.running")), "the pause")
    cycle.send(signal.SIGSTOP)
    (bucket,) = {j["bucket"] for j in cycle.phases()["fill"]["jobs"]}
    # radosgw-admin cannot write objects; the pool can: one replica set, one byte
    pool = "default.rgw.buckets.data"
    names = lab.exec("node0", ["rados", "-p", pool, "ls"]).stdout.splitlines()
    marker = json.loads(lab.exec("node0", ["radosgw-admin", "bucket", "stats", f"--bucket={bucket}"]).stdout)["id"]
    victim = sorted(n for n in names if n.startswith(marker) and "/01-4KiB/" in n)[7]
    script = f"printf X > /tmp/x && rados -p {pool} put '{victim}' /tmp/x --offset 2000"
    assert lab.exec("node0", ["sh", "-c", script]).returncode == 0
    cycle.send(signal.SIGCONT)
    cycle.ended()
    phase = cycle.phases()["verify"]
    assert sum(job["driver_end"]["checksum_errors"] for job in phase["jobs"]) == 1
    folder = next(cycle.folder.glob("phases/*-verify"))
    wrong = [row for path in (folder / "rows").glob("*.csv.zst") for row in rows_of(path) if row["error"]]
    assert [victim.endswith(row["file"]) for row in wrong] == [True]
    assert "checksum" in wrong[0]["error"]


def kill(lab: RunningLab) -> Callable[[], None]:
    pid = lab.exec("rgw1", ["pgrep", "-x", "radosgw"]).stdout.strip()
    line = lab.exec("rgw1", ["sh", "-c", f"tr '\\0' ' ' </proc/{pid}/cmdline"]).stdout.split()
    lab.exec("rgw1", ["kill", "-9", pid])
    return lambda: lab.exec("rgw1", ["sh", "-c", f"{' '.join(line)} </dev/null >/dev/null 2>&1 &"])


def cut(lab: RunningLab) -> Callable[[], None]:
    lab.lab.link("rgw1", up=False)
    return lambda: lab.lab.link("rgw1", up=True)


def seconds_of(folder: Path, window: Tuple[float, float]) -> Dict[int, int]:
    """Requests that succeeded in each second of the window."""
    found = {s: 0 for s in range(int(window[0]), int(window[1]))}
    for path in (folder / "rows").glob("*.csv.zst"):
        for row in rows_of(path):
            second = nanoseconds(row["end"]) // 10**9
            if second in found and not row["error"]:
                found[second] += 1
    return found


def nanoseconds(text: str) -> int:
    """A row's time, in UTC, since the epoch."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(fraction.ljust(9, "0"))


@pytest.mark.parametrize(
    "fault",
    [kill, hang, cut],
    ids=["killed", "hung", "cut-off"],
)
@pytest.mark.long
def test_load_goes_on_when_one_of_two_rgws_is_gone(
    lab: RunningLab, tmp_path: Path, fault: Callable[[RunningLab], Callable[[], None]]
) -> None:
    phases = [
        {"fill": {"objects": 200}},
        {"hybrid": {"duration": "15s", "mix": REEF}, "name": "hurt"},
        {"verify": {}},
    ]
    cycle = Cycle(lab, tmp_path, warp=cbt_load(cbt_load={"deadline": "3s"}, keep_rows=True, cycle={"phases": phases}))
    cycle.start()
    cycle.await_moment(lambda: cycle.running_rows("hurt") > 20, "requests in the phase")
    recover = fault(lab)
    try:
        verifying = "results/*/id-*/phases/*-verify.running"
        cycle.await_moment(lambda: list(cycle.archive.glob(verifying)), "the verification")
    finally:
        recover()
    cycle.ended()
    phase = cycle.phases()["hurt"]
    window = (phase["window"]["start"], phase["window"]["end"])
    assert window[1] - window[0] == 15.0
    assert max(j["ended"] for j in phase["jobs"]) < window[1] + 5 + 3 + 15 * busy()
    folder = next(cycle.folder.glob("phases/*-hurt"))
    per_second = seconds_of(folder, window)
    # no second without a success once the dead RGW is known: never more than the deadline's worth of them
    assert sum(n == 0 for n in per_second.values()) <= 4, per_second
    late = [n for s, n in per_second.items() if s >= window[1] - 5]
    assert all(late), per_second
    assert all(b["ok"] for b in phase["accounting"]), phase["accounting"]
    # the RGW may be gone still when the verification begins: no answer is no wrong object, and nothing is missed
    for name in ("hurt", "verify"):
        folder = next(cycle.folder.glob(f"phases/[0-9][0-9]-{name}"))
        errors = {row["error"].split(":")[0] for p in (folder / "rows").glob("*.csv.zst") for row in rows_of(p)}
        assert errors <= {"", "timeout", "refused", "reset", "cut"}, (name, errors)
    assert sum(j["driver_end"]["checksum_errors"] for j in cycle.phases()["verify"]["jobs"]) == 0


@pytest.mark.long  # the Go tests do so without a cluster
def test_an_open_loop_holds_its_rate(lab: RunningLab, tmp_path: Path) -> None:
    phases = [
        {"fill": {"objects": 200}},
        {"hybrid": {"duration": "6s", "mix": REEF}, "name": "closed"},
        {"hybrid": {"duration": "10s", "mix": REEF, "rate": "50%", "warmup": "2s"}, "name": "open"},
    ]
    cycle = Cycle(lab, tmp_path, warp=cbt_load(workers=32, cycle={"phases": phases}))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    whole(cycle)
    closed, opened = (next(p for p in cycle.summary()["phases"] if p["name"] == n) for n in ("closed", "open"))
    asked = cycle.phases()["open"]["asked"]["rate"]
    rates = [sum(op["requests"] for op in p["ops"].values()) / p["window"]["seconds"] for p in (closed, opened)]
    assert asked == pytest.approx(rates[0] / 2, rel=0.1)
    issued = sum(sum(j["driver_end"]["issued"].values()) for j in cycle.phases()["open"]["jobs"])
    # Poisson: four times sqrt(n) is not chance any more
    assert issued == pytest.approx(12 * asked, abs=4 * (12 * asked) ** 0.5)
    assert rates[1] == pytest.approx(asked, abs=4 * (asked / 10) ** 0.5 + 0.05 * asked)


@pytest.mark.long  # the unit tests have its arithmetic and its files
def test_a_ladder_finds_what_the_cluster_can_do(lab: RunningLab, tmp_path: Path) -> None:
    rates = {"rate": {"lowest": "80/s", "highest": "5000/s"}, "objective": {"GET/p99_ms": 500, "success_rate": "99%"}}
    workers = {"workers": {"highest": 8}, "objective": {"mean_ms": 10_000}}
    phases = [
        {"fill": {"objects": 200}},
        {"ladder": {**rates, "steps": 6, "duration": "6s"}},
        {"ladder": {**workers, "steps": 4, "duration": "3s"}, "name": "sizing"},
    ]
    cycle = Cycle(lab, tmp_path, warp=cbt_load(workers=16, cycle={"phases": phases}))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]  # overload is a result
    by_rate, sizing = cycle.summary()["ladders"]
    assert by_rate["high"] and (by_rate["low"] or 0) < by_rate["high"] <= 5000
    assert [its["load"] for its in sizing["steps"]] == [1, 2, 4, 8] and sizing["high"] is None
    jobs = [job["workers"] for number in (1, 2, 3, 4) for job in cycle.phases()[f"sizing-step-{number}"]["jobs"]]
    assert jobs == [1, 1, 2, 2, 4, 4, 8, 8]


@pytest.mark.long  # test_cycle has one, the Go tests what is read then
def test_a_killed_measurement_is_done_again_on_what_is_there(lab: RunningLab, tmp_path: Path) -> None:
    phases = [{"fill": {"objects": 300}}, {"hybrid": {"duration": "6s", "mix": REEF}, "name": "mix"}, {"verify": {}}]
    cycle = Cycle(lab, tmp_path, warp=cbt_load(cycle={"phases": phases}))
    assert cycle.broken_off(lambda: cycle.running_rows("mix") > 20, "requests in the phase") != 0
    wait_for(lambda: generators(lab) == [], "the generators to end", 30)
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    whole_again = cycle.phases()
    assert all(b["ok"] for p in whole_again.values() for b in p["accounting"])
    failed = sum(j["errors_total"] for j in whole_again["mix"]["jobs"])
    assert failed == 0, "what the killed attempt deleted is not read"
    (count,) = whole_again["verify"]["accounting"]
    assert sum(j["rows_total"] for j in whole_again["verify"]["jobs"]) == count["after"]


@pytest.mark.long  # the Go tests do so without a cluster
def test_data_that_warp_has_filled_is_read_by_listing(lab: RunningLab, tmp_path: Path) -> None:
    phases = [
        {"fill": {"objects": 100, "engine": "warp"}},
        {"hybrid": {"duration": "4s", "mix": {"get": 60, "stat": 20, "put": 20}}, "name": "mix"},
    ]
    cycle = Cycle(lab, tmp_path, warp=cbt_load(keep_rows=True, cycle={"phases": phases}))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(b["ok"] for p in cycle.phases().values() for b in p["accounting"])
    folder = next(cycle.folder.glob("phases/*-mix"))
    rows = [row for path in (folder / "rows").glob("*.csv.zst") for row in rows_of(path)]
    assert not [row for row in rows if row["error"]]
    read = {row["file"].split("/")[0] for row in rows if row["op"] == "GET"}
    assert read == {"keep", "cbt-load"}, "objects of the fill, and of this phase"
