"""The resources monitor on this machine: what it counts of real processes, and that it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from burning_daemon import ID, Daemon, closed
from waiting import wait_for
from watched import lines, running

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.monitors import lifecycle, resources_agent
from cbt_plugins.monitors.resources import Resources
from cbt_plugins.results.nodes import node_samples
from cbt_plugins.results.nodes import resources as analysis
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.usage import Networks

HERE = socket.gethostname()
FILE, PID = f"{HERE}.jsonl", f"resources/{HERE}.pid"
CLUSTER: Dict[str, Any] = {"head": HERE, "clients": [HERE], "osds": [HERE], "mons": [HERE]}
NO_LOAD = {"made": False, "per_s": 0.0, "bytes_per_s": 0.0, "ops": {}}


def file_in(run_dir: Path) -> Optional[Path]:
    return next(iter(run_dir.glob(f"*/resources/{FILE}")), None)


def known(file: Path) -> List[int]:
    """Pids of the daemons that have been named."""
    found = []
    for line in lines(file):
        found += [about["pid"] for about in (line.get("names") or {}).get("d", {}).values()]
    return found


def gone(file: Path) -> List[int]:
    """Pids of those that have gone."""
    pids: Dict[int, int] = {}
    found = []
    for line in lines(file):
        pids.update((int(i), about["pid"]) for i, about in (line.get("names") or {}).get("d", {}).items())
        found += [pids[index] for index in line.get("gone", [])]
    return found


def monitor() -> Resources:
    return Resources({"interval": 0.1}, CLUSTER, {})


def test_a_busy_loop_is_as_many_cores_as_it_uses(tmp_path: Path, daemon: Callable[[str, float], Daemon]) -> None:
    run_dir, local = tmp_path / "a node", tmp_path / "local"
    with lifecycle.watch(lambda: [monitor()], CLUSTER, {}, str(run_dir), local):
        file = wait_for(lambda: file_in(run_dir))
        wait_for(lambda: len(lines(file)) > 3)
        before = time.time()
        its = daemon(ID, 1.5)
        begin, end, used = its.burnt()
        total = its.total()
        wait_for(lambda: lines(file)[-1]["t"] > end + 0.3 and its.process.pid in known(file))
        wait_for(lambda: any(row[0] for row in lines(file)[-1].get("d", [])))
        after = lines(file)[-1]["t"]
        (pid_file,) = run_dir.glob(f"*/{PID}")
        agent = int(pid_file.read_text().split()[0])
    assert not running(agent)
    assert list(run_dir.iterdir()) == []
    folder = local / f"resources.{HERE}"
    assert {path.name for path in folder.iterdir()} == {"output.txt", FILE}
    assert (folder / "output.txt").read_text() == ""
    written = lines(folder / FILE)
    assert written[0]["version"] == 2 and written[0]["node"] == os.uname().nodename
    assert written[-1]["end"] == "told" and written[-1]["samples"] > 3

    (node,) = read_nodes(local, {})
    # it may have been found late: what it used before is told all the same, spread over the time since its start
    window = (before, after)
    made = analysis.of_window([node], window, NO_LOAD, {}, Networks())
    (line,) = [line for line in made["daemons"] if line["pid"] == its.process.pid]
    assert (line["class"], line["id"], line["restarts"]) == ("osd", ID, 0)
    assert line["cores"] * (window[1] - window[0]) == pytest.approx(total, abs=0.1)
    within = analysis.of_window([node], (begin, end), NO_LOAD, {}, Networks())
    (line,) = [line for line in within["daemons"] if line["pid"] == its.process.pid]
    assert line["cores"] == pytest.approx(used / (end - begin), abs=(total - used + 0.1) / (end - begin))
    assert line["rss_mib"] > 1 and line["threads"] == 1


def test_another_process_of_the_same_name_is_a_restart(tmp_path: Path, daemon: Callable[[str, float], Daemon]) -> None:
    run_dir, local = tmp_path / "node", tmp_path / "local"
    first = daemon(ID, 0.4)
    with lifecycle.watch(lambda: [monitor()], CLUSTER, {}, str(run_dir), local):
        file = wait_for(lambda: file_in(run_dir))
        wait_for(lambda: first.process.pid in known(file) and "s" in lines(file)[-1])  # named, and measured once
        first.burnt()
        first.process.kill()  # nobody has asked for its end: it is still there, dead
        wait_for(lambda: first.process.pid in gone(file))
        second = daemon(ID, 0.4)
        second.burnt()
        wait_for(lambda: second.process.pid in known(file))  # at once, and not at the next look at all
        wait_for(lambda: lines(file)[-1]["t"] > time.time() - 0.1)
    (node,) = read_nodes(local, {})
    written = lines(local / f"resources.{HERE}" / FILE)
    window = (written[0]["t"], written[-1]["t"])
    made = analysis.of_window([node], window, NO_LOAD, {}, Networks())
    (line,) = [line for line in made["daemons"] if line["id"] == ID]
    assert line["restarts"] == 1 and line["pid"] == second.process.pid
    # the second one burnt before it was found: what it used counts from its start
    assert line["cores"] * (window[1] - window[0]) >= 0.35


def test_it_ends_when_the_one_who_asked_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    its = monitor()
    its.start(str(tmp_path / "node"))
    file = tmp_path / "node" / "resources" / FILE
    wait_for(lambda: len(lines(file)) > 2)
    pid = int((tmp_path / "node" / PID).read_text().split()[0])
    assert its.connections_process is not None
    its.connections_process.kill()  # as a crash of the head would
    its.connections_process.wait()
    wait_for(lambda: not running(pid))
    assert lines(file)[-1]["end"] == "told"
    its.stop(str(tmp_path / "node"))
    text = "resources: the process with its connections ended before the monitor (exit status -9): samples are missing"
    assert caplog.messages == [text]


def test_a_lost_connection_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    its = monitor()
    its.start(str(tmp_path / "node"))
    file = tmp_path / "node" / "resources" / FILE
    try:
        wait_for(lambda: len(lines(file)) > 2)
        first = int((tmp_path / "node" / PID).read_text().split()[0])
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: sum("version" in line for line in lines(file)) == 2)
        wait_for(lambda: "s" in lines(file)[-1])
    finally:
        its.stop(str(tmp_path / "node"))
    assert f"{HERE} (1 times)" in caplog.text
    node = node_samples.read_node(file, HERE)
    assert node is not None
    t = [line["t"] for line in lines(file)]
    missing = (t[-1] - t[0]) - node.processors.watched_seconds((t[0], t[-1]))[0]
    assert "ended before the monitor" not in caplog.text
    assert missing > 0.5  # what nobody watched is not made up


def test_an_agent_that_cannot_run_is_told_while_the_run_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    its, said = monitor(), []
    its.argument = lambda: "no number"  # type: ignore[method-assign]
    its.start(str(tmp_path / "node"))
    try:
        wait_for(lambda: said.append(capfd.readouterr().err) or "ended" in "".join(said))
    finally:
        its.stop(str(tmp_path / "node"))
    text = f"resources: its agent does not run on {HERE}: the agent ended 3 times at once, exit status 1"
    assert f"WARNING  - cbt_plugins.monitors - {text}; see {tmp_path}/node/resources/output.txt there" in "".join(said)
    assert text in caplog.text
    assert "no number" in (tmp_path / "node" / "resources" / "output.txt").read_text()


def test_a_new_connection_begins_a_new_line(tmp_path: Path) -> None:
    its, file = monitor(), tmp_path / "node" / "resources" / FILE
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_bytes(b'{"version": 2}\n{"t": 1')
    its.start(str(tmp_path / "node"))
    try:
        wait_for(lambda: file.read_bytes().count(b'"version"') == 2)
    finally:
        its.stop(str(tmp_path / "node"))
    assert file.read_bytes().startswith(b'{"version": 2}\n{"t": 1\n{"version":2,')


def test_one_that_has_lost_its_connection_is_replaced(tmp_path: Path) -> None:
    its, left = monitor(), monitor()
    left.start(str(tmp_path / "node"))
    file, pid_file = tmp_path / "node" / "resources" / FILE, tmp_path / "node" / PID
    wait_for(lambda: len(lines(file)) > 2)
    first = int(pid_file.read_text().split()[0])
    assert left.connections_process is not None
    os.kill(left.connections_process.pid, signal.SIGSTOP)  # it does not see that its agent is replaced
    try:
        its.start(str(tmp_path / "node"))
        wait_for(lambda: not running(first))
        wait_for(lambda: int(pid_file.read_text().split()[0]) != first)
    finally:
        its.stop(str(tmp_path / "node"))
        left.connections_process.kill()
        left.stop(str(tmp_path / "node"))


def test_two_names_of_one_machine_have_a_file_each(tmp_path: Path) -> None:
    its = Resources({"interval": 0.2}, {"head": HERE, "clients": ["localhost"]}, {})
    folder = tmp_path / "node" / "resources"
    its.start(str(tmp_path / "node"))
    try:
        for file in (folder / FILE, folder / "localhost.jsonl"):
            wait_for(lambda file=file: len(lines(file)) > 4)  # type: ignore[misc]
    finally:
        its.stop(str(tmp_path / "node"))
    for file in (folder / FILE, folder / "localhost.jsonl"):
        assert sum("version" in line for line in lines(file)) == 1
        assert lines(file)[-1]["end"] == "told"
    assert not list((tmp_path / "node").glob("*/*.pid"))


def test_a_monitor_ends_what_is_its_own(tmp_path: Path) -> None:
    """Its neighbour's agent, in a folder beside its own, keeps running."""
    one, other = monitor(), monitor()
    other.NAME = "neighbour"  # type: ignore[misc]
    node = tmp_path / "node"
    one.start(str(node))
    other.start(str(node))
    try:
        wait_for(lambda: all(lines(node / name / FILE) for name in ("resources", "neighbour")))
        one.stop(str(node))
        assert running(int((node / "neighbour" / f"{HERE}.pid").read_text().split()[0]))
    finally:
        other.stop(str(node))
    assert lines(node / "neighbour" / FILE)[-1]["end"] == "told"


