"""What is left on a node, in a real shell: the dead man's switch, and the fence of a step's commands."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from cbt_plugins.faults import node_shell
from cbt_plugins.faults.cluster_lock import started
from cbt_plugins.faults.node_shell import fenced_inject, fenced_undo


def shell(text: str, folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    text = text.replace("/run/cbt-plugins", str(folder)).replace("[ -w /run ]", "true").replace("/run/systemd", "/no")
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=600, check=False, **options)


def ended(pid: int) -> bool:
    """Also when whoever started it has not asked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_the_switch_recovers_the_node_although_nobody_asks(tmp_path: Path) -> None:
    recovered = tmp_path / "recovered"
    done = shell(node_shell.arm_text("r-1", f"touch {recovered}", 1), tmp_path / "d")
    how, pid, begun = done.stdout.split()[1:]
    assert how == "process" and started(int(pid)) == int(begun)
    wait_for(recovered.exists)
    fired = tmp_path / "d" / "r-1.fired"
    wait_for(lambda: fired.exists() and fired.read_text())  # it is there a moment before the time stands in it
    assert shell(node_shell.is_disarmed("r-1"), tmp_path / "d").stdout == ""
    ago = node_shell.fired("some banner\n" + shell(node_shell.disarm("r-1"), tmp_path / "d").stdout)
    assert ago is not None and 0 <= ago < 600
    assert node_shell.fired(shell(node_shell.disarm("r-1"), tmp_path / "d").stdout) is None  # told once
    assert shell(node_shell.is_disarmed("r-1"), tmp_path / "d").stdout == "disarmed\n"


def test_a_switch_tries_until_it_has_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_shell, "PAUSE", 0.1)
    second = f"[ -e {tmp_path}/one ] && touch {tmp_path}/two || {{ touch {tmp_path}/one; false; }}"
    shell(node_shell.arm_text("r-1", second, 0), tmp_path / "d")
    wait_for((tmp_path / "two").exists)
    wait_for((tmp_path / "d" / "r-1.fired").exists)


def test_an_attempt_to_recover_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it had started; nobody else could reach the node."""
    monkeypatch.setattr(node_shell, "ATTEMPT", 0.5)
    monkeypatch.setattr(node_shell, "PAUSE", 0.1)
    hangs = f"[ -e {tmp_path}/pid ] && touch {tmp_path}/two || {{ sleep 1000 & echo $! > {tmp_path}/pid; wait; }}"
    shell(node_shell.arm_text("r-1", hangs, 0), tmp_path / "d")
    wait_for((tmp_path / "d" / "r-1.fired").exists)
    assert (tmp_path / "two").exists()
    wait_for(lambda: ended(int((tmp_path / "pid").read_text())))


def test_a_switch_that_is_disarmed_while_it_recovers_goes_no_further(tmp_path: Path) -> None:
    """A recovery that continues would end the next fault as well."""
    recovers = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 1000; touch {tmp_path}/recovered"
    shell(node_shell.arm_text("r-1", recovers, 0), tmp_path / "d")
    wait_for((tmp_path / "pid").exists)
    assert shell(node_shell.disarm("r-1"), tmp_path / "d").returncode == 0
    wait_for(lambda: ended(int((tmp_path / "pid").read_text())))
    assert not (tmp_path / "recovered").exists() and not list((tmp_path / "d").iterdir())


def test_a_disarmed_switch_never_fires(tmp_path: Path) -> None:
    done = shell(node_shell.arm_text("r-1", f"touch {tmp_path}/recovered", 3600), tmp_path / "d")
    pid = int(done.stdout.split()[2])
    assert started(pid) is not None
    assert shell(node_shell.disarm("r-1"), tmp_path / "d").returncode == 0
    wait_for(lambda: ended(pid))
    assert [path.name for path in (tmp_path / "d").iterdir()] == []
    assert shell(node_shell.disarm("r-1"), tmp_path / "d").returncode == 0  # twice is once


def test_no_command_runs_after_its_undo(tmp_path: Path) -> None:
    done = tmp_path / "done"
    inject = fenced_inject("r-1", f"touch {done}", 5)
    assert shell(fenced_undo("r-1", f"rm -f {done}", 5, mark=True), tmp_path / "d").returncode == 0
    assert shell(inject, tmp_path / "d").returncode == node_shell.TOO_LATE
    assert not done.exists()
    assert shell(fenced_inject("r-2", f"touch {done}", 5), tmp_path / "d").returncode == 0
    assert done.exists()


def test_an_undo_waits_for_the_command_that_is_at_work(tmp_path: Path) -> None:
    """The run was killed while its command was at work on the node."""
    order = tmp_path / "order"
    busy = fenced_inject("r-1", f"echo begun >> {order}; sleep 1; echo ended >> {order}", 5)
    busy = busy.replace("/run/cbt-plugins", str(tmp_path / "d")).replace("[ -w /run ]", "true")
    running = subprocess.Popen(["sh", "-c", busy])
    wait_for(lambda: order.exists() and order.read_text())
    assert shell(fenced_undo("r-1", f"echo undone >> {order}", 20, mark=True), tmp_path / "d").returncode == 0
    assert running.wait(600) == 0
    assert order.read_text().split() == ["begun", "ended", "undone"]


def test_an_undo_says_what_its_command_says(tmp_path: Path) -> None:
    assert shell(fenced_undo("r-1", "echo a \"b\" 'c'; exit 3", 5, mark=False), tmp_path / "d").returncode == 3
    assert shell(node_shell.sudo("echo 'it is' \"$(id -u)\""), tmp_path / "d").stdout == f"it is {os.getuid()}\n"


def test_a_lock_that_is_stuck_keeps_nothing_broken(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    holder = subprocess.Popen(["flock", str(tmp_path / "d" / "lock"), "sleep", "1000"], start_new_session=True)
    try:
        wait_for(lambda: subprocess.run(["flock", "-n", str(tmp_path / "d" / "lock"), "true"], check=False).returncode)
        assert shell(fenced_undo("r-1", f"touch {tmp_path}/undone", 0.2, mark=True), tmp_path / "d").returncode == 0
        assert (tmp_path / "undone").exists()
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
