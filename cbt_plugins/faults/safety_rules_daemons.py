"""Safety rules on daemons other than OSDs, and on the nodes that a run depends on.

Monitors, managers, metadata servers and gateways; the head and the clients.
"""

from __future__ import annotations

import re
from typing import Collection, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName, names
from cbt_plugins.faults.safety_case import FaultCase, Finding, one_of
from cbt_plugins.inventory import host_of, same_host

#: one monitor in `mon_host`: an IPv6 address in brackets, or any other host with or without a port
_MON_ENTRY = re.compile(r"\[?(?:v[12]:)?(?:\[([^\[\]]+)\]|([^\[\]/]+))")


def quorum(case: FaultCase) -> Iterator[Finding]:
    """Find monitors that would be left without a majority."""
    total = len(case.facts.answers["quorum_status"]["monmap"]["mons"])
    before, left = _monitors(case)
    case.numbers["monitors_left"] = len(left)
    if len(left) < len(before) and len(left) <= total // 2:
        text = f"{len(left)} of {total} monitors would be left, {total // 2 + 1} are needed for a quorum"
        yield Finding("quorum", text, {"left": len(left), "of": total})


def _monitors(case: FaultCase) -> Tuple[List[str], List[str]]:
    """Return the monitors in the quorum before the fault (without open faults' monitors), and those after it."""
    hosts = {m["name"]: m.get("hostname", m["name"]) for m in case.facts.answers["mon metadata"]}
    members = case.facts.answers["quorum_status"]["quorum_names"]
    # a dead monitor is still listed until its lease runs out
    before = [n for n in members if not _lost(n, hosts, case.nodes_gone, case.daemons_gone)]
    return before, [n for n in before if not _lost(n, hosts, case.taken.nodes, case.taken.daemons)]


def _lost(
    monitor: str, hosts: Mapping[str, str], nodes: Collection[str], daemons: Collection[DaemonName]
) -> bool:
    return DaemonName("mon", monitor) in daemons or one_of(hosts.get(monitor, monitor), nodes)


def mgr(case: FaultCase) -> Iterator[Finding]:
    """Check that a manager is left: only managers know the states of PGs."""
    hit, left = _daemons(case, "mgr")
    if hit and not left:
        many = len(case.facts.daemons("mgr"))
        text = f"0 of {many} managers would be left, and the states of PGs would be unknown; the fault takes away "
        yield Finding("mgr", text + names(hit), {"managers": [str(name) for name in hit], "of": many})


def mds(case: FaultCase) -> Iterator[Finding]:
    """Check that a metadata server is left."""
    hit, left = _daemons(case, "mds")
    if hit and not left:
        many = len(case.facts.daemons("mds"))
        text = f"0 of {many} metadata servers would be left; the fault takes away {names(hit)}"
        yield Finding("mds", text, {"servers": [str(name) for name in hit], "of": many})


def _daemons(case: FaultCase, type: str) -> Tuple[List[DaemonName], List[DaemonName]]:
    """Return the daemons of a type that the fault hits, and the daemons of the type that are left."""
    hosts = case.facts.daemons(type)
    before = [n for n in hosts if not (n in case.daemons_gone or one_of(hosts[n], case.nodes_gone))]
    hit = [n for n in before if n in case.taken.daemons or one_of(hosts[n], case.taken.nodes)]
    return hit, [n for n in before if n not in hit]


def head(case: FaultCase) -> Iterator[Finding]:
    """Check that the targets spare the leading machine, the head, and a monitor that the head can reach."""
    for node in (*case.taken.nodes, *case.taken.disturbed):
        if case.around.roles.own and same_host(case.around.roles.own, node):
            role = "the leading machine of this run"
        elif case.around.roles.is_on(case.around.roles.head, node):
            role = "the head, through which this run reaches the cluster"
        else:
            continue
        is_lost = node in case.taken.nodes
        harm = "the run could not undo the fault" if is_lost else "the fault would disturb the commands of this run"
        yield Finding("head", f"{node} is {role}: {harm}", {"node": node})
    before, left = (_known_to_head(case, monitors) for monitors in _monitors(case))
    if before and not left:
        monitors = ", ".join(f"mon.{name}" for name in before)
        listed = f"the ceph.conf of {case.around.roles.head} lists only {monitors}, which would be lost"
        text = f"{listed}: this run could not reach the cluster"
        yield Finding("head", text, {"monitors": before})


def unknown_way(case: FaultCase) -> Iterator[str]:
    """Warn of a fault on monitors if no host in the head's ceph.conf is known as a monitor: it may need a lost one."""
    hosts = _hosts_in(case.around.roles.mon_host)
    before, left = _monitors(case)
    if hosts and len(left) < len(before) and not _known_to_head(case, before):
        listed = f"the ceph.conf of {case.around.roles.head} lists {', '.join(hosts)}"
        yield f"{listed}, which no monitor has as name, host or address: the run may not reach a monitor that is left"


def _known_to_head(case: FaultCase, monitors: Collection[str]) -> List[str]:
    """Return the monitors that `mon_host` in the head's ceph.conf lists, by address, by name or by host."""
    named = []
    hosts = {m["name"]: str(m.get("hostname") or "") for m in case.facts.answers["mon metadata"]}
    for monitor in case.facts.answers["quorum_status"]["monmap"]["mons"]:
        vector = monitor.get("public_addrs", {}).get("addrvec") or [{"addr": monitor.get("addr", "")}]
        addresses = [str(entry["addr"]).rpartition(":")[0].strip("[]") for entry in vector]
        own_names = [name for name in (*addresses, str(monitor["name"]), hosts.get(monitor["name"], "")) if name]
        listed = _hosts_in(case.around.roles.mon_host)
        if monitor["name"] in monitors and any(one_of(host, own_names) for host in listed):
            named.append(str(monitor["name"]))
    return named


