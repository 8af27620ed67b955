"""cbt-tools sql: the questions of docs/SQL.md, what the tables hold, and that an archive is only read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, List

import archive_builder as made
import pytest
import sql_archive

from cbt_plugins import checksums
from cbt_plugins.checksums import end_run
from cbt_plugins.results.sql import aggregate_tables, summary_tables, table_type
from cbt_plugins.results.sql.database import RUN, listed
from cbt_plugins.results.summary_file import FILE, summarize, write_summary
from cbt_plugins.tools.__main__ import main

DOCS = Path(__file__).parent.parent.parent / "docs" / "SQL.md"
FOREIGN = Path(__file__).parent.parent / "data" / "imported"
QUESTIONS = re.findall(r"## (.*?)\n.*?```sql\n(.*?)```\n\n```text\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive")
    sql_archive.sql_run(path)
    return path


def ask(archive: Path, query: str, capsys: pytest.CaptureFixture[str]) -> List[Dict[str, Any]]:
    assert main(["sql", str(archive), query, "--format", "json"]) == 0
    answer: List[Dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize(("query", "answer"), [its[1:] for its in QUESTIONS], ids=[its[0] for its in QUESTIONS])
def test_the_questions_of_the_manual(
    archive: Path, query: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(archive), query]) == 0
    assert capsys.readouterr().out == answer


def test_the_manual_has_questions_and_the_list_names_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(QUESTIONS) == DOCS.read_text().count("```sql") >= 3
    assert main(["sql", "--list"]) == 0
    told = capsys.readouterr().out
    assert not [name for name in listed() if name not in told]


def test_every_column_can_be_named_as_it_is_listed(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = []
    for table in listed().values():
        names = ", ".join(column.name for column in (RUN, *table.columns))
        questions.append(f"(SELECT '{table.name}' FROM (SELECT {names} FROM {table.name}) LIMIT 1)")
    assert main(["sql", str(archive), " UNION ALL ".join(questions)]) == 0
    assert main(["sql", "--list"]) == 0
    assert "longest_gap_s" in capsys.readouterr().out


def test_heartbeats_come_in_pieces(archive: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    query = "SELECT * FROM heartbeats ORDER BY ALL"
    answer = ask(archive, query, capsys)
    monkeypatch.setattr(table_type, "PIECE", 4)
    assert len(answer) > 8 and ask(archive, query, capsys) == answer
    run = next(archive.glob("results/*/id-*"))
    sizes = [len(piece["time"]) for piece in listed()["heartbeats"].fill(table_type.TableRun(run, run.name, True))]
    assert max(sizes) == 4 and sum(sizes) == len(answer)


@pytest.mark.parametrize("limits", [{}, {"MANY": -1}, {"_FEW": 0, "_LONG": 0}], ids=["few", "processes", "many"])
def test_aggregates_and_rows_add_up_to_the_summary(
    archive: Path, limits: Dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(aggregate_tables, name, value)
    summary = summarize(next(archive.glob("results/*/id-*")))
    for table, count in (("seconds", "sum(n)"), ("counts", "sum(n)"), ("histograms", "sum(count)")):
        its = "AND what = 'latency'" if table == "histograms" else ""
        query = f"SELECT phase, op, {count}::BIGINT AS n FROM {table} WHERE in_window {its} GROUP BY ALL"
        found = {(line["phase"], line["op"]): line["n"] for line in ask(archive, query, capsys)}
        wanted = {(ph["name"], op): line["requests"] for ph in summary["phases"] for op, line in ph["ops"].items()}
        assert found == wanted, table
    (line,) = ask(archive, "SELECT count(*) AS n, sum(duration_ns)::BIGINT AS ns FROM rows", capsys)
    # 14 s of two GETs of 20 and of 40 ms, and a PUT of 50 and of 100 ms
    assert line == {"n": 1400 + 700 + 280 + 140, "ns": 6 * 14 * 10**9}


def test_buckets_hold_what_they_say(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT min(low) AS low, max(high) AS high, max(high / low) AS width FROM histograms WHERE op = 'PUT'"
    (line,) = ask(archive, query, capsys)
    assert line["low"] <= 50_000_000 and 100_000_000 < line["high"] < 100_200_000
    assert line["width"] <= 1 + 1 / 1024


def test_buckets_that_a_question_does_not_tell_apart_are_added_up(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT op, low, count FROM histograms WHERE what = 'latency' AND phase = 'aged' AND op = 'PUT'"
    query += " AND 1 * count > 0"  # no star
    few, many = ask(archive, query, capsys), ask(archive, query.replace("low,", "low, block, size_low, "), capsys)
    assert len(few) < len(many) / 4
    assert len(ask(archive, query + " ORDER BY ALL", capsys)) == len(few)
    assert sum(line["count"] for line in few) == sum(line["count"] for line in many) > 300


@pytest.mark.parametrize(
    "query",
    [
        "FROM {}",
        "SELECT ALL * FROM {}",
        "WITH x AS (FROM {}) FROM x",
        "TABLE {}",
        "SELECT COLUMNS('.*') FROM {}",
        "CREATE TABLE mine AS FROM {}; FROM mine",
        "SELECT unnest(x) FROM {} AS x",
    ],
)
def test_no_column_is_lost_where_a_query_names_none(
    archive: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in (listed()["ops"], listed()["histograms"]):
        (line, *_) = ask(archive, query.format(table.name), capsys)
        assert list(line) == [RUN.name, *(column.name for column in table.columns)]


def test_columns_of_one_name_are_refused_where_they_would_be_lost(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT a.phase, b.phase FROM phases AS a JOIN phases AS b USING (run) LIMIT 1"
    assert main(["sql", str(archive), query, "--format", "json"]) == 2
    assert capsys.readouterr().err == "Error: two columns have the name phase: rename one with AS\n"
    assert main(["sql", str(archive), query, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("phase,phase\n")


def test_json_is_json_whatever_a_question_gives(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT 'inf'::DOUBLE AS a, ['nan'::DOUBLE, 1] AS b, chr(155) || chr(127) || chr(233) AS c,"
    query += " MAP {DATE '2026-01-02': '-inf'::DOUBLE} AS d"
    wanted = [{"a": None, "b": [None, 1.0], "c": "\x9b\x7f\xe9", "d": {"2026-01-02": None}}]
    assert ask(archive, query, capsys) == wanted
    assert main(["sql", str(archive), query, "-o", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text(encoding="ascii")) == wanted


@pytest.mark.parametrize("name", ["a*b", "a?b", "br[1]", "a[x", "a{x}"])
def test_rows_of_an_archive_of_any_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.run(tmp_path / name, phases=["new"])
    made.phase(run, 1, "new", [made.job("j", "GET", [made.row("GET", 1.5, 0.25, size=1)])])
    for other in ("aXb", "br1"):  # what the name as a pattern would mean
        made.phase(made.run(tmp_path / other), 1, "new", [made.job("j", "GET", [made.row("PUT", 1.5, 0.25)] * 9)])
    query = "SELECT count(*) AS n, any_value(op) AS op FROM rows"
    assert ask(tmp_path / name, query, capsys) == [{"n": 1, "op": "GET"}]


def test_a_number_sign_ends_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.run(tmp_path, phases=["new"])
    texts = [f"unexpected reply: <html>Error #503.{number}</html>" for number in range(20)] + ['"# quoted" \'#']
    rows = [made.row("GET", 1.0, 0.25, error=text) for text in texts]
    rows += ["# warp get --full\n", "warp: <ERROR> no route #1\n", "\n"]
    rows += [made.row("GET", 2.0, 0.25, size=1), made.row("GET", 2.0, 0.25, size=1).replace("keep/", "#keep/#")]
    made.phase(run, 1, "new", [made.job("j", "GET", rows)])
    query = "SELECT count(*) AS n, count(error) AS failed, count(DISTINCT error) AS texts, min(file) AS file FROM rows"
    assert ask(tmp_path, query, capsys) == [{"n": 23, "failed": 21, "texts": 21, "file": "#keep/#x/1.rnd"}]


def test_times_with_a_zone_without_pytz(archive: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pytz", None)
    assert main(["sql", str(archive), "SELECT to_timestamp(0) AS t"]) == 2
    assert capsys.readouterr().err.endswith("need the Python package pytz: install it, or CAST(... AS TIMESTAMP)\n")
    assert ask(archive, "SELECT CAST(to_timestamp(0) AS TIMESTAMP) AS t", capsys)[0]["t"].startswith("1970-01-01")


def test_a_time_beyond_the_calendar_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sql_archive.sql_run(tmp_path)
    with (run / "events.jsonl").open("a") as out:
        out.write(json.dumps({"t": 1e17, "event": "phase-begin", "phase": "x"}) + "\n")
    assert main(["sql", str(tmp_path), "SELECT count(*) AS events FROM events"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {run}: damaged: table events: Conversion Error: Type DOUBLE with value 1e+23")


def test_halves_of_a_pair_are_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON of a node, and in the name of a folder that was made where names are latin-1."""
    archive = tmp_path / os.fsdecode(b"arch-\xff")
    run = made.small(archive)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["ceph"]["overall"] = {"ceph version 18.2 \ud800": 4}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (line,) = ask(archive, "SELECT value FROM config WHERE key = 'version.ceph'", capsys)
    assert line["value"] == "ceph version 18.2 \\ud800"
    (line,) = ask(archive, "SELECT path FROM runs", capsys)
    assert "arch-\\udcff" in line["path"]
    assert ask(archive, "SELECT count(*) AS n FROM ops", capsys)[0]["n"] > 0


