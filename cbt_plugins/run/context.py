"""Context that all parts of a run share: run of CBT, plan, archive, journals, connections and injector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List

from cbt_plugins.cbt_run import CbtRun
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.cluster_watch import ClusterWatch
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster_conditions import NO_FAULTS
from cbt_plugins.faults import Injector
from cbt_plugins.inventory import ROLES, head_of, nodes_of
from cbt_plugins.journal import Journal
from cbt_plugins.models.ladder_search import LadderStep
from cbt_plugins.plan import Plan
from cbt_plugins.run.run_archive import RunArchive

#: event of the journal from which on clients may have made buckets
LOAD_BEGUN = "load-begun"
#: where the load's folders are, in the run's folder on the clients
LOAD = "load"
#: in the name of a session's folder there that has nothing to fetch: loads against a null server; in no phase's name
CEILING = "_ceiling."


@dataclass(frozen=True)
class RunContext:
    """One invocation of a run; `PlanRunner` makes it before it asks anything of the cluster."""

    cbt_run: CbtRun
    plan: Plan
    run_id: str
    remote: Remote
    ceph: Ceph
    archive: RunArchive
    journal: Journal  # what an invocation after a kill has to know
    events: Journal  # what happened when, for results and people
    injector: Injector
    watch: ClusterWatch  # the state of the cluster, from the begin of the invocation to its end
    #: by phase: steps of ladders, so that the files of a step are read once
    ladder_steps: Dict[str, LadderStep] = field(default_factory=dict)

    def has_data(self) -> bool:
        """Return whether a phase has begun: what the run has made for itself may hold the data of hours then."""
        return bool(self.journal.last("phase-begun"))

    @property
    def faulty(self) -> bool:
        """Whether a fault is in force."""
        return any(record.kind not in NO_FAULTS for record in self.injector.open_changes)

    @property
    def clients(self) -> List[str]:
        """The nodes that make load."""
        return list(dict.fromkeys(driver.node for driver in self.plan.drivers))

    @property
    def nodes(self) -> List[str]:
        """Every node that the load or the cluster needs, the head first."""
        cluster = self.cbt_run.cluster
        if not self.plan.admin:  # servers are somebody else's
            return list(dict.fromkeys([head_of(cluster), *self.clients]))
        servers = [role for role in ROLES if role not in ("head", "clients")]
        return list(dict.fromkeys([head_of(cluster), *self.clients, *nodes_of(cluster, *servers)]))

    @property
    def watched(self) -> List[str]:
        """Every node that may have files of the run: monitors also watch clients that make no load."""
        return list(dict.fromkeys([*self.nodes, *(nodes_of(self.cbt_run.cluster) if self.plan.admin else ())]))
