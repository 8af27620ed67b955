"""OSDs and RGWs of the cluster that a monitor did not watch, although it watched others: sums are too small then.

So it is on Rook where a node of the file is one pod of a Kubernetes node with several, also one after the other, and
where the file lacks nodes.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Collection, Dict, Iterable, List, Sequence, Set
from urllib.parse import urlsplit

from cbt_plugins.formatting import several
from cbt_plugins.inventory import short_name
from cbt_plugins.journal import read_json
from cbt_plugins.results.nodes.node_samples import NodeSamples

_SHOWN = 5


def osds_of_moved_nodes(nodes: Iterable[NodeSamples]) -> List[str]:
    """Return the OSDs that were watched in turn: "osd.3". A label may be another pod after a fault.

    Two pods of a deployment, one after the other, have the same OSD. OSDs of a node that has not moved are watched.
    """
    osds_of_nodes: Dict[str, Dict[str, Set[str]]] = {}
    for node in nodes:
        for daemon in node.daemons:
            if daemon.daemon_class == "osd":
                osds_of_pods = osds_of_nodes.setdefault(node.name, {})
                osds_of_pods.setdefault(daemon.namespace, set()).add(f"osd.{daemon.id}")
    moved: Set[str] = set()
    watched: Set[str] = set()
    for osds_of_pods in osds_of_nodes.values():
        has_moved = any(first.isdisjoint(second) for first, second in combinations(osds_of_pods.values(), 2))
        (moved if has_moved else watched).update(*osds_of_pods.values())
    return sorted(moved - watched)


def unwatched_osds(run: Path, daemons: Collection[str]) -> List[str]:
    """Return the OSDs that were up before the run and are not among the daemons: "osd.3"; [] where no daemon is one."""
    if not any(daemon.startswith("osd.") for daemon in daemons):
        return []
    try:
        tree = read_json(run / "cluster" / "before" / "osd_tree.json")["nodes"]
        up = [f"osd.{int(osd['id'])}" for osd in tree if osd["type"] == "osd" and osd.get("status") == "up"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
    return [osd for osd in up if osd not in daemons]


def unwatched_gateways(run: Path, urls: Iterable[str], daemons: Collection[str]) -> int:
    """Return how many RGWs of the load are not among the daemons, by number; 0 where no daemon is an RGW.

    The service map before the run has the RGWs. Those on hosts of the endpoints count; all, where an endpoint has
    another host: it may be a proxy.
    """
    watched = sum(daemon.startswith("rgw.") for daemon in daemons)
    if not watched:
        return 0
    hosts_of_ids: Dict[str, Set[str]] = {}  # an RGW that was restarted is there twice for a minute
    try:
        services = read_json(run / "cluster" / "before" / "status.json")["servicemap"]["services"]
        for key, row in services["rgw"]["daemons"].items():
            if isinstance(row, dict):
                about, address = row.get("metadata") or {}, str(row.get("addr", "")).partition("/")[0]
                hosts = {short_name(str(about.get("hostname"))), address.rpartition(":")[0].strip("[]")}
                hosts_of_ids.setdefault(str(about.get("id", key)), set()).update(hosts)
        endpoints = {short_name(urlsplit(url).hostname or "") for url in urls}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return 0
    used = [hosts for hosts in hosts_of_ids.values() if hosts & endpoints]
    has_proxies = bool(endpoints - {host for hosts in used for host in hosts})
    return max(0, len(hosts_of_ids if has_proxies else used) - watched)


def unwatched_text(monitor: str, osds: Sequence[str], effect: str) -> str:
    """Return the warning about unwatched OSDs; `effect`: on the numbers."""
    return f"{monitor} did not watch {several(len(osds), 'OSD')} of the cluster, so {effect}: {first_names(osds)}"


def first_names(daemons: Sequence[str]) -> str:
    """Return some names of daemons, for a warning."""
    return ", ".join([*daemons[:_SHOWN], *(["..."] if len(daemons) > _SHOWN else [])])
