"""A fault on the replies of a real cluster of eight hosts, and what the safety rules say of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Callable, Dict, List

from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import Facts, osd_names
from cbt_plugins.faults.safety_case import Surroundings
from cbt_plugins.faults.safety_rules_data import Assessment, assess

DATA = Path(__file__).parent / "data" / "ceph"
#: asked for since the replies were recorded; one manager, on the head
SINCE = {"config dump": [], "mgr stat": {"active_name": "node0"}, "service dump": {"services": {}}, "mds metadata": []}
SINCE["mgr metadata"] = [{"name": "node0", "hostname": "node0"}]
PACIFIC: Dict[str, Any] = {**SINCE, **json.loads((DATA / "pacific-blast.json").read_text())}


def taken(*osds: int, **more: Any) -> BlastRadius:
    return BlastRadius(osd_names(osds), **more)


def judge(
    what: BlastRadius, change: Callable[[Dict[str, Any]], Any] = lambda answers: None, **more: Any
) -> Assessment:
    answers = copy.deepcopy(PACIFIC)
    change(answers)
    return assess(Facts(answers), what, Surroundings(**more))


def rules(found: Assessment) -> List[str]:
    return list(dict.fromkeys(finding.rule for finding in found.findings))


def text(found: Assessment, rule: str) -> str:
    return next(str(finding) for finding in found.findings if finding.rule == rule)


ONE, TWO = taken(0), taken(0, 1)
