"""Scorecard: the failures that a plan measures, each with its repetitions, and with the faults that were refused."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.recovery.impact import failures_of


def scorecard(run: ArchivedRun, failure: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return {"failures": [{"name", "kind", "planned", "scores", "refused"}]}; None for a plan that measures none.

    It takes the scores out of the result of `impact.failure`, None where no fault was injected.
    """
    failure_of_phase = failures_of(run.plan)
    scores: List[Dict[str, Any]] = failure["impact"].pop("scores") if failure else []
    if not failure_of_phase:
        return None
    why_skipped = {
        str(event.get("label")): str(event.get("why"))
        for event in json_lines(run.path / "events.jsonl")
        if event.get("event") == "fault-skipped"
    }
    lines: Dict[str, Dict[str, Any]] = {}
    for phase in run.plan["phases"]:
        name = failure_of_phase.get(phase["name"])
        for fault in _faults(phase) if name else ():
            line = lines.setdefault(
                str(name), {"name": name, "kind": fault["kind"], "planned": 0, "scores": [], "refused": []}
            )
            own = [score for score in scores if score["phase"] == phase["name"]]
            line["planned"] += 1
            line["scores"] += [{key: value for key, value in score.items() if key != "failure"} for score in own]
            if not own and fault["label"] in why_skipped:
                why = why_skipped[fault["label"]].removeprefix(f"{fault['label']}: ")
                line["refused"].append({"phase": phase["name"], "why": why})
    return {"failures": list(lines.values())}


def _faults(phase: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    return [event["inject"] for event in phase.get("events") or () if event.get("inject")][:1]
