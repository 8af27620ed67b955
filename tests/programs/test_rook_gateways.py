"""One of several gateways that Rook runs under one name: it is stopped, drained or deleted, and no other one."""

from __future__ import annotations

import itertools
import subprocess
from typing import Dict, List

import pytest
from kube_api import Workload
from rook_daemons import Rook
from rook_scene import GATEWAY, OPERATOR, perform, reply_to
from waiting import wait_for

from cbt_plugins.faults import kind as kinds
from cbt_plugins.faults.node_shell import fired
from cbt_plugins.faults.rook_gateways import DELETION_COST
from cbt_plugins.faults.scene import Targets
from cbt_plugins.faults.step import FaultError

STORE = "rook-ceph-rgw-my-store-a"
LOWEST = "-2147483648"
TARGETS = Targets((), (GATEWAY,), (str(GATEWAY),))


def two_gateways(rook: Rook) -> List[str]:
    """Give the store another gateway, on node6; return the pods, the older first."""

    rook.running.add("another")
    started, ended = (lambda: rook.running.add("another")), (lambda: rook.running.discard("another"))
    rook.api.add_replica(STORE, "node6", Workload(list, started, ended))
    return rook.api.pods_of(STORE)


def costs(rook: Rook) -> Dict[str, str]:
    """Return pod -> its deletion cost."""
    by_pod = {name: rook.api.objects["pods"][rook.api.namespace, name] for name in rook.api.pods_of(STORE)}
    annotations = {name: pod["metadata"]["annotations"] for name, pod in by_pod.items()}
    return {name: values[DELETION_COST] for name, values in annotations.items() if DELETION_COST in values}


@pytest.mark.parametrize(("name", "options"), [("stop", {}), ("drain", {"off": "true", "on": "true"})])
def test_of_several_gateways_one_stops(rook: Rook, name: str, options: Dict[str, str]) -> None:
    """The one on the node, although Kubernetes would rather end the younger pod; the operator goes first."""
    first, second = two_gateways(rook)
    rook.keep_evicted_pod(first)
    kind = kinds.make(name, options)
    (step,) = kind.steps(rook.scene(), TARGETS)
    assert step.node == "node5" and f":{first}:" in step.inject[-1].text
    assert kind.blast_radius(rook.scene(), TARGETS).shared == (GATEWAY,)
    rook.api.requests.clear()
    perform(step.inject, step.took)
    assert STORE not in rook.running and "another" in rook.running
    assert rook.api.pods_of(STORE) == [second] and (rook.api.replicas(STORE), rook.api.replicas(OPERATOR)) == (1, 0)
    changes = [row.partition("?")[0].split("/")[-2:] for row in rook.api.requests if row.startswith("PATCH")]
    assert changes.index([OPERATOR, "scale"]) < changes.index(["pods", first]) < changes.index([STORE, "scale"])
    for _ in range(2):  # an undo may be repeated
        perform(step.undo, step.checks)
    assert {STORE, "another"} < rook.running and not costs(rook)
    assert (rook.api.replicas(STORE), rook.api.replicas(OPERATOR)) == (2, 1)


@pytest.mark.long
def test_a_stop_of_one_gateway_that_was_cut_short_is_undone(rook: Rook) -> None:
    """Whatever it had changed; each pod that is left has its own deletion cost again, or none."""
    two_gateways(rook)
    log, seen = rook.folder / "calls", []
    for calls in itertools.count(1):
        pods, cost = rook.api.pods_of(STORE), {DELETION_COST: "7"} if calls % 2 else {}
        for pod in pods:
            annotations = rook.api.objects["pods"][rook.api.namespace, pod]["metadata"]["annotations"]
            annotations.pop(DELETION_COST, None)
            annotations.update(cost)
        (step,) = kinds.make("stop", {}).steps(rook.scene(), TARGETS)
        log.write_text("")
        count = f"echo >>{log}; [ $(wc -l <{log}) -le {calls} ] || {{ kill -9 $$; exit 1; }}"
        program = f'kubectl() {{ {count}; command kubectl "$@"; }}\n{step.inject[0].text}'
        cut = subprocess.run(["sh", "-c", program], capture_output=True, timeout=120)
        seen.append((LOWEST in costs(rook).values(), rook.api.replicas(STORE)))
        perform(step.undo, step.checks)
        wait_for(lambda: len(rook.api.pods_of(STORE)) == 2 and OPERATOR in rook.running, "the pods")
        left = set(pods) & set(rook.api.pods_of(STORE))
        assert {pod: value for pod, value in costs(rook).items() if pod in pods} == {
            pod: value for pod in left for value in cost.values()
        }, calls
        if cut.returncode == 0:
            break
        assert cut.returncode == -9
    assert {(False, 2), (True, 2), (False, 1)} <= set(seen), seen


