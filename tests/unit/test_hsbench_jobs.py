"""`engine: hsbench`: its command lines, what it refuses, and what its client program makes of recorded outputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from config_files import CLUSTER, errors_in, marked
from waiting import wait_for

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.generator_classes import wants_ceiling
from cbt_plugins.load.generator import FOLDER, Counts, JobEnd, LoadJob, LoadStart, Memory
from cbt_plugins.load.hsbench import AGENT, HsbenchJobs
from cbt_plugins.plan import Plan
from cbt_plugins.programs import own_program
from cbt_plugins.results.aggregates_file import frames, places
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.requests.job_aggregates import JobAccumulator
from cbt_plugins.results.requests.rates_and_latencies import latency_numbers
from cbt_plugins.results.requests.time_series import TimeGrid, Timeline
from cbt_plugins.run.buckets import account
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_window import window_of
from cbt_plugins.run.s3_key_sources import token_errors

DATA = Path(__file__).parents[1] / "data" / "hsbench"
SECTION = """\
benchmarks:
  warp:
    s3: {urls: ['http://rgw1:7480', 'http://rgw2:7480'], user: cbt, host_select: one}
    engine: hsbench
    drivers: 4
    workers: 8
    size: 4KiB
    buckets: 3
    across_buckets: true
    cycle:
      phases:
        - fill: {objects: 10}
        - hybrid: {duration: 5m, mix: {list: 100}}
          name: list
        - hybrid: {duration: 90s, mix: {get: 100}, keys: {get: 'r(1,N)'}}
          name: get
        - delete: {}
