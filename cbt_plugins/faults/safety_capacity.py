"""Capacity: how full the remaining OSDs would be after recovery, as far as CRUSH lets data move to them."""

from __future__ import annotations

from math import isinf
from typing import Any, Collection, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from cbt_plugins.faults.cluster_facts import Facts, areas


class Filling(NamedTuple):
    """A part of the CRUSH tree whose remaining OSDs would have to hold the data of its lost OSDs."""

    used: float  # share of the remaining capacity; above 1: the data does not fit; infinite: no capacity remains
    name: str
    pools: Tuple[str, ...]
    moves: bool  # whether data is recovered to it

    @property
    def used_share(self) -> Optional[float]:
        """Return the used share, None if no capacity remains: JSON has no infinite numbers."""
        return None if isinf(self.used) else self.used


def fillings(facts: Facts, taken: Collection[int], empty: Set[int]) -> Iterator[Filling]:
    """Yield the parts that lose OSDs by a fault. `taken`: these OSDs; `empty`: all OSDs without data after it.

    A pool's data spreads over all OSDs of its device class in its areas (`areas`): below the root of its CRUSH rule,
    or in each datacenter of a rule that chooses datacenters first. If no more failure domains remain in an area than a
    PG needs there, the data of each domain stays in the domain.
    """
    weights = {n: o["weight"] for n, o in facts.osds.items()}
    rows = {r["id"]: r for r in facts.answers["osd df"]["nodes"] if weights.get(r["id"])}
    spread: Dict[FrozenSet[int], Tuple[str, List[Mapping[str, Any]]]] = {}
    kept: Dict[Tuple[str, FrozenSet[int]], Dict[str, float]] = {}
    stays = set()
    for pool in facts.pools:
        for area in areas(facts, pool):
            if area.is_part and area.members <= empty:
                continue  # its data stays on OSDs that are gone
            spread.setdefault(area.members, (area.name, []))[1].append(pool)
            inside = {name: frozenset(o for o in members if o in rows) for name, members in area.domains.items()}
            left = [name for name, members in inside.items() if members - empty]
            if area.domains and len(left) < area.chosen:
                stays.add((pool["pool"], area.members))
            if len(left) > area.chosen:
                continue
            lost = sum(_used(rows, members) for name, members in inside.items() if name not in left)
            extra = lost / len(left) if len(left) == area.chosen else 0.0
            for name in left:
                if not inside[name].isdisjoint(taken):
                    room = _room(rows, inside[name] - empty)
                    used = (_used(rows, inside[name]) + extra) / room if room else float("inf")
                    kept.setdefault((f"{area.kind} {name}", inside[name]), {})[str(pool["pool_name"])] = used
    for members, (name, pools) in spread.items():
        here = [o for o in members if o in rows]
        if here and not members.isdisjoint(taken):
            room = _room(rows, [o for o in here if o not in empty])
            moves = not room or any((pool["pool"], members) not in stays for pool in pools)
            names = tuple(str(pool["pool_name"]) for pool in pools)
            yield Filling(_used(rows, here) / room if room else float("inf"), name, names, moves)
    for (name, _), by_pool in kept.items():
        yield Filling(max(by_pool.values()), name, tuple(by_pool), True)


def _used(rows: Mapping[int, Mapping[str, Any]], osds: Collection[int]) -> float:
    return float(sum(rows[osd]["kb_used"] for osd in osds))


def _room(rows: Mapping[int, Mapping[str, Any]], osds: Collection[int]) -> float:
    return float(sum(rows[osd]["kb"] for osd in osds))
