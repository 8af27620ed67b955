"""Phases that wait: what happens in which order."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List, Optional, Tuple, cast

import pytest
from run_context import context

from cbt_plugins.cluster.ceph import Status
from cbt_plugins.cluster.state_sampler_agent import state_of
from cbt_plugins.plan import S3, Event, Phase, Plan
from cbt_plugins.run import wait_phase as waiting
from cbt_plugins.run.event_schedule import EventSchedule
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.run_archive import RunArchive


class Noted:
    """Stands where host, timeline and status watch do."""

    failure = None
    run_dir = "/nowhere"
    left = 0

    def __init__(self) -> None:
        self.seen: List[str] = []

    @contextlib.contextmanager
    def monitors(self, folder: Path, *without: str, acting: bool = False) -> Iterator[None]:
        self.seen.append("monitors")
        yield
        self.seen.append("no monitors")

    @contextlib.contextmanager
    def feed(self) -> Iterator[Noted]:
        yield self

    def poll(self, timeout: float) -> Tuple[()]:
        return ()

    def prepare(self) -> None:
        self.seen.append("prepare")

    def begin(self, at: float) -> None:
        self.seen.append("begin")

    def close(self) -> None:
        self.seen.append("close")

    def undo_left(self) -> None:
        self.seen.append("undo left")

    def abandon(self) -> None:
        self.seen.append("abandon")

    def note(self, outcome: PhaseOutcome) -> None:
        self.seen.append("note")


def run(folder: Path, noted: Noted) -> Any:
    plan = Plan("warp", S3(urls=("http://a",)), (), (), ())
    return context(cbt_run=noted, plan=plan, ceph=noted, watch=noted, archive=RunArchive(folder))


def test_events_begin_when_somebody_watches(tmp_path: Path) -> None:
    """A fault at 0s in a wait: without its monitor nobody would know when its OSDs went down."""
    noted = Noted()
    anything = cast(Any, noted)
    phase = Phase("w", "wait", duration=0.01)
    waiting.wait(run(tmp_path, noted), 1, phase, anything)
    assert noted.seen == ["prepare", "monitors", "begin", "close", "undo left", "no monitors", "note"]


def test_a_wait_that_is_broken_off_begins_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    anything = cast(Any, noted)
    monkeypatch.setattr(noted, "poll", lambda timeout: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        waiting.wait(run(tmp_path, noted), 1, Phase("w", "wait", duration=9.0), anything)
    assert noted.seen == ["prepare", "monitors", "begin", "abandon"]


def follow(
    samples: List[Tuple[float, int]], busy: int = 0, at_most: float = 3600.0, stale: Tuple[float, float] = (0.0, 0.0)
) -> Tuple[Optional[str], int]:
    """Follow a cluster whose status at a time has so many PGs that are not clean; what `follow` gives, and its looks.

    `busy`: of so many looks. `stale`: from one time to another the states are older than the OSD map.
    """
    looks = 0

    def status(at: float, left: int) -> Any:
        settled = not stale[0] <= at < stale[1]
        pgs = {"active+clean": 90, "active+clean+scrubbing": 1, "active+undersized+degraded": left}
        says = {"OSDMAP_FLAGS": "norebalance flag(s) set"}
        return SimpleNamespace(degraded=0, misplaced=0, left=left, settled=settled, pgs=pgs, says=says)

    def poll(timeout: float) -> List[Tuple[float, Any]]:
        nonlocal looks
        looks += 1
        return [(at, status(at, left)) for at, left in samples[looks - 1 : looks]]

    waited = waiting.Waiting("w", lambda status: status.left, at_most=at_most)  # type: ignore[attr-defined]
    given_up = waited.follow(cast(Any, SimpleNamespace(poll=poll)), lambda: False, lambda: looks <= busy)
    return given_up, looks


class Steps:
    """A clock that goes on by a minute with each look, so that a wait of hours takes no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def stalls_after(
    lefts: List[int], monkeypatch: pytest.MonkeyPatch, busy: int = 0, of_garbage: bool = False
) -> Optional[float]:
    """Return after how many seconds a wait is given up that sees so many PGs a minute; None: it became clean."""
    clock = Steps()
    monkeypatch.setattr(waiting.time, "monotonic", clock.monotonic)
    looks = iter(enumerate(lefts))

    def poll(timeout: float) -> List[Tuple[float, Any]]:
        clock.now += 60.0
        i, left = next(looks)
        bin.left = left
        return [(60.0 * i, SimpleNamespace(degraded=0, misplaced=10 * left, left=left, settled=True, pgs={}, says={}))]

    waited = waiting.Waiting("w", lambda status: status.left, at_most=1e6, stalled=7200.0)  # type: ignore[attr-defined]
    bin: Any = SimpleNamespace(left=None, error=None, collecting=False)
    if of_garbage:
        waited.of_garbage(bin)
    given_up = waited.follow(cast(Any, SimpleNamespace(poll=poll)), lambda: False, lambda: clock.now < 60.0 * busy)
    return clock.now if given_up else None


