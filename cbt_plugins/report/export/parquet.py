"""Runs as Parquet files, which DuckDB, ClickHouse and others read as they are.

    OUT/TABLE/month=2026-03/RUN.parquet     TABLE: runs, measurements, seconds, histograms, episodes

One file for each table and run, named after the real path of the run: a run that is exported again replaces its own.
The columns are those of `cbt-tools sql` (results/sql), and before them `archive`, the real path of the folder: it
and `run` tell runs apart in all tables.
Months are those of the begin of a run (UTC), times have the zone UTC.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, List, Optional

import duckdb

from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.sql.database import RUN, create_tables, listed, quoted
from cbt_plugins.results.sql.summary_tables import records
from cbt_plugins.results.sql.table_type import TIME, TableRun

#: the tables that are exported
TABLES = ("runs", "measurements", "seconds", "histograms", "episodes")
#: DuckDB makes a column REQUIRED whose statistics have no null. ClickHouse takes the schema of the first file for all
#: files, and reads the nulls of a column that is REQUIRED there as 0
_ALL_NULLABLE = "SET disabled_optimizers = 'statistics_propagation'"
#: the folder of runs whose begin is not known, as Hive names it
_NO_MONTH = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ParquetFolder:
    """The folder of -o."""

    path: Path

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def add(self, archive: Path, run: TableRun) -> None:
        """Write the files of a run. Raises Unreadable; then nothing of the run was written. Raises OSError."""
        con = duckdb.connect(":memory:")
        try:
            con.execute("SET TimeZone = 'UTC'")
            con.execute(_ALL_NULLABLE)
            left_out: List[str] = []
            tables = [listed()[name] for name in TABLES]
            create_tables(con, [(table, (RUN, *table.columns)) for table in tables], [run], left_out)
            if left_out:
                raise Unreadable(left_out[0])
            month = _month(next((record.started for record in records(run.path)), None))
            for table in tables:
                columns = ", ".join(
                    f'CAST("{column.name}" AS TIMESTAMPTZ) AS "{column.name}"'
                    if column.type == TIME
                    else f'"{column.name}"'
                    for column in (RUN, *table.columns)
                )
                query = f'SELECT {quoted(str(archive.resolve()))} AS archive, {columns} FROM "{table.name}"'
                self._write(con, query, Path(table.name, f"month={month}", _file_name(run)))
        finally:
            con.close()

    def remove(self, run: TableRun) -> int:
        """Remove the files of a run; return how many there were. Raises OSError."""
        files = [file for table in TABLES for file in (self.path / table).glob(f"*/{_file_name(run)}")]
        for file in files:
            file.unlink()
        return len(files)

    def _write(self, con: Any, query: str, name: Path) -> None:
        """Write a file completely or not at all, and remove the one of the same run in another month."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            con.execute(f"COPY ({query}) TO {quoted(str(draft))} (FORMAT parquet, COMPRESSION zstd)")
            os.replace(draft, file)
        except duckdb.IOException as e:
            raise OSError(0, str(e), str(file)) from e
        finally:
            draft.unlink(missing_ok=True)
        for former in (self.path / name.parts[0]).glob(f"*/{name.name}"):
            if former != file:
                former.unlink()


def _file_name(run: TableRun) -> str:
    path = str(run.path.resolve())
    return f"{hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:20]}.parquet"


def _month(started: Optional[float]) -> str:
    if started is None:
        return _NO_MONTH
    try:
        return datetime.fromtimestamp(started, timezone.utc).strftime("%Y-%m")
    except (ValueError, OverflowError, OSError):
        raise Unreadable(f"no time of this calendar: {started:g}") from None
