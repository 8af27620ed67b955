"""Request rows of one job -> counts, histograms and a time series: small, and mergeable without loss.

Requests belong to the second, and to the window, in which they END. Rows carry the node's clock;
head time = row time - clock offset. Sums are integer nanoseconds.

The rows of a second are handled as columns, so that the work per row is done by C code: split, group, int,
count.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from cbt_plugins.analysis.histogram import Histogram, buckets
from cbt_plugins.analysis.rows import Columns, Fields, Rows
from cbt_plugins.analysis.series import Gaps, Grid, Series

SECOND = 10**9
#: what differs between two errors of one kind: the address of the request, and object names
_QUOTED = re.compile(r'"[^"]*"')


@dataclass
class OpFigures:
    """One operation in one job, or in all jobs that were merged."""

    latency: Histogram = field(default_factory=Histogram)  # successful, ended in the window
    ttfb: Histogram = field(default_factory=Histogram)  # of these, the ones that have a first byte
    failed: Histogram = field(default_factory=Histogram)  # latency of failed requests that ended in the window
    objects: int = 0
    bytes: int = 0
    ok_outside: int = 0
    failed_outside: int = 0
    busy: int = 0  # ns that all requests (also failed, also outside) spent in flight within the window
    messages: Counter[str] = field(default_factory=Counter)  # error kind -> count, in and outside of the window

    def merge(self, other: OpFigures) -> None:
        self.latency.merge(other.latency)
        self.ttfb.merge(other.ttfb)
        self.failed.merge(other.failed)
        self.objects += other.objects
        self.bytes += other.bytes
        self.ok_outside += other.ok_outside
        self.failed_outside += other.failed_outside
        self.busy += other.busy
        self.messages.update(other.messages)

    @property
    def finished(self) -> int:
        """Requests that ended in the window, well or not."""
        return self.latency.n + self.failed.n


@dataclass
class JobFigures:
    """What the rows of one job say."""

    ops: Dict[str, OpFigures] = field(default_factory=dict)
    endpoints: Dict[Tuple[str, str], List[int]] = field(
        default_factory=dict
    )  # (endpoint, op) -> [ok, failed] in window
    series: Dict[str, Series] = field(default_factory=dict)
    gaps: Dict[str, Gaps] = field(default_factory=dict)
    last_end: Dict[str, int] = field(default_factory=dict)  # thread -> ns on the node's clock
    rows: int = 0
    errors: int = 0
    bad: int = 0  # lines that were no rows
    torn: Optional[str] = None


class Reducer:
    """Takes blocks of rows of one file; `offset` is the clock of their node minus the head's, in seconds."""

    def __init__(self, columns: Columns, grid: Grid, offset: float) -> None:
        self.figures = JobFigures()
        self._c = columns
        self._grid = grid
        self._offset = offset
        self._start = _ns(grid.start) + _ns(offset)
        self._end = _ns(grid.end) + _ns(offset)
        self._zone = -1  # where the zone begins in a time: "Z" or "+02:00"
        self._epochs: Dict[str, int] = {}

    def add(self, block: List[Fields]) -> None:
        """Add rows; one that has no valid numbers counts as bad."""
        c, zone = self._c, len(_zone_of(block[0][self._c.end]))
        i_op, i_error, i_end = c.op, c.error, c.end
        cells: Dict[Tuple[str, bool, str, str], List[Fields]] = defaultdict(list)
        for row in block:
            end = row[i_end]
            cells[row[i_op], not row[i_error], end[:19], end[-zone:]].append(row)
        for (op, ok, second, zone_text), rows in cells.items():
            self._zone = -zone
            self._together(op, ok, second + zone_text, rows)
        self.figures.last_end.update(self._last_ends(block))

    def _together(self, op: str, ok: bool, second: str, rows: List[Fields]) -> None:
        try:
            self._cell(op, ok, self._epoch(second), rows)
        except ValueError:
            self._one_by_one(op, ok, rows)

    def _one_by_one(self, op: str, ok: bool, rows: List[Fields]) -> None:
        """The same for rows of which one is bad, or has another zone than its block began with."""
        for row in rows:
            end = row[self._c.end]
            zone = _zone_of(end)
            self._zone = -len(zone)
            try:
                self._cell(op, ok, self._epoch(end[:19] + zone), [row])
            except ValueError:
                self.figures.bad += 1

    def _cell(self, op: str, ok: bool, second: int, rows: List[Fields]) -> None:
        """Rows of one op and outcome that ended in one second; raises ValueError before it counts any."""
        low = second * SECOND
        if self._start <= low and low + SECOND <= self._end:
            self._count(op, ok, second, rows, True)
        elif low + SECOND <= self._start or low >= self._end:
            self._count(op, ok, second, rows, False)
        elif len(rows) == 1:
            end = low + _fraction(rows[0][self._c.end][20 : self._zone])
            self._count(op, ok, second, rows, self._start <= end < self._end)
        else:  # a second at the border of the window
            self._one_by_one(op, ok, rows)

    def _count(self, op: str, ok: bool, second: int, rows: List[Fields], inside: bool) -> None:
        c = self._c
        durations = [int(row[c.duration]) for row in rows]
        low, high = min(durations), max(durations)
        if low < 0:
            raise ValueError("a negative duration")
        total = sum(durations)
        busy = self._busy(second, rows, durations, high, total)
        figures = self.figures
        if ok and inside:
            objects = self._objects(op, rows)
            size = _sum([row[c.bytes] for row in rows])
            first = [row for row in rows if row[c.first_byte]]
            ttfb = self._ttfb(first) if first else []
            counts = Counter(buckets(durations))
            extremes = self._extremes(second, rows)
            of = figures.ops.setdefault(op, OpFigures())
            of.latency.add(counts, len(rows), total, low, high)
            of.ttfb.record(ttfb)
            of.objects += objects
            of.bytes += size
            head_second = second - round(self._offset)
            self._series(op).add(head_second, counts, objects, size, total, high)
            self._gaps(op).add(head_second, *extremes)
        else:
            of = figures.ops.setdefault(op, OpFigures())
            if not ok:
                of.messages.update(_QUOTED.sub("...", row[c.error])[:200] for row in rows)
                figures.errors += len(rows)
            if inside:
                of.failed.add(Counter(buckets(durations)), len(rows), total, low, high)
                self._series(op).fail(second - round(self._offset), len(rows))
            elif ok:
                of.ok_outside += len(rows)
            else:
                of.failed_outside += len(rows)
        of.busy += busy
        figures.rows += len(rows)
        if inside:
            for endpoint, n in Counter([row[c.endpoint] for row in rows]).items():
                figures.endpoints.setdefault((endpoint, op), [0, 0])[0 if ok else 1] += n

    def _objects(self, op: str, rows: List[Fields]) -> int:
        """One DELETE may remove many objects; the keys that a LIST returns are not objects moved."""
        return len(rows) if op == "LIST" else _sum([row[self._c.n_objects] for row in rows])

    def _busy(self, second: int, rows: List[Fields], durations: List[int], high: int, total: int) -> int:
        """ns within the window that these requests were in flight."""
        low = second * SECOND
        if self._start <= low - high and low + SECOND <= self._end:
            return total
        if low + SECOND <= self._start or low - high >= self._end:
            return 0
        i, cut = self._c.end, self._zone
        busy = 0
        for row, duration in zip(rows, durations):
            end = low + _fraction(row[i][20:cut])
            busy += max(0, min(end, self._end) - max(end - duration, self._start))
        return busy

    def _ttfb(self, rows: List[Fields]) -> List[int]:
        """first byte - start. Nearly always in one minute, and floats of its seconds are exact to 1e-14 s."""
        i, j, cut = self._c.first_byte, self._c.start, self._zone
        values = [round((float(row[i][17:cut]) - float(row[j][17:cut])) * 1e9) for row in rows]
        for k, row in enumerate(rows):
            if row[i][:17] != row[j][:17] or values[k] < 0:
                values[k] = max(0, self._instant(row[i]) - self._instant(row[j]))
        return values

    def _extremes(self, second: int, rows: List[Fields]) -> Tuple[float, float]:
        """First and last end in this second, head time."""
        i, cut = self._c.end, self._zone
        fractions = [
            row[i][20:cut] for row in rows
        ]  # digits without zeros at the end sort as text as they do as numbers
        base = second - self._offset
        return base + _fraction(min(fractions)) / SECOND, base + _fraction(max(fractions)) / SECOND

    def _last_ends(self, block: List[Fields]) -> Dict[str, int]:
        i, j = self._c.thread, self._c.end
        threads = {row[i] for row in block}
        last: Dict[str, int] = {}
        for row in reversed(block):
            if row[i] in threads:
                threads.discard(row[i])
                try:
                    last[row[i]] = max(self._instant(row[j]), self.figures.last_end.get(row[i], 0))
                except ValueError:  # a bad row, counted as such
                    continue
                if not threads:
                    break
        return last

    def _series(self, op: str) -> Series:
        if op not in self.figures.series:
            self.figures.series[op] = Series(self._grid)
        return self.figures.series[op]

    def _gaps(self, op: str) -> Gaps:
        if op not in self.figures.gaps:
            self.figures.gaps[op] = Gaps(self._grid)
        return self.figures.gaps[op]

    def _instant(self, text: str) -> int:
        """RFC 3339 with up to nine digits -> ns since the epoch."""
        zone = _zone_of(text)
        return self._epoch(text[:19] + zone) * SECOND + _fraction(text[20 : -len(zone)])

    def _epoch(self, text: str) -> int:
        """ "2026-11-21T07:19:36Z" or "...+01:00" -> seconds since the epoch; there are few different ones."""
        if text not in self._epochs:
            if len(self._epochs) > 10_000:
                self._epochs.clear()
            self._epochs[text] = int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
        return self._epochs[text]


def _sum(numbers: List[str]) -> int:
    """Sum of numbers that are nearly always all the same."""
    first = numbers[0]
    return int(first) * len(numbers) if numbers.count(first) == len(numbers) else sum(map(int, numbers))


def _ns(seconds: float) -> int:
    """Seconds -> ns; a float of today's epoch seconds times 10^9 would be off by up to 128."""
    whole = math.floor(seconds)
    return whole * SECOND + round((seconds - whole) * SECOND)


def _zone_of(text: str) -> str:
    return "Z" if text.endswith("Z") else text[-6:]


def _fraction(digits: str) -> int:
    """Digits behind the decimal point -> ns; warp leaves out zeros at the end."""
    return int((digits + "000000000")[:9])


def reduce_rows(path: Path, grid: Grid, offset: float) -> JobFigures:
    """Read one rows file. Raises Unreadable when there is nothing to read."""
    rows = Rows(path)
    reducer: Optional[Reducer] = None
    for block in rows.blocks():
        if reducer is None:
            assert rows.columns is not None
            reducer = Reducer(rows.columns, grid, offset)
        reducer.add(block)
    figures = reducer.figures if reducer else JobFigures()
    figures.torn = rows.torn
    figures.bad += rows.bad
    return figures
