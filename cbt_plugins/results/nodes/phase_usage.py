"""The usage of all nodes in a phase, to which one node after another is added; docs/RESOURCES.md has the formulas."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from cbt_plugins.results.nodes.bottleneck import bottleneck
from cbt_plugins.results.nodes.core_ratios import core_ratios
from cbt_plugins.results.nodes.cpu_time_per_request import cpu_time
from cbt_plugins.results.nodes.node_samples import Counter
from cbt_plugins.results.nodes.node_usage import NodeUsage
from cbt_plugins.results.nodes.usage import CLASSES, UsageGrid, highest, numbered, rounded

#: classes of daemons that a node of a role may have; a node without a role may have all
_CLASSES_OF = {"osd": ("osd",), "rgw": ("rgw",), "client": ("generator",), "head": ("mon", "mgr")}


class Unseen(NamedTuple):
    """The blind spots of a phase: nodes without samples with their roles, and how many OSDs and RGWs are unwatched."""

    nodes: Mapping[str, Sequence[str]]
    osds: int
    gateways: int = 0

    @property
    def classes(self) -> AbstractSet[str]:
        """Classes of daemons that are known in part only: a sum would be too small."""
        classes = {daemon_class for roles in self.nodes.values() for daemon_class in _classes_of(roles)}
        return classes | {name for name, number in (("osd", self.osds), ("rgw", self.gateways)) if number}

    def plain(self) -> Dict[str, Any]:
        """Return the blind spots as the summary of a phase has them; no key for none."""
        blind_spots = {"missing": list(self.nodes), "unwatched": self.osds, "unwatched_gateways": self.gateways}
        return {key: blind for key, blind in blind_spots.items() if blind}


ALL_SEEN = Unseen({}, 0)


def _classes_of(roles: Sequence[str]) -> Iterable[str]:
    return [daemon_class for role in roles for daemon_class in _CLASSES_OF.get(role, (role,))] or CLASSES


class PhaseUsage:
    """Sums and lines of the nodes of a phase so far; what they are the sums of is not kept."""

    def __init__(self, window: Tuple[float, float]) -> None:
        self._window = window
        self._nodes: List[NodeUsage] = []  # without daemons and threads
        self._lines: List[Dict[str, Any]] = []  # of daemons
        self._curves: Dict[str, np.ndarray] = {}  # class of daemons -> cores in the bins
        self._threads: Dict[str, np.ndarray] = {}  # class of daemons -> seconds of a processor
        self._intervals: Set[float] = set()  # for which the bins are

    def add(self, usage: NodeUsage) -> None:
        """Add a node. Nodes are added in their order."""
        self._nodes.append(usage._replace(daemons=[], threads={}))
        self._intervals.add(usage.interval)
        if len(self._intervals) > 1:
            return  # nothing can be added to other bins
        for line, curve in usage.daemons:
            self._lines.append(line)
            self._curves[line["class"]] = _added(self._curves.get(line["class"]), curve)
        for daemon_class, seconds in usage.threads.items():
            self._threads[daemon_class] = self._threads.get(daemon_class, 0.0) + seconds

    @property
    def interval(self) -> Optional[float]:
        """The longest interval of the nodes, in seconds; None without nodes."""
        return max((usage.node.interval for usage in self._nodes), default=None)

    @property
    def has_equal_bins(self) -> bool:
        """Whether the bins of all nodes are those of the longest interval."""
        return self._intervals <= {self.interval}

    @property
    def names(self) -> Set[str]:
        """The names of the nodes."""
        return {usage.node.name for usage in self._nodes}

    def about_nodes(self) -> Iterator[Dict[str, Any]]:
        """Yield the facts about each node that the summary of a run has."""
        machines = self._machines()
        for usage in self._nodes:
            node = usage.node
            yield {
                "node": node.name,
                "source": node.source,
                "interval": node.interval,
                "cpus": node.cpus,
                "machine": machines[node.boot][0].node.name,
                "roles": usage.line["roles"],
                **({"clock": node.clock} if node.clock else {}),
            }

    def numbers(self, load: Mapping[str, Any], unseen: Unseen = ALL_SEEN) -> Dict[str, Any]:
        """Return the numbers of the phase; `load` {"made", "per_s", "bytes_per_s", "ops": {op: rate}}.

        With "served", a Counter of requests, also the CPU time of thread groups for each. Of the classes of `unseen`
        there are no sums.
        """
        window, partial = self._window, unseen.classes
        interval = self.interval or 0.0
        grid = UsageGrid(window, interval)
        curves = {name: self._curves[name] for name in CLASSES if name in self._curves and name not in partial}
        classes = {name: _class(self._lines, name, curve) for name, curve in curves.items()}
        by_place = sorted(self._lines, key=lambda d: (CLASSES.index(d["class"]), d["node"], numbered(d["id"])))
        threads = cpu_time(self._threads, window, interval, load.get("served") or Counter(1))
        usage: Dict[str, Any] = {
            "seconds": round(window[1] - window[0], 3),
            "source": "resources" if any(usage.node.source == "resources" for usage in self._nodes) else "collectl",
            "classes": classes,
            **core_ratios(classes, partial, load),
            "nodes": list(self._node_lines()),
            "daemons": by_place,
            "devices": [line for nodes in self._machines().values() for line in _devices(nodes)],
            "interfaces": list(self._interfaces()),
            "threads": _without_partial_classes(threads, partial),
            "series": {
                "start": float(grid.begin),
                "step": grid.step,
                "cores": {name: grid.rounded_values(curve) for name, curve in curves.items()},
            },
        }
        usage.update(unseen.plain())
        usage["bottleneck"] = bottleneck(usage, load)
        return usage

    def _machines(self) -> Dict[str, List[NodeUsage]]:
        """Return the nodes by machine: nodes of a lab share processors and disks."""
        machines: Dict[str, List[NodeUsage]] = {}
        for usage in self._nodes:
            machines.setdefault(usage.node.boot, []).append(usage)
        return machines

    def _node_lines(self) -> Iterator[Dict[str, Any]]:
        machines = self._machines()
        cores: Dict[str, Dict[str, float]] = {}
        for line in self._lines:
            of_node = cores.setdefault(line["node"], {})
            of_node[line["class"]] = round(of_node.get(line["class"], 0.0) + line["cores"], 4)
        for usage in self._nodes:
            node = usage.node
            usage.line.update(machine=machines[node.boot][0].node.name, cores=cores.get(node.name, {}))
            yield usage.line

    def _interfaces(self) -> Iterator[Dict[str, Any]]:
        """Yield the lines of interfaces; those of one network namespace once."""
        seen = set()
        for usage in self._nodes:
            if usage.node.network not in seen:
                seen.add(usage.node.network)
                yield from usage.interfaces


def _devices(nodes: Sequence[NodeUsage]) -> Iterator[Dict[str, Any]]:
    """Yield the lines of disks of a machine that belong to an OSD or did something; each disk once."""
    for name, disk in nodes[0].disks.items():
        osds: Dict[str, List[Tuple[str, str]]] = {}  # part of an OSD -> [(node, OSD)]
        for usage in nodes:
            for part, ids in usage.osds.get(name, {}).items():
                of_part = osds.setdefault(part, [])
                of_part += [pair for pair in ((usage.node.name, osd) for osd in ids) if pair not in of_part]
        if osds or disk.active:
            data = osds.get("block", [])
            disk.line.update(
                node=min((node for of_part in osds.values() for node, _ in of_part), default=nodes[0].node.name),
                osd=data[0][1] if len(data) == 1 else None,
                osds={part: sorted((osd for _, osd in of_part), key=numbered) for part, of_part in osds.items()},
            )
            yield disk.line


def _without_partial_classes(threads: Optional[Dict[str, Any]], partial: AbstractSet[str]) -> Optional[Dict[str, Any]]:
    """Leave out the classes of which a part is not known."""
    lines = [line for line in threads["lines"] if line["class"] not in partial] if threads else []
    return {**threads, "lines": lines} if threads and lines else None


def _added(sums: Optional[np.ndarray], curve: np.ndarray) -> np.ndarray:
    """Add a curve to sums; where only one of the two is known, that one counts."""
    if sums is None:
        return curve
    both: np.ndarray = np.where(np.isnan(sums), curve, np.where(np.isnan(curve), sums, sums + curve))
    return both


def _class(lines: Sequence[Mapping[str, Any]], daemon_class: str, curve: np.ndarray) -> Dict[str, Any]:
    class_lines = [line for line in lines if line["class"] == daemon_class]
    usage: Dict[str, Any] = {
        "cores": _sum(class_lines, "cores"),
        "peak": rounded(highest(curve)),
        "daemons": len(class_lines),
    }
    usage.update((key, _sum(class_lines, key)) for key in ("rss_mib", "read_mib_s", "write_mib_s"))
    return usage


def _sum(lines: Sequence[Mapping[str, Any]], key: str) -> Optional[float]:
    """Sum a key of lines; None when a value is not known: a sum without it would be too small."""
    values = [line[key] for line in lines]
    return None if any(value is None for value in values) else rounded(sum(values))
