"""Series of faults and a thrash under load: kill -9 while a fault is in force, and the run resumed.

CBT_PLUGINS_LONG=1 asks for them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Tuple

import pytest
from cluster_state import clean, facts, moving
from cycles import S3, Cycle
from running_lab import RunningLab
from waiting import busy, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

FLAP = {
    **{"at": "5s", "every": "40s", "times": 3, "lasts": "15s", "wait": "clean"},
    "fault": {"label": "flap", "kind": "partition", "nodes": ["node4"], "accept": ["min-in"]},
}
EACH = {
    **{"at": "5s", "every": "30s", "rolling": True, "lasts": "10s"},
    "fault": {"label": "each", "kind": "loss", "nodes": ["node1", "node2", "node3"], "options": {"share": "2%"}},
}

RESTART = {
    **{"at": "5s", "lasts": "10s", "rolling": {"over": "osd_nodes", "wait": "clean"}},
    "fault": {"label": "restart", "kind": "stop", "accept": ["min-in"]},
}

#: the seed draws a stop of an OSD from second 5 to 51, and one of another OSD from second 35 on
THRASH = {
    "at": "5s",
    "thrash": {
        **{"for": "60s", "every": "30s", "kinds": ["stop"], "seed": 8, "min_in": "80%"},
        # no other rule than min_in may skip the second one
        "accept": ["clean", "inactive", "domain", "data", "ok-to-stop", "min-in"],
    },
}


def section(event: Dict[str, Any], duration: str, scale: float = 1.0) -> Dict[str, Any]:
    phases = [{"fill": {"objects": 500}}, {"hybrid": {"duration": duration, "events": [event]}}]
    made = {"s3": S3, "engine": "cbt-load", "size": "16KiB", "workers": 4, "cycle": {"phases": phases}}
    return {**made, "scale": scale}


def told(cycle: Cycle) -> List[Tuple[str, str]]:
    """What was written of the faults of the series, in order: (event, label)."""
    paths = list(cycle.archive.glob("results/*/id-*/events.jsonl"))  # none before the run has begun
    rows = [json.loads(line) for path in paths for line in path.read_text().split("\n")[:-1]]
    series = ("flap-", "each-", "restart-", "thrash-")
    return [(row["event"], row["label"]) for row in rows if str(row.get("label", "")).startswith(series)]


def times(label: str) -> List[Tuple[str, str]]:
    return [(f"fault-{name}", label) for name in ("inject-begin", "injected", "in-effect", "undo-begin", "undone")]


@pytest.mark.skipif(not shutil.which("nft"), reason="needs nft (Debian: nftables)")
def test_a_link_flaps_and_its_run_is_killed_while_it_is_cut(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    cycle = Cycle(lab, tmp_path, warp=section(FLAP, "4m"))
    assert cycle.broken_off(lambda: ("fault-injected", "flap-2") in told(cycle), "the second cut") != 0
    first = told(cycle)
    assert first[:5] == times("flap-1") and ("fault-undo-begin", "flap-2") not in first
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    again = told(cycle)[len(first) :]
    # the resumed run undoes what the killed one had left, and repeats the phase
    assert again[:2] == times("flap-2")[-2:]
    assert again[2:] == [*times("flap-1"), *times("flap-2"), *times("flap-3")]
    assert facts(lab) == before and cycle.left() == []
    assert lab.exec("node4", ["sh", "-c", "nft list ruleset; ls /run/cbt-plugins/*.armed"]).stdout == ""


@pytest.mark.skipif(not shutil.which("nft"), reason="needs nft (Debian: nftables)")
def test_a_rolling_loss_takes_one_node_after_the_other(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    # the rules of each fault ask the cluster: on two cores at a load of 30 for half a minute
    cycle = Cycle(lab, tmp_path, warp=section(EACH, "100s", scale=min(3.0, max(1.0, busy() / 8))))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert told(cycle) == [*times("each-1"), *times("each-2"), *times("each-3")]
    assert facts(lab) == before
    for node in ("node1", "node2", "node3"):
        assert lab.exec(node, ["sh", "-c", "nft list ruleset; tc qdisc show dev eth0 | grep htb"]).stdout == ""


class OfTwoNodes(Cycle):
    """Runs on a cluster whose other OSD nodes the file does not name."""

    cluster: ClassVar[Dict[str, Any]] = {**Cycle.cluster, "osds": ["node1", "node2"]}


def test_a_rolling_restart_takes_each_osd_node_of_the_file_and_waits_between_them(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    # each wait ends with a judgement of the cluster, which takes half a minute at a load of 27 on two cores
    cycle = OfTwoNodes(lab, tmp_path, warp=section(RESTART, "5m", scale=min(3.0, max(1.0, busy() / 8))))
    assert cycle.broken_off(lambda: ("fault-in-effect", "restart-2") in told(cycle), "the second node") != 0
    first = told(cycle)
    assert first[:5] == times("restart-1") and ("fault-undo-begin", "restart-2") not in first
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    # the resumed run undoes what the killed one had left, and repeats the phase
    assert told(cycle)[len(first) :] == [*times("restart-2")[-2:], *times("restart-1"), *times("restart-2")]
    events = [json.loads(line) for line in next(cycle.folder.glob("events.jsonl")).read_text().splitlines()]
    injected = [event for event in events if event["event"] == "fault-injected"][-2:]
    assert [event["targets"] for event in injected] == [["node1"], ["node2"]]
    undone = [event["t"] for event in events if event["event"] == "fault-undone"][-2]
    assert injected[1]["t"] - undone >= 13  # the manager's states of PGs are older than the undo until then
    (line,) = [
        line for line in json.loads((cycle.folder / "summary.json").read_text())["failure"]["impact"]["episodes"]
        if line["name"] == "restart-2 failure"
    ]
    assert {each["endpoint"] for each in line["endpoints"]} == set(S3["urls"])
    assert facts(lab) == before and cycle.left() == []


def test_a_run_is_killed_in_a_thrash_that_keeps_most_osds_in(
    lab: RunningLab, tmp_path: Path, before: Dict[str, Any]
) -> None:
    """Of 8 OSDs 80 % are more than 6: while one is down, no other one is stopped."""
    # a fault that is over is undone before the next one is judged: on two cores at a load of 25 each takes a minute
    cycle = Cycle(lab, tmp_path, warp=section(THRASH, "75s", scale=min(3.0, max(1.0, busy() / 8))))
    assert cycle.broken_off(lambda: ("fault-in-effect", "thrash-1") in told(cycle), "the first fault") != 0
    first = told(cycle)
    assert first == times("thrash-1")[:3]
    down = [osd for osd, up, *_ in facts(lab)["osds"] if not up]
    assert len(down) == 1 and facts(lab)["lock"] != before["lock"]
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    # the resumed run undoes what the killed one had left, and the seed draws the same faults
    again = told(cycle)[len(first) :]
    assert again[:2] == times("thrash-1")[-2:]
    assert sorted(again[2:]) == sorted([*times("thrash-1"), ("fault-skipped", "thrash-2")])
    assert again.index(("fault-skipped", "thrash-2")) < len(again) - 2, "the first fault was over"
    events = [json.loads(line) for line in next(cycle.folder.glob("events.jsonl")).read_text().splitlines()]
    targets = [event["targets"] for event in events if event["event"] == "fault-injected"]
    assert targets == [[f"osd.{down[0]}"]] * 2
    (skipped,) = [event for event in events if event["event"] == "fault-skipped"]
    assert "6 of 8 OSDs (75.0 %) would be in and up; min_in is 80.0 %" in skipped["why"], skipped
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    assert facts(lab) == before and cycle.left() == []
