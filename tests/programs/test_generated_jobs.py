"""Orders that Python makes for cbt-load, read by cbt-load: every goal, engine, kind of phase and shipped file."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterable, List

import pytest
import yaml

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.load.generator import LoadJob, LoadStart, Memory, generator_of
from cbt_plugins.load.worker_groups import by_share
from cbt_plugins.plan import Plan
from cbt_plugins.programs import own_program

CONFIGS = Path(__file__).parents[2] / "benchmark_configs"
CBT_LOAD = own_program("cbt-load")
S3 = {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "user": "cbt", "host_select": "one"}
CLUSTER = {"user": "root", "head": "node0", "clients": ["client1", "client2"], "osds": ["node1"], "mons": ["node0"],
           "iterations": 1}  # fmt: skip
GOALS: Dict[str, Any] = {"duration": "5s", "objects": 9, "max_avail": "10%", "raw": "20%"}
MIX = {"get": 60, "list": 10, "put": 16, "stat": 2, "multipart": 1, "delete": 11}
HYBRIDS: Dict[str, Dict[str, Any]] = {
    "closed": {"mix": MIX},
    "warmed": {"mix": MIX, "ramp": "2s", "warmup": "1s"},
    "open": {"mix": MIX, "rate": "50/s"},
    "even": {"mix": MIX, "rate": "50/s", "arrivals": "even"},
    "by number": {"mix": {"put": 50, "delete": 50},
                  "keys": {"put": "s(N+1,10N)", "delete": {"select": "u(1,2N)", "absent": True}}},
    "once": {"mix": {"get": 100}, "keys": {"get": "r(1,N)"}},
    "list": {"mix": {"list": 100}},
    "plain": {"mix": {"get": 45, "put": 35, "stat": 15, "delete": 5}},
    "roles": {"mix": {"get": 50, "put": 50}, "roles": {"put": [1], "get": [2]}},
}  # fmt: skip
LADDER = {"rate": {"lowest": "10/s", "highest": "90/s"}, "objective": {"mean_ms": 9}, "duration": "3s", "mix": MIX}
PHASES: Dict[str, Dict[str, Any]] = {
    **{f"fill {goal}": {"fill": {goal: value}} for goal, value in GOALS.items()},
    **{f"hybrid {name}": {"hybrid": {"duration": "9s", **keys}} for name, keys in HYBRIDS.items()},
    "ladder": {"ladder": LADDER},
    "warp": {"warp": {"op": "put", "duration": "5s"}},
    "verify": {"verify": {}},
    "delete": {"delete": {}},
}
#: a phase that an engine cannot do is refused with the file, and not when the run comes to it
TAKEN = {
    "cbt-load": {*PHASES} - {"warp"},
    "warp": {*(f"fill {goal}" for goal in GOALS), "hybrid plain", "warp"},
    "hsbench": {"fill duration", "fill objects", "hybrid once", "hybrid list", "delete"},
}


def jobs_of(plan: Plan) -> List[LoadJob]:
    """Return the jobs of the first and the last driver of a plan, made as the run makes them."""
    names = {bucket.key: bucket.name("7") for bucket in plan.buckets}
    plan = replace(plan, drivers=tuple({driver.id: driver for driver in (plan.drivers[0], plan.drivers[-1])}.values()))
    jobs: List[LoadJob] = []
    for phase in plan.phases:
        if phase.kind == "wait":
            continue
        groups = {driver.id: by_share(phase.mix, driver.workers) for driver in plan.drivers} if phase.mix else {}
        start = LoadStart(groups, Memory(), phase.rate or (80.0 if phase.rate_share else None))
        jobs += generator_of(phase.engine)(plan, names, "7").jobs(phase, start)
    return jobs


def refusals(jobs: Iterable[LoadJob], folder: Path) -> List[str]:
    """Return the errors that cbt-load finds in the orders of its jobs. Without keys it ends when it has read them."""
    said = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment["HOME"] = str(folder)
    for job in jobs:
        if job.argv[0] != "{cbt-load}":
            continue
        order = folder / f"{job.id}.json"
        order.write_text(json.dumps(job.spec))
        done = subprocess.run([str(CBT_LOAD), "run", str(order)], env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode != 1 or "no keys: neither AWS_ACCESS_KEY_ID" not in done.stderr:
            said.append(f"{job.id}: {done.stderr}")
    return said


@pytest.mark.skipif(CBT_LOAD is None, reason="NO cbt-load (cbt-tools build makes it)")
@pytest.mark.parametrize("engine", plugins.built_in(plugins.GENERATORS))
def test_what_a_plan_accepts_its_engine_accepts(engine: str, tmp_path: Path) -> None:
    taken = set()
    for name, phase in PHASES.items():
        before = [] if "fill" in phase else [{"fill": {"objects": 9}, "name": "before"}]
        keys = {"engine": engine, "size": "4KiB", "workers": 4}
        keys.update({"buckets": 2, "across_buckets": True} if engine != "warp" else {})
        section = {"s3": S3, **keys, "cycle": {"phases": [*before, phase]}}
        file = tmp_path / "f.yaml"
        file.write_text(yaml.safe_dump({"cluster": CLUSTER, "benchmarks": {"warp": section}}))
        try:
            plan = load_file(file).runs[0].plan
        except ConfigError:
            continue
        taken.add(name)
        jobs = jobs_of(plan)
        assert jobs, name
        assert refusals(jobs, tmp_path) == [], name
    assert taken == TAKEN[engine]


def shipped() -> List[str]:
    """Return the names of the files with benchmarks."""
    return [path.name for path in sorted(CONFIGS.glob("*.yaml")) if "\nbenchmarks:" in path.read_text()]


@pytest.mark.skipif(CBT_LOAD is None, reason="NO cbt-load (cbt-tools build makes it)")
@pytest.mark.parametrize("name", shipped())
def test_orders_of_a_shipped_file_are_read(name: str, tmp_path: Path) -> None:
    for run in load_file(CONFIGS / name).runs:
        assert refusals(jobs_of(run.plan), tmp_path) == []
