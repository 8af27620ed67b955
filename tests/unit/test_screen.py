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
MARK = "\x04"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tuple[TextIO, int]]:
    """A terminal, and the descriptor that has what it shows."""
    monkeypatch.setenv("TERM", "xterm")
    shown, own = os.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with os.fdopen(own, "w") as stream:
        yield stream, shown
    os.close(shown)


def text_of(terminal: Tuple[TextIO, int]) -> str:
    """What the terminal shows since the last call: the kernel may hand it on in parts."""
    stream, shown = terminal
    stream.write(MARK)
    stream.flush()
    data = b""
    while not data.endswith(MARK.encode()):
        data += os.read(shown, 1000)
    return data.decode().removesuffix(MARK)


def test_lines_are_cut_to_the_rows_and_columns_of_the_terminal(terminal: Tuple[TextIO, int]) -> None:
    stream, _ = terminal
    lines = ["state", "x" * 50, "\u8a08" * 30, *(f"note {number}" for number in range(6))]
    assert redraw(stream, lines, 0) == ROWS - 1
    assert text_of(terminal).splitlines() == ["state", "x" * 19, "\u8a08" * 9, "... 6 more lines"]
    assert redraw(stream, lines[:2], ROWS - 1) == 2
    assert text_of(terminal).startswith(f"\x1b[{ROWS - 1}A\r\x1b[Jstate\r\n")


def test_the_progress_line_is_one_row(terminal: Tuple[TextIO, int]) -> None:
    stream, _ = terminal
    with closing(Progress(60.0, stream)) as progress:
        progress.show(Now("measure-new", "running", 5.0, 55.0))
        assert text_of(terminal) == "\r\x1b[Kmeasure-new: 0:05, "


def test_a_dumb_terminal_gets_no_control_sequences(
    terminal: Tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = terminal
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr("cbt_plugins.report.live_terminal.moment_lines", lambda _: ["running"])
    monkeypatch.setattr("cbt_plugins.report.live_terminal.notes", lambda *_: [])
    view = TextView()
    with closing(Progress(60.0, stream)) as progress:
        for _ in range(2):
            view.show({}, {}, ended=True)
            progress.show(Now("measure-new", "running", 5.0, 55.0))
    assert text_of(terminal) == "running\r\n" * 2
