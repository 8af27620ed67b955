"""Aggregates files: what cbt-rows made of the requests of a job, as numpy columns. The Go package aggregates has
their form (tools/companion/internal/aggregates/doc.go).

A file is a sequence of frames, each complete in itself, and their tables are added up: what was written before a
kill counts.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.archive_files import open_regular
from cbt_plugins.results.histogram import BITS, WIDTH
from cbt_plugins.results.result_file import Unreadable

MAGIC = b"CBTF"
#: magic, version, compression, length of the payload, its CRC-32
PREFIX = struct.Struct("<4sBBII")
VERSION = 3
#: the buckets of its frames have a column of their own in place of steps
_OLDEST = 2
_ZLIB = 1
#: latency entries of a joined frame, each of which takes some 30 bytes while it is added up; and frames in it
_LARGE = 1 << 20
_MANY = 100
_DTYPES = {name: np.dtype("<" + name) for name in ("u1", "u2", "u4", "i8")}

Columns = Dict[str, np.ndarray]


def _unpacker() -> Any:
    """Return isal's zlib where it is installed (twice as fast), else zlib."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


inflate = _unpacker()

_COUNTS = "block:i8 source:u2 op:u1 endpoint:u2 size:u1 n:u4 failed:u4 objects:i8 bytes:i8 total:i8 min:i8 max:i8"
_COUNTS += " failed_total:i8 failed_min:i8 failed_max:i8 ttfb_n:u4 ttfb_total:i8 ttfb_min:i8 ttfb_max:i8"
_SECOND = "second:i8 source:u2 op:u1 n:u4 failed:u4 objects:i8 bytes:i8 total:i8 max:i8 first:i8 last:i8"
_SECOND += " busy:i8 crossing:u4"
_HISTOGRAM = "group:u4 bucket:u4 count:u4"
_FORMS = {
    "counts": _COUNTS,
    "latency": _HISTOGRAM,
    "ttfb": _HISTOGRAM,
    "failed": _HISTOGRAM,
    "seconds": _SECOND,
    "errors": "block:i8 source:u2 op:u1 endpoint:u2 error:u2 count:u4",
    "threads": "source:u2 thread:u4 last_end:i8",
}
#: table -> column -> dtype, in the order of the file
TABLES: Dict[str, Dict[str, str]] = {
    name: dict(column.split(":") for column in form.split()) for name, form in _FORMS.items()
}
_EMPTY = {name: {c: np.zeros(0, _DTYPES[d]) for c, d in form.items()} for name, form in TABLES.items()}


class Damaged(Exception):
    """A frame that cannot be used."""


