"""The aggregates of all jobs of a phase, read with all processors when there is much to read."""

from __future__ import annotations

import concurrent.futures
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from cbt_plugins.results.aggregates import Frame, frames, joined, places
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase
from cbt_plugins.results.job import Gatherer, JobAggregates
from cbt_plugins.results.rows import NotBuilt, frames_of_rows
from cbt_plugins.results.series import TimeGrid, Timeline
from cbt_plugins.results.source import Unreadable

#: bytes of files from which on other processes are worth their start
_MANY = 4 << 20
#: a byte of rows takes as long as so many of aggregates
_ROWS = 4
#: bytes of an aggregates file that are at least one task
_TASK = 1 << 20


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


@dataclass
class Read:
    """What was read of a phase."""

    timeline: Timeline
    jobs: Dict[str, JobAggregates] = field(default_factory=dict)  # by job id; a job without anything readable has none
    unreadable: Dict[str, str] = field(default_factory=dict)  # job id -> why
    doubts: Dict[str, str] = field(default_factory=dict)  # job id -> why its aggregates were not used


def read_jobs(phase: ArchivedPhase, grid: TimeGrid) -> Read:
    """Read every job's aggregates, or its rows where there are none."""
    made = Read(Timeline(grid))
    torn: Dict[str, str] = {}
    tasks = [task for job in phase.jobs for task in _tasks(job, grid, made, torn)]
    for results, timeline in _lots(tasks, grid):
        made.timeline.merge(timeline)
        for job_id, its in results:
            if isinstance(its, str):
                made.unreadable[job_id] = its
            else:
                made.jobs.setdefault(job_id, JobAggregates()).merge(its)
    for job_id, aggregates in made.jobs.items():
        if aggregates.damaged:
            aggregates.torn = f"{aggregates.damaged} frames of its aggregates are damaged"
        elif not aggregates.ended:
            aggregates.torn = torn.get(job_id) or "its aggregates have no end"
    return made


def _tasks(job: ArchivedJob, grid: TimeGrid, made: Read, torn: Dict[str, str]) -> Iterator[Task]:
    """Several tasks for long files; notes why there are none."""
    if job.aggregates is not None:
        try:
            found, why = places(job.aggregates)
        except Unreadable as e:
            why = str(e).replace(f"{job.aggregates}: ", "")
            if job.rows is None:
                made.unreadable[job.id] = why
                return
            made.doubts[job.id] = why
        else:
            torn.update({job.id: why} if why else {})
            for part in _parts(found):
                yield Task(job.id, job.aggregates, where=part, weight=sum(length for _, length in part))
            return
    if job.rows is None:
        made.unreadable[job.id] = "no aggregates file, and no rows"
        return
    weight = _ROWS * job.rows.stat().st_size if job.rows.exists() else 0
    yield Task(job.id, job.rows, job.clock_offset, weight=weight)


def _parts(found: Sequence[Tuple[int, int]]) -> Iterator[Sequence[Tuple[int, int]]]:
    """One part at least: no frames are aggregates too."""
    begin = size = 0
    for i, (_, length) in enumerate(found):
        size += length
        if size >= _TASK:
            yield found[begin : i + 1]
            begin, size = i + 1, 0
    if begin < len(found) or not found:
        yield found[begin:]


Results = List[Tuple[str, Union[JobAggregates, str]]]


def _lots(tasks: Sequence[Task], grid: TimeGrid) -> Iterator[Tuple[Results, Timeline]]:
    """The results of all tasks, a lot for each process: a timeline is large, so that there should be few."""
    workers = min(len(tasks), os.cpu_count() or 1)
    if sum(task.weight for task in tasks) <= _MANY or workers <= 1:
        yield _lot((tasks, grid))
        return
    lots: List[List[Task]] = [[] for _ in range(workers)]
    weights = [0] * workers
    for task in sorted(tasks, key=lambda task: -task.weight):
        lightest = weights.index(min(weights))
        lots[lightest].append(task)
        weights[lightest] += task.weight
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_lot, [(lot, grid) for lot in lots])


def _lot(work: Tuple[Sequence[Task], TimeGrid]) -> Tuple[Results, Timeline]:
    """What the frames of these tasks say."""
    tasks, grid = work
    timeline = Timeline(grid)
    gatherers: Dict[str, Gatherer] = {}
    faults: Results = []
    for task in tasks:
        gatherer = gatherers.setdefault(task.job, Gatherer(timeline))
        try:
            for frame in task.frames(grid.block):
                if frame is None:
                    gatherer.damaged()
                else:
                    gatherer.add(frame)
        except NotBuilt:
            raise
        except Unreadable as e:  # not raised: an exception of a worker process would end all of them
            faults.append((task.job, str(e).replace(f"{task.path}: ", "")))
    whole = [job for job in gatherers if job not in dict(faults)]
    return [*faults, *((job, gatherers[job].finish()) for job in whole)], timeline
