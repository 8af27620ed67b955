"""Requests that the end of the run cut off are failed requests in no count."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import archive_builder as made
import pytest

from cbt_plugins.results.sql.aggregate_tables import TABLES
from cbt_plugins.results.sql.table_type import Names, TableRun
from cbt_plugins.results.summary_file import summarize

URLS = ("http://rgw1:7480", "http://rgw2:7480")
CUT = "cut: the run ended"


def fill(path: Path, block: int) -> Path:
    """A fill that ends at its goal after 24.5 s: 16 requests are cut off, and 3 failed by themselves."""
    rows = [made.row("PUT", i / 2, 0.5, size=4096, endpoint=URLS[i % 2]) for i in range(1, 49)]
    rows += [made.row("PUT", at, 0.1, endpoint=URLS[0], error="http: 500") for at in (3.1, 22.5, 24.1)]
    rows += [made.row("PUT", 24.5, 0.2, thread=i, endpoint=URLS[i % 2], error=CUT) for i in range(16)]
    run = made.run(path, phases=["fill"])
    job = made.job("j", "PUT", rows, workers=16, urls=list(URLS))
    asked: Dict[str, Any] = {"duration": None, "mix": {}}
    about = {"kind": "fill", "role": "fill", "block": block, "asked": asked, "as_aggregates": True}
    made.phase(run, 1, "fill", [job], window=(0.0, 24.5), **about)
    return run


def failed(run: Path, name: str, column: str) -> List[List[Any]]:
    """(column, failed) of the rows of a table of SQL that have failed requests."""
    (table,) = (table for table in TABLES if table.name == name)
    rows: Dict[Any, int] = {}
    for columns in table.fill(TableRun(run, run.name, True)):
        keys = columns[column]
        texts = [keys.texts[i] for i in keys.numbers] if isinstance(keys, Names) else keys.tolist()
        for key, n in zip(texts, columns["failed"].tolist()):
            rows[key] = rows.get(key, 0) + n
    return [[key, n] for key, n in sorted(rows.items()) if n]


@pytest.mark.parametrize("block", [1, 10])
def test_a_fill_that_is_stopped_at_its_goal_has_only_its_own_errors(tmp_path: Path, block: int) -> None:
    run = fill(tmp_path, block)
    (phase,) = summarize(run)["phases"]
    put = phase["ops"]["PUT"]
    assert (put["errors"], put["cut"], phase["jobs"][0]["errors"]) == (3, 16, 3)
    errors = {i: n for i, n in enumerate(phase["series"]["ops"]["PUT"]["errors"]) if n}
    # of a block of 10 s nobody knows which of its failures were cut off: the last ones
    assert errors == {3: 1, 22: 1, 24: 1}
    assert failed(run, "seconds", "second") == [[made.T0 + second, 1] for second in (3, 22, 24)]
    assert sum(n for _, n in failed(run, "counts", "block")) == 3
    assert failed(run, "counts", "endpoint") == [[URLS[0], 3]]
