"""What the `resources` monitor wrote on one node, as counters on the head's clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.analysis.archive import json_lines
from cbt_plugins.analysis.counters import Counter

FOLDER = "resources."

# History of the format. A reader accepts every version up to its own.
#   1  (0.1.0) the first one
VERSION = 1


@dataclass
class Daemon:
    """One process of Ceph or of a load generator."""

    its: str  # "osd", "rgw", "mon", "mgr", "mds", "generator"
    id: str
    pid: int
    io: bool  # its counters of bytes could be read
    disks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of an OSD: "block", "block.db", "block.wal"
    used: Counter = field(default_factory=lambda: Counter(3))  # seconds of a processor, bytes read, bytes written
    at: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rss: np.ndarray = field(default_factory=lambda: np.zeros(0))  # KiB
    threads: np.ndarray = field(default_factory=lambda: np.zeros(0))
    busiest: List[Tuple[float, str, float]] = field(default_factory=list)  # time, thread, share of a core


@dataclass
class Disk:
    """A whole disk. Counters: reads, bytes, ms, writes, bytes, ms, busy ms, weighted ms."""

    name: str
    rotational: Optional[bool] = None
    used: Counter = field(default_factory=lambda: Counter(8))


@dataclass
class Interface:
    """Counters: bytes in, packets in, drops in, bytes out, packets out, drops out."""

    name: str
    speed: Optional[int] = None  # Mbit/s
    addresses: Sequence[str] = ()  # "10.0.0.1/24"
    master: Optional[str] = None
    used: Counter = field(default_factory=lambda: Counter(6))


@dataclass
class Node:
    """All of one node."""

    name: str
    source: str = "resources"  # or "collectl"
    interval: float = 1.0
    cpus: int = 0
    boot: str = ""  # the same on all nodes of one machine
    booted: float = 0.0  # of collectl only, which does not know `boot`: epoch seconds, and what else tells a machine
    kind: str = ""
    processes: str = ""  # the same where the same processes are seen
    network: str = ""
    whole: Counter = field(default_factory=lambda: Counter(2))  # seconds of processors: busy, waiting for a disk
    monitor: Counter = field(default_factory=lambda: Counter(1))  # seconds that the monitor itself used
    daemons: List[Daemon] = field(default_factory=list)
    disks: Dict[str, Disk] = field(default_factory=dict)
    interfaces: Dict[str, Interface] = field(default_factory=dict)
    gaps: List[Dict[str, Any]] = field(default_factory=list)  # {"t": its end, "seconds", "why"}


def read_node(path: Path, name: str, offset: float = 0.0) -> Optional[Node]:
    """A file of the monitor; None when there is nothing in it. `offset` is the node's clock minus the head's."""
    node = Node(name)
    lines: List[Mapping[str, Any]] = []
    for line in [*json_lines(path), {"version": 0}]:
        if "version" not in line:
            lines.append(line)
            continue
        if lines and 0 < lines[0].get("version", 0) <= VERSION:
            _connection(node, lines, offset)
        lines = [line]
    return node if node.whole.known((-np.inf, np.inf))[0] > 0 else None


def _connection(node: Node, lines: Sequence[Mapping[str, Any]], offset: float) -> None:
    """The lines of one connection, the first of which says who writes."""
    about = lines[0]
    node.interval = max(float(about["interval"]), node.interval if node.boot else 0.0)
    node.cpus, node.boot = int(about["cpus"]), str(about.get("boot") or node.name)
    node.processes, node.network = (f"{node.boot} {about.get(key) or node.name}" for key in ("pidns", "netns"))
    names: Dict[str, Dict[str, Any]] = {"d": {}, "k": {}, "n": {}}
    samples = []
    for line in lines[1:]:
        for kind, its in (line.get("names") or {}).items():
            names[kind].update(its)
        if "s" in line:
            samples.append(line)
        if line.get("gap"):
            node.gaps.append({"t": float(line["t"]) - offset, "seconds": line["gap"][0], "why": line["gap"][1]})
    if not samples:
        return
    hz = float(about["hz"])
    times = np.array([float(line["t"]) - offset for line in samples])
    edges = np.concatenate(([times[0] - float(samples[0]["s"])], times))
    ticks = np.array([line["c"] for line in samples], float) / hz
    # user, nice, system, irq, softirq, steal: what a daemon could not have had
    node.whole.add(edges[0], times, np.column_stack((ticks[:, [0, 1, 2, 5, 6, 7]].sum(axis=1), ticks[:, 4])))
    for index, (at, rows) in _rows(samples, "d", 6).items():
        _daemon(node, names["d"].get(index), edges, at, rows, hz, offset)
    for index, (at, rows) in _rows(samples, "k", 9).items():
        disk = names["k"].get(index)
        if disk:
            its = node.disks.setdefault(disk["name"], Disk(disk["name"], disk.get("rotational")))
            _spread(its.used, edges, at, rows[:, 1:] * (1, 512, 1, 1, 512, 1, 1, 1))
    for index, (at, rows) in _rows(samples, "n", 7).items():
        net = names["n"].get(index)
        if net:
            made = Interface(net["name"], net.get("speed"), net.get("addresses") or (), net.get("master"))
            _spread(node.interfaces.setdefault(made.name, made).used, edges, at, rows[:, 1:])
    for line in samples:
        for index, shares in (line.get("threads") or {}).items():
            for daemon in node.daemons:
                if shares and daemon.pid == (names["d"].get(index) or {}).get("pid"):
                    daemon.busiest.append((float(line["t"]) - offset, shares[0][0], shares[0][1]))


def _rows(samples: Sequence[Mapping[str, Any]], kind: str, width: int) -> Dict[str, Tuple[np.ndarray, np.ndarray]]:
    """{index: (numbers of the samples, their rows)} of one kind."""
    lists = [line.get(kind) or [] for line in samples]
    rows = np.array([row for its in lists for row in its if len(row) == width], float).reshape(-1, width)
    at = np.repeat(np.arange(len(lists)), [sum(len(row) == width for row in its) for its in lists])
    return {str(int(index)): (at[rows[:, 0] == index], rows[rows[:, 0] == index]) for index in np.unique(rows[:, 0])}


def _spread(counter: Counter, edges: np.ndarray, at: np.ndarray, rises: np.ndarray) -> None:
    """Add rises of some samples; in the others nothing rose."""
    every = np.zeros((len(edges) - 1, rises.shape[1]))
    every[at] = rises
    counter.add(edges[0], edges[1:], every)


def _daemon(
    node: Node, about: Any, edges: np.ndarray, at: np.ndarray, rows: np.ndarray, hz: float, offset: float
) -> None:
    if not about:
        return
    used = rows[:, [1, 4, 5]] / (hz, 1, 1)
    times = edges[at + 1]
    # what it used before it was found is told with the first sample after
    begin = edges[at[0]]
    if edges[0] < float(about["since"]) - offset < begin:
        begin = float(about["since"]) - offset
    if about["class"] == "monitor":
        node.monitor.add(begin, times, used[:, :1])
        return
    made = Daemon(about["class"], str(about["id"]), int(about["pid"]), bool(about["io"]), about.get("disks") or {})
    made.used.add(begin, times, used)
    made.at, made.rss, made.threads = times, rows[:, 2], rows[:, 3]
    node.daemons.append(made)
