"""The `recovery` profile: the cluster's state once a second, through one connection to one node.

Samples arrive as monitors/recovery.<node>/recovery.jsonl; docs/RECOVERY.md has their keys.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Union

from pydantic import Field

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.sampler import AGENT, agent_settings
from cbt_plugins.config.validate import Strict, values_of

from .agents import AgentMonitor


class RecoveryProfile(Strict):
    """The cluster's state, over and over, while a benchmark runs."""

    # plain numbers as in CBT's own profiles
    interval: float = Field(1.0, ge=0.1, le=60, description="Seconds from one sample to the next.")
    nodes: Union[str, List[str]] = Field("head", description="Where to ask from: the first node of these keys.")
    librados: bool = Field(True, description="False: ask through the ceph command even where librados is.")


class Recovery(AgentMonitor):
    """Keys: `interval` (seconds, default 1), `nodes` (default head; its first node is used), `librados: false`."""

    Section = RecoveryProfile
    NAME, AGENT = "recovery", AGENT
    DEFAULT_NODES = ("head",)

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self._profile = values_of(RecoveryProfile, "recovery", config)
        super().__init__(config, cluster, common)
        self.nodes = self.nodes[:1]
        if not self.nodes:
            raise ValueError("monitoring_profiles: recovery: no node to ask the cluster from; check its nodes:")

    def argument(self) -> str:
        ceph = Ceph(self._remote, self.cluster)
        return agent_settings(ceph, self._profile.interval, librados=self._profile.librados, recovery=True)

    def name_on(self, node: str) -> str:
        return self.NAME
