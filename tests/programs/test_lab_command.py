from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from cbt_plugins.exit_status import CANNOT
from cbt_plugins.tools import lab
from cbt_plugins.tools.__main__ import main
from cbt_plugins.tools.lab.daemons import daemon_name
from cbt_plugins.tools.lab.process import LabProcess
from cbt_plugins.tools.lab.topology import LabRecord


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    lab.add_arguments(parser.add_subparsers().add_parser("lab"))
    return parser.parse_args(["lab", *words])


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--", "ceph", "-s"], ["ceph", "-s"]),
        (["ceph", "-s"], ["ceph", "-s"]),
        (["--", "sh", "-c", "true", "--", "x"], ["sh", "-c", "true", "--", "x"]),
        ([], []),
    ],
)
def test_what_follows_the_node_is_the_command(words: List[str], command: List[str]) -> None:
    args = parsed("exec", "--dir", "/d", "node0", *words)
    assert (args.node, args.dir, lab.command_after_dashes(args.command)) == ("node0", Path("/d"), command)


def test_options_before_the_dashes_are_the_labs() -> None:
    args = parsed("run", "--ec", "2+1", "--wipe", "--", "cmd", "--ec", "9")
    assert (args.ec, args.wipe, lab.command_after_dashes(args.command)) == ((2, 1), True, ["cmd", "--ec", "9"])


def test_shape_options_reach_the_topology() -> None:
    words = "--osd-nodes 3 --osds-per-node 1 --no-rgw --clients 1 --block 2GiB --osd-memory 1GiB --no-mux"
    shape = lab.topology_of(parsed("up", *words.split(), "--bind", "/srv", "--root", "/r"))
    assert shape == lab.Topology(3, 1, 0, 1, 1, 1, None, 32, 2 << 30, 1 << 30, 20, False, "/r", ("/srv",))


@pytest.mark.parametrize(
    "words",
    [["up", "--ec", "2"], ["up", "--block", "10G"], ["link", "node1", "sideways"], ["switch", "osd.0", "--bind=/srv"]],
)
def test_wrong_values_are_usage_faults(words: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(*words)
    assert caught.value.code == 2
    assert words[-1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["--delay", "50ms"], (0.05, 0.0)),
        (["--delay", "0.05s", "--way", "in"], (0.0, 0.05)),
        (["--delay", "1.5 ms", "--way", "both"], (0.0015, 0.0015)),
        (["--delay", "0"], (0.0, 0.0)),
    ],
)
def test_a_link_has_a_state_or_a_delay(
    words: List[str], seconds: Tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: List[Any] = []
    monkeypatch.setattr(lab.Lab, "delay_link", lambda self, *values: asked.append(values))
    monkeypatch.setattr(lab.Lab, "link", lambda self, *values: asked.append(values))
    assert main(["lab", "link", "--dir", "/d", "node3", *words]) == 0
    assert main(["lab", "link", "--dir", "/d", "node3", "down"]) == 0
    assert asked == [("node3", *seconds), ("node3", False)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--delay", "50"], "50: seconds? write 50s"),
        ([], "state --delay is required"),  # as of an empty variable of a script
        (["--delay", "11s"], "11s: must be at most 10s"),
        (["up", "--delay", "50ms"], "not allowed with"),
        (["up", "--way", "in"], "--way needs --delay"),
    ],
)
def test_a_wrong_delay_is_a_usage_error(words: List[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["lab", "link", "--dir", "/d", "node3", *words])
    except SystemExit as error:
        status = int(str(error.code))
    assert status == 2 and says in capsys.readouterr().err


def test_a_folder_without_a_lab_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "status", "--dir", str(tmp_path)]) == 2
    assert main(["lab", "exec", "--dir", str(tmp_path), "node0", "--", "true"]) == 2
    assert capsys.readouterr().err.count(f"no lab in {tmp_path}") == 2


def test_a_root_folder_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--dir", str(tmp_path / "lab"), "--root", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: not the root folder" in capsys.readouterr().err


def test_wipe_removes_only_what_the_lab_made(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work")
    assert main(["lab", "down", "--dir", str(tmp_path), "--wipe"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["ceph-osd", "-i", "3", "--pid-file", "/run/ceph/osd.3.pid"], "osd.3"),
        (["/usr/bin/ceph-mon", "-i", "node0"], "mon"),
        (["radosgw", "-n", "client.rgw1"], "rgw"),
        (["sshd: /usr/sbin/sshd -f /root/.ssh/sshd_config [listener] 0 of 200-400 startups"], "sshd"),
        (["sshd: root@notty"], None),
        (["vim", "ceph-osd"], None),
        ([], None),
    ],
)
def test_daemons_are_known_by_their_arguments(command: List[str], name: str) -> None:
    assert daemon_name(command) == name


