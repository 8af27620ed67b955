"""Monitors run while the context is open, whatever happens in it, and their files come home."""

from __future__ import annotations

import glob
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Sequence

import pytest
from waiting import wait_for
from watched import lines, running

from cbt_plugins.monitor import Monitor
from cbt_plugins.monitors import lifecycle
from cbt_plugins.monitors.collectl import Collectl
from cbt_plugins.monitors.resources import Resources

HERE = socket.gethostname()
CLUSTER: Dict[str, Any] = {"head": HERE, "clients": [HERE], "osds": [HERE]}


class Noting(Monitor):
    """Writes a file on its node, and notes its calls."""

    calls: ClassVar[List[str]] = []

    def start(self, directory: str) -> None:
        self.calls.append(f"start {self.config['name']}")
        if self.config.get("fail") == "start":
            raise OSError("no start")
        Path(directory, self.config["name"]).write_text("sample")

    def stop(self, directory: str) -> None:
        self.calls.append(f"stop {self.config['name']}")
        if self.config.get("fail") == "stop":
            raise OSError("no stop")


class Acting(Noting):
    INNERMOST = True


@pytest.fixture(autouse=True)
def _forget_calls() -> None:
    Noting.calls.clear()


def watch(tmp_path: Path, *configs: Dict[str, Any]) -> Any:
    return lifecycle.watch(
        lambda: [Noting(config, CLUSTER, {}) for config in configs],
        CLUSTER,
        {},
        str(tmp_path / "node"),
        tmp_path / "local",
    )


def test_files_arrive_under_the_name_of_their_node_and_leave_the_node(tmp_path: Path) -> None:
    with watch(tmp_path, {"name": "a"}, {"name": "b"}):
        assert Noting.calls == ["start a", "start b"]
    assert Noting.calls[2:] == ["stop b", "stop a"]
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == [f"a.{HERE}", f"b.{HERE}"]
    assert list((tmp_path / "node").iterdir()) == []


@pytest.mark.parametrize("key", ["watched", "mine"])
def test_nodes_that_only_monitors_name_are_prepared_and_their_files_arrive(key: str, tmp_path: Path) -> None:
    cluster = {**CLUSTER, key: ["localhost"]}
    monitor = Noting({"name": "a", "nodes": [key]}, cluster, {})
    with lifecycle.watch(lambda: [monitor], cluster, {}, str(tmp_path / "node"), tmp_path / "local"):
        pass
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["a.localhost"]
    assert list((tmp_path / "node").iterdir()) == []


def test_what_acts_begins_after_all_that_watches_and_ends_before_it(tmp_path: Path) -> None:
    def make() -> List[Monitor]:
        return [Acting({"name": "a"}, CLUSTER, {}), Noting({"name": "b"}, CLUSTER, {})]

    with lifecycle.watch(make, CLUSTER, {}, str(tmp_path / "node"), tmp_path / "local"):
        assert Noting.calls == ["start b", "start a"]
    assert Noting.calls[2:] == ["stop a", "stop b"]


def test_what_a_killed_run_has_left_is_ended_and_brought_home(tmp_path: Path) -> None:
    left = tmp_path / "node" / "monitors-1-1"
    (left / "a").mkdir(parents=True)
    (left / "a" / "samples").write_text("1\n")
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        since = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (left / "a.pid").write_text(f"{process.pid} {since}\n")
        lifecycle.bring_left(CLUSTER, {}, [HERE], str(tmp_path / "node"), tmp_path / "local")
        assert process.wait(600) == -signal.SIGINT
    assert (tmp_path / "local" / f"a.{HERE}" / "samples").read_text() == "1\n"
    assert list((tmp_path / "node").iterdir()) == []
    lifecycle.bring_left(CLUSTER, {}, [HERE], str(tmp_path / "nowhere"), tmp_path / "local")


