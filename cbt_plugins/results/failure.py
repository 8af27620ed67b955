"""What was broken in a run: how the cluster took it, and what it cost the clients."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import Run
from cbt_plugins.results.clocks import Clocks
from cbt_plugins.results.impact import impact, timeline
from cbt_plugins.results.phase import PhaseAggregates
from cbt_plugins.results.recovery import milestones
from cbt_plugins.results.samples import files_of, read_samples

#: changes of settings are in the same journal as faults, and break nothing
_SETTINGS = ("settings", "recovery")


def breaks(run: Run) -> bool:
    """True when something was broken on purpose."""
    return any(_is_fault(event) for event in json_lines(run.path / "events.jsonl"))


def failure(run: Run, phases: Sequence[PhaseAggregates]) -> Dict[str, Any]:
    """{"milestones", "impact", "timelines": {phase: ...}}, in the forms of docs/RECOVERY.md."""
    samples = read_samples(files_of(run.path), Clocks.of(run))
    found = milestones(samples, json_lines(run.path / "events.jsonl"))
    timelines = {made.phase.name: timeline(made, samples, found) for made in phases if made.length}
    loaded = [made for made in phases if made.phase.jobs]
    # a fill is another load: nothing is compared with it unless it is all there is
    alike = [made for made in loaded if made.phase.role != "fill"] or loaded
    return {"milestones": found, "impact": impact(alike, found), "timelines": timelines}


def warnings_of(made: Optional[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """What is doubtful about it."""
    if made is None:
        return []
    return [dict(warning) for part in ("milestones", "impact") for warning in made[part]["warnings"]]


def _is_fault(event: Mapping[str, Any]) -> bool:
    return event.get("event") == "fault-injected" and event.get("kind") not in _SETTINGS
