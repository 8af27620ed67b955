"""The network's ceiling of each phase beside what was measured: docs/MODELS.md derives it.

The model knows clients' data, copies and chunks; no recovery, no headers, no other traffic.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from cbt_plugins.inventory import short_name
from cbt_plugins.models.network import CLUSTER, GET, PUBLIC, PUT, Layout, Nics, ceiling, usage
from cbt_plugins.results.wiring import Unknown, Wiring

__all__ = ["Unknown", "ceilings"]

_MIB = 1 << 20
#: operations whose bytes go the way of a PUT or of a GET
_WRITES, _READS = ("PUT", "MULTIPART"), ("GET",)


def ceilings(run: Path, summary: Mapping[str, Any], nic: Optional[float] = None) -> Dict[str, Any]:
    """{"layout": text, "nics": text, "phases": {name: line}} of a run directory and its summary.

    `nic`: bytes/s of every node's interface; without it the speeds that `resources` of the summary has. A line:

        put_mib_s, get_mib_s      ceiling of PUTs alone and of GETs alone, all clients together; null: none
        put_measured, get_measured   MiB/s in the phase
        put_share, get_share      measured / ceiling, 0..1
        share                     of the fullest link by the measured PUTs and GETs together, 0..1
        full                      {"node", "way", "network"}: that link; way is "sends" or "receives"

    Phases that moved no data are left out. Raises Unknown where the archive does not say enough.
    """
    wiring = Wiring(run, summary["environment"]["endpoints"])
    phases = [phase for phase in summary["phases"] if _rate(phase, _WRITES) or _rate(phase, _READS)]
    layouts = {phase["name"]: wiring.layout(_clients(phase)) for phase in phases}
    nics = Nics(nic) if nic else _nics(summary, wiring.cluster_network, list(layouts.values()))
    lines = {phase["name"]: _line(phase, layouts[phase["name"]], nics) for phase in phases}
    return {"layout": wiring.text(), "nics": _nics_text(nics), "phases": lines}


def _line(phase: Mapping[str, Any], layout: Layout, nics: Nics) -> Dict[str, Any]:
    measured = {PUT: _rate(phase, _WRITES), GET: _rate(phase, _READS)}
    line: Dict[str, Any] = {}
    for op in (PUT, GET):
        most = ceiling(layout, op, nics).bytes_per_s
        known = None if math.isinf(most) else most
        name = op.lower()
        line[f"{name}_mib_s"] = None if known is None else round(known / _MIB, 4)
        line[f"{name}_measured"] = round(measured[op] / _MIB, 4)
        line[f"{name}_share"] = None if known is None else round(measured[op] / known, 6)
    share, link = usage(layout, measured, nics)
    line["share"] = round(share, 6)
    line["full"] = dict(zip(("node", "way", "network"), link)) if link else None
    return line


def _rate(phase: Mapping[str, Any], ops: Tuple[str, ...]) -> float:
    """Bytes/s."""
    return sum((phase["ops"].get(op) or {}).get("mib_per_s") or 0.0 for op in ops) * _MIB


def _clients(phase: Mapping[str, Any]) -> Dict[str, float]:
    """Each client's part of the load: its workers."""
    found: Dict[str, float] = {}
    for job in phase["jobs"]:
        found[job["node"]] = found.get(job["node"], 0.0) + max(1, job["workers"])
    return found


def _nics(summary: Mapping[str, Any], own_cluster: bool, layouts: List[Layout]) -> Nics:
    """Speeds as the monitor of the nodes saw them: on each side of a node the interface that moved most."""
    best: Dict[str, Dict[str, Tuple[float, float]]] = {PUBLIC: {}, CLUSTER: {}}
    for phase in ((summary.get("resources") or {}).get("phases") or {}).values():
        for net in phase["interfaces"]:
            if not net["speed_mbit"]:
                continue
            network = CLUSTER if own_cluster and net.get("side") == "cluster" else PUBLIC
            moved = (net["rx_mib_s"] or 0.0) + (net["tx_mib_s"] or 0.0), net["speed_mbit"] * 1e6 / 8
            node = short_name(net["node"])
            best[network][node] = max(moved, best[network].get(node, moved))
    speeds = {network: {node: speed for node, (_, speed) in its.items()} for network, its in best.items()}
    for node, speed in speeds[PUBLIC].items():
        speeds[CLUSTER].setdefault(node, speed)
    nodes: Set[str] = {node for of in layouts for part in (of.osds, of.clients, of.gateways) for node in part}
    unknown = sorted(nodes - set(speeds[PUBLIC]))
    if unknown:
        some = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        raise Unknown(f"the speed of the network is not known of {some}; --nic 25Gbit gives it")
    return Nics(speeds[PUBLIC], speeds[CLUSTER] if own_cluster else None)


def _nics_text(nics: Nics) -> str:
    if not isinstance(nics.public, Mapping):
        return f"{8 * nics.public / 1e9:g} Gbit/s as given"
    speeds = sorted(set(nics.public.values()))
    text = f"{8 * speeds[0] / 1e9:g}" + (f" to {8 * speeds[-1] / 1e9:g}" if len(speeds) > 1 else "")
    return f"{text} Gbit/s as seen on the nodes"
