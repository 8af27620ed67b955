"""The head and the agent of one node, for real, with a stand-in for warp."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator, List, Mapping, Optional

import pytest
from one_client import FAKE, NO_ROWS, NODE, ROWS, Starter, agent_pid, job, run_to_end, starting
from request_rows import rows_of
from waiting import wait_for

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.load import generator_process, load_session
from cbt_plugins.load.load_session import Agents, LoadError, LoadOrders, LoadSession, collect

pytestmark = pytest.mark.skipif(ROWS is None, reason=NO_ROWS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starting(tmp_path) as make:
        yield make


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
    agents = Agents(Remote.of_cluster({}, {}), [NODE], str(tmp_path / "load"))
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
        collect(Remote.of_cluster({}, {}), ["localhost", NODE], str(folder), tmp_path / "into")
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


def test_files_that_are_gone_are_no_end_of_a_phase(start: Starter, tmp_path: Path) -> None:
    """A client that was started again, with its scratch folder in memory, has nothing to fetch."""
    its = start(job("a", "--rows", "5"))
    run_to_end(its)
    shutil.rmtree(tmp_path / "load" / "node")
    with pytest.raises(LoadError, match="node is gone: was the node started again"):
        its.collect(tmp_path / "got")