def test_a_recovery_that_goes_on_is_not_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = [300 - i // 2 for i in range(600)] + [0, 0]  # five hours
    assert stalls_after(backfill, monkeypatch) is None
    # it begins with an undo, on a cluster that is clean: in the wait, before its events are over, or by itself
    assert stalls_after([0, *backfill], monkeypatch, busy=1) is None
    assert stalls_after([0, 0, 0, *backfill], monkeypatch, busy=3) is None
    # it gets worse than it ever was
    assert stalls_after([40, 20, *backfill], monkeypatch) is None
    # garbage that others go on making is no progress: it has no highest number
    assert stalls_after(list(range(5, 600)), monkeypatch, of_garbage=True) == 60.0 + 7200.0
    # an OSD that flaps: a recovery begins once
    assert stalls_after([0, 5, 4] * 600, monkeypatch) == 240.0 + 7200.0
    # no progress
    assert stalls_after([5] * 600, monkeypatch) == 60.0 + 7200.0
    assert stalls_after([5, 4, 5] * 600, monkeypatch) == 120.0 + 7200.0


def test_a_cluster_is_clean_when_it_was_seen_to_stay_so() -> None:
    clean = [(float(at), 0) for at in range(100, 160, 5)]
    assert follow(clean) == (None, 4)  # 100 to 115 s
    assert follow([clean[0], (105.0, 3), *clean[2:]]) == (None, 6)  # 110 to 125 s
    silent = [*clean[:2], *((at + 16.0, 0) for at, _ in clean[2:])]
    assert follow(silent) == (None, 6)  # 126 to 141 s: of the silence before that nobody knows
    slow = [(float(at), 0) for at in (100, 116, 132, 148, 189, 205, 221)]  # a process per question may take so long
    assert follow(slow, at_most=5.0) == (None, 3)  # 116 to 132 s, as 16 s are usual then
    recovers = [*((at, 3) for at, _ in slow[:3]), *slow[3:]]
    assert follow(recovers, at_most=5.0) == (None, 6)  # 189 to 205 s: the 41 s before that are a silence
    given_up, looks = follow(clean[:1], at_most=0.2)  # and then silence
    assert given_up == "0 PGs are not active+clean after 0 s" and looks > 4


def test_a_wait_that_is_given_up_names_the_states_and_the_flags() -> None:
    given_up, _ = follow([(100.0, 2)], at_most=0.2)
    states = "2 active+undersized+degraded, norebalance flag(s) set"
    assert given_up == f"2 PGs are not active+clean after 0 s: {states}"


def test_a_clock_that_is_set_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, hours = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: clock() + 3600.0 * next(hours))
    assert follow([(float(at), 0) for at in range(100, 160, 5)], at_most=1800.0) == (None, 4)


def test_states_older_than_the_osd_map_are_not_clean() -> None:
    """The active mgr was on the node that failed: until another one has reports, the states are those of before."""
    samples = [(float(at), 0) for at in range(100, 150, 5)] + [(float(at), 7) for at in range(150, 200, 5)]
    samples += [(float(at), 0) for at in range(200, 260, 5)]
    assert follow(samples) == (None, 4)
    assert follow(samples, stale=(100.0, 150.0)) == (None, 24)  # 200 to 215 s
    given_up, _ = follow(samples[:1], at_most=0.2, stale=(100.0, 150.0))
    assert given_up == "0 PGs are not active+clean, by PG statistics older than the last change of an OSD, after 0 s"


def test_a_status_says_whether_the_statistics_are_newer_than_the_osd_map() -> None:
    status = json.loads((Path(__file__).parents[1] / "data" / "ceph" / "reef-status.json").read_text())
    assert Status.parse(status).settled is None
    state = state_of(status)
    assert [Status.of_state({**state, "settled": its}).settled for its in (True, False)] == [True, False]


def test_a_wait_for_clean_begins_when_its_events_have_happened() -> None:
    assert follow([(float(at), 0) for at in range(100, 190, 5)], busy=6) == (None, 10)


def test_events_that_a_wait_did_not_live_to_see_are_told(tmp_path: Path) -> None:
    schedule = EventSchedule([Event(3600.0, mark="late")], cast(Any, None), lambda *a, **k: None, "w")
    noted = Noted()
    outcome = waiting.wait(run(tmp_path, noted), 1, Phase("w", "wait", duration=0.01), schedule)
    assert outcome.status == "degraded"
    undone: List[Any] = []
    change = SimpleNamespace(label="a")
    injector: Any = SimpleNamespace(open_changes=[change], undo=lambda labels: undone.extend(labels) or [])
    late = EventSchedule([Event(3600.0, undo=("a",))], injector, lambda *a, **k: None, "v")
    assert waiting.wait(run(tmp_path, noted), 1, Phase("v", "wait", duration=0.01), late).status == "degraded"
    assert undone == ["a"], "later phases must not find it in force"
    assert [(its["code"], its["text"]) for its in outcome.warnings] == [
        ("events-left", "1 of the phase's events did not happen before its end")
    ]
