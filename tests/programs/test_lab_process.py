from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, List, Tuple

import pytest

from cbt_plugins.tools.lab.process import LabProcess, by_namespace, wait_for, wait_for_end
from cbt_plugins.tools.lab.requirements import LabError


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_recycled_pid_is_never_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    found = LabProcess.of(sleeper.pid)
    assert found
    earlier = dataclasses.replace(found, start=found.start - 1)
    assert not earlier.alive()
    earlier.kill()
    elsewhere = dataclasses.replace(found, namespace="pid:[1]")
    elsewhere.kill()
    assert found.alive()
    found.kill(signal.SIGTERM)
    assert sleeper.wait(600) == -signal.SIGTERM
    assert not found.alive()


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    found = LabProcess.of(sleeper.pid)
    assert found
    os.kill(sleeper.pid, signal.SIGKILL)
    wait_for(lambda: not found.alive(), "death", 10)
    assert sleeper.returncode is None


def test_what_a_process_is(sleeper: subprocess.Popen[bytes]) -> None:
    found = LabProcess.of(sleeper.pid)
    assert found
    wait_for(lambda: found.command() == ["sleep", "60"], "exec", 10)
    assert 0 < found.memory() < 64 << 20
    ours = LabProcess.of(os.getpid())
    assert ours
    assert {ours, found} <= set(by_namespace()[ours.namespace])


def test_waiting_ends_with_what_was_waited_for() -> None:
    assert wait_for(lambda: 7, "seven", 1) == 7
    with pytest.raises(LabError, match=r"timeout of 0.01 s: waited for a blue moon; last seen: new moon"):
        wait_for(lambda: "new moon", "a blue moon", 0.01, pause=0.001, met="blue".__eq__)


def test_waiting_for_an_end_names_the_processes_that_are_left(sleeper: subprocess.Popen[bytes]) -> None:
    running = LabProcess.of(sleeper.pid)
    assert running
    with pytest.raises(LabError, match=rf"timeout of 0 s: waited for rest; last seen: \[{sleeper.pid}\]"):
        wait_for_end([running], "rest", 0)
    running.kill()
    wait_for_end([running], "rest", 600)


#: as nsenter: a child runs the program, a signal ends the parent alone, and the child's end is the parent's
_BETWEEN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
child = os.fork()
if not child:
    os.execvp(sys.argv[1], sys.argv[1:])
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os.kill(os.getpid(), max(0, -code))
os._exit(code)
"""
#: says each signal; ends with status 7 at the end of its input, when what is between has ended: a parent that has a
#: signal before it and finds its child ended takes the child's status with it
_COMMAND = """
import os, signal, sys, time
between = os.getppid()
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), lambda number, _: print(signal.Signals(number).name, flush=True))
print("ready", flush=True)
sys.stdin.read()
while os.getppid() == between:
    time.sleep(0.01)
sys.exit(7)
"""
_ATTENDED = """
import os, sys
from cbt_plugins.tools.lab.foreground import attend
sys.exit(attend(sys.argv[1:], dict(os.environ)))
"""


def attended(*command: str, become: Callable[[], None] = os.setsid) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", _ATTENDED, sys.executable, "-c", _BETWEEN, *command]
    home = Path(__file__).resolve().parents[2]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=home, stdin=pipe, stdout=pipe, text=True, preexec_fn=become)


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line, "" when there is none."""
    assert process.stdout
    return process.stdout.readline().strip() if select.select([process.stdout], [], [], 30)[0] else ""


@pytest.mark.parametrize(
    "sent",
    [
        [("terminal", signal.SIGINT, True), ("terminal", signal.SIGINT, True)],
        [("alone", signal.SIGTERM, True), ("alone", signal.SIGHUP, False), ("terminal", signal.SIGINT, True)],
        [("terminal", signal.SIGINT, True), ("alone", signal.SIGHUP, True)],
    ],
)
def test_signals_are_the_commands_and_its_end_is_waited_for(sent: List[Tuple[str, int, bool]]) -> None:
    """Also when what is between has ended. A run counts them: SIGTERM and SIGHUP are passed on once."""
    with attended(sys.executable, "-c", _COMMAND) as process:
        assert said(process) == "ready"
        for whom, number, heard in sent:
            (os.killpg if whom == "terminal" else os.kill)(process.pid, number)
            if heard:
                assert said(process) == signal.Signals(number).name
        assert process.communicate()[0] == ""
        assert process.returncode == 7


def test_what_a_shell_tells_the_whole_job_is_not_told_again() -> None:
    with attended(sys.executable, "-c", _COMMAND, become=os.setpgrp) as process:
        assert said(process) == "ready"
        os.killpg(process.pid, signal.SIGHUP)
        assert said(process) == "SIGHUP"
        os.kill(process.pid, signal.SIGTERM)
        assert said(process) == "SIGTERM"
        assert process.communicate()[0] == ""
        assert process.returncode == 7


def test_the_status_of_a_command_that_a_signal_ends() -> None:
    with attended("sh", "-c", "echo ready; exec sleep 60") as process:
        assert said(process) == "ready"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(600) == 128 + signal.SIGTERM
