"""Events of a failure of two OSDs and its return, and samples of the cluster meanwhile, for tests of milestones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

from cbt_plugins.results.recovery.cluster_samples import Samples, read_samples
from cbt_plugins.results.recovery.milestones import milestones

CLEAN = {"active+clean": 10}
DEGRADED = {"active+undersized+degraded": 4, "active+clean": 6}
RECOVERING = {"active+recovering+undersized+degraded+remapped": 2, "active+clean": 8}


def event(t: float, name: str, label: str = "a", osds: Sequence[int] = (6, 7)) -> Dict[str, Any]:
    return {"t": t, "event": f"fault-{name}", "label": label, "kind": "stop", "targets": ["node4"], "osds": list(osds)}


def watched(
    tmp_path: Path, *lines: Dict[str, Any], begin: float = 0.0, end: float = 100.0, interval: float = 1.0
) -> Samples:
    """A sample every second from `begin` on; `lines` have what changed at "t"."""
    start = {"osds": 8, "down": [], "out": [], "pgs": CLEAN, "num_pgs": 10, "degraded": [0, 0], "misplaced": [0, 0]}
    start.update(unfound=[0, 0], settled=True, health="HEALTH_OK", checks=[], recovered=[0, 0, 0], t=begin)
    for line in lines:
        start.update({key: value for key, value in line.items() if line["t"] <= begin and key not in ("t", "map")})
    changes = {line["t"]: line for line in lines}
    text = [{"version": 1, "t": begin, "via": "librados", "interval": interval, "mgr_stats_period": 5.0}, start]
    t = begin + interval
    while t <= end:
        text.append(changes.get(t, {"t": t}))
        t += interval
    path = tmp_path / "recovery.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in text if not line.get("missing")))
    return read_samples([path])


DOWN = {"t": 11.0, "down": [6, 7], "settled": False, "health": "HEALTH_WARN"}
DOWN["map"] = [{"epoch": 2, "t": 10.4, "down": [6, 7]}]
FAULT = [event(10.0, "inject-begin"), event(10.5, "injected")]
BACK_TIMES = ((60.0, "undo-begin"), (63.0, "undone"))
BACK = [event(t, name) for t, name in BACK_TIMES]
SETTLED = {"t": 16.0, "settled": True}


def only(samples: Samples, events: List[Dict[str, Any]]) -> Dict[str, Any]:
    return milestones(samples, events)["episodes"][0]
