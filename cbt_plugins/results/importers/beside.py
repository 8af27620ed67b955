"""The faults beside a run of CBT's own benchmarks, and how the cluster and the load took them.

`monitoring_profiles: {faults: ...}` leaves its events in the archive's faults/<time>/, the profile `recovery` its
samples in the run's directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.journal import json_lines
from cbt_plugins.results.measurements import of_episode
from cbt_plugins.results.record import STATE, Measurement, ResultWarning
from cbt_plugins.results.recovery import milestones
from cbt_plugins.results.samples import files_of, read_samples
from cbt_plugins.results.states import stretches

#: of a record: what was broken and when, "10s:stop*1 30s:undo*1"
KEY = "load.faults"
#: seconds by which an event may miss its time
LATE = 2.0
#: what is cut at the states of the cluster
_RATES = ("obj_per_s", "mib_per_s")

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Beside:
    """What happened beside one run."""

    begun: Optional[float]  # epoch seconds: the clock of the events runs, and CBT begins the load
    events: str
    recovery: Mapping[str, Any]  # of analysis.recovery.milestones
    warnings: Tuple[ResultWarning, ...]
    whole: bool  # all came and went as planned

    def measurements(self, lines: Sequence[Measurement]) -> List[Measurement]:
        """Of each failure and return, and the rates of `lines` in each state of the cluster."""
        made = [its for episode in self.recovery["episodes"] for its in of_episode(episode)]
        for line in lines:
            if line.metric in _RATES and line.series and line.start is not None:
                made += _in_states(line, self.recovery)
        return made


def of_run(run: Path) -> Optional[Beside]:
    """Of a run's directory in an archive; None where nothing was to be broken."""
    run = run.resolve()
    name = f"{run.parent.name}/{run.name}"
    journals = [json_lines(path) for path in sorted(run.parents[2].glob("faults/*/events.jsonl"))] if _deep(run) else []
    mine = [events for events in journals if any(_is(event, "beside") and event.get("run") == name for event in events)]
    if not mine:
        return None
    recovery = milestones(read_samples(files_of(run)), [event for events in mine for event in events])
    begun = [event["at"] for events in mine for event in events if _is(event, "begun")]
    warnings = tuple(_warnings(mine))
    return Beside(
        begun=begun[0] if begun else None,
        events=" ".join(text for events in mine for text in _happened(events)) or "none",
        recovery=recovery,
        warnings=(*warnings, *_late(mine), *(ResultWarning(its["code"], its["text"]) for its in recovery["warnings"])),
        whole=not warnings,
    )


def _deep(run: Path) -> bool:
    return len(run.parents) > 2


def _is(event: Event, name: str) -> bool:
    return bool(event.get("event") == name)


def _happened(events: Sequence[Event]) -> Iterator[str]:
    """The faults and undos that the file asked for, at the times it named."""
    begun = next((event["at"] for event in events if _is(event, "begun")), None)
    kinds: Dict[str, Event] = {event["label"]: event for event in events if _is(event, "fault-inject-begin")}
    for event in events:
        if begun is None or not _is(event, "event"):
            continue
        at = round(event["t"] - event["late"] - begun, 1)
        if event.get("inject"):
            fault = kinds.get(event["inject"], {})
            yield f"{at:g}s:{fault.get('kind')}*{len(fault.get('targets') or ()) or 1}"
        if event.get("undo"):
            yield f"{at:g}s:undo*{len(event['undo'])}"


def _warnings(mine: Sequence[Sequence[Event]]) -> Iterator[ResultWarning]:
    for events in mine:
        ended = next((event for event in events if _is(event, "ended")), None)
        if not any(_is(event, "begun") for event in events):
            why = "; ".join(ended["why"]) if ended else "it did not begin"
            yield ResultWarning("no-faults", f"the load ran without the faults that it was to have: {why}")
        elif ended is None:
            yield ResultWarning(
                "faults-failed", "the faults did not come to their end: cbt-tools undo says what is open"
            )
        elif ended["why"]:
            yield ResultWarning("faults-failed", f"not all faults came and went as planned: {'; '.join(ended['why'])}")


def _late(mine: Sequence[Sequence[Event]]) -> Iterator[ResultWarning]:
    for events in mine:
        late = max((event.get("late") or 0.0 for event in events if _is(event, "event")), default=0.0)
        if late > LATE:
            yield ResultWarning("faults-late", f"a fault or an undo began up to {late:.1f} s after its time")


def _in_states(line: Measurement, recovery: Mapping[str, Any]) -> Iterator[Measurement]:
    """A state that comes twice has its number behind its name."""
    assert line.series is not None and line.start is not None
    edges = line.start + line.step * np.arange(len(line.series) + 1)
    upto = np.concatenate(([0.0], np.cumsum(line.series) * line.step))
    seen: Dict[str, int] = {}
    for state, _, low, high in stretches(recovery, float(edges[0]), float(edges[-1])):
        seen[state] = seen.get(state, 0) + 1
        if high - low < line.step:
            continue  # it is shorter than what the program told one by one
        amount = float(np.diff(np.interp([low, high], edges, upto))[0])
        again = f" {seen[state]}" if seen[state] > 1 else ""
        requests = round(amount) if line.metric == "obj_per_s" else None
        name = f"{line.phase}{STATE}{state}{again}"
        yield Measurement(name, line.op, line.metric, amount / (high - low), n=requests)
