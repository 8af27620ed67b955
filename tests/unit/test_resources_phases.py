"""Samples of known rates -> the lines, sums and ratios of a phase."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import List, Optional

import archive_builder as archives
import jsonschema
import pytest
from resources_lines import OSDS, T0, Made, load, phase_of, write

from cbt_plugins import checksums
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.monitors import lifecycle
from cbt_plugins.report.result_text import blocks
from cbt_plugins.results.nodes import resources, usage
from cbt_plugins.results.nodes.core_ratios import small_fraction
from cbt_plugins.results.nodes.usage import Networks
from cbt_plugins.results.summary_file import json_schema, summarize, write_summary


def test_cores_of_daemons_add_up_to_those_of_their_class(tmp_path: Path) -> None:
    write(tmp_path, "n1", Made(OSDS))
    write(tmp_path, "n2", Made([("osd", "10", 1.0, 600), ("mon", "a", 0.05, 100)]))
    write(tmp_path, "r1", Made([("rgw", "r1", 2.1, 300)]))
    made = phase_of(tmp_path)
    osd = made["classes"]["osd"]
    assert osd["cores"] == pytest.approx(1.75) and osd["peak"] == pytest.approx(1.75)
    assert osd["daemons"] == 3 and osd["rss_mib"] == pytest.approx(1500)
    assert osd["read_mib_s"] == pytest.approx(3.0) and osd["write_mib_s"] == pytest.approx(6.0)
    assert [(line["class"], line["id"]) for line in made["daemons"]] == [
        ("osd", "1"),
        ("osd", "2"),
        ("osd", "10"),
        ("rgw", "r1"),
        ("mon", "a"),
    ]
    assert made["rgw_osd_ratio"] == pytest.approx(1.2) and made["rgw_osd_fraction"] == "6/5"
    assert made["ops_per_core"] == pytest.approx(1000 / 3.85, abs=1e-3)
    assert made["cores_per_gb_s"] == pytest.approx(3.85)
    assert made["series"]["start"] == T0 + 5 and made["series"]["step"] == 1
    assert made["series"]["cores"]["osd"] == [1.75] * 10


def test_the_window_cuts_between_samples(tmp_path: Path) -> None:
    """Half of a sample's rise belongs to the half of its second that is in the window."""
    write(tmp_path, "n1", Made([("osd", "1", 1.0, 100, 4.0, 10.0)]))
    line = phase_of(tmp_path, (8.5, 12.5))["daemons"][0]
    assert line["cores"] == pytest.approx(1.5 / 4)
    assert line["peak"] == pytest.approx(1.0)


def test_what_was_used_before_it_was_found_counts_from_its_start(tmp_path: Path) -> None:
    path = write(tmp_path, "n1", Made([("osd", "1", 0.0, 100, 9.0, 20.0)]))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["names"]["d"]["0"]["since"] = T0 + 5
    first = next(line for line in lines if line.get("d"))
    first["d"][0][1] = 500  # ticks of five seconds, told at 10
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = phase_of(tmp_path, (0.0, 20.0))
    assert made["series"]["cores"]["osd"] == pytest.approx([0.0] * 5 + [1.0] * 5 + [0.0] * 10)
    assert made["daemons"][0]["peak"] == pytest.approx(1.0)


def test_a_daemon_that_was_restarted_is_one_line_and_a_generator_is_not(tmp_path: Path) -> None:
    two = [("osd", "1", 1.0, 100, -9.0, 10.0), ("osd", "1", 0.5, 200, 12.0, 30.0)]
    write(tmp_path, "n1", Made(two))
    write(tmp_path, "c1", Made([("generator", "warp", 1.0, 50), ("generator", "warp", 1.0, 50)]))
    made = phase_of(tmp_path, (0.0, 20.0))
    osd, *generators = made["daemons"]
    assert osd["restarts"] == 1 and osd["pid"] == 101
    assert osd["cores"] == pytest.approx((10 + 0.5 * 8) / 20)
    assert osd["rss_max_mib"] == 200 and 100 < osd["rss_mib"] < 200
    assert [line["restarts"] for line in generators] == [0, 0]
    assert made["classes"]["generator"]["daemons"] == 2


