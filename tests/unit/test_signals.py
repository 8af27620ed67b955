"""Signals of a run: which one breaks off what."""

# ruff: noqa: PT012 (what is interrupted is a program of several lines)

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Callable, Iterator, List, Optional

import pytest

from cbt_plugins import signals
from cbt_plugins.signals import deferred, handled, interruptible


def send(*numbers: int) -> None:
    """To this process, one after the other, each taken before the next."""
    for number in numbers or (signal.SIGTERM,):
        signal.raise_signal(number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """All as it was, after each test."""
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    yield
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_the_first_one_ends_the_program(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), handled():
        send(number)


def test_the_second_one_breaks_off_only_what_it_may() -> None:
    done: List[str] = []

    def leave() -> None:
        send(signal.SIGHUP)
        done.append("undone")
        with interruptible():
            done.append("rows brought in")

    with pytest.raises(KeyboardInterrupt), handled():
        try:
            send()
        finally:
            leave()
    assert done == ["undone"]


def test_what_it_may_break_off_is_broken_off_at_once() -> None:
    done: List[str] = []
    with pytest.raises(KeyboardInterrupt), handled():
        try:
            send()
        finally:
            with interruptible():
                send()
                done.append("collected")
    assert done == []


def test_an_undo_is_ended_by_the_third() -> None:
    done: List[str] = []
    with pytest.raises(KeyboardInterrupt), deferred():
        send(signal.SIGINT, signal.SIGTERM)
        done.append("still at it")
        send()
        done.append("never")
    assert done == ["still at it"]


def test_a_signal_during_an_undo_counts_after_it() -> None:
    """A start that first undoes what was left must not go on with its run."""
    done: List[str] = []
    with pytest.raises(KeyboardInterrupt), handled():
        with deferred():
            with deferred():
                send()
                done.append("inner")
            done.append("outer")
        done.append("the run")
    assert done == ["inner", "outer"]


def test_each_signal_is_answered_with_the_work_that_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt), deferred(signals.ENDING):
        send(signal.SIGTERM)
        with deferred():
            send(signal.SIGHUP)
    assert caplog.messages == [f"SIGTERM: {signals.ENDING}", f"SIGHUP: {signals.UNDOING}"]


def test_an_end_that_is_under_way_is_not_ended_again_by_its_undo() -> None:
    done: List[str] = []
    with pytest.raises(KeyboardInterrupt), handled():
        try:
            send()
        finally:
            with deferred():
                send()
            done.append("the lock is given back")
    assert done == ["the lock is given back"]


def test_each_run_counts_anew() -> None:
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt), handled():
            send()
    with deferred(), deferred():
        pass


def test_nothing_is_changed_in_another_thread() -> None:
    seen: List[bool] = []
    before = signal.getsignal(signal.SIGTERM)

    def look() -> None:
        with handled(), deferred(), interruptible():
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [True]


_PROGRAM = """
import os, signal, sys
from cbt_plugins.signals import deferred, handled
with handled(), deferred():
    os.kill(os.getpid(), signal.SIGHUP)
print("alive")
"""


def deaf() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize(("prepare", "said"), [(deaf, "alive\n"), (None, "")])
def test_nohup_stays(prepare: Optional[Callable[[], None]], said: str) -> None:
    root = Path(__file__).resolve().parents[2]
    line = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(line, cwd=root, preexec_fn=prepare, capture_output=True, text=True, check=False)
    assert done.stdout == said, done.stderr
