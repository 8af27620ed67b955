"""SIGINT, SIGTERM, SIGHUP of a run: the first ends it, the second what would follow its undo, the third its undo too.

A signal that the program was started with ignored (`nohup`) stays so. Outside the main thread nothing is changed: there
Python delivers no signals.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from typing import Any, Dict, Iterator

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: so many end everything where it is
LAST = 3


class _State:
    """Of this process: signals are the process's."""

    def __init__(self) -> None:
        self.former: Dict[int, Any] = {}
        self.depth = 0  # of contexts that have the signals
        self.held = 0  # of `unhurried`
        self.open = 0  # of `allowed`
        self.seen = 0
        self.raised = False
        self.pending = False

    def take(self, number: int, _: Any) -> None:
        self.seen += 1
        name = signal.Signals(number).name
        if self.seen >= LAST or not (self.held or (self.raised and not self.open)):
            self.raised = True
            self.pending = False
            raise KeyboardInterrupt(name)
        self.pending = True
        log.warning("%s: the cluster is being put back first; another one leaves it to `cbt-tools undo`", name)

    def raise_pending(self) -> None:
        if self.pending:
            self.pending = False
            self.raised = True
            raise KeyboardInterrupt


_state = _State()


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt; later ones only in `allowed`, but for the third, which always does."""
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
def unhurried() -> Iterator[None]:
    """Signals wait until this is over: then the first of them ends the program. The third ends this where it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.held += 1  # before the handlers are there: one that comes in between finds it
    with ending():
        try:
            yield
        finally:
            _state.held -= 1
        if not _state.held and not _state.raised:
            _state.raise_pending()


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """What a second signal may break off: the cluster is not put back here, or is so already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.open += 1
    try:
        _state.raise_pending()
        yield
    finally:
        _state.open -= 1
