"""When the page of a run that goes on is made anew: looks once a second, by a clock of the test."""

from __future__ import annotations

import json
import math
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, Iterator, List, Set

import pytest
from aggregates_writer import Request, counts_frame
from archive_builder import COPIED, HALF

from cbt_plugins.journal import Journal
from cbt_plugins.results.live_run import SPARED, LiveRun
from cbt_plugins.results.requests.running_phase import RunningPhase

pytest.importorskip("jinja2")

from cbt_plugins.report import live_page
from cbt_plugins.report.live_page import LivePage
from cbt_plugins.report.live_terminal import data

#: processor time of a page: the pause is 50 s, and the shortest one 12.5 s
TOOK = 50 / SPARED
#: when the recorded phase began
BEGIN = 1795614172


class Watch:
    """The page of the half archive, whose phase goes on. Times are in seconds after the archive was copied."""

    def __init__(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.now = 0
        self.has_load = True
        self.hangs_at = math.inf  # second without requests of the first client, and all later ones
        self.pages: List[int] = []  # when a page was made
        self._used = 0.0
        self._until = int(COPIED) - 4
        run_page = live_page.run_page

        def slow_page(*args: Any, **kwargs: Any) -> str:
            self._used += TOOK
            self.pages.append(self.now)
            return run_page(*args, **kwargs)

        monkeypatch.setattr("time.time", lambda: COPIED + self.now)
        monkeypatch.setattr("time.monotonic", lambda: float(self.now))
        monkeypatch.setattr("time.thread_time", lambda: self._used)
        monkeypatch.setattr(live_page, "run_page", slow_page)
        self._write_requests()
        self.page = LivePage(LiveRun(run))
        self.page.look()
        self.go_on(1)
        assert self.pages == [0, 1], "the first page is not measured"
        self.pages.clear()

    def compute(self, seconds: float) -> None:
        """Spend processor time."""
        self._used += seconds

    def go_on(self, until: int) -> None:
        """Look once a second; every 10 s there are new requests."""
        while self.now < until:
            self.now += 1
            if self.now % 10 == 0 and self.has_load:
                self._write_requests()
            self.page.look()

    def _write_requests(self) -> None:
        """Write a request in each second up to 2 s ago: so long they have come from the client to the archive."""
        until = int(COPIED) + self.now - 2
        ends = range(self._until + 1, until + 1)
        requests = [Request("GET", end * 10**9, 10**6, 1, endpoint="http://rgw1:7480") for end in ends]
        before = [request for request in requests if request.end < (COPIED + self.hangs_at) * 10**9]
        for number, path in enumerate(sorted(self.run.glob("phases/*.running/aggregates/*"))):
            self._append(path, requests if number else before)
        self._until = until

    def _append(self, path: Path, requests: List[Request]) -> None:
        if requests:
            with path.open("ab") as file:
                file.write(counts_frame(requests))
            os.utime(path, (COPIED + self.now, COPIED + self.now))

    def note(self, name: str, kind: str = "stop", label: str = "node-a") -> None:
        """Write an event of a fault."""
        line = {"t": COPIED + self.now, "event": name, "label": label, "kind": kind, "targets": ["node4"], "osds": [6]}
        with (self.run / "events.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def sample(self, clock: float = 0.0, **state: Any) -> None:
        """Write a sample of the cluster, one a second; `clock`: seconds by which the clock of its node is fast."""
        with next(self.run.glob("monitors/*/recovery.jsonl")).open("a") as file:
            file.write(json.dumps({"t": COPIED + self.now + clock, "i": 431 + self.now, **state}) + "\n")

    @property
    def marks(self) -> Set[int]:
        """The times of the marks in the charts of the running phase."""
        marks = self.page.summary["failure"]["timelines"]["one-down"]["marks"]
        return {round(BEGIN + mark["at"] - COPIED) for mark in marks}


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    run = tmp_path / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(HALF, run)
    (path,) = run.glob("phases/*.running/running.json")
    record = json.loads(path.read_text())
    record["asked"]["duration"] = 3600.0
    path.write_text(json.dumps(record))
    with closing(Journal(run / "journal.jsonl")) as journal:
        journal.write("invocation")
        yield Watch(run, monkeypatch)


def test_without_a_turn_a_page_comes_after_the_pause(watch: Watch) -> None:
    watch.go_on(15)
    watch.note("fault-injected", kind="settings")  # no fault
    watch.go_on(110)
    assert watch.pages == [51, 101]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("fault-inject-begin", "later"),
        ("fault-injected", "node-a"),
        ("fault-in-effect", "node-a"),
        ("fault-undo-begin", "node-a"),
    ],
)
def test_the_mark_of_a_fault_comes_with_the_first_requests_after_it(watch: Watch, name: str, label: str) -> None:
    watch.go_on(15)
    assert 15 not in watch.marks
    watch.note(name, label=label)
    watch.go_on(19)
    assert watch.pages == []
    watch.go_on(20)
    assert watch.pages == [20] and 15 in watch.marks
    watch.go_on(100)
    assert watch.pages == [20], "the next pause is longer"


