"""Query an archive in SQL."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import sys
from pathlib import Path
from typing import Any, List, Sequence, Tuple

from cbt_plugins.formatting import side_by_side

from .command import OK, UNUSABLE, CommandError, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 0 done; 2 an error in the query, or no such path; 4 a run cannot be read."
    parser.add_argument(
        "archive", type=Path, help="an archive, a run's id-... directory, or a result of another program"
    )
    parser.add_argument("query", nargs="?", help="the query; - reads it from standard input")
    parser.add_argument("--list", action="store_true", help="print the tables and their columns")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument("--json", action="store_true", help="print a JSON array of objects")


def run(args: argparse.Namespace) -> int:
    """Run the query and print its result; returns the exit status."""
    import duckdb

    from cbt_plugins.results.sql.database import QueryRefused, answer, connect, runs_of

    if args.list:
        print(tables(), end="")
        return OK
    if args.query is None:
        raise CommandError("missing query: give one, or --list for the tables")
    query = sys.stdin.read() if args.query == "-" else args.query
    unreadable: List[str] = []
    try:
        con = connect(runs_of(args.archive), query, unreadable)
        names, lines = answer(con, query)
    except (QueryRefused, duckdb.Error) as e:
        raise CommandError(str(e).strip()) from e
    if args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(lines)
    elif args.json:
        print(json.dumps([dict(zip(names, line)) for line in lines], indent=1, default=str))
    else:
        print(as_table(names, lines), end="")
    for text in unreadable:
        say("Error", text, UNUSABLE)
    return UNUSABLE if unreadable else OK


def tables() -> str:
    """Return all tables with their columns, as text."""
    from cbt_plugins.results.sql.database import RUN, listed

    made = []
    for table in listed().values():
        columns = (RUN, *table.columns)
        width = max(len(column.name) for column in columns)
        made.append(f"{table.name}: {table.text}\n")
        made += [f"  {column.name:{width}}  {column.type:9}  {column.text}\n" for column in columns]
    return "".join(made)


def as_table(names: Sequence[str], lines: Sequence[Tuple[Any, ...]]) -> str:
    """Return a result as aligned columns, numbers to the right."""
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
