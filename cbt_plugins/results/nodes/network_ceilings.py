"""The ceiling of the network for each phase, and what was measured: docs/MODELS.md derives it.

The model knows clients' data, copies and chunks; no recovery, no headers, no other traffic. Which node sends data to
which comes from what the archive recorded."""

from __future__ import annotations

import ipaddress
import math
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from urllib.parse import urlsplit

from cbt_plugins.ceph_df import DATA_POOL
from cbt_plugins.formatting import first_texts
from cbt_plugins.inventory import host_of, is_address, nodes_of, short_name
from cbt_plugins.journal import read_json
from cbt_plugins.models.network import CLUSTER, GET, PUBLIC, PUT, Layout, Nics, Weights, ceiling, usage
from cbt_plugins.models.pools import Redundancy, copies
from cbt_plugins.plan import split_op
from cbt_plugins.results.nodes.usage import Networks
from cbt_plugins.s3_operations import WRITES

_ERASURE = 3  # type of a pool in `ceph osd pool ls detail`


class Unknown(Exception):
    """The archive does not say it; the text is for the user."""


class Wiring:
    """The nodes of a run by its archive; the clients may differ from phase to phase."""

    def __init__(self, run: Path, endpoints: Sequence[str]) -> None:
        """Read it. Raises Unknown with what is missing."""
        self._folder = run / "cluster" / "before"
        try:
            self._read(run, endpoints)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise Unknown(f"cluster/before is not what Ceph's commands print ({type(e).__name__}: {e})") from e

    def _read(self, run: Path, endpoints: Sequence[str]) -> None:
        self._data_pool = self._own_data_pool(run) or DATA_POOL
        pool = self._pool()
        self.pool_name = str(pool["pool_name"])
        self.kept = self._redundancy(pool)
        self.fast_read = bool(pool.get("fast_read"))
        self.apart, root, device = self._rule(pool)
        self.osds = self._osds(root, device)
        self.cluster_network = Networks.of(run).has_own_cluster
        self.gateways = self._gateways(run, endpoints)

    def layout(self, clients: Weights) -> Layout:
        """Return the layout with these clients: node -> part of the load. Raises Unknown where no such one can be."""
        names = _distinct_names(clients)
        client_weights: Dict[str, float] = {}
        for client, weight in clients.items():
            node = self._node_of_host(names[client])
            client_weights[node] = client_weights.get(node, 0.0) + weight
        try:
            return Layout(
                self.osds, client_weights, self.gateways, self.kept, self.apart, self.cluster_network, self.fast_read
            )
        except ValueError as e:
            raise Unknown(f"pool {self.pool_name}: {e}") from e

    def text(self) -> str:
        """Return the layout in words."""
        shared = [node for node in self.gateways if node in self.osds]
        where = "on nodes of OSDs" if len(shared) == len(self.gateways) else f"{len(shared)} of them on nodes of OSDs"
        where = where if shared else "on nodes of their own"
        return (
            f"{self.pool_name} ({self.kept}) on {len(self.osds)} node{'s' if len(self.osds) > 1 else ''}, "
            f"{len(self.gateways)} node{'s' if len(self.gateways) > 1 else ''} with gateways, {where}"
        )

    def _json(self, name: str) -> Any:
        try:
            return read_json(self._folder / name)
        except (OSError, ValueError) as e:
            raise Unknown(f"cluster/before/{name} cannot be read") from e

    def _own_data_pool(self, run: Path) -> str:
        """Return the name of the pool that the run has made for its objects, "" for none."""
        try:
            key = (read_json(run / "plan.json").get("rgw") or {}).get("placement", {}).get("data")
            return str(read_json(run / "manifest.json")["pools"][key]["pool_name"]) if key else ""
        except (OSError, ValueError, KeyError):
            return ""

    def _pool(self) -> Mapping[str, Any]:
        pools = [pool for pool in self._json("pools.json") if str(pool.get("pool_name")).endswith(self._data_pool)]
        if len(pools) != 1:
            raise Unknown(f"{len(pools) or 'no'} pools end in {DATA_POOL}: which one has the objects is not known")
        data_pool: Mapping[str, Any] = pools[0]
        return data_pool

    def _redundancy(self, pool: Mapping[str, Any]) -> Redundancy:
        if pool.get("type") != _ERASURE:
            return copies(int(pool["size"]))
        profile = self._json("ec_profiles.json").get(pool.get("erasure_code_profile")) or {}
        if "k" not in profile:
            raise Unknown(f"the erasure code of {pool['pool_name']} is not in cluster/before/ec_profiles.json")
        return Redundancy(int(profile["k"]), int(pool["size"]) - int(profile["k"]))

    def _rule(self, pool: Mapping[str, Any]) -> Tuple[str, str, str]:
        """Return ("host" or "osd", where the rule begins, device class or "")."""
        rules = {rule["rule_id"]: rule for rule in self._json("crush_rules.json")}
        steps = (rules.get(pool.get("crush_rule")) or {}).get("steps") or []
        taken = [str(step["item_name"]) for step in steps if step["op"] == "take"]
        chosen = [str(step["type"]) for step in steps if step["op"].startswith("choose")]
        if not taken or not chosen:
            raise Unknown(f"the CRUSH rule of {pool['pool_name']} is not in cluster/before/crush_rules.json")
        root, _, device = taken[0].partition("~")
        # several choices may put two members on one node: on average as if on any OSDs
        return ("osd" if len(chosen) > 1 or chosen[0] == "osd" else "host"), root, device

    def _osds(self, root: str, device: str) -> Dict[str, int]:
        tree = {int(node["id"]): node for node in self._json("osd_tree.json")["nodes"]}
        top = next((number for number, node in tree.items() if node["name"] == root and node["type"] != "osd"), None)
        osd_counts: Dict[str, int] = {}
        for host, osd in self._below(tree, top, "") if top is not None else ():
            up = osd.get("status", "up") == "up" and osd.get("reweight", 1) > 0
            if up and (not device or osd.get("device_class") == device):
                osd_counts[short_name(host)] = osd_counts.get(short_name(host), 0) + 1
        if not osd_counts:
            raise Unknown("cluster/before/osd_tree.json has no OSDs for the pool")
        return osd_counts

    def _below(self, tree: Mapping[int, Any], item: int, host: str) -> Iterator[Tuple[str, Mapping[str, Any]]]:
        node = tree.get(item)
        if node is None:
            return
        if node["type"] == "osd":
            yield host or str(node["name"]), node
        for child in node.get("children") or ():
            yield from self._below(tree, child, str(node["name"]) if node["type"] == "host" else host)

    def _gateways(self, run: Path, endpoints: Sequence[str]) -> Dict[str, float]:
        hosts = [urlsplit(url).hostname or "" for url in endpoints]
        if not hosts or any(_loopback(host) for host in hosts):
            hosts = self._listed(run)  # a proxy on each client speaks to all of them
        names = _distinct_names(hosts)
        weights: Dict[str, float] = {}
        for host in hosts:
            node = self._node_of_host(names[host])
            weights[node] = weights.get(node, 0.0) + 1.0
        if not weights:
            raise Unknown("where the gateways run is not known: the archive's endpoints are proxies")
        return weights

    def _listed(self, run: Path) -> List[str]:
        """Return the nodes with gateways of the YAML."""
        try:
            cluster = read_json(run / "cluster.json")["cluster"]
            return list(nodes_of(cluster, "rgws"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def _node_of_host(self, host: str) -> str:
        """Return the node of OSDs that has this address; any other host as it is."""
        if host in self.osds or not is_address(host):
            return host
        return self._by_address().get(host, host)

    def _by_address(self) -> Dict[str, str]:
        try:
            osds = {int(osd["osd"]): osd for osd in self._json("osd_dump.json")["osds"]}
            tree = self._json("osd_tree.json")["nodes"]
        except (Unknown, KeyError, TypeError, ValueError):
            return {}
        node_of_address = {}
        for node in tree:
            for number in node.get("children") or () if node["type"] == "host" else ():
                public = str((osds.get(number) or {}).get("public_addr") or "")
                node_of_address[public.partition("/")[0].rpartition(":")[0].strip("[]")] = short_name(str(node["name"]))
        return node_of_address


def _distinct_names(hosts: Collection[str]) -> Dict[str, str]:
    """Return host -> its short name, or its whole name where another host has the same short name."""
    hosts_by_name: Dict[str, Set[str]] = {}
    for host in hosts:
        hosts_by_name.setdefault(short_name(host), set()).add(host_of(host))
    shared = {name for name, names in hosts_by_name.items() if len(names) > 1}
    return {host: host_of(host) if short_name(host) in shared else short_name(host) for host in hosts}


def _loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


__all__ = ["Unknown", "network_ceilings"]

_MIB = 1 << 20
#: operations whose bytes go the way of a PUT or of a GET
_READS = ("GET",)


def network_ceilings(run: Path, summary: Mapping[str, Any], nic: Optional[float] = None) -> Dict[str, Any]:
    """Return {"layout": text, "nics": text, "phases": {name: line}} of a run directory and its summary.

    `nic`: bytes/s of every node's interface; without it the speeds that `resources` of the summary has. A line:

        put_mib_s, get_mib_s      ceiling of PUTs alone and of GETs alone, sum of all clients; null: none
        put_measured, get_measured   MiB/s in the phase
        put_share, get_share      measured / ceiling, 0..1
        share                     of the fullest link by the measured PUTs and GETs, 0..1
        full                      {"node", "way", "network"}: that link; way is "sends" or "receives"

    Phases that moved no data are left out. Raises Unknown where the archive does not say enough.
    """
    wiring = Wiring(run, summary["environment"]["endpoints"])
    phases = [phase for phase in summary["phases"] if _rate(phase, WRITES) or _rate(phase, _READS)]
    if not phases:
        raise Unknown("no phase of the run has made load")
    layouts = {phase["name"]: wiring.layout(_clients(phase)) for phase in phases}
    nics = Nics(nic) if nic else _nics(summary, wiring.cluster_network, list(layouts.values()))
    lines = {phase["name"]: _line(phase, layouts[phase["name"]], nics) for phase in phases}
    return {"layout": wiring.text(), "nics": _nics_text(nics), "phases": lines}


def _line(phase: Mapping[str, Any], layout: Layout, nics: Nics) -> Dict[str, Any]:
    measured = {PUT: _rate(phase, WRITES), GET: _rate(phase, _READS)}
    line: Dict[str, Any] = {}
    for op in (PUT, GET):
        most = ceiling(layout, op, nics).bytes_per_s
        limit = None if math.isinf(most) else most
        name = op.lower()
        line[f"{name}_mib_s"] = None if limit is None else round(limit / _MIB, 4)
        line[f"{name}_measured"] = round(measured[op] / _MIB, 4)
        line[f"{name}_share"] = None if limit is None else round(measured[op] / limit, 6)
    share, link = usage(layout, measured, nics)
    line["share"] = round(share, 6)
    line["full"] = dict(zip(("node", "way", "network"), link)) if link else None
    return line


def _rate(phase: Mapping[str, Any], ops: Tuple[str, ...]) -> float:
    """Return bytes/s."""
    return sum(line.get("mib_per_s") or 0.0 for op, line in phase["ops"].items() if split_op(op)[1] in ops) * _MIB


def _clients(phase: Mapping[str, Any]) -> Dict[str, float]:
    """Return each client's part of the load: its workers."""
    weights: Dict[str, float] = {}
    for job in phase["jobs"]:
        weights[job["node"]] = weights.get(job["node"], 0.0) + max(1, job["workers"])
    return weights


def _nics(summary: Mapping[str, Any], own_cluster: bool, layouts: List[Layout]) -> Nics:
    """Return the speeds that the monitor of the nodes saw: on each side of a node of the interface that moved most."""
    best: Dict[str, Dict[str, Tuple[float, float]]] = {PUBLIC: {}, CLUSTER: {}}
    for phase in ((summary.get("resources") or {}).get("phases") or {}).values():
        for net in phase["interfaces"]:
            if not net["speed_mbit"]:
                continue
            # `side` of a node with RGWs is "client" for each interface; summaries of older versions have no other key
            in_cluster = net.get("in_cluster_network", net.get("side") == "cluster")
            if own_cluster and in_cluster is None:
                continue  # an interface without an address may carry either network
            network = CLUSTER if own_cluster and in_cluster else PUBLIC
            moved = (net["rx_mib_s"] or 0.0) + (net["tx_mib_s"] or 0.0), net["speed_mbit"] * 1e6 / 8
            for node in (short_name(net["node"]), host_of(net["node"])):
                best[network][node] = max(moved, best[network].get(node, moved))
    speeds = {network: {node: speed for node, (_, speed) in interfaces.items()} for network, interfaces in best.items()}
    nodes: Set[str] = {node for of in layouts for part in (of.osds, of.clients, of.gateways) for node in part}
    osds = {node for of in layouts for node in of.osds}
    unknown = sorted((nodes - set(speeds[PUBLIC])) | (osds - set(speeds[CLUSTER]) if own_cluster else set()))
    if unknown:
        raise Unknown(f"the speed of the network is not known of {first_texts(unknown, 5)}; --nic 25Gbit gives it")
    return Nics(speeds[PUBLIC], speeds[CLUSTER] if own_cluster else None)


def _nics_text(nics: Nics) -> str:
    if not isinstance(nics.public, Mapping):
        return f"{8 * nics.public / 1e9:g} Gbit/s as given"
    speeds = sorted(set(nics.public.values()))
    text = f"{8 * speeds[0] / 1e9:g}" + (f" to {8 * speeds[-1] / 1e9:g}" if len(speeds) > 1 else "")
    return f"{text} Gbit/s as seen on the nodes"
