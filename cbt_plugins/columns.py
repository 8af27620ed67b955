"""Text in columns, for a terminal."""

from __future__ import annotations

from typing import Iterator, Sequence, Union


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