def test_times_of_rows_are_those_of_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.run(tmp_path, phases=["new"])
    rows = [made.row("GET", 1.5, 0.25, size=1, first=0.125)]
    made.phase(run, 1, "new", [made.job("j", "GET", rows, clock_offset=0.5)])
    (line,) = ask(tmp_path, "SELECT epoch(started) AS a, epoch(first_byte) AS b, epoch(ended) AS c FROM rows", capsys)
    assert [round(line[name] - made.T0, 6) for name in "abc"] == [0.75, 0.875, 1.0]


def test_degraded_and_misplaced_are_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.small(tmp_path)
    query = "SELECT DISTINCT phase, degraded, misplaced FROM status WHERE phase = 'new' ORDER BY degraded"
    (own,) = run.glob("phases/*-new/status.jsonl")
    own.write_text(json.dumps({"t": made.T0 + 2, "pgs": {"active+clean": 8}, "degraded": 7, "misplaced": 0}) + "\n")
    assert ask(tmp_path, query, capsys) == [{"phase": "new", "degraded": None, "misplaced": None}], "7 of how many?"
    own.unlink()
    clean = {"pgs": {"active+clean": 8}, "num_pgs": 8, "degraded": [0, 0], "misplaced": [0, 0]}
    lines = [{"t": made.T0 + 2, **clean}, {"t": made.T0 + 4, "degraded": [7, 28], "misplaced": [14, 28]}]
    watched = run / "monitors" / "recovery.node0" / "recovery.jsonl"
    watched.parent.mkdir(parents=True)
    watched.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = [(line["degraded"], line["misplaced"]) for line in ask(tmp_path, query, capsys)]
    assert told == [(0.0, 0.0), (0.25, 0.5)]


