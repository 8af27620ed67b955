"""A load phase that is under way: what ends it, and a disk that is full."""

from __future__ import annotations

import errno
import math
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Tuple, cast

import pytest
from run_context import context

from cbt_plugins import journal, polling
from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.remote import RemoteError, Result
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster_conditions import CLEAN
from cbt_plugins.formatting.progress_line import Now
from cbt_plugins.journal import LineWriter
from cbt_plugins.load.generator import Counts, JobEnd, LoadStart
from cbt_plugins.load.load_session import Beat, LoadError
from cbt_plugins.plan import S3, Goal, Phase, Plan
from cbt_plugins.run import load_observer, preflight
from cbt_plugins.run import phase_outcome as outcome_module
from cbt_plugins.run.load_observer import LoadObserver, refusal
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.run_archive import RunArchive


def beat_of(good: int, failed: int, first: float) -> Beat:
    counts = {"a": {"PUT": Counts(good, failed, first=first, last=100.0)}}
    errors = {"a": "http: 403 AccessDenied: no"}
    return Beat("c1", 100.0, {"a": "running"}, {"a": 100.0}, counts, {"a": 100.0}, {"a": None}, {}, errors)


def test_a_job_of_which_everything_fails_is_refused_with_the_servers_first_words() -> None:
    told = refusal(beat_of(0, 10, 95.0), "a")
    assert told == "a: all of its first 10 requests failed: http: 403 AccessDenied: no"
    outcome = PhaseOutcome(1, Phase("fill", "fill"), cause=told)
    outcome.warn("errors", "1000 of 1000 requests failed")
    assert outcome.why == told
    assert refusal(beat_of(1, 1000, 10.0), "a") is None  # one success: it gets somewhere
    assert refusal(beat_of(0, 9, 10.0), "a") is None  # too few requests
    assert refusal(beat_of(0, 1000, 95.1), "a") is None  # too short a time


class Session:
    """A session whose generators run for as many looks as there are lists of silent clients."""

    go_at, go_clock, latest_end, all_ready = 1000.0, 0.0, math.inf, False

    def __init__(self, *silence: Dict[str, float]) -> None:
        self.silence, self.stopped = list(silence), 0

    over = property(lambda self: not self.silence)
    running = property(lambda self: ["c1"])
    jobs = property(lambda self: [SimpleNamespace(id="a", node="c1", start="self", lead=0.0)])

    def beats(self, _: float) -> List[Beat]:
        return []

    def silent(self, _: float) -> Dict[str, float]:
        return self.silence.pop(0)

    def ends(self) -> Dict[str, JobEnd]:
        return {}

    def stop(self) -> None:
        self.stopped += 1


def observer_of(folder: Path, session: Session) -> LoadObserver:
    plan = Plan("warp", S3(urls=("http://a",)), (), (), (Phase("age", "hybrid"),))
    watch = SimpleNamespace(poll=lambda: (), latest=None)
    parts = (PhaseOutcome(1, plan.phases[0]), session, watch, SimpleNamespace(failure=None, begun=True))
    return LoadObserver(context(plan=plan), {"c1": Offset(0.0, 0.0)}, *cast(Any, parts), folder, cast(Any, None))


def test_the_journal_knows_of_a_load_before_its_generators_may_write(tmp_path: Path) -> None:
    """A run that is killed at its go may have objects that the resumed phase finds."""
    order: List[str] = []

    def go() -> None:
        order.append("go")
        raise KeyboardInterrupt

    session = cast(Any, Session())
    session.go_at, session.all_ready, session.go = None, True, go
    journal = SimpleNamespace(write=lambda event, phase: order.append(f"{event} {phase}"))
    with closing(observer_of(tmp_path, session)) as observer:
        observer.context = replace(observer.context, journal=cast(Any, journal))
        observer.before = cast(Any, SimpleNamespace(is_done=True, get=dict))
        observer.schedule = cast(Any, SimpleNamespace(prepare=lambda: order.append("prepare"), begun=False))
        with pytest.raises(KeyboardInterrupt):
            observer.begin_due()
    assert order == ["prepare", "load-begun age", "go"]


