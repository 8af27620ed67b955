"""Rights for the faults of a plan: a run asks for all of them before its first request."""

from __future__ import annotations

import logging
from typing import Dict, List

from cbt_plugins.config.fault import kind_class
from cbt_plugins.config.fault_spans import Span, fault_spans
from cbt_plugins.faults.kubernetes_rights import missing_rights
from cbt_plugins.run.context import RunContext

log = logging.getLogger(__name__)


def errors_of_rights(run: RunContext) -> List[str]:
    """Return the rights in Kubernetes that the faults of the plan need and the user of the context lacks.

    Faults that the run skips when they are refused give warnings instead.
    """
    by_object: Dict[str, List[Span]] = {}
    for span in fault_spans(run.plan):
        changed = kind_class(span.fault.kind).changes_in_kubernetes
        if changed:
            by_object.setdefault(changed, []).append(span)
    errors: List[str] = []
    for changed, spans in by_object.items():
        if run.ceph.kubernetes is None:
            break
        required = ", ".join(span.fault.label for span in spans if not span.optional)
        skipped = ", ".join(span.fault.label for span in spans if span.optional)
        for text in missing_rights(run.ceph.kubernetes, changed):
            errors += [f"{required}: {text}"] if required else []
            if skipped:
                log.warning("%s: will be skipped: %s", skipped, text)
    return errors
