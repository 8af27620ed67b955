"""The network's ceiling of a run: its layout out of the archive, the arithmetic, and the words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

import archive_builder as made
import pytest

from cbt_plugins.report import result_text as words
from cbt_plugins.results.nodes.network_ceilings import Unknown, Wiring, network_ceilings
from cbt_plugins.tools.__main__ import main

MIB, GBIT10 = 1 << 20, 1.25e9


class Archive:
    """The part of a run's archive that says where things are: four nodes of two OSDs, two gateways, EC 2+2."""

    def __init__(self, run: Path) -> None:
        self.run = run
        (run / "cluster" / "before").mkdir(parents=True)
        data = {"pool_name": "default.rgw.buckets.data", "type": 3, "size": 4, "erasure_code_profile": "p"}
        data["crush_rule"] = 1
        steps = [{"op": "take", "item_name": "default"}, {"op": "chooseleaf_indep", "type": "host"}, {"op": "emit"}]
        self.pools: Any = [{"pool_name": ".rgw.root", "type": 1, "size": 3, "crush_rule": 1}, data]
        self.profiles: Any = {"default": {"k": "2", "m": "1"}, "p": {"k": "2", "m": "2"}}
        self.rules: Any = [{"rule_id": 0, "steps": []}, {"rule_id": 1, "steps": steps}]
        self.tree: List[Dict[str, Any]] = [{"id": -1, "name": "default", "type": "root", "children": [-2, -3, -4, -5]}]
        self.osds: List[Dict[str, Any]] = []
        for host in range(1, 5):
            numbers = [2 * host - 2, 2 * host - 1]
            self.tree.append({"id": -1 - host, "name": f"node{host}", "type": "host", "children": numbers})
            for number in numbers:
                osd = {"id": number, "name": f"osd.{number}", "type": "osd", "status": "up", "reweight": 1}
                self.tree.append({**osd, "device_class": "hdd" if number % 2 else "ssd"})
                self.osds.append({"osd": number, "public_addr": f"10.0.0.{host}:6801/99"})
        self.conf = "[global]\npublic_network = 10.0.0.0/24\n"
        self.rgws: Any = ["node1", "node2"]
        self.urls = ["http://rgw1:7480", "http://rgw2.example.org:7480"]

    def write(self) -> Archive:
        before = self.run / "cluster" / "before"
        for name, content in [
            ("pools", self.pools),
            ("ec_profiles", self.profiles),
            ("crush_rules", self.rules),
            ("osd_tree", {"nodes": self.tree}),
            ("osd_dump", {"osds": self.osds}),
        ]:
            (before / f"{name}.json").write_text(json.dumps(content))
        (before / "ceph.conf").write_text(self.conf)
        (self.run / "cluster.json").write_text(json.dumps({"cluster": {"rgws": self.rgws}}))
        return self

    def wiring(self) -> Wiring:
        return Wiring(self.write().run, self.urls)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "run")


def phase(name: str, put: Optional[float], get: Optional[float], clients: str = "client1 client2") -> Dict[str, Any]:
    """A phase of a summary; MiB/s."""
    ops = {"PUT": put, "GET": get, "STAT": None}
    return {
        "name": name,
        "ops": {op: {"mib_per_s": rate} for op, rate in ops.items() if rate is not None or op == "STAT"},
        "jobs": [{"node": node, "workers": 8} for node in clients.split()],
    }


def summary(archive: Archive, *phases: Dict[str, Any], nets: Optional[List[Dict[str, Any]]] = None) -> Dict[str, Any]:
    seen = None if nets is None else {"phases": {"measure": {"interfaces": nets}}}
    return {"environment": {"endpoints": archive.urls}, "phases": list(phases), "resources": seen}


def net(node: str, name: str, speed: Optional[int], moved: float, side: str = "cluster") -> Dict[str, Any]:
    return {"node": node, "name": name, "speed_mbit": speed, "rx_mib_s": moved, "tx_mib_s": moved, "side": side}


