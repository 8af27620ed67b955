"""The figures of all jobs of a phase, read with all processors when there is much to read."""

from __future__ import annotations

import concurrent.futures
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from cbt_plugins.analysis.archive import Job, Phase
from cbt_plugins.analysis.figures import Frame, frames, places
from cbt_plugins.analysis.job import Gatherer, JobFigures
from cbt_plugins.analysis.reduce import frames_of_rows
from cbt_plugins.analysis.series import Grid, Timeline
from cbt_plugins.analysis.source import Unreadable

#: bytes of files from which on other processes are worth their start
_MANY = 4 << 20
#: bytes of a figures file that are one task
_TASK = 32 << 20


@dataclass(frozen=True)
class Task:
    """A rows file, or some frames of a figures file."""

    job: str
    path: Path
    grid: Grid
    offset: float = 0.0
    where: Optional[Sequence[Tuple[int, int]]] = None  # offsets and lengths of the frames; None: it is a rows file
    weight: int = 0

    def frames(self) -> Iterable[Optional[Frame]]:
        if self.where is None:
            return frames_of_rows(self.path, self.offset, self.grid.block)
        return frames(self.path, self.where)


@dataclass
class Read:
    """What was read of a phase."""

    jobs: Dict[str, JobFigures] = field(default_factory=dict)  # by job id; a job without anything readable has none
    timeline: Optional[Timeline] = None
    unreadable: Dict[str, str] = field(default_factory=dict)  # job id -> why
    doubts: Dict[str, str] = field(default_factory=dict)  # job id -> why its figures were not used


def read_jobs(phase: Phase, grid: Grid) -> Read:
    """Read every job's figures, or its rows where there are none."""
    made = Read(timeline=Timeline(grid))
    tasks: List[Task] = []
    torn: Dict[str, str] = {}
    for job in phase.jobs:
        tasks += _tasks(job, grid, made, torn)
    for task, result in zip(tasks, _results(tasks)):
        if isinstance(result, str):
            made.unreadable[task.job] = result
            continue
        figures, timeline = result
        made.jobs.setdefault(task.job, JobFigures()).merge(figures)
        assert made.timeline is not None
        made.timeline.merge(timeline)
    for job_id, figures in made.jobs.items():
        if figures.damaged:
            figures.torn = f"{figures.damaged} frames of its figures are damaged"
        elif not figures.ended:
            figures.torn = torn.get(job_id) or "its figures have no end"
    return made


def _tasks(job: Job, grid: Grid, made: Read, torn: Dict[str, str]) -> List[Task]:
    """Several tasks for long files; notes why there are none."""
    if job.figures is not None:
        try:
            found, why = places(job.figures)
        except Unreadable as e:
            why = str(e).replace(f"{job.figures}: ", "")
            if job.rows is None:
                made.unreadable[job.id] = why
                return []
            made.doubts[job.id] = why
        else:
            torn.update({job.id: why} if why else {})
            return [_part(job, grid, part) for part in _parts(found)] or [_part(job, grid, [])]
    if job.rows is None:
        made.unreadable[job.id] = "no figures file, and no rows"
        return []
    weight = job.rows.stat().st_size if job.rows.exists() else 0
    return [Task(job.id, job.rows, grid, job.clock_offset, weight=weight)]


def _part(job: Job, grid: Grid, where: Sequence[Tuple[int, int]]) -> Task:
    assert job.figures is not None
    return Task(job.id, job.figures, grid, where=where, weight=sum(length for _, length in where))


def _parts(found: Sequence[Tuple[int, int]]) -> Iterator[Sequence[Tuple[int, int]]]:
    begin = size = 0
    for i, (_, length) in enumerate(found):
        size += length
        if size >= _TASK:
            yield found[begin : i + 1]
            begin, size = i + 1, 0
    if begin < len(found):
        yield found[begin:]


Result = Union[Tuple[JobFigures, Timeline], str]


def _results(tasks: Sequence[Task]) -> Iterator[Result]:
    """One for each task, in their order, as they come: the timelines of all tasks together may be large."""
    workers = min(len(tasks), os.cpu_count() or 1)
    if sum(task.weight for task in tasks) <= _MANY or workers <= 1:
        yield from map(_try, tasks)
        return
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_try, tasks)


def _try(task: Task) -> Result:
    """What the task's frames say, or the text that says why not: an exception of a worker process would end all."""
    gatherer = Gatherer(task.grid)
    try:
        for frame in task.frames():
            if frame is None:
                gatherer.damaged()
            else:
                gatherer.add(frame)
    except Unreadable as e:
        return str(e).replace(f"{task.path}: ", "")
    return gatherer.finish(), gatherer.timeline
