from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from typing import Iterator

import pytest

from cbt_plugins.tools.lab.needs import LabError
from cbt_plugins.tools.lab.process import LabProcess, by_namespace, wait_until


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
    wait_until(lambda: not found.alive(), "death", 10)
    assert sleeper.returncode is None


def test_what_a_process_is(sleeper: subprocess.Popen[bytes]) -> None:
    found = LabProcess.of(sleeper.pid)
    assert found
    wait_until(lambda: found.command() == ["sleep", "60"], "exec", 10)
    assert 0 < found.memory() < 64 << 20
    ours = LabProcess.of(os.getpid())
    assert ours
    assert {ours, found} <= set(by_namespace()[ours.namespace])


def test_waiting_ends_with_what_was_waited_for() -> None:
    assert wait_until(lambda: 7, "seven", 1) == 7
    with pytest.raises(LabError, match=r"timeout of 0.01 s: a blue moon"):
        wait_until(lambda: False, "a blue moon", 0.01, pause=0.001)
