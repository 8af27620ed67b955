"""The life of the agent on a client: what ends it, and what it survives."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest
from one_client import NO_ROWS, NODE, ROWS, Starter, agent_pid, job, run_to_end, running, starting
from request_rows import rows_of
from waiting import wait_for

from cbt_plugins.cluster import stream
from cbt_plugins.cluster.remote import Remote, RemoteError, Result
from cbt_plugins.load import client_agent, generator_process, load_session
from cbt_plugins.load.load_session import LoadError, collect

pytestmark = pytest.mark.skipif(ROWS is None, reason=NO_ROWS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starting(tmp_path) as make:
        yield make


def test_a_dead_run_ends_the_load_and_its_rows_are_whole(start: Starter, tmp_path: Path) -> None:
    """What kill -9 of the run leaves: closed pipes. The agent ends its generators and itself."""
    session = start(job("a", "--duration", "1000s", "--every", "0.001"))
    pid = agent_pid(session, tmp_path)
    session.go()
    session.break_off()
    collect(Remote.of_cluster({}, {}), [NODE], str(tmp_path / "load" / "node"), tmp_path / "got")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    rows = rows_of(tmp_path / "got" / "rows" / "a.csv.zst")
    assert [int(r["idx"]) for r in rows] == list(range(len(rows)))


def test_a_killed_agent_takes_its_generators_along_and_loses_no_row(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--duration", "1000s", "--every", "0.01"))
    counted = 0
    while counted < 30:
        for beat in session.beats(0.3):
            counted = sum(c.good for c in beat.counts["a"].values())
        if session.go_at is None:
            session.go()
    os.kill(agent_pid(session, tmp_path), signal.SIGKILL)
    with pytest.raises(LoadError, match=r"lost the connection to \S+: \S"):
        run_to_end(session)
    collect(Remote.of_cluster({}, {}), [NODE], str(tmp_path / "load" / "node"), tmp_path / "got")
    rows = rows_of(tmp_path / "got" / "rows" / "a.csv.zst")
    assert [int(r["idx"]) for r in rows] == list(range(len(rows))) and len(rows) >= counted


def test_a_load_goes_on_while_the_head_takes_nothing(start: Starter, tmp_path: Path) -> None:
    """As a network that hangs, or Ctrl-Z. The counts of a beat are totals: those that were not sent are not missed."""
    session = start(job("a", "--duration", "1000s", "--every", "0.001", grace=0.1))
    said = os.open(f"/proc/{agent_pid(session, tmp_path)}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(said, b"a greeting\n")
    os.close(said)
    session.go()
    wait_for((tmp_path / "load" / "node" / "end.json").exists, "the end of the load")
    run_to_end(session)
    session.collect(tmp_path / "got")
    end = session.ends()["a"]
    assert end.cut and end.counts["PUT"].good == len(rows_of(tmp_path / "got" / "rows" / "a.csv.zst")) > 0


def test_a_node_that_says_nothing_is_named_and_given_up_at_last(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = start(job("a", "--rows", "1"))
    assert load.silent(1000.0) == {}
    wait_for(lambda: load.silent(0.01).get(NODE), "a silent moment")
    monkeypatch.setattr(load_session, "NODE_SILENCE", 0.0)
    with pytest.raises(LoadError, match=f"no message from {NODE} for 0 s"):
        run_to_end(load)


def test_a_node_that_never_lists_its_objects_is_named(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    load = start(replace(job("a", start="early", op="GET"), argv=("sleep", "1000")), duration=0.0)
    monkeypatch.setattr(load_session, "PREPARE_LIMIT", 0.0)
    with pytest.raises(LoadError, match=f"the objects were not listed within 0 s: {NODE} not ready"):
        run_to_end(load)


def test_an_agent_has_time_to_end_its_generators_before_it_is_killed() -> None:
    looks = re.search(r"seq (\d+)\)", load_session.END_AGENT)
    limit = generator_process.TERM_TIMEOUT + client_agent.REDUCE_TIMEOUT
    assert looks and 0.2 * int(looks[1]) >= limit and limit < load_session.END_LIMIT


def test_the_agent_stays_up_from_phase_to_phase(start: Starter, tmp_path: Path) -> None:
    """Each phase has orders of its own, the next finds nothing of the one before; it ends when the run is gone."""
    pids = []
    for name in ("a", "b"):
        session = start(job(name, "--rows", "5"))
        pids.append(agent_pid(session, tmp_path))
        run_to_end(session)
        session.collect(tmp_path / name)
        assert [file.name for file in (tmp_path / name / "aggregates").iterdir()] == [f"{name}.aggregates"]
        assert not list((tmp_path / "load").iterdir())
    assert pids[0] == pids[1] and running(pids[0])
    session.break_off()
    assert not running(pids[0])


def test_an_agent_that_takes_no_orders_is_lost(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while its sshd answers: its orders have megabytes of what its driver knew after the last phase."""
    monkeypatch.setattr(stream, "INPUT_LIMIT", 0.5)
    first = start(job("a", "--rows", "25", "--every", "0"))
    pid = agent_pid(first, tmp_path)
    run_to_end(first)
    first.collect(tmp_path / "got")
    os.kill(pid, signal.SIGSTOP)
    state = tmp_path / "01.state"
    state.write_bytes(b"x" * (4 << 20))
    second = start(replace(job("b", "--rows", "25", "--every", "0"), state=state))
    with pytest.raises(LoadError, match=f"lost the connection to {NODE}: .*{NODE} took no input for 0 s"):
        for _ in second.beats(0.2):
            pass
    wait_for(lambda: not running(pid), "the end of the agent")