def test_without_samples_nothing_is_known(tmp_path: Path) -> None:
    """Two connections with 6 s between them: rates are those of the seconds that were watched."""
    write(tmp_path, "n1", Made([("osd", "1", 1.0, 100)]), seconds=8)
    write(tmp_path, "n1", Made([("osd", "1", 1.0, 100)]), seconds=6, begin=T0 + 14)
    made = phase_of(tmp_path, (0.0, 20.0))
    (node,) = made["nodes"]
    assert node["watched"] == pytest.approx(0.7)
    assert made["daemons"][0]["cores"] == pytest.approx(1.0)
    assert made["series"]["cores"]["osd"] == [1.0] * 8 + [None] * 6 + [1.0] * 6
    found = resources.resource_warnings({"phases": {"x": made}}, [{"name": "x", "generator": None, "jobs": []}])
    assert [(w["code"], w["phase"]) for w in found] == [("resources-gap", "x")] and "n1 (70 %)" in found[0]["text"]


def test_a_long_phase_has_a_short_series(tmp_path: Path) -> None:
    write(tmp_path, "n1", Made(OSDS), seconds=5000)
    made = phase_of(tmp_path, (0.0, 4999.0))
    assert made["series"]["step"] == 3
    assert len(made["series"]["cores"]["osd"]) == 1667 <= usage.POINTS
    assert made["classes"]["osd"]["peak"] == pytest.approx(0.75)


def test_two_names_of_one_machine_do_not_count_twice(tmp_path: Path) -> None:
    disks = {"sda": (0.5, 1.0, 2.0)}
    same = Made(OSDS, disks=disks, osd_disks={"1": {"block": ["sda"]}}, boot="b", busy=0.5)
    write(tmp_path, "n1", same)
    write(tmp_path, "n2", same)
    made = phase_of(tmp_path)
    assert made["classes"]["osd"]["cores"] == pytest.approx(0.75)
    assert len(made["devices"]) == 1
    assert {node["machine"] for node in made["nodes"]} == {"n1"}
    # other processes, as in a container or in a lab's node
    write(tmp_path, "r1", Made([("osd", "9", 1.0, 1)], boot="b", pidns="pid:[2]", disks=disks))
    assert phase_of(tmp_path)["classes"]["osd"]["cores"] == pytest.approx(1.75)
    assert len(phase_of(tmp_path)["devices"]) == 1


