"""Folders on nodes: used only where nobody else can write them or put others in their place."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Callable, Dict

import pytest

from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.shell_programs import find_own, make_own, script_command
from cbt_plugins.faults import node_shell
from cbt_plugins.monitors import lifecycle

HERE = socket.gethostname()
REMOTE = Remote.of_cluster({}, {})
#: the uid of an attacker: any that is neither root's nor ours
OTHER = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives files to another user")


def own(folder: Path, action: str = "make") -> subprocess.CompletedProcess[str]:
    text = make_own(str(folder)) if action == "make" else find_own(str(folder))
    return subprocess.run(["sh", "-c", f"{text}echo used"], capture_output=True, text=True, check=False)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_what_is_missing_is_made_and_the_last_folder_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "tmp dir" / "'00000000" / "warp-0"
    assert own(folder, "look").stdout == "" and not folder.exists()
    assert own(folder).stdout == "used\n"
    assert [mode(folder), mode(folder.parent)] == [0o700, 0o755]
    assert own(folder, "look").stdout == own(folder).stdout == "used\n"


def test_one_that_others_may_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    assert own(tmp_path / "old").stdout == "used\n"
    assert mode(tmp_path / "old") == 0o700


def test_a_link_of_root_or_ours_is_followed_where_others_cannot_make_one(tmp_path: Path) -> None:
    (tmp_path / "disk" / "a").mkdir(parents=True)
    (tmp_path / "data").symlink_to("disk/./a/../a")
    assert own(tmp_path / "data" / "cbt").stdout == "used\n"
    assert (tmp_path / "disk" / "a" / "cbt").is_dir()


def test_sticky_folders_on_the_way_are_no_danger(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert own(tmp_path / "tmp" / "cbt").stdout == "used\n"


def given(path: Path, uid: int = OTHER) -> None:
    os.chown(path, uid, uid, follow_symlinks=False)


def belongs_to_another(place: Path) -> None:
    place.mkdir()
    given(place)


def below_another(place: Path) -> None:
    (place / "deep").mkdir(parents=True)
    given(place)


def link_of_another(place: Path) -> None:
    target = place.parent / "ours"
    target.mkdir()
    place.symlink_to(target)
    given(place)


def link_in_a_sticky_folder(place: Path) -> None:
    (place.parent / "ours").mkdir()  # none of the machine's: a check that is broken on purpose goes there
    place.parent.chmod(0o1777)
    place.symlink_to(place.parent / "ours")


def file(place: Path) -> None:
    place.write_text("")


def writable_by_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def writable_by_a_group(place: Path) -> None:
    place.mkdir()
    os.chown(place, -1, 1)
    place.chmod(0o770)


def in_an_open_folder(place: Path) -> None:
    place.mkdir()
    place.parent.chmod(0o777)


def circle(place: Path) -> None:
    place.symlink_to(place)


REFUSED: Dict[Callable[[Path], None], str] = {
    belongs_to_another: "/place belongs to user nobody: others could replace what runs there; remove it as root",
    below_another: "/place belongs to user nobody",
    link_of_another: "/place belongs to user nobody",
    link_in_a_sticky_folder: "/place is a link where everybody can make one",
    file: "/place is not a folder",
    writable_by_all: "/place can be written by everybody",
    writable_by_a_group: "/place can be written by group",
    in_an_open_folder: "can be written by everybody",
    circle: " leads round in links",
}


@needs_root
@pytest.mark.parametrize("prepare", REFUSED)
@pytest.mark.parametrize("below", ["", "deep/er"])
def test_what_others_have_prepared_is_refused_and_left_alone(
    prepare: Callable[[Path], None], below: str, tmp_path: Path
) -> None:
    prepare(tmp_path / "place")
    before = sorted((path, path.lstat().st_mode) for path in tmp_path.rglob("*"))
    for action in ("make", "look"):
        done = own(tmp_path / "place" / below, action)
        assert (done.returncode, done.stdout) == (77, "")
        assert REFUSED[prepare] in done.stderr and "set cluster: tmp_dir: to a folder" in done.stderr
    assert sorted((path, path.lstat().st_mode) for path in tmp_path.rglob("*")) == before


@needs_root
def test_nothing_of_ours_touches_a_folder_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each way to write, read, end or remove on a node, at a folder that somebody else has made before."""
    run_dir = tmp_path / "run"
    watched = run_dir / "monitors-1-1" / "resources"
    watched.mkdir(parents=True)
    (run_dir / "bin").mkdir()
    victim = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        started = Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (watched / "x.pid").write_text(f"{victim.pid} {started}\n")
        given(run_dir)
        with pytest.raises(RemoteError, match=r"writing files .*run belongs to user nobody.*remove it as root"):
            REMOTE.put({HERE: {f"{run_dir}/bin/warp": b"x"}})
        lifecycle.stop_left(REMOTE, [HERE], str(run_dir))
        lifecycle.stop_by_pid_files(REMOTE, [HERE], str(watched))
        lifecycle.bring_left({}, {}, [HERE], str(run_dir), tmp_path / "left")
        assert "monitor files may stay" in caplog.text and not (tmp_path / "left").exists()
        with pytest.raises(RemoteError, match=r"fetching .*run belongs to user nobody"):
            REMOTE.fetch([HERE], str(run_dir), tmp_path / "back")
        assert list((tmp_path / "back" / HERE).iterdir()) == []
        for program in ("start_agent.sh", "collectl.sh"):
            line = script_command(lifecycle.STOP.with_name(program), str(watched), "x", "y")
            assert "belongs to user nobody" in REMOTE.run([HERE], line, check=False)[HERE].stderr
        assert victim.poll() is None and sorted(path.name for path in watched.iterdir()) == ["x.pid"]
    finally:
        victim.kill()
        victim.wait()


