"""Request rows -> frames of aggregates, as cbt-rows makes them: for archives that have rows and no aggregates.

A request belongs to the second, and the block, in which it ENDS on the head's clock, which is the row's time minus the
clock offset. All times and sums are integer nanoseconds.
"""

from __future__ import annotations

import re
import warnings
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates import Columns, Frame
from cbt_plugins.results.grouping import grouped, placed
from cbt_plugins.results.histogram import WIDTH, buckets
from cbt_plugins.results.rows import Columns as Places
from cbt_plugins.results.rows import Fields, Rows
from cbt_plugins.results.series import SECOND

#: rows of a frame: enough for numpy, and little memory
_FRAME = 200_000
#: different texts of errors in a frame; further ones are "other"
_TEXTS = 1000
#: what differs between two errors of one kind: the address of the request, and object names
_QUOTED = re.compile(r'"[^"]*"')
#: ns that no request takes; it would be spread over all of its seconds
_LONGEST = 10**15
_NOT_A_TIME = np.iinfo(np.int64).min


def frames_of_rows(path: Path, offset: float, block: int) -> Iterator[Frame]:
    """Frames of one rows file; the last one is an end frame. Raises Unreadable when there is nothing to read.

    `offset` is the clock of the rows' node minus the head's, in seconds.
    """
    rows = Rows(path)
    taken = _Taken(round(offset * SECOND), block)
    for part in rows.blocks():
        assert rows.columns is not None
        taken.add(rows.columns, part)
        if taken.rows >= _FRAME:
            yield taken.frame()
    yield taken.frame()
    threads = {
        "source": np.zeros(len(taken.last_end), np.int64),
        "thread": np.array(list(taken.last_end), np.int64),
        "last_end": np.array(list(taken.last_end.values()), np.int64),
    }
    totals = [{"bad": taken.bad + rows.bad, "torn": rows.torn}]
    yield Frame(block, (), (), (), {"threads": threads}, totals, ends=True)


def frames_by_client(path: Path, block: int) -> Tuple[Dict[str, List[Frame]], int, Optional[str]]:
    """Frames by warp's client ("" where it names none), the lines that were no rows, and why the end is missing.

    The clients' clocks are taken to agree. Raises Unreadable when there is nothing to read.
    """
    rows = Rows(path)
    taken: Dict[str, _Taken] = {}
    made: Dict[str, List[Frame]] = {}
    for part in rows.blocks():
        assert rows.columns is not None
        its: Dict[str, List[Fields]] = {}
        for row in part:
            its.setdefault(row[rows.columns.client] if rows.columns.client >= 0 else "", []).append(row)
        for client, lines in its.items():
            one = taken.setdefault(client, _Taken(0, block))
            one.add(rows.columns, lines)
            if one.rows >= _FRAME:
                made.setdefault(client, []).append(one.frame())
    for client, one in taken.items():
        if one.rows:
            made.setdefault(client, []).append(one.frame())
    return made, rows.bad + sum(one.bad for one in taken.values()), rows.torn