def test_a_phase_is_stopped_as_soon_as_its_rows_are_lost(tmp_path: Path) -> None:
    session, whole = Session(), beat_of(10, 0, 95.0)
    with closing(observer_of(tmp_path, session)) as observer:
        observer.take(whole)
        assert observer.outcome.status == "ok" and not session.stopped
        for _ in range(2):
            observer.take(replace(whole, lost={"a": "cannot write: no space left on device"}))
    assert (observer.outcome.status, session.stopped) == ("failed", 1)
    assert observer.outcome.why == "c1: a: cannot write: no space left on device: make room on the node"


def test_a_generator_that_ends_with_an_error_by_itself_ends_the_phase(tmp_path: Path) -> None:
    for code, status in ((None, "ok"), (0, "ok"), (-11, "failed"), (1, "failed")):
        session = Session()
        session.latest_end = time.time()
        with closing(observer_of(tmp_path, session)) as observer:
            observer.take(replace(beat_of(10, 0, 95.0), states={"a": "done"}, exits={"a": code}))
        assert (observer.outcome.status, session.stopped) == (status, int(status == "failed"))


def test_conditions_of_the_cluster_are_logged_again_after_a_fault_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [{"event": "fault-inject-begin", "label": "a", "kind": "stop", "t": 10.0}]
    status = SimpleNamespace(sample=lambda at: {"t": at, "pgs": {"active+clean+scrubbing": 7}})
    with closing(observer_of(tmp_path, Session())) as observer:
        observer.context = replace(observer.context, events=cast(Any, SimpleNamespace(records=records)))
        observer.watch = cast(Any, SimpleNamespace(poll=lambda: [(40.0, status)]))
        observer.session.silent = lambda _: {}  # type: ignore[method-assign]
        observer.look()
        assert not caplog.messages
        records += [{"event": "fault-undone", "label": "a", "t": 20.0}, {"event": CLEAN, "t": 30.0}]
        observer.look()
    assert caplog.messages == ["age: scrubbing: 7 of 7 PGs: 7 active+clean+scrubbing"]


def test_a_client_that_is_away_is_waited_for_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(load_observer.time, "monotonic", lambda: now[0])
    session = Session({"c1": 31.0}, {"c1": 299.0}, {})
    session.latest_end = 960.0
    with closing(observer_of(tmp_path, session)) as observer:
        observer.until_over()  # its latest end is over, and it may have ended in time
        silent = {"code": "client-silent", "text": "c1 sent no message for 299 s: its load continued unobserved"}
        assert observer.outcome.warnings == [silent] and not session.stopped
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert told == ["age: no message from c1 for 30 s: its load continues unobserved"]
        now[0] += load_observer.BACK + 1
        session.silence = [{}]
        observer.until_over()
        assert session.stopped == 1 and [warning["code"] for warning in observer.outcome.warnings][1:] == ["late"]
        now[0] += 1000.0
        session.silence = [{"c1": 31.0}, {}]
        observer.until_over()  # it has not heard that it is to stop
        now[0] += 1000.0
        session.silence = [{}]
        with pytest.raises(LoadError, match=r"the load generators of c1 did not end within \d+ s"):
            observer.until_over()


def test_no_rate_is_shown_while_a_client_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: List[Now] = []
    progress = SimpleNamespace(show=shown.append, close=lambda: None)
    monkeypatch.setattr(load_observer, "Progress", lambda _: progress)
    with closing(observer_of(tmp_path, Session({}, {"c1": 31.0}, {}))) as observer:
        for second in range(10):
            observer.take(replace(beat_of(100 * second, 0, 95.0), counted_at={"a": 100.0 + second}))
        observer.until_over()
    assert [now.rate.objects_per_second if now.rate else None for now in shown] == [100.0, None, 100.0]


def test_a_heartbeat_without_room_costs_no_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(LineWriter):
        def write(self, value: Mapping[str, Any]) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(load_observer, "LineWriter", FullDisk)
    with closing(observer_of(tmp_path, Session())) as observer:
        for second in (100.0, 101.0, 102.0):
            observer.take(replace(beat_of(10, 0, 95.0), at=second))
    (warning,) = observer.outcome.warnings
    assert warning == {"code": "resources-gap", "text": "heartbeat.jsonl lacks lines: No space left on device"}
    assert observer.outcome.status == "ok"


