"""A table of an archive: name, description, columns, and the function that fills it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

#: SQL type of a column -> type of its values; TIME: seconds since 1970, stored as TIMESTAMP (UTC)
TEXT, INTEGER, NUMBER, FLAG, TIME = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"

#: lines of a piece that is made from mappings
PIECE = 50_000

#: column -> values: numpy arrays, masked for null, or Names
Columns = Dict[str, Any]


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    text: str


@dataclass(frozen=True)
class Names:
    """A column with few different texts: for each line the index of its text in `texts`."""

    numbers: np.ndarray
    texts: Sequence[str]

    @classmethod
    def same(cls, text: str, n: int) -> Names:
        """Return a column with the same text in all lines."""
        return cls(np.zeros(n, np.int64), (text,))

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class TableRun:
    """A run that fills tables."""

    path: Path
    name: str  # "00000000/id-1a2b3c4d"
    ours: bool  # a run of this project's benchmarks


@dataclass(frozen=True)
class Table:
    """A table. `fill` yields the columns of one run, in pieces; a column `run` is added before them.

    With `sums`, `fill` also gets the columns that the query uses; it adds up lines that are equal in these columns and
    may leave out other columns.
    """

    name: str
    text: str
    columns: Tuple[Column, ...]
    fill: Callable[..., Iterable[Columns]]
    sums: bool = False


def columns_of(lines: str) -> Tuple[Column, ...]:
    """Return the columns of lines of the form "name type text"."""
    columns = []
    for line in lines.strip().splitlines():
        name, type_, text = line.split(None, 2)
        columns.append(Column(name, type_, text))
    return tuple(columns)


def from_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> Iterator[Columns]:
    """Yield pieces made from mappings; a missing key, or a value of another type, is null."""
    rows_left = iter(rows)
    while True:
        piece: List[Mapping[str, Any]] = list(islice(rows_left, PIECE))
        if not piece:
            return
        yield {column.name: array(column.type, [row.get(column.name) for row in piece]) for column in columns}


def clean(text: str) -> str:
    """Return a text that DuckDB accepts: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def array(type_: str, values: Sequence[Any]) -> np.ndarray:
    """Return the values of a column; None is null."""
    if type_ == TEXT:
        texts = np.empty(len(values), object)
        texts[:] = [None if value is None else clean(str(value)) for value in values]
        return texts
    kinds = {INTEGER: (np.int64, 0), FLAG: (np.bool_, False)}
    dtype, nothing = kinds.get(type_, (np.float64, 0.0))
    good = [isinstance(value, (int, float)) for value in values]
    filled = [value if fine else nothing for value, fine in zip(values, good)]
    return np.ma.masked_array(np.array(filled, dtype), mask=np.logical_not(good))
