"""Sessions of load on one client, which is this machine: the real agent and cbt-rows, and a stand-in for warp."""

from __future__ import annotations

import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

from waiting import wait_for

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.load.generator import LoadJob
from cbt_plugins.load.load_session import Agents, LoadOrders, LoadSession, collect
from cbt_plugins.programs import own_program

NODE = socket.gethostname()
FAKE = str(Path(__file__).with_name("programs") / "fake_warp.py")
#: the real one: what the agent says is what it has counted
ROWS = own_program("cbt-rows")
NO_ROWS = "NO cbt-rows (cbt-tools build makes it): nobody counts the rows"


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


@contextmanager
def starting(folder: Path) -> Iterator[Starter]:
    """Give the function that starts a session of jobs on this machine; its scratch folder is FOLDER/load/node."""
    agents = Agents(Remote.of_cluster({}, {}), [NODE], str(folder / "load"))

    def make(*jobs: LoadJob, duration: float = 1.0, **env: str) -> LoadSession:
        orders = LoadOrders(
            jobs,
            {NODE: {"cbt-rows": str(ROWS)}},
            {"WARP_SECRET_KEY": "hush", **env},
            {NODE: Offset(0.0, 0.0)},
            duration,
            keep_rows=True,
        )
        session = LoadSession(agents, str(folder / "load" / "node"), orders)
        session.start()
        return session

    yield make
    agents.close()
    if (folder / "load" / "node").exists():
        collect(Remote.of_cluster({}, {}), [NODE], str(folder / "load" / "node"), folder / "swept")


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


def running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
