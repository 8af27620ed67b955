"""Failures that take minutes: fast recovery, two nodes, the older study's shape.

CBT_PLUGINS_LONG=1 asks for them.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from aggregates_writer import NS, Request
from cluster_state import ask, clean, facts
from counted_seconds import bad
from cycles import CLUSTER, S3, Cycle
from running_lab import PROJECT, RunningLab, need_machine
from test_osdfailure import SETTINGS, failure
from waiting import wait_for

from cbt_plugins.results.result_file import PackedFile
from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]
#: what a second node breaks by intention
SECOND = ["clean", "domain", "inactive", "ok-to-stop", "data", "min-in", "capacity"]
#: set by the lab so that its recovery is fast in any case
FAST = ("osd_max_backfills", "osd_recovery_max_active", "osd_recovery_max_active_hdd")
SLEEPS = "osd_recovery_sleep"


@pytest.fixture
def ordinary(lab: RunningLab) -> Iterator[None]:
    """Recovery as Ceph's own defaults have it."""
    rows = [row for row in ask(lab, "config dump") if row["name"] in FAST or row["name"].startswith(SLEEPS)]
    there = [(row["section"], row["name"], row["value"]) for row in rows]
    for who, name, _ in there:
        lab.exec("node0", ["ceph", "config", "rm", who, name])
    yield
    for who, name, value in there:
        lab.exec("node0", ["ceph", "config", "set", who, name, value])


def failure_of(cycle: Cycle) -> Dict[str, Any]:
    episodes = cycle.summary()["failure"]["milestones"]["episodes"]
    return next(dict(episode) for episode in episodes if episode["kind"] == "failure")


def test_aggressive_recovery_is_five_times_as_fast(
    lab: RunningLab, tmp_path: Path, ordinary: None, before: Dict[str, Any]
) -> None:
    """Than Ceph's defaults, by objects a second while PGs recover; the settings go back to what they were."""
    stop = {"at": "10s", "fault": {"label": "n", "kind": "stop", "nodes": ["node4"]}}
    wait = {"wait": {"clean": True, "at_most": "12m", "stalled": "4m", "events": [stop]}}
    rates: Dict[str, List[float]] = {"": [], "aggressive": []}
    for number in range(1):
        for recovery, found in rates.items():
            wait_for(lambda: clean(lab), "a clean cluster", 240)
            folder = tmp_path / f"{recovery or 'default'}-{number}"
            folder.mkdir()
            settings = {
                "config": {"mon": {"mon_osd_down_out_interval": 3}},
                **({"recovery": recovery} if recovery else {}),
            }
            phases = {"phases": [{"fill": {"objects": 1500}}, wait]}
            section = {
                "s3": S3,
                "engine": "cbt-load",
                "size": "4KiB",
                "workers": 16,
                "settings": settings,
                "cycle": phases,
            }
            cycle = Cycle(lab, folder, warp=section)
            done = cycle.run()
            assert done.returncode == 0, done.stderr[-3000:]
            assert facts(lab) == before
            episode = failure_of(cycle)
            assert episode["outcome"] == "recovered"
            found.append(episode["recovery"]["objects_per_s"])
    assert median(rates["aggressive"]) >= 5 * median(rates[""]), rates


def two_nodes(**keys: Any) -> Dict[str, Any]:
    """The second goes before the first has been recovered from: as in the study, where that takes hours."""
    return failure(
        settings={**SETTINGS, "config": {"mon": {"mon_osd_down_out_interval": 600}}},
        cbt_load={"deadline": "15s"},
        fill={"objects": 1000},
        phase={"duration": "30s"},
        down_nodes=2,
        fault={"kind": "stop", "nodes": ["node1", "node2"], "accept": ["min-in"], "accept_second": SECOND},
        wait={"at_most": "6m", "stalled": "3m"},
        **keys,
    )


