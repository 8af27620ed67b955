"""Rows files as warp versions and kills leave them."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from pathlib import Path
from typing import Dict, NamedTuple, Optional

import archive_builder as made
import pytest

from cbt_plugins.results import result_file
from cbt_plugins.results.requests import job_files as request_rows
from cbt_plugins.results.requests.job_files import NotBuilt, by_client
from cbt_plugins.results.result_file import PackedFile, Unreadable

DATA = Path(__file__).parent.parent / "data" / "rows"
REFUSED = 'Put "http://127.0.0.1:7072/b/x": dial tcp 127.0.0.1:7072: connect: connection refused'


class Read(NamedTuple):
    """What cbt-rows makes of a file."""

    ops: Dict[str, int]
    messages: Dict[str, int]
    bad: int
    torn: Optional[str]
    command: str

    @property
    def rows(self) -> int:
        return sum(self.ops.values())


def read(path: Path) -> Read:
    found = by_client(path)
    ops: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for client in found.clients:
        for frame in client.frames:
            counts, errors = frame.table("counts"), frame.table("errors")
            for op, n, failed in zip(counts["op"], counts["n"], counts["failed"]):
                ops[frame.ops[op]] += int(n) + int(failed)
            for error, count in zip(errors["error"], errors["count"]):
                messages[frame.errors[error]] += int(count)
    return Read(ops, messages, found.bad, found.torn, found.command)


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
    found = read(DATA / name)
    assert {op: found.ops[op] for op in counts} == counts
    assert found.rows == sum(counts.values())
    assert sum(found.messages.values()) == errors
    assert all(text.endswith("connection refused") for text in found.messages)
    assert (found.torn, found.bad) == (None, 0)
    assert bool(found.command) == ("headerless" not in name)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    header = made.HEADER.replace("first_byte", "first_byte\tlast_byte")
    whole = made.row("GET", 1, 0.042, first=0.01).split("\t")
    path = tmp_path / "rows.csv"
    path.write_text(header + "\t".join([*whole[:11], "L", *whole[11:]]))
    (client,) = by_client(path).clients
    counts = client.frames[0].table("counts")
    assert (counts["total"].tolist(), counts["ttfb_total"].tolist()) == ([42_000_000], [10_000_000])


def test_a_header_without_a_needed_column_says_which(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        made.HEADER.replace("duration_ns", "duration") + made.row("GET", 1, 0.5)
    )
    with pytest.raises(Unreadable, match=r"rows\.csv: no column duration_ns"):
        read(tmp_path / "rows.csv")


@pytest.mark.parametrize("end", [False, True])
def test_gzip_of_a_killed_run(tmp_path: Path, end: bool) -> None:
    lines = [made.row("GET", 1 + i / 100, 0.01) for i in range(50)]
    path = tmp_path / "rows.csv.gz"
    synced(path, made.HEADER + "".join(lines), end=end)
    found = read(path)
    assert found.rows == 50
    assert found.torn == (None if end else "the gzip stream has no end")


def test_gzip_members_one_behind_the_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    one = gzip.compress((made.HEADER + made.row("GET", 1, 0.5)).encode())
    path.write_bytes(one + gzip.compress(made.row("PUT", 2, 0.5).encode()) + b"\0" * 100)
    found = read(path)
    assert found.rows == 2
    assert found.torn is None


def test_damaged_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    synced(path, made.HEADER + made.row("GET", 1, 0.5), end=False)
    path.write_bytes(path.read_bytes() + b"\xff" * 50)
    found = read(path)
    assert found.rows == 1
    assert found.torn is not None
    assert "damaged" in found.torn


def test_a_message_without_its_end_takes_no_other_row_with_it(tmp_path: Path) -> None:
    torn = made.row("PUT", 2, 0.5, error='x "y" z').partition("z")[0] + "\n"
    text = made.row("GET", 1, 0.5) + torn + "".join(made.row("GET", 3 + i, 0.5) for i in range(3))
    (tmp_path / "rows.csv").write_text(made.HEADER + text)
    found = read(tmp_path / "rows.csv")
    assert found.ops == {"GET": 4}
    assert found.bad == 1


def test_quotes_of_two_torn_lines_are_no_record(tmp_path: Path) -> None:
    text = made.row("GET", 1, 0.5) + '3\t1\tPUT\tto"rn\nto"rn\n' + made.row("GET", 2, 0.5)
    (tmp_path / "rows.csv").write_text(made.HEADER + text)
    found = read(tmp_path / "rows.csv")
    assert found.ops == {"GET": 2}
    assert found.bad == 1


def test_other_lines_are_counted(tmp_path: Path) -> None:
    text = (
        made.HEADER
        + "warp: <ERROR> something\n"
        + made.row("GET", 1, 0.5)
        + made.HEADER
        + "7\tshort\n# warp get\n"
    )
    (tmp_path / "rows.csv").write_text(text)
    found = read(tmp_path / "rows.csv")
    assert found.rows == 1
    assert found.bad == 2
    assert found.command == "warp get"


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("")
    assert read(tmp_path / "rows.csv").rows == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"gone\.csv: No such file"):
        read(tmp_path / "gone.csv")


def test_rows_of_several_clients_in_one_file(tmp_path: Path) -> None:
    def of(client: str, begin: float) -> str:
        lines = made.steady("GET", workers=2, seconds=3, latency=0.01, begin=begin, size=1)
        return "".join(line.replace("GET\t\t", f"GET\t{client}\t", 1) for line in lines)

    path = tmp_path / "rows.csv"
    path.write_text(made.HEADER + of("one", 0) + of("two", 1) + "7\tshort\n# warp get\n")
    found = by_client(path)
    assert [client.name for client in found.clients] == ["one", "two"] and found.bad == 1
    one, two = ([s for frame in its.frames for s in frame.table("seconds")["second"]] for its in found.clients)
    assert (min(one), min(two)) == (made.T0, made.T0 + 1)
    assert read(path).ops == {"GET": 1200}


def test_without_cbt_rows_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rows, "own_program", lambda name: None)
    with pytest.raises(NotBuilt, match="cbt-rows is not built: run `cbt-tools build cbt-rows`"):
        read(tmp_path / "rows.csv")


# --- files that Python itself unpacks: what other programs wrote

PACKED = DATA / "v0.6.9-mixed-one-gateway-killed.csv.zst"


def lines_of(path: Path) -> int:
    return b"".join(PackedFile(path).chunks()).count(b"\n")


def test_zstd_by_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_file, "zstd_member", lambda: None)
    assert lines_of(PACKED) == 302
    (tmp_path / "torn.csv.zst").write_bytes(PACKED.read_bytes()[: PACKED.stat().st_size // 2])
    torn = PackedFile(tmp_path / "torn.csv.zst")
    list(torn.chunks())
    assert torn.torn == "damaged zstd data"


def test_zstd_without_anything_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_file, "zstd_member", lambda: None)
    monkeypatch.setattr(result_file.shutil, "which", lambda name: None)
    with pytest.raises(Unreadable, match="install the program zstd, the Python package zstandard"):
        lines_of(PACKED)


def test_zstd_by_module(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    assert lines_of(PACKED) == 302
    packer = zstandard.ZstdCompressor().compressobj()
    data = packer.compress(b"a\nb\nc\n") + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    path = tmp_path / "x.zst"
    path.write_bytes(data)
    cut = PackedFile(path)
    assert b"".join(cut.chunks()) == b"a\nb\nc\n" and cut.torn == "the zstd stream has no end"
    path.write_bytes(data + packer.flush() + zstandard.ZstdCompressor().compress(b"d\n"))
    whole = PackedFile(path)
    assert b"".join(whole.chunks()) == b"a\nb\nc\nd\n" and whole.torn is None


def test_no_piece_of_a_small_file_fills_the_memory(tmp_path: Path) -> None:
    """A kilobyte of zstd can be hundreds of megabytes."""
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "x.zst").write_bytes(zstandard.ZstdCompressor().compress(bytes(1 << 27)))
    sizes = [len(chunk) for chunk in PackedFile(tmp_path / "x.zst").chunks()]
    assert sum(sizes) == 1 << 27 and max(sizes) < 1 << 26


@pytest.mark.parametrize("end", [False, True])
def test_gzip_unpacked_here(tmp_path: Path, end: bool) -> None:
    path = tmp_path / "x.gz"
    synced(path, "a\nb\n", end=end)
    found = PackedFile(path)
    assert b"".join(found.chunks()) == b"a\nb\n" and found.torn == (None if end else "the gzip stream has no end")
    path.write_bytes(path.read_bytes() + b"\xff" * 50)
    damaged = PackedFile(path)
    assert b"".join(damaged.chunks()) == b"a\nb\n" and damaged.torn and "damaged" in damaged.torn
