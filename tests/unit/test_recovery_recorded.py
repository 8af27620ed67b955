"""Milestones of recorded failures, beside the cluster's own log."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest
from recovery_times import reasons, seconds

from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.journal import json_lines
from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples
from cbt_plugins.results.recovery.milestones import blocks, milestones

DATA = Path(__file__).parents[1] / "data" / "recovery"


def recorded(name: str) -> Dict[str, Any]:
    samples = read_samples([DATA / f"{name}.jsonl"])
    return milestones(samples, json_lines(DATA / f"{name.split('-')[0]}-events.jsonl"))


RECORDED: Dict[Tuple[str, int], Dict[str, Optional[float]]] = {
    ("one", 0): {
        "injected": 0.277,
        "first-down": 0.174,
        "all-down": 0.174,
        "degraded-peak": 2.26,
        "out": 9.795,
        "recovery-starts": 11.354,
        "no-object-degraded": 23.183,
        "health-ok": 23.183,
        "clean": 23.183,
    },
    ("one", 1): {
        "undone": 11.976,
        "first-up": 4.113,
        "all-up": 11.746,
        "recovery-starts": 5.015,
        "misplaced-peak": 7.041,
        "no-object-degraded": 14.959,
        "health-ok": 11.17,
        "clean": 14.959,
    },
    ("two", 0): {
        "injected": 3.19,
        "first-down": 0.621,
        "all-down": 2.839,
        "degraded-peak": 4.327,
        "out": None,
        "recovery-starts": 12.588,
        "no-object-degraded": None,
        "health-ok": None,
        "clean": None,
    },
    ("killed", 0): {
        "injected": 0.159,
        "first-down": 0.165,
        "all-down": 0.165,
        "degraded-peak": 2.525,
        "out": 8.48,
        "recovery-starts": 10.692,
        "no-object-degraded": None,
        "health-ok": 20.579,
        "clean": None,
    },
}


@pytest.mark.parametrize(("name", "number"), RECORDED)
def test_milestones_of_recorded_failures(name: str, number: int) -> None:
    episode = recorded(name)["episodes"][number]
    assert seconds(episode) == pytest.approx(RECORDED[name, number], abs=0.002)
    assert all(m["reason"] for m in episode["milestones"] if m["t"] is None)
    assert all(m["rule"] for m in episode["milestones"])


def log_lines(name: str) -> Iterator[Tuple[float, str]]:
    for line in (DATA / f"{name}-cluster.log").read_text().splitlines():
        yield datetime.strptime(line[:31], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp(), line[32:]


LOG = {
    "down": re.compile(r"osd\.(\d+) (?:marked itself down|failed )"),
    "out": re.compile(r"Marking osd\.(\d+) out"),
    "up": re.compile(r"osd\.(\d+) .* boot$"),
}


@pytest.mark.parametrize("name", ["one", "two", "killed"])
def test_changes_of_osds_are_those_of_the_clusters_log(name: str) -> None:
    samples = read_samples([DATA / f"{name}.jsonl"])
    ours = {(kind, osd): c.t for c in samples.changes for kind in LOG for osd in getattr(c, kind)}
    theirs = {}
    for t, text in log_lines(name):
        for kind, pattern in LOG.items():
            found = pattern.search(text)
            if found:
                theirs[kind, int(found.group(1))] = t
    assert ours.keys() == theirs.keys()
    assert ours == pytest.approx(theirs, abs=0.5)


@pytest.mark.parametrize(("name", "number"), [("one", 0), ("one", 1), ("two", 1), ("killed", 1)])
def test_clean_is_when_the_clusters_log_says_so(name: str, number: int) -> None:
    episode = recorded(name)["episodes"][number]
    (clean,) = (m["t"] for m in episode["milestones"] if m["name"] == "clean")
    dirty = ""
    for t, text in log_lines(name):
        if "pgmap" in text and episode["begin"] + 1 < t < episode["end"]:
            states = text.split("pgs: ")[1].split(";")[0]
            if states == "49 active+clean" and dirty:
                last = t
            dirty = "" if states == "49 active+clean" else states
    assert clean == pytest.approx(last, abs=0.5)


def test_the_two_ways_to_ask_agree_within_their_interval() -> None:
    fast, slow = (seconds(recorded(name)["episodes"][0]) for name in ("one", "one-ceph"))
    assert slow == pytest.approx(fast, abs=1.3)
    exact = ("first-down", "all-down", "out")
    assert [slow[name] for name in exact] == [fast[name] for name in exact]


def test_not_recovered_is_a_result_with_data() -> None:
    made = recorded("two")
    failure, back = made["episodes"]
    assert failure["outcome"] == "not recovered" and back["outcome"] == "recovered"
    left = failure["left"]
    assert left["degraded"] == 9293 and left["pgs"]["down"] == 17 and left["inactive_pgs"] == 17
    assert "osd.7 stayed in" in reasons(failure)["out"]
    assert [w["code"] for w in made["warnings"]] == ["not-recovered"]
    assert back["left"] is None
    assert any("17 down" in line for line in Terminal().text(list(blocks(made))).splitlines())


def test_the_rates_are_those_of_the_counters() -> None:
    rate = recorded("killed")["episodes"][0]["recovery"]
    assert (rate["objects"], rate["objects_fallen"], rate["copies"]) == (5622, 2769, 7537)
    assert rate["objects_per_s"] == pytest.approx(5622 / rate["seconds"], abs=0.01)
    assert rate["mib_per_s"] == pytest.approx(rate["bytes"] / 2**20 / rate["seconds"], abs=0.001)


def test_a_stalled_monitor_is_a_gap() -> None:
    (gap,) = read_samples([DATA / "stall.jsonl"]).gaps
    assert gap["seconds"] == 8.384 and gap["why"] == "status: timed out"


def test_files_are_found_wherever_a_benchmark_puts_them(tmp_path: Path) -> None:
    places = ["phases/02-hybrid/monitors/recovery.node0", "phases/03-wait.partial-1/monitors/recovery.node0"]
    places += ["idle_monitoring.node0/recovery", "phases/02-hybrid/monitors/collectl.node0"]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / ("raw" if "collectl" in place else "recovery.jsonl")).touch()
    assert [str(path.parent.relative_to(tmp_path)) for path in files_of(tmp_path)] == sorted(places[:3])
