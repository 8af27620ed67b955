"""An archive as SQL tables: a DuckDB database whose views are filled when a query names them."""

from __future__ import annotations

import glob
import json
import re
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import duckdb
import numpy as np

from cbt_plugins.archive_files import is_own
from cbt_plugins.checksums import ADDED, check_sums
from cbt_plugins.results.archive import find_runs, is_going_on
from cbt_plugins.results.result_file import ArchivesBelow, NoRun, Unreadable, reading
from cbt_plugins.results.run_state import why_incomplete
from cbt_plugins.results.sql import aggregate_tables, event_and_state_tables, summary_tables
from cbt_plugins.results.sql.aggregate_tables import phases
from cbt_plugins.results.sql.table_type import TEXT, TIME, Column, Columns, Names, Table, TableRun, clean, columns_of
from cbt_plugins.results.summary_file import is_ours, is_stored

_ROW_COLUMNS = columns_of("""
phase VARCHAR name of the phase
driver VARCHAR name of the driver
job VARCHAR process of the load generator
node VARCHAR node of the job
thread BIGINT thread of the generator
op VARCHAR GET, PUT, STAT, DELETE, LIST
n_objects BIGINT objects of the request
bytes BIGINT bytes of the request
endpoint VARCHAR gateway
file VARCHAR name of the object
error VARCHAR error message; null if the request succeeded
started TIMESTAMP start of the request, run's clock (UTC)
first_byte TIMESTAMP first byte of the answer; null if no byte came
ended TIMESTAMP end of the request, run's clock (UTC)
duration_ns BIGINT exact duration; the timestamps are rounded to microseconds
""")


_PACKED = {".gz": "gzip", ".zst": "zstd"}


def _rows_view(con: Any, runs: Sequence[TableRun]) -> str:
    """Return the statement that makes the view."""
    files_of_jobs: List[Tuple[str, ...]] = []
    offsets: List[float] = []
    for run in runs:
        run_phases = phases(run.path) if run.ours else ()
        check_sums(run.path, rows=True)  # is_own() then refuses a changed file
        for phase in run_phases:
            for job in phase.jobs:
                if job.rows is not None and is_own(job.rows):
                    files_of_jobs.append((str(job.rows), run.name, phase.name, job.driver, job.id, job.node))
                    offsets.append(job.clock_offset)
    if not files_of_jobs:
        empty = ", ".join(f'CAST(NULL AS {column.type}) AS "{column.name}"' for column in _ROW_COLUMNS)
        return f"CREATE VIEW rows AS SELECT CAST(NULL AS VARCHAR) AS run, {empty} WHERE false"
    names = ("filename", "run", "phase", "driver", "job", "node")
    columns = {name: np.array([clean(line[i]) for line in files_of_jobs], object) for i, name in enumerate(names)}
    con.register("piece", {**columns, "clock_offset": np.array(offsets)})
    con.execute("CREATE TABLE kept_rows AS SELECT * FROM piece")
    con.unregister("piece")
    files = ", ".join(quoted(glob.escape(line[0])) for line in files_of_jobs)
    ends = {Path(line[0]).suffix for line in files_of_jobs}
    # the lines between the rows that are no rows have too few columns; as comments they would end rows at a # in a text
    # DuckDB cuts a path with a question mark
    packed = _PACKED.get(ends.pop(), "auto") if len(ends) == 1 else "auto"
    times = ", ".join((_time("start", "started"), _time("first_byte", "first_byte"), _time("end", "ended")))
    return f"""CREATE VIEW rows AS SELECT run, phase, driver, job, node, CAST(thread AS BIGINT) AS thread, op,
        CAST(n_objects AS BIGINT) AS n_objects, CAST(bytes AS BIGINT) AS bytes, endpoint, file, error,
        {times}, CAST(duration_ns AS BIGINT) AS duration_ns
        FROM read_csv([{files}], delim='\t', quote='"', escape='"', header=true, all_varchar=true, filename=true,
        compression='{packed}', union_by_name=true, ignore_errors=true, null_padding=false, strict_mode=false)
        JOIN kept_rows USING (filename)"""


def _time(name: str, shown: str) -> str:
    """Return the SQL that reads RFC 3339 as UTC by the run's clock."""
    utc = f"timezone('UTC', CAST(\"{name}\" AS TIMESTAMPTZ))"
    return f'{utc} - to_microseconds(CAST(round(clock_offset * 1e6) AS BIGINT)) AS "{shown}"'


