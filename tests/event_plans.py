"""Plans of `warp:` whose phases have events."""

from __future__ import annotations

from typing import Any, Dict

from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.plan import Plan

S3 = {"urls": ["http://rgw1:7480"], "user": "cbt"}
FILL: Dict[str, Any] = {"fill": {"objects": 100}}


def warp(*phases: Dict[str, Any], **keys: Any) -> Plan:
    section = {"s3": S3, "engine": "cbt-load", "cycle": {"phases": list(phases)}, **keys}
    return plan_of("warp", section, {"clients": ["c1"], "osds": {"root@node1": {}, "node2": {}}}, None)


def hybrid(*events: Dict[str, Any], **keys: Any) -> Dict[str, Any]:
    return {"hybrid": {"duration": "10m", "events": list(events), **keys}}