def test_the_layout_of_an_archive(archive: Archive) -> None:
    found = archive.wiring()
    assert found.osds == dict.fromkeys(["node1", "node2", "node3", "node4"], 2)
    assert (str(found.kept), found.apart, found.cluster_network) == ("EC 2+2", "host", False)
    assert found.gateways == {"rgw1": 1.0, "rgw2": 1.0}
    assert found.text() == (
        "default.rgw.buckets.data (EC 2+2) on 4 nodes, 2 nodes with gateways, on nodes of their own"
    )


def test_ceilings_of_a_phase(archive: Archive) -> None:
    """EC 2+2 on 4 nodes, gateways and clients on 2 others each, 10 Gbit/s everywhere.

    PUT: a node of OSDs receives (1 + 3/2) / 4 of each object, a gateway or a client moves 1/2. GET: likewise (1/2) / 4
    and 1/2. So clients and gateways are the limit of GETs at 2 x 1.25 GB/s, and nodes of OSDs that of PUTs at 2 GB/s.
    """
    archive.write()
    found = network_ceilings(archive.run, summary(archive, phase("measure", 800.0, 600.0)), GBIT10)
    line = found["phases"]["measure"]
    assert line["put_mib_s"] == pytest.approx(2e9 / MIB, rel=1e-6)
    assert line["get_mib_s"] == pytest.approx(2.5e9 / MIB, rel=1e-6)
    assert line["put_share"] == pytest.approx(800 * MIB / 2e9, abs=1e-6)
    assert line["get_share"] == pytest.approx(600 * MIB / 2.5e9, abs=1e-6)
    # a gateway receives what is written and what is read
    assert line["share"] == pytest.approx((800 + 600) * MIB / 2.5e9, abs=1e-6)
    assert line["full"]["node"] in ("rgw1", "rgw2")
    assert found["nics"] == "10 Gbit/s as given"


def test_clients_and_gateways_of_one_name_in_two_racks_are_four_machines(archive: Archive) -> None:
    archive.urls = [f"http://rgw1.rack{n}.lab:80" for n in (1, 2)]
    archive.write()
    clients = "client1.rack1.lab client1.rack2.lab"
    line = phase("measure", 800.0, 600.0, clients)
    found = network_ceilings(archive.run, summary(archive, line), GBIT10)
    assert found["phases"]["measure"]["get_mib_s"] == pytest.approx(2.5e9 / MIB, rel=1e-6)
    assert "2 nodes with gateways" in found["layout"]
    nodes = (*clients.split(), "rgw1.rack1.lab", "rgw1.rack2.lab", "node1.lab", "node2", "node3", "node4")
    nets = [net(node, "eth0", 10_000, 50.0) for node in nodes]
    seen = network_ceilings(archive.run, summary(archive, line, nets=nets))
    assert seen["phases"]["measure"]["get_mib_s"] == pytest.approx(2.5e9 / MIB, rel=1e-6)


def test_all_on_the_same_nodes(archive: Archive) -> None:
    """The case of the Reef study, with its formula."""
    archive.urls = [f"http://node{n}:80" for n in (1, 2, 3, 4)]
    archive.pools[1].update(type=1, size=3)
    archive.write()
    clients = "node1.lab node2.lab node3.lab node4.lab"
    found = network_ceilings(archive.run, summary(archive, phase("measure", 100.0, None, clients)), GBIT10)
    line = found["phases"]["measure"]
    assert line["put_mib_s"] == pytest.approx(4 * 1.25e9 / (2 * 3 / 4 + 2) / MIB, rel=1e-6)
    assert line["get_mib_s"] == pytest.approx(4 * 1.25e9 / (2 * 3 / 4) / MIB, rel=1e-6)
    assert line["get_share"] == 0
    assert "4 nodes with gateways, on nodes of OSDs" in found["layout"]


