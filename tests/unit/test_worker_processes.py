"""Processes that read parts of an archive: what is left when one of them, or the one that asked for them, is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

from cbt_plugins.archive_files import confine, is_own, refuse
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.worker_processes import worker_processes

PARENT = """
import os, signal
from cbt_plugins.results.worker_processes import worker_processes
if __name__ == "__main__":
    with worker_processes(2, threads={threads}) as pool:
        # each is taken by a process of its own: the first one waits
        waiting = pool.submit(signal.pause)
        print(pool.submit(os.getpid).result(), *pool._processes, flush=True)
        signal.pause()
"""


@pytest.mark.parametrize("threads", [False, True], ids=["fork", "spawn"])
def test_they_end_with_a_parent_that_is_killed(threads: bool, tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT.format(threads=threads))
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = set(parent.stdout.readline().split())
        assert len(workers) == 2 and all(os.path.exists(f"/proc/{pid}") for pid in workers)
        parent.kill()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), "the end of the workers", 20.0)


@pytest.mark.parametrize("threads", [False, True], ids=["fork", "spawn"])
def test_they_read_no_file_that_their_parent_refuses(threads: bool, tmp_path: Path) -> None:
    (tmp_path / "changed").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "same").write_text("x")
    confine(tmp_path)
    refuse(tmp_path, {"changed": "changed since the run ended"})
    with worker_processes(1, threads) as pool:
        read = [pool.submit(is_own, tmp_path / name).result() for name in ("changed", "link", "same")]
    assert read == [False, False, True]


def ask_after_a_kill() -> None:
    with worker_processes(1) as pool:
        os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)
        pool.submit(os.getpid).result()


def test_a_worker_that_is_killed_is_an_error_with_a_reason() -> None:
    with pytest.raises(Unreadable, match="was killed: is there enough memory"):
        ask_after_a_kill()