def check_two_nodes(lab: RunningLab, cycle: Cycle, known: Dict[str, Any]) -> Dict[str, Any]:
    """Run it; the cluster is as before, and as many PGs were inactive as was said. Returns the summary's failure."""
    done = cycle.run()
    assert (cycle.folder / "complete").exists(), done.stderr[-3000:]
    assert facts(lab) == known
    assert list(cycle.phases()) == ["fill", "no-failure", "one-down", "two-down", "recover", "wait-clean"]
    made: Dict[str, Any] = cycle.summary()["failure"]
    *_, second, back = made["milestones"]["episodes"]
    assert (second["kind"], back["kind"], back["outcome"]) == ("failure", "return", "recovered")
    by_phase = {phase["phase"]: phase for phase in made["impact"]["phases"]}
    assert by_phase["one-down"]["longest_gap"]["seconds"] < by_phase["two-down"]["longest_gap"]["seconds"]
    assert all(count["ok"] for phase in cycle.phases().values() for count in phase["accounting"])
    (samples,) = cycle.folder.glob("monitors/recovery.node0/recovery.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    until = cycle.phases()["two-down"]["window"]["end"]
    seen = next(
        line["inactive"] for line in reversed(lines) if "inactive" in line and line["t"] < until
    )  # PGs that peer are for moments only
    told = [json.loads(line) for line in (cycle.folder / "undo.jsonl").read_text().splitlines()]
    rules = {f["rule"]: f for line in told if line["event"] == "accepted" for f in line["findings"]}
    predicted = rules["inactive"]["numbers"]
    assert seen == pytest.approx(predicted["inactive"] / predicted["pgs"], abs=0.01)
    return made


def test_two_of_four_nodes_at_three_copies(lab: RunningLab, tmp_path: Path, before: Dict[str, Any]) -> None:
    check_two_nodes(lab, Cycle(lab, tmp_path, osdfailure=two_nodes()), before)


@pytest.fixture
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Eight nodes with an OSD each, and bucket data EC 4+2: the shape of the study."""
    need_machine()
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        base = str(tmp_path_factory.getbasetemp())
        made.up(Topology(osd_nodes=8, osds_per_node=1, ec=(4, 2), osd_memory=600 << 20, bind=(base,)), detach=False)
        yield RunningLab(made, [])
    finally:
        made.down(wipe=True)


def test_two_of_eight_nodes_at_ec_4_2(eight: RunningLab, tmp_path: Path) -> None:
    wait_for(lambda: clean(eight), "a clean cluster", 240)
    cycle = Cycle(eight, tmp_path, osdfailure=two_nodes(keep_data=True))
    config = yaml.safe_load(cycle.file.read_text())
    config["cluster"] = {**CLUSTER, "osds": [f"node{i}" for i in range(1, 9)]}
    cycle.file.write_text(yaml.safe_dump(config, sort_keys=False))
    check_two_nodes(eight, cycle, facts(eight))


def test_the_shape_of_the_older_study(lab: RunningLab, tmp_path: Path, before: Dict[str, Any]) -> None:
    """benchmark_configs/osdfailure-classic.yaml, with a lab's names and in minutes: control, device, network."""
    config = yaml.safe_load((PROJECT / "benchmark_configs" / "osdfailure-classic.yaml").read_text())
    section = config["benchmarks"]["osdfailure"]
    section.update(s3=S3, size={"1KB": "50%", "64KB": "45%", "512KB": "5%"}, workers=6, fill={"objects": 300})
    section.update(parts={"start": "10s", "failure": "20s", "recovery": "15s"}, settle="2s")
    section["faults"]["network"] = {"nodes": ["node4"], "options": {"interfaces": ["eth0"], "deadline": "22s"}}
    section["settings"]["config"] = {"mon": {"mon_osd_down_out_interval": 10}}
    section["wait"] = {"at_most": "6m", "stalled": "3m"}
    cycle = Cycle(lab, tmp_path, {"recovery": {}}, osdfailure=section)
    done = cycle.run()
    assert (cycle.folder / "complete").exists(), done.stderr[-3000:]
    assert facts(lab) == before
    loaded = {name: phase for name, phase in cycle.phases().items() if name in ("control", "device", "network")}
    assert list(loaded) == ["control", "device", "network"]
    for phase in loaded.values():
        assert phase["window"]["end"] - phase["window"]["start"] == 45.0
        assert all(count["ok"] for count in phase["accounting"])
    made = cycle.summary()["failure"]
    kinds = [(tuple(e["labels"]), e["kind"], e["outcome"]) for e in made["milestones"]["episodes"]]
    assert [kind[:2] for kind in kinds] == [
        (("device",), "failure"),
        (("device",), "return"),
        (("network",), "failure"),
        (("network",), "return"),
    ]
    assert kinds[1][2] == kinds[3][2] == "recovered"
    assert made["impact"]["baseline"]["phase"] == "control"


def nanoseconds(text: str) -> int:
    """Return RFC 3339 as epoch ns, exactly."""
    second, _, fraction = text.rstrip("Z").partition(".")
    return int(datetime.fromisoformat(f"{second}+00:00").timestamp()) * NS + int(fraction.ljust(9, "0"))


def requests_of(phase: Path) -> Iterator[Request]:
    """Yield the requests of a phase by its rows, on the run's clock."""
    for job in json.loads((phase / "phase.json").read_text())["jobs"]:
        text = b"".join(PackedFile(phase / job["rows"]).chunks()).decode()
        offset = round((job["clock_offset"] or 0.0) * NS)
        for row in csv.DictReader(io.StringIO(text), delimiter="\t"):
            end = nanoseconds(row["end"]) - offset
            yield Request(row["op"], end, int(row["duration_ns"]), error=row["error"])


def test_bad_seconds_are_those_of_the_rows(lab: RunningLab, tmp_path: Path) -> None:
    """An open loop while a node fails and returns: each second by its requests, counted beside the program."""
    keys = {"rate": "80/s", "keep_rows": True, "phase": {"duration": "20s"}, "workers": 32}
    cycle = Cycle(lab, tmp_path, osdfailure=failure(**keys))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    impact = cycle.summary()["failure"]["impact"]
    assert impact["baseline"]["phase"] == "no-failure" and "total" in impact["objective"]
    lines = 0
    for phase in impact["phases"]:
        (folder,) = cycle.folder.glob(f"phases/*-{phase['phase']}")
        requests = list(requests_of(folder))
        assert requests
        for op, limit in impact["objective"].items():
            base = impact["baseline"]["total"] if op == "total" else impact["baseline"]["ops"][op]
            own = [request for request in requests if op in ("total", request.op)]
            window = range(int(phase["start"]), int(phase["end"]))
            counted = bad(own, limit, base["requests"] / impact["baseline"]["seconds"], window)
            for state in phase["states"]:
                line = state["total"] if op == "total" else state["ops"][op]
                assert line["bad_seconds"] == sum(state["start"] <= second < state["end"] for second in counted)
                lines += 1
    assert lines >= 8 and {line["name"] for line in impact["episodes"]} == {"node-a failure", "node-a return"}
