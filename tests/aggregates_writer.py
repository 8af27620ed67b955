"""Aggregates files as the Go package aggregates describes them, made and read in plain Python."""

from __future__ import annotations

import csv
import json
import random
import re
import struct
import zlib
from collections import Counter
from datetime import datetime
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from request_rows import STREAMED

NS = 10**9
CODES = {"u1": "B", "u2": "H", "u4": "I", "i8": "q"}
HISTOGRAM = [["group", "u4"], ["step", "u2"], ["count", "u4"]]
#: of frames of version 2
OF_BUCKETS = [["group", "u4"], ["bucket", "u4"], ["count", "u4"]]
COUNTS = [["block", "i8"], ["source", "u2"], ["op", "u1"], ["endpoint", "u2"], ["size", "u1"]]
COUNTS += [["n", "u4"], ["failed", "u4"]]
COUNTS += [[name, "i8"] for name in ("objects", "bytes", "total", "min", "max")]
COUNTS += [[name, "i8"] for name in ("failed_total", "failed_min", "failed_max")]
COUNTS += [["ttfb_n", "u4"], ["ttfb_total", "i8"], ["ttfb_min", "i8"], ["ttfb_max", "i8"]]
SECONDS = [["second", "i8"], ["source", "u2"], ["op", "u1"], ["n", "u4"], ["failed", "u4"]]
SECONDS += [[name, "i8"] for name in ("objects", "bytes", "total", "max", "first", "last", "busy")]
SECONDS += [["crossing", "u4"]]
ERRORS = [["block", "i8"], ["source", "u2"], ["op", "u1"], ["endpoint", "u2"], ["error", "u2"], ["count", "u4"]]
THREADS = [["source", "u2"], ["thread", "u4"], ["last_end", "i8"]]


class Request(NamedTuple):
    """Times in ns, run's clock."""

    op: str
    end: int
    duration: int
    size: int = 0
    endpoint: str = "http://rgw1:7480"
    error: str = ""
    thread: int = 0
    objects: int = 1
    ttfb: Optional[int] = None


def bucket(value: int) -> int:
    e = max(0, value.bit_length() - 11)
    return (e << 10) + (value >> e)


def frame(
    kind: str, block: int, names: Dict[str, List[str]], tables: Dict[str, Tuple[List[Any], List[Any]]], **more: Any
) -> bytes:
    """One frame; a table is (columns as in the header, rows as lists)."""
    header = {
        "kind": kind,
        "bits": 11,
        "block": block,
        "sources": [{"job": "j", "driver": "d", "node": "n", "phase": "p"}],
        **names,
        "tables": [{"name": name, "rows": len(rows), "columns": columns} for name, (columns, rows) in tables.items()],
        **more,
    }
    head = json.dumps(header).encode()
    payload = struct.pack("<I", len(head)) + head
    for columns, rows in tables.values():
        for i, (_, dtype) in enumerate(columns):
            payload += struct.pack(f"<{len(rows)}{CODES[dtype]}", *(row[i] for row in rows))
    packed = zlib.compress(payload)
    version = 2 if any(columns == OF_BUCKETS for columns, _ in tables.values()) else 3
    return struct.pack("<4sBBII", b"CBTF", version, 1, len(packed), zlib.crc32(packed)) + packed


