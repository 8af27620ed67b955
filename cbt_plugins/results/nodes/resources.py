"""Use of daemons, disks and interfaces in each phase, by node and by class; docs/RESOURCES.md has the formulas."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.formatting import percent, several
from cbt_plugins.journal import read_json
from cbt_plugins.results.archive import ArchivedPhase, ArchivedRun
from cbt_plugins.results.environment import Clocks, roles_of_nodes
from cbt_plugins.results.nodes import collectl
from cbt_plugins.results.nodes.bottleneck import at_ceiling, bottleneck
from cbt_plugins.results.nodes.core_ratios import core_ratios
from cbt_plugins.results.nodes.cpu_time_per_request import cpu_time
from cbt_plugins.results.nodes.node_samples import FOLDER, Counter, NodeSamples, read_node
from cbt_plugins.results.nodes.unwatched_osds import osds_of_moved_nodes, unwatched_osds, unwatched_text
from cbt_plugins.results.nodes.usage import (
    CLASSES,
    Networks,
    UsageGrid,
    daemons,
    devices,
    highest,
    interfaces,
    numbered,
    roles_at,
    rounded,
    without_doubles,
)
from cbt_plugins.results.worker_processes import most_workers, worker_processes

#: share of the window that has to be known on a node
WATCHED = 0.95
_BOUND = "the load generator is the limit, not the cluster: "
#: share of the periods of a CPU limit, MiB swapped, and share of a memory limit, above which there is a warning; how
#: many daemons or nodes a warning names
THROTTLED, SWAPPED, NEAR_LIMIT, _SHOWN = 0.01, 1.0, 0.95, 5
#: what lifecycle.watch notes beside the monitors' files: {monitor: nodes that it was to watch}
NODES = "nodes.json"
#: classes of daemons that a node of a role may have; a node without a role may have all
_CLASSES_OF = {"osd": ("osd",), "rgw": ("rgw",), "client": ("generator",), "head": ("mon", "mgr")}
#: bytes of files from which on other processes are worth their start
MANY = 8 << 20


def resources(run: ArchivedRun, phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return {"nodes", "phases": {name: ...}} of a run, from its phases in the summary; None without a monitor."""
    offsets = Clocks.of(run).nodes
    roles, networks = roles_of_nodes(run), Networks.of(run.path)
    folders = [run.path / "monitors", *sorted(run.path.glob("monitors/[0-9][0-9]*"))]
    of_run = [node for folder in folders for node in read_nodes(folder, offsets)]
    wanted = nodes_to_watch(run.path)
    node_lines: Dict[str, Dict[str, Any]] = {}
    usage_of_phase: Dict[str, Any] = {}
    # a phase's own folder: archives of before the monitors ran across phases
    of_phases = [read_nodes(phase.path / "monitors", offsets) for phase, _ in zip(run.phases, phases)]
    every = [*of_run, *(node for nodes in of_phases for node in nodes)]
    unwatched = unwatched_osds(run.path, {f"{d.daemon_class}.{d.id}" for node in every for d in node.daemons})
    unwatched += osds_of_moved_nodes(every)
    for phase, line, of_phase in zip(run.phases, phases, of_phases):
        window = (line["window"]["start"], line["window"]["end"])
        if window[1] <= window[0]:
            continue
        phase_nodes = [*of_run, *of_phase]
        run.damage.update(dict.fromkeys(text for node in phase_nodes for text in node.damage))
        nodes = [node.in_window(window) for node in phase_nodes if node.processors.meets(*window)]
        if nodes:
            names = {node.name for node in nodes}
            seen = {node.name: roles_at(node, roles) for node in phase_nodes}
            missing = {name: seen.get(name) or roles.get(name) or () for name in wanted if name not in names}
            unseen = Unseen(missing, len(unwatched))
            usage_of_phase[phase.name] = of_window(nodes, window, _load(phase, line), roles, networks, unseen)
            for node in nodes:
                node_lines.setdefault(node.name, _about(node, nodes, roles))
    named = {"unwatched": unwatched} if unwatched else {}
    return {"nodes": list(node_lines.values()), "phases": usage_of_phase, **named} if usage_of_phase else None


