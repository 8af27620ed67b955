"""The files of a phase's jobs: their aggregates, or rows that cbt-rows reduces as it does during a run.

All processors read when there is much to read."""

from __future__ import annotations

import subprocess
import tempfile
from collections import deque
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from cbt_plugins.archive_files import open_regular
from cbt_plugins.checksums import row_change
from cbt_plugins.programs import own_program
from cbt_plugins.results.aggregates_file import Frame, frames, is_aggregates, joined, places
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase
from cbt_plugins.results.requests.job_aggregates import JobAccumulator, JobAggregates
from cbt_plugins.results.requests.over_time import over_time
from cbt_plugins.results.requests.time_series import TimeGrid, Timeline
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.worker_processes import most_workers, worker_processes

#: exit status of cbt-rows when a part of its input could not be read
_UNREAD = 4


class NotBuilt(Unreadable):
    """cbt-rows is missing here: no rows at all can be read."""


class Client(NamedTuple):
    """The rows of one of warp's clients ("" where they name none)."""

    name: str
    frames: List[Frame]


class Reduced(NamedTuple):
    """The content of a rows file."""

    clients: List[Client]
    bad: int  # lines that are not rows
    torn: Optional[str]  # why the end is missing
    command: str  # that made them, where warp says so; "" otherwise


def frames_of_rows(path: Path, offset: float, block: int) -> Iterator[Optional[Frame]]:
    """Yield the frames of one rows file; the last one is an end frame. Raises Unreadable.

    `offset` is the clock of the rows' node minus the run's, in seconds; `block` the resolution in seconds.
    """
    with _reduced(path, f"--offset={offset!r}", f"--block={block}") as reduced_file:
        yield from frames(reduced_file, places(reduced_file)[0])


def by_client(path: Path) -> Reduced:
    """Return a rows file by the second and by warp's clients, whose clocks are taken to agree.

    Raises Unreadable.
    """
    every = [frame for frame in frames_of_rows(path, 0.0, 1) if frame]
    totals: Mapping[str, Any] = every[-1].totals[0]
    names = totals.get("clients") or [""]
    clients = []
    for name in names if len(names) > 1 else ():
        with _reduced(path, f"--client={name}") as reduced_file:
            clients.append(Client(name, _counted(frames(reduced_file, places(reduced_file)[0]))))
    clients = clients or [Client(names[0], _counted(every))]
    active_clients = [client for client in clients if client.frames]
    return Reduced(active_clients, int(totals["bad"]), totals["torn"], totals.get("command", ""))


def _counted(all_frames: Any) -> List[Frame]:
    """Return the frames that count requests."""
    return [frame for frame in all_frames if frame and not frame.ends]


