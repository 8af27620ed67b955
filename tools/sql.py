"""Query an archive in SQL."""

from __future__ import annotations

import argparse
import datetime
import difflib
import io
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from cbt_plugins.exit_status import OK, UNUSABLE
from cbt_plugins.formatting.blocks import Block, TableGrid, TitledBlocks, Words

from .command import CommandError, explain, say
from .format_option import CSV, JSON, MD, TEXT, add_formats, add_renamed, print_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        'cbt-tools sql archive "SELECT phase, op, obj_per_s, p99_ms FROM ops"',
        "cbt-tools sql --list",
        'cbt-tools sql archive "SELECT * FROM warnings" -o warnings.csv',
    )
    explain(parser, examples, {UNUSABLE: "a run is incomplete, changed or damaged; the result has all other data"})
    parser.add_argument(
        "archive", type=Path, nargs="?", help="an archive, a run's id-... directory, or a result of another program"
    )
    parser.add_argument("query", nargs="?", help="the query; - reads the query from standard input")
    parser.add_argument("--list", action="store_true", help="print the tables and their columns")
    add_formats(parser, TEXT, JSON, CSV, MD)
    add_renamed(parser, {"--csv": "--format csv", "--json": "--format json"})


def run(args: argparse.Namespace) -> int:
    """Run the query and print its result; return the exit status."""
    import duckdb

    from cbt_plugins.results.sql.database import QueryRefused, connect, listed, run_query, runs_of

    if args.list:
        print_results(
            args,
            {TEXT: tables, JSON: _columns, CSV: lambda: [_COLUMN, *(tuple(column.values()) for column in _columns())]},
        )
        return OK
    if args.archive is None or args.query is None:
        raise CommandError("give an archive and a query; --list shows the tables")
    query = _query_of(args)
    unreadable: List[str] = []
    try:
        con = connect(runs_of(args.archive), query, unreadable)
        names, lines = run_query(con, query)
    except (QueryRefused, duckdb.Error) as e:
        raise CommandError(_unknown_table(str(e)) or _without_pytz(str(e)) or str(e).strip()) from e
    if not lines and not set(re.findall(r"\w+", query.lower())) & set(listed()):
        # no query, or one such as SHOW TABLES: a table is made when a query names it
        raise CommandError("the query names no table of the archive: cbt-tools sql --list shows the tables")
    forms = {
        TEXT: lambda: [as_table(names, lines) if lines else Words((f"no rows; the columns are {', '.join(names)}",))],
        JSON: lambda: _objects(names, lines),
        CSV: lambda: [names, *lines],
    }
    print_results(args, forms)
    for text in unreadable:
        say("Error", text, UNUSABLE)
    return UNUSABLE if unreadable else OK


def _query_of(args: argparse.Namespace) -> str:
    """Return the query; what its locale cannot decode is UTF-8. Raises CommandError."""
    query: str = args.query
    if query == "-":
        if sys.stdin is None:
            raise CommandError("cannot read the query: standard input is closed")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # as Python decodes the arguments
        query = sys.stdin.read()
    try:
        return query.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as e:
        raise CommandError(f"cannot read the query: it is not UTF-8: {e.reason}") from None


def _objects(names: Sequence[str], lines: Sequence[Tuple[Any, ...]]) -> List[Dict[str, Any]]:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise CommandError(f"two columns have the name {twice}: rename one with AS")
    return [dict(zip(names, line)) for line in lines]


def _unknown_table(error: str) -> str:
    """Return the message about an unknown table; the message of DuckDB would suggest one of its own tables."""
    from cbt_plugins.results.sql.database import listed

    match = re.search(r"Table with name (\S+) does not exist", error)
    if not match:
        return ""
    near = difflib.get_close_matches(match[1], listed(), 1)
    hint = f"did you mean {near[0]}?" if near else f"the tables are {', '.join(listed())}"
    return f"unknown table {match[1]}: {hint}"


def _without_pytz(error: str) -> str:
    """Return the message about times with a zone, which DuckDB gives to Python by means of pytz."""
    text = "the result has times with a zone, which need the Python package pytz: install it, or CAST(... AS TIMESTAMP)"
    return text if "Required module 'pytz'" in error else ""


_COLUMN = ("table", "column", "type", "text")


def _columns() -> List[Dict[str, str]]:
    from cbt_plugins.results.sql.database import RUN, listed

    every = [(table, column) for table in listed().values() for column in (RUN, *table.columns)]
    return [dict(zip(_COLUMN, (table.name, column.name, column.type, column.text))) for table, column in every]


def tables() -> List[Block]:
    """Return all tables with their columns."""
    from cbt_plugins.results.sql.database import RUN, listed

    parts: List[Block] = []
    for table in listed().values():
        lines = tuple((column.name, column.type, column.text) for column in (RUN, *table.columns))
        parts.append(TitledBlocks(f"{table.name}: {table.text}", (TableGrid((), lines, left=3),)))
    return parts


def as_table(names: Sequence[str], lines: Sequence[Tuple[Any, ...]]) -> TableGrid:
    """Return a result as a table, with numbers aligned to the right."""
    cells = tuple(tuple(_text(value) for value in line) for line in lines)
    left = [not all(isinstance(line[i], (int, float, type(None))) for line in lines) for i in range(len(names))]
    return TableGrid(tuple(names), cells, left, ruled=True)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        # a whole number such as a time or bytes in full, as far as a float knows it; else without noise as of 0.1 + 0.2
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.12g}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return str(value)
