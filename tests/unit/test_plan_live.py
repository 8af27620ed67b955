"""`cbt-tools plan --live`: the cluster's own answers to a plan with faults, and nothing changed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from faults_world import Connections

from cbt_plugins.remote import Remote
from cbt_plugins.tools.__main__ import main

FILE = """\
cluster: {user: root, head: node0, clients: [c1], osds: [node1, node2, node3, node4], mons: [node0], iterations: 1}
benchmarks:
  osdfailure:
    s3: {urls: ['http://rgw1:7480'], user: cbt}
    down_nodes: 2
    fault: {kind: stop, nodes: [node1, node3], accept: [], accept_second: [inactive]}
    settings: {balancer: off, recovery: aggressive}
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Connections:
    connections = Connections()
    monkeypatch.setattr(Remote, "from_host", lambda cluster, common: connections)
    return connections


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "f.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_one_node_can_go(tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]) -> None:
    before = copy.deepcopy(cluster.state)
    file = write(tmp_path, FILE.replace("down_nodes: 2", "down_nodes: 1"))
    assert main(["plan", "--live", file]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "this command has asked the cluster and changed nothing" in out
    live = out[out.index("The cluster now, asked on node0") :]
    for text in [
        "settings: set noscrub, nodeep-scrub\n",
        "do      node0: ceph -c /etc/ceph/ceph.conf osd set noscrub && ceph",
        "settings: balancer off\n",
        "settings: fast recovery (wpq)\n",
        "node-a: stop node1\n",
        "inactive PGs: 0.0% of the cluster's",
        "do      node1: sudo systemctl stop ceph-osd@0.service",
        "undo    node1: ",
        "osds.osd=0.up = 1",
        "nothing speaks against it",
    ]:
        assert text in live, text
    assert cluster.state == before


def test_a_second_node_is_judged_as_if_the_first_were_down(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--live", write(tmp_path, FILE)]) == 2
    out, err = capsys.readouterr()
    live = out[out.index("The cluster now") :]
    assert "node-b: stop node3, while node-a is in force" in live
    assert "inactive PGs: 50.0% of the cluster's" in live
    assert "accepted by rule inactive: 8 of 16 PGs (50.0 %)" in live
    assert "nothing speaks against it" not in live
    lines = err.splitlines()
    assert any(line.startswith("node-b: refused by rule domain: data (EC 2+1") for line in lines)
    assert "node-b: refused by rule ok-to-stop: ceph osd ok-to-stop says no: 8 PGs are or would become offline" in lines
    assert not any("node-a" in line.split(":")[0] or "rule inactive" in line for line in lines)


def test_what_cannot_be_made_is_said(tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.state["osds"]["0"]["up"] = 0
    assert main(["plan", "--live", write(tmp_path, FILE)]) == 2
    assert "node-a: osd.0: down already, and not by this run" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.fail = ["ceph"]
    assert main(["plan", "--live", write(tmp_path, FILE)]) == 2
    assert "ceph on node0 answered 0 of" in capsys.readouterr().err


def test_for_programs_and_without_faults(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--live", "--json", write(tmp_path, FILE)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert any("rule domain" in text for text in document["live"]["refused"])
    calls = cluster.calls
    quiet = FILE.split("    down_nodes")[0].replace("osdfailure", "rgwtest")
    assert main(["plan", "--live", write(tmp_path, quiet)]) == 0
    assert "nothing to ask: the file has no faults and no settings" in capsys.readouterr().out
    assert cluster.calls == calls


def test_two_runs_that_differ_are_both_asked_for(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = FILE.replace("down_nodes: 2", "down_nodes: [1, 2]") + "    workers: [4, 8]\n"
    assert main(["plan", "--live", write(tmp_path, swept)]) == 2
    out = capsys.readouterr().out
    live = out[out.index("The cluster now") :].splitlines()
    assert [line for line in live if line.startswith("  Run ")] == ["  Run 1", "  Run 3"]  # workers make no difference
