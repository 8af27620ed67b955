"""The kind `mark`: OSDs that run on and count as gone, as in CBT's own recovery test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Set

import pytest
from faults_world import ANYTHING, Connections, Died, injector

from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.plan import Fault

MARK = Fault("marked", "mark", ("osd.1", "osd.2"), accept=ANYTHING)
STOP = Fault("stopped", "stop", ("node4",), accept=ANYTHING)


def ready(folder: Path, world: Connections) -> Injector:
    made = injector(folder, world)
    made.acquire()
    return made


def down(world: Connections) -> Set[str]:
    return {number for number, osd in world.state["osds"].items() if not osd["up"] and not osd["in"]}


def test_what_runs_counts_as_gone_and_comes_back(tmp_path: Path, world: Connections) -> None:
    world.state["osds"]["1"]["weight"] = 0.8
    world.first = json.loads(json.dumps(world.state))
    made = ready(tmp_path, world)
    made.inject(MARK)
    assert down(world) == {"1", "2"} and "noup" in world.state["flags"]
    assert all(osd["unit"] == "active" for osd in world.state["osds"].values())
    world.state["osds"]["1"]["weight"] = 1.0  # `osd in` forgets it
    assert made.undo_all() == []
    assert world.differences() == set()


def test_an_osd_that_was_out_stays_out(tmp_path: Path, world: Connections) -> None:
    world.state["osds"]["1"]["in"] = 0
    world.first = json.loads(json.dumps(world.state))
    made = ready(tmp_path, world)
    made.inject(MARK)
    assert not any("osd out 1" in text for _, text in world.said)
    assert down(world) == {"1", "2"}
    assert made.undo_all() == []
    assert world.differences() == set()


@pytest.mark.parametrize("how", ["before", "after", "late"])
def test_a_run_that_dies_at_it_leaves_no_flag_behind(tmp_path: Path, world: Connections, how: str) -> None:
    made = ready(tmp_path, world)
    world.die_at_change = (world.changes + 1, how)
    with pytest.raises(Died):
        made.inject(MARK)
    made.close()
    assert injector(tmp_path, world).undo_all() == []
    world.arrive()
    assert world.differences() == set()


def test_a_flag_that_is_set_would_keep_them_down(tmp_path: Path, world: Connections) -> None:
    """The operator's noup stays, with whatever rule is accepted: nothing could let the OSDs up again."""
    world.state["flags"].append("noup")
    made = ready(tmp_path, world)
    with pytest.raises(FaultError, match="noup is set already"):
        made.inject(MARK)
    assert "noup" in world.state["flags"] and not down(world) and not made.open_changes


def test_nothing_else_is_broken_meanwhile(tmp_path: Path, world: Connections) -> None:
    """A node that is stopped under noup could not be started."""
    made = ready(tmp_path, world)
    made.inject(MARK)
    careful = Fault("stopped", "stop", ("node4",), accept=tuple(rule for rule in ANYTHING if rule != "flags"))
    with pytest.raises(FaultError, match="flags: the OSD map has noup set"):
        made.inject(careful)
    assert made.undo_all() == []
    made.inject(STOP)
    made.inject(MARK)
    assert made.undo_all() == []
    assert world.differences() == set()
