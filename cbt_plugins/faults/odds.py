"""Shares of placement groups by counting alone: no cluster, no placement group."""

from __future__ import annotations

from math import comb
from typing import Mapping, Sequence


def inactive_share(domains: Sequence[float], size: int, min_size: int) -> float:
    """Share of the PGs (0..1) that would have fewer than `min_size` members left.

    `domains`: the share of each failure domain that fails (0..1). A PG has one member in `size` of them, each choice as
    likely as any other. Two of eight hosts, EC 4+2 with min_size 5: C(6,4) / C(8,6) = 15/28.
    """
    if size > len(domains):
        size = len(domains)  # such a pool is undersized to begin with
    # ways[(members, failed)]: choices of domains so far, weighed by how likely their failure is
    ways = {(0, 0): 1.0}
    for share in domains:
        new = dict(ways)
        for (members, failed), weight in ways.items():
            if members < size:
                for more, part in ((1, share), (0, 1.0 - share)):
                    key = (members + 1, failed + more)
                    new[key] = new.get(key, 0.0) + weight * part
        ways = new
    lost = sum(weight for (members, failed), weight in ways.items() if members == size and size - failed < min_size)
    return lost / comb(len(domains), size)


def worst(failed: Mapping[str, float]) -> int:
    """How many members one PG can lose: the domains with any failed OSD."""
    return sum(1 for share in failed.values() if share > 0)
