"""A long past for a run that was interrupted: its first phase becomes hours long."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).parents[1] / "perf"))

from cycles import Cycle
from inputs import long_runs

BLOCK = 60
#: drivers of the long phase: those of fifty clients would take 4 GB for thirty hours
DRIVERS = 5


def is_under_load(cycle: Cycle, attempt: int) -> bool:
    """Return whether this attempt at the phase `measure`, counted from 1, makes load: those before are set aside."""
    set_aside = list(cycle.archive.glob("results/*/id-*/phases/*-measure.partial-*"))
    return len(set_aside) == attempt - 1 and cycle.running_rows("measure") > 20


def lengthen(run: Path, name: str, hours: int) -> None:
    """Make the first phase, `name`, so many hours longer, with aggregates of busy drivers and a sample each second.

    Times of what was before its load move into the past, in events and samples. The journal is sealed, and stays as it
    is, and so do the files of `resources`: the nodes were not watched in these hours.
    """
    folder = next(run.glob(f"phases/[0-9][0-9]-{name}"))
    phase = json.loads((folder / "phase.json").read_text())
    end, longer = phase["window"]["end"], 3600 * hours
    begin = int(phase["window"]["start"])
    events = run / "events.jsonl"
    _rewrite(events, [_earlier(line, end, longer) for line in _lines(events)])
    phase = _earlier(phase, begin, longer)
    phase["window"]["start"] = begin - longer
    phase.update(block=BLOCK, jobs=phase["jobs"][:DRIVERS])
    written = folder.with_name(f"{folder.name}-generated")
    window = (begin - longer, begin)
    requests = long_runs.write_phase(written, name, window, BLOCK, long_runs.frames_of(BLOCK))
    for number, job in enumerate(phase["jobs"]):
        (written / "aggregates" / f"d{number}.aggregates").replace(folder / job["aggregates"])
        job.update(rows_total=requests // DRIVERS, first_row=begin - longer + 0.01)
    (folder / "phase.json").write_text(json.dumps(phase))
    shutil.rmtree(written)
    for path in run.glob("monitors/recovery.*/recovery.jsonl"):
        first, *others = _lines(path)
        if first["t"] < end:
            samples = [{"t": t} for t in range(begin - longer, begin)]
            samples += [_earlier(line, begin, longer) for line in others]
            samples = [_earlier(first, begin, longer), *sorted(samples, key=lambda line: float(line["t"]))]
            _rewrite(path, [{**line, "i": number} for number, line in enumerate(samples)])


def _lines(path: Path) -> Iterator[Any]:
    return iter([json.loads(line) for line in path.read_text().splitlines()])


def _rewrite(path: Path, lines: Any) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _earlier(value: Any, end: float, longer: float) -> Any:
    """Return a value in which each time of the day before `end` is so many seconds earlier."""
    if isinstance(value, dict):
        return {key: _earlier(part, end, longer) for key, part in value.items()}
    if isinstance(value, list):
        return [_earlier(part, end, longer) for part in value]
    is_time = isinstance(value, (int, float)) and end - 86_400 < value < end
    return value - longer if is_time else value
