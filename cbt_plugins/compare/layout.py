"""Blocks of a result, as plain text and as Markdown: one order of things, one wording, two ways to draw lines."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Iterator, Sequence, Tuple, Union

from cbt_plugins.formatting import side_by_side

#: columns of lines of words; tables are as wide as they must be
WIDTH = 110


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Words:
    """Lines of their own; several are a list in Markdown, where line ends are blanks."""

    lines: Tuple[str, ...]


@dataclass(frozen=True)
class Notes:
    """A list; nothing is drawn where there are no items."""

    title: str
    items: Tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table whose first `left` columns begin at the left; nothing is drawn without rows."""

    head: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]
    left: int = 1
    title: str = ""


Block = Union[Heading, Words, Notes, Grid]


def text(blocks: Sequence[Block]) -> str:
    """For a terminal and for diff: no trailing blanks, ends with a line end."""
    return _joined([list(_text(block)) for block in blocks])


def markdown(blocks: Sequence[Block]) -> str:
    """For a pull request."""
    return _joined([list(_markdown(block)) for block in blocks])


def _joined(parts: Sequence[Sequence[str]]) -> str:
    whole = ["\n".join(line.rstrip() for line in part) for part in parts if part]
    return "\n\n".join(whole) + "\n"


def _text(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield block.text
        yield "=" * len(block.text)
    elif isinstance(block, Words):
        yield from block.lines
    elif isinstance(block, Notes):
        if block.items:
            yield block.title
        for item in block.items:
            yield from textwrap.wrap(item, WIDTH, initial_indent=" - ", subsequent_indent="   ")
    elif block.rows:
        if block.title:
            yield block.title
        yield from side_by_side([block.head, *block.rows], block.left)


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"### {block.text}"
    elif isinstance(block, Words):
        yield from (f"- {line}" if len(block.lines) > 1 else line for line in block.lines)
    elif isinstance(block, Notes):
        if block.items:
            yield f"{block.title}:"
            yield ""
        for item in block.items:
            yield f"- {item}"
    elif block.rows:
        if block.title:
            yield f"{block.title}:"
            yield ""
        yield _line(block.head)
        yield _line([":---" if i < block.left else "---:" for i in range(len(block.head))])
        for row in block.rows:
            yield _line([cell.replace("|", "\\|") for cell in row])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
