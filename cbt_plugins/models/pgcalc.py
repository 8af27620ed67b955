"""How many placement groups a pool should have: the rule of Ceph's PG calculator (pgcalc).

The rule is followed to its last rounding, so that the results are equal to those of https://old.ceph.com/pgcalc/. It
is older than the autoscaler, which takes its results as pg_num_min.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, List, Sequence, Tuple

from cbt_plugins.models.redundancy import Redundancy, copies

#: PGs of each OSD where the number of OSDs stays; 200 where it may double
TARGET = 100
#: mon_max_pg_per_osd: pools that would put more PG members on an OSD are refused
MAX_PER_OSD = 250


@dataclass(frozen=True)
class Pool:
    """A pool, and what part of the data it holds."""

    name: str
    percent: float  # of the data on these OSDs
    kept: Redundancy


def nearest_power(number: float) -> int:
    """Return the power of 2 that is nearest by its exponent; the next one where that is more than a quarter below.

    0 gives 0.
    """
    if number <= 0:
        return 0
    # JavaScript's Math.round: a half goes up
    power = 2 ** math.floor(math.log(number) / math.log(2) + 0.5)
    return int(power * 2 if power < number * 0.75 else power)


def suggested(osds: int, percent: float, size: int, target: float = TARGET) -> int:
    """PGs for a pool with this percent of the data of so many OSDs; `size` is copies, or k + m.

    The larger of target x OSDs x percent / size, and OSDs / size + 1, doubled where that is below the OSDs; both as
    powers of 2.
    """
    if osds < 1 or size < 1 or percent < 0 or target <= 0:
        raise ValueError("a pool needs OSDs, a size of 1 or more and a target above 0")
    least = nearest_power(osds // size + 1)
    if least < osds:
        least *= 2
    return max(least, nearest_power(math.floor(target * osds * percent / (100 * size))))


def members_per_osd(pools: Iterable[Tuple[int, int]], osds: int) -> float:
    """PG members of an OSD in the mean, of pools with (PGs, size); mon_max_pg_per_osd is a limit for this."""
    return sum(pgs * size for pgs, size in pools) / osds


def rgw_pools(data: Redundancy) -> List[Pool]:
    """The pools of an RGW with the calculator's percents; all but the data are kept in 3 copies."""
    small = [Pool(name, 0.1, copies(3)) for name in (".rgw.root", "default.rgw.control", "default.rgw.log")]
    return [
        *small,
        Pool("default.rgw.meta", 0.1, copies(3)),
        Pool("default.rgw.buckets.non-ec", 1.0, copies(3)),
        Pool("default.rgw.buckets.index", 3.0, copies(3)),
        Pool("default.rgw.buckets.data", 94.8, data),
    ]


def table(pools: Sequence[Pool], osds: int, target: float = TARGET) -> List[Tuple[Pool, int]]:
    """Each pool with its PGs."""
    return [(pool, suggested(osds, pool.percent, pool.kept.size, target)) for pool in pools]
