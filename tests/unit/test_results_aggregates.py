"""Aggregates files: what is read of them is what plain arithmetic makes of the requests, however they were cut."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import aggregates_writer
import archive_builder as made
import pytest
from aggregates_writer import Request
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_plugins.results import aggregates_file
from cbt_plugins.results.aggregates_file import Frame, frames, joined, places
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.requests import job_files
from cbt_plugins.results.requests.error_kinds import error_kind
from cbt_plugins.results.requests.job_aggregates import JobAccumulator, JobAggregates
from cbt_plugins.results.requests.job_files import Read, Task, frames_of_rows, read_jobs
from cbt_plugins.results.requests.time_series import Seconds, TimeGrid, Timeline
from cbt_plugins.results.result_file import Unreadable

T0, NS = made.T0 // 60 * 60, made.NS  # a whole minute
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CBT_ROWS = shutil.which("cbt-rows") or shutil.which(str(CACHE / "cbt-plugins" / "bin" / "cbt-rows"))

requests = st.builds(
    Request,
    op=st.sampled_from(["GET", "PUT", "DELETE", "LIST"]),
    end=st.integers(-3 * NS, 130 * NS).map(lambda ns: T0 * NS + ns) | st.integers(-2, 130).map(lambda s: (T0 + s) * NS),
    duration=st.integers(0, 5 * NS) | st.integers(0, 3000) | st.integers(0, 4).map(lambda s: s * NS),
    size=st.sampled_from([0, 1, 4096, 4097, 70_000]),
    endpoint=st.sampled_from(["http://a", "http://b"]),
    error=st.sampled_from(["", "", "", "http: 503 SlowDown", "cut: the run ended", "timeout: 30 s"]),
    thread=st.integers(0, 3),
    objects=st.integers(1, 3),
    ttfb=st.none() | st.integers(0, 2 * NS),
)
parts = st.lists(st.lists(requests, max_size=12), min_size=1, max_size=5)


def gathered(path: Path, grid: TimeGrid) -> Tuple[JobAggregates, Timeline]:
    return finished(joined(frames(path, places(path)[0])), grid)


def finished(its: Iterable[Optional[Frame]], grid: TimeGrid) -> Tuple[JobAggregates, Timeline]:
    accumulator = JobAccumulator(Timeline(grid))
    for frame in its:
        assert frame is not None
        accumulator.add(frame)
    return accumulator.finish(), accumulator.timeline


def histogram(values: Sequence[int]) -> Histogram:
    its = Histogram()
    its.record(values)
    return its


def check(job: JobAggregates, timeline: Timeline, every: Sequence[Request], grid: TimeGrid) -> None:
    """Everything that a job's aggregates say, against the requests themselves."""
    low, high = (int(grid.start) * NS, int(grid.end) * NS) if grid.snapped else (-(2**62), 2**62)
    assert job.rows == len(every)
    assert job.errors == sum(bool(r.error) for r in every)
    for op in {r.op for r in every}:
        its = [r for r in every if r.op == op]
        inside = [r for r in its if low <= r.end < high]
        good = [r for r in inside if not r.error]
        of = job.ops[op]
        assert of.latency == histogram([r.duration for r in good])
        assert of.failed == histogram([r.duration for r in inside if r.error])
        assert of.ttfb == histogram([r.ttfb for r in good if r.ttfb is not None])
        assert (of.objects, of.bytes) == (sum(r.objects for r in good), sum(r.size for r in good))
        assert (of.ok_outside, of.failed_outside) == (
            sum(not r.error for r in its) - len(good),
            sum(bool(r.error) for r in its) - len(inside) + len(good),
        )
        assert of.cut == sum(error_kind(r.error) == "cut" for r in inside)
        assert of.cut + of.cut_outside == sum(error_kind(r.error) == "cut" for r in its)
        assert of.busy == sum(max(0, min(r.end, high) - max(r.end - r.duration, low)) for r in its)
        assert of.messages == Counter(r.error for r in its if r.error)
        for endpoint in ("http://a", "http://b"):
            at = [r for r in inside if r.endpoint == endpoint]
            found = job.endpoints.get((endpoint, op))
            durations = [r.duration for r in at if not r.error]
            wanted = (len(durations), len(at) - len(durations), sum(durations), max(durations, default=0))
            assert (found is None and not at) or (found and (found.n, found.failed, found.total, found.max) == wanted)
        for size in {r.size.bit_length() for r in good}:
            of_size = [r.duration for r in good if r.size.bit_length() == size]
            assert job.sizes[op, size].latency == histogram(of_size)
        check_timeline(timeline, op, inside, grid)
    for border, n in zip((low, high), job.crossing):
        assert not grid.snapped or n == sum(r.end - r.duration < border <= r.end for r in every)


