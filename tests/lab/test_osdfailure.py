"""A node fails under load, on the real cluster: the cycle, its ends by force, and everything as it was."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
from cluster_state import ask, facts
from cycles import S3, Cycle, generators
from running_lab import PROJECT, RunningLab
from waiting import busy, wait_for

from cbt_plugins.results.archive import read_run
from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples, status_by_phase
from cbt_plugins.results.requests.phase_reading import read_phase

pytestmark = pytest.mark.lab

SETTINGS = {
    "scrub": False,
    "flags": ["nosnaptrim"],
    "config": {"mon": {"mon_osd_down_out_interval": 8}},
    "recovery": "aggressive",
}


def failure(**keys: Any) -> Dict[str, Any]:
    return {
        "s3": S3,
        "engine": "cbt-load",
        "objects": {"sizes": ["16KiB"]},
        "workers": 8,
        "fill": {"objects": 300},
        "phase": {"duration": "15s"},
        "down_nodes": 1,
        "fault": {"kind": "stop", "nodes": ["node4"]},
        "settings": SETTINGS,
        "wait": {"at_most": "4m", "stalled": "2m"},
        **keys,
    }


def events(cycle: Cycle) -> List[Dict[str, Any]]:
    (path,) = cycle.archive.glob("results/*/id-*/events.jsonl")
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]  # the last one may be half written


def happened(cycle: Cycle, name: str) -> bool:
    found = cycle.archive.glob("results/*/id-*/events.jsonl")
    return any(f'"event": "{name}"' in path.read_text() for path in found)


RATES = re.compile(r"progress - ([\w-]+): (\d+):(\d\d), .*  ([\d,]+) obj/s ")


def shown_and_seen(cycle: Cycle) -> List[Tuple[str, float, float, float]]:
    """Return (phase, rate, lowest, highest second until then) of each progress line, the seconds from the archive."""
    aggregates = {phase.name: read_phase(phase) for phase in read_run(cycle.folder).phases if phase.jobs}
    begins = {e["phase"]: e["at"] for e in events(cycle) if e["event"] == "load-go"}
    shown = []
    for phase, minutes, seconds, rate in RATES.findall(cycle.log.read_text()):
        now = int(begins[phase]) + 60 * int(minutes) + int(seconds) - aggregates[phase].grid.first
        part = aggregates[phase].all_ops.sums["objects"][: now + 2]
        shown.append((phase, float(rate.replace(",", "")), float(part.min()), float(part.max())))
    return shown


def index_scrubs(lab: RunningLab) -> Dict[str, str]:
    """When each PG of RGW's index pool was scrubbed deeply last."""
    pgs = ask(lab, "pg ls-by-pool default.rgw.buckets.index")["pg_stats"]
    return {pg["pgid"]: pg["last_deep_scrub_stamp"] for pg in pgs}


