"""What is drawn again and again on a terminal stays on its screen."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
from contextlib import closing
from typing import Iterator, TextIO, Tuple

import pytest

from cbt_plugins.formatting.progress_line import Now
from cbt_plugins.formatting.screen import redraw
from cbt_plugins.run.progress import Progress
from cbt_plugins.tools.watch import TextView

ROWS, COLUMNS = 5, 20


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tuple[TextIO, int]]:
    """A terminal, and the descriptor that has what it shows."""
    monkeypatch.setenv("TERM", "xterm")
    shown, own = os.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with os.fdopen(own, "w") as stream:
        yield stream, shown
    os.close(shown)


def test_lines_are_cut_to_the_rows_and_columns_of_the_terminal(terminal: Tuple[TextIO, int]) -> None:
    stream, shown = terminal
    lines = ["state", "x" * 50, "\u8a08" * 30, *(f"note {number}" for number in range(6))]
    assert redraw(stream, lines, 0) == ROWS - 1
    assert os.read(shown, 1000).decode().splitlines() == ["state", "x" * 19, "\u8a08" * 9, "... 6 more lines"]
    assert redraw(stream, lines[:2], ROWS - 1) == 2
    assert os.read(shown, 1000).decode().startswith(f"\x1b[{ROWS - 1}A\r\x1b[Jstate\r\n")


def test_the_progress_line_is_one_row(terminal: Tuple[TextIO, int]) -> None:
    stream, shown = terminal
    with closing(Progress(60.0, stream)) as progress:
        progress.show(Now("measure-new", "running", 5.0, 55.0))
        assert os.read(shown, 1000).decode() == "\r\x1b[Kmeasure-new: 0:05, "


def test_a_dumb_terminal_gets_no_control_sequences(
    terminal: Tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, shown = terminal
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr("cbt_plugins.report.live_terminal.moment_lines", lambda _: ["running"])
    monkeypatch.setattr("cbt_plugins.report.live_terminal.notes", lambda *_: [])
    view = TextView()
    with closing(Progress(60.0, stream)) as progress:
        for _ in range(2):
            view.show({}, {}, ended=True)
            progress.show(Now("measure-new", "running", 5.0, 55.0))
    stream.flush()
    assert os.read(shown, 1000).decode() == "running\r\n" * 2
