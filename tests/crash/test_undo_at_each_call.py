"""A run that is killed, ended, failed or hung at each of its external calls: everything is undone, every time.

By the run itself, but for one that was killed: a call that fails or hangs, and a signal or two, are its own affair.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Callable, List

import pytest
from standin_cluster import HERE, MODES, Accident, StandIn, part_of
from waiting import wait_for


class Injections(StandIn):
    """The scenarios of scenario.py against a stand-in cluster."""

    def play(self, what: str, at: Accident = None) -> int:
        """A scenario, or "undo" for `cbt-tools undo`; its exit status."""
        # what hangs has to be given up while a test waits
        timeout = "4" if at and at[1] == "hang" else "20"
        line = [sys.executable, str(HERE / "scenario.py"), what, str(self.archive)]
        done = self.run(line, at, {"STANDIN_TIMEOUT": timeout})
        self.said = done.stderr[-600:]
        return done.returncode


def test_the_scenario_does_break_things(tmp_path: Path) -> None:
    """What is swept is no empty run: nodes, flags, configuration, the balancer, and the lock are changed on the way."""
    world = Injections(tmp_path / "w")
    assert world.play("run") == 0
    said = [" ".join(call["words"]) for call in world.calls() if call["call"] in ("ceph", "systemctl")]
    for what in ("osd set noout", "config set osd osd_max_scrubs 2", "balancer off", "config-key set cbt-plugins/run"):
        assert any(what in words for words in said), what
    stopped = [call["node"] for call in world.calls() if call["call"] == "systemctl" and call["words"][0] == "stop"]
    assert len(set(stopped)) == 2


def test_a_cut_node_heals_by_itself(tmp_path: Path) -> None:
    """The run is killed as soon as the node is cut off; nobody undoes anything, and the node is back."""
    world = Injections(tmp_path / "w")
    assert world.play("cut") == 0
    calls = [call for call in world.calls() if call["call"] == "ip" and call["words"][-1] == "down"]
    assert len(calls) == 1
    last = next(call["n"] for call in world.calls() if call["n"] > calls[0]["n"] and call["call"] == "ssh")
    assert world.play("cut", at=(last, "kill")) == -9
    assert "links: " in " ".join(world.changes())
    wait_for(lambda: "links: " not in " ".join(world.changes()), "the node to be back")
    assert world.play("undo") == 0
    assert world.changes() == []


def test_a_cut_that_hangs_does_not_come_after_its_undo(tmp_path: Path) -> None:
    world = Injections(tmp_path / "w")
    assert world.play("cut", at=("ip down", "hang")) == 1
    assert "no effect" in world.said
    assert world.settle() + world.changes() == []


def test_a_straggler_of_a_killed_run_is_counted_as_that_runs(tmp_path: Path) -> None:
    """What a killed run had on the way meets the next run, and is not taken for the next one's."""
    world = Injections(tmp_path / "w")
    assert world.play("run", at=(7, "kill")) == -9  # an ssh, and the `ceph` behind it is to come yet
    assert world.play("run") == 0
    assert world.settle() == []
    numbers = [call["n"] for call in world.calls()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len((world.folder / "runs" / "1" / "calls.jsonl").read_text().splitlines()) == 8


@pytest.mark.parametrize("moment", ["osd pool application", "osd pool rm", "config rm mon"])
def test_pools_are_removed_whenever_the_run_is_killed(moment: str, tmp_path: Path) -> None:
    """While the first of them is made, or the last removed: the monitors' leave to remove pools is taken back, too."""
    world = Injections(tmp_path / "w")
    assert world.play("pools", at=(f"ceph {moment}", "kill")) == -9
    world.settle()
    assert world.changes() != []
    assert world.play("undo") == 0, world.said
    assert world.settle() + world.changes() == []


@pytest.mark.parametrize("moment", ["osd set noout", "osd in 0", "osd unset noout"])
def test_commands_are_undone_whenever_the_run_is_killed(moment: str, tmp_path: Path) -> None:
    world = Injections(tmp_path / "w")
    assert world.play("commands", at=(f"ceph {moment}", "kill")) == -9
    world.settle()
    assert world.play("undo") == 0, world.said
    assert world.settle() + world.changes() == []
    unset = [call for call in world.calls() if call["words"][-3:] == ["osd", "unset", "noout"]]
    assert unset or moment == "osd unset noout"


def test_a_command_that_fails_is_undone_and_said(tmp_path: Path) -> None:
    world = Injections(tmp_path / "w")
    assert world.play("commands", at=("ceph osd in 0", "fail")) == 1
    assert "again: " in world.said and "the stand-in fails" in world.said
    assert world.settle() + world.changes() == []


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], int]:
    """Return K of a scenario, its calls when nothing happens to it."""

    @functools.cache
    def of_scenario(scenario: str) -> int:
        whole = Injections(tmp_path_factory.mktemp("whole") / scenario)
        assert whole.play(scenario) == 0, whole.said
        assert whole.changes() == []
        return len(whole.calls())

    return of_scenario


def accident(world: Injections, scenario: str, number: int, mode: str) -> List[str]:
    """Try one; what is wrong afterwards."""
    broken = world.play(scenario, at=(number, mode))
    if broken == 0 and len(world.calls()) < number:
        return []  # it waited less often this time, and has ended before
    bad = [f"the run was not killed: {broken}"] if mode == "kill" and broken != -9 else []
    bad += [f"left by the run: {text}" for text in world.changes() if mode != "kill"]
    if world.play("undo"):
        bad.append(f"not undone: {world.said}")
    bad += world.settle()
    bad += world.changes()
    if world.play(scenario):
        bad.append(f"not possible again: {world.said}")
    return bad + world.changes()


def sample(calls: int, mode: str) -> str:
    """Return the kills that are tried without CRASH_PART: one call for each mode, at different places of the run."""
    if os.environ.get("CBT_PLUGINS_LONG"):
        return "7/70"
    return f"{(7 + 37 * MODES.index(mode)) % calls + 1}/{calls}"


#: by default a cut node is only tried with a kill: the others are the run's own affair, as those of the scenario "run"
SWEPT = [
    *(("run", mode) for mode in MODES),
    *(pytest.param("cut", mode, marks=[] if mode == "kill" else pytest.mark.long) for mode in MODES),
    *(pytest.param("pools", mode, marks=pytest.mark.long) for mode in MODES),
]


@pytest.mark.crash
@pytest.mark.parametrize(("scenario", "mode"), SWEPT)
def test_sweep(scenario: str, mode: str, tmp_path: Path, calls: Callable[[str], int]) -> None:
    """After the accident and `cbt-tools undo` the cluster is as before, and the same run goes through.

    A sample of the K calls, the same each time; CRASH_PART=1/1 sweeps K of K, which takes two hours or more. Machines
    may share the work: CRASH_PART=3/8 is the third of eight parts.
    """
    total = calls(scenario)
    tried = part_of(total, sample(total, mode))
    found = {n: accident(Injections(tmp_path / f"{mode}-{n}"), scenario, n, mode) for n in tried}
    bad = [f"call {number}: {wrong}" for number, wrong in found.items() if wrong]
    assert not bad, f"{len(bad)} of {len(tried)} calls of {total}: " + "\n".join(bad)
