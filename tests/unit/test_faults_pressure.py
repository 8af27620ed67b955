"""Processes that take processor time and memory: they run, they end, and they end by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import List

import pytest
from waiting import wait_for

from cbt_plugins.faults.node_shell import script_text


def hogs(folder: Path, action: str, **values: object) -> str:
    text = script_text("pressure", action=action, d=str(folder), name="r-1", **values)
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def running(folder: Path) -> List[int]:
    listed = folder / "r-1.hogs"
    pids = [int(line.split()[0]) for line in listed.read_text().splitlines()] if listed.exists() else []
    return [pid for pid in pids if (Path("/proc") / str(pid) / "oom_score_adj").exists()]


def test_they_are_in_effect_until_they_are_stopped(tmp_path: Path) -> None:
    values = {"cpus": 2, "bytes": 10_000_000, "seconds": 300}
    hogs(tmp_path, "start", **values)
    try:
        wait_for(lambda: hogs(tmp_path, "effect", **values) == "in effect\n", "the effect")
        assert len(running(tmp_path)) == 3 and hogs(tmp_path, "stopped") == ""
        assert hogs(tmp_path, "ended") == ""
        scores = {(Path("/proc") / str(pid) / "oom_score_adj").read_text() for pid in running(tmp_path)}
        assert scores == {"1000\n"}
        full = running(tmp_path)[-1]
        os.kill(full, signal.SIGKILL)  # as a node without memory does
        wait_for(lambda: full not in running(tmp_path), "its end")
        assert hogs(tmp_path, "ended") == "ended\n" and hogs(tmp_path, "stopped") == ""
    finally:
        hogs(tmp_path, "stop")
    assert hogs(tmp_path, "stopped") == "recovered\n" and not list(tmp_path.iterdir())
    hogs(tmp_path, "stop")  # twice is once


@pytest.mark.parametrize("values", [{"cpus": 1}, {"bytes": 4096}])
def test_they_end_by_themselves(tmp_path: Path, values: dict) -> None:  # type: ignore[type-arg]
    hogs(tmp_path, "start", seconds=1, **values)
    wait_for(lambda: hogs(tmp_path, "stopped") == "recovered\n", "their end")
    assert hogs(tmp_path, "effect", **values).endswith("has ended\n") and hogs(tmp_path, "ended") == "ended\n"