def test_a_phase_that_nobody_guards_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last sample is no news for ever: its disk may be full, or its node gone."""
    now = [1000.0]
    monkeypatch.setattr(load_observer.time, "monotonic", lambda: now[0])
    session = Session()
    with closing(observer_of(tmp_path, session)) as observer:
        watch: Any = observer.watch
        watch.latest, watch.latest_at = SimpleNamespace(raw_used=0.3, checks={}, not_clean=0), now[0]

        def look() -> List[Tuple[str, str]]:
            session.silence = [{}]
            observer.until_over()
            return [(warning["code"], warning["text"]) for warning in observer.outcome.warnings]

        for passed in (0.0, 120.0, 1.0, 30.0):
            now[0] += passed
            warnings = look()
        text = "no sample of the cluster for 121 s: full_guard does not know how full the cluster is"
        assert warnings == [("unguarded", text)]
        watch.latest_at = now[0]
        assert len(look()) == 1
        now[0] += 200.0
        assert [code for code, _ in look()] == ["unguarded"] * 2
    assert observer.outcome.status == "ok"


@pytest.mark.parametrize("admin", [True, False])
def test_a_phase_without_any_sample_says_so_where_there_should_be_one(
    admin: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Ceph's commands nobody samples the cluster: `no-admin` says that of the run."""
    now = [1000.0]
    monkeypatch.setattr(load_observer.time, "monotonic", lambda: now[0])
    session = Session({}, {})
    with closing(observer_of(tmp_path, session)) as observer:
        observer.context = replace(observer.context, plan=replace(observer.context.plan, admin=admin))
        now[0] += 121.0
        observer.until_over()
    assert [warning["code"] for warning in observer.outcome.warnings] == (["unguarded"] if admin else [])


def test_osds_that_count_as_full_by_a_fault_end_no_phase(tmp_path: Path) -> None:
    """The last sample may be from before the undo; what the fault does not explain ends the phase as ever."""

    def fill(*ratios: str) -> SimpleNamespace:
        return SimpleNamespace(step=SimpleNamespace(former=dict.fromkeys(ratios, 0.9)))

    session, injector = Session(), SimpleNamespace(open_changes=[fill("nearfull_ratio", "backfillfull_ratio")])
    with closing(observer_of(tmp_path, session)) as observer:
        observer.context = replace(observer.context, injector=cast(Any, injector))
        watch: Any = observer.watch

        def status_with(*checks: str) -> str:
            watch.latest = SimpleNamespace(raw_used=0.3, checks=dict.fromkeys(checks, "HEALTH_WARN"), not_clean=0)
            watch.latest_at = time.monotonic()
            session.silence = [{}]
            observer.until_over()
            return observer.outcome.status

        assert status_with("OSD_BACKFILLFULL") == "ok"
        injector.open_changes = []
        assert status_with("OSD_BACKFILLFULL") == status_with() == "ok"
        injector.open_changes = [fill("nearfull_ratio", "backfillfull_ratio", "full_ratio")]
        assert status_with("OSD_FULL", "POOL_FULL") == status_with() == "ok"
        injector.open_changes = [fill("nearfull_ratio", "backfillfull_ratio")]
        assert status_with("OSD_BACKFILLFULL", "OSD_FULL") == "aborted"
        assert observer.outcome.why == "the cluster is full: OSD_FULL"


@pytest.mark.parametrize("checks", [{}, {"OSD_BACKFILLFULL": "HEALTH_WARN"}])
def test_a_fault_that_fills_excuses_no_raw_capacity(checks: Dict[str, str], tmp_path: Path) -> None:
    step = SimpleNamespace(former={"backfillfull_ratio": 0.9})
    session = Session({})
    with closing(observer_of(tmp_path, session)) as observer:
        injector = SimpleNamespace(open_changes=[SimpleNamespace(step=step)])
        observer.context = replace(observer.context, injector=cast(Any, injector))
        watch: Any = observer.watch
        watch.latest, watch.latest_at = SimpleNamespace(raw_used=0.81, checks=checks, not_clean=0), time.monotonic()
        observer.until_over()
    assert observer.outcome.why == "81.0 % of the raw capacity is used; full_guard is 80 %"


