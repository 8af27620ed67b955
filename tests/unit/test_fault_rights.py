"""Rights for the faults of a plan, which a run asks for before its first request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Sequence, cast

import pytest
from run_context import context

from cbt_plugins.cluster.kubernetes import Kubernetes
from cbt_plugins.plan import S3, Driver, Event, Fault, Goal, Phase, Plan
from cbt_plugins.run import preflight
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.fault_rights import errors_of_rights

#: of a user who may do all but scale deployments, evict pods and patch pods
_KUBECTL = """#!/bin/sh
echo "$*" >> "${0%/*}/asked"
case $* in
*"patch deployments --subresource=scale"* | *"create pods --subresource=eviction"*) echo no; exit 1 ;;
*"patch pods"*) echo no; exit 1 ;;
*"auth can-i"*) echo yes ;;
*"get deployments -l app=rook-ceph-rgw"*) cat "${0%/*}/gateways" ;;
*) exit 2 ;;
esac
"""
_DRIVERS = (Driver("01", "c1", ("b",), 8),)
_FILL = Phase("fill", "fill", goal=Goal(objects=9), engine="cbt-load")
_LOAD = Phase("load", "hybrid", duration=60.0, mix={"GET": 100.0}, engine="cbt-load")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the questions to a stand-in of kubectl."""
    (tmp_path / "kubectl").write_text(_KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "asked"


def run_with(
    *kinds: str, optional: bool = False, manager: str = "", in_pods: Sequence[str] = ("node0",), **section: str
) -> RunContext:
    """A run of a fill, then of a phase with a fault of each kind, labelled a, b, ..."""
    options = {"service_manager": manager} if manager else {}
    faults = [Fault(label, kind, ("osd.3",), options=options) for label, kind in zip("abc", kinds)]
    events = tuple(Event(30.0, inject=fault, optional=optional) for fault in faults)
    plan = Plan("warp", S3(urls=("http://a",)), (), _DRIVERS, (_FILL, replace(_LOAD, events=events)))
    kubernetes = Kubernetes({"context": "test", **section}) if section else None
    host = cast(Any, SimpleNamespace(cluster={"head": "node0"}, run_dir="/nowhere"))
    ceph = SimpleNamespace(kubernetes=kubernetes, head="node0", in_pods=in_pods)
    return context(plan=plan, cbt_run=host, ceph=ceph)


def test_each_right_that_is_missing_names_its_faults_its_verb_and_its_resource(asked: Path) -> None:
    errors = errors_of_rights(run_with("stop", "node_drain", "read_errors", namespace="rook-ceph"))
    can_i = "kubectl --context=test --namespace=rook-ceph --request-timeout=30s auth can-i"
    assert errors == [
        f"a, c: no right to patch deployments/scale: {can_i} patch deployments --subresource=scale: exit status 1",
        f"b: no right to create pods/eviction: {can_i} create pods --subresource=eviction: exit status 1",
    ]
    assert len(asked.read_text().splitlines()) == 8, "each right is asked for once"


@pytest.mark.parametrize("right", ["get nodes", "list pods --all-namespaces"])
def test_a_drain_needs_its_rights_outside_of_the_namespace(asked: Path, right: str) -> None:
    """The drain reads the node, and `kubectl drain` lists the pods of all namespaces."""
    kubectl = asked.with_name("kubectl")
    kubectl.write_text(f'#!/bin/sh\ncase $* in *"{right}"*) echo no; exit 1 ;; esac; echo yes\n')
    (error,) = errors_of_rights(run_with("node_drain", namespace="rook-ceph"))
    assert error.startswith("a: no right to ") and f"auth can-i {right}" in error


def test_the_namespace_of_the_operator_is_asked_too(asked: Path) -> None:
    errors = errors_of_rights(run_with("stop", namespace="rook-ceph", operator_namespace="operators"))
    assert [error.split("--namespace=")[1].split()[0] for error in errors] == ["rook-ceph", "operators"]


@pytest.mark.parametrize("kind", ["delete_pod", "node_drain"])
def test_the_operator_is_not_changed_by_faults_of_pods(asked: Path, kind: str) -> None:
    errors_of_rights(run_with(kind, namespace="rook-ceph", operator_namespace="operators"))
    assert "--namespace=rook-ceph" in asked.read_text() and "operators" not in asked.read_text()


@pytest.mark.parametrize("gateways", [1, 2])
def test_the_pod_of_one_of_several_gateways_is_patched(asked: Path, gateways: int) -> None:
    """Its deletion cost chooses the pod; a single gateway has no choice, and OSDs do not have one either."""
    asked.with_name("gateways").write_text(json.dumps({"items": [{"spec": {"replicas": gateways}}]}))
    run = run_with("stop", namespace="rook-ceph")
    for target, missing in (("osd.3", 1), ("rgw.my.store.a", gateways)):
        events = (Event(30.0, inject=Fault("a", "stop", (target,))),)
        phases = (replace(run.plan.phases[1], events=events),)
        errors = errors_of_rights(replace(run, plan=replace(run.plan, phases=phases)))
        assert len(errors) == missing and "patch deployments/scale" in errors[0]
        assert not errors[1:] or errors[1].startswith("a: no right to patch pods: kubectl ")


def test_a_fault_that_may_be_skipped_is_no_error(asked: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert errors_of_rights(run_with("stop", optional=True, namespace="rook-ceph")) == []
    assert "a: will be skipped: no right to patch deployments/scale: " in caplog.text


_OF_NODES = ("crash", "pause", "network", "slow_disk", "replace", "reboot", "partition", "loss", "rate", "delay")


@pytest.mark.parametrize("kind", [*_OF_NODES, "power", "pressure", "maintenance"])
def test_a_kind_that_pods_do_not_allow_is_refused_before_the_fill(asked: Path, kind: str) -> None:
    (error,) = errors_of_rights(run_with("out", kind, namespace="rook-ceph"))
    assert error == f"b: the daemons run in pods, and {kind} cannot hit these: use stop, out or mark"
    assert not asked.exists() and errors_of_rights(run_with(kind)) == []


def test_daemons_of_another_service_manager_are_not_in_pods(asked: Path) -> None:
    run = run_with("stop", "pause", namespace="rook-ceph", manager="process")
    assert errors_of_rights(run) == [] and not asked.exists()


def test_daemons_are_not_in_pods_if_only_clients_are(asked: Path) -> None:
    run = run_with("stop", "pause", "delete_pod", namespace="rook-ceph", in_pods=())
    assert errors_of_rights(run) == []
    assert [line.partition("can-i ")[2] for line in asked.read_text().splitlines()] == ["list pods", "delete pods"]
    assert errors_of_rights(run_with("stop", namespace="rook-ceph", in_pods=(), manager="rook"))


@pytest.mark.parametrize("run", [run_with("out", namespace="rook-ceph"), run_with("stop"), run_with()])
def test_a_run_that_changes_nothing_in_kubernetes_asks_for_no_right(asked: Path, run: RunContext) -> None:
    assert errors_of_rights(run) == [] and not asked.exists()


def test_the_first_check_of_a_run_names_the_rights_of_a_later_phase(
    asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is in the phase after the fill; nothing was copied to a node, and no request was made."""
    for name in ("_facts", "offsets", "authority_of", "s3_keys", "owners_of"):
        monkeypatch.setattr(preflight, name, lambda *_: {})
    for name in ("python_errors", "_scratch_errors", "keys_of_users", "token_errors", "errors_of_endpoints"):
        monkeypatch.setattr(preflight, name, lambda *_: [])
    copied: List[Any] = []
    monkeypatch.setattr(preflight, "deploy", copied.append)
    run = run_with("stop", namespace="rook-ceph")
    with pytest.raises(preflight.PreflightError, match="a: no right to patch deployments/scale: kubectl"):
        preflight.check(replace(run, plan=replace(run.plan, admin=False)))
    assert copied == []
