"""A load phase that is under way: what ends it, and a disk that is full."""

from __future__ import annotations

import errno
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, cast

import pytest
from run_context import context

from cbt_plugins import journal
from cbt_plugins.load.generator import Counts, LoadStart
from cbt_plugins.load.session import Beat, LoadError
from cbt_plugins.plan import S3, Phase, Plan
from cbt_plugins.run import load_phase, preflight
from cbt_plugins.run import outcome as outcome_module
from cbt_plugins.run.context import RunArchive
from cbt_plugins.run.load_phase import LoadPhase, refusal
from cbt_plugins.run.outcome import PhaseOutcome


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


def test_a_phase_is_stopped_as_soon_as_its_rows_are_lost() -> None:
    stopped: List[str] = []
    outcome = PhaseOutcome(1, Phase("age", "hybrid"))
    observer = SimpleNamespace(outcome=outcome, session=SimpleNamespace(stop=lambda: stopped.append("stop")))
    observer._stopping = None
    observer._abort = partial(load_phase._Observer._abort, observer)
    observer._stop = partial(load_phase._Observer._stop, observer)
    whole = beat_of(10, 0, 95.0)
    load_phase._Observer._note_loss(cast(Any, observer), whole, "a")
    assert outcome.status == "ok" and not stopped
    for _ in range(2):
        beat = replace(whole, lost={"a": "cannot write: no space left on device"})
        load_phase._Observer._note_loss(cast(Any, observer), beat, "a")
    assert (outcome.status, stopped) == ("failed", ["stop"])
    assert outcome.why == "c1: a: cannot write: no space left on device: make room on the node"


def test_a_client_that_is_away_is_waited_for_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = [{"c1": 31.0}, {"c1": 299.0}, {}]
    session = SimpleNamespace(go_at=1000.0, deadline=1060.0, over=False, beats=lambda _: (), ends=dict)
    session.silent = lambda limit: silence.pop(0)
    outcome, nothing = PhaseOutcome(1, Phase("age", "hybrid")), cast(Any, None)
    watch = SimpleNamespace(poll=lambda: (), latest=None)
    schedule = SimpleNamespace(failure=None, begun=True)
    observer = load_phase._Observer(
        nothing, outcome, cast(Any, session), cast(Any, watch), cast(Any, schedule), tmp_path, nothing
    )
    monkeypatch.setattr(observer, "_show", lambda: setattr(session, "over", not silence))
    observer.until_over()  # its deadline is over, and it may have ended in time
    assert outcome.warnings == [{"code": "client-silent", "text": "c1 said nothing for 299 s: its load went on unseen"}]
    assert [r.getMessage() for r in caplog.records] == ["age: no word from c1 for 30 s: its load goes on unseen"]
    silence[:], session.over = [{"c1": 31.0}, {}], False
    observer._stopping = time.monotonic() - 1000.0
    observer.until_over()  # it has not heard that it is to stop
    observer._away_at = -math.inf
    silence[:], session.over = [{}], False
    with pytest.raises(LoadError, match="did not end"):
        observer.until_over()
    observer.close()


def test_a_heartbeat_without_room_costs_no_phase(tmp_path: Path) -> None:
    outcome, nothing = PhaseOutcome(1, Phase("age", "hybrid")), cast(Any, None)
    observer = load_phase._Observer(nothing, outcome, nothing, nothing, nothing, tmp_path, nothing)
    observer._beats.close()
    observer._beats._file = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 (the observer closes it)
    for _ in range(3):
        observer._write({"t": 1.0})
    observer.close()
    (warning,) = outcome.warnings
    assert warning == {"code": "resources-gap", "text": "heartbeat.jsonl lacks lines: No space left on device"}
    assert outcome.status == "ok"


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
    session = SimpleNamespace(collect=collect, ends=dict, go_at=None)
    monkeypatch.setattr(LoadPhase, "_jobs", lambda *_: [])
    monkeypatch.setattr(LoadPhase, "_session", lambda *_: session)
    monkeypatch.setattr(LoadPhase, "_make_load", lambda *_: None)
    monkeypatch.setattr(LoadPhase, "_account", lambda *_: None)
    plan = Plan("warp", S3(urls=("http://a",)), (), (), ())
    run = context(
        plan=plan,
        archive=RunArchive(tmp_path),
        remote=SimpleNamespace(transport=None),
        watch=SimpleNamespace(ask=lambda *_: [{}, {}]),
        injector=SimpleNamespace(open=[]),
    )
    buckets = cast(Any, SimpleNamespace(kept=dict, counts_if_told=lambda *_: {}))
    nothing = cast(Any, None)
    load = LoadPhase(run, preflight.Ready(nothing, {}, {}, {}), buckets, nothing)
    outcome = load.run(1, Phase("age", "hybrid"), LoadStart(), nothing, "/nowhere")
    assert len(tries) == 3 and [warning["code"] for warning in outcome.warnings] == ["no-capacity"]
