"""The aggregates of phases, read from the files of their jobs, now or while their run went on."""

from __future__ import annotations

from typing import Iterator, Sequence

from cbt_plugins.results.archive import ArchivedPhase
from cbt_plugins.results.requests import early_reads
from cbt_plugins.results.requests.job_files import read_here, read_jobs
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates


def read_phase(phase: ArchivedPhase) -> PhaseAggregates:
    """Read what all jobs left."""
    return next(read_phases([phase]))


def read_phases(phases: Sequence[ArchivedPhase]) -> Iterator[PhaseAggregates]:
    """Read phase by phase; long phases while the caller works on the ones before."""
    grids = [early_reads.phase_grid(phase) for phase in phases]
    places = [early_reads.place_of(phase, grid) for phase, grid in zip(phases, grids)]
    others = read_jobs([(phase, grid) for phase, grid, place in zip(phases, grids, places) if place is None])
    for phase, grid, place in zip(phases, grids, places):
        read = next(others) if place is None else early_reads.load(place) or read_here(phase, grid)
        yield PhaseAggregates(
            phase, grid, read.jobs, read.timeline, read.unreadable, read.from_rows, over_time=read.over_time
        )
