"""What is named as the bottleneck, and with which evidence: one row for each rule and each of its limits."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional

import pytest

from cbt_plugins.results.nodes.bottleneck import bottleneck

LOAD: Dict[str, Any] = {"made": True, "per_s": 800.0, "bytes_per_s": 1e8, "ops": {"GET": 500.0, "PUT": 300.0}}


def node(name: str, role: str, busy: Optional[float] = 0.3, cpus: int = 10, **cores: float) -> Dict[str, Any]:
    line = {"node": name, "machine": name, "roles": [role], "cpus": cpus, "busy": busy, "io_wait": 0.0}
    return {**line, "cores": cores, "monitor_cores": 0.001, "watched": 1.0}


def disk(util: float, queue: float = 2.0, rotational: Optional[bool] = True, **osds: List[str]) -> Dict[str, Any]:
    line = {"node": "n1", "device": "sda", "rotational": rotational, "util": util, "queue": queue}
    return {**line, "read_ms": 8.0, "write_ms": 21.5, "osd": None, "osds": osds}


def link(side: Optional[str], util: Optional[float], name: str = "n1", speed: Optional[int] = 10000) -> Dict[str, Any]:
    line = {"node": name, "name": "eth0", "rx_mib_s": 10.0, "tx_mib_s": 1100.0, "speed_mbit": speed}
    return {**line, "util": util, "drops": 0, "side": side}


def daemon(its: str, share: float, thread: str = "msgr-worker-1") -> Dict[str, Any]:
    return {"node": "n1", "class": its, "id": "3", "cores": 1.2, "thread": {"name": thread, "share": share}}


def idle() -> Dict[str, Any]:
    nodes = [node("c1", "client", generator=2.0), node("r1", "rgw", rgw=2.0), node("n1", "osd", osd=2.0)]
    return {
        "nodes": nodes,
        "daemons": [daemon("osd", 0.5)],
        "devices": [disk(0.5, block=["3"])],
        "interfaces": [link("client", 0.2, "c1"), link("client", 0.2, "r1"), link("cluster", 0.2)],
    }


def put(line: Dict[str, Any], **parts: Any) -> Dict[str, Any]:
    """`line` with nodes, devices, interfaces or daemons put into it."""
    made = copy.deepcopy(line)
    for part, its in parts.items():
        if part == "nodes":
            names = {one["node"] for one in its}
            made[part] = [one for one in made[part] if one["node"] not in names] + its
        else:
            made[part] += its
    return made


def ceiling(share: float) -> Dict[str, Any]:
    """As a phase of the summary has it."""
    one = {"node": "c1", "requests_per_s": 1000 * share, "ceiling_per_s": 1000.0, "share": share, "beside": []}
    return {"share": share, "nodes": [one]}


FULL_CLIENT = node("c1", "client", 0.9, generator=8.5)
FULL_RGW = node("r1", "rgw", 0.97, rgw=9.0, osd=0.2)
FULL_OSD = node("n1", "osd", 0.86, osd=8.0)

CASES = {
    "a generator without processors": ({"nodes": [FULL_CLIENT]}, {}, "generator", "c1: 90 % of 10 processors busy"),
    "not quite": ({"nodes": [node("c1", "client", 0.85, generator=8.4)]}, {}, "none", "c1 85 % (limit 85 %)"),
    "a thread of the generator": ({"daemons": [daemon("generator", 0.95)]}, {}, "generator", "used 95 % of"),
    "near the ceiling": ({}, {"ceiling": ceiling(0.83)}, "generator", "83 % of what its generator can do"),
    "below the ceiling": ({}, {"ceiling": ceiling(0.8)}, "none", "busiest"),
    "a full link of a client": (
        {"interfaces": [link("client", 0.93, "c2")]},
        {},
        "client network",
        "c2: eth0 sent 1100 MiB/s, 93 % of its 10 Gbit/s",
    ),
    "a link at its limit": ({"interfaces": [link("client", 0.85, "c2")]}, {}, "none", "c2 eth0 85 % (limit 85 %)"),
    "a full link of an OSD": ({"interfaces": [link("cluster", 0.86)]}, {}, "cluster network", "n1: eth0 sent"),
    "a full link of a mon": ({"interfaces": [link(None, 0.99)]}, {}, "none", "99 %"),
    "a busy disk": (
        {"devices": [disk(0.97, block=["3", "12"])]},
        {},
        "media",
        "sda of osd.3, osd.12 was busy 97 % of the time, 2.0 requests under way, 8.0 ms a read, 21.5 ms a write",
    ),
    "a disk at its limit": ({"devices": [disk(0.9, block=["3"])]}, {}, "none", "osd.3 90 % (limit 90 %)"),
    "a disk of nobody": ({"devices": [disk(0.97)]}, {}, "none", "busiest disk: n1 sda of osd.3 50 %"),
    "busy flash": ({"devices": [disk(0.99, 2.0, False, block=["3"])]}, {}, "none", "99 %"),
    "full flash": ({"devices": [disk(0.99, 9.0, False, block=["3"])]}, {}, "media", "9.0 requests under way"),
    "a full RGW node": ({"nodes": [FULL_RGW]}, {}, "RGW CPU", "97 % of 10 processors busy, 9.00 cores by RGW"),
    "a thread of an RGW": ({"daemons": [daemon("rgw", 0.96)]}, {}, "RGW CPU", "msgr-worker-1 of RGW 3 used 96 %"),
    "a full OSD node": ({"nodes": [FULL_OSD]}, {}, "OSD CPU", "n1: 86 % of 10 processors busy, 8.00 cores by OSD"),
    "a thread of an OSD": (
        {"daemons": [daemon("osd", 0.99, "bstore_kv_sync")]},
        {},
        "OSD CPU",
        "n1: thread bstore_kv_sync of OSD 3 used 99 % of a processor",
    ),
    "a thread at its limit": ({"daemons": [daemon("osd", 0.9)]}, {}, "none", "busiest"),
    "a node full of something else": (
        {"nodes": [node("n1", "osd", 0.99, osd=1.0)]},
        {},
        "unknown",
        "n1: 99 % of 10 processors busy, 8.90 cores by other programs, 1.00 cores by OSD: mostly by other programs",
    ),
    "a node full of mgr": ({"nodes": [node("n1", "osd", 0.9, mgr=8.0, osd=0.5)]}, {}, "unknown", "mostly by mgr"),
    "a node nobody watched": (
        {"nodes": [{**node("n1", "osd", osd=1.0), "watched": 0.5}]},
        {},
        "unknown",
        "n1: watched",
    ),
    "a link of unknown speed": ({"interfaces": [link("client", None, "r2", None)]}, {}, "unknown", "r2"),
    "an unknown link of a mon": ({"interfaces": [link(None, None, "m1", None)]}, {}, "none", "busiest"),
    "no load": ({"nodes": [FULL_OSD]}, {"made": False}, "none", "nothing was asked of the cluster"),
    "nothing": ({}, {}, "none", "busiest processors: c1 30 % (limit 85 %)"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_rules(case: Any) -> None:
    parts, load, what, evidence = case
    made = bottleneck(put(idle(), **parts), {**LOAD, **load})
    assert made["what"] == what
    assert evidence in " | ".join(made["evidence"])


def test_what_is_nearer_to_the_client_hides_what_is_behind_it() -> None:
    parts = {
        "nodes": [FULL_CLIENT, FULL_RGW, FULL_OSD],
        "devices": [disk(0.97, block=["3"])],
        "interfaces": [link("client", 0.93, "c1"), link("cluster", 0.9)],
    }
    line = put(idle(), **parts)
    # each is relieved, and the next one shows
    relief = {
        "generator": {"nodes": [node("c1", "client"), FULL_RGW, FULL_OSD]},
        "client network": {"interfaces": [link("cluster", 0.9)]},
        "cluster network": {"interfaces": []},
        "media": {"devices": []},
        "RGW CPU": {"nodes": [node("c1", "client"), node("r1", "rgw"), FULL_OSD]},
        "OSD CPU": {},
    }
    order = list(relief)
    for i, what in enumerate(order):
        made = bottleneck(line, LOAD)
        assert made["what"] == what
        also = [text.split(":")[0] for text in made["evidence"] if text.startswith("also ")]
        assert also == [f"also {other}" for other in order[i + 1 :]]
        line = {**line, **relief[what]}


@pytest.mark.parametrize("role", ["client", "rgw", "osd"])
def test_without_nodes_of_a_kind_nothing_is_excluded(role: str) -> None:
    line = idle()
    line["nodes"] = [one for one in line["nodes"] if one["roles"] != [role]]
    made = bottleneck(line, LOAD)
    assert (
        made["what"] == "unknown"
        and made["evidence"][0] == f"no {dict(rgw='RGW', osd='OSD').get(role, role)} node was watched"
    )


def test_nodes_of_one_machine_are_one() -> None:
    """As in a lab: the machine is full, and its largest user is named."""
    nodes = [node("c1", "client", 0.98, 2, generator=0.3), node("r1", "rgw", 0.98, 2, rgw=0.5)]
    nodes += [node("n1", "osd", 0.98, 2, osd=0.6), node("n2", "osd", 0.98, 2, osd=0.4)]
    line = {**idle(), "nodes": [{**one, "machine": "c1"} for one in nodes]}
    made = bottleneck(line, LOAD)
    assert made["what"] == "OSD CPU"
    text = "c1, r1, n1, n2 (4 nodes, one machine): 98 % of 2 processors busy, 1.00 cores by OSD, 0.50 cores by RGW"
    assert made["evidence"][0].startswith(text)


def test_without_daemons_a_node_is_what_it_is_for() -> None:
    """collectl knows of no daemon."""
    line = idle()
    line.update(daemons=[], nodes=[{**one, "cores": {}} for one in line["nodes"]])
    assert bottleneck(line, LOAD)["what"] == "none"
    full = put(line, nodes=[{**FULL_RGW, "cores": {}}])
    assert bottleneck(full, LOAD)["what"] == "RGW CPU"
    both = put(line, nodes=[{**FULL_RGW, "cores": {}, "roles": ["rgw", "osd"]}])
    made = bottleneck(both, LOAD)
    assert made["what"] == "unknown" and "the programs that use them are unknown" in made["evidence"][0]


def test_disks_of_osd_nodes_count_when_their_osds_are_not_known() -> None:
    line = {**idle(), "devices": [disk(0.97)]}
    assert bottleneck(line, LOAD)["what"] == "media"
    line["devices"][0]["node"] = "c1"
    assert bottleneck(line, LOAD)["what"] == "none"