"""
PUT = "        - fill: {objects: 10}\n"
GET = "        - hybrid: {duration: 90s, mix: {get: 100}, keys: {get: 'r(1,N)'}}\n          name: get\n"


NOTHING = Memory()


def plan(tmp_path: Path, text: str = SECTION) -> Plan:
    file = tmp_path / "mesh.yaml"
    file.write_text(CLUSTER + text)
    return load_file(file).runs[0].plan


def jobs(made: Plan, index: int, memory: Memory = NOTHING) -> List[LoadJob]:
    names = {bucket.key: bucket.name("7") for bucket in made.buckets}
    return HsbenchJobs(made, names, "7").jobs(made.phases[index], LoadStart(memory=memory))


def options(job: LoadJob) -> Dict[str, str]:
    assert job.spec
    words = [*job.spec["options"], *job.spec["limits"]]
    return dict(zip(words[::2], words[1::2]))


def test_the_modes_of_a_mesh(tmp_path: Path) -> None:
    made = plan(tmp_path)
    puts = jobs(made, 0)
    assert [options(job)["-u"][7:11] for job in puts] == ["rgw1", "rgw2", "rgw2", "rgw1"], "a mesh"
    assert [options(job)["-n"] for job in puts] == ["8", "8", "7", "7"], "10 objects in each of 3 buckets"
    assert [job.spec["init"] for job in puts if job.spec] == [True, False, False, False]
    first = options(puts[0])
    names = [bucket.name("7") for bucket in made.buckets]
    assert names == [f"{first['-bp']}{i:012d}" for i in range(int(first["-b"]))], "hsbench makes the names itself"
    assert (first["-z"], first["-d"], first["-t"], first["-op"]) == ("4096B", "-1", "8", "hsbench/01-4KiB/")
    lists = jobs(made, 1)
    assert {(options(job)["-t"], job.workers, job.op) for job in lists} == {("3", 3, "LIST")}, "one for a bucket"
    states = {driver.id: tmp_path / f"{driver.id}.hsbench" for driver in made.drivers}
    for number, path in enumerate(states.values()):
        path.write_text(json.dumps({"objects": number + 5}))
    gets, deletes = (jobs(made, index, Memory(states)) for index in (2, 3))
    assert [(options(job)["-n"], options(job)["-d"]) for job in gets] == [(str(n), "90") for n in (5, 6, 7, 8)]
    assert [(options(job)["-n"], options(job)["-d"]) for job in deletes] == [(str(n), "-1") for n in (5, 6, 7, 8)]
    assert {phase.engine for phase in made.phases} == {"hsbench"}


def test_a_token_that_hsbench_cannot_send(tmp_path: Path) -> None:
    """A profile may have a token, which is known only when its keys are read."""
    session, made = S3Keys("AK", "SK", "T"), plan(tmp_path)
    (error,) = token_errors(made, session)
    assert error == "s3: the keys have a session token, which hsbench cannot send: set engine: cbt-load"
    other = plan(tmp_path, "benchmarks: {rgwtest: {s3: {urls: ['http://rgw1:7480'], user: cbt}, engine: cbt-load}}\n")
    assert token_errors(made, S3Keys("AK", "SK")) == token_errors(other, session) == []


def test_the_mesh_of_the_study_by_one_key(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "benchmark_configs" / "hsbench-mesh.yaml").read_text()
    file = tmp_path / "mesh.yaml"
    file.write_text(text.replace("engine: cbt-load", "engine: hsbench", 1))
    made = load_file(file).runs[0].plan
    puts = jobs(made, 0)
    places = [(job.node, job.urls) for job in puts]
    assert len(places) == len(set(places)) == 10 * 20, "each client has a process for each RGW"
    assert sum(int(options(job)["-n"]) for job in puts) == 512 * 3906 and len(made.buckets) == 512
    assert {options(job)["-t"] for job in puts} == {"64"} and not wants_ceiling(made)


def test_keys_are_in_no_argument(tmp_path: Path) -> None:
    made = plan(tmp_path)
    told = json.dumps([(job.argv, job.spec) for index in range(4) for job in jobs(made, index)])
    assert '"-a"' not in told and '"-s"' not in told
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= set(S3Keys("a", "s").environment())


REFUSED = {
    "size": ("size: 4KiB", "size: §{4KiB: 50%, 1MiB: 50%}", "one exact size"),
    "range": ("size: 4KiB", "size: §4KiB-64KiB", "one exact size"),
    "across": ("across_buckets: true", "across_buckets: §false", "across_buckets: true"),
    "endpoints": (", host_select: one}", ", host_select: §roundrobin}", "host_select: one"),
    "dns": ("host_select: one}", "host_select: one, lookup: §dns}", "cannot do that"),
    "rows": ("    drivers: 4\n", "    drivers: 4\n    keep_rows: §true\n", "no single requests"),
    "ceiling": ("    drivers: 4\n", "    drivers: 4\n    generator_ceiling: §true\n", "no single requests"),
    "versions": ("    drivers: 4\n", "    drivers: 4\n    §versioned: true\n", "cbt-load"),
    "another": (GET, "        - hybrid: {duration: 90s, mix: {get: 100}, engine: cbt-load}\n", "need engine: hsbench"),
    "mix": ("mix: {list: 100}", "§mix: {get: 60, put: 40}", "one thing at a time"),
    "keys": (", keys: {get: 'r(1,N)'}", "", "keys: {get: 'r(1,N)'}"),
    "rate": ("duration: 90s, ", "duration: 90s, §rate: 5/s, ", "cbt-load"),
    "ramp": ("duration: 90s, ", "duration: 90s, §ramp: 5s, ", "cbt-load"),
    "raw": ("fill: {objects: 10}", "§fill: {raw: 20%}", "losing count"),
    "twice": (GET, GET + PUT.replace("fill", "§fill"), "delete before another fill"),
    "nothing": (PUT, "", "fill"),
    "few": ("fill: {objects: 10}", "fill: {objects: §1}", "3 objects for 4 drivers: each hsbench needs one"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_hsbench_cannot_do_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    now, then, text = REFUSED[case]
    assert now in SECTION
    file, places = marked(CLUSTER + SECTION.replace(now, then, 1))
    errors = errors_in(tmp_path, file)
    assert errors and any(text in line for line in errors), errors
    assert all(any(line.startswith(place) for line in errors) for place in places), (places, errors)


def test_a_program_that_is_missing_is_no_matter_of_cbt_tools() -> None:
    assert "PATH" in HsbenchJobs.remedy and "cbt-tools" not in HsbenchJobs.remedy


PLAY = """#!/bin/sh
# plays a recorded run: its lines, and its JSON where it was asked for
while [ "$#" -gt 1 ]; do [ "$1" = -j ] && json=$2; shift; done
[ -n "$AWS_SECRET_ACCESS_KEY" ] || exit 3
cat "{log}" >&2
{then}
cp "{json}" "$json"
"""


class Played:
    """The client's program with a recorded hsbench."""

    def __init__(
        self, folder: Path, made: Plan, name: str, index: int, then: str = "", wait: float = 0.0, **orders: Any
    ) -> None:
        self.folder = folder
        program = folder / "hsbench"
        program.write_text(PLAY.format(log=DATA / f"{name}.txt", json=DATA / f"{name}.json", then=then))
        program.chmod(0o700)
        (folder / "state").mkdir()
        job = jobs(made, index)[0]
        assert job.spec
        spec = json.dumps({**job.spec, "init": False, **orders}).replace(FOLDER, str(folder))
        (folder / "orders.json").write_text(spec)
        env = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
        (folder / "go").write_text(repr(time.time() + wait))
        self.process = subprocess.Popen(
            [sys.executable, str(AGENT), str(folder / "orders.json"), str(program)],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def end(self) -> Tuple[List[List[str]], Dict[str, Any], int]:
        """Lines of sums, the last word, the exit status."""
        out, said = self.process.communicate(timeout=60)
        events = [json.loads(line) for line in said.splitlines() if line.startswith('{"event"')]
        lines = [line.split("\t") for line in out.splitlines()]
        return [line for line in lines if line[0] == "sum"], events[-1], self.process.returncode


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return plan(tmp_path, SECTION.replace("buckets: 3", "buckets: 4").replace("{objects: 10}", "{duration: 4s}"))


def total(lines: List[List[str]], column: int) -> int:
    return sum(int(line[column]) for line in lines)


def test_lines_of_sums_are_what_hsbench_says(tmp_path: Path, made: Plan) -> None:
    lines, end, status = Played(tmp_path, made, "put", 0).end()
    assert status == 0 and [int(line[4]) for line in lines[:4]] == [9, 3, 2, 3]
    assert total(lines, 4) == 21 and total(lines, 6) == 21 * 4096 and total(lines, 5) == 0
    assert total(lines, 7) / 21e6 == pytest.approx(961.946, abs=0.05), "the mean of the whole, in ms"
    assert max(int(line[9]) for line in lines) == pytest.approx(2804.276e6), "the maximum of the whole"
    assert json.loads((tmp_path / "state" / "01-4KiB.hsbench").read_text()) == {"objects": 21}
    assert [space["created"] for space in end["spaces"]] == [6, 5, 5, 5]
    assert end["reason"] == "duration" and end["p99_ms"] == 2804.276003
    assert not any(space["unknown"] for space in end["spaces"])


def test_threads_that_gave_up_are_told(tmp_path: Path, made: Plan) -> None:
    lines, end, status = Played(tmp_path, made, "missing", 2, objects=2000).end()
    assert status == 0 and total(lines, 4) == 21 and total(lines, 5) == 12
    assert end["reason"] == "duration", "not all were read"
    codes = dict(end["warnings"])
    assert set(codes) == {"get-without-body", "threads-lost"} and "NoSuchKey" in codes["threads-lost"]
    assert {line[10] for line in lines if int(line[5])} == {"NoSuchKey:"}
    # from the sixth second on a thread was missing, and hsbench told no interval: what is left is spread over the rest
    assert len([line for line in lines if int(line[5])]) > 5


def test_a_fill_that_nobody_takes_fails(tmp_path: Path, made: Plan) -> None:
    lines, end, status = Played(tmp_path, made, "refused", 0).end()
    assert status == 1 and total(lines, 4) == 0 and total(lines, 5) == 12
    assert "connection refused" in lines[0][10] and "000000000003" not in lines[0][10]
    assert all(space["unknown"] >= 12 for space in end["spaces"])


def test_a_servers_text_is_no_interval_and_no_event(tmp_path: Path, made: Plan) -> None:
    """hsbench logs the message of an error as the server wrote it, with its lines."""
    interval = "Loop: 0, Int: 0, Dur(s): 1.0, Mode: PUT, Ops: 99999, MB/s: 0, IO/s: 9, Lat(ms): [ min: 1.0, avg: 1.0, "
    interval += "99%: 1.0, max: 1.0 ], Slowdowns: 0"
    again = f"2026/11/22 19:14:36 {interval}"
    lie = f"2026/11/22 19:14:36 upload err%!(EXTRA *x=No\n{interval}\n{again}\n{{\"event\":\"end\",\"spaces\":[]}}\n"
    (tmp_path / "lie").write_text(lie + "x" * 1_000_000 + "\n")
    lines, end, status = Played(tmp_path, made, "put", 0, then=f"cat {tmp_path}/lie >&2").end()
    assert status == 0 and total(lines, 4) == 21 and len(end["spaces"]) == 4
    (tmp_path / "honest").mkdir()
    honest = Played(tmp_path / "honest", made, "put", 0).end()[0]
    assert [line[4:7] for line in lines] == [line[4:7] for line in honest]


def test_a_stopped_hsbench_leaves_its_intervals_and_no_process(tmp_path: Path, made: Plan) -> None:
    played = Played(tmp_path, made, "put", 0, then="echo $$ >pid; exec sleep 600 2>&1")
    pid = tmp_path / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), "the recorded lines", 30)
    number = int(pid.read_text())
    os.killpg(played.process.pid, signal.SIGTERM)
    lines, end, status = played.end()
    assert status == 0 and total(lines, 4) == 17, "what the intervals told"
    assert end["p99_ms"] is None and all(space["unknown"] >= 2 for space in end["spaces"])
    assert not Path(f"/proc/{number}").exists()


