"""The `backlog` profile: what RGW still has to do: garbage, buckets to reshard, shards behind another zone.

Samples arrive as monitors/backlog.<node>/backlog.jsonl; docs/RESOURCES.md has their form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Mapping, Union

from pydantic import Field

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.config.key_errors import Strict

from . import numbered_output
from .agent_monitor import AgentMonitor, node_to_ask


class BacklogProfile(Strict):
    """RGW's garbage, resharding and multisite sync, asked from one node."""

    interval: float = Field(60.0, ge=1, le=3600, description="Seconds between samples, at least.")
    nodes: Union[str, List[str]] = Field("head", description="Ask from the first node of these keys.")


class Backlog(AgentMonitor):
    """Work that waits, as RGWs and OSDs tell; the first of its nodes asks. The keys are those of `BacklogProfile`."""

    Section = BacklogProfile
    _profile: BacklogProfile
    NAME, AGENT, PARTS = "backlog", Path(__file__).parent / "backlog_agent.py", (numbered_output,)
    DEFAULT_NODES = ("head",)

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(config, cluster, common)
        self.nodes = [node_to_ask(self.NAME, cluster, self._profile.nodes)]

    def argument(self) -> str:
        admin = Ceph(self._remote, self.cluster).admin
        return json.dumps({"admin": admin, "interval": self._profile.interval})

    def name_on(self, node: str) -> str:
        return self.NAME
