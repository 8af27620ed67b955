"""Processes that take processor time and memory: they run, they end, and they end by themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Mapping, Tuple

import pytest
from faults_world import Connections, injector
from waiting import wait_for

from cbt_plugins.faults.kind import make
from cbt_plugins.faults.node_shell import script_text
from cbt_plugins.faults.scene import ClusterLimits, Targets
from cbt_plugins.faults.step import Check
from cbt_plugins.plan import Fault


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


def kernel(folder: Path, **totals: int) -> Path:
    """What the kernel shows of pressure: kind -> microseconds in which tasks waited."""
    proc = folder / "proc"
    proc.mkdir(exist_ok=True)
    for kind, total in totals.items():
        (proc / kind).write_text(f"some avg10=2.41 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=0\n")
    return proc


def test_the_pressure_of_a_node_is_read_before_and_in_force(tmp_path: Path) -> None:
    proc = kernel(tmp_path, cpu=14_260_263_286)
    seen = dict(line.split() for line in hogs(tmp_path, "look", proc=proc).splitlines())
    assert set(seen) == {"cpus", "available", "cpu_some"} and seen["cpu_some"] == "2.41"
    values = {"cpus": 1, "seconds": 300}
    hogs(tmp_path, "start", **values)
    try:
        program = script_text("pressure", action="effect", d=str(tmp_path), name="r-1", proc=proc, **values)
        # the kernel counts on while the program sleeps
        waits = f"sleep() {{ sed -i s/total=14/total=19/ {proc}/cpu; command sleep 1; }}\n"
        done = subprocess.run(["sh", "-c", waits + program], stdout=subprocess.PIPE, check=True)
        assert done.stdout == b"in effect\n"
        reading = json.loads(hogs(tmp_path, "reading", cpu_before=2.41))
        assert reading["psi"]["cpu"]["before"] == 2.41 and reading["psi"]["cpu"]["in force"] > 3
        assert reading["warnings"] == []
        hogs(tmp_path, "effect", proc=proc, **values)  # nobody waited in this second
        reading = json.loads(hogs(tmp_path, "reading", cpu_before=2.41))
        (warning,) = reading["warnings"]
        assert reading["psi"] == {"cpu": {"before": 2.41, "in force": 0}} and "has not risen" in warning
    finally:
        hogs(tmp_path, "stop")
    assert [path.name for path in tmp_path.iterdir()] == ["proc"]


@pytest.mark.parametrize("psi", [("cpu", "memory"), ()])
def test_a_node_without_pressure_of_its_kernel_is_named_once(psi: Tuple[str, ...]) -> None:
    look = "cpus 2\navailable 8000000000\n" + "".join(f"{kind}_some 0.12\n" for kind in psi)
    scene: Any = SimpleNamespace(
        ceph=SimpleNamespace(in_pods=()), name="r", limits=ClusterLimits(), ask=lambda node, text, root: look
    )
    kind = make("pressure", {"memory": 2e6})
    steps = kind.steps(scene, Targets(("node1", "node2"), (), ()))
    warnings = [text for text in kind.warnings() if "PSI" in text]
    checks = [[check.reading for check in step.took] for step in steps]
    if psi:
        assert checks == [["", "psi"]] * 2 and warnings == []
        assert "memory_before=0.12" in steps[0].took[1].text and "cpu_before=0.12" not in steps[0].took[1].text
    else:
        assert checks == [[""]] * 2 and len(warnings) == 1 and warnings[0].startswith("node1, node2: ")


def test_an_event_behind_the_effect_has_the_pressure_and_its_warnings(tmp_path: Path, world: Connections) -> None:
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = injector(tmp_path, world, events=events)
    made.acquire()
    prepared = made.prepare(Fault("f", "stop", ("node1",)))
    text = """echo '{"psi": {"cpu": 7}, "warnings": ["it has not risen"]}'"""
    check = Check("node1", text, ((("psi",), {"not": ""}),), reading="psi")
    step = replace(prepared.steps[0], took=(*prepared.steps[0].took, check))
    made.inject_ready(replace(prepared, steps=(step,)))
    # the time of the effect is that before the reading
    assert [name for name, _ in events][-2:] == ["fault-in-effect", "fault-readings"]
    readings = events[-1][1]
    assert readings["psi"] == {"node1": {"cpu": 7}} and readings["warnings"] == {"node1": ["it has not risen"]}
    assert [record.step.took[-1] for record in made.open_changes] == [check]  # as the journal has it
    made.undo_all()
    made.inject(Fault("g", "stop", ("node1",)))
    assert events[-1][0] == "fault-in-effect"


@pytest.mark.parametrize("values", [{"cpus": 1}, {"bytes": 4096}])
def test_they_end_by_themselves(tmp_path: Path, values: dict) -> None:  # type: ignore[type-arg]
    hogs(tmp_path, "start", seconds=1, **values)
    wait_for(lambda: hogs(tmp_path, "stopped") == "recovered\n", "their end")
    assert hogs(tmp_path, "effect", **values).endswith("has ended\n") and hogs(tmp_path, "ended") == "ended\n"
