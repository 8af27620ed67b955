"""`cbt-tools plan --live`: the cluster's own answers to a plan with faults, and nothing changed."""

from __future__ import annotations

import copy
import json
import shlex
from pathlib import Path
from typing import Any, Sequence

import pytest
from faults_world import Connections

from cbt_plugins.cluster.remote import Remote, Result
from cbt_plugins.faults.cluster_lock import KEY
from cbt_plugins.faults.kinds.network import Network
from cbt_plugins.faults.node_shell import script_text
from cbt_plugins.tools import plan_live
from cbt_plugins.tools.__main__ import main
from cbt_plugins.tools.plan_live import with_programs_once

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
    monkeypatch.setattr(Remote, "of_cluster", lambda cluster, common: connections)
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
    assert "this command has asked the cluster and changed nothing: no fault would be refused;" in out
    live = out[out.index("The cluster now, asked on node0") :]
    for text in [
        "settings: set noscrub, nodeep-scrub\n",
        "set     node0: ceph -c /etc/ceph/ceph.conf osd set noscrub\n    set     node0: ceph",
        "settings: switch the balancer off\n",
        "settings: set fast recovery (wpq)\n",
        "node-a: stop node1\n",
        "inactive PGs: 0.0 % of all PGs",
        "inject  node1: sudo systemctl stop ceph-osd@0.service",
        "undo    node1: ",
        "osds.osd=0.up = 1",
        "no fault would be refused",
    ]:
        assert text in live, text
    assert cluster.state == before


