"""Numbers, tables and texts as people read them in a terminal and on a page."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Iterator, Optional, Sequence, TextIO, Union

#: clears the line of a terminal: the only control sequence that we write
CLEAR_LINE = "\r\x1b[K"
#: control characters but tab and line feed, invisible and turning ones, halves of a pair
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text with everything escaped that a terminal would obey or hide; it may come from a file or a node."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


class _Printable:
    """A text stream that writes what is printable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        start = CLEAR_LINE if text.startswith(CLEAR_LINE) else ""
        self._stream.write(start + printable(text[len(start) :]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """Let everything that this process writes to its terminal be `printable`."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Printable(streams[0]), _Printable(streams[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def side_by_side(rows: Sequence[Sequence[str]], left: Union[int, Sequence[bool]] = 1) -> Iterator[str]:
    """A line for each row, each column as wide as its widest cell, two blanks between them.

    `left`: so many of the first columns begin at the left, or for each column whether it does; the others end at the
    right. All rows have the same number of cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = [i < left for i in range(len(widths))] if isinstance(left, int) else left
    for row in rows:
        cells = (cell.ljust(w) if side else cell.rjust(w) for cell, w, side in zip(row, widths, sides))
        yield "  ".join(cells).rstrip()


NONE = "-"


def plain(value: Optional[float]) -> str:
    """1.234 12.34 123.4 1234 12,345: decided by the printed form, so that 999.96 does not become 1000.0."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    for digits in (3, 2, 1):
        text = f"{value:.{digits}f}"
        if len(text.lstrip("-").replace(".", "")) <= 4:
            return text
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.0f}"


def count(value: Optional[int]) -> str:
    return NONE if value is None else f"{value:,}"


def several(n: int, noun: str) -> str:
    """Return a number of things: "1 worker", "2 workers"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def percent(share: Optional[float], digits: int = 1) -> str:
    """0.123 -> +12.3 %; what rounds to nothing has no sign."""
    if share is None:
        return NONE
    text = f"{100 * share:+.{digits}f}"
    return (text if float(text) else text[1:]) + " %"


def share(value: Optional[float]) -> str:
    """0.123 -> 12.3 %."""
    return NONE if value is None else f"{100 * value:.1f} %"


def success(share: Optional[float]) -> str:
    """0..1 -> percent; never 100 % when one request failed."""
    if share is None:
        return NONE
    if share == 1:
        return "100 %"
    return f"{min(100 * share, 99.999):.3f} %"


def seconds(value: Optional[float]) -> str:
    """Durations: 42.1 s, 12 min 5 s, 3 h 20 min."""
    if value is None:
        return NONE
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def size(value: float) -> str:
    """Bytes: 4096 -> 4 KiB; 4000 -> 4000 B."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit and value % unit == 0:
            return f"{value // unit:g} {name}"
    return f"{value:g} B"


def size_class(smallest: int, largest: int) -> str:
    """Powers of two: 4 KiB to 8 KiB stands for 4096 to 8191 bytes."""
    return size(0) if not largest else f"{size(smallest)} to {size(largest + 1)}"


def when(epoch: Optional[float]) -> str:
    """UTC, to the second."""
    return NONE if not epoch else datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
