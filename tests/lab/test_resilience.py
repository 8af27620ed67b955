"""A scorecard of the real cluster: failures one after the other, one refused, and a run that is killed in a failure.

CBT_PLUGINS_LONG=1 asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest
from cluster_state import facts
from cycles import S3, Cycle
from running_lab import RunningLab
from test_osdfailure import events, happened

from cbt_plugins.results.record_reader import records_of

pytestmark = [pytest.mark.lab, pytest.mark.long]
SECTION: Dict[str, Any] = {
    "s3": S3,
    "objects": {"sizes": ["16KiB"]},
    "fill": {"objects": 300},
    "rate": "40/s",
    "baseline": "30s",
    "parts": {"start": "5s", "failure": "15s", "recovery": "30s"},
    "failures": {
        "node down": {"kind": "stop", "osd_nodes": 1, "seed": 5},
        "two nodes": {"kind": "stop", "osd_nodes": 2},
        "rgw down": {"kind": "stop", "daemon_number": 1, "daemon_type": "rgw"},
    },
    "wait": {"at_most": "4m", "stalled": "2m"},
}


def injected(cycle: Cycle, label: str) -> bool:
    """Whether a fault of this label was injected; the settings of a run are faults, too."""
    rows = events(cycle) if happened(cycle, "fault-injected") else []
    return any(row["event"] == "fault-injected" and row["label"] == label for row in rows)


def test_a_scorecard_whose_run_is_killed_in_a_failure(lab: RunningLab, tmp_path: Path, before: Dict[str, Any]) -> None:
    cycle = Cycle(lab, tmp_path, {"recovery": {}}, resilience=SECTION)
    assert cycle.broken_off(lambda: injected(cycle, "node-down"), "the failure of the node") != 0
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lab) == before and cycle.left() == []
    chosen = [e["targets"] for e in events(cycle) if e["event"] == "fault-inject-begin" and e["label"] == "node-down"]
    assert len(chosen) == 2 and chosen[0] == chosen[1]
    summary = cycle.summary()
    node, two, rgw = summary["scorecard"]["failures"]
    (score,) = node["scores"]
    assert 40 <= score["seconds"] <= 46 and score["total"]["requests"] > 500
    assert score["cluster"]["touched"] and score["cluster"]["recovery_s"] > 0 and score["cluster"]["moved_mib"] >= 0
    assert two["scores"] == [] and "inactive" in two["refused"][0]["why"]
    assert len(rgw["scores"]) == 1 and cycle.phases()["two-nodes"]["jobs"] == []
    (record,) = records_of(cycle.archive)
    measured = {(m.phase, m.op, m.metric): m.value for m in record.measurements}
    assert measured["node down", "GET", "bad_s"] is not None
    assert measured["rgw down", "total", "longest_gap_s"] is not None
    assert not {phase for phase, _, _ in measured if phase.startswith(("node-down", "rgw-down"))}
