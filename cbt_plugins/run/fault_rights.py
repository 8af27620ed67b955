"""Conditions of Kubernetes for the faults of a plan: a run looks at all of them before its first request."""

from __future__ import annotations

import logging
from typing import Dict, List, Optional

from cbt_plugins.cluster.kubernetes import Kubernetes, KubernetesError
from cbt_plugins.config.fault import changes_in_kubernetes, stops_gateways
from cbt_plugins.config.fault_spans import Span, fault_spans
from cbt_plugins.faults.kubernetes_rights import GATEWAY, gateways_share_a_name, missing_rights
from cbt_plugins.run.context import RunContext

log = logging.getLogger(__name__)


def errors_of_rights(run: RunContext) -> List[str]:
    """Return the rights in Kubernetes that the user lacks for faults of the plan, and kinds that pods do not allow.

    Faults that the run skips when they are refused give warnings instead.
    """
    by_object = _spans_by_object(run)
    kubernetes = run.ceph.kubernetes if by_object else None
    if kubernetes is None:
        return []
    errors: List[str] = []
    for changed, spans in by_object.items():
        if changed is None:
            kinds = " and ".join(sorted({span.fault.kind for span in spans}))
            texts = [f"the daemons run in pods, and {kinds} cannot hit these: use stop, out or mark"]
        else:
            texts = _missing(kubernetes, changed)
        required = ", ".join(span.fault.label for span in spans if not span.optional)
        skipped = ", ".join(span.fault.label for span in spans if span.optional)
        errors += [f"{required}: {text}" for text in texts if required]
        for text in texts if skipped else ():
            log.warning("%s: will be skipped: %s", skipped, text)
    return errors


def _missing(kubernetes: Kubernetes, changed: str) -> List[str]:
    try:
        is_needed = changed != GATEWAY or gateways_share_a_name(kubernetes)
    except KubernetesError as error:
        return [str(error)]
    return list(missing_rights(kubernetes, changed)) if is_needed else []


def _spans_by_object(run: RunContext) -> Dict[Optional[str], List[Span]]:
    """Return the faults that change something in Kubernetes, by `Kind.changes_in_kubernetes` or `GATEWAY`."""
    by_object: Dict[Optional[str], List[Span]] = {}
    for span in fault_spans(run.plan):
        changed = changes_in_kubernetes(span.fault, bool(run.ceph.in_pods))
        may_hit = changed is None and run.ceph.head not in run.ceph.in_pods  # daemons that are in no pods
        if changed != "" and not may_hit:
            by_object.setdefault(changed, []).append(span)
            if stops_gateways(span.fault):
                by_object.setdefault(GATEWAY, []).append(span)
    return by_object
