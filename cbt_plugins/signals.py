"""SIGINT, SIGTERM and SIGHUP of a run. 1st: stop and undo. 2nd: skip one piece of work after it. 3rd: end at once.

A signal that is ignored at the start (`nohup`) stays ignored. In other threads than the main one nothing is changed:
Python delivers signals to the main thread only.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from typing import Any, Dict, Iterator, List

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: so many abort everything, the undo too
LAST = 3
#: what is done before the end, and who does it after the last signal
UNDOING = "undoing the changes first; a third signal leaves that to `cbt-tools undo`"
ENDING = "writing the sums of the run's files first; a third signal leaves that to the same command"


class _Signals:
    """What this process does with signals."""

    def __init__(self) -> None:
        self.former: Dict[int, Any] = {}
        self.depth = 0  # of `handled`
        self.deferring: List[str] = []  # what each `deferred` does
        self.interruptible = 0  # of `interruptible`
        self.seen = 0
        self.raised = False
        self.pending = False

    def take(self, number: int, _: Any) -> None:
        self.seen += 1
        name = signal.Signals(number).name
        if self.seen >= LAST or not (self.deferring or (self.raised and not self.interruptible)):
            self.raised = True
            self.pending = False
            raise KeyboardInterrupt(name)
        self.pending = True
        log.warning("%s: %s", name, self.deferring[-1] if self.deferring else UNDOING)

    def raise_pending(self) -> None:
        if self.pending:
            self.pending = False
            self.raised = True
            raise KeyboardInterrupt


_state = _Signals()


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Let the first signal raise KeyboardInterrupt; later ones only in `interruptible`, but the third always."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _state.depth:
        _state.seen, _state.raised, _state.pending = 0, False, False
        present = {number: signal.getsignal(number) for number in SIGNALS}
        _state.former = {number: how for number, how in present.items() if how is not signal.SIG_IGN}
        for number in _state.former:
            signal.signal(number, _state.take)
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
        if not _state.depth:
            for number, how in _state.former.items():
                signal.signal(number, how)


@contextlib.contextmanager
def deferred(work: str = UNDOING) -> Iterator[None]:
    """Defer signals to the end of this context, where they raise KeyboardInterrupt; the third raises it at once.

    Each one is answered with the `work` that goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.deferring.append(work)  # before the handlers are there, for a signal that comes in between
    with handled():
        try:
            yield
        finally:
            _state.deferring.pop()
        if not _state.deferring and not _state.raised:
            _state.raise_pending()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a second signal raise KeyboardInterrupt: nothing is undone here, or everything is already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.interruptible += 1
    try:
        _state.raise_pending()
        yield
    finally:
        _state.interruptible -= 1
