"""CSV: lines of cells, for spreadsheets and other programs."""

from __future__ import annotations

import csv
import io
import re
from itertools import islice
from typing import Any, Iterable, Sequence

from cbt_plugins.formatting.formats.format import Format
from cbt_plugins.formatting.screen import printable


class Csv(Format):
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
