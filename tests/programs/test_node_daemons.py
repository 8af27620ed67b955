"""What the monitors of a node see of real processes: their time, their threads, and the limits that stop them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, Optional

import pytest
from burning_daemon import ID, Daemon, closed

from cbt_plugins.monitors import node_daemons, resources_agent


def test_all_that_a_later_process_did_was_done_since_somebody_watches(
    daemon: Callable[[str, float], Daemon],
) -> None:
    first = daemon(ID, 0.2)
    first.burnt()
    processes = node_daemons.Processes(os.getpid())
    with closed(processes):
        processes.scan(0.0)
        second = daemon(ID, 0.2)
        second.burnt()
        processes.scan(1000.0)
        last = {process.pid: process.last for process in processes.watched.values()}
    assert last[first.process.pid][0] >= 10  # ticks that nobody saw
    assert last[second.process.pid] == (0, 0, 0)


@pytest.mark.parametrize("kept", [True, False])
def test_what_the_threads_of_a_process_ran_between_two_looks(
    daemon: Callable[[str, float], Daemon], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(node_daemons.WatchedThread, "kept", 0)
    if not kept:  # the process may have no more files
        monkeypatch.setattr(node_daemons, "KEPT_FILES", 0.0)
    its = daemon(ID, 1.0)
    process = node_daemons.WatchedProcess(its.process.pid, "osd", ID, 0)
    assert process.look() == []  # where its threads begin
    its.burnt()
    process.last = process.counters()[:1]
    ((ms, name),) = process.look()
    assert name == "ceph-osd" and 600 <= ms <= 1040  # at most 1.0 s, less what it did before the first look
    assert resources_agent.NodeSampler.busiest_threads([(ms, name)], ms) == [["ceph-osd", 1.0]]
    assert resources_agent.NodeSampler.busiest_threads([(ms, name)], 2 * ms) == []  # not busy: half a core
    threads = process.threads
    assert process.look() == [] and process.threads is threads  # it did nothing: its threads are not read
    assert node_daemons.WatchedThread.kept == int(kept)
    process.close()
    assert node_daemons.WatchedThread.kept == 0


@contextmanager
def limited_group(processors: float = 0.1, pid: Optional[int] = None) -> Iterator[Path]:
    """Make a cgroup that may use so many processors, with a process; skip where this user may make none."""
    first = Path("/sys/fs/cgroup/cpu")
    folder = (first if first.exists() else first.parent).resolve() / f"cbtp-test-{os.getpid()}"
    try:
        folder.mkdir()
        if first.exists():
            (folder / "cpu.cfs_quota_us").write_text(str(round(processors * 100000)))
        else:
            (folder / "cpu.max").write_text(f"{round(processors * 100000)} 100000")
    except OSError as error:
        pytest.skip(f"no cgroup of our own: {error}")
    try:
        if pid is not None:
            (folder / "cgroup.procs").write_text(str(pid))
        yield folder
    finally:
        for left in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(left)
        folder.rmdir()


def test_a_limit_of_its_cgroup_stops_a_daemon(daemon: Callable[[str, float], Daemon]) -> None:
    its = daemon(ID, 0.15)
    its.hold()
    free = daemon(f"{ID}1", 0.1)
    processes = node_daemons.Processes(os.getpid())
    with limited_group(pid=its.process.pid), closed(processes):
        processes.scan(0.0)
        limits = node_daemons.Limits()
        assert limits.rises(processes.watched) == []  # where its counters begin
        its.go()
        its.burnt()
        free.burnt()
        ((index, periods, throttled),) = limits.rises(processes.watched)
    assert processes.watched[index].pid == its.process.pid
    assert 0 < throttled <= periods


def test_a_limit_that_stopped_nobody_is_told_with_its_periods(daemon: Callable[[str, float], Daemon]) -> None:
    """A report tells a limit that was never reached from one that nobody looked at."""
    its = daemon(ID, 0.5)  # several periods of 0.1 s
    its.hold()
    processes = node_daemons.Processes(os.getpid())
    with limited_group(100, its.process.pid), closed(processes):
        processes.scan(0.0)
        limits = node_daemons.Limits()
        assert limits.rises(processes.watched) == []
        its.go()
        its.burnt()
        ((index, periods, throttled),) = limits.rises(processes.watched)
    assert processes.watched[index].pid == its.process.pid
    assert periods > 0 and throttled == 0


#: as in a container: $0 is the cgroup of a shell and the root that it sees; then words
IN_CONTAINER = 'echo $$ > "$0/cgroup.procs" && mount --bind "$0" "${0%/*}" && exec unshare --cgroup "$@"'
LIMITED = """
import os, time, types
from cbt_plugins.monitors import node_daemons
limits, processes = node_daemons.Limits(), {7: types.SimpleNamespace(pid=os.getpid())}
assert limits.rises(processes) == []
while time.process_time() < 0.5:
    pass
((index, periods, throttled),) = limits.rises(processes)
assert index == 7 and 0 < throttled <= periods
"""


def test_a_limit_of_a_pod_is_seen_within_it() -> None:
    """Its own cgroup is the root there, as of each container that has namespaces of its own."""
    with limited_group() as folder:
        line = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_CONTAINER, str(folder)]
        done = subprocess.run([*line, sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_reefs_gateway_is_one_although_it_has_the_name_of_a_thread(tmp_path: Path) -> None:
    """radosgw 18.2 is called notif-worker0, as one of its threads."""
    program = tmp_path / "radosgw"
    program.symlink_to(os.path.realpath(sys.executable))
    rename = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'notif-worker0', 0, 0, 0); print(1, flush=True)"
    line = ["-S", "-c", f"{rename}; sys.stdin.read()", "--name", "client.rgw.rgw7"]
    commands = [[its, *line] for its in (str(program), sys.executable)]
    started = [subprocess.Popen(its, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for its in commands]
    try:
        for its in started:
            assert its.stdout is not None and its.stdout.readline()
        processes = node_daemons.Processes(os.getpid())
        with closed(processes):
            processes.scan(0.0)
        known = {process.pid: (process.daemon_class, process.id) for process in processes.watched.values()}
    finally:
        for its in started:
            its.kill()
            its.communicate()
    assert known[started[0].pid] == ("rgw", "rgw.rgw7") and started[1].pid not in known
