"""Milestones beside those of a second sampler with rules of its own, on each release, also under load.

    CBT_PLUGINS_LONG=1 CBT_LAB_ROOTS=DIR:DIR python -m pytest -rP tests/lab/test_milestones.py

It prints by how much each milestone differs.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from cluster_log import EXACT
from cluster_state import ask
from running_lab import RunningLab
from second_sampler import Between, SecondSampler, milestones_seen, second_sampler
from test_recovery_watched import OUT, watched
from waiting import wait_for

from cbt_plugins.results.recovery.milestones import milestones

pytestmark = [pytest.mark.lab, pytest.mark.long]

WRITE = ["rados", "bench", "-p", "rbd", "3", "write", "-b", "16384", "-t", "8", "--no-cleanup"]
#: seconds for which each recovery of an object waits, so that a recovery is long enough to be seen
SLEEP = "0.01"
#: seconds of clean PGs after which a recovery is over
CALM = 10.0
#: processes that take all the time that they get
BUSY = 15
#: what the milestones of a recovery are that was over when the next episode began
_ENDS = ("no-object-degraded", "health-ok", "clean", "misplaced-peak")


@pytest.fixture
def slowly(of_release: RunningLab) -> Iterator[RunningLab]:
    """A cluster whose recovery takes seconds, and whose OSDs are out soon."""
    lab = of_release
    sleeps = [name for name in ask(lab, "config ls") if name.startswith("osd_recovery_sleep")]
    wanted = {("mon", OUT): "5", **{("osd", name): SLEEP for name in sleeps}}
    former = {(row["section"], row["name"]): row["value"] for row in ask(lab, "config dump")}
    for (who, name), value in wanted.items():
        lab.exec("node0", ["ceph", "config", "set", who, name, value])
    yield lab
    for (who, name), value in former.items():
        if (who, name) in wanted:
            lab.exec("node0", ["ceph", "config", "set", who, name, value])
    lab.tool("start-osds", "node4")
    lab.exec("client1", ["rados", "-p", "rbd", "cleanup"])


@contextlib.contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def clean_for(second: SecondSampler, since: float, seconds: float = CALM) -> bool:
    now = second.glimpses()[-1].answered
    lately = [seen for seen in second.glimpses() if seen.answered > max(since, now - seconds)]
    return now > since + seconds and all(seen.clean and seen.osds_up in (6, 8) for seen in lately)


def off(t: Optional[float], seen: Optional[Between]) -> Optional[float]:
    """Return by how many seconds a milestone is outside of where it was seen; None where neither is there."""
    if t is None or seen is None:
        assert t is None and seen is None, (t, seen)
        return None
    return t - min(max(t, seen[0]), seen[1])


@pytest.mark.parametrize("processes", [0, BUSY], ids=["", "busy"])
def test_milestones_are_those_of_a_second_sampler(slowly: RunningLab, processes: int, tmp_path: Path) -> None:
    lab, events = slowly, []

    def note(name: str) -> None:
        events.append({"t": time.time(), "event": f"fault-{name}", "label": "n", "kind": "stop", "osds": [6, 7]})

    def fail() -> None:
        note("inject-begin")
        assert lab.tool("stop-osds", "node4").returncode == 0
        note("injected")
        wait_for(lambda: second.glimpses()[-1].osds_in == 6, "the OSDs to be out")

    def come_back() -> None:
        assert lab.tool("start-osds", "node4").returncode == 0
        note("undone")
        wait_for(lambda: second.glimpses()[-1].osds_up == 8, "the OSDs to be up")

    def write() -> None:
        assert lab.exec("client1", WRITE).returncode == 0

    def calm() -> None:
        since = time.time()
        wait_for(lambda: clean_for(second, since), "clean PGs", moving=lambda: second.glimpses()[-1].states)

    write()
    with second_sampler(lab, tmp_path / "second") as second, watched(lab, tmp_path) as its:
        calm()
        with busy_machine(processes):
            fail()
            calm()
            write()
            note("undo-begin")
            come_back()
            calm()
            # its undo begins while PGs recover, and they are clean before its OSDs are up
            fail()
            wait_for(lambda: its.samples().samples[-1].recovering_or_backfilling, "recovering PGs")
            note("undo-begin")
            calm()
            write()
            come_back()
            calm()
        made, seen = milestones(its.close(), events), second.glimpses()
    table: List[Tuple[str, str, float]] = []
    for episode in made["episodes"]:
        recovered = episode["outcome"] == "recovered"
        found = milestones_seen(seen, episode["kind"], episode["begin"], episode["end"])
        at: Dict[str, Any] = {milestone["name"]: milestone["t"] for milestone in episode["milestones"]}
        for name in (name for name in found if recovered or name not in _ENDS):
            differs = off(at[name], found[name])
            if differs is not None:
                table.append((episode["kind"], name, differs))
                print(f"{episode['kind']:8} {name:20} {at[name] - episode['begin']:7.2f} s  {differs:+.2f} s")
    outcomes = [episode["outcome"] for episode in made["episodes"]]
    assert outcomes == ["recovered", "recovered", "not recovered", "recovered"]
    assert [name for _, name, _ in table].count("recovery-starts") == len(made["episodes"])
    assert not [row for row in table if abs(row[2]) > EXACT], table
