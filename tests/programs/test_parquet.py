"""Parquet files of runs: each table of each run once, as a database reads them by a pattern of names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, List, Tuple

import duckdb
import pytest
import sql_archive

from cbt_plugins.report.export import parquet
from cbt_plugins.report.export.parquet import TABLES
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.sql.database import RUN, connect, listed, runs_of
from cbt_plugins.tools.__main__ import main

NAME = "it's [1] <b>"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("archives") / NAME
    sql_archive.sql_run(place)
    return place


def lines(folder: Path, table: str, columns: str = "*") -> List[Tuple[Any, ...]]:
    con = duckdb.connect(":memory:")
    con.execute("SET TimeZone = 'UTC'")
    query = f"SELECT {columns} FROM read_parquet(?, hive_partitioning = true) ORDER BY ALL"
    return list(con.execute(query, [f"{folder}/{table}/*/*.parquet"]).fetchall())


def test_the_files_say_what_the_tables_of_sql_say(archive: Path, tmp_path: Path) -> None:
    assert main(["export", str(archive), "--format", "parquet", "-o", str(tmp_path / "lake")]) == 0
    for table in TABLES:
        names = [f'"{column.name}"' for column in (RUN, *listed()[table].columns)]
        times = {column.name for column in listed()[table].columns if column.type == "TIMESTAMP"}
        columns = ", ".join(f"{n}::TIMESTAMP" if n.strip('"') in times else n for n in names)
        con = connect(runs_of(archive), f"SELECT {', '.join(names)} FROM {table}")
        expected = con.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY ALL").fetchall()
        assert expected and lines(tmp_path / "lake", table, columns) == expected
        assert lines(tmp_path / "lake", table, "DISTINCT archive, month") == [(str(archive), "2023-11")]
    ((kind,),) = duckdb.sql(
        f"SELECT column_type FROM (DESCRIBE FROM '{tmp_path}/lake/runs/*/*.parquet') WHERE column_name = 'started'"
    ).fetchall()
    assert kind == "TIMESTAMP WITH TIME ZONE"


def test_every_column_may_be_null(archive: Path, tmp_path: Path) -> None:
    """ClickHouse takes the schema of the first file, and reads a null as 0 where that file says that there is none."""
    assert main(["export", str(archive), "--format", "parquet", "-o", str(tmp_path / "lake")]) == 0
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    assert len(files) == len(TABLES)
    for file in files:
        query = "SELECT name FROM parquet_schema(?) WHERE num_children IS NULL AND repetition_type <> 'OPTIONAL'"
        assert duckdb.execute(query, [str(file)]).fetchall() == [], file


def test_a_run_that_is_exported_again_is_there_once(archive: Path, tmp_path: Path) -> None:
    words = ["export", str(archive), "--format", "parquet", "-o", str(tmp_path / "lake")]
    assert main(words) == 0
    first = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")}
    moved = tmp_path / "lake" / "runs" / "month=2001-01"
    moved.mkdir()
    (file,) = (tmp_path / "lake" / "runs" / "month=2023-11").iterdir()
    file.rename(moved / file.name)
    assert main(words) == 0
    assert {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")} == first
    assert len(first) == len(TABLES)


def test_a_run_under_two_paths_is_there_once(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(archive)
    for path in (archive, tmp_path / "link", next(archive.glob("results/*/*"))):
        assert main(["export", str(path), "--format", "parquet", "-o", str(tmp_path / "lake")]) == 0
    for table in TABLES:
        assert len(list((tmp_path / "lake" / table).glob("*/*"))) == 1, table


def test_runs_of_folders_with_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for night in ("n1", "n2"):
        sql_archive.sql_run(tmp_path / night / "archive")
        monkeypatch.chdir(tmp_path / night)
        assert main(["export", "archive", "--format", "parquet", "-o", "../lake"]) == 0
    archives = [(str(tmp_path / night / "archive"),) for night in ("n1", "n2")]
    for table in TABLES:
        assert lines(tmp_path / "lake", table, "DISTINCT archive") == archives, table


def test_files_of_a_run_that_is_left_out_now_are_removed(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sql_archive.sql_run(tmp_path / "again")
    words = ["export", str(archive), str(tmp_path / "again"), "--format", "parquet", "-o", str(tmp_path / "lake")]
    assert main(words) == 0 and len(lines(tmp_path / "lake", "runs", "archive")) == 2
    (run / "complete").unlink()
    assert main(words) == 4
    assert f"{len(TABLES)} files of an earlier export removed" in capsys.readouterr().err
    for table in TABLES:
        assert lines(tmp_path / "lake", table, "DISTINCT archive") == [(str(archive),)], table


def test_an_export_without_a_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "archive" / "results" / "00000000" / "id-11111111"
    other.mkdir(parents=True)
    (other / "output.0.json").write_text("{}")
    for name in ("csv", "parquet"):
        words = ["export", str(tmp_path / "archive"), "--format", name, "-o", str(tmp_path / f"out.{name}")]
        assert main(words) == 4, name
        assert "no run of cbt-plugins" in capsys.readouterr().err
        assert not (tmp_path / f"out.{name}").exists()


def test_incomplete_and_unreadable_runs_are_named_and_left_out(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sql_archive.sql_run(tmp_path / "stopped")
    (run / "complete").unlink()
    damaged = sql_archive.sql_run(tmp_path / "damaged")
    for phase in damaged.glob("phases/*/phase.json"):
        phase.write_text(json.dumps({"version": 1}))
    (damaged / "manifest.json").write_text('{"version": 1}')
    archives = [str(tmp_path / "stopped"), str(tmp_path / "damaged"), str(archive)]
    assert main(["export", *archives, "--format", "parquet", "-o", str(tmp_path / "lake")]) == 4
    told = capsys.readouterr()
    assert "complete runs: 1 of 3" in told.out
    assert "stopped/results" in told.err and "interrupted" in told.err and "damaged/results" in told.err
    assert lines(tmp_path / "lake", "runs", "archive") == [(str(archive),)]


def test_a_time_beyond_the_calendar_is_named(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "records", lambda run: [dataclasses.replace(records_of(run)[0], started=1e15)])
    assert main(["export", str(archive), "--format", "parquet", "-o", str(tmp_path / "lake")]) == 4
    assert "no time of this calendar: 1e+15" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_folder_is_needed(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(archive), "--format", "parquet"]) == 2
    assert "--format parquet makes a folder: give -o DIR" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert main(["export", str(archive), "--format", "parquet", "-o", str(tmp_path / "file")]) == 2
    assert (tmp_path / "file").read_text() == "mine"
