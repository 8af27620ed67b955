"""Daemons that Rook runs: the real kubectl, and an API server of the tests with an operator that scales back."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kube_api import Workload
from rook_daemons import Rook
from rook_scene import GATEWAY, OPERATOR, OSD3, OSD4, perform, reply_to, rook_scene
from waiting import wait_for

from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.faults import kind as kinds
from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.node_shell import fired
from cbt_plugins.faults.scene import Targets
from cbt_plugins.faults.step import FaultError


def test_the_operator_goes_first_and_comes_back_last(rook: Rook) -> None:
    before = rook.deployment("rook-ceph-osd-3")["metadata"]["labels"].copy()
    rook.keep_evicted_pod(rook.api.pods_of("rook-ceph-osd-3")[0])  # whose end nobody waits for
    found = rook.find(OSD3, OSD4)
    assert [service.node for service in found] == ["node3", "node4"] and {s.manager for s in found} == {"rook"}
    assert rook.settled(*found)
    done = rook.stop(*found)
    assert done.returncode == 0, done.stderr
    assert rook.running == {"rook-ceph-rgw-my-store-a"} and not rook.settled(*found)
    order = [row.split("/deployments/")[1].split("/")[0] for row in rook.api.requests if "/scale" in row]
    assert order.index(OPERATOR) == 0 and set(order) == {OPERATOR, "rook-ceph-osd-3", "rook-ceph-osd-4"}
    rook.api.requests.clear()
    assert rook.start(*found).returncode == 0 and rook.settled(*found)
    order = [row.split("/deployments/")[1].split("/")[0] for row in rook.api.requests if "/scale" in row]
    assert order[-1] == OPERATOR and order.count(OPERATOR) == 1
    assert rook.deployment("rook-ceph-osd-3")["metadata"]["labels"] == before
    assert rook.deployment(OPERATOR)["metadata"].get("annotations", {}) == {}
    wait_for(lambda: OPERATOR in rook.running, "the operator")
    again = rook.start(*found)
    assert again.returncode == 0 and fired(again.stdout) is None and rook.settled(*found)


def test_the_operator_stays_away_while_another_fault_is_open(rook: Rook) -> None:
    (first,), (second,) = rook.find(OSD3), rook.find(GATEWAY)
    assert rook.stop(first).returncode == rook.stop(second).returncode == 0
    assert rook.start(first).returncode == 0 and rook.settled(first) and not rook.settled(second)
    assert rook.running == {"rook-ceph-osd-3", "rook-ceph-osd-4"} and rook.api.replicas(OPERATOR) == 0
    assert rook.start(second).returncode == 0 and rook.settled(second) and rook.api.replicas(OPERATOR) == 1


def test_the_operator_stays_away_while_a_fault_of_another_cluster_is_open(rook: Rook) -> None:
    """Two clusters share the operator, which is in the namespace of the first one."""
    name, labels = "rook-ceph-osd-40", {"app": "rook-ceph-osd", "ceph-osd-id": "4"}
    rook.api.deployment(name, rook.workload(name), "node4", "second", **labels)
    second = rook.scene(namespace="second", operator_namespace="rook-ceph")
    of_second = service_managers.find_services(second, [OSD4])["node4"]
    (settled,) = service_managers.MANAGERS["rook"].settled(second, of_second)
    (first,) = rook.find(OSD3)

    def is_settled() -> bool:
        return settled.differs(reply_to(settled)) is None

    for _ in range(2):
        assert rook.stop(first).returncode == rook.do(service_managers.stop(second, of_second)).returncode == 0
        assert rook.start(first).returncode == 0 and rook.settled(first) and not is_settled()
        assert (rook.api.replicas(OPERATOR), rook.api.replicas(name)) == (0, 0)
        assert rook.do(service_managers.start(second, of_second)).returncode == 0 and is_settled()
        assert (rook.api.replicas(OPERATOR), rook.api.replicas(name)) == (1, 1)
        assert rook.deployment(OPERATOR)["metadata"]["annotations"] == {}


def test_an_operator_that_was_stopped_before_stays_so(rook: Rook) -> None:
    rook.deployment(OPERATOR)["spec"]["replicas"] = 0
    rook.api.scaled(rook.deployment(OPERATOR), 1)
    wait_for(lambda: OPERATOR not in rook.running, "the operator's end")
    (found,) = rook.find(OSD3)
    assert rook.stop(found).returncode == 0 and rook.start(found).returncode == 0
    assert rook.settled(found) and rook.api.replicas(OPERATOR) == 0


def test_an_operator_that_somebody_scales_back_is_noticed(rook: Rook) -> None:
    """Then it starts again what is stopped, and the undo says since when it runs."""
    (found,) = rook.find(OSD3)
    assert rook.stop(found).returncode == 0
    operator = rook.deployment(OPERATOR)
    operator["spec"]["replicas"] = 1
    rook.api.scaled(operator, 0)
    wait_for(lambda: rook.api.pods_of("rook-ceph-osd-3"), "the operator's work")
    done = rook.start(found)
    assert done.returncode == 0 and (fired(done.stdout) or 0) < 60
    assert done.stderr == "deployment rook-ceph-osd-3 was scaled back to 1 during the fault\n" and rook.settled(found)


def test_a_fault_that_would_not_last_fails(rook: Rook) -> None:
    """Whoever manages the operator scales it back at once."""
    (found,) = rook.find(OSD3)
    rook.api.scales_back = OPERATOR
    done = rook.stop(found)
    assert done.returncode == 1
    assert done.stderr.startswith(f"deployment {OPERATOR} was scaled back to 1: does OLM, Helm or Argo CD")
    assert rook.start(found).returncode == 0 and rook.settled(found)


def test_the_operator_comes_back_although_a_deployment_is_gone(rook: Rook) -> None:
    """As of an OSD that was purged during the fault; nobody else has scaled the other deployment back."""
    found = rook.find(OSD3, OSD4)
    assert rook.stop(*found).returncode == 0
    del rook.api.objects["deployments"]["rook-ceph", "rook-ceph-osd-3"]
    for _ in range(2):
        done = rook.start(*found)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1] == "no longer in Kubernetes: deployment rook-ceph-osd-3"
        assert "scaled back" not in done.stderr
        assert rook.api.replicas(OPERATOR) == rook.api.replicas("rook-ceph-osd-4") == 1
    assert not rook.settled(*found) and rook.settled(*rook.find(OSD4))
    (gateway,) = rook.find(GATEWAY)
    assert rook.stop(gateway).returncode == rook.start(gateway).returncode == 0
    assert rook.settled(gateway) and rook.api.replicas(OPERATOR) == 1


def test_the_operator_comes_back_although_a_daemon_does_not(rook: Rook) -> None:
    (found,) = rook.find(OSD3)
    assert rook.stop(found).returncode == 0
    rook.api.put("nodes", "node3", spec={"unschedulable": True})
    scene = rook.scene()
    short = replace(scene, limits=replace(scene.limits, slow=2))
    for _ in range(2):
        done = rook.do(service_managers.start(short, [found]))
        assert (done.returncode, fired(done.stdout)) == (1, None) and not rook.settled(found)
        assert done.stderr.splitlines()[-1] == "deployment rook-ceph-osd-3 is not available"
        assert (rook.api.replicas(OPERATOR), rook.api.replicas("rook-ceph-osd-3")) == (1, 1)
    rook.api.objects["nodes"].clear()
    rook.api.schedule()
    assert rook.start(found).returncode == 0 and rook.settled(found)


def test_a_restart_whose_stop_fails_leaves_no_label(rook: Rook) -> None:
    (found,) = rook.find(OSD3)
    rook.api.scales_back = OPERATOR
    done = rook.do(service_managers.restart(rook.scene(), [found]))
    assert done.returncode == 1 and rook.settled(found)
    assert done.stderr.startswith(f"deployment {OPERATOR} was scaled back to 1: ")
    rook.api.scales_back = ""
    (before,) = rook.api.pods_of("rook-ceph-osd-3")
    assert rook.do(service_managers.restart(rook.scene(), [found])).returncode == 0 and rook.settled(found)
    assert rook.api.pods_of("rook-ceph-osd-3") != [before]


@pytest.mark.long
def test_a_stop_that_was_cut_short_is_undone(rook: Rook) -> None:
    found = rook.find(OSD3, OSD4)
    (command,) = service_managers.stop(rook.scene(), found)
    log = rook.folder / "calls"
    for calls in range(1, 12, 2):
        log.write_text("")
        count = f'echo >>{log}; [ $(wc -l <{log}) -le {calls} ] || {{ kill -9 $$; exit 1; }}'
        cut = subprocess.run(
            ["sh", "-c", f'kubectl() {{ {count}; command kubectl "$@"; }}\n{command.text}'],
            capture_output=True,
            timeout=120,
        )
        assert cut.returncode == -9
        assert rook.start(*found).returncode == 0 and rook.settled(*found), calls


@pytest.mark.parametrize(
    ("refused", "where"),
    [(("patch", "deployments/scale"), "--subresource=scale"), (("list", "pods"), "list pods")],
)
def test_a_right_that_is_missing_is_named_before_anything_is_changed(rook: Rook, refused: Any, where: str) -> None:
    rook.api.refused["viewer"] = [refused]
    said = rf"no right to {refused[0]} {refused[1]}: kubectl .* can-i .*{where}.*: exit status 1"
    with pytest.raises(FaultError, match=said):
        rook.find(OSD3, as_user="viewer")
    assert all("/scale" not in row for row in rook.api.requests)


def test_what_is_not_there_is_named(rook: Rook) -> None:
    with pytest.raises(FaultError, match=r"osd.9: 0 deployments have the label app=rook-ceph-osd and the ID 9"):
        rook.find(DaemonName("osd", "9"))
    with pytest.raises(FaultError, match=r'get deployment rook-ceph-operator .* namespaces "elsewhere" not found'):
        rook.find(OSD3, operator_namespace="elsewhere")
    with pytest.raises(FaultError, match=r"rgw\.my\.store\.a: Kubernetes starts a killed daemon again at once"):
        service_managers.kill(rook.scene(), rook.find(GATEWAY))
    del rook.api.objects["deployments"]["rook-ceph", OPERATOR]
    hint = r'"rook-ceph-operator" not found: .* set cluster: kubernetes: operator_namespace'
    with pytest.raises(FaultError, match=hint):
        rook.find(OSD3)


def test_daemons_are_looked_for_on_their_nodes_if_only_clients_are_pods(
    rook: Rook, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes = {"context": "test", "kubeconfig": str(rook.api.kubeconfig(rook.folder))}
    scene, unit = rook_scene(kubernetes, transport="ssh"), "unit osd.3 ceph-osd@3.service active"
    monkeypatch.setattr(scene.ceph.remote, "run", lambda nodes, *_, **__: {node: Result(unit, "", 0) for node in nodes})
    for manager, on_node, found in (("", False, "systemd"), ("", True, "systemd"), ("rook", False, "rook")):
        (service,) = service_managers.find_services(scene, [OSD3], manager, on_node)["node3"]
        assert service.manager == found


def test_daemons_of_nodes_that_are_pods_are_of_rook_behind_a_head_that_is_none(
    rook: Rook, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes = {"context": "test", "kubeconfig": str(rook.api.kubeconfig(rook.folder))}
    scene, unit = rook_scene(kubernetes, transport={"node3": "kubectl"}), "unit osd.4 ceph-osd@4.service active"
    monkeypatch.setattr(scene.ceph.remote, "run", lambda nodes, *_, **__: {node: Result(unit, "", 0) for node in nodes})
    services = service_managers.find_services(scene, [OSD3, OSD4])
    assert {node: service.manager for node, (service,) in services.items()} == {"node3": "rook", "node4": "systemd"}
    with pytest.raises(FaultError, match="the daemons run in pods"):
        service_managers.find_services(scene, [OSD3, OSD4], on_node=True)


def test_a_gateway_in_pods_is_gone_and_back_by_what_kubernetes_says(rook: Rook) -> None:
    """No port and no process of it is seen from outside."""
    (step,) = kinds.make("stop", {}).steps(rook.scene(), Targets((), (GATEWAY,), (str(GATEWAY),)))
    assert {place.node for place in (*step.inject, *step.undo, *step.took, *step.checks)} == {""}
    for commands, checks, running in ((step.inject, step.took, False), (step.undo, step.checks, True)):
        assert rook.do(commands).returncode == 0 and ("rook-ceph-rgw-my-store-a" in rook.running) == running
        for check in checks:
            done = subprocess.run(["sh", "-c", check.text], capture_output=True, text=True, timeout=120)
            assert check.differs(done.stdout) is None, done


def test_a_pod_that_is_deleted_is_made_anew(rook: Rook) -> None:
    scene, osd = rook.scene(), Targets((), (OSD3,), (str(OSD3),))
    before = rook.api.pods_of("rook-ceph-osd-3")
    for options in ({}, {"grace": 0.0}):
        (step,) = kinds.make("delete_pod", options).steps(scene, osd)
        perform(step.inject, step.took)
        perform(step.undo, step.checks)
        now = rook.api.pods_of("rook-ceph-osd-3")
        assert len(now) == 1 and now != before and "rook-ceph-osd-3" in rook.running
        before = now
    deletes = [row for row in rook.api.requests if row.startswith("DELETE")]
    assert len(deletes) == 2 and all("rook-ceph-osd-3" in row for row in deletes)
    assert all("/scale" not in row for row in rook.api.requests)


def test_the_uid_of_a_pod_is_no_shell_text(rook: Rook, tmp_path: Path) -> None:
    (name,) = rook.api.pods_of("rook-ceph-osd-3")
    for (_, pod_name), pod in rook.api.objects["pods"].items():
        if pod_name == name:
            pod["metadata"]["uid"] = f'"$(touch {tmp_path}/ran)"'
    (step,) = kinds.make("delete_pod", {}).steps(rook.scene(), Targets((), (OSD3,), (str(OSD3),)))
    assert reply_to(step.took[0]) == "there\n" and not (tmp_path / "ran").exists()


def test_a_node_is_cordoned_and_drained_until_the_undo(rook: Rook) -> None:
    """Pods of another cluster of Rook on this node stay."""
    rook.api.put("nodes", "node3", spec={})
    foreign, labels = "rook-ceph-osd-9", {"app": "rook-ceph-osd", "ceph-osd-id": "9"}
    rook.api.deployment(foreign, rook.workload(foreign), "node3", "rook-second", **labels)
    other = rook.api.pods_of("rook-ceph-osd-4") + rook.api.pods_of(foreign)
    scene, node = rook.scene(), Targets(("node3",), (OSD3,), ("node3",))
    (step,) = kinds.make("node_drain", {}).steps(scene, node)
    perform(step.inject, step.took)
    assert "rook-ceph-osd-3" not in rook.running
    assert rook.api.pods_of("rook-ceph-osd-4") + rook.api.pods_of(foreign) == other
    assert rook.api.objects["nodes"]["", "node3"]["spec"]["unschedulable"] is True
    with pytest.raises(FaultError, match="node3 is cordoned already: the undo would uncordon the node"):
        kinds.make("node_drain", {}).steps(scene, node)
    for _ in range(2):  # an undo may be repeated
        perform(step.undo, step.checks)
    assert "rook-ceph-osd-3" in rook.running
    assert not rook.api.objects["nodes"]["", "node3"]["spec"].get("unschedulable")


@pytest.mark.parametrize(
    ("kind", "target", "refused"),
    [
        ("delete_pod", Targets((), (OSD3,), ("osd.3",)), ("delete", "pods")),
        ("node_drain", Targets(("node3",), (OSD3,), ("node3",)), ("create", "pods/eviction")),
        ("node_drain", Targets(("node3",), (OSD3,), ("node3",)), ("patch", "nodes")),
    ],
)
def test_a_right_for_pods_and_nodes_that_is_missing_is_named(rook: Rook, kind: str, target: Any, refused: Any) -> None:
    rook.api.put("nodes", "node3", spec={})
    rook.api.refused["viewer"] = [refused]
    with pytest.raises(FaultError, match=f"no right to {refused[0]} {refused[1]}: "):
        kinds.make(kind, {}).steps(rook.scene(as_user="viewer"), target)
    assert all(row.startswith(("GET", "POST /viewer/apis/authorization")) for row in rook.api.requests)


def test_a_kind_that_acts_on_nodes_is_refused(rook: Rook) -> None:
    text = r": the daemons run in pods, but this kind of fault acts on nodes: use stop, out or mark"
    of_nodes = ("reboot", "partition", "loss", "rate", "delay", "pressure")
    for kind in ("replace", "pause", "network", "slow_disk", *of_nodes):
        fault = kinds.make(kind, {"method": "nft"} if kind == "network" else {})
        with pytest.raises(FaultError, match=text):
            fault.steps(rook.scene(), Targets(("node3",), (OSD3,), ("node3",)))
    mon = DaemonName("mon", "a")
    rook.api.deployment("rook-ceph-mon-a", Workload(list), "node5", app="rook-ceph-mon", ceph_daemon_id="a")
    scene = rook.scene()
    scene.facts.answers["mon metadata"].append({"name": "a", "hostname": "node5"})
    with pytest.raises(FaultError, match=text):
        kinds.make("failover", {}).steps(scene, Targets((), (mon,), ("mon.a",)))
    for kind in of_nodes:  # node5 has no OSDs
        with pytest.raises(FaultError, match=text):
            kinds.make(kind, {}).steps(rook.scene(), Targets(("node5",), (GATEWAY,), ("node5",)))