def counts_frame(requests: Sequence[Request], block: int = 1) -> bytes:
    """The frame of these requests."""
    ops, endpoints = sorted({r.op for r in requests}), sorted({r.endpoint for r in requests})
    errors = sorted({r.error for r in requests if r.error})
    groups: Dict[Tuple[int, int, int, int], List[Request]] = {}
    seconds: Dict[Tuple[int, int], Dict[str, int]] = {}
    kinds: Counter[Tuple[int, ...]] = Counter()
    for r in requests:
        op, endpoint, second = ops.index(r.op), endpoints.index(r.endpoint), r.end // NS
        at = second // block * block
        groups.setdefault((at, op, endpoint, r.size.bit_length()), []).append(r)
        if r.error:
            kinds[at, op, endpoint, errors.index(r.error)] += 1
        _second(seconds, second, op, r)
    latency, ttfb, failed, rows = [], [], [], []
    for number, ((at, op, endpoint, size), its) in enumerate(sorted(groups.items())):
        good, bad = [r for r in its if not r.error], [r for r in its if r.error]
        times = [[r.duration for r in good], [r.duration for r in bad], [r.ttfb for r in good if r.ttfb is not None]]
        row = [at, 0, op, endpoint, size, len(good), len(bad), sum(r.objects for r in good), sum(r.size for r in good)]
        row += _sums(times[0]) + _sums(times[1]) + [len(times[2])] + _sums(times[2])
        rows.append(row)
        for table, values in zip((latency, failed, ttfb), times):
            table += [[number, b, n] for b, n in sorted(Counter(map(bucket, values)).items())]
    names = [name for name, _ in SECONDS[3:]]
    chance = random.Random(len(requests))  # the order of a histogram's rows means nothing
    for table in (latency, ttfb, failed):
        if chance.random() < 0.5:
            chance.shuffle(table)
    histogram = OF_BUCKETS if chance.random() < 0.5 else HISTOGRAM
    if histogram == HISTOGRAM:
        latency, ttfb, failed = map(_steps, (latency, ttfb, failed))
    tables = {
        "counts": (COUNTS, rows),
        "latency": (histogram, latency),
        "ttfb": (histogram, ttfb),
        "failed": (histogram, failed),
        "seconds": (SECONDS, [[s, 0, op, *(its.get(n, 0) for n in names)] for (s, op), its in sorted(seconds.items())]),
        "errors": (ERRORS, [[at, 0, op, endpoint, e, n] for (at, op, endpoint, e), n in sorted(kinds.items())]),
    }
    return frame("counts", block, {"ops": ops, "endpoints": endpoints, "errors": errors}, tables)


def _steps(table: Sequence[Sequence[int]]) -> List[List[int]]:
    """The rows of a histogram with the steps between its buckets, modulo 65536."""
    buckets = [0, *(row[1] for row in table)]
    return [[row[0], (row[1] - before) % 65536, row[2]] for row, before in zip(table, buckets)]


def _sums(values: Sequence[int]) -> List[int]:
    return [sum(values), min(values, default=0), max(values, default=0)]


