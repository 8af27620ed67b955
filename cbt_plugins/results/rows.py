"""Request rows of a driver, as lists of fields, in blocks.

The columns go by the header's names, because they moved: warp 0.6.9 writes no `cat`, 1.3.1 does, 1.5.0 has
`last_byte` before `end`. What warp streams with `--stdout` has no header and 1.3.1's columns.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.results.source import Source, Unreadable

STREAMED = tuple(
    [
        "idx",
        "thread",
        "op",
        "client_id",
        "n_objects",
        "bytes",
        "endpoint",
        "file",
        "error",
        "start",
        "first_byte",
        "end",
        "duration_ns",
        "cat",
    ]
)

#: how every row begins, whatever its version: idx, thread, op
_ROW = re.compile(r"\d+\t\d+\t[A-Z_]+\t")
#: a quoted error message that goes on for longer than this has lost its end
_LONGEST = 1 << 16

Fields = List[str]


class Columns(NamedTuple):
    """Where each column stands in a row."""

    width: int
    thread: int
    op: int
    n_objects: int
    bytes: int
    endpoint: int
    error: int
    start: int
    first_byte: int
    end: int
    duration: int
    client: int = -1  # -1: there is no such column

    @classmethod
    def of(cls, header: Sequence[str]) -> Columns:
        """Raises ValueError that names what is missing."""
        names = [
            "thread",
            "op",
            "n_objects",
            "bytes",
            "endpoint",
            "error",
            "start",
            "first_byte",
            "end",
            "duration_ns",
        ]
        missing = [name for name in names if name not in header]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        client = header.index("client_id") if "client_id" in header else -1
        return cls(len(header), *(header.index(name) for name in names))._replace(client=client)


class Rows:
    """One rows file.

    `blocks` may be read once; when it has ended, `torn` says why the end is missing (None: it is whole) and
    `bad` how many lines were no rows. A record counts only with its line end: whatever a torn last line holds
    may lack a digit.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: Optional[Columns] = None
        self.torn: Optional[str] = None
        self.bad = 0
        self.command: Optional[str] = None

    def blocks(self) -> Iterator[List[Fields]]:
        """Lists of rows, each with exactly `columns.width` fields. Raises Unreadable."""
        source = Source(self.path)
        rest = b""
        for chunk in source.chunks():
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                rest += chunk
                continue
            text = (rest + chunk[:cut]).decode("utf-8", "replace")
            rest = chunk[cut:]
            rows, open_text = self._split(text)
            if open_text:
                rest = open_text.encode() + rest
            if rows:
                yield rows
        self.torn = source.torn
        if rest:
            # an open quote swallows what follows it: the whole rows in there are rows all the same
            lines = rest.decode("utf-8", "replace").split("\n")
            rows = [fields for fields in map(self._plain, lines[:-1]) if fields]
            self.bad += len(lines) - 1 - len(rows)
            if lines[-1]:
                self.torn = self.torn or "the last line has no end"
            if rows:
                yield rows

    def _plain(self, line: str) -> Optional[Fields]:
        """The fields of a line without quotes, None when it is no row."""
        fields = line.split("\t")
        good = self.columns is not None and len(fields) == self.columns.width and '"' not in line and _ROW.match(line)
        return fields if good else None

    def _split(self, text: str) -> Tuple[List[Fields], str]:
        """Rows of a text of whole lines, and the beginning of a quoted record that has not ended in it."""
        lines = text.split("\n")
        lines.pop()
        if self.columns is None:
            self._header(lines)
        assert self.columns is not None
        width = self.columns.width
        if '"' not in text:
            rows = [line.split("\t") for line in lines]
            # the last column is a number: comments, and headers of files put together, fail on the first
            if set(map(len, rows)) <= {width} and rows and rows[-1][0].isdigit() and rows[0][0].isdigit():
                return rows, ""
        rows = []
        open_lines: List[str] = []
        for line in lines:
            if open_lines:
                open_lines = self._continue(open_lines, line, rows)
            elif '"' in line:
                open_lines = self._continue([], line, rows)
            else:
                self._take(line.split("\t"), line, rows)
        return rows, "\n".join(open_lines) + "\n" if open_lines else ""

    def _continue(self, open_lines: List[str], line: str, rows: List[Fields]) -> List[str]:
        """Add a line to a record with quotes; returns the lines that wait for the closing quote."""
        if open_lines and self._plain(line):
            self.bad += 1  # a whole row inside a message: the message was torn
            rows.append(line.split("\t"))
            return []
        open_lines = [*open_lines, line]
        record = "\n".join(open_lines)
        if record.count('"') % 2:
            if len(record) < _LONGEST:
                return open_lines
            self.bad += 1
            return []
        try:
            fields = next(csv.reader([record], delimiter="\t"), [])
        except csv.Error:  # a line break outside of the quotes: parts of different rows
            self.bad += 1
        else:
            self._take(fields, record, rows)
        return []

    def _take(self, fields: Fields, line: str, rows: List[Fields]) -> None:
        assert self.columns is not None
        if len(fields) == self.columns.width and fields[0].isdigit():
            rows.append(fields)
        elif line.startswith("# "):
            self.command = line[2:]
        elif line and fields[0] != "idx":
            self.bad += 1

    def _header(self, lines: List[str]) -> None:
        """Find the columns by the first line, and take it off when it is a header."""
        first = lines[0].split("\t") if lines else []
        if first[0] == "idx":
            try:
                self.columns = Columns.of(first)
            except ValueError as e:
                raise Unreadable(f"{self.path}: {e} in its header") from e
            del lines[0]
        else:
            self.columns = Columns.of(STREAMED[: 13 if len(first) == 13 else 14])
