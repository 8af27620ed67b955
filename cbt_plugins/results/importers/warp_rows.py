"""Request rows alone (warp's .csv.zst, its --stdout stream, rows that cbt-rows kept), in no archive of ours.

The same reduction as of an archive's rows: exact counts, merged histograms. Several clients, in one file or in several,
are cut to the whole seconds in which all of them ran.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from cbt_plugins.results import phase as of_phase
from cbt_plugins.results.aggregates import Frame
from cbt_plugins.results.archive import ArchivedPhase
from cbt_plugins.results.importers.importer import Importer, ResultFiles
from cbt_plugins.results.importers.warp import PHASE, of_command
from cbt_plugins.results.job import Gatherer, JobAggregates
from cbt_plugins.results.job_files import by_client
from cbt_plugins.results.record import ResultWarning, RunRecord, measurements
from cbt_plugins.results.series import TimeGrid, Timeline
from cbt_plugins.results.source import Unreadable

_ROW = re.compile(r"\d+\t\d+\t[A-Z_]+\t")


class RequestRows(Importer):
    """Request rows: all files are those of the clients of one run."""

    kind = "rows"

    def claims(self, head: str) -> bool:
        return head.startswith("idx\tthread\top\t") or bool(_ROW.match(head))

    def read(self, found: ResultFiles) -> List[RunRecord]:
        return [read(found.files)]


def read(paths: Sequence[Path]) -> RunRecord:
    """Return one record of the files of all clients of one run. Raises Unreadable."""
    clients: Dict[str, List[Frame]] = {}
    warnings: List[ResultWarning] = []
    command = ""
    for number, path in enumerate(paths):
        found = by_client(path)
        command = command or found.command
        clients.update({f"{number} {client.name}": client.frames for client in found.clients})
        if found.torn:
            warnings.append(ResultWarning("torn-rows", f"{path.name}: its end is missing: {found.torn}"))
        if found.bad:
            warnings.append(ResultWarning("bad-rows", f"{path.name}: {found.bad} lines are no rows"))
    spans = [_span(frames) for frames in clients.values()]
    if not spans:
        raise Unreadable(f"{paths[0]}: no request in it")
    start, end = max(low for low, _ in spans), min(high for _, high in spans)
    longest = max(high - low for low, high in spans)
    if len(spans) > 1 and end - start < 0.95 * longest:
        together = max(0, end - start)
        text = f"its {len(spans)} clients ran together for {together} of up to {longest} s, which is what counts"
        warnings.append(ResultWarning("common-window", text))
    if end <= start:
        what = "clients never ran together" if len(spans) > 1 else "requests do not fill one second"
        warnings.append(ResultWarning("no-window", f"its {what}: there are no rates"))
    made = _aggregates(clients, TimeGrid.of(start, end, 1))
    seconds = of_phase.by_op(made)
    line = {
        "name": PHASE,
        "role": "none",
        "window": {"start": made.grid.start, "end": made.grid.end},
        "ops": seconds,
        "total": of_phase.numbers(None, of_phase.total(made.ops.values()), made.length),
        "series": of_phase.series(made),
    }
    for op, its in seconds.items():
        if its["errors"]:
            kinds = ", ".join(f"{kind['count']} x {kind['text'][:60]}" for kind in its["error_kinds"])
            warnings.append(ResultWarning("errors", f"{op}: {its['errors']} requests failed: {kinds}"))
    config = {"benchmark": "warp", "engine": "warp", **dict(of_command(command))}
    return RunRecord(
        source=str(paths[0]),
        name=paths[0].name,
        kind="warp",
        config=config,
        measurements=tuple(measurements({"phases": [line], "failure": None})) if end > start else (),
        usable=end > start,
        warnings=tuple(warnings),
        started=float(min(low for low, _ in spans)),
    )


def _span(frames: Sequence[Frame]) -> Tuple[int, int]:
    """The whole seconds of those in which a client had requests in flight."""
    seconds = [frame.table("seconds")["second"] for frame in frames]
    low, high = min(int(its.min()) for its in seconds if len(its)), max(int(its.max()) for its in seconds if len(its))
    return low + 1, high


def _aggregates(clients: Dict[str, List[Frame]], grid: TimeGrid) -> of_phase.PhaseAggregates:
    timeline = Timeline(grid)
    jobs: Dict[str, JobAggregates] = {}
    for client, frames in clients.items():
        gatherer = Gatherer(timeline)
        for frame in frames:
            gatherer.add(frame)
        jobs[client] = gatherer.finish()
    phase = ArchivedPhase(
        path=Path(),
        index=0,
        name=PHASE,
        kind="",
        role="none",
        status="ok",
        window=(grid.start, grid.end),
        duration=grid.length,
        mix={},
        asked={},
        engine="warp",
        block=1,
        jobs=(),
        accounting=(),
        warnings=(),
        pgs=(),
    )
    return of_phase.PhaseAggregates(phase, grid, jobs, timeline)
