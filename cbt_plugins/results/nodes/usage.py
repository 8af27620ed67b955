"""One line for each daemon, disk and interface: what it did within a window."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from cbt_plugins.journal import read_json, read_text
from cbt_plugins.results.nodes.node_samples import DaemonSamples, NodeSamples

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class Networks:
    """Empty where the configuration does not say."""

    public: Tuple[Network, ...] = ()
    cluster: Tuple[Network, ...] = ()

    @classmethod
    def of(cls, run: Path) -> Networks:
        """Return the networks of a run from cluster/before; ceph.conf wins over the monitors' database, as in Ceph."""
        folder = run / "cluster" / "before"
        sections: Dict[str, Dict[str, str]] = {"mon": {}, "global": {}, "osd": {}}
        try:
            for option in read_json(folder / "config_dump.json"):
                if option.get("section") in sections:
                    sections[option["section"]][str(option["name"])] = str(option["value"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
        sections["mon"].pop("cluster_network", None)  # monitors do not use it
        # cephadm stores public_network for monitors only
        options = {**sections["mon"], **sections["global"], **sections["osd"]}
        try:
            conf = read_text(folder / "ceph.conf")
        except OSError:
            conf = ""
        for name in ("public", "cluster"):
            match = re.search(rf"^\s*{name}[_ ]network\s*=\s*(.+?)\s*$", conf, re.MULTILINE)
            if match:
                options[f"{name}_network"] = match.group(1)
        return cls(*(cls.parse(options.get(f"{name}_network", "")) for name in ("public", "cluster")))

    @staticmethod
    def parse(text: str) -> Tuple[Network, ...]:
        """Return the networks between commas or blanks; what is none is left out."""
        networks: List[Network] = []
        for word in re.split(r"[,\s;]+", text):
            with contextlib.suppress(ValueError):
                networks.append(ipaddress.ip_network(word, strict=False))
        return tuple(networks)

    @property
    def has_own_cluster(self) -> bool:
        """Whether OSDs replicate through a network that is not the public one."""
        return bool(self.cluster) and set(self.cluster) != set(self.public)

    def side(self, addresses: Sequence[str], roles: Sequence[str]) -> Optional[str]:
        """Return "client" or "cluster": what mostly goes through an interface with these addresses on such a node.

        A node with clients or RGWs talks to clients. A node of OSDs replicates through the interfaces in the cluster
        network, or without an address; without an own cluster network, through any interface. None: the node has none
        of these roles.
        """
        if "client" in roles or "rgw" in roles:
            return "client"
        if "osd" not in roles:
            return None
        if self.has_own_cluster and self.in_cluster(addresses, roles) is False:
            return "client"
        return "cluster"

    def in_cluster(self, addresses: Sequence[str], roles: Sequence[str]) -> Optional[bool]:
        """Return whether one of the addresses is in the cluster network.

        None: not known, of an interface without an address on a node of OSDs: a VLAN or a bridge above it may have one.
        """
        if not addresses and "osd" in roles:
            return None
        return _in(addresses, self.cluster)


def _in(addresses: Sequence[str], networks: Sequence[Network]) -> bool:
    ips = [ipaddress.ip_interface(address).ip for address in addresses]
    return any(ip in network for ip in ips for network in networks)


#: points of a series
POINTS = 2000
CLASSES = ("osd", "rgw", "mon", "mgr", "mds", "generator")
#: seconds between two looks at threads, in files of version 1
LOOK = 10.0
#: seconds by which the start of a process may differ from one connection to the next
SAME_START = 3.0
MIB = float(1 << 20)


class UsageGrid:
    """The window in at most POINTS bins."""

    def __init__(self, window: Tuple[float, float], interval: float) -> None:
        self.begin, self.end = window
        length = self.end - self.begin
        self.length = length
        self.step = max(1, math.ceil(interval), math.ceil(length / POINTS))
        self.edges = np.append(np.arange(math.ceil(length / self.step)) * float(self.step) + self.begin, self.end)

    @staticmethod
    def rounded_values(curve: np.ndarray) -> List[Optional[float]]:
        return [None if math.isnan(value) else round(float(value), 4) for value in curve]


def roles_at(node: NodeSamples, roles: Mapping[str, Sequence[str]]) -> List[str]:
    """Return the roles of a node: what the file says, and what runs there."""
    classes = {"generator": "client"}
    seen = [classes.get(daemon.daemon_class, daemon.daemon_class) for daemon in node.daemons]
    return list(dict.fromkeys([*roles.get(node.name, ()), *seen]))


def process_of(daemon: DaemonSamples) -> Tuple[str, str, str, int]:
    """Return the key of a process: that of its daemon, whose processes belong together; of a generator, its own."""
    return (daemon.namespace, daemon.daemon_class, daemon.id, daemon.pid if daemon.daemon_class == "generator" else 0)


def daemons(node: NodeSamples, grid: UsageGrid) -> Iterator[Tuple[Dict[str, Any], np.ndarray]]:
    """Yield each daemon's line, and its cores in the bins (nan where nobody watched)."""
    watched = node.processors.watched_seconds(grid.edges)
    seconds = node.processors.watched_seconds((grid.begin, grid.end))[0]
    for daemon, processes in _by_id(node, grid):
        used = np.sum([process.used.rise(grid.begin, grid.end) for process in processes], axis=0)
        rises = np.sum([process.used.rises(grid.edges)[:, 0] for process in processes], axis=0)
        # a bin that nobody saw half of says nothing
        with np.errstate(divide="ignore", invalid="ignore"):
            curve = np.where(watched >= np.diff(grid.edges) / 2, rises / watched, np.nan)
        rss = np.concatenate([_inside(process.at, process.rss, grid) for process in processes])
        newest = processes[-1]
        io = [process.io for process in processes]
        yield (
            {
                "node": node.name,
                "class": daemon.daemon_class,
                "id": daemon.id,
                "pid": newest.pid,
                "restarts": sum(map(_is_restart, processes, processes[1:])),
                "cores": rounded(used[0] / seconds),
                "peak": rounded(highest(curve)),
                "rss_mib": rounded(float(rss.mean()) / 1024) if len(rss) else None,
                "rss_max_mib": rounded(float(rss.max()) / 1024) if len(rss) else None,
                "read_mib_s": rounded(used[1] / seconds / MIB) if all(io) else None,
                "write_mib_s": rounded(used[2] / seconds / MIB) if all(io) else None,
                "threads": int(newest.threads[-1]) if len(newest.threads) else None,
                "thread": _thread(processes, node, grid),
                "throttled": _throttled(processes, grid) if node.looks else None,
                **_memory_limit(processes, grid),
                "oom_kills": _oom_kills(processes, node, grid) if node.oom_kills else None,
            },
            curve,
        )


def _is_restart(before: DaemonSamples, process: DaemonSamples) -> bool:
    """Return whether two are not one process: in a new pod, the daemon may have the same pid and the same namespace."""
    return before.pid != process.pid or abs(before.since - process.since) > SAME_START


def _throttled(processes: Sequence[DaemonSamples], grid: UsageGrid) -> float:
    """Return the share of the periods of its cgroup's CPU limit in which it had to wait; 0.0 without a limit."""
    periods = [(n, of) for process in processes for t, of, n in process.throttled if grid.begin < t <= grid.end]
    return rounded(sum(n for n, _ in periods) / max(1, sum(of for _, of in periods))) or 0.0


def _memory_limit(processes: Sequence[DaemonSamples], grid: UsageGrid) -> Dict[str, Optional[float]]:
    """Return the highest share of the memory limit of its cgroup in use, and that limit; None without a limit."""
    looks = [look for process in processes for look in process.memory if grid.begin < look.t <= grid.end and look.limit]
    highest_look = max(looks, key=lambda look: look.used / look.limit, default=None)
    return {
        "memory_limit_mib": rounded(highest_look.limit / 1024) if highest_look else None,
        "memory_share": rounded(highest_look.used / highest_look.limit) if highest_look else None,
    }


def _oom_kills(processes: Sequence[DaemonSamples], node: NodeSamples, grid: UsageGrid) -> int:
    """Return the OOM kills in its cgroup; of a cgroup that ended with it, the kills of the machine at that time.

    A pod ends with its daemon, and with it the monitor there: the next monitor sees what its machine has counted.
    """
    counted = sum(look.kills for process in processes for look in process.memory if grid.begin < look.t <= grid.end)
    ends = [
        float(process.at[-1])
        for process in processes
        # a look behind its end is of a cgroup that is still there
        if _has_ended(process, node) and not any(look.t > process.at[-1] for look in process.memory)
    ]
    return counted + sum(grid.begin < end <= grid.end and node.has_kill_at(end) for end in ends)


def _has_ended(process: DaemonSamples, node: NodeSamples) -> bool:
    """Return whether no later samples of the node are of the same process."""
    return all(
        process_of(daemon) != process_of(process) or _is_restart(process, daemon) or daemon.at[-1] <= process.at[-1]
        for daemon in node.daemons
    )


def _thread(processes: Sequence[DaemonSamples], node: NodeSamples, grid: UsageGrid) -> Optional[Dict[str, Any]]:
    """Return the thread that was most often the busiest, and its share of a core; other looks count as 0."""
    looks: Dict[str, List[float]] = {}
    lasted = {t: seconds for t, seconds in node.looks if grid.begin < t <= grid.end}
    for process in processes:
        for t, name, share in process.busiest:
            if grid.begin < t <= grid.end:
                looks.setdefault(name, []).append(share * lasted.get(t, 1.0))
    if not looks:
        return None
    name = max(looks, key=lambda name: sum(looks[name]))
    if lasted:
        return {"name": name, "share": rounded(sum(looks[name]) / sum(lasted.values()))}
    # the first look only shows where a thread begins
    possible = math.floor(grid.length / max(LOOK, node.interval)) - 1
    return {"name": name, "share": rounded(sum(looks[name]) / max(possible, sum(map(len, looks.values()))))}


def _by_id(node: NodeSamples, grid: UsageGrid) -> Iterator[Tuple[DaemonSamples, List[DaemonSamples]]]:
    """Yield the processes of each daemon of Ceph together, and each process of a generator alone."""
    processes_of_daemon: Dict[Tuple[str, str, int], List[DaemonSamples]] = {}
    for daemon in node.daemons:
        if daemon.daemon_class in CLASSES and daemon.used.meets(grid.begin, grid.end):
            processes_of_daemon.setdefault(process_of(daemon)[1:], []).append(daemon)
    for processes in processes_of_daemon.values():
        processes.sort(key=lambda process: process.at[0])
        yield processes[0], processes


def _inside(at: np.ndarray, values: np.ndarray, grid: UsageGrid) -> np.ndarray:
    inside: np.ndarray = values[(at > grid.begin) & (at <= grid.end)]
    return inside


def highest(curve: np.ndarray) -> float:
    values = curve[~np.isnan(curve)]
    return float(values.max()) if len(values) else 0.0


def numbered(text: str) -> Tuple[int, str]:
    """Return a sort key: osd.2 before osd.10."""
    return (int(text), "") if text.isdigit() else (0, text)


def rounded(value: Optional[float]) -> Optional[float]:
    """Return a number with four digits behind the point, or as many as a small number needs."""
    if value is None:
        return None
    return round(float(value), 4) if abs(value) >= 0.1 else float(f"{float(value):.3g}")