def test_the_busiest_thread_is_a_mean_over_the_looks(tmp_path: Path) -> None:
    path = write(tmp_path, "n1", Made(OSDS, threads={0: ["bstore_kv_sync", 0.96]}), seconds=100)
    # at 11, 21 ... 91: nine looks, all of those that there can be
    made = phase_of(tmp_path, (0.0, 100.0))["daemons"]
    assert made[0]["thread"] == {"name": "bstore_kv_sync", "share": 0.96} and made[1]["thread"] is None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[60:]:
        line.pop("threads", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    # 11 to 51: it was not busy enough in the others
    assert phase_of(tmp_path, (0.0, 100.0))["daemons"][0]["thread"]["share"] == pytest.approx(0.96 * 5 / 9, abs=1e-4)


def test_disks_belong_to_their_osds(tmp_path: Path) -> None:
    where = {"1": {"block": ["sda"], "block.db": ["nvme0n1"]}, "2": {"block": ["sdb"], "block.db": ["nvme0n1"]}}
    disks = {"sda": (0.95, 10.0, 20.0), "sdb": (0.1, 0.0, 1.0), "nvme0n1": (0.2, 0.0, 0.0), "sdz": (0.3, 0.0, 5.0)}
    write(tmp_path, "n1", Made(OSDS, disks=disks, osd_disks=where))
    made = {disk["device"]: disk for disk in phase_of(tmp_path)["devices"]}
    assert made["sda"]["osd"] == "1" and made["sdb"]["osd"] == "2"
    assert made["nvme0n1"]["osd"] is None and made["nvme0n1"]["osds"] == {"block.db": ["1", "2"]}
    assert made["sdz"]["osd"] is None and made["sdz"]["osds"] == {}
    assert made["sda"]["util"] == pytest.approx(0.95) and made["sda"]["queue"] == pytest.approx(1.5)
    assert made["sda"]["read_mib_s"] == pytest.approx(10) and made["sda"]["write_mib_s"] == pytest.approx(20)
    assert made["sda"]["read_ms"] == pytest.approx(3.0) and made["sda"]["write_ms"] == pytest.approx(5.0)


def test_a_pod_that_moves_has_the_machine_of_the_window(tmp_path: Path) -> None:
    """First r1 is alone on a machine of 64 processors, then beside n1 on one of 8."""
    disks = {"sda": (0.95, 10.0, 20.0)}
    osd = Made([("osd", "1", 0.5, 400)], boot="small", cpus=8, disks=disks, osd_disks={"1": {"block": ["sda"]}})
    path = write(tmp_path, "n1", osd, seconds=120)
    parts = [
        write(tmp_path / name, "r1", Made([("rgw", "r1", 2.0, 300)], boot=boot, cpus=cpus, pidns=f"pid:[{cpus}]"))
        for name, boot, cpus in (("a", "large", 64), ("b", "small", 8))
    ]
    lines = [json.loads(line) for line in parts[1].read_text().splitlines()]
    moved = "".join(json.dumps({**line, "t": line["t"] + 100}) + "\n" for line in lines)
    (tmp_path / "resources.r1").mkdir()
    (tmp_path / "resources.r1" / "r1.jsonl").write_text(parts[0].read_text() + moved)
    assert path.exists()
    before, after = (
        {node["node"]: (node["cpus"], node["machine"]) for node in phase_of(tmp_path, window)["nodes"]}
        for window in ((5.0, 15.0), (105.0, 115.0))
    )
    assert before == {"n1": (8, "n1"), "r1": (64, "r1")} and after == {"n1": (8, "n1"), "r1": (8, "n1")}


def test_a_disk_belongs_to_the_osds_of_the_window(tmp_path: Path) -> None:
    """osd.1 was replaced, and is on another disk since."""
    disks = {"sda": (0.5, 10.0, 20.0), "sdc": (0.6, 10.0, 20.0)}
    first, second = (
        write(tmp_path / name, "n1", Made([("osd", "1", 0.5, 400)], disks=disks, osd_disks={"1": {"block": [disk]}}))
        for name, disk in (("a", "sda"), ("b", "sdc"))
    )
    later = [json.loads(line) for line in second.read_text().splitlines()]
    for line in later:
        line["t"] += 100
        for daemon in (line.get("names") or {}).get("d", {}).values():
            daemon["pid"] = 4711
    with first.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in later)
    for window, disk in (((5.0, 15.0), "sda"), ((105.0, 115.0), "sdc")):
        osds = {line["device"]: line["osd"] for line in phase_of(tmp_path / "a", window)["devices"]}
        assert osds == {"sda": None, "sdc": None, disk: "1"}