def test_a_folder_that_nodes_would_not_see_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--dir", "/dev/shm/of-cbt-plugins"]) == 2
    assert "each node has its own /dev" in capsys.readouterr().err and not Path("/dev/shm/of-cbt-plugins").exists()


@pytest.mark.parametrize(
    ("folder", "root", "why"),
    [
        ("/root", "/", "each node has its own /root"),
        ("/tmp", "/", "each node has its own /tmp"),
        ("/var/tmp", "/", "each node has its own /var/tmp"),
        ("/dev/shm", "/", "each node has its own /dev"),
        ("/run", "/", "each node has its own /run"),
        ("/home", "/srv", "nodes have the folders of /srv"),
        ("/srv", "/srv", "nodes have the folders of /srv"),
        ("/tmp/no/such", "/", "no such folder: make the folder first"),
    ],
)
def test_a_bound_folder_that_nodes_would_not_see_is_refused(
    folder: str, root: str, why: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive there would be lost, without a word."""
    monkeypatch.setattr(lab.Lab, "up", lambda *_, **__: 1 / 0)
    words = ["--dir", str(tmp_path / "lab"), "--root", root, "--bind", folder]
    assert main(["lab", "run", *words, "--", "true"]) == 2
    assert f"--bind {folder}: {why}" in capsys.readouterr().err and not (tmp_path / "lab").exists()


@pytest.mark.parametrize(("root", "given", "refused"), [("/srv", "/", True), ("/", "/srv", False)])
def test_a_bound_folder_is_judged_by_the_root_of_the_cluster_that_is_there(
    root: str, given: str, refused: bool, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab.Lab, "up", lambda *_, **__: 1 / 0)
    LabRecord(lab.Topology(1, 1, 0, 0, root=root), "fsid", {"0": "u"}, "created").save(tmp_path)
    status = main(["lab", "up", "--dir", str(tmp_path), "--root", given, "--bind", "/home"])
    assert status == (2 if refused else CANNOT)
    error = capsys.readouterr().err
    assert ("--bind /home: nodes have the folders of /srv" in error) == refused == ("ZeroDivisionError" not in error)


@pytest.mark.parametrize("seen", [True, False])
def test_a_working_folder_that_nodes_do_not_see_gives_a_warning(
    seen: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbt_plugins.tools.lab.cluster.missing", lambda *_, **__: ([], []))
    monkeypatch.setattr("cbt_plugins.tools.lab.cluster.refuse_without_namespaces", lambda _: 1 / 0)
    monkeypatch.chdir(tmp_path if seen else "/tmp")
    assert main(["lab", "up", "--dir", str(tmp_path / "lab"), "--bind", str(tmp_path)]) == CANNOT
    said, error = "nodes do not see the working folder /tmp (each node has its own /tmp)", capsys.readouterr().err
    assert (said in error) != seen and "ZeroDivisionError" in error


@pytest.mark.parametrize("verb", ["up", "run"])
@pytest.mark.parametrize("name", ["log", "run", "restoring"])
def test_a_folder_with_something_else_in_it_stays_as_it_is(
    verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lab closes its folder, and removes what a lab of before has left: etc, log, run/*.json, ..."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.json").touch()
    tmp_path.chmod(0o755)
    words = ["--root", str(tmp_path / "none"), *(["--", "true"] if verb == "run" else [])]
    assert main(["lab", verb, "--dir", str(tmp_path), *words]) == 2
    assert f"not a lab's folder, and not empty ({name})" in capsys.readouterr().err
    assert (tmp_path / name / "mine.json").exists() and tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_folder_of_an_up_that_was_killed_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").touch()
    assert main(["lab", "up", "--dir", str(tmp_path), "--root", str(tmp_path / "none")]) == 2
    assert "not the root folder of a Linux release" in capsys.readouterr().err


@pytest.mark.parametrize("python", [sys.executable, ".venv/bin/python", "/usr/bin/python3"])
def test_a_python_of_this_machine_is_that_of_the_nodes_release(python: str, tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/python3").touch()
    for root, there in (("/", python), (str(tmp_path), python if python == "/usr/bin/python3" else "python3")):
        record = SimpleNamespace(topology=SimpleNamespace(root=root, node=str))
        made: Any = SimpleNamespace(spaces=SimpleNamespace(enter=lambda node: []), record=record)
        argv = lab.Lab.enter(made, "node0", [python, "-m", "x"])
        assert argv[-3:] == [there, "-m", "x"] and ("PYTHONSAFEPATH=1" in argv) == (there == "python3")


@pytest.mark.parametrize("command", ["cbt-tools", ".venv/bin/cbt-tools", "/opt/venv/bin/cbt-tools", "python"])
def test_our_command_runs_with_the_python_of_the_nodes_release(command: str, tmp_path: Path) -> None:
    """Its first line names a Python of this machine, which finds no modules there."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/python3").touch()
    module = [] if command == "python" else ["-m", "cbt_plugins.tools"]
    for root, words in (("/", [command]), (str(tmp_path), ["PYTHONSAFEPATH=1", "python3", *module])):
        record = SimpleNamespace(topology=SimpleNamespace(root=root, node=str))
        made: Any = SimpleNamespace(spaces=SimpleNamespace(enter=lambda node: []), record=record)
        argv = lab.Lab.enter(made, "node0", [command, "undo", "faults"])
        assert argv[-len(words) - 2 :] == [*words, "undo", "faults"]
    (tmp_path / "usr/bin" / Path(command).name).touch()
    argv = lab.Lab.enter(made, "node0", [Path(command).name, "undo"])
    assert argv[-2:] == [Path(command).name, "undo"], "a release may have its own"


