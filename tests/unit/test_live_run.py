"""A run that goes on, read from its archive: a recorded half one, one that grows, one that is gone, hostile ones."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import pytest
from aggregates_writer import Request, counts_frame
from archive_builder import COPIED, HALF

from cbt_plugins.journal import Journal, LineTail
from cbt_plugins.report.live_terminal import data, moment_lines, notes
from cbt_plugins.results import live_run
from cbt_plugins.results.archive import ArchivedPhase, read_running
from cbt_plugins.results.live_run import GOING_ON, GONE, LiveRun
from cbt_plugins.results.recovery.cluster_samples import files_of
from cbt_plugins.results.requests import rates_and_latencies as of_phase
from cbt_plugins.results.requests.over_time import series
from cbt_plugins.results.requests.phase_reading import read_phase
from cbt_plugins.results.requests.running_phase import RunningPhase, recent
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.tools.__main__ import main


@pytest.fixture
def half(tmp_path: Path) -> Path:
    folder = tmp_path / "archive" / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(HALF, folder)
    return folder


@pytest.fixture
def held(half: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The half archive as it was then: a process has its journal."""
    monkeypatch.setattr("time.time", lambda: COPIED)
    for path in half.rglob("*"):
        os.utime(path, (COPIED, COPIED))
    with closing(Journal(half / "journal.jsonl")) as journal:
        journal.write("invocation")
        yield half


def phase_of(run: Path) -> ArchivedPhase:
    running = read_running(run)
    assert running
    return running[0]


def test_a_moment_says_where_the_run_is(held: Path) -> None:
    run = LiveRun(held)
    moment = run.moment()
    assert moment["state"] == GOING_ON
    assert (moment["phase"], moment["number"], moment["phases"], moment["doing"]) == ("one-down", 2, 4, "running")
    assert moment["elapsed_s"] + moment["left_s"] == 40.0
    assert moment["after_s"] == 40.0 and not moment["after_is_exact"]  # recover; nobody knows how long the wait takes
    assert moment["obj_per_s"] > 50 and moment["mib_per_s"] > 1 and moment["errors"] == 0
    assert moment["pgs_not_clean"] > 0
    assert list(moment["latency"]) == ["GET", "PUT", "STAT", "DELETE"]
    assert moment["latency"]["GET"]["p50_ms"] < moment["latency"]["GET"]["p99_ms"]
    (fault,) = moment["faults"]
    assert (fault["label"], fault["kind"], fault["targets"], fault["until"]) == ("node-a", "stop", ["node4"], None)
    text = "\n".join([*moment_lines(moment), *notes(moment, run.summary())])
    assert "one-down: 0:" in text and "left, more than" in text and "GET p50" in text
    assert "fault node-a (stop node4) since" in text
    assert "failure of node-a: all OSDs down after 0." in text
    assert "not-recovered" not in text and "resources-gap" not in text  # the end decides
    line = json.loads(json.dumps(data(moment, run.summary())))
    assert line["version"] == 1 and {m["milestone"] for m in line["milestones"]} >= {"injected", "all-down"}