def test_interfaces_and_their_sides(tmp_path: Path) -> None:
    write(tmp_path, "n1", Made(OSDS, nets={"eth0": (100.0, 596.0)}, addresses=["10.1.0.5/24"], speed=10000))
    write(tmp_path, "r1", Made(nets={"bond0": (1.0, 2.0)}, addresses=["10.1.0.9/24"], speed=None))
    write(tmp_path, "n2", Made(nets={"eth9": (0.0, 0.0)}))
    networks = Networks(public=Networks.parse("10.1.0.0/24"), cluster=Networks.parse("10.2.0.0/24 fd00::/8"))
    osd, rgw = phase_of(tmp_path, networks=networks)["interfaces"]
    assert osd["tx_mib_s"] == pytest.approx(596) and osd["rx_mib_s"] == pytest.approx(100)
    assert osd["util"] == pytest.approx(596 * 2**20 * 8 / 1e10, abs=1e-4)
    assert osd["side"] == "client" and osd["drops"] == 10
    assert rgw["side"] == "client" and rgw["util"] is None
    assert phase_of(tmp_path)["interfaces"][0]["side"] == "cluster"  # one network for all
    write(tmp_path, "r2", Made([("rgw", "a", 1.0, 9)], nets={"eth1": (1.0, 2.0)}, addresses=["10.2.0.9/24"]))
    nets = phase_of(tmp_path, networks=networks)["interfaces"]
    assert [net["in_cluster_network"] for net in nets] == [False, False, True] and nets[2]["side"] == "client"


def test_interfaces_without_an_address(tmp_path: Path) -> None:
    """eth1 is a port of a bridge; eth2 is below a VLAN, which the system does not name as its master."""
    nets = {"br0": (50.0, 50.0), "eth1": (50.0, 50.0), "eth2": (60.0, 60.0), "eth2.9": (60.0, 60.0)}
    path = write(tmp_path, "n1", Made(OSDS, nets=nets))
    write(tmp_path, "c1", Made([("generator", "warp", 0.5, 9)], nets={"eth0": (1.0, 2.0)}))
    about, first, *samples = map(json.loads, path.read_text().splitlines())
    bridge, port, _, vlan = first["names"]["n"].values()
    bridge.update(addresses=["10.1.0.5/24"], speed=None)
    port["master"] = "br0"
    vlan["addresses"] = ["10.2.0.5/24"]
    path.write_text("".join(json.dumps(line) + "\n" for line in (about, first, *samples)))
    networks = Networks(public=Networks.parse("10.1.0.0/24"), cluster=Networks.parse("10.2.0.0/24"))
    lines = phase_of(tmp_path, networks=networks)["interfaces"]
    of = {net["name"]: (net["side"], net["in_cluster_network"]) for net in lines}
    assert of["br0"] == of["eth1"] == of["eth0"] == ("client", False)
    assert of["eth2"] == ("cluster", None) and of["eth2.9"] == ("cluster", True)


@pytest.mark.parametrize(
    ("addresses", "roles", "side"),
    [
        (["10.1.0.5/24"], ["osd"], "client"),
        (["10.2.0.5/24"], ["osd"], "cluster"),
        (["10.2.0.5/24", "10.1.0.5/24"], ["osd"], "cluster"),
        ([], ["osd"], "cluster"),
        ([], ["osd", "rgw"], "client"),
        (["10.3.0.5/24"], ["osd"], "client"),
        (["fd00::1/64"], ["osd", "mon"], "cluster"),
        (["10.2.0.5/24"], ["client"], "client"),
        (["10.1.0.5/24"], ["mon"], None),
    ],
)
def test_the_side_of_an_interface(tmp_path: Path, addresses: List[str], roles: List[str], side: Optional[str]) -> None:
    before = tmp_path / "cluster" / "before"
    before.mkdir(parents=True)
    (before / "ceph.conf").write_text("[global]\n\tpublic network = 10.1.0.0/16\n")
    dump = [{"section": "global", "name": "cluster_network", "value": "10.2.0.0/16,fd00::/8"}]
    dump.append({"section": "global", "name": "public_network", "value": "10.9.0.0/16"})
    (before / "config_dump.json").write_text(json.dumps(dump))
    assert Networks.of(tmp_path).side(addresses, roles) == side


