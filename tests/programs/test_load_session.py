"""The head and the agent of one node, for real, with a stand-in for warp."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List, Mapping, Optional

import pytest
from request_rows import rows_of
from waiting import wait_for

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.remote import Remote, RemoteError, Result
from cbt_plugins.load import client_agent, generator_process, load_session
from cbt_plugins.load.generator import LoadJob
from cbt_plugins.load.load_session import Agents, LoadError, LoadOrders, LoadSession, collect
from cbt_plugins.programs import own_program

NODE = socket.gethostname()
FAKE = str(Path(__file__).with_name("fake_warp.py"))


#: the real one: what the agent says is what it has counted
ROWS = own_program("cbt-rows")
pytestmark = pytest.mark.skipif(ROWS is None, reason="NO cbt-rows (cbt-tools build makes it): nobody counts the rows")


def job(
    name: str,
    *options: str,
    start: str = "go",
    respawn: bool = False,
    op: str = "PUT",
    lead: float = 0.1,
    grace: float = 10.0,
) -> LoadJob:
    return LoadJob(
        id=name,
        driver="01",
        node=NODE,
        op=op,
        role="read" if start == "early" else "fill",
        bucket="b",
        prefix="keep",
        sizes=((4096, 4096, 1.0),),
        workers=4,
        urls=("http://rgw1:7480",),
        argv=(sys.executable, FAKE, *options),
        start=start,
        lead=lead,
        grace=grace,
        respawn=respawn,
    )


Starter = Callable[..., LoadSession]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    agents = Agents(Remote.from_host({}, {}), [NODE], str(tmp_path / "load"))

    def make(*jobs: LoadJob, duration: float = 1.0, **env: str) -> LoadSession:
        orders = LoadOrders(
            jobs,
            {NODE: {"cbt-rows": str(ROWS)}},
            {"WARP_SECRET_KEY": "hush", **env},
            {NODE: Offset(0.0, 0.0)},
            duration,
            keep_rows=True,
        )
        session = LoadSession(agents, str(tmp_path / "load" / "node"), orders)
        session.start()
        return session

    yield make
    agents.close()
    if (tmp_path / "load" / "node").exists():
        collect(Remote.from_host({}, {}), [NODE], str(tmp_path / "load" / "node"), tmp_path / "swept")


def run_to_end(session: LoadSession) -> None:
    def over() -> bool:
        for _ in session.beats(0.2):
            pass
        if session.go_at is None and session.all_ready:
            session.go()
        return session.over

    wait_for(over, "the session's end")


def agent_pid(session: LoadSession, tmp_path: Path) -> int:
    """Wait until the agent is at work, and return its pid."""
    file = tmp_path / "load" / "node" / "pids"

    def at_work() -> bool:
        for _ in session.beats(0.1):
            pass
        return file.exists() and bool(file.read_text())

    wait_for(at_work, "the agent")
    return int(file.read_text().split()[0])


def test_rows_counts_and_exit_status_arrive(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--rows", "25", "--error-every", "5", "--every", "0"))
    run_to_end(session)
    end = session.ends()["a"]
    assert (end.counts["PUT"].good, end.counts["PUT"].failed) == (20, 5)
    assert end.counts["PUT"].size == 20 * 4096
    assert end.counts["PUT"].busy_ns == 20 * 36211601
    assert (end.exit, end.signal, end.cut, end.died) == (0, None, False, False)
    session.collect(tmp_path / "got")
    assert len(rows_of(tmp_path / "got" / "rows" / "a.csv.zst")) == 25
    file = tmp_path / "got" / "aggregates" / "a.aggregates"
    shown = subprocess.run([str(ROWS), "show", str(file)], capture_output=True)
    assert b"PUT" in shown.stdout
    assert not (tmp_path / "load" / "node").exists()


def test_each_beat_has_the_first_error(start: Starter) -> None:
    session = start(job("a", "--duration", "1000s", "--error-every", "1", "--every", "0.01"), duration=0.0)
    said: List[str] = []

    def told() -> bool:
        said.extend(beat.errors["a"] for beat in session.beats(0.2) if "a" in beat.errors)
        if session.go_at is None and session.all_ready:
            session.go()
        return len(said) > 1

    wait_for(told, "two beats with an error")
    session.stop()
    run_to_end(session)
    assert set(said) == {'bad "thing"'}


def test_a_disk_that_is_full_is_told_at_once_and_ends_nothing_else(tmp_path: Path) -> None:
    """cbt-rows says in a beat that it cannot write; the agent's own files may be lost too."""
    rows = tmp_path / "cbt-rows"
    rows.write_text(
        f"#!{sys.executable}\n"
        "import os, select, sys, time\n"
        "say = lambda **more: print(__import__('json').dumps({'t': time.time(), 'rows': 1, 'last': time.time(),\n"
        "                           'counts': {}, 'lost': 'cannot write: no space left', **more}), flush=True)\n"
        "while select.select([0], [], [], 0.1)[0] == [] or os.read(0, 1 << 16): say()\n"
        "say(end=True)\n"
        "sys.exit(1)\n"
    )
    rows.chmod(0o700)
    folder = tmp_path / "load" / "node"
    agents = Agents(Remote.from_host({}, {}), [NODE], str(tmp_path / "load"))
    orders = LoadOrders((job("a", "--duration", "1000s", "--every", "0.01"),), {NODE: {"cbt-rows": str(rows)}}, {},
                        {NODE: Offset(0.0, 0.0)}, 1000.0)  # fmt: skip
    session = LoadSession(agents, str(folder), orders)
    session.start()
    told: List[str] = []

    def lost() -> bool:
        told.extend(beat.lost["a"] for beat in session.beats(0.2) if beat.lost)
        if session.go_at is None and session.all_ready:
            session.go()
        return bool(told)

    try:
        wait_for(lost, "the loss")
        (folder / "end.json").symlink_to("/dev/full")
        session.stop()
        run_to_end(session)
        assert told[0] == "cannot write: no space left" and session.ends()["a"].cut
        assert session.ends()["a"].reducer == "cbt-rows ended with status 1: cannot write: no space left"
        session.collect(tmp_path / "got")
    finally:
        agents.close()