def _second(seconds: Dict[Tuple[int, int], Dict[str, int]], second: int, op: int, r: Request) -> None:
    begin = r.end - r.duration
    for s in range(begin // NS, second + 1):
        its = seconds.setdefault((s, op), {})
        its["busy"] = its.get("busy", 0) + min(r.end, (s + 1) * NS) - max(begin, s * NS)
        its["crossing"] = its.get("crossing", 0) + (begin < s * NS <= r.end)
    its = seconds[second, op]
    if r.error:
        its["failed"] = its.get("failed", 0) + 1
        return
    for name, value in (("n", 1), ("objects", r.objects), ("bytes", r.size), ("total", r.duration)):
        its[name] = its.get(name, 0) + value
    its["max"] = max(its.get("max", 0), r.duration)
    its["first"] = min(its.get("first", r.end), r.end)
    its["last"] = max(its.get("last", 0), r.end)


def end_frame(requests: Sequence[Request], block: int = 1, **totals: Any) -> bytes:
    """The last frame of a file."""
    last: Dict[int, int] = {}
    for r in requests:
        last[r.thread] = max(r.end, last.get(r.thread, 0))
    about = {"source": 0, "rows": len(requests), "errors": sum(bool(r.error) for r in requests), "bad": 0, "torn": None}
    if requests:
        about.update(first_start=min(r.end - r.duration for r in requests), last_end=max(r.end for r in requests))
    rows = [[0, thread, end] for thread, end in sorted(last.items())]
    names: Dict[str, List[str]] = {"ops": [], "endpoints": [], "errors": []}
    return frame("end", block, names, {"threads": (THREADS, rows)}, totals=[{**about, **totals}])


def write(path: Path, parts: Iterable[Sequence[Request]], block: int = 1, *, end: bool = True, **totals: Any) -> Path:
    """A file with a frame for each part."""
    parts = list(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(_frames(parts, block)) + (end_frame([*chain(*parts)], block, **totals) if end else b""))
    return path


def _frames(parts: Iterable[Sequence[Request]], block: int) -> Iterator[bytes]:
    return (counts_frame(part, block) for part in parts)


@lru_cache(maxsize=8)
def of_rows(rows: Tuple[str, ...], offset: float, block: int = 1) -> bytes:
    """A file's content: two frames and the end; many tests take the same rows."""
    requests = requests_of(rows, offset)
    middle = len(requests) // 2
    return b"".join(_frames([requests[:middle], requests[middle:]], block)) + end_frame(requests, block)


def requests_of(rows: Iterable[str], offset: float = 0.0) -> List[Request]:
    """Rows as the generators print them, without quoted line breaks."""
    found = csv.DictReader(iter(rows), STREAMED, delimiter="\t")
    return [request_of(row, round(offset * NS)) for row in found]


def request_of(row: Mapping[str, str], offset: int) -> Request:
    """A row, by column; `offset` in ns."""
    error = re.sub(r'"[^"]*"', "...", row["error"])[:200] if row["error"] else ""
    objects = 1 if row["op"] == "LIST" else int(row["n_objects"])
    first = row["first_byte"]
    ttfb = max(0, instant(first) - instant(row["start"])) if first else None
    end, took, size = instant(row["end"]) - offset, int(row["duration_ns"]), int(row["bytes"])
    return Request(row["op"], end, took, size, row["endpoint"], error, int(row["thread"]), objects, ttfb)


def instant(text: str) -> int:
    """RFC 3339 in UTC -> ns."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return _whole(whole) * NS + int(fraction.ljust(9, "0") or 0)


@cache
def _whole(text: str) -> int:
    return int(datetime.fromisoformat(text + "+00:00").timestamp())


def frames(path: Path) -> Iterator[Tuple[Dict[str, Any], Dict[str, Dict[str, Any]]]]:
    """(header, {table: {column: array}}) of each frame."""
    data, at = path.read_bytes(), 0
    while at + 14 <= len(data):
        magic, version, packing, length, crc = struct.unpack_from("<4sBBII", data, at)
        packed = data[at + 14 : at + 14 + length]
        known = (magic, packing) == (b"CBTF", 1) and version in (2, 3)
        if not known or len(packed) < length or zlib.crc32(packed) != crc:
            return  # torn
        at += 14 + length
        payload = zlib.decompress(packed)
        place = 4 + struct.unpack_from("<I", payload)[0]
        header: Dict[str, Any] = json.loads(payload[4:place])
        tables: Dict[str, Dict[str, Any]] = {}
        for table in header["tables"]:
            columns: Dict[str, Any] = {}
            tables[table["name"]] = columns
            for name, kind in table["columns"]:
                columns[name] = np.frombuffer(payload, "<" + kind, table["rows"], place)
                place += columns[name].nbytes
            if "step" in columns:
                columns["bucket"] = np.cumsum(columns.pop("step"), dtype=np.uint16)
        yield header, tables


def quantile(path: Path, op: str, q: float) -> float:
    """A latency in ns, of all successes of an operation."""
    buckets = np.zeros(1 << 16, np.int64)
    for header, tables in frames(path):
        if header["kind"] == "counts" and op in header["ops"]:
            latency = tables["latency"]
            mine = tables["counts"]["op"][latency["group"]] == header["ops"].index(op)
            np.add.at(buckets, latency["bucket"][mine], latency["count"][mine].astype(np.int64))
    bucket = int(np.searchsorted(buckets.cumsum(), np.ceil(q * buckets.sum())))
    e = max(0, (bucket >> 10) - 1)
    return float(((bucket - (e << 10)) << e) + ((1 << e) - 1) / 2)
