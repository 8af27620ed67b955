"""Blocks as plain text, for a terminal: as wide as it is, in colours where it has some."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import Callable, Iterator, List, Optional, Sequence, Union

from cbt_plugins.formatting.blocks import Heading, Notes, TableGrid, TitledBlocks, Words, left_columns
from cbt_plugins.formatting.formats.format import TextFormat
from cbt_plugins.formatting.screen import PLAIN, Paper, coloured_verdict, painted

#: columns that a name can do with: longer ones are broken
_LEAST = 12
_INDENT = "   "


class Terminal(TextFormat):
    """Plain text, as a terminal shows it."""

    name, suffixes, purpose = "text", ("txt",), "for people"

    def __init__(self, paper: Paper = PLAIN, indent: str = "") -> None:
        super().__init__(paper)
        self._indent = indent

    @property
    def coloured(self) -> bool:
        return self._paper.colours

    def heading(self, heading: Heading) -> Iterator[str]:
        yield self._paper.safe(heading.text)
        yield "=" * len(heading.text)

    def words(self, words: Words) -> Iterator[str]:
        for line in words.lines:
            yield from self._wrapped(line)

    def notes(self, notes: Notes) -> Iterator[str]:
        yield from self._wrapped(notes.title)
        for item, colour in zip_longest(notes.items, notes.colours, fillvalue=""):
            first, *others = self._wrapped(item, " - ", _INDENT)
            word = item.partition(" ")[0]
            yield first.replace(word, painted(word, colour), 1) if self.coloured else first
            yield from others

    def table(self, grid: TableGrid) -> Iterator[str]:
        if grid.title:
            yield self._indent + self._paper.safe(grid.title)
        rows = [grid.head, *grid.rows] if grid.head else grid.rows
        columns = self._paper.columns and max(self._paper.columns - len(self._indent), 20)
        cells = [[self._paper.safe(cell) for cell in row] for row in rows]
        lines = table_lines(cells, grid.left, columns, coloured_verdict if self.coloured else str, grid.ruled)
        yield from (self._indent + line for line in lines)

    def titled(self, titled: TitledBlocks) -> Iterator[str]:
        yield from self._wrapped(titled.title)
        inner = Terminal(self._paper, self._indent + _INDENT)
        for block in titled.blocks:
            yield from block.parts(inner)

    def _wrapped(self, line: str, first: str = "", following: str = "") -> Iterator[str]:
        """Yield a text as lines of the paper's width; `first` and `following` begin them, behind the indent."""
        begins = self._indent + first, self._indent + following
        # tabs stay: they are columns for a spreadsheet
        wrap = textwrap.TextWrapper(self._paper.words, *begins, expand_tabs=False, replace_whitespace=False)
        wrapped = wrap.wrap(line.replace("\n", " ")) or [""]
        yield from map(coloured_verdict, map(self._paper.safe, wrapped)) if self.coloured else wrapped


def table_lines(
    rows: Sequence[Sequence[str]],
    left: Union[int, Sequence[bool]] = 1,
    room: Optional[int] = None,
    painter: Callable[[str], str] = str,
    ruled: bool = False,
) -> Iterator[str]:
    """Yield the lines of rows, each column as wide as its widest cell, two blanks between them.

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


def _cell(cell: str, width: int, side: bool) -> List[str]:
    return [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=side)
