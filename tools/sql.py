"""`cbt-tools sql ARCHIVE "select ..."`: free questions to an archive."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import sys
from pathlib import Path
from typing import Any, List, Sequence, Tuple

from cbt_plugins.columns import side_by_side

OK, USAGE = 0, 2
_INSTALL = "pip install 'cbt-plugins[sql]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archive", type=Path, help="an archive, one run's id-... directory, or another program's result"
    )
    parser.add_argument("query", nargs="?", help="the question; - reads it from standard input")
    parser.add_argument("--list", action="store_true", help="the tables and their columns")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the answer as CSV")
    form.add_argument("--json", action="store_true", help="the answer as a JSON array of objects")


def run(args: argparse.Namespace) -> int:
    """0, or 2 for whatever is wrong: with the archive, with the question."""
    try:
        import duckdb

        from cbt_plugins.results.source import Unreadable
        from cbt_plugins.results.sql.database import Refused, answer, connect, runs_of
    except ImportError as e:
        if e.name not in ("duckdb", "numpy"):
            raise
        return _complain(f"it needs the Python package {e.name} ({_INSTALL})")
    if args.list:
        print(tables(), end="")
        return OK
    if args.query is None:
        return _complain("a question is missing; --list shows what can be asked")
    query = sys.stdin.read() if args.query == "-" else args.query
    try:
        con = connect(runs_of(args.archive), query)
        names, lines = answer(con, query)
    except (Unreadable, Refused, duckdb.Error) as e:
        return _complain(str(e).strip())
    if args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(lines)
    elif args.json:
        print(json.dumps([dict(zip(names, line)) for line in lines], indent=1, default=str))
    else:
        print(as_table(names, lines), end="")
    return OK


def tables() -> str:
    """All tables with their columns, for a person."""
    from cbt_plugins.results.sql.database import RUN, listed

    made = []
    for table in listed().values():
        columns = (RUN, *table.columns)
        width = max(len(column.name) for column in columns)
        made.append(f"{table.name}: {table.text}\n")
        made += [f"  {column.name:{width}}  {column.type:9}  {column.text}\n" for column in columns]
    return "".join(made)


def as_table(names: Sequence[str], lines: Sequence[Tuple[Any, ...]]) -> str:
    """Columns side by side, numbers to the right."""
    cells: List[List[str]] = [[_text(value) for value in line] for line in lines]
    left = [not all(isinstance(line[i], (int, float, type(None))) for line in lines) for i in range(len(names))]
    widths = [max([len(name), *(len(line[i]) for line in cells)]) for i, name in enumerate(names)]
    rule = ["-" * width for width in widths]
    return "".join(f"{line}\n" for line in side_by_side([list(names), rule, *cells], left))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return str(value)


def _complain(text: str) -> int:
    print(f"cbt-tools sql: {text}", file=sys.stderr)
    return USAGE
