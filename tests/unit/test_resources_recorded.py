"""The monitor's files of nine nodes of a real cluster under load, as recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest

from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.usage import Networks

DATA = Path(__file__).parent.parent / "data" / "resources" / "lab"
WINDOW = (1795280510.0, 1795280521.0)
ROLES = {"client1": ["client"], "client2": ["client"], "rgw1": ["rgw"], "rgw2": ["rgw"]}


@pytest.fixture(scope="module")
def made() -> Dict[str, Any]:
    load = {"made": True, "per_s": 182.9, "bytes_per_s": 182.9 * 4096, "ops": {"GET": 107.8, "PUT": 75.1}}
    return resources.of_window(read_nodes(DATA, {}), WINDOW, load, ROLES, Networks())


def plainly(its: str) -> float:
    """Cores of a class by another way: all ticks of all samples that lie in the window."""
    ticks = 0
    for file in DATA.glob("*/*.jsonl"):
        classes: Dict[int, str] = {}
        for line in map(json.loads, file.read_text().splitlines()):
            about = (line.get("names") or {}).get("d", {})
            classes.update((int(index), daemon["class"]) for index, daemon in about.items())
            if "s" in line and WINDOW[0] < line["t"] <= WINDOW[1]:
                ticks += sum(row[1] for row in line["d"] if classes[row[0]] == its)
    return ticks / 100 / (WINDOW[1] - WINDOW[0])


@pytest.mark.parametrize(("its", "daemons"), [("osd", 8), ("rgw", 2), ("mon", 1), ("mgr", 1), ("generator", 8)])
def test_the_classes_of_the_recorded_phase(made: Dict[str, Any], its: str, daemons: int) -> None:
    line = made["classes"][its]
    assert line["daemons"] == daemons
    # samples of nine nodes do not begin with the window: each is off by less than one of its eleven seconds
    assert line["cores"] == pytest.approx(plainly(its), rel=0.1, abs=0.002)
    assert line["cores"] <= line["peak"] < 2 and line["rss_mib"] > 5


def test_all_daemons_of_the_recorded_nodes(made: Dict[str, Any]) -> None:
    osds = {line["id"]: line["node"] for line in made["daemons"] if line["class"] == "osd"}
    assert osds == {str(i): f"node{i // 2 + 1}" for i in range(8)}
    assert made["rgw_osd_fraction"] == "1/2"
    assert made["ops_per_core"] == pytest.approx(233, abs=1)
    assert all(node["monitor_cores"] < 0.005 and node["watched"] == 1 for node in made["nodes"])


def test_the_recorded_nodes_are_one_machine(made: Dict[str, Any]) -> None:
    assert {node["machine"] for node in made["nodes"]} == {"client1"}
    assert len(made["nodes"]) == 9
    (disk,) = made["devices"]
    assert disk["device"] == "vda" and disk["osds"] == {"block": [str(i) for i in range(8)]}
    used = sum(its["cores"] for its in made["classes"].values())
    assert used < made["nodes"][0]["busy"] * 2 == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(("later", "restarts"), [(0.05, 0), (30.0, 1)])
def test_a_daemon_of_another_pod_is_a_restart_though_it_has_the_same_pid(
    tmp_path: Path, later: float, restarts: int
) -> None:
    """The kernel may give the new pod the namespace of processes of the former pod. Its start is another one."""
    header, *rows = map(json.loads, (DATA / "resources.node1" / "node1.jsonl").read_text().splitlines())
    again = [{**line, "t": line["t"] + 60.0} for line in (header, *rows)]
    names = again[1]["names"]
    started = {index: {**daemon, "since": daemon["since"] + later} for index, daemon in names["d"].items()}
    again[1]["names"] = {**names, "d": started}
    lines = [header, *rows, *again]
    file = tmp_path / "resources.node1" / "node1.jsonl"
    file.parent.mkdir()
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    window = (rows[0]["t"], rows[-1]["t"] + 60.0)
    load: Dict[str, Any] = {"made": True, "per_s": 0.0, "bytes_per_s": 0.0, "ops": {}}
    line = resources.of_window(read_nodes(tmp_path, {}), window, load, {}, Networks())
    osds = [daemon for daemon in line["daemons"] if daemon["class"] == "osd"]
    assert [daemon["restarts"] for daemon in osds] == [restarts, restarts]
    (node,) = line["nodes"]
    assert 0.1 < node["watched"] < 0.9, "nobody watched between the two pods"


def test_the_recorded_network(made: Dict[str, Any]) -> None:
    links = {net["node"]: net for net in made["interfaces"]}
    assert {name for name, net in links.items() if net["side"] == "client"} == {"client1", "client2", "rgw1", "rgw2"}
    assert {name for name, net in links.items() if net["side"] == "cluster"} == {f"node{i}" for i in range(1, 5)}
    assert all(net["speed_mbit"] == 10000 for net in links.values())
    sent, received = (sum(net[f"{way}_mib_s"] for net in links.values()) for way in ("tx", "rx"))
    assert sent == pytest.approx(received, rel=0.05)  # nobody else is on that network


def test_the_bottleneck_of_the_recorded_phase(made: Dict[str, Any]) -> None:
    assert made["bottleneck"]["what"] == "unknown"
    text = made["bottleneck"]["evidence"][0]
    assert text.startswith("client1, client2, node0, node1 ... (9 nodes, one machine): 100 % of 2 processors busy")
    assert text.endswith("mostly by other programs")


def test_the_recorded_busy_disk() -> None:
    nodes = read_nodes(DATA.parent / "busy-disk", {})
    load: Dict[str, Any] = {"made": True, "per_s": 0.0, "bytes_per_s": 0.0, "ops": {}}
    line = resources.of_window(nodes, (1795281206.0, 1795281210.0), load, {}, Networks())
    (disk,) = line["devices"]
    assert disk["util"] > 0.99 and disk["queue"] > 90
    assert 2400 < disk["write_mib_s"] < 2700 and disk["writes_s"] == pytest.approx(2800, rel=0.05)
    assert line["bottleneck"]["what"] == "media"
    assert line["bottleneck"]["evidence"][0].startswith("node1: vda of osd.0, osd.1 was busy 100 % of the time, ")
    before = resources.of_window(nodes, (1795281203.0, 1795281205.0), load, {}, Networks())
    assert before["devices"][0]["util"] < 0.5 and before["bottleneck"]["what"] == "unknown"
