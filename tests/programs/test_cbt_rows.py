"""cbt-rows against independent recounts: DuckDB's of totals and quantiles, and plain arithmetic."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import aggregates_writer
import archive_builder as made
import pytest
from request_rows import rows_of
from waiting import wait_for

from cbt_plugins.programs import cache_dir
from cbt_plugins.tools import build

np = pytest.importorskip("numpy")
duckdb = pytest.importorskip("duckdb")
zstandard = pytest.importorskip("zstandard")

DATA = Path(__file__).parents[1] / "data" / "rows"
RECORDED = sorted(DATA.glob("v*"))
NS = made.NS
KEYS = ("block", "second", "source", "op", "endpoint", "size", "error", "thread", "bucket")
Sums = Dict[str, Dict[Tuple[Any, ...], Dict[str, int]]]


@pytest.fixture(scope="module")
def program() -> Path:
    import argparse

    arguments = argparse.Namespace(names=["cbt-rows"], into=None, force=False)
    if build.run(arguments):
        pytest.skip("cbt-rows cannot be built here (see above): is there no Go, and no module proxy?")
    return cache_dir() / "bin" / "cbt-rows"


@pytest.fixture
def reduced(program: Path, tmp_path: Path) -> Callable[..., Path]:
    numbers = iter(range(1000))

    def reduce(*arguments: object, status: int = 0) -> Path:
        out = tmp_path / f"{next(numbers)}.aggregates"
        done = subprocess.run([program, "reduce", "-o", out, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        assert done.returncode == status, done.stderr
        return out

    return reduce


def summed(frames: Iterator[Tuple[Dict[str, Any], Dict[str, Dict[str, Any]]]]) -> Sums:
    """All tables of all frames, added up by their keys, with names in the place of indexes."""
    sums: Sums = defaultdict(dict)
    for header, tables in frames:
        for table, columns in tables.items():
            for i in range(len(next(iter(columns.values())))):
                key = tuple(_key(header, tables, name, int(columns[name][i])) for name in KEYS if name in columns)
                if "group" in columns:
                    counts, at = tables["counts"], int(columns["group"][i])
                    key += tuple(_key(header, tables, name, int(counts[name][at])) for name in KEYS if name in counts)
                row = {name: int(columns[name][i]) for name in columns if name not in KEYS and name != "group"}
                _add(sums[table].setdefault(key, {}), row)
    return {table: rows for table, rows in sums.items() if rows}


def _key(header: Dict[str, Any], tables: Dict[str, Any], name: str, value: int) -> Any:
    texts = {"op": "ops", "endpoint": "endpoints", "error": "errors"}
    return header[texts[name]][value] if name in texts else value


def _add(total: Dict[str, int], row: Dict[str, int]) -> None:
    counts = {"min": "n", "first": "n", "failed_min": "failed", "ttfb_min": "ttfb_n"}
    before = dict(total)
    for name, value in row.items():
        if name in counts:
            if row[counts[name]]:
                total[name] = min(value, before[name]) if before.get(counts[name]) else value
            else:
                total.setdefault(name, 0)
        elif name.endswith("max") or name.startswith("last"):
            total[name] = max(total.get(name, 0), value)
        else:
            total[name] = total.get(name, 0) + value


def by_hand(
    path: Path, scratch: Path, offset: float = 0.0, block: int = 1
) -> Sums:
    """The same by plain arithmetic, one row after the other."""
    requests = [aggregates_writer.request_of(row, round(offset * NS)) for row in rows_of(path)]
    file = aggregates_writer.write(scratch / "by-hand.aggregates", [requests], block)
    return summed(aggregates_writer.frames(file))


def totals_of(frames: List[Any]) -> Dict[str, Any]:
    header = frames[-1][0]
    assert header["kind"] == "end"
    assert len(header["totals"]) == 1
    return dict(header["totals"][0])


def synthetic(seed: int, rows: int = 4000) -> List[str]:
    """Rows with errors in and out of quotes, of several sizes and hosts, out of order, some of them long."""
    chance = random.Random(seed)
    refused = 'Put "http://rgw1/b/{}": dial tcp: connection refused'
    errors = ["503 SlowDown", refused, 'a "quoted" tab\there', "two\nlines", 'lone " quote']
    made_rows = []
    for i in range(rows):
        op = chance.choice(["GET"] * 4 + ["PUT"] * 3 + ["STAT", "DELETE", "LIST"])
        took = chance.lognormvariate(-4, 1.2) if chance.random() < 0.99 else chance.uniform(1, 9)
        error = chance.choice(errors).format(i) if chance.random() < 0.05 else ""
        first = took * chance.random() if op in ("GET", "LIST") and not (error and i % 2) else None
        size = chance.choice([0, 1, 4095, 4096, 1 << 20]) if op in ("GET", "PUT") else 0
        line = made.row(op, i / 150 + chance.uniform(0, 3), took, size=size, thread=chance.randrange(40), first=first,
                        error=error, endpoint=f"http://rgw{chance.randrange(3)}:7480", idx=i,
                        objects=chance.choice([1, 1, 1, 0, 1000]) if op in ("DELETE", "LIST") else 1)  # fmt: skip
        made_rows.append(line)
    return made_rows


def recount(rows: List[str]) -> List[Dict[str, str]]:
    return list(csv.DictReader(iter([made.HEADER, *"".join(rows).splitlines(True)]), delimiter="\t"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_totals_and_quantiles_as_duckdb_counts_them(
    seed: int, reduced: Callable[..., Path], tmp_path: Path
) -> None:
    rows = synthetic(seed)
    path, clean = tmp_path / "rows.csv", tmp_path / "clean.csv"
    path.write_text(made.HEADER + "".join(rows) + made.row("PUT", 3, 0.5)[:-40])
    clean.write_text(made.HEADER + "".join(rows))
    aggregates = reduced(path)
    frames = list(aggregates_writer.frames(aggregates))
    assert {k: totals_of(frames)[k] for k in ("rows", "bad", "torn")} == {
        "rows": len(rows), "bad": 0, "torn": "the last line has no end"}  # fmt: skip
    mine: Dict[str, Dict[str, int]] = defaultdict(dict)
    for key, row in summed(iter(frames))["counts"].items():
        _add(mine[key[2]], row)
    table = f"""read_csv('{clean}', delim='\t', quote='"', escape='"', all_varchar=true, header=true)"""
    numbers = f"""SELECT op, coalesce(error, '') = '' AS ok,
        CAST(duration_ns AS BIGINT) AS d, CAST(bytes AS BIGINT) AS bytes,
        CASE WHEN op = 'LIST' THEN 1 ELSE CAST(n_objects AS BIGINT) END AS objects,
        epoch_ns(CAST(first_byte AS TIMESTAMP_NS)) - epoch_ns(CAST(start AS TIMESTAMP_NS)) AS ttfb FROM {table}"""
    found = duckdb.sql(
        f"""SELECT op, count() FILTER (ok), count() FILTER (NOT ok), sum(bytes) FILTER (ok), sum(objects) FILTER (ok),
        sum(d) FILTER (ok), min(d) FILTER (ok), max(d) FILTER (ok), sum(d) FILTER (NOT ok), max(d) FILTER (NOT ok),
        count(ttfb) FILTER (ok), coalesce(sum(ttfb) FILTER (ok), 0), coalesce(max(ttfb) FILTER (ok), 0),
        {", ".join(f"quantile_disc(d, {q}) FILTER (ok)" for q in (0.5, 0.9, 0.99, 0.999))}
        FROM ({numbers}) GROUP BY op"""
    ).fetchall()
    assert sorted(mine) == sorted(row[0] for row in found)
    names = ("n", "failed", "bytes", "objects", "total", "min", "max", "failed_total", "failed_max", "ttfb_n")
    for op, *row in found:
        assert tuple(mine[op][name] for name in (*names, "ttfb_total", "ttfb_max")) == tuple(map(int, row[:12])), op
        for q, exact in zip((0.5, 0.9, 0.99, 0.999), row[12:]):
            assert aggregates_writer.quantile(aggregates, op, q) == pytest.approx(exact, rel=0.001), (op, q)


@pytest.mark.parametrize("block", [1, 60])
@pytest.mark.parametrize("offset", [0.0, 3.25, -0.7])
def test_tables_by_plain_arithmetic(
    block: int, offset: float, reduced: Callable[..., Path], tmp_path: Path
) -> None:
    rows = synthetic(5, 2500)
    path = tmp_path / "rows.csv"
    path.write_text(made.HEADER + "".join(rows))
    frames = list(aggregates_writer.frames(reduced("--block", block, "--offset", offset, path)))
    tables, mine = by_hand(path, tmp_path, offset, block), summed(iter(frames))
    for name in tables:
        assert mine[name] == tables[name], name
    assert totals_of(frames)["bad"] == 0


@pytest.mark.parametrize("path", RECORDED, ids=[path.name for path in RECORDED])
def test_recorded_rows(
    path: Path, reduced: Callable[..., Path], tmp_path: Path
) -> None:
    frames = list(aggregates_writer.frames(reduced(path)))
    tables, mine = by_hand(path, tmp_path), summed(iter(frames))
    assert mine.keys() == tables.keys()
    for name in tables:
        assert mine[name] == tables[name], name
    total = totals_of(frames)
    assert (total["rows"], total["bad"], total["torn"]) == (299 if "headerless" in path.name else 300, 0, None)
    assert total["errors"] == (0 if "headerless" in path.name else 8)


def test_seconds_by_plain_arithmetic(
    reduced: Callable[..., Path], tmp_path: Path
) -> None:
    ends = [(1.5, 0.2), (2.0, 0.5), (2.0, 1.0), (5.25, 4.0), (3.0, 0.0), (4.000000001, 0.000000001), (2.75, 0.75)]
    path = tmp_path / "rows.csv"
    path.write_text(made.HEADER + "".join(made.row("GET", end, took) for end, took in ends))
    mine = summed(aggregates_writer.frames(reduced(path)))["seconds"]
    spans = [(made.T0 * NS + round(end * NS) - round(took * NS), made.T0 * NS + round(end * NS)) for end, took in ends]
    for second in range(made.T0, made.T0 + 7):
        border = second * NS
        row = mine.get((second, 0, "GET"), defaultdict(int))
        assert row["busy"] == sum(max(0, min(end, border + NS) - max(start, border)) for start, end in spans)
        assert row["crossing"] == sum(start < border <= end for start, end in spans), second
        assert row["n"] == sum(border <= end < border + NS for _, end in spans)


def mangled(seed: int) -> str:
    """A text that has been cut, glued and mixed with what is no row."""
    chance = random.Random(seed)
    lines = synthetic(seed, 60)
    for _ in range(4):
        junk = ["# warp mixed\n", "warp: <ERROR> x\n", "\n", "warp-h:1\t2\tGET\n", made.HEADER, '7\t1\tPUT\t\t1\t"to\n']
        lines.insert(chance.randrange(len(lines)), chance.choice(junk))
    text = "".join(lines)
    for _ in range(3):
        at = chance.randrange(len(text))
        text = text[:at] + text[at + chance.randrange(25) :]
    return text[: chance.randrange(len(text) // 2, len(text))]


#: rows, failed ones and bad lines of mangled texts, as a second reader counted them once; all but one end within a line
MANGLED = [(40, 3, 1), (30, 3, 2), (37, 2, 3), (35, 1, 3), (34, 1, 2), (34, 2, 2), (29, 5, 1), (31, 1, 5), (47, 2, 3)]
MANGLED += [(30, 2, 2), (35, 0, 2), (54, 3, 2)]


def test_mangled_texts(reduced: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for seed, expected in enumerate(MANGLED):
        path.write_text(made.HEADER + mangled(seed))
        total = totals_of(list(aggregates_writer.frames(reduced(path))))
        assert (total["rows"], total["errors"], total["bad"]) == expected, seed
        assert (total["torn"] is None) == (seed == 4)


def test_merged_pieces_are_the_whole(
    program: Path, reduced: Callable[..., Path], tmp_path: Path
) -> None:
    rows = synthetic(7)
    whole, pieces = tmp_path / "whole.csv", []
    whole.write_text(made.HEADER + "".join(rows))
    for i in range(3):
        pieces.append(tmp_path / f"{i}.csv")
        pieces[-1].write_text(made.HEADER + "".join(rows[i::3]))
    out = tmp_path / "merged.aggregates"
    subprocess.run([program, "merge", "-o", out, *[reduced("--node", "n", piece) for piece in pieces]], check=True)
    expected = list(aggregates_writer.frames(reduced("--node", "n", whole)))
    merged = list(aggregates_writer.frames(out))
    assert summed(iter(merged)) == summed(iter(expected))
    assert totals_of(merged) == totals_of(expected)
    assert merged[-1][0]["sources"] == [{"job": "", "driver": "", "node": "n", "phase": ""}]


def test_a_torn_frame_is_left_out_and_a_damaged_one_is_named(
    program: Path, reduced: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(made.HEADER + "".join(synthetic(8, 300)))
    one = reduced(path)
    data = one.read_bytes()
    torn, out = tmp_path / "torn.aggregates", tmp_path / "out.aggregates"
    torn.write_bytes(data + data[: len(data) // 3])
    subprocess.run([program, "merge", "-o", out, torn], check=True)
    assert summed(aggregates_writer.frames(out)) == summed(aggregates_writer.frames(one))
    first = 14 + int.from_bytes(data[6:10], "little")
    torn.write_bytes(data[: first + 5])
    subprocess.run([program, "merge", "-o", out, torn], check=True)
    total = totals_of(list(aggregates_writer.frames(out)))
    assert (total["rows"], "cut off" in total["torn"]) == (300, True)
    torn.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    failed = subprocess.run([program, "show", torn], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert failed.returncode == 1
    assert "checksum" in failed.stderr


def live(program: Path, tmp_path: Path, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    line = [program, "reduce", "-o", tmp_path / "live.aggregates", "--keep", tmp_path / "kept.csv.zst", *arguments, "-"]
    return subprocess.Popen(list(map(str, line)), stdin=subprocess.PIPE, **more)


def kept(path: Path) -> str:
    """What can be read of a kept file, whether it has an end or not."""
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).decode()


def test_live_counts_rows_and_aggregates(
    program: Path, reduced: Callable[..., Path], tmp_path: Path
) -> None:
    rows = synthetic(9)
    process = live(program, tmp_path, "--beat", stdout=subprocess.PIPE)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # its files are made before it reads
        wait_for(lambda: (tmp_path / "kept.csv.zst").exists())
        process.send_signal(sign)
    said, _ = process.communicate("".join(rows).encode() + b"3\t4\tGE")
    assert process.returncode == 0
    last = json.loads(said.splitlines()[-1])
    assert last["end"] is True
    assert all("end" not in json.loads(line) for line in said.splitlines()[:-1])
    expected: Dict[str, List[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in recount(rows):
        count = expected[row["op"]]
        if row["error"]:
            count[1] += 1
        else:
            for i, more in enumerate((1, 0, int(row["bytes"]), int(row["duration_ns"]))):
                count[i] += more
    assert {op: count[:4] for op, count in last["counts"].items()} == expected
    assert last["rows"] == len(rows)
    assert all(0 < count[4] <= count[5] <= last["last"] <= last["t"] for count in last["counts"].values())
    assert kept(tmp_path / "kept.csv.zst") == made.HEADER + "".join(rows)
    whole = tmp_path / "rows.csv"
    whole.write_text(made.HEADER + "".join(rows))
    frames = list(aggregates_writer.frames(tmp_path / "live.aggregates"))
    assert summed(iter(frames)) == summed(aggregates_writer.frames(reduced(whole)))
    assert totals_of(frames)["torn"] == "the last line has no end"


def test_a_killed_one_leaves_readable_files(program: Path, tmp_path: Path) -> None:
    rows = synthetic(10)
    process = live(program, tmp_path, "--beat", stdout=subprocess.DEVNULL)
    assert process.stdin
    process.stdin.write("".join(rows).encode())
    process.stdin.flush()
    try:
        aggregates = tmp_path / "live.aggregates"
        wait_for(lambda: aggregates.exists() and list(aggregates_writer.frames(aggregates)))
        text = wait_for(lambda: kept(tmp_path / "kept.csv.zst"))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
    assert text == made.HEADER + "".join(rows)
    assert kept(tmp_path / "kept.csv.zst") == text
    counts = summed(aggregates_writer.frames(aggregates))["counts"]
    assert sum(row["n"] + row["failed"] for row in counts.values()) == len(rows)


def test_counts_that_nobody_reads_stop_nothing(program: Path, tmp_path: Path) -> None:
    rows = synthetic(11, 500)
    read, write = os.pipe()
    process = live(program, tmp_path, "--beat", stdout=write)
    os.close(write)
    os.close(read)
    process.communicate("".join(rows).encode())
    assert process.returncode == 0
    assert totals_of(list(aggregates_writer.frames(tmp_path / "live.aggregates")))["rows"] == len(rows)


def test_export_for_duckdb(program: Path, reduced: Callable[..., Path], tmp_path: Path) -> None:
    """What is exported can be counted and added up in SQL."""
    rows = synthetic(12)
    path = tmp_path / "rows.csv"
    path.write_text(made.HEADER + "".join(rows))
    aggregates = reduced("--job", "j, 1", "--node", 'a "b"', path)
    for table in ("counts", "latency", "ttfb", "failed", "seconds", "errors"):
        line = [program, "export", "--table", table, aggregates]
        text = subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout
        (tmp_path / f"{table}.csv").write_bytes(text)
    buckets = f"SELECT op, low, high, sum(count) AS n FROM read_csv('{tmp_path}/latency.csv') GROUP BY ALL"
    quantiles = duckdb.sql(
        f"""WITH running AS (SELECT *, sum(n) OVER (PARTITION BY op ORDER BY low) AS upto,
                             sum(n) OVER (PARTITION BY op) AS every FROM ({buckets}))
            SELECT op, min((low + high - 1) / 2) / 1e6 FROM running WHERE upto >= ceil(0.99 * every) GROUP BY op"""
    ).fetchall()
    good = [row for row in recount(rows) if not row["error"]]
    assert duckdb.sql(f"SELECT sum(n) FROM read_csv('{tmp_path}/seconds.csv')").fetchall() == [(len(good),)]
    assert len(quantiles) > 1
    for op, milliseconds in quantiles:
        times = sorted(int(row["duration_ns"]) for row in good if row["op"] == op)
        assert milliseconds * 1e6 == pytest.approx(times[-(-99 * len(times) // 100) - 1], rel=0.001)
    failed = duckdb.sql(f"SELECT sum(count), any_value(job), any_value(node) FROM read_csv('{tmp_path}/errors.csv')")
    assert failed.fetchall() == [(len(rows) - len(good), "j, 1", 'a "b"')]


@pytest.mark.parametrize(
    ("text", "status", "torn"),
    [(None, 4, "no such file"), (made.HEADER.replace("duration_ns", "x"), 4, "duration_ns"), ("", 0, None)],
)
def test_inputs_without_rows(
    text: Optional[str], status: int, torn: Optional[str], reduced: Callable[..., Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    good, path = tmp_path / "good.csv", tmp_path / "rows.csv"
    good.write_text(made.HEADER + made.row("GET", 1, 0.5))
    if text is not None:
        path.write_text(text)
    total = totals_of(list(aggregates_writer.frames(reduced(path, good, status=status))))
    assert total["rows"] == 1
    assert (torn in total["torn"]) if torn else total["torn"] is None


def test_what_cannot_be_written_is_an_error(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(made.HEADER + made.row("GET", 1, 0.5))
    full = subprocess.run([program, "reduce", "-o", "/dev/full", path], stderr=subprocess.PIPE, text=True)
    assert (full.returncode, "no space" in full.stderr) == (1, True)
    assert subprocess.run([program, "reduce", path], stderr=subprocess.DEVNULL).returncode == 2
    assert subprocess.run([program, "reduce", "-o", "x", "--beat", path], stderr=subprocess.DEVNULL).returncode == 2


def test_damaged_compressed_files_give_what_is_whole(
    reduced: Callable[..., Path], tmp_path: Path
) -> None:
    text = (made.HEADER + "".join(synthetic(13))).encode()
    path = tmp_path / "rows.csv.zst"
    packed = zstandard.ZstdCompressor().compress(text)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    total = totals_of(list(aggregates_writer.frames(reduced(path))))
    assert 0 < total["rows"] < 4000
    assert total["torn"] == "the zstd stream has no end"
