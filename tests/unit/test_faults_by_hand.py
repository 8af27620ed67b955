"""Commands of an undo as a person pastes them into a shell of a node, or of the leading machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.node_shell import is_disarmed
from cbt_plugins.faults.scene import ClusterLimits, Scene
from cbt_plugins.faults.service_managers import DaemonProcess, Service, ServiceManager
from cbt_plugins.faults.step import Command, run_all

ENDS = "exit 3"
#: of an earlier version, as its journal has it
OLD = "s=0; ( exit 3 ) || s=1; ( touch b ) || s=1; exit $s"


class Touch(ServiceManager):
    """Stops services by the first of two commands, which fails, and starts them by others."""

    def stop(self, scene: Scene, services: object) -> Command:
        return Command("n", run_all(["touch a; exit 3", "touch b  # a comment\n# another"]), 1.0, root=True)

    def start(self, scene: Scene, services: object) -> Command:
        return Command("n", run_all(["touch c"]), 1.0, root=True)


def restart() -> Command:
    scene: Scene = Scene(None, None, (), "r1", ClusterLimits())  # type: ignore[arg-type]
    return Touch().restart(scene, [Service(DaemonName("osd", "1"), "n", "process", "", DaemonProcess(1, 1, 0, ()))])


CASES: List[Tuple[Command, int, str]] = [
    (Command("n", run_all(["touch a"])), 0, "a"),
    (Command("n", run_all(["touch a", "touch b"])), 0, "ab"),
    (Command("n", run_all([ENDS, "touch b", "touch c\n# a comment"])), 1, "bc"),
    (Command("n", run_all([run_all([ENDS, "touch a"]), "touch b"])), 1, "ab"),
    (Command("n", run_all([ENDS, "touch b"]), root=True), 1, "b"),
    (restart(), 1, "abc"),
    (Command("n", OLD), 1, "b"),
    (Command("n", OLD, root=True), 1, "b"),
    (Command("n", "touch a; [ -e a ] || exit 3\nexit 4 # a comment"), 4, "a"),
]


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("command", "status", "files"), CASES)
def test_each_part_is_done_and_the_shell_stays(
    command: Command, status: int, files: str, shell: str, tmp_path: Path
) -> None:
    (tmp_path / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    node, _, pasted = str(command).partition(": ")
    by_hand = ([shell], f"{pasted}\necho here $?\n", (0, f"here {status}\n", ""))
    for words, given, shown in (by_hand, ([shell, "-c", command.text], "", (status, "", ""))):
        done = subprocess.run(words, input=given, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (node, (done.returncode, done.stdout, done.stderr)) == ("n", shown)
        made = sorted(path.name for path in tmp_path.iterdir() if path.name != "sudo")
        assert "".join(made) == files
        for name in made:
            (tmp_path / name).unlink()


def test_a_command_without_parts_is_shown_as_it_is() -> None:
    scene: Scene = Scene(Ceph(None, {"head": "n", "conf_file": "/c"}), None, (), "r1", ClusterLimits())  # type: ignore[arg-type]
    assert str(scene.unset("osd unset noout")) == "n: ceph -c /c osd unset noout"
    two = "n: s=0; ( ceph -c /c osd in 1 ) || s=1; ( ceph -c /c osd unset noup ) || s=1; [ $s = 0 ]"
    assert str(scene.unset("osd in 1", "osd unset noup")) == two
    assert str(Command("n", "systemctl start x.service", root=True)) == "n: sudo systemctl start x.service"
    assert str(Command("n", "rm /var/lib/x/*", root=True)) == "n: sudo sh -c 'rm /var/lib/x/*'"  # a folder of root's
    assert str(Command("n", "ceph orch host maintenance exit n")) == "n: ceph orch host maintenance exit n"
    assert str(Command("n", is_disarmed("r1-f"))).startswith("n: ( d=/run/")


def test_what_is_left_of_parts_is_the_command_alone() -> None:
    parts = tuple(((osd, "up"), f"touch {osd}") for osd in range(3))
    command = Command("n", run_all([text for _, text in parts]), parts=parts)
    left = command.without({(0, "up"), (2, "up")})
    assert left is not None and str(left) == "n: touch 1"
    assert command.without({(osd, "up") for osd in range(3)}) is None
