"""What all parts of one run share: its host, plan, archive, journals, connections and injector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults import Injector
from cbt_plugins.host import HostRun
from cbt_plugins.journal import Journal
from cbt_plugins.plan import Plan
from cbt_plugins.run.archive import RunArchive
from cbt_plugins.run.preflight import all_nodes, clients_of


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
        return clients_of(self.plan)

    @property
    def nodes(self) -> List[str]:
        """Every node of the run, the head first."""
        return all_nodes(self.host.cluster, self.clients)
