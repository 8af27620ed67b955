"""Rows files as warp versions and kills leave them."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import List

import analysis_archives as made
import pytest

from cbt_plugins.results import source
from cbt_plugins.results.rows import Rows
from cbt_plugins.results.source import Unreadable

DATA = Path(__file__).parent.parent / "data" / "rows"
REFUSED = 'Put "http://127.0.0.1:7072/b/x": dial tcp 127.0.0.1:7072: connect: connection refused'


def read(path: Path) -> tuple[Rows, List[List[str]]]:
    rows = Rows(path)
    return rows, [row for block in rows.blocks() for row in block]


def synced(path: Path, text: str, *, end: bool) -> None:
    """A gzip file with a sync flush after each line, with or without its end."""
    packer = zlib.compressobj(wbits=31)
    data = b""
    for line in text.splitlines(True):
        data += packer.compress(line.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    path.write_bytes(data + (packer.flush() if end else b""))


@pytest.mark.parametrize(
    ("name", "counts", "errors"),
    [
        ("v0.6.9-mixed-one-gateway-killed.csv.zst", {"GET": 131, "PUT": 48, "STAT": 99, "DELETE": 22}, 8),
        ("v1.3.1-mixed-one-gateway-killed.csv.gz", {"GET": 148, "PUT": 41, "STAT": 82, "DELETE": 29}, 8),
        ("v1.3.1-stdout-headerless.tsv.gz", {"GET": 147, "PUT": 44, "STAT": 83, "DELETE": 25}, 0),
    ],
)
def test_recorded_rows(name: str, counts: dict[str, int], errors: int) -> None:
    rows, found = read(DATA / name)
    assert rows.columns is not None
    c = rows.columns
    assert {op: sum(row[c.op] == op for row in found) for op in counts} == counts
    assert len(found) == sum(counts.values())
    messages = [row[c.error] for row in found if row[c.error]]
    assert len(messages) == errors
    assert all(text.endswith("connection refused") and '""' not in text for text in messages)
    assert (rows.torn, rows.bad) == (None, 0)
    assert all(row[c.end].startswith("2026-11-21T") and row[c.duration].isdigit() for row in found)
    assert (rows.command is not None) == ("headerless" not in name)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    header = made.HEADER.replace("first_byte", "first_byte\tlast_byte").rstrip()
    path = tmp_path / "rows.csv"
    path.write_text(header + "\n0\t3\tPUT\tc\t1\t5\thttp://a\tf\t\tS\tF\tL\tE\t42\t0\n")
    rows, found = read(path)
    assert rows.columns is not None
    assert [found[0][i] for i in (rows.columns.first_byte, rows.columns.end, rows.columns.duration)] == [
        "F",
        "E",
        "42",
    ]


def test_a_header_without_a_needed_column_says_which(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        made.HEADER.replace("duration_ns", "duration") + made.row("GET", 1, 0.5)
    )
    with pytest.raises(Unreadable, match=r"rows\.csv: no column duration_ns"):
        read(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    "error", ["", "plain", REFUSED, 'a "quoted" tab\there', "two\nlines", 'all\t"of\nit"']
)
def test_torn_at_every_byte_of_the_last_record(tmp_path: Path, error: str) -> None:
    whole = made.HEADER + made.row("GET", 1, 0.5) + made.row("PUT", 2, 0.5, error="x\ty")
    last = made.row("PUT", 3, 0.25, error=error)
    path = tmp_path / "rows.csv"
    for cut in range(len(last) + 1):
        path.write_text(whole + last[:cut])
        rows, found = read(path)
        assert len(found) == 2 + (cut == len(last)), last[:cut]
        assert (rows.torn is None) == (cut in (0, len(last)) or "\n" in last[cut - 1 : cut]), last[:cut]
    assert rows.columns is not None
    assert found[-1][rows.columns.error] == error


@pytest.mark.parametrize("end", [False, True])
def test_gzip_of_a_killed_run(tmp_path: Path, end: bool) -> None:
    lines = [made.row("GET", 1 + i / 100, 0.01) for i in range(50)]
    path = tmp_path / "rows.csv.gz"
    synced(path, made.HEADER + "".join(lines), end=end)
    rows, found = read(path)
    assert len(found) == 50
    assert rows.torn == (None if end else "the gzip stream has no end")


def test_gzip_cut_at_every_byte_gives_only_whole_rows(tmp_path: Path) -> None:
    lines = [made.row("GET", 1 + i / 100, 0.01, idx=i) for i in range(6)]
    path = tmp_path / "rows.csv.gz"
    synced(path, made.HEADER + "".join(lines), end=True)
    data = path.read_bytes()
    before = 0
    for cut in range(2, len(data)):
        path.write_bytes(data[:cut])
        rows, found = read(path)
        assert ["\t".join(row) + "\n" for row in found] == lines[: len(found)]
        assert rows.torn
        assert len(found) >= before
        before = len(found)
    assert before == 6


def test_gzip_members_one_behind_the_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    one = gzip.compress((made.HEADER + made.row("GET", 1, 0.5)).encode())
    path.write_bytes(one + gzip.compress(made.row("PUT", 2, 0.5).encode()) + b"\0" * 100)
    rows, found = read(path)
    assert len(found) == 2
    assert rows.torn is None


def test_damaged_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    synced(path, made.HEADER + made.row("GET", 1, 0.5), end=False)
    path.write_bytes(path.read_bytes() + b"\xff" * 50)
    rows, found = read(path)
    assert len(found) == 1
    assert rows.torn is not None
    assert "damaged" in rows.torn


def test_more_than_one_chunk(tmp_path: Path) -> None:
    lines = [
        made.row("GET", 1 + i / 1000, 0.01, idx=i, error=REFUSED if i % 997 == 0 else "") for i in range(5000)
    ]
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress((made.HEADER + "".join(lines)).encode()))
    rows, found = read(path)
    assert [row[0] for row in found] == [str(i) for i in range(5000)]
    assert sum(row[8] == REFUSED for row in found) == 6
    assert (rows.torn, rows.bad) == (None, 0)


def test_a_message_without_its_end_takes_no_other_row_with_it(tmp_path: Path) -> None:
    torn = made.row("PUT", 2, 0.5, error='x "y" z').partition("z")[0] + "\n"
    text = made.row("GET", 1, 0.5) + torn + "".join(made.row("GET", 3 + i, 0.5) for i in range(3))
    (tmp_path / "rows.csv").write_text(made.HEADER + text)
    rows, found = read(tmp_path / "rows.csv")
    assert [row[2] for row in found] == ["GET"] * 4
    assert rows.bad == 1


def test_quotes_of_two_torn_lines_are_no_record(tmp_path: Path) -> None:
    text = made.row("GET", 1, 0.5) + '3\t1\tPUT\tto"rn\nto"rn\n' + made.row("GET", 2, 0.5)
    (tmp_path / "rows.csv").write_text(made.HEADER + text)
    rows, found = read(tmp_path / "rows.csv")
    assert [row[2] for row in found] == ["GET", "GET"]
    assert rows.bad == 1


def test_other_lines_are_counted(tmp_path: Path) -> None:
    text = (
        made.HEADER
        + "warp: <ERROR> something\n"
        + made.row("GET", 1, 0.5)
        + made.HEADER
        + "7\tshort\n# warp get\n"
    )
    (tmp_path / "rows.csv").write_text(text)
    rows, found = read(tmp_path / "rows.csv")
    assert len(found) == 1
    assert rows.bad == 2
    assert rows.command == "warp get"


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("")
    assert read(tmp_path / "rows.csv")[1] == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"gone\.csv: No such file"):
        read(tmp_path / "gone.csv")


def test_zstd_by_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_zstd_member", lambda: None)
    _, found = read(DATA / "v0.6.9-mixed-one-gateway-killed.csv.zst")
    assert len(found) == 300
    data = (DATA / "v0.6.9-mixed-one-gateway-killed.csv.zst").read_bytes()
    (tmp_path / "torn.csv.zst").write_bytes(data[: len(data) // 2])
    rows, found = read(tmp_path / "torn.csv.zst")
    assert rows.torn == "damaged zstd data"


def test_zstd_without_anything_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_zstd_member", lambda: None)
    monkeypatch.setattr(source.shutil, "which", lambda name: None)
    with pytest.raises(Unreadable, match="install the program zstd, the Python package zstandard"):
        read(DATA / "v0.6.9-mixed-one-gateway-killed.csv.zst")


def test_zstd_by_module() -> None:
    pytest.importorskip("zstandard")
    assert len(read(DATA / "v0.6.9-mixed-one-gateway-killed.csv.zst")[1]) == 300


def test_a_zstd_stream_without_its_end_is_torn_and_its_rows_are_read(tmp_path: Path) -> None:
    """What kill -9 leaves of kept rows: flushed blocks of a frame that has not ended."""
    zstandard = pytest.importorskip("zstandard")
    row = "7\t0\tGET\t\t1\t9\thttp://a\tk\t\t2026-11-21T09:00:00Z\t\t2026-11-21T09:00:00.000000005Z\t5\t0\n"
    packer = zstandard.ZstdCompressor().compressobj()
    data = packer.compress(row.encode() * 3) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    path = tmp_path / "rows.csv.zst"
    path.write_bytes(data)
    rows = Rows(path)
    assert sum(len(block) for block in rows.blocks()) == 3
    assert rows.torn == "the zstd stream has no end"
    path.write_bytes(data + packer.flush() + zstandard.ZstdCompressor().compress(row.encode()))
    rows = Rows(path)
    assert sum(len(block) for block in rows.blocks()) == 4 and rows.torn is None