def test_a_stop_before_the_instant_starts_no_hsbench(tmp_path: Path, made: Plan) -> None:
    with Played(tmp_path, made, "put", 0, then="touch began", wait=60).process as process:
        assert process.stderr and "ready" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM and not (tmp_path / "began").exists()


def test_sums_become_rates_and_means_and_no_percentiles(tmp_path: Path, made: Plan) -> None:
    program = own_program("cbt-rows")
    if program is None:
        pytest.skip("no cbt-rows: cbt-tools build")
    played = Played(tmp_path, made, "put", 0)
    text, said = played.process.communicate(timeout=60)
    out = tmp_path / "out.aggregates"
    argv = [program, "reduce", "--beat", "--job", "j", "--driver", "d", "--node", "n", "-o", out, "-"]
    beats = subprocess.run(argv, input=text, text=True, capture_output=True, check=True).stdout.splitlines()
    good, failed, size, busy, *_ = json.loads(beats[-1])["counts"]["PUT"]
    assert (good, failed, size) == (21, 0, 21 * 4096) and busy / 21e6 == pytest.approx(961.946, abs=0.05)
    end = json.loads([line for line in said.splitlines() if line.startswith('{"event"')][-1])
    start = int(end["span"][0] + 0.5)  # the second with the middle of the first interval
    grid = TimeGrid.of(start, start + 4, 1)
    job = JobAccumulator(Timeline(grid))
    for frame in frames(out, places(out)[0]):
        assert frame is not None
        job.add(frame)
    of = job.finish().ops["PUT"]
    assert of.latency.n + of.ok_outside == 21 and not of.latency.has_buckets
    line = latency_numbers(of.latency)
    assert line and line["mean"] > 0 and line["p50"] is line["p99"] is None and line["max"] < 2805
    with pytest.raises(ValueError, match="without buckets"):
        of.latency.quantile(0.5)
    assert Histogram.from_json(of.latency.to_json()) == of.latency
    assert job.timeline.seconds["PUT"].binned("n").tolist()[0] == 9