def test_speeds_that_were_seen(archive: Archive) -> None:
    """The interface that moved most of each node; the one with unknown speed does not count."""
    archive.write()
    nodes = ("node1", "node2", "node3", "node4", "rgw1", "rgw2", "client1", "client2")
    nets = [net(node, "eth0", 25_000, 50.0) for node in nodes]
    nets += [net(node, "lo", None, 900.0) for node in nodes] + [net("client2", "idrac", 100, 0.1)]
    nets += [net("client1", "eth1", 1000, 80.0)]
    found = network_ceilings(archive.run, summary(archive, phase("measure", 10.0, 10.0), nets=nets))
    assert found["phases"]["measure"]["get_mib_s"] == pytest.approx(2 * 1.25e8 / MIB, rel=1e-6)  # client1 has 1 Gbit/s
    assert found["nics"] == "1 to 25 Gbit/s as seen on the nodes"
    its = phase("measure", 10.0, 10.0)
    without = [net for net in nets if "rgw" not in net["node"]]
    with pytest.raises(Unknown, match=r"the speed of the network is not known of rgw1, rgw2; --nic"):
        network_ceilings(archive.run, summary(archive, its, nets=without))
    with pytest.raises(Unknown, match=r"not known of client1, client2, node1, node2, node3 and 3 more"):
        network_ceilings(archive.run, summary(archive, its))
    assert network_ceilings(archive.run, summary(archive, its, nets=without), 1e9)["nics"] == "8 Gbit/s as given"


def test_a_cluster_network(archive: Archive) -> None:
    archive.conf += "cluster network = 10.1.0.0/24\n"
    archive.write()
    osd_nodes = [f"node{n}" for n in (1, 2, 3, 4)]
    nets = [net(node, "eth0", 100_000, 50.0, "client") for node in (*osd_nodes, "rgw1", "rgw2", "client1", "client2")]
    nets += [net(node, "eth1", 1000, 25.0, "cluster") for node in osd_nodes]
    found = network_ceilings(archive.run, summary(archive, phase("measure", 100.0, None), nets=nets))
    line = found["phases"]["measure"]
    assert line["put_mib_s"] == pytest.approx(4 * 1.25e8 / 1.5 / MIB, rel=1e-6)
    assert line["get_mib_s"] == pytest.approx(2 * 1.25e8 * 4 / MIB, rel=1e-6)  # half of an object crosses it too
    assert line["full"]["network"] == "cluster"
    assert words.ceiling_rows(found)[1][-1].endswith(" (cluster network)")


def test_a_cluster_network_of_nodes_with_osds_and_gateways(archive: Archive) -> None:
    """Their interfaces are known by addresses: to the bottleneck, both talk to clients."""
    archive.conf += "cluster network = 10.1.0.0/24\n"
    archive.urls = [f"http://node{n}:80" for n in (1, 2, 3, 4)]
    archive.write()
    ceilings = []
    for side in ("client", "cluster"):
        # the cluster network is faster, and moves more
        nets = [net(f"node{n}", "eth0", 10_000, 125.0, "client") for n in (1, 2, 3, 4)]
        nets += [{**net(f"node{n}", "eth1", 25_000, 200.0, side), "in_cluster_network": True} for n in (1, 2, 3, 4)]
        nets += [net(client, "eth0", 100_000, 200.0, "client") for client in ("client1", "client2")]
        found = network_ceilings(archive.run, summary(archive, phase("measure", 400.0, None), nets=nets))
        assert found["nics"] == "10 to 100 Gbit/s as seen on the nodes"
        ceilings.append(found["phases"]["measure"])
    assert ceilings[0] == ceilings[1]
    assert ceilings[0]["full"]["network"] == "public"


