"""Results for other programs: lines of cells as CSV, plain values as JSON, blocks as a page's templates take them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from itertools import islice
from typing import Any, Dict, Iterable, Iterator, Sequence

from cbt_plugins.formatting.blocks import BlockForm, Heading, Notes, TableGrid, TitledBlocks, Words
from cbt_plugins.formatting.output_format import Form
from cbt_plugins.formatting.screen import printable


class Csv(Form):
    """Lines of cells, the first with the names of the columns, which are printed once."""

    name, purpose = "csv", "a table"

    def text(self, content: Iterable[Sequence[Any]], again: bool = False) -> str:
        out = io.StringIO()
        rows = islice(content, int(again), None)
        csv.writer(out, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
        return out.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a printable cell of CSV that no spreadsheet takes for a formula: one that begins like it gets an
    apostrophe.
    """
    if not isinstance(value, str):
        return value
    return printable(f"'{value}" if _FORMULA.match(value) else value)


_FORMULA = re.compile(r"[=+@\t]|-(?!(?:[\d.]+(?:e[+-]?\d+)?)?$)", re.IGNORECASE)


class Json(Form):
    """Plain values."""

    name, purpose = "json", "for programs"

    def text(self, content: Any, again: bool = False) -> str:
        return json.dumps(_finite(content), indent=1, default=str) + "\n"

    def safe(self, text: str) -> str:
        return text.replace("\x7f", "\\u007f")  # the only sign of ASCII that a terminal would get escaped


def _finite(value: Any) -> Any:
    """Return a value as JSON can have it: null for what is no finite number, text for the keys of a mapping."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


class Html(Form, BlockForm[Dict[str, Any]]):
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