def test_a_generator_that_hangs_after_its_time_is_cut_off(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = tmp_path / "generator_process.py"
    patience = f"TERM_TIMEOUT = {generator_process.TERM_TIMEOUT}"
    text = Path(str(generator_process.__file__)).read_text()
    assert patience in text
    impatient.write_text(text.replace(patience, "TERM_TIMEOUT = 2.0"))
    part = SimpleNamespace(__file__=impatient, __name__=generator_process.__name__)
    monkeypatch.setattr(load_session, "PARTS", (part,))
    session = start(job("a", "--rows", "3", "--hang", "--deaf", grace=2.0), duration=1.0)
    run_to_end(session)
    end = session.ends()["a"]
    assert end.cut and end.signal == signal.SIGKILL and end.counts["PUT"].good == 3


def test_a_generator_has_time_to_write_its_state_when_it_is_stopped(start: Starter) -> None:
    """cbt-load with 128 workers that hash 64 MiB each on two processors took 6.7 s."""
    slow = "trap 'sleep 4; exit 0' TERM; while :; do sleep 0.1; done"
    session = start(replace(job("a"), argv=("sh", "-c", slow)), duration=0.0)

    def running() -> bool:
        states = [beat.states["a"] for beat in session.beats(0.2)]
        if session.go_at is None and session.all_ready:
            session.go()
        return "prepare" in states

    wait_for(running, "the generator")
    session.stop()
    run_to_end(session)
    end = session.ends()["a"]
    assert (end.exit, end.signal, end.cut) == (0, None, True)


def test_readers_start_first_and_end_when_the_writers_have(start: Starter) -> None:
    session = start(
        job("reader", "--op", "GET", "--duration", "1000s", start="early", op="GET"), job("writer", "--rows", "20")
    )
    run_to_end(session)
    ends = session.ends()
    assert ends["reader"].cut and not ends["writer"].cut
    assert ends["reader"].first_row is not None and session.go_at is not None
    assert ends["reader"].first_row < session.go_at
    assert ends["writer"].started is not None and ends["writer"].started >= session.go_at


def test_a_reader_that_was_ended_has_not_died(start: Starter, tmp_path: Path) -> None:
    """Seen between its end and that of another one: warp ends with signal 15 when it is told to end."""
    until_seen = f"until [ -e {tmp_path}/seen ]; do sleep 0.1; done; exit 0"
    shell = f"{sys.executable} {FAKE} --rows 20; trap '{until_seen}' TERM; while :; do sleep 0.1; done"
    killed, slow = job("killed", "--duration", "1000s", start="early"), job("slow", start="early")
    session = start(killed, job("writer", "--rows", "20"), replace(slow, argv=("sh", "-c", shell)))
    seen: List[Mapping[str, Optional[int]]] = []

    def over() -> bool:
        seen.extend(beat.exits for beat in session.beats(0.2) if beat.states["killed"] == "done")
        if seen:
            (tmp_path / "seen").touch()
        if session.go_at is None and session.all_ready:
            session.go()
        return session.over

    wait_for(over, "the session's end")
    assert session.ends()["killed"].signal == signal.SIGTERM
    assert seen and {exits["killed"] for exits in seen} == {None}


def test_a_generator_that_dies_is_told_from_one_that_ends(start: Starter) -> None:
    session = start(job("a", "--rows", "2", "--exit", "2"))
    run_to_end(session)
    assert session.ends()["a"].died


def test_a_reader_that_cannot_begin_fails_the_start(start: Starter) -> None:
    session = start(job("a", "--rows", "1", "--every", "0", "--exit", "1", start="early"), job("b"))
    with pytest.raises(LoadError, match="before the phase began"):
        run_to_end(session)


def test_a_job_that_runs_dry_is_started_again(start: Starter) -> None:
    session = start(job("d", "--rows", "2", respawn=True, lead=0.0), job("w", "--duration", "5s"), duration=5.0)
    run_to_end(session)
    assert session.ends()["d"].passes >= 2


def test_nothing_to_do_is_not_a_death_and_a_death_says_why(start: Starter) -> None:
    """`warp delete` fails on an empty listing: a day's aging must not end because DELETE was faster than PUT."""
    session = start(
        job("dry", "--exit", "1", "--duration", "0s", respawn=True), job("w", "--rows", "5", "--exit", "3", "--chatter")
    )
    run_to_end(session)
    ends = session.ends()
    assert not ends["dry"].died and ends["dry"].exit == 0
    assert ends["w"].died and ends["w"].message.endswith("xxx")


def test_the_secret_is_in_the_environment_and_nowhere_on_disk(start: Starter, tmp_path: Path) -> None:
    told = tmp_path / "told"
    session = start(job("a", "--rows", "50"), FAKE_WARP_SECRET_TO=str(told))
    agent_pid(session, tmp_path)
    texts = [p.read_bytes() for p in (tmp_path / "load" / "node").rglob("*") if p.is_file()]
    assert texts and not [t for t in texts if b"hush" in t]
    session.go()
    run_to_end(session)
    assert told.read_text() == "hush"


def test_stop_ends_everything_and_keeps_the_rows(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--duration", "1000s"), duration=0.0)
    for _ in session.beats(0.5):
        pass
    session.go()
    counted = 0
    while counted < 20:
        for beat in session.beats(1.0):
            counted = sum(c.good for c in beat.counts["a"].values())
    session.stop()
    run_to_end(session)
    session.collect(tmp_path / "got")
    assert session.ends()["a"].cut
    assert len(rows_of(tmp_path / "got" / "rows" / "a.csv.zst")) >= counted


def test_a_dead_run_ends_the_load_and_its_rows_are_whole(start: Starter, tmp_path: Path) -> None:
    """What kill -9 of the run leaves: closed pipes. The agent ends its generators and itself."""
    session = start(job("a", "--duration", "1000s", "--every", "0.001"))
    pid = agent_pid(session, tmp_path)
    session.go()
    session.break_off()
    collect(Remote.from_host({}, {}), [NODE], str(tmp_path / "load" / "node"), tmp_path / "got")
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
    collect(Remote.from_host({}, {}), [NODE], str(tmp_path / "load" / "node"), tmp_path / "got")
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
    monkeypatch.setattr(load_session, "SILENT", 0.0)
    with pytest.raises(LoadError, match=f"no message from {NODE} for 0 s"):
        run_to_end(load)


def test_messages_are_kept_up_to_a_limit(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--rows", "200", "--every", "0", "--chatter"))
    run_to_end(session)
    session.collect(tmp_path / "got")
    size = (tmp_path / "got" / "stderr" / "a.txt").stat().st_size
    assert 1 << 20 <= size < (1 << 20) + 100


def test_orders_have_no_secret(start: Starter, tmp_path: Path) -> None:
    session = start(job("a", "--rows", "1"))
    assert "hush" not in json.dumps([j.order() for j in session.jobs])
    session.go()
    run_to_end(session)


def test_no_node_speaks_for_the_jobs_of_another(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    (folder / "aggregates").mkdir(parents=True)
    (folder / "aggregates" / "a.aggregates").write_text("")
    with pytest.raises(LoadError, match=f"{NODE}: aggregates/a.aggregates came from another node already"):
        collect(Remote.from_host({}, {}), ["localhost", NODE], str(folder), tmp_path / "into")
    assert (folder / "aggregates" / "a.aggregates").exists()


def test_a_folder_that_is_refused_is_asked_for_once(
    start: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session, folder = start(job("a", "--rows", "1")), tmp_path / "load" / "node"
    run_to_end(session)
    folder.chmod(0o777)
    with pytest.raises(LoadError, match="others could replace what runs there"):
        session.collect(tmp_path / "got")
    assert "trying again" not in caplog.text
    folder.chmod(0o700)
    session.collect(tmp_path / "got")
    assert rows_of(tmp_path / "got" / "rows" / "a.csv.zst")


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

    monkeypatch.setattr("cbt_plugins.wait.TRY_AGAIN", 0.0)
    monkeypatch.setattr(Remote, "fetch", fetched)
    its.collect(tmp_path / "got")
    assert (tmp_path / "got" / "aggregates" / "a.aggregates").exists()
    assert not (tmp_path / "load" / "node").exists()


def test_files_that_are_gone_are_no_end_of_a_phase(start: Starter, tmp_path: Path) -> None:
    """A client that was started again, with its scratch folder in memory, has nothing to fetch."""
    its = start(job("a", "--rows", "5"))
    run_to_end(its)
    shutil.rmtree(tmp_path / "load" / "node")
    with pytest.raises(LoadError, match="node is gone: was the node started again"):
        its.collect(tmp_path / "got")


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


def running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