def _hosts_in(mon_host: str) -> List[str]:
    """Return the hosts of a `mon_host` such as "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] mon1.example:6789"."""
    entries = (_MON_ENTRY.match(entry) for entry in re.split(r"[\s,;]+", mon_host))
    return list(dict.fromkeys(host_of(entry[1] or entry[2]) for entry in entries if entry))


def client(case: FaultCase) -> Iterator[Finding]:
    """Check that no client is among the targets: its load would end, or would be disturbed itself."""
    clients, is_on = case.around.roles.clients, case.around.roles.is_on
    for harm, nodes in (("lost", case.taken.nodes), ("disturbed", case.taken.disturbed)):
        hit = [name for name in clients if any(is_on(name, node) for node in nodes)]
        if hit:
            of_clients = f"{len(hit)} of {len(clients)} clients would be {harm}, and the load of these clients"
            yield Finding("client", f"{of_clients}: {', '.join(hit)}", {"clients": hit, "of": len(clients)})


class _Gateways(NamedTuple):
    """Nodes with gateways: the nodes of `rgws`, or the hosts of the service map if there are no `rgws`."""

    total: int
    hit: List[str]
    left: List[str]  # with a running gateway by the service map, if the map has any of the nodes


def rgw(case: FaultCase) -> Iterator[Finding]:
    """Check that a RADOS gateway is left, and that at most one of several gateways of one name is gone."""
    nodes = _gateways(case)
    if nodes.hit and not nodes.left:
        left = f"0 of {nodes.total} nodes with RADOS gateways would be left"
        text = f"{left}; the fault takes away {', '.join(nodes.hit)}"
        yield Finding("rgw", text, {"gateways": nodes.hit, "of": nodes.total})
        return
    for name, node in _partners_of_stopped(case):
        text = f"an open fault has taken one of the gateways {name}; the fault takes away {node}, which has another one"
        yield Finding("rgw", text, {"gateways": [str(name)], "nodes": [node]})


def _partners_of_stopped(case: FaultCase) -> Iterator[Tuple[DaemonName, str]]:
    """Yield the nodes of the fault with a gateway of the same name as one that an open fault has taken.

    Which instance is gone is not in the service map, and for a minute the map still has it.
    """
    held = {name for fault in case.around.held for name in fault.taken.shared}
    rows = [row["metadata"] for row in case.facts.gateways.values()] if held else []
    instances = [(DaemonName("rgw", str(row.get("id"))), str(row.get("hostname") or "")) for row in rows]
    for name, host in dict.fromkeys(instances):
        if name in held and one_of(host, case.taken.nodes):
            yield name, host


def fewer_gateways(case: FaultCase) -> Iterator[str]:
    """Warn of gateways that would be down: their requests fail, although the cluster could serve them."""
    nodes = _gateways(case)
    if nodes.hit and nodes.left:
        lost = f"requests to {', '.join(nodes.hit)} would fail"
        yield f"{len(nodes.left)} of {nodes.total} nodes with RADOS gateways would be left; {lost}"
    if case.taken.shared:
        yield f"of several gateways, one would be down: {names(case.taken.shared)}; its requests in flight may fail"


def _gateways(case: FaultCase) -> _Gateways:
    is_on = case.around.roles.is_on
    hosts = case.facts.gateways_on_hosts()
    nodes = case.around.roles.gateways or sorted(hosts)
    shown = any(is_on(node, host) for node in nodes for host in hosts)

    def is_served(node: str, nodes_gone: Collection[str], stopped: Collection[DaemonName]) -> bool:
        if any(is_on(node, gone) for gone in nodes_gone):
            return False
        stay = (host for host, daemons in hosts.items() if not daemons <= {*stopped})
        return not shown or any(is_on(node, host) for host in stay)

    def stopped(faults: Sequence[BlastRadius]) -> Set[DaemonName]:
        """Return the names of which no gateway is left. A gateway of a lost node may have its name on another node."""
        lost_nodes = [node for taken in faults for node in taken.nodes]
        elsewhere = {name for host in hosts if not one_of(host, lost_nodes) for name in hosts[host]}
        spared = {taken: {*taken.shared, *(elsewhere if taken.nodes else ())} for taken in faults}
        return {name for taken in faults for name in taken.daemons if name not in spared[taken]}

    held = [fault.taken for fault in case.around.held if fault.missing(case.facts)]
    before = [node for node in nodes if is_served(node, case.nodes_gone, stopped(held))]
    left = [node for node in before if is_served(node, case.taken.nodes, stopped([*held, case.taken]))]
    return _Gateways(len(nodes), [node for node in before if node not in left], left)


def active_manager(case: FaultCase) -> Iterator[str]:
    """Warn of the active manager: until a standby has all reports, Ceph shows the last states of PGs."""
    hit, left = _daemons(case, "mgr")
    active = DaemonName("mgr", str(case.facts.answers["mgr stat"].get("active_name")))
    if left and active in hit:
        yield (
            f"{active} is the active manager: until a standby takes over, for up to a minute, Ceph shows the PG states "
            "from before the fault"
        )
