"""An archive as tables of an in-memory DuckDB; only those that a question names are filled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import duckdb
import numpy as np

from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.source import Unreadable
from cbt_plugins.results.sql import counted, summaries, watched
from cbt_plugins.results.sql.rows import COLUMNS as ROW_COLUMNS
from cbt_plugins.results.sql.rows import view as rows_view
from cbt_plugins.results.sql.table import TEXT, TIME, Column, Columns, Table, TableRun

TABLES: Tuple[Table, ...] = (*summaries.TABLES, *counted.TABLES, *watched.TABLES)
ROWS = Table("rows", "every request, where rows were kept", ROW_COLUMNS, lambda run: ())
RUN = Column("run", TEXT, "directory of the run, below results/")

#: lines of a table of counts that may wait to be added up
_MANY = 5_000_000
#: where a question may mean columns that it does not name
_STAR = re.compile(r"(\bselect|\bdistinct|,|\.)\s*\*")
_ALL = {"natural", "columns", "positional", "describe", "summarize", "table"}
#: what cannot write a file: files of rows may be read, and DuckDB has one list for both
_ALLOWED = ("SELECT", "CREATE", "INSERT", "UPDATE", "DELETE", "ALTER", "DROP")


class Refused(Exception):
    """A statement that is no question."""


def runs_of(archive: Path) -> List[TableRun]:
    """The runs of an archive, of any program; what is no archive is one run. Raises Unreadable."""
    try:
        paths = find_runs(archive)
    except Unreadable:
        if not archive.exists():
            raise
        return [TableRun(archive, archive.name, False)]
    return [TableRun(path, f"{path.resolve().parent.name}/{path.name}", _ours(path)) for path in paths]


def _ours(path: Path) -> bool:
    return (path / "plan.json").exists() or (path / "phases").is_dir()


def connect(runs: Sequence[TableRun], wanted: str) -> Any:
    """A connection with the tables whose names stand in the text `wanted`. Raises Unreadable, duckdb.Error."""
    con = duckdb.connect(":memory:")
    con.execute("SET TimeZone = 'UTC'")
    words = set(re.findall(r"\w+", wanted.lower()))
    everything = bool(_STAR.search(wanted.lower()) or words & _ALL)
    for table in TABLES:
        if table.name in words:
            its = [column for column in table.columns if everything or column.name in words]
            _create(con, table, its or table.columns[:1], runs)
    if ROWS.name in words:
        con.execute(rows_view(con, runs))
    # from here on no file can be read or written but those of the rows
    files = [str(file) for run in runs for file in sorted(run.path.glob("phases/*/rows/*"))]
    con.execute(f"SET allowed_paths = [{', '.join(map(quoted, files))}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _create(con: Any, table: Table, wanted: Sequence[Column], runs: Sequence[TableRun]) -> None:
    """With the columns that the question names: those of the histograms of days are large."""
    columns = (RUN, *wanted)
    con.execute(f"CREATE TABLE {table.name} ({', '.join(f'{_name(column)} {column.type}' for column in columns)})")
    adds = bool(table.adds) and len(columns) <= len(table.columns)
    waiting = 0
    for run, piece in _pieces(table, runs):
        n = len(next(iter(piece.values())))
        filled = {"run": np.full(n, run.name, object), **{column.name: piece[column.name] for column in wanted}}
        con.register("piece", filled)
        con.execute(f"INSERT INTO {table.name} SELECT {', '.join(map(_value, columns))} FROM piece")
        con.unregister("piece")
        waiting += n
        if adds and waiting > _MANY:
            _add_up(con, table, columns)
            waiting = 0
    if adds:
        _add_up(con, table, columns)


def _add_up(con: Any, table: Table, columns: Sequence[Column]) -> None:
    """Make one line of those that differ in nothing but their counts."""
    values = [_name(column) for column in columns]
    values = [f"sum({name})::BIGINT AS {name}" if name == f'"{table.adds}"' else name for name in values]
    con.execute(f"CREATE OR REPLACE TABLE {table.name} AS SELECT {', '.join(values)} FROM {table.name} GROUP BY ALL")


def _pieces(table: Table, runs: Sequence[TableRun]) -> Iterator[Tuple[TableRun, Columns]]:
    for run in runs:
        for piece in table.fill(run):
            yield run, piece


def _name(column: Column) -> str:
    return f'"{column.name}"'


def _value(column: Column) -> str:
    name = _name(column)
    return f"make_timestamp(CAST(round({name} * 1e6) AS BIGINT))" if column.type == TIME else name


def listed() -> Dict[str, Table]:
    """All tables by name."""
    return {table.name: table for table in (*TABLES, ROWS)}


def answer(con: Any, query: str) -> Tuple[List[str], List[Tuple[Any, ...]]]:
    """(names of the columns, lines) of the last statement of a query. Raises duckdb.Error, Refused."""
    statements = con.extract_statements(query)
    for statement in statements:
        kind = statement.type.name
        if kind not in _ALLOWED:
            raise Refused(f"no {kind.replace('_', ' ')} here: an archive is only read")
    names: List[str] = []
    lines: List[Tuple[Any, ...]] = []
    for statement in statements:
        result = con.execute(statement)
        names, lines = [column[0] for column in result.description or ()], result.fetchall()
    return names, lines
