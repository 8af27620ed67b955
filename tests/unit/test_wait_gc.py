"""A wait for the end of RGW's garbage."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.remote import OpenInput
from cbt_plugins.run import wait_phase
from cbt_plugins.run.wait_phase import Garbage, Waiting


class Bin:
    """Garbage that goes in lots; with a lot of 0 it stays."""

    def __init__(self, left: int, lot: int, error: Optional[str] = None) -> None:
        self.left, self.lot, self.error = left, lot, error

    def garbage(self, timeout: float, open_input: OpenInput) -> int:
        if self.error:
            raise CephError(self.error)
        return self.left

    def collect_garbage(self, timeout: float, open_input: OpenInput) -> None:
        self.take_lot()

    def take_lot(self) -> None:
        self.left = max(0, self.left - self.lot)


def waited(bin: Bin, limit: float) -> Optional[str]:
    waiting = Waiting("gc", lambda status: 0)
    waiting.at_most = limit
    ceph: Any = bin
    garbage = Garbage(ceph, limit)
    waiting.of_garbage(garbage)
    garbage.start()
    watch: Any = SimpleNamespace(poll=lambda timeout: [])
    return waiting.follow(watch, lambda: False)


def test_garbage_is_collected_until_there_is_none() -> None:
    bin = Bin(12, lot=5)
    assert waited(bin, 600.0) is None
    assert bin.left == 0


def test_the_progress_line_has_no_garbage_as_pgs(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: List[str] = []
    shown = SimpleNamespace(show=lambda now: lines.append(str(now)), close=lambda: None)
    monkeypatch.setattr(wait_phase, "Progress", lambda _: shown)
    assert waited(Bin(12, lot=5), 600.0) is None
    assert lines and all("entries of garbage" in line and "PGs" not in line for line in lines)


def test_garbage_is_counted_while_it_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """One collection can take hours: what it has done by then is progress."""

    class Slow(Bin):
        def __init__(self) -> None:
            super().__init__(12, lot=5)
            self.empty = threading.Event()

        def garbage(self, timeout: float, open_input: OpenInput) -> int:
            self.take_lot()
            if not self.left:
                self.empty.set()
            return self.left

        def collect_garbage(self, timeout: float, open_input: OpenInput) -> None:
            self.empty.wait()

    monkeypatch.setattr(wait_phase, "COUNT_EVERY", 0.01)
    monkeypatch.setattr(wait_phase, "SPARED", 0.0)
    assert waited(Slow(), 600.0) is None


def test_garbage_that_stays_is_given_up() -> None:
    assert str(waited(Bin(7, lot=0), 0.05)).startswith("7 entries of RGW's garbage are left after ")


def test_garbage_that_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbt_plugins.polling.TRY_AGAIN", 0.01)
    assert waited(Bin(7, lot=0, error="no reply"), 600.0) == "no reply"


def test_a_connection_that_is_lost_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count and to collect take minutes and hours, each over one connection."""

    class Lossy(Bin):
        asked = 0

        def _lose(self) -> None:
            self.asked += 1
            if self.asked % 2:
                raise CephError("exit status 255")

        def garbage(self, timeout: float, open_input: OpenInput) -> int:
            self._lose()
            return super().garbage(timeout, open_input)

        def collect_garbage(self, timeout: float, open_input: OpenInput) -> None:
            self._lose()
            super().collect_garbage(timeout, open_input)

    monkeypatch.setattr("cbt_plugins.polling.TRY_AGAIN", 0.01)
    bin = Lossy(12, lot=5)
    assert waited(bin, 600.0) is None and bin.left == 0


def test_a_wait_that_is_over_ends_its_collection_and_begins_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Bin):
        collected = 0

        def collect_garbage(self, timeout: float, open_input: OpenInput) -> None:
            self.collected += 1
            threading.Thread(target=garbage.give_up).start()
            assert os.read(open_input.fileno(), 1) == b"", "nothing ends the collection"

    bin: Any = Endless(7, lot=0)
    garbage = Garbage(bin, 600.0)
    garbage.count()
    assert bin.collected == 1
