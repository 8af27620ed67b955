"""HTML: blocks as the template of a page takes them."""

from __future__ import annotations

from typing import Any, Dict, Iterator

from cbt_plugins.formatting.blocks import BlockFormat, Heading, Notes, TableGrid, TitledBlocks, Words
from cbt_plugins.formatting.formats.format import Format


class Html(Format, BlockFormat[Dict[str, Any]]):
    """A page, whose text a template has made; its blocks are mappings, each with its `kind`."""

    name, suffixes, purpose = "html", ("htm",), "a page"

    def heading(self, heading: Heading) -> Iterator[Dict[str, Any]]:
        yield {"kind": "heading", "text": heading.text}

    def words(self, words: Words) -> Iterator[Dict[str, Any]]:
        yield {"kind": "words", "lines": words.lines}

    def notes(self, notes: Notes) -> Iterator[Dict[str, Any]]:
        yield {"kind": "notes", "title": notes.title, "items": notes.items}

    def table(self, grid: TableGrid) -> Iterator[Dict[str, Any]]:
        yield {"kind": "table", "title": grid.title, "head": grid.head, "rows": grid.rows, "left": grid.sides}

    def titled(self, titled: TitledBlocks) -> Iterator[Dict[str, Any]]:
        yield from self.heading(Heading(titled.title))
        for block in titled.blocks:
            yield from block.parts(self)