@contextmanager
def _reduced(path: Path, *options: str) -> Iterator[Path]:
    """Have cbt-rows make an aggregates file of a rows file, for as long as it is used. Raises Unreadable."""
    program = own_program("cbt-rows")
    if program is None:
        raise NotBuilt("cbt-rows is not built: run `cbt-tools build cbt-rows`")
    try:
        open_regular(path).close()
    except OSError as e:
        raise Unreadable(f"{path}: {e.strerror or e}") from e
    change = row_change(path)
    if change:
        raise Unreadable(f"{path}: {change}")
    with tempfile.TemporaryDirectory(prefix="cbt-rows-") as scratch:
        reduced_file = Path(scratch) / "rows.aggregates"
        argv = [str(program), "reduce", *options, "-o", str(reduced_file), str(path)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = lines[0] if lines else f"exit status {done.returncode}"
            text = why.replace(f"cbt-rows: cannot read {path}: ", "").replace(f"open {path}: ", "")
            raise Unreadable(f"{path}: {text}" if done.returncode == _UNREAD else f"{path}: {why}")
        yield reduced_file


#: bytes of aggregates (Task.weight) from which on other processes are worth their start
MANY = 4 << 20
#: a byte of rows takes as long as so many of aggregates
_ROWS = 4
#: parts of a run's aggregates, for each process: a phase that has more of them than one is read by several processes
_PARTS = 2
#: bytes of an aggregates file that are at least one task
TASK_BYTES = 1 << 20


@dataclass(frozen=True)
class Task:
    """A rows file, or some frames of an aggregates file."""

    job: str
    path: Path
    offset: float = 0.0
    where: Optional[Sequence[Tuple[int, int]]] = None  # offsets and lengths of the frames; None: it is a rows file
    weight: int = 0

    def frames(self, block: int) -> Iterable[Optional[Frame]]:
        if self.where is None:
            return frames_of_rows(self.path, self.offset, block)
        return joined(frames(self.path, self.where))


class JobTasks(NamedTuple):
    """The tasks of a job, in the order of time; several for a long file."""

    tasks: List[Task]
    torn: Optional[str] = None  # why the aggregates have no end
    from_rows: Optional[str] = None  # why they are not used


@dataclass
class Read:
    """The aggregates of a phase's jobs."""

    timeline: Timeline
    jobs: Dict[str, JobAggregates] = field(default_factory=dict)  # by job id; a job without anything readable has none
    unreadable: Dict[str, str] = field(default_factory=dict)  # job id -> why
    from_rows: Dict[str, str] = field(default_factory=dict)  # job id -> why its aggregates were not used
    over_time: Dict[str, Any] = field(default_factory=dict)  # see over_time.py


def tasks_of(job: ArchivedJob) -> JobTasks:
    """Return the tasks that read a job's files. Raises Unreadable, whose text does not name the file."""
    unused = None
    if job.aggregates is not None:
        try:
            frame_places, torn = places(job.aggregates)
            tasks = [
                Task(job.id, job.aggregates, where=part, weight=sum(length for _, length in part))
                for part in _parts(frame_places)
            ]
            return JobTasks(tasks, torn)
        except Unreadable as e:
            unused = str(e).replace(f"{job.aggregates}: ", "")
            if job.rows is None:
                raise Unreadable(unused) from e
    if job.rows is None:
        raise Unreadable("no aggregates file, and no rows")
    weight = _ROWS * job.rows.stat().st_size if job.rows.exists() else 0
    return JobTasks([Task(job.id, job.rows, job.clock_offset, weight=weight)], from_rows=unused)


def _parts(frame_places: Sequence[Tuple[int, int]]) -> Iterator[Sequence[Tuple[int, int]]]:
    """Yield the parts of the frames, one at least: no frames are aggregates too."""
    begin = size = 0
    for i, (_, length) in enumerate(frame_places):
        size += length
        if size >= TASK_BYTES:
            yield frame_places[begin : i + 1]
            begin, size = i + 1, 0
    if begin < len(frame_places) or not frame_places:
        yield frame_places[begin:]


Results = List[Tuple[str, Union[JobAggregates, str]]]


def weight_of(phase: ArchivedPhase) -> int:
    """Return how long the files of a phase's jobs take to read, as bytes of aggregates."""
    weight = 0
    for job in phase.jobs:
        path, factor = (job.aggregates, 1) if is_aggregates(job.aggregates) else (job.rows, _ROWS)
        with suppress(OSError):
            weight += factor * path.stat().st_size if path is not None else 0
    return weight


def read_jobs(phases: Sequence[Tuple[ArchivedPhase, TimeGrid]]) -> Iterator[Read]:
    """Yield the aggregates of every job of each phase, from its rows where there are none.

    Long phases are read by other processes while the caller works on the ones before: each by one process, so that
    nothing has to be merged, unless it is a large part of the run.
    """
    weights = [weight_of(phase) for phase, _ in phases]
    most = most_workers()
    with worker_processes(most) as pool:
        begun: Deque[Callable[[], Read]] = deque()
        for (phase, grid), weight in zip(phases, weights):
            processes = min(most, max(1, round(_PARTS * most * weight / sum(weights)))) if weight > MANY else 0
            begun.append(_begin(phase, grid, processes if most > 1 else 0, pool))
            if len(begun) > most:
                yield begun.popleft()()
        while begun:
            yield begun.popleft()()


def _begin(phase: ArchivedPhase, grid: TimeGrid, processes: int, pool: Executor) -> Callable[[], Read]:
    """Begin to read a phase with so many processes; return what gives the result. With none, it is read then."""
    if processes > 1:
        to_read = _ToRead.of(phase, grid)
        begun = pool.map(read_lot, lots_of(to_read.tasks, grid, processes))
        return lambda: to_read.sum(begun)
    return pool.submit(read_here, phase, grid).result if processes else partial(read_here, phase, grid)


def read_here(phase: ArchivedPhase, grid: TimeGrid) -> Read:
    """Read the jobs of a phase in this process."""
    to_read = _ToRead.of(phase, grid)
    return to_read.sum([read_lot((to_read.tasks, grid))])


def lots_of(tasks: Sequence[Task], grid: TimeGrid, number: int) -> List[Tuple[List[Task], TimeGrid]]:
    """Return so many lots of tasks at most: a timeline of each one has to be merged, which is large."""
    total = sum(task.weight for task in tasks)
    # neighbours together: each job that is in two lots is merged too
    lots: List[List[Task]] = [[] for _ in range(number)]
    begin = 0
    for task in tasks:
        lots[min(number - 1, int((begin + task.weight / 2) * number / max(1, total)))].append(task)
        begin += task.weight
    return [(lot, grid) for lot in lots if lot]


@dataclass
class _ToRead:
    """What is to be read of a phase, and what cannot be read."""

    phase: ArchivedPhase
    grid: TimeGrid
    tasks: List[Task] = field(default_factory=list)
    torn: Dict[str, str] = field(default_factory=dict)  # job id -> why its aggregates have no end
    unreadable: Dict[str, str] = field(default_factory=dict)
    from_rows: Dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, phase: ArchivedPhase, grid: TimeGrid) -> _ToRead:
        to_read = cls(phase, grid)
        for job in phase.jobs:
            try:
                job_tasks = tasks_of(job)
            except Unreadable as e:
                to_read.unreadable[job.id] = str(e)
                continue
            to_read.tasks += job_tasks.tasks
            to_read.torn.update({job.id: job_tasks.torn} if job_tasks.torn else {})
            to_read.from_rows.update({job.id: job_tasks.from_rows} if job_tasks.from_rows else {})
        return to_read

    def sum(self, lots: Iterable[Tuple[Results, Timeline]]) -> Read:
        """Return the sum of what was read of the tasks."""
        read = Read(Timeline(self.grid), unreadable=self.unreadable, from_rows=self.from_rows)
        for results, timeline in lots:
            read.timeline.merge(timeline)
            for job_id, aggregates_or_error in results:
                if isinstance(aggregates_or_error, str):
                    read.unreadable[job_id] = aggregates_or_error
                else:
                    read.jobs.setdefault(job_id, JobAggregates()).merge(aggregates_or_error)
        read.timeline.pack()
        read.over_time = over_time(self.phase, read.timeline)
        for job_id, aggregates in read.jobs.items():
            if aggregates.damaged:
                aggregates.torn = f"{aggregates.damaged} frames of its aggregates are damaged"
            elif not aggregates.ended:
                aggregates.torn = self.torn.get(job_id) or "its aggregates have no end"
        return read


def read_lot(work: Tuple[Sequence[Task], TimeGrid]) -> Tuple[Results, Timeline]:
    """Return the sums of the frames of these tasks."""
    tasks, grid = work
    timeline = Timeline(grid)
    tasks_of_job: Dict[str, List[Task]] = {}
    for task in tasks:
        tasks_of_job.setdefault(task.job, []).append(task)
    results: Results = []
    for job, job_tasks in tasks_of_job.items():  # one after the other: a job that is read takes megabytes
        accumulator = JobAccumulator(timeline)
        errors: List[str] = []
        for task in job_tasks:
            try:
                for frame in task.frames(grid.block):
                    if frame is None:
                        accumulator.damaged()
                    else:
                        accumulator.add(frame)
            except NotBuilt:
                raise
            except Unreadable as e:  # not raised: an exception of a worker process would end all of them
                errors.append(str(e).replace(f"{task.path}: ", ""))
        results.append((job, errors[-1] if errors else accumulator.finish()))
    return results, timeline
