"""Blocks as Markdown, for a pull request; texts of archives are shown as they are."""

from __future__ import annotations

import re
from typing import Iterator, Sequence

from cbt_plugins.formatting.blocks import Heading, Notes, TableGrid, TitledBlocks, Words
from cbt_plugins.formatting.formats.format import TextFormat
from cbt_plugins.formatting.screen import PLAIN, Paper


class Markdown(TextFormat):
    """Markdown with tables, as code hosts show it."""

    name, suffixes, purpose = "md", ("markdown",), "Markdown"

    def __init__(self, paper: Paper = PLAIN, level: int = 3) -> None:
        super().__init__(paper)
        self._level = level  # of headings

    def heading(self, heading: Heading) -> Iterator[str]:
        yield f"{'#' * self._level} {_within(heading.text)}"

    def words(self, words: Words) -> Iterator[str]:
        yield from (f"- {_begin(line)}" if len(words.lines) > 1 else _begin(line) for line in words.lines)

    def notes(self, notes: Notes) -> Iterator[str]:
        yield f"{_begin(notes.title)}:"
        yield ""
        for item in notes.items:
            yield f"- {_begin(item)}"

    def table(self, grid: TableGrid) -> Iterator[str]:
        if grid.title:
            yield f"{_begin(grid.title)}:"
            yield ""
        yield _row(grid.head or [""] * len(grid.sides))
        yield _row([":---" if side else "---:" for side in grid.sides])
        yield from map(_row, grid.rows)

    def titled(self, titled: TitledBlocks) -> Iterator[str]:
        inner = Markdown(self._paper, self._level + 1)
        yield from inner.heading(Heading(titled.title))
        for lines in filter(None, (list(block.parts(inner)) for block in titled.blocks)):
            yield ""
            yield from lines


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
