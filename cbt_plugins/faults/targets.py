"""Which nodes and OSDs a fault hits: as named, or chosen by a seed that is written down."""

from __future__ import annotations

import random
import re
from typing import Collection, List, Sequence

from cbt_plugins.faults.cluster_facts import Facts
from cbt_plugins.faults.scene import Targets
from cbt_plugins.faults.step import FaultError
from cbt_plugins.inventory import find_host
from cbt_plugins.plan import Fault


def resolve(fault: Fault, unit: str, facts: Facts, nodes: Sequence[str], held: Collection[int]) -> Targets:
    """Turn names, or a number of them, into nodes and OSDs. `held`: OSDs that open faults have. Raises FaultError."""
    by_node = {}
    for host, osds in facts.hosts.items():
        node = find_host(host, nodes)
        if node:
            by_node[node] = osds
    names = list(fault.targets)
    if not names:
        if fault.choose < 1:
            raise FaultError(f"{fault.label}: no targets, and no number of them to choose")
        names = _chosen(fault, unit, facts, by_node, held)
    hit_nodes: List[str] = []
    hit_osds: List[int] = []
    for name in names:
        osd = re.fullmatch(r"osd\.(\d+)", name)
        if osd:
            if unit == "node":
                raise FaultError(f"{fault.label}: {fault.kind} hits whole nodes, {name} is none")
            if int(osd[1]) not in facts.osds:
                raise FaultError(f"{fault.label}: there is no {name}")
            hit_osds.append(int(osd[1]))
            continue
        node = find_host(name, nodes)
        if unit == "osd":
            raise FaultError(f"{fault.label}: {fault.kind} hits single OSDs, {name} is none")
        if node is None or node not in by_node:
            there = ", ".join(sorted(by_node)) or "none"
            raise FaultError(f"{fault.label}: {name} is no node of `cluster:` with OSDs; there are {there}")
        hit_nodes.append(node)
        hit_osds += by_node[node]
    hit = tuple(dict.fromkeys(hit_osds))
    taken = [o for o in hit if o in held]
    if taken:
        raise FaultError(f"{fault.label}: {', '.join(f'osd.{o}' for o in taken)}: an open fault has it already")
    dead = [o for o in hit if not facts.osds[o]["up"]]
    if dead:
        raise FaultError(f"{fault.label}: {', '.join(f'osd.{o}' for o in dead)}: down already, and not by this run")
    return Targets(tuple(dict.fromkeys(hit_nodes)), hit, tuple(names))


def _chosen(fault: Fault, unit: str, facts: Facts, by_node: dict[str, List[int]], held: Collection[int]) -> List[str]:
    of = fault.choose_of or ("osd" if unit == "osd" else "node")
    if of not in ("node", "osd") or unit not in ("either", of):
        raise FaultError(
            f"{fault.label}: {fault.kind} hits {'single OSDs' if unit == 'osd' else 'whole nodes'}, not {of}"
        )
    usable = {o for o, entry in facts.osds.items() if entry["up"] and entry["in"] and o not in held}
    if of == "osd":
        free = [f"osd.{o}" for node in sorted(by_node) for o in by_node[node] if o in usable]
    else:
        free = [node for node in sorted(by_node) if by_node[node] and usable.issuperset(by_node[node])]
    if len(free) < fault.choose:
        what = "OSDs" if of == "osd" else "nodes"
        raise FaultError(f"{fault.label}: {fault.choose} {what} to choose, {len(free)} are whole: {', '.join(free)}")
    return sorted(random.Random(fault.seed).sample(free, fault.choose))
