"""How a run leaves the cluster: whatever is full, late, interrupted or at work in another thread."""

# ruff: noqa: PT012 (what fails, or is interrupted, is a run of several steps)

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from faults_world import ANYTHING, Connections, Time, injector

from cbt_plugins import signals
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.faults.undo_journal import open_steps_in
from cbt_plugins.journal import JournalInUse
from cbt_plugins.plan import Fault, Settings

STOP = Fault("one", "stop", ("node1",), accept=ANYTHING)
PAIR = Fault("pair", "stop", ("node1", "node2"), accept=ANYTHING)
NOOUT = Settings(flags=("noout",))


def broken(folder: Path, world: Connections, event: Optional[Callable[..., None]] = None) -> Injector:
    """A run with a flag set and a node stopped."""
    made = injector(folder, world, NOOUT, event)
    made.acquire()
    made.apply()
    made.inject(STOP)
    assert world.differences() == {"osd.0", "flag noout"}
    return made


def full(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_stops_no_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written down is done all the same; it stays open, and says why."""
    world = Connections()
    errors: List[OSError] = []

    def event(*_: Any, **__: Any) -> None:
        for error in errors:
            raise error

    made = broken(tmp_path, world, event)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        errors.append(OSError(28, "No space left on device"))
        left = made.undo_all()
        errors.clear()
    assert world.differences() == set()
    assert [open_.label for open_ in left] == ["one", "settings"]
    assert all("could not be written: [Errno 28]" in open_.why for open_ in left)
    assert made.undo_all() == []


def test_an_archive_that_cannot_be_written_can_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Connections()
    broken(tmp_path, world).close()

    def read_only(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("cbt_plugins.journal.open_to_append", read_only)
    again = injector(tmp_path, world)
    left = again.undo_all()
    assert world.differences() == set()
    assert len(left) == 2 and "could not be written" in left[0].why
    with pytest.raises(FaultError, match="left open changes"):  # and nothing new can be broken
        again.apply(Settings(flags=("noscrub",)))
    assert world.differences() == set()


@pytest.mark.parametrize(
    ("change", "first", "never"),
    [
        (lambda made: made.inject(PAIR), "systemctl stop", ""),  # both nodes at once
        (lambda made: made.apply(Settings(flags=("noout",), balancer=False)), "osd set noout", "balancer off"),
    ],
)
def test_a_run_that_ends_begins_nothing_more(
    change: Callable[[Injector], Any], first: str, never: str, tmp_path: Path
) -> None:
    """What a thread is at work on is undone, and the step after it does not begin."""
    world = Connections()
    made = injector(tmp_path, world)
    stopping, go_on = threading.Event(), threading.Event()
    play = world.run

    def slow(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if first in command and not stopping.is_set():
            stopping.set()
            assert go_on.wait(600)
        return play(nodes, command, timeout, check)

    world.run = slow  # type: ignore[method-assign]
    failed: List[str] = []

    def inject() -> None:
        try:
            change(made)
        except FaultError as error:
            failed.append(str(error))

    with pytest.raises(RuntimeError), made.holding():
        thread = threading.Thread(target=inject)
        thread.start()
        assert stopping.wait(600)
        threading.Timer(0.2, go_on.set).start()
        raise RuntimeError
    thread.join(600)
    assert world.differences() == set()
    assert open_steps_in(tmp_path) == []
    assert "the run is stopping" in failed[0]
    assert not never or not any(never in text for _, text in world.said)


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM)]
)
def test_signals_leave_nothing_behind(tmp_path: Path, numbers: List[int]) -> None:
    """The first ends the run, the second comes while the faults are undone."""
    world = Connections()
    made = injector(tmp_path, world, NOOUT)
    play, more = world.run, list(numbers)

    def interrupting(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if more and "systemctl start" in command:
            signal.raise_signal(more.pop())
        return play(nodes, command, timeout, check)

    world.run = interrupting  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), signals.handled(), made.holding():
        made.apply()
        made.inject(STOP)
        signal.raise_signal(more.pop(0))
    assert more == []
    assert world.differences() == set() and world.state["keys"] == {}
    assert open_steps_in(tmp_path) == []


def test_what_is_left_is_said_with_the_way_to_undo_it(tmp_path: Path) -> None:
    world = Connections()
    made = injector(tmp_path, world)
    with pytest.raises(FaultError, match=f"not undone: one: .*cbt-tools undo {tmp_path}"), made.holding():
        made.inject(STOP)
        world.fail = ["systemctl start"]
    assert world.state["keys"] != {}  # and the cluster is not free


def test_the_cluster_is_given_back_although_once_it_does_not_answer(tmp_path: Path) -> None:
    world = Connections()
    made = injector(tmp_path, world)
    play, failures = world.run, [1]

    def once(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if "config-key rm" in command and failures:
            failures.pop()
            return {nodes[0]: Result("", "timed out", 110)}
        return play(nodes, command, timeout, check)

    world.run = once  # type: ignore[method-assign]
    with made.holding():
        pass
    assert world.state["keys"] == {} and not failures


def test_a_map_that_is_behind_hides_no_failed_undo(tmp_path: Path) -> None:
    """The monitors have not missed the OSD yet, and its start fails: that is not "as before"."""
    world, time = Connections(), Time()
    made = injector(tmp_path, world, time=time)
    made.acquire()
    made.inject(STOP)
    world.fail = ["systemctl start"]
    seen = time.now + 20.0  # osd_heartbeat_grace
    play = world.run

    def behind(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        world.state["osds"]["0"]["up"] = int(time.now < seen)
        return play(nodes, command, timeout, check)

    world.run = behind  # type: ignore[method-assign]
    left = made.undo_all()
    assert [open_.label for open_ in left] == ["one"]
    assert "the stand-in fails" in left[0].why


def test_a_command_that_is_not_needed_may_fail(tmp_path: Path) -> None:
    """Somebody else has started the OSD, in another way: it has been up for long enough to be believed."""
    world = Connections()
    made = injector(tmp_path, world)
    made.acquire()
    made.inject(STOP)
    world.fail = ["systemctl start"]
    world.state["osds"]["0"].update(up=1, unit="active")
    assert made.undo_all() == []


def test_the_files_of_another_process_are_not_touched(tmp_path: Path) -> None:
    """The descriptor that was opened to be read holds the run as one to write does."""
    world = Connections()
    made = broken(tmp_path, world)
    os.chmod(tmp_path / "undo.jsonl", 0o444)
    with pytest.raises(JournalInUse, match="another process"):
        injector(tmp_path, world)
    assert made.undo_all() == []


def test_an_undo_that_hangs_is_tried_once_more(tmp_path: Path) -> None:
    """It has used up the time of its step, and the next attempt succeeds."""
    world, time = Connections(), Time()
    made = injector(tmp_path, world, NOOUT, time=time)
    made.acquire()
    made.apply()
    play, hung = world.run, [True]

    def hanging(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if "osd unset" in command and hung:
            hung.pop()
            time.now += timeout
            return {nodes[0]: Result("", "", 124)}
        return play(nodes, command, timeout, check)

    world.run = hanging  # type: ignore[method-assign]
    assert made.undo_all() == []
    assert world.differences() == set() and not hung
