"""OSDs and RGWs of the cluster that a monitor did not watch, although it watched others: sums are too small then.

So it is on Rook where a node of the file is one pod of a Kubernetes node with several, also one after the other, and
where the file lacks nodes.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Collection, Dict, Iterable, List, Sequence, Set, Tuple
from urllib.parse import urlsplit

from cbt_plugins.formatting import several
from cbt_plugins.inventory import short_name
from cbt_plugins.journal import json_lines, read_json
from cbt_plugins.results.nodes.node_samples import NodeSamples

_SHOWN = 5
#: seconds for which the service map keeps an RGW that has ended
_KEPT = 60.0


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


def unwatched_gateways(run: Path, urls: Iterable[str], nodes: Iterable[NodeSamples]) -> int:
    """Return how many RGWs of the load were not watched on the nodes; 0 where no RGW was watched.

    The service map before the run has the RGWs. Those on hosts of the endpoints count; all, where an endpoint has
    another host: it may be a proxy. RGWs on several hosts may have the same ID; one that has just begun may have moved
    from another host. A watched RGW whose ID is not in the service map may be any of them.
    """
    daemons = {(node.name, daemon.id) for node in nodes for daemon in node.daemons if daemon.daemon_class == "rgw"}
    if not daemons:
        return 0
    hosts_of_gateways: Dict[Tuple[str, str], Set[str]] = {}  # an RGW that was restarted is there twice for a minute
    begin_of_gateways: Dict[Tuple[str, str], float] = {}
    try:
        services = read_json(run / "cluster" / "before" / "status.json")["servicemap"]["services"]
        for key, row in services["rgw"]["daemons"].items():
            if isinstance(row, dict):
                about, address = row.get("metadata") or {}, str(row.get("addr", "")).partition("/")[0]
                ip = address.rpartition(":")[0].strip("[]")
                host = short_name(str(about.get("hostname") or ip))
                gateway = str(about.get("id", key)), host
                hosts_of_gateways.setdefault(gateway, {host}).add(ip)
                begin = _seconds(str(row.get("start_stamp")))
                begin_of_gateways[gateway] = min(begin, begin_of_gateways.get(gateway, begin))
        endpoints = {short_name(urlsplit(url).hostname or "") for url in urls}
        events = json_lines(run / "events.jsonl")
        begin_of_run = next((float(line["t"]) for line in events if line.get("event") == "run-begun"), inf)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return 0
    used = {gateway: hosts for gateway, hosts in hosts_of_gateways.items() if hosts & endpoints}
    has_proxies = bool(endpoints - {host for hosts in used.values() for host in hosts})
    counted = hosts_of_gateways if has_proxies else used
    idle = hosts_of_gateways.keys() - counted.keys()
    # the name of an entity is client.rgw.ID or client.ID; the service map has the ID alone
    watched_gateways = [(name.removeprefix("rgw."), node) for node, name in daemons]
    watched = Counter(name for name, node in watched_gateways if (name, short_name(node)) not in idle)
    gateways = Counter(name for name, _ in counted)
    new = Counter(gateway[0] for gateway in counted if begin_of_gateways[gateway] > begin_of_run - _KEPT)
    moved = Counter({name: min(number, gateways[name] - number) for name, number in new.items()})
    unwatched = gateways - moved - watched
    unknown = set(watched) - {name for name, _ in hosts_of_gateways}
    return max(0, sum(unwatched.values()) - sum(watched[name] for name in unknown))


def _seconds(stamp: str) -> float:
    try:
        return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    except ValueError:  # of releases before Octopus
        return 0.0


def unwatched_text(monitor: str, osds: Sequence[str], effect: str) -> str:
    """Return the warning about unwatched OSDs; `effect`: on the numbers."""
    return f"{monitor} did not watch {several(len(osds), 'OSD')} of the cluster, so {effect}: {first_names(osds)}"


def first_names(daemons: Sequence[str]) -> str:
    """Return some names of daemons, for a warning."""
    return ", ".join([*daemons[:_SHOWN], *(["..."] if len(daemons) > _SHOWN else [])])
