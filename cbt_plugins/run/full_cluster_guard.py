"""Guard against a full cluster: a load ends before the cluster refuses writes (`full_guard`), or when it does."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Iterator, Optional, Set

from cbt_plugins.cluster.cluster_watch import StatusFeed
from cbt_plugins.faults.injector import Injector
from cbt_plugins.faults.kinds.fill import explained_checks
from cbt_plugins.formatting import percent
from cbt_plugins.plan import Plan

#: seconds without a sample of the cluster after which nobody knows how full it is
UNGUARDED = 120.0
#: health checks that end a phase, unless a fault of the run explains them
_FULL_CHECKS = ("OSD_FULL", "POOL_FULL", "OSD_BACKFILLFULL")


@dataclass
class FullClusterGuard:
    """Follows how full the cluster is during one load, by the samples of `watch`."""

    watch: StatusFeed
    _since: float = field(default_factory=lambda: time.monotonic())
    _unguarded: bool = False
    _explained: Set[str] = field(default_factory=set)  # health checks of full OSDs that faults of the run explain

    def newly_unguarded(self, plan: Plan) -> Optional[str]:
        """Return the warning that nobody has known for UNGUARDED seconds how full the cluster is, once for each time.
        """
        if not plan.admin:  # nobody samples the cluster, and the result says so
            return None
        silent = time.monotonic() - (self._since if self.watch.latest is None else self.watch.latest_at)
        was_unguarded, self._unguarded = self._unguarded, silent > UNGUARDED
        if was_unguarded or not self._unguarded:
            return None
        return f"no sample of the cluster for {silent:.0f} s: full_guard does not know how full the cluster is"

    def reasons_to_end(self, plan: Plan, injector: Injector) -> Iterator[str]:
        """Yield the reasons why a load has to end now: the raw capacity in use, and health checks."""
        status = self.watch.latest
        if not plan.admin or status is None:
            return
        limit = plan.full_guard
        if status.raw_used is not None and status.raw_used >= limit:
            yield f"{percent(status.raw_used)} of the raw capacity is used; full_guard is {percent(limit, 'g')}"
        full = {check for check in status.checks if check in _FULL_CHECKS}
        # also after the undo of the fault that explains them: the newest sample may be older
        self._explained &= full
        self._explained |= explained_checks(injector.open_changes) if full else set()
        if full - self._explained:
            yield f"the cluster is full: {', '.join(sorted(full - self._explained))}"
