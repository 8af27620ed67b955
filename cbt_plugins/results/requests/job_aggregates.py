"""Frames of aggregates -> what they say of one job in one window: small, and mergeable without loss."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates_file import Columns, Frame, grouped
from cbt_plugins.results.histogram import WIDTH, Histogram
from cbt_plugins.results.requests.cut_requests import failed_of_seconds
from cbt_plugins.results.requests.error_kinds import error_kind
from cbt_plugins.results.requests.time_series import SECOND, Timeline

_NEVER = np.iinfo(np.int64).max
_SUMS = ("n", "failed", "objects", "bytes", "total", "failed_total", "ttfb_n", "ttfb_total")
_LOWS = {"min": "n", "failed_min": "failed", "ttfb_min": "ttfb_n"}  # and what says whether there is one
_HIGHS = ("max", "failed_max", "ttfb_max")
#: numbers of OpAggregates that are added
_ADDED = ("objects", "bytes", "ok_outside", "failed_outside", "cut", "cut_outside", "busy", "failed_after")
_BORDERS = ("in_flight_at_start", "in_flight_at_end")


@dataclass
class OpAggregates:
    """One operation (or one size class of it) in one job, or in all jobs that were merged."""

    latency: Histogram = field(default_factory=Histogram)  # successful, ended in the window
    ttfb: Histogram = field(default_factory=Histogram)  # of these, the ones that have a first byte
    failed: Histogram = field(default_factory=Histogram)  # all others that ended in the window
    objects: int = 0
    bytes: int = 0
    ok_outside: int = 0
    failed_outside: int = 0
    cut: int = 0  # of the failed ones in the window: those that the end of the run cut off
    cut_outside: int = 0
    busy: int = 0  # ns that all requests (also failed, also outside) spent in flight within the window
    in_flight_at_start: int = 0  # requests in flight when the window began
    in_flight_at_end: int = 0  # and when it ended
    #: ns: highest age at the end of the window, at least, of requests that ended after it; of failed ones the duration
    oldest_after: int = 0
    failed_after: int = 0  # requests that began in the window at the latest, and failed or were cut off after it
    messages: Counter[str] = field(default_factory=Counter)  # error -> count, in and outside of the window

    def merge(self, aggregates: OpAggregates) -> None:
        for name in ("latency", "ttfb", "failed"):
            getattr(self, name).merge(getattr(aggregates, name))
        for name in (*_ADDED, *_BORDERS):
            setattr(self, name, getattr(self, name) + getattr(aggregates, name))
        self.oldest_after = max(self.oldest_after, aggregates.oldest_after)
        self.messages.update(aggregates.messages)

    @property
    def finished(self) -> int:
        """Requests that ended in the window, well or not, but were not cut off."""
        return self.latency.n + self.failures

    @property
    def failures(self) -> int:
        """Requests that failed in the window by themselves."""
        return max(0, self.failed.n - self.cut)

    @property
    def failures_outside(self) -> int:
        return max(0, self.failed_outside - self.cut_outside)


@dataclass
class EndpointAggregates:
    """One operation at one address, of requests that ended in the window."""

    n: int = 0
    failed: int = 0
    cut: int = 0
    total: int = 0  # ns, of the successful ones
    max: int = 0
    longest: int = 0  # ns, also of those that failed or were cut off

    def merge(self, aggregates: EndpointAggregates) -> None:
        self.n += aggregates.n
        self.failed += aggregates.failed
        self.cut += aggregates.cut
        self.total += aggregates.total
        self.max = max(self.max, aggregates.max)
        self.longest = max(self.longest, aggregates.longest)


@dataclass
class JobAggregates:
    """The sums of the aggregates of one job, or of a part of it."""

    sizes: Dict[Tuple[str, int], OpAggregates] = field(default_factory=dict)  # by op and bit length of the bytes
    ops: Dict[str, OpAggregates] = field(default_factory=dict)  # over all sizes
    endpoints: Dict[Tuple[str, str], EndpointAggregates] = field(default_factory=dict)  # by endpoint and op
    last_end: Dict[int, int] = field(default_factory=dict)  # thread -> ns on the run's clock
    rows: int = 0
    errors: int = 0  # rows with an error, also those of requests that were cut off
    bad: int = 0  # lines that were no rows
    damaged: int = 0  # frames
    ended: bool = False  # there is an end frame
    torn: Optional[str] = None

    @property
    def crossing(self) -> Tuple[int, int]:
        """Requests in flight at the begin and at the end of the window."""
        of_ops = self.ops.values()
        return sum(of.in_flight_at_start for of in of_ops), sum(of.in_flight_at_end for of in of_ops)

    @property
    def failures(self) -> int:
        """Requests that failed by themselves, in and outside of the window."""
        return sum(of.failures + of.failures_outside for of in self.ops.values())

    def merge(self, part: JobAggregates) -> None:
        """Add another part; those that were merged are of no use afterwards."""
        for key, of in part.sizes.items():
            self.sizes.setdefault(key, OpAggregates()).merge(of)
        for op, of in part.ops.items():
            self.ops.setdefault(op, OpAggregates()).merge(of)
        for place, endpoint_aggregates in part.endpoints.items():
            self.endpoints.setdefault(place, EndpointAggregates()).merge(endpoint_aggregates)
        for thread, end in part.last_end.items():
            self.last_end[thread] = max(end, self.last_end.get(thread, 0))
        for name in ("rows", "errors", "bad", "damaged"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.ended |= part.ended
        self.torn = self.torn or part.torn


class HistogramGroups:
    """Histograms by the number of their group."""

    def __init__(self) -> None:
        self.dense: List[np.ndarray] = []

    def add(self, groups: np.ndarray, entries: np.ndarray, bucket: np.ndarray, count: np.ndarray) -> None:
        """Add the histograms of groups, as Frame has them; `groups` are those of the counts, -1: leave it out."""
        if not len(bucket):
            return
        low = int(bucket.min())
        width = int(bucket.max()) - low + 1
        # the last row is for what is left out
        rows = int(groups.max()) + 2
        first = np.where(groups < 0, rows - 1, groups) * width - low
        flat = np.repeat(first, entries)
        flat += bucket
        sums = np.bincount(flat, weights=count, minlength=rows * width).reshape(rows, width)
        while len(self.dense) < rows - 1:
            self.dense.append(np.zeros(WIDTH, np.int64))
        for number in range(rows - 1):
            self.dense[number][low : low + width] += sums[number].astype(np.int64)

    def histogram(self, group: int, n: int, total: int, low: int, high: int) -> Histogram:
        histogram, none = Histogram(), np.zeros(0, np.int64)
        if group >= len(self.dense):
            histogram.add(none, none, n, total, low, high)
        elif n:
            numbers = np.flatnonzero(self.dense[group])
            histogram.add(numbers, self.dense[group][numbers], n, total, low, high)
        return histogram


class JobAccumulator:
    """Adds up the frames of a job; `finish` gives their sums. Several may fill one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.grid = timeline.grid
        self.timeline = timeline
        self._job = JobAggregates()
        self._number_of: Dict[str, Dict[str, int]] = {"op": {}, "endpoint": {}, "error": {}}  # name -> number here
        self._groups = np.full(256 << 7, -1, np.int64)  # op << 7 | size -> number of its histograms
        self._used = 0
        self._histograms = {name: HistogramGroups() for name in ("latency", "ttfb", "failed")}
        self._counts: List[Tuple[np.ndarray, Columns]] = []
        self._errors: List[Tuple[np.ndarray, np.ndarray]] = []

    def add(self, frame: Frame) -> None:
        """Add a frame that was checked."""
        ops = self._numbers("op", frame.ops)
        endpoints = self._numbers("endpoint", frame.endpoints)
        self._add_counts(frame, ops, endpoints)
        self._add_errors(frame, ops, endpoints)
        seconds = frame.table("seconds")
        if len(seconds["second"]):
            timeline_ops = np.array([self.timeline.number(op) for op in frame.ops], np.int64)
            columns = {**seconds, "failed": failed_of_seconds(frame)}
            self.timeline.add_seconds(seconds["second"], timeline_ops[seconds["op"]], columns)
            self._add_flight(seconds, frame.ops)
        for thread, end in zip(*(frame.table("threads")[name].tolist() for name in ("thread", "last_end"))):
            self._job.last_end[thread] = max(end, self._job.last_end.get(thread, 0))
        for total in frame.totals:
            self._job.bad += int(total.get("bad") or 0)
            self._job.torn = self._job.torn or total.get("torn")
        self._job.ended |= frame.ends

    def damaged(self) -> None:
        """Note a frame that could not be read."""
        self._job.damaged += 1

    def finish(self) -> JobAggregates:
        """Return the sum of all frames; nothing can be added afterwards."""
        self._make_ops()
        self._make_messages()
        return self._job

    def _numbers(self, kind: str, texts: Sequence[str]) -> np.ndarray:
        """Return the numbers that the names of a frame have here."""
        numbers = self._number_of[kind]
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)

    def _names(self, kind: str) -> List[str]:
        return list(self._number_of[kind])

    def _op(self, name: str) -> OpAggregates:
        return self._job.ops.setdefault(name, OpAggregates())

    def _add_counts(self, frame: Frame, ops: np.ndarray, endpoints: np.ndarray) -> None:
        counts = frame.table("counts")
        if not len(counts["block"]):
            return
        op, size = ops[counts["op"]], counts["size"].astype(np.int64)
        inside = self.grid.holds(counts["block"], frame.block)
        code = op << 7 | size
        for new in np.unique(code[self._groups[code] < 0]):
            self._groups[new] = self._used
            self._used += 1
        keys = ((op << 16 | endpoints[counts["endpoint"]]) << 7 | size) << 1 | inside
        self._counts.append((keys, {name: counts[name] for name in (*_SUMS, *_LOWS, *_HIGHS)}))
        self._sum_counts()
        groups = np.where(inside, self._groups[code], -1)
        for name in ("ttfb", "failed"):
            self._histograms[name].add(groups, *frame.histograms(name))
        latency = frame.histograms("latency")
        self._histograms["latency"].add(groups, *latency)
        self._add_late(frame)
        some = inside & (counts["n"] > 0)
        self.timeline.add_answers(counts["block"][some], counts["endpoint"][some], frame.endpoints, counts["n"][some])
        if some.any():
            timeline_ops = np.array([self.timeline.number(name) for name in frame.ops], np.int64)
            row_ops = timeline_ops[counts["op"]]
            self.timeline.add_maxima(counts["block"][some], row_ops[some], counts["max"][some])
            self.timeline.add_latencies(counts["block"], row_ops, inside, *latency)

    def _add_late(self, frame: Frame) -> None:
        """Add what ended after the window, and began in it or before."""
        counts = frame.table("counts")
        late = np.flatnonzero(counts["block"] >= self.grid.end) if self.grid.snapped else ()
        if not len(late):
            return
        block, op, n, failed, longest, longest_failed = (
            counts[name][late] for name in ("block", "op", "n", "failed", "max", "failed_max")
        )
        since = (block.astype(np.int64) + frame.block - int(self.grid.end)) * SECOND  # the end of the window, at most
        unanswered = longest_failed * (longest_failed > since)
        ages = np.maximum(np.where(n > 0, longest - since, 0), unanswered)
        for number, age, failures in zip(op.tolist(), ages.tolist(), np.where(unanswered > 0, failed, 0).tolist()):
            if age > 0:
                of = self._op(frame.ops[number])
                of.oldest_after = max(of.oldest_after, age)
                of.failed_after += failures

    def _add_errors(self, frame: Frame, ops: np.ndarray, endpoints: np.ndarray) -> None:
        errors = frame.table("errors")
        if not len(errors["block"]):
            return
        error_numbers = self._numbers("error", frame.errors)[errors["error"]]
        inside = self.grid.holds(errors["block"], frame.block)
        keys = ((ops[errors["op"]] << 16 | endpoints[errors["endpoint"]]) << 24 | error_numbers) << 1 | inside
        keys, sums = grouped(keys, {"count": errors["count"]})
        self._errors.append((keys, sums["count"]))

    def _add_flight(self, seconds: Columns, names: Sequence[str]) -> None:
        """Add the time in flight within the window, and the requests that were in flight at its borders."""
        grid, second = self.grid, seconds["second"]
        inside = grid.holds(second, 1)
        busy = np.zeros(len(names), np.int64)
        np.add.at(busy, seconds["op"][inside].astype(np.int64), seconds["busy"][inside])
        for name, busy_ns in zip(names, busy.tolist()):
            if busy_ns:
                self._op(name).busy += busy_ns
        for i, at in enumerate((int(grid.start), int(grid.end)) if grid.snapped else ()):
            for row in np.flatnonzero((second == at) & (seconds["crossing"] > 0)).tolist():
                requests, of = int(seconds["crossing"][row]), self._op(names[int(seconds["op"][row])])
                setattr(of, _BORDERS[i], getattr(of, _BORDERS[i]) + requests)

    def _sum_counts(self) -> None:
        keys = np.concatenate([keys for keys, _ in self._counts])
        columns = {name: np.concatenate([table[name] for _, table in self._counts]) for name in self._counts[0][1]}
        lows = {name: np.where(columns[n] > 0, columns[name], _NEVER) for name, n in _LOWS.items()}
        sums, highs = ({name: columns[name] for name in names} for names in (_SUMS, _HIGHS))
        self._counts = [grouped(keys, sums, lows, highs)]

    def _make_ops(self) -> None:
        """Sum the counts, per op and size class, and per endpoint."""
        job = self._job
        if not self._counts:
            return
        keys, table = self._counts[0]
        ops, endpoints = self._names("op"), self._names("endpoint")
        merged: Dict[Tuple[str, int], Dict[str, int]] = {}
        for i, key in enumerate(keys.tolist()):
            op, endpoint = ops[key >> 24], endpoints[key >> 8 & 0xFFFF]
            size, inside = key >> 1 & 127, key & 1
            cell = {name: int(column[i]) for name, column in table.items()}
            job.rows += cell["n"] + cell["failed"]
            job.errors += cell["failed"]
            of = job.sizes.setdefault((op, size), OpAggregates())
            if not inside:
                of.ok_outside += cell["n"]
                of.failed_outside += cell["failed"]
                continue
            endpoint_aggregates = EndpointAggregates(cell["n"], cell["failed"], 0, cell["total"], cell["max"])
            endpoint_aggregates.longest = max(cell["max"], cell["failed_max"])
            job.endpoints.setdefault((endpoint, op), EndpointAggregates()).merge(endpoint_aggregates)
            of.objects += cell["objects"]
            of.bytes += cell["bytes"]
            _merge_cell(merged.setdefault((op, size), {}), cell)
        for (op, size), cell in merged.items():
            group = int(self._groups[self._number_of["op"][op] << 7 | size])
            of = job.sizes[op, size]
            for name, n, prefix in (("latency", "n", ""), ("ttfb", "ttfb_n", "ttfb_"), ("failed", "failed", "failed_")):
                numbers = (cell[n], *(cell[prefix + statistic] for statistic in ("total", "min", "max")))
                setattr(of, name, self._histograms[name].histogram(group, *numbers))
        for (op, _), of in job.sizes.items():
            self._op(op).merge(of)

    def _make_messages(self) -> None:
        if not self._errors:
            return
        keys = np.concatenate([keys for keys, _ in self._errors])
        counts = np.concatenate([counts for _, counts in self._errors])
        keys, sums = grouped(keys, {"count": counts})
        ops, endpoints, texts = (self._names(kind) for kind in ("op", "endpoint", "error"))
        for key, count in zip(keys.tolist(), sums["count"].tolist()):
            op, text = ops[key >> 41], texts[key >> 1 & 0xFFFFFF]
            of = self._op(op)
            of.messages[text] += count
            if error_kind(text) != "cut":
                continue
            if key & 1:
                of.cut += count
                endpoint = endpoints[key >> 25 & 0xFFFF]
                self._job.endpoints.setdefault((endpoint, op), EndpointAggregates()).cut += count
            else:
                of.cut_outside += count


def _merge_cell(into: Dict[str, int], cell: Mapping[str, int]) -> None:
    for name, value in cell.items():
        if name in _LOWS:
            into[name] = min(into.get(name, _NEVER), value)
        elif name in _HIGHS:
            into[name] = max(into.get(name, 0), value)
        else:
            into[name] = into.get(name, 0) + value