def test_a_gateway_that_kubernetes_would_not_end_is_not_stopped(rook: Rook) -> None:
    first, second = two_gateways(rook)
    rook.keep_evicted_pod(first)
    pods = rook.api.objects["pods"]
    ready = pods[rook.api.namespace, second]["status"]["conditions"][0]
    ready["status"] = "False"
    with pytest.raises(FaultError, match=r"rgw\.my\.store\.a: 1 of 2 gateways of this name are ready, and Kubernetes"):
        kinds.make("stop", {}).steps(rook.scene(), TARGETS)
    ready["status"] = "True"
    (step,) = kinds.make("stop", {}).steps(rook.scene(), TARGETS)
    pods[rook.api.namespace, second]["metadata"]["annotations"][DELETION_COST] = LOWEST
    done = rook.do(step.inject)
    assert (done.returncode, done.stderr) == (1, f"Kubernetes has ended another pod than {first}\n")
    perform(step.undo, step.checks)
    assert first in rook.api.pods_of(STORE) and len(rook.api.pods_of(STORE)) == 2
    rook.deployment(STORE)["status"]["availableReplicas"] = 1
    done = rook.do(step.inject)
    assert done.returncode == 1 and f"{STORE} has fewer than 2 available pods" in done.stderr
    assert rook.api.replicas(STORE) == 2 and not costs(rook)


def test_a_gateway_that_the_operator_starts_again_is_noticed(rook: Rook) -> None:
    two_gateways(rook)
    (step,) = kinds.make("stop", {}).steps(rook.scene(), TARGETS)
    perform(step.inject, step.took)
    rook.deployment(OPERATOR)["spec"]["replicas"] = 1
    rook.api.scaled(rook.deployment(OPERATOR), 0)
    wait_for(lambda: len(rook.api.pods_of(STORE)) == 2, "the operator's work")
    done = rook.do(step.undo)
    assert (fired(done.stdout) or 0) < 60
    assert (done.returncode, done.stderr) == (0, f"deployment {STORE} was scaled back to 2 during the fault\n")


def test_a_stop_of_one_gateway_needs_a_right_for_its_pod(rook: Rook) -> None:
    rook.api.refused["viewer"] = [("patch", "pods")]
    assert kinds.make("stop", {}).steps(rook.scene(as_user="viewer"), TARGETS)
    two_gateways(rook)
    with pytest.raises(FaultError, match="no right to patch pods: "):
        kinds.make("stop", {}).steps(rook.scene(as_user="viewer"), TARGETS)


def test_of_several_gateways_one_pod_is_deleted(rook: Rook) -> None:
    first, second = two_gateways(rook)
    rook.keep_evicted_pod(first)
    namespace, pods = rook.api.namespace, rook.api.objects["pods"]
    kind = kinds.make("delete_pod", {})
    (step,) = kind.steps(rook.scene(), TARGETS)
    assert reply_to(step.took[0]) == "there\n"
    assert kind.blast_radius(rook.scene(), TARGETS).shared == (GATEWAY,)
    perform(step.inject, step.took)
    assert (namespace, second) in pods and (namespace, first) not in pods
    wait_for(lambda: len(rook.api.pods_of(STORE)) == 2, "another pod")
    for name in rook.api.pods_of(STORE):
        pods[namespace, name]["spec"]["nodeName"] = "node6"
    with pytest.raises(FaultError, match=r"rgw\.my\.store\.a: no pod on node5 has the labels app=rook-ceph-rgw,"):
        kinds.make("delete_pod", {}).steps(rook.scene(), TARGETS)
    pods[namespace, second]["spec"]["nodeName"] = "node5.example.com"
    (step,) = kinds.make("delete_pod", {}).steps(rook.scene(), TARGETS)
    assert f" pods {second} " in step.inject[0].text