def test_lost_threads_degrade_a_phase(tmp_path: Path, made: Plan) -> None:
    """Also where few requests failed: those that threads had left to do are missing."""
    for name, status, codes in (("put", "ok", []), ("missing", "degraded", ["get-without-body", "threads-lost"])):
        folder = tmp_path / name
        folder.mkdir()
        index = 0 if name == "put" else 2
        job = jobs(made, index)[0]
        last = Played(folder, made, name, index).end()[1]
        end = JobEnd({"GET": Counts(10_000, 12, first=1.0)}, exit=0, driver_end=last)
        outcome = PhaseOutcome(1, made.phases[index])
        outcome.add_jobs([job], {job.id: end}, {job.node: Offset(0.5, 0.0)}, {job.node: {}}, False)
        assert outcome.status == status
        assert [its["code"] for its in outcome.warnings] == [*codes, "errors"]


def test_accounting_and_window_of_an_attempt_and_of_its_repetition(tmp_path: Path, made: Plan) -> None:
    job = jobs(made, 0)[0]
    end = Played(tmp_path, made, "put", 0).end()[1]
    name = end["spaces"][0]["bucket"]
    ended = JobEnd({}, exit=0, driver_end=end)
    (count,) = account({name: 0}, {name: 6}, [job], {job.id: ended})
    assert count.ok and count.put == 6
    (count,) = account({name: 0}, {name: 5}, [job], {job.id: ended})
    assert not count.ok
    (tmp_path / "again").mkdir()
    stale = Played(tmp_path / "again", made, "put", 0, stale=True).end()[1]
    (count,) = account({name: 4}, {name: 6}, [job], {job.id: replace(ended, driver_end=stale)})
    assert count.ok, "two of the six were there already"
    began, last = end["span"]
    record = {"first_row": began, "last_row": last, "ended": last, "cut": False, "driver_end": end, "role": "fill"}
    window = window_of(made.phases[0], [record], 1000.0)
    assert window == (1000.0, 1004.0), "from the go on"