def test_a_process_that_does_not_lead_its_group_is_ended_alone(tmp_path: Path) -> None:
    """As an agent in a container: a shell of CBT leads its group."""
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    with subprocess.Popen(["sleep", "1000"]) as agent, subprocess.Popen(["sleep", "1000"]) as neighbour:
        started = Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (folder / "x.pid").write_text(f"{agent.pid} {started}\n")
        try:
            lifecycle.stop_by_pid_files(Remote.of_cluster(CLUSTER, {}), [HERE], str(folder))
            assert agent.poll() == -signal.SIGINT and neighbour.poll() is None
        finally:
            for process in (agent, neighbour):
                process.kill()
    assert not list(folder.iterdir())


def test_a_gap_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: List[bytes] = []
    monkeypatch.setattr(resources_agent.os, "write", lambda fd, data: written.append(data))
    sampler = resources_agent.NodeSampler()
    with closed(sampler.processes):
        sampler.begin(1.0)
        sampler.sample(600.0)  # whatever else this machine does
        now = time.monotonic()
        monkeypatch.setattr(resources_agent.time, "monotonic", lambda: now + 7.5)
        sampler.sample(1.0)
    monkeypatch.undo()
    (tmp_path / "x.jsonl").write_bytes(b"".join(written))
    *_, before, last = lines(tmp_path / "x.jsonl")
    assert "gap" not in before
    assert last["gap"] == [last["gap"][0], "the node was too busy"] and last["gap"][0] >= 7.4
    node = node_samples.read_node(tmp_path / "x.jsonl", "x")
    assert node is not None and [gap["why"] for gap in node.gaps] == ["the node was too busy"]