def test_a_page_waits_until_all_requests_of_its_turn_are_there(watch: Watch) -> None:
    watch.go_on(19)
    watch.note("fault-undo-begin")
    watch.go_on(50)
    assert watch.pages == [30] and 19 in watch.marks, "the page at 20 s would have no requests of 19 s"


def test_a_page_before_the_requests_of_a_turn_is_not_its_last(watch: Watch) -> None:
    watch.go_on(50)
    watch.note("fault-undo-begin")
    watch.go_on(51)
    assert watch.pages == [51] and 50 not in watch.marks
    watch.go_on(100)
    assert watch.pages == [51, 64] and 50 in watch.marks


def test_the_milestones_do_not_wait_for_a_load_that_hangs(watch: Watch) -> None:
    watch.go_on(10)
    watch.has_load = False
    watch.go_on(15)
    watch.note("fault-injected")
    watch.go_on(50)
    assert watch.pages[0] == 40


def test_no_page_is_early_before_a_client_that_hangs_is_waited_for_no_longer(watch: Watch) -> None:
    watch.hangs_at = 15
    watch.go_on(15)
    watch.note("fault-undo-begin")
    watch.go_on(49)
    assert watch.pages == [], "the first client may be only late"
    watch.go_on(50)
    assert watch.pages == [50] and 15 in watch.marks, "requests of the others are 25 s newer"


def test_a_read_that_shows_no_turn_makes_the_pause_longer(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    look = RunningPhase.look

    def slow_look(phase: RunningPhase) -> Any:
        watch.compute(0.1)
        return look(phase)

    monkeypatch.setattr(RunningPhase, "look", slow_look)
    watch.hangs_at = 15
    watch.go_on(15)
    watch.note("fault-undo-begin")
    before = watch.page.run.sparing.next_at
    watch.go_on(21)
    assert watch.page.run.sparing.next_at == before + SPARED * 0.1 and watch.pages == []


def test_pages_come_before_the_first_requests(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in watch.run.glob("phases/*.running/aggregates/*"):
        path.unlink()
    look = RunningPhase.look

    def slow_look(phase: RunningPhase) -> Any:
        watch.compute(0.1)
        return look(phase)

    monkeypatch.setattr(RunningPhase, "look", slow_look)
    watch.page, watch.has_load = LivePage(LiveRun(watch.run)), False
    watch.go_on(130)
    assert watch.pages[:2] == [2, 3] and len(watch.pages) > 2


def test_a_page_does_not_wait_for_the_clock_of_the_node_that_samples(watch: Watch) -> None:
    watch.go_on(15)
    watch.sample(clock=100.0, epoch=70, map=[{"epoch": 70, "t": COPIED + 115, "down": [1]}])
    watch.go_on(50)
    assert watch.pages == [20]


def test_without_load_a_turn_waits_for_nothing(watch: Watch) -> None:
    shutil.rmtree(next(watch.run.glob("phases/*.running")))
    watch.go_on(14)
    assert watch.pages == [14], "the phase has ended"
    watch.note("fault-undo-begin")
    watch.go_on(100)
    assert watch.pages == [14, 64], "the former page came early"


def test_clean_pgs_are_a_milestone_when_they_have_lasted(watch: Watch) -> None:
    for second in range(1, 51):
        watch.go_on(second)
        watch.sample(**({"pgs": {"active+clean": 77}, "settled": True} if second >= 15 else {}))
    assert watch.pages == [30], "the page at 20 s would have been too early"
    milestones = data(watch.page.moment, watch.page.summary)["milestones"]
    assert "clean" in {milestone["milestone"] for milestone in milestones}


def test_without_load_clean_pgs_wait_for_the_sample_that_proves_them(watch: Watch) -> None:
    for second in range(1, 101):
        watch.go_on(second)
        watch.sample(**({"pgs": {"active+clean": 77}, "settled": True} if second >= 60 else {}))
        if second == 2:
            shutil.rmtree(next(watch.run.glob("phases/*.running")))
        if len(watch.pages) > 1:
            break
    milestones = data(watch.page.moment, watch.page.summary)["milestones"]
    assert 64 < watch.now < 100 and "clean" in {milestone["milestone"] for milestone in milestones}, watch.pages