class _Taken:
    """Rows as numbers, until there are enough of them for a frame."""

    def __init__(self, offset: int, block: int) -> None:
        self.last_end: Dict[int, int] = {}  # thread -> ns, head's clock
        self.bad = 0
        self.rows = 0
        self._offset = offset
        self._block = block
        self._parts: List[Columns] = []
        self._texts: Dict[str, Dict[str, int]] = {}
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self._parts = []
        self._texts = {"op": {}, "endpoint": {}, "error": {"": 0}}

    def add(self, places: Places, rows: List[Fields]) -> None:
        """Add rows; one that has no valid numbers counts as bad."""
        try:
            part = self._columns(places, rows)
        except (ValueError, OverflowError):
            if len(rows) == 1:
                self.bad += 1
            else:
                for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                    self.add(places, half)
            return
        threads, found = grouped(part["thread"], {}, highs={"end": part["end"]})
        for thread, end in zip(threads.tolist(), found["end"].tolist()):
            self.last_end[thread] = max(end, self.last_end.get(thread, 0))
        self._parts.append(part)
        self.rows += len(rows)

    def _columns(self, places: Places, rows: List[Fields]) -> Columns:
        """Raises ValueError before it has counted any."""
        fields = list(zip(*rows))
        names = ("thread", "bytes", "n_objects", "duration")
        number = {name: _integers(fields[getattr(places, name)]) for name in names}
        if number["duration"].min() < 0 or number["bytes"].min() < 0 or number["duration"].max() > _LONGEST:
            raise ValueError("no duration, or no size")
        end = _instants(fields[places.end])
        first = [(i, text) for i, text in enumerate(fields[places.first_byte]) if text]
        ttfb = np.full(len(rows), -1, np.int64)
        if first:
            where = [i for i, _ in first]
            begun = _instants([fields[places.start][i] for i in where])
            ttfb[where] = np.maximum(0, _instants([text for _, text in first]) - begun)
        ops, errors = fields[places.op], fields[places.error]
        return {
            "thread": number["thread"],
            "op": self._numbers("op", ops),
            "endpoint": self._numbers("endpoint", fields[places.endpoint]),
            "error": self._numbers("error", [_QUOTED.sub("...", text)[:200] if text else "" for text in errors]),
            # the keys that a LIST returns are not objects moved
            "objects": np.where(np.array(ops) == "LIST", 1, number["n_objects"]),
            "bytes": number["bytes"],
            "duration": number["duration"],
            "end": end - self._offset,
            "ttfb": ttfb,
        }

    def _numbers(self, kind: str, texts: Sequence[str]) -> np.ndarray:
        known = self._texts[kind]
        for text in set(texts) - known.keys():
            known.setdefault(text if kind != "error" or len(known) <= _TEXTS else "other", len(known))
        other = known.get("other", 0)
        return np.array([known.get(text, other) for text in texts], np.int64)

    def frame(self) -> Frame:
        """The frame of all rows since the last one."""
        if not self._parts:
            return Frame(self._block, (), (), (), {})
        names = self._parts[0]
        rows = {name: np.concatenate([part[name] for part in self._parts]) for name in names}
        ops, endpoints, errors = (list(self._texts[kind]) for kind in ("op", "endpoint", "error"))
        self._clear()
        return Frame(self._block, ops, endpoints, errors, _tables(rows, self._block))