def test_an_archive_without_rows_has_an_empty_table_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.run(tmp_path)
    assert ask(tmp_path, "SELECT * FROM rows", capsys) == []


def test_results_of_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT r.kind, m.op, m.metric, m.value, m.unit FROM runs AS r JOIN measurements AS m USING (run, name)"
    query += " WHERE metric = 'obj_per_s' AND op = 'read'"
    (line,) = ask(FOREIGN / "fio" / "archive", query, capsys)
    assert line["kind"] == "fio" and line["unit"] == "obj/s" and round(line["value"]) == 150
    answer = ask(FOREIGN / "hsbench" / "twice.csv", "SELECT name FROM runs ORDER BY name", capsys)
    assert [its["name"] for its in answer] == ["twice.csv loop 1", "twice.csv loop 2"]
    assert ask(FOREIGN / "hsbench" / "twice.csv", "SELECT * FROM seconds", capsys) == []


def _digest(path: Path) -> Dict[str, str]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{archive}/results/x.csv'",
        "COPY (SELECT * FROM rows LIMIT 2) TO '{rows}' (FORMAT csv, USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY (SELECT 1 FROM rows LIMIT 2) TO '{rows}' (FORMAT csv, USE_TMP_FILE false)",
        "PREPARE x AS COPY (SELECT 1 FROM rows LIMIT 2) TO '{rows}' (FORMAT csv, USE_TMP_FILE false); EXECUTE x",
        "ATTACH '{archive}/results/x.duckdb' AS x",
        "SELECT * FROM read_csv('{archive}/results/cbt_config.yaml')",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ],
)
def test_nothing_but_the_rows_can_be_read_and_nothing_written(
    tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made.small(tmp_path)
    (tmp_path / "results" / "cbt_config.yaml").write_text("cluster: {}\n")
    before = _digest(tmp_path)
    text = query.format(archive=tmp_path, rows=next(tmp_path.rglob("*.csv.gz")))
    assert main(["sql", str(tmp_path), text]) == 2
    assert capsys.readouterr().err.startswith("Error: ")
    assert _digest(tmp_path) == before


def test_a_question_leaves_no_trace(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _digest(archive)
    for name in listed():
        assert main(["sql", str(archive), f"CREATE TABLE mine AS SELECT * FROM {name}"]) == 0
    assert _digest(archive) == before


def test_a_table_shows_numbers_in_full(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT epoch(TIMESTAMP '2023-11-14 22:13:20') AS a, -5368709120::DOUBLE AS b, 1700000000.125::DOUBLE AS c,"
    query += " 0.1::DOUBLE + 0.2::DOUBLE AS d, 1e300::DOUBLE AS e, 'inf'::DOUBLE AS f"
    assert main(["sql", str(archive), query]) == 0
    cells = capsys.readouterr().out.splitlines()[-1].split()
    assert cells == ["1700000000", "-5368709120", "1700000000.12", "0.3", "1e+300", "inf"]


def test_forms_of_an_answer(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT phase, op, NULL AS nothing FROM ops WHERE op = 'GET' ORDER BY phase LIMIT 1;"
    assert main(["sql", str(archive), query, "--format", "csv"]) == 0
    assert capsys.readouterr().out == "phase,op,nothing\naged,GET,\n"
    assert ask(archive, query, capsys) == [{"phase": "aged", "op": "GET", "nothing": None}]
    assert main(["sql", str(archive), query]) == 0
    assert capsys.readouterr().out == "phase  op   nothing\n-----  ---  -------\naged   GET\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{archive}", "SELECT nonsense FROM ops"], "nonsense"),
        (["{archive}", "SELEC 1"], "syntax error"),
        (["{archive}/none", "SELECT 1"], "no such file or directory"),
        (["{archive}"], "--list"),
        *((["{archive}", query], "--list") for query in ("", ";", "-- none", "show tables", "show all tables")),
        (["{archive}", "SELECT * FROM information_schema.tables"], "--list"),
        (["{archive}", "SELECT '\udce9'"], "it is not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    archive: Path, arguments: List[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", *(its.format(archive=archive) for its in arguments)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_query_from_an_input_of_any_encoding(
    encoding: str, archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_file = "latin-1" if encoding == "latin-1" else "utf-8"
    given = io.TextIOWrapper(io.BytesIO("SELECT 'é' AS name".encode(of_file)), encoding)
    monkeypatch.setattr(sys, "stdin", given)
    assert main(["sql", str(archive), "-", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "name\né\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(["sql", str(archive), "-"]) == 2


def test_what_is_no_result_has_no_empty_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty").mkdir()
    said = {"fifo": "no directory", "broken.json": "not the result of a known program", "empty": "no run in it"}
    for name, text in said.items():
        for table in ("phases", "seconds", "nodes", "runs"):
            assert main(["sql", str(tmp_path / name), f"SELECT count(*) FROM {table}"]) == 4
            assert text in capsys.readouterr().err


def _two_runs(archive: Path) -> List[Path]:
    """An archive of two runs that ended, and have no aggregates."""
    runs = sorted(made.archive(archive, made.Load(seconds=12), made.Cluster(), runs=2).glob("results/*/id-*"))
    for run in runs:
        facts = json.loads((run / "complete").read_text())
        (run / "complete").unlink()
        end_run(run, facts)
    return runs


#: a question to a table of the summary, of the aggregates and of the rows
RUNS_OF_GET = [f"SELECT DISTINCT run FROM {table} WHERE op = 'GET' ORDER BY run" for table in ("ops", "counts", "rows")]


@pytest.mark.parametrize("query", RUNS_OF_GET)
def test_a_changed_file_of_rows_is_named_and_not_read(
    tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = _two_runs(tmp_path)
    (rows,) = bad.glob("phases/*/rows/*get*")
    rows.write_bytes(rows.read_bytes()[:-20])
    assert main(["sql", str(tmp_path), query, "--format", "csv"]) == 4
    said = capsys.readouterr()
    assert said.out == f"run\n00000001/{good.name}\n"
    (line,) = said.err.splitlines()
    assert str(bad) in line and "changed since the run ended" in line and rows.name in line


@pytest.mark.parametrize("query", [*RUNS_OF_GET, "SELECT count(*) FROM events"])
def test_an_incomplete_run_is_named(tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = _two_runs(tmp_path)
    assert main(["sql", str(tmp_path), query]) == 0
    (run / "complete").unlink()
    capsys.readouterr()
    assert main(["sql", str(tmp_path), query]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"Error: {run}: the run was interrupted, or is still running"


def test_rows_are_compared_with_their_sums_only_where_a_table_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive may have 100 GB of rows."""
    (run, _) = _two_runs(tmp_path)
    (rows,) = run.glob("phases/*/rows/*get*")
    write_summary(summarize(run), run / FILE)
    rows.write_bytes(rows.read_bytes()[:-20])
    real, compared = checksums.open_regular, []

    def open_regular(path: Path, *rest: Any, **more: Any) -> Any:
        compared.append(path)
        return real(path, *rest, **more)

    monkeypatch.setattr(checksums, "open_regular", open_regular)
    for table, read in (("events", False), ("capacity", False), ("ops", False), ("seconds", True), ("rows", True)):
        compared.clear()
        assert main(["sql", str(run), f"SELECT count(*) FROM {table}"]) == (4 if read else 0), table
        assert (rows in compared) == read, table
    (run / FILE).unlink()
    assert main(["sql", str(run), "SELECT count(*) FROM ops"]) == 4


def test_a_run_that_is_not_to_be_trusted_is_marked_as_an_invalid_one_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made.small(tmp_path)
    (phase,) = run.glob("phases/*-new/phase.json")
    phase.write_text(json.dumps({**json.loads(phase.read_text()), "status": "degraded"}))
    facts = json.loads((run / "complete").read_text())
    (run / "complete").write_text(json.dumps({**facts, "degraded": ["new"]}))
    assert ask(tmp_path, "SELECT complete, usable FROM runs", capsys) == [{"complete": True, "usable": False}]


def test_of_two_queries_none_is_left_out(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(archive), "SELECT 1; SELECT 2"]) == 2
    assert capsys.readouterr().err.startswith("Error: 2 queries")
    assert main(["sql", str(archive), "CREATE TABLE mine AS SELECT 7 AS n; SELECT n FROM mine"]) == 0


def test_without_duckdb_it_says_what_to_install(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = __import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "duckdb":
            raise ImportError("No module named 'duckdb'", name="duckdb")
        return real(name, *rest, **more)

    monkeypatch.setattr("builtins.__import__", missing)
    assert main(["sql", str(archive), "select 1"]) == 2
    assert "pip install 'cbt-plugins[sql]'" in capsys.readouterr().err


def test_an_unknown_table_is_answered_with_ours(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(archive), "SELECT * FROM op"]) == 2
    assert capsys.readouterr().err == "Error: unknown table op: did you mean ops?\n"
    assert main(["sql", str(archive)]) == 2
    assert capsys.readouterr().err == "Error: give an archive and a query; --list shows the tables\n"


class Summary(Dict[str, Any]):
    """A summary to which a weak reference can be made."""


class Reads:
    """Counts how often each run is read, and how many earlier results are still in memory at a read."""

    def __init__(self, read: Callable[[Path], Any]) -> None:
        self._read = read
        self._results: List[weakref.ref[Any]] = []
        self.runs: List[str] = []
        self.most_kept = 0

    def __call__(self, path: Path) -> Any:
        self.most_kept = max(self.most_kept, sum(result() is not None for result in self._results))
        self.runs.append(path.parent.name)
        results = self._read(path)
        self._results.append(weakref.ref(results[0] if isinstance(results, list) else results))
        return results


def test_each_run_is_read_once_for_all_tables_and_no_summary_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A summary takes some five times as much memory as its file has bytes: 53 MB for 72 hours."""
    made.archive(tmp_path, made.Load(seconds=3), runs=4)
    read_summary = summary_tables.summary_of
    summaries, records = Reads(lambda path: Summary(read_summary(path))), Reads(summary_tables.records_of)
    monkeypatch.setattr(summary_tables, "summary_of", summaries)
    monkeypatch.setattr(summary_tables, "records_of", records)
    counts = ", ".join(f"(SELECT count(DISTINCT run) FROM {table})" for table in ("runs", "phases", "ops", "config"))
    assert ask(tmp_path, f"SELECT [{counts}] AS counts", capsys) == [{"counts": [4] * 4}]
    for reads, most_kept in ((summaries, 0), (records, 1)):
        assert reads.runs == sorted(set(reads.runs)) and len(reads.runs) == 4
        assert reads.most_kept == most_kept
