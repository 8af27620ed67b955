from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_plugins.tools.lab import pid1
from cbt_plugins.tools.lab.namespaces import PID1, Birth, Spaces, needed_paths
from cbt_plugins.tools.lab.requirements import LabError


def child(birth: Birth, code: str) -> subprocess.Popen[bytes]:
    """A stand-in for a first process; `s` is its end of the socket."""
    fd = birth.child_end.fileno()
    start = f"import socket; s = socket.socket(fileno={fd}); "
    return subprocess.Popen([sys.executable, "-c", start + code], pass_fds=(fd,))


def test_a_first_process_is_known_by_the_pid_that_the_kernel_gives(tmp_path: Path) -> None:
    birth = Birth("node1", tmp_path / "log")
    with child(birth, "s.send(b'born'); s.recv(99); s.send(b'ready')") as process:
        assert birth.await_born().pid == process.pid
        birth.order({"name": "node1"})
        birth.await_ready()
    birth.close()


def test_a_death_is_reported_at_once_with_the_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\nspecial device does not exist\n")
    birth = Birth("node1", tmp_path / "log")
    with child(birth, "pass"), pytest.raises(LabError, match=r"node1 did not start: one | special device"):
        birth.await_born()
    birth.close()


def test_a_failure_is_reported_in_its_own_words(tmp_path: Path) -> None:
    birth = Birth("node1", tmp_path / "log")
    with child(birth, "s.send(b'born'); s.recv(99); s.send(b'failed: mount: no')"):
        birth.await_born()
        birth.order({})
        with pytest.raises(LabError, match=r"^node1 did not start: mount: no$"):
            birth.await_ready()
    birth.close()


def test_a_first_process_does_nothing_when_its_starter_is_gone(tmp_path: Path) -> None:
    birth = Birth("lab", tmp_path / "log")
    fd = birth.child_end.fileno()
    with subprocess.Popen([sys.executable, "-E", "-S", PID1, "lab", str(fd)], pass_fds=(fd,)) as process:
        birth.await_born()
        birth.close()
        assert process.wait(600) == 0


def test_a_stale_record_is_not_a_running_lab(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    spaces = Spaces(tmp_path)
    assert spaces.first("lab") is None
    (tmp_path / "run" / "lab.json").write_text(
        json.dumps({"pid": os.getpid(), "start": 1, "namespace": "pid:[1]"})
    )
    assert spaces.first("lab") is None
    (tmp_path / "run" / "lab.json").write_text('{"pid": ')
    assert spaces.first("lab") is None
    with pytest.raises(LabError, match=r"not running: the lab in"):
        spaces.enter("lab")


def test_nodes_see_the_folders_that_they_need_and_no_system_folder(tmp_path: Path) -> None:
    wanted = tmp_path / "deep" / "er"
    wanted.mkdir(parents=True)
    found = needed_paths(tmp_path, "/", [str(wanted), "/usr", "/root", str(tmp_path / "missing")])
    assert str(tmp_path) in found
    assert not {"/usr", "/root", "/", str(wanted), str(tmp_path / "missing")} & set(found)
    assert any(Path(__file__).is_relative_to(path) for path in found)


def test_nodes_see_what_a_link_leads_to(tmp_path: Path) -> None:
    """The machine's root is that of nodes, but not its /tmp: a link alone would lead nowhere."""
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    for directory, binds in ((link, []), (Path("/nowhere"), [str(link)])):
        assert {str(folder), str(link)} <= {*needed_paths(directory, "/", binds)}


def test_a_node_of_another_release_does_not_get_its_root_folder_a_second_time(tmp_path: Path) -> None:
    (tmp_path / "root" / "opt").mkdir(parents=True)
    assert not [
        p
        for p in needed_paths(Path("/nowhere"), str(tmp_path / "root"), [str(tmp_path)])
        if "root" in Path(p).parts[-1:]
    ]


def test_bcrypt_becomes_optional_without_touching_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "usr" / "share" / "ceph" / "mgr" / "mgr_util.py"
    source.parent.mkdir(parents=True)
    source.write_text("import os\nimport bcrypt\nimport yaml\n")
    shown = {}
    monkeypatch.setattr(pid1, "bind", lambda where, target: shown.update({target: Path(where).read_text()}))
    pid1.optional_bcrypt(str(tmp_path), str(tmp_path))
    assert "try:\n    import bcrypt\nexcept ImportError:\n    bcrypt = None\n" in shown[str(source)]
    assert source.read_text() == "import os\nimport bcrypt\nimport yaml\n"
    shown.clear()
    source.write_text("import os\n")
    pid1.optional_bcrypt(str(tmp_path), str(tmp_path))
    assert not shown
