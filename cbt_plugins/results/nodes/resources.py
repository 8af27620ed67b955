"""Use of daemons, disks and interfaces in each phase, by node and by class; docs/RESOURCES.md has the formulas."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.formatting import percent, several
from cbt_plugins.journal import read_json
from cbt_plugins.results.archive import ArchivedPhase, ArchivedRun
from cbt_plugins.results.environment import Clocks, environment, roles_of_nodes
from cbt_plugins.results.nodes import collectl
from cbt_plugins.results.nodes.bottleneck import at_ceiling
from cbt_plugins.results.nodes.core_ratios import is_over_s3, unwatched_class
from cbt_plugins.results.nodes.node_files import UsageReader, node_files
from cbt_plugins.results.nodes.node_samples import FOLDER, Counter, NodeSamples
from cbt_plugins.results.nodes.node_usage import usages_of
from cbt_plugins.results.nodes.phase_usage import ALL_SEEN, PhaseUsage, Unseen
from cbt_plugins.results.nodes.unwatched_osds import (
    osds_of_moved_nodes,
    unwatched_gateways,
    unwatched_osds,
    unwatched_text,
)
from cbt_plugins.results.nodes.usage import Networks, roles_at

#: share of the window that has to be known on a node
WATCHED = 0.95
_BOUND = "the load generator is the limit, not the cluster: "
#: share of the periods of a CPU limit, MiB swapped, and share of a memory limit, above which there is a warning; how
#: many daemons or nodes a warning names
THROTTLED, SWAPPED, NEAR_LIMIT, _SHOWN = 0.01, 1.0, 0.95, 5
#: what lifecycle.watch notes beside the monitors' files: {monitor: nodes that it was to watch}
NODES = "nodes.json"


def resources(run: ArchivedRun, phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return {"nodes", "phases": {name: ...}} of a run, from its phases in the summary; None without a monitor."""
    offsets = Clocks.of(run).nodes
    roles, networks = roles_of_nodes(run), Networks.of(run.path)
    windows = {number: (line["window"]["start"], line["window"]["end"]) for number, line in enumerate(phases)}
    windows = {number: window for number, window in windows.items() if window[1] > window[0]}
    folders = [run.path / "monitors", *sorted(run.path.glob("monitors/[0-9][0-9]*"))]
    files = [file for folder in folders for file in node_files(folder, offsets, range(len(phases)))]
    for number, (phase, _) in enumerate(zip(run.phases, phases)):
        # a phase's own folder: archives of before the monitors ran across phases
        files += node_files(phase.path / "monitors", offsets, [number])
    nodes, usages = UsageReader(windows, roles, networks).read(files)
    every = [node for node in nodes if node]
    wanted = nodes_to_watch(run.path)
    node_lines: Dict[str, Dict[str, Any]] = {}
    usage_of_phase: Dict[str, Any] = {}
    watched = {f"{d.daemon_class}.{d.id}" for node in every for d in node.daemons}
    gateways = unwatched_gateways(run.path, environment(run)["endpoints"], every)
    unwatched = unwatched_osds(run.path, watched)
    unwatched += osds_of_moved_nodes(every)
    for number in windows:
        phase_nodes = [node for file, node in zip(files, nodes) if node and number in file.phases]
        run.damage.update(dict.fromkeys(text for node in phase_nodes for text in node.damage))
        usage = usages.pop(number)
        names = usage.names
        if names:
            phase, line = run.phases[number], phases[number]
            seen = {node.name: roles_at(node, roles) for node in phase_nodes}
            missing = {name: seen.get(name) or roles.get(name) or () for name in wanted if name not in names}
            usage_of_phase[phase.name] = usage.numbers(_load(phase, line), Unseen(missing, len(unwatched), gateways))
            for about in usage.about_nodes():
                node_lines.setdefault(about["node"], about)
    named = {"unwatched": unwatched} if unwatched else {}
    return {"nodes": list(node_lines.values()), "phases": usage_of_phase, **named} if usage_of_phase else None


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
    gateways = max((line.get("unwatched_gateways") or 0 for line in watched.values()), default=0)
    if gateways:
        text = f"resources did not watch {several(gateways, 'RGW')} of the cluster, so RGWs have no sums"
        warnings.append({"code": "monitor-limited", "text": f"{text}: add the nodes to `rgws`"})
    loaded = [phase for phase in phases if phase["jobs"] and phase["name"] in watched and is_over_s3(phase["ops"])]
    seen_classes = [{daemon["class"] for daemon in watched[phase["name"]]["daemons"]} for phase in loaded]
    for daemon_class in sorted(set(map(unwatched_class, seen_classes)) - {""}):
        text = f"resources watched no {daemon_class.upper()}, so there are no requests/s per core and cores per GB/s"
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


def of_window(
    nodes: Sequence[NodeSamples],
    window: Tuple[float, float],
    load: Mapping[str, Any],
    roles: Mapping[str, Sequence[str]],
    networks: Networks,
    unseen: Unseen = ALL_SEEN,
) -> Dict[str, Any]:
    """Return one phase: `window` on the run's clock, `load` and `unseen` as of PhaseUsage.numbers."""
    usage = PhaseUsage(window)
    for node_usage in usages_of(nodes, window, max(node.interval for node in nodes), roles, networks):
        usage.add(node_usage)
    return usage.numbers(load, unseen)
