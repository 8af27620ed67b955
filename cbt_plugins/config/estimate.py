"""How many placement groups would serve no client while nodes are down: by counting, without the cluster."""

from __future__ import annotations

from typing import List, Mapping, Sequence, Tuple

from cbt_plugins.config.spans import spans
from cbt_plugins.inventory import nodes_of
from cbt_plugins.models.pools import failed_domains, inactive_share
from cbt_plugins.plan import Fault, Plan

#: what pools of RGW data look like most often: (name, size, min_size)
_POOLS = (("3 copies, min_size 2", 3, 2), ("EC 2+2, min_size 3", 4, 3), ("EC 4+2, min_size 5", 6, 5))
#: its OSDs serve on while their data goes elsewhere
_SERVES_ON = "out"


def estimate(plan: Plan, cluster: Mapping[str, object]) -> Tuple[str, ...]:
    """Return what the YAML alone tells of the plan's faults, and what it does not; nothing without faults."""
    together: List[Sequence[Fault]] = [
        [fault for fault in (*span.beside, span.fault) if fault.kind != _SERVES_ON] for span in spans(plan)
    ]
    if not together:
        return ()
    most = max(together, key=lambda faults: (sum(map(_nodes, faults)), sum(map(_osds, faults))))
    nodes, osds = sum(map(_nodes, most)), sum(map(_osds, most))
    total = len(nodes_of(cluster, "osds"))
    lines = []
    if nodes:
        labels = ", ".join(fault.label for fault in most if _nodes(fault))
        single = f", and {osds} single OSD{'s' if osds > 1 else ''}" if osds else ""
        lines.append(f"{nodes} of {total} OSD nodes{single} down at once ({labels}); PGs that serve no client then,")
        lines.append(f"were hosts the failure domain: {'; '.join(_shares(nodes, total)) or 'too few nodes to tell'}")
    elif osds:
        lines.append(f"{osds} single OSD{'s' if osds > 1 else ''} down at once")
    lines.append("unknown here: pools, failure domains, OSDs of each node, monitors, space; --live asks the cluster")
    return tuple(lines)


def _nodes(fault: Fault) -> int:
    return sum(not target.startswith("osd.") for target in fault.targets) + (
        fault.choose if fault.choose_of == "node" else 0
    )


def _osds(fault: Fault) -> int:
    return sum(target.startswith("osd.") for target in fault.targets) + (
        fault.choose if fault.choose_of == "osd" else 0
    )


def _shares(down: int, total: int) -> List[str]:
    domains = failed_domains(down, total)
    return [
        f"{100 * inactive_share(domains, size, least):.1f}% of a pool with {name}"
        for name, size, least in _POOLS
        if size <= total
    ]
