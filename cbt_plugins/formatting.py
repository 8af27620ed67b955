"""Numbers, texts and tables as people read them: in a terminal, in Markdown and on a page."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import zip_longest
from typing import Any, Callable, Iterator, List, Optional, Sequence, TextIO, Tuple, Union

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


class _Printable:
    """A text stream that writes what is printable."""

    def __init__(self, stream: TextIO, endures: bool) -> None:
        self._stream = stream
        self._endures = endures

    def write(self, text: str) -> int:
        start = CLEAR_LINE if text.startswith(CLEAR_LINE) else ""
        self.write_safe(start + printable(text[len(start) :]))
        return len(text)

    def write_safe(self, text: str) -> None:
        """Write a text of which all is ours, or printable."""
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard(stream: Any) -> None:
    """Let what is still to be written to a stream go nowhere: its reader has ended."""
    with contextlib.suppress(OSError):  # no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def write_coloured(stream: Any, text: str) -> None:
    """Write a text with colours of `painted`; what they are around has to be printable where it is not ours."""
    safe = "".join(part if i % 2 else printable(part) for i, part in enumerate(_COLOUR.split(text)))
    (stream.write_safe if isinstance(stream, _Printable) else stream.write)(safe)


@contextlib.contextmanager
def printable_output(endures: bool = False) -> Iterator[None]:
    """Let everything that this process writes to its terminal be `printable`.

    `endures`: it goes on when nobody reads its output any more, as an undo has to in `cbt-tools undo DIR | head`.
    """
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Printable(streams[0], endures), _Printable(streams[1], endures)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


# --- what a text is written on
# --------------------------------------------------------------------------------------------------------

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


def paper_of(stream: Any) -> Paper:
    """Return the paper of a stream. NO_COLOR and FORCE_COLOR decide about colours: https://no-color.org"""
    terminal = stream.isatty()
    wanted = bool(os.environ.get("FORCE_COLOR")) or (terminal and os.environ.get("TERM") != "dumb")
    columns = None
    if terminal:
        import shutil  # slow, and of no use to most calls

        columns = shutil.get_terminal_size().columns
    return Paper(columns, wanted and not os.environ.get("NO_COLOR"))


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


def _verdict(text: str) -> str:
    """Return a cell or a line with its verdict, if it begins with one, in colour."""
    return _VERDICT.sub(lambda match: match[1] + painted(match[2], _COLOURS[match[2]]), text, count=1)


# --- headings, words, lists, tables
# --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Words:
    """Single lines; in Markdown several of them are a list."""

    lines: Tuple[str, ...]


@dataclass(frozen=True)
class Notes:
    """A titled list; left out when it has no items."""

    title: str
    items: Tuple[str, ...]
    colours: Tuple[str, ...] = ()  # of the first word of each item


@dataclass(frozen=True)
class TableGrid:
    """A table; left out when it has no rows. `left`: as for `side_by_side`. Without a head it has rows only."""

    head: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]
    left: Union[int, Sequence[bool]] = 1
    title: str = ""
    ruled: bool = False  # with a line below the head


@dataclass(frozen=True)
class TitledBlocks:
    """A title and the blocks below it: in text they are indented, with no empty lines between them."""

    title: str
    blocks: Tuple[Block, ...]


Block = Union[Heading, Words, Notes, TableGrid, TitledBlocks]


def text(blocks: Sequence[Block], paper: Paper = Paper()) -> str:
    """Return blocks as plain text: no trailing blanks, ends with a line end."""
    return _joined([list(_text(block, paper)) for block in blocks])


