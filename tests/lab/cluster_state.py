"""What a run with faults may change on the lab's cluster, as the cluster tells it."""

from __future__ import annotations

import json
from typing import Any, Dict

from running_lab import RunningLab


def ask(lab: RunningLab, question: str) -> Any:
    done = lab.exec("node0", ["sh", "-c", f"ceph {question} -f json 2>/dev/null"])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def facts(lab: RunningLab) -> Dict[str, Any]:
    """Everything that a failure run may change."""
    dump = ask(lab, "osd dump")
    return {
        "flags": sorted(dump["flags_set"]),
        "osds": [(o["osd"], o["up"], o["in"], o["weight"]) for o in dump["osds"]],
        "modes": {p["pool_name"]: p["pg_autoscale_mode"] for p in dump["pools"]},
        "config": sorted((c["section"], c["name"], c["value"]) for c in ask(lab, "config dump")),
        "balancer": ask(lab, "balancer status")["active"],
        "lock": [key for key in ask(lab, "config-key ls") if key.startswith("cbt-plugins")],
    }


def clean(lab: RunningLab) -> bool:
    """All PGs are active+clean, and what says so was reported since each of their OSDs came up.

    The states alone are those of before for a moment when an OSD returns.
    """
    since = {osd["osd"]: osd["up_from"] for osd in ask(lab, "osd dump")["osds"] if osd["up"]}

    def at_rest(pg: Dict[str, Any]) -> bool:
        words = set(pg["state"].split("+")) - {"scrubbing", "deep"}
        return words == {"active", "clean"} and all(
            osd in since and int(pg["reported_epoch"]) >= since[osd] for osd in pg["up"]
        )

    return all(at_rest(pg) for pg in ask(lab, "pg dump pgs")["pg_stats"])


def moving(lab: RunningLab) -> Any:
    """What changes while the cluster gets anywhere: the states of PGs and OSDs, objects that miss copies."""
    status = ask(lab, "status")
    pgs = {key: value for key, value in status["pgmap"].items() if not key.endswith("_sec")}
    return pgs, status["osdmap"], status["health"]
