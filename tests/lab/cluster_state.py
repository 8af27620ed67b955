"""What a run with faults may change on the lab's cluster, as the cluster tells it."""

from __future__ import annotations

from typing import Any, Dict, List

from running_lab import RunningLab

from cbt_plugins.cluster.ceph import json_values


def ask(lab: RunningLab, question: str) -> Any:
    (found,) = ask_all(lab, question)
    return found


def ask_all(lab: RunningLab, *questions: str) -> List[Any]:
    """Of one `ceph` process: each costs half a second of a processor."""
    done = lab.exec("node0", ["ceph", "-f", "json"], input="".join(f"{question}\n" for question in questions))
    found = json_values(done.stdout)
    assert done.returncode == 0 and len(found) == len(questions), done.stderr
    return found


def facts(lab: RunningLab) -> Dict[str, Any]:
    """Everything that a failure run may change."""
    dump, config, balancer, keys = ask_all(lab, "osd dump", "config dump", "balancer status", "config-key ls")
    return {
        "flags": sorted(dump["flags_set"]),
        "osds": [(o["osd"], o["up"], o["in"], o["weight"]) for o in dump["osds"]],
        "modes": {p["pool_name"]: p["pg_autoscale_mode"] for p in dump["pools"]},
        "config": sorted((c["section"], c["name"], c["value"]) for c in config),
        "balancer": balancer["active"],
        "lock": [key for key in keys if key.startswith("cbt-plugins")],
    }


def clean(lab: RunningLab) -> bool:
    """All PGs are active+clean, and what says so was reported since each of their OSDs came up.

    The states alone are those of before for a moment when an OSD returns.
    """
    dump, pgs = ask_all(lab, "osd dump", "pg dump pgs")
    since = {osd["osd"]: osd["up_from"] for osd in dump["osds"] if osd["up"]}

    def at_rest(pg: Dict[str, Any]) -> bool:
        words = set(pg["state"].split("+")) - {"scrubbing", "deep"}
        return words == {"active", "clean"} and all(
            osd in since and int(pg["reported_epoch"]) >= since[osd] for osd in pg["up"]
        )

    return all(at_rest(pg) for pg in pgs["pg_stats"])


def moving(lab: RunningLab) -> Any:
    """What changes while the cluster gets anywhere: the states of PGs and OSDs, objects that miss copies."""
    status = ask(lab, "status")
    pgs = {key: value for key, value in status["pgmap"].items() if not key.endswith("_sec")}
    return pgs, status["osdmap"], status["health"]