@pytest.mark.parametrize("section", ["mon", "global", "osd"])
def test_networks_that_cephadm_stored(tmp_path: Path, section: str) -> None:
    """`cephadm bootstrap` stores public_network in section mon, and cluster_network in section global."""
    before = tmp_path / "cluster" / "before"
    before.mkdir(parents=True)
    (before / "ceph.conf").write_text("[global]\n\tfsid = 1\n\tmon_host = [v2:10.1.0.1:3300/0,v1:10.1.0.1:6789/0]\n")
    dump = [{"section": "global", "name": "cluster_network", "value": "10.2.0.0/16"}]
    dump.append({"section": section, "name": "public_network", "value": "10.1.0.0/16"})
    dump.append({"section": "mon", "name": "cluster_network", "value": "10.9.0.0/16"})
    (before / "config_dump.json").write_text(json.dumps(dump))
    networks = Networks.of(tmp_path)
    assert networks == Networks(Networks.parse("10.1.0.0/16"), Networks.parse("10.2.0.0/16"))
    assert networks.side(["10.1.0.5/24"], ["osd"]) == "client"
    assert networks.side(["10.2.0.5/24"], ["osd"]) == "cluster"


def test_without_a_cluster_network_osds_replicate_through_the_public_one() -> None:
    public = Networks.parse("10.1.0.0/16")
    for networks in (Networks(public), Networks(public, public), Networks()):
        assert networks.side(["10.1.0.5/24"], ["osd"]) == "cluster"


@pytest.mark.parametrize(
    ("rgw", "osd", "total", "ratio", "fraction"),
    # the tables of the Reef freeze study; 0.566 was printed as 11/20, which is 3 % off
    [
        (184, 152, 336, 1.211, "6/5"),
        (88, 55, 143, 1.600, "8/5"),
        (269, 475, 744, 0.566, "4/7"),
        (302, 102, 404, 2.961, "3/1"),
    ],
)
def test_the_published_cores(tmp_path: Path, rgw: float, osd: float, total: float, ratio: float, fraction: str) -> None:
    write(tmp_path, "n1", Made([("osd", "1", float(osd), 1)], cpus=1000))
    write(tmp_path, "r1", Made([("rgw", "1", float(rgw), 1)], cpus=1000))
    made = phase_of(tmp_path)
    assert sum(made["classes"][its]["cores"] for its in ("rgw", "osd")) == pytest.approx(total)
    assert made["rgw_osd_ratio"] == pytest.approx(ratio, abs=6e-4)
    assert made["rgw_osd_fraction"] == fraction


@pytest.mark.parametrize(
    ("cores", "per_s", "bytes_per_s", "per_core", "per_gb"),
    [
        (336, 4400.0, 18.6e9, 13.1, 18.1),
        (143, 12600.0, 53e9, 88.1, 2.70),
        (744, 178e3, 0.7e9, 239, None),
        (404, 312e3, 1.3e9, 772, None),
    ],
)
def test_the_published_efficiency(
    tmp_path: Path, cores: float, per_s: float, bytes_per_s: float, per_core: float, per_gb: Optional[float]
) -> None:
    write(tmp_path, "n1", Made([("osd", "1", cores / 2, 1)], cpus=1000))
    write(tmp_path, "r1", Made([("rgw", "1", cores / 2, 1)], cpus=1000))
    made = phase_of(tmp_path, load=load(per_s, bytes_per_s))
    assert made["ops_per_core"] == pytest.approx(per_core, rel=5e-3)
    if per_gb is not None:
        assert made["cores_per_gb_s"] == pytest.approx(per_gb, rel=5e-3)


@pytest.mark.parametrize(
    ("ratio", "fraction"),
    [(0.525, "1/2"), (1.0, "1/1"), (0.1111, "1/9"), (0.02, "1/50"), (40.2, "201/5"), (7.001, "7/1")],
)
def test_fractions_are_small(ratio: float, fraction: str) -> None:
    assert small_fraction(ratio) == fraction


