"""The usage of one node in a window: small, so that the samples of only some nodes are in memory at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from cbt_plugins.results.nodes.cpu_time_per_request import cpu_seconds
from cbt_plugins.results.nodes.node_samples import DaemonSamples, DiskSamples, NodeSamples
from cbt_plugins.results.nodes.usage import MIB, Networks, UsageGrid, daemons, process_of, roles_at, rounded

#: part of an OSD -> ids of the OSDs whose part it is
OsdsOfDisk = Dict[str, List[str]]


class DiskUsage(NamedTuple):
    """What a disk did."""

    active: bool  # it did something
    line: Dict[str, Any]  # without its OSDs, which other nodes of the machine may have


class NodeUsage(NamedTuple):
    """What one node did in a window."""

    node: NodeSamples  # with its machine of the window
    interval: float  # seconds: the longest interval of the nodes for which the bins are
    line: Dict[str, Any]  # of the node, but its machine and the cores of its daemons
    daemons: List[Tuple[Dict[str, Any], np.ndarray]]  # of each its line, and its cores in the bins
    threads: Dict[str, np.ndarray]  # class of daemons -> seconds of a processor: (bins, GROUPS)
    disks: Dict[str, DiskUsage]  # those of its machine
    osds: Dict[str, OsdsOfDisk]  # disk -> OSDs of the node
    interfaces: List[Dict[str, Any]]


def usages_of(
    nodes: Sequence[NodeSamples],
    window: Tuple[float, float],
    interval: float,
    roles: Mapping[str, Sequence[str]],
    networks: Networks,
) -> List[NodeUsage]:
    """Return the usage of each node; what another node watched too must be among them.

    `interval` is the longest one of all nodes in the window.
    """
    nodes = [node.in_window(window) for node in nodes]
    grid = UsageGrid(window, interval)
    return [
        NodeUsage(
            node,
            interval,
            _line(node, grid, roles),
            list(daemons(alone, grid)),
            cpu_seconds(alone, window, interval),
            dict(_disks(node, grid)),
            _osds(alone, grid),
            list(_interfaces(node, grid, roles, networks)),
        )
        for node, alone in zip(nodes, _without_doubles(nodes, window))
    ]


def without_samples(node: NodeSamples) -> NodeSamples:
    """Return the node and its daemons without what they did."""
    return NodeSamples(
        *(node.name, node.source, node.interval, node.cpus, node.boot, node.booted, node.kind, node.network),
        daemons=[DaemonSamples(d.daemon_class, d.id, d.pid, d.io, namespace=d.namespace) for d in node.daemons],
        clock=node.clock,
        damage=node.damage,
        machines=node.machines,
    )


def _without_doubles(nodes: Sequence[NodeSamples], window: Tuple[float, float]) -> List[NodeSamples]:
    """Return the nodes, each process on one of them: two names may be one machine, or one pod for a part of the run.

    A process is on the node that watched its daemon for the longest time of the window.
    """
    node_of_process: Dict[Tuple[str, str, str, int], Tuple[float, NodeSamples]] = {}
    for node in nodes:
        watched: Dict[Tuple[str, str], float] = {}
        for daemon in node.daemons:
            key = (daemon.daemon_class, daemon.id)
            watched[key] = watched.get(key, 0.0) + float(daemon.used.watched_seconds(window)[0])
        for daemon in node.daemons:
            seconds = watched[daemon.daemon_class, daemon.id]
            if seconds > node_of_process.get(process_of(daemon), (-1.0, node))[0]:
                node_of_process[process_of(daemon)] = (seconds, node)
    return [
        replace(node, daemons=[daemon for daemon in node.daemons if node_of_process[process_of(daemon)][1] is node])
        for node in nodes
    ]


def _line(node: NodeSamples, grid: UsageGrid, roles: Mapping[str, Sequence[str]]) -> Dict[str, Any]:
    seconds = node.processors.watched_seconds((grid.begin, grid.end))[0]
    busy, waiting = node.processors.rise(grid.begin, grid.end) / seconds
    host = [sample for sample in node.host if grid.begin < sample[0] <= grid.end]
    return {
        "node": node.name,
        "machine": node.name,
        "roles": roles_at(node, roles),
        "load": rounded(sum(sample[1] for sample in host) / len(host)) if host else None,
        "available_mib": rounded(min(sample[2] for sample in host) / 1024) if host else None,
        "swapped_mib": rounded(sum(sample[3] for sample in host) / 2**20) if host else None,
        "cpus": node.cpus,
        # its clock and that of the ticks are not one
        "busy": rounded(min(1.0, busy / node.cpus)) if node.cpus else None,
        "io_wait": rounded(waiting / node.cpus) if node.cpus else None,
        "cores": {},
        "monitor_cores": rounded(node.monitor.rise(grid.begin, grid.end)[0] / seconds),
        "watched": round(min(1.0, seconds / grid.length), 4),
    }


def _disks(node: NodeSamples, grid: UsageGrid) -> Iterator[Tuple[str, DiskUsage]]:
    """Yield the disks that were watched."""
    for name, disk in node.disks.items():
        seconds = disk.used.watched_seconds((grid.begin, grid.end))[0]
        if seconds:
            yield name, _disk(disk, seconds, grid)


def _disk(disk: DiskSamples, seconds: float, grid: UsageGrid) -> DiskUsage:
    reads, read, read_ms, writes, written, write_ms, busy_ms, weighted = disk.used.rise(grid.begin, grid.end)
    line: Dict[str, Any] = {
        "node": None,
        "device": disk.name,
        "rotational": disk.rotational,
        # its busy time is counted in ms, and read a little after the clock
        "util": rounded(min(1.0, busy_ms / 1000 / seconds)),
        "queue": rounded(weighted / 1000 / seconds),
        "read_mib_s": rounded(read / seconds / MIB),
        "write_mib_s": rounded(written / seconds / MIB),
        "reads_s": rounded(reads / seconds),
        "writes_s": rounded(writes / seconds),
        "read_ms": rounded(read_ms / reads) if reads else None,
        "write_ms": rounded(write_ms / writes) if writes else None,
        "osd": None,
        "osds": {},
    }
    return DiskUsage(bool(reads or writes), line)


def _osds(node: NodeSamples, grid: UsageGrid) -> Dict[str, OsdsOfDisk]:
    """Return disk -> its OSDs, of the processes of the window: a new OSD may be on another disk."""
    osds_of_disk: Dict[str, OsdsOfDisk] = {}
    for daemon in node.daemons:
        for part, disks in daemon.disks.items() if daemon.used.meets(grid.begin, grid.end) else ():
            for disk in disks:
                osds = osds_of_disk.setdefault(disk, {}).setdefault(part, [])
                if daemon.id not in osds:
                    osds.append(daemon.id)
    return osds_of_disk


def _interfaces(
    node: NodeSamples, grid: UsageGrid, roles: Mapping[str, Sequence[str]], networks: Networks
) -> Iterator[Dict[str, Any]]:
    """Yield interfaces that moved something; not those below a bond."""
    roles_of_node = roles_at(node, roles)
    for name, net in node.interfaces.items():
        above = node.interfaces.get(net.master or "")
        seconds = net.used.watched_seconds((grid.begin, grid.end))[0]
        received, _, drops_in, sent, _, drops_out = net.used.rise(grid.begin, grid.end)
        if not seconds or not (received or sent) or (above is not None and above.speed):
            continue
        used = max(received, sent) * 8 / seconds / 1e6
        addresses = net.addresses or (above.addresses if above is not None else ())
        yield {
            "node": node.name,
            "name": name,
            "rx_mib_s": rounded(received / seconds / MIB),
            "tx_mib_s": rounded(sent / seconds / MIB),
            "speed_mbit": net.speed,
            "util": rounded(used / net.speed) if net.speed else None,
            "drops": int(drops_in + drops_out),
            "side": networks.side(addresses, roles_of_node),
            "in_cluster_network": networks.in_cluster(addresses, roles_of_node),
        }
