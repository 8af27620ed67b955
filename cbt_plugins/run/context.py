"""What all parts of one run share: its host, plan, archive, journals, connections and injector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults import Injector
from cbt_plugins.host import HostRun
from cbt_plugins.inventory import ROLES, head_of, nodes_of
from cbt_plugins.journal import Journal
from cbt_plugins.plan import Plan
from cbt_plugins.run.archive import RunArchive


@dataclass(frozen=True)
class RunContext:
    """One invocation of a run; the engine makes it before it asks anything of the cluster."""

    host: HostRun
    plan: Plan
    run_id: str
    remote: Remote
    ceph: Ceph
    archive: RunArchive
    journal: Journal  # what an invocation after a kill has to know
    events: Journal  # what happened when, for results and people
    injector: Injector

    @property
    def clients(self) -> List[str]:
        """The nodes that make load."""
        return list(dict.fromkeys(driver.node for driver in self.plan.drivers))

    @property
    def nodes(self) -> List[str]:
        """Every node of the run, the head first."""
        cluster = self.host.cluster
        servers = [role for role in ROLES if role not in ("head", "clients")]
        return list(dict.fromkeys([head_of(cluster), *self.clients, *nodes_of(cluster, *servers)]))
