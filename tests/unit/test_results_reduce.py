"""Rows -> aggregates: what belongs to the window, to which second, and how long it was in flight."""

from __future__ import annotations

import random
import tempfile
from datetime import datetime
from pathlib import Path
from typing import List, Optional, Sequence

import archive_builder as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_rows import rows_of

from cbt_plugins.results.requests.job_aggregates import EndpointAggregates, JobAccumulator, JobAggregates, OpAggregates
from cbt_plugins.results.requests.job_files import frames_of_rows
from cbt_plugins.results.requests.time_series import TimeGrid, Timeline

T0, NS = made.T0, made.NS
DATA = made.DATA / "rows"


class Reduced:
    """A rows file in a window."""

    def __init__(self, path: Path, grid: TimeGrid, offset: float = 0.0) -> None:
        accumulator = JobAccumulator(Timeline(grid))
        for frame in frames_of_rows(path, offset, grid.block):
            assert frame
            accumulator.add(frame)
        self.job: JobAggregates = accumulator.finish()
        self.timeline: Timeline = accumulator.timeline
        self.ops = self.job.ops


def reduced(path: Path, rows: Sequence[str], window: Sequence[float] = (0, 10), offset: float = 0.0) -> Reduced:
    path.write_text(made.HEADER + "".join(rows))
    return Reduced(path, TimeGrid.of(T0 + window[0], T0 + window[1], 1), offset)


def test_a_request_belongs_to_the_window_in_which_it_ends(tmp_path: Path) -> None:
    ends = (-0.1, 0.999999999, 1, 1.000000001, 8.999999999, 9, 9.000000001, 10.5)
    rows = [made.row("GET", end, 0.1, size=100) for end in ends]
    got = reduced(tmp_path / "r", rows, (0.25, 9.75)).ops["GET"]  # whole seconds: 1 to 9
    assert (got.latency.n, got.ok_outside, got.bytes) == (3, 5, 300)