class Unseen(NamedTuple):
    """The blind spots of a phase: nodes without samples with their roles, and the number of unwatched OSDs."""

    nodes: Mapping[str, Sequence[str]]
    osds: int

    @property
    def classes(self) -> AbstractSet[str]:
        """Classes of daemons that are known in part only: a sum would be too small."""
        classes = {daemon_class for roles in self.nodes.values() for daemon_class in _classes_of(roles)}
        return classes | {"osd"} if self.osds else classes

    def plain(self) -> Dict[str, Any]:
        """Return the blind spots as the summary of a phase has them; no key for none."""
        return {key: blind for key, blind in {"missing": list(self.nodes), "unwatched": self.osds}.items() if blind}


_ALL_SEEN = Unseen({}, 0)


def nodes_to_watch(run: Path) -> List[str]:
    """Return the nodes that the monitor was to watch; [] where nobody has noted them."""
    nodes: Dict[str, None] = {}
    for path in sorted(run.glob(f"monitors/[0-9][0-9]*/{NODES}")):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            nodes.update(dict.fromkeys(map(str, read_json(path).get(FOLDER[:-1]) or ())))
    return list(nodes)


#: a monitor's file with samples of a node
_SAMPLES = re.compile(
    rf"(?:phases/[^/]+/)?monitors/(?:[^/]+/)?(?:{re.escape(FOLDER)}(?P<node>[^/]+)/(?P=node)\.jsonl"
    rf"|{re.escape(collectl.FOLDER)}(?P<of_collectl>[^/]+)/[^/]+\.(?:cpu|dsk|net|tab)(?:\.gz)?)"
)


def nodes_of_files(names: Iterable[str]) -> AbstractSet[str]:
    """Return the nodes whose samples are in these files of a run."""
    matches = filter(None, map(_SAMPLES.fullmatch, names))
    return {match["node"] or match["of_collectl"] for match in matches}


_GAP = "processors and disks were not watched during all of the phase: "


def resource_warnings(
    resources_section: Optional[Mapping[str, Any]],
    phases: Sequence[Mapping[str, Any]],
    wanted: Sequence[str] = (),
    refused: AbstractSet[str] = frozenset(),
) -> List[Dict[str, Any]]:
    """Return the warnings: nodes that were not watched all the time, a generator that was the limit.

    `phases` are those of the summary: without a monitor, too, it is known what generators can do. `wanted` are the
    nodes that were to be watched, `refused` those of which a file is not read: no gap of theirs is the monitor's.
    """
    warnings = []
    unrefused = [node for node in wanted if node not in refused]
    watched = resources_section["phases"] if resources_section else {}
    for phase in phases:
        near = at_ceiling(phase["generator"]) if phase["name"] not in watched else None
        if near:
            warnings.append({"code": "generator-bound", "text": _BOUND + near, "phase": phase["name"]})
        if unrefused and phase["name"] not in watched and phase["window"]["end"] > phase["window"]["start"]:
            text = f"{_GAP}none of the {several(len(unrefused), 'node')}"
            warnings.append({"code": "resources-gap", "text": text, "phase": phase["name"]})
    clocks = [node for node in (resources_section or {}).get("nodes", ()) if node.get("clock")]
    warnings += [{"code": "resources-gap", "text": f"{node['node']}: {node['clock']}"} for node in clocks]
    unwatched = (resources_section or {}).get("unwatched")
    if unwatched:
        text = unwatched_text("resources", unwatched, "OSDs have no sums")
        warnings.append({"code": "monitor-limited", "text": text})
    for name, line in watched.items():
        shares = {n["node"]: n["watched"] for n in line["nodes"] if n["watched"] < WATCHED}
        shares.update(dict.fromkeys(line.get("missing") or (), 0.0))
        gaps = [f"{node} ({percent(share, '.0f')})" for node, share in shares.items() if node not in refused]
        if gaps:
            text = _GAP + ", ".join(gaps)
            warnings.append({"code": "resources-gap", "text": text, "phase": name})
        stopped = [d for d in line["daemons"] if (d.get("throttled") or 0.0) > THROTTLED]
        if stopped:
            daemon_texts = [f"{d['class']}.{d['id']} in {percent(d['throttled'], '.0f')}" for d in stopped[:_SHOWN]]
            number = several(len(stopped), "daemon")
            text = f"CPU limits of cgroups stopped {number}: {', '.join(daemon_texts)} of their periods"
            warnings.append({"code": "throttled", "text": text, "phase": name})
        warnings += _memory_limit_warnings(name, line["daemons"])
        swapping = [n for n in line["nodes"] if (n.get("swapped_mib") or 0.0) > SWAPPED]
        if swapping:
            node_texts = [f"{n['node']} ({n['swapped_mib']:.0f} MiB)" for n in swapping[:_SHOWN]]
            warnings.append(
                {"code": "swapping", "text": f"memory was swapped on {', '.join(node_texts)}", "phase": name}
            )
        if line["bottleneck"]["what"] == "generator":
            text = _BOUND + line["bottleneck"]["evidence"][0]
            warnings.append({"code": "generator-bound", "text": text, "phase": name})
    return warnings


