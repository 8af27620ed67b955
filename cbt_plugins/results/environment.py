"""The environment of a run by its manifest: versions, nodes, endpoints, and the offsets of the nodes' clocks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Collection, Counter, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from cbt_plugins.cluster_conditions import CLOCK
from cbt_plugins.formatting import about_size, several
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import json_lines, read_json
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.clock_drift import ClockDrift, ClockLine

_OTHERS = ("warp", "hsbench", "cbt", "cbt_plugins", "python")
#: "ceph version 18.2.7 (6b0e988052ec84cf2d4a54ff9bbbc5e720b621ad) reef (stable)"
_CEPH = re.compile(r"ceph version (\S+) \([0-9a-f]+\) (\w+)")
#: keys of the cluster's configuration -> what a node is
_ROLES = {"clients": "client", "osds": "osd", "mons": "mon", "rgws": "rgw", "mgrs": "mgr", "head": "head"}


def environment(run: ArchivedRun) -> Dict[str, Any]:
    """Return {"versions": {program: text}, "nodes": [{"node", "kernel", "clock_offset"}], "endpoints", "scale"}.

    A clock offset is in seconds, node minus head; without one in the manifest it is that of the node's jobs.
    """
    manifest = run.manifest
    versions = {"ceph": ceph_version(manifest.get("ceph"))}
    versions.update((name, _text(manifest.get(name))) for name in _OTHERS)
    s3 = run.plan.get("s3")
    return {
        "versions": {name: text for name, text in versions.items() if text},
        "nodes": _nodes(run),
        "endpoints": list(s3.get("urls") or []) if isinstance(s3, dict) else [],
        "scale": run.plan.get("scale"),
    }


def ceph_version(versions: Any) -> Optional[str]:
    """Return "18.2.7 reef" from what `ceph versions` says; all of them when daemons differ."""
    if not isinstance(versions, dict):
        return _text(versions)
    overall = versions.get("overall", versions)
    if not isinstance(overall, dict) or not overall:
        return None
    names = []
    for text in overall:
        match = _CEPH.match(text)
        names.append(" ".join(match.groups()) if match else text)
    if len(names) == 1:
        return names[0]
    return ", ".join(f"{name} ({n} daemons)" for name, n in zip(names, overall.values()))


def roles_in(cluster: Mapping[str, Any]) -> Dict[str, List[str]]:
    """Return node -> what a `cluster:` section says that it is."""
    roles: Dict[str, List[str]] = {}
    for key, role in _ROLES.items():
        for node in nodes_of(cluster, key):
            roles.setdefault(node, []).append(role)
    return roles


def roles_of_nodes(run: ArchivedRun) -> Dict[str, List[str]]:
    """Return node -> what the file says that it is ("client", "osd", "mon", "rgw", "mgr", "head")."""
    roles = roles_in(_mapping(_file(run.path / "cluster.json"), "cluster"))
    for phase in run.phases:
        for job in phase.jobs:
            if "client" not in roles.setdefault(job.node, []):
                roles[job.node].append("client")
    return roles


#: keys of the cluster's configuration -> what such a node is called, in the order of a sentence
_CALLED = {"osds": "OSD node", "rgws": "RGW node", "mons": "mon node", "clients": "client"}


def hardware(run: Path, summary: Mapping[str, Any]) -> List[str]:
    """Return the hardware of a run, as far as it recorded: nodes with cores and memory, OSDs, links.

    ["4 OSD nodes, 2 RGW nodes, 2 clients: 64 cores, 512 GiB each", "96 OSDs of 7.28 TiB (hdd)", "25 Gbit/s"]
    """
    file, facts = _mapping(_file(run / "cluster.json"), "cluster"), _mapping(_file(run / "manifest.json"), "nodes")
    shapes: Dict[str, List[str]] = {}
    for key, name in _CALLED.items():
        nodes = nodes_of(file, key)
        if nodes:
            node_shapes = sorted({_shape(_mapping(facts, node)) for node in nodes} - {""})
            shapes[several(len(nodes), name)] = node_shapes
    every = {tuple(node_shapes) for node_shapes in shapes.values()}
    if len(every) == 1 and any(every):
        node_texts = [f"{', '.join(shapes)}: {' or '.join(every.pop())} each"]
    else:
        descriptions = (
            f"{name} ({' or '.join(node_shapes)})" if node_shapes else name for name, node_shapes in shapes.items()
        )
        node_texts = [", ".join(descriptions)]
    resources = summary.get("resources") or {"nodes": [], "phases": {}}
    machines = {node.get("machine") for node in resources["nodes"]}
    if len(machines) == 1 < len(resources["nodes"]):
        node_texts[0] += ", all on one machine"
    used = [phase["interfaces"] for phase in resources["phases"].values()]
    speeds = sorted({interface["speed_mbit"] for lines in used for interface in lines if interface.get("speed_mbit")})
    links = f"{' and '.join(f'{speed / 1000:g}' for speed in speeds)} Gbit/s" if speeds else ""
    return [text for text in (*node_texts, *_osds(run), links) if text]


def _shape(facts: Mapping[str, Any]) -> str:
    cores, memory = (re.fullmatch("[0-9]{1,15}", str(facts.get(key))) for key in ("cores", "memory_kib"))
    parts = [several(int(cores[0]), "core")] if cores else []
    return ", ".join([*parts, *([about_size(int(memory[0]) * 1024)] if memory else [])])


def _osds(run: Path) -> Iterator[str]:
    """Yield the number of OSDs of each size and class before the run."""
    lines = _file(run / "cluster" / "before" / "osd_df.json").get("nodes")
    kinds: Counter[str] = Counter()
    for osd in lines if isinstance(lines, list) else ():
        if isinstance(osd, dict) and isinstance(osd.get("kb"), int):
            kinds[f"{about_size(osd['kb'] * 1024)} ({osd.get('device_class') or 'no class'})"] += 1
    if kinds:
        yield ", ".join(f"{several(n, 'OSD')} of {kind}" for kind, n in sorted(kinds.items()))


def _file(path: Path) -> Dict[str, Any]:
    """Return a document of the archive; {} where it is missing or damaged."""
    try:
        document = read_json(path)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _nodes(run: ArchivedRun) -> List[Dict[str, Any]]:
    facts, offsets = _mapping(run.manifest, "nodes"), dict(_mapping(run.manifest, "clock_offsets"))
    for phase in run.phases:
        for job in phase.jobs:
            offsets.setdefault(job.node, job.clock_offset)
    return [
        {
            "node": node,
            "kernel": _text(_mapping(facts, node).get("kernel")),
            "clock_offset": _number(offsets.get(node)),
        }
        for node in dict.fromkeys([*facts, *offsets])
    ]


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> Optional[float]:
    if isinstance(value, dict):
        value = value.get("seconds")
    return float(value) if isinstance(value, (int, float)) else None


def _text(value: Any) -> Optional[str]:
    """Return a text as it is; of a mapping the value that says it best."""
    if isinstance(value, dict):
        value = next((value[name] for name in ("describe", "version", "text") if value.get(name)), None)
    return None if value is None else str(value)


@dataclass(frozen=True)
class Clocks:
    """Seconds that nodes' clocks are ahead of the leading machine's; 0 for what nobody has measured."""

    nodes: Mapping[str, float] = field(default_factory=dict)
    monitors: float = 0.0  # of Ceph's monitors, which stamp the OSD maps
    measured: Sequence[Mapping[str, Any]] = ()  # events with the later offsets of the node that samples
    mons: Collection[str] = ()  # nodes of monitors

    @classmethod
    def of(cls, run: ArchivedRun) -> Clocks:
        """Return the offsets that were measured before the run's first phase."""
        nodes: Dict[str, float] = {line["node"]: line["clock_offset"] or 0.0 for line in environment(run)["nodes"]}
        # which of them leads is written nowhere; where they differ, Ceph itself complains from 0.05 s on
        mons = [node for node, roles in roles_of_nodes(run).items() if "mon" in roles]
        of_mons = [nodes[node] for node in mons if node in nodes]
        measured = [event for event in json_lines(run.path / "events.jsonl") if event.get("event") == CLOCK]
        return cls(nodes, median(of_mons) if of_mons else 0.0, measured, mons)

    def of_file(self, path: Path) -> float:
        """Return the offset of the node whose monitor wrote a file: its folder is PROFILE.NODE."""
        return self.nodes.get(_node_of(path), 0.0)

    def has_mon(self, path: Path) -> bool:
        """Return whether a monitor of Ceph runs on that node."""
        return _node_of(path) in self.mons

    def drift_of_file(self, path: Path, lines: Iterable[ClockLine]) -> ClockDrift:
        """Return how that node's clock has moved from `of_file`; `lines`: what the file tells of it."""
        return ClockDrift.of(self.measured, _node_of(path), self.of_file(path), lines)


def _node_of(path: Path) -> str:
    return path.parent.name.partition(".")[2]


UNMEASURED = Clocks()
