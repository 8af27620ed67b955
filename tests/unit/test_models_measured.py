"""The network model against the counters of real interfaces: every part of the way of PUTs and GETs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from cbt_plugins.models.network import PUBLIC, RECEIVES, SENDS, layout, loads, transfers
from cbt_plugins.models.pools import Redundancy

FILE = Path(__file__).parents[1] / "data" / "network" / "interfaces.json"
PHASES: List[Dict[str, Any]] = json.loads(FILE.read_text())
#: how the lab's nodes are called in the model
ROLES = {"client": "client1", "rgw": "gateway1", "node": "osd1"}


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: f"{phase['op']} {phase['pool']}")
def test_interfaces_moved_what_the_model_says(phase: Dict[str, Any]) -> None:
    of = layout(4, Redundancy.parse(phase["pool"]), clients=2, gateways=2)
    its, op = phase["interfaces"], phase["op"]
    clients = sum(its[node]["sends" if op == "PUT" else "receives"] for node in ("client1", "client2"))
    assert sum(net["sends"] for net in its.values()) / clients == pytest.approx(transfers(of, op), rel=0.03)
    for prefix, name in ROLES.items():
        nodes = [net for node, net in its.items() if node.startswith(prefix) and node != "node0"]
        for way in (SENDS, RECEIVES):
            expected = len(nodes) * loads(of, op).get((name, way, PUBLIC), 0.0)
            moved = sum(net[way] for net in nodes) / clients
            # requests, answers and heartbeats are below a hundredth of an object of 4 MiB
            assert moved == pytest.approx(expected, rel=0.05, abs=0.01), (prefix, way)