def test_interfaces_without_an_address_are_of_no_network(archive: Archive) -> None:
    """bond1 carries the cluster network as a VLAN, and moves more than bond0, below the VLAN of the public network."""
    archive.conf += "cluster network = 10.1.0.0/24\n"
    archive.write()
    nets = [net(node, "eth0", 100_000, 50.0, "client") for node in ("rgw1", "rgw2", "client1", "client2")]
    for node in ("node1", "node2", "node3", "node4"):
        nets += [{**net(node, "bond0", 10_000, 125.0, "cluster"), "in_cluster_network": None}]
        nets += [{**net(node, "bond1", 25_000, 200.0, "cluster"), "in_cluster_network": None}]
    line = phase("measure", 400.0, None)
    with pytest.raises(Unknown, match="not known of node1, node2, node3, node4"):
        network_ceilings(archive.run, summary(archive, line, nets=nets))
    vlans = (net(f"node{n}", "bond0.100", 10_000, 125.0, "client") for n in (1, 2, 3, 4))
    public = [{**vlan, "in_cluster_network": False} for vlan in vlans]
    with pytest.raises(Unknown, match="not known of node1, node2, node3, node4"):
        network_ceilings(archive.run, summary(archive, line, nets=nets + public))
    infiniband = [{**net(f"node{n}", "ib0", None, 200.0, "cluster"), "in_cluster_network": True} for n in (1, 2, 3, 4)]
    for cluster in ([], infiniband):  # not seen, or its speed was not
        with pytest.raises(Unknown, match="not known of node1, node2, node3, node4"):
            network_ceilings(archive.run, summary(archive, line, nets=nets[:4] + public + cluster))
    nets += public
    for n in (1, 2, 3, 4):
        nets += [{**net(f"node{n}", "bond1.200", 25_000, 200.0, "cluster"), "in_cluster_network": True}]
    found = network_ceilings(archive.run, summary(archive, line, nets=nets))
    assert found["nics"] == "10 to 100 Gbit/s as seen on the nodes"
    assert found["phases"]["measure"]["full"]["network"] == "public"


def test_phases_without_data_are_left_out(archive: Archive) -> None:
    archive.write()
    found = network_ceilings(archive.run, summary(archive, phase("wait", None, None), phase("fill", 5.0, None)), GBIT10)
    assert list(found["phases"]) == ["fill"]
    assert found["phases"]["fill"]["get_measured"] == 0


def test_parts_of_an_object_are_puts(archive: Archive) -> None:
    archive.write()
    its = phase("fill", 5.0, None)
    its["ops"]["MULTIPART"] = {"mib_per_s": 15.0}
    found = network_ceilings(archive.run, summary(archive, its), GBIT10)
    assert found["phases"]["fill"]["put_measured"] == 20


def test_gateways_by_address_and_behind_proxies(archive: Archive) -> None:
    archive.urls = ["http://10.0.0.2:7480", "http://10.0.0.3:7480", "http://10.9.9.9:7480", "http://10.0.0.2:7481"]
    assert archive.wiring().gateways == {"node2": 2.0, "node3": 1.0, "10.9.9.9": 1.0}
    assert "3 nodes with gateways, 2 of them on nodes of OSDs" in archive.wiring().text()
    archive.urls = ["http://localhost:5000"]
    assert archive.wiring().gateways == {"node1": 1.0, "node2": 1.0}
    archive.urls, archive.rgws = ["http://127.0.0.1:5000"], []
    with pytest.raises(Unknown, match="endpoints are proxies"):
        archive.wiring()


def test_rules_of_a_pool(archive: Archive) -> None:
    archive.rules[1]["steps"][0]["item_name"] = "default~ssd"
    assert archive.wiring().osds == dict.fromkeys(["node1", "node2", "node3", "node4"], 1)
    archive.rules[1]["steps"][1]["type"] = "osd"
    assert archive.wiring().apart == "osd"
    archive.rules[1]["steps"][1]["type"] = "rack"
    assert archive.wiring().apart == "host"
    archive.rules[1]["steps"][2:2] = [{"op": "chooseleaf_indep", "type": "osd"}]
    assert archive.wiring().apart == "osd"
    archive.tree[2].update(status="down")
    archive.tree[5].update(reweight=0)
    assert archive.wiring().osds == dict.fromkeys(["node3", "node4"], 1)


