"""The `recovery` profile: the cluster's state over time, through one connection to one node.

Beside CBT's own benchmarks it is a monitor; our runs sample from their begin to their end, as the profile says. Samples
arrive as monitors/recovery.<node>/recovery.jsonl; docs/RECOVERY.md has their keys. The milestones of a failure are
made of them in cbt_plugins/results/recovery/milestones.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

from pydantic import Field

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.cluster_watch import AGENT, PARTS, ClusterWatch, agent_settings
from cbt_plugins.cluster_conditions import LASTS
from cbt_plugins.config.key_errors import Strict, values_of

from .agent_monitor import AgentMonitor, node_to_ask


class RecoveryProfile(Strict):
    """The cluster's state while a benchmark runs."""

    # plain numbers as in CBT's own profiles
    # what a sample says counts for LASTS: also one that is late must leave nothing unknown
    interval: Optional[float] = Field(
        None, ge=0.1, le=LASTS / 2, description="Seconds between samples; default 0.25 by librados, 1 by `ceph`."
    )
    nodes: Union[str, List[str]] = Field("head", description="Ask from the first node of these keys.")
    librados: bool = Field(True, description="`false`: by `ceph`, even if the node has librados.")


class Recovery(AgentMonitor):
    """States of PGs and OSDs; the first of its nodes asks. The keys are those of `RecoveryProfile`."""

    Section = RecoveryProfile
    _profile: RecoveryProfile
    NAME, AGENT, PARTS = "recovery", AGENT, PARTS
    DEFAULT_NODES = ("head",)

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(config, cluster, common)
        self.nodes = [node_to_ask(self.NAME, cluster, self._profile.nodes)]

    def argument(self) -> str:
        return json.dumps([_settings(Ceph(self._remote, self.cluster), self._profile)])

    def name_on(self, node: str) -> str:
        return self.NAME


def cluster_watch(ceph: Ceph, cluster: Mapping[str, Any], config: Mapping[str, Any], folder: Path) -> ClusterWatch:
    """Return the sampler of a run, as the profile asks for it; its file is that of the monitor, under `folder`."""
    profile = values_of(RecoveryProfile, "recovery", config)
    node = node_to_ask(Recovery.NAME, cluster, profile.nodes)
    file = folder / f"{Recovery.NAME}.{node}" / f"{Recovery.NAME}.jsonl"
    return ClusterWatch(ceph, node, file, {**_settings(ceph, profile), "df": True})


def _settings(ceph: Ceph, profile: RecoveryProfile) -> Dict[str, Any]:
    return agent_settings(ceph, profile.interval, librados=profile.librados, recovery=True)
