"""The one wait: when it asks, when it ends, and what it says of a condition that is never met."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Dict

import pytest

from cbt_plugins.wait import Clock, wait_until

PACKAGE = Path(__file__).resolve().parents[2] / "cbt_plugins"
#: how often who sleeps, and why it is no wait for a condition
SLEEPERS = {
    "journal.py": 1,  # insist_on_room: an action that is tried again
    "cluster/retry.py": 1,  # insist: the same
    "campaigns/trial.py": 1,  # a signal ends the pause, and is sent on
    "run/wait_phase.py": 2,  # the seconds of post_poll, and the pause after a deep scrub's progress
    # on nodes, where nothing is imported
    "faults/haproxy_agent.py": 1,
    "faults/process_agent.py": 1,
    "load/client_agent.py": 1,
    "load/hsbench_agent.py": 2,
    "run/bucket_agent.py": 2,
}


class Time:
    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()
        self.clock = Clock(lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_the_first_look_is_at_once() -> None:
    time = Time()
    assert wait_until(lambda: 7, 0.0, 1.0, clock=time.clock) == 7 and time.pauses == []


def test_a_look_follows_each_pause_and_the_last_one_the_limit() -> None:
    time, looks = Time(), list[float]()

    def condition() -> bool:
        looks.append(time.now)
        return False

    assert wait_until(condition, 2.5, 1.0, clock=time.clock) is False
    assert looks == [0.0, 1.0, 2.0, 3.0] and time.pauses == [1.0] * 3


def test_the_error_says_what_was_seen_last() -> None:
    time = Time()
    with pytest.raises(ValueError, match=r"osd\.3 up: no reply at 2"):
        wait_until(
            lambda: f"no reply at {time.now:g}",
            2.0,
            1.0,
            lambda seen: ValueError(f"osd.3 up: {seen}"),
            met=lambda seen: not seen,
            clock=time.clock,
        )
    assert wait_until(lambda: 0, 0.0, 1.0, lambda seen: seen + 5, clock=time.clock) == 5


def test_errors_of_the_condition_and_of_the_pause_pass_through() -> None:
    def stop(seconds: float) -> None:
        raise InterruptedError("the run is stopping")

    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, math.inf, 1.0)
    with pytest.raises(InterruptedError, match="stopping"):
        wait_until(bool, math.inf, 1.0, clock=Clock(sleep=stop))


def test_nobody_else_waits_by_hand() -> None:
    sleepers: Dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        number = sum(ast.unparse(function) in ("time.sleep", "sleep") for function in calls)
        if number:
            sleepers[str(path.relative_to(PACKAGE))] = number
    assert sleepers == SLEEPERS, "wait with cbt_plugins.wait.wait_until"