@needs_root
@pytest.mark.parametrize("prepare", [belongs_to_another, link_of_another, writable_by_all, file])
def test_no_command_runs_behind_a_fence_of_others_and_its_undo_does(
    prepare: Callable[[Path], None], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    prepare(place)

    def run(text: str) -> subprocess.CompletedProcess[str]:
        text = text.replace("/run/cbt-plugins", str(place)).replace("[ -w /run ]", "true")
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)

    done = run(node_shell.fenced_inject("run-1", "echo injected", 5))
    assert (done.returncode, done.stdout) == (77, "")
    assert "must belong to this user and have mode 700: remove the folder" in done.stderr
    assert run(node_shell.arm_text("run-1", "true", 60)).returncode == 77
    assert run(node_shell.fenced_undo("run-1", "echo undone", 5, mark=True)).stdout == "undone\n"
    assert not place.is_dir() or not list(place.iterdir())


def test_what_a_node_sends_is_files_and_folders_only(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    (sent / "d").mkdir(parents=True)
    sent.chmod(0o700)
    (sent / "d" / "file").write_text("x")
    (sent / "d" / "file").chmod(0o4777)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "users").write_text("y")
    (sent / "d" / "link").symlink_to(tmp_path / "outside" / "users")
    (sent / "to-folder").symlink_to(tmp_path / "outside")
    os.mkfifo(sent / "pipe")
    REMOTE.fetch([HERE], str(sent), tmp_path / "back")
    came = tmp_path / "back" / HERE
    assert sorted(str(p.relative_to(came)) for p in came.rglob("*")) == ["d", "d/file"]
    assert mode(came / "d" / "file") & 0o7022 == 0


@pytest.mark.parametrize(("umask", "file", "folder"), [(0o002, 0o644, 0o755), (0o027, 0o640, 0o750)])
def test_others_may_read_what_an_agent_has_closed(tmp_path: Path, umask: int, file: int, folder: int) -> None:
    """An agent writes with the umask 077."""
    (tmp_path / "sent" / "rows").mkdir(parents=True)
    (tmp_path / "sent" / "rows" / "01").write_text("x")
    for path, closed in (("rows/01", 0o600), ("rows", 0o000 if os.geteuid() == 0 else 0o700), (".", 0o700)):
        (tmp_path / "sent" / path).chmod(closed)
    before = os.umask(umask)
    try:
        REMOTE.fetch([HERE], str(tmp_path / "sent"), tmp_path / "back")
    finally:
        os.umask(before)
    came = tmp_path / "back" / HERE
    assert [mode(came), mode(came / "rows"), mode(came / "rows" / "01")] == [folder, folder, file]


def test_the_function_can_be_quoted_many_times() -> None:
    text = make_own("/tmp/x")
    for _ in range(6):
        text = shlex.quote(text)
    assert len(text) < 1 << 16  # the kernel's limit of one argument is 1 << 17
