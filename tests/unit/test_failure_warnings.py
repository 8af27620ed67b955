"""Warnings of failures whose run was broken off and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from watched_failures import event, watched

from cbt_plugins.results.recovery.cluster_samples import Samples
from cbt_plugins.results.recovery.milestones import milestones


def of_phase(t: float, name: str, phase: str, **facts: Any) -> Dict[str, Any]:
    return {"t": t, "event": f"phase-{name}", "phase": phase, **facts}


def begun(t: float) -> Dict[str, Any]:
    return {"t": t, "event": "run-begun", "phases": ["one-down", "measure"]}


#: a phase with a fault, and the begin of the next phase
FIRST = [begun(0.0), of_phase(1.0, "begin", "one-down"), event(10.0, "inject-begin"), event(10.5, "injected")]
FIRST += [of_phase(40.0, "end", "one-down"), of_phase(41.0, "begin", "measure")]
#: which is broken off, and repeated when the run is resumed
RESUMED = [event(50.0, "undo-begin"), event(50.5, "undone")]
RESUMED += [of_phase(51.0, "broken-off", "measure", kept="02-measure.partial-1"), begun(60.0)]
RESUMED += [event(61.0, "inject-begin"), event(61.5, "injected"), of_phase(65.0, "begin", "measure")]
#: its end
LAST = [event(90.0, "undo-begin"), event(90.5, "undone"), of_phase(95.0, "end", "measure")]


def fault_times(samples: Samples, events: List[Dict[str, Any]]) -> List[str]:
    warnings = milestones(samples, events)["warnings"]
    return [warning["episode"] for warning in warnings if warning["code"] == "fault-time"]


@pytest.mark.parametrize("sampled", [True, False])
def test_both_parts_of_a_failure_that_was_injected_again_have_a_warning(tmp_path: Path, sampled: bool) -> None:
    samples = watched(tmp_path) if sampled else Samples()
    assert fault_times(samples, [*FIRST, *LAST]) == []
    assert fault_times(samples, [*FIRST, *RESUMED, *LAST]) == ["a failure", "a return"]


def test_a_failure_that_another_one_has_ended_before_has_no_warning(tmp_path: Path) -> None:
    second = [event(20.0, "inject-begin", "b"), event(20.5, "injected", "b")]
    undone = [event(50.6, "undo-begin", "b"), event(50.9, "undone", "b")]
    again = [event(62.0, "inject-begin", "b"), event(62.5, "injected", "b")]
    last = [event(91.0, "undo-begin", "b"), event(91.5, "undone", "b")]
    events = sorted([*FIRST, *second, *RESUMED, *undone, *again, *LAST, *last], key=lambda line: line["t"])
    assert fault_times(watched(tmp_path), events) == ["b failure", "a+b return"]