@pytest.mark.parametrize("daemon_class", ["osd", "rgw"])
def test_a_load_over_s3_needs_osds_and_gateways(tmp_path: Path, daemon_class: str) -> None:
    write(tmp_path, "n1", Made([(daemon_class, "1", 2.0, 1)]))
    made = phase_of(tmp_path)
    assert made["ops_per_core"] is made["cores_per_gb_s"] is made["rgw_osd_ratio"] is None
    assert made["classes"][daemon_class]["cores"] == pytest.approx(2.0)
    rbd = phase_of(tmp_path, load={"made": True, "per_s": 100.0, "bytes_per_s": 1e9, "ops": {"write": 100.0}})
    assert rbd["ops_per_core"] == pytest.approx(50.0)


def test_nothing_is_divided_by_nothing(tmp_path: Path) -> None:
    write(tmp_path, "c1", Made([("osd", "1", 0.0, 1), ("rgw", "1", 0.0, 1)]))
    made = phase_of(tmp_path, load={"made": True, "per_s": 0.0, "bytes_per_s": 0.0, "ops": {}})
    assert made["rgw_osd_ratio"] is None and made["rgw_osd_fraction"] is None
    assert made["ops_per_core"] is None and made["cores_per_gb_s"] is None


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A run of two phases of 10 s, 300 requests/s in the first one; only that one was watched."""
    run = archives.small(tmp_path)
    folder = run / "phases" / "01-new" / "monitors"
    begin = archives.T0 - 5.0
    write(folder, "node1", Made(OSDS, busy=0.2, disks={"sda": (0.97, 0, 9)}), begin=begin)
    write(folder, "rgw1", Made([("rgw", "rgw1", 1.5, 200)]), begin=begin)
    write(folder, "client1", Made([("generator", "warp", 0.5, 50)], cpus=2), begin=begin, offset=0.0002)
    cluster = {"osds": ["node1"], "rgws": ["rgw1"], "clients": ["client1"], "head": "rgw1"}
    (run / "cluster.json").write_text(json.dumps({"version": 2, "cluster": cluster}))
    return run


def test_the_summary_has_the_phases_that_were_watched(watched: Path, tmp_path: Path) -> None:
    summary = summarize(watched)
    jsonschema.validate(summary, json_schema())
    write_summary(summary, tmp_path / "summary.json")
    made = json.loads((tmp_path / "summary.json").read_text())["resources"]
    assert list(made["phases"]) == ["new"]
    assert [(node["node"], node["roles"]) for node in made["nodes"]] == [
        ("client1", ["client"]),
        ("node1", ["osd"]),
        ("rgw1", ["rgw", "head"]),
    ]
    line = made["phases"]["new"]
    assert line["seconds"] == 10 and line["ops_per_core"] == pytest.approx(300 / 2.25, abs=0.01)
    assert line["cores_per_gb_s"] == pytest.approx(2.25 / (300 * 4096 / 1e9), rel=1e-4)
    assert line["bottleneck"]["what"] == "media"


def test_gateways_that_nobody_watched_are_said(watched: Path) -> None:
    shutil.rmtree(watched / "phases" / "01-new" / "monitors" / "resources.rgw1")
    summary = summarize(watched)
    assert summary["resources"]["phases"]["new"]["ops_per_core"] is None
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "monitor-limited"]
    assert texts == ["resources watched no RGW, so there are no requests/s per core and cores per GB/s"]
    note = watched / "monitors" / "01" / lifecycle.NODES
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"resources": ["client1", "client2", "node1"]}))
    about = json.loads((watched / "cluster.json").read_text())
    about["cluster"].update(rgws=[], clients=["client1", "client2"])
    (watched / "cluster.json").write_text(json.dumps(about))
    warnings = summarize(watched)["warnings"]
    assert texts == [warning["text"] for warning in warnings if warning["code"] == "monitor-limited"]
    assert any("client2 (0 %)" in warning["text"] for warning in warnings)


def test_a_node_without_samples_is_a_gap_and_makes_no_sum(watched: Path) -> None:
    """Of the three nodes that were to be watched, one more has an OSD, and one more has clients."""
    note = watched / "monitors" / "01" / lifecycle.NODES
    assert lifecycle.NODES == resources.NODES
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"resources": ["client1", "node1", "node2", "rgw1"], "perf_counters": ["node3"]}))
    about = json.loads((watched / "cluster.json").read_text())
    about["cluster"]["osds"] = ["node1", "node2"]
    (watched / "cluster.json").write_text(json.dumps(about))
    summary = summarize(watched)
    jsonschema.validate(summary, json_schema())
    made = summary["resources"]["phases"]["new"]
    assert list(made["classes"]) == list(made["series"]["cores"]) == ["rgw", "generator"]
    assert made["ops_per_core"] is made["cores_per_gb_s"] is made["rgw_osd_ratio"] is None
    found = {w["phase"]: w["text"] for w in summary["warnings"] if w["code"] == "resources-gap"}
    text = "processors and disks were not watched during all of the phase: "
    assert found == {"new": f"{text}node2 (0 %)", "aged": f"{text}none of the 4 nodes"}


def test_osds_that_nobody_watched_beside_others_make_no_sum(watched: Path) -> None:
    """As on Rook, where each OSD has a pod of its own, and the node of the file is the first of them."""
    tree = watched / "cluster" / "before" / "osd_tree.json"
    osds = [{"id": osd, "type": "osd", "status": "up" if osd < 9 else "down"} for osd in (1, 2, 7, 8, 9)]
    tree.write_text(json.dumps({"nodes": [{"id": -1, "type": "host", "name": "node1"}, *osds]}))
    summary = summarize(watched)
    jsonschema.validate(summary, json_schema())
    made = summary["resources"]["phases"]["new"]
    assert made["unwatched"] == 2 and summary["resources"]["unwatched"] == ["osd.7", "osd.8"]
    assert list(made["classes"]) == ["rgw", "generator"] and made["ops_per_core"] is None
    assert {daemon["id"] for daemon in made["daemons"] if daemon["class"] == "osd"} == {"1", "2"}
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "monitor-limited"]
    assert texts == ["resources did not watch 2 OSDs of the cluster, so OSDs have no sums: osd.7, osd.8"]
    for content in ("{", "[]", '{"nodes": [{"type": "osd", "id": []}]}', json.dumps({"nodes": osds[:2]})):
        tree.write_text(content)
        assert "osd" in summarize(watched)["resources"]["phases"]["new"]["classes"]


def _gateways(*names_and_addresses: str) -> str:
    pairs = [text.split() for text in names_and_addresses]
    rows = {str(n): {"addr": f"{ip}:0/1", "metadata": {"id": name}} for n, (name, ip) in enumerate(pairs)}
    return json.dumps({"servicemap": {"services": {"rgw": {"daemons": {"summary": "", **rows}}}}})


def test_gateways_that_nobody_watched_beside_others_make_no_sum(watched: Path) -> None:
    """The endpoints are rgw1 and rgw2; rgw1 was watched."""
    status = watched / "cluster" / "before" / "status.json"
    plan = json.loads((watched / "plan.json").read_text())
    status.write_text(_gateways("rgw1 10.0.0.1", "rgw2 10.0.0.2", "rgw2 10.0.0.2"))
    summary = summarize(watched)
    jsonschema.validate(summary, json_schema())
    made = summary["resources"]["phases"]["new"]
    assert made["unwatched_gateways"] == 1 and list(made["classes"]) == ["osd", "generator"]
    assert made["ops_per_core"] is made["cores_per_gb_s"] is made["rgw_osd_ratio"] is None
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "monitor-limited"]
    assert texts == ["resources did not watch 1 RGW of the cluster, so RGWs have no sums: add the nodes to `rgws`"]
    three = _gateways("rgw1 10.0.0.1", "rgw2 10.0.0.2", "rgw3 10.0.0.3")
    cases = [("{", [], 0), ("[]", [], 0), (_gateways("rgw1 10.0.0.1", "rgw1 10.0.0.1"), [], 0)]
    cases += [(three, ["10.0.0.1"], 0), (three, ["10.0.0.1", "10.0.0.3"], 1), (three, ["localhost"], 2)]
    for content, hosts, unwatched in cases:
        status.write_text(content)
        plan["s3"]["urls"] = [f"http://{host}:7480" for host in hosts]
        (watched / "plan.json").write_text(json.dumps(plan))
        made = summarize(watched)["resources"]["phases"]["new"]
        assert made.get("unwatched_gateways", 0) == unwatched
        assert ("rgw" in made["classes"]) == (not unwatched)


def test_a_node_whose_file_is_refused_is_no_gap_of_the_monitor(watched: Path) -> None:
    note = watched / "monitors" / "01" / lifecycle.NODES
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"resources": ["client1", "node1", "rgw1"]}))
    complete = json.loads((watched / "complete").read_text())
    checksums.end_run(watched, complete)
    file = watched / "phases" / "01-new" / "monitors" / "resources.node1" / "node1.jsonl"
    content = file.read_text()
    for change in (lambda: file.write_text(content + "{}\n"), file.unlink):
        change()
        warnings = summarize(watched)["warnings"]
        texts = {w.get("phase"): w["text"] for w in warnings if w["code"] == "resources-gap"}
        assert texts == {"aged": "processors and disks were not watched during all of the phase: none of the 2 nodes"}
        assert any("resources.node1/node1.jsonl" in w["text"] for w in warnings)


def test_the_nodes_of_monitor_files() -> None:
    assert resources.nodes_of_files(
        [
            "monitors/01/resources.node1/node1.jsonl",
            "phases/01-new/monitors/resources.node2/node2.jsonl",
            "monitors/02/collectl.node3/node3-20261124.dsk.gz",
            "monitors/01/resources.node4/node5.jsonl",
            "monitors/01/collectl.node6/output.txt",
            "events.jsonl",
        ]
    ) == {"node1", "node2", "node3"}


def test_a_node_without_a_role_makes_no_sum_at_all(watched: Path) -> None:
    note = watched / "monitors" / "01" / "nodes.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"resources": ["client1", "node1", "node9", "rgw1"]}))
    made = summarize(watched)["resources"]["phases"]["new"]
    assert made["classes"] == {} and made["ops_per_core"] is None


def test_a_generator_near_its_ceiling_is_said(watched: Path) -> None:
    ceilings = {"phases": {"new": {"nodes": {"client1": {"requests_per_s": 330.0, "beside": []}}}}}
    (watched / "generator.json").write_text(json.dumps(ceilings))  # 300 a second were made
    summary = summarize(watched)
    made = summary["resources"]["phases"]["new"]["bottleneck"]
    assert made["what"] == "generator"
    assert made["evidence"][0].startswith("client1: 91 % of what its generator can do without a cluster: 300 of 330")
    (warning,) = [w for w in summary["warnings"] if w["code"] == "generator-bound"]
    assert warning["phase"] == "new" and "300 of 330 requests/s" in warning["text"]


def test_the_summary_of_a_run_without_monitors_has_none(tmp_path: Path) -> None:
    assert summarize(archives.small(tmp_path))["resources"] is None


def test_the_text_has_a_table_of_the_classes(watched: Path) -> None:
    text = Terminal().text(blocks(summarize(watched)))
    (osd,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["OSD"]]
    assert osd == ["OSD", "2", "0.750", "0.750", "900.0", "2.000", "4.000"]
    assert "RGW:OSD 2.000 (2/1), 133.3 requests/s per core of RGW and OSD, 1831 cores per GB/s" in text
    assert "bottleneck: media. node1: sda (its OSD is unknown) was busy 97 % of the time" in text
    assert max(map(len, text.splitlines())) <= 120