def test_a_node_fails_and_comes_back_and_all_is_as_before(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    settings = {**SETTINGS, "config": {"mon": {"mon_osd_down_out_interval": 3}}}
    cycle = Cycle(lab, tmp_path, osdfailure=failure(phase={"duration": "12s"}, settings=settings))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before
    assert cycle.left() == []  # on client2 neither, which makes no load
    phases = cycle.phases()
    assert list(phases) == ["fill", "no-failure", "one-down", "recover", "wait-clean"]
    for name in ("no-failure", "one-down", "recover"):
        assert phases[name]["window"]["end"] - phases[name]["window"]["start"] == 12.0
        assert all(count["ok"] for count in phases[name]["accounting"]), phases[name]["accounting"]
    shown = shown_and_seen(cycle)
    assert shown and all(lowest - 1 <= rate <= highest + 1 for _, rate, lowest, highest in shown), shown
    told = [(e["event"], e.get("label")) for e in events(cycle) if e["event"].startswith("fault-")]
    node = [name for name, label in told if label not in ("settings", "recovery")]
    assert node == [f"fault-{name}" for name in ("inject-begin", "injected", "in-effect", "undo-begin", "undone")]
    drift = [e["late"] for e in events(cycle) if e["event"] == "event"]
    assert drift and max(drift) < 2.0 * busy()
    samples = read_samples(files_of(cycle.folder))
    begun, *_, ended = (e["t"] for e in events(cycle) if e["event"] in ("run-begun", "run-done"))
    assert samples.samples[0].t < begun and samples.samples[-1].t > ended - 4.0 * busy()
    assert not [gap for gap in samples.gaps if gap["why"] == "no monitor ran"]
    assert min(s["osds_up"] for s in status_by_phase(read_run(cycle.folder))["one-down"]) == 6
    made = cycle.summary()["failure"]
    (failed, returned) = made["milestones"]["episodes"]
    assert (failed["kind"], returned["kind"], returned["outcome"]) == ("failure", "return", "recovered")
    at = {m["name"]: m["seconds"] for m in failed["milestones"]}
    assert 0 <= at["first-down"] <= at["all-down"] < at["out"], at
    # the next phase may have a second before its fault, whose rate is its own
    states = {phase["phase"]: {s["state"]: s for s in phase["states"]} for phase in made["impact"]["phases"]}
    assert made["impact"]["baseline"]["phase"] == "no-failure"
    assert states["no-failure"]["no failure"]["total"]["obj_per_s_percent"] == 100.0
    assert any("returning" in of_phase for of_phase in states.values())
    assert "recovery" in (cycle.folder / "report.html").read_text().lower()
    text = subprocess.run(
        [sys.executable, "-m", "cbt_plugins.tools", "report", str(cycle.folder), "--format", "text"],
        capture_output=True,
        text=True,
        cwd=PROJECT,
    ).stdout
    assert "active+clean" in text


@pytest.mark.long  # every scrub of the cluster's PGs; tests/crash has the order of the commands
def test_pgs_are_scrubbed_deeply_after_the_last_phase(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    settings = {**SETTINGS, "scrub": "deep-after"}
    cycle = Cycle(lab, tmp_path, osdfailure=failure(phase={"duration": "12s"}, settings=settings, post_poll="3s"))
    scrubbed = index_scrubs(lab)
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before
    assert scrubbed and all(stamp > scrubbed[pg] for pg, stamp in index_scrubs(lab).items())
    begun = [e["t"] for e in events(cycle) if e["event"] == "deep-scrub-begin"][-1]
    watched = [sample for sample in read_samples(files_of(cycle.folder)).samples if sample.t > begun]
    # the balancer is on again, and may move a PG, which may have to recover what was written meanwhile
    assert watched and watched[-1].clean and all(sample.osds_up == 8 for sample in watched)


def stopped(cycle: Cycle, event: str, times: int = 1) -> bool:
    """Return whether an event of the fault, not of a setting, has happened so many times."""
    if not happened(cycle, event):
        return False
    return sum(e["event"] == event and e.get("kind") == "stop" for e in events(cycle)) >= times


def while_down(cycle: Cycle, times: int = 1) -> bool:
    return stopped(cycle, "fault-injected", times) and cycle.running_rows("one-down") > 20


def report_of(cycle: Cycle) -> Any:
    """Make the report of a run anew, as its user does after an undo; return its summary."""
    line = [sys.executable, "-m", "cbt_plugins.tools", "report", str(cycle.folder), "--format", "json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=PROJECT)
    assert "something else has ended the fault" not in done.stdout + done.stderr
    return json.loads(done.stdout)


def episodes_of(summary: Any) -> List[Dict[str, Any]]:
    episodes: List[Dict[str, Any]] = summary["failure"]["milestones"]["episodes"]
    return episodes


MOMENTS: Dict[str, Callable[[Cycle], bool]] = {
    "a flag is set": lambda cycle: happened(cycle, "run-begun") or bool(cycle.running_rows("fill")),
    "stopping": lambda cycle: stopped(cycle, "fault-inject-begin"),
    "down": while_down,
    "starting": lambda cycle: stopped(cycle, "fault-undo-begin"),
    "waiting": lambda cycle: bool(list(cycle.archive.glob("results/*/id-*/phases/*-wait-clean.running"))),
}


def undone_from_another_shell(cycle: Cycle, before: Dict[str, Any]) -> None:
    """Undo what a killed run has left, and see that everything is as before."""
    wait_for(lambda: generators(cycle.lab) == [], "the generators to end", 60)
    done = cycle.undo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert facts(cycle.lab) == before


def run_to_its_end(cycle: Cycle, before: Dict[str, Any]) -> None:
    """Resume a run that was undone; its failure and its return are whole."""
    again = cycle.run()
    assert again.returncode in (0, 1), again.stderr[-3000:]
    assert (cycle.folder / "complete").exists(), again.stderr[-3000:]
    assert facts(cycle.lab) == before
    planned = [e for e in episodes_of(report_of(cycle)) if not e["aborted"]]
    assert [e["kind"] for e in planned] == ["failure", "return"], planned


@pytest.mark.long  # the test below has the moment "down", tests/crash each call of a run
@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_and_undo_from_another_shell(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any], moment: str
) -> None:
    cycle = Cycle(lab, tmp_path, osdfailure=failure(phase={"duration": "5s"}, fill={"objects": 100}))
    assert cycle.broken_off(lambda: cycle.journal() and MOMENTS[moment](cycle), moment) != 0
    undone_from_another_shell(cycle, before)
    if moment in ("stopping", "down"):
        undone = episodes_of(report_of(cycle))
        assert [(e["kind"], bool(e["aborted"])) for e in undone] == [("failure", True), ("return", True)], undone
    if moment in ("down", "waiting"):
        run_to_its_end(cycle, before)


@pytest.mark.long  # test_cycle has a kill -9 and a resume, tests/crash both with faults in force
def test_ctrl_c_then_kill_9_and_then_to_the_end(lab: RunningLab, tmp_path: Path, before: Dict[str, Any]) -> None:
    """One run that is interrupted, resumed, killed, undone from another shell, and resumed, with a node down twice."""
    cycle = Cycle(lab, tmp_path, osdfailure=failure(phase={"duration": "5s"}, fill={"objects": 100}))
    assert cycle.broken_off(lambda: cycle.journal() and while_down(cycle), "the node to be down", signal.SIGINT) == 130
    assert facts(lab) == before
    assert generators(lab) == []
    assert cycle.left() == []
    (partial,) = cycle.folder.glob("phases/*-one-down.partial-1")
    assert list((partial / "aggregates").glob("*.aggregates"))
    assert (cycle.folder / "report.html").exists()
    assert cycle.broken_off(lambda: while_down(cycle, times=2), "the node to be down again") != 0
    undone_from_another_shell(cycle, before)
    undone = episodes_of(report_of(cycle))
    assert [(e["kind"], bool(e["aborted"])) for e in undone] == 2 * [("failure", True), ("return", True)], undone
    run_to_its_end(cycle, before)


@pytest.mark.long  # tests/crash does so, on a stand-in, every time
def test_the_next_start_undoes_what_a_kill_has_left(lab: RunningLab, tmp_path: Path, before: Dict[str, Any]) -> None:
    cycle = Cycle(lab, tmp_path, osdfailure=failure(phase={"duration": "5s"}, fill={"objects": 100}))
    assert cycle.broken_off(lambda: cycle.journal() and while_down(cycle), "the node to be down") != 0
    done = cycle.run()
    assert (cycle.folder / "complete").exists(), done.stderr[-3000:]
    assert facts(lab) == before
    codes = [w["code"] for w in cycle.phases()["one-down"]["warnings"]]
    assert "repeated" in codes


@pytest.mark.long  # test_faults_lock does so without a cluster
def test_a_second_run_on_the_cluster_is_refused(lab: RunningLab, tmp_path: Path, before: Dict[str, Any]) -> None:
    first = Cycle(lab, tmp_path, osdfailure=failure(phase={"duration": "60s"}, fill={"objects": 3000}))
    (tmp_path / "second").mkdir()
    second = Cycle(lab, tmp_path / "second", osdfailure=failure())
    first.start()
    try:
        first.await_moment(lambda: first.running_rows("fill") > 20, "the first run's load")
        refused = second.run()
        assert refused.returncode == 1
        assert "has been using this cluster" in refused.stderr, refused.stderr[-2000:]
        assert not list(second.archive.glob("results/*/id-*/phases/*")), "nothing was begun"
    finally:
        first.end()
    assert facts(lab) == before


@pytest.mark.long  # tests/crash/test_inject_command does so on a stand-in
def test_faults_beside_a_benchmark_that_knows_nothing_of_them(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    """The `faults` profile, with warp's load and from a file."""
    file = tmp_path / "faults.yaml"
    file.write_text(
        "settings: {flags: [noout]}\n"
        "events:\n"
        "  - {at: 3s, fault: {label: a, kind: stop, nodes: [node4]}}\n"
        "  - {at: 8s, undo: a}\n"
    )
    warp = {"s3": S3, "workers": 4, "cycle": {"phases": [{"fill": {"duration": "16s"}}]}}
    cycle = Cycle(lab, tmp_path, {"faults": {"file": str(file)}}, warp=warp)
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before
    (own,) = cycle.archive.glob("faults/*/events.jsonl")
    told = [json.loads(line)["event"] for line in own.read_text().splitlines()]
    assert told.count("fault-injected") == 2 and told.count("fault-undone") == 2
    status = status_by_phase(read_run(cycle.folder))["fill"]
    assert min(s["osds_up"] for s in status) == 6
    # on a busy machine OSDs start for longer than the load lasts: then they are back after it
    ended = [json.loads(line) for line in own.read_text().splitlines() if '"fault-undone"' in line]
    undone = next(line["t"] for line in ended if line["label"] == "a")
    assert status[-1]["osds_up"] == 8 or undone > status[-1]["t"]