def test_failed_requests_are_counted_apart(tmp_path: Path) -> None:
    rows = [
        made.row("PUT", 1, 0.1, size=100),
        made.row("PUT", 2, 3.0, size=100, error='Put "http://a/1": 503'),
        made.row("PUT", 11, 1.0, size=100, error='Put "http://a/2": 503'),
        made.row("PUT", 3, 1.0, size=100, error="Access Denied."),
    ]
    got = reduced(tmp_path / "r", rows)
    put = got.ops["PUT"]
    assert (put.latency.n, put.latency.max, put.bytes) == (1, NS // 10, 100)
    assert (put.failed.n, put.failed.max, put.failed_outside, got.job.errors) == (2, 3 * NS, 1, 3)
    assert put.messages == {"Put ...: 503": 2, "Access Denied.": 1}
    assert got.timeline.seconds["PUT"].sums["failed"].tolist()[:4] == [0, 0, 1, 1]
    expected = EndpointAggregates(1, 2, 0, NS // 10, NS // 10, longest=3 * NS)
    assert got.job.endpoints == {("http://rgw1:7480", "PUT"): expected}


def test_clock_offsets_move_rows_into_the_window(tmp_path: Path) -> None:
    # the node's clock is 3.5 s ahead of the run's
    rows = [made.row("GET", end + 3.5, 0.1) for end in (-0.1, 0.1, 9.9, 10.1)]
    got = reduced(tmp_path / "r", rows, offset=3.5)
    assert (got.ops["GET"].latency.n, got.ops["GET"].ok_outside) == (2, 2)
    assert got.timeline.seconds["GET"].sums["n"].sum() == 2
    assert got.timeline.seconds["GET"].longest_gap() == (pytest.approx(9.8), pytest.approx(T0 + 0.1))


def test_time_to_first_byte(tmp_path: Path) -> None:
    # 22:13:20 + 40 s is the next minute, and + 46:40 min the next hour
    rows = [
        made.row("GET", end, 0.4, first=first) for end, first in ((1, 0.1), (40.1, 0.2), (2800.2, 0.399999999), (2, 0))
    ]
    rows.append(made.row("GET", 3, 0.4))
    got = reduced(tmp_path / "r", rows, (0, 3000)).ops["GET"]
    assert (got.latency.n, got.ttfb.n) == (5, 4)
    assert (got.ttfb.total, got.ttfb.max, got.ttfb.min) == (699_999_999, 399_999_999, 0)


@pytest.mark.parametrize("first", [0.05, None])
def test_zones(tmp_path: Path, first: Optional[float]) -> None:
    utc = [made.row("GET", 1.3 + i / 7, 0.1, first=first) for i in range(20)]
    summer = [row.replace("2023-11-14T22:", "2023-11-15T00:").replace("Z", "+02:00") for row in utc]
    ahead = [row.replace("2023-11-14T22:", "2023-11-14T17:").replace("Z", "-05:00") for row in utc]
    expected = reduced(tmp_path / "r", utc)
    for rows in (
        summer,
        ahead,
        [*summer[:9], *utc[9:]],
        [*utc[:9], *summer[9:]],
        [row for pair in zip(summer[::2], utc[1::2]) for row in pair],
        [row for pair in zip(utc[::2], summer[1::2]) for row in pair],
    ):
        got = reduced(tmp_path / "r", rows)
        assert got.ops == expected.ops
        assert got.job.last_end == expected.job.last_end
        one, other = got.timeline.seconds["GET"], expected.timeline.seconds["GET"]
        assert (one.sums["n"] == other.sums["n"]).all()
        assert (one.first == other.first).all()
        assert (one.last == other.last).all()
        assert got.job.bad == 0


def test_order_does_not_matter(tmp_path: Path) -> None:
    rows = made.steady("GET", workers=3, seconds=12, latency=0.03, begin=-1, size=10, first=0.01)
    expected = reduced(tmp_path / "r", rows)
    random.Random(3).shuffle(rows)
    got = reduced(tmp_path / "r", rows)
    assert got.ops == expected.ops
    one, other = got.timeline, expected.timeline
    assert one.seconds["GET"].longest_gap() == other.seconds["GET"].longest_gap()
    assert one.blocks["GET"].quantiles(0.99) == other.blocks["GET"].quantiles(0.99)


def test_rows_with_nonsense_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    good = made.row("GET", 1.5, 0.1, size=7)
    rows = [
        good,
        good.replace("\t100000000\t", "\tlong\t"),
        good.replace("\t100000000\t", "\t-5\t"),
        good.replace(".5Z\t1", ".xZ\t1"),
        good.replace("2023-11-14T22:13:21.5Z\t", "yesterday\t"),
        good,
    ]
    got = reduced(tmp_path / "r", rows)
    assert (got.ops["GET"].latency.n, got.job.rows, got.job.bad) == (2, 2, 4)
    assert got.ops["GET"].bytes == 14


def test_objects_of_a_request(tmp_path: Path) -> None:
    rows = [made.row("DELETE", 1, 0.1, objects=100), made.row("DELETE", 1.1, 0.1, objects=50)]
    rows.append(made.row("LIST", 1, 0.1, objects=1000))
    got = reduced(tmp_path / "r", rows)
    assert got.ops["DELETE"].objects == 150
    assert got.ops["LIST"].objects == 1


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-4000, 16000), st.integers(0, 9000), st.booleans()), min_size=1, max_size=40))
def test_time_in_flight_is_cut_at_the_window(requests: List[tuple[int, int, bool]]) -> None:
    window = (1, 9)
    rows = [made.row("GET", end / 1000, ms / 1000, error="" if ok else "no") for end, ms, ok in requests]
    with tempfile.TemporaryDirectory() as directory:
        got = reduced(Path(directory) / "r", rows, window).ops["GET"]
    expected = sum(max(0, min(end, 9000) - max(end - ms, 1000)) for end, ms, _ in requests)
    assert got.busy == expected * 10**6
    assert got.finished == sum(1000 <= end < 9000 for end, _, _ in requests)
    assert got.finished + got.ok_outside + got.failed_outside == len(requests)