def test_what_was_left_after_a_set_that_came_home_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Monitors begin anew where a fault has restarted nodes: a run that is killed later has files of both sets."""
    local = tmp_path / "local" / "01"
    for number in (2, 3):
        left = tmp_path / "node" / f"monitors-1-{number}" / "a"
        left.mkdir(parents=True, mode=0o700)
        (left / "samples").write_text(f"{number}\n")
    (local / f"a.{HERE}").mkdir(parents=True)
    (local / f"a.{HERE}" / "samples").write_text("1\n")
    lifecycle.bring_left(CLUSTER, {}, [HERE], str(tmp_path / "node"), local)
    found = [(local.with_name(name) / f"a.{HERE}" / "samples").read_text() for name in ("01", "01.2", "01.3")]
    assert found == ["1\n", "2\n", "3\n"]
    assert [path.name for path in local.glob("*/*")] == ["samples"]


def test_what_had_come_home_when_the_run_was_killed_comes_once(tmp_path: Path) -> None:
    """A kill between a node's files and their removal there; of the second one a part had come."""
    local = tmp_path / "local" / "01"
    left = tmp_path / "node" / "monitors-1-1"
    for name in ("a", "b"):
        (left / name).mkdir(parents=True, mode=0o700)
        (left / name / "samples").write_text("1\n")
    left.chmod(0o700)
    shutil.copytree(left / "a", local / f"a.{HERE}")
    (local / f"{lifecycle.SCRATCH}x1" / HERE).mkdir(parents=True)
    lifecycle.bring_left(CLUSTER, {}, [HERE], str(tmp_path / "node"), local)
    assert sorted(str(path.relative_to(tmp_path / "local")) for path in (tmp_path / "local").glob("*/*")) == [
        f"01/a.{HERE}",
        f"01/b.{HERE}",
    ]


def test_two_names_of_one_machine_have_their_files(tmp_path: Path) -> None:
    cluster = {"head": HERE, "clients": ["localhost"]}
    with lifecycle.watch(
        lambda: [Noting({"name": "a", "nodes": ["head", "clients"]}, cluster, {})],
        cluster,
        {},
        str(tmp_path / "node"),
        tmp_path / "local",
    ):
        pass
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == sorted([f"a.{HERE}", "a.localhost"])


def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """An `ssh` that runs the last of its arguments here, after `text`, which has it as $last."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor last; do :; done\n{text}\nexec sh -c "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("cbt_plugins.polling.TRY_AGAIN", 0.0)


#: nodes behind `ssh`
THERE: Dict[str, Any] = {"osds": ["n1"], "head": HERE}
NO_PDSH = {"pdsh_cmd": "none"}


def test_a_node_that_is_silent_at_the_start_is_watched_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ssh(tmp_path, monkeypatch, f"[ -e {tmp_path}/up ] || exit 255")
    made = Resources({"interval": 0.1, "nodes": ["osds"]}, THERE, NO_PDSH)
    with lifecycle.watch(lambda: [made], THERE, NO_PDSH, str(tmp_path / "node"), tmp_path / "local"):
        (tmp_path / "up").touch()
        file = tmp_path / "node" / "*" / "resources" / "n1.jsonl"
        wait_for(lambda: any(len(lines(Path(name))) > 2 for name in glob.glob(str(file))))
    assert "no reply from n1" in caplog.text
    assert json.loads((tmp_path / "local" / "nodes.json").read_text()) == {"resources": ["n1"]}
    assert lines(tmp_path / "local" / "resources.n1" / "n1.jsonl")[-1]["end"] == "told"
    assert list((tmp_path / "node").iterdir()) == []


def test_monitors_that_begin_later_leave_the_agents_of_the_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ssh(tmp_path, monkeypatch, "true")
    agents = Resources({"interval": 0.1, "nodes": ["osds"]}, THERE, NO_PDSH)
    later = Noting({"name": "later", "nodes": ["osds"]}, THERE, NO_PDSH)
    with lifecycle.watch(lambda: [agents], THERE, NO_PDSH, str(tmp_path / "node"), tmp_path / "local"):
        wait_for(lambda: any(lines(path) for path in (tmp_path / "node").glob("*/resources/n1.jsonl")))
        (record,) = (tmp_path / "node").glob("*/**/*.pid")
        agent = record.read_text()
        with lifecycle.watch(lambda: [later], THERE, NO_PDSH, str(tmp_path / "node"), tmp_path / "local"):
            assert record.read_text() == agent and running(int(agent.split()[0]))
    assert "lost connections" not in caplog.text
    assert {path.name for path in (tmp_path / "local").iterdir()} == {"later.n1", "resources.n1", "nodes.json"}


def test_what_a_killed_run_left_and_does_not_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new run has its folder all the same."""
    program = tmp_path / "stop.sh"
    program.write_text("echo process 7 does not end >&2; exit 1\n")
    monkeypatch.setattr(lifecycle, "STOP", program)
    ssh(tmp_path, monkeypatch, "true")
    made = Resources({"interval": 0.1, "nodes": ["osds"]}, THERE, NO_PDSH)
    with lifecycle.watch(lambda: [made], THERE, NO_PDSH, str(tmp_path / "node"), tmp_path / "local"):
        (folder,) = (tmp_path / "node").iterdir()
    assert folder.name.startswith("monitors-") and "n1: process 7 does not end" in caplog.text