def test_fast_read(archive: Archive) -> None:
    archive.pools[1]["fast_read"] = True
    assert archive.wiring().layout({"c": 1}).fast_read


def missing_pool(archive: Archive) -> None:
    del archive.pools[1]


def second_pool(archive: Archive) -> None:
    archive.pools.append({**archive.pools[1], "pool_name": "other.rgw.buckets.data"})


def missing_profile(archive: Archive) -> None:
    archive.profiles = {}


def missing_rule(archive: Archive) -> None:
    archive.rules = []


def missing_osds(archive: Archive) -> None:
    archive.rules[1]["steps"][0]["item_name"] = "elsewhere"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (missing_pool, "no pools end in .buckets.data"),
        (second_pool, "2 pools end in .buckets.data"),
        (missing_profile, "the erasure code of default.rgw.buckets.data"),
        (missing_rule, "the CRUSH rule of default.rgw.buckets.data"),
        (missing_osds, "has no OSDs for the pool"),
    ],
)
def test_what_an_archive_may_lack(archive: Archive, change: Any, text: str) -> None:
    change(archive)
    with pytest.raises(Unknown, match=text):
        archive.wiring()


def test_damage_and_pools_that_do_not_fit(archive: Archive) -> None:
    archive.write()
    (archive.run / "cluster" / "before" / "osd_tree.json").write_text("{")
    with pytest.raises(Unknown, match=r"osd_tree\.json cannot be read"):
        Wiring(archive.run, archive.urls)
    (archive.run / "cluster" / "before" / "osd_tree.json").write_text("[]")
    with pytest.raises(Unknown, match="is not what Ceph's commands print"):
        Wiring(archive.run, archive.urls)
    archive.pools[1]["size"] = 5
    with pytest.raises(Unknown, match=r"EC 2\+3: needs 5 nodes, there are 4"):
        archive.wiring().layout({"client1": 1})


def test_in_words(archive: Archive) -> None:
    archive.write()
    found = network_ceilings(archive.run, summary(archive, phase("measure", 800.0, 600.0)), GBIT10)
    assert words.ceiling_sentence(found) == (
        "network ceiling: default.rgw.buckets.data (EC 2+2) on 4 nodes, 2 nodes with gateways, on nodes of their own; "
        "10 Gbit/s as given"
    )
    row = ["measure", "800.0", "1907", "41.9 %", "600.0", "2384", "25.2 %", "58.7 %"]
    assert words.ceiling_rows(found)[1][:-1] == row


def test_the_report_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made.small(tmp_path / "archive")
    Archive(tmp_path / "other").write()
    assert main(["report", str(run), "--format", "text", "--nic", "10Gbit"]) == 0
    captured = capsys.readouterr()
    assert "network ceiling" not in captured.out
    assert "id-1a2b3c4d: no network ceiling: cluster/before/crush_rules.json cannot be read" in captured.err
    for path in (tmp_path / "other" / "cluster" / "before").iterdir():
        path.replace(run / "cluster" / "before" / path.name)
    assert main(["report", str(run), "--format", "text", "--nic", "10Gbit"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "\nnetwork ceiling: default.rgw.buckets.data (EC 2+2) on 4 nodes" in captured.out
    # 4096 bytes x 100 PUT/s; one client
    assert "   new       0.391     1192  0.0 %      0.781     1192  0.1 %     0.1 %  client1 receives\n" in captured.out
    assert main(["report", str(run), "--format", "text"]) == 0
    captured = capsys.readouterr()
    assert "network ceiling" not in captured.out + captured.err
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(run), "--nic", "10"])
    assert "not the speed of an interface" in capsys.readouterr().err