def _memory_limit_warnings(phase: str, daemon_lines: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return the warnings of daemons that came near the memory limit of a cgroup, and of OOM kills."""
    near = [
        f"{d['class']}.{d['id']} ({percent(d['memory_share'], '.0f')} of {d['memory_limit_mib']:.0f} MiB)"
        for d in daemon_lines
        if (d.get("memory_share") or 0.0) > NEAR_LIMIT
    ]
    killed = [f"{d['class']}.{d['id']} ({d['oom_kills']})" for d in daemon_lines if d.get("oom_kills")]
    warnings = []
    if killed:
        text = f"OOM kills of {several(len(killed), 'daemon')}, or of other processes in the same cgroup"
        text = f"{text}: {', '.join(killed[:_SHOWN])}"
        warnings.append({"code": "memory-limit", "text": text, "phase": phase})
    if near:
        text = f"memory of {several(len(near), 'daemon')} was near the limit of a cgroup: {', '.join(near[:_SHOWN])}"
        warnings.append({"code": "memory-limit", "text": text, "phase": phase})
    return warnings


def read_nodes(folder: Path, offsets: Mapping[str, float]) -> List[NodeSamples]:
    """Return the samples of a `monitors` folder, by node; collectl's files of the nodes without another monitor."""
    names = {path.name[len(FOLDER) :]: path for path in sorted(folder.glob(f"{FOLDER}*"))}
    # others' files are there too where nodes share a directory
    files = [(path / f"{name}.jsonl", name, offsets.get(name, 0.0)) for name, path in names.items()]
    node_of_name: Dict[str, NodeSamples] = {node.name: node for node in _read_files(files) if node}
    for path in sorted(folder.glob(f"{collectl.FOLDER}*")):
        name = path.name[len(collectl.FOLDER) :]
        node = (
            collectl.read_node(path, name, offsets.get(name, 0.0))
            if name not in node_of_name and path.is_dir()
            else None
        )
        if node:
            node_of_name[name] = node
    nodes = [node_of_name[name] for name in sorted(node_of_name)]
    collectl.join_machines([node for node in nodes if node.source == "collectl"])
    return nodes


def _read_files(files: Sequence[Tuple[Path, str, float]]) -> List[Optional[NodeSamples]]:
    """Read with all processors when there is much to read."""
    sizes = [path.stat().st_size for path, _, _ in files if path.exists()]
    if sum(sizes) <= MANY or len(sizes) < 2:
        return [read_node(*file) for file in files]
    with worker_processes(min(len(files), most_workers())) as pool:
        return list(pool.map(read_node, *zip(*files)))


def _load(phase: ArchivedPhase, line: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the load on the cluster: requests and bytes a second that ended well, and what the generator can do."""
    total, length, series = line["total"], line["window"]["seconds"], line["series"]
    ops = {op: numbers["requests"] / length for op, numbers in line["ops"].items()}
    return {
        "made": bool(phase.jobs),
        "per_s": total["requests"] / length,
        "bytes_per_s": total["bytes"] / length,
        "ops": ops,
        "ceiling": line["generator"],
        "served": counter_of_rates(
            (series["start"], series["step"], op_series["obj_per_s"]) for op_series in series["ops"].values()
        ),
    }


def counter_of_rates(rates: Iterable[Tuple[float, int, Sequence[float]]]) -> Counter:
    """Return a counter of requests, from (begin, seconds of a bin, requests a second)."""
    counter = Counter(1)
    for begin, step, values in rates:
        times = begin + step * np.arange(1, len(values) + 1)
        counter.add(begin, times, step * np.nan_to_num(np.array(values, float)).reshape(-1, 1))
    return counter


def _about(node: NodeSamples, nodes: Sequence[NodeSamples], roles: Mapping[str, Sequence[str]]) -> Dict[str, Any]:
    return {
        "node": node.name,
        "source": node.source,
        "interval": node.interval,
        "cpus": node.cpus,
        "machine": _machine(node, nodes),
        "roles": roles_at(node, roles),
        **({"clock": node.clock} if node.clock else {}),
    }


def _machine(node: NodeSamples, nodes: Sequence[NodeSamples]) -> str:
    """Return the first node of the same machine: nodes of a lab share processors and disks."""
    return next(candidate.name for candidate in nodes if candidate.boot == node.boot)


def of_window(
    nodes: Sequence[NodeSamples],
    window: Tuple[float, float],
    load: Mapping[str, Any],
    roles: Mapping[str, Sequence[str]],
    networks: Networks,
    unseen: Unseen = _ALL_SEEN,
) -> Dict[str, Any]:
    """Return one phase: `window` on the run's clock, `load` {"made", "per_s", "bytes_per_s", "ops": {op: rate}}.

    With "served", a Counter of requests, also the CPU time of thread groups for each. Of the classes of `unseen` there
    are no sums.
    """
    nodes, partial = [node.in_window(window) for node in nodes], unseen.classes
    grid = UsageGrid(window, max(node.interval for node in nodes))
    lines: List[Dict[str, Any]] = []
    curves: Dict[str, np.ndarray] = {}
    alone = without_doubles(nodes, window)
    for node in alone:
        for line, curve in daemons(node, grid):
            lines.append(line)
            if line["class"] in partial:
                continue
            curves[line["class"]] = _added(curves.get(line["class"]), curve)
    classes = {
        daemon_class: _class(lines, daemon_class, curves[daemon_class])
        for daemon_class in CLASSES
        if daemon_class in curves
    }
    usage: Dict[str, Any] = {
        "seconds": round(window[1] - window[0], 3),
        "source": "resources" if any(node.source == "resources" for node in nodes) else "collectl",
        "classes": classes,
        **core_ratios(classes, partial, load),
        "nodes": [_node(node, nodes, lines, grid, roles) for node in nodes],
        "daemons": sorted(lines, key=lambda line: (CLASSES.index(line["class"]), line["node"], numbered(line["id"]))),
        "devices": list(devices(nodes, alone, grid)),
        "interfaces": list(interfaces(nodes, grid, roles, networks)),
        "threads": _without_partial_classes(cpu_time(alone, window, load.get("served") or Counter(1)), partial),
        "series": {
            "start": float(grid.begin),
            "step": grid.step,
            "cores": {
                daemon_class: grid.rounded_values(curves[daemon_class])
                for daemon_class in CLASSES
                if daemon_class in curves
            },
        },
    }
    usage.update(unseen.plain())
    usage["bottleneck"] = bottleneck(usage, load)
    return usage


def _classes_of(roles: Sequence[str]) -> Iterable[str]:
    return [daemon_class for role in roles for daemon_class in _CLASSES_OF.get(role, (role,))] or CLASSES


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


def _node(
    node: NodeSamples,
    nodes: Sequence[NodeSamples],
    lines: Sequence[Mapping[str, Any]],
    grid: UsageGrid,
    roles: Mapping[str, Sequence[str]],
) -> Dict[str, Any]:
    seconds = node.processors.watched_seconds((grid.begin, grid.end))[0]
    busy, waiting = node.processors.rise(grid.begin, grid.end) / seconds
    cores: Dict[str, float] = {}
    for line in lines:
        if line["node"] == node.name:
            cores[line["class"]] = round(cores.get(line["class"], 0.0) + line["cores"], 4)
    host = [sample for sample in node.host if grid.begin < sample[0] <= grid.end]
    return {
        "node": node.name,
        "machine": _machine(node, nodes),
        "roles": roles_at(node, roles),
        "load": rounded(sum(sample[1] for sample in host) / len(host)) if host else None,
        "available_mib": rounded(min(sample[2] for sample in host) / 1024) if host else None,
        "swapped_mib": rounded(sum(sample[3] for sample in host) / 2**20) if host else None,
        "cpus": node.cpus,
        # its clock and that of the ticks are not one
        "busy": rounded(min(1.0, busy / node.cpus)) if node.cpus else None,
        "io_wait": rounded(waiting / node.cpus) if node.cpus else None,
        "cores": cores,
        "monitor_cores": rounded(node.monitor.rise(grid.begin, grid.end)[0] / seconds),
        "watched": round(min(1.0, seconds / grid.length), 4),
    }