def check_timeline(timeline: Timeline, op: str, inside: Sequence[Request], grid: TimeGrid) -> None:
    seconds = timeline.seconds.get(op, Seconds(grid))
    quantiles = timeline.blocks[op].quantiles(0.5, 1)[0] if op in timeline.blocks else [None] * grid.block_bins
    for i in range(grid.seconds):
        at = [r for r in inside if r.end // NS == grid.first + i]
        good = [r for r in at if not r.error]
        assert {name: int(column[i]) for name, column in seconds.sums.items() if name != "failed"} == {
            "n": len(good),
            "objects": sum(r.objects for r in good),
            "bytes": sum(r.size for r in good),
            "total": sum(r.duration for r in good),
        }
        assert int(seconds.max[i]) == max((r.duration for r in good), default=0)
        if good:
            assert (int(seconds.first[i]), int(seconds.last[i])) == (min(r.end for r in good), max(r.end for r in good))
    # which seconds of a block have the failures that were cut off is not known
    failures = [r for r in inside if error_kind(r.error) in ("http", "timeout")]
    failed: Counter[int] = Counter(r.end // NS // grid.block for r in failures)
    for i, n in enumerate(seconds.sums["failed"].tolist()):
        failed[(grid.first + i) // grid.block] -= n
    assert not any(failed.values())
    for i, value in enumerate(quantiles):
        begin = grid.first_block + i * grid.block_step
        times = sorted(
            r.duration for r in inside if not r.error and begin <= r.end // NS < begin + grid.block_step
        )
        assert (value is None) == (not times)
        if value is not None:
            assert value == pytest.approx(times[(len(times) + 1) // 2 - 1], rel=0.008, abs=8)
    ends = sorted(r.end for r in inside if not r.error)
    if grid.snapped:
        steps = [int(grid.start) * NS, *ends, int(grid.end) * NS]
        longest = max(b - a for a, b in zip(steps, steps[1:])) / NS
        found = seconds.longest_gap()[0]
        assert found == pytest.approx(longest) or (longest < 1 and found <= longest)


@settings(deadline=None)
@given(parts, st.sampled_from([1, 60]), st.integers(-2, 62), st.integers(0, 130))
def test_aggregates_are_what_plain_arithmetic_says(
    its: List[List[Request]], block: int, begin: int, length: int
) -> None:
    grid = TimeGrid.of(T0 + begin, T0 + begin + length, block)
    with tempfile.TemporaryDirectory() as directory:
        job, timeline = gathered(aggregates_writer.write(Path(directory) / "j.aggregates", its, block), grid)
    every = [r for part in its for r in part]
    check(job, timeline, every, grid)
    assert job.ended
    assert job.last_end == {t: max(r.end for r in every if r.thread == t) for t in {r.thread for r in every}}


@settings(deadline=None, max_examples=30)
@given(parts, st.sampled_from([1, 60]))
def test_rows_give_the_same_as_aggregates(its: List[List[Request]], block: int) -> None:
    grid = TimeGrid.of(T0, T0 + 120, block)
    every = [r for part in its for r in part]
    with tempfile.TemporaryDirectory() as directory:
        rows = Path(directory) / "rows"
        rows.write_text(made.HEADER + "".join(map(line, every)))
        job, timeline = finished(frames_of_rows(rows, 0.0, block), grid)
    every = [r._replace(objects=1 if r.op == "LIST" else r.objects) for r in every]
    check(job, timeline, every, grid)


def line(r: Request) -> str:
    """The request as a row."""
    return made.row(
        r.op,
        (r.end - made.T0 * NS) / NS,
        r.duration / NS,
        size=r.size,
        thread=r.thread,
        first=None if r.ttfb is None else r.ttfb / NS,
        error=r.error,
        endpoint=r.endpoint,
        objects=r.objects,
    )


@settings(deadline=None)
@given(parts, st.integers(-2, 62), st.integers(0, 130))
def test_a_window_of_everything_takes_every_block(its: List[List[Request]], begin: int, length: int) -> None:
    grid = TimeGrid.of(T0 + begin + 0.25, T0 + begin + length + 0.5, 60, everything=True)
    assert (grid.start, grid.end) == (T0 + begin + 0.25, T0 + begin + length + 0.5)
    with tempfile.TemporaryDirectory() as directory:
        job, timeline = gathered(aggregates_writer.write(Path(directory) / "j.aggregates", its, 60), grid)
    for op, of in job.ops.items():
        good = [r for part in its for r in part if r.op == op and not r.error]
        assert of.latency == histogram([r.duration for r in good])
        assert (of.ok_outside, of.failed_outside) == (0, 0)
        assert not good or int(timeline.seconds[op].sums["n"].sum()) == len(good)


def test_windows_are_made_smaller_to_whole_blocks() -> None:
    grid = TimeGrid.of(T0 + 0.25, T0 + 190.5, 60)
    assert (grid.start, grid.end, grid.seconds, grid.block_bins) == (T0 + 60, T0 + 180, 120, 2)
    assert TimeGrid.of(T0 + 1, T0 + 50, 60).length == 0
    assert TimeGrid.of(T0, T0 + 60, 60, everything=True).snapped


# --- what kills and damages leave


def steady(n: int = 40) -> List[List[Request]]:
    """Frames of ten requests a second each."""
    return [
        [Request("GET", (T0 + s) * NS + i * NS // 10, 10**7 + i, size=10, thread=i % 2) for i in range(10)]
        for s in range(n // 10)
    ]


def phase_of(path: Path, **job: Any) -> ArchivedPhase:
    about: Dict[str, Any] = dict.fromkeys(("kind", "role", "status", "name", "engine"), "x")
    one = ArchivedJob("j", "d", "n", "GET", 1, 0.0, job.pop("rows", None), 0.0, aggregates=path, **job)
    return ArchivedPhase(
        path.parent, 1, window=(T0, T0 + 10.0), duration=10.0, mix={}, load={}, block=1, jobs=(one,), accounting=(),
        warnings=(), **about,
    )  # fmt: skip


def read(path: Path, **job: Any) -> Read:
    phase = phase_of(path, **job)
    return next(read_jobs([(phase, TimeGrid.of(*phase.window, 1))]))


def test_cut_anywhere_the_complete_frames_count(tmp_path: Path) -> None:
    path = aggregates_writer.write(tmp_path / "j.aggregates", steady())
    data = path.read_bytes()
    lengths = [length for _, length in places(path)[0]]
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    near = {end + i for end in ends for i in (-1, 0, 4)}
    for cut in sorted({*range(5, len(data), 11), *near} & set(range(5, len(data)))):
        path.write_bytes(data[:cut])
        found = read(path).jobs["j"]
        assert found.rows == 10 * min(4, sum(end <= cut for end in ends)), cut
        assert found.torn == ("its aggregates have no end" if cut in ends else "its last frame is torn")
    path.write_bytes(data)
    assert read(path).jobs["j"].torn is None


def test_a_damaged_frame_takes_no_other_with_it(tmp_path: Path) -> None:
    path = aggregates_writer.write(tmp_path / "j.aggregates", steady())
    data = bytearray(path.read_bytes())
    at, length = places(path)[0][1]
    for byte in (at + length // 2, at + 11):  # in its payload, in its checksum
        path.write_bytes(data[:byte] + bytes([data[byte] ^ 255]) + data[byte + 1 :])
        found = read(path).jobs["j"]
        assert (found.rows, found.torn) == (30, "1 frames of its aggregates are damaged")


@pytest.mark.parametrize("which", ["zlib", "isal.isal_zlib"])
def test_both_ways_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    monkeypatch.setattr(aggregates_file, "inflate", pytest.importorskip(which))
    path = aggregates_writer.write(tmp_path / "j.aggregates", steady())
    assert read(path).jobs["j"].rows == 40
    at, _ = places(path)[0][1]
    data = path.read_bytes()
    bad = bytearray(data[at + 14 : at + places(path)[0][1][1]])
    bad[20] ^= 255
    head = struct.pack("<4sBBII", b"CBTF", 2, 1, len(bad), zlib.crc32(bad))  # damaged before it was written
    path.write_bytes(data[:at] + head + bytes(bad) + data[at + 14 + len(bad) :])
    assert read(path).jobs["j"].damaged == 1


@pytest.mark.parametrize("columns", [aggregates_writer.HISTOGRAM, aggregates_writer.OF_BUCKETS])
def test_buckets_of_both_versions_are_the_same(tmp_path: Path, columns: List[List[str]]) -> None:
    names = {"ops": ["GET"], "endpoints": ["a"], "errors": []}
    groups = [[T0 + i, 0, 0, 0, 13, 2, 0, 2, 8192, 9, 4, 5] + [0] * 7 for i in range(2)]
    buckets = [[0, 7, 1], [0, 50_000, 1], [1, 3, 1], [1, 40_000, 1]]  # the third step is negative
    steps = [[0, 7, 1], [0, 49_993, 1], [1, 65536 - 49_997, 1], [1, 39_997, 1]]
    rows = steps if columns == aggregates_writer.HISTOGRAM else buckets
    tables = {"counts": (aggregates_writer.COUNTS, groups), "latency": (columns, rows)}
    path = tmp_path / "f"
    path.write_bytes(aggregates_writer.frame("counts", 1, names, tables))
    (frame,) = frames(path, places(path)[0])
    assert frame is not None and frame.table("latency")["bucket"].tolist() == [7, 50_000, 3, 40_000]


def test_a_frame_that_points_nowhere_is_damaged(tmp_path: Path) -> None:
    names = {"ops": ["GET"], "endpoints": ["a"], "errors": []}
    group = [T0, 0, 0, 0, 13, 1, 0, 1, 4096, 5, 5, 5] + [0] * 7
    good = {"counts": (aggregates_writer.COUNTS, [group]), "latency": (aggregates_writer.HISTOGRAM, [[0, 5, 1]])}
    bad_values = (("counts", 2, 1), ("counts", 3, 1), ("latency", 0, 1), ("latency", 1, 60_000), ("", 0, 0))
    for table, column, value in bad_values:
        bad = {name: (columns, [list(rows[0])]) for name, (columns, rows) in good.items()}
        if table:
            bad[table][1][0][column] = value
        data = aggregates_writer.frame("counts", 1, names, bad) + aggregates_writer.end_frame([])
        (tmp_path / "f").write_bytes(data)
        found = read(tmp_path / "f").jobs["j"]
        assert (found.damaged, found.rows) == ((1, 0) if table else (0, 1))


def test_nothing_that_was_written_yet_is_torn(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    assert read(tmp_path / "f").jobs["j"].torn == "its aggregates have no end"


def test_bytes_behind_the_frames_are_named(tmp_path: Path) -> None:
    path = aggregates_writer.write(tmp_path / "j.aggregates", steady(), end=False)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    found = read(path).jobs["j"]
    assert (found.rows, found.torn) == (40, f"there is no frame at byte {size}")


def test_what_the_end_frame_says(tmp_path: Path) -> None:
    path = aggregates_writer.write(tmp_path / "f", steady(), bad=3, torn="the last line has no end")
    found = read(path).jobs["j"]
    assert (found.bad, found.torn) == (3, "the last line has no end")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for data, why in (
        (b"idx\tthread\n", "no aggregates file"),
        (struct.pack("<4sBBII", b"CBTF", 4, 1, 0, 0), "version 4, compression 1; this program reads 3 and 1"),
        (struct.pack("<4sBBII", b"CBTF", 1, 1, 0, 0), "written by an older version of cbt-rows (file format 1)"),
        (bits(12), "histograms of 12 significant bits"),
    ):
        path.write_bytes(data)
        assert why in read(path).unreadable["j"]
    with pytest.raises(Unreadable, match="No such file"):
        places(tmp_path / "gone")


def bits(n: int) -> bytes:
    """An end frame of another resolution."""
    data = aggregates_writer.end_frame([])
    payload = zlib.decompress(data[14:]).replace(b'"bits": 11', f'"bits": {n}'.encode())
    packed = zlib.compress(payload)
    return struct.pack("<4sBBII", b"CBTF", 2, 1, len(packed), zlib.crc32(packed)) + packed


def test_rows_take_the_place_of_aggregates_that_cannot_be_read(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text(made.HEADER + "".join(line(r) for part in steady() for r in part))
    found = read(tmp_path / "gone", rows=rows)
    assert (found.jobs["j"].rows, found.from_rows, found.unreadable) == (40, {"j": "No such file or directory"}, {})


def test_aggregates_come_before_rows(tmp_path: Path) -> None:
    path = aggregates_writer.write(tmp_path / "f", steady())
    assert read(path, rows=tmp_path / "gone").jobs["j"].rows == 40


def test_the_same_in_many_tasks_and_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = aggregates_writer.write(tmp_path / "f", steady(100))
    used: List[Task] = []
    lots = job_files.lots_of
    monkeypatch.setattr(job_files, "MANY", 0)
    monkeypatch.setattr(job_files, "TASK_BYTES", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(job_files, "lots_of", lambda tasks, *more: used.extend(tasks) or lots(tasks, *more))
    found = read(path)
    assert len(used) == 11
    check(found.jobs["j"], found.timeline, [r for part in steady(100) for r in part], TimeGrid.of(T0, T0 + 10, 1))


def test_rows_in_place_of_aggregates_take_longer(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("x" * 1000)
    good = aggregates_writer.write(tmp_path / "f", steady())
    (tmp_path / "bad").write_text("no aggregates")
    weights = [job_files.weight_of(phase_of(path, rows=rows)) for path in (good, tmp_path / "bad", tmp_path / "gone")]
    assert weights == [good.stat().st_size, 4000, 4000]


def test_a_process_gets_neighbouring_tasks() -> None:
    """The parts of a job that two processes read have to be merged."""
    tasks = [Task(job, Path(job), where=(), weight=job_files.MANY) for job in "abcde" for _ in range(3)]
    first, second = ([task.job for task in lot] for lot, _ in job_files.lots_of(tasks, TimeGrid.of(0, 10, 1), 2))
    assert (first, second) == (list("aaabbbc"), list("ccdddeee"))


def test_jobs_are_read_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of a job takes megabytes until its sums are made, and there may be 1000 jobs."""
    begun: List[JobAccumulator] = []

    class Alone(JobAccumulator):
        def __init__(self, timeline: Timeline) -> None:
            assert not begun, "another job is not finished"
            begun.append(self)
            super().__init__(timeline)

        def finish(self) -> JobAggregates:
            begun.remove(self)
            return super().finish()

    path = aggregates_writer.write(tmp_path / "f", steady())
    halves = [places(path)[0][:2], places(path)[0][2:]]
    tasks = [Task(job, path, where=half) for half in halves for job in ("a", "b", "c")]
    monkeypatch.setattr(job_files, "JobAccumulator", Alone)
    (lot,) = job_files.lots_of(tasks, TimeGrid.of(T0, T0 + 10, 1), 1)
    results, _ = job_files.read_lot(lot)
    jobs = {name: job for name, job in results if isinstance(job, JobAggregates)}
    assert {name: (job.rows, job.ended) for name, job in jobs.items()} == dict.fromkeys("abc", (40, True))
