"""The requests themselves, where an archive has kept them: DuckDB reads the files when it is asked."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np

from cbt_plugins.results.sql.counted import phases
from cbt_plugins.results.sql.table import TableRun, columns_of

COLUMNS = columns_of("""
phase VARCHAR name
driver VARCHAR its name
job VARCHAR process of the load generator
node VARCHAR where it ran
thread BIGINT of the generator
op VARCHAR GET, PUT, STAT, DELETE, LIST
n_objects BIGINT that it moved
bytes BIGINT that it moved
endpoint VARCHAR gateway
file VARCHAR object
error VARCHAR message; null when it ended well
started TIMESTAMP head's clock (UTC)
first_byte TIMESTAMP of those that have one
ended TIMESTAMP head's clock (UTC)
duration_ns BIGINT exact; times have microseconds
""")


def view(con: Any, runs: Sequence[TableRun]) -> str:
    """The statement that makes the view."""
    found: List[Tuple[str, ...]] = []
    offsets: List[float] = []
    for run in runs:
        for phase in phases(run.path) if run.ours else ():
            for job in phase.jobs:
                if job.rows is not None and job.rows.exists():
                    found.append((str(job.rows), run.name, phase.name, job.driver, job.id, job.node))
                    offsets.append(job.clock_offset)
    if not found:
        empty = ", ".join(f'CAST(NULL AS {column.type}) AS "{column.name}"' for column in COLUMNS)
        return f"CREATE VIEW rows AS SELECT CAST(NULL AS VARCHAR) AS run, {empty} WHERE false"
    names = ("filename", "run", "phase", "driver", "job", "node")
    columns = {name: np.array([line[i] for line in found], object) for i, name in enumerate(names)}
    con.register("piece", {**columns, "clock_offset": np.array(offsets)})
    con.execute("CREATE TABLE kept_rows AS SELECT * FROM piece")
    con.unregister("piece")
    files = ", ".join("'" + line[0].replace("'", "''") + "'" for line in found)
    times = ", ".join((_time("start", "started"), _time("first_byte", "first_byte"), _time("end", "ended")))
    return f"""CREATE VIEW rows AS SELECT run, phase, driver, job, node, CAST(thread AS BIGINT) AS thread, op,
        CAST(n_objects AS BIGINT) AS n_objects, CAST(bytes AS BIGINT) AS bytes, endpoint, file, error,
        {times}, CAST(duration_ns AS BIGINT) AS duration_ns
        FROM read_csv([{files}], delim='\t', quote='"', escape='"', header=true, all_varchar=true, filename=true,
        union_by_name=true, ignore_errors=true, null_padding=false, comment='#', strict_mode=false)
        JOIN kept_rows USING (filename)"""


def _time(name: str, shown: str) -> str:
    """RFC 3339 -> UTC by the head's clock."""
    utc = f"timezone('UTC', CAST(\"{name}\" AS TIMESTAMPTZ))"
    return f'{utc} - to_microseconds(CAST(round(clock_offset * 1e6) AS BIGINT)) AS "{shown}"'
