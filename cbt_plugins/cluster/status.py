"""One sample of `ceph status` (and `ceph df`): what a run needs to know of its cluster, the same for every release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional


@dataclass(frozen=True)
class Status:
    """PG states, health and fullness at one instant."""

    health: str  # HEALTH_OK, HEALTH_WARN, HEALTH_ERR
    checks: Mapping[str, str]  # code -> severity
    pgs: Mapping[str, int]  # state name as Ceph prints it -> number of PGs
    num_pgs: int
    osds: int
    osds_up: int
    osds_in: int
    degraded: int  # object copies
    misplaced: int
    raw_used: Optional[float]  # 0..1 of all raw capacity; None when `ceph df` was not asked

    @property
    def not_clean(self) -> int:
        """PGs that are not active+clean; a scrub does not make a PG unclean."""
        clean = sum(n for state, n in self.pgs.items() if {"active", "clean"} <= set(state.split("+")))
        return self.num_pgs - clean

    def sample(self, at: float) -> Dict[str, Any]:
        """A line of status.jsonl; `at` is epoch seconds on the clock of the machine that leads the run."""
        return {
            "t": at,
            "pgs": dict(self.pgs),
            "clean": self.not_clean == 0,
            "not_clean": self.not_clean,
            "health": self.health,
            "checks": dict(self.checks),
            "raw_used": self.raw_used,
            "degraded": self.degraded,
            "misplaced": self.misplaced,
            "osds_up": self.osds_up,
            "osds_in": self.osds_in,
        }

    @classmethod
    def parse(cls, status: Mapping[str, Any], df: Optional[Mapping[str, Any]] = None) -> Status:
        """Read `ceph status -f json`; degraded and misplaced counts are there only when they are not zero."""
        pgmap, osdmap = status["pgmap"], status["osdmap"]
        osdmap = osdmap.get("osdmap", osdmap)  # before Octopus the map was nested in itself
        pgs: Dict[str, int] = {s["state_name"]: s["count"] for s in pgmap.get("pgs_by_state", [])}
        raw = df["stats"]["total_used_raw_ratio"] if df else None
        return cls(
            health=status["health"]["status"],
            checks={k: v.get("severity", "") for k, v in status["health"].get("checks", {}).items()},
            pgs=pgs,
            num_pgs=pgmap.get("num_pgs", sum(pgs.values())),
            osds=osdmap["num_osds"],
            osds_up=osdmap["num_up_osds"],
            osds_in=osdmap["num_in_osds"],
            degraded=pgmap.get("degraded_objects", 0),
            misplaced=pgmap.get("misplaced_objects", 0),
            raw_used=float(raw) if raw is not None else None,
        )