def test_an_agent_that_was_lost_between_two_phases_is_started_again(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--rows", "5"))
    pid = agent_pid(session, tmp_path)
    run_to_end(session)
    session.collect(tmp_path / "got")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not running(pid), "the agent's end")
    session = start(job("b", "--rows", "5"))
    assert agent_pid(session, tmp_path) != pid
    run_to_end(session)
    assert session.ends()["b"].counts["PUT"].good == 5


def test_an_agent_that_hears_nothing_ends(start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "agent.py"
    program.write_text(load_session.AGENT.read_text().replace("IDLE_TIMEOUT = 600.0", "IDLE_TIMEOUT = 3.0"))
    monkeypatch.setattr(load_session, "AGENT", program)
    its = start(job("a", "--duration", "4s"), duration=4.0)  # longer than it may be idle
    pid = agent_pid(its, tmp_path)
    run_to_end(its)
    its.collect(tmp_path / "got")
    wait_for(lambda: not running(pid), "the agent's end")


def test_what_was_fetched_counts_when_its_agent_has_ended(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by itself while large files are fetched; and a connection of the copy may be lost."""
    its = start(job("a", "--rows", "5"))
    pid = agent_pid(its, tmp_path)
    run_to_end(its)
    fetch, lost = Remote.fetch, [False, True]

    def fetched(remote: Remote, nodes: Any, folder: str, into: Path) -> None:
        if lost.pop():
            raise RemoteError("fetching", {NODE: Result("", "Connection reset by peer", 255)})
        fetch(remote, nodes, folder, into)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not running(pid), "the agent's end")

    monkeypatch.setattr("cbt_plugins.polling.TRY_AGAIN", 0.0)
    monkeypatch.setattr(Remote, "fetch", fetched)
    its.collect(tmp_path / "got")
    assert (tmp_path / "got" / "aggregates" / "a.aggregates").exists()
    assert not (tmp_path / "load" / "node").exists()


def test_a_clock_that_is_set_ends_no_load(start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the client goes on by a quarter of an hour when the load has begun."""
    program, go = tmp_path / "agent.py", str(tmp_path / "load" / "node" / "go")
    step = f"import time\nreal = time.time\ntime.time = lambda: real() + 900 * os.path.exists({go!r})\n"
    program.write_text(load_session.AGENT.read_text().replace("import time\n", step, 1))
    monkeypatch.setattr(load_session, "AGENT", program)
    its = start(job("a", "--duration", "2s"), duration=2.0)
    run_to_end(its)
    end = its.ends()["a"]
    assert not end.cut and end.exit == 0
    assert end.ended is not None and its.go_at is not None and end.ended - its.go_at < 600


def test_a_stop_at_once_is_no_stop_of_nothing(start: Starter) -> None:
    """It may arrive with the orders, and before there is any process."""
    session = start(job("a", "--duration", "1000s", start="early"), duration=0.0)
    session.stop()
    wait_for(lambda: not list(session.beats(0.2)) and session.over, "the session's end")
    assert session.ends()["a"].counts == {} or session.ends()["a"].cut


def test_a_file_ends_an_agent_whose_connection_hangs(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--duration", "1000s"), duration=0.0)
    pid = agent_pid(session, tmp_path)
    (tmp_path / "load" / "node" / "stop").touch()
    run_to_end(session)
    wait_for(lambda: not running(pid), "the agent's end")
