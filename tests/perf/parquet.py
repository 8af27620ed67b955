"""Many archives as Parquet: how long the export takes, and what DuckDB and ClickHouse's embedded build read of it.

Usage: ./run bench parquet [ARCHIVES], 1000 unless it says so, and one with a failure; needs PyPI for chdb, in an
environment of its own
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, List

import duckdb

sys.path.append(str(Path(__file__).parents[1]))

from inputs.nights import Nights
from inputs.programs import answer, environment
from sql_archive import sql_run

from cbt_plugins.report.export.parquet import TABLES

#: of each table: lines, and runs that have any
COUNTS = "SELECT count(*), count(DISTINCT concat(archive, run)) FROM {}"
QUESTIONS = (
    *(COUNTS.format(f"{{{table}}}") for table in TABLES),
    "SELECT r.month, m.op, count(*), round(avg(m.value), 3) FROM {runs} AS r JOIN {measurements} AS m"
    " ON r.archive = m.archive AND r.run = m.run WHERE m.metric = 'obj_per_s' GROUP BY r.month, m.op ORDER BY 1, 2",
    "SELECT op, low, sum(count) AS n FROM {histograms} WHERE what = 'latency' AND in_window GROUP BY op, low"
    " ORDER BY 1, 2",
    "SELECT min(second) > '2023-01-01 00:00:00', sum(n), sum(bytes) FROM {seconds} WHERE in_window",
    "SELECT name, kind, outcome, milestone, seconds, coalesce(reason, '') FROM {episodes} ORDER BY ALL",
)


def asked(folder: Path, reader: str) -> List[str]:
    return [question.format(**{name: reader.format(folder / name) for name in TABLES}) for question in QUESTIONS]


def plain(rows: Any) -> List[List[str]]:
    """Return the cells as text: JSON has large numbers as text, and truth as 0 and 1."""
    return [[f"{float(cell):.6g}" if str(cell).replace(".", "").isdigit() else str(cell) for cell in map(_of, row)]
            for row in rows]


def _of(cell: Any) -> Any:
    return int(cell) if isinstance(cell, bool) or cell in ("true", "false") else cell


def main() -> int:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        nights = Nights(folder)
        nights.add(number)
        sql_run(folder / "failure")
        line = [sys.executable, "-m", "cbt_plugins.tools", "export", *nights.archives(), "failure"]
        begun = time.perf_counter()
        process = subprocess.Popen([*line, "--format", "parquet", "-o", "lake"], cwd=folder)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        took = time.perf_counter() - begun
        processor, size = used.ru_utime + used.ru_stime, sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        print(
            f"export: {took:.1f} s, processor {processor:.1f} s, {used.ru_maxrss / 1024:.0f} MB;"
            f" files {size / 1e6:.1f} MB, {sum(1 for _ in folder.rglob('*.parquet'))}"
        )
        con = duckdb.connect(":memory:")
        con.execute("SET TimeZone = 'UTC'")
        of_duckdb = []
        for query in asked(folder / "lake", "read_parquet('{}/*/*.parquet', hive_partitioning = true)"):
            begun = time.perf_counter()
            of_duckdb.append((con.execute(query).fetchall(), time.perf_counter() - begun))
        python = environment("chdb", "chdb")
        told = answer(
            python, Path(__file__).with_name("inputs") / "clickhouse.py",
            asked(folder / "lake", "file('{}/month=*/*.parquet')"),
        )
        print(f"DuckDB {duckdb.__version__}, chdb {told['version']}")
        for question, (rows, seconds), (other_rows, other_seconds) in zip(QUESTIONS, of_duckdb, told["answers"]):
            same = "equal" if plain(rows) == plain(other_rows) else f"DIFFERENT: {rows[:2]} {other_rows[:2]}"
            print(f"{seconds:5.2f} s {other_seconds:5.2f} s {same}: {len(rows)} lines: {question[:60]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