def test_last_ends_per_thread(tmp_path: Path) -> None:
    rows = [made.row("GET", end, 0.1, thread=thread) for end, thread in ((1, 0), (2, 1), (3, 0), (4.5, 2), (2.5, 1))]
    assert reduced(tmp_path / "r", rows, offset=1.0).job.last_end == {
        0: (T0 + 2) * NS,
        1: (T0 + 1) * NS + NS // 2,
        2: (T0 + 3) * NS + NS // 2,
    }


def test_without_a_window_everything_is_outside(tmp_path: Path) -> None:
    got = reduced(tmp_path / "r", made.steady("GET", workers=1, seconds=2, latency=0.5), (0, 0))
    assert (got.ops["GET"].finished, got.ops["GET"].ok_outside, got.ops["GET"].busy) == (0, 4, 0)


def test_the_series_sums_to_the_window(tmp_path: Path) -> None:
    rows = made.steady("GET", workers=2, seconds=30, latency=0.07, begin=-5, size=11)
    got = reduced(tmp_path / "r", rows, (0.4, 17.9), offset=0.3)
    sums, op = got.timeline.seconds["GET"].sums, got.ops["GET"]
    assert sums["n"].sum() == op.latency.n > 0
    assert sums["bytes"].sum() == op.bytes
    assert sums["total"].sum() == op.latency.total


@pytest.mark.parametrize("name", sorted(p.name for p in DATA.glob("v*")))
def test_recorded_rows_against_plain_arithmetic(name: str) -> None:
    """Every number of a recorded file once more, the slow way."""
    found = rows_of(DATA / name)

    def ns(text: str) -> int:
        whole, _, fraction = text.rstrip("Z").partition(".")
        return int(datetime.fromisoformat(whole + "+00:00").timestamp()) * NS + int(fraction.ljust(9, "0"))

    ends = sorted(ns(row["end"]) for row in found)
    start, end = ends[len(ends) // 5] // NS * NS, ends[len(ends) * 4 // 5] // NS * NS + NS
    aggregates = Reduced(DATA / name, TimeGrid.of(start // NS, end // NS, 1))
    assert aggregates.job.rows == len(found)
    for op, got in aggregates.ops.items():
        mine = [row for row in found if row["op"] == op]
        inside = [row for row in mine if start <= ns(row["end"]) < end and not row["error"]]
        times = sorted(int(row["duration_ns"]) for row in inside)
        assert times
        assert got.latency.n == len(inside)
        assert got.latency.total == sum(times)
        assert got.bytes == sum(int(row["bytes"]) for row in inside)
        assert got.latency.quantile(0.5) == pytest.approx(times[(len(times) + 1) // 2 - 1], rel=0.0005)
        firsts = [ns(row["first_byte"]) - ns(row["start"]) for row in inside if row["first_byte"]]
        assert got.ttfb.n == len(firsts)
        assert got.ttfb.total == sum(firsts)


def test_a_duration_that_cannot_be_is_no_row(tmp_path: Path) -> None:
    got = reduced(tmp_path / "r", [made.row("GET", 1, 0.1).replace("\t100000000\t", "\t1000000000000000000\t")])
    assert (got.job.rows, got.job.bad) == (0, 1)


def test_merging_operations_adds_everything() -> None:
    one, other = OpAggregates(objects=1, bytes=2, busy=3), OpAggregates(objects=10, bytes=20, busy=30, ok_outside=4)
    other.latency.record([5])
    one.merge(other)
    assert (one.objects, one.bytes, one.busy, one.ok_outside, one.latency.n) == (11, 22, 33, 4, 1)
