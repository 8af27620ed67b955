"""Many nodes: as many connections at once as this machine can open, and none that holds up others."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Mapping, Sequence

import pytest

from cbt_plugins.cluster import fan_out
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.transports.pdsh import MOST_NODES
from cbt_plugins.cluster.transports.ssh import Ssh
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.monitors import lifecycle
from cbt_plugins.monitors.lifecycle import fetch_files


def test_a_login_may_take_as_long_as_this_machine_needs_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nodes that answer would be taken for dead ones where 1000 ssh share two cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    for nodes, seconds in ((10, 10), (1000, 40)):
        ssh = Ssh({"clients": [f"c{number}" for number in range(nodes)]}, {})
        assert f"-oConnectTimeout={seconds}" in ssh.command("c1", "true", 60.0)
        assert ssh.connect_limit == 2 * seconds


def test_no_more_questions_are_under_way_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "AT_ONCE", 3)
    monkeypatch.setattr(fan_out, "LOGIN", 60.0)
    lock, together, under_way, most = threading.Lock(), threading.Barrier(3, timeout=30), 0, 0

    def question() -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait()
        with lock:
            under_way -= 1
        return most

    assert len(fan_out.ask_at_once(*[question] * 9)) == 9
    assert most == 3


def test_a_question_that_takes_long_keeps_no_other_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead node, or a command that takes an hour."""
    monkeypatch.setattr(fan_out, "AT_ONCE", 2)
    monkeypatch.setattr(fan_out, "LOGIN", 0.05)
    together = threading.Barrier(9, timeout=60)
    assert sorted(fan_out.ask_at_once(*[together.wait] * 9)) == list(range(9))


def test_very_many_nodes_are_reached_without_pdsh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its CPU time on this machine grows faster than the nodes."""
    (tmp_path / "pdsh").write_text("#!/bin/sh\necho pdsh >>$LOG\n")
    (tmp_path / "ssh").write_text('#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n')
    for name in ("pdsh", "ssh"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    nodes = [f"node{number}" for number in range(MOST_NODES + 1)]
    remote = Remote.of_cluster({"user": "root", "clients": nodes}, {})
    assert {remote.transport_name(node) for node in nodes} == {"pdsh"}
    assert {answer.stdout for answer in remote.run(nodes, "echo here").values()} == {"here\n"}
    assert not (tmp_path / "log").exists()
    remote.run(nodes[:-1], "echo here", check=False)
    assert (tmp_path / "log").read_text() == "pdsh\n"


class Nodes:
    """Stands where `Remote` does. Each of its nodes waits for the others before it gives its files."""

    def __init__(self, names: Sequence[str], dead: Sequence[str]) -> None:
        self._dead, self._together = dead, threading.Barrier(len(names) or 1, timeout=30)
        self._waited: List[str] = []

    def fetch(self, nodes: Sequence[str], remote_dir: str, local_dir: Path, **_: Any) -> None:
        (node,) = nodes
        if node not in self._waited:
            self._waited.append(node)
            self._together.wait()
        if node in self._dead:
            raise RemoteError("fetching", {node: Result("", "no route", 255)})
        (local_dir / node).mkdir()
        (local_dir / node / "agent.jsonl").write_text(node)

    def run(self, nodes: Sequence[str], *_: Any, **__: Any) -> Mapping[str, Result]:
        return {node: Result("", "", 0) for node in nodes}


def test_a_dead_node_holds_up_no_files_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cbt_plugins.polling.TRY_AGAIN", 0.0)
    names = [f"node{number}" for number in range(20)]
    nodes: Any = Nodes(names, names[3:4])
    paths = fetch_files(nodes, names, "/scratch", tmp_path / "into", "root")
    assert sorted(path.name for path in paths) == sorted(f"agent.jsonl.{n}" for n in names if n != "node3")
    assert "monitor files of node3 stay in /scratch there" in caplog.text
    assert '"node3"' in (tmp_path / "into" / "left.json").read_text()


def test_files_of_monitors_wait_on_their_nodes_for_room_in_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full while the second node's files come, then while it is noted that none of them stays."""
    full = [OSError(errno.ENOSPC, "No space left on device") for _ in range(2)]
    removed: List[str] = []

    class OnFullDisk(Nodes):
        def fetch(self, nodes: Sequence[str], remote_dir: str, local_dir: Path, **_: Any) -> None:
            super().fetch(nodes, remote_dir, local_dir)
            if nodes == ["node1"] and len(full) == 2:
                raise full.pop()

        def run(self, nodes: Sequence[str], command: str, *_: Any, **__: Any) -> Mapping[str, Result]:
            removed.extend(nodes if "rm -rf" in command else ())
            return super().run(nodes)

    def sync_folder(folder: Path) -> None:
        if full:
            raise full.pop()

    monkeypatch.setattr("cbt_plugins.journal.ROOM_EVERY", 0.0)
    monkeypatch.setattr(lifecycle, "sync_folder", sync_folder)
    names = ["node0", "node1"]
    nodes = OnFullDisk(names, ())
    monkeypatch.setattr(lifecycle.Remote, "of_cluster", lambda *_: nodes)
    monitor = SimpleNamespace(nodes=names, start=lambda directory: None, stop=lambda directory: None)
    with lifecycle.watch(lambda: [monitor], {"clients": names}, {}, "/scratch", tmp_path / "into"):
        assert not removed
    assert not full and removed == names
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == [f"agent.jsonl.{name}" for name in names]
    assert caplog.text.count("nothing is lost yet") == 2


def test_monitors_with_agents_are_stopped_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them waits for a node that is silent."""
    together, stopped = threading.Barrier(2, timeout=30), []

    def monitor_of(name: str, agents: bool) -> Any:
        def stop(directory: str) -> None:
            if agents:
                together.wait()
            stopped.append(agents)

        return SimpleNamespace(NAME=name, RECONNECTS=agents, nodes=[], start=lambda directory: None, stop=stop)

    monkeypatch.setattr(lifecycle.Remote, "of_cluster", lambda *_: Nodes([], ()))
    monitors = [monitor_of("a", True), monitor_of("b", False), monitor_of("c", True)]
    with lifecycle.watch(lambda: monitors, {"clients": []}, {}, "/scratch", tmp_path / "into"):
        assert not stopped
    assert stopped == [False, True, True]
    chosen = [lifecycle.select_monitors(monitors, None, reconnects) for reconnects in (None, True, False)]
    assert [[monitor.NAME for monitor in each] for each in chosen] == [["a", "b", "c"], ["a", "c"], ["b"]]


def test_as_many_files_may_be_open_as_the_hard_limit_allows(tmp_path: Path) -> None:
    """And `plan` says where that is too few."""
    (tmp_path / "f.yaml").write_text(FILE.format(nodes=", ".join(f"c{number}" for number in range(200))))
    program = "import resource, sys; from cbt_plugins.tools.__main__ import main; "
    program += "resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1]))); main(['plan', 'f.yaml']); "
    program += "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    for limit in ("900", "700"):
        line = [sys.executable, "-c", program, limit]
        output = subprocess.run(line, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        assert output.endswith(f"\n{limit}\n"), output
        assert ("connections to 200 nodes need 800 open files here, but the limit is 700" in output) == (limit == "700")


FILE = """\
cluster: {{user: root, head: c0, clients: [{nodes}], osds: [c0], mons: [c0], iterations: 1}}
benchmarks: {{rgwtest: {{s3: {{urls: ['http://rgw1:7480'], user: cbt}}}}}}
"""
