"""`ceph df`: space of the cluster and of its pools, the same for every release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

#: how the pools end that RGW makes for objects
DATA_POOL = ".buckets.data"


@dataclass(frozen=True)
class PoolSpace:
    """A pool's line, in bytes."""

    name: str
    stored: int  # what clients have written
    used: int  # the same with copies and coding chunks
    max_avail: int  # what clients can still write: copies and coding chunks taken off
    objects: int


@dataclass(frozen=True)
class Space:
    """Raw space in bytes, and the pools by name."""

    total: int
    used: int
    pools: Mapping[str, PoolSpace]

    @property
    def used_share(self) -> float:
        """%RAW USED as a share 0..1."""
        return self.used / self.total if self.total else 0.0

    def data_pool(self, name: Optional[str] = None) -> PoolSpace:
        """Return the pool of this name; without a name the only pool for objects of RGW. Raises ValueError."""
        if name is not None:
            if name not in self.pools:
                raise ValueError(f"there is no pool {name!r}; there are {', '.join(self.pools) or 'none'}")
            return self.pools[name]
        candidates = [pool for pool in self.pools if pool.endswith(DATA_POOL)]
        if len(candidates) != 1:
            number = len(candidates) or "none"
            raise ValueError(f"which pool? {number} of {', '.join(self.pools) or 'no pools'} ends in {DATA_POOL}")
        return self.pools[candidates[0]]

    @classmethod
    def parse(cls, df: Mapping[str, Any]) -> Space:
        """Read `ceph df -f json`, with or without `detail`. Raises KeyError where it is something else."""
        pools: Dict[str, PoolSpace] = {}
        for entry in df["pools"]:
            stats = entry["stats"]
            stored = int(stats.get("stored", stats["bytes_used"]))
            # before Nautilus `bytes_used` was what clients had written, and there was no `stored`
            numbers = (stored, int(stats["bytes_used"]), int(stats["max_avail"]), int(stats["objects"]))
            pools[entry["name"]] = PoolSpace(entry["name"], *numbers)
        all_of_it = df["stats"]
        used = all_of_it["total_used_raw_bytes" if "total_used_raw_bytes" in all_of_it else "total_used_bytes"]
        return cls(int(all_of_it["total_bytes"]), int(used), pools)
