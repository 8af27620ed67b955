"""Writes what the resources monitor would, one sample a second of known rates; the numbers of a phase from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.usage import Networks

T0 = 1_700_000_000.0
ROLES = {"n1": ["osd"], "n2": ["osd"], "r1": ["rgw"], "c1": ["client"]}
OSDS = [("osd", "1", 0.5, 400), ("osd", "2", 0.25, 500)]


@dataclass
class Made:
    """A node. Rates are per second; `daemons` are (class, id, cores, MiB resident) or with (.., begin, end) of life."""

    daemons: Sequence[Tuple[Any, ...]] = ()
    cpus: int = 8
    busy: float = 0.0  # share
    disks: Mapping[str, Tuple[float, float, float]] = field(default_factory=dict)  # util, MiB/s read, MiB/s written
    osd_disks: Mapping[str, Mapping[str, List[str]]] = field(default_factory=dict)
    nets: Mapping[str, Tuple[float, float]] = field(default_factory=dict)  # MiB/s in, MiB/s out
    speed: Optional[int] = 10000
    addresses: Sequence[str] = ()
    boot: Optional[str] = None
    pidns: str = "pid:[1]"
    rotational: bool = True
    threads: Mapping[int, Sequence[Any]] = field(default_factory=dict)  # index of a daemon -> [name, share]


def write(folder: Path, name: str, node: Made, seconds: int = 20, begin: float = T0, offset: float = 0.0) -> Path:
    """A file in folder/resources.NAME; the node's clock is `offset` ahead of the run's."""
    path = folder / f"resources.{name}" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"version": 1, "t": begin + offset, "node": name, "interval": 1.0, "cpus": node.cpus, "hz": 100}
    about.update({"boot": node.boot or name, "pidns": node.pidns, "netns": f"net:[{name}]", "user": 0})
    lines: List[Dict[str, Any]] = [about]
    named: Dict[str, Dict[str, Any]] = {"d": {}, "k": {}, "n": {}}
    for i, daemon in enumerate(node.daemons):
        life = daemon[4] if len(daemon) > 4 else -100.0
        named["d"][str(i)] = {"class": daemon[0], "id": daemon[1], "pid": 100 + i, "since": begin + life + offset}
        named["d"][str(i)].update({"io": True, "disks": node.osd_disks.get(daemon[1], {})})
    for i, disk in enumerate(node.disks):
        named["k"][str(i)] = {"name": disk, "rotational": node.rotational}
    for i, net in enumerate(node.nets):
        named["n"][str(i)] = {"name": net, "speed": node.speed, "addresses": list(node.addresses)}
    lines.append({"t": begin + offset, "names": named})
    lines += [_sample(node, second, begin + second + offset) for second in range(1, seconds + 1)]
    lines.append({"t": lines[-1]["t"], "end": "told", "samples": seconds, "cpu": 0.1})
    with path.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _sample(node: Made, second: int, t: float) -> Dict[str, Any]:
    busy = round(100 * node.cpus * node.busy)
    rows = []
    for i, daemon in enumerate(node.daemons):
        first, last = daemon[4:6] if len(daemon) > 4 else (-100, 10**6)
        if first < second <= last:
            rows.append([i, round(100 * daemon[2]), daemon[3] << 10, 9, 1 << 20, 2 << 20])
    mib = 1 << 20
    disks = [
        [i, 10, int(read * mib / 512), 30, 20, int(wrote * mib / 512), 100, round(1000 * util), 1500]
        for i, (util, read, wrote) in enumerate(node.disks.values())
    ]
    nets = [[i, int(rx * mib), 1000, 0, int(tx * mib), 1000, 1] for i, (rx, tx) in enumerate(node.nets.values())]
    line = {"t": t, "s": 1.0, "c": [busy, 0, 0, 100 * node.cpus - busy, 0, 0, 0, 0], "d": rows, "k": disks, "n": nets}
    if node.threads and second % 10 == 1 and second > 1:
        line["threads"] = {str(i): [list(shares)] for i, shares in node.threads.items()}
    return line


def load(per_s: float = 1000.0, bytes_per_s: float = 1e9) -> Dict[str, Any]:
    return {"made": True, "per_s": per_s, "bytes_per_s": bytes_per_s, "ops": {"GET": per_s}}


def phase_of(folder: Path, window: Tuple[float, float] = (5.0, 15.0), **more: Any) -> Dict[str, Any]:
    """Return the numbers of a phase; the window is in seconds after T0."""
    nodes = read_nodes(folder, more.get("offsets", {}))
    at = (T0 + window[0], T0 + window[1])
    return resources.of_window(nodes, at, more.get("load", load()), ROLES, more.get("networks", Networks()))