def test_a_load_that_is_not_heard_has_no_rate(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    now = [begun]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    run, beats = LiveRun(held), held / "phases" / "04-one-down.running" / "heartbeat.jsonl"
    last = {line["node"]: line for line in map(json.loads, beats.read_text().splitlines())}

    def seen(*nodes: str) -> Tuple[Any, Any]:
        with beats.open("a") as file:
            for node in nodes:
                file.write(json.dumps({**last[node], "t": last[node]["t"] + now[0] - begun}) + "\n")
        moment = run.moment()
        return moment["obj_per_s"], moment["pgs_not_clean"]

    rate, not_clean = seen()
    assert rate > 50 and not_clean > 0
    now[0] += 16.0
    assert seen("client1", "client2")[0] is not None
    now[0] += 16.0
    assert seen("client1") == (0.0, None)  # client2 was heard 16 s ago, the cluster 32 s ago
    now[0] += 16.0
    assert seen("client1") == (None, None)
    for _ in range(2):
        now[0] += 16.0
        rate, _ = seen("client1", "client2")
    assert rate == 0.0
    # a client that has ended says no more, and the rate is that of the others
    (job,) = last["client2"]["jobs"]
    last["client2"]["jobs"][job]["state"] = "done"
    assert seen("client1", "client2")[0] is not None
    for _ in range(3):
        now[0] += 16.0
        assert seen("client1")[0] == 0.0
    # one who comes late: the files say when they were written
    now[0] += 1000.0
    assert LiveRun(held).moment()["obj_per_s"] is not None
    os.utime(beats, (COPIED - 31, COPIED - 31))
    late = LiveRun(held).moment()
    assert late["obj_per_s"] is None and late["errors"] == 0 and late["pgs_not_clean"] > 0


def test_a_value_that_is_not_known_is_null(held: Path) -> None:
    for path in held.rglob("heartbeat.jsonl"):
        path.unlink()
    moment = LiveRun(held).moment()
    assert (moment["errors"], moment["obj_per_s"], moment["why"]) == (None, None, None)
    assert "left in the run  errors ?  " in moment_lines(moment)[1]
    with (held / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": COPIED, "event": "fault-inject-begin", "label": "x", "targets": 5}) + "\n")
        file.write(json.dumps({"t": COPIED + 1, "event": "run-failed"}) + "\n")
    moment = LiveRun(held).moment()
    assert moment["why"] is None and moment["faults"][-1]["targets"] == []
    assert moment_lines(moment)[0].endswith("failed: the reason is unknown")


def test_a_wait_has_no_failed_requests(held: Path) -> None:
    shutil.rmtree(held / "phases" / "04-one-down.running")
    with (held / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": COPIED - 2, "event": "phase-begin", "phase": "wait-clean", "kind": "wait"}) + "\n")
    moment = LiveRun(held).moment()
    assert moment["errors"] == 0 and moment_lines(moment)[1].startswith("wait-clean: 0:02, running  0 errors  ")


def test_the_running_phase_is_in_the_summary_and_compared_with_nothing(held: Path) -> None:
    run = LiveRun(held)
    run.moment()
    summary = run.summary()
    assert [phase["name"] for phase in summary["phases"]] == ["no-failure", "one-down"]
    assert summary["phases"][1]["status"] == "running"
    assert summary["new_vs_aged"] is None
    assert "one-down" in summary["failure"]["timelines"]
    marks = summary["failure"]["timelines"]["one-down"]["marks"]
    assert any(mark["title"] == "fault" for mark in marks)


def test_a_running_phase_has_the_numbers_of_a_finished_one(half: Path) -> None:
    """The same function on the same frames, cut to the same window, gives the same numbers."""
    seen = RunningPhase(phase_of(half), None).look()
    assert seen is not None and seen.length > 10
    window = (seen.grid.start, seen.grid.end)
    whole = read_phase(replace(phase_of(half), window=window, duration=seen.length))
    assert series(seen.timeline) == series(whole.timeline)
    for op, line in of_phase.by_op(whole).items():
        mine = of_phase.by_op(seen)[op]
        # what ended later waits for its second
        assert {**mine, "outside": None} == {**line, "outside": None}


@pytest.mark.parametrize("start", [None, 1795614173.0])
def test_a_second_days_away_moves_no_window(half: Path, start: Optional[float]) -> None:
    phase = phase_of(half)
    expected = RunningPhase(phase, start).look()
    early, late = (
        counts_frame([Request("GET", round(second) * 10**9, 10**6, 1, thread=0, endpoint="http://rgw1:7480")])
        for second in (1795614172 - 3 * 86400, time.time() + 3 * 86400)
    )
    for job in phase.jobs:
        assert job.aggregates
        job.aggregates.write_bytes(early + job.aggregates.read_bytes() + late)
    seen = RunningPhase(phase, start).look()
    assert seen is not None and expected is not None and seen.grid == expected.grid
    assert series(seen.timeline) == series(expected.timeline)


@pytest.mark.parametrize("seed", range(3))
def test_a_phase_that_grows_ends_with_the_numbers_of_one_look(half: Path, seed: int) -> None:
    chance = random.Random(seed)
    phase = phase_of(half)
    contents = {job.id: job.aggregates.read_bytes() for job in phase.jobs if job.aggregates}
    expected = RunningPhase(phase, 1795614157.0).look()
    growing = RunningPhase(phase, 1795614157.0)
    growing.begin_again(4.0)  # too short a window: it has to begin again
    sizes = dict.fromkeys(contents, 0)
    seen = None
    while any(sizes[job] < len(content) for job, content in contents.items()):
        job = chance.choice(list(contents))
        sizes[job] = min(len(contents[job]), sizes[job] + chance.randrange(1, 9000))
        (phase.path / "aggregates" / f"{job}.aggregates").write_bytes(contents[job][: sizes[job]])
        for other in contents:
            (phase.path / "aggregates" / f"{other}.aggregates").write_bytes(contents[other][: sizes[other]])
        seen = growing.look() or seen
    assert seen is not None and expected is not None
    assert series(seen.timeline) == series(expected.timeline)
    assert of_phase.by_op(seen) == of_phase.by_op(expected)
    assert of_phase.by_driver(seen) == of_phase.by_driver(expected)
    assert recent(seen) == recent(expected)


def test_a_run_that_was_killed_is_gone_and_says_what_is_known(
    half: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["watch", str(half.parents[2])]) == 4
    out = capsys.readouterr().out
    assert "the run has ended without a result" in out and "cbt-tools undo" in out
    assert "fault node-a (stop node4) since" in out
    assert "02 no-failure" in out
    moment = LiveRun(half).moment()
    assert moment["state"] == GONE and moment["obj_per_s"] is None and moment["left_s"] is None
    assert moment["elapsed_s"] == pytest.approx(moment["t"] - moment["silent_s"] - 1795614172, abs=0.2)
    # of another machine, whose locks are not seen here
    monkeypatch.setattr(live_run.LiveRun, "silence", lambda self: 2.0)
    elsewhere = LiveRun(half)
    assert elsewhere.moment()["state"] == GOING_ON
    codes = {warning["code"] for warning in elsewhere.summary()["warnings"]}
    assert "going-on" in codes and not codes & {"incomplete", "missing-phase", "resources-gap"}


def test_a_copy_of_a_dead_run_is_gone(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cp -r` gives new times to the files; the lines say when they came."""
    copied = COPIED + 500_000
    monkeypatch.setattr("time.time", lambda: copied)
    for path in half.rglob("*"):
        os.utime(path, (copied, copied))
    moment = LiveRun(half).moment()
    assert moment["state"] == GONE and moment["obj_per_s"] is None and moment["pgs_not_clean"] is None
    assert moment["silent_s"] == pytest.approx(500_000, abs=2)
    assert moment["elapsed_s"] == pytest.approx(COPIED - 1795614172, abs=2)


def test_a_phase_that_is_repeated_starts_anew(held: Path) -> None:
    assert LiveRun(held).moment()["doing"] == "running"
    (held / "phases" / "04-one-down.running").rename(held / "phases" / "04-one-down.partial-1")
    events = ({"event": "phase-broken-off"}, {"event": "run-begun"}, {"event": "phase-begin", "phase": "one-down"})
    with (held / "events.jsonl").open("a") as file:
        file.writelines(json.dumps({"t": COPIED + 1, **event}) + "\n" for event in events)
    moment = LiveRun(held).moment()
    assert (moment["phase"], moment["doing"]) == ("one-down", "starting")
    assert (moment["elapsed_s"], moment["left_s"]) == (0, None)


def test_who_may_not_read_the_journal_sees_a_failed_run_that_was_started_again(
    held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (held / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": COPIED - 1, "event": "run-failed", "why": "x"}) + "\n")
    assert LiveRun(held).moment()["state"] == GOING_ON
    read = LineTail.read

    def refused(tail: LineTail, *most: int) -> Any:
        if tail.path.name == "journal.jsonl":
            raise PermissionError(13, "Permission denied", str(tail.path))
        return read(tail, *most)

    monkeypatch.setattr(LineTail, "read", refused)
    assert LiveRun(held).moment()["state"] == GOING_ON
    monkeypatch.setattr(live_run, "is_held", lambda _: False)
    assert LiveRun(held).moment()["state"] == live_run.FAILED


@pytest.mark.parametrize("seconds", ["Infinity", "1e308", "NaN"])
def test_a_duration_that_nobody_has_is_unknown(held: Path, seconds: str) -> None:
    plan = held / "plan.json"
    plan.write_text(re.sub(r'"duration": [\d.]+', f'"duration": {seconds}', plan.read_text()))
    moment = LiveRun(held).moment()
    assert (moment["left_s"], moment["after_is_exact"]) == (None, False)
    json.dumps(moment, allow_nan=False)
    assert moment_lines(moment)


def test_a_folder_that_gets_another_name_meanwhile_is_left_out(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir, expected = os.scandir, files_of(held)

    def renamed(path: Any) -> Any:
        if str(path).endswith(".running"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", renamed)
    assert expected and files_of(held) == expected


def test_a_file_of_the_future_is_not_silent(held: Path) -> None:
    os.utime(held / "events.jsonl", (COPIED + 70, COPIED + 70))
    assert LiveRun(held).silence() == 0


def test_a_line_of_json_a_second_until_the_end(held: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock, begins = [0.0], []
    moment = LiveRun.moment

    def look(run: LiveRun) -> Any:
        begins.append(clock[0])
        clock[0] += 0.25  # a look takes its time
        return moment(run)

    def wait(seconds: float) -> None:
        clock[0] += seconds
        if len(begins) == 2:
            with (held / "events.jsonl").open("a") as file:
                file.write(json.dumps({"t": COPIED + 1, "event": "run-failed", "why": "a disk is full"}) + "\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: clock[0])
        patch.setattr("time.sleep", wait)
        patch.setattr(LiveRun, "moment", look)
        assert main(["watch", str(held), "--json"]) == 1
    assert begins == [0.0, 1.0, 2.0]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["state"] for line in lines] == ["going on", "going on", "failed"]
    assert lines[-1]["why"] == "a disk is full"


#: processor time of a heavy look: the pause is 50 s, and the shortest one 12.5 s
TOOK = 50 / live_run.SPARED


class Processor:
    """A clock of the test, and the processor time of heavy looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.used = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.thread_time", lambda: self.used)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    return Processor(monkeypatch)


@pytest.fixture
def sparing(processor: Processor) -> live_run.Sparing:
    sparing = live_run.Sparing()
    with sparing.look():
        processor.used += 10.0
    return sparing


def test_the_first_look_makes_no_pause(sparing: live_run.Sparing) -> None:
    with sparing.look():
        assert sparing.due


@pytest.mark.parametrize("light", [0.0, 0.001])
@pytest.mark.parametrize("apart", [1, 10, 100, 7200])
def test_all_looks_take_a_small_share_of_a_processor(
    processor: Processor, sparing: live_run.Sparing, apart: int, light: float
) -> None:
    """Turns (a fault, the begin or end of a phase) come each `apart` seconds."""
    heavy = []
    processor.used = 0.0
    while processor.now < 36000:
        with sparing.look():
            sparing.due = sparing.due or (processor.now % apart == 0 and sparing.may_hurry)
            heavy += [processor.now] * sparing.due
            processor.used += TOOK if sparing.due else light
        processor.now += 1
    if not light:
        assert heavy[1] == {1: 13, 10: 20}.get(apart, 50)
    share = 1 / live_run.SPARED
    assert 0.9 * processor.now * share < processor.used <= (processor.now + 37.5) * share + TOOK


def test_looks_that_are_slow_leave_time_for_heavy_looks(processor: Processor, sparing: live_run.Sparing) -> None:
    heavy: List[float] = []
    while processor.now < 200:
        with sparing.look():
            heavy += [processor.now] * sparing.due
            processor.used += TOOK if sparing.due else 0.1
        processor.now += 1
    assert heavy == [0, 99, 198]


def test_a_look_of_another_state_makes_the_next_pause_longer(processor: Processor, sparing: live_run.Sparing) -> None:
    for _ in range(4):
        with sparing.look():
            sparing.due = True
            processor.used += TOOK
    assert sparing.next_at == 200 and not sparing.may_hurry


def test_a_summary_is_made_anew_when_there_is_something_to_show(
    held: Path, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(make: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*args: Any) -> Any:
            processor.used += TOOK
            return make(*args)

        return slowly

    for name in ("numbers_of", "phase_line"):
        monkeypatch.setattr(live_run, name, slow(getattr(live_run, name)))
    run = LiveRun(held)

    def look(now: float) -> Any:
        processor.now = now
        with run.sparing.look():
            run.moment()
            return run.summary()

    look(0.0)  # it is not measured
    first = look(0.0)
    with next(held.glob("monitors/*/recovery.jsonl")).open("a") as file:
        line = {"t": COPIED - 10, "epoch": 70, "map": [{"epoch": 70, "t": COPIED - 10, "down": [1]}]}
        file.write(json.dumps(line) + "\n")
    assert look(49.0) is first, "the requests of its time are not there"
    flapped = look(50.0)
    assert flapped is not first and run.summary() is flapped
    shutil.copy(held / "phases" / "02-no-failure" / "phase.json", held / "phases" / "04-one-down.running")
    assert look(62.0) is flapped, "the former look came early"
    assert look(63.0) is not flapped, "a phase has ended"


def test_a_tail_reads_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    tail = LineTail(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert tail.read() == [{"a": 1}]
    with path.open("a") as file:
        file.write('}\n[1]\nnoise\n{"a": 3}\n')
    assert tail.read() == [{"a": 2}, {"a": 3}] and tail.read() == []
    path.write_text('{"b": 1}\n')  # shorter: another file
    assert tail.read() == [{"b": 1}]
    path.write_text("".join(f'{{"c": {i}}}\n' for i in range(100)))
    assert [line["c"] for _ in range(100) for line in tail.read(most=10)][-1] == 99
    (tmp_path / "pipe").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="regular file"):
        LineTail(tmp_path / "pipe").read()


def test_the_heartbeats_of_a_long_phase_are_not_all_in_memory(held: Path) -> None:
    run, path = LiveRun(held), held / "phases" / "04-one-down.running" / "heartbeat.jsonl"
    before = run.moment()
    job = {"ops": 10**6, "bytes": 10**9, "errors": 7, "state": "running"}
    with path.open("a") as file:
        for second in range(30_000):
            file.write(json.dumps({"t": COPIED + second / 1000, "node": "client9", "jobs": {"a": job}}) + "\n")
    tracemalloc.start()
    try:
        moment = run.moment()
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert moment["errors"] == before["errors"] + 7


def test_a_heartbeat_whose_time_no_float_has_is_left_out(held: Path) -> None:
    run, path = LiveRun(held), held / "phases" / "04-one-down.running" / "heartbeat.jsonl"
    before = run.moment()
    with path.open("a") as file:
        file.write(json.dumps({"t": 10**400, "node": "client9", "jobs": {"a": {"errors": 7}}}) + "\n")
    assert run.moment()["errors"] == before["errors"]


HOSTILE: List[Any] = [[], {}, "x", {"window": []}, {"version": 2, "window": {"start": "now"}, "index": 4}]


@pytest.mark.parametrize("content", HOSTILE)
def test_a_damaged_description_of_a_phase_is_named(held: Path, content: Any) -> None:
    (held / "phases" / "04-one-down.running" / "running.json").write_text(json.dumps(content))
    with pytest.raises(Unreadable, match="id-1a2b3c4d"):
        LiveRun(held).moment()


def test_damaged_lines_and_frames_cost_no_more_than_themselves(held: Path) -> None:
    folder = held / "phases" / "04-one-down.running"
    with (folder / "heartbeat.jsonl").open("a") as file:
        for jobs in ([], {"a": 1}, {"a": {"ops": "x", "bytes": 1e300}}, {"a": {"ops": float("nan")}}):
            file.write(json.dumps({"t": COPIED, "jobs": jobs}) + "\n")
        file.write(json.dumps({"t": "noon", "jobs": {"a": {}}}) + "\n")
    path = next((folder / "aggregates").iterdir())
    content = bytearray(path.read_bytes())
    content[40] ^= 1  # in its first frame
    path.write_bytes(content)
    moment = LiveRun(held).moment()
    assert moment["phase"] == "one-down"
    path.write_bytes(b"no aggregates")
    with pytest.raises(Unreadable, match="no aggregates file"):
        LiveRun(held).moment()