def test_files_are_fetched_again_when_a_connection_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    once = f'{{ echo "Connection reset by peer" >&2; touch {tmp_path}/once; exit 255; }}'
    ssh(tmp_path, monkeypatch, f'case "$last" in *"exec tar -c"*) [ -e {tmp_path}/once ] || {once};; esac')
    with lifecycle.watch(
        lambda: [Noting({"name": "a", "nodes": "osds"}, THERE, NO_PDSH)],
        THERE,
        NO_PDSH,
        str(tmp_path / "node"),
        tmp_path / "local",
    ):
        pass
    assert (tmp_path / "local" / "a.n1").read_text() == "sample"
    assert list((tmp_path / "node").iterdir()) == []
    assert "n1: exit status 255: Connection reset by peer" in caplog.text


@pytest.mark.parametrize("attribute", ["nodes", "_nodes"])
def test_the_nodes_of_cbts_monitors_are_noted_in_each_era(tmp_path: Path, attribute: str) -> None:
    """CBT has them as "user@host,user@host"."""
    its = type("Plugin_x", (), {"PROFILE": "x", "RECONNECTS": True, attribute: f"root@{HERE}"})()
    its.start = its.stop = lambda directory: None
    with lifecycle.watch(lambda: [its], CLUSTER, {}, str(tmp_path / "node"), tmp_path / "local"):
        pass
    assert json.loads((tmp_path / "local" / lifecycle.NODES).read_text()) == {"x": [HERE]}


def test_what_stayed_on_a_node_of_a_complete_run_comes_home_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ssh(tmp_path, monkeypatch, f'case "$last" in *"exec tar -c"*) [ -e {tmp_path}/up ] || exit 255;; esac')
    run_dir, local = tmp_path / "node" / "warp-0123abcd", tmp_path / "archive" / "monitors" / "01"
    with lifecycle.watch(
        lambda: [Noting({"name": "a", "nodes": "osds"}, THERE, NO_PDSH)], THERE, NO_PDSH, str(run_dir), local
    ):
        pass
    assert "monitor files of n1 stay in" in caplog.text
    kept: List[Path] = []

    def keep(paths: Sequence[Path]) -> None:
        assert (local / lifecycle.LEFT).exists() and list(run_dir.iterdir()), "a kill now would lose them"
        if not (tmp_path / "room").exists():
            raise OSError(28, "No space left on device")
        kept.extend(paths)

    again = partial(lifecycle.bring_noted, THERE, NO_PDSH, "warp-0123abcd", local.parent, keep)
    assert not again() and list(run_dir.iterdir())
    lifecycle.bring_left(CLUSTER, NO_PDSH, [HERE], str(tmp_path / "another"), local)
    (tmp_path / "another" / "monitors-7-7").mkdir(parents=True, mode=0o700)
    lifecycle.bring_left(CLUSTER, NO_PDSH, [HERE], str(tmp_path / "another"), local)  # what is noted stays noted
    (tmp_path / "up").touch()
    with pytest.raises(OSError, match="No space left"):
        again()
    (tmp_path / "room").touch()
    (local / f"{lifecycle.SCRATCH}killed" / "n1").mkdir(parents=True)
    fewer = {**THERE, "osds": [HERE]}
    assert not lifecycle.bring_noted(fewer, NO_PDSH, "warp-0123abcd", local.parent, keep)  # it stays noted
    assert again() == kept == [local / "a.n1"] and not list(run_dir.iterdir())
    assert [path.name for path in local.iterdir()] == ["a.n1"]
    assert not again()


