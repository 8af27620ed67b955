"""A run that is killed, ended, failed or hung at each of its external calls: the cluster is put back, every time."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
import standin

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = ("ceph", "ssh", "pdsh", "systemctl", "ip", "radosgw-admin")
MODES = ("kill", "term", "fail", "hang")
#: of so many calls one is tried where CRASH_PART does not say otherwise
SAMPLE = 35


class StandIn:
    """A stand-in cluster in a folder, and the scenario that runs against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.archive.mkdir(parents=True)
        (folder / "bin").mkdir()
        source = (HERE / "standin.py").read_text()
        for name in PROGRAMS:
            program = folder / "bin" / name
            # without site and environment: an interpreter that begins in some 10 ms
            program.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{source}")
            program.chmod(0o755)
        standin.write(str(folder), "state.json", standin.new_state())
        self.before = self.state()

    def state(self) -> Any:
        return json.loads((self.folder / "state.json").read_text())

    def calls(self) -> List[Dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def run(self, what: str, at: Optional[Tuple[int, str]] = None) -> subprocess.CompletedProcess[str]:
        """The scenario ("run") or `cbt-tools undo` ("undo"), to its end, with fresh call numbers."""
        (self.folder / "calls.jsonl").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STANDIN": str(self.folder),
            "STANDIN_AT": f"{at[0]}:{at[1]}" if at else "0:",
            "PYTHONPATH": str(PROJECT),
        }
        line = [sys.executable, str(HERE / "scenario.py"), what, str(self.archive)]
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)


def differences(one: Any, other: Any) -> List[str]:
    return [f"{k}: {one[k]!r} -> {other[k]!r}" for k in one if one[k] != other[k]]


def test_the_scenario_does_break_things(tmp_path: Path) -> None:
    """What is swept is no empty run: nodes, flags, configuration, the balancer, and the lock are changed on the way."""
    world = StandIn(tmp_path / "w")
    assert world.run("run").returncode == 0
    said = [" ".join(call["words"]) for call in world.calls() if call["call"] in ("ceph", "systemctl")]
    for what in ("osd set noout", "config set osd osd_max_scrubs 2", "balancer off", "config-key set cbt-plugins/run"):
        assert any(what in words for words in said), what
    stopped = [call["node"] for call in world.calls() if call["call"] == "systemctl" and call["words"][0] == "stop"]
    assert len(set(stopped)) == 2


def test_a_cut_node_heals_by_itself(tmp_path: Path) -> None:
    """The run is killed as soon as the node is cut off; nobody undoes anything, and the node is back."""
    world = StandIn(tmp_path / "w")
    assert world.run("cut").returncode == 0
    calls = [call for call in world.calls() if call["call"] == "ip" and call["words"][-1] == "down"]
    assert len(calls) == 1
    last = next(call["n"] for call in world.calls() if call["n"] > calls[0]["n"] and call["call"] == "ssh")
    assert world.run("cut", at=(last, "kill")).returncode == -9
    assert "links: " in " ".join(differences(world.before, world.state()))
    end = time.monotonic() + 60
    while "links: " in " ".join(differences(world.before, world.state())):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert world.run("undo").returncode == 0
    assert differences(world.before, world.state()) == []


@pytest.mark.crash
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", ["run", "cut"])
def test_sweep(mode: str, scenario: str, tmp_path: Path) -> None:
    """After the accident and `cbt-tools undo` the cluster is as before, and the same run goes through.

    A sample of the K calls, another one each day; CRASH_PART=1/1 sweeps K of K, which takes an hour or more.
    """
    whole = StandIn(tmp_path / "whole")
    assert whole.run(scenario).returncode == 0
    assert differences(whole.before, whole.state()) == []
    calls = len(whole.calls())  # K
    # machines may share the work: CRASH_PART=3/8 is the third of eight parts
    today = f"{1 + datetime.date.today().toordinal() % SAMPLE}/{SAMPLE}"
    part, _, parts = os.environ.get("CRASH_PART", today).partition("/")
    bad = []
    for number in range(int(part), calls + 1, int(parts)):
        world = StandIn(tmp_path / f"{mode}-{number}")
        broken = world.run(scenario, at=(number, mode))
        undone = world.run("undo")
        after = differences(world.before, world.state())
        again = world.run(scenario)
        left = differences(world.before, world.state())
        good = undone.returncode == 0 and not after and again.returncode == 0 and not left
        if mode == "kill" and broken.returncode != -9:
            good = False
        if not good:
            what = [broken.returncode, undone.returncode, again.returncode]
            bad.append(f"call {number}: {what} {after} {left} {undone.stderr[-600:]} {again.stderr[-600:]}")
    assert not bad, f"{len(bad)} of {calls} calls: " + "\n".join(bad)
