"""Phases that wait: what happens in which order."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Iterator, List, Tuple, cast

import pytest
from run_context import context

from cbt_plugins.plan import S3, Phase, Plan
from cbt_plugins.run import wait_phase as waiting
from cbt_plugins.run.context import RunArchive


class Noted:
    """Stands where host, timeline and status watch do."""

    failure = None
    run_dir = "/nowhere"

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

    def abandon(self) -> None:
        self.seen.append("abandon")


def run(folder: Path, noted: Noted) -> Any:
    plan = Plan("warp", S3(urls=("http://a",)), (), (), ())
    return context(host=noted, plan=plan, ceph=noted, watch=noted, archive=RunArchive(folder))


def test_events_begin_when_somebody_watches(tmp_path: Path) -> None:
    """A fault at 0s in a wait: without its monitor nobody would know when its OSDs went down."""
    noted = Noted()
    anything = cast(Any, noted)
    phase = Phase("w", "wait", duration=0.01)
    waiting.wait(run(tmp_path, noted), 1, phase, anything)
    assert noted.seen == ["prepare", "monitors", "begin", "close", "no monitors"]


def test_a_wait_that_is_broken_off_begins_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    anything = cast(Any, noted)
    monkeypatch.setattr(noted, "poll", lambda timeout: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        waiting.wait(run(tmp_path, noted), 1, Phase("w", "wait", duration=9.0), anything)
    assert noted.seen == ["prepare", "monitors", "begin", "abandon"]