def test_only_folders_of_the_run_are_brought_home(tmp_path: Path) -> None:
    """Anybody may have written the archive, and what was fetched is removed."""
    other = tmp_path / "warp-other" / "monitors-1-1"
    other.mkdir(parents=True, mode=0o700)
    (tmp_path / "archive" / "01").mkdir(parents=True)
    inside = str(tmp_path / "warp-0123abcd" / "monitors-1-1" / ".." / ".." / "warp-other" / "monitors-1-1")
    for folder in (str(other), inside, str(tmp_path / "warp-0123abcd")):
        (tmp_path / "archive" / "01" / lifecycle.LEFT).write_text(json.dumps({folder: [HERE]}))
        assert not lifecycle.bring_noted(CLUSTER, {}, "warp-0123abcd", tmp_path / "archive", print)
    assert other.is_dir()


def test_an_exception_stops_them_and_brings_their_files(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), watch(tmp_path, {"name": "a"}):
        raise KeyboardInterrupt
    assert Noting.calls == ["start a", "stop a"]
    assert (tmp_path / "local" / f"a.{HERE}").read_text() == "sample"


def test_one_that_does_not_start_stops_those_that_did(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="no start"),
        watch(tmp_path, {"name": "a"}, {"name": "b", "fail": "start"}),
    ):
        raise AssertionError("the context must not be entered")
    assert Noting.calls == ["start a", "start b", "stop b", "stop a"]


def test_one_that_does_not_stop_does_not_keep_the_others(tmp_path: Path) -> None:
    with watch(tmp_path, {"name": "a"}, {"name": "b", "fail": "stop"}):
        pass
    assert Noting.calls[2:] == ["stop b", "stop a"]
    assert (tmp_path / "local" / f"b.{HERE}").exists()


