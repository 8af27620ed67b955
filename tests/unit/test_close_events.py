"""Failures and returns that begin soon after each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from impact_phases import load, phase, recovery
from watched_failures import event

from cbt_plugins.results.recovery.episodes import Episode, episodes
from cbt_plugins.results.recovery.impact import impact

BOTH = [event(10.0, "inject-begin", "a", [6]), event(10.5, "injected", "a", [6])]
BOTH += [event(30.0, "inject-begin", "b", [7]), event(30.5, "injected", "b", [7])]


def returns(*undos: Tuple[float, str, str]) -> List[Episode]:
    events = [*BOTH, *(event(t, name, label, [6 if label == "a" else 7]) for t, name, label in undos)]
    return [episode for episode in episodes(events, 140.0) if episode.kind == "return"]


def test_a_fault_that_stays_in_force_has_a_return_of_its_own() -> None:
    first, second = returns(
        *((60.0, "undo-begin", "a"), (61.0, "undone", "a"), (85.0, "undo-begin", "b"), (86.0, "undone", "b"))
    )
    assert (first.labels, first.begin, first.end) == (("a",), 60.0, 85.0)
    assert (second.labels, second.begin, second.end) == (("b",), 85.0, 140.0)


@pytest.mark.parametrize("end", [61.0, 84.0])
def test_undos_of_one_command_are_one_return(end: float) -> None:
    """The second undo begins right after the end of the first one, or before."""
    for begin in (end + 0.5, end - 0.5):
        undos = [(60.0, "undo-begin", "b"), (end, "undone", "b"), (begin, "undo-begin", "a")]
        (together,) = returns(*undos, (end + 3.0, "undone", "a"))
        assert (together.labels, together.begin, together.done) == (("b", "a"), 60.0, end + 3.0)


def close_failures(second: float) -> Dict[str, Any]:
    made = recovery(
        ("failure", 20.1, second, {"injected": 20.4}),
        ("failure", second, 70.0, {"injected": second + 0.3, "all-down": second + 1.0}),
        ("return", 70.0, 100.0, {"undone": 71.0}),
    )
    for episode, label in zip(made["episodes"], "abb"):
        episode["labels"] = [label]
    return made


@pytest.mark.parametrize("second", [20.5, 21.2])
def test_a_failure_that_lasts_less_than_a_second_has_a_row(tmp_path: Path, second: float) -> None:
    requests = [*load(0, 20, 0.1, 0.01), *load(40, 100, 0.1, 0.01)]
    rows = {line["name"]: line for line in impact([phase(tmp_path, requests)], close_failures(second))["episodes"]}
    assert list(rows) == ["a failure", "b failure", "b return"]
    assert rows["a failure"]["seconds"] == 1.0 and rows["a failure"]["total"]["bad_seconds"] == 1
    assert rows["b failure"]["seconds"] == 70.0 - int(second)
