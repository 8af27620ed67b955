"""What a text is written on: streams that write only what is printable, columns, colours."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import unicodedata
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Sequence, TextIO

#: clears the line of a terminal
CLEAR_LINE = "\r\x1b[K"
#: control characters but tab and line feed, invisible and turning ones, halves of a pair
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
#: our own control sequences, beside CLEAR_LINE: colours on and off
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")


def printable(text: str) -> str:
    """Return a text with everything escaped that a terminal would obey or hide; it may come from a file or a node."""
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


class NoReader(BaseException):
    """Nobody reads our output any more. No OSError, which would be taken for one of the files that a verb reads."""


class NoOutput(BaseException):
    """Standard output is closed, or cannot be written, as on a full disk; the text is the message. No OSError."""


class _Printable:
    """A text stream that writes what is printable."""

    def __init__(self, stream: TextIO, endures: bool, is_output: bool = False, is_closed: bool = False) -> None:
        self._stream = stream
        self._endures = endures
        self._is_output = is_output  # the answer of a verb; on standard error are its messages
        self._is_closed = is_closed
        self.loss = ""  # the text of NoOutput, if it was not raised

    def write(self, text: str) -> int:
        start = CLEAR_LINE if text.startswith(CLEAR_LINE) else ""
        self.write_safe(start + printable(text[len(start) :]))
        return len(text)

    def write_safe(self, text: str) -> None:
        """Write a text of which all is ours, or printable."""
        if self._is_closed and self._is_output:
            self._lose("it is closed")
        with self._unread():
            self._stream.write(text)

    def flush(self) -> None:
        with self._unread():
            self._stream.flush()

    @contextlib.contextmanager
    def _unread(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            if not self._endures:
                raise NoReader from None
            discard(self._stream)
        except OSError as error:
            if self._is_output:  # else a message, which is lost: nothing is left to say it on
                discard(self._stream)  # what is still in its buffer
                self._lose(error.strerror or str(error))

    def _lose(self, why: str) -> None:
        self.loss = f"cannot write to standard output: {why}"
        if not self._endures:
            raise NoOutput(self.loss) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def lost_output() -> str:
    """Return the text of NoOutput if a part of standard output could not be written in a verb that endures; else "".

    Raises NoOutput and NoReader in other verbs.
    """
    sys.stdout.flush()
    return str(getattr(sys.stdout, "loss", ""))


def discard(stream: Any) -> None:
    """Let what is still to be written to a stream go nowhere: its reader has ended, or its disk is full."""
    with contextlib.suppress(OSError):  # no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def escape_unencodable(stream: Any, encoding: Optional[str] = None) -> None:
    """Let a stream escape what its encoding, or the one that it gets now, has no bytes for, such as ± in ASCII.

    Python itself does so for standard error only.
    """
    if hasattr(stream, "reconfigure"):  # no io.StringIO
        stream.reconfigure(encoding=encoding, errors="backslashreplace")


def write_coloured(stream: Any, text: str) -> None:
    """Write a text with colours of `painted`; what they are around has to be printable where it is not ours."""
    safe = "".join(part if i % 2 else printable(part) for i, part in enumerate(_COLOUR.split(text)))
    (stream.write_safe if isinstance(stream, _Printable) else stream.write)(safe)


def redraw(stream: Any, lines: Sequence[str], former: int) -> int:
    """Write lines to a terminal in the place of the `former` ones; return how many there are now.

    They are cut to the terminal's columns, and to its rows: a line that has left the screen cannot be replaced.
    """
    rows = _size_of(stream).lines - 1
    if len(lines) > rows:
        lines = [*lines[: max(0, rows - 1)], f"... {len(lines) - max(0, rows - 1)} more lines"]
    clear = f"\x1b[{former}A\r\x1b[J" if former else ""
    text = "".join(f"{cut_to_row(stream, line)}\n" for line in lines)
    (stream.write_safe if isinstance(stream, _Printable) else stream.write)(clear + text)
    stream.flush()
    return len(lines)


def cut_to_row(stream: Any, text: str) -> str:
    """Return the part of a text that has room in a row of a terminal; a wide character takes two columns."""
    columns = _size_of(stream).columns - 1
    safe = printable(text)
    if len(safe) * 2 <= columns:
        return safe
    widths = itertools.accumulate(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in safe)
    return safe[: sum(width <= columns for width in widths)]


def _size_of(stream: Any) -> os.terminal_size:
    """Return the columns and lines of a terminal; another stream of this process may be a file."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
        size = os.get_terminal_size(stream.fileno())
        if min(size):
            return size
    import shutil  # slow, and of no use to most calls

    return shutil.get_terminal_size()


@contextlib.contextmanager
def printable_output(endures: bool = False) -> Iterator[None]:
    """Let everything that this process writes to its terminal be `printable`.

    `endures`: it goes on when nobody reads its output any more, as an undo has to in `cbt-tools undo DIR | head`, and
    when its output cannot be written (`lost_output`). A stream that was closed (`>&-`) is None.
    """
    streams = sys.stdout, sys.stderr
    with contextlib.ExitStack() as nowhere:
        out, err = (stream or nowhere.enter_context(open(os.devnull, "w")) for stream in streams)
        escape_unencodable(out)
        sys.stdout = _Printable(out, endures, is_output=True, is_closed=streams[0] is None)
        sys.stderr = _Printable(err, endures)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            try:
                err.flush()
            except OSError:  # Python would try again, and end with a status of its own
                discard(err)


#: columns of lines of words, where a terminal has no fewer; tables are as wide as they must be
WIDTH = 110


@dataclass(frozen=True)
class Paper:
    """What a text is written on: `columns` (None: as many as it takes), and whether it shows colours."""

    columns: Optional[int] = None
    colours: bool = False

    @property
    def words(self) -> int:
        """The columns of lines of words."""
        return min(self.columns or WIDTH, WIDTH)

    def safe(self, text: str) -> str:
        """Return a text of a file or a node as it may stand beside our colours."""
        return printable(text) if self.colours else text


#: as many columns as it takes, and no colours: of a file
PLAIN = Paper()


def obeys_controls(stream: Any) -> bool:
    """Return whether a stream is a terminal that obeys control sequences."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def paper_of(stream: Any) -> Paper:
    """Return the paper of a stream. NO_COLOR and FORCE_COLOR decide about colours: https://no-color.org"""
    wanted = bool(os.environ.get("FORCE_COLOR")) or obeys_controls(stream)
    return Paper(_size_of(stream).columns if stream.isatty() else None, wanted and not os.environ.get("NO_COLOR"))


GREEN, RED, YELLOW = "32", "31", "33"
#: words at the begin of a cell or a line -> their colour
_COLOURS = {
    **dict.fromkeys(("better", "ok"), GREEN),
    **dict.fromkeys(("worse", "regression", "unusable", "INCOMPLETE RUN", "INVALID RUN", "UNUSABLE", "invalid"), RED),
    **dict.fromkeys(("inconclusive", "LIMITED", "warning"), YELLOW),
}
_VERDICT = re.compile(rf"( *)({'|'.join(_COLOURS)})(?= *$|:( |$)| \()")


def painted(text: str, colour: str) -> str:
    """Return a text in a colour, for a Paper that has some."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def coloured_verdict(text: str) -> str:
    """Return a cell or a line with its verdict, if it begins with one, in colour."""
    return _VERDICT.sub(lambda match: match[1] + painted(match[2], _COLOURS[match[2]]), text, count=1)