@dataclass
class Frame:
    """Tables of some requests. Those with an `op`, `endpoint` or `error` have indexes into the lists of that name."""

    block: int  # seconds: the resolution of counts, histograms and errors
    ops: Sequence[str]
    endpoints: Sequence[str]
    errors: Sequence[str]
    tables: Dict[str, Columns]  # as TABLES says; a table without rows may be missing
    totals: Sequence[Mapping[str, Any]] = field(default=())  # of the end frame
    ends: bool = False

    def table(self, name: str) -> Columns:
        """Return the columns of a table, maybe empty."""
        return self.tables.get(name) or _EMPTY[name]

    def histograms(self, name: str) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a table of histograms, group by group: how many entries each has, and the entries' buckets and counts.
        """
        table = self.table(name)
        group, bucket, count = table["group"], table["bucket"], table["count"]
        if (group[1:] < group[:-1]).any():
            order = np.argsort(group, kind="stable")
            group, bucket, count = group[order], bucket[order], count[order]
        borders = np.arange(len(self.table("counts")["n"]) + 1)
        return np.diff(np.searchsorted(group, borders.astype(group.dtype))), bucket, count

    def check(self) -> None:
        """Raise Damaged when an index points nowhere or a column is missing."""
        for name, columns in self.tables.items():
            missing = set(TABLES.get(name, ())) - set(columns)
            if missing:
                raise Damaged(f"no column {', '.join(sorted(missing))} in {name}")
        groups = len(self.table("counts")["n"])
        limits = {"op": len(self.ops), "endpoint": len(self.endpoints), "error": len(self.errors), "group": groups}
        limits.update(bucket=WIDTH, size=64)
        for name in TABLES.keys() & self.tables.keys():
            for column in limits.keys() & TABLES[name].keys():
                values = self.tables[name][column]
                if len(values) and int(values.max()) >= limits[column]:
                    raise Damaged(f"{name} has a {column} {int(values.max())}")


def is_aggregates(path: Optional[Path]) -> bool:
    """Tell whether there is such a file, and it begins as an aggregates file does."""
    if path is None:
        return False
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def places(path: Path, begin: int = 0, most: Optional[int] = None) -> Tuple[List[Tuple[int, int]], Optional[str]]:
    """Return (offset, length) of the frames of a file, and why there are no more when the last bytes are none.

    From `begin` on, where a frame begins, and no more than it takes for `most` bytes. Raises Unreadable when it is no
    aggregates file at all.
    """
    frame_places: List[Tuple[int, int]] = []
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            at = begin
            while at < size and (most is None or at < begin + most):
                head = os.pread(file.fileno(), PREFIX.size, at)
                if head[:4] != MAGIC[: len(head)]:
                    if not at:
                        raise Unreadable(f"{path}: no aggregates file")
                    return frame_places, f"there is no frame at byte {at}"
                if len(head) < PREFIX.size:
                    return frame_places, "its last frame is torn"
                _, version, packing, length, _ = PREFIX.unpack(head)
                if version < _OLDEST:
                    raise Unreadable(f"{path}: written by an older version of cbt-rows (file format {version})")
                if version > VERSION or packing != _ZLIB:
                    text = f"version {version}, compression {packing}; this program reads {VERSION} and {_ZLIB}"
                    raise Unreadable(f"{path}: {text}")
                if at + PREFIX.size + length > size:
                    return frame_places, "its last frame is torn"
                frame_places.append((at, PREFIX.size + length))
                at += PREFIX.size + length
    except OSError as e:
        raise Unreadable(f"{path}: {e.strerror or e}") from e
    return frame_places, None


def frames(path: Path, where: Sequence[Tuple[int, int]]) -> Iterator[Optional[Frame]]:
    """Yield the frames at these places; None instead of one that is damaged. Raises Unreadable."""
    try:
        with open_regular(path) as file:
            for at, length in where:
                file.seek(at)
                data = file.read(length)
                try:
                    frame = parse(data)
                    frame.check()
                except Damaged:
                    yield None
                else:
                    yield frame
    except OSError as e:
        raise Unreadable(f"{path}: {e.strerror or e}") from e


def span(path: Path) -> Optional[Tuple[float, float]]:
    """Return the begin of a finished file's first request and the end of its last one (run's clock); else None."""
    try:
        where, torn = places(path)
        last = list(frames(path, where[-1:]))
        totals = last[0].totals if last and last[0] and not torn else ()
        times = [(int(counts["first_start"]), int(counts["last_end"])) for counts in totals if counts.get("rows")]
    except (Unreadable, KeyError, TypeError, ValueError, AttributeError):
        return None
    return (min(start for start, _ in times) / 1e9, max(end for _, end in times) / 1e9) if times else None


def joined(many: Iterable[Optional[Frame]]) -> Iterator[Optional[Frame]]:
    """Return the same in fewer and larger frames: numpy wants long columns."""
    waiting: List[Frame] = []
    entries = 0
    for frame in many:
        if frame is None:
            yield None
            continue
        if waiting and (entries > _LARGE or len(waiting) > _MANY or frame.ends or frame.block != waiting[0].block):
            yield _join(waiting)
            waiting, entries = [], 0
        waiting.append(frame)
        entries += len(frame.table("latency")["group"])
    if waiting:
        yield _join(waiting)


def _join(parts: Sequence[Frame]) -> Frame:
    """Join the parts of one frame; an end frame stands alone."""
    if len(parts) == 1:
        return parts[0]
    kinds = ("ops", "endpoints", "errors")
    ops, endpoints, errors = (_union([getattr(part, kind) for part in parts]) for kind in kinds)
    groups = np.cumsum([0] + [len(part.table("counts")["n"]) for part in parts[:-1]])
    moved = {"op": ops[1], "endpoint": endpoints[1], "error": errors[1]}
    tables: Dict[str, Columns] = {}
    for name, form in TABLES.items():
        columns = tables[name] = {}
        for column in form:
            column_parts = [part.table(name)[column] for part in parts]
            if column == "group":
                column_parts = [values + before for values, before in zip(column_parts, groups.astype(np.uint32))]
            elif column in moved:
                column_parts = [numbers[values] for values, numbers in zip(column_parts, moved[column])]
            columns[column] = np.concatenate(column_parts)
    return Frame(parts[0].block, ops[0], endpoints[0], errors[0], tables)


def split(frame: Frame, border: int) -> Tuple[Frame, Frame]:
    """Return the parts of a frame before and after a border, a second at which a block begins."""
    counts = frame.table("counts")["block"] + frame.block <= border
    group_of = np.where(counts, np.cumsum(counts), np.cumsum(~counts)).astype(np.uint32) - np.uint32(1)
    before: Dict[str, Columns] = {}
    after: Dict[str, Columns] = {}
    for name, columns in frame.tables.items():
        if name == "threads":
            after[name] = columns
            continue
        rows = (
            counts[columns["group"]] if "group" in columns
            else columns["second"] < border if "second" in columns
            else columns["block"] + frame.block <= border
        )
        for part, chosen in ((before, rows), (after, ~rows)):
            part[name] = {column: values[chosen] for column, values in columns.items()}
            if "group" in columns:
                part[name]["group"] = group_of[part[name]["group"]]
    return replace(frame, tables=before, totals=(), ends=False), replace(frame, tables=after)


def request_spans(every: Sequence[Frame], apart: float) -> List[np.ndarray]:
    """Return the seconds in which frames have requests, in the order of time, cut at gaps of more than `apart` seconds.
    """
    seconds = np.unique(np.concatenate([frame.table("seconds")["second"] for frame in every]))
    return np.split(seconds, np.flatnonzero(np.diff(seconds) > apart) + 1) if len(seconds) else []


def _union(lists: Sequence[Sequence[str]]) -> Tuple[List[str], List[np.ndarray]]:
    """Return all names, and for each list the indexes of its names among them."""
    indexes: Dict[str, int] = {}
    maps = [np.array([indexes.setdefault(name, len(indexes)) for name in names], np.int64) for names in lists]
    return list(indexes), maps


def parse(data: bytes) -> Frame:
    """Return one frame with its prefix. Raises Damaged; Unreadable for histograms of another resolution."""
    packed = memoryview(data)[PREFIX.size :]
    if zlib.crc32(packed) != PREFIX.unpack_from(data)[4]:
        raise Damaged("its checksum does not match")
    try:
        payload = inflate.decompress(packed)
        (length,) = struct.unpack_from("<I", payload)
        header = json.loads(payload[4 : 4 + length])
        bits = header["bits"]
        tables: Dict[str, Columns] = {}
        at = 4 + length
        for table in header["tables"]:
            rows = table["rows"]
            columns = tables[table["name"]] = {}
            for name, dtype in table["columns"]:
                values = np.frombuffer(payload, _DTYPES[dtype], rows, at)
                columns[name] = values
                at += values.nbytes
            if "step" in columns:  # modulo 65536; numpy sums int64 in half the time of uint16
                columns["bucket"] = np.cumsum(columns.pop("step"), dtype=np.int64).astype(np.uint16)
        frame = Frame(
            block=int(header["block"]),
            ops=header["ops"],
            endpoints=header["endpoints"],
            errors=header["errors"],
            tables=tables,
            totals=header.get("totals") or (),
            ends=header["kind"] == "end",
        )
    except (ValueError, KeyError, TypeError, struct.error, inflate.error) as e:
        raise Damaged(f"{type(e).__name__}: {e}") from e
    if bits != BITS:
        raise Unreadable(f"histograms of {bits} significant bits; this version reads {BITS}")
    return frame


def grouped(
    keys: np.ndarray,
    sums: Mapping[str, np.ndarray],
    lows: Mapping[str, np.ndarray] = {},
    highs: Mapping[str, np.ndarray] = {},
) -> Tuple[np.ndarray, Columns]:
    """Return the different keys, rising, and for each the sums, minima and maxima of its rows' columns, as int64."""
    if not len(keys):
        return keys, {name: np.zeros(0, np.int64) for name in (*sums, *lows, *highs)}
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    reduced: Columns = {}
    for how, columns in ((np.add, sums), (np.minimum, lows), (np.maximum, highs)):
        for name, values in columns.items():
            reduced[name] = how.reduceat(values[order].astype(np.int64, copy=False), starts)
    return ordered[starts], reduced
