"""A cycle whose program is killed in every phase and resumed, with a second run beside it, on every release.

Nodes have domain names in mixed cases, and all monitors watch. About five minutes for each release and engine:

    CBT_PLUGINS_LONG=1 CBT_LAB_ROOTS=DIR:DIR python -m pytest tests/lab/test_killed.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
import yaml
from cluster_state import facts
from cycles import S3, Cycle, buckets_of, generators
from running_lab import RunningLab
from test_hsbench_mesh import ONCE, need_hsbench
from test_hsbench_mesh import section as mesh
from test_matrix import MONITORS
from test_through_cbt import DOMAIN, NAMES
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: those with load
PHASES = {
    "cbt-load": ["fill", "measure-new", "age", "measure-aged"],
    "warp": ["fill", "calibrate", "measure-new", "age", "measure-aged"],
    "hsbench": ["fill", "hybrid", "delete"],
}


@pytest.fixture
def named(of_release: RunningLab) -> Iterator[RunningLab]:
    """The lab of a release; its nodes have domain names, too."""
    hosts = of_release.dir / "etc" / "hosts"
    former = hosts.read_text()
    hosts.write_text(former + "".join(f"{n.address} {n.name}.{DOMAIN}\n" for n in of_release.nodes.values()))
    yield of_release
    hosts.write_text(former)


def made(lab: RunningLab, folder: Path, engine: str) -> Cycle:
    if engine == "hsbench":
        need_hsbench(lab)
        get = {"duration": "1m", "mix": {"get": 100}, "keys": ONCE}
        name, section = "warp", mesh({"fill": {"objects": 1000}}, {"hybrid": get}, {"delete": {}})
    else:
        name, section = "rgwtest", cycle_of_study(engine)
    cycle = Cycle(lab, folder, MONITORS, **{name: section})
    config = yaml.safe_load(cycle.file.read_text())
    config["cluster"].update(NAMES)
    cycle.file.write_text(yaml.safe_dump(config, sort_keys=False))
    return cycle


def cycle_of_study(engine: str) -> Dict[str, Any]:
    short = {"duration": "5s"}
    section: Dict[str, Any] = {"s3": S3, "engine": engine, "objects": {"sizes": ["4KiB"]}, "workers": 4}
    return {**section, "fill": {"objects": 3000}, "measure": short, "age": short}


def agents(lab: RunningLab) -> str:
    names = "agent[.]py|/spec/.*[.]py"
    return "".join(lab.exec(node, ["pgrep", "-f", names]).stdout for node in ("client1", "client2"))


def folders(lab: RunningLab) -> Dict[str, str]:
    """What a run has on the nodes."""
    return {node: lab.exec(node, ["sh", "-c", "ls -d /var/tmp/cbt/*"]).stdout for node in lab.nodes}


@pytest.mark.parametrize("engine", list(PHASES))
def test_killed_in_each_phase_and_resumed_beside_a_second_run(named: RunningLab, engine: str, tmp_path: Path) -> None:
    before = facts(named)
    cycle = made(named, tmp_path, engine)
    for phase in PHASES[engine]:
        assert cycle.broken_off(lambda now=phase: cycle.running_rows(now) > 5, f"requests in {phase}") != 0
        wait_for(lambda: generators(named) == [] and agents(named) == "", "generators and agents to end", 60)
    last = PHASES[engine][-1]
    cycle.start()
    aside = f"phases/*-{last}.partial-*"  # the killed attempt: the program that resumes has the cluster
    cycle.await_moment(lambda: [*cycle.folder.glob(aside)] and cycle.running_rows(last) > 5, "the last phase, again")
    there = folders(named)
    (tmp_path / "second").mkdir()
    second = made(named, tmp_path / "second", engine).run()
    assert second.returncode == 1 and "has been using this cluster since" in second.stderr, second.stderr
    assert folders(named) == there
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
    assert (cycle.folder / "complete").exists()
    assert {name: its["status"] for name, its in cycle.phases().items() if its["status"] != "ok"} == {}
    assert buckets_of(cycle) == [] and generators(named) == [] and cycle.left() == []
    assert facts(named) == before