def load_phase(folder: Path, monkeypatch: pytest.MonkeyPatch, **session: Any) -> PhaseOutcome:
    """The outcome of a phase whose session, without jobs, has these parts."""
    stand_in = SimpleNamespace(ends=dict, **session)
    monkeypatch.setattr(LoadPhase, "jobs_of", lambda *_: [])
    monkeypatch.setattr(LoadPhase, "session_of", lambda *_: stand_in)
    monkeypatch.setattr(LoadPhase, "make_load", lambda *_: None)
    monkeypatch.setattr(LoadPhase, "account_objects", lambda *_: None)
    plan = Plan("warp", S3(urls=("http://a",)), (), (), ())
    run = context(
        plan=plan,
        archive=RunArchive(folder),
        remote=None,
        watch=SimpleNamespace(ask=lambda *_: [{}, {}]),
        injector=SimpleNamespace(open_changes=[]),
    )
    buckets = cast(Any, SimpleNamespace(kept=dict, counts_if_told=lambda *_: {}))
    nothing = cast(Any, None)
    load = LoadPhase(run, preflight.Ready(S3Keys("A", "S"), {}, {}, {}), buckets, nothing)
    return load.run(1, Phase("age", "hybrid"), LoadStart(), nothing, "/nowhere")


def test_a_clock_that_is_set_ends_no_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's clock is set forward by an hour in the middle of the phase."""
    real = time.time
    monkeypatch.setattr(load_observer.time, "time", lambda: real() + 3600.0)
    session = Session({}, {})
    session.go_at, session.go_clock, session.latest_end = real(), time.monotonic(), time.monotonic() + 600.0
    with closing(observer_of(tmp_path, session)) as observer:
        observer.until_over()
    assert (session.stopped, observer.outcome.warnings) == (0, [])


def test_a_goal_that_is_reached_stops_the_load_although_no_event_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    session = Session({}, {})
    with closing(observer_of(tmp_path, session)) as observer:
        observer.context = replace(observer.context, events=cast(Any, SimpleNamespace(write=full, records=[])))
        monkeypatch.setattr(load_observer, "reaching", lambda *_: lambda _: True)
        observer.outcome.phase = replace(observer.outcome.phase, goal=Goal(raw=0.5))
        observer.until_over()
    assert session.stopped == 1 and observer.outcome.status == "ok"


def test_rows_wait_on_their_nodes_for_room_in_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are all that a day of load has left; a repeated phase makes others."""
    tries: List[Path] = []

    def collect(into: Path) -> None:
        tries.append(into)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(into))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "ROOM_EVERY", 0.01)
    monkeypatch.setattr(outcome_module, "write_json", full)
    outcome = load_phase(tmp_path, monkeypatch, collect=collect, go_at=None, go_clock=None)
    assert len(tries) == 3 and [warning["code"] for warning in outcome.warnings] == ["no-capacity"]


@pytest.mark.parametrize(("took", "tries"), [(7200.0, 121), (590.0, 21), (5.0, 3)])
def test_the_files_of_a_phase_are_asked_for_as_long_as_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, tries: int
) -> None:
    """The network of a client is away: at most an hour."""
    now, attempts = [0.0], [0]
    monkeypatch.setattr(polling.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def collect(into: Path) -> None:
        attempts[0] += 1
        if attempts[0] < tries:
            raise RemoteError("fetching", {"c1": Result("", "No route to host", 255)})

    monkeypatch.setattr(polling.insist, "__defaults__", ((), None, sleep, 0.0))
    load_phase(tmp_path, monkeypatch, collect=collect, go_at=None, go_clock=now[0] - took)
    assert attempts[0] == tries

    attempts[0] = -1
    with pytest.raises(RemoteError):
        load_phase(tmp_path / "again", monkeypatch, collect=collect, go_at=None, go_clock=now[0] - took)
