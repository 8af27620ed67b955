"""The `resources` profile: what daemons, disks and interfaces do on every node, through one connection each.

Samples arrive as monitors/resources.<node>/<node>.jsonl; docs/RESOURCES.md has their form.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Union

from pydantic import Field

from cbt_plugins import daemon_programs
from cbt_plugins.config.key_errors import Strict

from . import node_daemons
from .agent_monitor import AgentMonitor


class ResourcesProfile(Strict):
    """The use of daemons, processors, disks and interfaces."""

    interval: float = Field(
        1.0, ge=0.1, le=60, description="Seconds between samples; ten times as long after 7200 samples."
    )
    nodes: Union[str, List[str]] = Field(
        ["clients", "osds", "mons", "rgws", "mgrs", "head", "watched"], description="Keys of `cluster:` with nodes."
    )


class Resources(AgentMonitor):
    """CPU, memory, disks and network of nodes. The keys are those of `ResourcesProfile`."""

    Section = ResourcesProfile
    _profile: ResourcesProfile
    NAME, AGENT, PARTS = "resources", Path(__file__).parent / "resources_agent.py", (daemon_programs, node_daemons)
    DEFAULT_NODES = ("clients", "osds", "mons", "rgws", "mgrs", "head", "watched")

    def argument(self) -> str:
        return f"{self._profile.interval:g}"
