"""Pods of Rook's daemons that Kubernetes deletes, and Kubernetes nodes that are drained of them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, List, Optional, Sequence, Tuple

from pydantic import Field

from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.faults import daemon_effects
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, names
from cbt_plugins.faults.kind import Kind, KindOptions, Seconds
from cbt_plugins.faults.rook_gateways import gateway_pods
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import ROOK, Service
from cbt_plugins.faults.step import Check, Command, FaultError, Step
from cbt_plugins.plan import DAEMON_TYPES

#: the apps of the daemons that the kinds know; a drain moves or stops them
_APPS = f"app in ({','.join(f'rook-ceph-{type}' for type in DAEMON_TYPES)})"
#: seconds that kubectl tries to evict pods, less than the limit of the command
_MARGIN = 20.0


def _kubernetes(scene: Scene, kind: str) -> Kubernetes:
    if scene.ceph.kubernetes is None:
        raise FaultError(f"{kind} needs cluster: kubernetes: {{context: NAME}}")
    return scene.ceph.kubernetes


def _find(scene: Scene, kubernetes: Kubernetes, daemons: Sequence[DaemonName], changed: str) -> List[Service]:
    try:
        return list(ROOK.find_deployments(scene, kubernetes, daemons, changed).values())
    except KubernetesError as error:
        raise FaultError(str(error)) from error


class DeletePod(Kind):
    """Deletes the pods of Rook's daemons; Kubernetes makes new pods at once."""

    lasts = False
    daemon_types = DAEMON_TYPES
    changes_in_kubernetes = "pod"

    class Options(KindOptions):
        """How a pod ends."""

        grace: Optional[Seconds] = Field(
            None, description="Grace period; `0s` kills. Default: the grace period of the pod."
        )

    options: Options
    _shared: Tuple[DaemonName, ...] = ()  # set by `steps`

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        kubernetes = _kubernetes(scene, "delete_pod")
        services = _find(scene, kubernetes, targets.daemons, "pod")
        return [self._step(scene, kubernetes, service) for service in services]

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        return replace(super().blast_radius(scene, targets), shared=self._shared)

    def _step(self, scene: Scene, kubernetes: Kubernetes, service: Service) -> Step:
        selector = service.unit.rpartition(":")[2]
        chosen = ["-l", selector]
        try:
            if service.instances > 1:
                of_name = gateway_pods(kubernetes, service)
                pods, chosen = [of_name.chosen], [of_name.name]
                self._shared += (service.name,) if of_name.ready > 1 else ()
            else:
                pods = kubernetes.get("pods", "-l", selector)["items"]
        except KubernetesError as error:
            raise FaultError(str(error)) from error
        uids = [str(pod["metadata"]["uid"]) for pod in pods]
        if not uids:
            raise FaultError(f"{service.name}: no pod on {service.node} has the labels {selector}")
        grace = self.options.grace
        ends = [] if grace is None else [f"--grace-period={grace:.0f}", *(["--force"] if grace < 1 else [])]
        delete = shlex.join([*kubernetes.words(), "delete", "pods", *chosen, "--wait=false", *ends])
        get = ["get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.uid}"]
        shown = shlex.join([*kubernetes.words(), *get])
        patterns = "|".join(f"*{shlex.quote(f' {uid} ')}*" for uid in uids)
        text = f'u=$({shown}) || exit; case " $u " in {patterns}) echo there ;; *) echo gone ;; esac'
        osds = [int(service.name.id)] if service.name.type == "osd" else []
        return Step(
            what=f"delete the pod of {service.name} on {service.node}",
            node=service.node,
            inject=(Command("", delete, scene.limits.quick),),
            undo=scene.mark_in(osds),
            checks=daemon_effects.checks_back(scene, [service]),
            took=(Check("", text, (((), "gone"),), scene.limits.down), *([scene.osds_went_down(osds)] if osds else [])),
            former={**scene.former(osds), "pods": uids, "unit": service.unit},
            daemons=(str(service.name),),
        )


class NodeDrain(Kind):
    """Cordons Kubernetes nodes and evicts the pods of Rook's daemons (`kubectl drain`); the undo uncordons the nodes.

    OSDs stay down until the undo. A mon, mgr or RGW may run on another node afterwards; so may the last MDS, but the
    safety rules count this MDS as down. An already cordoned node is refused.
    """

    takes = "node"
    daemon_types = DAEMON_TYPES
    changes_in_kubernetes = "node"

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        kubernetes = _kubernetes(scene, "node_drain")
        return [self._step(scene, kubernetes, node) for node in targets.nodes]

    def _step(self, scene: Scene, kubernetes: Kubernetes, node: str) -> Step:
        services = _find(scene, kubernetes, scene.daemons_on(node), "node")
        try:
            spec: Any = kubernetes.get("node", node).get("spec") or {}
        except KubernetesError as error:
            raise FaultError(f"{error}: node_drain takes nodes by their names in Kubernetes") from error
        if spec.get("unschedulable"):
            raise FaultError(f"{node} is cordoned already: the undo would uncordon the node")
        limits, kubectl = scene.limits, kubernetes.words()
        osds = [int(service.name.id) for service in services if service.name.type == "osd"]
        stay = [service for service in services if service.name.type == "osd"]
        # kubectl takes pods of all namespaces; Rook gives pods this label (AppLabels in pkg/operator/ceph/controller)
        chosen = f"--pod-selector={_APPS},rook_cluster={kubernetes.namespace}"
        drain = ["drain", node, chosen, "--ignore-daemonsets", "--delete-emptydir-data"]
        drain.append(f"--timeout={limits.slow - _MARGIN:.0f}s")
        cordoned = shlex.join([*kubectl, "get", "node", node, "-o", "jsonpath={.spec.unschedulable}"])
        return Step(
            what=f"drain {node} of {names(service.name for service in services)}",
            node=node,
            inject=(Command("", shlex.join([*kubectl, *drain]), limits.slow),),
            undo=(Command("", shlex.join([*kubectl, "uncordon", node]), limits.quick), *scene.mark_in(osds)),
            checks=(Check("", cordoned, (((), ""),), limits.quick), *daemon_effects.checks_back(scene, services)),
            took=(Check("", cordoned, (((), "true"),), limits.quick), *daemon_effects.checks_down(scene, stay)),
            former={**scene.former(osds), "units": [service.unit for service in services]},
            daemons=tuple(str(service.name) for service in services),
        )
