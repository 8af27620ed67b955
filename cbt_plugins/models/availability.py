"""Shares of placement groups by counting alone: no cluster, no placement group."""

from __future__ import annotations

from math import comb
from typing import Dict, List, Sequence, Tuple


def members_lost(domains: Sequence[float], size: int) -> List[float]:
    """Share of the PGs (0..1) that lose 0, 1, 2 ... of their members; as many entries as a PG has members, and one.

    `domains`: the share of each failure domain that fails (0..1). A PG has one member in `size` of them, each choice as
    likely as any other; where there are fewer domains than that, in all of them.
    """
    size = min(size, len(domains))  # such a pool is undersized to begin with
    # ways[(members, failed)]: choices of domains so far, weighed by how likely their failure is
    ways: Dict[Tuple[int, int], float] = {(0, 0): 1.0}
    for share in domains:
        new = dict(ways)
        for (members, failed), weight in ways.items():
            if members < size:
                for more, part in ((1, share), (0, 1.0 - share)):
                    key = (members + 1, failed + more)
                    new[key] = new.get(key, 0.0) + weight * part
        ways = new
    total = comb(len(domains), size)
    return [ways.get((size, failed), 0.0) / total for failed in range(size + 1)]


def inactive_share(domains: Sequence[float], size: int, min_size: int) -> float:
    """Share of the PGs (0..1) that would have fewer than `min_size` members left, and serve no client.

    `domains` as for members_lost. Two of eight hosts, EC 4+2 with min_size 5: C(6,4) / C(8,6) = 15/28.
    """
    lost = members_lost(domains, size)
    members = len(lost) - 1
    return sum(share for failed, share in enumerate(lost) if members - failed < min_size)


def whole(down: int, total: int) -> List[float]:
    """Return domains for members_lost: `down` of `total` fail, and fail altogether."""
    down = min(down, total)
    return [1.0] * down + [0.0] * (total - down)
