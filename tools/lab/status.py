"""What a lab is doing: nodes, daemons, memory, health; for people and for programs."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Dict, List

from .cluster import Lab
from .daemons import Daemons
from .process import by_namespace
from .topology import HEAD


def gather(lab: Lab) -> Dict[str, Any]:
    """{"dir", "running", "health", "urls", "root", "nodes": {name: NODE}}

    NODE: {"address", "up", "pid", "memory" (bytes), "daemons": {name: pid}};
    pids are those of the machine; memory is the proportional set size of everything in the node.
    """
    record, spaces = lab.record, lab.spaces
    namespaces, daemons = by_namespace(), Daemons(spaces).running()
    nodes: Dict[str, Any] = {}
    for node in record.topology.nodes.values():
        first = spaces.first(node.name)
        inside = namespaces.get(first.namespace, []) if first else []
        nodes[node.name] = {
            "address": node.address,
            "up": first is not None,
            "pid": first.pid if first else None,
            "memory": sum(process.memory() for process in inside),
            "daemons": {name: process.pid for name, process in sorted(daemons.get(node.name, {}).items())},
        }
    running = lab.running
    return {
        "dir": str(lab.dir),
        "running": running,
        "health": _health(lab) if running else None,
        "urls": record.topology.urls,
        "root": record.topology.root,
        "nodes": nodes,
    }


def _health(lab: Lab) -> str:
    try:
        done = lab.exec(HEAD, ["ceph", "--connect-timeout", "5", "status", "-f", "json"], timeout=30)
        status = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return "the monitor does not answer"
    checks = "".join(f" {check}" for check in sorted(status["health"]["checks"]))
    states = {state["state_name"]: state["count"] for state in status["pgmap"]["pgs_by_state"]}
    counted = ", ".join(f"{count} {name}" for name, count in states.items())
    up, osds = status["osdmap"]["num_up_osds"], status["osdmap"]["num_osds"]
    return f"{status['health']['status']}{checks}; {up} of {osds} OSDs up; PGs: {counted}"


def as_text(found: Dict[str, Any]) -> List[str]:
    """The lines that `lab status` prints."""
    if not found["running"]:
        return [f"not running: {found['dir']}"]
    lines = [f"lab      {found['dir']}", f"health   {found['health']}"]
    if found["root"] != "/":
        lines.append(f"root     {found['root']}")
    if found["urls"]:
        lines.append(f"S3       {' '.join(found['urls'])}  (keys: {found['dir']}/s3.json)")
    total = sum(node["memory"] for node in found["nodes"].values())
    lines.append(f"memory   {total >> 20} MiB")
    for name, node in found["nodes"].items():
        daemons = " ".join(f"{daemon}:{pid}" for daemon, pid in node["daemons"].items())
        state = f"{node['memory'] >> 20:5} MiB  {daemons}" if node["up"] else "down"
        lines.append(f"{name:8} {node['address']:12} {state}")
    return lines