def _tables(rows: Columns, block: int) -> Dict[str, Columns]:
    second = rows["end"] // SECOND
    ok = rows["error"] == 0
    size = np.frexp(rows["bytes"].astype(np.float64))[1].astype(np.int64)
    number = second // block
    low = int(number.min())
    keys = (((number - low) << 8 | rows["op"]) << 16 | rows["endpoint"]) << 7 | size
    cells, cell = np.unique(keys, return_inverse=True)
    cell = cell.ravel()
    tables = {"counts": {"block": ((cells >> 31) + low) * block, "op": cells >> 23 & 0xFF}}
    tables["counts"].update(source=np.zeros(len(cells), np.int64), endpoint=cells >> 7 & 0xFFFF, size=cells & 127)
    timed = rows["ttfb"] >= 0
    for table, prefix, its, values in (
        ("latency", "", ok, rows["duration"]),
        ("failed", "failed_", ~ok, rows["duration"]),
        ("ttfb", "ttfb_", ok & timed, rows["ttfb"]),
    ):
        values, its_cell = values[its], cell[its]
        sums = {"count": np.ones(len(values), np.int64), "total": values}
        if table == "latency":
            sums.update(objects=rows["objects"][its], bytes=rows["bytes"][its])
        found, made = grouped(its_cell, sums, {"min": values}, {"max": values})
        every = np.arange(len(cells))
        for name, column in made.items():
            tables["counts"][_name(prefix, name)] = placed(every, found, column)
        keys, counts = np.unique(its_cell * WIDTH + buckets(values), return_counts=True)
        tables[table] = {"group": keys // WIDTH, "bucket": keys % WIDTH, "count": counts}
    tables["seconds"] = _seconds(rows, second, ok)
    keys = (((number - low) << 8 | rows["op"]) << 16 | rows["endpoint"]) << 16 | rows["error"]
    keys, counts = np.unique(keys[~ok], return_counts=True)
    tables["errors"] = {
        "block": ((keys >> 40) + low) * block,
        "source": np.zeros(len(keys), np.int64),
        "op": keys >> 32 & 0xFF,
        "endpoint": keys >> 16 & 0xFFFF,
        "error": keys & 0xFFFF,
        "count": counts,
    }
    return tables


def _name(prefix: str, name: str) -> str:
    if name == "count":
        return {"": "n", "failed_": "failed", "ttfb_": "ttfb_n"}[prefix]
    return prefix + name


def _seconds(rows: Columns, second: np.ndarray, ok: np.ndarray) -> Columns:
    """What ended in each second, and what was in flight in it."""
    key = second << 8 | rows["op"]
    its = {name: rows[name][ok] for name in ("objects", "bytes", "end")}
    its.update(n=np.ones(int(ok.sum()), np.int64), total=rows["duration"][ok])
    sums = {name: its[name] for name in ("n", "objects", "bytes", "total")}
    good, made = grouped(key[ok], sums, {"first": its["end"]}, {"last": its["end"], "max": its["total"]})
    bad, failures = np.unique(key[~ok], return_counts=True)
    flown, flight = _flight(rows["end"] - rows["duration"], rows["end"], rows["op"])
    keys = np.unique(np.concatenate((good, bad, flown)))
    table = {name: placed(keys, good, column) for name, column in made.items()}
    table.update((name, placed(keys, flown, column)) for name, column in flight.items())
    return {
        "second": keys >> 8,
        "source": np.zeros(len(keys), np.int64),
        "op": keys & 0xFF,
        "failed": placed(keys, bad, failures),
        **table,
    }


def _flight(begin: np.ndarray, end: np.ndarray, op: np.ndarray) -> Tuple[np.ndarray, Columns]:
    """By second and op: ns in flight in it ("busy"), and requests in flight at its begin ("crossing")."""
    first = begin // SECOND
    touched = end // SECOND - first + 1
    which = np.repeat(np.arange(len(begin)), touched)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(touched) - touched, touched)
    at = first[which] + nth
    low = at * SECOND
    busy = np.minimum(end[which], low + SECOND) - np.maximum(begin[which], low)
    return grouped(at << 8 | op[which], {"busy": busy, "crossing": nth > 0})


def _integers(texts: Sequence[str]) -> np.ndarray:
    """Numbers that are nearly always all the same."""
    if texts.count(texts[0]) == len(texts):
        return np.full(len(texts), int(texts[0]), np.int64)
    return np.array(list(map(int, texts)), np.int64)


def _instants(texts: Sequence[str]) -> np.ndarray:
    """RFC 3339 with up to nine digits behind the point -> ns since the epoch. Raises ValueError."""
    shift = None
    if all(text[-1:] == "Z" for text in texts):
        plain = [text[:-1] for text in texts]
    else:
        zones = ["Z" if text.endswith("Z") else text[-6:] for text in texts]
        plain = [text[: -len(zone)] for text, zone in zip(texts, zones)]
        shift = np.array([_zone(zone) for zone in zones], np.int64)
    if min(map(len, plain), default=0) < 19:
        raise ValueError("no time")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            made = np.array(plain, "datetime64[ns]").astype(np.int64)
        except UserWarning as e:
            raise ValueError(str(e)) from e
    if len(made) and made.min() == _NOT_A_TIME:
        raise ValueError("no time")
    return made if shift is None else made - shift


@lru_cache(maxsize=64)
def _zone(text: str) -> int:
    """ "+01:00" -> ns that its clock is ahead of UTC. Raises ValueError."""
    zone = datetime.fromisoformat("2000-01-01T00:00:00" + text.replace("Z", "+00:00")).utcoffset()
    if zone is None:
        raise ValueError(f"no zone: {text}")
    return round(zone.total_seconds()) * SECOND