#: the uid of an attacker: any that is neither root's nor ours
OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives files to another user")


@needs_root
@pytest.mark.parametrize(
    "words",
    [
        *(["status"], ["down"], ["down", "--wipe"], ["exec", "node0", "--", "true"], ["crash", "node0"]),
        *(["stop-osds", "node1"], ["link", "node1", "down"], ["snapshot", "aged"]),
    ],
)
def test_no_verb_trusts_the_folder_of_another_user(
    words: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could name any process as a node, whose programs root would run, and any folder as its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ours, folder = tmp_path / "ours", tmp_path / "lab"
    ours.mkdir()
    (ours / "results.json").write_text("{}")
    (ours / "lock").write_text("kept")
    with subprocess.Popen(["sleep", "1000"]) as victim:
        process = LabProcess.of(victim.pid)
        assert process
        for name in ("lab", "node0", "node1"):
            (ours / f"{name}.json").write_text(json.dumps(vars(process)))
        before = {path.name: path.read_text() for path in ours.iterdir()}
        folder.mkdir()
        LabRecord(lab.Topology(1, 1, 0, 0), "fsid", {"0": "u"}, "created").save(folder)
        (folder / "run").symlink_to(ours)
        os.chown(folder, OTHER, OTHER)
        try:
            assert main(["lab", words[0], "--dir", str(folder), *words[1:]]) == 1
            assert victim.poll() is None
        finally:
            victim.kill()
    assert "lab belongs to user nobody: others could replace what runs there" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in ours.iterdir()} == before
    assert sorted(path.name for path in folder.iterdir()) == ["lab.json", "run"]


@needs_root
def test_a_lab_below_a_folder_of_nobody_is_known_in_a_user_namespace(tmp_path: Path) -> None:
    """In the nodes of a lab without root the machine's /home is nobody's."""
    folder = tmp_path / "home" / "lab"
    folder.mkdir(mode=0o700, parents=True)
    os.chown(folder.parent, OTHER, OTHER)
    argv = [sys.executable, "-m", "cbt_plugins.tools", "lab", "status", "--dir", str(folder)]
    for enter, says in (([], "belongs to user nobody"), (["unshare", "-U", "-r"], f"no lab in {folder}")):
        if enter and subprocess.run([*enter, "true"], capture_output=True).returncode:
            pytest.skip("no user namespaces here")
        assert says in subprocess.run([*enter, *argv], capture_output=True, text=True).stderr