def test_a_fault_is_not_judged_by_pools_that_the_run_makes(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILE.replace("down_nodes: 2", "down_nodes: 1")
    pools = "{new: {ec: 2+1, pg_num: 8}, other: {replicas: 3, pg_num: 8}}"
    rgw = "{placement: {data: new, index: other, extra: other}}"
    text = text.replace("    down", f"    pools: {pools}\n    rgw: {rgw}\n    down")
    assert main(["plan", "--live", write(tmp_path, text)]) == 0
    present = "no fault would be refused because of the present pools"
    not_judged = "not judged: pools new, other, which the run makes"
    assert f"The cluster now, asked on node0: {present}; {not_judged}\n" in capsys.readouterr().out


def test_a_second_node_is_judged_as_if_the_first_were_down(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--live", write(tmp_path, FILE)]) == 1
    out, err = capsys.readouterr()
    answer = f"{len(err.splitlines())} reasons to refuse it"
    assert f"this command has asked the cluster and changed nothing: {answer};" in out
    live = out[out.index(f"The cluster now, asked on node0: {answer}\n  refused: node-b: ") :]
    assert "node-b: stop node3, while node-a is in force" in live
    assert "inactive PGs: 50.0 % of all PGs" in live
    assert "accepted against safety rule inactive: 8 of 16 PGs (50.0 %)" in live
    assert "no fault would be refused" not in live
    lines = [line.replace("Error: ", "") for line in err.splitlines()]
    assert any(line.startswith("node-b: refused by rule domain: data (EC 2+1") for line in lines)
    assert "node-b: refused by rule ok-to-stop: ceph osd ok-to-stop says no: 8 PGs are or would become offline" in lines
    assert not any("node-a" in line.split(":")[0] or "rule inactive" in line for line in lines)


def test_monitors_that_go_one_after_the_other(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of them, on node1, node2 and node3: each of two cuts leaves a majority, both together do not."""
    names = ["node1", "node2", "node3"]
    quorum = {"quorum_names": names, "monmap": {"mons": [{"name": n} for n in names]}}
    monkeypatch.setattr(cluster.world, "ceph_quorum_status", lambda: quorum, raising=False)
    hosts = [{"name": n, "hostname": n} for n in names]
    monkeypatch.setattr(cluster.world, "ceph_mon_metadata", lambda: hosts, raising=False)
    monkeypatch.setattr(Network, "steps", lambda *_: [])
    cut = "{kind: network, nodes: [node1, node3], options: {method: nft}, accept: []"
    file = write(tmp_path, FILE.replace("{kind: stop, nodes: [node1, node3], accept: []", cut))
    assert main(["plan", "--live", file]) == 1
    lines = [line.replace("Error: ", "") for line in capsys.readouterr().err.splitlines()]
    assert "node-b: refused by rule quorum: 1 of 3 monitors would be left, 2 are needed for a quorum" in lines
    assert not any(line.startswith("node-a") for line in lines)


def test_the_node_of_the_last_mds_stays(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.world, "ceph_mds_metadata", lambda: [{"name": "a", "hostname": "node1"}])
    monkeypatch.setattr(Network, "steps", lambda *_: [])
    cut = "{kind: network, nodes: [node1, node3], options: {method: nft}, accept: []"
    file = write(tmp_path, FILE.replace("{kind: stop, nodes: [node1, node3], accept: []", cut))
    assert main(["plan", "--live", file]) == 1
    of_rule = [line for line in capsys.readouterr().err.splitlines() if " rule mds: " in line]
    assert [line.partition("node-")[2][0] for line in of_rule] == ["a"]


def test_warnings_refuse_nothing(tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.state["flags"].append("noout")
    cluster.state["config"].append(["mon", "", "mon_osd_down_out_subtree_limit", "host"])
    text = FILE.replace("down_nodes: 2", "down_nodes: 1")
    assert main(["plan", "--live", write(tmp_path, text)]) == 0
    out = capsys.readouterr().out
    assert "    warning: noout is set, but not by this run: no OSD is marked out" in out
    assert "    warning: all OSDs of host node1 would be down: because of mon_osd_down_out_subtree_limit (host)" in out
    assert "no fault would be refused" in out
    own = text.replace("balancer: off", "balancer: off, flags: [noout]")
    assert main(["plan", "--live", write(tmp_path, own)]) == 0
    assert "noout is set" not in capsys.readouterr().out


OUT = """\
events:
  - {at: 0s, fault: {label: one, kind: out, osds: [0, 1]}}
  - {at: 5s, fault: {label: two, kind: out, osds: [2]}}
  - {at: 9s, undo: one}
  - {at: 10s, fault: {label: three, kind: out, osds: [3]}}
"""


def test_an_injection_is_judged_beside_what_is_in_force_then(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of four hosts out: refused, in two faults as in one; not where the first is undone before."""
    (tmp_path / "faults.yaml").write_text(OUT, encoding="utf-8")
    file = write(tmp_path, FILE)
    words = ["inject", str(tmp_path / "faults.yaml"), "--cluster", file, "--archive", str(tmp_path / "a"), "--dry-run"]
    before = copy.deepcopy(cluster.state)
    assert main(words) == 1
    one, two, three = capsys.readouterr().out.split("\nat ")
    assert "refused" not in one and "refused" not in three
    assert two.startswith("5 s, while one is in force\ntwo: out osd.2\n")
    assert "refused by safety rule domain: 1 of 2 hosts would be left for the data of rbd, 3 copies, min_size 2" in two
    assert three.startswith("10 s, while two is in force\n")
    assert cluster.state == before and not (tmp_path / "a").exists()


def test_what_cannot_be_made_is_said(tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.state["osds"]["0"]["up"] = 0
    assert main(["plan", "--live", write(tmp_path, FILE)]) == 1
    assert "node-a: osd.0: already down, but not by this run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "means"),
    [
        ("{kind: network, nodes: [node1, node3], options: {method: nft}", "nft"),
        ("{kind: delay, nodes: [node1, node3]", "nft, htb and netem"),
    ],
)
def test_what_a_kernel_cannot_do_is_refused_beforehand(
    tmp_path: Path,
    cluster: Connections,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    means: str,
) -> None:
    """The rules, and the queue, are tried in an empty network namespace of the node."""
    replies = {
        "echo possible": "Error: Specified qdisc kind is unknown.\n",
        "ip -o addr": "10.0.0.1\n",
        "action=look": "dev eth0 1000\n",
        "SSH_CONNECTION": "22\n",
    }
    play = cluster.play

    def reply(node: str, text: str) -> Result:
        answer = next((value for part, value in replies.items() if part in text), None)
        return play(node, text) if answer is None else Result(answer.replace(".1\n", f".{node[-1]}\n"), "", 0)

    monkeypatch.setattr(cluster, "play", reply)
    file = write(tmp_path, FILE.replace("{kind: stop, nodes: [node1, node3]", fault))
    assert main(["plan", "--live", file]) == 1
    err = capsys.readouterr().err
    assert f"node-a: node1: the fault needs {means}, but the kernel or a program of the node does not" in err
    assert err.splitlines()[0].endswith("(CAP_SYS_ADMIN): Error: Specified qdisc kind is unknown.")


@pytest.mark.parametrize("client", ["c1", "client1"])
def test_a_cluster_that_does_not_answer(
    client: str, tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says nothing of faults, and who cannot reach a lab is told from where it is reached."""
    cluster.fail = ["ceph"]
    file = write(tmp_path, FILE.replace("c1", client))
    assert main(["plan", "--live", file]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"{file}: --live cannot ask the cluster: ceph on node0 gave 0 of" in err
    assert (f"; in a lab: cbt-tools lab exec node0 -- cbt-tools plan --live {file}\n" in err) == (client == "client1")


@pytest.mark.parametrize("swept", [False, True])
def test_an_option_that_the_cluster_does_not_know(
    swept: bool,
    tmp_path: Path,
    cluster: Connections,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = cluster.world.ceph_config_help
    helps = lambda name: ("", "Error ENOENT: ", 2) if name.endswith("vall") else known(name)  # noqa: E731
    monkeypatch.setattr(cluster.world, "ceph_config_help", helps)
    settings = "{recovery: aggressive, config: {osd: {osd_max_backfills: 4}, mon: {mon_osd_down_out_intervall: 9}}}"
    lists = f"[{{}}, {settings}]" if swept else settings
    file = write(tmp_path, FILE.replace("{balancer: off, recovery: aggressive}", lists))
    assert main(["plan", "--live", file]) == 2
    out, err = capsys.readouterr()
    column = FILE.splitlines()[-1].index("{") + lists.index("mon_osd") + 1
    path = f"benchmarks.osdfailure.settings{'[1]' if swept else ''}.config.mon.mon_osd_down_out_intervall"
    assert out == "" and f"{file}:7:{column}: {path}: the cluster knows no such option\n" in err
    assert len(err.splitlines()) == 2


def test_a_program_is_shown_once() -> None:
    programs = ("ceph-osd", "radosgw")
    lines = [f"  undo    node4: {script_text('process', action='start', program=name)}" for name in programs]
    both = f"{lines[0]}\n{script_text('process', action='count')}"
    arm = f"  arm  sh -c {shlex.quote(script_text('interfaces'))}"
    shown = list(with_programs_once([both, lines[1], arm, "  plain"]))
    assert shown[:2] == [
        "  undo    node4: action=start; program=ceph-osd (process.sh)\n" + " " * 14 + "action=count (process.sh)",
        "  undo    node4: action=start; program=radosgw (process.sh)",
    ]
    assert shown[2:5] == ["  arm  sh -c ' (interfaces.sh)'", "  plain", "  (process.sh) stands for:"]
    assert "signalled() {" in shown[5] and shown[6] == "  (interfaces.sh) stands for:"


def test_for_programs_and_without_faults(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--live", "--format", "json", write(tmp_path, FILE)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert any("rule domain" in text for text in document["live"]["refused"])
    quiet = FILE.split("    down_nodes")[0].replace("osdfailure", "rgwtest")
    assert main(["plan", "--live", write(tmp_path, quiet)]) == 0
    out = capsys.readouterr().out
    assert "the cluster, and every node, endpoint and key, is ready for a run; the file has no faults" in out
    assert len(cluster.fed) == 2 and b'["user cbt", "AK", "SK", ""]' in cluster.fed[-1] and "SK" not in out


def test_fills_without_room_are_warnings_and_reached_shares_are_errors(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_live, "room_warnings", lambda ceph, plans: [f"no room in {len(plans)}"] * 2)
    quiet = FILE.split("    down_nodes")[0].replace("osdfailure", "rgwtest")
    for text in (FILE.replace("down_nodes: 2", "down_nodes: 1"), quiet):
        assert main(["plan", "--live", write(tmp_path, text)]) == 0
        out, err = capsys.readouterr()
        assert out.count("  warning: no room in 1\n") == 1 and err == ""
    monkeypatch.setattr(plan_live, "reached_before", lambda ceph, phases: ["fill: reached"])
    assert main(["plan", "--live", write(tmp_path, quiet)]) == 1
    out, err = capsys.readouterr()
    assert err == "Error: fill: reached\n" and "no room" not in out, "the errors come first"


def test_a_cluster_that_is_not_as_a_run_needs_it(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """OSDs that are down and out, of which Ceph says nothing, and another run."""
    quiet = FILE.split("    down_nodes")[0].replace("osdfailure", "rgwtest")
    cluster.state["osds"]["3"].update({"up": False, "in": False})
    holder = {"run": "r7", "pid": 7, "t": 1.0, "host": "elsewhere", "archive": "/a/7"}
    cluster.state["keys"][f"{KEY}/r7"] = json.dumps(holder)
    assert main(["plan", "--live", write(tmp_path, quiet)]) == 1
    err = capsys.readouterr().err
    assert "Error: run r7 (pid 7 on elsewhere, archive /a/7) has held the cluster since 1970-01-01" in err
    assert "daemon-down: 1 of 4 OSDs are down and out: start the daemon" in err and err.count("Error: ") == 3
    accepted = quiet + "    settings: {accept: [daemon-down, not-clean]}\n"
    assert main(["plan", "--live", write(tmp_path, accepted)]) == 1
    assert capsys.readouterr().err.count("Error: ") == 1


def test_who_does_not_answer_is_named_in_any_file(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = FILE.split("    down_nodes")[0].replace("osdfailure", "rgwtest").replace("[c1]", "[c1, c2]")
    cluster.silent = ["c2"]
    wrong = {"url": "http://rgw1:7480", "owner": "user cbt", "error": "connection refused"}
    cluster.endpoint_errors = [json.dumps(wrong) + "\n"]
    assert main(["plan", "--live", write(tmp_path, quiet)]) == 1
    out, err = capsys.readouterr()
    assert err == "Error: c2: Connection refused\nError: c1: http://rgw1:7480: connection refused\n"
    assert "  not ready: c2: Connection refused\n" in out and "2 errors of nodes, endpoints, keys or the cluster" in out
    cluster.silent = ["node0"]
    assert main(["plan", "--live", write(tmp_path, FILE)]) == 1
    assert "Error: node0: Connection refused\n" in capsys.readouterr().err


def test_nodes_without_the_program_of_a_monitor_are_named(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cluster.run

    def without_perf(nodes: Sequence[str], command: str, *more: Any, **options: Any) -> Any:
        if command == "command -v perf":
            return {node: Result("", "", int(node != "node2")) for node in nodes}
        return run(nodes, command, *more, **options)

    monkeypatch.setattr(cluster, "run", without_perf)
    file = FILE.replace("down_nodes: 2", "down_nodes: 1")
    for profiles, told in (("{resources: {}}", False), ("{stacks: {}}", True)):
        assert main(["plan", "--live", write(tmp_path, f"monitoring_profiles: {profiles}\n{file}")]) == 0
        out = capsys.readouterr().out
        warning = "  warning: monitoring_profiles: stacks: perf is not installed on node1, node3, node4\n"
        assert (warning in out) == told and ("perf" in out) == told


def test_two_runs_that_differ_are_both_asked_for(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = FILE.replace("down_nodes: 2", "down_nodes: [1, 2]") + "    workers: [4, 8]\n"
    assert main(["plan", "--live", write(tmp_path, swept)]) == 1
    out = capsys.readouterr().out
    live = out[out.index("The cluster now") :].splitlines()
    assert [line for line in live if line.startswith("  Run ")] == ["  Run 1", "  Run 3"]  # workers make no difference


def test_a_failure_of_a_scorecard_that_is_refused_is_skipped_then(
    tmp_path: Path, cluster: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no reason to refuse the run."""
    head, _, _ = FILE.partition("  osdfailure:")
    failures = "{node down: {kind: stop, nodes: [node1]}, two nodes: {kind: stop, nodes: [node1, node3]}}"
    text = f"{head}  resilience:\n    s3: {{urls: ['http://rgw1:7480'], user: cbt}}\n    failures: {failures}\n"
    assert main(["plan", "--live", write(tmp_path, text)]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "no fault would be refused" in out
    live = out[out.index("The cluster now, asked on node0") :]
    assert "node-down: stop node1\n" in live and "would be skipped: two-nodes: refused by rule inactive" in live
