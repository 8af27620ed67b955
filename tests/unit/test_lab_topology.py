from __future__ import annotations

import json
from pathlib import Path

import pytest

from cbt_plugins.journal import write_json
from cbt_plugins.tools.lab.requirements import LabUsage
from cbt_plugins.tools.lab.topology import LabRecord, Topology, parse_ec


def test_every_node_has_an_address_and_a_mac_of_its_own() -> None:
    nodes = Topology(osd_nodes=30, rgws=12, clients=12).nodes.values()
    assert len({node.address for node in nodes}) == len({node.mac for node in nodes}) == 1 + 30 + 12 + 12


def test_osds_are_numbered_node_by_node() -> None:
    shape = Topology(osd_nodes=3, osds_per_node=2)
    assert shape.node("node2").osds == (2, 3)
    assert shape.osds == [0, 1, 2, 3, 4, 5]


def test_unknown_node_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(LabUsage, match=r"no node node9: choose one of node0 node1 .*client2"):
        Topology().node("node9")


@pytest.mark.parametrize(
    ("osd_nodes", "per_node", "copies", "domain"),
    [(4, 2, 3, "host"), (2, 2, 2, "host"), (1, 2, 2, "osd"), (1, 1, 1, "osd")],
)
def test_copies_never_exceed_the_places_they_need(
    osd_nodes: int, per_node: int, copies: int, domain: str
) -> None:
    shape = Topology(osd_nodes=osd_nodes, osds_per_node=per_node)
    assert (shape.copies, shape.failure_domain) == (copies, domain)


def test_erasure_code_that_does_not_fit_is_refused() -> None:
    assert Topology(ec=(2, 2)).ec == (2, 2)
    with pytest.raises(LabUsage, match=r"--ec 3\+2 needs 5 hosts, this lab has 4"):
        Topology(ec=(3, 2))


@pytest.mark.parametrize("wrong", [{"osd_nodes": 0}, {"rgws": -1}, {"clients": 201}])
def test_counts_out_of_range_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(LabUsage, match=f"--{next(iter(wrong)).replace('_', '-')}"):
        Topology(**wrong)


def test_systemd_is_for_nodes_with_osds() -> None:
    assert [node.name for node in Topology(systemd=("node2",)).nodes.values() if node.systemd] == ["node2"]
    for shape in ({"systemd": ("node0",)}, {"systemd": ("node2",), "mons": 3}, {"systemd": ("node1",), "mgrs": 2}):
        with pytest.raises(LabUsage, match=r"--systemd node\d: must be a node that runs OSDs only"):
            Topology(**shape)
    with pytest.raises(LabUsage, match="no node node9"):
        Topology(systemd=("node9",))


def test_mons_and_mgrs_begin_at_the_head() -> None:
    nodes = Topology(mons=3, mgrs=2).nodes.values()
    assert [node.name for node in nodes if node.mon] == ["node0", "node1", "node2"]
    assert [node.name for node in nodes if node.mgr] == ["node0", "node1"]
    with pytest.raises(LabUsage, match="--mons 6: the lab has only 5 nodes for ceph-mons"):
        Topology(mons=6)


def test_record_comes_back_as_it_was(tmp_path: Path) -> None:
    shape = Topology(ec=(2, 1), bind=("/srv/data",), mux=False, systemd=("node2",), mons=2, mgrs=2)
    record = LabRecord(shape, "f-s-i-d", {"0": "u"}, "created")
    record.save(tmp_path)
    assert LabRecord.load(tmp_path) == record
    assert json.loads((tmp_path / "lab.json").read_text())["nodes"]["node1"]["osds"] == [0, 1]


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"fsid": "of another program"}', '{"format": 1}', '{"format": 1, "topology": "ab"}'),
        '{"format": 1, "topology": {"ec": null, "later": 1}, "fsid": "f", "osd_uuids": {}, "state": "created"}',
    ],
)
def test_record_of_another_program_is_not_touched(tmp_path: Path, content: str) -> None:
    (tmp_path / "lab.json").write_text(content)
    with pytest.raises(LabUsage, match=r"lab.json"):
        LabRecord.load(tmp_path)
    assert LabRecord.load(tmp_path / "nowhere") is None


def test_secret_file_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "s3.json"
    path.write_text("old, readable")
    write_json(path, {"secret_key": "x"}, mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_erasure_codes() -> None:
    assert parse_ec("4+2") == (4, 2)
    for text in ("1+1", "2+0", "2", "a+b"):
        with pytest.raises(ValueError, match=r"2\+1"):
            parse_ec(text)
