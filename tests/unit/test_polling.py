"""The one wait: when it asks, when it ends, and what it says of a condition that is never met."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Counter, Iterator, List

import pytest

from cbt_plugins import polling
from cbt_plugins.polling import TRIES, Clock, insist, wait_until

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("cbt_plugins", "monitors", "tools")
#: loops and pauses that are no wait for a condition, and why
NO_WAITS = {
    # an action that is tried again until the disk has room
    "cbt_plugins/journal.py: sleep": 1,
    "cbt_plugins/journal.py: loop": 1,
    # the pause between two looks, in which a signal is sent on
    "cbt_plugins/campaigns/trial.py: sleep": 1,
    # the seconds of post_poll
    "cbt_plugins/run/wait_phase.py: sleep": 1,
    # lines, samples and messages are taken as they come, for a time
    "cbt_plugins/cluster/cluster_watch.py: loop": 2,  # and the connection is opened again
    "cbt_plugins/cluster/stream.py: loop": 4,  # and what was told to end has some seconds for it, in all
    "cbt_plugins/load/load_session.py: loop": 2,
    "cbt_plugins/report/live_page.py: loop": 1,
    "tools/lab/process.py: loop": 1,
    # a question begins as soon as another has logged in, or is older than a login
    "cbt_plugins/cluster/fan_out.py: loop": 2,
    # a copy may take any time while data come
    "cbt_plugins/cluster/remote.py: loop": 1,
    # the load is looked at beat by beat; the session waits for the next one
    "cbt_plugins/run/load_observer.py: loop": 1,
    # the page and the terminal are drawn again and again
    "tools/watch.py: loop": 2,
    "tools/watch.py: sleep": 2,
    # connections are kept, until the input ends
    "monitors/agent_connections.py: loop": 2,
    # sent to nodes, where nothing of ours can be imported
    "cbt_plugins/cluster/state_sampler_maps.py: loop": 1,  # reads maps for a second
    "cbt_plugins/cluster/state_sampler_sources.py: loop": 1,
    "cbt_plugins/run/endpoint_probe.py: loop": 1,
    # run by path, without the package: frames are passed on as they come
    "tools/lab/link_relay.py: loop": 2,
}


def is_sent_to_nodes(path: Path) -> bool:
    """Return whether a program runs on nodes, where nothing of ours can be imported."""
    return path.stem.rpartition("_")[2] == "agent"


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


def test_an_action_is_tried_again_after_an_error_that_may_pass() -> None:
    attempts: List[float] = []

    def action() -> int:
        if len(attempts) < TRIES - 1:
            raise ConnectionError("lost")
        return 7

    assert insist(action, ConnectionError, every=2.0, pause=attempts.append) == 7
    assert attempts == [2.0] * (TRIES - 1)
    attempts.clear()
    with pytest.raises(ConnectionError):
        insist(action, ConnectionError, clear=(ConnectionError,), pause=attempts.append)
    assert attempts == []
    with pytest.raises(ConnectionError):
        insist(action, ConnectionError, pause=lambda seconds: [attempts.append(seconds)])
    assert len(attempts) == 1


def test_an_action_is_tried_again_for_as_long_as_it_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(polling.time, "monotonic", lambda: now[0])

    def action() -> None:
        raise ConnectionError("lost")

    def pause(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(ConnectionError):
        insist(action, ConnectionError, every=30.0, pause=pause, limit=3600.0)
    assert now[0] == 3600.0


def pauses_in(node: ast.AST) -> bool:
    """Return whether a call waits: a pause, a wait with a limit, or a look at the clock of a deadline."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    limited = name in ("wait", "communicate") and bool(node.args or node.keywords)
    return limited or name in ("sleep", "select", "monotonic")


def waits_by_hand(tree: ast.AST) -> Iterator[str]:
    """Yield a word for each pause, and for each `while` or `for` that pauses or has a deadline."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep"):
            yield "sleep"
        if isinstance(node, (ast.While, ast.For)):
            inner = {deep for loop in ast.walk(node) if loop is not node and is_loop(loop) for deep in ast.walk(loop)}
            if any(pauses_in(deep) for deep in ast.walk(node) if deep not in inner):
                yield "loop"


def is_loop(node: ast.AST) -> bool:
    return isinstance(node, (ast.While, ast.For))


@pytest.mark.parametrize(
    "text",
    [
        "while not ended:\n    time.sleep(1)",
        "while not ended:\n    self._clock.sleep(1)",
        "while not ended.wait(5.0):\n    look()",
        "for _ in range(3):\n    if ended.wait(5.0):\n        break",
        "while left and time.monotonic() < until:\n    look()",
        "while select.select([0], [], [], 0.5)[0]:\n    look()",
    ],
)
def test_a_wait_by_hand_is_seen(text: str) -> None:
    assert "loop" in waits_by_hand(ast.parse(text))


def test_nobody_else_waits_by_hand() -> None:
    waits: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            name = path.relative_to(PROJECT).as_posix()
            if name != "cbt_plugins/polling.py" and not is_sent_to_nodes(path):
                waits.update(f"{name}: {word}" for word in waits_by_hand(ast.parse(path.read_text())))
    assert dict(waits) == NO_WAITS, "wait with cbt_plugins.polling.wait_until, try again with insist"