TABLES: Tuple[Table, ...] = (*summary_tables.TABLES, *aggregate_tables.TABLES, *event_and_state_tables.TABLES)
ROWS = Table("rows", "all requests; only of runs that kept the rows of their requests", _ROW_COLUMNS, lambda run: ())
RUN = Column("run", TEXT, "directory of the run, relative to results/")

#: statements that cannot write files: DuckDB has one list of paths for reading and writing, with the files of rows
_ALLOWED = ("SELECT", "CREATE", "INSERT", "UPDATE", "DELETE", "ALTER", "DROP")


class QueryRefused(Exception):
    """A statement that may change or write data is refused."""


def runs_of(archive: Path) -> List[TableRun]:
    """Return the runs of an archive, of any program; another path is one run. Raises Unreadable."""
    try:
        paths = find_runs(archive)
    except (NoRun, ArchivesBelow) as e:
        if isinstance(e, ArchivesBelow):
            summary_tables.records(archive)  # a folder of archives alone is refused
        return [TableRun(archive, archive.name, False)]
    return [TableRun(path, f"{path.resolve().parent.name}/{path.name}", is_ours(path)) for path in paths]


def connect(runs: Sequence[TableRun], wanted: str, unreadable: Optional[List[str]] = None) -> Any:
    """Return a connection with the tables that the text `wanted` names. Raises Unreadable, duckdb.Error.

    `unreadable` gets a sentence about each unreadable run, which is left out, and about each run that has no end or
    changed files; without it Unreadable is raised.
    """
    left_out: List[str] = []
    con = duckdb.connect(":memory:")
    con.execute("SET TimeZone = 'UTC'")
    con.extract_statements(wanted)  # a query that is refused must not fill tables first
    words = set(re.findall(r"\w+", wanted.lower()))
    tables: List[Tuple[Table, Sequence[Column]]] = []
    for table in TABLES:
        if table.name in words:
            few = table.sums and not _means_all(con, wanted, table.name)
            needed_columns = [column for column in (RUN, *table.columns) if not few or column.name in words]
            tables.append((table, needed_columns or [RUN]))
    create_tables(con, tables, runs, left_out, ROWS.name in words)
    if left_out and unreadable is None:
        raise Unreadable(left_out[0])
    if unreadable is not None:
        unreadable += dict.fromkeys(left_out)
    if ROWS.name in words:
        con.execute(_rows_view(con, runs))
    # from here on only the files of rows can be read
    files = [str(file) for run in runs for file in sorted(run.path.glob("phases/*/rows/*")) if is_own(file)]
    both = dict.fromkeys([*files, *map(glob.escape, files)])  # a name, and the pattern that means it
    con.execute(f"SET allowed_paths = [{', '.join(map(quoted, both))}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def _means_all(con: Any, query: str, table: str) -> bool:
    """Tell whether a query may use columns that it does not name: by *, FROM without SELECT, NATURAL.

    A statement other than SELECT (CREATE, PIVOT) may.
    """
    ((text,),) = con.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    try:
        read = json.loads(text)
    except RecursionError:
        return True
    parts = list(_parts(read))
    of_table = [part for part in parts if str(part.get("table_name")).lower() == table]
    # SELECT h FROM histograms AS h: all columns
    aliases = {str(part.get("alias") or table).lower() for part in of_table}
    return bool(read["error"]) or any(
        part.get("class") == "STAR"
        or part.get("ref_type") == "NATURAL"
        or (part.get("class") == "COLUMN_REF" and part["column_names"][-1].lower() in aliases)
        for part in parts
    )


def _parts(value: Any) -> Iterator[Dict[str, Any]]:
    """Yield all objects of a query's JSON except in ORDER BY, where ALL means the selected columns."""
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left += [part for key, part in node.items() if key != "orders"]
        elif isinstance(node, list):
            left += node


def quoted(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + clean(text).replace("'", "''") + "'"


def create_tables(
    con: Any,
    tables: Sequence[Tuple[Table, Sequence[Column]]],
    runs: Sequence[TableRun],
    left_out: List[str],
    rows: bool = False,
) -> None:
    """Make tables with only the needed columns, because histograms of days are large.

    `left_out` gets a sentence about each run that is unreadable, has no end or changed files; with `rows`, rows too.
    """
    for table, columns in tables:
        fields = ", ".join(f"{_name(column)} {column.type}" for column in columns)
        con.execute(f"CREATE TABLE {table.name} ({fields})")
    for run in runs:  # all tables of a run: no summary of an earlier run is in memory
        before = len(left_out)
        for table, columns in tables:
            _fill(con, table, columns, run, left_out)
        if len(left_out) == before and (tables or rows) and run.ours:
            left_out += _doubts(run, [table for table, _ in tables], rows)
        summary_tables.summary.cache_clear()


def _doubts(run: TableRun, tables: Sequence[Table], rows: bool) -> Iterator[str]:
    """Yield the reason why numbers of a run are missing: it has no end, or files that were to be read were changed."""
    try:
        with reading(run.path):
            changed = check_sums(run.path, rows or _reads_rows(run.path, tables)).changed
            why = None if is_going_on(run.path) else why_incomplete(run.path)
    except Unreadable as e:
        yield str(e)
        return
    reasons = [why] if why else [f"{text}: {name}" for name, text in changed.items() if text != ADDED]
    if reasons:
        yield f"{run.path}: {'; '.join(reasons)}"


def _reads_rows(run: Path, tables: Sequence[Table]) -> bool:
    """Tell whether some of these tables are filled from rows, because a job of the run has no aggregates."""
    if all(job.aggregates is not None for phase in phases(run) for job in phase.jobs):
        return False
    if any(table in aggregate_tables.TABLES for table in tables):
        return True
    return any(table in summary_tables.TABLES for table in tables) and not is_stored(run)


def _fill(con: Any, table: Table, columns: Sequence[Column], run: TableRun, left_out: List[str]) -> None:
    con.begin()
    try:
        for piece in _pieces(table, run, {column.name for column in columns}):
            n = len(next(iter(piece.values())))
            _insert(con, table, columns, {**piece, RUN.name: Names.same(run.name, n)})
        con.commit()
    except (Unreadable, duckdb.DataError) as e:
        con.rollback()
        damage = f"{run.path}: damaged: table {table.name}: {str(e).splitlines()[0]}"
        left_out.append(str(e) if isinstance(e, Unreadable) else damage)


def _pieces(table: Table, run: TableRun, wanted: Collection[str]) -> Iterator[Columns]:
    with reading(run.path):
        if not run.ours:
            summary_tables.records(run.path)  # what is no result of any program has no empty table either
        yield from table.fill(run, wanted) if table.sums else table.fill(run)


def _insert(con: Any, table: Table, columns: Sequence[Column], piece: Mapping[str, Any]) -> None:
    filled, values = {}, []
    for column in columns:
        column_values, value = piece[column.name], _name(column)
        if isinstance(column_values, Names):
            value = f"([{', '.join(map(quoted, column_values.texts))}]::VARCHAR[])[{value} + 1]"
            column_values = column_values.numbers
        elif column.type == TIME:
            value = f"make_timestamp(CAST(round({value} * 1e6) AS BIGINT))"
        filled[column.name] = column_values
        values.append(value)
    con.register("piece", filled)
    con.execute(f"INSERT INTO {table.name} SELECT {', '.join(values)} FROM piece")
    con.unregister("piece")


def _name(column: Column) -> str:
    return f'"{column.name}"'


def listed() -> Dict[str, Table]:
    """Return all tables by name."""
    return {table.name: table for table in (*TABLES, ROWS)}


def run_query(con: Any, query: str) -> Tuple[List[str], List[Tuple[Any, ...]]]:
    """Return (names of the columns, lines) of the last statement of a query. Raises duckdb.Error, QueryRefused."""
    statements = con.extract_statements(query)
    for statement in statements:
        kind = statement.type.name
        if kind not in _ALLOWED:
            raise QueryRefused(f"statement {kind.replace('_', ' ')} refused: an archive can only be queried")
    queries = sum(statement.type.name == "SELECT" for statement in statements)
    if queries > 1:
        raise QueryRefused(f"{queries} queries, and only the result of one can be shown: give one query")
    names: List[str] = []
    lines: List[Tuple[Any, ...]] = []
    for statement in statements:
        result = con.execute(statement)
        names, lines = [column[0] for column in result.description or ()], result.fetchall()
    return names, lines
