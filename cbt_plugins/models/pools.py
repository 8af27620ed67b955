"""How a pool keeps data, how many placement groups it should have, and which of them survive a failure.

Copies and erasure codes are one thing: k parts and m spare ones. The number of PGs follows the rule of Ceph's PG
calculator to its last rounding, so that the results are equal to those of https://old.ceph.com/pgcalc/; it is older
than the autoscaler, which takes its results as pg_num_min. Shares of PGs are found by counting, without a cluster.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from math import comb
from typing import Dict, Iterable, List, Sequence, Tuple

_TEXT = re.compile(r"(?:[eE][cC] ?)?([0-9]{1,3})(?: ?\+ ?([0-9]{1,3})| copies)?")


@dataclass(frozen=True)
class Redundancy:
    """An object is cut into `k` parts, and `m` more are made so that any k of all are enough; copies have k = 1."""

    k: int
    m: int

    def __post_init__(self) -> None:
        if self.k < 1 or self.m < 0:
            raise ValueError(f"a pool has 1 or more data parts and 0 or more spare ones, not {self.k}+{self.m}")

    @property
    def size(self) -> int:
        """Members of a PG: copies, or data and coding chunks."""
        return self.k + self.m

    @property
    def usable(self) -> float:
        """Share of the raw space that holds data (0..1): 1/3 of 3 copies, 4/6 of EC 4+2."""
        return self.k / self.size

    def __str__(self) -> str:
        return f"EC {self.k}+{self.m}" if self.k > 1 else f"{self.size} cop{'y' if self.size == 1 else 'ies'}"

    @classmethod
    def parse(cls, text: str) -> Redundancy:
        """Return the redundancy "3" (copies) or "4+2" (erasure code); ValueError says what to write instead."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a pool: write 3 for three copies, or 4+2 for an erasure code")
        first, coding = match.groups()
        if coding is None:
            return copies(int(first))
        if int(first) < 2:
            raise ValueError(f"{text.strip()}: an erasure code has 2 data chunks or more; write {1 + int(coding)}")
        return cls(int(first), int(coding))


def copies(number: int) -> Redundancy:
    """Return a replicated pool of this size."""
    return Redundancy(1, number - 1)


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


def pg_count(osds: int, percent: float, size: int, target: float = TARGET) -> int:
    """Return the PGs for a pool with this percent of the data of so many OSDs; `size` is copies, or k + m.

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
    """Return the mean PG members of an OSD, of pools with (PGs, size); mon_max_pg_per_osd is its limit."""
    return sum(pgs * size for pgs, size in pools) / osds


def rgw_pools(data: Redundancy) -> List[Pool]:
    """Return the pools of an RGW with the calculator's percents; all but the data are kept in 3 copies."""
    small = [Pool(name, 0.1, copies(3)) for name in (".rgw.root", "default.rgw.control", "default.rgw.log")]
    return [
        *small,
        Pool("default.rgw.meta", 0.1, copies(3)),
        Pool("default.rgw.buckets.non-ec", 1.0, copies(3)),
        Pool("default.rgw.buckets.index", 3.0, copies(3)),
        Pool("default.rgw.buckets.data", 94.8, data),
    ]


def table(pools: Sequence[Pool], osds: int, target: float = TARGET) -> List[Tuple[Pool, int]]:
    """Return each pool with its PGs."""
    return [(pool, pg_count(osds, pool.percent, pool.kept.size, target)) for pool in pools]


def members_lost(domains: Sequence[float], size: int) -> List[float]:
    """Return the shares of the PGs (0..1) that lose 0, 1, 2 ... of their members: one entry more than a PG has members.

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
                for fails, part in ((1, share), (0, 1.0 - share)):
                    key = (members + 1, failed + fails)
                    new[key] = new.get(key, 0.0) + weight * part
        ways = new
    total = comb(len(domains), size)
    return [ways.get((size, failed), 0.0) / total for failed in range(size + 1)]


def inactive_share(domains: Sequence[float], size: int, min_size: int) -> float:
    """Return the share of the PGs (0..1) that would have fewer than `min_size` members left, and serve no client.

    `domains` as for members_lost. Two of eight hosts, EC 4+2 with min_size 5: C(6,4) / C(8,6) = 15/28.
    """
    lost = members_lost(domains, size)
    members = len(lost) - 1
    return sum(share for failed, share in enumerate(lost) if members - failed < min_size)


def failed_domains(down: int, total: int) -> List[float]:
    """Return domains for members_lost: `down` of `total` fail, and fail altogether."""
    down = min(down, total)
    return [1.0] * down + [0.0] * (total - down)