def test_two_contexts_after_one_another_do_not_mix(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with lifecycle.watch(
            lambda name=name: [Noting({"name": name}, CLUSTER, {})],
            CLUSTER,
            {},
            str(tmp_path / "node"),
            tmp_path / name,
        ):
            pass
        assert [path.name for path in (tmp_path / name).iterdir()] == [f"{name}.{HERE}"]


def test_without_profiles_nothing_is_sent_to_a_node(tmp_path: Path) -> None:
    with watch(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ValueError, match="colectl: unknown profile; known: collectl"):
        lifecycle.build({"colectl": {}}, {"collectl": lambda: Collectl}, CLUSTER, {})


@pytest.fixture
def collectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that notes its arguments and pids, and starts a process of its own. Gives its directory."""
    program = tmp_path / "bin" / "collectl"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable} -S\nimport os, pathlib, signal, subprocess, sys\nos.chdir({str(program.parent)!r})\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the real one: what a shell runs beside it ignores it\n"
        "os.write(os.open('starts', os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'1')\n"
        "pathlib.Path('args').write_text('\\n'.join(sys.argv[1:]))\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "pathlib.Path('pids').write_text(f'{child.pid}\\n{os.getpid()}\\n')\nchild.wait()\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program.parent


def pids_of(collectl: Path) -> List[int]:
    """Those of the stand-in and its child, when both are there."""
    file = collectl / "pids"
    wait_for(lambda: file.exists() and file.read_text().count("\n") == 2)
    return [int(pid) for pid in file.read_text().split()]


def test_collectl_ends_with_all_that_it_started(collectl: Path, tmp_path: Path) -> None:
    monitor = Collectl({}, CLUSTER, {})
    monitor.start(str(tmp_path / "node"))
    pids = pids_of(collectl)
    assert all(map(running, pids))
    monitor.stop(str(tmp_path / "node"))
    assert not any(map(running, pids))


def test_two_names_of_a_machine_start_one_collectl(collectl: Path, tmp_path: Path) -> None:
    """At one time, as the names of a run do, and once again."""
    monitor = Collectl({}, {**CLUSTER, "osds": [HERE, "localhost"]}, {})
    for _ in range(2):
        monitor.start(str(tmp_path / "node"))
        pids = pids_of(collectl)
    monitor.stop(str(tmp_path / "node"))
    assert (collectl / "starts").read_text() == "1" and not any(map(running, pids))


#: a machine of its own, as far as processes go
ANOTHER_MACHINE = ["unshare", "--map-root-user", "--fork", "--kill-child", "--pid", "--mount-proc"]


@pytest.mark.skipif(
    subprocess.run([*ANOTHER_MACHINE, "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may make no namespaces",
)
def test_machines_that_share_a_folder_end_their_own_collectl_each(collectl: Path, tmp_path: Path) -> None:
    monitor = Collectl({}, CLUSTER, {})
    monitor.start(str(tmp_path / "node"))
    pids = pids_of(collectl)
    own_records = [path.read_text() for path in (tmp_path / "node" / "collectl").glob("*.pid")]
    script = (
        "import pathlib, sys; sys.path[:0] = sys.argv[1:2]\n"
        "from test_host_monitoring import CLUSTER, Collectl, pids_of, running\n"
        "monitor, node, program = Collectl({}, CLUSTER, {}), sys.argv[2], pathlib.Path(sys.argv[3])\n"
        "(program / 'pids').unlink()\nmonitor.start(node)\npids = pids_of(program)\nassert all(map(running, pids))\n"
        "monitor.stop(node)\nassert not any(map(running, pids))\n"
    )
    arguments = [str(Path(__file__).parent), str(tmp_path / "node"), str(collectl)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*ANOTHER_MACHINE, sys.executable, "-c", script, *arguments], env=environment, check=True)
    assert [path.read_text() for path in (tmp_path / "node" / "collectl").glob("*.pid")] == own_records
    assert all(map(running, pids)) and (collectl / "starts").read_text() == "11"
    monitor.stop(str(tmp_path / "node"))
    assert not any(map(running, pids))


def test_collectl_gets_the_arguments_of_the_profile(collectl: Path, tmp_path: Path) -> None:
    node = tmp_path / "a node"
    monitor = Collectl({"args": "-sc -f '{collectl_dir}' --filter 'a|b'"}, CLUSTER, {})
    monitor.start(str(node))
    pids_of(collectl)
    monitor.stop(str(node))
    assert (collectl / "args").read_text().splitlines() == [
        "-sc",
        "-f",
        f"{node}/collectl",
        "--filter",
        "a|b",
    ]


def test_another_process_with_the_recorded_pid_is_spared(collectl: Path, tmp_path: Path) -> None:
    monitor = Collectl({}, CLUSTER, {})
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        (tmp_path / "node" / "collectl").mkdir(parents=True)
        (tmp_path / "node" / "collectl" / "collectl.pid").write_text(f"{stranger.pid} 1\n")
        monitor.stop(str(tmp_path / "node"))
        assert stranger.poll() is None
    finally:
        os.kill(stranger.pid, signal.SIGKILL)
        stranger.wait()


def test_what_a_killed_run_left_is_ended_by_the_next(collectl: Path, tmp_path: Path) -> None:
    """kill -9 leaves collectl running on every node: its pid file is there, the object that knew it is not."""
    left = tmp_path / "node" / "monitors-99-1"
    Collectl({}, CLUSTER, {}).start(str(left))
    pids = pids_of(collectl)
    with watch(tmp_path, {"name": "a"}):
        assert not any(map(running, pids))
    assert not list(left.glob("*/*.pid"))


def test_a_missing_collectl_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name in ("sh", "timeout"):
        (bin_dir / name).symlink_to(f"/bin/{name}" if name == "sh" else "/usr/bin/timeout")
    monkeypatch.setenv("PATH", str(bin_dir))
    Collectl({}, CLUSTER, {}).start(str(tmp_path / "node"))
    assert f"collectl is not installed on {HERE}" in caplog.text