def markdown(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown, for a pull request."""
    return _joined([list(_markdown(block)) for block in blocks])


def _joined(parts: Sequence[Sequence[str]]) -> str:
    texts = ["\n".join(line.rstrip() for line in part) for part in parts if part]
    return "\n\n".join(texts) + "\n"


def _text(block: Block, paper: Paper, indent: str = "") -> Iterator[str]:
    if isinstance(block, Heading):
        yield paper.safe(block.text)
        yield "=" * len(block.text)
    elif isinstance(block, Words):
        for line in block.lines:
            yield from _wrapped(line, paper, indent)
    elif isinstance(block, Notes):
        if block.items:
            yield from _wrapped(block.title, paper, indent)
        for item, colour in zip_longest(block.items, block.colours, fillvalue=""):
            first, *others = _wrapped(item, paper, f"{indent} - ", f"{indent}   ")
            word = item.partition(" ")[0]
            yield first.replace(word, painted(word, colour), 1) if paper.colours else first
            yield from others
    elif isinstance(block, TitledBlocks):
        yield from _wrapped(block.title, paper, indent)
        for part in block.blocks:
            yield from _text(part, paper, indent + "   ")
    elif block.rows:
        if block.title:
            yield indent + paper.safe(block.title)
        yield from _table(block, paper, indent)


def _wrapped(line: str, paper: Paper, first: str, others: Optional[str] = None) -> Iterator[str]:
    others = first if others is None else others
    # tabs stay: they are columns for a spreadsheet
    wrap = textwrap.TextWrapper(paper.words, first, others, expand_tabs=False, replace_whitespace=False)
    wrapped = wrap.wrap(line.replace("\n", " ")) or [""]
    yield from map(_verdict, map(paper.safe, wrapped)) if paper.colours else wrapped


def _table(grid: TableGrid, paper: Paper, indent: str) -> Iterator[str]:
    rows = [grid.head, *grid.rows] if grid.head else grid.rows
    columns = paper.columns and max(paper.columns - len(indent), 20)
    lines = [[paper.safe(cell) for cell in row] for row in rows]
    aligned_lines = side_by_side(lines, grid.left, columns, _verdict if paper.colours else str, grid.ruled)
    yield from (indent + line for line in aligned_lines)


def _markdown(block: Block, level: int = 3) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * level} {_within(block.text)}"
    elif isinstance(block, Words):
        yield from (f"- {_begin(line)}" if len(block.lines) > 1 else _begin(line) for line in block.lines)
    elif isinstance(block, Notes):
        if block.items:
            yield f"{_begin(block.title)}:"
            yield ""
        for item in block.items:
            yield f"- {_begin(item)}"
    elif isinstance(block, TitledBlocks):
        yield f"{'#' * (level + 1)} {_within(block.title)}"
        for part in filter(None, (list(_markdown(inner_block, level + 1)) for inner_block in block.blocks)):
            yield ""
            yield from part
    elif block.rows:
        if block.title:
            yield f"{_begin(block.title)}:"
            yield ""
        sides = left_columns(block.left, len(block.rows[0]))
        yield _row(block.head or [""] * len(sides))
        yield _row([":---" if side else "---:" for side in sides])
        yield from map(_row, block.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_within, cells))} |"


#: what Markdown may take for more than itself; not _ within words, blanks around *, or [ ] without ( [ : behind it
_SIGNS = re.compile(
    r"[`|]|\\(?=[!-/:-@\[-`{-~]|$)|(?<=\S)\*|\*(?=\S)|(?<!\w)_|_(?!\w)|(?<=\S)~|\](?=[(\[:])|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
)
#: begins of a heading, a list, a rule, a quotation, a link or its target
_BLOCK = re.compile(r"(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|-[-\s]*$|=+\s*$|>|\[)|\d{1,9}(?=[.)](?:\s|$))")


def _within(text: str) -> str:
    """Return a text, which may come from an archive, as Markdown shows it."""
    return _SIGNS.sub(r"\\\g<0>", text.replace("\n", " "))


def _begin(text: str) -> str:
    """Return `_within` of a text with which a block begins."""
    escaped = _within(text).lstrip()  # blanks would make code of it
    match = _BLOCK.match(escaped)
    return f"{match[0]}\\{escaped[match.end() :]}" if match else escaped


def left_columns(left: Union[int, Sequence[bool]], number: int) -> Sequence[bool]:
    """Return for each of `number` columns whether its cells begin at the left."""
    return [i < left for i in range(number)] if isinstance(left, int) else left


def side_by_side(
    rows: Sequence[Sequence[str]],
    left: Union[int, Sequence[bool]] = 1,
    room: Optional[int] = None,
    painter: Callable[[str], str] = str,
    ruled: bool = False,
) -> Iterator[str]:
    """A line for each row, each column as wide as its widest cell, two blanks between them.

    `left`: so many of the first columns begin at the left, or for each column whether it does; the others end at the
    right. All rows have the same number of cells. In a `room` of fewer columns cells become several lines, as far as
    words allow it: nothing is cut off. `painter` gives colour to a cell that has its width; `ruled`: a line below the
    first row.
    """
    sides = left_columns(left, len(rows[0]))
    widths = _widths(rows, sides, room)
    for number, row in enumerate(rows):
        if ruled and number == 1:
            yield "  ".join("-" * width for width in widths)
        cells = [_cell(cell, width, side) for cell, width, side in zip(row, widths, sides)]
        for i in range(max(map(len, cells))):
            lines = [cell[i] if i < len(cell) else "" for cell in cells]
            padded = (text.ljust(w) if side else text.rjust(w) for text, w, side in zip(lines, widths, sides))
            yield "  ".join(map(painter, padded)).rstrip()


def _widths(rows: Sequence[Sequence[str]], sides: Sequence[bool], room: Optional[int]) -> List[int]:
    """Return the widths of columns; what is too much for the room is taken from the widest that can do with less."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    longest = [max(len(word) for cell in column for word in cell.split(" ")) for column in zip(*rows)]
    least = [min(word, _LEAST) if side else word for word, side in zip(longest, sides)]
    while room is not None and sum(widths) + 2 * len(widths) - 2 > room:
        spare = [(width, i) for i, width in enumerate(widths) if width > least[i]]
        if not spare:
            break
        widths[max(spare)[1]] -= 1
    return widths


#: columns that a name can do with: longer ones are broken
_LEAST = 12


def _cell(cell: str, width: int, side: bool) -> List[str]:
    return [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=side)


NONE = "-"


def csv_cell(value: Any) -> Any:
    """Return a printable cell of CSV that no spreadsheet takes for a formula: one that begins like it gets an
    apostrophe.
    """
    if not isinstance(value, str):
        return value
    return printable(f"'{value}" if _FORMULA.match(value) else value)


_FORMULA = re.compile(r"[=+@\t]|-(?!(?:[\d.]+(?:e[+-]?\d+)?)?$)", re.IGNORECASE)


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
    minutes, remainder = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min" + (f" {remainder} s" if remainder else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def size(value: float) -> str:
    """Bytes: 4096 -> 4 KiB; 4000 -> 4000 B."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit and value % unit == 0:
            return f"{value // unit:g} {name}"
    return f"{value:g} B"


def size_class(smallest: int, largest: int) -> str:
    """4 KiB for 4096 bytes alone; powers of two: 4 KiB to 8 KiB stands for 4096 to 8191 bytes."""
    return size(smallest) if smallest == largest else f"{size(smallest)} to {size(largest + 1)}"


def when(epoch: Optional[float]) -> str:
    """UTC, to the second."""
    return NONE if not epoch else datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