@needs_root
@pytest.mark.parametrize("words", [["snapshot", "aged"], ["restore", "aged"], ["snapshots", "--remove", "aged"]])
def test_no_verb_trusts_the_snapshots_of_another_user(
    words: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, ours = tmp_path / "snapshots", tmp_path / "ours"
    folder.mkdir()
    ours.write_text("kept")
    (folder / ".aged.lock").symlink_to(ours)
    os.chown(folder, OTHER, OTHER)
    where = [] if words[0] == "snapshots" else ["--dir", str(tmp_path / "lab")]
    assert main(["lab", *words, *where, "--snapshots", str(folder)]) == 1
    assert "snapshots belongs to user nobody" in capsys.readouterr().err and ours.read_text() == "kept"


@pytest.mark.parametrize("words", [["up", "--foreground"], ["run", "--wipe", "--", "true"]])
def test_a_lab_that_somebody_else_has_started_anew_goes_on(
    words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lab down` and `lab up` in another terminal, while the first command is still there."""
    monkeypatch.setattr(lab, "attend", lambda *_: 0)
    monkeypatch.setattr(lab, "wait_until", lambda is_over, *_: None if is_over() else 1 / 0)
    LabRecord(lab.Topology(1, 1, 0, 0), "fsid", {"0": "u"}, "created").save(tmp_path)
    with subprocess.Popen(["sleep", "1000"]) as of_another:
        process = LabProcess.of(of_another.pid)
        assert process

        def up(*_: object, **__: object) -> LabProcess:
            for name in ("lab", "node0"):
                (tmp_path / "run").mkdir(exist_ok=True)
                (tmp_path / "run" / f"{name}.json").write_text(json.dumps(vars(process)))
            return LabProcess(process.pid, process.start - 1, process.namespace)

        monkeypatch.setattr(lab.Lab, "up", up)
        try:
            main(["lab", words[0], "--dir", str(tmp_path), *words[1:]])
            assert of_another.poll() is None
            assert (tmp_path / "lab.json").exists() and (tmp_path / "run" / "lab.json").exists()
        finally:
            of_another.kill()


def test_the_lock_that_a_wipe_removes_is_held_by_nobody_afterwards(tmp_path: Path) -> None:
    waits, held, done = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with lab.Lab(tmp_path, say=lambda _: waits.set()).alone():
            held.set()
            done.wait(60)

    waiting = threading.Thread(target=other)
    with lab.Lab(tmp_path).alone():
        waiting.start()
        assert waits.wait(60)
        shutil.rmtree(tmp_path / "run")
    try:
        assert held.wait(60)
        with open(tmp_path / "run" / "lock") as third, pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        done.set()
        waiting.join()


def test_a_command_that_meets_the_end_of_a_wipe_makes_the_folder_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, wipes, mkdir = tmp_path / "lab", ["lab", "run"], Path.mkdir

    def wiped(path: Path, *args: Any, **options: Any) -> None:
        mkdir(path, *args, **options)
        if wipes and path.name == wipes[0]:
            shutil.rmtree(folder)
            del wipes[0]

    monkeypatch.setattr(Path, "mkdir", wiped)
    with lab.Lab(folder).alone():
        assert (folder / "run" / "lock").exists() and not wipes


def test_a_folder_that_is_a_link_to_nothing_is_named_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lab").symlink_to(tmp_path / "gone")
    assert main(["lab", "status", "--dir", str(tmp_path / "lab")]) == 1
    assert f"{tmp_path}/lab leads to a folder that is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("living", "health"), [("node1", "HEALTH_WARN"), ("node2", "no reply of the monitor")])
def test_the_status_of_a_lab_whose_head_has_crashed(
    living: str, health: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = {"health": {"status": "HEALTH_WARN", "checks": {}}, "pgmap": {"pgs_by_state": []}}
    reply["osdmap"] = {"num_up_osds": 1, "num_osds": 2}
    answer = ["echo", json.dumps(reply)]
    monkeypatch.setattr(lab.Lab, "enter", lambda self, node, _: answer if self.spaces.need(node) else [])
    LabRecord(lab.Topology(2, 1, 0, 0, mons=2), "fsid", {"0": "u", "1": "v"}, "created").save(tmp_path)
    ours = LabProcess.of(os.getpid())
    assert ours
    (tmp_path / "run").mkdir()
    for name in ("lab", living):
        (tmp_path / "run" / f"{name}.json").write_text(json.dumps(vars(ours)))
    assert main(["lab", "status", "--dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"health   {health}") for line in lines)
    assert {line.split()[0] for line in lines if line.endswith(" down")} == {"node0", "node1", "node2"} - {living}


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_daemon_goes_on_when_it_cannot_be_switched(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    script = Path(lab.__file__).with_name("switch_release.sh").read_text().replace("/run/ceph", str(tmp_path))
    with subprocess.Popen(["sleep", "1000"]) as daemon:
        (tmp_path / "osd.3.pid").write_text(str(daemon.pid))
        try:
            argv = ["sh", "-c", script, "switch", str(tmp_path / name), "osd.3"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
            assert (done.returncode, daemon.poll()) == (2, None)
        finally:
            daemon.kill()
    assert f"{tmp_path / name}: no ceph-osd there: name the root folder of a release" in done.stderr
