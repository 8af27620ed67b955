"""A memory limit of a real cgroup: what is used of it, and its OOM kills."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator

import pytest

from cbt_plugins.monitors import node_daemons

LIMIT_MIB, USED_MIB = 64, 24
#: takes so many MiB, says so, and stays; $0 is its cgroup
IN_GROUP = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
TAKE = "import sys; taken = b'x' * (int(sys.argv[1]) << 20); print(1, flush=True); sys.stdin.read()"


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a cgroup with a memory limit; skip where this user may make none."""
    first = Path("/sys/fs/cgroup/memory")
    folder = (first if first.exists() else first.parent).resolve() / f"cbtp-test-memory-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if first.exists() else "memory.max")
    try:
        folder.mkdir()
        limit.write_text(str(LIMIT_MIB << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no cgroup of our own with a memory limit: {error}")
    # of a machine with swap: nothing is killed as long as it can be swapped
    for name, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(LIMIT_MIB << 20))):
        if (folder / name).exists():
            (folder / name).write_text(value)
    yield folder
    folder.rmdir()


def start(group: Path, mib: int) -> subprocess.Popen[str]:
    words = ["sh", "-c", IN_GROUP, str(group), sys.executable, "-S", "-c", TAKE, str(mib)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_memory_limit_and_its_oom_kills(group: Path) -> None:
    machine_before = int(node_daemons.counters_of("/proc/vmstat").get(b"oom_kill", b"0"))
    with start(group, USED_MIB) as daemon:
        assert daemon.stdout is not None and daemon.stdout.readline()
        limits, processes = node_daemons.MemoryLimits(), {7: SimpleNamespace(pid=daemon.pid)}
        ((index, limit, used, kills),) = limits.rows(processes)
        assert (index, limit, kills) == (7, LIMIT_MIB << 10, 0)
        assert USED_MIB << 10 <= used < (USED_MIB + 16) << 10
        with start(group, 2 * LIMIT_MIB) as greedy:
            assert greedy.wait(60) < 0
        ((_, _, _, kills),) = limits.rows(processes)
        daemon.communicate()
    assert kills == 1 and daemon.returncode == 0
    assert int(node_daemons.counters_of("/proc/vmstat")[b"oom_kill"]) > machine_before
