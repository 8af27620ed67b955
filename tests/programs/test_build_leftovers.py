"""The watch of `.ci/run`: nothing that a command starts gets away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def leftovers(script: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(PROJECT / ".ci" / "leftovers.py"), "bash", "-c", script]
    return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600)


def test_a_clean_command_passes_with_its_own_status() -> None:
    assert leftovers("sleep 0").returncode == 0
    assert leftovers("exit 7").returncode == 7


def test_a_daemon_with_a_scrubbed_environment_is_named_and_ended() -> None:
    found = leftovers("env -i setsid sleep 1000 >/dev/null 2>&1 & echo")
    assert found.returncode == 1
    left = re.search(r"left behind: process (\d+) sleep 1000", found.stderr)
    assert left
    assert not os.path.exists(f"/proc/{left.group(1)}")


def test_a_process_that_ends_by_itself_is_no_leftover() -> None:
    assert leftovers("setsid sleep 0.3 >/dev/null 2>&1 & echo").returncode == 0


def test_what_ends_meanwhile_is_reaped_at_once() -> None:
    """A PID namespace waits for all of its processes to be reaped, also those whose parent was outside and is gone."""
    orphan = "pid=$(sh -c 'sleep 0.1 >/dev/null & echo $!'); "
    assert leftovers(orphan + "for n in $(seq 100); do [ -e /proc/$pid ] || exit 7; sleep 0.1; done").returncode == 7


def test_the_command_is_deaf_to_no_signal_that_the_caller_hears() -> None:
    """Labs are started by it, and by them daemons: what it ignores, they would."""
    said = subprocess.run(
        [sys.executable, str(PROJECT / ".ci" / "leftovers.py"), "grep", "SigIgn", "/proc/self/status"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    ours = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True)
    assert said.stdout == ours.stdout
